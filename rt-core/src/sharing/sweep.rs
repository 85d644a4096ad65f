//! How many mandatory requests and batches of each service a line counts, at one distance after the other.

use alloc::vec::Vec;

use super::Demands;
use super::horizon::Horizon;
use crate::busy::Demand;
use crate::time::Span;

/// The most distances at which a line is looked at.
const MAX_POINTS: u64 = 1 << 20;

/// `α(y - shift + 1 ns)`, 0 where `y` is below the shift.
pub(super) struct Counter<'a> {
    demands: Vec<Demand<'a>>,
    shift: i128,
    count: u64,
    next: u64,
}

impl<'a> Counter<'a> {
    /// At distance `y`.
    pub(super) fn new(demands: &Demands<'a>, shift: i128, y: u64) -> Self {
        let length = Span::from_nanos(u64::try_from(i128::from(y) + 1 - shift).unwrap_or(0));
        let demands = demands.iter().map(|&(density, curve)| Demand::new(density, curve, length)).collect();
        let mut counter = Self { demands, shift, count: 0, next: 0 };
        counter.sum_up();
        counter
    }

    /// Goes on to `y`, which is not beyond `next`.
    pub(super) fn go_to(&mut self, y: u64) {
        if y == self.next
            && let Ok(length) = u64::try_from(i128::from(y) + 1 - self.shift)
        {
            let length = Span::from_nanos(length);
            self.demands.iter_mut().filter(|d| d.next_rise() == length).for_each(|d| d.rise(length));
            self.sum_up();
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The next distance at which it rises.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn sum_up(&mut self) {
        self.count = self.demands.iter().map(Demand::mandatory).fold(0, u64::saturating_add);
        let rise = self.demands.iter().map(Demand::next_rise).min();
        let next = rise.map(|length| i128::from(length.as_nanos()) - 1 + self.shift);
        self.next = next.and_then(|y| u64::try_from(y).ok()).unwrap_or(u64::MAX);
    }
}

/// What a line counts of one service.
pub(super) enum Count<'a> {
    /// All.
    All(Counter<'a>),
    /// All of the first, or one less than the second, whichever is less.
    Less(Counter<'a>, Counter<'a>),
}

impl Count<'_> {
    fn get(&self) -> u64 {
        match self {
            Self::All(all) => all.count,
            Self::Less(all, more) => all.count.min(more.count.saturating_sub(1)),
        }
    }

    /// The next distance at which there may be more.
    fn next(&self) -> u64 {
        match self {
            Self::All(all) => all.next,
            Self::Less(all, more) => all.next.min(more.next),
        }
    }

    fn go_to(&mut self, y: u64) {
        match self {
            Self::All(all) => all.go_to(y),
            Self::Less(all, more) => {
                all.go_to(y);
                more.go_to(y);
            }
        }
    }
}

/// What is seen at a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// All lines are there, and none would be tighter than any so far even if a worker got the average.
    Regular,
    /// Nothing that says much of a period later.
    Irregular,
    /// Enough: one fails.
    Failed,
}

/// Looks at a line at `from`, and wherever the counts rise, until nothing new comes or one fails. `at` is given the
/// distance and the requests of each service.
///
/// Where the counts repeat, a worker's share is the average in the long run, whatever the number of batches said before;
/// so only a period that is regular throughout speaks for all later ones. False if the end was not seen.
pub(super) fn walk(
    mut counts: Vec<Count>,
    from: u64,
    horizon: &Horizon,
    mut at: impl FnMut(u64, &[u64]) -> Look,
) -> bool {
    let mut requests: Vec<u64> = counts.iter().map(Count::get).collect();
    let (mut y, mut regular_from) = (from, None);
    for _ in 0..MAX_POINTS {
        regular_from = match at(y, &requests) {
            Look::Failed => return true,
            Look::Regular if horizon.is_settled(y) => regular_from.or(Some(y)),
            _ => None,
        };
        let next = counts.iter().map(Count::next).min().unwrap_or(u64::MAX);
        let repeated = regular_from.is_some_and(|from| horizon.has_repeated(from, next));
        if next == u64::MAX || horizon.is_over(next) || repeated {
            return true;
        }
        for (count, requests) in counts.iter_mut().zip(&mut requests) {
            if count.next() == next {
                count.go_to(next);
                *requests = count.get();
            }
        }
        y = next;
    }
    false
}
