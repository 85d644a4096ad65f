//! The log of a stream's outcomes: known in any order, recorded in that of the requests.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::OutcomeMonitor;
use crate::constraint::{Constraint, ConstraintSet};
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Open,
    Hit,
    Miss,
}

/// Of one request that was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    mark: Mark,
    /// How many were refused before it.
    refused: u64,
    deadline: Instant,
}

impl Entry {
    const NONE: Self = Self { mark: Mark::Open, refused: 0, deadline: Instant::ZERO };
}

/// Puts outcomes, known in any order, back into request order for the monitor.
///
/// Only requests that were taken in need a place; those refused at once are counted in the place of the
/// next one. Where there are no constraints nothing asks in which order outcomes come: with all places taken the oldest open request
/// gives its own to the next one, and is recorded when its outcome is known.
#[derive(Clone, Debug)]
pub(crate) struct OutcomeLog {
    pub(crate) monitor: OutcomeMonitor,
    /// By level, of a stream that has several: what would be if another were in force. In place of the one that is, is one of nothing.
    beside: Box<[OutcomeMonitor]>,
    /// Of each request taken in since the oldest open one. As long as a power of two, of which so many `places` are used.
    marks: Box<[Entry]>,
    places: u32,
    /// Places are counted on and on, and fewer are used at a time than there are numbers.
    oldest: u32,
    next: u32,
    /// Open requests that have given their place to others.
    passed: u32,
    /// Requests refused since the last one taken in.
    refused: u64,
    /// How many outcomes had been recorded when a violation was found last.
    violated_at: u64,
}

impl OutcomeLog {
    pub(crate) fn new(monitor: OutcomeMonitor, places: usize) -> Self {
        Self {
            monitor,
            beside: Box::default(),
            marks: vec![Entry::NONE; places.next_power_of_two()].into_boxed_slice(),
            places: places as u32,
            oldest: 0,
            next: 0,
            passed: 0,
            refused: 0,
            violated_at: 0,
        }
    }

    /// With the constraints of the levels behind the first, that `monitor` was made for. Allocates if there are any.
    pub(crate) fn beside(mut self, behind: impl ExactSizeIterator<Item = ConstraintSet>) -> Self {
        if behind.len() > 0 {
            let all = core::iter::once(ConstraintSet::default()).chain(behind);
            self.beside = all.map(OutcomeMonitor::new).collect();
        }
        self
    }

    /// Goes from one level to another, of which all is known that came.
    pub(crate) fn exchange(&mut self, from: usize, to: usize) {
        if from != to {
            core::mem::swap(&mut self.monitor, &mut self.beside[to]);
            self.beside.swap(from, to);
        }
    }

    /// Makes room for so many requests, if it is less, out of `spare`; none may be open. Allocates if nothing there fits.
    pub(crate) fn grow(&mut self, places: usize, spare: &mut SpareLogs) {
        self.places = self.places.max(places as u32);
        if self.marks.len() < places {
            spare.exchange(&mut self.marks, places.next_power_of_two());
        }
    }

    /// Goes on where `before` is, in which nothing is open, with the constraints that it was made for.
    pub(crate) fn continue_from(&mut self, before: &Self) {
        self.monitor.continue_from(&before.monitor);
        self.beside.iter_mut().for_each(|level| level.continue_from(&before.monitor));
        self.violated_at = before.violated_at;
    }

    /// Forgets everything; whatever is open is never heard of.
    pub(crate) fn clear(&mut self) {
        self.monitor.clear();
        self.beside.iter_mut().for_each(OutcomeMonitor::clear);
        (self.oldest, self.next, self.passed, self.refused) = (0, 0, 0, 0);
    }

    /// Whether there are open requests that are not in [`OutcomeLog::open_places`].
    pub(crate) fn has_passed(&self) -> bool {
        self.passed > 0
    }

    /// The places of requests whose outcome is not known yet, and by when each must be answered.
    pub(crate) fn open_places(&self) -> impl Iterator<Item = (u32, Instant)> + '_ {
        let places = (0..self.next.wrapping_sub(self.oldest)).map(|nth| self.oldest.wrapping_add(nth));
        let entries = places.map(|place| (place, self.marks[self.slot(place)]));
        entries.filter(|(_, entry)| entry.mark == Mark::Open).map(|(place, entry)| (place, entry.deadline))
    }

    /// How many outcomes had been recorded when a violation was found last.
    pub(crate) fn violated_at(&self) -> u64 {
        self.violated_at
    }

    /// Gives the next request, to be answered by `deadline`, a place; `None` if all are taken, and it must be refused.
    #[inline]
    pub(crate) fn open(&mut self, deadline: Instant) -> Option<u32> {
        if self.next.wrapping_sub(self.oldest) >= self.places && !self.pass() {
            return None;
        }
        let place = self.next;
        let refused = core::mem::take(&mut self.refused);
        *self.entry(place) = Entry { mark: Mark::Open, refused, deadline };
        self.next = place.wrapping_add(1);
        Some(place)
    }

    /// All places are taken: the oldest request, which is open, gives its own away, if nothing asks for the order; whether it does.
    #[cold]
    fn pass(&mut self) -> bool {
        let passes = !self.monitor.has_constraints() && self.beside.is_empty();
        if passes {
            (self.oldest, self.passed) = (self.oldest.wrapping_add(1), self.passed + 1);
            self.settle(None);
        }
        passes
    }

    /// Records that the next request is refused. Returns the constraint that this violates, if it is known.
    pub(crate) fn refuse(&mut self) -> Option<Constraint> {
        self.refused += 1;
        self.settle(None)
    }

    /// Records that the request at `place` was answered in time, if it is the oldest that is open and nothing behind it is
    /// known: mostly that is so. It violates nothing and leaves no fewer misses.
    #[inline(always)]
    pub(crate) fn hit_in_turn(&mut self, place: u32) -> bool {
        let oldest = place.wrapping_add(1);
        let settled = if oldest == self.next {
            self.refused == 0
        } else {
            let next = self.entry(oldest);
            next.mark == Mark::Open && next.refused == 0
        };
        let in_turn = place == self.oldest && settled;
        if in_turn {
            self.oldest = oldest;
            self.record(true);
        }
        in_turn
    }

    /// Records the outcome of the request at `place`. Returns the first constraint that is violated by what
    /// is now known in order.
    pub(crate) fn close(&mut self, place: u32, hit: bool) -> Option<Constraint> {
        if place.wrapping_sub(self.oldest) >= self.next.wrapping_sub(self.oldest) {
            self.passed -= 1;
            return self.record(hit);
        }
        self.entry(place).mark = if hit { Mark::Hit } else { Mark::Miss };
        // Those refused before the oldest were counted when it became that.
        if place == self.oldest { self.settle(None) } else { None }
    }

    /// Records an outcome at all levels; what it violates at the one in force.
    #[inline]
    fn record(&mut self, hit: bool) -> Option<Constraint> {
        if !self.beside.is_empty() {
            self.record_beside(hit);
        }
        self.monitor.record(hit)
    }

    #[inline(never)]
    fn record_beside(&mut self, hit: bool) {
        for level in &mut self.beside {
            level.record(hit);
        }
    }

    /// The same of misses.
    #[inline]
    fn record_misses(&mut self, count: u64) -> Option<Constraint> {
        if count == 0 {
            return None;
        }
        for level in &mut self.beside {
            level.record_misses(count);
        }
        self.monitor.record_misses(count)
    }

    /// The first violation of those found by now and just now, which is noted.
    fn first(&mut self, before: Option<Constraint>, now: Option<Constraint>) -> Option<Constraint> {
        if before.is_none() && now.is_some() {
            self.violated_at = self.monitor.count();
        }
        before.or(now)
    }

    /// Feeds the monitor everything before the oldest open request.
    fn settle(&mut self, mut violated: Option<Constraint>) -> Option<Constraint> {
        while self.oldest != self.next {
            let Entry { mark, refused, .. } = self.entry(self.oldest);
            let (mark, refused) = (*mark, core::mem::take(refused));
            let missed = self.record_misses(refused);
            violated = self.first(violated, missed);
            if mark == Mark::Open {
                return violated;
            }
            let missed = self.record(mark == Mark::Hit);
            violated = self.first(violated, missed);
            self.oldest = self.oldest.wrapping_add(1);
        }
        let refused = core::mem::take(&mut self.refused);
        let missed = self.record_misses(refused);
        self.first(violated, missed)
    }

    fn entry(&mut self, place: u32) -> &mut Entry {
        let slot = self.slot(place);
        &mut self.marks[slot]
    }

    fn slot(&self, place: u32) -> usize {
        place as usize & (self.marks.len() - 1)
    }
}

/// Room for the logs of streams that come from another scheduler; then what they had before.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareLogs {
    /// By the power of two that is their length: logs, and how many have been exchanged.
    sizes: Vec<(Vec<Box<[Entry]>>, usize)>,
}

impl SpareLogs {
    /// Adds one of so many places. Allocates.
    pub(crate) fn add(&mut self, places: usize) {
        let length = places.next_power_of_two();
        let size = length.ilog2() as usize;
        if self.sizes.len() <= size {
            self.sizes.resize_with(size + 1, Default::default);
        }
        self.sizes[size].0.push(vec![Entry::NONE; length].into());
    }

    fn exchange(&mut self, marks: &mut Box<[Entry]>, length: usize) {
        let found = self.sizes.get_mut(length.ilog2() as usize);
        match found.and_then(|(logs, used)| Some((logs.get_mut(*used)?, used))) {
            Some((log, used)) => {
                core::mem::swap(marks, log);
                *used += 1;
            }
            None => *marks = vec![Entry::NONE; length].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    fn log(places: usize) -> OutcomeLog {
        let set = ConstraintSet::new(&[Constraint::row_miss(1).expect("valid")]).expect("one");
        OutcomeLog::new(OutcomeMonitor::new(set), places)
    }

    #[test]
    fn outcomes_are_recorded_in_request_order() {
        let mut log = log(8);
        for place in 0..4 {
            assert_eq!(log.open(Instant::ZERO), Some(place));
        }
        // Misses at 1 and 3 are not in a row, though they are heard of one after the other.
        assert_eq!((log.close(1, false), log.close(3, false)), (None, None));
        assert_eq!((log.close(0, true), log.close(2, true)), (None, None));
        assert_eq!(log.monitor.misses_left().map(|(left, _)| left), Some(0));
    }

    #[test]
    fn without_constraints_an_open_request_keeps_no_place_from_others() {
        let mut log = OutcomeLog::new(OutcomeMonitor::new(ConstraintSet::default()), 3);
        assert_eq!((0..3).map_while(|_| log.open(Instant::ZERO)).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(!log.hit_in_turn(1) && log.close(1, true).is_none());
        let open = |log: &OutcomeLog| log.open_places().map(|(place, _)| place).collect::<Vec<_>>();
        assert_eq!((log.open(Instant::ZERO), open(&log), log.has_passed()), (Some(3), vec![2, 3], true));
        assert_eq!(log.monitor.count(), 1, "of what was known behind it");
        assert_eq!(
            (log.open(Instant::ZERO), log.open(Instant::ZERO)),
            (Some(4), Some(5)),
            "2 has given way too"
        );
        assert!(!log.hit_in_turn(0) && log.close(0, true).is_none());
        assert_eq!((log.monitor.count(), log.has_passed(), open(&log)), (2, true, vec![3, 4, 5]));
        assert_eq!((log.close(2, false), log.has_passed()), (None, false));
        assert!(log.hit_in_turn(3) && log.refuse().is_none() && log.close(5, true).is_none());
        assert_eq!((log.close(4, true), log.monitor.count()), (None, 7));
    }

    #[test]
    fn refused_requests_are_misses_in_their_place_and_block_nobody() {
        let mut log = log(2);
        assert_eq!(
            (log.open(Instant::ZERO), log.refuse(), log.open(Instant::ZERO)),
            (Some(0), None, Some(1))
        );
        assert_eq!(log.open(Instant::ZERO), None, "both places are taken");
        assert_eq!(log.refuse(), None);
        assert_eq!(log.close(1, true), None);
        assert_eq!(log.close(0, true), None, "hit, miss, hit, miss");
        assert_eq!(log.open(Instant::ZERO), Some(2));
        assert!(log.close(2, false).is_some(), "two misses in a row violate row_miss(1)");
        assert!(log.refuse().is_some(), "known at once where nothing is open");
    }
}
