//! Accounting: the end of a request inside the scheduler, resolved, counted, judged, and what that gives rise to announced.

use alloc::collections::VecDeque;

use super::Scheduler;
use super::carry_in::CarryIn;
use super::first::Behind;
use super::types::{Event, Note, Outcome, Request, Resolution, WorkerId};
use crate::constraint::Constraint;
use crate::safe_mode::{Cause, Evidence, Transition};
use crate::select::LoadMonitor;
use crate::stream::{MissReason, Stream, StreamId};
use crate::time::{Instant, Span};

/// Events kept between two polls; the last few places are for safe mode alone.
const MAX_EVENTS: usize = 64;
const RESERVED_EVENTS: usize = 8;
/// A stream is warned at most this often.
const WARNING_INTERVAL: Span = Span::from_millis(1_000);

/// What `poll` has yet to tell.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) resolved: VecDeque<Resolution>,
    pub(super) events: VecDeque<Event>,
}

impl Told {
    /// Room for so many resolutions. Allocates.
    pub(super) fn new(resolutions: usize) -> Self {
        let events = VecDeque::with_capacity(MAX_EVENTS);
        Self { resolved: VecDeque::with_capacity(resolutions), events }
    }

    /// Whether there is nothing to tell.
    pub(super) fn is_empty(&self) -> bool {
        self.resolved.is_empty() && self.events.is_empty()
    }

    /// Queues that a request whose stream ends is not answered.
    pub(super) fn cancelled(&mut self, request: Request) {
        let outcome = Outcome::Missed(MissReason::Cancelled);
        self.resolved.push_back(Resolution { request, outcome, misses_left: None });
    }

    /// Queues an event. When the caller has not polled for long a warning gives way, and before the latest change of
    /// safe mode the oldest event does: a gap in the sequence tells.
    pub(super) fn announce(&mut self, event: Event) {
        if !matches!(event, Event::SafeMode(_)) && !self.has_room() {
            return;
        }
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Whether an event that is no change of safe mode has room.
    pub(super) fn has_room(&self) -> bool {
        self.events.len() + RESERVED_EVENTS < MAX_EVENTS
    }
}

impl Scheduler {
    /// Raises safe mode for a cause that is seen outside (a stale profile, an operator) and lasts until `until`.
    pub fn raise_safe_mode(&mut self, now: Instant, cause: Cause, evidence: Evidence, until: Instant) {
        self.raise(now, cause, evidence, until);
    }

    /// Ends safe mode, and the suspensions of streams, by order of an operator; see [`crate::SafeMode::clear`].
    pub fn clear_safe_mode(&mut self, now: Instant) {
        self.settle_safe_mode(now);
        let transition = self.safe_mode.clear(now);
        self.note_left(now);
        self.tell(transition);
        self.clear_suspensions(now);
        self.clear_fallback(now);
    }

    /// Announces no change of safe mode, and no suspension, before `until`, for maintenance; see
    /// [`crate::SafeMode::inhibit`].
    pub fn inhibit_safe_mode(&mut self, until: Instant) {
        self.changed = true;
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

    /// Counts an arrival of `id` towards the rate that is warned of, if that declares its arrivals.
    #[inline(never)]
    pub(super) fn watch_rate(&mut self, now: Instant, id: StreamId) {
        let declared = self.streams.get(id).is_some_and(|stream| stream.police.is_some());
        let Some((monitor, limit)) = self.rate_warning.as_mut().filter(|_| declared) else { return };
        let (seen, limit, window) = (monitor.observe(now), *limit, monitor.window().as_nanos());
        if seen > limit {
            self.raise(now, Cause::RateHigh, Evidence { limit, seen, window, stream: None }, now);
        }
    }

    /// Ends the batch of a worker, which is no longer running it.
    pub(super) fn end_batch(
        &mut self,
        now: Instant,
        worker: WorkerId,
        outcome: impl Fn(&Request) -> Outcome,
    ) {
        let mut index = 0;
        while let Some(&request) = self.pool.batch(worker).get(index) {
            index += 1;
            if request.note == Note::Missed {
                continue;
            }
            let outcome = outcome(&request);
            if let Outcome::Missed(reason) = outcome {
                self.note_missed(now, &request, reason);
            }
            self.end(now, &request, outcome);
        }
        self.pool.batch_mut(worker).clear();
    }

    /// A request was missed. One that was wanted before its deadline and was in time by that breaks no promise but by its own
    /// client. Where stalls are absorbed one that had to be served is on their account, also if it was read too late for that.
    #[inline(never)]
    pub(super) fn note_missed(&mut self, now: Instant, request: &Request, reason: MissReason) {
        if !request.mandatory && request.note != Note::Stalled {
            return;
        }
        let deadline = request.deadline + self.rest_behind().most;
        let Some(stream) = self.streams.get_mut(request.stream) else { return };
        if request.mandatory && reason == MissReason::Late && request.wanted < deadline && now <= deadline {
            stream.excused = stream.excused.max(request.seq + 1);
        } else if self.absorbs
            && reason.is_of_time()
            && let Some((damage, _)) = self.config.absorbs()
        {
            // Of one that was read too late only its client says when it was sent.
            if request.mandatory {
                stream.struck.note(request.seq, request.arrival, damage);
            }
            self.absorbed += u64::from(!self.safe_mode.severity().is_suspended());
        }
    }

    /// Ends a request that waited and is not answered.
    #[inline(never)]
    pub(super) fn give_up(&mut self, now: Instant, request: Request, reason: MissReason) {
        // It may be what was waited for.
        self.changed |= !self.is_normal();
        self.note_missed(now, &request, reason);
        self.end(now, &request, Outcome::Missed(reason));
    }

    /// Records the outcome of a request that was taken in, and queues it to be told.
    #[inline]
    pub(super) fn end(&mut self, now: Instant, request: &Request, outcome: Outcome) {
        let misses_left = self.record(now, request.stream, Some(request.place), outcome);
        self.told.resolved.push_back(Resolution { request: *request, outcome, misses_left });
    }

    /// Refuses a request that was not taken in, counts and judges it.
    #[inline(never)]
    pub(super) fn refuse(&mut self, now: Instant, request: Request, reason: MissReason) -> Resolution {
        let outcome = Outcome::Missed(reason);
        self.note_missed(now, &request, reason);
        let misses_left = self.record(now, request.stream, None, outcome);
        Resolution { request, outcome, misses_left }
    }

    /// Counts an outcome of `id`, and records it in the log of its outcomes, at its place if it has one. The misses in a row that
    /// the stream can still take.
    #[inline(always)]
    fn record(&mut self, now: Instant, id: StreamId, place: Option<u32>, outcome: Outcome) -> Option<u32> {
        let stream = self.streams.get_mut(id)?;
        stream.counts.count(match outcome {
            Outcome::Served => None,
            Outcome::Missed(reason) => Some(reason),
        });
        let hit = outcome == Outcome::Served;
        if hit && place.is_some_and(|place| stream.outcomes.hit_in_turn(place)) {
            return stream.outcomes.monitor.told_left();
        }
        self.record_otherwise(now, id, place, hit)
    }

    /// Records an outcome that is a miss, or not the next one, and raises what the outcome monitor finds.
    #[inline(never)]
    fn record_otherwise(&mut self, now: Instant, id: StreamId, place: Option<u32>, hit: bool) -> Option<u32> {
        let outcomes = &mut self.streams.get_mut(id)?.outcomes;
        let before = outcomes.monitor.left();
        let violated = match place {
            Some(place) => outcomes.close(place, hit),
            None => outcomes.refuse(),
        };
        let (left, told) = (outcomes.monitor.left(), outcomes.monitor.told_left());
        if violated.is_some() || left < before.min(2) {
            self.judge(now, id, violated, before);
        }
        told
    }

    /// Warns of and raises what the outcome monitor has found: a violation, or that fewer misses in a row can be taken than `before`.
    #[cold]
    fn judge(&mut self, now: Instant, id: StreamId, violated: Option<Constraint>, before: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let after = stream.outcomes.monitor.misses_left();
        let fell = |limit| before > limit && after.is_some_and(|(after, _)| after <= limit);
        if let Some((left, constraint)) = after
            && (fell(0) || fell(1))
        {
            if rested(&mut stream.warned, now) {
                self.told.announce(Event::MissesLeft { stream: id, left, constraint });
            }
            let (limit, window) = (constraint.misses().into(), constraint.window().into());
            let evidence = Evidence { limit, seen: left.into(), window, stream: Some(id) };
            self.raise(now, Cause::MissesLow, evidence, now);
        }
        if let Some(constraint) = violated {
            self.violate(now, id, constraint);
        }
    }

    /// A constraint is violated. If it is over a window that began while the stream was beyond its declaration, or before its
    /// promise was resumed, that concerns the stream alone.
    fn violate(&mut self, now: Instant, id: StreamId, constraint: Constraint) {
        let aside = self.is_demoted() || self.is_falling();
        let Some(stream) = self.streams.get_mut(id) else { return };
        let (limit, window) = (u64::from(constraint.misses()), u64::from(constraint.window()));
        let evidence = Evidence { limit, seen: limit + 1, window, stream: Some(id) };
        let from = stream.outcomes.violated_at().saturating_sub(window);
        // Over what came while the service was demoted, or before what it fell back on was in force, nothing is promised.
        if aside || from < stream.aside {
            return;
        }
        // Over more stalls than may be in one window of theirs nothing is promised of it.
        if self.config.absorbs().is_some_and(|(_, spans)| stream.struck.spans_more(from, spans)) {
            return;
        }
        if stream.has_own_fault(window) {
            self.suspend(now, id, Cause::ConstraintViolated, evidence, now);
            return;
        }
        if rested(&mut stream.violated, now) {
            // Another stream's violation is news, whatever was announced before.
            self.safe_mode.forget(Cause::ConstraintViolated);
        }
        self.raise(now, Cause::ConstraintViolated, evidence, now);
    }

    /// A batch took `seen` instead of `bound`: its own, or of the service number `of` of its device.
    pub(super) fn overrun(&mut self, now: Instant, (bound, seen): (Span, Span), of: Option<usize>) {
        let window = of.map_or(0, |service| service as u64 + 1);
        let evidence = Evidence { limit: bound.as_nanos(), seen: seen.as_nanos(), window, stream: None };
        self.raise(now, Cause::ServiceOverrun, evidence, now);
    }

    pub(super) fn raise_late(&mut self, now: Instant, limit: Span, seen: Span) {
        let evidence = Evidence { limit: limit.as_nanos(), seen: seen.as_nanos(), ..Evidence::default() };
        self.raise(now, Cause::LateDispatch, evidence, now);
    }

    /// `failed` workers are there but did not do their work.
    pub(crate) fn raise_worker_lost(&mut self, now: Instant, failed: usize) {
        let evidence = self.workers_seen(failed);
        self.raise(now, Cause::WorkerLost, evidence, now);
    }

    /// How many workers there are and were, less `failed`.
    pub(super) fn workers_seen(&self, failed: usize) -> Evidence {
        let (alive, all) = self.workers();
        let seen = (alive - failed.min(alive)) as u64;
        Evidence { limit: all as u64, seen, ..Evidence::default() }
    }

    #[inline(never)]
    pub(super) fn raise(&mut self, now: Instant, cause: Cause, evidence: Evidence, until: Instant) {
        self.changed = true;
        if cause.severity().is_suspended() {
            self.note_breach();
        }
        let transition = self.safe_mode.raise(now, cause, evidence, until);
        self.tell(transition);
    }

    /// What runs and waits may make anything late.
    pub(super) fn note_breach(&mut self) {
        self.aftermath = CarryIn::Open;
        self.note_break();
    }

    /// Tells safe mode how many workers there are.
    pub(super) fn count_workers(&mut self, now: Instant) {
        self.changed = true;
        self.note_breach();
        let (alive, all) = self.workers();
        let missing = alive < all && !self.is_covered();
        let transition = self.safe_mode.set_workers(now, alive, all, missing);
        self.tell(transition);
    }

    /// Workers that are there, and all, those that requests go on to among them.
    pub(super) fn workers(&self) -> (usize, usize) {
        let behind = self.guest.map_or(Behind::default(), |guest| guest.behind);
        (self.pool.alive() + behind.alive, self.pool.len() + behind.all)
    }

    pub(super) fn tell(&mut self, transition: Option<Transition>) {
        self.changed = true;
        if let Some(transition) = transition {
            self.told.announce(Event::SafeMode(transition));
        }
    }
}

impl Stream {
    /// Whether the window of so many requests over which a violation was found last holds one for which nothing was promised because
    /// of what the stream did itself.
    fn has_own_fault(&self, window: u64) -> bool {
        self.suspended.is_some() || self.outcomes.violated_at().saturating_sub(window) < self.excused
    }
}

/// Whether it is long enough since `last` to tell again; then that is now.
fn rested(last: &mut Option<Instant>, now: Instant) -> bool {
    let rested = last.is_none_or(|last| now.since(last) >= WARNING_INTERVAL);
    if rested {
        *last = Some(now);
    }
    rested
}
