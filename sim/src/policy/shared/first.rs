//! Rivals that look at what waits of all services, and at no plan: Clockwork, Symphony, EdgeServing, fixed priorities.

use rt_core::{Instant, Span};

use super::super::first::{Clockwork as OfOne, Edf};
use super::super::rival::Rule as _;
use super::rival::{Hall, Rule};

/// Clockwork (Gujarati et al., OSDI 2020) with several models on the same workers: of the models' batches, each formed as
/// [`OfOne`] forms them, the one that must start first, by its predicted time. What cannot be in time is dropped.
///
/// Open: models are loaded and unloaded there; here all are loaded. Its controller has no test of admission.
pub(super) struct Clockwork;

impl Rule for Clockwork {
    fn decide(&mut self, hall: &mut Hall<'_>) -> Option<Instant> {
        let services = 0..hall.services.len();
        let candidate = |service| Some((OfOne::candidate(&mut hall.floor(service))?, service));
        let ((_, size), service) = services.filter_map(candidate).min()?;
        let mut floor = hall.floor(service);
        floor.drop_hopeless(size);
        floor.take_first(size);
        None
    }
}

/// Symphony (Chen et al., "Symphony: Optimized DNN Model Serving using Deferred Batch Scheduling", arXiv 2308.07470, 2023):
/// a batch is *schedulable* from when one request more would make its first one late until it would be late itself; of
/// those that are, the one that must start first goes.
///
/// With a first request due at `d` and the largest batch `b` that is in time for it, that is from `d - P(b + 1)` to `d -
/// P(b)`, and at once where `b` is the largest of all. Open, and decided here: what cannot be answered in time even alone is
/// dropped, nothing else is; its way to spread load over a cluster has no meaning on one box.
pub(super) struct Symphony;

impl Rule for Symphony {
    fn decide(&mut self, hall: &mut Hall<'_>) -> Option<Instant> {
        let (mut next, mut wait) = (None, None::<Instant>);
        for service in 0..hall.services.len() {
            let mut floor = hall.floor(service);
            floor.drop_hopeless(1);
            let Some(due) = floor.queue.front().map(|first| first.deadline) else { continue };
            let size = floor.window_in_time();
            // One more may take longer than there ever was.
            let full = size == floor.worker.batch || Instant::ZERO + floor.time(size + 1) > due;
            let from = if full { floor.now } else { due - floor.time(size + 1) };
            if from > floor.now {
                wait = wait.into_iter().chain([from]).min();
            } else {
                let latest = (due - floor.time(size), service, size);
                next = next.into_iter().chain([latest]).min();
            }
        }
        let Some((_, service, size)) = next else { return wait };
        hall.floor(service).take_first(size);
        None
    }
}

/// EdgeServing (Cao et al., "EdgeServing: Deadline-Aware Multi-DNN Serving at the Edge", arXiv 2605.05527, 2026): of all
/// services and batch sizes the pair after which the queues are in the best state, by a *stability score* over all of them.
///
/// Its early exits are left out: a model has one here. How the score is computed we could not read, only what it says: the
/// effect of a decision on all queues, by predicted times. Decided here: each request that is still waiting when the batch
/// ends counts `exp(age / deadline)` of its service, at most e², and the smallest sum wins; of equal ones the earlier
/// deadline. Batches are in time for their first request, and what cannot be in time even alone is dropped. No admission.
pub(super) struct EdgeServing;

impl Rule for EdgeServing {
    fn decide(&mut self, hall: &mut Hall<'_>) -> Option<Instant> {
        let mut best: Option<(f64, Instant, usize, usize)> = None;
        for service in 0..hall.services.len() {
            let mut floor = hall.floor(service);
            floor.drop_hopeless(1);
            let Some(due) = floor.queue.front().map(|first| first.deadline) else { continue };
            for size in 1..=floor.window_in_time() {
                let end = hall.now + hall.floor(service).time(size);
                let score = score(hall, end, (service, size));
                if best.is_none_or(|(least, first, ..)| score < least || score == least && due < first) {
                    best = Some((score, due, service, size));
                }
            }
        }
        let (_, _, service, size) = best?;
        hall.floor(service).take_first(size);
        None
    }
}

/// Of all that waits at `end`, if so many of a service are in the batch that ends then.
fn score(hall: &Hall<'_>, end: Instant, (served, size): (usize, usize)) -> f64 {
    let of = |(s, service): (usize, &super::rival::Served)| {
        let left = service.queue.iter().skip(if s == served { size } else { 0 });
        let latency = service.latency.as_secs_f64();
        left.map(|request| (end.since(request.arrival).as_secs_f64() / latency).min(2.0).exp()).sum::<f64>()
    };
    hall.services.iter().enumerate().map(of).sum()
}

/// Fixed priority without preemption: the service with the shortest deadline that has something to run, at once, with the
/// largest batch that its first request allows; what cannot be in time even alone is dropped.
///
/// Deadlines as priorities are what the literature falls back on (Leung and Whitehead, "On the complexity of fixed-priority
/// scheduling of periodic, real-time tasks", Performance Evaluation 2(4), 1982). There is no analysis of batches.
pub(super) struct FixedPriority {
    /// The services, the shortest deadline first.
    order: Vec<usize>,
}

impl FixedPriority {
    /// Services by their numbers, with these deadlines.
    pub(super) fn new(deadlines: &[Span]) -> Self {
        let mut order: Vec<_> = (0..deadlines.len()).collect();
        order.sort_by_key(|&service| deadlines[service]);
        Self { order }
    }
}

impl Rule for FixedPriority {
    fn decide(&mut self, hall: &mut Hall<'_>) -> Option<Instant> {
        for &service in &self.order {
            Edf.decide(&mut hall.floor(service));
            if hall.is_taken() {
                break;
            }
        }
        None
    }
}
