//! Which requests a batch takes, class by class, and which are given up where too many are in a hurry.

use super::dispatch::pop_before;
use super::{MANDATORY, Outcome, Request, Scheduler, WorkerId, WorkerState};
use crate::stream::{MissReason, WHOLE};
use crate::time::Instant;
use crate::word::Class;
use crate::workers::Workers;
use alloc::collections::VecDeque;

/// The classes that fill a batch, in order.
const FILLING: [usize; 2] = [Class::Wanted as usize, Class::Optional as usize];

/// How many wanted requests are searched for an older one of a stream.
const NEAR: usize = 16;

impl Scheduler {
    /// Takes a batch for `worker`: mandatory requests first, then wanted, then optional ones. False if none is left
    /// that a batch of this size could serve; what is given up on the way is resolved.
    pub(super) fn form_batch(&mut self, now: Instant, worker: WorkerId) -> bool {
        let full = self.kind(worker).batch;
        let skip = self.out_of_reach(now, worker);
        self.armed = None;
        let lost = self.next_answer(now, worker);
        self.shed(now, worker, lost, skip[MANDATORY]);
        // Shrink the batch rather than lose the first mandatory request; never for others.
        let mut most = full.min(self.workers[worker].batch.len() + self.in_reach(now, worker));
        if let Some(head) = self.queues[MANDATORY].get(skip[MANDATORY]) {
            let left = head.deadline.since(now);
            most = most.min(self.kind(worker).profile.largest_within(left, full)).max(1);
        }
        let reach = now + self.kind(worker).profile.bound(most);
        while self.workers[worker].batch.len() < most
            && let Some(request) = self.queues[MANDATORY].remove(skip[MANDATORY])
        {
            if request.deadline < reach {
                self.end(now, request, Outcome::Missed(MissReason::Expired));
            } else {
                self.workers[worker].batch.push(request);
            }
        }
        self.fill(now, worker, most, lost, skip);
        if self.queues[MANDATORY].is_empty() {
            self.idle_epoch += 1;
        }
        let taken = self.workers[worker].batch.len();
        if taken == 0 {
            return false;
        }
        let due = now + self.kind(worker).profile.bound(taken);
        self.workers[worker].state = WorkerState::Busy { started: now, due, reported: false };
        true
    }

    /// Mandatory requests that miss their deadline if they are not taken now: should there be more than a batch of
    /// them, the promise is already broken, and what counts is to spread the misses. Takes a full batch evenly
    /// (per-batch spread: spread-drop paper, section 3.3, as corrected in the theory) and gives up the rest, each
    /// stream by a balanced word of its own. The first `skip` are left to quicker workers.
    fn shed(&mut self, now: Instant, worker: WorkerId, mut next: Instant, skip: usize) {
        let kind = self.kind(worker);
        let (full, time) = (kind.batch, kind.batch_time());
        if !self.config.background {
            // A load that only the refinement admits counts on the next batch being no larger than what is left.
            let left = self.before(MANDATORY, next).saturating_sub(full + skip);
            next = next - time.saturating_sub(kind.profile.bound(left.clamp(1, full)));
        }
        if self.before(MANDATORY, next) <= full + skip {
            return;
        }
        while skip == 0
            && let Some(request) = pop_before(&mut self.queues[MANDATORY], now + time)
        {
            self.end(now, request, Outcome::Missed(MissReason::Shed));
        }
        let candidates = self.before(MANDATORY, next).saturating_sub(skip);
        if candidates <= full {
            return;
        }
        let step = part(full, candidates);
        for _ in 0..candidates {
            let Some(request) = self.queues[MANDATORY].remove(skip) else { break };
            let room = self.workers[worker].batch.len() < full;
            if self.stream_mut(request.stream).is_some_and(|stream| stream.earns(step, room)) {
                self.workers[worker].batch.push(request);
            } else {
                self.end(now, request, Outcome::Missed(MissReason::Shed));
            }
        }
    }

    /// Fills the batch up to the largest size, `most` at most, for which enough requests are in time. What that is
    /// too late for is left, for a batch that can be smaller.
    fn fill(&mut self, now: Instant, worker: WorkerId, most: usize, lost: Instant, skip: [usize; 3]) {
        let Workers { profile, batch: full, .. } = &self.config.workers[self.workers[worker].kind];
        let full = *full;
        let taken = self.workers[worker].batch.len();
        let from = |class: usize, size| self.before(class, now + profile.bound(size)).max(skip[class]);
        let enough = |size: &usize| {
            let in_time = FILLING.map(|class| self.queues[class].len() - from(class, *size));
            taken + in_time.iter().sum::<usize>() >= *size
        };
        let Some(size) = (taken.max(1)..=most).rev().find(enough) else { return };
        let as_good = |&small: &usize| {
            profile.bound(size).as_nanos() as u128 * small as u128 * 100
                >= profile.bound(small).as_nanos() as u128 * size as u128 * 98
        };
        let size = (taken.max(1)..=size).find(as_good).unwrap_or(size);
        let left = self.queues.iter().map(VecDeque::len).sum::<usize>() + taken - size;
        let lost = lost - profile.bound(full).saturating_sub(profile.bound(left.clamp(1, full)));
        let from = FILLING.map(|class| (class, from(class, size)));
        if self.queues[1].len() - from[0].1 <= full / 2 {
            self.swap(worker, from[0].1);
        }
        for (class, from) in from {
            let candidates = from..self.before(class, lost).max(from);
            let batch = &mut self.workers[worker].batch;
            let queue = &mut self.queues[class];
            let room = size - batch.len();
            if candidates.len() > room {
                for first in from..from + room {
                    let turn = |&index: &usize| {
                        self.streams[usize::from(queue[index].stream.slot)]
                            .as_ref()
                            .map_or(0, |stream| stream.turn)
                    };
                    let chosen = (first..candidates.end.min(first + NEAR)).min_by_key(turn).unwrap_or(first);
                    (first..chosen).rev().for_each(|index| queue.swap(index, index + 1));
                    self.turns += 1;
                    if let Some(stream) = self.streams[usize::from(queue[first].stream.slot)].as_mut() {
                        stream.turn = self.turns;
                    }
                }
            }
            let rest = (size - batch.len()).min(queue.len() - from);
            batch.extend(queue.drain(from..from + rest));
        }
    }

    /// Of each stream the oldest come first: a mandatory request in the batch gives its place to an older wanted one
    /// of its own stream, and is wanted itself. For all other streams this is the same. From `from` on all are in
    /// time for the batch.
    fn swap(&mut self, worker: WorkerId, from: usize) {
        let (batch, wanted) = (&mut self.workers[worker].batch, &mut self.queues[Class::Wanted as usize]);
        for place in batch.iter_mut() {
            let older = |r: &Request| r.stream == place.stream && r.deadline < place.deadline;
            let near = from..wanted.len().min(from + NEAR);
            if let Some(index) = near.into_iter().find(|&index| older(&wanted[index]))
                && let Some(other) = wanted.remove(index)
            {
                let later = Request { mandatory: false, ..*place };
                *place = Request { mandatory: true, ..other };
                let index = wanted.partition_point(|r| r.deadline <= later.deadline);
                wanted.insert(index, later);
            }
        }
    }
}

/// `room` of `candidates`, in 1/2³².
fn part(room: usize, candidates: usize) -> u64 {
    (WHOLE * room as u64).div_ceil(candidates as u64)
}
