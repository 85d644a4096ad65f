//! Longer batches: what the shield allows a batch that has just been started, and what is then expected of it.

use super::settle::Past;
use super::{MANDATORY, MAX_WORKERS, Request, Scheduler, ShieldRefusal, Worker, WorkerId, WorkerState};
use crate::shield::{Shield, ShieldError};
use crate::time::{Instant, Span};

impl Worker {
    /// What its batch still takes at most; 0 if it runs none.
    pub(super) fn left(&self, now: Instant) -> Span {
        match self.state {
            WorkerState::Busy { due, .. } => due.since(now),
            WorkerState::Free | WorkerState::Lost => Span::ZERO,
        }
    }
}

impl Scheduler {
    /// Sets the shield that [`Scheduler::prolong`] asks, or takes it away. Its load must count every promised
    /// stream that is there, and may count streams that are yet to come: [`Scheduler::add_stream`] drops the
    /// shield with the first one that it does not count, so a stale one is never asked. Before such a stream is
    /// added, [`Scheduler::is_ready_for`] must say so.
    ///
    /// # Errors
    /// If the shield is for other workers, a longer latency or fewer streams, or the queue could overflow.
    pub fn set_shield(&mut self, shield: Option<Shield>) -> Result<(), ShieldError> {
        self.shield = None;
        let Some(shield) = shield else { return Ok(()) };
        if self.config.workers.len() != 1 || self.config.workers[0] != *shield.workers() {
            return Err(ShieldError::Foreign);
        }
        let (latency, limit) = (shield.latency(), self.config.deadline.saturating_sub(self.config.guard));
        if latency > limit {
            return Err(ShieldError::Deadline { latency, limit });
        }
        // Without long batches the queue may be shorter; behind them it fills up to what deadlines allow.
        let waiting = shield.most_waiting(self.config.deadline);
        if waiting > self.config.queue as u64 {
            return Err(ShieldError::Queue { waiting, limit: self.config.queue });
        }
        let count = (0..self.streams.len()).filter(|&slot| !self.is_counted(&shield, slot)).count();
        if count > 0 {
            return Err(ShieldError::Stream { count });
        }
        self.shield = Some(shield);
        Ok(())
    }

    /// The shield, if one is set and still counts every promised stream.
    #[must_use]
    pub fn shield(&self) -> Option<&Shield> {
        self.shield.as_ref()
    }

    /// How long the batch that `worker` was told to start at `now` may take at most: what
    /// [`Scheduler::prolong`] will grant. `P(b)` if it may not take longer, 0 if there is no such batch.
    #[must_use]
    pub fn longest(&self, now: Instant, worker: WorkerId) -> Span {
        match self.allowance(now, worker) {
            Ok((_, longest)) => longest,
            Err(_) => self.time_granted(now, worker).unwrap_or(Span::ZERO),
        }
    }

    /// Grants the batch that `worker` was told to start at `now` up to `length` instead of `P(b)`; call it
    /// between [`crate::Action::Start`] and the next input, as often as there are lengths to try. The service
    /// monitor then expects it by `now + length`. A length up to what is granted already changes nothing.
    ///
    /// # Errors
    /// If there is no shield, or it does not allow it, or some request of the batch would be late.
    pub fn prolong(&mut self, now: Instant, worker: WorkerId, length: Span) -> Result<(), ShieldRefusal> {
        let (granted, limit) = self.allowance(now, worker)?;
        if length > limit {
            return Err(ShieldRefusal::Length { length, limit });
        }
        if length > granted {
            self.grant(now, worker, length);
        }
        Ok(())
    }

    /// Expects the batch that `worker` started at `now` by `now + length`, unless it has longer already.
    pub(super) fn grant(&mut self, now: Instant, worker: WorkerId, length: Span) {
        if length > self.kind(worker).batch_time() {
            self.uncounted = Past::Open;
        }
        if let WorkerState::Busy { ref mut due, .. } = self.workers[worker].state {
            *due = (now + length).max(*due);
        }
    }

    /// How long a batch started at `now` may take as things are, and how long at most.
    fn allowance(&self, now: Instant, worker: WorkerId) -> Result<(Span, Span), ShieldRefusal> {
        let shield = self.shield.as_ref().ok_or(ShieldRefusal::NoShield)?;
        let granted = self.time_granted(now, worker).ok_or(ShieldRefusal::NotStarted { worker })?;
        let on_time = |w: &Worker| match w.state {
            WorkerState::Free => true,
            WorkerState::Busy { due, .. } => now <= due,
            WorkerState::Lost => false,
        };
        if self.safe_mode.severity().is_suspended() || !self.workers.iter().all(on_time) {
            return Err(ShieldRefusal::Unsafe);
        }
        let others = self.left_beside(now, worker);
        let longest = self
            .slack(now, worker)
            .map_or(granted, |slack| slack.min(shield.longest(now, &others, self.mandatory_due())));
        Ok((granted, longest.max(granted)))
    }

    /// When a request must be answered: its deadline less the guard.
    pub(super) fn due(&self, request: &Request) -> Instant {
        request.deadline - self.config.guard
    }

    /// When those that wait and that a promise counts on must be answered, in order.
    pub(super) fn mandatory_due(&self) -> impl ExactSizeIterator<Item = Instant> + Clone + '_ {
        self.queues[MANDATORY].iter().map(|request| self.due(request))
    }

    /// How long the batch of `worker` may take at most to be in time; `None` if it has none.
    pub(super) fn slack(&self, now: Instant, worker: WorkerId) -> Option<Span> {
        self.workers[worker].batch.iter().map(|request| self.due(request).since(now)).min()
    }

    /// What the batches of all workers but `worker` still take at most.
    pub(super) fn left_beside(&self, now: Instant, worker: WorkerId) -> heapless::Vec<Span, MAX_WORKERS> {
        let others = self.workers.iter().enumerate().filter(|&(id, _)| id != worker);
        others.map(|(_, w)| w.left(now)).collect()
    }

    /// How long the batch that `worker` started at `now` may take as things are.
    fn time_granted(&self, now: Instant, worker: WorkerId) -> Option<Span> {
        match self.workers.get(worker)?.state {
            WorkerState::Busy { started, due, .. } if started == now => Some(due.since(now)),
            _ => None,
        }
    }

    /// Whether `shield` counts the stream in `slot`, beside those like it before.
    pub(super) fn is_counted(&self, shield: &Shield, slot: usize) -> bool {
        let Some(spec) = self.streams[slot].as_ref().map(|stream| &stream.spec) else { return true };
        let Some(demand) = spec.demand() else { return true };
        let alike = self.streams.iter().flatten().filter(|s| s.spec.demand() == Some(demand)).count();
        alike <= shield.counts(spec)
    }
}
