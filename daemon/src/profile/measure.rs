//! Measuring times a model at every batch size on this machine, before it serves: `weir profile` asks for it.

use std::time::Duration;

use crate::engine::{EngineError, ModelSpec, RunMode, Runner, fill_tensor};

/// Untimed runs of every batch size before the first timed one.
const WARM_UP: usize = 3;
/// As long as a worker of a lightly loaded service waits for its next batch.
const PAUSE: Duration = Duration::from_millis(2);

/// What was measured of one model on one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Timed runs per batch size.
    pub(crate) samples: usize,
    /// For batches of 1, 2, …
    pub(crate) sizes: Vec<SizeTimes>,
}

/// The times of one batch size, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeTimes {
    /// How the runner runs it.
    pub(crate) mode: RunMode,
    /// Half of the runs took no longer.
    pub(crate) p50_ns: u64,
    /// 99 % of the runs took no longer.
    pub(crate) p99_ns: u64,
    /// The largest time seen.
    pub(crate) max_ns: u64,
}

/// Times `samples` (at least 1) runs of each batch size 1..=`max_batch`, each on an input of its own.
///
/// The sizes take turns, so that a disturbance of the machine falls on all of them alike, and every other round
/// each run follows a pause, for a request seldom finds the caches as the last one left them. `progress` is
/// told the runs done and to be done after each.
///
/// # Errors
/// What the runner reports.
pub(crate) fn measure(
    runner: &mut dyn Runner,
    spec: &ModelSpec,
    max_batch: usize,
    samples: usize,
    mut progress: impl FnMut(usize, usize),
) -> Result<Measured, EngineError> {
    let samples = samples.max(1);
    let mut times = vec![Vec::with_capacity(samples); max_batch];
    let (mut done, total) = (0, (WARM_UP + samples) * max_batch);
    for round in 0..WARM_UP + samples {
        for batch in 1..=max_batch {
            for (tensor, input) in spec.inputs.iter().enumerate() {
                let bytes = runner.buffers().input_mut(tensor, 0..batch);
                fill_tensor(done as u64, input.data_type, bytes);
            }
            if round % 2 == 1 {
                std::thread::park_timeout(PAUSE);
            }
            let started = crate::clock::now().as_nanos();
            runner.run(batch)?;
            let taken = crate::clock::now().as_nanos() - started;
            if round >= WARM_UP {
                times[batch - 1].push(taken);
            }
            done += 1;
            progress(done, total);
        }
    }
    let sizes = times.iter_mut().enumerate().map(|(i, times)| summarise(times, runner.mode(i + 1)));
    Ok(Measured { samples, sizes: sizes.collect() })
}

/// Needs at least one time.
fn summarise(times: &mut [u64], mode: RunMode) -> SizeTimes {
    times.sort_unstable();
    // The nearest rank: the smallest time that at least that many per cent do not exceed.
    let percentile = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
    SizeTimes { mode, p50_ns: percentile(50), p99_ns: percentile(99), max_ns: percentile(100) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, load, toy_spec};

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut times: Vec<u64> = (1..=200).rev().collect();
        let size = summarise(&mut times, RunMode::Batched);
        assert_eq!((size.p50_ns, size.p99_ns, size.max_ns), (100, 198, 200));
        let one = summarise(&mut [7], RunMode::Loop);
        assert_eq!((one.p50_ns, one.p99_ns, one.max_ns), (7, 7, 7));
    }

    #[test]
    fn measures_every_batch_size_and_tells_its_progress() {
        let spec = toy_spec(2, 2);
        let times_ns = [1_000_000, 2_000_000];
        let mut runner = load(Engine::Simulated { times_ns: &times_ns }, &spec, 2).unwrap();
        let mut told = Vec::new();
        let measured = measure(&mut *runner, &spec, 2, 4, |done, total| told.push((done, total))).unwrap();
        assert_eq!((measured.samples, measured.sizes.len()), (4, 2));
        for (size, time) in measured.sizes.iter().zip(times_ns) {
            assert_eq!(size.mode, RunMode::Simulated);
            assert!(time <= size.p50_ns && size.p50_ns <= size.p99_ns && size.p99_ns <= size.max_ns);
        }
        assert_eq!(told, (1..=14).map(|done| (done, 14)).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_of_the_runner_ends_it() {
        let spec = toy_spec(2, 2);
        let mut runner = load(Engine::Simulated { times_ns: &[0] }, &spec, 1).unwrap();
        let error = measure(&mut *runner, &spec, 2, 1, |_, _| {}).unwrap_err();
        assert!(matches!(error, EngineError::Batch { batch: 2, max_batch: 1, .. }));
    }
}
