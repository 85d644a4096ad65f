//! The tract engine computes a batch on a worker's own core: pure Rust, one compiled plan per batch size.
//!
//! Plans with a symbolic batch dimension are several times slower than plans for a known one, so each batch
//! size gets its own, all compiled while loading. Dense layers gain from batching, convolutions little or
//! nothing (their large temporaries may even lose by page faults, where malloc returns memory between runs),
//! so each size is measured both ways and run the faster way. Up to 16 every size has its plan; above that
//! only the powers of two and the largest have one, and a size between borrows the next larger plan, padded
//! with zeros.

mod source;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tract_onnx::prelude::*;

use super::{Buffers, EngineError, ModelSpec, RunMode, Runner, fill_tensor, read_verified};
use source::Source;

/// Up to here every batch size has a plan of its own.
const DENSE_SIZES: usize = 16;
/// How often a batch size is timed each way; the least time counts.
const ROUNDS: usize = 5;
/// Once the timing of a batch size has taken this long, no further round begins.
const ROUNDS_BUDGET_NS: u64 = 500_000_000;

/// A model compiled for all batch sizes up to its largest.
#[derive(Debug)]
pub(super) struct TractRunner {
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
        spec: &ModelSpec,
        buffers: Buffers,
        modes: Option<&[RunMode]>,
    ) -> Result<Self, EngineError> {
        let max_batch = buffers.max_batch();
        let modes = modes.map(|modes| given_modes(spec, max_batch, modes)).transpose()?;
        let bytes = read_verified(&spec.path, &spec.sha256)?;
        let source = Source::parse(spec, &bytes)?;
        let mut plans = vec![source.compile(1)?];
        if source.batch.is_some() {
            let wanted = |b: usize| modes.as_ref().is_none_or(|modes| uses_plan(modes, b, max_batch));
            for b in plan_sizes(max_batch).into_iter().skip(1).filter(|b| wanted(*b)) {
                plans.push(source.compile(b)?);
            }
        }
        let mut runner = Self { buffers, plans, modes: vec![RunMode::Loop; max_batch] };
        runner.modes[0] = RunMode::Batched;
        match modes {
            Some(modes) if source.batch.is_some() => runner.modes[1..].copy_from_slice(&modes[1..]),
            Some(_) => {}
            None => {
                for (tensor, input) in spec.inputs.iter().enumerate() {
                    fill_tensor(0, input.data_type, runner.buffers.input_mut(tensor, 0..max_batch));
                }
                runner.choose_modes()?;
            }
        }
        Ok(runner)
    }

    /// Times each plan against a loop over the first, and drops those that do not win by more than 5 %.
    fn choose_modes(&mut self) -> Result<(), EngineError> {
        let Some((single, larger)) = self.plans.split_first_mut() else { return Ok(()) };
        let mut kept = vec![1];
        let mut sizes_from = 1;
        for plan in larger {
            let size = plan.batch;
            let (batched_ns, loop_ns) = race(&mut self.buffers, single, plan)?;
            if batched_ns.saturating_mul(105) < loop_ns.saturating_mul(100) {
                self.modes[sizes_from..size].fill(RunMode::Batched);
                kept.push(size);
            }
            sizes_from = size;
        }
        self.plans.retain(|plan| kept.contains(&plan.batch));
        Ok(())
    }
}

impl Runner for TractRunner {
    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    fn run(&mut self, batch: usize) -> Result<(), EngineError> {
        self.buffers.check(batch)?;
        let first = match self.modes[batch - 1] {
            RunMode::Batched => self.plans.partition_point(|plan| plan.batch < batch),
            RunMode::Loop | RunMode::Simulated => 0,
        };
        self.plans[first].run(&mut self.buffers, batch)
    }

    fn mode(&self, batch: usize) -> RunMode {
        self.modes[batch.clamp(1, self.modes.len()) - 1]
    }
}

/// A compiled plan for one batch size, with its persistent state and input tensors.
#[derive(Debug)]
struct Plan {
    batch: usize,
    state: TypedSimpleState,
    inputs: Vec<Arc<Tensor>>,
    /// A run has begun and not ended well: the next one needs a new state.
    broken: bool,
}

impl Plan {
    /// Runs the first `requests` of the buffers in as many runs as they are batches of this plan's size; the
    /// last may be short and is padded with zeros.
    fn run(&mut self, buffers: &mut Buffers, requests: usize) -> Result<(), EngineError> {
        for first in (0..requests).step_by(self.batch) {
            let part = first..requests.min(first + self.batch);
            self.run_once(buffers, part).map_err(|error| EngineError::Run {
                model: buffers.model().to_owned(),
                batch: self.batch,
                reason: format!("{error:#}"),
            })?;
        }
        Ok(())
    }

    fn run_once(&mut self, buffers: &mut Buffers, requests: Range<usize>) -> TractResult<()> {
        if std::mem::replace(&mut self.broken, true) {
            self.state = self.state.plan().spawn()?;
        }
        let mut inputs = tvec!();
        for (number, tensor) in self.inputs.iter_mut().enumerate() {
            let given = buffers.input(number, requests.clone());
            // Copies nothing: between runs this is the only owner.
            let mut memory = Arc::make_mut(tensor).try_as_plain_ram_mut()?;
            let (filled, padding) = memory.as_bytes_mut().split_at_mut(given.len());
            filled.copy_from_slice(given);
            padding.fill(0);
            inputs.push(tensor.clone().into_tvalue());
        }
        let results = self.state.run(inputs)?;
        for (number, result) in results.iter().enumerate() {
            let output = buffers.output_mut(number, requests.clone());
            output.copy_from_slice(&result.try_as_plain_ram()?.as_bytes()[..output.len()]);
        }
        self.broken = false;
        Ok(())
    }
}

/// Runs a step of tract's that may refuse a malformed graph by an error or by a panic.
fn guarded<T>(step: impl FnOnce() -> TractResult<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(step)) {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(_) => Err("tract panicked".to_owned()),
    }
}

/// The batch sizes that get a plan, rising, from 1 to `max_batch`.
fn plan_sizes(max_batch: usize) -> Vec<usize> {
    (1..=max_batch).filter(|&b| b <= DENSE_SIZES || b.is_power_of_two() || b == max_batch).collect()
}

/// Whether the plan for `size` is run by any batch size, given all modes.
fn uses_plan(modes: &[RunMode], size: usize, max_batch: usize) -> bool {
    let sizes = plan_sizes(max_batch);
    let below = sizes.iter().rev().find(|&&b| b < size).copied().unwrap_or(0);
    modes[below..size].contains(&RunMode::Batched)
}

fn given_modes<'a>(
    spec: &ModelSpec,
    max_batch: usize,
    modes: &'a [RunMode],
) -> Result<&'a [RunMode], EngineError> {
    let usable = modes.iter().take(max_batch).take_while(|mode| **mode != RunMode::Simulated).count();
    if usable < max_batch {
        let model = spec.name.clone();
        return Err(EngineError::Given { model, what: "modes of a real engine", found: usable, max_batch });
    }
    Ok(&modes[..max_batch])
}

/// The least times in nanoseconds of a full batch in one go and one by one, taken turn by turn.
fn race(buffers: &mut Buffers, single: &mut Plan, batched: &mut Plan) -> Result<(u64, u64), EngineError> {
    let size = batched.batch;
    let mut timed = |plan: &mut Plan| {
        let started = crate::clock::now().as_nanos();
        plan.run(buffers, size)?;
        Ok(crate::clock::now().as_nanos() - started)
    };
    let started = crate::clock::now().as_nanos();
    timed(batched)?;
    let (mut batched_ns, mut loop_ns) = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        loop_ns = loop_ns.min(timed(single)?);
        batched_ns = batched_ns.min(timed(batched)?);
        if crate::clock::now().as_nanos() - started > ROUNDS_BUDGET_NS {
            break;
        }
    }
    Ok((batched_ns, loop_ns))
}

#[cfg(test)]
mod tests {
    use super::super::conformance::{relu, run_f32, toy_file};
    use super::*;

    #[test]
    fn small_batch_sizes_have_plans_of_their_own() {
        assert_eq!(plan_sizes(1), [1]);
        assert_eq!(plan_sizes(16), (1..=16).collect::<Vec<_>>());
        assert_eq!(plan_sizes(40)[14..], [15, 16, 32, 40]);
        assert_eq!(plan_sizes(64)[15..], [16, 32, 64]);
    }

    #[test]
    fn only_plans_that_are_run_are_compiled() {
        use RunMode::{Batched, Loop};
        let mut modes = [Loop; 40];
        (modes[0], modes[3], modes[20]) = (Batched, Batched, Batched);
        let dir = tempfile::tempdir().unwrap();
        let spec = toy_file(&dir, &relu(1, &["N", "2"]));
        let mut runner = TractRunner::load(&spec, Buffers::new(&spec, 40), Some(&modes)).unwrap();
        let sizes: Vec<usize> = runner.plans.iter().map(|plan| plan.batch).collect();
        assert_eq!(sizes, [1, 4, 32]);
        let input: Vec<f32> = (0..42).map(|i| i as f32 / 42.0).collect();
        assert_eq!(run_f32(&mut runner, 21, &input).unwrap(), input);
    }

    #[test]
    fn a_runner_works_again_after_a_run_that_broke_off() {
        let dir = tempfile::tempdir().unwrap();
        let spec = toy_file(&dir, &relu(1, &["N", "2"]));
        let mut runner = TractRunner::load(&spec, Buffers::new(&spec, 1), None).unwrap();
        for _ in 0..2 {
            runner.plans[0].broken = true;
            assert_eq!(run_f32(&mut runner, 1, &[0.5, -0.5]).unwrap(), [0.5, 0.0]);
            assert!(!runner.plans[0].broken);
        }
    }

    #[test]
    fn a_panic_of_tract_becomes_an_error() {
        assert_eq!(guarded::<()>(|| panic!("malformed")), Err("tract panicked".to_owned()));
    }
}
