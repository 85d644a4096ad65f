//! The daemon's scheduler as a policy.

use rt_core::{
    Action, Arrival, Event, Instant, Ran, Resolution, Scheduler, Span, StreamId, Suspension, WorkerId,
};

use crate::policy::{End, Policy, Step};

/// A scheduler and its streams. Every batch is run as it says, and none fails.
#[derive(Clone, Debug)]
pub struct Scheduled {
    scheduler: Scheduler,
    streams: Vec<StreamId>,
    /// The class of each stream's requests, and within what time their answers are wanted; the first class, and the deadline,
    /// of those that are not listed.
    by_stream: Vec<(u8, Span)>,
    workers: usize,
    /// Of each request in order its class, and within what time its answer is wanted; none where they are all alike.
    classes: Vec<(u8, Span)>,
}

impl Scheduled {
    /// `scheduler`, to which nothing has come yet, with its `streams` in the order in which arrivals name them.
    #[must_use]
    pub fn new(scheduler: Scheduler, streams: Vec<StreamId>) -> Self {
        let workers = scheduler.config().worker_count();
        let (by_stream, classes) = (Vec::new(), Vec::new());
        Self { scheduler, streams, by_stream, workers, classes }
    }

    /// The same with requests of one class in each stream, in the order of these, whose answers are wanted within such a time.
    #[must_use]
    pub fn of_class_by_stream(self, by_stream: Vec<(u8, Span)>) -> Self {
        Self { by_stream, ..self }
    }

    /// The same for requests of classes: of each that comes, in order, the number of its class and within what time its answer is
    /// wanted.
    #[must_use]
    pub fn of_classes(self, classes: Vec<(u8, Span)>) -> Self {
        Self { classes, ..self }
    }
}

impl Policy for Scheduled {
    fn workers(&self) -> usize {
        self.workers
    }

    #[inline]
    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        let arrival = Arrival::new(self.streams[stream], token, now);
        let refused = match self.classes.get(token as usize).or_else(|| self.by_stream.get(stream)) {
            None => self.scheduler.handle_arrival(now, arrival),
            Some(&(class, within)) => {
                self.scheduler.handle_wanted(now, arrival.of_class(class), (now, within), true)
            }
        };
        refused.map(end)
    }

    #[inline]
    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        self.scheduler.handle_completion(now, worker, Ran::Done(time));
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Step {
        loop {
            return match self.scheduler.poll(now) {
                Action::Start { worker } => Step::Start { worker },
                Action::Resolve(resolution) => Step::End(end(resolution)),
                Action::Event(Event::SafeMode(transition)) => Step::SafeMode(transition),
                Action::Event(Event::Suspension(Suspension { stream, state, alarm, .. })) => {
                    match self.streams.iter().position(|&id| id == stream) {
                        Some(stream) => Step::Suspension { stream, state, alarm },
                        None => continue,
                    }
                }
                Action::Event(Event::MissesLeft { .. }) => continue,
                Action::WakeAt(until) => Step::Wait { until },
            };
        }
    }

    #[inline]
    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.scheduler.batch(worker).iter().map(|request| request.token)
    }

    #[inline]
    fn bound(&self, worker: WorkerId) -> Span {
        let (variant, size) = (self.variant(worker), self.scheduler.batch(worker).len());
        let selected = self.scheduler.selector().and_then(|selector| selector.time(variant, size));
        let base = || self.scheduler.config().worker(worker).map(|kind| kind.profile.bound(size));
        selected.or_else(base).unwrap_or(Span::ZERO)
    }

    #[inline]
    fn variant(&self, worker: WorkerId) -> usize {
        self.scheduler.variant(worker)
    }
}

pub(crate) fn end(Resolution { request, outcome, .. }: Resolution) -> End {
    End { token: request.token, mandatory: request.mandatory, outcome }
}
