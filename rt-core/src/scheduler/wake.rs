//! What time brings about: when `poll` has something to do if nothing happens before, and whether dispatch was late.

use super::Scheduler;
use super::queue::{DEMOTED, MANDATORY, OPTIONAL};
use super::types::{Action, NEVER};
use crate::admission::Dispatch;
use crate::safe_mode::Severity;
use crate::time::{Instant, Span};

impl Scheduler {
    /// When `poll` has something to do again if nothing happens before.
    pub(super) fn next_wake(&mut self, now: Instant) -> Instant {
        let just_past = |t: Instant| t + Span::from_nanos(1);
        self.armed = match self.config.dispatch {
            Dispatch::Eager => NEVER,
            Dispatch::FullOrLatest => {
                self.next_worker(now).map_or(NEVER, |(worker, skip)| self.latest_start(worker, skip).max(now))
            }
        };
        let mut next = self.armed;
        if let Some((bound, likely)) = self.pool.quickest() {
            let mut expire = |class, time| {
                if let Some(deadline) = self.waiting.first_deadline(class) {
                    next = next.min(just_past(deadline - time));
                }
            };
            expire(MANDATORY, bound);
            if !self.waiting.is_mandatory_only() {
                expire(DEMOTED, likely);
                expire(OPTIONAL, likely);
            }
        }
        // An overrun is seen when the batch ends, or by whatever comes before; an alarm for it can wait.
        let due = if self.is_excused() { NEVER } else { self.pool.earliest_due() };
        let alarm = just_past(due + self.config.guard);
        // By now it may be a stall, then it has as long as one may last.
        let stalls = self.config.stalls.filter(|_| alarm <= now);
        next = next.min(stalls.map_or(alarm, |stalls| just_past(due + stalls.length())));
        next = next.min(self.suspensions.next(now));
        if self.is_demoted()
            && let Some(over) = self.safe_mode.over_at().filter(|&over| over > now)
        {
            next = next.min(over);
        }
        if let Some(end) = self.safe_mode.leaves_at() {
            next = next.min(end);
        }
        next
    }

    /// Whether there may be something to watch or to give up at `now`: what time brings about is due at `next` at the soonest.
    pub(super) fn is_time(&self, now: Instant) -> bool {
        now >= self.next || now > self.armed || self.stalls.is_some() && now > self.pool.earliest_due()
    }

    /// Whether no promise is suspended, and nothing is to be told of one: then no change can end anything.
    pub(super) fn is_at_rest(&self) -> bool {
        self.safe_mode.severity() == Severity::Normal && !self.suspensions.is_any()
    }

    /// A batch that should have ended by now and is not late by a stall that was declared: when it began and was due.
    #[inline(never)]
    pub(super) fn report_overdue(&mut self, now: Instant) -> Option<(Instant, Instant)> {
        if self.is_excused() {
            return None;
        }
        // None has ended yet, so nothing of it is on the account.
        let mut stalls = self.stalls.clone();
        let excused = |started, due| stalls.as_mut().is_some_and(|stalls| stalls.explains(started, due, now));
        self.pool.report_overdue(now, excused)
    }

    /// Whether a batch that ends now is late by a stall that was declared.
    #[inline(never)]
    pub(super) fn has_stalled(&mut self, started: Instant, due: Instant, now: Instant) -> bool {
        self.stalls.as_mut().is_some_and(|stalls| stalls.explains(started, due, now))
    }

    /// There is nothing to do at `now`: notes when there will be.
    #[inline]
    pub(super) fn rest(&mut self, now: Instant) {
        self.next = self.next_wake(now);
        self.changed = false;
    }

    /// There is nothing to do before `next`.
    pub(super) fn wait(&self) -> Action {
        Action::WakeAt((self.next < NEVER).then_some(self.next))
    }

    /// Time brings something about at `at`, perhaps.
    pub(super) fn look_at(&mut self, at: Instant) {
        self.next = self.next.min(at);
    }

    /// Notes that an idle worker should have taken what came at `since`, or when it became idle, if one is to now.
    pub(super) fn arm(&mut self, now: Instant, since: Instant) {
        let since = since.max(self.pool.free_since());
        if self.armed > since && self.is_due(now) {
            self.armed = since;
        }
    }
}
