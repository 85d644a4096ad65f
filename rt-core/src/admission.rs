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

use crate::arrival::{ArrivalBound, ArrivalCurve};
use crate::profile::LatencyProfile;
use crate::stream::StreamSpec;
use crate::time::Span;
use crate::word::Density;

/// The streams that a test counts: the density each must be served at, and how its requests come.
type Load<'a> = [(Density, &'a ArrivalCurve)];

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
    fn round(&self) -> u128 {
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

    /// A length beyond which the inequality holds if it held up to there.
    ///
    /// Each stream is under its slowest bound: `ρ·α(Δ) ≤ ρ·(x + r·Δ)`, so `α_m(Δ) ≤ a + u·Δ` with `u` the
    /// long-run mandatory rate and `a = Σ (ρ·x + 1)`. If `u` is below the workers' `n·B/P`, the line `δ + L`
    /// overtakes `P·(2 + (a + u·Δ)/(n·B))` for good at some `Δ`. If `u` equals it, `α_m` repeats: once
    /// every stream is governed by its slowest bound, adding a common multiple `H` of all `q_s·W_s` to `Δ`
    /// adds exactly `u·H` to `α_m`, and with `u·H` a multiple of `n·B` both sides rise by `H`.
    fn horizon(&self, load: &Load) -> Result<Span, AdmissionError> {
        let capacity = Fraction::new(self.round(), u128::from(self.batch_time().as_nanos()));
        let mut demand = Fraction::new(0, 1);
        let mut offset = 0u128;
        for (density, arrivals) in load {
            let slowest = arrivals.slowest();
            let (count, per) = slowest.rate();
            let (p, q) = (u128::from(density.numerator()), u128::from(density.denominator()));
            let rate = Fraction::new(u128::from(count) * p, u128::from(per.as_nanos()) * q);
            demand = demand.add(rate).ok_or(AdmissionError::Horizon)?;
            offset += (u128::from(slowest.excess_over_rate()) * p).div_ceil(q) + 1;
        }
        let slack = capacity.cmp_to(demand).ok_or(AdmissionError::Horizon)?;
        match slack {
            Slack::Negative => Err(AdmissionError::Rate {
                demand_per_s: demand.per_second().1,
                capacity_per_s: capacity.per_second().0,
            }),
            Slack::Positive(difference) => {
                // P·(2 + (a + u·Δ)/(n·B)) ≤ Δ - 1 + L  ⇐  Δ·(c - u) ≥ c·(2P + 1) + a, with c = n·B/P.
                let p = u128::from(self.batch_time().as_nanos());
                let needed = (2 * p + 1)
                    .checked_mul(capacity.numerator)
                    .map(|x| x.div_ceil(capacity.denominator))
                    .and_then(|x| x.checked_add(offset))
                    .and_then(|x| x.checked_mul(difference.denominator))
                    .map(|x| x.div_ceil(difference.numerator));
                let affine = needed.and_then(|x| u64::try_from(x).ok()).map(Span::from_nanos);
                match (affine, self.period(load)) {
                    (Some(a), Some(b)) => Ok(a.min(b)),
                    (a, b) => a.or(b).ok_or(AdmissionError::Horizon),
                }
            }
            Slack::None => self.period(load).ok_or(AdmissionError::Horizon),
        }
    }

    /// The length after which both sides of the inequality repeat, if it fits 64 bits.
    fn period(&self, load: &Load) -> Option<Span> {
        let mut common = 1u128;
        let mut settled = 0u128;
        for (density, arrivals) in load {
            let slowest = arrivals.slowest();
            let (_, per) = slowest.rate();
            let q = u128::from(density.denominator());
            common = lcm(common, u128::from(per.as_nanos()).checked_mul(q)?)?;
            for bound in arrivals.bounds() {
                match overtaken_at(bound.rate(), slowest)? {
                    // Of the same rate: the least of both repeats only when both do.
                    0 => common = lcm(common, u128::from(bound.rate().1.as_nanos()).checked_mul(q)?)?,
                    length => settled = settled.max(length),
                }
            }
        }
        let mut arrived = 0u128;
        for (density, arrivals) in load {
            let (count, per) = arrivals.slowest().rate();
            let windows = common / u128::from(per.as_nanos());
            let requests = windows.checked_mul(u128::from(count))?;
            arrived = arrived.checked_add(
                requests.checked_mul(u128::from(density.numerator()))? / u128::from(density.denominator()),
            )?;
        }
        let repeats = self.round() / gcd(arrived, self.round());
        let horizon = common.checked_mul(repeats)?.checked_add(settled)?.checked_add(1)?;
        u64::try_from(horizon).ok().map(Span::from_nanos)
    }
}

/// How much later than it must the last answer may come; the smaller the tighter.
fn margin(binding: &Binding) -> i128 {
    i128::from(binding.rhs.as_nanos()) - i128::from(binding.lhs.as_nanos())
}

/// A length, above 0, beyond which a bound of rate `other` stays above `slowest` for good; 0 if it has the
/// same rate and never does.
fn overtaken_at(other: (u64, Span), slowest: ArrivalBound) -> Option<u128> {
    let (n, w) = (u128::from(other.0), u128::from(other.1.as_nanos()));
    let (rate, per) = slowest.rate();
    let (k, v) = (u128::from(rate), u128::from(per.as_nanos()));
    // other(Δ) ≥ n·Δ/w and slowest(Δ) ≤ x + k·Δ/v: overtaken once Δ·(n·v - k·w) ≥ x·w·v.
    let difference = n.checked_mul(v)?.checked_sub(k.checked_mul(w)?)?;
    if difference == 0 {
        return Some(0);
    }
    let x = u128::from(slowest.excess_over_rate());
    Some(x.checked_mul(w)?.checked_mul(v)?.div_ceil(difference))
}

/// A non-negative rate in requests a nanosecond, in lowest terms.
#[derive(Clone, Copy)]
struct Fraction {
    numerator: u128,
    denominator: u128,
}

enum Slack {
    Negative,
    None,
    Positive(Fraction),
}

impl Fraction {
    fn new(numerator: u128, denominator: u128) -> Self {
        let divisor = gcd(numerator, denominator).max(1);
        Self { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    fn add(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Some(Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?))
    }

    /// `self - demand`, by sign.
    fn cmp_to(self, demand: Self) -> Option<Slack> {
        let left = self.numerator.checked_mul(demand.denominator)?;
        let right = demand.numerator.checked_mul(self.denominator)?;
        Some(match left.checked_sub(right) {
            None => Slack::Negative,
            Some(0) => Slack::None,
            Some(d) => Slack::Positive(Self::new(d, self.denominator.checked_mul(demand.denominator)?)),
        })
    }

    /// Requests a second, rounded down and up.
    fn per_second(self) -> (u64, u64) {
        let scaled = self.numerator.saturating_mul(1_000_000_000);
        let clamp = |x: u128| u64::try_from(x).unwrap_or(u64::MAX);
        (clamp(scaled / self.denominator), clamp(scaled.div_ceil(self.denominator)))
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn lcm(a: u128, b: u128) -> Option<u128> {
    (a / gcd(a, b).max(1)).checked_mul(b)
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
