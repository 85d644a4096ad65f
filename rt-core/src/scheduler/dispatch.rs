//! The way of a request inside the scheduler: due, taken into a batch or given up, resolved, counted.

use super::{Action, Event, Outcome, Request, Scheduler, WorkerId, WorkerState};
use crate::admission::Dispatch;
use crate::stream::{MissReason, Stream, StreamId, StreamSpec};
use crate::time::{Instant, Span};

/// How many of the newest optional requests are compared where they pile up.
const NEWEST: usize = 8;

impl Scheduler {
    /// The next thing to do at `now`; see the calling contract.
    pub fn poll(&mut self, now: Instant) -> Action {
        loop {
            if let Some(resolution) = self.resolved.pop_front() {
                return Action::Resolve(resolution);
            }
            if let Some(event) = self.events.pop_front() {
                return Action::Event(event);
            }
            if self.watch(now) || self.expire(now) {
                continue;
            }
            match self.due_worker(now) {
                Some(worker) if self.form_batch(now, worker) => return Action::Start { worker },
                Some(_) => {}
                None => return Action::WakeAt(self.next_wake(now)),
            }
        }
    }

    /// Gives up requests that even a batch of one could no longer serve. Both queues are in deadline
    /// order, so only their heads need a look.
    fn expire(&mut self, now: Instant) -> bool {
        let reach = now + self.config.profile.bound(1);
        let mut any = false;
        while let Some(request) =
            pop_before(&mut self.mandatory, reach).or_else(|| pop_before(&mut self.optional, reach))
        {
            self.end(now, request, Outcome::Missed(MissReason::Expired));
            any = true;
        }
        any
    }

    /// Reports dispatch that comes too late and batches that run past their bound, and ends safe mode when
    /// its time has come.
    fn watch(&mut self, now: Instant) -> bool {
        if let Some(armed) = self.armed
            && now > armed
        {
            self.armed = None;
            let delay = now.since(armed);
            self.worst_delay = self.worst_delay.max(delay);
            if delay > self.config.guard {
                self.raise_late(now, self.config.guard, delay);
                return true;
            }
        }
        for worker in 0..self.workers.len() {
            if let WorkerState::Busy { started, due, ref mut reported, .. } = self.workers[worker].state
                && !*reported
                && now > due
            {
                *reported = true;
                self.overrun(now, due.since(started), now.since(started));
                return true;
            }
        }
        match self.safe_mode.tick(now) {
            Some(transition) => {
                self.announce(Event::SafeMode(transition));
                true
            }
            None => false,
        }
    }

    /// A free worker, if dispatch is due.
    fn due_worker(&self, now: Instant) -> Option<WorkerId> {
        let worker = self.workers.iter().position(|w| matches!(w.state, WorkerState::Free))?;
        let due = match self.config.dispatch {
            Dispatch::Eager => self.waiting() > 0,
            Dispatch::FullOrLatest => {
                self.waiting() >= self.config.batch || self.latest_start().is_some_and(|latest| now >= latest)
            }
        };
        due.then_some(worker)
    }

    /// The instant at which the earliest deadline less the guard leaves just the time of a full batch.
    fn latest_start(&self) -> Option<Instant> {
        let full = self.config.profile.bound(self.config.batch);
        Some(self.earliest_deadline()? - self.config.guard - full)
    }

    fn earliest_deadline(&self) -> Option<Instant> {
        let head = |queue: &alloc::collections::VecDeque<Request>| queue.front().map(|r| r.deadline);
        match (head(&self.mandatory), head(&self.optional)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes a batch for `worker`: mandatory requests first, then optional ones. False if none is left
    /// that a batch of this size could serve; what is given up on the way is resolved.
    fn form_batch(&mut self, now: Instant, worker: WorkerId) -> bool {
        let full = self.config.batch;
        self.armed = None;
        // Mandatory requests that miss their deadline if they are not taken now: should there be more
        // than a batch of them, the promise is already broken, and what counts is to spread the misses.
        let next = self.next_free(now, worker) + self.config.profile.bound(full);
        if self.mandatory.partition_point(|r| r.deadline < next) > full {
            self.shed(now, worker, next);
        }
        // Shrink the batch rather than lose the first mandatory request; never for optional ones.
        let mut size = full.min(self.workers[worker].batch.len() + self.waiting());
        if let Some(head) = self.mandatory.front() {
            size = size.min(self.config.profile.largest_within(head.deadline.since(now), full)).max(1);
        }
        let reach = now + self.config.profile.bound(size);
        while self.workers[worker].batch.len() < size {
            let Some(request) = self.mandatory.pop_front().or_else(|| self.pop_optional(now)) else {
                break;
            };
            if request.deadline < reach {
                self.end(now, request, Outcome::Missed(MissReason::Expired));
            } else {
                self.take(worker, request);
            }
        }
        if self.mandatory.is_empty() {
            self.idle_epoch += 1;
        }
        let taken = self.workers[worker].batch.len();
        if taken == 0 {
            return false;
        }
        let due = now + self.config.profile.bound(taken);
        self.workers[worker].state = WorkerState::Busy { started: now, due, reported: false };
        true
    }

    /// Per-batch spread (spread-drop paper, section 3.3, as corrected in the theory): of the mandatory
    /// requests due before `next`, takes a full batch evenly and gives up the rest, each stream by a
    /// balanced word of its own.
    fn shed(&mut self, now: Instant, worker: WorkerId, next: Instant) {
        let full = self.config.batch;
        let reach = now + self.config.profile.bound(full);
        while let Some(request) = pop_before(&mut self.mandatory, reach) {
            self.end(now, request, Outcome::Missed(MissReason::Shed));
        }
        let candidates = self.mandatory.partition_point(|r| r.deadline < next);
        if candidates <= full {
            return;
        }
        const WHOLE: u64 = 1 << 32;
        let step = (WHOLE * full as u64).div_ceil(candidates as u64);
        for _ in 0..candidates {
            let Some(request) = self.mandatory.pop_front() else { break };
            let room = self.workers[worker].batch.len() < full;
            let chosen = self.stream_mut(request.stream).is_some_and(|stream| {
                stream.share += step;
                let chosen = room && stream.share >= WHOLE;
                stream.share = if chosen { stream.share - WHOLE } else { stream.share.min(WHOLE) };
                chosen
            });
            if chosen {
                self.take(worker, request);
            } else {
                self.end(now, request, Outcome::Missed(MissReason::Shed));
            }
        }
    }

    /// Puts a request into the batch of `worker`; its stream has had its turn.
    fn take(&mut self, worker: WorkerId, request: Request) {
        self.workers[worker].batch.push(request);
        self.turns += 1;
        let turns = self.turns;
        if let Some(stream) = self.stream_mut(request.stream) {
            stream.turn = turns;
        }
    }

    /// The next optional request: the oldest, as long as it is young. Where optional requests pile up, a new
    /// one: as many are served, sooner; and of the newest the one whose stream has waited longest for its turn.
    fn pop_optional(&mut self, now: Instant) -> Option<Request> {
        let waited = now.since(self.optional.front()?.arrival).as_nanos();
        if waited <= self.config.deadline.as_nanos() / 2 {
            return self.optional.pop_front();
        }
        let newest = self.optional.len().saturating_sub(NEWEST)..self.optional.len();
        let turn = |&index: &usize| self.stream(self.optional[index].stream).map_or(0, |s| s.turn);
        let index = newest.rev().min_by_key(turn)?;
        self.optional.remove(index)
    }

    /// Places in the ledger of a stream: for as many requests as it may send in the longest life of one,
    /// and for as many as the scheduler holds.
    pub(super) fn places(&self, spec: &StreamSpec) -> usize {
        let life = self.config.deadline + self.config.profile.bound(self.config.batch) + self.config.guard;
        let sent = spec.arrivals().map_or(0, |arrivals| arrivals.count(life)).min(1 << 20) as usize;
        sent + self.config.queue + self.config.workers * self.config.batch
    }

    /// The earliest instant at which some worker can start a batch after `acting` has started one now.
    fn next_free(&self, now: Instant, acting: WorkerId) -> Instant {
        let free_at = |(id, worker): (WorkerId, &super::Worker)| match worker.state {
            WorkerState::Free if id == acting => Some(now + self.config.profile.bound(self.config.batch)),
            WorkerState::Free => Some(now),
            WorkerState::Busy { due, .. } => Some(due.max(now)),
            WorkerState::Lost => None,
        };
        self.workers.iter().enumerate().filter_map(free_at).min().unwrap_or(now)
    }

    /// When `poll` has something to do again if nothing happens before.
    fn next_wake(&mut self, now: Instant) -> Option<Instant> {
        let idle = self.workers.iter().any(|w| matches!(w.state, WorkerState::Free));
        self.armed = self.latest_start().filter(|_| idle).map(|latest| latest.max(now));
        let just_past = |t: Instant| t + Span::from_nanos(1);
        let expiry = self.earliest_deadline().map(|d| just_past(d - self.config.profile.bound(1)));
        // An overrun is seen when the batch ends, or by whatever comes before; an alarm for it can wait.
        let overrun = self.workers.iter().filter_map(|w| match w.state {
            WorkerState::Busy { due, reported: false, .. } => Some(just_past(due + self.config.guard)),
            _ => None,
        });
        overrun.chain(self.armed).chain(expiry).chain(self.safe_mode.leaves_at()).min()
    }

    /// Notes the instant at which a worker should take what waits, if that is now.
    pub(super) fn arm(&mut self, now: Instant) {
        if self.armed.is_none_or(|armed| armed > now) && self.due_worker(now).is_some() {
            self.armed = Some(now);
        }
    }

    pub(super) fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(usize::from(id.slot))?.as_ref().filter(|s| s.id == id)
    }

    pub(super) fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(usize::from(id.slot))?.as_mut().filter(|s| s.id == id)
    }

    pub(super) fn generation(&mut self) -> u32 {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        generation
    }
}

fn pop_before(queue: &mut alloc::collections::VecDeque<Request>, reach: Instant) -> Option<Request> {
    if queue.front()?.deadline < reach { queue.pop_front() } else { None }
}
