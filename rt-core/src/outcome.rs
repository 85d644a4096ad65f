//! The outcome monitor: per stream, every constraint, over what really happened; O(1) a request.
//!
//! For `(m,K)` with `h = K - m`, let `age` be how many requests back the `h`-th most recent hit lies. Then
//! exactly `K - age` further misses in a row can follow before some window of `K` holds fewer than `h`
//! hits: Hamdaoui and Ramanathan's distance to failure (1995), with misses counted.

mod log;

use alloc::boxed::Box;

pub(crate) use log::{OutcomeLog, SpareLogs};

use crate::constraint::{Constraint, ConstraintSet};

/// Follows a stream's outcomes in request order.
#[derive(Clone, Debug)]
pub struct OutcomeMonitor {
    constraints: ConstraintSet,
    /// The numbers of the most recent hits, as a ring; as long as the largest `h`. So many are imagined before the first
    /// request.
    hits: Box<[u64]>,
    /// Where the next hit goes.
    next: usize,
    /// The number of the next request.
    count: u64,
    /// Misses in a row that may follow now, and after hits alone; [`OutcomeMonitor::ANY`] without constraints.
    left: u32,
    most: u32,
}

impl OutcomeMonitor {
    /// More misses than any constraint allows.
    const ANY: u32 = u32::MAX;

    /// A monitor before the first request; what came before counts as hits. Allocates one word for each
    /// hit of the largest `K - m`.
    #[must_use]
    pub fn new(constraints: ConstraintSet) -> Self {
        let longest = constraints.as_slice().iter().map(|c| c.hits()).max().unwrap_or(0);
        let most = constraints.as_slice().iter().map(|c| c.misses()).min().unwrap_or(Self::ANY);
        let hits = (0..u64::from(longest)).collect();
        Self { constraints, hits, next: 0, count: longest.into(), left: most, most }
    }

    /// Goes on with other constraints where `before` is. What that one no longer remembers counts as hits.
    pub(crate) fn continue_from(&mut self, before: &Self) {
        let (own, its) = (self.hits.len(), before.hits.len());
        self.count = before.count() + own as u64;
        // Numbers begin with what was imagined, of which there may be more now or less.
        let mut latest = (1..=its).map(|back| before.hits[(before.next + its - back) % its] + own as u64);
        let mut number = self.count;
        for place in self.hits.iter_mut().rev() {
            number = latest.next().map_or(number, |hit| hit + 1 - its as u64) - 1;
            *place = number;
        }
        self.next = 0;
        self.note_left();
    }

    /// Forgets all that was recorded.
    pub(crate) fn clear(&mut self) {
        (self.next, self.count, self.left) = (0, self.hits.len() as u64, self.most);
        self.hits.iter_mut().zip(0..).for_each(|(hit, number)| *hit = number);
    }

    /// Whether there are constraints.
    pub(crate) fn has_constraints(&self) -> bool {
        !self.constraints.as_slice().is_empty()
    }

    /// How many outcomes have been recorded.
    pub(crate) fn count(&self) -> u64 {
        self.count - self.hits.len() as u64
    }

    /// Records the next request's outcome. Returns the constraint that this miss violates, if any.
    #[inline(always)]
    pub fn record(&mut self, hit: bool) -> Option<Constraint> {
        if !hit {
            return self.record_misses(1);
        }
        if let Some(oldest) = self.hits.get_mut(self.next) {
            *oldest = self.count;
            self.next = if self.next + 1 == self.hits.len() { 0 } else { self.next + 1 };
        }
        self.count += 1;
        // A hit takes nothing away, and mostly there is nothing to be added.
        if self.left < self.most {
            self.note_left();
        }
        None
    }

    /// Records `count` misses; the same as so many calls of [`OutcomeMonitor::record`], of which it returns what the last one
    /// would: while misses follow each other ages only grow, so what one of them violates the last one does.
    #[inline(never)]
    pub(crate) fn record_misses(&mut self, count: u64) -> Option<Constraint> {
        if count == 0 {
            return None;
        }
        self.count += count;
        self.note_left();
        if self.left > 0 {
            return None;
        }
        let violated = |c: &&Constraint| self.age(c) > u64::from(c.window());
        self.constraints.as_slice().iter().find(violated).copied()
    }

    /// How many misses in a row may follow now before a constraint is violated, and the constraint that
    /// binds; `None` without constraints.
    #[must_use]
    pub fn misses_left(&self) -> Option<(u32, Constraint)> {
        let all = self.constraints.as_slice().iter();
        all.map(|c| (self.left_of(c), *c)).min_by_key(|&(left, _)| left)
    }

    fn left_of(&self, constraint: &Constraint) -> u32 {
        u64::from(constraint.window()).saturating_sub(self.age(constraint)) as u32
    }

    /// The same without the constraint; [`OutcomeMonitor::ANY`] without constraints.
    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// The same as it is told.
    #[inline]
    pub(crate) fn told_left(&self) -> Option<u32> {
        (self.left < Self::ANY).then_some(self.left)
    }

    /// Counts anew.
    #[inline(never)]
    fn note_left(&mut self) {
        let all = self.constraints.as_slice().iter();
        self.left = all.map(|c| self.left_of(c)).min().unwrap_or(Self::ANY);
    }

    /// How many requests back the `h`-th most recent hit lies, 1 for the last request.
    fn age(&self, constraint: &Constraint) -> u64 {
        let h = constraint.hits() as usize;
        let slot = if h <= self.next { self.next - h } else { self.next + self.hits.len() - h };
        self.count - self.hits[slot]
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn constraints() -> impl Strategy<Value = ConstraintSet> {
        let one = (1u32..9).prop_flat_map(|k| (0..k, Just(k)));
        proptest::collection::vec(one, 1..4).prop_map(|pairs| {
            let list: Vec<_> = pairs.iter().map(|&(m, k)| Constraint::any_miss(m, k).expect("m<k")).collect();
            ConstraintSet::new(&list).expect("few")
        })
    }

    /// A naive recount: does some window of `K` (hits before the start) hold more than `m` misses?
    fn violated(outcomes: &[bool], c: Constraint) -> bool {
        let k = c.window() as usize;
        let mut padded = std::vec![true; k];
        padded.extend_from_slice(outcomes);
        padded.windows(k).any(|w| w.iter().filter(|&&hit| !hit).count() as u32 > c.misses())
    }

    proptest! {
        #[test]
        fn monitor_agrees_with_a_naive_recount(set in constraints(), outcomes in proptest::collection::vec(any::<bool>(), 1..60)) {
            let mut monitor = OutcomeMonitor::new(set.clone());
            for n in 1..=outcomes.len() {
                let fresh = |c: &&Constraint| violated(&outcomes[n.saturating_sub(c.window() as usize)..n], **c);
                let verdict = monitor.record(outcomes[n - 1]);
                prop_assert_eq!(verdict.is_some(), !outcomes[n - 1] && set.as_slice().iter().any(|c| fresh(&c)));
                // Misses left: append misses until a recount of the last window objects.
                let (left, _) = monitor.misses_left().expect("constraints");
                prop_assert_eq!(monitor.left(), left);
                let mut future = outcomes[..n].to_vec();
                let tail = |f: &[bool], c: &Constraint| {
                    violated(&f[f.len().saturating_sub(c.window() as usize)..], *c)
                };
                let mut naive = 0;
                while !set.as_slice().iter().any(|c| tail(&future, c)) {
                    future.push(false);
                    if set.as_slice().iter().any(|c| tail(&future, c)) {
                        break;
                    }
                    naive += 1;
                }
                prop_assert_eq!(left, naive);
            }
        }
    }

    proptest! {
        #[test]
        fn a_monitor_that_goes_on_with_other_constraints_forgets_nothing_that_it_needs(
            (old, new) in (constraints(), constraints()),
            before in proptest::collection::vec(any::<bool>(), 0..30),
            after in proptest::collection::vec(any::<bool>(), 0..30),
        ) {
            let [mut first, mut next, mut all] = [&old, &new, &new].map(|set| OutcomeMonitor::new(set.clone()));
            for hit in before {
                first.record(hit);
                all.record(hit);
            }
            next.continue_from(&first);
            prop_assert_eq!(next.count(), all.count());
            prop_assert_eq!(next.left(), next.misses_left().expect("constraints").0);
            let longest = |set: &ConstraintSet| set.as_slice().iter().map(|c| c.hits()).max();
            for hit in after {
                let (told, whole) = (next.record(hit), all.record(hit));
                if longest(&old) >= longest(&new) {
                    prop_assert_eq!((told, next.misses_left()), (whole, all.misses_left()));
                }
                // What it was never told of counts for it, not against the stream.
                prop_assert!(next.misses_left().map(|(left, _)| left) >= all.misses_left().map(|(left, _)| left));
            }
        }
    }

    #[test]
    fn best_effort_has_no_budget_to_lose() {
        let mut monitor = OutcomeMonitor::new(ConstraintSet::default());
        assert_eq!((0..9).find_map(|_| monitor.record(false)), None);
        assert_eq!((monitor.misses_left(), monitor.told_left()), (None, None));
    }
}
