//! Which requests a batch takes, class by class, and which are given up where too many are in a hurry.

use core::ops::Range;

use super::dispatch::pop_before;
use super::{MANDATORY, Outcome, Request, Scheduler, WorkerId, WorkerState};
use crate::stream::{MissReason, WHOLE};
use crate::time::Instant;
use crate::word::Class;

/// The classes that fill a batch, in order.
const FILLING: [usize; 2] = [Class::Wanted as usize, Class::Optional as usize];
/// Of so many requests the one is taken whose stream has waited longest for its turn.
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

    /// Fills the batch with what is in time for it, class by class, each in order of deadlines. What it is too late
    /// for is left to a smaller one.
    fn fill(&mut self, now: Instant, worker: WorkerId, most: usize, lost: Instant, skip: [usize; 3]) {
        if FILLING.iter().all(|&class| self.queues[class].is_empty()) {
            return;
        }
        let Some(size) = self.size(now, worker, most, skip) else { return };
        let kind = self.kind(worker);
        let from = FILLING.map(|class| self.in_time(now + kind.profile.bound(size), class, skip));
        // The next batch may be a small one, and then less is lost.
        let left = (self.waiting() + self.workers[worker].batch.len() - size).clamp(1, kind.batch);
        let lost = lost - kind.batch_time().saturating_sub(kind.profile.bound(left));
        if self.queues[FILLING[0]].len() - from[0] <= kind.batch / 2 {
            self.swap(worker, from[0]);
        }
        for (class, from) in FILLING.into_iter().zip(from) {
            let room = size - self.workers[worker].batch.len();
            let candidates = from..self.before(class, lost).max(from);
            if candidates.len() > room {
                self.take_turns(class, candidates, room);
            }
            let queue = &mut self.queues[class];
            let end = queue.len().min(from + room);
            self.workers[worker].batch.extend(queue.drain(from..end));
        }
    }

    /// How large the batch is: the most, up to `most`, for which enough requests are in time, or the fewest that make
    /// nearly as many a second, for those are answered sooner. All that it holds already stay.
    fn size(&self, now: Instant, worker: WorkerId, most: usize, skip: [usize; 3]) -> Option<usize> {
        let profile = &self.kind(worker).profile;
        let taken = self.workers[worker].batch.len();
        let enough = |&size: &usize| {
            let in_time = |class: usize| {
                self.queues[class].len() - self.in_time(now + profile.bound(size), class, skip)
            };
            taken + FILLING.map(in_time).iter().sum::<usize>() >= size
        };
        let largest = (taken.max(1)..=most).rev().find(enough)?;
        let time = |size| u128::from(profile.bound(size).as_nanos());
        let pays = |&size: &usize| 20 * size as u128 * time(largest) >= 19 * largest as u128 * time(size);
        (taken.max(1)..=largest).find(pays)
    }

    /// The first request of a class that is in time for an answer at `reach`; the first few are left to others.
    fn in_time(&self, reach: Instant, class: usize, skip: [usize; 3]) -> usize {
        self.before(class, reach).max(skip[class])
    }

    /// Within a stream the oldest come first: a mandatory request in the batch gives its place to an older wanted one
    /// of its own stream and is wanted itself, which is the same to all other streams. From `from` on all are in
    /// time; only if they are few, so that all may yet be served. In a lasting overload the places of mandatory
    /// requests are what keeps the misses apart.
    fn swap(&mut self, worker: WorkerId, from: usize) {
        let (batch, wanted) = (&mut self.workers[worker].batch, &mut self.queues[FILLING[0]]);
        for place in batch {
            let older = |r: &Request| r.stream == place.stream && r.deadline < place.deadline;
            if let Some(index) = (from..wanted.len()).find(|&index| older(&wanted[index]))
                && let Some(other) = wanted.remove(index)
            {
                let later = Request { mandatory: false, ..*place };
                *place = Request { mandatory: true, ..other };
                let index = wanted.partition_point(|r| r.deadline <= later.deadline);
                wanted.insert(index, later);
            }
        }
    }

    /// More `candidates` are lost if they are not taken now than there is room: the streams take turns, each with
    /// its oldest. Brings those to the front.
    fn take_turns(&mut self, class: usize, candidates: Range<usize>, room: usize) {
        for first in candidates.start..candidates.start + room {
            let turn = |&index: &usize| self.stream(self.queues[class][index].stream).map_or(0, |s| s.turn);
            let near = first..candidates.end.min(first + NEAR);
            let chosen = near.min_by_key(turn).unwrap_or(first);
            let queue = &mut self.queues[class];
            (first..chosen).rev().for_each(|index| queue.swap(index, index + 1));
            let stream = queue[first].stream;
            self.turns += 1;
            let turns = self.turns;
            if let Some(stream) = self.stream_mut(stream) {
                stream.turn = turns;
            }
        }
    }
}

/// `room` of `candidates`, in 1/2³².
fn part(room: usize, candidates: usize) -> u64 {
    (WHOLE * room as u64).div_ceil(candidates as u64)
}
