//! One run through virtual time: the scheduler, a clock that jumps, and workers that take the time they are given.

use planner::Problem;
use rt_core::{
    Action, ConfigError, Event, Instant, Outcome, Ran, Resolution, SafeModeConfig, Scheduler,
    SchedulerConfig, Span, StreamError, StreamId, StreamSpec, Transition, WorkerId,
};
use serde::Serialize;

/// Requests that can wait at once: as many as come, up to this limit of the scheduler.
pub(crate) const MAX_WAITING: usize = 1 << 16;
/// Streams of a run at most; the scheduler's own limit.
pub(crate) const MAX_STREAMS: usize = 4096;

/// What comes first of all that happens at the same instant.
///
/// The promise holds in any order; the rarer two are for those who look for the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Batches end, then requests arrive, as given, and then the scheduler decides: requests of one instant come
    /// together, and can share a batch that a worker takes as it becomes free.
    #[default]
    Together,
    /// As before, but the scheduler decides after each of these by itself, as the daemon's does: what waits takes
    /// the worker that becomes free before anything new comes.
    CompletionsFirst,
    /// Requests arrive before batches end and timers ring, and the scheduler decides after each.
    ArrivalsFirst,
}

impl Order {
    /// Every order, the usual one first.
    pub const ALL: [Self; 3] = [Self::Together, Self::CompletionsFirst, Self::ArrivalsFirst];
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its stream: an index into the problem's, or beyond them for one of no promise.
    pub stream: usize,
    /// Its number within the stream, from 0.
    pub seq: u64,
    /// When it came.
    pub arrival: Instant,
    /// Whether the promise counts on it.
    pub mandatory: bool,
    /// How it ended: served or missed, and why.
    pub outcome: Outcome,
    /// When that was known.
    pub ended: Instant,
    /// The batch that it ran in, an index into [`Run::batches`].
    pub batch: Option<usize>,
}

/// A batch that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// On which worker.
    pub worker: WorkerId,
    /// With how many requests.
    pub size: usize,
    /// From when.
    pub start: Instant,
    /// Until when.
    pub finish: Instant,
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Every request, in the order in which they came.
    pub requests: Vec<Request>,
    /// Every batch, in the order in which they started.
    pub batches: Vec<Batch>,
    /// Safe mode as it was entered, left, or given a further cause.
    pub safe_mode: Vec<(Instant, Transition)>,
    /// The scheduler's names for the streams, by index.
    pub streams: Vec<StreamId>,
}

/// Why there is no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The scheduler cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A stream cannot be served: one of no promise, where the problem has no background.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Time goes back.
    #[error("arrival {index} at {} ns comes after one at {} ns", .at.as_nanos(), .before.as_nanos())]
    Backwards {
        /// Which arrival, from 0.
        index: usize,
        /// Its instant.
        at: Instant,
        /// The instant of the one before.
        before: Instant,
    },
}

/// Runs `arrivals`, instants in order with the stream of each, until all is answered; a batch of `b` takes
/// exactly `P(b)` of its worker. Indices beyond the problem's streams are streams that are promised nothing.
///
/// # Errors
/// [`RunError`]: instants that go back, more than 4096 streams, or a deadline that no batch can meet.
pub fn run(problem: &Problem, arrivals: &[(Instant, usize)], order: Order) -> Result<Run, RunError> {
    run_with(problem, arrivals, order, |_, _, bound| bound)
}

/// As [`run`], with batches that take `service(worker, size, P(size))`.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    problem: &Problem,
    arrivals: &[(Instant, usize)],
    order: Order,
    service: impl FnMut(WorkerId, usize, Span) -> Span,
) -> Result<Run, RunError> {
    let backwards = arrivals.windows(2).position(|pair| pair[1].0 < pair[0].0);
    if let Some(index) = backwards.map(|before| before + 1) {
        return Err(RunError::Backwards { index, at: arrivals[index].0, before: arrivals[index - 1].0 });
    }
    let named = arrivals.iter().map(|&(_, stream)| stream + 1).max().unwrap_or(0);
    let streams = named.max(problem.streams.len());
    let config = config(problem, arrivals.len().clamp(1, MAX_WAITING), streams.max(1));
    let mut driver = Driver::new(Scheduler::new(config)?, service);
    for index in 0..streams {
        let spec = problem.streams.get(index).map_or_else(StreamSpec::best_effort, |(_, spec)| spec.clone());
        driver.run.streams.push(driver.scheduler.add_stream(spec)?);
    }
    driver.drive(arrivals, order);
    Ok(driver.run)
}

/// The scheduler of `problem`. Safe mode is left after a second without a breach.
fn config(problem: &Problem, queue: usize, streams: usize) -> SchedulerConfig {
    let second = Span::from_millis(1_000);
    SchedulerConfig {
        deadline: problem.deadline,
        guard: problem.guard,
        workers: problem.workers.clone(),
        dispatch: problem.dispatch,
        // A stream that declares nothing is background, as admission sees it.
        background: problem.background || problem.streams.iter().any(|(_, spec)| spec.arrivals().is_none()),
        queue,
        streams,
        safe_mode: SafeModeConfig { hold: second, clean: second, latch: false },
    }
}

/// A worker at work.
#[derive(Clone, Copy, Debug)]
struct Busy {
    batch: usize,
    finish: Instant,
}

struct Driver<S> {
    scheduler: Scheduler,
    service: S,
    now: Instant,
    wake: Option<Instant>,
    busy: Vec<Option<Busy>>,
    run: Run,
}

impl<S: FnMut(WorkerId, usize, Span) -> Span> Driver<S> {
    fn new(scheduler: Scheduler, service: S) -> Self {
        let busy = vec![None; scheduler.workers_alive()];
        Self { scheduler, service, now: Instant::ZERO, wake: None, busy, run: Run::default() }
    }

    fn drive(&mut self, mut arrivals: &[(Instant, usize)], order: Order) {
        loop {
            let open = self.scheduler.waiting() + self.scheduler.running() > 0;
            let next = self.busy.iter().flatten().map(|busy| busy.finish).chain(self.wake).min();
            let next = next.filter(|_| open || !arrivals.is_empty());
            let arrival = arrivals.first().map(|&(instant, _)| instant);
            let Some(now) = next.into_iter().chain(arrival).min() else { return };
            self.now = now;
            let here = arrivals.partition_point(|&(instant, _)| instant <= now);
            let (due, later) = arrivals.split_at(here);
            arrivals = later;
            match order {
                Order::Together => {
                    while self.complete() {}
                    due.iter().for_each(|&(_, stream)| self.arrive(stream));
                    self.poll();
                }
                Order::CompletionsFirst => {
                    self.complete_each();
                    self.arrive_each(due);
                }
                Order::ArrivalsFirst => {
                    self.arrive_each(due);
                    self.complete_each();
                }
            }
        }
    }

    fn arrive_each(&mut self, due: &[(Instant, usize)]) {
        for &(_, stream) in due {
            self.arrive(stream);
            self.poll();
        }
    }

    fn complete_each(&mut self) {
        while self.complete() {
            self.poll();
        }
        self.poll();
    }

    fn arrive(&mut self, stream: usize) {
        let token = self.run.requests.len() as u64;
        self.run.requests.push(Request {
            stream,
            seq: 0,
            arrival: self.now,
            mandatory: false,
            // Overwritten when it ends, as every request does.
            outcome: Outcome::Served,
            ended: self.now,
            batch: None,
        });
        let refused = self.scheduler.handle_arrival(self.now, self.run.streams[stream], token);
        refused.into_iter().for_each(|resolution| self.end(resolution));
    }

    /// Ends one batch that is due by now; false if there is none.
    fn complete(&mut self) -> bool {
        let due = |busy: &Option<Busy>| busy.is_some_and(|busy| busy.finish <= self.now);
        let Some(worker) = self.busy.iter().position(due) else { return false };
        if let Some(Busy { batch, finish }) = self.busy[worker].take() {
            let time = finish.since(self.run.batches[batch].start);
            self.scheduler.handle_completion(self.now, worker, Ran::Done(time));
        }
        true
    }

    /// Carries out all that is to be done now.
    fn poll(&mut self) {
        loop {
            match self.scheduler.poll(self.now) {
                Action::Start { worker } => self.start(worker),
                Action::Resolve(resolution) => self.end(resolution),
                Action::Event(Event::SafeMode(transition)) => {
                    self.run.safe_mode.push((self.now, transition));
                }
                Action::Event(Event::MissesLeft { .. }) => {}
                Action::WakeAt(wake) => {
                    debug_assert!(wake.is_none_or(|wake| wake > self.now), "a wake-up that is due already");
                    self.wake = wake;
                    return;
                }
            }
        }
    }

    fn start(&mut self, worker: WorkerId) {
        let size = self.scheduler.batch(worker).len();
        let kind = self.scheduler.config().worker(worker);
        let bound = kind.map_or(Span::ZERO, |kind| kind.profile.bound(size));
        let finish = self.now + (self.service)(worker, size, bound);
        let batch = self.run.batches.len();
        for request in self.scheduler.batch(worker) {
            self.run.requests[request.token as usize].batch = Some(batch);
        }
        self.run.batches.push(Batch { worker, size, start: self.now, finish });
        self.busy[worker] = Some(Busy { batch, finish });
    }

    fn end(&mut self, resolution: Resolution) {
        let Resolution { request, outcome, .. } = resolution;
        let record = &mut self.run.requests[request.token as usize];
        (record.seq, record.mandatory) = (request.seq, request.mandatory);
        (record.outcome, record.ended) = (outcome, self.now);
    }
}
