//! The end of a request inside the scheduler: resolved, counted, judged, and what that gives rise to announced.

use core::mem;

use super::settle::Past;
use super::{
    Event, MANDATORY, MAX_EVENTS, Outcome, RESERVED_EVENTS, Request, Resolution, Scheduler, WARNING_INTERVAL,
    WorkerId, WorkerState,
};
use crate::constraint::Constraint;
use crate::safe_mode::{Cause, Evidence, Transition};
use crate::select::LoadMonitor;
use crate::stream::{Ledger, MissReason, Stream, StreamId};
use crate::time::{Instant, Span};

impl Scheduler {
    /// Raises safe mode for a cause that is seen outside (a stale profile, an operator) and lasts until `until`.
    pub fn raise_safe_mode(&mut self, now: Instant, cause: Cause, evidence: Evidence, until: Instant) {
        self.raise(now, cause, evidence, until);
    }

    /// Ends safe mode by order of an operator; see [`crate::SafeMode::clear`].
    pub fn clear_safe_mode(&mut self, now: Instant) {
        self.settle_safe_mode(now);
        let transition = self.safe_mode.clear(now);
        self.tell(transition);
    }

    /// Announces no change of safe mode before `until`, for maintenance; see [`crate::SafeMode::inhibit`].
    pub fn inhibit_safe_mode(&mut self, until: Instant) {
        self.safe_mode.inhibit(until);
    }

    /// Warns as long as more than `limit` requests of streams that declare their arrivals came within the monitor's
    /// window, or no longer does.
    pub fn set_rate_warning(&mut self, warning: Option<(LoadMonitor, u64)>) {
        self.rate_warning = warning;
    }

    /// Requests a second at `now` as they count towards the rate that is warned of; `None` without a warning.
    #[must_use]
    pub fn rate_seen_per_s(&mut self, now: Instant) -> Option<f64> {
        self.rate_warning.as_mut().map(|(monitor, _)| monitor.rate_per_s(now))
    }

    /// Counts an arrival towards the rate that is warned of.
    pub(super) fn watch_rate(&mut self, now: Instant) {
        let Some((monitor, limit)) = &mut self.rate_warning else { return };
        let (seen, limit, window) = (monitor.observe(now), *limit, monitor.window().as_nanos());
        if seen > limit {
            self.raise(now, Cause::RateHigh, Evidence { limit, seen, window, stream: None }, now);
        }
    }

    pub(super) fn end_batch(
        &mut self,
        now: Instant,
        worker: WorkerId,
        outcome: impl Fn(&Request) -> Outcome,
    ) {
        for i in 0..self.workers[worker].batch.len() {
            let request = self.workers[worker].batch[i];
            self.end(now, request, outcome(&request));
        }
        self.workers[worker].batch.clear();
    }

    /// Ends a request that was taken in: `poll` will tell.
    pub(super) fn end(&mut self, now: Instant, request: Request, outcome: Outcome) {
        let resolution = self.resolve(now, request, outcome);
        self.resolved.push_back(resolution);
    }

    /// Counts the outcome of a request that was taken in, and judges it.
    pub(super) fn resolve(&mut self, now: Instant, request: Request, outcome: Outcome) -> Resolution {
        let hit = outcome == Outcome::Served;
        self.settle(now, request, outcome, |ledger| ledger.close(request.place, hit))
    }

    /// Refuses a request that was not taken in, counts and judges it.
    pub(super) fn refuse(&mut self, now: Instant, request: Request, reason: MissReason) -> Resolution {
        self.settle(now, request, Outcome::Missed(reason), Ledger::refuse)
    }

    /// Counts an outcome, has it recorded in the ledger, and raises what the outcome monitor finds.
    fn settle(
        &mut self,
        now: Instant,
        request: Request,
        outcome: Outcome,
        record: impl FnOnce(&mut Ledger) -> Option<Constraint>,
    ) -> Resolution {
        let Some(stream) = self.stream_mut(request.stream) else {
            return Resolution { request, outcome, misses_left: None };
        };
        stream.counts.count(match outcome {
            Outcome::Served => None,
            Outcome::Missed(reason) => Some(reason),
        });
        let violated = record(&mut stream.ledger);
        let misses_left = self.judge(now, request.stream, violated);
        Resolution { request, outcome, misses_left }
    }

    /// Warns of and raises what the outcome monitor has found. Returns the misses left.
    fn judge(&mut self, now: Instant, id: StreamId, violated: Option<Constraint>) -> Option<u32> {
        let stream = self.stream_mut(id)?;
        let after = stream.ledger.monitor.misses_left();
        let before = mem::replace(&mut stream.left, after);
        let fell = |limit| before.is_some_and(|(b, _)| b > limit) && after.is_some_and(|(a, _)| a <= limit);
        let rested = stream.warned.is_none_or(|last| now.since(last) >= WARNING_INTERVAL);
        if let Some((left, constraint)) = after
            && (fell(0) || fell(1))
        {
            if rested {
                stream.warned = Some(now);
                self.announce(Event::MissesLeft { stream: id, left, constraint });
            }
            let (limit, window) = (constraint.misses().into(), constraint.window().into());
            let evidence = Evidence { limit, seen: left.into(), window, stream: Some(id) };
            self.raise(now, Cause::MissesLow, evidence, now);
        }
        let fresh = violated.is_some() && may_announce(self.stream_mut(id), now);
        if let Some(c) = violated {
            let (limit, window) = (u64::from(c.misses()), u64::from(c.window()));
            let evidence = Evidence { limit, seen: limit + 1, window, stream: Some(id) };
            if fresh {
                // Another stream's violation is news, whatever was announced before.
                self.safe_mode.forget(Cause::ConstraintViolated);
            }
            self.raise(now, Cause::ConstraintViolated, evidence, now);
        }
        after.map(|(left, _)| left)
    }

    /// Takes every waiting request of a stream back.
    pub(super) fn cancel(&mut self, id: StreamId) {
        for queue in &mut self.queues {
            queue.retain(|request| {
                let keep = request.stream != id;
                if !keep {
                    let outcome = Outcome::Missed(MissReason::Cancelled);
                    self.resolved.push_back(Resolution { request: *request, outcome, misses_left: None });
                }
                keep
            });
        }
        if self.queues[MANDATORY].is_empty() {
            self.idle_epoch += 1;
        }
    }

    pub(super) fn overrun(&mut self, now: Instant, bound: Span, seen: Span) {
        let evidence = Evidence { limit: bound.as_nanos(), seen: seen.as_nanos(), ..Evidence::default() };
        self.raise(now, Cause::ServiceOverrun, evidence, now);
    }

    pub(super) fn raise_late(&mut self, now: Instant, limit: Span, seen: Span) {
        let evidence = Evidence { limit: limit.as_nanos(), seen: seen.as_nanos(), ..Evidence::default() };
        self.raise(now, Cause::LateDispatch, evidence, now);
    }

    /// `failed` workers are there but did not do their work.
    pub(super) fn raise_worker_lost(&mut self, now: Instant, failed: usize) {
        let (limit, alive) = (self.workers.len() as u64, self.workers_alive());
        let evidence = Evidence { limit, seen: (alive - failed.min(alive)) as u64, ..Evidence::default() };
        self.raise(now, Cause::WorkerLost, evidence, now);
    }

    pub(super) fn raise(&mut self, now: Instant, cause: Cause, evidence: Evidence, until: Instant) {
        if cause.severity().is_suspended() {
            self.aftermath = Past::Open;
        }
        let transition = self.safe_mode.raise(now, cause, evidence, until);
        self.tell(transition);
    }

    /// Tells safe mode how many workers there are.
    pub(super) fn count_workers(&mut self, now: Instant) {
        self.aftermath = Past::Open;
        let alive = self.workers.iter().filter(|w| !matches!(w.state, WorkerState::Lost));
        self.quickest = alive.map(|w| self.config.workers[w.kind].profile.bound(1)).min();
        let transition = self.safe_mode.set_workers(now, self.workers_alive(), self.workers.len());
        self.tell(transition);
    }

    fn tell(&mut self, transition: Option<Transition>) {
        if let Some(transition) = transition {
            self.announce(Event::SafeMode(transition));
        }
    }

    /// Queues an event. When the caller has not polled for long a warning gives way, and before the latest change of
    /// safe mode the oldest event does: a gap in the sequence tells.
    pub(super) fn announce(&mut self, event: Event) {
        if !matches!(event, Event::SafeMode(_)) && self.events.len() + RESERVED_EVENTS >= MAX_EVENTS {
            return;
        }
        if self.events.is_full() {
            self.events.pop_front();
        }
        let _ = self.events.push_back(event);
    }
}

/// Whether the violation of a stream's constraint may be announced: at most once a second.
fn may_announce(stream: Option<&mut Stream>, now: Instant) -> bool {
    stream.is_some_and(|stream| {
        let rested = stream.violated.is_none_or(|last| now.since(last) >= WARNING_INTERVAL);
        if rested {
            stream.violated = Some(now);
        }
        rested
    })
}
