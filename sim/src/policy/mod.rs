//! Policies: who decides which request runs, when and where; the daemon's scheduler and its rivals.

mod firm;
mod first;
mod logged;
mod patient;
mod proteus;
mod rival;
mod shared;
mod spread;
mod weir;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use planner::Problem;
use rt_core::pipeline::PipelineConfigError;
use rt_core::{Instant, Span, WorkerId, Workers};
use virtual_time::{Backwards, Observer, Order, drive};

pub use logged::Logged;
pub use shared::SharedKind;
pub(crate) use shared::work_per_s;
pub use virtual_time::{End, Policy, Step};
#[cfg(test)]
pub(crate) use weir::device_of;
pub(crate) use weir::on_device_by;
pub(crate) use weir::scheduled_by;
pub use weir::{WeirError, on_device, scheduled, selecting};

use firm::{Distance, StaticPattern};
use first::{Clipper, Clockwork, Edf, Fifo, Lazy, Nexus, Plain};
use patient::Patient;
use proteus::{Proteus, ProteusAimd, ProteusNexus};
use rival::{Rival, Rule};
use spread::Spread;

/// A policy by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// The daemon's scheduler: mandatory requests first, dispatch as the problem says.
    #[default]
    Weir,
    /// The same, with misses of what nothing is promised for spread and chosen late.
    WeirSpread,
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
    /// A plain server: batches of what waits, and what has waited for a fixed time is dropped.
    Plain,
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
    /// Ours: Clockwork that waits for one more request while that pays.
    Patient,
}

/// Requests that wait at most under the daemon's scheduler where many devices each have one.
const QUEUE: usize = 256;

/// A policy whose kind is not known beforehand, on one worker.
pub(crate) trait Alone {
    /// As [`Policy::arrive`].
    fn arrive(&mut self, now: Instant, token: u64) -> Option<End>;
    /// As [`Policy::complete`].
    fn complete(&mut self, now: Instant, time: Span);
    /// As [`Policy::poll`].
    fn poll(&mut self, now: Instant) -> Step;
    /// As [`Policy::batch`].
    fn running(&self) -> Vec<u64>;
    /// As [`Policy::bound`].
    fn lasts(&self) -> Span;
}

impl<P: Policy> Alone for P {
    fn arrive(&mut self, now: Instant, token: u64) -> Option<End> {
        Policy::arrive(self, now, 0, token)
    }

    fn complete(&mut self, now: Instant, time: Span) {
        Policy::complete(self, now, 0, time);
    }

    fn poll(&mut self, now: Instant) -> Step {
        Policy::poll(self, now)
    }

    fn running(&self) -> Vec<u64> {
        self.batch(0).collect()
    }

    fn lasts(&self) -> Span {
        self.bound(0)
    }
}

/// A name that is no policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy = {0}: must be one of {list}", list = PolicyKind::ALL.map(PolicyKind::name).join(", "))]
pub struct UnknownPolicy(
    /// The name.
    pub String,
);

/// Why a policy cannot play.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlayError {
    /// The scheduler cannot be built.
    #[error(transparent)]
    Weir(#[from] WeirError),
    /// No source of a pipeline could ever meet the deadline.
    #[error(transparent)]
    Pipeline(#[from] PipelineConfigError),
    /// Time goes back.
    #[error(transparent)]
    Backwards(#[from] Backwards),
}

impl PolicyKind {
    /// Every policy, the daemon's first.
    pub const ALL: [Self; 21] = [
        Self::Weir,
        Self::WeirSpread,
        Self::PerBatchSpread,
        Self::EarlyDrop,
        Self::SpreadDropMcd,
        Self::SpreadDropMcdPrinted,
        Self::SpreadDropWh,
        Self::SpreadDropWhPrinted,
        Self::Plain,
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
        Self::Patient,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::WeirSpread => "weir-spread",
            Self::PerBatchSpread => "per-batch-spread",
            Self::EarlyDrop => "early-drop",
            Self::SpreadDropMcd => "spread-drop-mcd",
            Self::SpreadDropMcdPrinted => "spread-drop-mcd-printed",
            Self::SpreadDropWh => "spread-drop-wh",
            Self::SpreadDropWhPrinted => "spread-drop-wh-printed",
            Self::Plain => "plain",
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
            Self::Patient => "patient",
        }
    }

    /// Plays `arrivals` of `streams` streams on the workers of `problem`, as [`drive`]. `queue` requests may wait
    /// under the daemon's scheduler; rivals have no such limit but their own.
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
            None => {
                let mut weir = scheduled_by(problem, queue, streams, self.spreads())?;
                drive(&mut weir, arrivals, order, service, observer)?;
            }
            Some(rule) => drive(&mut Rival::new(problem, rule), arrivals, order, service, observer)?,
        }
        Ok(())
    }

    /// The policy by itself, for one of many devices.
    ///
    /// # Errors
    /// [`PlayError`], of the daemon's scheduler.
    pub(crate) fn alone(self, problem: &Problem) -> Result<Box<dyn Alone>, PlayError> {
        Ok(match self.rule(problem) {
            None => Box::new(scheduled_by(problem, QUEUE, 1, self.spreads())?),
            Some(rule) => Box::new(Rival::new(problem, rule)),
        })
    }

    /// Whether it is the daemon's scheduler, which spreads misses or does not.
    #[must_use]
    pub const fn is_own(self) -> bool {
        matches!(self, Self::Weir | Self::WeirSpread)
    }

    /// Whether it is that with misses of what nothing is promised for spread.
    #[must_use]
    pub fn spreads(self) -> bool {
        self == Self::WeirSpread
    }

    /// The rule of a rival; `None` for the daemon's scheduler.
    fn rule(self, problem: &Problem) -> Option<Box<dyn Rule>> {
        Some(match self {
            Self::Weir | Self::WeirSpread => return None,
            Self::PerBatchSpread => Box::new(Spread::balanced()),
            Self::EarlyDrop => Box::new(Spread::first()),
            Self::SpreadDropMcd => Box::new(Spread::rows(false)),
            Self::SpreadDropMcdPrinted => Box::new(Spread::rows(true)),
            Self::SpreadDropWh => Box::new(Spread::weakly(problem, false)),
            Self::SpreadDropWhPrinted => Box::new(Spread::weakly(problem, true)),
            Self::Plain => Box::new(Plain { deadline: problem.deadline }),
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
            Self::Patient => Box::new(Patient::default()),
        })
    }
}

/// Requests that all workers serve within the deadline, in full batches.
pub(crate) fn within_deadline(problem: &Problem) -> usize {
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
