//! From a problem and recorded arrivals to the report of what a policy makes of them.

use std::io::Read;

use planner::Problem;
use rt_core::Selector;

use crate::arrivals::{Arrivals, ArrivalsError};
use crate::policy::{PlayError, PolicyKind, selecting};
use crate::record::{MAX_WAITING, Run, record};
use crate::report::Report;
use virtual_time::{Order, drive};

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

/// As [`simulate`] under the daemon's scheduler, with variants of the problem's model among which `selector` selects
/// as far as a shield for the problem's streams allows. A batch takes exactly the time of its variant.
///
/// # Errors
/// As [`simulate`]; also if the variants are not for the problem's workers, or its streams have no shield.
pub fn simulate_selecting(
    problem: &Problem,
    csv: impl Read,
    selector: Selector,
) -> Result<Report, SimulateError> {
    let arrivals = Arrivals::read(problem, csv)?;
    let streams = arrivals.streams.len();
    let play = || -> Result<Run, PlayError> {
        let mut weir = selecting(problem, MAX_WAITING, streams, selector)?;
        let mut run = Run { streams, ..Run::default() };
        let list = arrivals.list.iter().copied();
        drive(&mut weir, list, Order::Together, |_, _, bound| bound, &mut run)?;
        Ok(run)
    };
    Ok(Report::new(problem, &arrivals.streams, &play()?))
}
