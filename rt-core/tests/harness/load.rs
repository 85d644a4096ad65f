//! Random admitted systems, and loads that keep to what their streams declared.

use proptest::prelude::*;
use rt_core::{
    AdmissionError, ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, Level,
    MAX_SPAN, SafeModeConfig, SchedulerConfig, Shield, Span, Stalls, StreamId, StreamSpec, System,
};

use super::{Dice, Harness, config, earliest};

/// An admitted system, with everything that a run of it needs.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) config: SchedulerConfig,
    pub(crate) streams: Vec<StreamSpec>,
    pub(crate) seed: u64,
    /// Requests come as many and as early as their curves allow; else at random, within them.
    pub(crate) greedy: bool,
    /// Batches take all the time they may; else any time up to it.
    pub(crate) slow: bool,
}

pub(crate) fn ns(t: u64) -> Span {
    Span::from_nanos(t)
}

/// `(m,K)`.
pub(crate) fn set(m: u32, k: u32) -> ConstraintSet {
    ConstraintSet::new(&[Constraint::any_miss(m, k).expect("m < k")]).expect("one")
}

pub(crate) fn window(count: u64, length: u64) -> ArrivalBound {
    ArrivalBound::window(count, ns(length)).expect("valid")
}

/// `(m,K)` of as many requests as `bound` allows, and weaker promises behind it.
pub(crate) fn ladder((m, k): (u32, u32), bound: &ArrivalBound, behind: &[(u32, u32)]) -> StreamSpec {
    let curve = ArrivalCurve::new(std::slice::from_ref(bound)).expect("one");
    let spec = StreamSpec::promised(set(m, k), curve);
    let first = spec.demand().expect("it demands something");
    let level = |&(m, k): &(u32, u32)| Level::behind(first, set(m, k)).expect("a bound");
    let levels = behind.iter().map(level).collect();
    spec.with_levels(levels).expect("a ladder")
}

/// Safe mode is left as soon as it may be.
pub(crate) const QUICK: SafeModeConfig = SafeModeConfig { hold: Span::ZERO, clean: Span::ZERO, latch: false };

/// Every batch takes as long as it may.
pub(crate) fn stretch(harness: &mut Harness) {
    harness.longer = Some(Box::new(|scheduler, now, worker, _| {
        let now = Instant::from_nanos(now);
        let longest = scheduler.longest(now, worker);
        // Without a shield, and in safe mode, it has what it has.
        let _ = scheduler.prolong(now, worker, longest);
        longest.as_nanos()
    }));
}

fn bound() -> impl Strategy<Value = ArrivalBound> {
    prop_oneof![
        (1u64..7, 1u64..60).prop_map(|(n, w)| ArrivalBound::window(n, ns(w)).expect("valid")),
        (1u64..30, 0u64..60).prop_map(|(t, j)| ArrivalBound::periodic(ns(t), ns(j)).expect("valid")),
        (1u64..6, 1u64..30).prop_map(|(b, t)| ArrivalBound::token_bucket(b, ns(t)).expect("valid")),
        (proptest::collection::vec(0u64..60, 0..6), 30u64..90).prop_map(|(mut list, last)| {
            list.push(last);
            list.sort_unstable();
            ArrivalBound::distances(&list.into_iter().map(ns).collect::<Vec<_>>()).expect("valid")
        }),
    ]
}

fn constraint() -> impl Strategy<Value = Constraint> {
    (1u32..9).prop_flat_map(|k| (0..k, Just(k))).prop_map(|(m, k)| Constraint::any_miss(m, k).expect("m<k"))
}

pub(crate) fn stream() -> impl Strategy<Value = StreamSpec> {
    let constraints = proptest::collection::vec(constraint(), 1..4);
    let bounds = proptest::collection::vec(bound(), 1..3);
    (constraints, bounds).prop_map(|(constraints, bounds)| {
        let set = ConstraintSet::new(&constraints).expect("few");
        StreamSpec::promised(set, ArrivalCurve::new(&bounds).expect("few"))
    })
}

fn system() -> impl Strategy<Value = System> {
    let steps = proptest::collection::vec(0u64..4, 7);
    (1u64..12, steps, 1usize..9, 1usize..5, 0u64..4).prop_map(|(first, steps, batch, workers, more)| {
        let mut times = vec![first];
        steps.iter().for_each(|step| times.push(times[times.len() - 1] + step));
        let latency = ns(times[batch - 1] * (2 + more));
        let config = config(&times, batch, workers, latency.as_nanos(), Dispatch::Eager);
        super::system(&config)
    })
}

/// Gives up streams and relaxes the deadline until the rest is admitted.
fn admissible(mut system: System, mut streams: Vec<StreamSpec>) -> (System, Vec<StreamSpec>) {
    while system.admit(&streams).is_err() {
        system.latency = system.latency + system.longest_batch();
        if system.latency > ns(system.longest_batch().as_nanos() * 12) {
            streams.pop();
        }
    }
    (system, streams)
}

/// The shortest latency at which the rest is still admitted, where nothing is to spare.
fn tight(mut system: System, streams: &[StreamSpec]) -> System {
    let mut tighter = System { latency: system.latency.saturating_sub(ns(1)), ..system.clone() };
    while tighter.latency >= system.workers[0].profile.bound(1) && tighter.admit(streams).is_ok() {
        system.latency = tighter.latency;
        tighter.latency = tighter.latency.saturating_sub(ns(1));
    }
    system
}

/// The shield for `setup`, when these are its streams.
pub(crate) fn shield_of<'a>(setup: &Setup, streams: impl IntoIterator<Item = &'a StreamSpec>) -> Shield {
    let latency = setup.config.deadline.saturating_sub(setup.config.reserve());
    let load = streams.into_iter().filter_map(StreamSpec::demand);
    Shield::new(&setup.config.workers[0], latency, load).expect("an admitted load")
}

/// With a guard, for timers that use it up.
pub(crate) fn guarded(setup: Setup, guard: u64) -> Setup {
    let deadline = setup.config.deadline + ns(guard);
    Setup { config: SchedulerConfig { guard: ns(guard), deadline, ..setup.config }, ..setup }
}

/// Such a system, and another configuration that admits the same streams, if there is one among those tried.
pub(crate) fn setup_and_next() -> impl Strategy<Value = (Setup, Option<SchedulerConfig>)> {
    (setup(), system(), any::<bool>()).prop_map(|(setup, system, latest)| {
        let dispatch = if latest { Dispatch::FullOrLatest } else { Dispatch::Eager };
        let (system, kept) = admissible(System { dispatch, ..system }, setup.streams.clone());
        let base = config(&[1], 1, 1, system.latency.as_nanos(), dispatch);
        let next = SchedulerConfig { workers: system.workers, ..base };
        let fits = kept.len() == setup.streams.len();
        (setup, fits.then_some(next))
    })
}

/// Such a system; then of each of its streams a weaker promise for a wider declaration, and a configuration that admits these.
pub(crate) fn setup_and_wider() -> impl Strategy<Value = (Setup, Option<(SchedulerConfig, Vec<StreamSpec>)>)>
{
    let wider = proptest::collection::vec((0u64..3, 0u64..8, 0u32..3), 4);
    (setup(), system(), wider).prop_map(|(setup, system, wider)| {
        let streams: Vec<_> = setup.streams.iter().zip(wider).map(|(spec, by)| widen(spec, by)).collect();
        let (system, kept) = admissible(system, streams.clone());
        let next = config(&[1], 1, 1, system.latency.as_nanos(), Dispatch::Eager);
        let next = SchedulerConfig { workers: system.workers, ..next };
        let fits = kept.len() == streams.len();
        (setup, fits.then_some((next, streams)))
    })
}

/// More requests, sooner, of which more may be missed.
pub(crate) fn widen(spec: &StreamSpec, (more, sooner, misses): (u64, u64, u32)) -> StreamSpec {
    let least = |span: Span| ns(span.as_nanos().saturating_sub(sooner));
    let shorter = |span: Span| least(span).max(ns(1));
    let bound = |bound: &ArrivalBound| match bound {
        ArrivalBound::Window { count, length } => ArrivalBound::window(count + more, shorter(*length)),
        ArrivalBound::Periodic { period, jitter } => {
            ArrivalBound::periodic(shorter(*period), *jitter + ns(10 * more))
        }
        ArrivalBound::Distances(list) => {
            ArrivalBound::distances(&list.as_slice().iter().map(|&d| least(d)).collect::<Vec<_>>())
        }
    };
    let arrivals = spec.arrivals().expect("declared");
    let bounds: Vec<_> = arrivals.bounds().iter().map(|b| bound(b).expect("valid")).collect();
    let weaker = |c: &Constraint| Constraint::any_miss(c.misses() + misses, c.window()).unwrap_or(*c);
    let constraints: Vec<_> = spec.constraints().as_slice().iter().map(weaker).collect();
    let wider = ArrivalCurve::new(&bounds).expect("few");
    assert!(arrivals.is_within(&wider), "{arrivals:?} and {wider:?}");
    StreamSpec::promised(ConstraintSet::new(&constraints).expect("few"), wider)
}

/// With a weaker promise behind its first, where there is a bound.
pub(crate) fn weaker(first: &StreamSpec) -> StreamSpec {
    let weaker = |c: &Constraint| Constraint::any_miss(c.misses() + 1, c.window() + 1).unwrap_or(*c);
    let all: Vec<_> = first.constraints().as_slice().iter().map(weaker).collect();
    let set = ConstraintSet::new(&all).expect("few");
    let level = first.demand().and_then(|demand| Level::behind(demand, set).ok());
    level.and_then(|level| first.clone().with_levels(vec![level]).ok()).unwrap_or_else(|| first.clone())
}

/// Systems that serve background, as those of the daemon do.
pub(crate) fn setup() -> impl Strategy<Value = Setup> {
    setup_with(Just(true), Just(false))
}

/// Such systems with nothing to spare.
pub(crate) fn tight_setup() -> impl Strategy<Value = Setup> {
    setup_with(Just(true), Just(true))
}

/// Systems that do, and systems that do not and may be admitted for that; some with nothing to spare.
pub(crate) fn open_or_closed() -> impl Strategy<Value = Setup> {
    setup_with(any::<bool>(), any::<bool>())
}

fn setup_with(
    background: impl Strategy<Value = bool>,
    least: impl Strategy<Value = bool>,
) -> impl Strategy<Value = Setup> {
    let streams = proptest::collection::vec(stream(), 1..5);
    let run = (any::<u64>(), any::<bool>(), any::<bool>(), any::<bool>());
    (system(), streams, run, (background, least)).prop_map(
        |(system, streams, (seed, latest, greedy, slow), (background, least))| {
            let dispatch = if latest { Dispatch::FullOrLatest } else { Dispatch::Eager };
            let (system, streams) = admissible(System { dispatch, background, ..system }, streams);
            let system = if least { tight(system, &streams) } else { system };
            let base = config(&[1], 1, 1, system.latency.as_nanos(), dispatch);
            let spread = seed % 2 == 1;
            let config = SchedulerConfig { workers: system.workers, background, spread, ..base };
            Setup { config, streams, seed, greedy, slow }
        },
    )
}

/// `setup` with stalls, a deadline longer by what they may take, and the shortest window with which it is admitted.
pub(crate) fn with_stalls(setup: Setup, count: u32, length: u64) -> Option<(Setup, Stalls)> {
    let stalls = |window| Stalls::new(count, window, ns(length)).ok();
    let deadline = setup.config.deadline + stalls(MAX_SPAN)?.reserve();
    let with = |stalls| Setup {
        config: SchedulerConfig { stalls: Some(stalls), deadline, ..setup.config.clone() },
        ..setup.clone()
    };
    let admit = |stalls| super::system(&with(stalls).config).admit(&setup.streams);
    let short = stalls(ns(u64::from(count) * length + 1))?;
    let needed = match admit(short) {
        Err(AdmissionError::Stalls { needed, .. }) if needed < MAX_SPAN => needed,
        _ => return None,
    };
    let least = stalls(needed)?;
    if admit(least).is_err() {
        // It took the refinement, which knows no stalls.
        assert!(!setup.config.background, "not admitted with what is said to be needed");
        return None;
    }
    Some((with(least), least))
}

/// How many and how long.
pub(crate) fn stalls() -> impl Strategy<Value = (u32, u64)> {
    (1u32..4, 1u64..30)
}

/// A scheduler under conforming load.
pub(crate) struct Bench {
    pub(crate) harness: Harness,
    pub(crate) ids: Vec<StreamId>,
    pub(crate) history: Vec<Vec<u64>>,
    pub(crate) next: Vec<u64>,
    pub(crate) dice: Dice,
}

impl Bench {
    pub(crate) fn new(setup: &Setup) -> Self {
        let (mut dice, slow) = (Dice(setup.seed), setup.slow);
        let service = move |_, bound| if slow { bound } else { dice.within(1, bound) };
        let mut harness = Harness::new(setup.config.clone(), service);
        let ids: Vec<_> = setup.streams.iter().map(|s| harness.add(s.clone())).collect();
        let (history, next) = (vec![Vec::new(); ids.len()], vec![0; ids.len()]);
        Self { harness, ids, history, next, dice: Dice(!setup.seed) }
    }

    /// The stream whose request comes next, after it has come.
    pub(crate) fn step(&mut self, setup: &Setup) -> Option<usize> {
        let stream = (0..self.ids.len()).min_by_key(|&s| self.next[s])?;
        let now = self.next[stream];
        // What ends at the same instant is heard of before or after the arrival.
        let first = self.dice.within(0, 1) == 0;
        self.harness.advance(now, first);
        if self.dice.within(0, 3) > 0 {
            self.harness.arrive(self.ids[stream]);
        } else {
            self.harness.arrive_unpolled(self.ids[stream]);
        }
        let history = &mut self.history[stream];
        history.push(now);
        let curve = setup.streams[stream].arrivals().expect("declared");
        let pause = if setup.greedy { 0 } else { self.dice.within(0, 40).saturating_sub(25) };
        self.next[stream] = earliest(history, curve.bounds(), now + pause);
        Some(stream)
    }

    pub(crate) fn load(&mut self, setup: &Setup, requests: usize) {
        for _ in 0..requests {
            self.step(setup);
        }
    }

    /// Every stream sends from now on as early as it may.
    pub(crate) fn all_at_once(&mut self, setup: &Setup) {
        for (s, next) in self.next.iter_mut().enumerate() {
            let bounds = setup.streams[s].arrivals().expect("declared").bounds();
            *next = earliest(&self.history[s], bounds, self.harness.now);
        }
    }

    /// Lulls with a request here and there, then everything that the curves allow at once, again and again.
    /// Requests of a stream that is promised nothing set off batches, before the storms and within them.
    pub(crate) fn attack(&mut self, setup: &Setup, until: u64) {
        let nothing = self.harness.add(StreamSpec::best_effort());
        while self.harness.now < until {
            let storm = self.harness.now + self.dice.within(0, 2 * setup.config.deadline.as_nanos());
            for (s, next) in self.next.iter_mut().enumerate() {
                let curve = setup.streams[s].arrivals().expect("declared");
                let delay = self.dice.within(0, 5).saturating_sub(3);
                *next = earliest(&self.history[s], curve.bounds(), storm + delay);
            }
            for _ in 0..self.dice.within(0, 3) {
                let at = self.dice.within(self.harness.now, storm);
                self.harness.advance(at, true);
                for _ in 0..self.dice.within(1, 4) {
                    self.harness.arrive(nothing);
                }
            }
            self.harness.advance(storm, true);
            for _ in 0..self.dice.within(0, 3) {
                self.harness.arrive(nothing);
            }
            for _ in 0..self.dice.within(1, 30) {
                self.step(setup);
                if self.dice.within(0, 6) == 0 {
                    self.harness.arrive(nothing);
                }
            }
        }
        self.finish();
    }

    pub(crate) fn finish(&mut self) {
        self.harness.settle();
        self.harness.drain();
    }
}

/// `streams` on `config` with as many stalls of such a length as constraints absorb: the shortest recovery and the shortest window
/// with which they are admitted, if with any.
pub(crate) fn absorbing(
    config: &SchedulerConfig,
    streams: &[StreamSpec],
    (count, length): (u32, u64),
) -> Option<Stalls> {
    let system = super::system(config);
    let with = |window, recovery| {
        let stalls = Stalls::new(count, window, ns(length)).ok()?.absorbed(recovery);
        Some((stalls, System { stalls: Some(stalls), ..system.clone() }))
    };
    let mut recovery = ns(1);
    loop {
        let needed = with(MAX_SPAN, recovery)?.1.recovery(streams)?;
        if needed <= recovery {
            break;
        }
        recovery = needed;
    }
    match with(ns(u64::from(count) * length + 1), recovery)?.1.admit(streams) {
        Err(AdmissionError::Stalls { needed, .. }) => {
            let (stalls, system) = with(needed, recovery)?;
            system.admit(streams).is_ok().then_some(stalls)
        }
        _ => None,
    }
}
