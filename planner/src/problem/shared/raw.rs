//! A problem of several services as it is written: JSON fields, nothing checked but their names and types.

use serde::{Deserialize, Serialize};

use crate::number::Number;
use crate::problem::raw::{Stalls, Stream, Unit};

/// The file. Times are numbers of `unit`, whole or decimal, and whole nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedProblem {
    /// Of all times.
    pub unit: Unit,
    /// Whether requests that no curve bounds may occupy workers; the tests allow for them either way.
    #[serde(default)]
    pub background: bool,
    /// Rare losses of time on these workers that are counted on; no constraint absorbs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    /// Those that all services share.
    pub workers: Workers,
    /// `edf`, `turns` or `auto`.
    #[serde(default = "auto")]
    pub rule: String,
    /// In the order in which they are named elsewhere.
    pub services: Vec<Service>,
}

/// Identical workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workers {
    /// How many.
    pub count: usize,
}

/// One of the services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Unique.
    pub name: String,
    /// From arrival to answer.
    pub deadline: Number,
    /// The part of the deadline kept back for late dispatch.
    #[serde(default)]
    pub guard: Number,
    /// The largest batch.
    pub batch: usize,
    /// The time of every batch; either this or `times`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Number>,
    /// The times of batches of 1, 2, …, at least `batch` of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Vec<Number>>,
    /// Batches in a turn; chosen if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// In the order in which they are named elsewhere.
    pub streams: Vec<Stream>,
}

fn auto() -> String {
    "auto".to_owned()
}
