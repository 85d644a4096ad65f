//! The way of a request inside the scheduler: waited for, due at a worker, or given up. `form.rs` makes the batch.
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

use super::Scheduler;
use super::carry_in::CarryIn;
use super::queue::{Classes, DEMOTED, MANDATORY, OPTIONAL};
use super::types::{Action, Event, NEVER, WorkerId};
use super::wake::just_past;
use crate::admission::Dispatch;
use crate::stalls::StallMonitor;
use crate::stream::MissReason;
use crate::time::Instant;

impl Scheduler {
    /// The next thing to do at `now`; see the calling contract.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Action {
        if let Some(resolution) = self.told.resolved.pop_front() {
            return Action::Resolve(resolution);
        }
        if !self.changed && now < self.next && self.told.events.is_empty() {
            return self.wait();
        }
        self.decide(now)
    }

    /// The next thing to do where there may be something: apart from [`Scheduler::poll`], which is mostly called to hear that
    /// there is nothing.
    #[inline(never)]
    fn decide(&mut self, now: Instant) -> Action {
        loop {
            if let Some(event) = self.told.events.pop_front() {
                return Action::Event(event);
            }
            let told = if self.is_time(now) {
                self.watch(now) || self.expire(now)
            } else {
                // The end of safe mode or of a suspension may come with any change.
                self.changed && !self.is_at_rest(now) && self.end_suspensions(now)
            };
            if told {
                self.changed = true;
            } else if let Some(worker) = self.due_worker(now) {
                if self.form_batch(now, worker).is_some() {
                    let start = self.start(now, worker);
                    // Mostly there is nothing more to be done.
                    if self.is_at_rest(now) && !self.is_due(now) {
                        self.rest(now);
                    }
                    return start;
                }
                // What no batch can serve is given up.
                self.look_at(now);
                if self.told.resolved.is_empty() && !self.expire(now) {
                    debug_assert!(false, "a batch is due and empty, and nothing is too late for it");
                    // It would be formed again for ever.
                    self.rest(now);
                    self.next = self.next.max(just_past(now));
                    return self.wait();
                }
            } else {
                self.rest(now);
                if now < self.next {
                    return self.wait();
                }
            }
            if let Some(resolution) = self.told.resolved.pop_front() {
                return Action::Resolve(resolution);
            }
        }
    }

    /// Gives up requests that not even a batch of one on the quickest worker could still serve, at most or, without a promise,
    /// most likely. All queues are in deadline order, so only their heads need a look.
    #[inline(never)]
    fn expire(&mut self, now: Instant) -> bool {
        let Some((bound, likely)) = self.pool.quickest() else { return false };
        let mut any = false;
        // It would wait beside an idle worker, where no background is counted. What comes meanwhile is not taken in.
        while self.quiet
            && !self.config.background
            && let Some(request) = self.waiting.pop(OPTIONAL)
        {
            self.give_up(now, request, MissReason::Shed);
            any = true;
        }
        for (class, time) in [(MANDATORY, bound), (DEMOTED, likely), (OPTIONAL, likely)] {
            while let Some(request) = self.waiting.pop_before(class, now + time) {
                self.give_up(now, request, MissReason::Expired);
                any = true;
            }
        }
        if any {
            self.note_clear();
            // Nothing more expires now.
            self.next = self.next_wake(now);
        }
        any
    }

    /// Reports dispatch that comes too late and batches that run past their bound, and ends safe mode and suspensions when
    /// their time has come.
    #[inline(never)]
    fn watch(&mut self, now: Instant) -> bool {
        let armed = self.armed;
        if now > armed {
            self.armed = NEVER;
            let delay = now.since(armed);
            self.worst_delay = self.worst_delay.max(delay);
            let guard = self.config.guard;
            let stalled = |stalls: &mut StallMonitor| stalls.explains(armed, armed + guard, now);
            if delay > guard && !self.stalls.as_mut().is_some_and(stalled) {
                self.raise_late(now, guard, delay);
                return true;
            }
        }
        if let Some((started, due)) = self.report_overdue(now) {
            self.overran(now, (started, due, false), now.since(started));
            self.runs_on(now);
            return true;
        }
        now >= self.passes && self.miss_overdue(now) || self.end_suspensions(now)
    }

    /// Ends safe mode and suspensions when their time has come.
    fn end_suspensions(&mut self, now: Instant) -> bool {
        if self.resume_streams(now) {
            return true;
        }
        self.settle_safe_mode(now);
        let transition = self.safe_mode.tick(now);
        self.note_left(now);
        match transition {
            Some(transition) => {
                self.told.announce(Event::SafeMode(transition));
                true
            }
            None => false,
        }
    }

    /// Whether a worker is to take a batch now.
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        // Mostly all are busy, or nothing waits.
        self.may_start()
            && self.waiting.len() > 0
            && (self.takes_all() || self.find_due_worker(now).is_some())
    }

    /// Whether a worker is free, and it is not decided elsewhere who takes a batch.
    #[inline]
    pub(super) fn may_start(&self) -> bool {
        !self.pool.is_busy() && self.guest.is_none()
    }

    /// Whether any free worker takes at once whatever waits.
    #[inline]
    fn takes_all(&self) -> bool {
        self.config.dispatch == Dispatch::Eager && !self.quiet && self.pool.only_kind().is_some()
    }

    /// The worker that takes the next batch, if dispatch is due.
    #[inline]
    fn due_worker(&self, now: Instant) -> Option<WorkerId> {
        if !self.may_start() || self.waiting.len() == 0 {
            return None;
        }
        if self.takes_all() { self.pool.first_alike()? } else { self.find_due_worker(now) }
    }

    #[inline(never)]
    fn find_due_worker(&self, now: Instant) -> Option<WorkerId> {
        let (worker, skip) = self.next_worker(now)?;
        let due = match self.config.dispatch {
            Dispatch::Eager => true,
            Dispatch::FullOrLatest => {
                let within_reach = self.waiting.len() - skip.iter().sum::<usize>();
                within_reach >= self.pool.kind(worker).workers.batch
                    || self.latest_start(worker, skip) <= now
                    || self.is_pressed()
            }
        };
        due.then_some(worker)
    }

    /// Whether it waits for an instant at which nothing waits, or nothing mandatory. If workers that idle waited for full batches, of what
    /// comes at once some might always be left, and it never came. Any start is one of Theorem A's, and one that comes sooner than it had
    /// to is one of the refinement's.
    fn is_pressed(&self) -> bool {
        self.quiet
            || self.awaited
            || self.waits_for_calm()
            || self.ledger.departed() > 0
            || self.aftermath != CarryIn::None && self.safe_mode.severity().is_suspended()
    }

    /// The worker that takes the next batch, of the free ones that something waits for that with the shortest full batch,
    /// the first of equals; and how many requests of each class it leaves to others.
    pub(super) fn next_worker(&self, now: Instant) -> Option<(WorkerId, Classes<usize>)> {
        let waiting = if self.quiet { self.waiting.class(MANDATORY).len() } else { self.waiting.len() };
        if waiting == 0 || self.pool.is_busy() {
            return None;
        }
        if let Some(first) = self.pool.first_alike() {
            // All are alike, and to each all is in reach.
            return first.map(|worker| (worker, [0; 3]));
        }
        self.pool.free().find_map(|worker| {
            let skip = self.out_of_reach(now, worker).unwrap_or_default();
            let left = if self.quiet { skip[MANDATORY] } else { skip.iter().sum() };
            (left < waiting).then_some((worker, skip))
        })
    }

    /// When `worker` must start at the latest: where the earliest deadline less the guard leaves just the time of its full batch.
    pub(super) fn latest_start(&self, worker: WorkerId, skip: Classes<usize>) -> Instant {
        let first = |class: usize| self.waiting.class(class).get(skip[class]).map(|request| request.deadline);
        let earliest = [MANDATORY, DEMOTED, OPTIONAL].into_iter().filter_map(first).min();
        let time = self.reserve + self.pool.kind(worker).time;
        earliest.map_or(Instant::from_nanos(u64::MAX), |earliest| earliest - time)
    }

    /// How many requests of each class `worker` leaves to others: those for which its full batch
    /// would come too late, as long as a quicker worker is there. Within the guarantee no mandatory request
    /// that a worker is to take is among them. `None` if it leaves none.
    #[inline]
    pub(super) fn out_of_reach(&self, now: Instant, worker: WorkerId) -> Option<Classes<usize>> {
        if self.pool.only_kind().is_some() { None } else { self.out_of_reach_of(now, worker) }
    }

    /// The same, of workers of several kinds.
    #[inline(never)]
    fn out_of_reach_of(&self, now: Instant, worker: WorkerId) -> Option<Classes<usize>> {
        let kind = self.pool.kind(worker);
        if self.pool.quickest().is_none_or(|(quickest, _)| kind.workers.profile.bound(1) <= quickest) {
            return None;
        }
        let reach = now + kind.time;
        let skip = [MANDATORY, DEMOTED, OPTIONAL].map(|class| self.waiting.before(class, reach));
        (skip != [0; 3]).then_some(skip)
    }
}
