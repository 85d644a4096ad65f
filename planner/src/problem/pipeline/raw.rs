//! A problem of a pipeline as it is written: JSON fields, nothing checked but their names and types.

use serde::{Deserialize, Serialize};

use crate::number::Number;
use crate::problem::raw::{Stream, Unit};

/// The file. Times are numbers of `unit`, whole or decimal, and whole nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineProblem {
    /// Of all times.
    pub unit: Unit,
    /// Whether requests that no curve bounds may occupy workers; the test allows for them either way.
    #[serde(default)]
    pub background: bool,
    /// From the arrival of a source to the last answer to what it became.
    pub deadline: Number,
    /// By how much dispatch may come late at each stage.
    #[serde(default)]
    pub guard: Number,
    /// Every parent before its children; the first has none.
    pub pipeline: Vec<Stage>,
    /// How sources come, in the order in which they are named elsewhere.
    pub streams: Vec<Stream>,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Unique.
    pub name: String,
    /// The stage whose results it takes; absent for the first alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The most requests that a result of the parent becomes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub fan_out: u32,
    /// Identical ones, that no other stage uses.
    pub workers: usize,
    /// The largest batch.
    pub batch: usize,
    /// The time of every batch; either this or `times`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Number>,
    /// The times of batches of 1, 2, …, at least `batch` of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Vec<Number>>,
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(fan_out: &u32) -> bool {
    *fan_out == 1
}
