//! The way of a request inside the scheduler: due, taken into a batch or given up, resolved, counted.
//!
//! Workers of several kinds share the queues. Let worker `w` answer `B_w` requests in `P_w`, and let
//! `σ(u) = Σ_w B_w·floor(u/P_w)`. Every mandatory request is answered in time if for every `Δ > 0`
//!
//! ```text
//! min{u : σ(u) ≥ α_m(Δ)} + max P_w  ≤  Δ + L .
//! ```
//!
//! *Why.* A request `k` starts at `τ` on some worker. Let `s ≤ τ` be the last instant at which no mandatory
//! request was left waiting, or a worker was left idle. Every worker `w` then starts a batch at the latest at
//! `s + P_w`, `s + 2·P_w`, and so on before `τ`, and each of these is full of mandatory requests that came from
//! `s` on and before `k`, for otherwise none would be left waiting. Were `τ - s > u`, with `u` the least to give
//! `σ(u) ≥ α_m`, they would hold `σ(u) ≥ α_m` of the at most `α_m` requests up to `k`, and `k` another one. So
//! `τ ≤ s + u`, whoever starts it, and even the slowest worker answers by `s + u + max P_w`. Hence *any* free
//! worker may take a batch, no batch within the guarantee needs to shrink, and no mandatory request that is
//! taken is out of its worker's reach.
//!
//! What waited at `s` beside an idle worker (full-or-latest) must all be taken at `s`, and in time. It is, if
//! one worker alone decides whether all others idle too: the one to go next, `next_worker`. Fewer
//! than its `B_w` wait, and when it goes its batch takes them all (a worker that became free at `s` and goes
//! before it only takes some of them sooner); it goes when the earliest deadline leaves its own `P_w` at the
//! latest, and who goes before it is not slower. That is why the shortest full batch goes first.
//!
//! Beyond the guarantee a request may have time for the quick workers only. Slower ones leave it in its place
//! (`out_of_reach`); it expires once not even the quickest could answer it.

use alloc::collections::VecDeque;

use super::{Action, Event, MANDATORY, Outcome, Request, Scheduler, WorkerId, WorkerState};
use crate::admission::Dispatch;
use crate::stream::{MissReason, Stream, StreamId, StreamSpec};
use crate::time::{Instant, Span};
use crate::workers::Workers;

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
                Some(worker) if self.form_batch(now, worker) => return self.start(now, worker),
                Some(_) => {}
                None => return Action::WakeAt(self.next_wake(now)),
            }
        }
    }

    /// Gives up requests that not even a batch of one on the quickest worker could still serve. All queues
    /// are in deadline order, so only their heads need a look.
    fn expire(&mut self, now: Instant) -> bool {
        let reach = now + self.quickest();
        let mut any = false;
        while let Some(request) = self.queues.iter_mut().find_map(|queue| pop_before(queue, reach)) {
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
        self.settle_safe_mode(now);
        match self.safe_mode.tick(now) {
            Some(transition) => {
                self.announce(Event::SafeMode(transition));
                true
            }
            None => false,
        }
    }

    /// The worker that takes the next batch, if dispatch is due.
    fn due_worker(&self, now: Instant) -> Option<WorkerId> {
        let (worker, latest) = self.next_worker(now)?;
        let due = match self.config.dispatch {
            Dispatch::Eager => true,
            Dispatch::FullOrLatest => now >= latest || self.in_reach(now, worker) >= self.kind(worker).batch,
        };
        due.then_some(worker)
    }

    /// The worker that takes the next batch, and when it must at the latest: of the free ones that something
    /// waits for, the one with the shortest full batch, the first of equals. It must start where the
    /// earliest deadline less the guard leaves just the time of its full batch.
    fn next_worker(&self, now: Instant) -> Option<(WorkerId, Instant)> {
        if self.waiting() == 0 || (self.quiet && self.queues[MANDATORY].is_empty()) {
            return None;
        }
        let free = |&id: &WorkerId| matches!(self.workers[id].state, WorkerState::Free);
        let mut candidates = (0..self.workers.len()).filter(free);
        let (worker, earliest) = if self.config.workers.len() == 1 {
            // All are alike, and to each all is in reach.
            (candidates.next()?, self.earliest_deadline()?)
        } else {
            let useful = candidates.filter(|&id| self.in_reach(now, id) > 0);
            let worker = useful.min_by_key(|&id| self.kind(id).batch_time())?;
            let skips = self.out_of_reach(now, worker);
            let heads = self.queues.iter().zip(skips).filter_map(|(queue, skip)| queue.get(skip));
            (worker, heads.map(|request| request.deadline).min()?)
        };
        Some((worker, earliest - self.config.guard - self.kind(worker).batch_time()))
    }

    /// How many requests wait that `worker` may take.
    pub(super) fn in_reach(&self, now: Instant, worker: WorkerId) -> usize {
        self.waiting() - self.out_of_reach(now, worker).iter().sum::<usize>()
    }

    /// How many requests of each class `worker` leaves to others: those for which its full batch
    /// would come too late, as long as a quicker worker is there. Within the guarantee no mandatory request
    /// that a worker is to take is among them.
    pub(super) fn out_of_reach(&self, now: Instant, worker: WorkerId) -> [usize; 3] {
        let kind = self.kind(worker);
        let alike = self.config.workers.len() == 1;
        if alike || kind.profile.bound(1) <= self.quickest() {
            return [0; 3];
        }
        let reach = now + kind.batch_time();
        [0, 1, 2].map(|class| self.before(class, reach))
    }

    /// The least time in which a worker that is there answers one request.
    fn quickest(&self) -> Span {
        self.quickest.unwrap_or(Span::ZERO)
    }

    pub(super) fn kind(&self, worker: WorkerId) -> &Workers {
        &self.config.workers[self.workers[worker].kind]
    }

    /// How many requests of a class have a deadline before `reach`.
    pub(super) fn before(&self, class: usize, reach: Instant) -> usize {
        self.queues[class].partition_point(|request| request.deadline < reach)
    }

    fn earliest_deadline(&self) -> Option<Instant> {
        self.queues.iter().filter_map(VecDeque::front).map(|r| r.deadline).min()
    }

    /// Places in the ledger of a stream: for as many requests as it may send in the longest life of one,
    /// and for as many as the scheduler holds.
    pub(super) fn places(&self, spec: &StreamSpec) -> usize {
        let slowest = self.config.workers.iter().map(Workers::batch_time).max().unwrap_or(Span::ZERO);
        let life = self.config.deadline + slowest + self.config.guard;
        let sent = spec.arrivals().map_or(0, |arrivals| arrivals.count(life)).min(1 << 20) as usize;
        sent + self.config.queue + self.config.kinds().map(|kind| kind.batch).sum::<usize>()
    }

    /// The earliest instant at which a full batch started after the one that `acting` starts now can be done.
    pub(super) fn next_answer(&self, now: Instant, acting: WorkerId) -> Instant {
        let done_at = |(id, worker): (WorkerId, &super::Worker)| {
            let time = self.kind(id).batch_time();
            match worker.state {
                WorkerState::Free if id == acting => Some(now + time + time),
                WorkerState::Free => Some(now + time),
                WorkerState::Busy { due, .. } => Some(due.max(now) + time),
                WorkerState::Lost => None,
            }
        };
        self.workers.iter().enumerate().filter_map(done_at).min().unwrap_or(now)
    }

    /// When `poll` has something to do again if nothing happens before.
    fn next_wake(&mut self, now: Instant) -> Option<Instant> {
        self.armed = self.next_worker(now).map(|(_, latest)| latest.max(now));
        let just_past = |t: Instant| t + Span::from_nanos(1);
        let expiry = self.earliest_deadline().map(|d| just_past(d - self.quickest()));
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

pub(super) fn pop_before(queue: &mut VecDeque<Request>, reach: Instant) -> Option<Request> {
    if queue.front()?.deadline < reach { queue.pop_front() } else { None }
}
