//! From a problem and recorded arrivals to the report of what a policy makes of them.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use planner::Problem;

use crate::arrivals::{Arrivals, ArrivalsError};
use crate::drive::{Order, RunError, run};
use crate::report::Report;

/// Who decides which request runs, when and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The daemon's scheduler: mandatory requests first, dispatch as the problem says.
    #[default]
    Weir,
}

/// A name that is no policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy = {0}: must be one of {list}", list = Policy::ALL.map(Policy::name).join(", "))]
pub struct UnknownPolicy(
    /// The name.
    pub String,
);

/// Why nothing was simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The arrivals are none.
    #[error(transparent)]
    Arrivals(#[from] ArrivalsError),
    /// They cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Runs the arrivals in `csv`, lines `time,stream` (see [`Arrivals::read`]), under `policy`. Batches of `b` take
/// exactly `P(b)`; of one instant, batches end first, then requests arrive, then the policy decides.
///
/// # Errors
/// If the arrivals cannot be read, or the problem cannot be run.
pub fn simulate(problem: &Problem, csv: impl Read, policy: Policy) -> Result<Report, SimulateError> {
    let arrivals = Arrivals::read(problem, csv)?;
    let run = match policy {
        Policy::Weir => run(problem, &arrivals.list, Order::Together)?,
    };
    Ok(Report::new(problem, &arrivals.streams, &run))
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 1] = [Self::Weir];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}
