//! The plan of a pipeline: its stages, each with a model, workers and batches of its own, and one promise for all of them.

mod compute;
mod reply;

use rt_core::pipeline::{Pipeline, PipelineAdmission};
use weir_engine::adapter::Adapter;

use super::ServicePlan;
use crate::config::StageConfig;

pub use compute::Carried;
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
    /// Workers of all stages together; they are numbered stage by stage.
    pub fn workers(&self) -> usize {
        self.stages.iter().map(|stage| stage.runs.workers().count).sum()
    }
}
