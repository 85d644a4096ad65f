//! Numbers by instants: the earliest is known, each can be moved or taken out.

use alloc::vec::Vec;

use crate::time::Instant;

/// No place in the heap.
const NOWHERE: u16 = u16::MAX;

/// A binary heap of numbers (of workers by when they are due, of streams by when they may send), each of which knows its
/// place in it. All calls are logarithmic; none allocates but [`Earliest::resize`].
#[derive(Debug)]
pub(super) struct Earliest {
    /// Instants and numbers; none is before its parent, at half its place.
    heap: Vec<(Instant, u16)>,
    /// By number: where it is in the heap.
    place: Vec<u16>,
}

impl Earliest {
    /// Of numbers below `count`, none of them there. Allocates.
    pub(super) fn new(count: usize) -> Self {
        Self { heap: Vec::with_capacity(count), place: alloc::vec![NOWHERE; count] }
    }

    /// Of numbers below `count`. Allocates.
    pub(super) fn resize(&mut self, count: usize) {
        self.place.resize(count, NOWHERE);
        self.heap.reserve(count.saturating_sub(self.heap.len()));
    }

    /// The earliest instant, and whose it is.
    pub(super) fn earliest(&self) -> Option<(Instant, usize)> {
        self.heap.first().map(|&(at, number)| (at, usize::from(number)))
    }

    /// `number` is at `at`, wherever it was.
    pub(super) fn set(&mut self, number: usize, at: Instant) {
        let place = match self.place[number] {
            NOWHERE => {
                self.heap.push((at, number as u16));
                self.heap.len() - 1
            }
            place => {
                self.heap[usize::from(place)].0 = at;
                usize::from(place)
            }
        };
        self.settle(place);
    }

    /// `number` is no longer there.
    pub(super) fn remove(&mut self, number: usize) {
        let place = self.place[number];
        if place == NOWHERE {
            return;
        }
        self.place[number] = NOWHERE;
        self.heap.swap_remove(usize::from(place));
        if usize::from(place) < self.heap.len() {
            self.settle(usize::from(place));
        }
    }

    /// Moves the entry at `place` up or down to where it belongs.
    fn settle(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 && entry < self.heap[(place - 1) / 2] {
            self.put(place, self.heap[(place - 1) / 2]);
            place = (place - 1) / 2;
        }
        loop {
            let child = 2 * place + 1;
            if child >= self.heap.len() {
                break;
            }
            let other = child + 1;
            let child =
                if other < self.heap.len() && self.heap[other] < self.heap[child] { other } else { child };
            if entry <= self.heap[child] {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (Instant, u16)) {
        self.heap[place] = entry;
        self.place[usize::from(entry.1)] = place as u16;
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
            }
        }
    }
}
