//! The tract engines compute a batch on a worker's own core, in pure Rust, or on a GPU: one compiled plan per batch size.
//!
//! Plans with a symbolic batch dimension are several times slower than plans for a known one, so each batch
//! size gets its own, all compiled while loading. Dense layers gain from batching, convolutions little or
//! nothing (their large temporaries may even lose by page faults, where malloc returns memory between runs),
//! so each size is measured both ways and run the faster way. Up to 16 every size has its plan; above that
//! only the powers of two and the largest have one, and a size between borrows the next larger plan, padded
//! with zeros.

#[cfg(feature = "tract-cuda")]
mod cuda;
mod source;

use std::ops::Range;
use std::sync::Arc;

use tract_onnx::prelude::*;
use tract_onnx::tract_core::runtime::DefaultRuntime;

use super::batching::{BothWays, choose_modes, is_used, loop_modes, timed_sizes};
use super::layout::Layout;
use super::{Backend, Buffers, EngineError, EngineKind, Files, ModelSpec, RunMode, Side};
use source::Source;
use weir_os::panics;

/// A model compiled for all batch sizes up to its largest.
#[derive(Debug)]
pub(super) struct TractRunner {
    kind: EngineKind,
    buffers: Buffers,
    /// By rising batch size; the first is for batch 1 and always there.
    plans: Vec<Plan>,
    /// `modes[b - 1]`: how a batch of `b` is run. Where it is `Batched`, a plan for at least `b` exists.
    modes: Vec<RunMode>,
}

impl TractRunner {
    /// Reads, checks and compiles the model for batches in `buffers`; see [`super::load`] for the errors and
    /// [`super::Engine`] for `modes`.
    pub(super) fn load(
        (backend, spec): (&Backend, &ModelSpec),
        files: &mut Files,
        buffers: Buffers,
        modes: Option<&[RunMode]>,
    ) -> Result<Self, EngineError> {
        let max_batch = buffers.max_batch();
        let file = files.read(backend, spec)?;
        let runtime = runtime(backend)?;
        let mut source = Source::parse(backend.kind, spec, file)?;
        let sizes = timed_sizes(max_batch);
        let mut plans = vec![source.compile(runtime, 1)?];
        plans[0].check(backend, spec)?;
        if source.batched {
            let wanted = |b: usize| modes.is_none_or(|modes| is_used(modes, b, &sizes));
            for &b in sizes[1..].iter().filter(|b| wanted(**b)) {
                plans.push(source.compile(runtime, b)?);
            }
        }
        let mut runner = Self { kind: backend.kind, buffers, plans, modes: loop_modes(max_batch) };
        // Some operators are refused only when they run: what no request of zeros gets through is of no use.
        runner.run_as(RunMode::Loop, 1)?;
        runner.modes = choose_modes(&mut runner, spec, source.batched, modes)?;
        let modes = &runner.modes;
        runner.plans.retain(|plan| plan.batch == 1 || is_used(modes, plan.batch, &sizes));
        Ok(runner)
    }
}

impl TractRunner {
    /// See [`super::run_on_zeros`].
    pub(super) fn run_on_zeros(
        (backend, spec): (&Backend, &ModelSpec),
        files: &mut Files,
        batch: usize,
    ) -> Result<Vec<(String, Vec<usize>)>, EngineError> {
        let file = files.read(backend, spec)?;
        Source::run_on_zeros((backend.kind, spec), file, runtime(backend)?, batch)
    }
}

impl BothWays for TractRunner {
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
        let plan = match mode {
            RunMode::Batched => self.plans.partition_point(|plan| plan.batch < batch),
            RunMode::Loop | RunMode::Simulated => 0,
        };
        self.plans[plan].run(&mut self.buffers, batch)
    }
}

/// A compiled plan for one batch size, with its persistent state and input tensors.
#[derive(Debug)]
struct Plan {
    batch: usize,
    runnable: Box<dyn Runnable>,
    state: Box<dyn State>,
    /// It keeps something of a run, which belongs to the requests of that run: each gets a new state.
    remembers: bool,
    inputs: Vec<Arc<Tensor>>,
    /// How requests lie in the inputs and outputs.
    layouts: [Vec<Layout>; 2],
    /// Requests one after the other, where they do not lie so in a tensor.
    scratch: Vec<u8>,
    /// A run has begun and not ended well: the next one needs a new state.
    broken: bool,
}

impl Plan {
    /// Checks that what was compiled runs where it was asked to; see [`super::placement`].
    #[cfg_attr(not(feature = "tract-cuda"), allow(clippy::unused_self, unused_variables))]
    fn check(&self, backend: &Backend, spec: &ModelSpec) -> Result<(), EngineError> {
        match backend.kind {
            #[cfg(feature = "tract-cuda")]
            EngineKind::TractCuda => {
                self.runnable.typed_model().map_or(Ok(()), |model| cuda::check(backend, spec, model))
            }
            _ => Ok(()),
        }
    }

    /// Runs the first `requests` of the buffers in as many runs as they are batches of this plan's size; the
    /// last may be short and is padded with zeros. What a request asks for and the model does not have, such as a row
    /// beyond its last, tract tells by a panic: it costs this batch, and the worker goes on.
    fn run(&mut self, buffers: &mut Buffers, requests: usize) -> Result<(), EngineError> {
        for first in (0..requests).step_by(self.batch) {
            let part = first..requests.min(first + self.batch);
            guarded(|| self.run_once(buffers, part)).map_err(|reason| EngineError::Run {
                model: buffers.model().to_owned(),
                batch: self.batch,
                reason,
            })?;
        }
        Ok(())
    }

    fn run_once(&mut self, buffers: &mut Buffers, requests: Range<usize>) -> TractResult<()> {
        if std::mem::replace(&mut self.broken, true) || self.remembers {
            self.state = self.runnable.spawn()?;
        }
        let mut inputs = tvec!();
        for (number, tensor) in self.inputs.iter_mut().enumerate() {
            let given = requests.len() * buffers.each(Side::Input, number);
            // Copies nothing: between runs this is the only owner.
            let mut memory = Arc::make_mut(tensor).try_as_plain_ram_mut()?;
            let layout = self.layouts[0][number];
            if layout.is_plain(self.batch) {
                let (filled, padding) = memory.as_bytes_mut().split_at_mut(given);
                buffers.read(Side::Input, number, requests.start, filled);
                padding.fill(0);
            } else {
                self.scratch.resize(given, 0);
                buffers.read(Side::Input, number, requests.start, &mut self.scratch);
                layout.spread(self.batch, &self.scratch, memory.as_bytes_mut());
            }
            inputs.push(tensor.clone().into_tvalue());
        }
        let results = self.state.run(inputs)?;
        for (number, result) in results.iter().enumerate() {
            let wanted = requests.len() * buffers.each(Side::Output, number);
            let result = result.try_as_plain_ram()?;
            let layout = self.layouts[1][number];
            if layout.is_plain(self.batch) {
                buffers.write(Side::Output, number, requests.start, &result.as_bytes()[..wanted]);
            } else {
                self.scratch.resize(wanted, 0);
                layout.gather(self.batch, result.as_bytes(), &mut self.scratch);
                buffers.write(Side::Output, number, requests.start, &self.scratch);
            }
        }
        self.broken = false;
        Ok(())
    }
}

/// Runs a step of tract's that may refuse a malformed graph, or what a request holds, by an error or by a panic.
fn guarded<T>(step: impl FnOnce() -> TractResult<T>) -> Result<T, String> {
    match panics::caught(step) {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(panic) => Err(format!("tract panicked: {panic}")),
    }
}

/// What compiles and runs plans for `backend`.
fn runtime(backend: &Backend) -> Result<&'static dyn Runtime, EngineError> {
    match backend.kind {
        #[cfg(feature = "tract-cuda")]
        EngineKind::TractCuda => cuda::runtime(backend),
        _ => Ok(&DefaultRuntime),
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::{relu, run_f32, toy_file};
    use super::*;

    fn loaded(
        spec: &ModelSpec,
        buffers: Buffers,
        modes: Option<&[RunMode]>,
    ) -> Result<TractRunner, EngineError> {
        TractRunner::load((&Backend::TRACT, spec), &mut Files::default(), buffers, modes)
    }

    #[test]
    fn only_plans_that_are_run_are_compiled() {
        use RunMode::{Batched, Loop};
        let mut modes = [Loop; 40];
        (modes[0], modes[3], modes[20]) = (Batched, Batched, Batched);
        let dir = tempfile::tempdir().unwrap();
        let spec = toy_file(&dir, &relu(1, &["N", "2"]));
        let mut runner = loaded(&spec, Buffers::new(&spec, 40), Some(&modes)).unwrap();
        let sizes: Vec<usize> = runner.plans.iter().map(|plan| plan.batch).collect();
        assert_eq!(sizes, [1, 4, 32]);
        let input: Vec<f32> = (0..42).map(|i| i as f32 / 42.0).collect();
        assert_eq!(run_f32(&mut runner, 21, &input).unwrap(), input);
    }

    #[test]
    fn a_runner_works_again_after_a_run_that_broke_off() {
        let dir = tempfile::tempdir().unwrap();
        let spec = toy_file(&dir, &relu(1, &["N", "2"]));
        let mut runner = loaded(&spec, Buffers::new(&spec, 1), None).unwrap();
        for _ in 0..2 {
            runner.plans[0].broken = true;
            assert_eq!(run_f32(&mut runner, 1, &[0.5, -0.5]).unwrap(), [0.5, 0.0]);
            assert!(!runner.plans[0].broken);
        }
    }

    #[test]
    fn a_panic_of_tract_becomes_an_error() {
        assert_eq!(guarded::<()>(|| panic!("malformed")), Err("tract panicked: malformed".to_owned()));
        assert_eq!(guarded::<()>(|| panic!("{}", 7)), Err("tract panicked: 7".to_owned()));
    }
}
