//! Carry-in: what was begun or piled up before, and is in the reckoning of no admission test.
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

use super::Scheduler;
use super::pool::{State, Worker};
use super::queue::DEMOTED;
use super::types::MAX_WORKERS;
use crate::shield::Shield;
use crate::stalls::Stalls;
use crate::time::{Instant, Span};

/// What is known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CarryIn {
    /// Nothing that is to come depends on it.
    #[default]
    None,
    /// Something may.
    Open,
    /// No worker takes more than its `P` any more; how often no mandatory request had been left waiting when that was seen.
    Draining(u64),
    /// Without background: the instant `u`.
    Counted(Instant),
}

impl Scheduler {
    /// Whether streams may be added at `now` whose load `shield` counts beside that of those that are there:
    /// nothing promised to them is put at risk by what was begun before. Otherwise it is so within a deadline and the busy
    /// period that follows, if no more long batches are started.
    pub(super) fn is_ready(&mut self, now: Instant, shield: Option<&Shield>) -> bool {
        self.carry_in = self.settled(now, self.carry_in);
        if self.carry_in == CarryIn::None {
            return true;
        }
        // A batch that is overdue may still take any time; and what runs of another kind no shield was made for.
        let Some(shield) = shield else { return false };
        if self.pool.only_kind().is_none() || self.pool.iter().any(|w| w.is_overdue(now)) {
            return false;
        }
        let left = self.pool.left_of_each(now, self.most_stalled());
        let mut left: heapless::Vec<Span, MAX_WORKERS> = left.collect();
        left.sort_unstable();
        let longest = left.pop().unwrap_or(Span::ZERO);
        // Beyond `P`, for up to `P` the shield is not asked.
        let length = longest.max(shield.workers().batch_time() + Span::from_nanos(1));
        shield.allows(now, length, left.iter().copied(), self.mandatory_due(0))
    }

    /// Whether the present shield is right for what runs, whoever of those that it counts comes now.
    pub(super) fn is_vouched(&mut self, now: Instant) -> bool {
        if !self.vouched {
            let shield = self.shield.clone();
            self.vouched = self.is_ready(now, shield.as_deref());
        }
        self.vouched
    }

    /// Safe mode is not left before what piled up until the last breach has been worked off. Of what exceeds a declaration
    /// nothing may wait any more either: its oldest come first, which what conforms from then on shall not pay for.
    pub(super) fn settle_safe_mode(&mut self, now: Instant) {
        if self.safe_mode.severity().is_suspended() {
            self.aftermath = self.settled(now, self.aftermath);
            let excess = !self.waiting.class(DEMOTED).is_empty() || self.is_demoted();
            self.safe_mode.set_aftermath(excess || self.aftermath != CarryIn::None);
            self.look_for_end(now);
        }
    }

    /// Whether every worker is free within its `P`, whatever stalls took of longer batches until now.
    pub(super) fn is_prompt(&self, now: Instant) -> bool {
        self.pool.is_prompt(now, self.most_stalled())
    }

    /// What stalls may have taken of a longer batch: how much is not known, and of those that are yet to come there are no fewer for it.
    pub(crate) fn most_stalled(&self) -> Span {
        Stalls::reserve_of(self.config.stalls)
    }

    /// What is known at `now` of a carry-in of which so much was known.
    fn settled(&self, now: Instant, known: CarryIn) -> CarryIn {
        let (clear, clears) = (self.waiting.is_clear(), self.clears);
        match known {
            CarryIn::None => CarryIn::None,
            // That nothing waits here says nothing of the others on the same workers.
            _ if self.guest.is_some() => known,
            _ if !self.config.background => self.counted(now, known),
            _ if !self.is_prompt(now) => known,
            CarryIn::Draining(before) if clear || clears != before => CarryIn::None,
            CarryIn::Open if clear => CarryIn::None,
            CarryIn::Open => CarryIn::Draining(clears),
            CarryIn::Draining(_) | CarryIn::Counted(_) => known,
        }
    }

    /// The same without background.
    fn counted(&self, now: Instant, known: CarryIn) -> CarryIn {
        let idle = self.waiting.len() == 0 && self.pool.iter().any(|w| w.state == State::Free);
        if !idle || self.pool.iter().any(|w| w.is_overdue(now)) {
            return known;
        }
        let all_since = |u: Instant| self.pool.iter().all(|w| self.came_since(u, w));
        let in_turn =
            |(id, w): (usize, &Worker)| w.left(now) < self.pool.kind(id).time || self.came_since(now, w);
        match known {
            CarryIn::Counted(u) if all_since(u) => CarryIn::None,
            CarryIn::Counted(_) => known,
            // Nothing runs but what has just come.
            _ if all_since(now) => CarryIn::None,
            _ if self.pool.iter().enumerate().all(in_turn) => CarryIn::Counted(now),
            _ => known,
        }
    }

    /// Whether all that `worker` runs came from `u` on, of streams that are there.
    fn came_since(&self, u: Instant, worker: &Worker) -> bool {
        worker.batch.iter().all(|request| request.arrival >= u && self.streams.get(request.stream).is_some())
    }
}
