//! Numbers by instants: the earliest is known, each can be moved or taken out.

use alloc::vec::Vec;
use core::mem;

use super::types::NEVER;
use crate::time::Instant;

/// A knock-out tournament of numbers (of workers by when they are due, of streams by when they may send), in which the
/// earliest of four instants wins. A change is played on only as long as it changes who wins: at most logarithmic, and mostly
/// one round. None of the calls allocates but [`Earliest::resize`].
#[derive(Clone, Debug)]
pub(crate) struct Earliest {
    /// The end of time if no number is there.
    winner: Instant,
    /// The final is first. Who won match `i` plays in match `(i - 1) / 4`; the last of all are those of the numbers
    /// themselves, at the end of time if they are not there.
    matches: Vec<[Instant; SIDES]>,
    /// The place of number 0; there are `SIDES` to a match.
    first: usize,
}

/// How many play in a match.
const SIDES: usize = 4;

impl Earliest {
    /// Of numbers below `count`, none of them there. Allocates.
    pub(crate) fn new(count: usize) -> Self {
        let (mut first, mut places) = (0usize, 1);
        while places < count {
            (first, places) = (first + places, places * SIDES);
        }
        Self { winner: NEVER, matches: alloc::vec![[NEVER; SIDES]; first], first: first.wrapping_sub(1) }
    }

    /// Of numbers below `count`, or of as many as before. Allocates.
    pub(crate) fn resize(&mut self, count: usize) {
        let numbers =
            self.matches.as_flattened().get(self.first..).unwrap_or(core::slice::from_ref(&self.winner));
        let mut larger = Self::new(count.max(numbers.len()));
        numbers.iter().enumerate().for_each(|(number, &at)| larger.set(number, at));
        *self = larger;
    }

    /// The earliest instant; the end of time if none is there.
    #[inline]
    pub(crate) fn instant(&self) -> Instant {
        self.winner
    }

    /// The earliest instant, and whose it is: the first of equals.
    pub(crate) fn earliest(&self) -> Option<(Instant, usize)> {
        let (at, mut next, mut place) = (self.winner, 0, self.first);
        if at == NEVER {
            return None;
        }
        while let Some(of) = self.matches.get(next) {
            let [first, second, third, _] = *of;
            let side = if first == at {
                0
            } else if second == at {
                1
            } else {
                2 + usize::from(third != at)
            };
            place = SIDES * next + side;
            next = place + 1;
        }
        Some((at, place.wrapping_sub(self.first)))
    }

    /// `number` is at `at`, wherever it was.
    #[inline]
    pub(crate) fn set(&mut self, number: usize, at: Instant) {
        let (mut place, mut winner) = (self.first.wrapping_add(number), at);
        // Before the final there is no match.
        while let Some(of) = self.matches.get_mut(place / SIDES) {
            if mem::replace(&mut of[place % SIDES], winner) == winner {
                return;
            }
            winner = of[0].min(of[1]).min(of[2].min(of[3]));
            place = (place / SIDES).wrapping_sub(1);
        }
        self.winner = winner;
    }

    /// Where `number` is; the end of time if it is not there.
    pub(crate) fn at(&self, number: usize) -> Instant {
        *self.matches.as_flattened().get(self.first.wrapping_add(number)).unwrap_or(&self.winner)
    }

    /// How many numbers there may be.
    pub(crate) fn numbers(&self) -> usize {
        self.matches.len() * SIDES - self.first.min(self.matches.len() * SIDES)
    }

    /// `number` is no longer there.
    pub(crate) fn remove(&mut self, number: usize) {
        self.set(number, NEVER);
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
                prop_assert_eq!(due.at(worker), list[worker].unwrap_or(NEVER));
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
