//! Growth: after which length a load repeats itself, and by how much it has grown then.

use crate::admission::Load;
use crate::arrival::ArrivalBound;
use crate::curve::ArrivalCurve;
use crate::word::Density;

/// From lengths of `from` on, every curve is governed by its slowest bound, and rises by the same number of
/// requests, [`growth`], in any `length` more. In nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repetition {
    pub(crate) from: u64,
    pub(crate) length: u64,
}

/// Of all curves of `load`, with the mandatory shares of their growth whole and `lengths` dividing it; `None`
/// beyond 64 bits.
pub(crate) fn repetition(load: &Load, lengths: impl IntoIterator<Item = u64>) -> Option<Repetition> {
    let steps = load.iter().flat_map(|(_, a)| a.bounds()).map(|b| b.rate().1.as_nanos());
    let whole = steps.chain(lengths).try_fold(1, lcm)?;
    let words = load.iter().map(|(d, _)| u64::from(d.denominator())).try_fold(1, lcm)?;
    let from = load.iter().try_fold(0, |from: u64, (_, a)| Some(from.max(settled(a)?)))?;
    Some(Repetition { from, length: whole.checked_mul(words)? })
}

/// By how many requests a settled curve rises in `length`, a multiple of its steps.
pub(crate) fn growth(arrivals: &ArrivalCurve, length: u64) -> u64 {
    let (count, per) = arrivals.slowest().rate();
    count.saturating_mul(length / per.as_nanos())
}

/// The length beyond which only the bounds of the least rate count.
fn settled(arrivals: &ArrivalCurve) -> Option<u64> {
    let slowest = arrivals.slowest();
    let overtaken = |bound: &ArrivalBound| {
        let ((n, w), (k, v)) = (bound.rate(), slowest.rate());
        let (w, v) = (u128::from(w.as_nanos()), u128::from(v.as_nanos()));
        // bound(Δ) ≥ n·Δ/w - e and slowest(Δ) ≤ k·Δ/v + f: overtaken once Δ·(n·v - k·w) ≥ (e + f)·w·v.
        let difference = (u128::from(n) * v).checked_sub(u128::from(k) * w)?;
        if difference == 0 {
            return Some(0);
        }
        let apart = u128::from(bound.shortfall_under_rate()) + u128::from(slowest.excess_over_rate());
        u64::try_from(apart.checked_mul(w)?.checked_mul(v)?.div_ceil(difference)).ok()
    };
    arrivals.bounds().iter().try_fold(0, |from: u64, bound| Some(from.max(overtaken(bound)?)))
}

/// `(r, e)` so that never more than `r·Δ + e` mandatory requests of a load come in `Δ` nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) rate: f64,
    pub(crate) excess: f64,
}

impl Envelope {
    pub(crate) fn of(load: &Load) -> Self {
        let of = |&(density, curve): &(Density, &ArrivalCurve)| {
            let slowest = curve.slowest();
            let (count, per) = slowest.rate();
            let share = density.as_f64();
            // Rounded up to whole requests.
            let rest = 1.0 - 1.0 / f64::from(density.denominator());
            (share * count as f64 / per.as_nanos() as f64, share * slowest.excess_over_rate() as f64 + rest)
        };
        let sum = |(r, e), (rate, excess)| (r + rate, e + excess);
        let (rate, excess) = load.iter().map(of).fold((0.0, 0.0), sum);
        Self { rate, excess }
    }

    /// `r + e`: in no longer than a nanosecond.
    pub(crate) fn at_once(self) -> f64 {
        self.rate + self.excess
    }
}

pub(crate) fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::arrival::tests::bound;
    use crate::time::Span;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn from_where_it_repeats_a_curve_grows_by_the_same(one in bound(), other in bound(), more in 0u64..50) {
            let curve = ArrivalCurve::new(&[one, other]).expect("two");
            let load = [(Density::ZERO, &curve)];
            let Some(Repetition { from, length }) = repetition(&load, []) else { return Ok(()) };
            let at = |length: u64| curve.count(Span::from_nanos(length));
            let from = from.max(1) + more;
            prop_assert_eq!(at(from + length), at(from) + growth(&curve, length));
        }
    }
}
