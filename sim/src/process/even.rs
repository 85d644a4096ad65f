//! Arrivals on a grid: one or several at every point, exactly there or late.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rt_core::Instant;

use super::draws::Draws;
use super::ticks::Ticks;

/// `size` requests at each multiple of a period, rounded down to nanoseconds, from 0 on.
#[derive(Clone, Debug)]
pub(super) struct Even {
    now: Ticks,
    period: Ticks,
    size: u32,
    /// How many are still to come now.
    left: u32,
}

impl Even {
    pub(super) fn new(period: Ticks, size: u32) -> Self {
        Self { now: Ticks::ZERO, period, size, left: size }
    }

    pub(super) fn next(&mut self) -> Option<Instant> {
        if self.left == 0 {
            self.now = self.now.after(self.period)?;
            self.left = self.size;
        }
        self.left -= 1;
        Some(self.now.instant())
    }
}

/// One request a period, each late by less than `jitter`, in order of time.
///
/// Requests may overtake one another, yet the `i`-th arrival, like the `i`-th request, comes in
/// `[i·period, i·period + jitter)`: the first `i + 1` requests are there by its end, and none but the first `i`
/// before its start. So the arrivals keep to the periodic bound.
#[derive(Clone, Debug)]
pub(super) struct Jittered {
    /// When the next request is due; `None` beyond the clock.
    due: Option<Ticks>,
    period: Ticks,
    jitter: Ticks,
    /// Those released but not yet sent: no more than are due in the time of the jitter, and one.
    late: BinaryHeap<Reverse<Instant>>,
    draws: Draws,
}

impl Jittered {
    pub(super) fn new(period: Ticks, jitter: Ticks, draws: Draws) -> Self {
        Self { due: Some(Ticks::ZERO), period, jitter, late: BinaryHeap::new(), draws }
    }

    pub(super) fn reseed(&mut self, draws: Draws) {
        self.draws = draws;
    }

    pub(super) fn next(&mut self) -> Option<Instant> {
        while let Some(due) = self.due {
            if self.late.peek().is_some_and(|&Reverse(first)| first <= due.instant()) {
                break;
            }
            let late = due.after(self.jitter.part(self.draws.bits()));
            self.late.extend(late.map(|late| Reverse(late.instant())));
            self.due = due.after(self.period);
        }
        self.late.pop().map(|Reverse(first)| first)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.late.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use crate::process::tests::{curve_of, keeps};
    use proptest::prelude::*;
    use rt_core::{ArrivalBound, Span};

    fn ticks(nanos: f64) -> Ticks {
        Ticks::of_nanos(nanos).expect("inside the clock")
    }

    proptest! {
        #[test]
        fn late_requests_keep_to_the_periodic_bound(
            period in 1u64..40, jitter in 0u64..200, seed: u64,
        ) {
            let mut source = Jittered::new(ticks(period as f64), ticks(jitter as f64), Draws::new(seed));
            let mut sent = Vec::new();
            while sent.len() < 2_000 {
                sent.extend(source.next());
                prop_assert!(source.waiting() as u64 <= jitter / period + 1);
            }
            prop_assert!(sent.is_sorted());
            let process = Process::Periodic { jitter: jitter as f64 / period as f64 };
            let same = process.arrivals(1e9 / period as f64, seed).expect("valid");
            prop_assert!(same.take(2_000).eq(sent.iter().copied()));
            let ns = Span::from_nanos;
            let bound = ArrivalBound::periodic(ns(period), ns(jitter)).expect("valid");
            prop_assert!(keeps(&curve_of(bound), &sent));
            for (i, instant) in (0..).zip(&sent) {
                prop_assert!((i * period..(i * period + jitter).max(i * period + 1)).contains(&instant.as_nanos()));
            }
        }
    }

    #[test]
    fn bursts_come_at_every_period() {
        let mut source = Even::new(ticks(2.5), 3);
        let nanos: Vec<_> = std::iter::from_fn(|| source.next()).take(9).map(Instant::as_nanos).collect();
        assert_eq!(nanos, [0, 0, 0, 2, 2, 2, 5, 5, 5]);
    }

    #[test]
    fn grids_end_where_the_clock_does() {
        let mut source = Even::new(ticks(1e19), 2);
        let all: Vec<_> = std::iter::from_fn(|| source.next()).take(9).map(Instant::as_nanos).collect();
        assert_eq!(all, [0, 0, 10u64.pow(19), 10u64.pow(19)]);
        let mut source = Jittered::new(ticks(1e18), ticks(3e18), Draws::new(3));
        let count = std::iter::from_fn(|| source.next()).count();
        assert!((15..=19).contains(&count), "{count}");
    }
}
