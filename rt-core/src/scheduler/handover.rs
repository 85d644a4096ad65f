//! One scheduler takes over from another with other workers, times or limits, and the streams go along with all
//! that was promised to them.
//!
//! *Why it is safe.* It happens at an instant `s` at which no worker runs anything and no mandatory request waits.
//! From then on the new scheduler is one that starts at `s` with free workers. Its admission test bounds what may
//! arrive in any stretch of time, so also after `s`, by the streams' declarations and words; both go on where they
//! were. Whatever was promised before `s` is over at `s`: each mandatory request has been answered.

use super::Scheduler;
use super::queue::MANDATORY;
use super::streams::{Retired, most_open, places};
use crate::fallback::Fallbacks;
use crate::ledger::digest;
use crate::stream::{MissReason, Stream, StreamId, StreamSpec};
use crate::time::{Instant, Span};

/// Why one scheduler cannot take over from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandOverError {
    /// Later it may: batches run, or mandatory requests wait.
    #[error("{running} requests are running and {waiting} wait that must be served")]
    Busy {
        /// Requests in batches.
        running: usize,
        /// Mandatory requests waiting.
        waiting: usize,
    },
    /// The other one has work or streams of its own.
    #[error("the scheduler that is to take over is not new")]
    NotNew,
    /// The other one has too few places.
    #[error("{streams} streams go on, the limit is {limit}")]
    Limit {
        /// Those that are there and do not end.
        streams: usize,
        /// Its places.
        limit: usize,
    },
    /// The other one serves none without a declaration, and there are such.
    #[error("a stream must declare its arrivals where no background is served")]
    Undeclared,
    /// The other one cannot change to weaker promises ([`crate::StreamError::Levels`]), and there are streams that have such.
    #[error(
        "a stream has weaker promises behind its first, which shared workers, no background and stalls that are absorbed rule out"
    )]
    Levels,
}

impl Scheduler {
    /// While on, batches are started for mandatory requests alone (others fill them up as ever), so that an instant
    /// for [`Scheduler::hand_over`] comes as soon as the promises allow. Without background others are given up: what waited beside an
    /// idle worker would be in no reckoning of the refinement, and in the way of what comes once this is off again.
    pub fn set_quiet(&mut self, quiet: bool) {
        (self.quiet, self.changed) = (quiet, true);
        self.look_at(Instant::ZERO);
    }

    /// Allocates what it needs to take over `streams` from a scheduler of so many places: before [`Scheduler::hand_over`], where
    /// nobody waits. What is left over then is to be dropped where nobody waits either: [`Scheduler::leftovers`].
    pub fn expect_streams<'a>(&mut self, places: usize, streams: impl IntoIterator<Item = &'a StreamSpec>) {
        if self.streams.len() == 0 {
            self.resize(places);
        }
        for spec in streams {
            self.spare.add(self.places_for(spec));
        }
    }

    /// What was allocated for a takeover that is over, and what the streams had before.
    pub fn leftovers(&mut self) -> Retired {
        Retired::logs(core::mem::take(&mut self.spare))
    }

    /// For at least so many streams, of which there are none yet. Allocates if they are more.
    fn resize(&mut self, places: usize) {
        self.streams.resize(places);
        let count = self.streams.places();
        self.planner.resize(count);
        self.waiting.resize(count);
        self.tolerance.resize(count);
        if count > self.to_come.numbers() {
            self.to_come.resize(count);
        }
    }

    /// Gives every stream but those of `ended` to `next`, with its number, record, word and arrival monitor, and safe
    /// mode as it is; then this one has none. What waits, which nothing was promised for, is cancelled: call
    /// [`Scheduler::poll`] on this one a last time. The caller has tested that the streams are admitted by `next`,
    /// whose shield and tolerance are to be set anew. Allocates what `next` was not told to [`Scheduler::expect_streams`]. Linear in the streams, of
    /// which none is touched unless more of its requests can be unanswered than before.
    ///
    /// # Errors
    /// If `next` is not fit, which no waiting mends, or work is left that something was promised for
    /// ([`HandOverError::Busy`]); nothing has changed then.
    pub fn hand_over(
        &mut self,
        now: Instant,
        next: &mut Self,
        ended: &[StreamId],
    ) -> Result<(), HandOverError> {
        self.check_heir(next, ended)?;
        let (running, waiting) = self.promised_open();
        if running > 0 || waiting > 0 {
            return Err(HandOverError::Busy { running, waiting });
        }
        self.end_streams(now, ended);
        self.pass_on(now, next);
        Ok(())
    }

    /// Cancels all that waits, and ends these streams.
    pub(crate) fn end_streams(&mut self, now: Instant, ended: &[StreamId]) {
        self.give_up_all(now, MissReason::Cancelled);
        ended.iter().for_each(|id| drop(self.remove_stream(*id)));
    }

    /// Has a stream go on with another declaration and other constraints, that the caller has tested beside all others; the
    /// shield is to be set anew. To be called where [`Scheduler::hand_over`] or that of a device has just taken over, before
    /// anything else; none if it was not, or there is no such stream. What the stream no longer needs is to be dropped where
    /// nobody waits. Allocates.
    ///
    /// *Why it is safe.* Nothing of the stream is open that anything was promised for. Its arrivals are held against the new
    /// declaration alone: what conforms from now on keeps to that. Its word goes on from where it is, so that among any `n` of
    /// these requests no more are mandatory than admission counts, and with a lesser density no fewer among any `n` of which some
    /// came before than the new constraints need. A greater density than before says nothing of those that came before.
    pub fn redeclare(&mut self, id: StreamId, spec: StreamSpec) -> Option<Retired> {
        if self.waiting() + self.running() > 0 {
            return None;
        }
        let (places, density) = (self.places_for(&spec), self.config.density_of(&spec));
        let stream = self.streams.get_mut(id)?;
        let before = stream.redeclare(spec, density, places);
        self.ledger.depart(&before.spec, before.digest, true);
        self.ledger.join(&stream.spec, stream.digest);
        let (slot, demands) = (usize::from(id.slot), stream.spec.demand().is_some());
        match demands {
            true => self.to_come.set(slot, stream.earliest()),
            false => self.to_come.remove(slot),
        }
        self.planner.forget(slot);
        // Nothing is known of what is left beside it.
        self.fallbacks = Fallbacks::default();
        self.tolerance.set(id.slot, demands.then_some((Span::ZERO, self.fallbacks)));
        self.recount_left();
        let shield = self.shield.take();
        self.changed = true;
        Some(Retired::stream(shield, before))
    }

    /// Gives every stream that is left to `next`, which has been found fit, at an instant at which nothing is in the way.
    pub(crate) fn pass_on(&mut self, now: Instant, next: &mut Self) {
        self.rise(now);
        next.resize(self.streams.places());
        next.streams.continue_from(&mut self.streams);
        let unanswered = |of: &Self| (of.life, most_open(&of.config));
        let ((life, open), (life_before, open_before)) = (unanswered(next), unanswered(self));
        // Mostly nothing is to be done to any of them.
        if life > life_before || open > open_before {
            for stream in next.streams.iter_mut() {
                stream.outcomes.grow(places(&next.config, &stream.spec, life), &mut next.spare);
            }
        }
        next.tolerance.continue_from(&self.tolerance);
        next.ledger.continue_from(&mut self.ledger);
        if self.absorbs || next.absorbs {
            next.recount();
        }
        for slot in 0..self.streams.places() {
            next.to_come.set(slot, self.to_come.at(slot));
        }
        if let (Some(next), Some(before)) = (&mut next.stalls, &self.stalls) {
            next.continue_from(before);
        }
        (next.overruns, next.absorbed) = (self.overruns, self.absorbed);
        next.stay_demoted(self);
        next.apart = self.apart;
        next.safe_mode.continue_from(now, &self.safe_mode);
        next.continue_suspensions(now, &self.suspensions);
        // A worker that was lost since it was warmed up is none that the promise was computed with.
        let (alive, all) = next.workers();
        if alive < all {
            next.count_workers(now);
            next.raise_worker_lost(now, 0);
        }
        self.shield = None;
        next.changed = true;
    }

    /// More or less of the streams that have come must be served here than where they came from, nothing of which is left.
    fn recount(&mut self) {
        self.ledger.forget_all();
        for stream in self.streams.iter_mut() {
            let density = self.config.density_of(&stream.spec);
            stream.marks.change(density);
            stream.digest = digest(&stream.spec, density);
            self.ledger.join(&stream.spec, stream.digest);
        }
    }

    /// Whether `next` is fit to take over all streams but those of `ended`, some time.
    pub(crate) fn check_heir(&self, next: &Self, ended: &[StreamId]) -> Result<(), HandOverError> {
        if next.streams.len() > 0 || next.waiting() + next.running() > 0 {
            return Err(HandOverError::NotNew);
        }
        let ending = ended.iter().filter(|id| self.streams.get(**id).is_some()).count();
        let (streams, limit) = (self.streams.len().saturating_sub(ending), next.config.streams);
        if streams > limit {
            return Err(HandOverError::Limit { streams, limit });
        }
        if !next.may_change_levels()
            && self.streams.iter().any(|s| s.ladder.is_some() && !ended.contains(&s.id))
        {
            return Err(HandOverError::Levels);
        }
        let undeclared = |s: &Stream| s.spec.arrivals().is_none() && !ended.contains(&s.id);
        if !next.config.background && self.streams.iter().any(undeclared) {
            return Err(HandOverError::Undeclared);
        }
        Ok(())
    }

    /// What is in the way of a takeover now: requests in batches, and mandatory ones that wait.
    pub(crate) fn promised_open(&self) -> (usize, usize) {
        (self.running(), self.waiting.class(MANDATORY).len())
    }
}
