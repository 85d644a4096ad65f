//! Answers a problem of a pipeline: within what time a source is answered as a whole, what each stage adds, how much more may
//! come.

use rt_core::pipeline::{PipelineAdmission, PipelineError};
use rt_core::{Span, StreamSpec};

use super::shared::bisect;
use super::{MAX_SCALE, scale, standings};
use crate::certificate::{PipelineBinding, PipelineClaim, PipelineReason, SharedStreamAnswer, StageAnswer};
use crate::number::Number;
use crate::problem::PipelineProblem;

/// The answer of the admission test to `problem`, and its limits.
///
/// The limit is a value that the test admits, and the next step is one that it does not; a load that it would have to look at
/// for too long counts as not admitted.
#[must_use]
pub fn certify_pipeline(problem: &PipelineProblem) -> PipelineClaim {
    let answer = problem.pipeline.admit(problem.specs());
    let admitted = answer.is_ok();
    let reason = answer.as_ref().err().map(|no| told(problem, no));
    let (rule, admission) = match answer {
        Ok(admission) | Err(PipelineError::Late { admission, .. }) => (reached(&admission), Some(admission)),
        Err(PipelineError::Rate { .. }) => (PipelineReason::Rate, None),
        // No problem has other numbers.
        Err(PipelineError::Horizon | PipelineError::Range { .. }) => (PipelineReason::Horizon, None),
    };
    let promised = rule != PipelineReason::NothingPromised;
    let admission = admission.filter(|_| promised);
    let tightest = admission.as_ref().and_then(|a| a.tightest.as_ref());
    let binding = tightest.map(|at| PipelineBinding {
        delta: problem.number(at.delta),
        sources: at.sources,
        lhs: problem.number(at.path.iter().fold(Span::ZERO, |sum, leg| sum + leg.time)),
        rhs: problem.number(at.delta + problem.pipeline.deadline),
    });
    let stage = |(i, raw): (usize, &crate::problem::pipeline::raw::Stage)| {
        let leg = tightest.and_then(|at| at.path.iter().find(|leg| leg.stage == i));
        StageAnswer {
            name: raw.name.clone(),
            requests: leg.map(|leg| leg.requests),
            share: leg.map(|leg| problem.number(leg.time)),
            response: admission.as_ref().map(|a| problem.number(a.responses[i])),
        }
    };
    let streams = problem.raw.streams.iter().zip(problem.specs()).map(|(raw, spec)| {
        let density = spec.constraints().density();
        SharedStreamAnswer {
            name: raw.name.clone(),
            density: (density.numerator(), density.denominator()),
            constraints: raw.constraints.iter().cloned().zip(standings(spec.constraints())).collect(),
        }
    });
    PipelineClaim {
        problem: problem.raw.clone(),
        admissible: admitted,
        rule,
        bound: admission.as_ref().map(|a| problem.number(a.bound)),
        binding,
        max_load_scale: promised.then(|| max_scale(problem, admitted)),
        stages: problem.raw.pipeline.iter().enumerate().map(stage).collect(),
        streams: streams.collect(),
        reason,
    }
}

/// The theorem that reaches the bound; P2 if both do.
fn reached(admission: &PipelineAdmission) -> PipelineReason {
    let Some(at) = &admission.tightest else { return PipelineReason::NothingPromised };
    let together = at.path.iter().fold(Span::ZERO, |sum, leg| sum + leg.time);
    if together.saturating_sub(at.delta) == admission.bound {
        PipelineReason::TheoremP2
    } else {
        PipelineReason::TheoremP1
    }
}

fn told(problem: &PipelineProblem, no: &PipelineError) -> String {
    match no {
        PipelineError::Rate { stage, thousandths, workers } => {
            let name = &problem.raw.pipeline[*stage].name;
            format!("{name} needs {thousandths} thousandths of its {workers} worker(s)")
        }
        other => other.to_string(),
    }
}

/// How many times as fast all streams may send.
fn max_scale(problem: &PipelineProblem, admitted: bool) -> Number {
    let passes = |thousandths: u64| {
        let specs: Option<Vec<StreamSpec>> =
            problem.specs().map(|spec| scale::faster(spec, thousandths)).collect();
        specs.is_some_and(|specs| problem.pipeline.admit(&specs).is_ok())
    };
    let (one, most) = (scale::ONE, MAX_SCALE * scale::ONE);
    Number::thousandths(match admitted {
        true if passes(most) => most,
        true => bisect(one, most, passes),
        false if passes(1) => bisect(1, one, passes),
        false => 0,
    })
}
