//! The worst trace that an arrival curve allows: every request as early as the bounds let it come.
//!
//! Each bound is a list of least distances: a trace `b` satisfies it if and only if `b(j) - b(i) ≥ D(j - i)`
//! for all `i < j`, where `D(k)` is `floor(k/N)·W` for a window of `N` in `W`, `k·T - J` (or 0) for a period
//! `T` with jitter `J`, and `d(k)` for distances. Of several bounds the largest `D(k)` counts.
//!
//! The greedy trace is `a(0) = 0`, `a(n) = max { a(i) + D(n - i) : i < n }`. It satisfies the bounds, because
//! the maximum covers every earlier request. And it is the worst: any trace that satisfies them has
//! `b(i + n) - b(i) ≥ a(n)`, by induction over `n`, since `b(i + n) - b(i + j) ≥ D(n - j)` and
//! `b(i + j) - b(i) ≥ a(j)` for all `j < n`. So whenever it has `n + 1` requests in some `[t, t+Δ)`, then
//! `a(n) < Δ`, and the greedy one has `n + 1` of its own in `[0, Δ)`.
//!
//! Its count in `[0, Δ)` is therefore the sub-additive closure of `α`, exactly. The least of the bounds can be
//! larger: of "2 in 10" and "1 in 4" it allows 4 requests in 13, but they come at 0, 4, 10 and 14.

use alloc::collections::VecDeque;

use crate::arrival::{ArrivalBound, MAX_BOUNDS};
use crate::curve::ArrivalCurve;
use crate::time::Span;

/// The offsets of the worst trace from its first request: `0 = a(0) ≤ a(1) ≤ …`. It ends where the clock
/// does, after 584 years.
#[derive(Clone, Debug)]
pub struct Greedy<'a> {
    bounds: &'a [ArrivalBound],
    /// The latest offsets, as many as any bound looks back at.
    recent: VecDeque<u64>,
    reach: usize,
    /// Of each bound that is periodic: the largest `a(i) + (n - i)·period` for the next request `n`.
    due: [u64; MAX_BOUNDS],
}

impl ArrivalCurve {
    /// The worst trace of this curve: no trace that satisfies it, whatever came before, has more requests in
    /// any `[t, t+Δ)` than this one in `[0, Δ)`, and this one satisfies it.
    ///
    /// Allocates once, for the largest window; each step costs one look at each bound, and at each distance.
    #[must_use]
    pub fn greedy(&self) -> Greedy<'_> {
        let reach = |bound: &ArrivalBound| match bound {
            ArrivalBound::Window { count, .. } => *count as usize,
            ArrivalBound::Periodic { .. } => 0,
            ArrivalBound::Distances(distances) => distances.as_slice().len(),
        };
        let reach = self.bounds().iter().map(reach).max().unwrap_or(0);
        Greedy {
            bounds: self.bounds(),
            recent: VecDeque::with_capacity(reach + 1),
            reach,
            due: [0; MAX_BOUNDS],
        }
    }
}

impl Greedy<'_> {
    /// The earliest offset at which `bound` allows the next request; `None` if it does not fit.
    fn earliest(&self, bound: &ArrivalBound, due: u64) -> Option<u64> {
        match bound {
            ArrivalBound::Window { count, length } => {
                let first = self.recent.len().checked_sub(*count as usize).map(|i| self.recent[i]);
                first.map_or(Some(0), |first| first.checked_add(length.as_nanos()))
            }
            ArrivalBound::Periodic { jitter, .. } => Some(due.saturating_sub(jitter.as_nanos())),
            ArrivalBound::Distances(distances) => {
                let mut latest_first = self.recent.iter().rev().zip(distances.as_slice());
                latest_first.try_fold(0, |most, (a, d)| Some(a.checked_add(d.as_nanos())?.max(most)))
            }
        }
    }
}

impl Iterator for Greedy<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let mut bounds = self.bounds.iter().zip(self.due);
        let offset = bounds.try_fold(0, |most, (b, due)| Some(self.earliest(b, due)?.max(most)))?;
        for (bound, due) in self.bounds.iter().zip(&mut self.due) {
            if let ArrivalBound::Periodic { period, .. } = bound {
                *due = offset.max(*due).checked_add(period.as_nanos())?;
            }
        }
        self.recent.push_back(offset);
        if self.recent.len() > self.reach {
            self.recent.pop_front();
        }
        Some(Span::from_nanos(offset))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::police::tests::{curve, satisfies};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn offsets(curve: &ArrivalCurve, count: usize) -> Vec<u64> {
        curve.greedy().take(count).map(Span::as_nanos).collect()
    }

    /// Calls `judge` with every trace of up to `longest` requests from 0, with gaps of up to `gap`, that
    /// satisfies `curve`.
    fn every_trace(
        curve: &ArrivalCurve,
        trace: &mut Vec<u64>,
        longest: usize,
        gap: u64,
        judge: &mut impl FnMut(&[u64]),
    ) {
        judge(trace);
        for next in trace[trace.len() - 1].. {
            if trace.len() == longest || next > trace[trace.len() - 1] + gap {
                break;
            }
            trace.push(next);
            if satisfies(trace, curve) {
                every_trace(curve, trace, longest, gap, judge);
            }
            trace.pop();
        }
    }

    proptest! {
        #[test]
        fn no_trace_is_denser_than_the_greedy_one(curve in curve()) {
            let greedy = offsets(&curve, 6);
            let mut traces = 0;
            every_trace(&curve, &mut Vec::from([0]), 6, 9, &mut |trace| {
                traces += 1;
                // Every interval that ends right behind the last request; earlier ones are other traces' last.
                let last = trace[trace.len() - 1];
                for &from in trace {
                    let inside = |&&a: &&u64| a >= from;
                    let worst = greedy.iter().filter(|&&a| a < last - from + 1).count();
                    assert!(trace.iter().filter(inside).count() <= worst, "{trace:?} against {greedy:?}");
                }
            });
            prop_assert!(traces > 0);
        }

        #[test]
        fn the_greedy_trace_satisfies_its_curve_and_none_can_come_earlier(curve in curve()) {
            let greedy = offsets(&curve, 60);
            prop_assert!(greedy.is_sorted() && greedy[0] == 0);
            prop_assert!(satisfies(&greedy, &curve));
            for n in 1..greedy.len() {
                let mut early = greedy[..=n].to_vec();
                early[n] = early[n].wrapping_sub(1);
                prop_assert!(early[n] < early[n - 1] || greedy[n] == 0 || !satisfies(&early, &curve));
            }
        }
    }

    #[test]
    fn the_least_of_two_bounds_can_allow_more_than_any_trace_has() {
        let window = |n, w| ArrivalBound::window(n, Span::from_nanos(w)).expect("valid");
        let curve = ArrivalCurve::new(&[window(2, 10), window(1, 4)]).expect("two");
        assert_eq!(offsets(&curve, 5), [0, 4, 10, 14, 20]);
        assert_eq!(curve.count(Span::from_nanos(13)), 4);
    }

    #[test]
    fn it_ends_where_the_clock_does() {
        let bound = ArrivalBound::window(1, crate::MAX_SPAN).expect("valid");
        let curve = ArrivalCurve::new(&[bound]).expect("one");
        let last = curve.greedy().last().expect("some");
        assert!(u64::MAX - last.as_nanos() < crate::MAX_SPAN.as_nanos());
    }
}
