//! How far the admission test must look: up to where the long-run slack takes over, or all repeats.

use crate::admission::{AdmissionError, Load, System};
use crate::arrival::ArrivalBound;
use crate::time::Span;

impl System {
    /// A length beyond which the inequality holds if it held up to there.
    ///
    /// Each stream is under its slowest bound: `ρ·α(Δ) ≤ ρ·(x + r·Δ)`, so `α_m(Δ) ≤ a + u·Δ` with `u` the
    /// long-run mandatory rate and `a = Σ (ρ·x + 1)`. If `u` is below the workers' `n·B/P`, the line `δ + L`
    /// overtakes `P·(2 + (a + u·Δ)/(n·B))` for good at some `Δ`. If `u` equals it, `α_m` repeats: once
    /// every stream is governed by its slowest bound, adding a common multiple `H` of all `q_s·W_s` to `Δ`
    /// adds exactly `u·H` to `α_m`, and with `u·H` a multiple of `n·B` both sides rise by `H`.
    pub(crate) fn horizon(&self, load: &Load) -> Result<Span, AdmissionError> {
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
                match overtaken_at(bound, slowest)? {
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

/// A length, above 0, beyond which `other` stays above `slowest` for good; 0 if it has the same rate and
/// never does.
fn overtaken_at(other: &ArrivalBound, slowest: &ArrivalBound) -> Option<u128> {
    let rate = |(count, per): (u64, Span)| (u128::from(count), u128::from(per.as_nanos()));
    let ((n, w), (k, v)) = (rate(other.rate()), rate(slowest.rate()));
    // other(Δ) ≥ n·Δ/w - y and slowest(Δ) ≤ x + k·Δ/v: overtaken once Δ·(n·v - k·w) ≥ (x + y)·w·v.
    let difference = n.checked_mul(v)?.checked_sub(k.checked_mul(w)?)?;
    if difference == 0 {
        return Some(0);
    }
    let apart = u128::from(slowest.excess_over_rate()) + u128::from(other.shortfall_under_rate());
    Some(apart.checked_mul(w)?.checked_mul(v)?.div_ceil(difference))
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
    extern crate std;
    use super::*;
    use crate::arrival::tests::bound;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_faster_bound_that_is_overtaken_stays_above(one in bound(), other in bound()) {
            let Some(settled) = overtaken_at(&other, &one).filter(|&settled| settled > 0) else { return Ok(()) };
            let settled = u64::try_from(settled).expect("small");
            for length in (settled + 1..settled + 100).map(Span::from_nanos) {
                prop_assert!(other.count(length) >= one.count(length), "{} and {}", other, one);
            }
        }
    }
}
