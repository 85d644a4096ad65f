//! Growth: after which length a load repeats itself, and by how much it has grown then.

use crate::admission::Load;
use crate::arrival::{ArrivalBound, ArrivalCurve};

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
        // n·Δ/w - e ≥ k·Δ/v + f, with e and f their excesses, once Δ·(n·v - k·w) ≥ (e + f)·w·v.
        let difference = (u128::from(n) * v).checked_sub(u128::from(k) * w)?;
        if difference == 0 {
            return Some(0);
        }
        let excess = u128::from(bound.excess_over_rate()) + u128::from(slowest.excess_over_rate());
        u64::try_from(excess.checked_mul(w)?.checked_mul(v)?.div_ceil(difference)).ok()
    };
    arrivals.bounds().iter().try_fold(0, |from: u64, bound| Some(from.max(overtaken(bound)?)))
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}
