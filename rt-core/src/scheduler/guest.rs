//! A scheduler on workers that it shares with others: when it may start a batch is decided for all of them together
//! ([`crate::sharing::Device`]), and a batch of another keeps a worker busy.
//!
//! What it decides by itself stays as it is: which requests conform and are mandatory, which of those that wait make a batch,
//! what is refused, what is announced. What it may conclude from its own queue alone it may no longer: a busy period ends
//! where no mandatory request of *any* service waits, and the longest batch is that of all.

use super::Scheduler;
use super::carry_in::CarryIn;
use super::pool::State;
use super::queue::{DEMOTED, MANDATORY};
use super::types::{Action, WorkerId};
use crate::safe_mode::Severity;
use crate::time::{Instant, Span};

/// What a scheduler knows of the workers that it shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    /// `P̂`: the longest batch that anyone may start.
    pub(super) longest: Span,
    /// By how much a batch of another may exceed its time and harm nobody.
    margin: Span,
    /// Whether the batch to be formed may be as long as that: nothing mandatory waits for any of the services.
    pub(super) background: bool,
}

impl Guest {
    /// Within what time each worker is free whose batch keeps its time, or exceeds it harmlessly.
    pub(super) fn prompt(&self) -> Span {
        self.longest + self.margin
    }
}

impl Scheduler {
    /// From now on it shares its workers, on which no batch takes longer than `longest`, but perhaps one by up to `margin`.
    pub(crate) fn share(&mut self, longest: Span, margin: Span) {
        self.guest = Some(Guest { longest, margin, background: false });
    }

    /// The earliest deadline of the mandatory requests that wait.
    pub(crate) fn first_mandatory(&self) -> Option<Instant> {
        self.waiting.first_deadline(MANDATORY)
    }

    /// Whether a request waits that would be mandatory if its stream kept to its declaration.
    pub(crate) fn has_demoted(&self) -> bool {
        !self.waiting.class(DEMOTED).is_empty()
    }

    /// Whether one of its workers is free.
    pub(crate) fn has_free_worker(&self) -> bool {
        !self.pool.is_busy()
    }

    /// The first of its workers that is free.
    pub(crate) fn free_worker(&self) -> Option<WorkerId> {
        self.pool.first_alike().flatten()
    }

    /// Its turn on a worker that is free: the start of a batch, with what it takes at most; `None` if nothing that waits could be
    /// served. As `background`, where nothing mandatory waits for anyone, a batch may be as long as any.
    pub(crate) fn take_turn(
        &mut self,
        now: Instant,
        worker: WorkerId,
        background: bool,
    ) -> Option<(Action, Span)> {
        if let Some(guest) = &mut self.guest {
            guest.background = background;
        }
        self.changed = true;
        if !self.form_batch(now, worker) {
            self.look_at(now);
            return None;
        }
        let time = self.pool.get(worker).map_or(Span::ZERO, |w| w.left(now));
        Some((self.start(now, worker), time))
    }

    /// Another service has begun a batch on `worker`, which takes up to `time`.
    pub(crate) fn give_away(&mut self, now: Instant, worker: WorkerId, time: Span) {
        let time = time + self.guest.map_or(Span::ZERO, |guest| guest.margin);
        self.pool.start(now, worker, time);
        self.look_at(now + time + self.config.guard + Span::from_nanos(1));
    }

    /// The batch of another service on `worker` has ended.
    pub(crate) fn take_back(&mut self, now: Instant, worker: WorkerId) {
        let Some(State::Busy { started, due, reported }) = self.pool.get(worker).map(|w| w.state) else {
            return;
        };
        self.pool.end(now, worker, false);
        match reported {
            true => self.safe_mode.put_off(now),
            false if now > due => self.overrun(now, due.since(started), now.since(started)),
            false => {}
        }
    }

    /// Dispatch came `delay` late, on workers that others share.
    pub(crate) fn was_late(&mut self, now: Instant, delay: Span) {
        self.worst_delay = self.worst_delay.max(delay);
        if delay > self.config.guard {
            self.raise_late(now, self.config.guard, delay);
        }
    }

    /// Whether it waits to hear that nothing mandatory waits for any of the services.
    pub(crate) fn awaits_clear(&self) -> bool {
        self.ledger.departed() > 0
            || self.carry_in != CarryIn::None
            || self.aftermath != CarryIn::None && self.safe_mode.severity() >= Severity::Safe
    }

    /// No mandatory request waits for any of the services: what was before is in the way of nothing that is to come, if no
    /// worker takes longer than any batch may.
    pub(crate) fn all_clear(&mut self, now: Instant) {
        self.clears += 1;
        self.ledger.clear();
        self.changed = true;
        if self.is_prompt(now) {
            (self.carry_in, self.aftermath) = (CarryIn::None, CarryIn::None);
        }
    }
}
