//! From a problem and recorded arrivals to the report of what a policy makes of them.

use std::io::Read;

use planner::Problem;
use rt_core::{Selector, Span, WorkerId};

use crate::arrivals::{Arrivals, ArrivalsError};
use crate::log::Log;
use crate::policy::{Logged, PlayError, PolicyKind, scheduled, selecting};
use crate::record::{MAX_WAITING, record};
use crate::report::Report;
use virtual_time::{Order, Run, drive};

/// Why nothing was simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The arrivals are none.
    #[error(transparent)]
    Arrivals(#[from] ArrivalsError),
    /// They cannot be run.
    #[error(transparent)]
    Run(#[from] PlayError),
}

/// Runs the arrivals in `csv`, lines `time,stream` (see [`Arrivals::read`]), under `policy`. Batches of `b` take
/// exactly `P(b)`; of one instant, batches end first, then requests arrive, then the policy decides.
///
/// # Errors
/// If the arrivals cannot be read, or the problem cannot be run.
pub fn simulate(problem: &Problem, csv: impl Read, policy: PolicyKind) -> Result<Report, SimulateError> {
    let arrivals = Arrivals::read(problem, csv)?;
    let run = record(policy, problem, &arrivals.list, Order::Together, |_, _, bound| bound)?;
    Ok(Report::new(problem, &arrivals.streams, &run))
}

/// As [`simulate`] under the daemon's scheduler, with a log of all that it does. With a `selector`, there are variants of
/// the problem's model among which it selects as far as a shield for the problem's streams allows; a batch takes exactly
/// the time of its variant.
///
/// # Errors
/// As [`simulate`]; also if the variants are not for the problem's workers, or its streams have no shield.
pub fn simulate_logged(
    problem: &Problem,
    csv: impl Read,
    selector: Option<Selector>,
) -> Result<(Report, Log), SimulateError> {
    let arrivals = Arrivals::read(problem, csv)?;
    let (run, log) = run_logged(problem, &arrivals, selector, Order::Together, |_, _, bound| bound)?;
    Ok((Report::new(problem, &arrivals.streams, &run), log))
}

/// Runs `arrivals`, which name streams, through the daemon's scheduler, batches taking `service(worker, size, bound)`.
pub(crate) fn run_logged(
    problem: &Problem,
    arrivals: &Arrivals,
    selector: Option<Selector>,
    order: Order,
    service: impl FnMut(WorkerId, usize, Span) -> Span,
) -> Result<(Run, Log), PlayError> {
    let streams = arrivals.streams.len();
    let weir = match selector {
        Some(selector) => selecting(problem, MAX_WAITING, streams, selector)?,
        None => scheduled(problem, MAX_WAITING, streams)?,
    };
    let mut weir = Logged::new(weir);
    let mut run = Run { streams, ..Run::default() };
    drive(&mut weir, arrivals.list.iter().copied(), order, service, &mut run)?;
    Ok((run, Log { streams: arrivals.streams.clone(), entries: weir.entries }))
}
