//! The tract engine computes a batch on a worker's own core: pure Rust, one compiled plan per batch size.
//!
//! Plans with a symbolic batch dimension are several times slower than plans for a known one, so each batch
//! size gets its own, all compiled while loading. Dense layers gain from batching, convolutions little or
//! nothing (their large temporaries may even lose by page faults, where malloc returns memory between runs),
//! so each size is measured both ways and run the faster way. Up to 16 every size has its plan; above that
//! only the powers of two and the largest have one, and a size between borrows the next larger plan, padded
//! with zeros.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tract_onnx::prelude::*;
use tract_onnx::tract_hir::infer::Factoid;

use super::{EngineError, Limits, ModelSpec, RunMode, Runner, Side, TensorSpec, fill_input, read_verified};

/// Up to here every batch size has a plan of its own.
const DENSE_SIZES: usize = 16;
/// How often a batch size is timed each way; the least time counts.
const ROUNDS: usize = 5;
/// Once the timing of a batch size has taken this long, no further round begins.
const ROUNDS_BUDGET_NS: u64 = 500_000_000;

/// A model compiled for all batch sizes up to its largest.
#[derive(Debug)]
pub(super) struct TractRunner {
    limits: Limits,
    /// By rising batch size; the first is for batch 1 and always there.
    plans: Vec<Plan>,
    /// `modes[b - 1]`: how a batch of `b` is run. Where it is `Batched`, a plan for at least `b` exists.
    modes: Vec<RunMode>,
}

impl TractRunner {
    /// Reads, checks and compiles the model; see [`super::load`] for the errors and [`super::Engine`] for
    /// `modes`.
    pub(super) fn load(
        spec: &ModelSpec,
        max_batch: usize,
        modes: Option<&[RunMode]>,
    ) -> Result<Self, EngineError> {
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
        let mut runner =
            Self { limits: Limits::new(spec, max_batch), plans, modes: vec![RunMode::Loop; max_batch] };
        runner.modes[0] = RunMode::Batched;
        match modes {
            Some(modes) if source.batch.is_some() => runner.modes[1..].copy_from_slice(&modes[1..]),
            Some(_) => {}
            None => runner.choose_modes()?,
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
            let (batched_ns, loop_ns) = race(&self.limits, single, plan)?;
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
    fn run(&mut self, batch: usize, input: &[f32], output: &mut [f32]) -> Result<(), EngineError> {
        self.limits.check(batch, input, output)?;
        let first = match self.modes[batch - 1] {
            RunMode::Batched => self.plans.partition_point(|plan| plan.batch < batch),
            RunMode::Loop | RunMode::Simulated => 0,
        };
        self.plans[first].run(&self.limits, input, output)
    }

    fn mode(&self, batch: usize) -> RunMode {
        self.modes[batch.clamp(1, self.modes.len()) - 1]
    }
}

/// A compiled plan for one batch size, with its persistent state and input tensor.
#[derive(Debug)]
struct Plan {
    batch: usize,
    state: TypedSimpleState,
    input: Arc<Tensor>,
    /// A run has begun and not ended well: the next one needs a new state.
    broken: bool,
}

impl Plan {
    /// Runs as many times as `input` has batches of this plan's size; the last may be short and is padded
    /// with zeros.
    fn run(&mut self, limits: &Limits, input: &[f32], output: &mut [f32]) -> Result<(), EngineError> {
        let inputs = input.chunks(self.batch * limits.input_len);
        for (input, output) in inputs.zip(output.chunks_mut(self.batch * limits.output_len)) {
            self.run_once(input, output).map_err(|error| EngineError::Run {
                model: limits.model.clone(),
                batch: self.batch,
                reason: format!("{error:#}"),
            })?;
        }
        Ok(())
    }

    fn run_once(&mut self, input: &[f32], output: &mut [f32]) -> TractResult<()> {
        if std::mem::replace(&mut self.broken, true) {
            self.state = self.state.plan().spawn()?;
        }
        // Copies nothing: between runs this is the only owner.
        let mut tensor = Arc::make_mut(&mut self.input).try_as_plain_ram_mut()?;
        let (requests, padding) = tensor.as_slice_mut::<f32>()?.split_at_mut(input.len());
        requests.copy_from_slice(input);
        padding.fill(0.0);
        let results = self.state.run(tvec!(self.input.clone().into_tvalue()))?;
        let results = results[0].try_as_plain_ram()?;
        output.copy_from_slice(&results.as_slice::<f32>()?[..output.len()]);
        self.broken = false;
        Ok(())
    }
}

/// A model read and checked, not yet compiled for a batch size.
struct Source<'a> {
    spec: &'a ModelSpec,
    model: TypedModel,
    /// The symbol of the batch dimension; `None` if that is fixed to 1.
    batch: Option<Symbol>,
}

impl<'a> Source<'a> {
    fn parse(spec: &'a ModelSpec, mut bytes: &[u8]) -> Result<Self, EngineError> {
        let failed = |reason| EngineError::Parse { path: spec.path.clone(), reason };
        let model = guarded(|| onnx().model_for_read(&mut bytes)).map_err(failed)?;
        let batch = check_input(spec, &model)?;
        check_output_name(spec, &model)?;
        let model = guarded(|| model.into_typed()?.into_decluttered()).map_err(failed)?;
        Ok(Self { spec, model, batch })
    }

    fn compile(&self, batch: usize) -> Result<Plan, EngineError> {
        let failed = |reason| EngineError::Compile { model: self.spec.name.clone(), batch, reason };
        let symbols: HashMap<_, _> =
            self.batch.iter().map(|symbol| (symbol.clone(), batch.to_dim())).collect();
        let model = guarded(|| self.model.set_symbols(&symbols)?.into_optimized()).map_err(failed)?;
        check_output(self.spec, &model, batch)?;
        guarded(|| {
            let shape: Vec<usize> = [&[batch], &self.spec.input.shape[..]].concat();
            let input = Arc::new(Tensor::zero::<f32>(&shape)?);
            Ok(Plan { batch, state: model.into_runnable()?.spawn()?, input, broken: false })
        })
        .map_err(failed)
    }
}

/// Checks the only input; yields the symbol of its batch dimension, `None` if that is 1.
fn check_input(spec: &ModelSpec, model: &InferenceModel) -> Result<Option<Symbol>, EngineError> {
    let name = || spec.name.clone();
    let outlet = only(spec, Side::Input, &model.inputs)?;
    check_name(spec, Side::Input, &model.node(outlet.node).name)?;
    let fact = &model.node(outlet.node).outputs[outlet.slot].fact;
    if fact.datum_type.concretize() != Some(f32::datum_type()) {
        return Err(type_error(spec, Side::Input, fact.datum_type.concretize()));
    }
    let dims: Vec<_> = fact.shape.dims().map(|dim| dim.concretize()).collect();
    let declared = spec.input.shape.iter().map(|dim| Some(dim.to_dim()));
    if fact.shape.is_open() || dims.is_empty() || !dims[1..].iter().cloned().eq(declared) {
        return Err(shape_error(spec, Side::Input, format!("{:?}", fact.shape)));
    }
    match &dims[0] {
        Some(TDim::Sym(symbol)) => Ok(Some(symbol.clone())),
        Some(dim) if *dim == 1.to_dim() => Ok(None),
        Some(dim) => Err(EngineError::FixedBatch { model: name(), found: dim.to_string() }),
        None => Err(EngineError::FixedBatch { model: name(), found: "unnamed".to_owned() }),
    }
}

fn check_output_name(spec: &ModelSpec, model: &InferenceModel) -> Result<(), EngineError> {
    let outlet = only(spec, Side::Output, &model.outputs)?;
    check_name(spec, Side::Output, model.outlet_label(outlet).unwrap_or_default())
}

fn check_output(spec: &ModelSpec, model: &TypedModel, batch: usize) -> Result<(), EngineError> {
    let outlet = only(spec, Side::Output, &model.outputs)?;
    let fact = &model.node(outlet.node).outputs[outlet.slot].fact;
    if fact.datum_type != f32::datum_type() {
        return Err(type_error(spec, Side::Output, Some(fact.datum_type)));
    }
    let declared = [&[batch], &spec.output.shape[..]].concat();
    if fact.shape.as_concrete() != Some(&declared[..]) {
        return Err(shape_error(spec, Side::Output, format!("{:?} at batch {batch}", fact.shape)));
    }
    Ok(())
}

fn only(spec: &ModelSpec, side: Side, outlets: &[OutletId]) -> Result<OutletId, EngineError> {
    match outlets {
        [outlet] => Ok(*outlet),
        _ => Err(EngineError::Arity { model: spec.name.clone(), side, found: outlets.len() }),
    }
}

fn check_name(spec: &ModelSpec, side: Side, found: &str) -> Result<(), EngineError> {
    let declared = &tensor(spec, side).name;
    if declared == found {
        return Ok(());
    }
    let (model, declared, found) = (spec.name.clone(), declared.clone(), found.to_owned());
    Err(EngineError::Name { model, side, declared, found })
}

fn type_error(spec: &ModelSpec, side: Side, found: Option<DatumType>) -> EngineError {
    let found = found.map_or_else(|| "unknown".to_owned(), |found| format!("{found:?}").to_lowercase());
    EngineError::DataType { model: spec.name.clone(), side, name: tensor(spec, side).name.clone(), found }
}

fn shape_error(spec: &ModelSpec, side: Side, found: String) -> EngineError {
    let TensorSpec { name, shape: declared } = tensor(spec, side).clone();
    EngineError::Shape { model: spec.name.clone(), side, name, declared, found }
}

fn tensor(spec: &ModelSpec, side: Side) -> &TensorSpec {
    match side {
        Side::Input => &spec.input,
        Side::Output => &spec.output,
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
fn race(limits: &Limits, single: &mut Plan, batched: &mut Plan) -> Result<(u64, u64), EngineError> {
    let mut input = vec![0.0; batched.batch * limits.input_len];
    let mut output = vec![0.0; batched.batch * limits.output_len];
    fill_input(0, &mut input);
    let mut timed = |plan: &mut Plan| {
        let started = crate::clock::now().as_nanos();
        plan.run(limits, &input, &mut output)?;
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
    use super::super::conformance::{relu, toy_file};
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
        let mut runner = TractRunner::load(&spec, 40, Some(&modes)).unwrap();
        let sizes: Vec<usize> = runner.plans.iter().map(|plan| plan.batch).collect();
        assert_eq!(sizes, [1, 4, 32]);
        let (mut input, mut output) = ([0.0; 42], [9.0; 42]);
        fill_input(3, &mut input);
        runner.run(21, &input, &mut output).unwrap();
        assert_eq!(output, input);
    }

    #[test]
    fn a_runner_works_again_after_a_run_that_broke_off() {
        let dir = tempfile::tempdir().unwrap();
        let spec = toy_file(&dir, &relu(1, &["N", "2"]));
        let mut runner = TractRunner::load(&spec, 1, None).unwrap();
        for _ in 0..2 {
            runner.plans[0].broken = true;
            let mut output = [9.0; 2];
            runner.run(1, &[0.5, -0.5], &mut output).unwrap();
            assert_eq!(output, [0.5, 0.0]);
            assert!(!runner.plans[0].broken);
        }
    }

    #[test]
    fn a_panic_of_tract_becomes_an_error() {
        assert_eq!(guarded::<()>(|| panic!("malformed")), Err("tract panicked".to_owned()));
    }
}
