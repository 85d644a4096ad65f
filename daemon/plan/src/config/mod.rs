//! The configuration file: TOML in, checked values out; what does not parse here reaches nobody.

mod check;
mod classes;
mod controller;
mod device;
mod files;
mod interfaces;
mod kinds;
mod model;
mod pipeline;
mod placement;
mod places;
mod raw;
mod remote;
mod service;
mod stages;
mod stream;

use std::path::{Path, PathBuf};

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, SafeModeConfig, Span, Stalls, StreamSpec,
};

use weir_engine::manifest::{Problems, lines};
use weir_engine::{Backend, EngineKind, Isolation};

pub use check::{MAX_SERVICES, is_name};
pub use classes::{RequestClass, tight_classes};
pub use controller::{ControllerConfig, Estimator};
pub use device::{DeviceConfig, ShareConfig};
pub use files::{MAX_RECORDED, RECORDING, has_arrivals};
pub use interfaces::{BusConfig, HookConfig, LONGEST_PATH, ListenAddress, OipConfig, SOCKET_DRAFT};
pub use model::{ModelChoice, Select, SimulatedModel};
pub use placement::{Candidates, ClassConfig, Mode, Models, Placed, PlacementConfig, Unit};
pub use stages::StageConfig;

/// A checked configuration. Paths are resolved against the folder of the file.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it came from.
    pub path: PathBuf,
    /// The SHA-256 of what it says, if it was read to be served: `text` may be what was made of it.
    pub of_file: String,
    /// What that said, to tell where a field stands.
    text: String,
    pub daemon: DaemonConfig,
    pub safe_mode: SafeModeConfig,
    /// Run at each announcement.
    pub hook: Option<HookConfig>,
    /// Workers that services share.
    pub devices: Vec<DeviceConfig>,
    pub services: Vec<ServiceConfig>,
    /// The devices among which services may be placed.
    pub placement: Option<PlacementConfig>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DaemonConfig {
    pub socket: PathBuf,
    /// The manifest of the models that services name.
    pub models: Option<PathBuf>,
    /// Where `weir profile` writes, and `weir plan` and `weir serve` read.
    pub profile: PathBuf,
    /// The library of ONNX Runtime; looked for if absent.
    pub onnxruntime: Option<PathBuf>,
    /// Bytes that a model's file may have.
    pub max_model: u64,
    /// The certificate that `weir serve` insists on, and where `weir certify` writes it.
    pub certificate: Option<PathBuf>,
    pub max_clients: usize,
    /// Streams that a connection may hold or have waiting.
    pub client_streams: usize,
    /// Requests of a connection without an answer; beyond, those that are promised nothing are missed.
    pub client_requests: usize,
    /// STATUS, PING and SUBSCRIBE of a connection within a second; beyond, they are refused.
    pub client_questions: usize,
    /// Largest frame accepted from a client, in bytes without header.
    pub max_frame: u32,
    /// Bytes kept for a client that reads slowly; beyond, it is cut off.
    pub max_pending: usize,
    /// Largest memory a client may share, in bytes; 0 for none.
    pub max_arena: u64,
    /// `SCHED_FIFO` and locked memory where permitted.
    pub realtime: bool,
    /// User and group ids that may connect; `None` lets everybody in whom the socket's mode lets in.
    pub allowed: Option<Allowed>,
    /// Mode bits of the socket.
    pub socket_mode: u32,
    pub bus: BusConfig,
    pub metrics: Option<ListenAddress>,
    pub oip: OipConfig,
}

/// What holds a promise through the stalls that are declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    /// Whichever promises more.
    #[default]
    Auto,
    /// A part of the deadline that is kept back for them.
    Deadline,
    /// The constraints, which leave room for what is missed around one.
    Constraints,
}

/// What a batch size is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimise {
    /// The largest promised rate; without constraints of the service's own, the most capacity to spare.
    #[default]
    Rate,
    /// The largest burst of a stream that must not miss, beside the reserved ones.
    Burst,
    /// The longest batch of a slower model that the reserved streams allow in a lull.
    Headroom,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    pub users: Vec<u32>,
    pub groups: Vec<u32>,
}

/// How early requests may come, as far as admission leaves room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    pub most: Span,
    /// Whether it is also no more than a quarter of the time between two requests of the quickest stream.
    pub paced: bool,
}

#[derive(Clone, Debug)]
pub struct ServiceConfig {
    pub name: String,
    /// Where it stands in the file, such as `service[0]`.
    pub at: String,
    pub engine: EngineKind,
    /// What its workers are called, if they have a name of their own: then their times are theirs alone.
    pub kind: Option<String>,
    /// The class of devices that it is placed on, if another has the same engine: then its times there are of that class alone.
    pub class: Option<String>,
    pub isolation: Isolation,
    /// The part that it has of a device; absent if its workers are its own.
    pub share: Option<ShareConfig>,
    /// What computes, for each worker in turn; at least one.
    pub(super) backends: Vec<Backend>,
    pub model: ModelChoice,
    /// What else may answer, and where: `weir place` chooses. Of a pipeline each stage has its own.
    pub candidates: Option<Candidates>,
    /// Which of its variants answers.
    pub select: Select,
    pub deadline: Span,
    pub guard: Span,
    /// The most that requests may come before their declaration allows them without suspending its promise.
    pub tolerance: Tolerance,
    /// Rare losses of time that the promise holds through.
    pub stalls: Option<Stalls>,
    pub stalls_held_by: HeldBy,
    /// Added to each measured batch time for the way to the worker and back.
    pub handover: Span,
    pub workers: usize,
    /// The core of each worker, cyclically; empty leaves them to the kernel.
    pub cores: Vec<usize>,
    /// The largest batch that is profiled and, of what waits, served.
    pub max_batch: usize,
    /// What the batch size is chosen for.
    pub optimise: Optimise,
    /// `B` of the promise; chosen by the plan if absent.
    pub batch: Option<usize>,
    /// With which a batch is to end in the time that what is promised nothing counts with, 0.5 to 0.999.
    pub probability: f64,
    pub dispatch: Dispatch,
    pub queue: usize,
    /// Whether requests are served that no stream has declared.
    pub background: bool,
    /// Whether the misses of what nothing is promised for are spread, and chosen late, instead of refused when they come.
    pub spread: bool,
    pub streams: usize,
    /// What the plan computes the largest rate for.
    pub constraints: Vec<Constraint>,
    /// Weaker ones that stand in for them while more comes than they allow, from the strongest to the weakest.
    pub degraded: Vec<ConstraintSet>,
    /// How late a periodic request may come when the plan states a rate.
    pub jitter: Span,
    /// Where it is written down when requests came; of a service on a device that of its device.
    pub record: Option<RecordConfig>,
    /// Classes of its requests, numbered in this order; none if they are all alike.
    pub classes: Vec<RequestClass>,
    /// Streams whose promise is kept for them, connected or not.
    pub reserved: Vec<ReservedStream>,
    /// The kinds of its workers, if there are several: what is of each of them stands there, and of all of them as a whole here.
    pub kinds: Vec<Self>,
    /// Of a pipeline, every parent before its children; none of a service with one model. What is the pipeline's as a whole then
    /// stands here, and what a stage has of its own with the stage.
    pub stages: Vec<StageConfig>,
}

/// A file of arrivals, for `weir simulate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordConfig {
    pub path: PathBuf,
    /// Lines in it at most.
    pub limit: u64,
}

#[derive(Clone, Debug)]
pub struct ReservedStream {
    pub name: String,
    pub spec: StreamSpec,
    /// The class of its requests that name none, by its number.
    pub class: u8,
}

/// Why a configuration file is refused; the message names file, line, field, value and limit of all that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// All that is wrong, each with its line.
    #[error("{}", lines(path, problems))]
    Wrong { path: PathBuf, problems: Vec<(usize, String)> },
}

impl Config {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is no TOML of this shape, holds a value outside its limits, or leaves open what serves.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &Self::read(path)?)
    }

    /// The same of a file whose services may leave open what serves them, for `weir place` and what comes before it. Such a
    /// service has the first of its models on one device until then.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_box(path: &Path) -> Result<Self, ConfigError> {
        Self::parse_box(path, &Self::read(path)?)
    }

    /// Checks `text` as [`Config::load_box`] does what the file at `path` says.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse_box(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::checked(path, text, true)
    }

    fn read(path: &Path) -> Result<String, ConfigError> {
        planner::read_text(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
    }

    /// The file as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line at which a field such as `pipeline[0].stage[1].adapter.each` stands, or the innermost table of it that is there.
    pub fn line_of(&self, field: &str) -> usize {
        places::line(&self.text, field)
    }

    /// Checks `text` as [`Config::load`] does what the file at `path` says.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::checked(path, text, false)
    }

    fn checked(path: &Path, text: &str, open: bool) -> Result<Self, ConfigError> {
        let mut problems = Problems::new(text);
        let (raw, tree) = places::read(text, &mut problems);
        let check = check::Check::new(path, &tree, problems, open);
        let config = raw.and_then(|raw| check.file(raw).ok());
        let problems = check.into_problems();
        match config.filter(|_| problems.is_empty()) {
            Some(config) => Ok(Self { text: text.to_owned(), ..config }),
            None => Err(ConfigError::Wrong { path: path.to_owned(), problems }),
        }
    }
}

impl DaemonConfig {
    /// Whether `next` differs in what a start takes over and a reload does not.
    pub fn needs_start(&self, next: &Self) -> bool {
        let at_reload = next.clone();
        let reloaded = Self {
            models: at_reload.models,
            profile: at_reload.profile,
            onnxruntime: at_reload.onnxruntime,
            max_model: at_reload.max_model,
            certificate: at_reload.certificate,
            ..self.clone()
        };
        reloaded != *next
    }
}

impl ServiceConfig {
    /// What computes the batches of that worker.
    pub fn backend(&self, worker: usize) -> &Backend {
        &self.backends[worker % self.backends.len()]
    }

    /// What runs models: the service itself, each kind of its workers, or each stage of a pipeline.
    pub fn running(&self) -> impl Iterator<Item = &Self> {
        let own = (self.stages.is_empty() && self.kinds.is_empty()).then_some(self);
        own.into_iter().chain(&self.kinds).chain(self.stages.iter().map(|stage| &stage.runs))
    }

    /// Whether what serves it, and where, is chosen: of a pipeline for each stage.
    pub fn is_placed(&self) -> bool {
        self.running().any(|runs| runs.candidates.is_some())
    }

    /// How many of its requests come a second on average, and what one counts, if it is placed.
    pub fn worth(&self) -> Option<(f64, f64)> {
        let candidates = self.running().find_map(|runs| runs.candidates.as_ref());
        candidates.map(|candidates| (candidates.demand, candidates.value))
    }

    /// Whether the file leaves open what serves it.
    pub fn is_open(&self) -> bool {
        self.running().filter_map(|runs| runs.candidates.as_ref()).any(|candidates| candidates.open)
    }

    /// Where each of what runs models is placed, a service by itself or the stages of a pipeline; none where one of them is not at such
    /// a place.
    pub fn places(&self) -> Option<Vec<Placed>> {
        self.running().map(|runs| runs.candidates.as_ref()?.placed.clone()).collect()
    }

    /// Whether it is a pipeline whose stages have workers of their own.
    pub fn is_staged(&self) -> bool {
        !self.stages.is_empty() && self.share.is_none()
    }

    /// Whether it is a pipeline on a device: each batch runs all stages there, on one worker.
    pub fn is_fused(&self) -> bool {
        !self.stages.is_empty() && self.share.is_some()
    }

    /// Whether it shares that device, by its place in [`Config::devices`].
    pub fn is_on(&self, device: usize) -> bool {
        self.share.is_some_and(|share| share.device == device)
    }

    /// Whether neither it nor a reserved stream has a constraint, and its workers are its own: then nothing that is promised
    /// hangs on what its batches take, unless a client asks for it. On a device the others wait for them.
    pub fn is_best_effort(&self) -> bool {
        self.share.is_none()
            && self.constraints.is_empty()
            && self.reserved.iter().all(|stream| stream.spec.demand().is_none())
    }

    /// A stream of the service's own constraints, one request a `period` and up to the service's jitter late, and a
    /// name for it that is free; `None` without constraints.
    pub fn stream_every(&self, period: Span) -> Option<(String, StreamSpec)> {
        let set = ConstraintSet::new(&self.constraints).ok().filter(|set| !set.as_slice().is_empty())?;
        let curve = ArrivalCurve::new(&[ArrivalBound::periodic(period, self.jitter).ok()?]).ok()?;
        let mut name = "promised".to_owned();
        while self.reserved.iter().any(|s| s.name == name) {
            name.push('_');
        }
        Some((name, self.laddered(StreamSpec::promised(set, curve))))
    }

    /// Such a stream that sends once a deadline: what is asked for where nothing can be promised.
    pub fn example_stream(&self) -> Option<(String, StreamSpec)> {
        if self.reserved.is_empty() { self.stream_every(self.deadline) } else { None }
    }
}

#[cfg(test)]
mod tests;
