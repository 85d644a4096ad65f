//! The configuration file: TOML in, checked values out; what does not parse here reaches nobody.

mod check;
mod doors;
mod files;
mod model;
mod raw;

use std::path::{Path, PathBuf};

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, SafeModeConfig, Span, StreamSpec,
};

use crate::engine::{Backend, EngineKind, Isolation};

pub(crate) use doors::{BusConfig, HookConfig, MetricsConfig};
pub(crate) use files::RECORDING;
pub(crate) use model::{ModelChoice, Select, SimulatedModel};

/// A checked configuration. Paths are resolved against the folder of the file.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The file it came from.
    pub(crate) path: PathBuf,
    pub(crate) daemon: DaemonConfig,
    pub(crate) safe_mode: SafeModeConfig,
    /// Run at each change of safe mode.
    pub(crate) hook: Option<HookConfig>,
    pub(crate) services: Vec<ServiceConfig>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DaemonConfig {
    pub(crate) socket: PathBuf,
    /// The manifest of the models that services name.
    pub(crate) models: Option<PathBuf>,
    /// Where `weir profile` writes, and `weir plan` and `weir serve` read.
    pub(crate) profile: PathBuf,
    /// The library of ONNX Runtime; looked for if absent.
    pub(crate) onnxruntime: Option<PathBuf>,
    /// Bytes that a model's file may have.
    pub(crate) max_model: u64,
    /// The certificate that `weir serve` insists on, and where `weir certify` writes it.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) max_clients: usize,
    /// Streams that a connection may hold or have waiting.
    pub(crate) client_streams: usize,
    /// Requests of a connection without an answer; beyond, those that are promised nothing are missed.
    pub(crate) client_requests: usize,
    /// STATUS, PING and SUBSCRIBE of a connection within a second; beyond, they are refused.
    pub(crate) client_questions: usize,
    /// Largest frame accepted from a client, in bytes without header.
    pub(crate) max_frame: u32,
    /// Bytes kept for a client that reads slowly; beyond, it is cut off.
    pub(crate) max_pending: usize,
    /// Largest memory a client may share, in bytes; 0 for none.
    pub(crate) max_arena: u64,
    /// `SCHED_FIFO` and locked memory where permitted.
    pub(crate) realtime: bool,
    /// User and group ids that may connect; `None` lets everybody in whom the socket's mode lets in.
    pub(crate) allowed: Option<Allowed>,
    /// Mode bits of the socket.
    pub(crate) socket_mode: u32,
    pub(crate) bus: BusConfig,
    pub(crate) metrics: Option<MetricsConfig>,
}

/// What a batch size is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Optimise {
    /// The largest promised rate; without constraints of the service's own, the most capacity to spare.
    #[default]
    Rate,
    /// The largest burst of a stream that must not miss, beside the reserved ones.
    Burst,
    /// The longest batch of a slower model that the reserved streams allow in a lull.
    Headroom,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) users: Vec<u32>,
    pub(crate) groups: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct ServiceConfig {
    pub(crate) name: String,
    pub(crate) engine: EngineKind,
    pub(crate) isolation: Isolation,
    /// What computes, for each worker in turn; at least one.
    pub(super) backends: Vec<Backend>,
    pub(crate) model: ModelChoice,
    /// Which of its variants answers.
    pub(crate) select: Select,
    pub(crate) deadline: Span,
    pub(crate) guard: Span,
    /// Added to each measured batch time for the way to the worker and back.
    pub(crate) handover: Span,
    pub(crate) workers: usize,
    /// The core of each worker, cyclically; empty leaves them to the kernel.
    pub(crate) cores: Vec<usize>,
    pub(crate) max_batch: usize,
    /// What the batch size is chosen for.
    pub(crate) optimise: Optimise,
    /// `B` of the promise; chosen by the plan if absent.
    pub(crate) batch: Option<usize>,
    pub(crate) dispatch: Dispatch,
    pub(crate) queue: usize,
    /// Whether requests are served that no stream has declared.
    pub(crate) background: bool,
    pub(crate) streams: usize,
    /// What the plan computes the largest rate for.
    pub(crate) constraints: Vec<Constraint>,
    /// How late a periodic request may come when the plan states a rate.
    pub(crate) jitter: Span,
    /// Where it is written down when requests came.
    pub(crate) record: Option<RecordConfig>,
    /// Streams whose promise is kept for them, connected or not.
    pub(crate) reserved: Vec<ReservedStream>,
}

/// A file of arrivals, for `weir simulate`.
#[derive(Clone, Debug)]
pub(crate) struct RecordConfig {
    pub(crate) path: PathBuf,
    /// Lines in it at most.
    pub(crate) limit: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct ReservedStream {
    pub(crate) name: String,
    pub(crate) spec: StreamSpec,
}

/// Why a configuration file is refused; the message names file, field, value and limit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Parse { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{}: {field} = {value}: {reason}", path.display())]
    Value { path: PathBuf, field: String, value: String, reason: String },
}

impl Config {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is no TOML of this shape, or holds a value outside its limits.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            planner::read_text(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let raw: raw::File = toml::from_str(text)
            .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        check::Check::new(path).file(raw)
    }
}

impl DaemonConfig {
    /// Whether `next` differs in what a start takes over and a reload does not.
    pub(crate) fn needs_start(&self, next: &Self) -> bool {
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
    pub(crate) fn backend(&self, worker: usize) -> &Backend {
        &self.backends[worker % self.backends.len()]
    }

    /// A stream of the service's own constraints, one request a `period` and up to the service's jitter late, and a
    /// name for it that is free; `None` without constraints.
    pub(crate) fn stream_every(&self, period: Span) -> Option<(String, StreamSpec)> {
        let set = ConstraintSet::new(&self.constraints).ok().filter(|set| !set.as_slice().is_empty())?;
        let curve = ArrivalCurve::new(&[ArrivalBound::periodic(period, self.jitter).ok()?]).ok()?;
        let mut name = "promised".to_owned();
        while self.reserved.iter().any(|s| s.name == name) {
            name.push('_');
        }
        Some((name, StreamSpec::promised(set, curve)))
    }

    /// Such a stream that sends once a deadline: what is asked for where nothing can be promised.
    pub(crate) fn example_stream(&self) -> Option<(String, StreamSpec)> {
        if self.reserved.is_empty() { self.stream_every(self.deadline) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [daemon]
        socket = "/tmp/weir.sock"
        models = "models.toml"
        profile = "x.profile.json"
        [[service]]
        name = "digits"
        model = "digits-m"
        deadline = "50ms"
        constraints = [{ any-miss = { m = 1, k = 2 } }, { row-miss = 2 }]
        [[service.stream]]
        name = "cam0"
        arrivals = [{ window = { count = 5, length = "100ms" } }]
    "#;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("dir/test.toml"), text)
    }

    fn error(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        parse(&GOOD.replace(from, to)).expect_err("must be refused").to_string()
    }

    #[test]
    fn a_good_file_loads_with_defaults_and_resolved_paths() {
        let config = parse(GOOD).expect("good");
        assert_eq!(config.daemon.models.as_deref(), Some(Path::new("dir/models.toml")));
        let service = &config.services[0];
        assert_eq!(service.isolation, Isolation::Thread);
        assert_eq!((service.workers, service.deadline), (1, Span::from_millis(50)));
        assert_eq!(service.reserved[0].spec.constraints().as_slice(), &service.constraints[..]);
    }

    #[test]
    fn what_is_run_or_loaded_is_that_beside_the_file() {
        let loaded = |file: &str| {
            let text = GOOD.replace("[daemon]", "[daemon]\nonnxruntime = \"lib.so\"");
            Config::parse(Path::new(file), &text).expect("good").daemon.onnxruntime
        };
        // A name without a slash would be looked for on the loader's path.
        assert_eq!(loaded("test.toml").as_deref(), Some(Path::new("./lib.so")));
        assert_eq!(loaded("/etc/test.toml").as_deref(), Some(Path::new("/etc/lib.so")));
    }

    #[test]
    fn workers_take_the_devices_in_turn() {
        let on = |text: &str| {
            let text = GOOD.replace("model = \"digits-m\"", &format!("model = \"m\"\n{text}"));
            let config = parse(&text).expect("good");
            [0, 1, 2].map(|worker| config.services[0].backend(worker).device)
        };
        assert_eq!(on(""), [0, 0, 0]);
        assert_eq!(on("engine = \"ort-cuda\"\ndevice = 1"), [1, 1, 1]);
        assert_eq!(on("engine = \"ort-tensorrt\"\ndevice = [0, 2]"), [0, 2, 0]);
    }

    #[test]
    fn every_refusal_names_file_field_value_and_limit() {
        for (from, to, wanted) in [
            ("\"50ms\"", "\"0ms\"", &["dir/test.toml", "service[0].deadline", "0ms", "1h"][..]),
            ("\"50ms\"", "\"50 lightyears\"", &["service[0].deadline", "lightyears"]),
            ("m = 1, k = 2", "m = 2, k = 2", &["service[0].constraints[0]", "m must be below K"]),
            ("count = 5", "count = 0", &["service[0].stream[0].arrivals[0]", "0 requests", "65536"]),
            ("name = \"digits\"", "name = \"\"", &["service[0].name", "1..=64"]),
            ("model = \"digits-m\"", "model = \"m\"\nworkers = 99", &["service[0].workers", "99", "16"]),
            ("[daemon]", "[daemon]\nmax-clients = 0", &["daemon.max-clients", "0", "1..=1024"]),
            ("[daemon]", "[daemon]\nallow-users = [\"nobody-here\"]", &["daemon.allow-users", "nobody-here"]),
            ("deadline = \"50ms\"", "deadline = \"50ms\"\nguard = \"60ms\"", &["service[0].guard", "60ms"]),
            ("model = \"digits-m\"", "engine = \"simulated\"", &["service[0].simulated"]),
            ("[daemon]", "[daemon]\nmax-model = 0", &["daemon.max-model", "0", "1..="]),
            ("model = \"digits-m\"", "model = \"m\"\ndevice = 1", &["service[0].device", "1", "tract"]),
            (
                "model = \"digits-m\"",
                "model = \"m\"\nengine = \"ort-cuda\"\ndevice = [0, 99]",
                &["service[0].device", "99", "0..=63"],
            ),
            ("[daemon]", "[daemon]\nbus = \"train\"", &["daemon.bus", "train", "unix:path"]),
            ("[daemon]", "[daemon]\nmetrics = \"9464\"", &["daemon.metrics", "9464", "ADDRESS:PORT"]),
            ("[daemon]", "[daemon]\nmetrics = \"10.0.0.1:9464\"", &["daemon.metrics", "10.0.0.1", "127."]),
            (
                "[[service]]",
                "[safe-mode]\nhook = [\"/nowhere\"]\n[[service]]",
                &["safe-mode.hook[0]", "/nowhere"],
            ),
            (
                "[[service]]",
                "[safe-mode]\nhook-limit = \"2m\"\n[[service]]",
                &["safe-mode.hook-limit", "2m", "1.00 ms", "60.0 s"],
            ),
            (
                "[[service]]",
                "[safe-mode]\nhook-limit = \"0s\"\n[[service]]",
                &["safe-mode.hook-limit", "0s", "1.00 ms", "60.0 s"],
            ),
            ("socket =", "sokcet =", &["dir/test.toml", "sokcet", "socket"]),
            (
                "[[service]]",
                "[[service]]\nisolation = \"cell\"",
                &["dir/test.toml", "cell", "thread", "process"],
            ),
            ("model = \"digits-m\"", "model = \"digits-m\"\nbatch = 65", &["service[0].batch", "65"]),
            (
                "model = \"digits-m\"",
                "model = \"m\"\nvariants = [\"m\"]",
                &["service[0].variants[0]", "\"m\""],
            ),
            ("model = \"digits-m\"", "model = \"m\"\nselect = \"base\"", &["service[0].select", "variants"]),
            (
                "[daemon]",
                "[daemon]\nmetrics = \"unix:x.profile.json\"",
                &["daemon.metrics", "x.profile", "other"],
            ),
            ("\"/tmp/weir.sock\"", "\"models.toml\"", &["daemon.socket", "models.toml", "other file"]),
        ] {
            let text = error(from, to);
            for word in wanted {
                assert!(text.contains(word), "{to}: {text} lacks {word}");
            }
        }
    }

    #[test]
    fn a_stream_with_constraints_must_declare_its_arrivals() {
        let text = error("arrivals = [{ window = { count = 5, length = \"100ms\" } }]", "");
        assert!(text.contains("service[0].stream[0].arrivals"), "{text}");
    }

    #[test]
    fn names_are_unique() {
        let twice = format!(
            "{GOOD}\n[[service.stream]]\nname = \"cam0\"\narrivals = [{{ periodic = {{ period = \"1s\" }} }}]"
        );
        let text = parse(&twice).expect_err("twice").to_string();
        assert!(text.contains("service[0].stream[1].name") && text.contains("cam0"), "{text}");
    }
}
