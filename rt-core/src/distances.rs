//! Least distances between requests: what a recorded trace, or any other curve, says about arrivals.
//!
//! Compositional performance analysis describes events by `δ⁻(n)`, the least time from the first to the
//! last of `n` of them (Richter 2005, SymTA/S). Here `d(i) = δ⁻(i + 1)` for `i = 1..=N` is a list, and
//! beyond it `d(q·N + r) = q·d(N) + d(r)` with `d(0) = 0`: whoever keeps the list keeps these sums.

use alloc::boxed::Box;
use core::fmt;

use crate::arrival::ArrivalError;
use crate::time::{MAX_SPAN, Span};

/// The most distances of one bound: a request is checked against so many earlier ones.
pub const MAX_DISTANCES: usize = 64;

/// The least distances from a request to the next, to the one after that, and so on:
/// `d(1) ≤ d(2) ≤ … ≤ d(N)`, `1 ≤ N ≤` [`MAX_DISTANCES`], `0 < d(N)`, and `d(i + j) ≥ d(i) + d(j)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Distances(Box<[Span]>);

impl Distances {
    /// The bound with `distances[i - 1] = d(i)`; where it is less than what two shorter distances add up to, that
    /// sum, for who keeps those keeps it.
    ///
    /// # Errors
    /// If there are no distances or more than [`MAX_DISTANCES`], one is above [`MAX_SPAN`], they decrease, or
    /// all are zero, which would bound nothing.
    pub fn new(distances: &[Span]) -> Result<Self, ArrivalError> {
        let count = distances.len();
        if count == 0 || count > MAX_DISTANCES {
            return Err(ArrivalError::Distances { count });
        }
        let mut before = Span::ZERO;
        for (i, &distance) in distances.iter().enumerate() {
            let index = i + 1;
            if distance > MAX_SPAN {
                return Err(ArrivalError::Distance { index, distance });
            }
            if distance < before {
                return Err(ArrivalError::Decreasing { index, distance, before });
            }
            before = distance;
        }
        if before == Span::ZERO {
            return Err(ArrivalError::Unbounded { count });
        }
        let mut closed: Box<[Span]> = distances.into();
        for last in 1..count {
            let sums = (0..last).map(|i| closed[i] + closed[last - 1 - i]);
            closed[last] = closed[last].max(sums.max().unwrap_or(Span::ZERO));
        }
        Ok(Self(closed))
    }

    /// `d(1), …, d(N)`.
    #[must_use]
    pub fn as_slice(&self) -> &[Span] {
        &self.0
    }

    /// `α(length) = 1 + max { i : d(i) < length }`: a request and the `i`-th after it lie in one half-open
    /// interval if and only if their distance is below its length. 0 in an empty interval.
    pub(crate) fn count(&self, length: Span) -> u64 {
        let Some(reach) = length.as_nanos().checked_sub(1) else { return 0 };
        let (n, whole) = self.period();
        let within = self.0.partition_point(|d| d.as_nanos() <= reach % whole);
        (reach / whole).saturating_mul(n).saturating_add(within as u64 + 1)
    }

    /// `d(i)` in nanoseconds, for any `i`.
    pub(crate) fn distance(&self, i: u64) -> u64 {
        let (n, whole) = self.period();
        let rest = (i % n).checked_sub(1).map_or(0, |rest| self.0[rest as usize].as_nanos());
        (i / n).saturating_mul(whole).saturating_add(rest)
    }

    /// The long-run rate: `N` requests in `d(N)`.
    pub(crate) fn rate(&self) -> (u64, Span) {
        let (n, whole) = self.period();
        (n, Span::from_nanos(whole))
    }

    /// An upper bound on `α(Δ) - rate·Δ`, in requests: `α(Δ) = 1 + q·N + r` needs `Δ > q·d(N) + d(r)`.
    pub(crate) fn excess_over_rate(&self) -> u64 {
        let (n, whole) = self.period();
        let above = |(r, d): (u64, &Span)| (r + 1).saturating_sub(n * d.as_nanos() / whole);
        (1..).zip(&self.0).map(above).max().unwrap_or(0).max(1)
    }

    /// An upper bound on `rate·Δ - α(Δ)`, in requests: `α(Δ) = q·N + r` needs `Δ ≤ q·d(N) + d(r)`. Unlike a
    /// window, a list may lie below its long-run rate for a while.
    pub(crate) fn shortfall_under_rate(&self) -> u64 {
        let (n, whole) = self.period();
        let below = |(r, d): (u64, &Span)| (n * d.as_nanos()).div_ceil(whole).saturating_sub(r);
        (1..).zip(&self.0).map(below).max().unwrap_or(0)
    }

    /// `N`, and `d(N)` in nanoseconds, above 0; their products with each other fit 64 bits.
    fn period(&self) -> (u64, u64) {
        (self.0.len() as u64, self.0[self.0.len() - 1].as_nanos())
    }
}

impl fmt::Display for Distances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0[0], self.0[self.0.len() - 1]);
        match self.0.len() {
            1 => write!(f, "distance {first}"),
            n => write!(f, "{n} distances, {first} to {last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn ns(n: u64) -> Span {
        Span::from_nanos(n)
    }

    /// `d(i)` by the definition.
    fn extended(list: &[Span], i: u64) -> u64 {
        let n = list.len() as u64;
        let rest = (i % n).checked_sub(1).map_or(0, |r| list[r as usize].as_nanos());
        i / n * list[list.len() - 1].as_nanos() + rest
    }

    fn list() -> impl Strategy<Value = Vec<Span>> {
        proptest::collection::vec(0u64..12, 1..9).prop_filter_map("all zero", |mut list| {
            list.sort_unstable();
            (list[list.len() - 1] > 0).then(|| list.into_iter().map(ns).collect())
        })
    }

    proptest! {
        #[test]
        fn the_curve_is_its_definition(list in list(), length in 1u64..200) {
            let distances = Distances::new(&list).expect("valid");
            let last = (0..).take_while(|&i| extended(distances.as_slice(), i) < length).last().expect("d(0) = 0");
            prop_assert_eq!(distances.count(ns(length)), last + 1);
            prop_assert_eq!(distances.count(Span::ZERO), 0);
        }

        #[test]
        fn gaps_keep_the_list_as_given_if_and_only_if_they_keep_it_closed(
            list in list(), gaps in proptest::collection::vec(0u64..14, 1..12),
        ) {
            let distances = Distances::new(&list).expect("valid");
            let kept = |list: &[Span]| {
                let far = |(i, d): (usize, &Span)| gaps.windows(i + 1).all(|w| w.iter().sum::<u64>() >= d.as_nanos());
                list.iter().enumerate().all(far)
            };
            prop_assert_eq!(kept(&list), kept(distances.as_slice()));
        }

        #[test]
        fn the_curve_stays_between_its_two_lines(list in list(), length in 1u64..500) {
            let distances = Distances::new(&list).expect("valid");
            let (n, per) = distances.rate();
            let (count, line) = (distances.count(ns(length)) * per.as_nanos(), n * length);
            prop_assert!(count <= line + distances.excess_over_rate() * per.as_nanos());
            prop_assert!(count + distances.shortfall_under_rate() * per.as_nanos() >= line);
        }
    }

    #[test]
    fn nonsense_is_refused_with_position_and_values() {
        let refused = |list: &[u64]| {
            Distances::new(&list.iter().copied().map(ns).collect::<Vec<_>>()).expect_err("nonsense")
        };
        assert_eq!(refused(&[]), ArrivalError::Distances { count: 0 });
        assert_eq!(refused(&[1; 65]), ArrivalError::Distances { count: 65 });
        assert_eq!(refused(&[0, 0]), ArrivalError::Unbounded { count: 2 });
        assert_eq!(refused(&[3, 2]), ArrivalError::Decreasing { index: 2, distance: ns(2), before: ns(3) });
        let long = MAX_SPAN.as_nanos() + 1;
        assert_eq!(refused(&[1, long]), ArrivalError::Distance { index: 2, distance: ns(long) });
    }
}
