//! What rivals for several services share: a queue for each service, identical workers, and a rule that says who goes next.

use std::collections::VecDeque;

use planner::SharedProblem;
use planner::problem::shared::Service;
use rt_core::{Instant, MissReason, Outcome, Span, StreamSpec, WorkerId, Workers};

use super::super::rival::{Floor, Waiting};
use super::super::{End, Policy, Step};

/// A service, and what waits for it.
pub(super) struct Served {
    /// The workers as they run its batches.
    pub(super) kind: Workers,
    /// From arrival to answer, less the guard.
    pub(super) latency: Span,
    /// In order of arrival, which is that of deadlines.
    pub(super) queue: VecDeque<Waiting>,
}

/// A free worker and all that waits, for a rule to decide.
pub(super) struct Hall<'a> {
    /// The present instant.
    pub(super) now: Instant,
    /// The number of the worker.
    pub(super) id: WorkerId,
    /// By their numbers.
    pub(super) services: &'a mut [Served],
    batch: &'a mut Vec<Waiting>,
    ended: &'a mut VecDeque<(Waiting, Outcome)>,
}

/// Decides for a free worker.
pub(super) trait Rule {
    /// Takes what the worker is to run now, of one service, or nothing; and drops what it gives up. Returns the instant
    /// after `now` at which to ask again if nothing was taken and nothing happens before.
    fn decide(&mut self, hall: &mut Hall<'_>) -> Option<Instant>;
}

impl Hall<'_> {
    /// One service as if it had the worker for itself.
    pub(super) fn floor(&mut self, service: usize) -> Floor<'_> {
        let Served { kind, queue, .. } = &mut self.services[service];
        let places = (kind.batch, self.now + kind.batch_time() + kind.batch_time());
        Floor::of_one((self.now, self.id), kind, queue, places, self.batch, self.ended)
    }

    /// One service with batches as `kind` has them, as in [`Floor`] with `places` in all until what is answered `later`.
    pub(super) fn turn<'b>(
        &'b mut self,
        service: usize,
        kind: &'b Workers,
        places: (usize, Instant),
    ) -> Floor<'b> {
        let queue = &mut self.services[service].queue;
        Floor::of_one((self.now, self.id), kind, queue, places, self.batch, self.ended)
    }

    /// Whether something was taken.
    pub(super) fn is_taken(&self) -> bool {
        !self.batch.is_empty()
    }
}

/// A rule at work on the services of a problem.
pub(super) struct Rivals {
    rule: Box<dyn Rule>,
    /// Of each stream, its service.
    service_of: Vec<usize>,
    services: Vec<Served>,
    workers: Vec<Vec<Waiting>>,
    ended: VecDeque<(Waiting, Outcome)>,
}

impl Rivals {
    /// Streams are those of the problem, then those of no promise, each with its service.
    pub(super) fn new(problem: &SharedProblem, streams: &[(usize, StreamSpec)], rule: Box<dyn Rule>) -> Self {
        let served = |service: &Service| Served {
            kind: kind_of(problem, service),
            latency: service.deadline.saturating_sub(service.guard),
            queue: VecDeque::new(),
        };
        Self {
            rule,
            service_of: streams.iter().map(|&(service, _)| service).collect(),
            services: problem.services.iter().map(served).collect(),
            workers: vec![Vec::new(); problem.workers],
            ended: VecDeque::new(),
        }
    }

    /// Asks the free workers one by one, until one has taken or dropped something.
    fn decide(&mut self, now: Instant) -> Step {
        let mut until = None::<Instant>;
        for (id, batch) in self.workers.iter_mut().enumerate().filter(|(_, batch)| batch.is_empty()) {
            let (services, ended) = (&mut self.services[..], &mut self.ended);
            let wait = self.rule.decide(&mut Hall { now, id, services, batch, ended });
            if !batch.is_empty() {
                return Step::Start { worker: id };
            }
            if !self.ended.is_empty() {
                break;
            }
            debug_assert!(wait.is_none_or(|wait| wait > now), "a rule waits for what is past");
            until = until.into_iter().chain(wait).min();
        }
        Step::Wait { until }
    }
}

impl Policy for Rivals {
    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        let service = &mut self.services[self.service_of[stream]];
        let deadline = now + service.latency;
        service.queue.push_back(Waiting { token, stream, arrival: now, deadline, mandatory: false });
        None
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, _: Span) {
        self.ended.extend(self.workers[worker].drain(..).map(|request| {
            let late = request.deadline < now;
            (request, if late { Outcome::Missed(MissReason::Late) } else { Outcome::Served })
        }));
    }

    fn poll(&mut self, now: Instant) -> Step {
        loop {
            if let Some((Waiting { token, mandatory, .. }, outcome)) = self.ended.pop_front() {
                return Step::End(End { token, mandatory, outcome });
            }
            let step = self.decide(now);
            if self.ended.is_empty() || matches!(step, Step::Start { .. }) {
                return step;
            }
        }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.workers[worker].iter().map(|request| request.token)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        let batch = &self.workers[worker];
        let service = batch.first().map(|request| &self.services[self.service_of[request.stream]]);
        service.map_or(Span::ZERO, |service| service.kind.profile.bound(batch.len()))
    }
}

/// The workers of a problem as one of its services sees them.
pub(super) fn kind_of(problem: &SharedProblem, service: &Service) -> Workers {
    Workers { count: problem.workers, batch: service.batch, profile: service.profile.clone() }
}
