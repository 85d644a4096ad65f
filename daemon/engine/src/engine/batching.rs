//! A batch can be run in one go or one by one: each size is timed both ways while loading, and run the faster.
//!
//! Dense layers gain from batching; convolutions on a CPU gain little or nothing, and may even lose.

use rt_core::{Instant, Span};

use super::{Buffers, EngineError, EngineKind, ModelSpec, RunMode, Runner};
use weir_os::clock;

/// Up to here every batch size is timed; above, the powers of two and the largest.
const DENSE_SIZES: usize = 16;
/// How often a batch size is timed each way; the least time counts.
const ROUNDS: usize = 5;
/// Once the timing of a batch size has taken this long, no further round begins.
const ROUNDS_BUDGET: Span = Span::from_millis(500);

/// What can run the first `batch` requests of its buffers either way.
pub(super) trait BothWays {
    fn buffers(&mut self) -> &mut Buffers;

    /// What computes.
    fn kind(&self) -> EngineKind;

    /// How a batch of 1, 2, … is run once it is loaded; at least one.
    fn modes(&self) -> &[RunMode];

    /// # Errors
    /// Whatever the engine reports.
    fn run_as(&mut self, mode: RunMode, batch: usize) -> Result<(), EngineError>;

    /// See [`Runner::lost`].
    fn lost(&mut self) -> Option<String> {
        None
    }

    /// See [`Runner::endpoint`].
    fn endpoint(&self) -> Option<&str> {
        None
    }
}

impl<E: BothWays + Send> Runner for E {
    fn buffers(&mut self) -> &mut Buffers {
        BothWays::buffers(self)
    }

    fn run(&mut self, batch: usize) -> Result<(), EngineError> {
        BothWays::buffers(self).check(batch)?;
        let error = match self.run_as(self.mode(batch), batch) {
            Err(error) if self.kind().uses_cuda() => error,
            ran => return ran,
        };
        // A kernel that reached beyond its memory has cost this process all that it had on the GPU: then nothing runs here any more.
        BothWays::buffers(self).clear(0..1);
        match self.run_as(RunMode::Batched, 1) {
            Ok(()) => Err(error),
            Err(_) => Err(EngineError::Lost {
                what: "what the process has on its GPU".to_owned(),
                reason: error.to_string(),
            }),
        }
    }

    fn mode(&self, batch: usize) -> RunMode {
        let modes = self.modes();
        modes[batch.clamp(1, modes.len()) - 1]
    }

    fn lost(&mut self) -> Option<String> {
        BothWays::lost(self)
    }

    fn endpoint(&self) -> Option<&str> {
        BothWays::endpoint(self)
    }
}

/// How `engine` is to run each batch size: as is `given`, or else the faster way; one by one if the model is not `batched`.
///
/// # Errors
/// Whatever the engine reports.
pub(super) fn choose_modes(
    engine: &mut impl BothWays,
    spec: &ModelSpec,
    batched: bool,
    given: Option<&[RunMode]>,
) -> Result<Vec<RunMode>, EngineError> {
    let max_batch = engine.buffers().max_batch();
    match given {
        _ if !batched => Ok(loop_modes(max_batch)),
        Some(given) => Ok([&[RunMode::Batched], &given[1..]].concat()),
        None => faster_modes(engine, spec, max_batch, clock::now),
    }
}

/// The faster mode of each batch size up to `max_batch`, on made-up requests: `Batched` where that wins by more
/// than 5 %. A size that is not timed is run as the next larger one.
///
/// # Errors
/// Whatever the engine reports.
fn faster_modes(
    engine: &mut impl BothWays,
    spec: &ModelSpec,
    max_batch: usize,
    now: impl Fn() -> Instant,
) -> Result<Vec<RunMode>, EngineError> {
    for (tensor, input) in spec.inputs.iter().enumerate() {
        engine.buffers().fill(0, tensor, input.data_type, max_batch);
    }
    let mut modes = vec![RunMode::Batched];
    for size in timed_sizes(max_batch).into_iter().skip(1) {
        let (batched_ns, loop_ns) = race(engine, size, &now)?;
        let wins = batched_ns.saturating_mul(105) < loop_ns.saturating_mul(100);
        modes.resize(size, if wins { RunMode::Batched } else { RunMode::Loop });
    }
    Ok(modes)
}

/// The modes that were given, one for each batch size.
///
/// # Errors
/// [`EngineError::Given`] if there are fewer, or a simulated one among them.
pub(super) fn given_modes<'a>(
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

/// The modes of a model whose batch dimension is fixed to 1.
pub(super) fn loop_modes(max_batch: usize) -> Vec<RunMode> {
    let mut modes = vec![RunMode::Loop; max_batch];
    modes[0] = RunMode::Batched;
    modes
}

/// The batch sizes that are timed, rising, from 1 to `max_batch`.
pub(super) fn timed_sizes(max_batch: usize) -> Vec<usize> {
    sizes(DENSE_SIZES, max_batch)
}

/// The powers of two up to `max_batch`, and that.
pub(super) fn doubling_sizes(max_batch: usize) -> Vec<usize> {
    sizes(1, max_batch)
}

/// All up to `dense`, then the powers of two, and `max_batch`.
fn sizes(dense: usize, max_batch: usize) -> Vec<usize> {
    (1..=max_batch).filter(|&b| b <= dense || b.is_power_of_two() || b == max_batch).collect()
}

/// Whether what is compiled for batches of `size` is run by any batch: in these modes, where there is something for each of these `sizes`,
/// rising, and a batch is run by the next larger one.
pub(super) fn is_used(modes: &[RunMode], size: usize, sizes: &[usize]) -> bool {
    let below = sizes.iter().rev().find(|&&b| b < size).copied().unwrap_or(0);
    modes[below..size].contains(&RunMode::Batched)
}

/// The least times in nanoseconds of a full batch in one go and one by one, taken turn by turn.
fn race(
    engine: &mut impl BothWays,
    size: usize,
    now: &impl Fn() -> Instant,
) -> Result<(u64, u64), EngineError> {
    let mut timed = |mode| {
        let started = now();
        engine.run_as(mode, size)?;
        Ok(now().since(started).as_nanos())
    };
    let started = now();
    timed(RunMode::Batched)?;
    let (mut batched_ns, mut loop_ns) = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        loop_ns = loop_ns.min(timed(RunMode::Loop)?);
        batched_ns = batched_ns.min(timed(RunMode::Batched)?);
        if now().since(started) > ROUNDS_BUDGET {
            break;
        }
    }
    Ok((batched_ns, loop_ns))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::conformance::toy_spec;
    use super::*;

    /// Takes 2 ms of its own time for a batch in one go, 1 ms for each request otherwise.
    struct Pretends<'a>(Buffers, &'a Cell<Instant>);

    impl BothWays for Pretends<'_> {
        fn buffers(&mut self) -> &mut Buffers {
            &mut self.0
        }

        fn kind(&self) -> EngineKind {
            EngineKind::Simulated
        }

        fn modes(&self) -> &[RunMode] {
            &[RunMode::Batched]
        }

        fn run_as(&mut self, mode: RunMode, batch: usize) -> Result<(), EngineError> {
            let millis = if mode == RunMode::Batched { 2 } else { batch as u64 };
            self.1.set(self.1.get() + Span::from_millis(millis));
            Ok(())
        }
    }

    #[test]
    fn the_faster_way_is_taken_and_holds_for_sizes_that_are_not_timed() {
        let spec = toy_spec(2, 2);
        let now = Cell::new(Instant::ZERO);
        let mut engine = Pretends(Buffers::new(&spec, 20), &now);
        let modes = faster_modes(&mut engine, &spec, 20, || now.get()).unwrap();
        assert_eq!(modes.len(), 20);
        assert_eq!(modes[..2], [RunMode::Batched, RunMode::Loop]);
        assert_eq!(modes[3..], [RunMode::Batched; 17]);
    }

    #[test]
    fn small_batch_sizes_are_timed_each() {
        assert_eq!(timed_sizes(1), [1]);
        assert_eq!(timed_sizes(16), (1..=16).collect::<Vec<_>>());
        assert_eq!(timed_sizes(40)[14..], [15, 16, 32, 40]);
        assert_eq!(timed_sizes(64)[15..], [16, 32, 64]);
    }

    #[test]
    fn what_no_batch_is_run_by_is_not_used() {
        use RunMode::{Batched, Loop};
        assert_eq!(doubling_sizes(1), [1]);
        let sizes = doubling_sizes(12);
        assert_eq!(sizes, [1, 2, 4, 8, 12]);
        let mut modes = [Loop; 12];
        (modes[0], modes[2], modes[8]) = (Batched, Batched, Batched);
        let used: Vec<_> = sizes.iter().filter(|&&size| is_used(&modes, size, &sizes)).collect();
        assert_eq!(used, [&1, &4, &12]);
    }
}
