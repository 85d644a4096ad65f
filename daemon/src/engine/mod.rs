//! Engines stand where a batch meets its model: a worker hands over a batch's inputs and waits for its
//! outputs.
//!
//! Every engine keeps the same contract, [`Runner`], and passes the same conformance cases (`conformance`).

#[cfg(test)]
mod conformance;
mod isolated;
mod memory;
mod simulated;
mod tensor;
mod tract;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

#[cfg(test)]
pub(crate) use conformance::{random_f32, toy_spec};
pub(crate) use isolated::{Place, Task, engine_worker, isolate, longest_silence};
use simulated::SimulatedRunner;
pub(crate) use tensor::{Buffers, DataType, TensorSpec, fill_tensor, packed_len};
use tract::TractRunner;

/// The version of tract that is built in; it is part of a profile's fingerprint. A test holds it to
/// `Cargo.lock`.
pub(crate) const TRACT_VERSION: &str = "0.23.9";

/// The largest `max_batch` that an engine accepts.
pub(crate) const MAX_BATCH: usize = 256;

/// One model, loaded and ready to run on one worker thread.
///
/// Everything slow (reading, compiling) has happened in [`load`]; `run` only computes. After an error, and
/// after a panic caught by the caller, the runner remains usable, unless the error is [`EngineError::Lost`].
pub(crate) trait Runner: Send {
    /// Where the inputs of the next batch are put and the outputs of the last one are found.
    fn buffers(&mut self) -> &mut Buffers;

    /// Runs the first `batch` requests of the buffers.
    ///
    /// # Errors
    /// A `batch` outside 1..=max_batch, and whatever the engine itself reports. The outputs are unspecified
    /// then.
    fn run(&mut self, batch: usize) -> Result<(), EngineError>;

    /// How a batch of that size (1..=max_batch; others count as the nearest of these) is run.
    fn mode(&self, batch: usize) -> RunMode;

    /// Whether the engine has gone for good since the last batch, so that it must be loaded anew. Only one in
    /// a process of its own can.
    fn is_lost(&mut self) -> bool {
        false
    }
}

/// Loads `spec` with the given engine for batches of 1..=`max_batch`; compiles all it will need to run them.
///
/// # Errors
/// A `max_batch` outside 1..=[`MAX_BATCH`]; fewer modes or times than `max_batch`; with tract, a file that is
/// missing, has another hash, is no ONNX model, or differs from `spec` in names, types, shapes or batch
/// dimension.
pub(crate) fn load(
    engine: Engine<'_>,
    spec: &ModelSpec,
    max_batch: usize,
) -> Result<Box<dyn Runner>, EngineError> {
    check_max_batch(spec, max_batch)?;
    load_into(engine, spec, Buffers::new(spec, max_batch))
}

/// The same for batches that lie in the given buffers, which are those of `spec`.
fn load_into(engine: Engine<'_>, spec: &ModelSpec, buffers: Buffers) -> Result<Box<dyn Runner>, EngineError> {
    Ok(match engine {
        Engine::Tract { modes } => Box::new(TractRunner::load(spec, buffers, modes)?),
        Engine::Simulated { times_ns } => Box::new(SimulatedRunner::new(buffers, times_ns)?),
    })
}

fn check_max_batch(spec: &ModelSpec, max_batch: usize) -> Result<(), EngineError> {
    if (1..=MAX_BATCH).contains(&max_batch) {
        return Ok(());
    }
    Err(EngineError::MaxBatch { model: spec.name.clone(), max_batch })
}

/// An engine with what it is told beforehand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Engine<'a> {
    /// Computes with tract. `modes[b - 1]` says how batches of `b` were run when their times were profiled,
    /// so that they are run the same way now; `None` measures both ways while loading and keeps the faster.
    Tract { modes: Option<&'a [RunMode]> },
    /// Computes nothing: a batch of `b` takes `times_ns[b - 1]` nanoseconds.
    Simulated { times_ns: &'a [u64] },
}

/// The engines by name, as in the configuration and in profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EngineKind {
    /// The built-in CPU engine.
    Tract,
    /// Waits out given times.
    Simulated,
}

impl EngineKind {
    /// Where it runs unless configured otherwise: foreign code in a process of its own, ours in a thread.
    pub(crate) fn isolation(self) -> Isolation {
        match self {
            Self::Tract | Self::Simulated => Isolation::Thread,
        }
    }
}

/// Where an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Isolation {
    /// On the worker's own thread.
    Thread,
    /// In a process of the worker's own, whose crash costs the batch in flight and no more.
    Process,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tract => "tract",
            Self::Simulated => "simulated",
        })
    }
}

/// How a batch is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunMode {
    /// In one go.
    Batched,
    /// As that many runs of batch 1, because this is faster.
    Loop,
    /// Not at all: its time is waited out.
    Simulated,
}

impl fmt::Display for RunMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batched => "batched",
            Self::Loop => "loop",
            Self::Simulated => "simulated",
        })
    }
}

/// One variant as the manifest describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelSpec {
    /// Unique within its manifest.
    pub(crate) name: String,
    /// The ONNX file.
    pub(crate) path: PathBuf,
    /// SHA-256 of the file, 64 lower-case hexadecimal digits.
    pub(crate) sha256: String,
    /// What a request brings, in the order of its bytes; at least one.
    pub(crate) inputs: Vec<TensorSpec>,
    /// What an answer consists of, likewise.
    pub(crate) outputs: Vec<TensorSpec>,
    /// Share of right answers on held-out data, 0..=1.
    pub(crate) accuracy: f64,
    /// Trained parameters.
    pub(crate) parameters: u64,
    /// Multiply-accumulates per request.
    pub(crate) macs: u64,
}

impl ModelSpec {
    /// The tensors of a side.
    pub(crate) fn tensors(&self, side: Side) -> &[TensorSpec] {
        match side {
            Side::Input => &self.inputs,
            Side::Output => &self.outputs,
        }
    }
}

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: its SHA-256 is {found}, the manifest says {expected}", path.display())]
    Hash { path: PathBuf, expected: String, found: String },
    #[error("{}: not an ONNX model that tract can read: {reason}", path.display())]
    Parse { path: PathBuf, reason: String },
    #[error("model {model}: its {side}s are {found} in the file, {declared} in the manifest")]
    Names { model: String, side: Side, declared: String, found: String },
    #[error("model {model}: {side} `{name}` is of type {found} in the file, {declared} in the manifest")]
    DataType { model: String, side: Side, name: String, declared: DataType, found: String },
    #[error("model {model}: {side} `{name}` has shape {found} in the file, {declared:?} in the manifest")]
    Shape { model: String, side: Side, name: String, declared: Vec<usize>, found: String },
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
    #[error("the worker process is lost: {reason}")]
    Lost { reason: String },
}

/// Which end of a model an error speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
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

/// Reads a file whole and checks that it is the one meant.
///
/// # Errors
/// [`EngineError::Read`] and [`EngineError::Hash`].
pub(crate) fn read_verified(path: &Path, sha256: &str) -> Result<Vec<u8>, EngineError> {
    let bytes = std::fs::read(path).map_err(|source| EngineError::Read { path: path.to_owned(), source })?;
    let found = sha256_hex(&bytes);
    if found != sha256 {
        return Err(EngineError::Hash { path: path.to_owned(), expected: sha256.to_owned(), found });
    }
    Ok(bytes)
}

/// SHA-256 as 64 lower-case hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_files_and_in_messages() {
        for kind in [EngineKind::Tract, EngineKind::Simulated] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        for mode in [RunMode::Batched, RunMode::Loop, RunMode::Simulated] {
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
        }
    }

    #[test]
    fn tract_version_is_the_one_built_in() {
        let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
        let lock = std::fs::read_to_string(lock).unwrap();
        assert!(lock.contains(&format!("name = \"tract-onnx\"\nversion = \"{TRACT_VERSION}\"\n")));
    }

    #[test]
    fn hash_is_the_known_one() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), abc);
    }
}
