//! Virtual time: drives the scheduler of the daemon with arrivals that are given or made up.
//!
//! [`run`] is the one way through time; [`simulate`] reads arrivals and reports what became of each, [`refute`]
//! looks for arrivals that break a promise that was refused, and [`replay`] shows what such arrivals do.
//! [`measure`] gathers what a run is judged by, [`statistics`] says how far to trust it over several, and
//! [`figure`] draws it.
#![forbid(unsafe_code)]

mod arrivals;
mod curves;
mod dice;
mod drive;
pub mod figure;
pub mod measure;
mod refute;
mod replay;
mod report;
mod simulate;
pub mod statistics;
mod time;
mod windows;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

pub use arrivals::{Arrivals, ArrivalsError, MAX_ARRIVALS};
pub use curves::{Breach, check_curves};
pub use drive::{Batch, Order, Request, Run, RunError, run, run_with};
pub use refute::refute;
pub use replay::{Broken, Replay, ReplayError, replay};
pub use report::{
    ConstraintReport, Outcome, Report, RequestReport, SafeModeReport, StreamReport, WorstWindow,
};
pub use simulate::{Policy, SimulateError, UnknownPolicy, simulate};
pub use time::Time;
