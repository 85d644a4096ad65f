//! Whole runs of given arrivals under a policy.

use planner::Problem;
use rt_core::{Constraint, Instant, Outcome, Span, WorkerId};

use crate::measure::Misses;
use crate::policy::{PlayError, PolicyKind};
use virtual_time::{Order, Run};

/// Requests that can wait at once: as many as come, up to this limit of the scheduler.
pub(crate) const MAX_WAITING: usize = 1 << 16;
/// Streams of a run at most; the scheduler's own limit.
pub(crate) const MAX_STREAMS: usize = 4096;

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

/// Whether each of these requests of `run` was served, for windows up to the longest of `constraints`.
pub(crate) fn misses(run: &Run, requests: &[usize], constraints: &[Constraint]) -> Misses {
    let longest = constraints.iter().map(|constraint| constraint.window()).max().unwrap_or(1);
    Misses::of(
        longest,
        constraints,
        requests.iter().map(|&index| run.requests[index].outcome == Outcome::Served),
    )
}
