//! Drives a real scheduler in virtual time, and checks on the way what must hold whatever happens.

pub(crate) mod choices;
pub(crate) mod classes;
mod dice;
pub(crate) mod load;
pub(crate) mod mixed;
mod naive;
mod seen;
pub(crate) mod select;

use classes::class_of;
pub(crate) use dice::Dice;
pub(crate) use naive::{earliest, end_of, violates_any};

use rt_core::{
    Action, Arrival, Dispatch, Event, Fallbacks, HandOverError, Instant, Joined, LatencyProfile, MissReason,
    Newcomer, Outcome, Ran, Request, Resolution, SafeModeConfig, Scheduler, SchedulerConfig, Shield, Span,
    StreamId, StreamSpec, System, Workers,
};

/// How many systems are looked at: so many, or `WEIR_EXHAUSTIVE` times as many.
pub(crate) fn instances(usual: usize) -> usize {
    usual * std::env::var("WEIR_EXHAUSTIVE").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// A configuration with plenty of room, no guard, and safe mode left after 1000 ns.
pub(crate) fn config(
    times: &[u64],
    batch: usize,
    workers: usize,
    deadline: u64,
    dispatch: Dispatch,
) -> SchedulerConfig {
    let times: Vec<_> = times.iter().map(|&t| Span::from_nanos(t)).collect();
    let profile = LatencyProfile::new(&times).expect("a profile");
    let span = Span::from_nanos(1_000);
    SchedulerConfig {
        deadline: Span::from_nanos(deadline),
        guard: Span::ZERO,
        tolerance: Span::ZERO,
        stalls: None,
        workers: vec![Workers { count: workers, batch, profile }],
        dispatch,
        background: true,
        spread: false,
        queue: 4096,
        streams: 16,
        safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
    }
}

/// The admission test's view of `config`.
pub(crate) fn system(config: &SchedulerConfig) -> System {
    System {
        workers: config.workers.clone(),
        latency: config.deadline.saturating_sub(config.guard),
        guard: config.guard,
        stalls: config.stalls,
        dispatch: config.dispatch,
        background: config.background,
    }
}

/// What promises to `streams` fall back on there.
pub(crate) fn fallbacks<'a>(
    config: &SchedulerConfig,
    streams: impl IntoIterator<Item = &'a StreamSpec>,
) -> Fallbacks {
    system(config).fallbacks(streams, config.tolerance, config.queue as u64)
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waiting,
    Running,
    Ended(Outcome),
}

#[derive(Clone, Copy, Debug)]
struct Run {
    started: u64,
    time: u64,
    /// When the caller hears of it.
    heard: u64,
}

type Service = Box<dyn FnMut(usize, u64) -> u64>;
/// From the instant, the worker just told to start and its bound: the bound that it is to have.
type Longer = Box<dyn FnMut(&mut Scheduler, u64, usize, u64) -> u64>;

/// A scheduler with its caller: a clock that jumps, workers that take as long as they are told to.
pub(crate) struct Harness {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: u64,
    /// How late the caller wakes up, and hears of an engine that has ended.
    pub(crate) timer_delay: u64,
    pub(crate) completion_delay: u64,
    /// On whose requests the engine fails, and so on all that run with one of them.
    pub(crate) spoils: Option<StreamId>,
    /// Everything announced, and when.
    pub(crate) events: Vec<(u64, Event)>,
    pub(crate) resolutions: Vec<(u64, Resolution)>,
    /// Of each request that was begun its stream, its batch and its number.
    pub(crate) begun: Vec<(StreamId, usize, u64)>,
    /// When each batch started, and its size.
    pub(crate) batches: Vec<(u64, usize)>,
    /// Lets batches take longer, if set; and the bounds that they had.
    pub(crate) longer: Option<Longer>,
    /// By class within what time answers are wanted; the deadline if there is nothing.
    pub(crate) wanted: Vec<u64>,
    bounds: Vec<u64>,
    wake: Option<u64>,
    /// Whether something was fed that calls for a poll before time goes on.
    unpolled: bool,
    running: Vec<Option<Run>>,
    /// By token: its stream, and where it is.
    requests: Vec<(StreamId, Place)>,
    service: Service,
}

impl Harness {
    /// `service` gives the engine time of a batch, from its size and bound.
    pub(crate) fn new(config: SchedulerConfig, service: impl FnMut(usize, u64) -> u64 + 'static) -> Self {
        Self {
            running: vec![None; config.worker_count()],
            scheduler: Scheduler::new(config).expect("a configuration"),
            now: 0,
            timer_delay: 0,
            completion_delay: 0,
            spoils: None,
            events: Vec::new(),
            resolutions: Vec::new(),
            begun: Vec::new(),
            batches: Vec::new(),
            longer: None,
            wanted: Vec::new(),
            bounds: Vec::new(),
            wake: None,
            unpolled: false,
            requests: Vec::new(),
            service: Box::new(service),
        }
    }

    /// From now on batches take so long.
    pub(crate) fn set_service(&mut self, service: impl FnMut(usize, u64) -> u64 + 'static) {
        self.service = Box::new(service);
    }

    pub(crate) fn add(&mut self, spec: StreamSpec) -> StreamId {
        let now = Instant::from_nanos(self.now);
        self.scheduler.add_stream(now, spec).expect("room for a stream, and nothing in its way")
    }

    /// Adds a stream if it is admitted beside all that count and nothing is in its way, with a shield that counts it and all
    /// others.
    pub(crate) fn try_add(&mut self, spec: &StreamSpec, shield: Option<Shield>) -> Option<StreamId> {
        let load = self.scheduler.load();
        system(self.scheduler.config()).admit(load.specs().chain([spec])).ok()?;
        let fallbacks = fallbacks(self.scheduler.config(), load.specs().chain([spec]));
        let newcomer = Newcomer::new(self.scheduler.config(), spec.clone()).beside(&load).shielded(shield);
        let newcomer = newcomer.falling_back(fallbacks);
        let now = Instant::from_nanos(self.now);
        match self.scheduler.try_add_stream(now, newcomer).expect("room for a stream") {
            Joined::Added(id, _) => Some(id),
            Joined::Wait(_) => None,
            Joined::Stale(_) => panic!("nobody came meanwhile"),
        }
    }

    /// A request arrives now; the scheduler is polled. Returns its token.
    pub(crate) fn arrive(&mut self, stream: StreamId) -> u64 {
        let token = self.arrive_unpolled(stream);
        self.settle();
        token
    }

    /// A request arrives now, and the caller polls only before time goes on.
    pub(crate) fn arrive_unpolled(&mut self, stream: StreamId) -> u64 {
        self.take_in(stream, self.now)
    }

    /// A request that came at `at` is taken in now; the scheduler is polled.
    pub(crate) fn arrive_late(&mut self, stream: StreamId, at: u64) {
        self.take_in(stream, at);
        self.settle();
    }

    /// A request that its client says it sent at `sent` is taken in now, as soon as it is read; the scheduler is polled.
    pub(crate) fn arrive_sent(&mut self, stream: StreamId, sent: u64) {
        self.arrive_sent_unpolled(stream, sent);
        self.settle();
    }

    /// The same, and the caller polls only before time goes on. Returns its token.
    pub(crate) fn arrive_sent_unpolled(&mut self, stream: StreamId, sent: u64) -> u64 {
        let token = self.requests.len() as u64;
        self.requests.push((stream, Place::Waiting));
        self.unpolled = true;
        let (now, sent) = (Instant::from_nanos(self.now), Instant::from_nanos(sent));
        let arrival = Arrival::new(stream, token, now).of_class(class_of(token));
        let ruled_out = self.ruled_out(stream, sent);
        let refused = self.scheduler.handle_sent(now, arrival, sent, true);
        self.check_in_vain(ruled_out, refused);
        refused.into_iter().for_each(|r| self.resolved(r));
        token
    }

    /// A request arrives now whose answer is wanted within so long; the scheduler is polled. Returns its token.
    pub(crate) fn arrive_wanted(&mut self, stream: StreamId, within: u64) -> u64 {
        let token = self.requests.len() as u64;
        self.requests.push((stream, Place::Waiting));
        let (now, within) = (Instant::from_nanos(self.now), Span::from_nanos(within));
        let arrival = Arrival::new(stream, token, now).of_class(class_of(token));
        let refused = self.scheduler.handle_wanted(now, arrival, (now, within), true);
        refused.into_iter().for_each(|r| self.resolved(r));
        self.settle();
        token
    }

    fn take_in(&mut self, stream: StreamId, at: u64) -> u64 {
        let token = self.requests.len() as u64;
        self.requests.push((stream, Place::Waiting));
        self.unpolled = true;
        let now = Instant::from_nanos(self.now);
        let at = Instant::from_nanos(at);
        let arrival = Arrival::new(stream, token, at).of_class(class_of(token));
        let ruled_out = self.ruled_out(stream, at);
        let refused = match self.wanted.len() {
            0 => self.scheduler.handle_arrival(now, arrival),
            classes => {
                let within = Span::from_nanos(self.wanted[usize::from(arrival.class) % classes]);
                self.scheduler.handle_wanted(now, arrival, (at, within), true)
            }
        };
        self.check_in_vain(ruled_out, refused);
        refused.into_iter().for_each(|r| self.resolved(r));
        token
    }

    /// How many mandatory requests wait, if one that is sent then is said to be in vain.
    fn ruled_out(&self, stream: StreamId, sent: Instant) -> Option<usize> {
        let now = Instant::from_nanos(self.now);
        let ruled_out = self.scheduler.is_ruled_out(now, stream, sent);
        ruled_out.then(|| self.scheduler.waiting_mandatory())
    }

    /// Nothing was promised for one that has been taken in since, or `refused`.
    fn check_in_vain(&self, before: Option<usize>, refused: Option<Resolution>) {
        let promised = |before: usize| match refused {
            Some(resolution) => resolution.request.mandatory,
            None => self.scheduler.waiting_mandatory() > before,
        };
        assert!(!before.is_some_and(promised), "ruled out at {}, and mandatory", self.now);
    }

    /// A request comes for which the caller has no room.
    pub(crate) fn refuse(&mut self, stream: StreamId) {
        let refused = self.scheduler.handle_refused(Instant::from_nanos(self.now), stream);
        let resolution = refused.expect("resolved at once");
        assert_eq!(resolution.request.stream, stream);
        self.requests.push((stream, Place::Ended(resolution.outcome)));
        self.settle();
    }

    /// The same of a request that came at `at`.
    pub(crate) fn refuse_late(&mut self, stream: StreamId, at: u64) {
        let (now, at) = (Instant::from_nanos(self.now), Instant::from_nanos(at));
        let arrival = Arrival::new(stream, u64::MAX, at);
        let resolution = self.scheduler.handle_sent(now, arrival, at, false).expect("resolved at once");
        self.requests.push((stream, Place::Ended(resolution.outcome)));
        self.settle();
    }

    /// Polls until there is nothing more to do now, and carries out what it is told.
    pub(crate) fn settle(&mut self) {
        self.unpolled = false;
        loop {
            match self.scheduler.poll(Instant::from_nanos(self.now)) {
                Action::Start { worker } => self.started(worker),
                Action::Resolve(resolution) => self.resolved(resolution),
                Action::Event(event) => self.events.push((self.now, event)),
                Action::WakeAt(at) => {
                    self.wake = at.map(Instant::as_nanos);
                    assert!(self.wake.is_none_or(|at| at > self.now), "a wake-up that is due already");
                    return;
                }
            }
        }
    }

    /// When the next thing happens by itself.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let completions = self.running.iter().flatten().map(|run| run.heard);
        completions.chain(self.wake.map(|at| at + self.timer_delay)).min()
    }

    /// Lets time pass up to `to`, with everything that happens by itself before it (and at it, if `through`).
    pub(crate) fn advance(&mut self, to: u64, through: bool) {
        if self.unpolled && to > self.now {
            self.settle();
        }
        while let Some(next) = self.next_event().filter(|&at| at < to || through && at == to) {
            self.now = self.now.max(next);
            let ended = |run: &Option<Run>| run.is_some_and(|run| run.heard <= next);
            match self.running.iter().position(ended) {
                Some(worker) => {
                    let run = self.running[worker].take().expect("running");
                    assert!(run.started + run.time <= self.now);
                    let spoilt = |request: &Request| Some(request.stream) == self.spoils;
                    let failed = self.scheduler.batch(worker).iter().any(spoilt);
                    let time = Span::from_nanos(run.time);
                    let ran = if failed { Ran::Failed(time) } else { Ran::Done(time) };
                    self.scheduler.handle_completion(Instant::from_nanos(self.now), worker, ran);
                }
                None => self.wake = None,
            }
            self.settle();
        }
        self.now = self.now.max(to);
    }

    /// Lets time pass up to and with `to`.
    pub(crate) fn advance_to(&mut self, to: u64) {
        self.advance(to, true);
    }

    /// Lets time pass until no request waits or runs, then recounts everything.
    pub(crate) fn drain(&mut self) {
        while self.scheduler.waiting() + self.scheduler.running() > 0 {
            let next = self.next_event().expect("what waits or runs must end some time");
            self.advance_to(next);
        }
        let ended = |(_, place): &(StreamId, Place)| matches!(place, Place::Ended(_));
        assert!(self.requests.iter().all(ended), "a request without resolution");
    }

    /// A new scheduler of `config` takes over now, or the present one goes on.
    pub(crate) fn hand_over(&mut self, config: SchedulerConfig) -> Result<(), HandOverError> {
        self.hand_over_without(config, &[])
    }

    /// The same, and the streams of `ended` end.
    pub(crate) fn hand_over_without(
        &mut self,
        config: SchedulerConfig,
        ended: &[StreamId],
    ) -> Result<(), HandOverError> {
        self.hand_over_to(Scheduler::new(config).expect("a configuration"), ended)?;
        self.settle();
        Ok(())
    }

    /// This scheduler, which is yet to be polled, takes over now, or the present one goes on.
    pub(crate) fn hand_over_to(
        &mut self,
        mut next: Scheduler,
        ended: &[StreamId],
    ) -> Result<(), HandOverError> {
        let running = vec![None; next.config().worker_count()];
        let now = Instant::from_nanos(self.now);
        self.scheduler.hand_over(now, &mut next, ended)?;
        let mut last = std::mem::replace(&mut self.scheduler, next);
        self.running = running;
        loop {
            match last.poll(now) {
                Action::Start { .. } => panic!("a batch of a scheduler that has handed over"),
                Action::Resolve(resolution) => self.resolved(resolution),
                Action::Event(event) => self.events.push((self.now, event)),
                Action::WakeAt(_) => break,
            }
        }
        Ok(())
    }

    /// The engine of `worker` fails now.
    pub(crate) fn fail(&mut self, worker: usize) {
        let run = self.running[worker].take().expect("running");
        let ran = Ran::Failed(Span::from_nanos(self.now - run.started));
        self.scheduler.handle_completion(Instant::from_nanos(self.now), worker, ran);
        self.settle();
    }

    pub(crate) fn lose(&mut self, worker: usize) {
        self.running[worker] = None;
        self.scheduler.handle_worker_lost(Instant::from_nanos(self.now), worker);
        self.settle();
    }

    pub(crate) fn ready(&mut self, worker: usize) {
        self.scheduler.handle_worker_ready(Instant::from_nanos(self.now), worker);
        self.settle();
    }

    pub(crate) fn is_busy(&self, worker: usize) -> bool {
        self.running[worker].is_some()
    }

    fn started(&mut self, worker: usize) {
        assert!(self.running[worker].is_none(), "a busy worker was given a batch");
        let kind = self.scheduler.config().worker(worker).expect("a worker").clone();
        let batch: Vec<Request> = self.scheduler.batch(worker).to_vec();
        assert!((1..=kind.profile.max_batch()).contains(&batch.len()), "a batch of {}", batch.len());
        assert!(batch.is_sorted_by_key(|r| !r.mandatory), "mandatory requests come first");
        let bound = kind.profile.bound(batch.len());
        for request in &batch {
            let (stream, place) = &mut self.requests[request.token as usize];
            assert_eq!((*stream, *place), (request.stream, Place::Waiting), "{request:?}");
            *place = Place::Running;
            self.begun.push((request.stream, self.batches.len(), request.seq));
            let time = if request.mandatory { bound } else { kind.profile.likely(batch.len()) };
            let end = Instant::from_nanos(self.now) + time;
            assert!(end <= request.deadline, "started too late at {}: {request:?}", self.now);
        }
        let mut bound = bound.as_nanos();
        if let Some(longer) = &mut self.longer {
            bound = longer(&mut self.scheduler, self.now, worker, bound);
            // What is expected of batches stays when they may take longer.
            let counts = |r: &&Request| r.mandatory || self.scheduler.fallen().is_none();
            let in_time = |r: &Request| self.now + bound <= r.deadline.as_nanos();
            assert!(batch.iter().filter(counts).all(in_time), "itself too late");
        }
        self.bounds.push(bound);
        let time = (self.service)(batch.len(), bound);
        let heard = self.now + time + self.completion_delay;
        self.running[worker] = Some(Run { started: self.now, time, heard });
        self.batches.push((self.now, batch.len()));
    }

    fn resolved(&mut self, resolution: Resolution) {
        let Resolution { request, outcome, .. } = resolution;
        let (stream, place) = &mut self.requests[request.token as usize];
        assert_eq!(*stream, request.stream);
        let expected = match outcome {
            Outcome::Served => {
                assert!(self.now <= request.wanted.as_nanos(), "served after its deadline");
                &[Place::Running][..]
            }
            Outcome::Missed(MissReason::Late | MissReason::EngineFailed) => &[Place::Running],
            Outcome::Missed(MissReason::WorkerLost) => &[Place::Running, Place::Waiting],
            Outcome::Missed(_) => &[Place::Waiting],
        };
        assert!(expected.contains(place), "{outcome:?} of {request:?}, which was {place:?}");
        *place = Place::Ended(outcome);
        self.resolutions.push((self.now, resolution));
    }
}
