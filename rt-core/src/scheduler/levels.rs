//! Levels: a stream that sends more than its promise allows falls to a weaker one that allows it, and climbs back.
//!
//! *When.* At a *calm* instant `s`: no mandatory request waits, and every worker is free again within its `P`. From such an
//! instant on Theorem A holds of whatever comes, so also if the stream keeps to another curve from `s` on: of that no more
//! requests are mandatory than admission has counted ([`crate::Level`]). A stream falls at the next calm instant after the
//! request that exceeded its declaration, at that request itself if the instant is calm; it climbs to a level whose declaration
//! it has kept for `clean` after the effects of the last excess, and `hold` after the last change at the soonest. No batch longer
//! than `P` is begun while a change is due, so it comes as soon as the workers have caught up ([`crate::System::time_to_calm`]).
//!
//! *The windows across.* The word begins anew at its best phase. So a constraint of the new level holds in every window that ends
//! after `s` if of the last *a* requests before `s` at least `⌊aρ⌋` were answered, for every *a* (`proof/Ladder.v`, `across`): in a fall
//! from a level that is kept up to `s` that is so. What came after the excess and before `s` was promised nothing: a window that holds one
//! of these and is violated is announced as the stream's own.

use super::Scheduler;
use crate::safe_mode::Alarm;
use crate::stream::{StreamId, StreamState};
use crate::time::Instant;
use crate::word::Class;

impl Scheduler {
    /// How the promise to a stream stands, as far as the stream itself is concerned, and what it broke.
    #[must_use]
    pub fn stream_state(&self, id: StreamId) -> Option<(StreamState, Option<Alarm>)> {
        Some(self.streams.get(id)?.state())
    }

    /// Request number `seq` of a stream that has levels was sent at `sent`: holds it against all of them; whether it conforms to
    /// the one in force, and how much it counts.
    #[inline(never)]
    pub(super) fn observe_levels(
        &mut self,
        now: Instant,
        id: StreamId,
        sent: Instant,
        seq: u64,
    ) -> (bool, Class) {
        let (tolerance, clean) = (self.tolerance(), self.clean());
        let Some(stream) = self.streams.get_mut(id) else { return (false, Class::Optional) };
        if let Some(ladder) = &mut stream.ladder {
            ladder.observe(sent, tolerance, clean);
        }
        match stream.observe(sent) {
            Some(class) => (true, class),
            None => self.observe_excess(now, id, sent, seq),
        }
    }

    /// Request number `seq` of a stream has just exceeded the declaration of the level in force, with effects until `until`: if it
    /// keeps to that of another and the instant is calm, that is in force at once, and the request is one of it: how much it counts.
    pub(super) fn fall(
        &mut self,
        now: Instant,
        id: StreamId,
        alarm: Alarm,
        until: Instant,
        seq: u64,
    ) -> Option<Class> {
        let (hold, clean) = (self.config.safe_mode.hold, self.clean());
        let calm = self.streams.get(id)?.ladder.is_some() && self.is_calm(now);
        let stream = self.streams.get_mut(id)?;
        let ladder = stream.ladder.as_mut()?;
        ladder.exceeded(until.max(now) + clean);
        ladder.alarm = Some(alarm);
        if ladder.is_held() {
            return None;
        }
        let wanted = ladder.wanted(now, hold).filter(|&level| calm && ladder.kept(level));
        let Some(level) = wanted else {
            self.look_again(now);
            return None;
        };
        let suspended = stream.suspended.is_some();
        stream.breaches += 1;
        stream.change_level(now, level, seq);
        let class = stream.marks.next(true, false);
        self.changed_level(now, id.slot, suspended);
        Some(class)
    }

    /// Puts the level in force that ought to be, if that is another and the instant is calm; whether it ought to. In place of none a stream
    /// that sent too much has one as soon as it is calm: the same anew if that may be promised again but for what it still has waiting,
    /// which is in the way of nothing that comes then.
    pub(super) fn settle_level(&mut self, now: Instant, slot: u16) -> bool {
        let (hold, calm) = (self.config.safe_mode.hold, self.is_calm(now));
        let waits = self.waiting.has_demoted(slot);
        let Some(stream) = self.streams.at_mut(slot) else { return false };
        let Some(ladder) = &stream.ladder else { return false };
        let excess = stream.suspended.filter(|suspended| suspended.free > suspended.alarm.entered);
        let instead = excess.filter(|suspended| now < suspended.until || waits);
        let instead = instead.and_then(|suspended| ladder.instead(now, suspended.until <= now));
        let Some(level) = ladder.wanted(now, hold).or(instead) else {
            if let Some(at) = ladder.next(now, hold) {
                self.look_again(at);
            }
            return false;
        };
        if calm {
            let (suspended, from) = (stream.suspended.is_some(), stream.counts.arrived);
            stream.change_level(now, level, from);
            self.changed_level(now, slot, suspended);
        } else {
            self.suspensions.waits_for_calm = true;
            self.look_again(now);
        }
        true
    }

    /// Another level is in force for a stream, which was `suspended` before or not.
    pub(super) fn changed_level(&mut self, now: Instant, slot: u16, suspended: bool) {
        self.suspensions.count -= usize::from(suspended);
        self.suspensions.changes += 1;
        self.suspensions.list(slot);
        self.planner.forget(usize::from(slot));
        if let Some(stream) = self.streams.at(slot) {
            self.to_come.set(usize::from(slot), stream.earliest());
        }
        self.look_again(now);
        self.tell_suspension(now, slot);
    }

    /// Whether a stream may have levels here: what a calm instant is has been shown for workers of the service's own and with background.
    pub(super) fn may_change_levels(&self) -> bool {
        self.guest.is_none() && self.config.background && !self.absorbs
    }

    /// Whether what comes from `now` on is answered in time whatever came before.
    pub(super) fn is_calm(&self, now: Instant) -> bool {
        self.waiting.is_clear() && self.is_prompt(now)
    }

    /// Whether a change of levels is due and waits for the end of what runs.
    pub(super) fn waits_for_calm(&self) -> bool {
        self.suspensions.waits_for_calm
    }
}
