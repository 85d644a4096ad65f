//! Policies: who decides which request runs, when and where; the daemon's scheduler and its rivals.

mod first;
mod rival;
mod weir;

use std::fmt;
use std::str::FromStr;

use planner::Problem;
use rt_core::{Instant, Outcome, Span, Transition, WorkerId, Workers};

use crate::drive::{Backwards, Observer, Order, drive};

pub use weir::{Weir, WeirError};

use rival::{Rival, Rule};

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Which, as it was named when it came.
    pub token: u64,
    /// Whether a promise counts on it.
    pub mandatory: bool,
    /// How it ended.
    pub outcome: Outcome,
}

/// What a policy does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run the batch of this worker.
    Start {
        /// The worker; it was free.
        worker: WorkerId,
    },
    /// A request has ended.
    End(End),
    /// Safe mode was entered, left, or given a further cause.
    SafeMode(Transition),
    /// Nothing now; ask again at this instant, which is still to come, or only when something happens.
    Wait {
        /// The instant.
        until: Option<Instant>,
    },
}

/// Who decides which request runs, when and where: the calling contract of [`rt_core::Scheduler`].
///
/// Told of each arrival and each end of a batch, and then asked by [`Policy::poll`] until it waits. Each request
/// ends once, at its arrival or later; one in a batch does not end before the batch does.
pub trait Policy {
    /// How many workers there are, numbered from 0.
    fn workers(&self) -> usize;

    /// A request comes. Its end, if it is refused at once.
    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End>;

    /// The batch of `worker` ends, after it ran for `time`.
    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span);

    /// What is to be done now.
    fn poll(&mut self, now: Instant) -> Step;

    /// The requests of the batch that `worker` has just started, at least one.
    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_;

    /// The time that the policy counts on for it: `P(b)`.
    fn bound(&self, worker: WorkerId) -> Span;
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// The daemon's scheduler: mandatory requests first, dispatch as the problem says.
    #[default]
    Weir,
    /// Plain FIFO with tail drop.
    Fifo,
}

/// A name that is no policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy = {0}: must be one of {list}", list = PolicyKind::ALL.map(PolicyKind::name).join(", "))]
pub struct UnknownPolicy(
    /// The name.
    pub String,
);

/// Why a policy cannot play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlayError {
    /// The scheduler cannot be built.
    #[error(transparent)]
    Weir(#[from] WeirError),
    /// Time goes back.
    #[error(transparent)]
    Backwards(#[from] Backwards),
}

impl PolicyKind {
    /// Every policy.
    pub const ALL: [Self; 2] = [Self::Weir, Self::Fifo];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Fifo => "fifo",
        }
    }

    /// Plays `arrivals` of `streams` streams on the workers of `problem`, as [`drive`]. `queue` requests may wait
    /// under [`PolicyKind::Weir`]; rivals have no such limit but their own.
    ///
    /// # Errors
    /// [`PlayError`]; rivals can play any problem.
    pub fn play(
        self,
        problem: &Problem,
        (queue, streams): (usize, usize),
        arrivals: impl IntoIterator<Item = (Instant, usize)>,
        order: Order,
        service: impl FnMut(WorkerId, usize, Span) -> Span,
        observer: &mut impl Observer,
    ) -> Result<(), PlayError> {
        match self.rule(problem) {
            None => drive(&mut Weir::new(problem, queue, streams)?, arrivals, order, service, observer)?,
            Some(rule) => drive(&mut Rival::new(problem, rule), arrivals, order, service, observer)?,
        }
        Ok(())
    }

    /// The rule of a rival; `None` for the daemon's scheduler.
    fn rule(self, problem: &Problem) -> Option<Box<dyn Rule>> {
        Some(match self {
            Self::Weir => return None,
            Self::Fifo => Box::new(first::Fifo { room: within_deadline(problem) }),
        })
    }
}

/// Requests that all workers serve within the deadline, in full batches.
fn within_deadline(problem: &Problem) -> usize {
    let rounds = |kind: &Workers| (problem.deadline.as_nanos() / kind.batch_time().as_nanos()) as usize;
    problem.workers.iter().map(|kind| kind.count * kind.batch * rounds(kind)).sum::<usize>().max(1)
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}
