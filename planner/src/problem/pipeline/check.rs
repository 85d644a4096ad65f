//! From a problem of a pipeline as written to values that can only be right, or an error that says which field is not.

use std::collections::HashMap;

use rt_core::pipeline::{MAX_FAN_OUT, MAX_STAGES, Pipeline, PipelineError, Stage};
use rt_core::{LatencyProfile, MAX_BATCH, MAX_WORKERS, Span};

use super::super::ProblemError;
use super::super::check::{Check, name, number, refuse};
use super::{PipelineProblem, raw};
use crate::number::Number;

pub(super) fn problem(raw: raw::PipelineProblem) -> Result<PipelineProblem, ProblemError> {
    let check = Check { unit: raw.unit };
    let deadline = check.span("deadline", raw.deadline, Span::from_nanos(1))?;
    let guard = check.span("guard", raw.guard, Span::ZERO)?;
    number("length of pipeline", raw.pipeline.len(), 1, MAX_STAGES)?;
    let (mut names, mut stages, mut profiles) = (HashMap::new(), Vec::<Stage>::new(), Vec::new());
    // What one request alone needs at least, to the end of each stage.
    let mut alone: Vec<Span> = Vec::new();
    for (i, one) in raw.pipeline.iter().enumerate() {
        let field = format!("pipeline[{i}]");
        name(&format!("{field}.name"), &one.name)?;
        let (stage, profile) = stage(&check, &field, one, &names)?;
        if names.insert(one.name.as_str(), i).is_some() {
            return Err(refuse(&format!("{field}.name"), &one.name, "is taken already"));
        }
        let above = stage.parent.map_or(Span::ZERO, |parent: usize| alone[parent]);
        alone.push(above + guard + profile.bound(1));
        stages.push(stage);
        profiles.push(profile);
    }
    let pipeline = Pipeline { deadline, guard, stages };
    if let Err(PipelineError::Range { field, stage, value, min, max }) = pipeline.descendants() {
        let field = format!("{field} of pipeline[{stage}], of a source in all,");
        return Err(refuse(&field, value, format_args!("must be in {min}..={max}")));
    }
    let least = alone.into_iter().max().unwrap_or(Span::ZERO);
    if least > deadline {
        let least = Number::of_span(least, raw.unit);
        let reason = format!(
            "leaves no time for one source: must be at least guard + P(1) of each stage on the longest path = {least}"
        );
        return Err(refuse("deadline", raw.deadline, reason));
    }
    let streams = check.streams("streams", &raw.streams)?;
    Ok(PipelineProblem { pipeline, profiles, streams, raw })
}

fn stage(
    check: &Check,
    field: &str,
    raw: &raw::Stage,
    before: &HashMap<&str, usize>,
) -> Result<(Stage, LatencyProfile), ProblemError> {
    let of = |name: &str| format!("{field}.{name}");
    let parent = match raw.parent.as_deref() {
        None if before.is_empty() => None,
        None => return Err(refuse(&of("parent"), "(absent)", "every stage but the first has one")),
        Some(parent) if before.is_empty() => {
            return Err(refuse(&of("parent"), parent, "the first stage takes the sources: remove it"));
        }
        Some(parent) => {
            let reason = "must be the name of a stage that stands before it";
            Some(*before.get(parent).ok_or_else(|| refuse(&of("parent"), parent, reason))?)
        }
    };
    let most = if parent.is_none() { 1 } else { MAX_FAN_OUT as usize };
    number(&of("fan_out"), raw.fan_out as usize, 1, most)?;
    number(&of("workers"), raw.workers, 1, MAX_WORKERS)?;
    let batch = number(&of("batch"), raw.batch, 1, MAX_BATCH)?;
    let profile = check.profile(field, batch, raw.time, raw.times.as_deref())?;
    let time = profile.bound(batch);
    Ok((Stage { parent, fan_out: raw.fan_out, workers: raw.workers, batch, time }, profile))
}
