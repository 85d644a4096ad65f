//! One way through virtual time: a policy, a clock that jumps, and workers that take the time they are given.

use std::collections::VecDeque;

use rt_core::{Alarm, Instant, MissReason, Outcome, Span, StreamState, Transition, WorkerId};
use serde::Serialize;

use crate::policy::{End, Policy, Step};

/// What comes first of all that happens at the same instant.
///
/// The promise holds in any order; the rarer two are for those who look for the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Batches end, then requests arrive, as given, and then the policy decides: requests of one instant come
    /// together, and can share a batch that a worker takes as it becomes free.
    #[default]
    Together,
    /// As before, but the policy decides after each of these by itself, as the daemon's scheduler does: what waits
    /// takes the worker that becomes free before anything new comes.
    CompletionsFirst,
    /// Requests arrive before batches end and timers ring, and the policy decides after each.
    ArrivalsFirst,
}

impl Order {
    /// Every order, the usual one first.
    pub const ALL: [Self; 3] = [Self::Together, Self::CompletionsFirst, Self::ArrivalsFirst];
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its stream: an index into the problem's, or beyond them for one of no promise.
    pub stream: usize,
    /// Its number within the stream, from 0.
    pub seq: u64,
    /// When it came.
    pub arrival: Instant,
    /// Whether the promise counts on it.
    pub mandatory: bool,
    /// How it ended: served or missed, and why.
    pub outcome: Outcome,
    /// When that was known.
    pub ended: Instant,
    /// The batch that it ran in, by its number from 0 in the order in which batches started.
    pub batch: Option<usize>,
    /// The worker that it ran on.
    pub worker: Option<WorkerId>,
    /// The variant of the model that it ran with; 0 if it did not run.
    pub variant: usize,
}

/// A batch that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// On which worker.
    pub worker: WorkerId,
    /// With which variant of the model: 0 is the base.
    pub variant: usize,
    /// With how many requests.
    pub size: usize,
    /// From when.
    pub start: Instant,
    /// Until when.
    pub finish: Instant,
}

/// Hears what happens in a run, as it happens.
pub trait Observer {
    /// What became of a request. Requests are told in the order in which they came, each once its own end and
    /// those of all before it are known.
    fn request(&mut self, request: &Request);
    /// A batch starts.
    fn batch(&mut self, batch: &Batch);
    /// Safe mode is entered, left, or given a further cause.
    fn safe_mode(&mut self, now: Instant, transition: Transition);
    /// The promise to a stream is suspended for what it broke itself, or holds again.
    fn suspension(&mut self, now: Instant, stream: usize, state: StreamState, alarm: Option<Alarm>);
}

/// Arrivals that go back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("arrival {index} at {} ns comes after one at {} ns", .at.as_nanos(), .before.as_nanos())]
pub struct Backwards {
    /// Which arrival, from 0.
    pub index: u64,
    /// Its instant.
    pub at: Instant,
    /// The instant of the one before.
    pub before: Instant,
}

/// Plays `arrivals`, instants in order with the stream of each, to `policy` until all is answered. A batch takes
/// `service(worker, size, bound)`, where `bound` is what the policy counts on.
///
/// Memory is bounded by the requests that are open at once. What a policy never decides is missed, as
/// [`MissReason::Expired`], when nothing else can happen any more.
///
/// # Errors
/// If the arrivals go back; the observer has then heard what became of those before.
pub fn drive(
    policy: &mut impl Policy,
    arrivals: impl IntoIterator<Item = (Instant, usize)>,
    order: Order,
    service: impl FnMut(WorkerId, usize, Span) -> Span,
    observer: &mut impl Observer,
) -> Result<(), Backwards> {
    let (mut walk, mut arrivals) = (Walk::new(policy), arrivals.into_iter());
    let mut next = arrivals.next();
    let mut driver = Driver { walk: &mut walk, service, observer };
    while driver.step(&mut next, &mut arrivals, order)? {}
    driver.give_up();
    Ok(())
}

/// A policy under way through virtual time: what is open, and when something happens next. A copy goes on by itself.
#[derive(Clone, Debug)]
pub struct Walk<P> {
    policy: P,
    now: Instant,
    /// The latest arrival.
    latest: Instant,
    wake: Option<Instant>,
    busy: Vec<Option<Busy>>,
    /// When the first of them finishes.
    finish: Option<Instant>,
    /// Requests in the order in which they came, from the first that is not told yet, and whether they ended.
    open: VecDeque<(Request, bool)>,
    /// Requests told.
    settled: u64,
    batches: usize,
    /// Of each stream, the number of its next request.
    sequence: Vec<u64>,
}

impl<P: Policy> Walk<P> {
    /// `policy` before anything has come to it.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self {
            busy: vec![None; policy.workers()],
            policy,
            now: Instant::ZERO,
            latest: Instant::ZERO,
            wake: None,
            finish: None,
            open: VecDeque::new(),
            settled: 0,
            batches: 0,
            sequence: Vec::new(),
        }
    }

    /// Until when it has come.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The requests that are not told yet, and how they ended if they did, in the order in which they came.
    pub fn open(&self) -> impl Iterator<Item = (&Request, bool)> {
        self.open.iter().map(|(request, ended)| (request, *ended))
    }

    /// On to the next instant at which something happens, as [`drive`] does it; `next` is the next arrival, and `arrivals` are
    /// those behind it. Whether there was one.
    ///
    /// # Errors
    /// As [`drive`].
    pub fn step(
        &mut self,
        next: &mut Option<(Instant, usize)>,
        arrivals: &mut impl Iterator<Item = (Instant, usize)>,
        order: Order,
        service: impl FnMut(WorkerId, usize, Span) -> Span,
        observer: &mut impl Observer,
    ) -> Result<bool, Backwards> {
        Driver { walk: self, service, observer }.step(next, arrivals, order)
    }
}

/// A worker at work.
#[derive(Clone, Copy, Debug)]
struct Busy {
    start: Instant,
    finish: Instant,
}

struct Driver<'a, P, S, O> {
    walk: &'a mut Walk<P>,
    service: S,
    observer: &'a mut O,
}

impl<P: Policy, S: FnMut(WorkerId, usize, Span) -> Span, O: Observer> Driver<'_, P, S, O> {
    fn step(
        &mut self,
        arrival: &mut Option<(Instant, usize)>,
        arrivals: &mut impl Iterator<Item = (Instant, usize)>,
        order: Order,
    ) -> Result<bool, Backwards> {
        let each = order != Order::Together;
        let next = earlier(self.walk.finish, self.walk.wake);
        let next = next.filter(|_| arrival.is_some() || !self.walk.open.is_empty());
        let Some(now) = earlier(next, arrival.map(|(at, _)| at)) else { return Ok(false) };
        // Arrivals that go back are told below.
        let now = now.max(self.walk.now);
        self.walk.now = now;
        if order != Order::ArrivalsFirst {
            self.complete(each);
        }
        while let Some((at, stream)) = arrival.filter(|&(at, _)| at <= now) {
            if at < self.walk.latest {
                let index = self.walk.settled + self.walk.open.len() as u64;
                return Err(Backwards { index, at, before: self.walk.latest });
            }
            self.walk.latest = at;
            self.arrive(stream);
            if each {
                self.poll();
            }
            *arrival = arrivals.next();
        }
        if order == Order::ArrivalsFirst {
            self.complete(each);
        }
        self.poll();
        Ok(true)
    }

    /// Misses what the policy never decided.
    fn give_up(&mut self) {
        // Those behind it that have ended are told with it.
        while !self.walk.open.is_empty() {
            let (token, outcome) = (self.walk.settled, Outcome::Missed(MissReason::Expired));
            self.end(End { token, mandatory: false, outcome });
        }
    }

    fn arrive(&mut self, stream: usize) {
        if stream >= self.walk.sequence.len() {
            self.walk.sequence.resize(stream + 1, 0);
        }
        let (token, seq) = (self.walk.settled + self.walk.open.len() as u64, self.walk.sequence[stream]);
        self.walk.sequence[stream] += 1;
        // The outcome is overwritten when it ends, as every request does.
        let (outcome, now) = (Outcome::Served, self.walk.now);
        let (batch, worker, variant) = (None, None, 0);
        let (arrival, ended, mandatory) = (now, now, false);
        let request = Request { stream, seq, arrival, mandatory, outcome, ended, batch, worker, variant };
        self.walk.open.push_back((request, false));
        if let Some(end) = self.walk.policy.arrive(now, stream, token) {
            self.end(end);
        }
    }

    /// Ends all batches that are due by now; the policy decides after `each`, or later.
    #[inline]
    fn complete(&mut self, each: bool) {
        if self.walk.finish.is_some_and(|finish| finish <= self.walk.now) {
            self.complete_due(each);
        }
        if each {
            self.poll();
        }
    }

    #[inline(never)]
    fn complete_due(&mut self, each: bool) {
        for worker in 0..self.walk.busy.len() {
            if let Some(Busy { start, finish }) = self.walk.busy[worker]
                && finish <= self.walk.now
            {
                self.walk.busy[worker] = None;
                self.walk.policy.complete(self.walk.now, worker, finish.since(start));
                if each {
                    self.poll();
                }
            }
        }
        self.walk.finish = self.walk.busy.iter().flatten().map(|busy| busy.finish).min();
    }

    /// Carries out all that is to be done now.
    fn poll(&mut self) {
        loop {
            match self.walk.policy.poll(self.walk.now) {
                Step::Start { worker } => self.start(worker),
                Step::End(end) => self.end(end),
                Step::SafeMode(transition) => self.observer.safe_mode(self.walk.now, transition),
                Step::Suspension { stream, state, alarm } => {
                    self.observer.suspension(self.walk.now, stream, state, alarm);
                }
                Step::Wait { until } => {
                    debug_assert!(
                        until.is_none_or(|wake| wake > self.walk.now),
                        "a wake-up that is due already"
                    );
                    self.walk.wake = until;
                    return;
                }
            }
        }
    }

    fn start(&mut self, worker: WorkerId) {
        let (mut size, variant) = (0, self.walk.policy.variant(worker));
        for token in self.walk.policy.batch(worker) {
            let request = &mut self.walk.open[(token - self.walk.settled) as usize].0;
            (request.batch, request.worker, request.variant) =
                (Some(self.walk.batches), Some(worker), variant);
            size += 1;
        }
        let start = self.walk.now;
        let finish = start + (self.service)(worker, size, self.walk.policy.bound(worker));
        self.walk.busy[worker] = Some(Busy { start, finish });
        self.walk.finish = earlier(self.walk.finish, Some(finish));
        self.walk.batches += 1;
        self.observer.batch(&Batch { worker, variant, size, start, finish });
    }

    fn end(&mut self, End { token, mandatory, outcome }: End) {
        let (request, ended) = &mut self.walk.open[(token - self.walk.settled) as usize];
        *ended = true;
        (request.mandatory, request.outcome, request.ended) = (mandatory, outcome, self.walk.now);
        while let Some((request, true)) = self.walk.open.front() {
            self.observer.request(request);
            self.walk.settled += 1;
            self.walk.open.pop_front();
        }
    }
}

/// The earlier of two instants that need not be.
#[inline]
#[must_use]
pub fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
