//! What goes into the scheduler and what comes out of it, as values.

use alloc::vec::Vec;

use crate::admission::Dispatch;
use crate::constraint::Constraint;
use crate::safe_mode::{SafeModeConfig, Suspension, Transition};
use crate::stalls::Stalls;
use crate::stream::{MissReason, StreamId, StreamSpec};
use crate::time::{Instant, MAX_SPAN, Span};
use crate::word::Density;
use crate::workers::Workers;

/// The most workers of one scheduler, of all kinds together.
pub const MAX_WORKERS: usize = 256;

/// The end of time.
pub(super) const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// Everything that is fixed for the life of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// The user's deadline, from arrival to answer.
    pub deadline: Span,
    /// `δ`: the part of the deadline left for dispatch that comes late. Dispatch aims at `deadline - guard`.
    pub guard: Span,
    /// The most that requests may come before their stream's declaration allows them without suspending its promise, as far
    /// as admission leaves room for it ([`crate::Newcomer::tolerant`]); none without `background`.
    pub tolerance: Span,
    /// Rare losses of time that the promise is computed with; a part of the deadline is left for them too.
    pub stalls: Option<Stalls>,
    /// Workers, kind by kind and numbered in this order; of all kinds together `1..=MAX_WORKERS`. Their
    /// profiles bound the time from [`Action::Start`] to [`crate::Scheduler::handle_completion`]. Promises are computed for
    /// batches of up to [`Workers::batch`]; where they allow it, batches are as large as profiles go.
    pub workers: Vec<Workers>,
    /// When a free worker takes a batch.
    pub dispatch: Dispatch,
    /// Whether requests that no curve bounds are served when there is time: of streams that declare nothing, or
    /// beyond what is declared. A load that only the refinement admits allows none.
    pub background: bool,
    /// Whether, of what nothing is promised for and cannot all be answered, each stream's misses are spread so that the longest row left to
    /// any stream is as short as it can be: what the backlog rules out waits for that, and is given up by its deadline. Otherwise, and
    /// without `background`, it is refused when it comes, and streams take turns. No promise asks which.
    pub spread: bool,
    /// Requests waiting at most, in `1..=65536`.
    pub queue: usize,
    /// Streams at most, in `1..=4096`.
    pub streams: usize,
    /// When safe mode ends.
    pub safe_mode: SafeModeConfig,
}

/// Why a configuration is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number outside its range.
    #[error("{field} = {value} is outside {min}..={max}")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least value allowed.
        min: u64,
        /// The largest value allowed.
        max: u64,
    },
    /// Not even a batch of one of some worker fits into the deadline beside the guard.
    #[error("deadline {deadline} is below guard {guard} and the batch time {time}")]
    Deadline {
        /// The deadline.
        deadline: Span,
        /// The guard, with what is kept back for stalls.
        guard: Span,
        /// `P(1)`.
        time: Span,
    },
}

/// A worker of the scheduler, numbered from 0.
pub type WorkerId = usize;

/// A request that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Whose it is.
    pub stream: StreamId,
    /// The caller's handle, returned untouched.
    pub token: u64,
    /// When it came: not after the instant at which the scheduler is told, and not before the stream's last one. It is due
    /// a deadline later.
    pub at: Instant,
    /// Its class, by its number among those of the service; it only says what its answer is worth.
    pub class: u8,
}

impl Arrival {
    /// A request of the first class.
    #[must_use]
    pub const fn new(stream: StreamId, token: u64, at: Instant) -> Self {
        Self { stream, token, at, class: 0 }
    }

    /// The same of another class.
    #[must_use]
    pub const fn of_class(self, class: u8) -> Self {
        Self { class, ..self }
    }
}

/// One request as the scheduler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's handle, returned untouched.
    pub token: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Its number within the stream, from 0.
    pub seq: u64,
    /// When it came.
    pub arrival: Instant,
    /// When its answer must be out: the service's deadline, or what is `wanted` if nothing is promised for it.
    pub deadline: Instant,
    /// By when its client wants the answer, not after the service's deadline: whether it is late is judged by that.
    pub wanted: Instant,
    /// Whether the promise counts on it.
    pub mandatory: bool,
    /// Its class, by its number among those of the service.
    pub class: u8,
    pub(crate) note: Note,
    /// Its place in the log of its stream's outcomes.
    pub(crate) place: u32,
}

/// What is to be known of a request beside that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    None,
    /// The promise would count on it, had it not been read too late, behind what may be a stall that constraints absorb.
    Stalled,
    /// The promise would count on it, did its stream not send too much where misses are spread: it has a share of the places.
    Entitled,
    /// It has been missed while it runs: nobody waits for it.
    Missed,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered in time.
    Served,
    /// Not answered in time, and why.
    Missed(MissReason),
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The request.
    pub request: Request,
    /// How it ended.
    pub outcome: Outcome,
    /// Misses in a row that its stream can still take; `None` without constraints or without stream.
    pub misses_left: Option<u32>,
}

/// Something to announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Safe mode was entered or left.
    SafeMode(Transition),
    /// The promise to one stream was suspended, or holds again.
    Suspension(Suspension),
    /// A stream can take one more miss, or none, before `constraint` is violated; at most once a second and stream.
    MissesLeft {
        /// The stream.
        stream: StreamId,
        /// Misses in a row that it can still take.
        left: u32,
        /// The constraint that binds.
        constraint: Constraint,
    },
}

/// What the caller must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run [`crate::Scheduler::batch`] of this worker.
    Start {
        /// The worker.
        worker: WorkerId,
    },
    /// Tell the client how its request ended.
    Resolve(Resolution),
    /// Announce this.
    Event(Event),
    /// Nothing more now; poll again at this instant, or only after the next `handle_*` if `None`.
    WakeAt(Option<Instant>),
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// Results exist for all of it, after the engine ran for this long.
    Done(Span),
    /// The engine failed after this long; there are no results.
    Failed(Span),
}

/// Why a stream cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// There are as many as there may be.
    #[error("{limit} streams are the limit")]
    Limit {
        /// The configured limit.
        limit: usize,
    },
    /// It declares no arrivals, and no background is served.
    #[error("a stream must declare its arrivals where no background is served")]
    Undeclared,
    /// It has weaker promises behind its first, which a service of shared workers, without background or whose constraints absorb
    /// stalls cannot change to.
    #[error(
        "weaker promises behind the first need workers of the service's own, background, and constraints that absorb no stalls"
    )]
    Levels,
    /// What others left behind, or batches longer than a full one, are still in its way; later they are not.
    #[error("work that its admission does not count is still in its way")]
    Wait,
}

/// Why a batch may not take longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShieldRefusal {
    /// There is no shield, or it was dropped with a stream that it did not count.
    #[error("there is no shield")]
    NoShield,
    /// The worker has not started a batch at this instant.
    #[error("worker {worker} has not just started a batch")]
    NotStarted {
        /// The worker.
        worker: WorkerId,
    },
    /// Safe mode, a lost worker or one that is overdue: the promise does not stand as it was computed.
    #[error("an assumption of the promise does not hold")]
    Unsafe,
    /// Another request might be answered too late.
    #[error("{length} is longer than the {limit} that are safe")]
    Length {
        /// The length asked for.
        length: Span,
        /// The longest length allowed.
        limit: Span,
    },
}

impl SchedulerConfig {
    /// Workers of all kinds.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.workers.iter().map(|kind| kind.count).fold(0, usize::saturating_add)
    }

    /// The kind of a worker; `None` if there is no such worker.
    #[must_use]
    pub fn worker(&self, id: WorkerId) -> Option<&Workers> {
        self.kinds().nth(id)
    }

    /// What is kept back of the deadline: the guard, and what stalls may take.
    #[must_use]
    pub fn reserve(&self) -> Span {
        self.guard + Stalls::reserve_of(self.stalls)
    }

    /// The share of a stream's requests that must be served: what its constraints ask for, and more where they absorb stalls. As
    /// many as that is where they cannot; then it was not admitted.
    pub(super) fn density_of(&self, spec: &StreamSpec) -> Density {
        let asked = spec.constraints().density();
        self.stalls.map_or(asked, |stalls| stalls.absorb(spec, self.deadline).map_or(asked, |(_, more)| more))
    }

    /// How far the requests come apart that stalls can make miss: those of one stall at most, those of more than are declared
    /// for a window at least. `None` if none are absorbed.
    pub(super) fn absorbs(&self) -> Option<(Span, Span)> {
        let stalls = self.stalls?;
        stalls.damage(self.deadline).zip(stalls.spans(self.deadline))
    }

    /// The most that requests may come early.
    pub(super) fn most_early(&self) -> Span {
        // What a stall costs is counted by the declared curves.
        if self.background && self.absorbs().is_none() { self.tolerance } else { Span::ZERO }
    }

    /// The kind of each worker.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &Workers> {
        self.workers.iter().flat_map(|kind| core::iter::repeat_n(kind, kind.count))
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let range = |field, value: u64, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::Range { field, value, min, max })
            }
        };
        for kind in &self.workers {
            range("workers", kind.count as u64, 1, MAX_WORKERS as u64)?;
            range("batch", kind.batch as u64, 1, kind.profile.max_batch() as u64)?;
        }
        range("workers", self.worker_count() as u64, 1, MAX_WORKERS as u64)?;
        range("queue", self.queue as u64, 1, 1 << 16)?;
        range("streams", self.streams as u64, 1, 4096)?;
        range("deadline", self.deadline.as_nanos(), 1, MAX_SPAN.as_nanos())?;
        for time in self.workers.iter().map(|kind| kind.profile.bound(1)) {
            let guard = self.reserve();
            if self.deadline < guard + time {
                return Err(ConfigError::Deadline { deadline: self.deadline, guard, time });
            }
        }
        Ok(())
    }
}
