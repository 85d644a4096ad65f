//! The simulated engine stands in a model's place on a worker: it waits out known times instead of computing.

use nix::errno::Errno;
use rt_core::Instant;
use serde::{Deserialize, Serialize};

use super::{Buffers, EngineError, RunMode, Runner, Side};
use weir_os::clock;

/// What a simulated batch of one size takes, in nanoseconds: of each hundred of them one takes `bound`, eleven take
/// `likely`, spread evenly, and all others `usual`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedTime {
    /// At most `likely`.
    pub usual: u64,
    /// At most `bound`.
    pub likely: u64,
    /// The longest.
    pub bound: u64,
}

impl SimulatedTime {
    /// Every batch takes that long.
    pub const fn always(time: u64) -> Self {
        Self { usual: time, likely: time, bound: time }
    }

    /// Batches take `mean` on average; the error is the least and the largest mean that is possible.
    ///
    /// # Errors
    /// A mean that no `usual` time of 0 to `likely` gives.
    pub fn spread(bound: u64, likely: u64, mean: u64) -> Result<Self, (u64, u64)> {
        let given = 11 * u128::from(likely) + u128::from(bound);
        let (least, most) = (given.div_ceil(100), (given + 88 * u128::from(likely)) / 100);
        let usual = (100 * u128::from(mean)).checked_sub(given).map(|left| left / 88);
        match usual.filter(|_| likely <= bound && u128::from(mean) <= most) {
            Some(usual) => Ok(Self { usual: (usual as u64).min(likely), likely, bound }),
            None => Err((least as u64, most as u64)),
        }
    }

    /// The time of batch number `count`, from 0.
    fn of(self, count: u64) -> u64 {
        match count % 100 {
            20 => self.bound,
            count if count % 9 == 4 => self.likely,
            _ => self.usual,
        }
    }
}

/// Waits out the times of [`SimulatedTime`], asleep, up to an absolute instant of the monotonic clock.
///
/// Its answers are made up but determined: each output repeats the bytes of the first input, within each
/// request. A time of 0 does not sleep at all: the "null" service that measures everything but the engine.
#[derive(Debug)]
pub(super) struct SimulatedRunner {
    buffers: Buffers,
    /// Of batches of 1, 2, …, and how many of them were run.
    times: Vec<(SimulatedTime, u64)>,
}

impl SimulatedRunner {
    /// Needs no file, only the buffers.
    ///
    /// # Errors
    /// Fewer times than the buffers have room for requests.
    pub(super) fn new(buffers: Buffers, times: &[SimulatedTime]) -> Result<Self, EngineError> {
        let max_batch = buffers.max_batch();
        let Some(times) = times.get(..max_batch) else {
            let (model, found) = (buffers.model().to_owned(), times.len());
            return Err(EngineError::Given { model, what: "times", found, max_batch });
        };
        Ok(Self { buffers, times: times.iter().map(|&time| (time, 0)).collect() })
    }
}

impl Runner for SimulatedRunner {
    fn buffers(&mut self) -> &mut Buffers {
        &mut self.buffers
    }

    fn run(&mut self, batch: usize) -> Result<(), EngineError> {
        let started = clock::now().as_nanos();
        self.buffers.check(batch)?;
        for request in 0..batch {
            for tensor in 0..self.buffers.count(Side::Output) {
                self.buffers.repeat_input(tensor, request);
            }
        }
        let (time, count) = &mut self.times[batch - 1];
        let time = time.of(*count);
        *count = count.wrapping_add(1);
        match time {
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
    loop {
        match clock::sleep_until(Instant::from_nanos(instant_ns)) {
            Err(Errno::EINTR) => {}
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
        let mut runner = SimulatedRunner::new(
            Buffers::new(&toy_spec(3, 2), 2),
            &[0, 4_000_000].map(SimulatedTime::always),
        )
        .unwrap();
        let started = clock::now().as_nanos();
        runner.run(2).unwrap();
        assert!(clock::now().as_nanos() - started >= 4_000_000);
    }

    #[test]
    fn of_a_hundred_batches_one_takes_the_bound_and_all_together_have_the_mean() {
        for (bound, likely, mean) in [(38, 16, 14), (38, 16, 16), (100, 50, 7), (5, 5, 5), (0, 0, 0)] {
            let time = SimulatedTime::spread(bound * 1000, likely * 1000, mean * 1000).unwrap();
            let mut times: Vec<u64> = (100..200).map(|count| time.of(count)).collect();
            times.sort_unstable();
            assert_eq!((times[89], times[98], times[99]), (likely * 1000, likely * 1000, bound * 1000));
            assert!(times.iter().sum::<u64>().abs_diff(mean * 1000 * 100) <= 88, "{time:?}");
        }
        assert_eq!(SimulatedTime::spread(1000, 100, 20), Err((21, 109)));
        assert_eq!(SimulatedTime::spread(1000, 100, 110), Err((21, 109)));
    }

    #[test]
    fn repeats_the_input_over_the_output_of_each_request() {
        let mut runner =
            SimulatedRunner::new(Buffers::new(&toy_spec(2, 3), 2), &[SimulatedTime::always(0); 2]).unwrap();
        let output = run_f32(&mut runner, 2, &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(output, [1.0, 2.0, 1.0, 3.0, 4.0, 3.0]);
        assert_eq!(runner.mode(1), RunMode::Simulated);
    }

    #[test]
    fn a_time_for_every_batch_size_is_asked_for() {
        let error = SimulatedRunner::new(Buffers::new(&toy_spec(2, 3), 3), &[SimulatedTime::always(5); 2])
            .unwrap_err();
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
