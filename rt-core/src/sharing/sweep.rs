//! How many batches of each service a line counts, at one distance after the other.

use alloc::vec::Vec;

use super::Demands;
use super::horizon::Repeat;
use crate::curve::ArrivalCurve;
use crate::time::Span;
use crate::word::Density;

/// So many rises are found to get from one place of a list to another, before it begins anew there.
const MAX_BETWEEN: usize = 1 << 12;

/// Where the mandatory requests of a service fill more batches: found once for all lines that count them.
pub(super) struct Rises<'a> {
    streams: Vec<Stream<'a>>,
    /// Of so many requests each.
    size: u64,
    /// So many are not counted.
    but: u64,
    /// A length, and how many batches there are from there on. Never empty.
    list: Vec<(u64, u64)>,
}

struct Stream<'a> {
    density: Density,
    arrivals: &'a ArrivalCurve,
    mandatory: u64,
    /// The next length in which there may be more.
    next: u64,
}

impl Stream<'_> {
    fn go_to(&mut self, length: u64) {
        let length = Span::from_nanos(length);
        self.mandatory = self.density.ceil_of(self.arrivals.count(length));
        // With one request more than this one more is mandatory.
        let (p, q) = (u128::from(self.density.numerator()), u128::from(self.density.denominator()));
        let enough = (u128::from(self.mandatory) * q).checked_div(p).unwrap_or(u128::MAX);
        let next = u64::try_from(enough).map_or(u64::MAX, |n| self.arrivals.length_above(n).as_nanos());
        self.next = next.max(length.as_nanos().saturating_add(1));
    }
}

impl<'a> Rises<'a> {
    /// Of batches of `size`, of all requests but so many.
    pub(super) fn new(demands: &Demands<'a>, size: u64, but: u64) -> Self {
        let stream = |&(density, arrivals)| Stream { density, arrivals, mandatory: 0, next: 0 };
        let mut rises = Self { streams: demands.iter().map(stream).collect(), size, but, list: Vec::new() };
        rises.begin(0);
        rises
    }

    fn begin(&mut self, length: u64) {
        self.streams.iter_mut().for_each(|s| s.go_to(length));
        self.list.clear();
        self.list.push((length, self.batches()));
    }

    fn batches(&self) -> u64 {
        let requests = self.streams.iter().map(|s| s.mandatory).fold(0, u64::saturating_add);
        requests.saturating_sub(self.but).div_ceil(self.size)
    }

    /// Finds one more. False if there is none.
    fn extend(&mut self) -> bool {
        let before = self.list[self.list.len() - 1].1;
        loop {
            let length = self.streams.iter().map(|s| s.next).min().unwrap_or(u64::MAX);
            if length == u64::MAX {
                return false;
            }
            self.streams.iter_mut().filter(|s| s.next == length).for_each(|s| s.go_to(length));
            let batches = self.batches();
            if batches > before {
                self.list.push((length, batches));
                return true;
            }
        }
    }

    /// The last place of the list that is not beyond `length`.
    fn place(&mut self, length: u64) -> usize {
        for _ in 0..MAX_BETWEEN {
            if self.list[self.list.len() - 1].0 > length || !self.extend() {
                break;
            }
        }
        let ends_before = self.list[self.list.len() - 1].0 <= length && self.list.len() > MAX_BETWEEN;
        if self.list[0].0 > length || ends_before {
            self.begin(length);
        }
        self.list.partition_point(|rise| rise.0 <= length) - 1
    }

    /// How many there are in a length, none if that is below 0, and the next length at which there are more.
    pub(super) fn at(&mut self, length: i128) -> (u64, i128) {
        let place = self.place(u64::try_from(length).unwrap_or(0));
        let next = self.length(place + 1);
        (self.list[place].1, if next == u64::MAX { i128::MAX } else { next.into() })
    }

    /// The length at that place, the end of time if there is none.
    fn length(&mut self, place: usize) -> u64 {
        if place < self.list.len() || self.extend() { self.list[place].0 } else { u64::MAX }
    }
}

/// What a line counts of a service: the requests in lengths that are shorter than the distance by so much, a nanosecond
/// longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    /// All.
    All(i128),
    /// All in the first, or one less than all in the second, whichever is less.
    Less(i128, i128),
}

impl Shift {
    /// By how much the distance is longer, where all requests count.
    pub(super) fn all(self) -> i128 {
        let (Self::All(shift) | Self::Less(shift, _)) = self;
        shift
    }
}

/// The rises of a service: of all its requests, and of all but one.
pub(super) type Both<'a> = [Rises<'a>; 2];

/// A place in a list of rises.
#[derive(Clone, Copy)]
struct Place {
    shift: i128,
    at: usize,
}

impl Place {
    fn new(rises: &mut Rises, shift: i128, y: u64) -> Self {
        let length = u64::try_from(i128::from(y) + 1 - shift).unwrap_or(0);
        Self { shift, at: rises.place(length) }
    }

    /// The next distance at which there is more.
    fn next(self, rises: &mut Rises) -> u64 {
        let length = rises.length(self.at + 1);
        let next = i128::from(length) - 1 + self.shift;
        if length == u64::MAX { length } else { u64::try_from(next).unwrap_or(u64::MAX) }
    }

    /// Goes on to `y`, where there may be more; the batches there, and the next distance.
    fn go_to(&mut self, rises: &mut Rises, y: u64) -> (u64, u64) {
        let mut next = self.next(rises);
        while next <= y {
            self.at += 1;
            next = self.next(rises);
        }
        (rises.list[self.at].1, next)
    }
}

/// Goes from one distance to the next at which a line counts more batches.
pub(super) struct Sweep<'s, 'a> {
    rises: &'s mut [Both<'a>],
    places: Vec<[Option<Place>; 2]>,
    next: Vec<u64>,
    /// Where it is.
    pub(super) distance: u64,
    /// There, of each service.
    pub(super) batches: Vec<u64>,
    /// Of which services there may be more since the last distance, a bit each.
    pub(super) risen: u64,
}

impl<'s, 'a> Sweep<'s, 'a> {
    pub(super) fn new(rises: &'s mut [Both<'a>], shifts: &[Shift], from: u64) -> Self {
        let place = |([all, less], shift): (&mut Both<'a>, &Shift)| match *shift {
            Shift::All(shift) => [Some(Place::new(all, shift, from)), None],
            Shift::Less(shift, more) => {
                [Some(Place::new(all, shift, from)), Some(Place::new(less, more, from))]
            }
        };
        let places: Vec<_> = rises.iter_mut().zip(shifts).map(place).collect();
        let count = places.len();
        let mut sweep = Self {
            rises,
            places,
            next: alloc::vec![from; count],
            distance: from,
            batches: alloc::vec![0; count],
            risen: 0,
        };
        sweep.go_to(from);
        sweep
    }

    fn go_to(&mut self, y: u64) {
        (self.distance, self.risen) = (y, 0);
        for j in 0..self.places.len() {
            if self.next[j] != y {
                continue;
            }
            let both = self.places[j].iter_mut().zip(&mut self.rises[j]);
            let there = both.filter_map(|(place, rises)| Some(place.as_mut()?.go_to(rises, y)));
            // Of both, whichever is less; more where either rises.
            let least = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1.min(b.1));
            (self.batches[j], self.next[j]) = there.fold((u64::MAX, u64::MAX), least);
            self.risen |= 1 << j;
        }
    }

    /// Looks at a line here, and wherever its counts rise, until nothing new comes, or it is said to be over. Each look
    /// takes one of the `points`.
    ///
    /// Where the counts repeat, a worker's share is the average in the long run, whatever the number of batches said before;
    /// so only a period that is regular throughout speaks for all later ones. False if the end was not seen.
    pub(super) fn walk(
        mut self,
        repeat: Option<Repeat>,
        points: &mut u64,
        mut at: impl FnMut(&Self) -> Look,
    ) -> bool {
        let mut regular_from = None;
        while let Some(left) = points.checked_sub(1) {
            *points = left;
            let look = at(&self);
            regular_from = match repeat {
                Some(repeat) if look.regular && self.distance > repeat.from => {
                    regular_from.or(Some(self.distance))
                }
                _ => None,
            };
            let next = self.next.iter().copied().min().unwrap_or(u64::MAX);
            let seen = |from: u64| repeat.is_some_and(|r| next > from.saturating_add(r.length));
            if next == u64::MAX || next >= look.over || regular_from.is_some_and(seen) {
                return true;
            }
            self.go_to(next);
        }
        false
    }
}

/// What is seen at a distance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Whether all lines are there, and none would be tighter than any so far if a worker got what it gets in the long run.
    pub(super) regular: bool,
    /// From this distance on none is tighter than any so far.
    pub(super) over: u64,
}

impl Look {
    /// Nothing more needs to be seen.
    pub(super) const ENOUGH: Self = Self { regular: false, over: 0 };
}
