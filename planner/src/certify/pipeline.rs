//! Answers a problem of a pipeline: with which batches and workers, within what time a source is answered as a whole, what each
//! stage adds, how much more may come.

use rt_core::pipeline::{Pipeline, PipelineAdmission, PipelineError};
use rt_core::{Span, StreamSpec};

use super::shared::bisect;
use super::{MAX_SCALE, scale, standings};
use crate::certificate::{
    PipelineBinding, PipelineClaim, PipelineReason, SharedStreamAnswer, SplitAnswer, StageAnswer,
};
use crate::choice::{Choices, Split};
use crate::number::Number;
use crate::problem::PipelineProblem;
use crate::problem::pipeline::raw::Count;

/// The answer of the admission test to `problem`, and its limits.
///
/// What is to be chosen is chosen such that all streams may send as much faster as possible. The limit is a value that the test admits, and the next step is one that it does not; a load that it would have to look at
/// for too long counts as not admitted.
#[must_use]
pub fn certify_pipeline(problem: &PipelineProblem) -> PipelineClaim {
    let (pipeline, best) = choose(problem);
    let answer = pipeline.admit(problem.specs());
    let admitted = answer.is_ok();
    let reason = answer.as_ref().err().map(|no| told(problem, no));
    let (rule, admission) = match answer {
        Ok(admission) | Err(PipelineError::Late { admission, .. }) => (reached(&admission), Some(admission)),
        Err(PipelineError::Rate { .. }) => (PipelineReason::Rate, None),
        Err(PipelineError::Stalls { .. }) => (PipelineReason::Stalls, None),
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
        rhs: problem.number(at.delta + pipeline.latency()),
    });
    let stage = |(i, raw): (usize, &crate::problem::pipeline::raw::Stage)| {
        let leg = tightest.and_then(|at| at.path.iter().find(|leg| leg.stage == i));
        StageAnswer {
            name: raw.name.clone(),
            workers: (raw.workers == Count::Auto).then_some(pipeline.stages[i].workers),
            batch: (raw.batch == Count::Auto).then_some(pipeline.stages[i].batch),
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
        service: None,
        problem: problem.raw.clone(),
        admissible: admitted,
        rule,
        bound: admission.as_ref().map(|a| problem.number(a.bound)),
        binding,
        max_load_scale: promised
            .then(|| max_scale(problem, admitted, |streams| pipeline.admit(streams).is_ok())),
        best: (promised && !best).then_some(false),
        split: (promised && !problem.choices.is_fixed()).then(|| split(problem, &pipeline)),
        stages: problem.raw.pipeline.iter().enumerate().map(stage).collect(),
        streams: streams.collect(),
        reason,
        refutation: None,
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

/// The pipeline of a problem, with the batches and workers that let all streams send fastest; if nothing lets them send at all, what answers soonest.
pub fn chosen(problem: &PipelineProblem) -> Pipeline {
    choose(problem).0
}

/// The same, and whether it is known to be the best.
fn choose(problem: &PipelineProblem) -> (Pipeline, bool) {
    let choices = &problem.choices;
    let any = || (choices.pipeline(&vec![0; choices.stages.len()]), true);
    if choices.is_fixed() || problem.specs().all(|spec| spec.demand().is_none()) {
        return any();
    }
    // No problem has numbers that are outside their range.
    let largest = choices.largest(MOST, |thousandths| faster(problem, thousandths)).ok().flatten();
    let soonest = || faster(problem, 1).and_then(|streams| choices.least(&streams).ok().flatten());
    let chosen = largest.map(|(_, chosen)| chosen).or_else(soonest);
    // Of trees what could not be judged has never been better (`docs/guarantee.md`).
    chosen.map_or_else(any, |chosen| (chosen.pipeline, chosen.proved || problem.raw.is_tree()))
}

/// What a split of the deadline promises with as many workers.
fn split(problem: &PipelineProblem, pipeline: &Pipeline) -> SplitAnswer {
    let mut choices = Choices { workers: None, ..problem.choices.clone() };
    for (stage, chosen) in choices.stages.iter_mut().zip(&pipeline.stages) {
        stage.options.retain(|option| option.workers == chosen.workers);
    }
    let choose =
        |streams: &[StreamSpec]| Split::Proportional.choose(&choices, streams).map(|(options, _)| options);
    let specs: Vec<_> = problem.specs().cloned().collect();
    let max_load_scale = max_scale(problem, choose(&specs).is_some(), |streams| choose(streams).is_some());
    let thousandths = Some((max_load_scale.as_f64() * scale::ONE as f64).round() as u64).filter(|&n| n > 0);
    let options = thousandths.and_then(|n| faster(problem, n)).and_then(|streams| choose(&streams));
    let batches = options.map(|o| choices.pipeline(&o).stages.iter().map(|stage| stage.batch).collect());
    SplitAnswer { max_load_scale, batches: batches.unwrap_or_default() }
}

/// All streams so many thousandths times as fast.
fn faster(problem: &PipelineProblem, thousandths: u64) -> Option<Vec<StreamSpec>> {
    problem.specs().map(|spec| scale::faster(spec, thousandths)).collect()
}

/// The largest factor that is tried, in thousandths.
const MOST: u64 = MAX_SCALE * scale::ONE;

/// How many times as fast all streams may send.
fn max_scale(problem: &PipelineProblem, admitted: bool, admits: impl Fn(&[StreamSpec]) -> bool) -> Number {
    let passes = |thousandths: u64| faster(problem, thousandths).is_some_and(|streams| admits(&streams));
    let (one, most) = (scale::ONE, MOST);
    Number::thousandths(match admitted {
        true if passes(most) => most,
        true => bisect(one, most, passes),
        false if passes(1) => bisect(1, one, passes),
        false => 0,
    })
}
