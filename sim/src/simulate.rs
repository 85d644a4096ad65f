//! From a problem and recorded arrivals to the report of what a policy makes of them.

use std::io::Read;

use planner::Problem;

use crate::arrivals::{Arrivals, ArrivalsError};
use crate::drive::Order;
use crate::policy::{PlayError, PolicyKind};
use crate::record::record;
use crate::report::Report;

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
