//! What answers requests, as it is written: a simulated engine, GPUs, remote servers, and who chooses among variants.

use serde::Deserialize;

use super::{FilePath, SimulatedCandidate};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::config) struct Simulated {
    /// `times[b-1]`: how long a batch of `b` is waited out.
    #[serde(default)]
    pub(in crate::config) times: Vec<SimulatedTime>,
    pub(in crate::config) name: Option<String>,
    pub(in crate::config) accuracy: Option<f64>,
    #[serde(default)]
    pub(in crate::config) variants: Vec<SimulatedVariant>,
    /// Those among which `weir place` chooses.
    #[serde(default)]
    pub(in crate::config) models: Vec<SimulatedCandidate>,
    /// Values in and out of one request.
    #[serde(default = "default_values")]
    pub(in crate::config) input: u64,
    #[serde(default = "default_values")]
    pub(in crate::config) output: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::config) struct SimulatedVariant {
    pub(in crate::config) times: Vec<SimulatedTime>,
    pub(in crate::config) name: Option<String>,
    pub(in crate::config) accuracy: f64,
}

/// One time for every batch of a size, or what they take at most, within 0.9 and on average.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "must be a time in quotes, or { bound = \"…\", likely = \"…\", mean = \"…\" }")]
pub(in crate::config) enum SimulatedTime {
    Always(String),
    Spread(#[serde(deserialize_with = "planner::table")] Spread),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::config) struct Spread {
    pub(in crate::config) bound: String,
    pub(in crate::config) likely: String,
    pub(in crate::config) mean: String,
}

/// The GPU of all workers, or of each in turn, by number.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be the number of a GPU, from 0, or a list of numbers")]
pub(in crate::config) enum Gpu {
    One(u64),
    Each(Vec<u64>),
}

/// Servers that compute.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::config) struct Remote {
    pub(in crate::config) url: Urls,
    /// What they call the model.
    pub(in crate::config) model: Option<String>,
    pub(in crate::config) version: Option<String>,
    pub(in crate::config) stream: Option<String>,
    #[serde(default = "one_second")]
    pub(in crate::config) timeout: String,
    /// Whom to trust, where the scheme is "https".
    pub(in crate::config) tls: Option<ClientTls>,
    /// Whether they may be on other machines without TLS.
    #[serde(default)]
    pub(in crate::config) plaintext: bool,
}

/// Whom to trust, and what to show.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::config) struct ClientTls {
    pub(in crate::config) ca: FilePath,
    pub(in crate::config) certificate: Option<FilePath>,
    pub(in crate::config) key: Option<FilePath>,
}

/// Where the server of all workers is, or of each in turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "must be a URL in quotes, or a list of URLs")]
pub(in crate::config) enum Urls {
    One(String),
    Each(Vec<String>),
}

impl Urls {
    pub(in crate::config) fn all(&self) -> &[String] {
        match self {
            Self::One(url) => std::slice::from_ref(url),
            Self::Each(urls) => urls,
        }
    }

    pub(in crate::config) fn count(&self) -> u64 {
        self.all().len() as u64
    }
}

/// Who says which variant answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::config) enum Select {
    Accurate,
    Base,
    /// Tables that are planned while serving.
    Planned,
    /// A file of tables.
    Table(FilePath),
    /// A network that was trained, of the file `weights`.
    Learned,
    /// Whoever is worth most in simulation.
    Auto,
}

fn one_second() -> String {
    "1s".into()
}

fn default_values() -> u64 {
    64
}
