//! The configuration file as written: every field with its default, nothing checked yet.

mod classes;
mod daemon;
mod kinds;
mod model;
mod path;
mod pipeline;
mod placement;

use serde::{Deserialize, Serialize};

use super::{HeldBy, Optimise};
pub(super) use classes::RequestClass;
pub(super) use daemon::{Daemon, Oip, SafeMode, ServerTls};
pub(super) use kinds::{Kind, Staff};
pub(super) use model::{ClientTls, Gpu, Remote, Select, Simulated, SimulatedTime, Spread, Urls};
pub(super) use path::FilePath;
pub(super) use pipeline::{Pipeline, Stage};
pub(super) use placement::{Class, Placement, SimulatedCandidate};
use weir_engine::{EngineKind, Isolation};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    #[serde(default)]
    pub(super) daemon: Daemon,
    #[serde(default)]
    pub(super) safe_mode: SafeMode,
    #[serde(default)]
    pub(super) device: Vec<Device>,
    #[serde(default)]
    pub(super) service: Vec<Service>,
    #[serde(default)]
    pub(super) pipeline: Vec<Pipeline>,
    pub(super) placement: Option<Placement>,
}

/// Workers that several services run on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Device {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default, deserialize_with = "kinds::alike")]
    pub(super) workers: Option<u64>,
    #[serde(default)]
    pub(super) cores: Vec<u64>,
    pub(super) gpu: Option<Gpu>,
    #[serde(default)]
    pub(super) rule: Rule,
    #[serde(default)]
    pub(super) prefer: Prefer,
    #[serde(default = "yes")]
    pub(super) ahead: bool,
    #[serde(default = "four_gib")]
    pub(super) max_memory: u64,
    pub(super) stalls: Option<Stalls>,
    pub(super) record: Option<FilePath>,
    pub(super) record_limit: Option<u64>,
}

fn yes() -> bool {
    true
}

pub(super) fn four_gib() -> u64 {
    1 << 32
}

/// What batches are chosen for.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Prefer {
    #[default]
    Sum,
    InOrder,
}

/// Which service a free worker serves next.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rule {
    #[default]
    Auto,
    Deadline,
    Turns,
}

/// What becomes of requests that nothing is promised for and that cannot all be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BestEffort {
    RefuseEarly,
    Spread,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) engine: EngineKind,
    pub(super) isolation: Option<Isolation>,
    /// The name of a device that it shares.
    pub(super) device: Option<toml::Value>,
    pub(super) turn: Option<u64>,
    pub(super) weight: Option<f64>,
    pub(super) gpu: Option<Gpu>,
    pub(super) remote: Option<Remote>,
    pub(super) model: Option<String>,
    pub(super) variants: Vec<String>,
    /// The models among which `weir place` chooses.
    pub(super) models: Option<Vec<String>>,
    pub(super) demand: Option<f64>,
    pub(super) value: Option<f64>,
    pub(super) classes: Option<Vec<String>>,
    pub(super) select: Option<Select>,
    /// Of the network, where one selects.
    pub(super) weights: Option<FilePath>,
    pub(super) simulated: Option<Simulated>,
    pub(super) deadline: Option<String>,
    pub(super) guard: String,
    pub(super) tolerance: Option<String>,
    pub(super) stalls: Option<Stalls>,
    pub(super) handover: String,
    pub(super) workers: Option<Staff>,
    pub(super) cores: Option<Vec<u64>>,
    pub(super) max_batch: Option<u64>,
    pub(super) batch: Option<u64>,
    pub(super) probability: f64,
    pub(super) optimise: Option<Optimise>,
    pub(super) dispatch: Dispatch,
    pub(super) queue: u64,
    pub(super) background: bool,
    pub(super) best_effort: BestEffort,
    pub(super) streams: u64,
    pub(super) constraints: Vec<Constraint>,
    /// Weaker ones, from the strongest to the weakest.
    pub(super) degraded: Vec<Vec<Constraint>>,
    pub(super) jitter: String,
    pub(super) record: Option<FilePath>,
    pub(super) record_limit: Option<u64>,
    /// Of its requests.
    pub(super) class: Vec<RequestClass>,
    pub(super) stream: Vec<Stream>,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            name: String::new(),
            engine: EngineKind::Tract,
            isolation: None,
            device: None,
            turn: None,
            weight: None,
            gpu: None,
            remote: None,
            model: None,
            variants: Vec::new(),
            models: None,
            demand: None,
            value: None,
            classes: None,
            select: None,
            weights: None,
            simulated: None,
            deadline: None,
            guard: "5ms".into(),
            tolerance: None,
            stalls: None,
            handover: "200us".into(),
            workers: None,
            cores: None,
            max_batch: None,
            batch: None,
            probability: 0.9,
            optimise: None,
            dispatch: Dispatch::Eager,
            queue: 256,
            background: true,
            best_effort: BestEffort::RefuseEarly,
            streams: 64,
            constraints: Vec::new(),
            degraded: Vec::new(),
            jitter: "5ms".into(),
            record: None,
            record_limit: None,
            class: Vec::new(),
            stream: Vec::new(),
        }
    }
}

/// At most so many stalls in any such interval, each of at most such a length.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Stalls {
    pub(super) at_most: u64,
    #[serde(rename = "in")]
    pub(super) window: String,
    #[serde(rename = "of")]
    pub(super) length: String,
    #[serde(default)]
    pub(super) by: HeldBy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Dispatch {
    #[default]
    Eager,
    FullOrLatest,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Stream {
    #[serde(default)]
    pub(super) name: String,
    /// Those of the service if absent; an empty list is best effort.
    pub(super) constraints: Option<Vec<Constraint>>,
    /// Those of the service if absent, and the constraints are as well.
    pub(super) degraded: Option<Vec<Vec<Constraint>>>,
    #[serde(default)]
    pub(super) arrivals: Vec<Arrival>,
    /// Of its requests that name none; the first if absent.
    pub(super) class: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Constraint {
    AnyMiss {
        m: u32,
        k: u32,
    },
    AnyHit {
        h: u32,
        k: u32,
    },
    /// At most so many misses in a row.
    RowMiss(u32),
    RowHit {
        h: u32,
        k: u32,
    },
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Arrival {
    Window {
        count: u64,
        length: String,
    },
    Periodic {
        period: String,
        #[serde(default = "zero")]
        jitter: String,
    },
    TokenBucket {
        burst: u64,
        period: String,
    },
}

fn zero() -> String {
    "0s".into()
}
