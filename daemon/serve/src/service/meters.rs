//! Beside a request's way: how long answers took and how large batches were, counted without waiting.

use std::sync::atomic::{AtomicU64, Ordering};

use rt_core::Span;
use weir_client::status;

/// Upper bounds of the latencies told apart, in nanoseconds: 1, 2 and 5 of each power of ten from 100 µs to 10 s.
const LATENCIES_NS: [u64; 16] = [
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// Upper bounds of the batch sizes told apart.
const BATCHES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The counts of a service.
pub(super) struct Meters {
    latency: Histogram<16>,
    batch: Histogram<7>,
    /// From the arrivals of the answered to the starts of their batches, in all.
    waited_ns: AtomicU64,
}

impl Meters {
    pub(super) fn new() -> Self {
        Self {
            latency: Histogram::new(LATENCIES_NS),
            batch: Histogram::new(BATCHES),
            waited_ns: AtomicU64::new(0),
        }
    }

    /// An answer was computed, whose request has waited and then run for so long.
    pub(super) fn answered(&self, waited: Span, ran: Span) {
        self.latency.count((waited + ran).as_nanos());
        self.waited_ns.fetch_add(waited.as_nanos(), Ordering::Relaxed);
    }

    /// A batch of so many was run.
    pub(super) fn ran(&self, size: usize) {
        self.batch.count(size as u64);
    }

    /// From a request's arrival to the end of its batch, of those that were answered.
    pub(super) fn latency_status(&self) -> status::Histogram {
        self.latency.status()
    }

    /// How much of the sum of these was before the starts of their batches.
    pub(super) fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }

    /// The sizes of the batches that were run.
    pub(super) fn batch_status(&self) -> status::Histogram {
        self.batch.status()
    }
}

/// Counts values by the first of its bounds that they do not exceed; the last count is of those beyond all.
struct Histogram<const N: usize> {
    bounds: [u64; N],
    counts: [AtomicU64; N],
    beyond: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    fn new(bounds: [u64; N]) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self { bounds, counts, beyond: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    fn count(&self, value: u64) {
        let place = self.bounds.partition_point(|&bound| bound < value);
        self.counts.get(place).unwrap_or(&self.beyond).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// While values are counted, the sum may be some of them ahead or behind.
    fn status(&self) -> status::Histogram {
        let counts = self.counts.iter().chain([&self.beyond]).map(|count| count.load(Ordering::Relaxed));
        let (bounds, sum) = (self.bounds.to_vec(), self.sum.load(Ordering::Relaxed));
        status::Histogram { bounds, counts: counts.collect(), sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_at_the_first_bound_that_it_does_not_exceed() {
        let histogram = Histogram::new([10, 20]);
        [1, 10, 11, 20, 21, u64::MAX >> 1].iter().for_each(|&value| histogram.count(value));
        let status = histogram.status();
        assert_eq!(status.counts, [2, 2, 2]);
        assert_eq!(status.sum, 63 + (u64::MAX >> 1));
    }
}
