//! The plan of a pipeline: its stages, each with a model, workers and batches of its own, and one promise for all of them.

mod carried;
mod compute;

use rt_core::pipeline::{Pipeline, PipelineAdmission, PipelineError, PipelineShield, StageVariants, rises};
use rt_core::{Span, Stalls, StreamSpec};

use super::ServicePlan;
use crate::config::StageConfig;
use crate::models::{Descent, Reply, Way};

pub use carried::Carried;
pub use compute::{identity, stage_entries, stage_sizes};

/// What a pipeline has that a service with one model has not. Of the [`ServicePlan`] that it belongs to, `spec` takes the first
/// stage's request and gives the pipeline's answer, and `system` is that of the first stage.
#[derive(Clone, Debug)]
pub struct PipelinePlan {
    /// Every parent before its children.
    pub stages: Vec<StagePlan>,
    /// What sources are admitted to.
    pub pipeline: Pipeline,
    /// The reserved streams together; `None` if nothing is promised to them.
    pub admission: Option<PipelineAdmission>,
    /// How the results of the stages become the answer.
    pub reply: Reply,
}

/// A stage of a pipeline.
#[derive(Clone, Debug)]
pub struct StagePlan {
    pub config: StageConfig,
    /// Its model and its workers, with the batch of the promise; promised by itself is nothing.
    pub runs: ServicePlan,
    /// What makes its requests, on each way to it; none for the first.
    pub ways: Vec<Way>,
    /// The most requests that one source becomes here.
    pub most: usize,
}

/// How many sources of `load` that must be served can come within so long.
fn most_within(load: &[StreamSpec], length: Span) -> u64 {
    let within = |&(at, _): &(Span, u64)| at <= length;
    rises(load).take_while(within).last().map_or(0, |(_, sources)| sources)
}

impl PipelinePlan {
    /// How many sources that must be served can be open at once if all of `load` is promised, and by how much batches may take longer
    /// in all then.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn room<'a>(
        &self,
        load: impl IntoIterator<Item = &'a StreamSpec>,
    ) -> Result<(u64, Span), PipelineError> {
        let load: Vec<_> = load.into_iter().cloned().collect();
        let admission = self.pipeline.admit(&load)?;
        // Each is answered within the bound, and what stalls may take.
        let within = admission.bound + Stalls::reserve_of(self.pipeline.stalls);
        Ok((most_within(&load, within), self.overrun_margin(&admission)))
    }

    /// Whether any stage has more than its base.
    pub fn has_variants(&self) -> bool {
        self.stages.iter().any(|stage| stage.runs.variants.len() > 1)
    }

    /// By how much batches may take longer in all beside what was admitted so: what the bound and stalls leave of the deadline, where
    /// no variants take that.
    #[must_use]
    pub fn overrun_margin(&self, admission: &PipelineAdmission) -> Span {
        match self.has_variants() {
            true => Span::ZERO,
            false => self.pipeline.latency().saturating_sub(admission.bound),
        }
    }

    /// What each stage may run instead of its base. A request should leave a stage within the part of the deadline that the most
    /// accurate variants take up to there.
    pub fn variants(&self) -> Vec<StageVariants> {
        let slowest = |stage: &StagePlan| {
            let (variant, batch) =
                (&stage.runs.variants[stage.runs.variants.len() - 1], stage.runs.workers().batch);
            variant.times.likely(batch.min(variant.times.max_batch()))
        };
        let parts = self.pipeline.parts(&self.stages.iter().map(slowest).collect::<Vec<_>>());
        let variants = self.stages.iter().zip(parts).map(|(stage, leave)| StageVariants {
            times: stage.runs.variants[1..].iter().map(|variant| variant.times.clone()).collect(),
            leave,
        });
        variants.collect()
    }

    /// What keeps the promises of `load` while batches take longer than those of the bases; as long as there is room, those of one
    /// more stream too. `None` if nothing is left of the deadline for that.
    pub fn shield(&self, load: &[&StreamSpec], more: Option<&StreamSpec>) -> Option<PipelineShield> {
        let workers: Vec<_> = self.stages.iter().map(|stage| stage.runs.workers().clone()).collect();
        let all = load.iter().copied();
        let both = more.and_then(|more| self.pipeline.shield(&workers, all.clone().chain([more])));
        both.or_else(|| self.pipeline.shield(&workers, all))
    }

    /// Workers of all stages together; they are numbered stage by stage.
    pub fn workers(&self) -> usize {
        self.stages.iter().map(|stage| stage.runs.workers().count).sum()
    }

    /// The stage of a worker, and its number there; of a number beyond the last, one beyond the last worker of the last stage.
    pub fn place_of(&self, worker: usize) -> (usize, usize) {
        let mut left = worker;
        for (number, stage) in self.stages.iter().enumerate() {
            let count = stage.runs.workers().count;
            if left < count || number + 1 == self.stages.len() {
                return (number, left);
            }
            left -= count;
        }
        (0, worker)
    }
}

impl StagePlan {
    /// The stage of whose result a request of this one was made, by what it was made `of`; none of the first and of a join.
    pub fn parent_of(&self, of: Descent) -> Option<usize> {
        let after = self.config.after;
        (!after.is_join() && after.has(of.stage as usize)).then_some(of.stage as usize)
    }

    /// The stages among `all` that take each result of number `stage`, by a way on which it is the last: no joins.
    pub fn children(all: &[Self], stage: usize) -> impl Iterator<Item = (usize, &Way)> {
        let way = move |child: &Self| child.ways.iter().position(|way| way.path.last() == Some(&stage));
        all.iter().enumerate().filter_map(move |(i, child)| Some((i, &child.ways[way(child)?])))
    }
}
