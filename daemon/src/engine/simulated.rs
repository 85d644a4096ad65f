//! The simulated engine stands in a model's place on a worker: it waits out known times instead of computing.

use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;

use super::{Buffers, EngineError, RunMode, Runner, Side};

/// Waits `times_ns[b - 1]` nanoseconds for a batch of `b`, asleep, up to an absolute instant of the monotonic
/// clock.
///
/// Its answers are made up but determined: each output repeats the bytes of the first input, within each
/// request. A time of 0 does not sleep at all: the "null" service that measures everything but the engine.
#[derive(Debug)]
pub(super) struct SimulatedRunner {
    buffers: Buffers,
    times_ns: Vec<u64>,
}

impl SimulatedRunner {
    /// Needs no file, only the buffers.
    ///
    /// # Errors
    /// Fewer times than the buffers have room for requests.
    pub(super) fn new(buffers: Buffers, times_ns: &[u64]) -> Result<Self, EngineError> {
        let max_batch = buffers.max_batch();
        let Some(times_ns) = times_ns.get(..max_batch) else {
            let (model, found) = (buffers.model().to_owned(), times_ns.len());
            return Err(EngineError::Given { model, what: "times", found, max_batch });
        };
        Ok(Self { buffers, times_ns: times_ns.to_vec() })
    }
}

impl Runner for SimulatedRunner {
    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    fn run(&mut self, batch: usize) -> Result<(), EngineError> {
        let started = crate::clock::now().as_nanos();
        self.buffers.check(batch)?;
        for request in 0..batch {
            for tensor in 0..self.buffers.count(Side::Output) {
                self.buffers.repeat_input(tensor, request);
            }
        }
        match self.times_ns[batch - 1] {
            0 => Ok(()),
            time => sleep_until(started.saturating_add(time)).map_err(|errno| EngineError::Run {
                model: self.buffers.model().to_owned(),
                batch,
                reason: format!("clock_nanosleep: {errno}"),
            }),
        }
    }

    fn mode(&self, _batch: usize) -> RunMode {
        RunMode::Simulated
    }
}

/// Sleeps until the monotonic clock shows `instant_ns`; an instant in the past returns at once.
fn sleep_until(instant_ns: u64) -> Result<(), Errno> {
    const SECOND: u64 = 1_000_000_000;
    // Both fit: u64::MAX nanoseconds are 584 years.
    let until = Timespec { tv_sec: (instant_ns / SECOND) as i64, tv_nsec: (instant_ns % SECOND) as i64 };
    loop {
        match clock_nanosleep_absolute(ClockId::Monotonic, &until) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::{run_f32, toy_spec};
    use super::*;

    #[test]
    fn waits_at_least_the_time_of_the_batch() {
        let mut runner = SimulatedRunner::new(Buffers::new(&toy_spec(3, 2), 2), &[0, 4_000_000]).unwrap();
        let started = crate::clock::now().as_nanos();
        runner.run(2).unwrap();
        assert!(crate::clock::now().as_nanos() - started >= 4_000_000);
    }

    #[test]
    fn repeats_the_input_over_the_output_of_each_request() {
        let mut runner = SimulatedRunner::new(Buffers::new(&toy_spec(2, 3), 2), &[0, 0]).unwrap();
        let output = run_f32(&mut runner, 2, &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(output, [1.0, 2.0, 1.0, 3.0, 4.0, 3.0]);
        assert_eq!(runner.mode(1), RunMode::Simulated);
    }

    #[test]
    fn a_time_for_every_batch_size_is_asked_for() {
        let error = SimulatedRunner::new(Buffers::new(&toy_spec(2, 3), 3), &[5, 6]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "model toy: 2 times are given for max_batch 3, one per batch size is needed"
        );
    }

    #[test]
    fn an_instant_in_the_past_does_not_sleep() {
        assert_eq!(sleep_until(1), Ok(()));
    }
}
