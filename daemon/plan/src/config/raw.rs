//! The configuration file as written: every field with its default, nothing checked yet.

mod classes;
mod kinds;
mod pipeline;
mod placement;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{HeldBy, Optimise};
pub(super) use classes::RequestClass;
pub(super) use kinds::{Kind, Staff};
pub(super) use pipeline::{Pipeline, Stage};
pub(super) use placement::{Class, Placement, SimulatedCandidate};
use weir_engine::{Backend, EngineKind, Isolation};

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
    pub(super) record: Option<PathBuf>,
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Daemon {
    pub(super) socket: PathBuf,
    pub(super) socket_mode: String,
    pub(super) models: Option<PathBuf>,
    pub(super) profile: PathBuf,
    pub(super) onnxruntime: Option<PathBuf>,
    pub(super) max_model: u64,
    pub(super) certificate: Option<PathBuf>,
    pub(super) max_clients: u64,
    pub(super) client_streams: u64,
    pub(super) client_requests: u64,
    pub(super) client_questions: u64,
    pub(super) max_frame: u64,
    pub(super) max_pending: u64,
    pub(super) max_arena: u64,
    pub(super) realtime: bool,
    pub(super) allow_users: Option<Vec<String>>,
    pub(super) allow_groups: Option<Vec<String>>,
    pub(super) bus: String,
    pub(super) metrics: Option<String>,
    pub(super) oip: Oip,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            socket: "/run/weir/weir.sock".into(),
            socket_mode: "0660".into(),
            models: None,
            profile: "/var/lib/weir/profile.json".into(),
            onnxruntime: None,
            max_model: Backend::MAX_MODEL,
            certificate: None,
            max_clients: 64,
            client_streams: 16,
            client_requests: 1024,
            client_questions: 1000,
            max_frame: 4 << 20,
            max_pending: 1 << 20,
            max_arena: 16 << 20,
            realtime: true,
            allow_users: None,
            allow_groups: None,
            bus: "system".into(),
            metrics: None,
            oip: Oip::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Oip {
    pub(super) http: Option<String>,
    pub(super) grpc: Option<String>,
    pub(super) tls: Option<ServerTls>,
    pub(super) ready_in_safe_mode: bool,
}

/// What is shown at ports, and who may connect there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ServerTls {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) client_ca: Option<PathBuf>,
    pub(super) revoked: Option<PathBuf>,
    #[serde(default)]
    pub(super) allow_clients: Vec<String>,
}

impl Default for Oip {
    fn default() -> Self {
        Self { http: None, grpc: None, tls: None, ready_in_safe_mode: true }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct SafeMode {
    pub(super) hold: String,
    pub(super) clean: String,
    pub(super) latch: bool,
    /// A program and its arguments; empty runs none.
    pub(super) hook: Vec<String>,
    pub(super) hook_limit: String,
}

impl Default for SafeMode {
    fn default() -> Self {
        Self {
            hold: "1s".into(),
            clean: "1s".into(),
            latch: false,
            hook: Vec::new(),
            hook_limit: "5s".into(),
        }
    }
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
    pub(super) weights: Option<PathBuf>,
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
    pub(super) record: Option<PathBuf>,
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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Simulated {
    /// `times[b-1]`: how long a batch of `b` is waited out.
    #[serde(default)]
    pub(super) times: Vec<SimulatedTime>,
    pub(super) name: Option<String>,
    pub(super) accuracy: Option<f64>,
    #[serde(default)]
    pub(super) variants: Vec<SimulatedVariant>,
    /// Those among which `weir place` chooses.
    #[serde(default)]
    pub(super) models: Vec<SimulatedCandidate>,
    /// Values in and out of one request.
    #[serde(default = "default_values")]
    pub(super) input: u64,
    #[serde(default = "default_values")]
    pub(super) output: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SimulatedVariant {
    pub(super) times: Vec<SimulatedTime>,
    pub(super) name: Option<String>,
    pub(super) accuracy: f64,
}

/// One time for every batch of a size, or what they take at most, within 0.9 and on average.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "must be a time in quotes, or { bound = \"…\", likely = \"…\", mean = \"…\" }")]
pub(super) enum SimulatedTime {
    Always(String),
    Spread(Spread),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Spread {
    pub(super) bound: String,
    pub(super) likely: String,
    pub(super) mean: String,
}

/// The GPU of all workers, or of each in turn, by number.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be the number of a GPU, from 0, or a list of numbers")]
pub(super) enum Gpu {
    One(u64),
    Each(Vec<u64>),
}

/// Servers that compute.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Remote {
    pub(super) url: Urls,
    /// What they call the model.
    pub(super) model: Option<String>,
    pub(super) version: Option<String>,
    pub(super) stream: Option<String>,
    #[serde(default = "one_second")]
    pub(super) timeout: String,
    /// Whom to trust, where the scheme is "https".
    pub(super) tls: Option<ClientTls>,
    /// Whether they may be on other machines without TLS.
    #[serde(default)]
    pub(super) plaintext: bool,
}

/// Whom to trust, and what to show.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ClientTls {
    pub(super) ca: PathBuf,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// Where the server of all workers is, or of each in turn.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be a URL in quotes, or a list of URLs")]
pub(super) enum Urls {
    One(String),
    Each(Vec<String>),
}

impl Urls {
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Each(urls) => urls.len() as u64,
        }
    }
}

/// Who says which variant answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Select {
    Accurate,
    Base,
    /// Tables that are planned while serving.
    Planned,
    /// A file of tables.
    Table(PathBuf),
    /// A network that was trained, of the file `weights`.
    Learned,
    /// Whoever is worth most in simulation.
    Auto,
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

fn one_second() -> String {
    "1s".into()
}

fn zero() -> String {
    "0s".into()
}

fn default_values() -> u64 {
    64
}
