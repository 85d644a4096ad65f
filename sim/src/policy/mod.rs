//! Policies: who decides which request runs, when and where; the daemon's scheduler and its rivals.

mod firm;
mod first;
mod logged;
mod proteus;
mod rival;
mod spread;
mod weir;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use planner::Problem;
use rt_core::{Instant, Outcome, Span, Transition, WorkerId, Workers};

use crate::drive::{Backwards, Observer, Order, drive};

pub use logged::Logged;
pub use weir::{Weir, WeirError};

use firm::{Distance, StaticPattern};
use first::{Clipper, Clockwork, Edf, Fifo, Lazy, Nexus};
use proteus::{Proteus, ProteusAimd, ProteusNexus};
use rival::{Rival, Rule};
use spread::Spread;

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

    /// The time that the policy counts on for it: `P(b)`, of its variant.
    fn bound(&self, worker: WorkerId) -> Span;

    /// The variant of the model that it is run with; 0, the base, for a policy that knows no other.
    fn variant(&self, _worker: WorkerId) -> usize {
        0
    }
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// The daemon's scheduler: mandatory requests first, dispatch as the problem says.
    #[default]
    Weir,
    /// At the latest start, candidates along the balanced word: ours, without marking requests in advance.
    PerBatchSpread,
    /// The spread-drop paper's Algorithms 1 and 2: at the latest start, the oldest.
    EarlyDrop,
    /// Its Algorithm 3, corrected: fewest misses in a row.
    SpreadDropMcd,
    /// Its Algorithm 3 as printed.
    SpreadDropMcdPrinted,
    /// Its Algorithm 4, corrected: for a weakly-hard constraint.
    SpreadDropWh,
    /// Its Algorithm 4 as printed.
    SpreadDropWhPrinted,
    /// Nexus: a sliding window drops early.
    Nexus,
    /// Lazy drop: drops only what has missed its deadline; the batch is what the earliest allows.
    LazyDrop,
    /// Clipper: the batch grows by one, and shrinks by a tenth.
    Clipper,
    /// Proteus: waits for one more while the first allows.
    Proteus,
    /// Nexus as the program of the authors of Proteus has it.
    ProteusNexus,
    /// Clipper as the program of the authors of Proteus has it.
    ProteusAimd,
    /// Plain FIFO with tail drop.
    Fifo,
    /// Earliest deadline first, firm: the batch is what the earliest allows.
    Edf,
    /// Distance-based priority: the stream closest to breaking its constraint.
    Distance,
    /// Ramanathan's static pattern: mandatory requests first.
    StaticPattern,
    /// Clockwork: the largest batch that is in time.
    Clockwork,
}

/// A name that is no policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy = {0}: must be one of {list}", list = PolicyKind::ALL.map(PolicyKind::name).join(", "))]
pub struct UnknownPolicy(
    /// The name.
    pub String,
);

/// Why a policy cannot play.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PlayError {
    /// The scheduler cannot be built.
    #[error(transparent)]
    Weir(#[from] WeirError),
    /// Time goes back.
    #[error(transparent)]
    Backwards(#[from] Backwards),
}

impl PolicyKind {
    /// Every policy, the daemon's first.
    pub const ALL: [Self; 18] = [
        Self::Weir,
        Self::PerBatchSpread,
        Self::EarlyDrop,
        Self::SpreadDropMcd,
        Self::SpreadDropMcdPrinted,
        Self::SpreadDropWh,
        Self::SpreadDropWhPrinted,
        Self::Nexus,
        Self::LazyDrop,
        Self::Clipper,
        Self::Proteus,
        Self::ProteusNexus,
        Self::ProteusAimd,
        Self::Fifo,
        Self::Edf,
        Self::Distance,
        Self::StaticPattern,
        Self::Clockwork,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::PerBatchSpread => "per-batch-spread",
            Self::EarlyDrop => "early-drop",
            Self::SpreadDropMcd => "spread-drop-mcd",
            Self::SpreadDropMcdPrinted => "spread-drop-mcd-printed",
            Self::SpreadDropWh => "spread-drop-wh",
            Self::SpreadDropWhPrinted => "spread-drop-wh-printed",
            Self::Nexus => "nexus",
            Self::LazyDrop => "lazy-drop",
            Self::Clipper => "clipper",
            Self::Proteus => "proteus",
            Self::ProteusNexus => "proteus-nexus",
            Self::ProteusAimd => "proteus-aimd",
            Self::Fifo => "fifo",
            Self::Edf => "edf",
            Self::Distance => "distance",
            Self::StaticPattern => "static-pattern",
            Self::Clockwork => "clockwork",
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
            Self::PerBatchSpread => Box::new(Spread::balanced()),
            Self::EarlyDrop => Box::new(Spread::first()),
            Self::SpreadDropMcd => Box::new(Spread::rows(false)),
            Self::SpreadDropMcdPrinted => Box::new(Spread::rows(true)),
            Self::SpreadDropWh => Box::new(Spread::weakly(problem, false)),
            Self::SpreadDropWhPrinted => Box::new(Spread::weakly(problem, true)),
            Self::Nexus => Box::new(Nexus),
            Self::LazyDrop => Box::new(Lazy),
            Self::Clipper => Box::new(Clipper::default()),
            Self::Proteus => Box::new(Proteus::default()),
            Self::ProteusNexus => Box::new(ProteusNexus::new(problem)),
            Self::ProteusAimd => Box::new(ProteusAimd::new(problem)),
            Self::Fifo => Box::new(Fifo { room: within_deadline(problem) }),
            Self::Edf => Box::new(Edf),
            Self::Distance => Box::new(Distance::new(problem)),
            Self::StaticPattern => Box::new(StaticPattern::new(problem)),
            Self::Clockwork => Box::new(Clockwork),
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
