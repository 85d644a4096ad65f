//! Measuring times one run at a time: the only place of the profiler that meets an engine.

use super::group::Subject;
use super::machine::{Causes, Watch};
use super::rehearsed::Rehearsed;
use crate::models::mixing;
use weir_engine::{
    Engine, EngineError, EngineKind, Isolation, PATIENCE, Place, RunMode, Runner, Task, isolate_one, load,
};
use weir_os::clock;

/// So many made-up requests are gone through in turns.
const REQUESTS: u64 = 4;

/// A model on a worker's thread.
pub(super) struct Bench {
    runner: Box<dyn Runner>,
    /// Made-up requests, taken in turns, and the state before each.
    requests: Vec<Vec<u8>>,
    state: Vec<u8>,
    answer: Vec<u8>,
    /// What a stage does beside it.
    rehearsed: Option<Rehearsed>,
    runs: u64,
    watch: Watch,
}

impl Bench {
    /// Loads `subject` as that worker of its service does, for batches of up to `max_batch`, to be run by `modes` or, without, as is faster; a process of
    /// its own runs at `place`, and ends with the calling thread, which is the one that is watched.
    ///
    /// # Errors
    /// What the engine finds wrong with it.
    pub(super) fn load(
        (subject, worker): (&Subject, usize),
        max_batch: usize,
        modes: Option<&[RunMode]>,
        place: &Place,
    ) -> Result<Self, EngineError> {
        let (spec, backend, times) = (&subject.spec, &subject.backend.of_worker(worker), &subject.times);
        let engine = match subject.engine {
            EngineKind::Simulated => Engine::Simulated { times },
            _ => Engine::Real { backend, modes },
        };
        let runner = match subject.isolation {
            Isolation::Thread => load(engine, spec, max_batch)?,
            Isolation::Process => {
                let task = Task { engine, spec, max_batch, silence: vec![PATIENCE; max_batch] };
                isolate_one(task, place)?
            }
        };
        let requests = (0..REQUESTS).map(|seed| spec.made_up_request(seed)).collect();
        let watch = Watch::new(place.core, runner.process(), max_batch);
        let rehearsed = subject.staging.as_ref().map(Rehearsed::new);
        Ok(Self {
            runner,
            requests,
            state: spec.initial_state(),
            answer: Vec::new(),
            rehearsed,
            runs: 0,
            watch,
        })
    }

    /// How batches of 1 to `max_batch` are run.
    pub(super) fn modes(&self, max_batch: usize) -> Vec<RunMode> {
        (1..=max_batch).map(|batch| self.runner.mode(batch)).collect()
    }

    /// What is told of its model, `subject`, if requests of one batch are not answered each by itself.
    pub(super) fn mixing(&mut self, subject: &Subject) -> Option<String> {
        mixing(subject.engine, &subject.spec, &mut *self.runner)
    }

    /// Does with a batch what a worker does: lays its requests side by side, runs it and takes the answers; how long that took, in
    /// nanoseconds, and what disturbed it.
    ///
    /// # Errors
    /// What the engine reports, and a batch that it was not loaded for.
    pub(super) fn time(&mut self, batch: usize) -> Result<(u64, Causes), EngineError> {
        self.runner.buffers().check(batch)?;
        self.runs += 1;
        let before = self.watch.read();
        let started = clock::now();
        self.lay(batch);
        self.runner.run(batch)?;
        self.take(batch);
        let taken = clock::now().since(started);
        let after = self.watch.read();
        Ok((taken.as_nanos(), self.watch.causes(batch, before, after, taken)))
    }

    fn lay(&mut self, batch: usize) {
        let buffers = self.runner.buffers();
        match self.rehearsed.as_mut().filter(|rehearsed| rehearsed.makes()) {
            Some(rehearsed) => rehearsed.make(self.runs, batch, buffers),
            None => {
                for index in 0..batch {
                    let number = (self.runs as usize).wrapping_add(index) % self.requests.len();
                    buffers.put(index, &self.requests[number]);
                    if !self.state.is_empty() {
                        buffers.put_state(index, &self.state);
                    }
                }
            }
        }
    }

    fn take(&mut self, batch: usize) {
        let buffers = self.runner.buffers();
        match &mut self.rehearsed {
            Some(rehearsed) => rehearsed.choose(batch, buffers),
            None => {
                for index in 0..batch {
                    buffers.get(index, &mut self.answer);
                    if !self.state.is_empty() {
                        buffers.get_state(index, &mut self.answer);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::group::tests::subject;

    #[test]
    fn a_run_takes_as_long_as_its_engine() {
        let subject = subject("m", &[1_000_000, 3_000_000]);
        let mut bench = Bench::load((&subject, 0), 2, None, &Place::default()).unwrap();
        assert_eq!(bench.modes(2), [RunMode::Simulated; 2]);
        for batch in [1, 2, 1] {
            assert!(bench.time(batch).unwrap().0 >= subject.times[batch - 1].bound);
        }
    }

    #[test]
    fn an_error_of_the_engine_is_told() {
        let subject = subject("m", &[0]);
        let error = Bench::load((&subject, 0), 1, None, &Place::default()).unwrap().time(2).unwrap_err();
        assert!(matches!(error, EngineError::Batch { batch: 2, max_batch: 1, .. }), "{error}");
        assert!(matches!(
            Bench::load((&subject, 0), 2, None, &Place::default()),
            Err(EngineError::Given { .. })
        ));
    }
}
