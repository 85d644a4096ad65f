//! What an engine may find wrong with a model, a batch or itself: each error names what differs, and from what.

use std::fmt;
use std::path::PathBuf;

use super::{DataType, EngineKind, MAX_BATCH};

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: its SHA-256 is {found}, the manifest says {expected}", path.display())]
    Hash { path: PathBuf, expected: String, found: String },
    #[error("{}: has {bytes} bytes, daemon.max-model allows {limit}", path.display())]
    TooLarge { path: PathBuf, bytes: u64, limit: u64 },
    #[error("{}: not an ONNX model that {engine} can read: {reason}", path.display())]
    Parse { path: PathBuf, engine: EngineKind, reason: String },
    #[error("model {model}: its {side}s are {found} in the file, {declared} in the manifest")]
    Names { model: String, side: Side, declared: String, found: String },
    #[error("model {model}: {side} `{name}` is of type {found} in the file, {declared} in the manifest")]
    DataType { model: String, side: Side, name: String, declared: DataType, found: String },
    #[error("model {model}: {side} `{name}` has shape {found} in the file, {declared}")]
    Shape { model: String, side: Side, name: String, declared: String, found: String },
    #[error(
        "model {model}: its weights lie in {found} beside the file, in {declared} by the manifest: see `external`"
    )]
    External { model: String, found: String, declared: String },
    #[error(
        "model {model}: the batch dimension is {found} in the file, a symbol (such as `N`) or 1 is needed"
    )]
    FixedBatch { model: String, found: String },
    #[error("model {model}: max_batch is {max_batch}, the limits are 1..={MAX_BATCH}")]
    MaxBatch { model: String, max_batch: usize },
    #[error(
        "model {model}: {found} {what} are given for max_batch {max_batch}, one per batch size is needed"
    )]
    Given { model: String, what: &'static str, found: usize, max_batch: usize },
    #[error("model {model}: compiling for batch {batch} failed: {reason}")]
    Compile { model: String, batch: usize, reason: String },
    #[error("model {model}: a batch of {batch} was to be run, the limits are 1..={max_batch}")]
    Batch { model: String, batch: usize, max_batch: usize },
    #[error("model {model}: running a batch of {batch} failed: {reason}")]
    Run { model: String, batch: usize, reason: String },
    #[error("the worker process cannot be started: {0}")]
    Start(#[source] std::io::Error),
    /// The text of an error of this type, which arose in the worker process.
    #[error("{0}")]
    Told(String),
    /// Nothing more will come of this runner: the model must be loaded anew.
    #[error("{what} is lost: {reason}")]
    Lost { what: String, reason: String },
    #[error("{url}: {reason}")]
    Remote { url: String, reason: String },
    #[error(
        "model {model}: its server is {found} now, and was {planned} when this was planned: run `weir profile`"
    )]
    Changed { model: String, planned: String, found: String },
    #[error("model {model}: the manifest names no file of it, so that engine oip alone can serve it")]
    NoFile { model: String },
    #[error("engine {engine}: no ONNX Runtime 1.{least} or later was found: {tried}; {remedy}")]
    Library { engine: EngineKind, least: u32, tried: String, remedy: &'static str },
    #[error("engine {engine}: {wanted} is wanted, but {} is loaded: one process has one", loaded.display())]
    OtherLibrary { engine: EngineKind, wanted: String, loaded: PathBuf },
    #[error("engine {engine}: {} cannot run on device {device}: {reason}; {remedy}", library.display())]
    Provider { engine: EngineKind, library: PathBuf, device: u32, reason: String, remedy: String },
    #[error("engine {engine}: this weir was built without it: {remedy}")]
    NotBuilt { engine: EngineKind, remedy: &'static str },
    #[cfg(feature = "tract-cuda")]
    #[error("engine {engine}: cannot run on device {device}: {reason}; {remedy}")]
    Device { engine: EngineKind, device: u32, reason: String, remedy: String },
    #[error("model {model}: engine {engine} would run none of its {nodes} nodes, {elsewhere} would")]
    Elsewhere { model: String, engine: EngineKind, nodes: usize, elsewhere: String },
}

impl EngineError {
    /// A worker process is lost.
    pub fn process_lost(reason: impl Into<String>) -> Self {
        Self::Lost { what: "the worker process".to_owned(), reason: reason.into() }
    }
}

/// Which end of a model an error speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What a request brings.
    Input,
    /// What its reply takes along.
    Output,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}
