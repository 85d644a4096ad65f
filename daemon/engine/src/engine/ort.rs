//! The ort engines compute a batch with ONNX Runtime, on the CPU or a device: a library that is loaded when the
//! first model needs it, one session for each worker and model.
//!
//! A session computes any batch size, on the buffers in place. It has one thread, the worker's own: a second one
//! would run beside the cores that the promise counts.
//!
//! With CUDA a convolution is planned anew whenever it meets another shape than the last time (`Conv::UpdateState` of ONNX Runtime, which
//! has cuDNN search), which takes several times as long as to run it. A model with some gets a session for each power of two instead, which
//! meets no other batch: what is smaller is filled up with zeros.

mod call;
mod library;
mod provider;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use ::ort::session::Session;
use ::ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ::ort::sys::ONNXTensorElementDataType as ElementType;

use super::batching::{BothWays, choose_modes, doubling_sizes, is_used, loop_modes};
use super::files::ModelFile;
use super::signature::{check_output_shape, computed, decode, has_symbolic_batch};
use super::{Backend, Buffers, DataType, EngineError, EngineKind, Files, ModelSpec, RunMode, Side};
use call::Call;
use library::Library;

pub use library::forbid_telemetry;
pub(super) use library::{prepare, version};

/// What sessions are made in.
#[cfg(test)]
pub(super) fn environment() -> Result<&'static ::ort::environment::Environment, EngineError> {
    let backend = Backend { kind: EngineKind::OrtCpu, ..Backend::TRACT };
    library::open(&backend).map(|library| &library.environment)
}

/// A model in a session of ONNX Runtime, or in several.
pub(super) struct OrtRunner {
    kind: EngineKind,
    buffers: Buffers,
    /// By the largest batch that each is for, rising. If there are several, that is the only one it runs, and the first is for 1.
    calls: Vec<(usize, Call)>,
    /// `modes[b - 1]`: how a batch of `b` is run.
    modes: Vec<RunMode>,
}

impl OrtRunner {
    /// Reads, checks and compiles the model for batches in `buffers`; see [`super::load`] for the errors and [`super::Engine`] for
    /// `modes`.
    pub(super) fn load(
        (backend, spec): (&Backend, &ModelSpec),
        files: &mut Files,
        buffers: Buffers,
        modes: Option<&[RunMode]>,
    ) -> Result<Self, EngineError> {
        let max_batch = buffers.max_batch();
        let library = library::open(backend)?;
        let file = files.read(backend, spec)?;
        let proto = decode(spec, backend.kind, &file.bytes)?;
        let batched = has_symbolic_batch(spec, &proto)?;
        let computed = proto.graph.as_ref().map(computed).unwrap_or_default();
        let largest = if batched { max_batch } else { 1 };
        let first = session(library, backend, spec, file, largest)?;
        let several = provider::check(backend, spec, &first)?;
        let sizes = if several && batched { doubling_sizes(max_batch) } else { vec![max_batch] };
        let mut calls = vec![(sizes[0], Call::new(first, spec, &computed)?)];
        for &size in sizes[1..].iter().filter(|&&size| modes.is_none_or(|modes| is_used(modes, size, &sizes)))
        {
            let session = session(library, backend, spec, file, size)?;
            calls.push((size, Call::new(session, spec, &computed)?));
        }
        let mut runner = Self { kind: backend.kind, buffers, calls, modes: loop_modes(max_batch) };
        runner.check_outputs(spec, 1)?;
        if batched && modes.is_none() {
            runner.check_outputs(spec, max_batch)?;
        }
        runner.modes = choose_modes(&mut runner, spec, batched, modes)?;
        let modes = &runner.modes;
        runner.calls.retain(|(size, _)| *size == sizes[0] || is_used(modes, *size, &sizes));
        Ok(runner)
    }

    /// See [`super::run_on_zeros`].
    pub(super) fn run_on_zeros(
        (backend, spec): (&Backend, &ModelSpec),
        files: &mut Files,
        batch: usize,
    ) -> Result<Vec<(String, Vec<usize>)>, EngineError> {
        let library = library::open(backend)?;
        let session = session(library, backend, spec, files.read(backend, spec)?, batch)?;
        let mut call = Call::new(session, spec, &BTreeSet::new())?;
        let found = call.output_types(&mut Buffers::new(spec, batch), batch).map_err(|error| {
            EngineError::Compile { model: spec.name.clone(), batch, reason: error.to_string() }
        })?;
        Ok(found.into_iter().map(|(found, shape)| (type_name(found), shape)).collect())
    }

    /// Runs a batch on zeros to see that its outputs have the types and shapes of the manifest.
    fn check_outputs(&mut self, spec: &ModelSpec, batch: usize) -> Result<(), EngineError> {
        let (call, requests) = of_size(&mut self.calls, 0..batch);
        let found = call.output_types(&mut self.buffers, requests.len()).map_err(|error| {
            EngineError::Compile { model: spec.name.clone(), batch, reason: error.to_string() }
        })?;
        let batch = requests.len();
        for (tensor, (data_type, shape)) in spec.outputs.iter().zip(found) {
            if data_type != call::element_type(tensor.data_type) {
                let (model, side) = (spec.name.clone(), Side::Output);
                let (name, declared) = (tensor.name.clone(), tensor.data_type);
                let found = type_name(data_type);
                return Err(EngineError::DataType { model, side, name, declared, found });
            }
            check_output_shape(spec, tensor, batch, Some(&shape))?;
        }
        Ok(())
    }
}

impl BothWays for OrtRunner {
    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    fn kind(&self) -> EngineKind {
        self.kind
    }

    fn modes(&self) -> &[RunMode] {
        &self.modes
    }

    fn run_as(&mut self, mode: RunMode, batch: usize) -> Result<(), EngineError> {
        let step = match mode {
            RunMode::Batched => batch,
            RunMode::Loop | RunMode::Simulated => 1,
        };
        for first in (0..batch).step_by(step) {
            let asked = first..first + step;
            let (call, requests) = of_size(&mut self.calls, asked.clone());
            self.buffers.clear(asked.end..requests.end);
            if let Err(error) = call.run(&mut self.buffers, requests) {
                let model = self.buffers.model().to_owned();
                return Err(EngineError::Run { model, batch: step, reason: error.to_string() });
            }
        }
        Ok(())
    }
}

/// What runs these requests of a batch, and which it then runs: beyond them those that it is filled up with.
fn of_size(calls: &mut [(usize, Call)], asked: Range<usize>) -> (&mut Call, Range<usize>) {
    let (several, place) = (calls.len() > 1, calls.partition_point(|(size, _)| *size < asked.len()));
    let (size, call) = &mut calls[place];
    let end = if several { asked.start + *size } else { asked.end };
    (call, asked.start..end)
}

fn type_name(found: ElementType) -> String {
    let known = DataType::ALL.into_iter().find(|known| call::element_type(*known) == found);
    known.map_or_else(|| format!("{found:?}"), |known| known.to_string())
}

/// Compiles the model for batches of up to `largest`.
fn session(
    library: &Library,
    backend: &Backend,
    spec: &ModelSpec,
    file: &ModelFile,
    largest: usize,
) -> Result<Session, EngineError> {
    let build = || -> ::ort::Result<SessionBuilder> {
        Ok(Session::builder(&library.environment)?
            .with_optimization_level(GraphOptimizationLevel::All)?
            .with_intra_threads(1)?
            .with_inter_threads(1)?
            .with_parallel_execution(false)?
            .with_intra_op_spinning(false)?
            .with_inter_op_spinning(false)?
            .with_config_entry("session.record_ep_graph_assignment_info", "1")?)
    };
    let builder = build()
        .and_then(|builder| Ok(builder.with_execution_providers(provider::wanted(backend, spec, largest))?));
    let mut builder = builder.map_err(|error| provider::missing(backend, library, &error.to_string()))?;
    let failed =
        |reason: String| EngineError::Parse { path: spec.path.clone(), engine: backend.kind, reason };
    for (location, bytes) in &file.external {
        let added = builder.with_external_initializer_file_in_memory(location, Arc::clone(bytes));
        builder = added.map_err(|error| failed(error.to_string()))?;
    }
    builder.commit_from_memory(&file.bytes).map_err(|error| failed(error.to_string()))
}
