//! Fallback: when a worker is lost, or a batch takes longer than it should, the promises that hold nevertheless are in force as soon
//! as what piled up has been worked off.
//!
//! *What happens.* Which promises those are was found beforehand ([`crate::System::fallbacks`]): for all streams that count, of the
//! level `ℓ`, with the arrivals of their first promises. When it happens nothing is promised, and the words of the
//! streams are those of `ℓ` from then on; all batches may take [`longer`], if it was for one that did. Safe
//! mode is left at the first *calm* instant `s` after the breach: no mandatory request waits, and every worker that is there is free
//! by `s + P`, as `aftermath` has it. No batch longer than `P` is begun and no stream is held to anything but its first
//! declaration, so from `s` on Theorem A of the workers as they are then holds of what comes. A window that holds a request
//! from before `s` is promised nothing.
//!
//! *The way back.* Once all workers have been there, or all batches have kept their time, for `hold` and for `clean`, at the next calm
//! instant the first promises are in force again, which is a change to another level of all streams at once (`levels`). Before
//! that workers that are back only help: what has been begun by any instant is no less.
//!
//! *Streams that come* are added if the promises fall back on no weaker level with them, and when nothing that was begun is in their
//! way; shields were made for other workers, and are asked nothing. If more goes wrong, nothing holds, as ever.

use super::Scheduler;
use crate::fallback::{Fallback, Fallbacks, longer};
use crate::safe_mode::{Alarm, Cause, Evidence};
use crate::stream::Stream;
use crate::time::{Instant, Span};

/// What the promises have fallen back for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    WorkerLost,
    LongerBatches,
}

/// The promises have fallen back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fallen {
    case: Case,
    level: usize,
    pub(super) tolerance: Span,
    /// What was wrong, and when.
    alarm: Alarm,
    /// When the first promises may stand again, if all is well until then; none if it is not now.
    until: Option<Instant>,
    /// Safe mode has been left since.
    in_force: bool,
}

impl Scheduler {
    /// What the promises to all streams fall back on, until another stream comes: to be set where
    /// [`Scheduler::set_shield`] is, before requests come or right after a takeover. Nothing where promises cannot be
    /// weakened ([`crate::StreamError::Levels`]).
    pub fn set_fallbacks(&mut self, now: Instant, fallbacks: Fallbacks) {
        if self.fallen.is_none() {
            self.join_fallbacks(fallbacks);
            self.note_fallbacks();
            self.cover_missing(now);
        }
    }

    /// Something is promised from now on: if a worker is missing since before that the promises fall back, if they can.
    pub(super) fn cover_missing(&mut self, now: Instant) {
        let lost = self.lost_alarm(now);
        if self.fallen.is_none() && self.cover(Case::WorkerLost, lost) {
            self.count_workers(now);
        }
    }

    /// What the promises fall back on.
    #[must_use]
    pub fn fallbacks(&self) -> Fallbacks {
        self.fallbacks
    }

    /// The level that the promises have fallen back on, if they have.
    #[must_use]
    pub fn fallen(&self) -> Option<usize> {
        self.fallen.map(|fallen| fallen.level)
    }

    /// A worker has just been lost: has the promises fall back if they can, and raises safe mode.
    pub(super) fn worker_lost(&mut self, now: Instant) {
        let slow = self.fallen.is_some_and(|fallen| fallen.case == Case::LongerBatches);
        let alarm = self.lost_alarm(now);
        if let Some(fallen) = self.fallen.as_mut().filter(|fallen| fallen.case == Case::WorkerLost) {
            // Also where nothing is promised just now, and the promises do not fall back anew.
            fallen.until = None;
        }
        let covered = self.cover(Case::WorkerLost, alarm);
        self.count_workers(now);
        // With batches that took longer just before it is safe mode for long enough to know that they no longer do.
        self.breach(alarm, covered && !slow);
    }

    /// A worker is back. If it was the last that was missing, the first promises will stand again.
    pub(super) fn worker_back(&mut self, now: Instant) {
        self.count_workers(now);
        let (all, until) = (self.missing() == 0, now + self.settling());
        let back = |fallen: &&mut Fallen| all && fallen.case == Case::WorkerLost;
        if let Some(fallen) = self.fallen.as_mut().filter(back) {
            fallen.until = Some(until);
            self.look_again(now);
        }
    }

    /// By order of an operator the first promises stand again as soon as they may, if all is well.
    pub(super) fn clear_fallback(&mut self, now: Instant) {
        if let Some(until) = self.fallen.as_mut().and_then(|fallen| fallen.until.as_mut()) {
            *until = now;
            self.look_again(now);
        }
    }

    /// A batch that began and was due at these instants runs at `now`, or ended, after `time`: has the promises fall back if they can,
    /// and raises safe mode; once only if it was `reported`.
    pub(super) fn overran(
        &mut self,
        now: Instant,
        (started, due, reported): (Instant, Instant, bool),
        time: Span,
    ) {
        let bound = due.since(started);
        let evidence = Evidence { limit: bound.as_nanos(), seen: time.as_nanos(), ..Evidence::default() };
        let alarm = Alarm { cause: Cause::ServiceOverrun, evidence, entered: now };
        let within = now.since(started) <= longer(bound);
        let covered = within && (self.has_slowed_down(started) || self.cover(Case::LongerBatches, alarm));
        match reported {
            true if covered => self.note_breach(),
            true => self.safe_mode.put_off(now),
            false => self.breach(alarm, covered),
        }
        if !covered && self.fallen.is_some_and(|fallen| fallen.case == Case::LongerBatches) {
            // It took longer still: nothing is to be fallen back on.
            self.rise(now);
            self.note_breach();
            self.safe_mode.put_off_until(now + self.settling());
        }
        self.keep_down(now);
    }

    /// A batch that began and was due at these instants ended in time at `now`. While the promises have fallen back for longer ones
    /// it counts if it was one.
    #[cold]
    pub(super) fn note_pace(&mut self, now: Instant, started: Instant, due: Instant) {
        if longer(now.since(started)) > due.since(started) {
            self.keep_down(now);
        }
    }

    /// Has the first promises stand again if it is time and the instant is calm; whether they do.
    pub(super) fn settle_fallback(&mut self, now: Instant) -> bool {
        let Some(Fallen { until: Some(until), in_force: true, .. }) = self.fallen else { return false };
        if now < until {
            self.look_again(until);
            return false;
        }
        // Within the `P` that holds from then on.
        let slower = self.pool.set_slower(false);
        let calm = self.is_calm(now);
        if calm {
            self.rise(now);
        } else {
            self.pool.set_slower(slower);
            self.suspensions.waits_for_calm = true;
            self.look_again(now);
        }
        calm
    }

    /// Ends the fallback at an instant at which the first promises may stand.
    pub(super) fn rise(&mut self, now: Instant) {
        let falling = self.is_falling();
        if let Some(fallen) = self.fallen.take() {
            if falling {
                // Nothing was promised to what came since, and now never will be.
                self.streams.iter_mut().for_each(Stream::set_aside);
            }
            self.pool.set_slower(false);
            self.hold_streams(0, Alarm { entered: now, ..fallen.alarm });
            let transition = self.safe_mode.rise(now);
            self.tell(transition);
        }
    }

    /// Safe mode may just have been left: from now on what the promises have fallen back on is in force.
    pub(super) fn note_left(&mut self, now: Instant) {
        let suspended = self.safe_mode.severity().is_suspended();
        let Some(fallen) = self.fallen.as_mut().filter(|fallen| !suspended && !fallen.in_force) else {
            return;
        };
        fallen.in_force = true;
        self.streams.iter_mut().for_each(Stream::set_aside);
        self.look_again(now);
    }

    /// Whether the promises fall back on something that is not in force yet.
    pub(super) fn is_falling(&self) -> bool {
        self.fallen.is_some_and(|fallen| !fallen.in_force)
    }

    /// Whether the promises hold with the workers that are there, as soon as what piled up has been worked off.
    pub(super) fn is_covered(&self) -> bool {
        let Some(fallen) = self.fallen else { return false };
        self.missing() <= 1
            && self.fallback(fallen.case).is_some_and(|fallback| fallback.level <= fallen.level)
            && (fallen.case == Case::WorkerLost || self.missing() == 0)
    }

    /// Whether a stream may come with which the promises fall back on these.
    pub(super) fn is_borne(&self, fallbacks: Fallbacks) -> bool {
        let counts = |fallen: &Fallen| fallen.case == Case::LongerBatches || self.is_covered();
        let Some(fallen) = self.fallen.filter(counts) else { return true };
        let may_be = |new: Fallback| new.level <= fallen.level && self.tolerance.may_be(new.tolerance);
        of(fallbacks, fallen.case).is_some_and(may_be)
    }

    /// A stream comes with which the promises fall back on these.
    pub(super) fn join_fallbacks(&mut self, fallbacks: Fallbacks) {
        self.fallbacks = if self.may_change_levels() { fallbacks } else { Fallbacks::default() };
        let new = self.fallen.and_then(|fallen| self.fallback(fallen.case));
        if let Some((fallen, new)) = self.fallen.as_mut().zip(new) {
            fallen.tolerance = fallen.tolerance.min(new.tolerance);
        }
    }

    /// Holds a stream that has levels to that one, for what is wrong; 0 ends that.
    pub(super) fn hold_stream(&mut self, slot: u16, level: usize, alarm: Alarm) {
        let Some(stream) = self.streams.at_mut(slot) else { return };
        let suspended = stream.suspended.is_some();
        let now = alarm.entered;
        if stream.hold_to(now, (level > 0).then_some((level, alarm))) {
            self.suspensions.count += usize::from(!suspended && stream.suspended.is_some());
            self.changed_level(now, slot, false);
        }
    }

    /// A stream has come, while the promises have fallen back or not.
    pub(super) fn hold_newcomer(&mut self, now: Instant, slot: u16) {
        if let Some(Fallen { level, alarm, .. }) = self.fallen {
            self.hold_stream(slot, level, Alarm { entered: now, ..alarm });
        }
    }

    /// Has the promises fall back in such a case if they can; whether they do.
    fn cover(&mut self, case: Case, alarm: Alarm) -> bool {
        let is_so = match case {
            Case::WorkerLost => self.missing() == 1,
            Case::LongerBatches => self.missing() == 0 && self.fallen.is_none(),
        };
        // What is latched ends by an operator's order alone; and where nothing is promised there is nothing to fall back on.
        let may = is_so && !self.config.safe_mode.latch && !self.ledger.is_empty();
        let Some(Fallback { level, tolerance, .. }) = self.fallback(case).filter(|_| may) else {
            return false;
        };
        if case == Case::LongerBatches {
            self.pool.extend();
        }
        self.pool.set_slower(case == Case::LongerBatches);
        self.fallen = Some(Fallen { case, level, tolerance, alarm, until: None, in_force: false });
        self.hold_streams(level, alarm);
        self.safe_mode.fall_back(alarm);
        true
    }

    /// Raises safe mode, which is left as soon as what piled up has been worked off if it is `covered`.
    fn breach(&mut self, alarm: Alarm, covered: bool) {
        let Alarm { cause, evidence, entered } = alarm;
        if covered {
            self.note_breach();
            let transition = self.safe_mode.raise_briefly(entered, cause, evidence);
            self.tell(transition);
        } else {
            self.fallen.iter_mut().for_each(|fallen| fallen.in_force = false);
            self.raise(entered, cause, evidence, entered);
        }
    }

    /// Whether the promises fall back for longer batches since after one that began at `started`.
    fn has_slowed_down(&self, started: Instant) -> bool {
        let since = |fallen: Fallen| fallen.case == Case::LongerBatches && started < fallen.alarm.entered;
        self.is_falling() && self.fallen.is_some_and(since)
    }

    /// A batch has taken longer than it should: so it may be again.
    fn keep_down(&mut self, now: Instant) {
        let until = now + self.settling();
        let slow = |fallen: &&mut Fallen| fallen.case == Case::LongerBatches;
        if let Some(fallen) = self.fallen.as_mut().filter(slow) {
            fallen.until = Some(until);
            self.look_again(now);
        }
    }

    /// Holds all streams to a level. Linear in the streams.
    fn hold_streams(&mut self, level: usize, alarm: Alarm) {
        (0..self.streams.places()).for_each(|slot| self.hold_stream(slot as u16, level, alarm));
    }

    fn lost_alarm(&self, now: Instant) -> Alarm {
        Alarm { cause: Cause::WorkerLost, evidence: self.workers_seen(0), entered: now }
    }

    fn fallback(&self, case: Case) -> Option<Fallback> {
        of(self.fallbacks, case)
    }

    /// For how long all must be well.
    fn settling(&self) -> Span {
        self.config.safe_mode.hold.max(self.config.safe_mode.clean)
    }

    fn missing(&self) -> usize {
        self.pool.len() - self.pool.alive()
    }
}

fn of(fallbacks: Fallbacks, case: Case) -> Option<Fallback> {
    match case {
        Case::WorkerLost => fallbacks.worker_lost,
        Case::LongerBatches => fallbacks.longer_batches,
    }
}
