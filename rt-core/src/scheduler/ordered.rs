//! Requests of one class in the order of deadlines, out of which any can be taken back in little time.
//!
//! What is taken back leaves a gap, so that nothing behind it is moved. Nobody sees the gaps: they are skipped where
//! requests are counted, and closed as they come to the front or to the back.

use alloc::collections::VecDeque;
use alloc::collections::vec_deque::Iter;
use core::ops::Index;

use super::types::Request;
use crate::time::Instant;

/// The number of no request: of one that was taken back.
const GAP: u64 = u64::MAX;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    /// With gaps, which keep their deadlines; the first and the last are none.
    places: VecDeque<Request>,
    /// Where the gaps are, by the number of the place, in order.
    gaps: VecDeque<u64>,
    /// The number of the first place: so many have left in front.
    front: u64,
    /// No deadline is later.
    latest: Instant,
    /// Places beside gaps, at most; and gaps.
    room: usize,
}

impl Ordered {
    /// Empty, with room for so many. Allocates.
    pub(crate) fn new(room: usize) -> Self {
        let (places, gaps) = (VecDeque::with_capacity(2 * room), VecDeque::with_capacity(room));
        Self { places, gaps, front: 0, latest: Instant::ZERO, room }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.gaps.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&Request> {
        self.places.front()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Request> {
        self.places.get(self.place(index))
    }

    /// All from `index` on, in order.
    pub(crate) fn from(&self, index: usize) -> Rest<'_> {
        let left = self.len().saturating_sub(index);
        let place = if left == 0 { self.places.len() } else { self.place(index) };
        Rest { places: self.places.range(place..), left }
    }

    /// How many have a deadline before `reach`.
    #[inline]
    pub(crate) fn before(&self, reach: Instant) -> usize {
        // Mostly not even the first.
        if self.places.front().is_none_or(|first| first.deadline >= reach) {
            return 0;
        }
        let place = self.places.partition_point(|request| request.deadline < reach);
        place - self.gaps.partition_point(|&gap| gap < self.front + place as u64)
    }

    /// Takes in a request, behind those with the same deadline; there is room. Whether it is the first now.
    #[inline(always)]
    pub(crate) fn push(&mut self, request: Request) -> bool {
        if request.deadline < self.latest {
            return self.insert(request) == 0;
        }
        let first = self.places.is_empty();
        self.push_back(request);
        first
    }

    /// The same, but among those with the same deadline by the numbers of their places, which go round.
    pub(crate) fn push_by_place(&mut self, request: Request) {
        let is_before = |other: &Request| {
            let alike = other.deadline == request.deadline;
            let later = request.place.wrapping_sub(other.place) <= u32::MAX / 2;
            other.deadline < request.deadline || alike && later
        };
        if self.places.back().is_none_or(is_before) {
            self.push_back(request);
        } else {
            self.insert_at(self.places.partition_point(is_before), request);
        }
    }

    #[inline(always)]
    fn push_back(&mut self, request: Request) {
        self.latest = self.latest.max(request.deadline);
        self.places.push_back(request);
    }

    /// Takes the first.
    #[inline]
    pub(crate) fn pop_first(&mut self) -> Option<Request> {
        let first = self.first().copied();
        self.drop_first();
        first
    }

    /// Lets go of the first.
    #[inline(always)]
    pub(crate) fn drop_first(&mut self) {
        if !self.places.is_empty() {
            self.places.pop_front();
            self.front += 1;
            if !self.gaps.is_empty() {
                self.close();
            }
        }
    }

    /// Takes the one at `index`: near the first in little time.
    pub(crate) fn remove(&mut self, index: usize) -> Option<Request> {
        let place = self.place(index);
        let request = self.places.remove(place)?;
        self.shift(place, |gap| gap - 1);
        self.close();
        Some(request)
    }

    /// Takes the one back that must be answered by `deadline` and `is` it: in little time, wherever it is.
    pub(crate) fn take_back(&mut self, deadline: Instant, is: impl Fn(&Request) -> bool) -> Option<Request> {
        let from = self.places.partition_point(|request| request.deadline < deadline);
        let alike = self.places.range(from..).take_while(|request| request.deadline == deadline);
        let place = from + alike.enumerate().find(|(_, request)| request.seq != GAP && is(request))?.0;
        let request = self.places[place];
        self.places[place].seq = GAP;
        let gap = self.front + place as u64;
        self.gaps.insert(self.gaps.partition_point(|&other| other < gap), gap);
        self.close();
        Some(request)
    }

    /// Puts a request in its place, behind those with the same deadline: that place.
    #[cold]
    pub(crate) fn insert(&mut self, request: Request) -> usize {
        let place = self.places.partition_point(|other| other.deadline <= request.deadline);
        self.insert_at(place, request);
        place
    }

    fn insert_at(&mut self, place: usize, request: Request) {
        self.latest = self.latest.max(request.deadline);
        self.places.insert(place, request);
        self.shift(place, |gap| gap + 1);
    }

    /// The gaps from `place` on have moved.
    fn shift(&mut self, place: usize, to: impl Fn(u64) -> u64) {
        let first = self.gaps.partition_point(|&gap| gap < self.front + place as u64);
        self.gaps.range_mut(first..).for_each(|gap| *gap = to(*gap));
    }

    /// Closes the gaps at both ends, and all once there are too many: of so many that were taken back, once.
    #[inline(never)]
    fn close(&mut self) {
        while self.gaps.front() == Some(&self.front) {
            self.places.pop_front();
            self.gaps.pop_front();
            self.front += 1;
        }
        while self.places.back().is_some_and(|last| last.seq == GAP) {
            self.places.pop_back();
            self.gaps.pop_back();
        }
        if self.gaps.len() >= self.room {
            self.places.retain(|request| request.seq != GAP);
            self.gaps.clear();
        }
    }

    /// Where the request at `index` is.
    #[inline(always)]
    fn place(&self, index: usize) -> usize {
        if self.gaps.is_empty() { index } else { self.place_among_gaps(index) }
    }

    #[inline(never)]
    fn place_among_gaps(&self, index: usize) -> usize {
        // How many gaps are before it: those with no more than `index` requests before them.
        let (mut least, mut most) = (0, self.gaps.len());
        while least < most {
            let middle = usize::midpoint(least, most);
            let before = (self.gaps[middle] - self.front) as usize - middle;
            (least, most) = if before <= index { (middle + 1, most) } else { (least, middle) };
        }
        index + least
    }
}

impl Index<usize> for Ordered {
    type Output = Request;

    fn index(&self, index: usize) -> &Request {
        &self.places[self.place(index)]
    }
}

/// Requests in order.
#[derive(Clone)]
pub(crate) struct Rest<'a> {
    places: Iter<'a, Request>,
    left: usize,
}

impl<'a> Iterator for Rest<'a> {
    type Item = &'a Request;

    #[inline]
    fn next(&mut self) -> Option<&'a Request> {
        let next = self.places.find(|request| request.seq != GAP)?;
        self.left -= 1;
        Some(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Rest<'_> {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::scheduler::types::Note;
    use crate::stream::StreamId;
    use proptest::prelude::*;
    use std::vec::Vec;

    const ROOM: usize = 12;

    fn request(seq: u64, deadline: u64) -> Request {
        let (stream, deadline) = (StreamId { slot: 0, generation: 1 }, Instant::from_nanos(deadline));
        let (arrival, wanted) = (Instant::ZERO, deadline);
        let (mandatory, note) = (false, Note::None);
        Request { token: 0, stream, seq, arrival, deadline, wanted, mandatory, class: 0, note, place: 0 }
    }

    proptest! {
        #[test]
        fn what_is_seen_is_a_list_without_gaps(steps in proptest::collection::vec((0u8..8, 0u64..30, 0usize..20), 1..300)) {
            let (mut queue, mut list) = (Ordered::new(ROOM), Vec::<Request>::new());
            let capacity = (queue.places.capacity(), queue.gaps.capacity());
            for (seq, (what, at, index)) in steps.into_iter().enumerate() {
                match what {
                    // Of the same deadline, by place: the later ones go before.
                    3 if list.len() < ROOM => {
                        let new = Request { place: u32::MAX - seq as u32, ..request(seq as u64, at) };
                        list.insert(list.partition_point(|other| other.deadline < new.deadline), new);
                        queue.push_by_place(new);
                    }
                    0..4 if list.len() < ROOM => {
                        let new = request(seq as u64, at);
                        list.insert(list.partition_point(|other| other.deadline <= new.deadline), new);
                        let first = if what == 0 { queue.insert(new) == 0 } else { queue.push(new) };
                        prop_assert_eq!(first, list[0] == new);
                    }
                    0..4 => {}
                    4 => prop_assert_eq!(queue.pop_first(), (!list.is_empty()).then(|| list.remove(0))),
                    5 => prop_assert_eq!(queue.remove(index), (index < list.len()).then(|| list.remove(index))),
                    _ => {
                        let Some(gone) = list.get(index).copied() else { continue };
                        list.remove(index);
                        prop_assert_eq!(queue.take_back(gone.deadline, |other| other.seq == gone.seq), Some(gone));
                        prop_assert_eq!(queue.take_back(gone.deadline, |other| other.seq == gone.seq), None);
                    }
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (list.len(), list.is_empty()));
                prop_assert_eq!(queue.first(), list.first());
                for index in 0..list.len() + 2 {
                    prop_assert_eq!(queue.get(index), list.get(index));
                    let rest: Vec<_> = queue.from(index).copied().collect();
                    prop_assert_eq!(queue.from(index).len(), rest.len());
                    prop_assert_eq!(&rest[..], list.get(index..).unwrap_or_default());
                }
                for reach in (0..32).map(Instant::from_nanos) {
                    prop_assert_eq!(queue.before(reach), list.iter().filter(|r| r.deadline < reach).count());
                }
            }
            prop_assert_eq!((queue.places.capacity(), queue.gaps.capacity()), capacity);
        }
    }
}
