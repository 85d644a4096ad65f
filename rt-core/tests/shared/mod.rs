//! Several services on the same workers: what admission says of them, and a device with its caller.

pub(crate) mod clients;
mod drive;

use std::collections::VecDeque;

use rt_core::sharing::{
    Device, DeviceConfig, Heir, Rule, SharedAdmission, SharedService, SharedShield, Sharing, SharingError,
};
use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, HandOverError, Instant,
    LatencyProfile, SafeModeConfig, Selector, Span, Stalls, StreamId, StreamSpec, Variant,
};

use crate::harness::classes::classed;
use crate::harness::{Dice, config};
use crate::oracle::sharing::{Service, Shared};
use crate::oracle::{Bound, Stream};

fn ns(n: u8) -> Span {
    Span::from_nanos(u64::from(n))
}

pub(crate) fn spec(stream: &Stream) -> StreamSpec {
    let bound = |bound: &Bound| match bound {
        Bound::Window { count, length } => ArrivalBound::window(u64::from(*count), ns(*length)),
        other => panic!("{other:?}: windows alone are drawn"),
    };
    let bounds: Vec<_> = stream.bounds.iter().map(|b| bound(b).expect("valid")).collect();
    let of = |&(m, k): &(u8, u8)| Constraint::any_miss(m.into(), k.into()).expect("valid");
    let constraints: Vec<_> = stream.constraints.iter().map(of).collect();
    StreamSpec::promised(
        ConstraintSet::new(&constraints).expect("few"),
        ArrivalCurve::new(&bounds).expect("few"),
    )
}

fn rule(shared: &Shared) -> Rule {
    if shared.turns { Rule::Turns } else { Rule::Earliest }
}

/// What admission says.
pub(crate) fn admission(shared: &Shared) -> Result<SharedAdmission, SharingError> {
    sharing(shared).admit(&lists(&specs(shared)))
}

/// What may go before mandatory requests, if it is admitted.
fn shield(shared: &Shared) -> Option<SharedShield> {
    let (sharing, specs) = (sharing(shared), specs(shared));
    let admission = sharing.admit(&lists(&specs)).ok()?;
    Some(sharing.shield(&lists(&specs), &admission))
}

/// The streams of each service.
fn specs(shared: &Shared) -> Vec<Vec<StreamSpec>> {
    shared.services.iter().map(|s| s.streams.iter().map(spec).collect()).collect()
}

fn lists(specs: &[Vec<StreamSpec>]) -> Vec<&[StreamSpec]> {
    specs.iter().map(Vec::as_slice).collect()
}

fn sharing(shared: &Shared) -> Sharing {
    let service = |s: &Service| SharedService {
        latency: ns(s.deadline - shared.late - shared.stall),
        batch: s.batch,
        time: ns(s.time),
        turn: s.turn.into(),
    };
    Sharing {
        workers: shared.workers,
        guard: ns(shared.late + shared.stall),
        stalls: stalls(shared),
        longest: ns(shared.longest),
        rule: rule(shared),
        services: shared.services.iter().map(service).collect(),
    }
}

/// One of them in a window, if any.
fn stalls(shared: &Shared) -> Option<Stalls> {
    let window = Span::from_nanos(shared.window);
    (shared.stall > 0).then(|| Stalls::new(1, window, ns(shared.stall)).expect("valid"))
}

/// A system that is admitted, and by how much a batch of it may run over.
pub(crate) fn admitted(dice: &mut Dice, turns: bool, late: u8) -> (Shared, u64) {
    loop {
        let shared = Shared::draw(dice, turns, late);
        if let Ok(admission) = admission(&shared) {
            let margin = admission.binding.map_or(0, |binding| binding.margin());
            return (shared, u64::try_from(margin).expect("admitted"));
        }
    }
}

/// Every stream that a system declares, with its service.
pub(crate) fn streams(shared: &Shared) -> Vec<(usize, StreamSpec)> {
    let of =
        |(s, service): (usize, &Service)| service.streams.iter().map(|k| (s, spec(k))).collect::<Vec<_>>();
    shared.services.iter().enumerate().flat_map(of).collect()
}

/// A request that the promise counts on, as the rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waits {
    token: u64,
    deadline: u64,
}

/// A device with its caller: a clock, workers that take as long as they are told to, and the rule, followed beside it.
pub(crate) struct Run {
    pub(crate) device: Device,
    rule: Rule,
    turns: Vec<u32>,
    guards: Vec<u64>,
    safe_mode: SafeModeConfig,
    pub(crate) now: u64,
    wake: Option<u64>,
    /// Of each worker that runs: since when, and until when.
    running: Vec<Option<(u64, u64)>>,
    /// Of each service: the mandatory requests that wait.
    waiting: Vec<VecDeque<Waits>>,
    line: VecDeque<(usize, u32)>,
    tokens: u64,
    /// Only what is mandatory is begun.
    quiet: bool,
    /// Another device has just taken over.
    leaving: bool,
    /// How often another device took over.
    pub(crate) taken_over: usize,
    /// Mandatory requests that were missed, and whether their service was in safe mode for another cause then, or when they came.
    pub(crate) missed: Vec<(u64, usize, bool)>,
    /// Of each service: whether it is in safe mode for another cause than that a constraint was violated.
    warned: Vec<bool>,
    /// When it was left last.
    left: Vec<Option<Instant>>,
    /// Every cause of safe mode that was announced: when, of which service.
    pub(crate) causes: Vec<(u64, usize, Cause)>,
    pub(crate) served: Vec<usize>,
    /// How long the next batch of a service takes: from its number and its bound.
    pub(crate) time: Box<dyn FnMut(usize, u64) -> u64>,
    /// By how much batches may run over in all until what has is forgotten, if that is bounded.
    pub(crate) margin: Option<u64>,
    /// Of each worker that runs: when its batch is due.
    due: Vec<u64>,
    over: u64,
    /// Nobody may be told of less than that by which they ran over in all, if anything.
    pub(crate) allowed: Option<u64>,
    /// All was calm since the last batch that ran over: of each worker whether it has run since then.
    calm: Option<Vec<bool>>,
    longest: u64,
    /// Of each service: whether a batch of it has run over.
    pub(crate) overran: Vec<bool>,
    /// Of each service: whether it is demoted. Of each worker: whether its batch runs over, of a service that was not when it began.
    pub(crate) demoted: Vec<bool>,
    pub(crate) harms: Vec<bool>,
    /// Whoever runs over does by no more than it did before it was demoted: then it must harm nobody.
    pub(crate) steady: bool,
    /// Batches of services that were demoted which were reckoned to take longer than any other may.
    pub(crate) alone: usize,
    /// How often something went before mandatory requests, on this device and on all.
    ahead: u64,
    pub(crate) gone_ahead: usize,
    /// Batches that ran with a slower variant than the base, and how many of them held what had to be served.
    pub(crate) varied: [usize; 2],
    /// From when to when batches stand still, in order, but for those that are spared; and how many did.
    pub(crate) stalls: Vec<(u64, u64)>,
    pub(crate) spared: Box<dyn FnMut() -> bool>,
    pub(crate) stalled: usize,
    /// A stream may send more than it declared.
    pub(crate) wild: bool,
}

impl Run {
    pub(crate) fn new(shared: &Shared, margin: u64, time: impl FnMut(usize, u64) -> u64 + 'static) -> Self {
        Self::guarded(shared, &vec![0; shared.services.len()], margin, time)
    }

    /// The same where each service has so much `more` of a deadline, and keeps it as guard.
    pub(crate) fn guarded(
        shared: &Shared,
        more: &[u8],
        margin: u64,
        time: impl FnMut(usize, u64) -> u64 + 'static,
    ) -> Self {
        Self::lasting(shared, (more, crate::harness::load::QUICK), margin, time)
    }

    /// The same where safe mode lasts so long.
    pub(crate) fn lasting(
        shared: &Shared,
        (more, safe_mode): (&[u8], SafeModeConfig),
        margin: u64,
        time: impl FnMut(usize, u64) -> u64 + 'static,
    ) -> Self {
        let guards: Vec<u64> = more.iter().map(|&more| u64::from(shared.late + more)).collect();
        let turns: Vec<u32> = shared.services.iter().map(|s| s.turn.into()).collect();
        let count = shared.services.len();
        Self {
            device: device(shared, (&guards, safe_mode), margin),
            rule: rule(shared),
            turns,
            guards,
            safe_mode,
            now: 0,
            wake: None,
            running: vec![None; shared.workers],
            waiting: vec![VecDeque::new(); count],
            line: VecDeque::new(),
            tokens: 0,
            quiet: false,
            leaving: false,
            taken_over: 0,
            missed: Vec::new(),
            warned: vec![false; count],
            left: vec![None; count],
            causes: Vec::new(),
            served: vec![0; count],
            time: Box::new(time),
            margin: None,
            due: vec![0; shared.workers],
            over: 0,
            allowed: None,
            calm: None,
            longest: shared.longest.into(),
            overran: vec![false; count],
            demoted: vec![false; count],
            harms: vec![false; shared.workers],
            steady: false,
            alone: 0,
            ahead: 0,
            gone_ahead: 0,
            varied: [0; 2],
            stalls: Vec::new(),
            spared: Box::new(|| false),
            stalled: 0,
            wild: false,
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// As [`Device::set_quiet`].
    pub(crate) fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
        self.device.set_quiet(quiet);
        self.settle();
    }

    /// A device of the services of `shared` takes over, the first of which is the last of the present one; of `ended`, if any,
    /// that service is new there, and these are its former streams.
    pub(crate) fn hand_over(
        &mut self,
        shared: &Shared,
        margin: u64,
        ended: Option<(usize, &[StreamId])>,
    ) -> Result<(), HandOverError> {
        self.hand_over_without(shared, margin, ended, None)
    }

    /// The same to one that has `lost` a worker already.
    pub(crate) fn hand_over_without(
        &mut self,
        shared: &Shared,
        margin: u64,
        ended: Option<(usize, &[StreamId])>,
        lost: Option<usize>,
    ) -> Result<(), HandOverError> {
        let (count, now) = (shared.services.len(), Instant::from_nanos(self.now));
        let mut guards = self.guards.clone();
        guards.rotate_right(1);
        let mut next = device(shared, (&guards, self.safe_mode), margin);
        lost.into_iter().for_each(|worker| next.handle_worker_lost(now, worker));
        let heir = |s: usize| match ended {
            Some((gone, ids)) if gone == s => Heir { service: None, ended: ids },
            _ => Heir { service: Some((s + 1) % count), ended: &[] },
        };
        let heirs: Vec<_> = (0..count).map(heir).collect();
        self.device.hand_over(now, &mut next, &heirs)?;
        // What is cancelled is told by the old one.
        self.leaving = true;
        self.settle();
        (self.device, self.guards) = (next, guards);
        (self.ahead, self.over, self.calm) = (0, 0, None);
        (self.leaving, self.quiet) = (false, false);
        if let Some((gone, _)) = ended {
            (self.warned[gone], self.left[gone], self.demoted[gone]) = (false, None, false);
        }
        self.warned.rotate_right(1);
        self.left.rotate_right(1);
        self.demoted.rotate_right(1);
        self.turns = shared.services.iter().map(|s| s.turn.into()).collect();
        self.served.rotate_right(1);
        self.settle();
        Ok(())
    }
}

fn device(shared: &Shared, (guards, safe_mode): (&[u64], SafeModeConfig), margin: u64) -> Device {
    let config_of = |(s, &guard): (&Service, &u64)| {
        // Larger batches than promises are computed for are known, and some are longer than any that may start.
        let more = (1..=3).map(|more| u64::from(s.time) + more);
        let times: Vec<_> = std::iter::repeat_n(u64::from(s.time), s.batch).chain(more).collect();
        let base = config(
            &times,
            s.batch,
            shared.workers,
            u64::from(s.deadline - shared.late) + guard,
            Dispatch::Eager,
        );
        let (guard, spread) = (Span::from_nanos(guard), s.deadline % 2 == 1);
        let stalls = stalls(shared);
        rt_core::SchedulerConfig { guard, spread, stalls, queue: 64, streams: 8, safe_mode, ..base }
    };
    let device = Device::new(DeviceConfig {
        rule: rule(shared),
        turns: shared.services.iter().map(|s| s.turn.into()).collect(),
        longest: ns(shared.longest),
        overrun_margin: Span::from_nanos(margin),
        services: shared.services.iter().zip(guards).map(config_of).collect(),
    });
    let mut device = device.expect("a device");
    drop(device.set_shield(shield(shared)).expect("its shield"));
    for (s, selector) in selectors(shared, &device).into_iter().enumerate() {
        device.service_mut(s).set_selector(selector).expect("its base");
    }
    device
}

/// Of every other system each service has slower variants: one takes a bit longer, one for one request as long as any batch may, one
/// longer than that.
fn selectors(shared: &Shared, device: &Device) -> Vec<Option<Selector>> {
    let varies = shared.services.iter().map(|s| usize::from(s.deadline)).sum::<usize>() % 2 == 1;
    let of = |s: usize| {
        let base = device.service(s).config().workers[0].profile.clone();
        let times = |time: fn(u64, u64) -> u64| {
            let longer =
                base.bounds().map(|bound| Span::from_nanos(time(bound.as_nanos(), shared.longest.into())));
            LatencyProfile::new(&longer.collect::<Vec<_>>()).expect("a profile")
        };
        let profiles = [
            base.clone(),
            times(|bound, _| bound + 1),
            times(|bound, most| bound.max(most)),
            times(|bound, most| bound + most),
        ];
        let variants: Vec<_> =
            profiles.into_iter().map(|profile| Variant { profile, accuracy: 0.5 }).collect();
        let deadline = u64::from(shared.services[s].deadline);
        let mut dice = Dice(deadline ^ u64::from(shared.longest));
        let greedy = || Selector::greedy(variants).expect("variants");
        varies.then(|| if s == 0 { greedy() } else { classed(greedy(), deadline, &mut dice) })
    };
    (0..shared.services.len()).map(of).collect()
}
