//! The admission test: whether identical workers on one queue keep every promise (Theorem A).
//!
//! Let `α_m(Δ) = Σ ceil(ρ_s·α_s(Δ))` over the streams be the most *mandatory* requests in any half-open
//! interval of length `Δ`. `n` workers running batches of `B` in at most `P` serve every mandatory request
//! within `L` of its arrival, whatever the arrivals, if at every offset `δ ≥ 0` behind a batch start that
//! left none waiting
//!
//! ```text
//! P · (1 + ceil(α_m(δ + 1 ns) / (n·B)))  ≤  δ + L .
//! ```
//!
//! Times are integers: `α_m(δ + 1 ns)` counts the requests that came up to and including `δ`. The left
//! side is constant between the rises of `α_m`, so only those are tested. The test is sufficient for both
//! dispatch rules; where it says no, the load may still be servable (`docs/guarantee.md`).

use alloc::vec::Vec;

use crate::curve::ArrivalCurve;
use crate::profile::LatencyProfile;
use crate::stream::StreamSpec;
use crate::time::Span;
use crate::word::Density;

/// The streams that a test counts: the density each must be served at, and how its requests come.
pub(crate) type Load<'a> = [(Density, &'a ArrivalCurve)];

/// The most rises of `α_m` that a test looks at; a load that needs more is refused, never waved through.
const MAX_RISES: u64 = 1 << 20;

/// When a free worker takes a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// At once, whatever waits.
    #[default]
    Eager,
    /// When a full batch waits, or the earliest deadline leaves just the time of a full batch.
    FullOrLatest,
}

/// The hardware side of a promise: identical workers on one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Bounds on batch times; a full batch is `batch` requests in `P = P(batch)`.
    pub profile: LatencyProfile,
    /// `B`, in `1..=profile.max_batch()`: the batch size that the promise is computed for.
    pub batch: usize,
    /// `n ≥ 1` workers.
    pub workers: usize,
    /// `L`: from arrival to answer, the user's deadline less the guard.
    pub latency: Span,
}

/// The tightest instant of an admission test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Offset `δ` of the last arrival behind the start of the busy period.
    pub delta: Span,
    /// Mandatory requests that may have come by then, `α_m(δ + 1 ns)`.
    pub backlog: u64,
    /// When the last of them is answered at the latest, `P·(1 + ceil(backlog/(n·B)))`.
    pub lhs: Span,
    /// When it must be answered, `δ + L`.
    pub rhs: Span,
}

/// The answer to an admission test that says yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Where the margin `rhs - lhs` is smallest; `None` if nothing is promised to anyone.
    pub binding: Option<Binding>,
    /// The most mandatory requests that can wait at once; the queue must hold them.
    pub waiting: u64,
}

/// Why a load is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// `batch` or `workers` outside its range.
    #[error("batch {batch} is outside 1..={max_batch}, or {workers} workers are none")]
    System {
        /// Batch size asked for.
        batch: usize,
        /// Largest batch of the profile.
        max_batch: usize,
        /// Workers asked for.
        workers: usize,
    },
    /// In the long run more mandatory requests come than the workers can serve.
    #[error("{demand_per_s} mandatory requests/s are above the {capacity_per_s} requests/s of the workers")]
    Rate {
        /// Mandatory requests a second, rounded up.
        demand_per_s: u64,
        /// Requests a second in full batches, rounded down.
        capacity_per_s: u64,
    },
    /// A burst cannot be served in time; the binding instant says which.
    #[error(
        "{} mandatory requests within {} need up to {}, but {} is all there is",
        .0.backlog, .0.delta, .0.lhs, .0.rhs
    )]
    Burst(
        /// The instant at which the inequality fails by most.
        Binding,
    ),
    /// The load is so close to capacity, or its periods so unlike, that too many instants would need a look.
    #[error(
        "more than {MAX_RISES} instants to test: lower the load a little, or use periods that divide one another"
    )]
    Horizon,
}

impl System {
    /// Runs the test on `streams`; best-effort streams (no constraints) demand nothing.
    ///
    /// # Errors
    /// If the promise cannot be given: [`AdmissionError`] says why. Theory: section 3, Theorem A.
    pub fn admit<'a, I>(&self, streams: I) -> Result<Admission, AdmissionError>
    where
        I: IntoIterator<Item = &'a StreamSpec>,
    {
        let max_batch = self.profile.max_batch();
        if self.batch == 0 || self.batch > max_batch || self.workers == 0 {
            return Err(AdmissionError::System { batch: self.batch, max_batch, workers: self.workers });
        }
        let load: Vec<_> = streams.into_iter().filter_map(StreamSpec::demand).collect();
        if load.is_empty() {
            return Ok(Admission { binding: None, waiting: 0 });
        }
        let horizon = self.horizon(&load)?;
        let mut tightest: Option<Binding> = None;
        let mut waiting = 0;
        let mut length = Span::from_nanos(1);
        for _ in 0..MAX_RISES {
            if length > horizon {
                return match tightest {
                    Some(b) if b.lhs > b.rhs => Err(AdmissionError::Burst(b)),
                    binding => Ok(Admission { binding, waiting }),
                };
            }
            let binding = self.at(&load, length);
            waiting = waiting.max(self.waiting(&binding));
            if tightest.is_none_or(|t| margin(&binding) < margin(&t)) {
                tightest = Some(binding);
            }
            length = load.iter().map(|(_, arrivals)| arrivals.next_rise(length)).min().unwrap_or(horizon);
        }
        match tightest {
            Some(b) if b.lhs > b.rhs => Err(AdmissionError::Burst(b)),
            _ => Err(AdmissionError::Horizon),
        }
    }

    /// `P`, the time of a full batch.
    #[must_use]
    pub fn batch_time(&self) -> Span {
        self.profile.bound(self.batch)
    }

    /// `n·B`, the requests served in one round of full batches.
    pub(crate) fn round(&self) -> u128 {
        self.workers as u128 * self.batch as u128
    }

    /// The most mandatory requests waiting at the offset of `binding`: from the first batch time on, `n`
    /// full batches have begun in each; up to `B - 1` may have waited for their batch to fill before.
    fn waiting(&self, binding: &Binding) -> u64 {
        let begun = u128::from(binding.delta.as_nanos() / self.batch_time().as_nanos()) * self.round();
        let left = u128::from(binding.backlog).saturating_sub(begun);
        u64::try_from(left).unwrap_or(u64::MAX).saturating_add(self.batch as u64 - 1)
    }

    fn at(&self, load: &Load, length: Span) -> Binding {
        let backlog: u64 =
            load.iter().map(|(density, a)| density.ceil_of(a.count(length))).fold(0, u64::saturating_add);
        let rounds = 1 + u128::from(backlog).div_ceil(self.round());
        let lhs = u128::from(self.batch_time().as_nanos()).saturating_mul(rounds);
        let delta = length.saturating_sub(Span::from_nanos(1));
        Binding {
            delta,
            backlog,
            lhs: Span::from_nanos(u64::try_from(lhs).unwrap_or(u64::MAX)),
            rhs: delta + self.latency,
        }
    }
}

/// How much later than it must the last answer may come; the smaller the tighter.
fn margin(binding: &Binding) -> i128 {
    i128::from(binding.rhs.as_nanos()) - i128::from(binding.lhs.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrival::ArrivalBound;
    use crate::constraint::{Constraint, ConstraintSet};

    fn stream(m: u32, k: u32, bound: ArrivalBound) -> StreamSpec {
        let set = ConstraintSet::new(&[Constraint::any_miss(m, k).expect("m < k")]).expect("one");
        StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
    }

    fn window(count: u64, length: u64) -> ArrivalBound {
        ArrivalBound::window(count, Span::from_nanos(length)).expect("valid")
    }

    fn system(time: u64, latency: u64) -> System {
        let profile = LatencyProfile::new(&[Span::from_nanos(time)]).expect("valid");
        System { profile, batch: 1, workers: 1, latency: Span::from_nanos(latency) }
    }

    /// The worked example of `docs/guarantee.md`, in microseconds.
    #[test]
    fn the_example_of_the_guarantee_page() {
        let admission = system(2_000, 6_000).admit([&stream(1, 2, window(2, 4_000))]).expect("it holds");
        let span = Span::from_nanos;
        let binding = Binding { delta: Span::ZERO, backlog: 1, lhs: span(4_000), rhs: span(6_000) };
        assert_eq!(admission.binding, Some(binding));
        assert_eq!(system(2_000, 6_000).at(&[], span(1)).backlog, 0);
    }

    /// The example of a pessimistic no, from section 3 of the theory.
    #[test]
    fn a_burst_that_fills_its_own_blocking_batch_is_refused_though_it_could_be_served() {
        let refused = system(3, 7).admit([&stream(0, 1, window(2, 6))]).expect_err("two need 9, there are 7");
        let AdmissionError::Burst(b) = refused else { panic!("{refused}") };
        assert_eq!((b.backlog, b.lhs.as_nanos(), b.rhs.as_nanos()), (2, 9, 7));
    }

    #[test]
    fn more_than_the_workers_can_serve_is_refused_by_its_rate() {
        let second = 1_000_000_000;
        let refused = system(second / 10, 10 * second).admit([&stream(0, 1, window(11, second))]);
        assert_eq!(refused, Err(AdmissionError::Rate { demand_per_s: 11, capacity_per_s: 10 }));
        assert!(system(second / 10, 10 * second).admit([&stream(0, 1, window(10, second))]).is_ok());
    }

    #[test]
    fn best_effort_streams_ask_for_nothing_and_nonsense_is_refused() {
        let nothing = Admission { binding: None, waiting: 0 };
        assert_eq!(system(5, 1).admit([&StreamSpec::best_effort()]), Ok(nothing));
        let none = System { workers: 0, ..system(1, 9) };
        assert!(matches!(none.admit([]), Err(AdmissionError::System { workers: 0, .. })));
    }

    #[test]
    fn a_period_so_long_that_the_products_overflow_is_refused_not_waved_through() {
        let odd = |length| stream(1, 4093, window(1, length));
        let load = [odd(3_599_999_999_999), odd(3_599_999_999_993), odd(3_599_999_999_977)];
        let system = system(3_600_000_000_000 / 3, 3_600_000_000_000);
        assert!(!matches!(system.admit(&load), Ok(Admission { binding: None, .. })));
    }
}
