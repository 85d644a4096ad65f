//! A stage behind the first: what waits there in the order of its sources, and the workers that take it.

use alloc::vec::Vec;

use super::scheduler::NEVER;
use crate::scheduler::batch::{BatchPlanner, View};
use crate::scheduler::pool::Pool;
use crate::scheduler::queue::{MANDATORY, OPTIONAL, Waiting};
use crate::stream::MissReason;
use crate::time::{Instant, Span};
use crate::{Request, WorkerId, Workers};

/// A stage. Its requests stand for sources, with the deadline that leaves what follows the stage the least time it can take.
#[derive(Debug)]
pub(super) struct Later {
    pub(super) pool: Pool,
    pub(super) waiting: Waiting,
    pub(super) planner: BatchPlanner,
    /// What the batch formed last left behind for good.
    pub(super) given_up: Vec<(Request, MissReason)>,
}

impl Later {
    /// Nothing waits; there is room for so many requests, of sources of so many streams. Allocates.
    pub(super) fn new(workers: &Workers, room: usize, streams: usize) -> Self {
        Self {
            pool: Pool::new(core::slice::from_ref(workers)),
            waiting: Waiting::new(room, streams),
            planner: BatchPlanner::new(room, streams),
            given_up: Vec::with_capacity(room),
        }
    }

    /// Takes in a request; there is room. Sources that came at one instant go in the order in which they were begun, at every stage,
    /// whichever result of theirs is there first.
    pub(super) fn push(&mut self, request: Request) {
        self.waiting.push_by_place(class(&request), request);
    }

    /// A request that can no longer be answered in time, at most or, if nothing is promised for it, most likely.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Request> {
        let (bound, likely) = self.pool.quickest()?;
        let first = self.waiting.pop_before(MANDATORY, now + bound);
        first.or_else(|| self.waiting.pop_before(OPTIONAL, now + likely))
    }

    /// Something waits. Forms a batch for a worker that is free: of the mandatory requests whose sources came first, then others.
    /// `None` if there is no worker. What can no longer be answered is in `given_up`; then the batch is to be formed anew without what
    /// else waits of these sources. With `whole` none is made smaller for a request that is nearly late; with `apart` none holds both
    /// mandatory requests and others.
    pub(super) fn form(&mut self, now: Instant, (whole, apart): (bool, bool)) -> Option<WorkerId> {
        let worker = self.pool.first_alike()??;
        self.planner.plan(&View { whole, apart, ..View::new(now, &self.pool, worker, &self.waiting) });
        let (batch, given_up) = (self.pool.batch_mut(worker), &mut self.given_up);
        self.planner.carry_out(
            &mut self.waiting,
            |request| batch.push(request),
            |request, reason| given_up.push((request, reason)),
        );
        if !self.given_up.is_empty() {
            while let Some(request) = self.pool.batch_mut(worker).pop() {
                self.push(request);
            }
        }
        (!self.pool.batch(worker).is_empty() || !self.given_up.is_empty()).then_some(worker)
    }

    /// When there is something to be given up if nothing happens before.
    pub(super) fn next(&self) -> Instant {
        let just_past = |t: Instant| t + Span::from_nanos(1);
        let Some((bound, likely)) = self.pool.quickest() else { return NEVER };
        let expires = |class, time| {
            let first = self.waiting.first_deadline(class);
            first.map_or(NEVER, |deadline| just_past(deadline - time))
        };
        expires(MANDATORY, bound).min(expires(OPTIONAL, likely))
    }

    /// How long it most likely takes until all that waits here has been begun, in full batches, and what a batch of `size` takes then.
    pub(super) fn likely_times(&self, size: usize) -> (Span, Span) {
        let kind = self.pool.kind(0);
        let (profile, batch) = (&kind.workers.profile, kind.workers.batch);
        let rounds = self.waiting.len() as u64 / kind.workers.round();
        let before = profile.mean(batch).as_nanos().saturating_mul(rounds);
        (Span::from_nanos(before), profile.likely(size.clamp(1, batch)))
    }
}

/// The queue of a request: what is promised nothing fills batches.
fn class(request: &Request) -> usize {
    if request.mandatory { MANDATORY } else { OPTIONAL }
}
