//! Rivals that serve pipelines in virtual time: how they plan, what runs, what is given up.
//!
//! Loki (Ahmad, Guan and Sitaraman, HPDC 2024) as its paper and as its released program have it, InferLine's planner, a split
//! of the deadline in proportion to batch times, and plain queues.

mod accuracy;
mod central;
mod cluster;
mod follow;
mod hardware;
pub(crate) mod heard;
mod inferline;
mod loki;
mod ordered;
mod planner;
mod routes;
mod simulate;
pub(crate) mod staged;

#[cfg(test)]
mod measured;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rt_core::{Instant, Span};
use virtual_time::{Backwards, Model, PipelineObserver, drive_pipeline};

use crate::dice::Dice;
use central::{Central, Line};
pub use cluster::Cluster;
use cluster::Plan;
use follow::{Follow, Followed, Rule};
use loki::{Early, Front, Loki, Style};
use ordered::Ordered;
use planner::Planner;
use routes::Fill;
pub use simulate::simulate_pipeline;

/// A policy for pipelines by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PipelineKind {
    /// Loki as its paper has it, but for sources, which find a worker as in its program.
    Loki,
    /// Loki as its paper has it: sources find a worker by a table too.
    LokiTables,
    /// Loki as its released program has it.
    LokiProgram,
    /// Loki without rerouting: what took too long at a stage is given up.
    LokiPerTask,
    /// Loki that gives up at the last stage alone.
    LokiLastTask,
    /// Loki that gives nothing up.
    LokiNoDrop,
    /// The most accurate variants on as few workers as keep the deadline for 99 % in a trial, as InferLine plans.
    InferLine,
    /// The same models on as few workers as carry the demand seen, and on all beyond: hardware scaling alone.
    HardwareScaling,
    /// Each task by itself as Proteus places services, for the demand seen, on all workers.
    ProteusTasks,
    /// The most accurate variants; each stage has a part of the deadline, and gives up what cannot keep it.
    Split,
    /// The most accurate variants, each stage first come first served; nothing is given up.
    StageFifo,
    /// The same by the deadlines of sources.
    StageEdf,
    /// Ours: at every stage in the order of sources, which end as a whole, on the workers of Loki's plan; models as accurate as what
    /// waits allows.
    Ordered,
}

/// Why a policy cannot serve a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PipelineError {
    /// There is no plan.
    #[error("{0}")]
    Plan(String),
    /// Time goes back.
    #[error(transparent)]
    Backwards(#[from] Backwards),
}

/// A cluster with the plans that were made for it so far, which are the same for all runs.
#[derive(Debug)]
pub struct Planned {
    cluster: Cluster,
    planner: Planner,
    /// InferLine's, by demand.
    fewest: Mutex<HashMap<u64, Arc<Plan>>>,
    /// Of those that follow the demand.
    followed: Followed,
}

impl PipelineKind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Loki,
        Self::LokiTables,
        Self::LokiProgram,
        Self::LokiPerTask,
        Self::LokiLastTask,
        Self::LokiNoDrop,
        Self::InferLine,
        Self::HardwareScaling,
        Self::ProteusTasks,
        Self::Split,
        Self::StageFifo,
        Self::StageEdf,
        Self::Ordered,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loki => "loki",
            Self::LokiTables => "loki-tables",
            Self::LokiProgram => "loki-program",
            Self::LokiPerTask => "loki-per-task",
            Self::LokiLastTask => "loki-last-task",
            Self::LokiNoDrop => "loki-no-drop",
            Self::InferLine => "inferline",
            Self::HardwareScaling => "hardware-scaling",
            Self::ProteusTasks => "proteus-tasks",
            Self::Split => "split",
            Self::StageFifo => "stage-fifo",
            Self::StageEdf => "stage-edf",
            Self::Ordered => "weir-pipeline",
        }
    }

    /// What kind of Loki it is, if it is one.
    const fn loki(self) -> Option<Style> {
        let early = match self {
            Self::Loki | Self::LokiTables => Early::Reroute,
            Self::LokiProgram => Early::BeforeRun,
            Self::LokiPerTask => Early::PerTask,
            Self::LokiLastTask => Early::LastTask,
            Self::LokiNoDrop => Early::Never,
            _ => return None,
        };
        let front = if matches!(self, Self::LokiTables) { Front::Table } else { Front::KeepsUp };
        let fill = if matches!(self, Self::LokiProgram) { Fill::Ascending } else { Fill::Descending };
        Some(Style { front, fill, early })
    }

    /// Which demand its plan follows, and how requests wait, if it is none of Loki's.
    const fn follows(self) -> Option<(Rule, Line)> {
        match self {
            Self::HardwareScaling => Some((Rule::Hardware, Line::InTime)),
            Self::ProteusTasks => Some((Rule::Tasks, Line::Tasks)),
            _ => None,
        }
    }

    /// Plays `arrivals` of sources on `planned`, as [`drive_pipeline`]; it is told that `demand` sources a second come on
    /// average. `seeds` are of what sources hold and of what the policy throws dice for.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub fn play(
        self,
        planned: &Planned,
        demand: f64,
        seeds: (u64, u64),
        arrivals: impl IntoIterator<Item = (Instant, usize)>,
        service: impl FnMut(Model, usize, Span) -> Span,
        observer: &mut impl PipelineObserver,
    ) -> Result<(), PipelineError> {
        let (cluster, tree) = (&planned.cluster, &planned.cluster.tree);
        if let Some(style) = self.loki() {
            let loki = Loki::new((cluster, &planned.planner), style, demand, Dice(seeds.1));
            let mut loki = loki.map_err(PipelineError::Plan)?;
            drive_pipeline(&mut loki, tree, seeds.0, arrivals, service, observer)?;
            return loki.failed().map_or(Ok(()), |error| Err(PipelineError::Plan(error)));
        }
        if self == Self::Ordered {
            let plan = planned.planner.plan(cluster, demand).map_err(PipelineError::Plan)?;
            let mut ordered = Ordered::new(cluster, &plan).map_err(PipelineError::Plan)?;
            return Ok(drive_pipeline(&mut ordered, tree, seeds.0, arrivals, service, observer)?);
        }
        if let Some((rule, line)) = self.follows() {
            let follow = Follow::new(planned, rule, demand);
            let mut central = Central::following(cluster, follow, line).map_err(PipelineError::Plan)?;
            drive_pipeline(&mut central, tree, seeds.0, arrivals, service, observer)?;
            return central.failed().map_or(Ok(()), |error| Err(PipelineError::Plan(error)));
        }
        let line = match self {
            Self::Split => Line::Split,
            Self::StageEdf => Line::Earliest,
            _ => Line::Fifo,
        };
        let plan = if self == Self::InferLine { planned.inferline(demand) } else { planned.all_workers() };
        let mut central = Central::new(cluster, &*plan.map_err(PipelineError::Plan)?, line);
        Ok(drive_pipeline(&mut central, tree, seeds.0, arrivals, service, observer)?)
    }
}

impl Planned {
    /// No plan made yet.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, planner: Planner::default(), fewest: Mutex::default(), followed: Followed::default() }
    }

    /// The cluster.
    #[cfg(test)]
    pub(crate) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How many workers there are.
    #[must_use]
    pub const fn workers(&self) -> usize {
        self.cluster.workers
    }

    /// The most sources a second that all workers carry with the most accurate variants, in the mean and in half of the
    /// deadline: where Loki's hardware scaling ends. `None` if no batches are fast enough.
    #[must_use]
    pub fn capacity(&self) -> Option<f64> {
        Some(self.cluster.most(&self.cluster.most_accurate(), 1.0)?.0)
    }

    /// The most accurate variants on all workers.
    fn all_workers(&self) -> Result<Arc<Plan>, String> {
        let most = self.cluster.most(&self.cluster.most_accurate(), 1.0);
        let (_, plan) = most.ok_or("the most accurate variants are too slow for half of the deadline")?;
        Ok(Arc::new(plan))
    }

    /// InferLine's plan, worked out once for each demand.
    fn inferline(&self, demand: f64) -> Result<Arc<Plan>, String> {
        let mut known = self.fewest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = known.get(&demand.to_bits()) {
            return Ok(Arc::clone(plan));
        }
        let plan =
            self.cluster.inferline(demand).map_or_else(|| self.all_workers(), |plan| Ok(Arc::new(plan)))?;
        known.insert(demand.to_bits(), Arc::clone(&plan));
        Ok(plan)
    }
}
