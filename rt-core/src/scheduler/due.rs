//! When busy workers are due: mostly they end in the order in which they begin, and then who is first is known at once.

use alloc::boxed::Box;
use core::mem;

use super::earliest::Earliest;
use super::types::{MAX_WORKERS, NEVER};
use crate::time::Instant;

/// Numbers of workers by instants: the earliest is known, each can be moved or taken out. None of the calls allocates but
/// [`Due::new`].
#[derive(Clone, Debug)]
pub(crate) struct Due {
    /// The end of time if no number is there.
    earliest: Instant,
    /// Those that came in order; nothing if there is one number alone.
    line: Option<Box<Line>>,
    others: Earliest,
}

/// Numbers in the order of their instants, of which no two are alike. Each knows its neighbours; at either end that means
/// nothing.
#[derive(Clone, Debug)]
struct Line {
    /// The end of time of those that are not there: also of the first and the last, if nobody is.
    at: [Instant; MAX_WORKERS],
    before: [u8; MAX_WORKERS],
    after: [u8; MAX_WORKERS],
    first: u8,
    last: u8,
}

impl Line {
    fn new() -> Self {
        let (at, before, after) = ([NEVER; MAX_WORKERS], [0; MAX_WORKERS], [0; MAX_WORKERS]);
        Self { at, before, after, first: 0, last: 0 }
    }

    fn earliest(&self) -> Instant {
        self.at[usize::from(self.first)]
    }

    /// `number` stands in it no longer, if it did.
    #[inline(always)]
    fn leave(&mut self, number: usize) {
        if mem::replace(&mut self.at[number], NEVER) == NEVER {
            return;
        }
        let (before, after) = (self.before[number], self.after[number]);
        if usize::from(self.first) == number {
            self.first = after;
        } else {
            self.after[usize::from(before)] = after;
        }
        if usize::from(self.last) == number {
            self.last = before;
        } else {
            self.before[usize::from(after)] = before;
        }
    }

    /// `number`, which does not stand in it, is its last from now on; false if it does not come after all that do.
    #[inline(always)]
    fn join(&mut self, number: usize, at: Instant) -> bool {
        let last = usize::from(self.last);
        if self.at[last] < at {
            (self.after[last], self.before[number]) = (number as u8, self.last);
        } else if self.at[last] == NEVER {
            self.first = number as u8;
        } else {
            return false;
        }
        (self.at[number], self.last) = (at, number as u8);
        true
    }
}

impl Due {
    /// Of numbers below `count`, none of them there. Allocates.
    pub(crate) fn new(count: usize) -> Self {
        let line = (count > 1).then(|| Box::new(Line::new()));
        Self { earliest: NEVER, line, others: Earliest::new(count) }
    }

    /// The earliest instant; the end of time if none is there.
    #[inline]
    pub(crate) fn instant(&self) -> Instant {
        self.earliest
    }

    /// `number` is at `at`, wherever it was.
    #[inline]
    pub(crate) fn set(&mut self, number: usize, at: Instant) {
        let Some(line) = &mut self.line else {
            self.earliest = at;
            return;
        };
        line.leave(number);
        let at = if at < NEVER && line.join(number, at) { NEVER } else { at };
        // Mostly there are no others.
        if at < NEVER || self.others.instant() < NEVER {
            self.set_other(number, at);
        } else {
            self.earliest = line.earliest();
        }
    }

    /// The same outside the line.
    #[inline(never)]
    fn set_other(&mut self, number: usize, at: Instant) {
        self.others.set(number, at);
        let first = self.line.as_ref().map_or(NEVER, |line| line.earliest());
        self.earliest = first.min(self.others.instant());
    }

    /// `number` is no longer there.
    #[inline]
    pub(crate) fn remove(&mut self, number: usize) {
        self.set(number, NEVER);
    }

    /// The earliest instant, and whose it is: the first of equals.
    pub(crate) fn earliest(&self) -> Option<(Instant, usize)> {
        let first =
            self.line.as_ref().map_or((self.earliest, 0), |line| (line.earliest(), line.first.into()));
        self.others.earliest().into_iter().chain([first]).min().filter(|&(at, _)| at < NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_earliest_is_that_of_a_list(
            count in 1usize..12,
            steps in proptest::collection::vec((0usize..12, 0u64..9, 0u8..8), 1..300),
        ) {
            let (mut due, mut list) = (Due::new(count), [None; 12]);
            for (step, (worker, at, how)) in (0..).zip(steps) {
                let worker = worker % count;
                // Mostly in order.
                list[worker] = match how {
                    0 | 1 => None,
                    2 => Some(Instant::from_nanos(at)),
                    _ => Some(Instant::from_nanos(step + at / 3)),
                };
                match list[worker] {
                    Some(at) => due.set(worker, at),
                    None => due.remove(worker),
                }
                let earliest = (0..count).filter_map(|w| Some((list[w]?, w))).min();
                prop_assert_eq!(due.earliest(), earliest);
                prop_assert_eq!(due.instant(), earliest.map_or(NEVER, |(at, _)| at));
            }
        }
    }
}
