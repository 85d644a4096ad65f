//! The arrival monitor: exact, per stream, O(1) a request (O(N) for a list of N distances); what exceeds the
//! declared curve never becomes mandatory, so one stream's flood cannot void another's promise.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::arrival::ArrivalBound;
use crate::curve::ArrivalCurve;
use crate::distances::Distances;
use crate::time::{Instant, Span};

/// A breach of a declared bound: more requests than it allows in an interval that ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Length of the interval.
    pub window: Span,
    /// Requests that the bound allows in it.
    pub allowed: u64,
    /// Requests seen in it, the present one included.
    pub seen: u64,
}

/// The longest that an excess is remembered, however long the windows of a declaration are: with what `clean` adds, it
/// bounds how long the promise to a stream stays suspended after its last excess request.
pub const MAX_MEMORY: Span = Span::from_millis(1_000);

/// Checks a stream's arrivals against its curve.
///
/// Requests that conform are counted against the curve; those that do not are only reported. So the
/// conforming ones always satisfy the curve, whatever comes. While a stream is in excess, requests conform
/// one by one at the declared rate instead of a burst at a time, to keep its misses apart.
#[derive(Clone, Debug)]
pub struct Policer {
    bounds: Vec<BoundState>,
    /// Even spacing of the declared rate: the slowest bound's `length / count`, rounded up.
    spacing: Span,
    /// Until when conforming requests are spaced evenly, and the next instant that conforms then.
    spaced_until: Option<Instant>,
    next_spaced: Instant,
    /// How long an excess is remembered, and what the curve allows in that time.
    memory: Span,
    per_period: u64,
    /// When the present period of that length began, and what has come in it.
    period_began: Instant,
    in_period: u64,
}

#[derive(Clone, Debug)]
enum BoundState {
    /// The last conforming requests, as many as the window allows, by when each leaves it: a ring, with the oldest at `next`.
    Window { length: Span, ring: Box<[Instant]>, next: usize },
    /// The generic cell rate algorithm; `run` is when the present run of back-to-back periods began and
    /// how many requests it holds, so that `run.0 + run.1·period` is the next theoretical arrival.
    Periodic { period: Span, jitter: Span, run: (Instant, u64) },
    /// The instants of as many conforming requests as there are distances; keeping the list to them keeps
    /// all of its sums.
    Distances { distances: Distances, recent: VecDeque<Instant> },
}

impl Policer {
    /// A monitor for `curve`, before the first request. Allocates for the largest window.
    #[must_use]
    pub fn new(curve: &ArrivalCurve) -> Self {
        let state = |bound: &ArrivalBound| match bound {
            ArrivalBound::Window { count, length } => BoundState::Window {
                length: *length,
                ring: vec![Instant::ZERO; *count as usize].into(),
                next: 0,
            },
            ArrivalBound::Periodic { period, jitter } => {
                BoundState::Periodic { period: *period, jitter: *jitter, run: (Instant::ZERO, 0) }
            }
            ArrivalBound::Distances(distances) => BoundState::Distances {
                distances: distances.clone(),
                recent: VecDeque::with_capacity(distances.as_slice().len()),
            },
        };
        let spacing = |bound: &ArrivalBound| {
            let (count, per) = bound.rate();
            per.as_nanos().div_ceil(count)
        };
        let reach = |bound: &ArrivalBound| match bound {
            ArrivalBound::Window { length, .. } => *length,
            ArrivalBound::Periodic { period, jitter } => *period + *jitter,
            ArrivalBound::Distances(distances) => distances.rate().1,
        };
        // Long enough for a rate a quarter above the declared one to stand out from the jitter.
        let longest = curve.bounds().iter().map(reach).max().unwrap_or(Span::ZERO);
        let memory = Span::from_nanos(longest.as_nanos().saturating_mul(4)).min(MAX_MEMORY);
        Self {
            bounds: curve.bounds().iter().map(state).collect(),
            spacing: Span::from_nanos(curve.bounds().iter().map(spacing).max().unwrap_or(0)),
            spaced_until: None,
            next_spaced: Instant::ZERO,
            memory,
            per_period: curve.count(memory),
            period_began: Instant::ZERO,
            in_period: 0,
        }
    }

    /// Records a request at `now`: whether it counts towards the promise, and the breach if it is one. In an excess a
    /// request does not count if its place is to be kept for the next one, `keep`.
    /// Calls must not go back in time.
    pub fn observe(&mut self, now: Instant, keep: bool) -> (bool, Option<Excess>) {
        if self.observe_conforming(now) { (true, None) } else { self.observe_excess(now, keep) }
    }

    /// Records a request at `now` if it conforms and no excess is remembered.
    #[inline]
    pub(crate) fn observe_conforming(&mut self, now: Instant) -> bool {
        if self.is_spacing(now) {
            return false;
        }
        // Mostly there is one window and nothing else.
        match &mut *self.bounds {
            [BoundState::Window { length, ring, next }] => {
                let room = now >= ring[*next];
                if room {
                    count_in_window(now, *length, ring, next);
                }
                room
            }
            bounds => {
                let room = bounds.iter().all(|bound| bound.has_room(now));
                if room {
                    bounds.iter_mut().for_each(|bound| bound.count(now));
                }
                room
            }
        }
    }

    /// Records one while an excess lasts, or where a new one begins; as [`Policer::observe`].
    #[inline(never)]
    pub(crate) fn observe_excess(&mut self, now: Instant, keep: bool) -> (bool, Option<Excess>) {
        let excess = self.bounds.iter().find_map(|b| b.excess(now));
        let spacing = self.is_spacing(now);
        if excess.is_some() && !spacing {
            // The burst that led here is no debt: spacing begins afresh.
            self.next_spaced = now;
            (self.period_began, self.in_period) = (now, 0);
        }
        // The flood goes on, though what conforms is spaced: else safe mode would end in the midst of it.
        let flood = excess.is_none() && spacing && self.still_too_many(now);
        if excess.is_some() || flood {
            self.spaced_until = Some(now + self.memory);
        }
        let spaced = !spacing && excess.is_none() || now + self.spacing >= self.next_spaced;
        let kept = keep && self.is_spacing(now);
        let conforms = excess.is_none() && spaced && !kept;
        if conforms {
            self.next_spaced = self.next_spaced.max(now) + self.spacing;
            self.bounds.iter_mut().for_each(|bound| bound.count(now));
        }
        let (window, allowed, seen) = (self.memory, self.per_period, self.in_period);
        (conforms, excess.or_else(|| flood.then_some(Excess { window, allowed, seen })))
    }

    /// Records a request that comes before it conforms, by at most `tolerance`, as if it came when it does: by how much it is
    /// early. None is recorded so while an excess is remembered.
    ///
    /// Whatever comes, the instants that are recorded satisfy the curve and never go back: what conforms comes no sooner
    /// than what has. So the earliness of one is no debt of the next, and what came itself satisfies `α(Δ + tolerance)`.
    pub fn observe_early(&mut self, now: Instant, tolerance: Span) -> Option<Span> {
        if tolerance == Span::ZERO || self.is_spacing(now) {
            return None;
        }
        let due = self.earliest();
        let early = due.since(now);
        if early == Span::ZERO || early > tolerance {
            return None;
        }
        self.bounds.iter_mut().for_each(|bound| bound.count(due));
        Some(early)
    }

    /// Whether requests conform one by one, because of an excess.
    pub(crate) fn is_spacing(&self, now: Instant) -> bool {
        self.spaced_until.is_some_and(|until| now < until)
    }

    /// The earliest instant at which a request can conform, as far as the bounds are concerned.
    #[must_use]
    pub fn earliest(&self) -> Instant {
        self.bounds.iter().map(BoundState::earliest).max().unwrap_or(Instant::ZERO)
    }

    /// The earliest instant at which the `nth` request to come, counted from 0, can conform if none comes before `from`, as far as
    /// the bounds are concerned.
    pub(crate) fn nth(&self, from: Instant, nth: u64) -> Instant {
        self.bounds.iter().map(|bound| bound.nth(from, nth)).max().unwrap_or(from)
    }

    /// Whether more came since this period began than the curve allows: spaced requests conform, so the bounds
    /// alone would not see that the flood goes on.
    fn still_too_many(&mut self, now: Instant) -> bool {
        if now.since(self.period_began) >= self.memory {
            (self.period_began, self.in_period) = (now, 0);
        }
        self.in_period += 1;
        self.in_period > self.per_period
    }

    /// From now on requests conform as the bounds allow.
    pub(crate) fn forget_excess(&mut self) {
        self.spaced_until = None;
    }

    /// Until when the effects of the last excess last; `None` if there has been none.
    #[must_use]
    pub fn spaced_until(&self) -> Option<Instant> {
        self.spaced_until
    }
}

impl BoundState {
    /// Whether [`BoundState::excess`] sees none.
    #[inline(never)]
    fn has_room(&self, now: Instant) -> bool {
        match self {
            Self::Window { ring, next, .. } => now >= ring[*next],
            Self::Periodic { .. } | Self::Distances { .. } => self.excess(now).is_none(),
        }
    }

    fn excess(&self, now: Instant) -> Option<Excess> {
        match self {
            Self::Window { length, ring, next } => {
                let allowed = ring.len() as u64;
                (now < ring[*next]).then_some(Excess { window: *length, allowed, seen: allowed + 1 })
            }
            Self::Periodic { period, jitter, run: (began, held) } => {
                let theoretical = *began + times(*period, *held);
                let window = now.since(*began) + Span::from_nanos(1);
                let bound = ArrivalBound::Periodic { period: *period, jitter: *jitter };
                (*held > 0 && now + *jitter < theoretical).then(|| Excess {
                    window,
                    allowed: bound.count(window),
                    seen: held + 1,
                })
            }
            Self::Distances { distances, recent } => {
                let mut latest_first = (1..).zip(recent.iter().rev().zip(distances.as_slice()));
                latest_first.find_map(|(allowed, (&earlier, &least))| {
                    let window = now.since(earlier) + Span::from_nanos(1);
                    (window <= least).then_some(Excess { window, allowed, seen: allowed + 1 })
                })
            }
        }
    }

    /// The earliest instant at which [`BoundState::excess`] sees none.
    fn earliest(&self) -> Instant {
        match self {
            Self::Window { ring, next, .. } => ring[*next],
            Self::Periodic { period, jitter, run: (began, held) } => *began + times(*period, *held) - *jitter,
            Self::Distances { distances, recent } => {
                let latest_first = recent.iter().rev().zip(distances.as_slice());
                latest_first.map(|(&earlier, &least)| earlier + least).max().unwrap_or(Instant::ZERO)
            }
        }
    }

    /// See [`Policer::nth`].
    fn nth(&self, from: Instant, nth: u64) -> Instant {
        match self {
            Self::Window { length, ring, next } => {
                let (rounds, place) = (nth / ring.len() as u64, (nth % ring.len() as u64) as usize);
                let place = next + place;
                let at = ring[if place < ring.len() { place } else { place - ring.len() }];
                at.max(from) + times(*length, rounds)
            }
            Self::Periodic { period, jitter, run: (began, held) } => {
                // Of the present run, and of one that begins with what comes.
                let run = if *held > 0 { *began + times(*period, held.saturating_add(nth)) } else { from };
                run.max(from + times(*period, nth)).max(from + *jitter) - *jitter
            }
            Self::Distances { distances, recent } => {
                let fresh = from + Span::from_nanos(distances.distance(nth));
                let later = (nth + 1..).map(|i| Span::from_nanos(distances.distance(i)));
                recent
                    .iter()
                    .rev()
                    .zip(later)
                    .map(|(&earlier, least)| earlier + least)
                    .fold(fresh, Instant::max)
            }
        }
    }

    #[inline(never)]
    fn count(&mut self, now: Instant) {
        match self {
            Self::Window { length, ring, next } => count_in_window(now, *length, ring, next),
            Self::Periodic { period, run: (began, held), .. } => {
                if *held == 0 || *began + times(*period, *held) <= now {
                    (*began, *held) = (now, 0);
                }
                *held += 1;
            }
            Self::Distances { distances, recent } => {
                if recent.len() == distances.as_slice().len() {
                    recent.pop_front();
                }
                recent.push_back(now);
            }
        }
    }
}

/// Counts a request of now in a window of such a length, in place of the oldest.
#[inline]
fn count_in_window(now: Instant, length: Span, ring: &mut [Instant], next: &mut usize) {
    ring[*next] = now + length;
    *next = if *next + 1 == ring.len() { 0 } else { *next + 1 };
}

fn times(period: Span, count: u64) -> Span {
    Span::from_nanos(period.as_nanos().saturating_mul(count))
}

#[cfg(test)]
pub(crate) mod tests;
