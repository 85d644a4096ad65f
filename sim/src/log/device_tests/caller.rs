//! A device and its caller, who writes down all that happens, and lets go wrong what may.

use planner::SharedProblem;
use planner::certify::{Decision, decide};
use rt_core::sharing::{Device, DeviceAction};
use rt_core::{Arrival, Instant, MissReason, Outcome, Ran, SafeModeConfig, Span, StreamId, StreamSpec};

use crate::Arrivals;
use crate::curves::Pacer;
use crate::dice::Dice;
use crate::log::{Entry, Log, Member};
use crate::policy::device_of;
use crate::time::ns;

/// What may go wrong in a run, within what the model allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// Batches take longer than they may, by the margin in all until what has is forgotten.
    pub(super) overruns: bool,
    /// Dispatch is late, by the guard in all from one instant at which nothing mandatory waits to the next.
    pub(super) late: bool,
    /// Streams leave, and come again as others.
    pub(super) churn: bool,
}

/// A device with its caller, who writes down what happens.
struct Caller<'a> {
    device: Device,
    dice: &'a mut Dice,
    trouble: Trouble,
    now: u64,
    wake: Option<u64>,
    /// Of each worker that runs: when its batch began, when it ends, and when it is due.
    running: Vec<Option<(u64, u64, u64)>>,
    longest: u64,
    /// What batches may exceed their time by, and dispatch be late by, and what is left of it.
    margin: u64,
    margin_left: u64,
    /// All was calm since the last batch that ran over: of each worker whether it has run since then.
    calm: Option<Vec<bool>>,
    guard: u64,
    guard_left: u64,
    /// Each request by its token, and whether it was begun.
    requests: Vec<(Member, bool)>,
    sent: Vec<u64>,
    entries: Vec<(Instant, Entry)>,
    overrun: usize,
    delayed: usize,
}

impl<'a> Caller<'a> {
    fn new(problem: &SharedProblem, decision: &Decision, trouble: Trouble, dice: &'a mut Dice) -> Self {
        let sharing = problem.sharing(decision.rule, &decision.turns);
        let margin = decision.answer.as_ref().map_or(Span::ZERO, |a| a.overrun_margin());
        // Soon, so that much happens after it.
        let safe_mode = SafeModeConfig { hold: ns(20), clean: ns(20), latch: false };
        let device = device_of(problem, decision, (4096, |_| 64), safe_mode, false);
        let (margin, guard) = (margin.as_nanos(), sharing.guard.as_nanos());
        Self {
            device: device.expect("a device"),
            dice,
            trouble,
            now: 0,
            wake: None,
            running: vec![None; problem.workers],
            longest: sharing.longest.as_nanos(),
            margin,
            margin_left: margin,
            calm: None,
            guard,
            guard_left: guard,
            requests: Vec::new(),
            sent: Vec::new(),
            entries: Vec::new(),
            overrun: 0,
            delayed: 0,
        }
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn note(&mut self, entry: Entry) {
        self.entries.push((self.at(), entry));
    }

    fn add(&mut self, service: usize, spec: &StreamSpec) -> StreamId {
        let now = self.at();
        self.device.service_mut(service).add_stream(now, spec.clone()).expect("room for a stream")
    }

    fn has_waiting(&self, service: usize) -> bool {
        self.device.service(service).waiting_mandatory() > 0
    }

    fn is_idle(&self) -> bool {
        !(0..self.device.services()).any(|s| self.has_waiting(s))
    }

    /// Where nothing mandatory waits lateness is counted afresh.
    fn look(&mut self) {
        if self.is_idle() {
            self.guard_left = self.guard;
        }
    }

    /// Excess is, once what runs has ended, where the device sees besides that every worker is to be free within the longest: what
    /// began since may yet run over.
    fn look_for_calm(&mut self) {
        let mut running = self.running.iter().flatten();
        let prompt = running.all(|&(_, _, due)| self.now <= due && due <= self.now + self.longest);
        if self.calm.is_none() && self.is_idle() && prompt {
            self.calm = Some(self.running.iter().map(Option::is_some).collect());
            self.look_for_end();
        }
    }

    fn look_for_end(&mut self) {
        if self.calm.as_ref().is_some_and(|busy| !busy.contains(&true)) {
            let running = self.running.iter().flatten();
            let yet: u64 = running.map(|&(_, end, due)| end.saturating_sub(due)).sum();
            (self.margin_left, self.calm) = (self.margin.saturating_sub(yet), None);
        }
    }

    fn arrive(&mut self, service: usize, id: StreamId, stream: usize) {
        if stream >= self.sent.len() {
            self.sent.resize(stream + 1, 0);
        }
        let (member, token) = (Member { stream, seq: self.sent[stream] }, self.requests.len() as u64);
        self.sent[stream] += 1;
        self.requests.push((member, false));
        self.note(Entry::Arrives(stream));
        let arrival = Arrival::new(id, token, self.at());
        let refused = self.device.handle_arrival(self.at(), service, arrival);
        assert!(!refused.is_some_and(|r| r.request.mandatory), "{refused:?}");
        self.settle();
    }

    /// Polls until there is nothing to do, unless the daemon is late.
    fn settle(&mut self) {
        self.look();
        if self.trouble.late && self.guard_left > 0 && self.dice.within(0, 5) == 0 {
            return;
        }
        loop {
            match self.device.poll(self.at()) {
                DeviceAction::Start { service, worker } => self.start(service, worker),
                DeviceAction::Resolve(_, end) => {
                    let (member, begun) = self.requests[end.request.token as usize];
                    let missed = matches!(end.outcome, Outcome::Missed(reason) if reason != MissReason::Late);
                    if end.request.mandatory && missed && !begun {
                        self.note(Entry::Refuses(member));
                    }
                }
                DeviceAction::Event(..) => {}
                DeviceAction::WakeAt(at) => {
                    self.wake = at.map(Instant::as_nanos);
                    self.look();
                    self.look_for_calm();
                    return;
                }
            }
        }
    }

    fn start(&mut self, service: usize, worker: usize) {
        let batch: Vec<_> = self.device.service(service).batch(worker).iter().map(|r| r.token).collect();
        let bound = self.device.service(service).config().workers[0].profile.bound(batch.len());
        let members = batch.iter().map(|&token| self.requests[token as usize].0).collect();
        batch.iter().for_each(|&token| self.requests[token as usize].1 = true);
        self.note(Entry::Starts { worker, length: bound, batch: members });
        let bound = bound.as_nanos();
        let mut time = if self.dice.within(0, 2) == 0 { self.dice.within(1, bound) } else { bound };
        if self.trouble.overruns && self.margin_left > 0 && self.dice.within(0, 3) == 0 {
            let more = self.dice.within(1, self.margin_left.min(6));
            time = bound + more;
            self.margin_left -= more;
            self.overrun += 1;
        }
        self.running[worker] = Some((self.now, self.now + time, self.now + bound));
    }

    /// The next instant: the batches that end then are told of before or after the arrivals.
    fn end_batches(&mut self) {
        for worker in 0..self.running.len() {
            let Some((start, end, due)) = self.running[worker].filter(|&(_, end, _)| end <= self.now) else {
                continue;
            };
            self.running[worker] = None;
            match &mut self.calm {
                Some(_) if end > due => self.calm = None,
                Some(busy) => busy[worker] = false,
                None => {}
            }
            self.look_for_end();
            self.note(Entry::Ends(worker));
            let ran = Ran::Done(ns(self.now - start));
            self.device.handle_completion(self.at(), worker, ran);
            self.settle();
        }
        if self.wake.is_some_and(|at| at <= self.now) {
            self.settle();
        }
    }

    /// 1 ns passes.
    fn tick(&mut self) {
        if !self.is_idle() && self.running.iter().any(Option::is_none) {
            // It cannot be put off any more.
            if self.guard_left == 0 {
                self.trouble.late = false;
                self.settle();
                self.trouble.late = true;
            }
            if !self.is_idle() && self.running.iter().any(Option::is_none) {
                self.guard_left -= 1;
                self.delayed += 1;
            }
        }
        self.now += 1;
    }
}

/// A stream of the problem as it is there now: which of all that ever came, if it is there.
struct Client<'a> {
    service: usize,
    spec: &'a StreamSpec,
    pacer: Pacer<'a>,
    there: Option<(StreamId, usize)>,
}

/// What became of a run.
pub(super) struct Played {
    /// The problem with every stream that ever came.
    pub(super) problem: SharedProblem,
    pub(super) log: Log,
    pub(super) overruns: usize,
    pub(super) delays: usize,
    /// How many streams came where nothing mandatory waited, and how many beside all that counted.
    pub(super) anew: usize,
    pub(super) beside: usize,
}

/// A run in which streams mostly send as soon as they may, and somebody else of each service now and then.
pub(super) fn played(
    problem: &SharedProblem,
    decision: &Decision,
    trouble: Trouble,
    dice: &mut Dice,
) -> Played {
    let mut rolls = Dice(dice.next());
    let greedy = rolls.within(0, 3);
    let mut caller = Caller::new(problem, decision, trouble, dice);
    let declared: Vec<_> = problem.specs().enumerate().collect();
    let declared = declared.iter().flat_map(|(s, of)| of.iter().map(move |spec| (*s, spec)));
    let pacer = |spec: &'_ StreamSpec| Pacer::owned(spec.arrivals().expect("declared").clone());
    let mut clients: Vec<_> =
        declared.map(|(service, spec)| Client { service, spec, pacer: pacer(spec), there: None }).collect();
    // Every stream that ever came, with its service.
    let mut all: Vec<(usize, StreamSpec)> = Vec::new();
    for client in &mut clients {
        let id = caller.add(client.service, client.spec);
        client.there = Some((id, all.len()));
        all.push((client.service, client.spec.clone()));
    }
    let mut counted: Vec<usize> = (0..all.len()).collect();
    if trouble.churn {
        caller.note(Entry::Counts(counted.clone()));
    }
    let count = problem.services.len();
    let strangers: Vec<_> = (0..count).map(|s| caller.add(s, &StreamSpec::best_effort())).collect();
    let (mut anew, mut beside) = (0, 0);
    for _ in 0..200 {
        if rolls.within(0, 1) == 0 {
            caller.end_batches();
        }
        for _ in 0..rolls.within(0, 2) {
            let s = rolls.within(0, count as u64 - 1) as usize;
            caller.arrive(s, strangers[s], STRANGERS + s);
        }
        for _ in 0..3 * clients.len() {
            let k = rolls.within(0, clients.len() as u64 - 1) as usize;
            let client = &mut clients[k];
            let Some((id, number)) = client.there else {
                if rolls.within(0, 20) > 0 {
                    continue;
                }
                // Where nothing mandatory waits those that left count no more; elsewhere all do, if that is admitted.
                let idle = caller.is_idle();
                let mut load = counted.clone();
                if idle {
                    load = clients.iter().filter_map(|client| Some(client.there?.1)).collect();
                }
                load.push(all.len());
                let client = &mut clients[k];
                all.push((client.service, client.spec.clone()));
                let with = with_streams(problem, load.iter().map(|&number| &all[number]));
                let margin = decide(&with).answer.map_or(None, |admission| Some(admission.overrun_margin()));
                if margin.is_none_or(|margin| margin.as_nanos() < caller.margin) {
                    assert!(!idle, "less than what was admitted is refused");
                    all.pop();
                    continue;
                }
                (anew, beside) = if idle { (anew + 1, beside) } else { (anew, beside + 1) };
                client.there = Some((caller.add(client.service, client.spec), all.len() - 1));
                client.pacer = pacer(client.spec);
                caller.note(Entry::Counts(load.clone()));
                counted = load;
                continue;
            };
            if trouble.churn && rolls.within(0, 40) == 0 && !caller.has_waiting(client.service) {
                client.there = None;
                drop(caller.device.service_mut(client.service).remove_stream(id));
                caller.settle();
            } else if rolls.within(0, 3) >= greedy.min(2) && client.pacer.earliest(caller.now) == caller.now {
                client.pacer.send(caller.now);
                caller.arrive(client.service, id, number);
            }
        }
        caller.end_batches();
        caller.tick();
    }
    // What runs over is known where it ends.
    while caller.running.iter().any(Option::is_some) {
        caller.end_batches();
        caller.tick();
    }
    // The streams of the problem, those of a service together, and then the strangers.
    let mut order: Vec<_> = (0..all.len()).collect();
    order.sort_by_key(|&number| all[number].0);
    let place = |number: &mut usize| {
        let found = order.iter().position(|other| other == number);
        *number = found.unwrap_or_else(|| all.len() + *number - STRANGERS);
    };
    for (_, entry) in &mut caller.entries {
        match entry {
            Entry::Arrives(stream) => place(stream),
            Entry::Starts { batch, .. } => batch.iter_mut().for_each(|member| place(&mut member.stream)),
            Entry::Ends(_) | Entry::StageStarts { .. } | Entry::StageEnds { .. } => {}
            Entry::Refuses(member) => place(&mut member.stream),
            Entry::Counts(streams) => streams.iter_mut().for_each(place),
        }
    }
    let problem = with_streams(problem, &all);
    let mut streams = Arrivals::of_shared(&problem).streams;
    streams.extend(problem.services.iter().map(|service| format!("{}/stranger", service.name)));
    let log = Log { streams, entries: caller.entries };
    Played { problem, log, overruns: caller.overrun, delays: caller.delayed, anew, beside }
}

/// Numbers of streams of no promise, beyond all others.
const STRANGERS: usize = 1000;

/// The same services with these streams.
fn with_streams<'a>(
    problem: &SharedProblem,
    streams: impl IntoIterator<Item = &'a (usize, StreamSpec)>,
) -> SharedProblem {
    let mut problem = problem.clone();
    problem.services.iter_mut().for_each(|service| service.streams.clear());
    for (service, spec) in streams {
        let streams = &mut problem.services[*service].streams;
        streams.push((format!("s{}", streams.len()), spec.clone()));
    }
    problem
}
