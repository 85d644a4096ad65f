//! Virtual time: drives the scheduler of the daemon with arrivals that are given or made up.
//!
//! [`simulate`] reads arrivals and reports what became of each, [`refute`] looks for arrivals that break a promise that
//! was refused, and [`replay`] shows what such arrivals do. Arrivals that nobody recorded come from a [`process`].
//! [`measure`] gathers what a run is judged by, [`statistics`] says how far to trust it over several, and
//! [`figure`] draws it.
#![forbid(unsafe_code)]

mod arrivals;
mod classes;
pub mod cluster;
mod curves;
mod dice;
pub mod experiment;
pub mod figure;
mod lines;
mod log;
pub mod measure;
pub mod pipeline;
pub mod policy;
pub mod process;
pub mod rare;
mod record;
mod refute;
mod replay;
mod report;
mod simulate;
pub mod statistics;
mod time;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

pub use arrivals::{Arrivals, ArrivalsError, MAX_ARRIVALS};
pub use classes::{Class, ClassError, ClassReport};
pub use curves::{Breach, check_curves, paced};
pub use log::{AcceptError, Became, Entry, Log, LogError, Member};
pub use pipeline::simulate_pipeline;
pub use policy::{PlayError, PolicyKind, UnknownPolicy};
pub use record::{run, run_with};
pub use refute::{refute, refute_pipeline, refute_shared};
pub use replay::{Broken, Replay, ReplayError, Waited, replay, replay_pipeline, replay_shared};
pub use report::{
    ConstraintReport, Outcome, Report, RequestReport, SafeModeReport, StreamReport, WorstWindow,
};
pub use simulate::{SimulateError, simulate, simulate_logged, simulate_shared};
pub use time::Time;
pub use virtual_time::{Backwards, Batch, Observer, Order, Request, Run, drive};
