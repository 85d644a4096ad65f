//! Serving with several models: who of the literature picks which model for which requests, on identical workers.
//!
//! Nothing is promised to anyone, and the workers may be many more than a scheduler of the daemon has. [`Serving`] is a
//! dispatcher of its own because it is the rivals': they form batches themselves, and some have a queue for each worker.

mod central;
mod planned;
mod profile;

use std::collections::VecDeque;

use rt_core::{Instant, LoadMonitor, MissReason, Outcome, Span, Variant, WorkerId};
use virtual_time::{End, Policy, Step};

pub use central::{Greedy, Jellyfish, Static, Switching};
pub use planned::{Ramsis, Shared};
pub use profile::{ModelsError, read_models};

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub token: u64,
    /// When its answer must be out: the last instant that is in time.
    pub deadline: Instant,
}

/// What a chooser sees.
#[derive(Debug)]
pub struct View<'a> {
    /// The present instant.
    pub now: Instant,
    /// What waits for the worker, in order of arrival; not empty.
    pub queue: &'a VecDeque<Waiting>,
    /// When it came.
    pub arrivals: (&'a [Instant], &'a [Instant]),
    /// Arrivals a second at all workers over the last half second (RAMSIS, section 6).
    pub load: f64,
    /// Workers that are free, the asking one among them.
    pub free: usize,
    /// When each busy worker will be free, in no order.
    pub busy: &'a [Instant],
}

/// What a free worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Runs this model on `batch` requests, 1 to as many as wait.
    Start {
        /// Which, by its place in the list of models.
        model: usize,
        /// How many.
        batch: usize,
        /// Whether the newest are taken; else the oldest.
        newest: bool,
    },
    /// Gives up the first request.
    Drop,
    /// Nothing, until this instant, or until something happens.
    Wait {
        /// After now.
        until: Option<Instant>,
    },
}

/// Picks models.
pub trait Chooser: Send {
    /// Whether each worker has a queue of its own, which requests join in turn; else all share one.
    fn has_own_queues(&self) -> bool {
        false
    }

    /// What a free worker does with what waits for it.
    fn choose(&mut self, view: &View<'_>) -> Choice;
}

impl Chooser for Box<dyn Chooser> {
    fn has_own_queues(&self) -> bool {
        (**self).has_own_queues()
    }

    fn choose(&mut self, view: &View<'_>) -> Choice {
        (**self).choose(view)
    }
}

/// Identical workers, models, and who picks. A late answer is a miss, but is run if the chooser says so.
#[derive(Debug)]
pub struct Serving<C> {
    chooser: C,
    models: Vec<Variant>,
    deadline: Span,
    load: LoadMonitor,
    /// The first arrival.
    first: Option<Instant>,
    queues: Vec<VecDeque<Waiting>>,
    /// When what waits there came.
    arrivals: Vec<VecDeque<Instant>>,
    /// The queue that the next request joins.
    turn: usize,
    workers: Vec<Worker>,
    /// When each worker that is busy will be free, in no order.
    busy: Vec<Instant>,
    ended: VecDeque<(u64, Outcome)>,
}

#[derive(Debug, Default)]
struct Worker {
    batch: Vec<Waiting>,
    model: usize,
    finish: Instant,
}

impl<C: Chooser> Serving<C> {
    /// `workers` workers, at least one, that answer within `deadline`.
    pub fn new(chooser: C, models: Vec<Variant>, workers: usize, deadline: Span) -> Self {
        let workers = workers.max(1);
        let queues = if chooser.has_own_queues() { workers } else { 1 };
        Self {
            chooser,
            models,
            deadline,
            load: LoadMonitor::default(),
            first: None,
            queues: vec![VecDeque::new(); queues],
            arrivals: vec![VecDeque::new(); queues],
            turn: 0,
            workers: (0..workers).map(|_| Worker::default()).collect(),
            busy: Vec::with_capacity(workers),
            ended: VecDeque::new(),
        }
    }

    /// The load of the last half second, or of the time since the first request if that is shorter: the authors' of
    /// RAMSIS divide by the half second all the same, and so begin as if little came.
    fn rate_per_s(&mut self, now: Instant) -> f64 {
        let since = now.since(self.first.unwrap_or(now)).max(Span::from_millis(20));
        let whole = self.load.window().as_secs_f64();
        self.load.rate_per_s(now) * whole / since.as_secs_f64().min(whole)
    }

    /// Has `worker`, which is free, do what the chooser says. True if it started a batch; else when it asks again.
    fn decide(&mut self, now: Instant, worker: WorkerId) -> (bool, Option<Instant>) {
        let queue = if self.queues.len() == 1 { 0 } else { worker };
        loop {
            if self.queues[queue].is_empty() {
                return (false, None);
            }
            let (load, free) = (self.rate_per_s(now), self.workers.len() - self.busy.len());
            let arrivals = self.arrivals[queue].as_slices();
            let view = View { now, queue: &self.queues[queue], arrivals, load, free, busy: &self.busy };
            match self.chooser.choose(&view) {
                Choice::Start { model, batch, newest } => {
                    let waiting = self.queues[queue].len();
                    let batch = batch.clamp(1, waiting);
                    let first = if newest { waiting - batch } else { 0 };
                    let worker = &mut self.workers[worker];
                    self.arrivals[queue].drain(first..first + batch);
                    worker.batch.extend(self.queues[queue].drain(first..first + batch));
                    worker.model = model;
                    worker.finish = now + self.models[model].profile.bound(batch);
                    self.busy.push(worker.finish);
                    return (true, None);
                }
                Choice::Drop => {
                    self.arrivals[queue].pop_front();
                    let first = self.queues[queue].pop_front();
                    let expired = Outcome::Missed(MissReason::Expired);
                    self.ended.extend(first.map(|first| (first.token, expired)));
                }
                Choice::Wait { until } => return (false, until.filter(|&until| until > now)),
            }
        }
    }
}

impl<C: Chooser> Policy for Serving<C> {
    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn arrive(&mut self, now: Instant, _: usize, token: u64) -> Option<End> {
        self.load.observe(now);
        self.first.get_or_insert(now);
        let turn = self.turn;
        self.queues[turn].push_back(Waiting { token, deadline: now + self.deadline });
        self.arrivals[turn].push_back(now);
        self.turn = (turn + 1) % self.queues.len();
        None
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, _: Span) {
        let Worker { batch, finish, .. } = &mut self.workers[worker];
        if let Some(place) = self.busy.iter().position(|busy| busy == finish) {
            self.busy.swap_remove(place);
        }
        for request in batch.drain(..) {
            let late = now > request.deadline;
            let outcome = if late { Outcome::Missed(MissReason::Late) } else { Outcome::Served };
            self.ended.push_back((request.token, outcome));
        }
    }

    fn poll(&mut self, now: Instant) -> Step {
        loop {
            if let Some((token, outcome)) = self.ended.pop_front() {
                return Step::End(End { token, mandatory: false, outcome });
            }
            let mut until: Option<Instant> = None;
            for worker in 0..self.workers.len() {
                if !self.workers[worker].batch.is_empty() {
                    continue;
                }
                let (started, wait) = self.decide(now, worker);
                if started {
                    return Step::Start { worker };
                }
                until = until.into_iter().chain(wait).min();
                // Of those that share a queue one speaks for all.
                if self.queues.len() == 1 {
                    break;
                }
            }
            if self.ended.is_empty() {
                return Step::Wait { until };
            }
        }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.workers[worker].batch.iter().map(|request| request.token)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        let Worker { model, batch, .. } = &self.workers[worker];
        self.models[*model].profile.bound(batch.len())
    }

    fn variant(&self, worker: WorkerId) -> usize {
        self.workers[worker].model
    }
}

#[cfg(test)]
mod tests;
