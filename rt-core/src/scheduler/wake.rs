//! What time brings about: when `poll` has something to do if nothing happens before, and whether dispatch was late.

use super::Scheduler;
use super::queue::{MANDATORY, OPTIONAL, WANTED};
use super::types::{Action, NEVER};
use crate::admission::Dispatch;
use crate::safe_mode::Severity;
use crate::time::{Instant, Span};

impl Scheduler {
    /// When `poll` has something to do again if nothing happens before.
    pub(super) fn next_wake(&mut self, now: Instant) -> Instant {
        let just_past = |t: Instant| t + Span::from_nanos(1);
        self.armed = match self.config.dispatch {
            Dispatch::Eager => None,
            Dispatch::FullOrLatest => {
                self.next_worker(now).map(|(worker, skip)| self.latest_start(worker, skip).max(now))
            }
        };
        let mut next = self.armed.unwrap_or(NEVER);
        if let Some((bound, likely)) = self.pool.quickest() {
            let mut expire = |class, time| {
                if let Some(deadline) = self.waiting.first_deadline(class) {
                    next = next.min(just_past(deadline - time));
                }
            };
            expire(MANDATORY, bound);
            if !self.waiting.is_mandatory_only() {
                expire(WANTED, likely);
                expire(OPTIONAL, likely);
            }
        }
        // An overrun is seen when the batch ends, or by whatever comes before; an alarm for it can wait.
        if let Some(due) = self.pool.earliest_due() {
            next = next.min(just_past(due + self.config.guard));
        }
        if let Some(resumption) = self.suspensions.next(now) {
            next = next.min(resumption);
        }
        if let Some(end) = self.safe_mode.leaves_at() {
            next = next.min(end);
        }
        next
    }

    /// Whether there may be something to watch or to give up at `now`: what time brings about is due at `next` at the soonest.
    pub(super) fn is_time(&self, now: Instant) -> bool {
        now >= self.next || self.armed.is_some_and(|armed| now > armed)
    }

    /// Whether no promise is suspended, and nothing is to be told of one: then no change can end anything.
    pub(super) fn is_at_rest(&self) -> bool {
        self.safe_mode.severity() == Severity::Normal && !self.suspensions.is_any()
    }

    /// There is nothing to do before `next`.
    pub(super) fn wait(&self) -> Action {
        Action::WakeAt((self.next < NEVER).then_some(self.next))
    }

    /// Time brings something about at `at`, perhaps.
    pub(super) fn look_at(&mut self, at: Instant) {
        self.next = self.next.min(at);
    }

    /// Notes that an idle worker should have taken what came at `since`, if one is to now.
    pub(super) fn arm(&mut self, now: Instant, since: Instant) {
        if self.armed.is_none_or(|armed| armed > since) && self.due_worker(now).is_some() {
            self.armed = Some(since);
        }
    }
}
