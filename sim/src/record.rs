//! A whole run, kept: every request and every batch, for those who look at each of them.

use planner::Problem;
use rt_core::{Alarm, Constraint, Instant, Outcome, Span, Transition, WorkerId};

use crate::measure::Misses;
use crate::policy::{PlayError, PolicyKind};
use virtual_time::{Batch, Observer, Order, Request};

/// Requests that can wait at once: as many as come, up to this limit of the scheduler.
pub(crate) const MAX_WAITING: usize = 1 << 16;
/// Streams of a run at most; the scheduler's own limit.
pub(crate) const MAX_STREAMS: usize = 4096;

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Every request, in the order in which they came.
    pub requests: Vec<Request>,
    /// Every batch, in the order in which they started.
    pub batches: Vec<Batch>,
    /// Safe mode as it was entered, left, or given a further cause.
    pub safe_mode: Vec<(Instant, Transition)>,
    /// When the promise to a stream was suspended, for what it broke itself, or held again.
    pub suspensions: Vec<(Instant, usize, Option<Alarm>)>,
    /// How many streams there are: those of the problem, and those of no promise that sent something.
    pub streams: usize,
}

/// Runs `arrivals`, instants in order with the stream of each, until all is answered; a batch of `b` takes
/// exactly `P(b)` of its worker. Indices beyond the problem's streams are streams that are promised nothing.
///
/// # Errors
/// [`PlayError`]: instants that go back, more than 4096 streams, or a deadline that no batch can meet.
pub fn run(problem: &Problem, arrivals: &[(Instant, usize)], order: Order) -> Result<Run, PlayError> {
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
) -> Result<Run, PlayError> {
    record(PolicyKind::Weir, problem, arrivals, order, service)
}

/// As [`run_with`], under any policy.
///
/// # Errors
/// As [`run`].
pub(crate) fn record(
    policy: PolicyKind,
    problem: &Problem,
    arrivals: &[(Instant, usize)],
    order: Order,
    service: impl FnMut(WorkerId, usize, Span) -> Span,
) -> Result<Run, PlayError> {
    let named = arrivals.iter().map(|&(_, stream)| stream + 1).max().unwrap_or(0);
    let streams = named.max(problem.streams.len());
    let queue = arrivals.len().clamp(1, MAX_WAITING);
    let mut run = Run { requests: Vec::with_capacity(arrivals.len()), streams, ..Run::default() };
    policy.play(problem, (queue, streams), arrivals.iter().copied(), order, service, &mut run)?;
    Ok(run)
}

impl Run {
    /// Of each stream, its requests in order, as indices into all.
    pub(crate) fn by_stream(&self) -> Vec<Vec<usize>> {
        let mut streams = vec![Vec::new(); self.streams];
        for (index, request) in self.requests.iter().enumerate() {
            streams[request.stream].push(index);
        }
        streams
    }

    /// Whether each of these requests was served, for windows up to the longest of `constraints`.
    pub(crate) fn misses(&self, requests: &[usize], constraints: &[Constraint]) -> Misses {
        let longest = constraints.iter().map(|constraint| constraint.window()).max().unwrap_or(1);
        Misses::of(
            longest,
            constraints,
            requests.iter().map(|&index| self.requests[index].outcome == Outcome::Served),
        )
    }
}

impl Observer for Run {
    fn request(&mut self, request: &Request) {
        self.requests.push(*request);
    }

    fn batch(&mut self, batch: &Batch) {
        self.batches.push(*batch);
    }

    fn safe_mode(&mut self, now: Instant, transition: Transition) {
        self.safe_mode.push((now, transition));
    }

    fn suspension(&mut self, now: Instant, stream: usize, alarm: Option<Alarm>) {
        self.suspensions.push((now, stream, alarm));
    }
}
