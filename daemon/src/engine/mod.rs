//! Engines stand where a batch meets its model: a worker hands over a batch's inputs and waits for its
//! outputs.
//!
//! Every engine keeps the same contract, [`Runner`], and passes the same conformance cases (`conformance`).

#[cfg(test)]
mod conformance;
mod simulated;
mod tract;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

#[cfg(test)]
pub(crate) use conformance::toy_spec;
use simulated::SimulatedRunner;
use tract::TractRunner;

/// The version of tract that is built in; it is part of a profile's fingerprint. A test holds it to
/// `Cargo.lock`.
pub(crate) const TRACT_VERSION: &str = "0.23.9";

/// The largest `max_batch` that an engine accepts.
pub(crate) const MAX_BATCH: usize = 256;

/// One model, loaded and ready to run on one worker thread.
///
/// Everything slow (reading, compiling) has happened in [`load`]; `run` only computes. After an error, and
/// after a panic caught by the caller, the runner remains usable.
pub(crate) trait Runner: Send {
    /// Runs `batch` requests: `input` holds batch × input_len `f32`, one request after the other, `output`
    /// likewise.
    ///
    /// # Errors
    /// A `batch` outside 1..=max_batch, slices of another length, and whatever the engine itself reports.
    /// `output` is unspecified then.
    fn run(&mut self, batch: usize, input: &[f32], output: &mut [f32]) -> Result<(), EngineError>;

    /// How a batch of that size (1..=max_batch; others count as the nearest of these) is run.
    fn mode(&self, batch: usize) -> RunMode;
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
    if !(1..=MAX_BATCH).contains(&max_batch) {
        return Err(EngineError::MaxBatch { model: spec.name.clone(), max_batch });
    }
    Ok(match engine {
        Engine::Tract { modes } => Box::new(TractRunner::load(spec, max_batch, modes)?),
        Engine::Simulated { times_ns } => Box::new(SimulatedRunner::new(spec, max_batch, times_ns)?),
    })
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
    /// The only input.
    pub(crate) input: TensorSpec,
    /// The only output.
    pub(crate) output: TensorSpec,
    /// Share of right answers on held-out data, 0..=1.
    pub(crate) accuracy: f64,
    /// Trained parameters.
    pub(crate) parameters: u64,
    /// Multiply-accumulates per request.
    pub(crate) macs: u64,
}

/// An `f32` tensor of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorSpec {
    /// Its name in the ONNX file.
    pub(crate) name: String,
    /// Its dimensions without the batch dimension, each at least 1.
    pub(crate) shape: Vec<usize>,
}

impl TensorSpec {
    /// The number of `f32` in the tensor of one request.
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
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
    #[error("model {model}: {found} {side}s found in the file, exactly 1 is supported")]
    Arity { model: String, side: Side, found: usize },
    #[error("model {model}: its {side} is named `{found}` in the file, `{declared}` in the manifest")]
    Name { model: String, side: Side, declared: String, found: String },
    #[error("model {model}: {side} `{name}` is of type {found}, only f32 is supported")]
    DataType { model: String, side: Side, name: String, found: String },
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
    #[error("model {model}: {side} of {found} f32 for a batch of {batch}, exactly {expected} are needed")]
    Length { model: String, side: Side, batch: usize, expected: usize, found: usize },
    #[error("model {model}: running a batch of {batch} failed: {reason}")]
    Run { model: String, batch: usize, reason: String },
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

/// Fills `values` with numbers in 0.0..1.0 that look random and depend only on `seed` and their place.
pub(crate) fn fill_input(seed: u64, values: &mut [f32]) {
    let mut state = seed;
    for value in values {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        *value = (mixed >> 40) as f32 / (1u64 << 24) as f32;
    }
}

/// What every runner asks of the arguments of `run`, and the lengths it needs for that.
#[derive(Debug)]
struct Limits {
    model: String,
    max_batch: usize,
    input_len: usize,
    output_len: usize,
}

impl Limits {
    fn new(spec: &ModelSpec, max_batch: usize) -> Self {
        let (input_len, output_len) = (spec.input.elements(), spec.output.elements());
        Self { model: spec.name.clone(), max_batch, input_len, output_len }
    }

    fn check(&self, batch: usize, input: &[f32], output: &[f32]) -> Result<(), EngineError> {
        let model = || self.model.clone();
        if !(1..=self.max_batch).contains(&batch) {
            return Err(EngineError::Batch { model: model(), batch, max_batch: self.max_batch });
        }
        let length = |side, len: usize, found: usize| {
            let expected = batch * len;
            if found == expected {
                return Ok(());
            }
            Err(EngineError::Length { model: model(), side, batch, expected, found })
        };
        length(Side::Input, self.input_len, input.len())?;
        length(Side::Output, self.output_len, output.len())
    }
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

    #[test]
    fn inputs_repeat_by_seed_and_stay_in_range() {
        let (mut a, mut b, mut c) = ([0.0; 64], [0.0; 64], [0.0; 64]);
        fill_input(7, &mut a);
        fill_input(7, &mut b);
        fill_input(8, &mut c);
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert!(a.iter().all(|x| (0.0..1.0).contains(x)));
    }
}
