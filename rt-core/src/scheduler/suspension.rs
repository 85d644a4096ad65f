//! Suspension: a stream that breaks its declaration suspends the promise to itself, and to nobody else.
//!
//! *Why the others' promises stand.* Their admission counts at most `⌈ρ·α(Δ)⌉` mandatory requests of each stream in any
//! interval, and no other requests at all. Of the stream that sends too much, what exceeds the curve is never
//! mandatory: the arrival monitor lets pass what satisfies it, and of `n` conforming requests in a row at most `⌈nρ⌉` are
//! marked (`police`, `word`). All else has its place behind what is mandatory, as if it had declared nothing.
//!
//! *How long.* Each excess request suspends the promise until `clean` after its effects end: those of the arrival monitor, which
//! lets requests conform one by one for four times the longest window of the declaration, and at most for
//! [`crate::MAX_MEMORY`]; for `hold` at least from the first on; and as long as one of its *demoted* requests waits, which is at
//! most a deadline. From then on what comes within the declaration is marked by the word alone and answered in time. A window
//! that holds an earlier request may still be violated: that is announced, as the stream's own.
//!
//! *Where misses are spread* the stream is *free* for as long as its excess suspends it: all that it sends is optional. To every
//! promise it is a stream that sends less, and a stranger beside it (`docs/guarantee.md`). What is violated meanwhile prolongs the
//! suspension, but not that: so it ends.

use alloc::vec::Vec;

use super::Scheduler;
use super::types::{Event, NEVER};
use crate::safe_mode::{Alarm, Cause, Evidence, Suspension};
use crate::stream::{StreamId, StreamState, Suspended};
use crate::time::{Instant, Span};

/// Of a stream whose promise stands as it was made, and was told so.
const NORMAL: (StreamState, StreamState) = (StreamState::Normal, StreamState::Normal);

/// The streams whose promise is suspended, or for which a weaker one stands in, or whose present state has not been announced.
#[derive(Clone, Debug)]
pub(super) struct Suspensions {
    listed: Vec<u16>,
    /// How many are suspended.
    pub(super) count: usize,
    /// How often one began or ended.
    pub(super) changes: u64,
    /// When the first of them may be resumed, or told of; the end of time if there is none.
    pub(super) next: Instant,
    sequence: u64,
    /// Another level is to be in force for one of them, as soon as nothing is in the way.
    pub(super) waits_for_calm: bool,
}

impl Suspensions {
    /// None, of so many streams. Allocates.
    pub(super) fn new(streams: usize) -> Self {
        let listed = Vec::with_capacity(streams);
        Self { listed, count: 0, changes: 0, next: NEVER, sequence: 0, waits_for_calm: false }
    }

    /// Whether a stream is suspended, or something is to be told of one.
    pub(super) fn is_any(&self) -> bool {
        self.next < NEVER
    }

    /// Whether nothing is to be done at `now`.
    pub(super) fn lasts(&self, now: Instant) -> bool {
        now < self.next
    }

    /// When there is something to be done, unless that waits for something else.
    pub(super) fn next(&self, now: Instant) -> Instant {
        if self.next > now { self.next } else { NEVER }
    }

    pub(super) fn list(&mut self, slot: u16) {
        if !self.listed.contains(&slot) {
            self.listed.push(slot);
        }
    }
}

impl Scheduler {
    /// Why the promise to a stream is suspended, if it is for something that the stream did itself.
    #[must_use]
    pub fn suspension(&self, id: StreamId) -> Option<Alarm> {
        self.streams.get(id)?.suspended.map(|suspended| suspended.alarm)
    }

    /// How often suspensions began or ended, and how many streams are suspended now.
    #[must_use]
    pub fn suspensions(&self) -> (u64, usize) {
        (self.suspensions.sequence, self.suspensions.count)
    }

    /// How often suspensions began or ended by themselves, announced or not.
    #[must_use]
    pub fn suspension_changes(&self) -> u64 {
        self.suspensions.changes
    }

    /// The streams whose suspension has begun or ended without that being told, as while announcements are inhibited.
    pub fn untold_suspensions(&self) -> impl Iterator<Item = StreamId> + '_ {
        let streams = self.suspensions.listed.iter().filter_map(|&slot| self.streams.at(slot));
        streams.filter(|stream| stream.told != stream.state().0).map(|stream| stream.id)
    }

    /// The stream broke what its promise rests on, with effects until `until`.
    pub(super) fn suspend(
        &mut self,
        now: Instant,
        id: StreamId,
        cause: Cause,
        evidence: Evidence,
        until: Instant,
    ) {
        let (hold, clean) = (self.config.safe_mode.hold, self.clean());
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.breaches += 1;
        let until = (now + clean).max(until + clean);
        let excess = cause == Cause::ArrivalExcess;
        if let Some(suspended) = &mut stream.suspended {
            suspended.until = suspended.until.max(until);
            if excess {
                suspended.free = suspended.free.max(until);
            }
            return;
        }
        let until = until.max(now + hold);
        let (alarm, free) = (Alarm { cause, evidence, entered: now }, if excess { until } else { now });
        stream.suspended = Some(Suspended { alarm, until, free });
        self.suspensions.count += 1;
        self.suspensions.changes += 1;
        self.suspensions.list(id.slot);
        self.look_again(until);
        self.tell_suspension(now, id.slot);
    }

    /// For how long after the effects of an excess nothing may have been wrong: `clean`, and until all has been read that was sent while
    /// they lasted, which is held against the declaration by when it was sent.
    pub(super) fn clean(&self) -> Span {
        self.config.safe_mode.clean.max(self.most_late())
    }

    /// Resumes the promises whose time has come; false if nothing is to be told.
    pub(super) fn resume_streams(&mut self, now: Instant) -> bool {
        if now < self.suspensions.next {
            return false;
        }
        self.suspensions.next = NEVER;
        self.suspensions.waits_for_calm = false;
        let rises = self.settle_fallback(now);
        let (mut index, before) = (0, self.suspensions.sequence);
        while let Some(&slot) = self.suspensions.listed.get(index) {
            self.resume_stream(now, slot);
            let done =
                self.streams.at_mut(slot).is_none_or(|stream| (stream.state().0, stream.told) == NORMAL);
            if done {
                self.suspensions.listed.swap_remove(index);
            } else {
                index += 1;
            }
        }
        rises || self.suspensions.sequence > before
    }

    /// Resumes the promise to one stream if nothing of what it broke is left, and tells what has not been told.
    fn resume_stream(&mut self, now: Instant, slot: u16) {
        if self.settle_level(now, slot) {
            return;
        }
        let waits = self.waiting.has_demoted(slot);
        let Some(stream) = self.streams.at_mut(slot) else { return };
        match stream.suspended {
            Some(Suspended { until, .. }) if now < until || waits => self.look_again(until),
            Some(_) => {
                stream.suspended = None;
                stream.excused = stream.counts.arrived;
                stream.ladder.iter_mut().for_each(|ladder| ladder.enter(now));
                self.suspensions.count -= 1;
                self.suspensions.changes += 1;
            }
            None => {}
        }
        self.tell_suspension(now, slot);
    }

    /// Tells of a stream what has not been told, unless announcements are inhibited.
    pub(super) fn tell_suspension(&mut self, now: Instant, slot: u16) {
        let inhibited = self.safe_mode.inhibited_until();
        let Some(stream) = self.streams.at_mut(slot) else { return };
        if stream.told == stream.state().0 {
            return;
        }
        if now < inhibited || !self.told.has_room() {
            self.look_again(inhibited);
            return;
        }
        self.announce_suspension(slot);
    }

    /// Tells how the promise to a stream stands now.
    fn announce_suspension(&mut self, slot: u16) {
        let Some(stream) = self.streams.at_mut(slot) else { return };
        let (state, alarm) = stream.state();
        stream.told = state;
        self.suspensions.sequence += 1;
        let sequence = self.suspensions.sequence;
        let told = Suspension { sequence, stream: stream.id, state, alarm, breaches: stream.breaches };
        self.told.announce(Event::Suspension(told));
    }

    /// The stream is about to be removed, and is suspended no longer. Whoever was told so is told that as well, also while
    /// announcements are inhibited: later there is no stream to tell of.
    pub(super) fn end_suspension(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        self.suspensions.count -= usize::from(stream.suspended.take().is_some());
        stream.ladder = None;
        if stream.told != StreamState::Normal {
            self.announce_suspension(id.slot);
        }
        self.suspensions.listed.retain(|&listed| listed != id.slot);
    }

    /// Ends all suspensions by order of an operator, as soon as nothing of what was demoted waits.
    pub(super) fn clear_suspensions(&mut self, now: Instant) {
        for stream in self.streams.iter_mut() {
            if let Some(suspended) = &mut stream.suspended {
                (suspended.until, suspended.free) = (now, now);
                stream.police.iter_mut().for_each(crate::police::Policer::forget_excess);
            }
            stream.ladder.iter_mut().for_each(|ladder| ladder.forget_excess(now));
        }
        if !self.suspensions.listed.is_empty() {
            self.look_again(now);
        }
    }

    pub(super) fn look_again(&mut self, at: Instant) {
        self.changed = true;
        self.look_at(at);
        self.suspensions.next = self.suspensions.next.min(at);
    }

    /// Goes on with the suspensions of another scheduler, whose streams have moved here.
    pub(super) fn continue_suspensions(&mut self, now: Instant, before: &Suspensions) {
        self.suspensions.sequence = before.sequence;
        for &slot in &before.listed {
            let stream = self.streams.at(slot).filter(|stream| (stream.state().0, stream.told) != NORMAL);
            let Some(stream) = stream else { continue };
            self.suspensions.count += usize::from(stream.suspended.is_some());
            self.suspensions.list(slot);
        }
        if !self.suspensions.listed.is_empty() {
            self.look_again(now);
        }
    }
}
