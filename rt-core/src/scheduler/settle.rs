//! When what was begun in the past no longer matters: for new streams beside long batches, and for the end of safe mode.
//!
//! Theorem A counts from a start that leaves no mandatory request waiting, and reckons that every worker is free again
//! a `P` later. A batch longer than `P` was safe for the streams that its shield counted, but a stream that comes later
//! and bursts at once may find all workers busy for longer. And when an assumption was broken, what piled up meanwhile
//! is in nobody's reckoning: a burst within the declarations on top of it can be late, though nothing is wrong any more.
//! In both cases promises hold (again) from an instant `s` on at which no worker still takes more than its `P` and no
//! mandatory request waits: those that come from `s` on find every worker free by `s + P`, as after any start that
//! leaves none waiting. The refinement, on which a system without background may rest, counts from an instant at which
//! a worker idles and nothing waits at all.
//!
//! A new stream may come earlier if the shield of the new load would let the state at `s` come about: its (1) and (2),
//! with what runs as the long batch.

use super::{MAX_WORKERS, Scheduler, Worker, WorkerState};
use crate::safe_mode::Severity;
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
}

impl Past {
    /// What is known when workers are `prompt`, as none takes more than its `P`, and no request that matters waits if
    /// it is `idle`, or did at some instant since the epoch before.
    fn after(self, prompt: bool, (idle, epoch): (bool, u64)) -> Self {
        match self {
            Self::Over => Self::Over,
            _ if !prompt => self,
            Self::Draining(before) if idle || epoch != before => Self::Over,
            Self::Draining(_) => self,
            Self::Open if idle => Self::Over,
            Self::Open => Self::Draining(epoch),
        }
    }

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
        let past = self.selection.long.after(self.is_prompt(now), self.idle());
        self.selection.long = past;
        if past.is_over() {
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
        if self.safe_mode.severity() >= Severity::Safe {
            self.aftermath = self.aftermath.after(self.is_prompt(now), self.idle());
            let excess = !self.queues[Class::Wanted as usize].is_empty();
            self.safe_mode.set_aftermath(excess || !self.aftermath.is_over());
        }
    }

    /// Whether every worker is free within its `P`.
    fn is_prompt(&self, now: Instant) -> bool {
        let prompt = |id| {
            let worker: &Worker = &self.workers[id];
            !worker.is_overdue(now) && worker.left(now) <= self.kind(id).batch_time()
        };
        (0..self.workers.len()).all(prompt)
    }

    /// Whether the reckoning may begin anew as far as waiting requests go, and how often that has come about.
    fn idle(&self) -> (bool, u64) {
        if self.config.background {
            return self.idle_epoch();
        }
        let free = self.workers.iter().any(|w| matches!(w.state, WorkerState::Free));
        (free && self.waiting() == 0, 0)
    }
}

impl Worker {
    /// Whether its batch should have ended.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        matches!(self.state, WorkerState::Busy { due, .. } if due < now)
    }
}
