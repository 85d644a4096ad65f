//! What all rivals share: one queue in order of arrival, free workers, and a rule that decides.

use std::collections::VecDeque;

use planner::Problem;
use rt_core::{Instant, MissReason, Outcome, Span, WorkerId, Workers};

use super::{End, Policy, Step};

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Its name.
    pub(super) token: u64,
    /// Its stream: an index into the problem's, or beyond them for one of no promise.
    pub(super) stream: usize,
    /// When it came.
    pub(super) arrival: Instant,
    /// When its answer must be out: the last instant that is in time.
    pub(super) deadline: Instant,
    /// Whether the rule must not lose it.
    pub(super) mandatory: bool,
}

/// A free worker and what waits for it, for a rule to decide.
pub(super) struct Floor<'a> {
    /// The present instant.
    pub(super) now: Instant,
    /// The worker.
    pub(super) worker: &'a Workers,
    /// What waits, in order of arrival.
    pub(super) queue: &'a mut VecDeque<Waiting>,
    /// What it is to run.
    batch: &'a mut Vec<Waiting>,
    ended: &'a mut VecDeque<(Waiting, Outcome)>,
}

/// Decides for a free worker.
pub(super) trait Rule {
    /// A request comes, while `waiting` wait and `busy` says that no worker is free; false refuses it as
    /// [`MissReason::QueueFull`].
    fn arrive(&mut self, request: &mut Waiting, waiting: usize, busy: bool) -> bool {
        let _ = (request, waiting, busy);
        true
    }

    /// A request of `stream` was answered in time, or missed.
    fn hear(&mut self, stream: usize, hit: bool) {
        let _ = (stream, hit);
    }

    /// A batch has ended; `late` if one of its answers came after its deadline.
    fn finish(&mut self, now: Instant, late: bool) {
        let _ = (now, late);
    }

    /// Takes what the worker is to run now, or nothing; and drops what it gives up. Returns the instant after
    /// `now` at which to ask again if nothing was taken and nothing happens before.
    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant>;
}

impl Floor<'_> {
    /// `P(size)` of the worker.
    pub(super) fn time(&self, size: usize) -> Span {
        self.worker.profile.bound(size)
    }

    /// Puts the first `count` that wait into the batch.
    pub(super) fn take_first(&mut self, count: usize) {
        self.batch.extend(self.queue.drain(..count));
    }

    /// Puts the request at `index` of the queue into the batch.
    pub(super) fn take(&mut self, index: usize) {
        self.batch.extend(self.queue.remove(index));
    }

    /// Gives up the request at `index` of the queue.
    pub(super) fn drop(&mut self, index: usize, reason: MissReason) {
        if let Some(request) = self.queue.remove(index) {
            self.ended.push_back((request, Outcome::Missed(reason)));
        }
    }

    /// Gives up the oldest requests for which a batch of `size` that starts now would come too late.
    pub(super) fn drop_hopeless(&mut self, size: usize) {
        let finish = self.now + self.time(size);
        while self.queue.front().is_some_and(|first| first.deadline < finish) {
            self.drop(0, MissReason::Expired);
        }
    }
}

/// A rule at work on the workers and the deadline of a problem. Of several free workers the one with the shortest
/// full batch decides first.
pub(super) struct Rival {
    rule: Box<dyn Rule>,
    deadline: Span,
    queue: VecDeque<Waiting>,
    /// By their numbers; `order` has them by the time of a full batch.
    workers: Vec<Worker>,
    order: Vec<WorkerId>,
    ended: VecDeque<(Waiting, Outcome)>,
}

struct Worker {
    kind: Workers,
    batch: Vec<Waiting>,
}

impl Rival {
    pub(super) fn new(problem: &Problem, rule: Box<dyn Rule>) -> Self {
        let kinds = problem.workers.iter().flat_map(|kind| vec![kind; kind.count]);
        let workers: Vec<_> = kinds.map(|kind| Worker { kind: kind.clone(), batch: Vec::new() }).collect();
        let mut order: Vec<_> = (0..workers.len()).collect();
        order.sort_by_key(|&worker| workers[worker].kind.batch_time());
        let (queue, ended) = (VecDeque::new(), VecDeque::new());
        Self { rule, deadline: problem.deadline, queue, workers, order, ended }
    }
}

impl Policy for Rival {
    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        let deadline = now + self.deadline;
        let mut request = Waiting { token, stream, arrival: now, deadline, mandatory: false };
        let busy = self.workers.iter().all(|worker| !worker.batch.is_empty());
        if self.rule.arrive(&mut request, self.queue.len(), busy) {
            self.queue.push_back(request);
            return None;
        }
        self.rule.hear(stream, false);
        let outcome = Outcome::Missed(MissReason::QueueFull);
        Some(End { token, mandatory: request.mandatory, outcome })
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, _: Span) {
        let mut any = false;
        for request in self.workers[worker].batch.drain(..) {
            let late = now > request.deadline;
            any |= late;
            let outcome = if late { Outcome::Missed(MissReason::Late) } else { Outcome::Served };
            self.ended.push_back((request, outcome));
        }
        self.rule.finish(now, any);
    }

    fn poll(&mut self, now: Instant) -> Step {
        let mut until: Option<Instant> = None;
        for &id in &self.order {
            if let Some((request, outcome)) = self.ended.pop_front() {
                self.rule.hear(request.stream, outcome == Outcome::Served);
                return Step::End(End { token: request.token, mandatory: request.mandatory, outcome });
            }
            let Worker { kind, batch } = &mut self.workers[id];
            if !batch.is_empty() {
                continue;
            }
            let (queue, ended) = (&mut self.queue, &mut self.ended);
            let wait = self.rule.decide(&mut Floor { now, worker: kind, queue, batch, ended });
            if !batch.is_empty() {
                return Step::Start { worker: id };
            }
            until = until.into_iter().chain(wait).min();
        }
        match self.ended.is_empty() {
            true => Step::Wait { until },
            false => self.poll(now),
        }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.workers[worker].batch.iter().map(|request| request.token)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        let Worker { kind, batch } = &self.workers[worker];
        kind.profile.bound(batch.len())
    }
}
