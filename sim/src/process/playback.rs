//! A recorded trace, faster or slower, over and over.

use std::sync::Arc;

use rt_core::Instant;

use super::ticks::Ticks;

/// Plays a trace so that its first request comes at 0, and again a mean gap after its last one.
#[derive(Clone, Debug)]
pub(super) struct Playback {
    trace: Arc<[Instant]>,
    /// The request that comes next.
    index: usize,
    /// What a recorded nanosecond takes.
    factor: f64,
    /// When this round began, and how long each takes.
    start: Ticks,
    round: Ticks,
}

impl Playback {
    pub(super) fn new(trace: Arc<[Instant]>, factor: f64, round: Ticks) -> Self {
        Self { trace, index: 0, factor, start: Ticks::ZERO, round }
    }

    pub(super) fn next(&mut self) -> Option<Instant> {
        if self.index == self.trace.len() {
            self.start = self.start.after(self.round)?;
            self.index = 0;
        }
        let recorded = self.trace[self.index].since(self.trace[0]).as_nanos();
        self.index += 1;
        // Below 2^53 ns, 104 days, a float is exact.
        let offset = Ticks::of_nanos(recorded as f64 * self.factor)?;
        self.start.after(offset).map(Ticks::instant)
    }
}

/// The mean rate of a trace, in requests a second: its requests but one, in the time from the first to the last.
/// `None` of one that has no such time, or none above 0.
pub(super) fn mean_rate(trace: &[Instant]) -> Option<f64> {
    let span = trace.last()?.since(trace[0]).as_secs_f64();
    (span > 0.0).then(|| (trace.len() - 1) as f64 / span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;

    fn trace(nanos: &[u64]) -> Process {
        Process::Trace(nanos.iter().copied().map(Instant::from_nanos).collect())
    }

    fn played(nanos: &[u64], times: f64) -> Vec<u64> {
        let process = trace(nanos);
        let rate = process.own_rate().expect("a trace has one") * times;
        process.arrivals(rate, 0).expect("a trace").take(9).map(Instant::as_nanos).collect()
    }

    #[test]
    fn a_trace_is_played_as_recorded_or_scaled_and_again_after_a_mean_gap() {
        assert_eq!(played(&[7, 7, 19, 37], 1.0), [0, 0, 12, 30, 40, 40, 52, 70, 80]);
        assert_eq!(played(&[7, 7, 19, 37], 2.0), [0, 0, 6, 15, 20, 20, 26, 35, 40]);
        assert_eq!(played(&[7, 7, 19, 37], 0.5), [0, 0, 24, 60, 80, 80, 104, 140, 160]);
        let odd: Vec<_> = (0..1_000u64).map(|i| i * i * 7_919 + i).collect();
        let shown = trace(&odd).arrivals(trace(&odd).own_rate().expect("a rate"), 0).expect("a trace");
        assert!(shown.map(Instant::as_nanos).take(1_000).eq(odd));
    }

    #[test]
    fn it_ends_where_the_clock_does() {
        let process = trace(&[0, 900_000_000_000_000_000]);
        let count = process.arrivals(process.own_rate().expect("a rate"), 0).expect("a trace").count();
        assert_eq!(count, 21);
    }
}
