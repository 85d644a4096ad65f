//! Measuring times one run at a time: the only place of the profiler that meets an engine.

use super::party::Subject;
use crate::clock;
use crate::engine::{DataType, Engine, EngineError, EngineKind, RunMode, Runner, fill_tensor, load};

/// A model on a worker's thread.
pub(super) struct Bench {
    runner: Box<dyn Runner>,
    /// The types of its inputs.
    inputs: Vec<DataType>,
    runs: u64,
}

impl Bench {
    /// Loads `subject` for batches of up to `max_batch`, to be run by `modes` or, without, as is faster.
    ///
    /// # Errors
    /// What the engine finds wrong with it.
    pub(super) fn load(
        subject: &Subject,
        max_batch: usize,
        modes: Option<&[RunMode]>,
    ) -> Result<Self, EngineError> {
        let engine = match (subject.engine, &subject.times_ns) {
            (EngineKind::Simulated, times_ns) => Engine::Simulated { times_ns },
            (EngineKind::Tract, _) => Engine::Tract { modes },
        };
        let runner = load(engine, &subject.spec, max_batch)?;
        let inputs = subject.spec.inputs.iter().map(|input| input.data_type).collect();
        Ok(Self { runner, inputs, runs: 0 })
    }

    /// How batches of 1 to `max_batch` are run.
    pub(super) fn modes(&self, max_batch: usize) -> Vec<RunMode> {
        (1..=max_batch).map(|batch| self.runner.mode(batch)).collect()
    }

    /// Runs a batch on an input of its own; how long that took, in nanoseconds.
    ///
    /// # Errors
    /// What the engine reports, and a batch that it was not loaded for.
    pub(super) fn time(&mut self, batch: usize) -> Result<u64, EngineError> {
        let buffers = self.runner.buffers();
        buffers.check(batch)?;
        for (tensor, &data_type) in self.inputs.iter().enumerate() {
            fill_tensor(self.runs, data_type, buffers.input_mut(tensor, 0..batch));
        }
        self.runs += 1;
        let started = clock::now();
        self.runner.run(batch)?;
        Ok(clock::now().since(started).as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::party::tests::subject;

    #[test]
    fn a_run_takes_as_long_as_its_engine() {
        let subject = subject("m", &[1_000_000, 3_000_000]);
        let mut bench = Bench::load(&subject, 2, None).unwrap();
        assert_eq!(bench.modes(2), [RunMode::Simulated; 2]);
        for batch in [1, 2, 1] {
            assert!(bench.time(batch).unwrap() >= subject.times_ns[batch - 1]);
        }
    }

    #[test]
    fn an_error_of_the_engine_is_told() {
        let subject = subject("m", &[0]);
        let error = Bench::load(&subject, 1, None).unwrap().time(2).unwrap_err();
        assert!(matches!(error, EngineError::Batch { batch: 2, max_batch: 1, .. }), "{error}");
        assert!(matches!(Bench::load(&subject, 2, None), Err(EngineError::Given { .. })));
    }
}
