//! Numbers by instants: the earliest is known, each can be moved or taken out.

use alloc::vec::Vec;
use core::mem;

use super::types::NEVER;
use crate::time::Instant;

/// A knock-out tournament of numbers (of workers by when they are due, of streams by when they may send), in which the
/// earlier of two instants wins. A change is played on only as long as it changes who wins: at most logarithmic, and mostly
/// one round. None of the calls allocates but [`Earliest::resize`].
#[derive(Debug)]
pub(crate) struct Earliest {
    /// A binary tree: the final is at 1, what the winner of place `i` won is at `2i` and `2i + 1`. The second half are the
    /// numbers themselves, at the end of time if they are not there.
    won: Vec<Instant>,
}

impl Earliest {
    /// Of numbers below `count`, none of them there. Allocates.
    pub(crate) fn new(count: usize) -> Self {
        Self { won: alloc::vec![NEVER; 2 * count.next_power_of_two()] }
    }

    /// Of numbers below `count`, or of as many as before. Allocates.
    pub(crate) fn resize(&mut self, count: usize) {
        let mut larger = Self::new(count.max(self.numbers()));
        (0..self.numbers()).for_each(|number| larger.set(number, self.won[self.numbers() + number]));
        *self = larger;
    }

    /// The earliest instant; the end of time if none is there.
    pub(crate) fn instant(&self) -> Instant {
        self.won[1]
    }

    /// The earliest instant, and whose it is: the first of equals.
    pub(crate) fn earliest(&self) -> Option<(Instant, usize)> {
        let (at, mut place) = (self.instant(), 1);
        if at == NEVER {
            return None;
        }
        while place < self.numbers() {
            place = 2 * place + usize::from(self.won[2 * place] != at);
        }
        Some((at, place - self.numbers()))
    }

    /// `number` is at `at`, wherever it was.
    pub(crate) fn set(&mut self, number: usize, at: Instant) {
        let (mut place, mut winner) = (self.numbers() + number, at);
        while mem::replace(&mut self.won[place], winner) != winner && place > 1 {
            winner = winner.min(self.won[place ^ 1]);
            place /= 2;
        }
    }

    /// `number` is no longer there.
    pub(crate) fn remove(&mut self, number: usize) {
        self.set(number, NEVER);
    }

    /// How many numbers there may be.
    fn numbers(&self) -> usize {
        self.won.len() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_earliest_is_that_of_a_list(steps in proptest::collection::vec((0usize..9, 0u64..30, any::<bool>()), 1..200)) {
            let (mut due, mut list) = (Earliest::new(9), [None; 9]);
            for (worker, at, there) in steps {
                list[worker] = there.then_some(Instant::from_nanos(at));
                match list[worker] {
                    Some(at) => due.set(worker, at),
                    None => due.remove(worker),
                }
                let earliest = (0..9).filter_map(|w| Some((list[w]?, w))).min();
                prop_assert_eq!(due.earliest(), earliest);
                prop_assert_eq!(due.instant(), earliest.map_or(NEVER, |(at, _)| at));
            }
            let earliest = due.earliest();
            due.resize(40);
            prop_assert_eq!(due.earliest(), earliest);
            due.set(39, Instant::ZERO);
            prop_assert_eq!(due.instant(), Instant::ZERO);
        }
    }
}
