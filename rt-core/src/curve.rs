//! Arrival curves: the bounds that a stream declares, together.

use alloc::vec;
use alloc::vec::Vec;

use crate::arrival::{ArrivalBound, ArrivalError, MAX_BOUNDS};
use crate::distances::{Distances, MAX_DISTANCES};
use crate::time::{Instant, MAX_SPAN, Span};

/// All that a stream declares: `α(Δ)` is the least of one to [`MAX_BOUNDS`] bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArrivalCurve(heapless::Vec<ArrivalBound, MAX_BOUNDS>);

impl ArrivalCurve {
    /// The least of `bounds`. They cannot contradict one another: each only limits from above, and one that
    /// others imply never binds.
    ///
    /// # Errors
    /// If there is none or more than [`MAX_BOUNDS`].
    pub fn new(bounds: &[ArrivalBound]) -> Result<Self, ArrivalError> {
        let error = ArrivalError::Bounds { count: bounds.len() };
        if bounds.is_empty() {
            return Err(error);
        }
        heapless::Vec::from_slice(bounds).map(Self).map_err(|_| error)
    }

    /// One request a `period`, each up to `jitter` late, and never nearer than `least` to the last one: the
    /// event model of compositional performance analysis (Richter 2005, SymTA/S).
    ///
    /// # Errors
    /// As [`ArrivalBound::periodic`], or if `least` is not in `1 ns..=period`: without a least distance the
    /// bound alone says all, and with one above the period requests could not come once a period.
    pub fn periodic(period: Span, jitter: Span, least: Span) -> Result<Self, ArrivalError> {
        let bound = ArrivalBound::periodic(period, jitter)?;
        if least == Span::ZERO || least > period {
            return Err(ArrivalError::LeastDistance { distance: least, period });
        }
        Self::new(&[bound, ArrivalBound::window(1, least)?])
    }

    /// The empirical curve of a trace: its least distances over all positions, and, where one of them bounds
    /// the long-run rate better than the last, the window that it makes.
    ///
    /// At most [`MAX_DISTANCES`] are kept; the first that reaches [`MAX_SPAN`] is cut to it and ends the list.
    /// The trace satisfies its curve. What comes later need not: a trace is evidence, not a bound.
    ///
    /// # Errors
    /// If there are fewer than two requests, one is earlier than the one before it, or so many come at once
    /// that all distances kept are zero.
    pub fn of_trace(trace: &[Instant]) -> Result<Self, ArrivalError> {
        if trace.len() < 2 {
            return Err(ArrivalError::TraceLength { len: trace.len() });
        }
        if let Some(i) = trace.windows(2).position(|pair| pair[1] < pair[0]) {
            let (before, instant) = (trace[i], trace[i + 1]);
            return Err(ArrivalError::TraceOrder { position: i + 1, instant, before });
        }
        let mut list = Vec::new();
        for apart in 1..trace.len().min(MAX_DISTANCES + 1) {
            let gaps = trace.iter().zip(&trace[apart..]).map(|(&first, last)| last.since(first));
            list.push(gaps.min().unwrap_or(MAX_SPAN).min(MAX_SPAN));
            if list[apart - 1] == MAX_SPAN {
                break;
            }
        }
        let distances = Distances::new(&list)?;
        // d(n)/n is largest where n requests in d(n) is the slowest rate; the last is good enough if equal.
        let steeper = |a: &(u64, Span), b: &(u64, Span)| (a.1.as_nanos() * b.0).cmp(&(b.1.as_nanos() * a.0));
        let steepest = (1..).zip(list.iter().copied()).max_by(steeper);
        let mut bounds = vec![ArrivalBound::Distances(distances)];
        if let Some((count, length)) = steepest.filter(|&(count, _)| count < list.len() as u64) {
            bounds.push(ArrivalBound::window(count, length)?);
        }
        Self::new(&bounds)
    }

    /// `α(length)`: the most requests in any half-open interval of that length.
    #[must_use]
    pub fn count(&self, length: Span) -> u64 {
        self.0.iter().map(|b| b.count(length)).min().unwrap_or(0)
    }

    /// Whether `other` is found to allow whatever this allows: each of its bounds does what one of these does
    /// ([`ArrivalBound::is_within`]).
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        other.0.iter().all(|wider| self.0.iter().any(|bound| bound.is_within(wider)))
    }

    /// The bounds, in the order given; at least one.
    #[must_use]
    pub fn bounds(&self) -> &[ArrivalBound] {
        &self.0
    }

    /// The first length above `length` at which the curve rises: where every bound allows more.
    pub(crate) fn next_rise(&self, length: Span) -> Span {
        self.length_above(self.count(length))
    }

    /// The least length that can hold more than `count` requests.
    pub(crate) fn length_above(&self, count: u64) -> Span {
        self.0.iter().map(|b| b.length_above(count)).max().unwrap_or(MAX_SPAN)
    }

    /// The long-run rate in requests a second: that of the slowest bound.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        let (count, per) = self.slowest().rate();
        count as f64 / per.as_secs_f64()
    }

    /// The bound with the smallest long-run rate; of equals, the one with the smallest excess over it.
    pub(crate) fn slowest(&self) -> &ArrivalBound {
        let slower = |a: &ArrivalBound, b: &ArrivalBound| {
            let ((n, w), (k, v)) = (a.rate(), b.rate());
            let (left, right) =
                (u128::from(n) * u128::from(v.as_nanos()), u128::from(k) * u128::from(w.as_nanos()));
            left.cmp(&right).then(a.excess_over_rate().cmp(&b.excess_over_rate()))
        };
        self.0.iter().min_by(|a, b| slower(a, b)).unwrap_or(&self.0[0])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    fn ns(n: u64) -> Span {
        Span::from_nanos(n)
    }

    fn trace(instants: impl IntoIterator<Item = u64>) -> Vec<Instant> {
        instants.into_iter().map(Instant::from_nanos).collect()
    }

    proptest! {
        #[test]
        fn rises_are_found_exactly_whatever_the_bounds(
            bounds in proptest::collection::vec(crate::arrival::tests::bound(), 1..=4), length in 0u64..60,
        ) {
            let curve = ArrivalCurve::new(&bounds).expect("few");
            let at = |length: u64| curve.count(ns(length));
            let next = (length + 1..).find(|&l| at(l) > at(length)).expect("every curve rises");
            prop_assert_eq!(curve.next_rise(ns(length)).as_nanos(), next);
        }

        #[test]
        fn what_is_within_another_curve_never_allows_more(
            bounds in proptest::collection::vec(crate::arrival::tests::bound(), 2..=5), first in 1usize..3,
        ) {
            let (one, other) = bounds.split_at(first.min(bounds.len() - 1));
            let (one, other) = (ArrivalCurve::new(one).expect("few"), ArrivalCurve::new(other).expect("few"));
            prop_assert!(one.is_within(&one));
            // A list of distances that is not closed counts more than can come: then it is about what comes.
            let adds_up = |bound: &ArrivalBound| {
                let at = |length: u64| bound.count(ns(length));
                (1..120).all(|a| (1..=a).all(|b| at(a + b) <= at(a) + at(b)))
            };
            prop_assume!(one.bounds().iter().all(adds_up));
            let never_more = (0..500).map(ns).all(|length| one.count(length) <= other.count(length));
            prop_assert!(!one.is_within(&other) || never_more);
            // One bound against another of its form, or a periodic one against a window, is decided.
            if let ([a], [b]) = (one.bounds(), other.bounds()) {
                use ArrivalBound::{Distances, Periodic, Window};
                let decided = matches!((a, b), (Periodic { .. }, Periodic { .. }) | (_, Window { .. } | Distances(_)));
                prop_assert!(!decided || a.is_within(b) == never_more, "{} and {}", a, b);
            }
        }

        /// Few of the periods above are that near to each other.
        #[test]
        fn of_two_periodic_curves_it_is_decided_which_is_within_the_other(
            (period, jitter) in (1u64..9, 0u64..20), (least, most) in (1u64..9, 0u64..20),
        ) {
            let [one, other] = [(period, jitter), (least, most)]
                .map(|(period, jitter)| ArrivalBound::periodic(ns(period), ns(jitter)).expect("valid"));
            let never_more = (0..500).map(ns).all(|length| one.count(length) <= other.count(length));
            prop_assert_eq!(one.is_within(&other), never_more);
        }

        #[test]
        fn a_trace_satisfies_its_curve_and_reaches_it(gaps in proptest::collection::vec(0u64..9, 1..200), last in 1u64..9) {
            let trace = trace([0].into_iter().chain(gaps).chain([last]).scan(0, |now, gap| { *now += gap; Some(*now) }));
            let curve = ArrivalCurve::of_trace(&trace).expect("a trace");
            let reached = |length: Span| {
                let from = |&first: &Instant| trace.iter().filter(|a| **a >= first && a.since(first) < length).count() as u64;
                trace.iter().map(from).max().expect("requests")
            };
            let (end, kept) = (trace[trace.len() - 1].since(trace[0]), trace.len().min(MAX_DISTANCES + 1) as u64);
            for length in (1..=end.as_nanos() + 1).map(ns) {
                let (most, allowed) = (reached(length), curve.count(length));
                prop_assert!(most <= allowed);
                prop_assert!(most >= kept || most == allowed, "exact on the list");
            }
        }
    }

    #[test]
    fn a_bursty_trace_is_bounded_by_its_bursts_in_the_long_run() {
        // 40 at once every 100: the 64th distance alone would allow 64 in 100.
        let bursts = trace((0..400).map(|i| i / 40 * 100));
        let curve = ArrivalCurve::of_trace(&bursts).expect("a trace");
        assert_eq!(curve.slowest().rate(), (40, ns(100)));
        assert_eq!(curve.count(ns(100_000)), 40_000);
        let even = ArrivalCurve::of_trace(&trace((0..400).map(|i| i * 7))).expect("a trace");
        assert_eq!(even.bounds().len(), 1);
    }

    #[test]
    fn periodic_requests_with_jitter_keep_their_least_distance() {
        let curve = ArrivalCurve::periodic(ns(10), ns(25), ns(2)).expect("valid");
        // δ⁻(n) = max((n - 1)·2, (n - 1)·10 - 25): 0, 2, 4, 6, 15, 25, ...
        let at = |d| curve.count(ns(d));
        assert_eq!([1, 2, 3, 5, 7, 15, 16, 25, 26].map(at), [1, 1, 2, 3, 4, 4, 5, 5, 6]);
        let refused = |least| Err(ArrivalError::LeastDistance { distance: ns(least), period: ns(10) });
        assert_eq!(ArrivalCurve::periodic(ns(10), ns(0), ns(11)), refused(11));
        assert_eq!(ArrivalCurve::periodic(ns(10), ns(0), ns(0)), refused(0));
    }

    #[test]
    fn nonsense_is_refused_with_position_and_values() {
        assert_eq!(ArrivalCurve::new(&[]), Err(ArrivalError::Bounds { count: 0 }));
        let of = |instants: &[u64]| ArrivalCurve::of_trace(&trace(instants.iter().copied()));
        assert_eq!(of(&[5]), Err(ArrivalError::TraceLength { len: 1 }));
        let [instant, before] = [7, 9].map(Instant::from_nanos);
        assert_eq!(of(&[4, 9, 7]), Err(ArrivalError::TraceOrder { position: 2, instant, before }));
        assert_eq!(of(&[4; 70]), Err(ArrivalError::Unbounded { count: 64 }));
        // Hours apart: the list ends at the longest span.
        let hours = of(&[0, 0, 3 * MAX_SPAN.as_nanos(), 9 * MAX_SPAN.as_nanos()]).expect("two at once");
        assert_eq!(hours.bounds(), [ArrivalBound::distances(&[ns(0), MAX_SPAN]).expect("valid")]);
    }
}
