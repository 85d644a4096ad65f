//! What a certificate claims of a pipeline.

use planner::certificate::{PipelineClaim, Service, StagedService};
use planner::{PipelineProblem, ProblemError, certify_pipeline};
use rt_core::StreamSpec;

use super::told;
use crate::config::ServiceConfig;
use crate::plan::{PipelinePlan, ServicePlan, stage_entries, stage_sizes};
use crate::problem::{problem_of_pipeline, reserved};
use crate::profile::Profile;
use weir_engine::ModelSpec;

/// The claim about a pipeline, be it that not all can be promised: then of the batches that would carry most.
pub(super) fn claim(
    config: &ServiceConfig,
    specs: &[ModelSpec],
    profile: &Profile,
) -> anyhow::Result<PipelineClaim> {
    match ServicePlan::of_pipeline(config, specs, profile) {
        Ok(plan) => promise(&plan).unwrap_or_else(|| unreachable!("it is the plan of a pipeline")),
        Err(error) if error.is_refusal() => {
            let entries = stage_entries(config, specs, profile)?;
            let sizes = stage_sizes(config, &entries)?;
            let streams: Vec<_> = reserved(config).chain(config.example_stream()).collect();
            let open = sizes.iter().map(|sizes| (&sizes[0].profile, None));
            let problem = problem_of_pipeline(config, open, &streams)?;
            let stages = config.stages.iter().zip(config.by_stage(specs)).zip(entries);
            let stages =
                stages.map(|((stage, specs), entry)| told(&stage.runs, &specs[0], entry[0].digest()));
            Ok(of(config, &problem, stages.collect()))
        }
        Err(error) => Err(error.into()),
    }
}

/// What the plan of a pipeline promises; `None` if it is of something else.
pub(super) fn promise(plan: &ServicePlan) -> Option<anyhow::Result<PipelineClaim>> {
    let pipeline = plan.pipeline.as_ref()?;
    let streams: Vec<_> = reserved(&plan.config).chain(plan.promised_stream()).collect();
    let stages = pipeline.stages.iter().map(|stage| {
        let runs = &stage.runs;
        told(&runs.config, &runs.spec, runs.profile_sha256.clone())
    });
    let problem = problem(plan, pipeline, &streams);
    Some(problem.map(|problem| of(&plan.config, &problem, stages.collect())).map_err(Into::into))
}

/// What a pipeline has planned as an abstract problem, in nanoseconds: its stages and its reserved streams; `None` if the plan is of
/// something else.
pub fn problem_of(plan: &ServicePlan) -> Option<Result<PipelineProblem, ProblemError>> {
    let pipeline = plan.pipeline.as_ref()?;
    Some(problem(plan, pipeline, &reserved(&plan.config).collect::<Vec<_>>()))
}

fn problem(
    plan: &ServicePlan,
    pipeline: &PipelinePlan,
    streams: &[(String, StreamSpec)],
) -> Result<PipelineProblem, ProblemError> {
    let stages = pipeline.stages.iter().map(|stage| {
        let workers = stage.runs.workers();
        (&workers.profile, Some((workers.count, workers.batch)))
    });
    problem_of_pipeline(&plan.config, stages, streams)
}

fn of(config: &ServiceConfig, problem: &PipelineProblem, stages: Vec<Service>) -> PipelineClaim {
    let service = Some(StagedService { name: config.name.clone(), stages });
    PipelineClaim { service, ..certify_pipeline(problem) }
}
