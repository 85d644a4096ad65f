//! The scheduler: the one place where it is decided which request runs, when, where, or not at all.

mod account;
mod batch;
mod dispatch;
mod handover;
mod prolong;
mod select;
mod settle;
mod streams;
mod types;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::safe_mode::{Cause, Evidence, SafeMode};
use crate::select::LoadMonitor;
use crate::shield::Shield;
use crate::stream::{MissReason, Stream, StreamCounts, StreamId};
use crate::time::{Instant, Span};
use crate::word::Class;

pub use handover::HandOverError;
pub use types::{
    Action, ConfigError, Event, Outcome, Ran, Request, Resolution, SchedulerConfig, ShieldRefusal,
    StreamError, WorkerId,
};

/// The most workers of one scheduler.
pub const MAX_WORKERS: usize = 16;
/// The queue of mandatory requests.
const MANDATORY: usize = Class::Mandatory as usize;
/// Events kept between two polls; the last few places are for safe mode alone.
const MAX_EVENTS: usize = 64;
const RESERVED_EVENTS: usize = 8;
/// A stream is warned at most this often.
const WARNING_INTERVAL: Span = Span::from_millis(1_000);

#[derive(Debug)]
enum WorkerState {
    Free,
    /// Began at, must have been heard of by, and whether it was reported that it was not.
    Busy {
        started: Instant,
        due: Instant,
        reported: bool,
    },
    Lost,
}

#[derive(Debug)]
struct Worker {
    /// Its kind, as an index into the configuration.
    kind: usize,
    state: WorkerState,
    batch: Vec<Request>,
}

/// Decides which request runs, when, where, or not at all.
///
/// It serves mandatory requests first, in order, and fills batches with others (theory of `docs/guarantee.md`):
/// first with those that a stream beyond its declaration would need. It does not test admission: run [`crate::System::admit`] before
/// [`Scheduler::add_stream`].
///
/// # Calling contract
/// This is a state machine without clock or I/O. Feed it every arrival ([`Scheduler::handle_arrival`]) and
/// completion ([`Scheduler::handle_completion`]) with the present instant, which must not go back. After each
/// call, and when the last [`Action::WakeAt`] comes due, call [`Scheduler::poll`] until it returns `WakeAt` and
/// carry out what it returns. Each request ends in exactly one [`Resolution`], returned at once by
/// `handle_arrival` or later by `poll`. Between [`Action::Start`] and the next call [`Scheduler::prolong`] may grant
/// the batch more time. None of these calls allocates.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    streams: Vec<Option<Stream>>,
    next_generation: u32,
    /// What waits, class by class, each in order of deadlines.
    queues: [VecDeque<Request>; 3],
    workers: Vec<Worker>,
    resolved: VecDeque<Resolution>,
    events: heapless::Deque<Event, MAX_EVENTS>,
    safe_mode: SafeMode,
    /// What was begun or waited when an assumption was broken last.
    aftermath: settle::Past,
    /// What a newcomer's admission does not count: batches granted more than `P`, and without background what was begun
    /// for streams that were removed.
    uncounted: settle::Past,
    /// The least time in which a worker that is there answers one request.
    quickest: Option<Span>,
    /// The instant at which an idle worker should have been given a batch, if one waits for it.
    armed: Option<Instant>,
    /// How often no mandatory request was left waiting.
    idle_epoch: u64,
    /// The latest dispatch, and the longest part of a batch's time outside the engine.
    worst_delay: Span,
    worst_handover: Span,
    /// Places that streams took in turn so far.
    turns: u64,
    /// Which batches may take longer; it counts every promised stream.
    shield: Option<Shield>,
    selection: select::Selection,
    /// Batches are started for mandatory requests alone.
    quiet: bool,
    /// Counts arrivals, and how many within its window are warned of.
    rate_warning: Option<(LoadMonitor, u64)>,
}

impl Scheduler {
    /// Allocates everything that running needs.
    ///
    /// # Errors
    /// If a number is outside its range, or no request could ever meet the deadline.
    pub fn new(config: SchedulerConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let worker = |kind: usize| {
            let batch = Vec::with_capacity(config.workers[kind].batch);
            Worker { kind, state: WorkerState::Free, batch }
        };
        let kinds = 0..config.workers.len();
        let workers = kinds.flat_map(|kind| (0..config.workers[kind].count).map(move |_| kind)).map(worker);
        let workers: Vec<_> = workers.collect();
        let running: usize = config.kinds().map(|kind| kind.batch).sum();
        Ok(Self {
            streams: Vec::with_capacity(config.streams),
            next_generation: 1,
            queues: [(); 3].map(|()| VecDeque::with_capacity(config.queue)),
            workers,
            resolved: VecDeque::with_capacity(config.queue + running + 1),
            events: heapless::Deque::new(),
            safe_mode: SafeMode::new(config.safe_mode),
            aftermath: settle::Past::default(),
            uncounted: settle::Past::default(),
            quickest: config.workers.iter().map(|kind| kind.profile.bound(1)).min(),
            armed: None,
            idle_epoch: 0,
            worst_delay: Span::ZERO,
            worst_handover: Span::ZERO,
            turns: 0,
            shield: None,
            selection: select::Selection::default(),
            quiet: false,
            rate_warning: None,
            config,
        })
    }

    /// Takes in a request of `stream`. Returns its resolution if it is refused at once; `None` means that
    /// it waits and `poll` will resolve it. A request of an unknown stream is cancelled.
    pub fn handle_arrival(&mut self, now: Instant, stream: StreamId, token: u64) -> Option<Resolution> {
        self.take_in(now, stream, Some(token))
    }

    /// Counts a request of `stream` that the caller has no room for: it is refused as [`MissReason::QueueFull`].
    pub fn handle_refused(&mut self, now: Instant, stream: StreamId) -> Option<Resolution> {
        self.take_in(now, stream, None)
    }

    /// `token` is absent if the caller has no room for the request.
    fn take_in(&mut self, now: Instant, stream: StreamId, token: Option<u64>) -> Option<Resolution> {
        self.selection.arrived(now);
        let welcome = token.is_some();
        let deadline = now + self.config.deadline;
        let token = token.unwrap_or(u64::MAX);
        let mut request =
            Request { token, stream, seq: 0, arrival: now, deadline, mandatory: false, place: 0 };
        let (alive, background) = (self.quickest.is_some(), self.config.background);
        let Some(record) = self.stream_mut(stream) else {
            let outcome = Outcome::Missed(MissReason::Cancelled);
            return Some(Resolution { request, outcome, misses_left: None });
        };
        request.seq = record.counts.arrived;
        record.counts.arrived += 1;
        let declared = record.spec.arrivals().is_some();
        let (conforms, class, excess) = record.observe(now, background);
        request.mandatory = class == Class::Mandatory;
        if let Some((e, until)) = excess {
            let window = e.window.as_nanos();
            let evidence = Evidence { limit: e.allowed, seen: e.seen, window, stream: Some(stream) };
            self.raise(now, Cause::ArrivalExcess, evidence, until);
        }
        if declared {
            self.watch_rate(now);
        }
        if !alive {
            return Some(self.refuse(now, request, MissReason::WorkerLost));
        }
        if !conforms && !background {
            return Some(self.refuse(now, request, MissReason::Shed));
        }
        // In a full queue the oldest of the lowest class gives way, as long as that is none above the new one's.
        let room = self.waiting() < self.config.queue;
        let below = (class.max(Class::Wanted) as usize)..self.queues.len();
        let victim = below.rev().find(|&class| !self.queues[class].is_empty());
        let taken = welcome && (room || victim.is_some());
        let place = self.stream_mut(stream).filter(|_| taken).and_then(|s| s.ledger.open());
        let Some(place) = place else {
            return Some(self.refuse(now, request, MissReason::QueueFull));
        };
        request.place = place;
        if !room && let Some(other) = victim.and_then(|class| self.queues[class].pop_front()) {
            self.end(now, other, Outcome::Missed(MissReason::QueueFull));
        }
        self.queues[class as usize].push_back(request);
        self.arm(now);
        None
    }

    /// Takes in the end of the batch that `worker` was running. A worker that runs nothing is left alone.
    pub fn handle_completion(&mut self, now: Instant, worker: WorkerId, ran: Ran) {
        let Some(w) = self.workers.get_mut(worker) else { return };
        let WorkerState::Busy { started, due, reported } = w.state else { return };
        w.state = WorkerState::Free;
        let bound = due.since(started);
        let held = now.since(started);
        match ran {
            Ran::Failed => self.raise_worker_lost(now, 1),
            Ran::Done(time) => {
                self.worst_handover = self.worst_handover.max(held.saturating_sub(time));
                match (held > bound, time > bound) {
                    (false, _) => {}
                    (true, true) if reported => self.safe_mode.put_off(now),
                    (true, true) => self.overrun(now, bound, time),
                    // The engine kept its time; what lies around it did not.
                    (true, false) => self.raise_late(now, bound, held),
                }
            }
        }
        self.end_batch(now, worker, |request| match ran {
            Ran::Failed => Outcome::Missed(MissReason::EngineFailed),
            Ran::Done(_) if now > request.deadline => Outcome::Missed(MissReason::Late),
            Ran::Done(_) => Outcome::Served,
        });
        self.arm(now);
    }

    /// Takes in that a worker is gone; its batch is missed. With the last one, so is all that waits.
    pub fn handle_worker_lost(&mut self, now: Instant, worker: WorkerId) {
        let Some(w) = self.workers.get_mut(worker) else { return };
        w.state = WorkerState::Lost;
        self.count_workers(now);
        self.raise_worker_lost(now, 0);
        self.end_batch(now, worker, |_| Outcome::Missed(MissReason::WorkerLost));
        if self.workers.iter().all(|w| matches!(w.state, WorkerState::Lost)) {
            while let Some(request) = self.queues.iter_mut().find_map(VecDeque::pop_front) {
                self.end(now, request, Outcome::Missed(MissReason::WorkerLost));
            }
        }
    }

    /// Takes in that a lost worker is back. Safe mode is not left while one is missing.
    pub fn handle_worker_ready(&mut self, now: Instant, worker: WorkerId) {
        if let Some(w) = self.workers.get_mut(worker)
            && matches!(w.state, WorkerState::Lost)
        {
            w.state = WorkerState::Free;
            self.count_workers(now);
        }
    }

    /// The batch that `worker` runs, in order; empty if it runs none.
    #[must_use]
    pub fn batch(&self, worker: WorkerId) -> &[Request] {
        self.workers.get(worker).map_or(&[], |w| &w.batch)
    }

    /// Requests waiting.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Requests running.
    #[must_use]
    pub fn running(&self) -> usize {
        self.workers.iter().map(|w| w.batch.len()).sum()
    }

    /// Workers not lost.
    #[must_use]
    pub fn workers_alive(&self) -> usize {
        self.workers.iter().filter(|w| !matches!(w.state, WorkerState::Lost)).count()
    }

    /// Whether a worker is there and not lost.
    #[must_use]
    pub fn is_alive(&self, worker: WorkerId) -> bool {
        self.workers.get(worker).is_some_and(|w| !matches!(w.state, WorkerState::Lost))
    }

    /// Whether no mandatory request waits, and how often that has come about.
    #[must_use]
    pub fn idle_epoch(&self) -> (bool, u64) {
        (self.queues[MANDATORY].is_empty(), self.idle_epoch)
    }

    /// The state of the promise.
    #[must_use]
    pub fn safe_mode(&self) -> &SafeMode {
        &self.safe_mode
    }

    /// The daemon's own delays so far: the latest dispatch after it was due, which the guard must cover, and
    /// the longest time a batch spent outside its engine between dispatch and completion, which `P(b)` must.
    #[must_use]
    pub fn worst_delays(&self) -> (Span, Span) {
        (self.worst_delay, self.worst_handover)
    }

    /// How a stream fared: its counts, and the misses that it can still take.
    #[must_use]
    pub fn stream_counts(&self, id: StreamId) -> Option<(StreamCounts, Option<u32>)> {
        let stream = self.stream(id)?;
        Some((stream.counts, stream.left.map(|(left, _)| left)))
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }
}
