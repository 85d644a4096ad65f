//! What became of the requests of one stream, or of several together.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use rt_core::{Constraint, MissReason, Span};
use serde::Serialize;

use super::misses::Misses;

/// The longest latency told apart, in nanoseconds: an hour, the longest deadline.
const LONGEST_NS: u64 = rt_core::MAX_SPAN.as_nanos();

/// How many requests were served, how fast and how well, and why the others were missed. Bounded: at most 150 kB, by
/// the longest latency.
#[derive(Clone, Debug)]
pub struct Tally {
    served: u64,
    /// By the number of the reason.
    missed: [u64; 9],
    latency: Histogram<u32>,
    /// Of the served requests whose accuracy is known.
    accuracy: f64,
    known: u64,
}

/// A [`Tally`] of one stream, and its misses in windows.
#[derive(Clone, Debug)]
pub struct StreamMeasure {
    tally: Tally,
    misses: Misses,
}

/// Latencies in nanoseconds: at most so many were observed for that share of the requests, to 3 significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// For half of them.
    pub p50: u64,
    /// For 90 %.
    pub p90: u64,
    /// For 99 %.
    pub p99: u64,
    /// For 99.9 %.
    pub p99_9: u64,
    /// For all.
    pub max: u64,
}

/// A [`Tally`] to be written out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TallySummary {
    /// Requests that came.
    pub arrived: u64,
    /// Requests answered by their deadline.
    pub served: u64,
    /// All others.
    pub missed: u64,
    /// Misses by reason, every reason.
    pub missed_by: BTreeMap<String, u64>,
    /// Share of the requests, 0..=1; `None` without requests.
    pub miss_ratio: Option<f64>,
    /// Of the served requests; `None` if there are none.
    pub latency_ns: Option<Quantiles>,
    /// [`Tally::accuracy_of_served`].
    pub accuracy_of_served: Option<f64>,
    /// [`Tally::accuracy_of_all`].
    pub accuracy_of_all: Option<f64>,
}

/// A [`StreamMeasure`] to be written out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamSummary {
    /// The counts.
    #[serde(flatten)]
    pub tally: TallySummary,
    /// The most misses in a row.
    pub longest_miss_run: u64,
    /// The most misses in a window of `K`, from `K = 1` on.
    pub most_misses: Vec<u32>,
    /// In the order given.
    pub constraints: Vec<ConstraintSummary>,
}

/// How a constraint fared, to be written out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConstraintSummary {
    /// The constraint, as `any_miss(m,K)` or `row_miss(m)`.
    pub constraint: String,
    /// Requests at which the window that ends there held more misses than allowed.
    pub violations: u64,
    /// The number of the first of them within the stream, from 0.
    pub first: Option<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let mut latency = Histogram::new(3).expect("3 digits are few enough");
        latency.auto(true);
        Self { served: 0, missed: [0; 9], latency, accuracy: 0.0, known: 0 }
    }
}

impl Tally {
    /// A request was served: `latency` from arrival to answer, an hour at most (longer ones count as an hour);
    /// `accuracy` of what served it, 0..=1, if it is known.
    #[inline]
    pub fn served(&mut self, latency: Span, accuracy: Option<f64>) {
        self.served += 1;
        self.latency.record(latency.as_nanos().min(LONGEST_NS)).expect("it grows as needed");
        if let Some(accuracy) = accuracy {
            debug_assert!((0.0..=1.0).contains(&accuracy), "accuracy {accuracy}");
            self.accuracy += accuracy;
            self.known += 1;
        }
    }

    /// A request was missed.
    pub fn missed(&mut self, reason: MissReason) {
        self.missed[reason as usize] += 1;
    }

    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Self) {
        self.served += other.served;
        for (sum, count) in self.missed.iter_mut().zip(other.missed) {
            *sum += count;
        }
        self.latency.add(&other.latency).expect("it grows as needed");
        self.accuracy += other.accuracy;
        self.known += other.known;
    }

    /// Requests so far.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.served + self.missed_total()
    }

    /// Requests served.
    #[must_use]
    pub const fn served_total(&self) -> u64 {
        self.served
    }

    /// Requests missed for `reason`.
    #[must_use]
    pub const fn missed_for(&self, reason: MissReason) -> u64 {
        self.missed[reason as usize]
    }

    /// Requests missed for whatever reason.
    #[must_use]
    pub fn missed_total(&self) -> u64 {
        self.missed.iter().sum()
    }

    /// The latencies of the served requests; `None` if there are none.
    #[must_use]
    pub fn latency(&self) -> Option<Quantiles> {
        let at = |quantile| self.latency.value_at_quantile(quantile);
        let quantiles = || Quantiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: self.latency.max(),
        };
        (!self.latency.is_empty()).then(quantiles)
    }

    /// The mean accuracy, 0..=1, of the served requests whose accuracy is known; `None` if there are none.
    #[must_use]
    pub fn accuracy_of_served(&self) -> Option<f64> {
        (self.known > 0).then(|| self.accuracy / self.known as f64)
    }

    /// The same over the missed requests too, each as 0. `None` if no accuracy is known but requests were served,
    /// or without requests.
    #[must_use]
    pub fn accuracy_of_all(&self) -> Option<f64> {
        let count = self.known + self.missed_total();
        (count > 0 && (self.known > 0 || self.served == 0)).then(|| self.accuracy / count as f64)
    }

    /// To be written out.
    #[must_use]
    pub fn summary(&self) -> TallySummary {
        let (arrived, missed) = (self.arrived(), self.missed_total());
        TallySummary {
            arrived,
            served: self.served,
            missed,
            missed_by: MissReason::ALL.map(|reason| (reason.to_string(), self.missed_for(reason))).into(),
            miss_ratio: (arrived > 0).then(|| missed as f64 / arrived as f64),
            latency_ns: self.latency(),
            accuracy_of_served: self.accuracy_of_served(),
            accuracy_of_all: self.accuracy_of_all(),
        }
    }
}

impl StreamMeasure {
    /// Before the first request; `longest` window and `constraints` as for [`Misses::new`].
    ///
    /// # Panics
    /// As [`Misses::new`].
    #[must_use]
    pub fn new(longest: u32, constraints: &[Constraint]) -> Self {
        Self { tally: Tally::default(), misses: Misses::new(longest, constraints) }
    }

    /// The next request, in the order of arrival, was served; as [`Tally::served`].
    #[inline]
    pub fn served(&mut self, latency: Span, accuracy: Option<f64>) {
        self.tally.served(latency, accuracy);
        self.misses.hit();
    }

    /// The next request, in the order of arrival, was missed. Whether this violates a constraint.
    pub fn missed(&mut self, reason: MissReason) -> bool {
        self.tally.missed(reason);
        self.misses.miss()
    }

    /// The counts.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The misses in windows.
    #[must_use]
    pub const fn misses(&self) -> &Misses {
        &self.misses
    }

    /// To be written out.
    #[must_use]
    pub fn summary(&self) -> StreamSummary {
        let constraints = self.misses.violations().map(|(constraint, found)| ConstraintSummary {
            constraint: constraint.to_string(),
            violations: found.count,
            first: found.first,
        });
        StreamSummary {
            tally: self.tally.summary(),
            longest_miss_run: self.misses.longest_row(),
            most_misses: self.misses.most().collect(),
            constraints: constraints.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_kept_to_three_digits() {
        let mut tally = Tally::default();
        for micros in 1..=10_000u64 {
            tally.served(Span::from_micros(micros), None);
        }
        let Quantiles { p50, p90, p99, p99_9, max } = tally.latency().expect("served");
        for (found, exact) in [(p50, 5e6), (p90, 9e6), (p99, 9.9e6), (p99_9, 9.99e6), (max, 1e7)] {
            assert!((found as f64 / exact - 1.0).abs() < 1e-3, "{found} is not {exact}");
        }
        tally.served(Span::from_nanos(u64::MAX), None);
        assert!((tally.latency().expect("served").max as f64 / 3.6e12 - 1.0).abs() < 1e-3);
        // As little as promised, with an hour in it.
        assert!(tally.latency.distinct_values() * size_of::<u32>() < 150_000);
    }

    #[test]
    fn accuracy_counts_misses_as_wrong() {
        let mut tally = Tally::default();
        assert_eq!((tally.accuracy_of_served(), tally.accuracy_of_all()), (None, None));
        tally.missed(MissReason::Shed);
        assert_eq!((tally.accuracy_of_served(), tally.accuracy_of_all()), (None, Some(0.0)));
        tally.served(Span::ZERO, None);
        assert_eq!((tally.accuracy_of_served(), tally.accuracy_of_all()), (None, None));
        tally.served(Span::ZERO, Some(0.5));
        tally.served(Span::ZERO, Some(1.0));
        assert_eq!((tally.accuracy_of_served(), tally.accuracy_of_all()), (Some(0.75), Some(0.5)));
    }
}
