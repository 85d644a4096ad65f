//! Numbers by instants: the earliest is known, each can be moved or taken out.

use alloc::vec::Vec;
use core::mem;

use super::types::NEVER;
use crate::time::Instant;

/// When something is to happen, or several things at once.
pub(crate) trait When: Copy + PartialEq {
    /// The end of time.
    const NEVER: Self;

    /// The earlier one, of each thing.
    fn earlier(self, other: Self) -> Self;
}

impl When for Instant {
    const NEVER: Self = NEVER;

    #[inline(always)]
    fn earlier(self, other: Self) -> Self {
        self.min(other)
    }
}

/// A knock-out tournament of numbers (of workers by when they are due, of streams by when they may send), in which the
/// earliest of four instants wins. A change is played on only as long as it changes who wins: at most logarithmic, and mostly
/// one round. None of the calls allocates but [`Earliest::resize`].
#[derive(Clone, Debug)]
pub(crate) struct Earliest<W = Instant> {
    /// The end of time if no number is there.
    winner: W,
    /// The final is first. Who won match `i` plays in match `(i - 1) / 4`; the last of all are those of the numbers
    /// themselves, at the end of time if they are not there.
    matches: Vec<[W; SIDES]>,
    /// The place of number 0; there are `SIDES` to a match.
    first: usize,
}

/// How many play in a match.
const SIDES: usize = 4;

impl<W: When> Earliest<W> {
    /// Of numbers below `count`, none of them there. Allocates.
    pub(crate) fn new(count: usize) -> Self {
        let (mut first, mut places) = (0usize, 1);
        while places < count {
            (first, places) = (first + places, places * SIDES);
        }
        let matches = alloc::vec![[W::NEVER; SIDES]; first];
        Self { winner: W::NEVER, matches, first: first.wrapping_sub(1) }
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
    pub(crate) fn instant(&self) -> W {
        self.winner
    }

    /// The earliest instant of one thing, and whose it is: the first of equals.
    pub(crate) fn earliest_of(&self, thing: impl Fn(&W) -> Instant) -> Option<(Instant, usize)> {
        let (at, mut next, mut place) = (thing(&self.winner), 0, self.first);
        if at == NEVER {
            return None;
        }
        while let Some(of) = self.matches.get(next) {
            let [first, second, third, _] = of;
            let side = if thing(first) == at {
                0
            } else if thing(second) == at {
                1
            } else {
                2 + usize::from(thing(third) != at)
            };
            place = SIDES * next + side;
            next = place + 1;
        }
        Some((at, place.wrapping_sub(self.first)))
    }

    /// `number` is at `at`, wherever it was.
    #[inline]
    pub(crate) fn set(&mut self, number: usize, at: W) {
        let (mut place, mut winner) = (self.first.wrapping_add(number), at);
        // Before the final there is no match.
        while let Some(of) = self.matches.get_mut(place / SIDES) {
            if mem::replace(&mut of[place % SIDES], winner) == winner {
                return;
            }
            winner = of[0].earlier(of[1]).earlier(of[2].earlier(of[3]));
            place = (place / SIDES).wrapping_sub(1);
        }
        self.winner = winner;
    }

    /// Where `number` is; the end of time if it is not there.
    pub(crate) fn at(&self, number: usize) -> W {
        *self.matches.as_flattened().get(self.first.wrapping_add(number)).unwrap_or(&self.winner)
    }

    /// How many numbers there may be.
    pub(crate) fn numbers(&self) -> usize {
        self.matches.len() * SIDES - self.first.min(self.matches.len() * SIDES)
    }

    /// `number` is no longer there.
    pub(crate) fn remove(&mut self, number: usize) {
        self.set(number, W::NEVER);
    }
}

impl Earliest {
    /// The earliest instant, and whose it is: the first of equals.
    pub(crate) fn earliest(&self) -> Option<(Instant, usize)> {
        self.earliest_of(|&at| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Both([Instant; 2]);

    impl When for Both {
        const NEVER: Self = Self([NEVER; 2]);

        fn earlier(self, other: Self) -> Self {
            Self([0, 1].map(|thing| self.0[thing].min(other.0[thing])))
        }
    }

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

        #[test]
        fn several_things_are_each_the_earliest_of_a_list(steps in proptest::collection::vec((0usize..9, 0u64..9, 0u64..9), 1..99)) {
            let (mut both, mut lists) = (Earliest::new(9), [[NEVER; 9]; 2]);
            for (number, one, other) in steps {
                let at = [one, other].map(Instant::from_nanos);
                both.set(number, Both(at));
                prop_assert_eq!(both.at(number), Both(at));
                for thing in [0, 1] {
                    lists[thing][number] = at[thing];
                    let first = (0..9).map(|n| (lists[thing][n], n)).min();
                    prop_assert_eq!(both.earliest_of(|of| of.0[thing]), first);
                    prop_assert_eq!(Some(both.instant().0[thing]), first.map(|(at, _)| at));
                }
            }
        }
    }
}
