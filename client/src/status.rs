//! What STATUS tells, as the daemon writes it and everybody reads it: one object in JSON.
//!
//! A member that an older daemon does not send is empty here; one that this library does not know is left out. Times are
//! in nanoseconds, instants those of `CLOCK_MONOTONIC`.

mod service;
mod stream;

use serde::{Deserialize, Serialize};

pub use service::*;
pub use stream::*;

/// The whole of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Of the daemon.
    pub version: String,
    /// Of the daemon's process.
    pub pid: u32,
    /// When this was told.
    pub now_ns: u64,
    /// Whether new requests are refused because the daemon ends.
    pub draining: bool,
    /// Connections, the one that asks too.
    pub clients: usize,
    /// The last reload; none before the first.
    pub reload: Option<Reload>,
    /// The one that goes on now; none while none does.
    pub reloading: Option<Reloading>,
    /// What is served, in the order of the configuration.
    pub services: Vec<Service>,
    /// What is found and done about where they run; none unless the configuration wants that.
    pub placement: Option<Placement>,
}

/// Better placements, looked for while requests are served.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// `advise` or `follow`.
    pub mode: String,
    /// What came of the last look, in a sentence.
    pub state: String,
    /// Why it was made.
    pub reason: String,
    /// When.
    pub looked_ns: u64,
    /// How many there have been.
    pub looks: u64,
    /// What is asked of each service that is placed.
    pub demand: Vec<PlacementDemand>,
    /// The mean accuracy of the plan, in points; none where there is no plan.
    pub accuracy: Option<f64>,
    /// Of all that came between the two looks before, the share of right answers, in points; none where that is not known.
    pub present_accuracy: Option<f64>,
    /// What the plan has otherwise than what was served then, a line each service, if it is worth while.
    pub changes: Vec<String>,
    /// Services that were moved since the start.
    pub made: u64,
    /// Looks without a plan, and services that could not be moved.
    pub failures: u64,
    /// Devices that are lost for good: the class, and the core or GPU.
    pub lost: Vec<String>,
    /// Services that have lost a worker for good and whose promises fit what is left no more.
    pub unkept: Vec<String>,
}

/// How much is asked of a service, in requests a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacementDemand {
    /// Its name.
    pub service: String,
    /// What is expected by what came.
    pub expected_per_s: f64,
    /// What was planned for last; none before the first look.
    pub planned_per_s: Option<f64>,
    /// Of a pipeline what results become at each stage behind the first that is no join.
    pub stages: Vec<PlacementStage>,
}

/// What results become at a stage of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacementStage {
    /// Its name.
    pub stage: String,
    /// How many requests a result of the stages before is expected to become, on average: as configured until any are seen.
    pub mean: f64,
}

/// How a reload ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reload {
    /// How many there have been.
    pub sequence: u64,
    /// Whoever asked before this has its outcome.
    pub began_ns: u64,
    /// When it was over.
    pub ended_ns: u64,
    /// What has changed, a line each.
    pub changes: Vec<String>,
    /// What could not be taken over, in a sentence.
    pub error: Option<String>,
}

/// How far a reload is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reloading {
    /// As its `began_ns` will be of [`Reload`].
    pub began_ns: u64,
    /// What it is at, in words.
    pub step: String,
    /// Of that, so many parts are done.
    pub done: u64,
    /// All of them; 0 where that is not known.
    pub of: u64,
}
