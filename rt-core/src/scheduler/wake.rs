//! What time brings about: when `poll` has something to do if nothing happens before, and whether dispatch was late.

use super::Scheduler;
use super::queue::{DEMOTED, MANDATORY, OPTIONAL};
use super::types::{Action, NEVER};
use crate::admission::Dispatch;
use crate::safe_mode::Severity;
use crate::stalls::StallMonitor;
use crate::time::{Instant, Span};

impl Scheduler {
    /// When `poll` has something to do again if nothing happens before.
    #[inline]
    pub(crate) fn next_wake(&self, now: Instant) -> Instant {
        let mut next = self.armed.min(self.suspensions.next(now)).min(self.passes);
        if let Some((bound, likely)) = self.pool.quickest() {
            next = next.min(self.expires(MANDATORY, bound));
            if !self.waiting.is_mandatory_only() {
                next = next.min(self.expires(DEMOTED, likely)).min(self.expires(OPTIONAL, likely));
            }
        }
        if !self.is_excused() {
            next = next.min(self.next_alarm(now));
        }
        match self.safe_mode.leaves_at() {
            Some(end) => next.min(end),
            None => next,
        }
    }

    /// When dispatch is due for what waits, if it waits for more.
    #[inline(never)]
    fn next_start(&self, now: Instant) -> Instant {
        self.next_worker(now).map_or(NEVER, |(worker, skip)| self.latest_start(worker, skip).max(now))
    }

    /// When the first request of a class can no longer be served by a batch that takes `time`.
    #[inline(always)]
    fn expires(&self, class: usize, time: Span) -> Instant {
        self.waiting.first_deadline(class).map_or(NEVER, |deadline| just_past(deadline - time))
    }

    /// When it is to be looked whether a batch is overdue, or what its overruns did to others on the same workers is over.
    #[inline(always)]
    fn next_alarm(&self, now: Instant) -> Instant {
        // An overrun is seen when the batch ends, or by whatever comes before; an alarm for it can wait.
        let due = self.pool.earliest_due();
        let alarm = just_past(due + self.config.guard);
        // By now it may be a stall, then it has as long as one may last.
        let stalls = self.config.stalls.filter(|_| alarm <= now);
        let alarm = stalls.map_or(alarm, |stalls| just_past(due + stalls.length()));
        if self.is_demoted()
            && let Some(over) = self.safe_mode.over_at().filter(|&over| over > now)
        {
            return alarm.min(over);
        }
        alarm
    }

    /// Whether there may be something to watch or to give up at `now`: what time brings about is due at `next` at the soonest.
    pub(super) fn is_time(&self, now: Instant) -> bool {
        now >= self.next || now > self.armed || self.stalls.is_some() && now > self.pool.earliest_due()
    }

    /// Whether no promise is suspended, and nothing is to be told of one: then no change can end anything.
    #[inline]
    pub(super) fn is_normal(&self) -> bool {
        self.safe_mode.severity() == Severity::Normal && !self.suspensions.is_any()
    }

    /// The same on workers of its own, where that may also last until an instant later than `now`. Meanwhile any change is a reason to
    /// look for stalls that last too long.
    #[inline]
    pub(super) fn is_at_rest(&self, now: Instant) -> bool {
        let lasts = || self.safe_mode.lasts(now) && self.suspensions.lasts(now) && !self.is_falling();
        self.is_normal() || self.guest.is_none() && self.stalls.is_none() && lasts()
    }

    /// A batch that should have ended by now and is not late by a stall that was declared: when it began and was due.
    #[inline(never)]
    pub(super) fn report_overdue(&mut self, now: Instant) -> Option<(Instant, Instant)> {
        if self.is_excused() || self.pool.earliest_due() >= now {
            return None;
        }
        // None has ended yet, so nothing of it is on the account.
        let mut stalls = self.stall_account();
        let excused = |started, due| stalls.as_mut().is_some_and(|stalls| stalls.explains(started, due, now));
        self.pool.report_overdue(now, excused)
    }

    /// Whether a batch that ends now is late by a stall that was declared.
    #[cold]
    pub(crate) fn has_stalled(&mut self, started: Instant, due: Instant, now: Instant) -> bool {
        self.stalls.as_mut().is_some_and(|stalls| stalls.explains(started, due, now))
    }

    /// What is known of stalls, to be asked without a trace.
    pub(crate) fn stall_account(&self) -> Option<StallMonitor> {
        self.stalls.clone()
    }

    /// There is nothing to do at `now`: notes when there will be.
    pub(super) fn rest(&mut self, now: Instant) {
        self.armed = match self.config.dispatch {
            Dispatch::Eager => NEVER,
            Dispatch::FullOrLatest => self.next_start(now),
        };
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
        if self.is_due(now) {
            self.armed = self.armed.min(since.max(self.pool.free_since()));
        }
    }
}

pub(super) fn just_past(at: Instant) -> Instant {
    at + Span::from_nanos(1)
}
