//! The plan of a pipeline: its stages, each with a model, workers and batches of its own, and one promise for all of them.

mod compute;
mod reply;

use rt_core::pipeline::{Pipeline, PipelineAdmission, rises};
use rt_core::{Span, StreamSpec};
use weir_engine::adapter::Adapter;

use super::ServicePlan;
use crate::config::StageConfig;

pub use compute::{Carried, stage_entries, stage_sizes};
pub use reply::{Reply, Results};

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
    /// Makes its requests; `None` for the first.
    pub adapter: Option<Adapter>,
    /// The most requests that one source becomes here.
    pub most: usize,
}

impl PipelinePlan {
    /// Whether all of `load` can be promised, of sources of which `queue` may be open at once.
    ///
    /// # Errors
    /// What stands against it, in words.
    pub fn admit<'a>(
        &self,
        load: impl IntoIterator<Item = &'a StreamSpec>,
        queue: usize,
    ) -> Result<PipelineAdmission, String> {
        let load: Vec<_> = load.into_iter().cloned().collect();
        let admission = self.pipeline.admit(&load).map_err(|error| error.to_string())?;
        // Each is answered within the bound: so many mandatory ones are open at most.
        let within = |&(at, _): &(Span, u64)| at <= admission.bound;
        let open = rises(&load).take_while(within).last().map_or(0, |(_, sources)| sources);
        if open > queue as u64 {
            return Err(format!("up to {open} sources that must be served can be open, queue = {queue}"));
        }
        Ok(admission)
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

    /// The stages that take what `stage` gives.
    pub fn children(&self, stage: usize) -> impl Iterator<Item = (usize, &StagePlan)> {
        self.stages.iter().enumerate().filter(move |(_, child)| child.config.after == Some(stage))
    }
}
