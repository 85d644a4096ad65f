//! Engines stand where a batch meets its model: a worker hands over a batch's inputs and waits for its
//! outputs.
//!
//! Every engine keeps the same contract, [`Runner`], and passes the same conformance cases (`conformance`).

mod batching;
mod buffers;
#[cfg(test)]
mod conformance;
mod equipment;
mod error;
mod external;
mod files;
mod gpu;
mod isolated;
mod kind;
mod layout;
mod memory;
mod oip;
mod ort;
mod placement;
mod remote;
mod signature;
mod simulated;
mod spec;
mod tensor;
mod tract;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use buffers::Buffers;
#[cfg(test)]
pub(crate) use conformance::{Onnx, toy_file, toy_spec};
pub use equipment::Equipment;
pub use error::{EngineError, Side};
pub(crate) use external::locations as weights_elsewhere;
pub(crate) use files::read_within;
pub use files::{Files, read_verified, sha256_hex};
pub use gpu::settle_cuda;
pub(crate) use isolated::outputs_of_zeros;
pub use isolated::{PATIENCE, Place, Task, engine_worker, isolate, isolate_one, longest_silence};
pub use kind::{EngineKind, Isolation, RunMode};
pub use oip::answers_end;
pub use ort::forbid_telemetry;
pub use remote::{Address, Host, Location, Protocol, Remote};
pub(crate) use signature::{
    decode_file as decode, dynamic as dynamic_dimension, inputs as graph_inputs, tensor_type, type_name,
};
pub use simulated::SimulatedTime;
pub use spec::{Constant, ExternalFile, ModelSpec};
pub(crate) use tensor::fill_tensor;
pub use tensor::{BatchAxis, DataType, TensorSpec, packed_len};

use batching::given_modes;
use oip::OipRunner;
use ort::OrtRunner;
use simulated::SimulatedRunner;
use tract::TractRunner;

/// The version of tract that is built in. A test holds it to `Cargo.lock`.
const TRACT_VERSION: &str = "0.23.9";

/// The largest `max_batch` that an engine accepts.
pub const MAX_BATCH: usize = 256;

/// One model, loaded and ready to run on one worker thread.
///
/// Everything slow (reading, compiling) has happened in [`load`]; `run` only computes. After an error, and
/// after a panic caught by the caller, the runner remains usable.
pub trait Runner: Send {
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

    /// Why nothing more will come of it, so that the model must be loaded anew; asked of one that is idle. It may take as long as a
    /// remote server has to answer.
    fn lost(&mut self) -> Option<String> {
        None
    }

    /// The remote server that computes, if one does: all that its times depend on, as far as that tells.
    fn endpoint(&self) -> Option<&str> {
        None
    }

    /// The process whose main thread runs the batches, if it is not the caller's thread that does.
    fn process(&self) -> Option<u32> {
        None
    }
}

/// An engine with what it is told beforehand.
#[derive(Debug, Clone, Copy)]
pub enum Engine<'a> {
    /// Computes. `modes[b - 1]` says how batches of `b` were run when their times were profiled, so that they
    /// are run the same way now; `None` measures both ways while loading and keeps the faster.
    Real { backend: &'a Backend, modes: Option<&'a [RunMode]> },
    /// Computes nothing: a batch of `b` takes `times[b - 1]`.
    Simulated { times: &'a [SimulatedTime] },
}

/// What computes, and where: plain data, so that another process can be told the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// Not `Simulated`.
    pub kind: EngineKind,
    /// The number of the device, where the engine has several; 0 otherwise.
    pub device: u32,
    /// The library of ONNX Runtime; looked for if absent.
    pub library: Option<PathBuf>,
    /// Bytes that a model's file may have.
    pub max_model: u64,
    /// The servers that compute, where it is they who do.
    pub remote: Option<Remote>,
}

impl Backend {
    /// Bytes that a model's file may have if nothing else is configured.
    pub const MAX_MODEL: u64 = 1 << 30;

    /// tract, with defaults.
    pub const TRACT: Self =
        Self { kind: EngineKind::Tract, device: 0, library: None, max_model: Self::MAX_MODEL, remote: None };

    /// How many servers compute, or one for what computes here.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.remote.as_ref().map_or(1, |remote| remote.addresses.len())
    }

    /// The same for that worker, whose remote server may be another one.
    #[must_use]
    pub fn of_worker(&self, worker: usize) -> Self {
        match &self.remote {
            Some(remote) => Self { device: (worker % remote.addresses.len().max(1)) as u32, ..self.clone() },
            None => self.clone(),
        }
    }
}

/// Loads `spec` with the given engine for batches of 1..=`max_batch`; compiles all it will need to run them.
///
/// # Errors
/// A `max_batch` outside 1..=[`MAX_BATCH`]; fewer modes or times than `max_batch`; with a real engine, a file
/// that is missing, too large, has another hash, is no ONNX model, or differs from `spec` in names, types,
/// shapes or batch dimension; and a library, provider or device that is not there.
pub fn load(engine: Engine<'_>, spec: &ModelSpec, max_batch: usize) -> Result<Box<dyn Runner>, EngineError> {
    load_from(&mut Files::default(), engine, spec, max_batch)
}

/// The same, for one of several workers: the file is read only if it is not among `files` yet.
///
/// # Errors
/// Those of [`load`].
pub fn load_from(
    files: &mut Files,
    engine: Engine<'_>,
    spec: &ModelSpec,
    max_batch: usize,
) -> Result<Box<dyn Runner>, EngineError> {
    check_max_batch(spec, max_batch)?;
    load_into(files, engine, spec, Buffers::new(spec, max_batch))
}

/// The same for batches that lie in the given buffers, which are those of `spec`.
fn load_into(
    files: &mut Files,
    engine: Engine<'_>,
    spec: &ModelSpec,
    buffers: Buffers,
) -> Result<Box<dyn Runner>, EngineError> {
    let (backend, modes) = match engine {
        Engine::Simulated { times } => return Ok(Box::new(SimulatedRunner::new(buffers, times)?)),
        Engine::Real { backend, modes } => (backend, modes),
    };
    check_built(backend)?;
    let modes = modes.map(|modes| given_modes(spec, buffers.max_batch(), modes)).transpose()?;
    Ok(match backend.kind {
        EngineKind::Oip => Box::new(OipRunner::load((backend, spec), buffers, modes)?),
        kind if kind.is_onnxruntime() => Box::new(OrtRunner::load((backend, spec), files, buffers, modes)?),
        _ => Box::new(TractRunner::load((backend, spec), files, buffers, modes)?),
    })
}

fn check_built(backend: &Backend) -> Result<(), EngineError> {
    let engine = backend.kind;
    engine.how_to_build().map_or(Ok(()), |remedy| Err(EngineError::NotBuilt { engine, remedy }))
}

fn check_max_batch(spec: &ModelSpec, max_batch: usize) -> Result<(), EngineError> {
    if (1..=MAX_BATCH).contains(&max_batch) {
        return Ok(());
    }
    Err(EngineError::MaxBatch { model: spec.name.clone(), max_batch })
}

/// Loads what an engine needs beside its models, or reaches the servers that compute, so that [`Equipment::current`] tells it. The
/// driver of a GPU is left to the process that computes.
///
/// # Errors
/// A library that is not there, too old or another than the one in use; a server that is not reached or does not have the model.
pub fn prepare(backend: &Backend) -> Result<(), EngineError> {
    match backend.kind {
        EngineKind::Oip => oip::prepare(backend),
        kind if kind.is_onnxruntime() => ort::prepare(backend),
        _ => Ok(()),
    }
}

/// The same, but that servers may be out of reach: these, with the reason.
///
/// # Errors
/// A library that is not there, too old or another than the one in use.
pub fn prepare_each(backend: &Backend) -> Result<Vec<EngineError>, EngineError> {
    match backend.kind {
        EngineKind::Oip => oip::prepare_each(backend),
        _ => prepare(backend).map(|()| Vec::new()),
    }
}

/// What the server of `backend` is to which its first worker sends `spec`, as [`Equipment::has`] knows it; nothing is run there.
///
/// # Errors
/// If it is not reached, is not ready, or does not have the model as the manifest describes it.
pub fn meet(backend: &Backend, spec: &ModelSpec) -> Result<String, EngineError> {
    oip::meet(backend, spec)
}

/// The types and shapes of the outputs of `batch` requests of zeros, as the engine finds them; nothing but their names is
/// held against the manifest.
fn run_on_zeros(
    backend: &Backend,
    spec: &ModelSpec,
    files: &mut Files,
    batch: usize,
) -> Result<Vec<(String, Vec<usize>)>, EngineError> {
    check_built(backend)?;
    match backend.kind.is_onnxruntime() {
        true => OrtRunner::run_on_zeros((backend, spec), files, batch),
        false => TractRunner::run_on_zeros((backend, spec), files, batch),
    }
}

/// Whether a model can be run in batches, and is not fixed to one request at a time, by its file or its server.
///
/// # Errors
/// As [`load`], as far as the file or the server's description is concerned.
pub fn has_batches(backend: &Backend, spec: &ModelSpec) -> Result<bool, EngineError> {
    if backend.kind == EngineKind::Oip {
        return oip::has_batches(backend, spec);
    }
    let mut files = Files::default();
    let file = files.read(backend, spec)?;
    signature::has_symbolic_batch(spec, &signature::decode(spec, backend.kind, &file.bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tract_version_is_the_one_built_in() {
        let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock");
        let lock = std::fs::read_to_string(lock).unwrap();
        assert!(lock.contains(&format!("name = \"tract-onnx\"\nversion = \"{TRACT_VERSION}\"\n")));
    }
}
