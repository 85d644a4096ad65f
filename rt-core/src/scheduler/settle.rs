//! When what was begun in the past no longer matters: for new streams beside long batches, and for the end of safe mode.
//!
//! Theorem A counts from a start that leaves no mandatory request waiting, and reckons that every worker is free again
//! a `P` later. A batch longer than `P` was safe for the streams that its shield counted, but a stream that comes later
//! and bursts at once may find all workers busy for longer. And when an assumption was broken, what piled up meanwhile
//! is in nobody's reckoning: a burst within the declarations on top of it can be late, though nothing is wrong any more.
//! In both cases promises hold (again) from an instant `s` on at which no worker still takes more than its `P` and no
//! mandatory request waits: those that come from `s` on find every worker free by `s + P`, as after any start that
//! leaves none waiting.
//!
//! A load that only the refinement admits rests on more: what keeps the workers busy before a burst came under the same
//! curves, since an instant `u` at which a worker idled and nothing waited, and what was begun before `u` is over by
//! `u + P - 1`. What piled up came long before it was begun; so did, for the streams that are there, the requests of
//! one that was removed. Therefore a system without background needs two such instants: `u` itself, and one at which
//! again a worker idles and nothing waits, and all that still runs came from `u` on. Whatever comes after the second
//! waits behind nothing else.
//!
//! A new stream may come earlier if the shield of the new load would let the state at `s` come about: its (1) and (2),
//! with what runs as the long batch.

use super::{MAX_WORKERS, Scheduler, Worker, WorkerState};
use crate::shield::Shield;
use crate::stream::StreamSpec;
use crate::time::{Instant, Span};
use crate::word::Class;

/// What is known of the past.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Past {
    /// Nothing that is to come depends on it.
    #[default]
    Over,
    /// Something may.
    Open,
    /// No worker takes more than its `P` any more; the idle epoch when that was seen.
    Draining(u64),
    /// Without background: the instant `u`.
    Counted(Instant),
}

impl Past {
    fn is_over(self) -> bool {
        matches!(self, Self::Over)
    }
}

impl Scheduler {
    /// Whether one more stream like `spec` can be added at any time, for the shield that is set counts it already.
    #[must_use]
    pub fn counts_another(&self, spec: &StreamSpec) -> bool {
        let alike = self.streams.iter().flatten().filter(|s| s.spec.demand() == spec.demand()).count();
        spec.demand().is_none() || self.shield.as_ref().is_some_and(|shield| alike < shield.counts(spec))
    }

    /// Whether streams may be added at `now` whose load `shield` counts beside that of those that are there:
    /// nothing promised to them is put at risk by batches longer than `P` that were started before. Always so if
    /// there were none. If not, take the shield away ([`Scheduler::set_shield`]), so that there will be no more,
    /// and ask again: it is so within a deadline and the busy period that follows.
    pub fn is_ready_for(&mut self, now: Instant, shield: Option<&Shield>) -> bool {
        self.uncounted = self.settled(now, self.uncounted);
        if self.uncounted.is_over() {
            return true;
        }
        // A batch that is overdue may still take any time.
        if self.workers.iter().any(|w| w.is_overdue(now)) {
            return false;
        }
        let mut left: heapless::Vec<Span, MAX_WORKERS> = self.workers.iter().map(|w| w.left(now)).collect();
        left.sort_unstable();
        let longest = left.pop().unwrap_or(Span::ZERO);
        // Beyond `P`, for up to `P` the shield is not asked.
        let length = longest.max(self.kind(0).batch_time() + Span::from_nanos(1));
        shield.is_some_and(|shield| shield.allows(now, length, &left, self.mandatory_due()))
    }

    /// Safe mode is not left before what piled up until the last breach has been worked off. Of a stream's excess
    /// nothing may wait any more either: its oldest come first, which what conforms from then on shall not pay for.
    pub(super) fn settle_safe_mode(&mut self, now: Instant) {
        if self.safe_mode.severity().is_suspended() {
            self.aftermath = self.settled(now, self.aftermath);
            let excess = !self.queues[Class::Wanted as usize].is_empty();
            self.safe_mode.set_aftermath(excess || !self.aftermath.is_over());
        }
    }

    /// What is known at `now` of a past of which so much was known.
    fn settled(&self, now: Instant, past: Past) -> Past {
        let (idle, epoch) = self.idle_epoch();
        match past {
            Past::Over => Past::Over,
            _ if !self.config.background => self.counted(now, past),
            _ if !self.is_prompt(now) => past,
            Past::Draining(before) if idle || epoch != before => Past::Over,
            Past::Open if idle => Past::Over,
            Past::Open => Past::Draining(epoch),
            Past::Draining(_) | Past::Counted(_) => past,
        }
    }

    /// The same without background.
    fn counted(&self, now: Instant, past: Past) -> Past {
        let idle = self.waiting() == 0 && self.workers.iter().any(|w| matches!(w.state, WorkerState::Free));
        if !idle || self.workers.iter().any(|w| w.is_overdue(now)) {
            return past;
        }
        let all_since = |u: Instant| self.workers.iter().all(|w| self.came_since(u, w));
        let in_turn = |w: &Worker| w.left(now) < self.config.workers[w.kind].batch_time();
        match past {
            Past::Counted(u) if all_since(u) => Past::Over,
            Past::Counted(_) => past,
            // Nothing runs but what has just come.
            _ if all_since(now) => Past::Over,
            _ if self.workers.iter().all(|w| in_turn(w) || self.came_since(now, w)) => Past::Counted(now),
            _ => past,
        }
    }

    /// Whether all that `worker` runs came from `u` on, of streams that are there.
    fn came_since(&self, u: Instant, worker: &Worker) -> bool {
        worker.batch.iter().all(|request| request.arrival >= u && self.stream(request.stream).is_some())
    }

    /// Whether every worker is free within its `P`.
    fn is_prompt(&self, now: Instant) -> bool {
        let prompt = |id| {
            let worker: &Worker = &self.workers[id];
            !worker.is_overdue(now) && worker.left(now) <= self.kind(id).batch_time()
        };
        (0..self.workers.len()).all(prompt)
    }
}

impl Worker {
    /// Whether its batch should have ended.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        matches!(self.state, WorkerState::Busy { due, .. } if due < now)
    }
}
