//! What a pipeline carries by its plan, and what a split of the deadline would.

use planner::certify;
use planner::choice::Split;
use rt_core::ConstraintSet;
use rt_core::pipeline::PipelineAdmission;

use super::super::ServicePlan;
use super::compute::{Question, STEPS, busy, mandatory_per_s};
use crate::problem::reserved;

/// Workers that are busy to this share are about as busy as any promise lets them be.
const FULL: f64 = 0.98;

/// What a pipeline carries by its plan: the reserved streams and, if there is room for one, that at the promised rate.
#[derive(Clone, Debug)]
pub struct Carried {
    pub admission: PipelineAdmission,
    /// The share of each stage's workers that these keep busy at most, as far as they must be served.
    pub busy: Vec<f64>,
}

impl Carried {
    /// The stage whose workers are all busy, if those of one are.
    pub fn full(&self) -> Option<usize> {
        let stages = self.busy.iter().enumerate();
        let (stage, &busy) = stages.max_by(|a, b| a.1.total_cmp(b.1))?;
        (busy >= FULL).then_some(stage)
    }
}

impl ServicePlan {
    /// What is carried by the plan of a pipeline; `None` if nothing is promised by it.
    pub fn carried(&self) -> Option<Carried> {
        let pipeline = &self.pipeline.as_ref()?.pipeline;
        let streams: Vec<_> =
            reserved(&self.config).chain(self.promised_stream()).map(|(_, spec)| spec).collect();
        let admission = pipeline.admit(&streams).ok().filter(|admission| admission.tightest.is_some())?;
        let busy = busy(&self.config, pipeline, mandatory_per_s(&streams));
        Some(Carried { admission, busy: busy.collect() })
    }

    /// The rate that a pipeline's streams could be promised if each stage had a part of the deadline for itself, by the same
    /// workers; `None` without constraints of its own or room.
    pub fn split_per_s(&self) -> Option<f64> {
        let pipeline = self.pipeline.as_ref()?;
        let sizes = pipeline.stages.iter().map(|stage| vec![stage.runs.workers().clone()]);
        let question = Question::new(&self.config, &sizes.collect::<Vec<_>>()).ok()?;
        let set = ConstraintSet::new(&self.config.constraints).ok()?;
        let density = self.rate.as_ref()?.density.as_f64();
        let keeps = |step: u64| {
            let load = question.load(&set, step).filter(|l| question.open(l) <= self.config.queue as u64);
            let choices = question.choices();
            let options = load.and_then(|load| Split::Proportional.choose(choices, &load));
            // With the same room at capacity, to be compared with what is promised.
            options.is_some_and(|(options, _)| {
                question.with_room(&choices.pipeline(&options), density, step) == Some(step)
            })
        };
        let step = Some(certify::bisect(0, STEPS + 1, keeps)).filter(|&step| step > 0)?;
        Some(1.0 / question.period(step).as_secs_f64())
    }
}
