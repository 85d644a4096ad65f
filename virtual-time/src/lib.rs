//! Virtual time: a clock that jumps from event to event, workers that take the time they are given, and a policy.
//!
//! [`drive()`] is the one way through time, [`Scheduled`] the daemon's scheduler on it, [`OnDevice`] several on the same
//! workers; [`drive_pipeline`] is that of sources that become many requests. The planner tries its tables on the former, and the simulator plays everything else.
#![forbid(unsafe_code)]

mod drive;
mod pipeline;
mod poisson;
mod policy;
mod run;
mod scheduled;
mod shared;

pub use drive::{Backwards, Batch, Observer, Order, Request, Walk, drive, earlier};
pub use pipeline::{
    Arriving, Child, Model, PipelineObserver, PipelinePolicy, PipelineStep, SourceEnd, StageBatch, Tree,
    TreeStage, drive_pipeline,
};
pub use poisson::Poisson;
pub use policy::{End, Policy, Step};
pub use run::Run;
pub use scheduled::Scheduled;
pub use shared::OnDevice;
