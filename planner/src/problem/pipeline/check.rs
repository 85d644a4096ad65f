//! From a problem of a pipeline as written to values that can only be right, or an error that says which field is not.

use std::collections::HashMap;

use rt_core::pipeline::{MAX_FAN_OUT, MAX_STAGES, Parents, PipelineError};
use rt_core::{LatencyProfile, MAX_BATCH, MAX_WORKERS, Span, Stalls};

use super::super::ProblemError;
use super::super::check::{Check, name, number, refuse, without_levels};
use super::raw::Count;
use super::{PipelineProblem, raw};
use crate::choice::{Choices, MAX_OPTIONS, StageChoices, StageOption};
use crate::number::Number;

pub(super) fn problem(raw: raw::PipelineProblem) -> Result<PipelineProblem, ProblemError> {
    let check = Check { unit: raw.unit };
    if let Some(i) = raw.pipeline.iter().position(|stage| stage.workers == Count::Auto)
        && raw.workers.is_none()
    {
        let reason = "needs workers beside pipeline: how many all stages may have together";
        return Err(refuse(&format!("pipeline[{i}].workers"), "auto", reason));
    }
    let deadline = check.span("deadline", raw.deadline, Span::from_nanos(1))?;
    let guard = check.span("guard", raw.guard, Span::ZERO)?;
    let stalls = raw.stalls.map(|stalls| check.stalls(stalls)).transpose()?;
    if let Some(recovery) = raw.stalls.and_then(|stalls| stalls.recovery) {
        let reason = "stalls of a pipeline are kept back of its deadline: remove it";
        return Err(refuse("stalls.recovery", recovery, reason));
    }
    number("length of pipeline", raw.pipeline.len(), 1, MAX_STAGES)?;
    let spare = spare_workers(&raw)?;
    let (mut names, mut stages, mut profiles) = (HashMap::new(), Vec::<StageChoices>::new(), Vec::new());
    // What one request alone needs at least, to the end of each stage.
    let mut alone: Vec<Span> = Vec::new();
    for (i, one) in raw.pipeline.iter().enumerate() {
        let field = format!("pipeline[{i}]");
        name(&format!("{field}.name"), &one.name)?;
        let (stage, profile) = stage(&check, &field, one, (&names, spare))?;
        if names.insert(one.name.as_str(), i).is_some() {
            return Err(refuse(&format!("{field}.name"), &one.name, "is taken already"));
        }
        alone.push(stage.parents.most(&alone) + guard + profile.bound(1));
        stages.push(stage);
        profiles.push(profile);
    }
    let options: usize = stages.iter().map(|stage| stage.options.len()).sum();
    number("options of all stages, sizes of batches times numbers of workers,", options, 1, MAX_OPTIONS)?;
    let choices = Choices { deadline, guard, stalls, workers: raw.workers, stages };
    if let Err(PipelineError::Range { field, stage, value, min, max }) = choices.check() {
        let field = format!("{field} of pipeline[{stage}], of a source in all,");
        return Err(refuse(&field, value, format_args!("must be in {min}..={max}")));
    }
    let least = alone.into_iter().max().unwrap_or(Span::ZERO) + Stalls::reserve_of(stalls);
    if least > deadline {
        let least = Number::of_span(least, raw.unit);
        let words = if stalls.is_some() { " + stalls" } else { "" };
        let reason = format!(
            "leaves no time for one source: must be at least guard + P(1) of each stage on the longest path{words} = {least}"
        );
        return Err(refuse("deadline", raw.deadline, reason));
    }
    let streams = check.streams("streams", &raw.streams)?;
    without_levels("streams", &streams)?;
    Ok(PipelineProblem { choices, profiles, streams, raw })
}

/// How many workers are left beyond one for each stage whose workers are to be chosen, and those of all others.
fn spare_workers(raw: &raw::PipelineProblem) -> Result<usize, ProblemError> {
    let mut fewest = 0;
    for (i, stage) in raw.pipeline.iter().enumerate() {
        fewest += match stage.workers {
            Count::Is(workers) => {
                number(&format!("pipeline[{i}].workers"), workers, 1, MAX_WORKERS)?;
                workers
            }
            Count::Auto => 1,
        };
    }
    match raw.workers {
        Some(workers) if workers < fewest || workers > MAX_WORKERS * MAX_STAGES => {
            let reason = format!(
                "must be in {fewest}..={}, {fewest} being what the stages need",
                MAX_WORKERS * MAX_STAGES
            );
            Err(refuse("workers", workers, reason))
        }
        workers => Ok(workers.unwrap_or(fewest) - fewest),
    }
}

fn stage(
    check: &Check,
    field: &str,
    raw: &raw::Stage,
    (before, spare): (&HashMap<&str, usize>, usize),
) -> Result<(StageChoices, LatencyProfile), ProblemError> {
    let of = |name: &str| format!("{field}.{name}");
    let parents = parents(field, raw, before)?;
    let fan_out = match raw.requests {
        None => raw.fan_out,
        Some(requests) if !raw.join => {
            return Err(refuse(
                &of("requests"),
                requests,
                "only a join declares it: fan_out is for all others",
            ));
        }
        Some(requests) => {
            number(&of("requests"), requests as usize, 1, MAX_FAN_OUT as usize)?;
            requests
        }
    };
    if raw.join && raw.fan_out != 1 {
        let reason = "a join takes a source once: requests says how many it becomes at most";
        return Err(refuse(&of("fan_out"), raw.fan_out, reason));
    }
    let most = if before.is_empty() { 1 } else { MAX_FAN_OUT as usize };
    number(&of("fan_out"), raw.fan_out as usize, 1, most)?;
    let workers = match raw.workers {
        Count::Is(workers) => workers..=workers,
        Count::Auto => 1..=(1 + spare).min(MAX_WORKERS),
    };
    let batches = match raw.batch {
        Count::Is(batch) => number(&of("batch"), batch, 1, MAX_BATCH).map(|batch| batch..=batch)?,
        Count::Auto => 1..=raw.times.as_ref().map_or(1, Vec::len),
    };
    if raw.batch == Count::Auto && raw.times.is_none() {
        return Err(refuse(&of("batch"), raw.batch, "needs times, what batches of 1, 2, … take"));
    }
    let profile = check.profile(field, *batches.end(), raw.time, raw.times.as_deref())?;
    let options = StageOption::of_profile(&profile, batches, workers);
    Ok((StageChoices { parents, fan_out, options }, profile))
}

/// The stages whose results it takes, all of which stand before it.
fn parents(field: &str, raw: &raw::Stage, before: &HashMap<&str, usize>) -> Result<Parents, ProblemError> {
    let of = |name: &str| format!("{field}.{name}");
    let field_of = match (&raw.parent, &raw.parents) {
        (None, None) if before.is_empty() && raw.join => {
            return Err(refuse(&of("join"), true, "the first stage takes the sources: remove it"));
        }
        (None, None) if before.is_empty() => return Ok(Parents::NONE),
        (None, None) => return Err(refuse(&of("parent"), "(absent)", "every stage but the first has one")),
        (Some(_), Some(_)) => {
            return Err(refuse(&of("parents"), "(a list)", "stands beside parent: keep one"));
        }
        (Some(_), None) => of("parent"),
        (None, Some(_)) => of("parents"),
    };
    if raw.parent.is_none() {
        number(&format!("length of {}", of("parents")), raw.before().count(), 1, MAX_STAGES)?;
    }
    let mut found = Vec::new();
    for (i, name) in raw.before().enumerate() {
        let field = if raw.parent.is_some() { field_of.clone() } else { format!("{field_of}[{i}]") };
        if before.is_empty() {
            return Err(refuse(&field, name, "the first stage takes the sources: remove it"));
        }
        let reason = "must be the name of a stage that stands before it";
        let parent = *before.get(name).ok_or_else(|| refuse(&field, name, reason))?;
        if found.contains(&parent) {
            return Err(refuse(&field, name, "is in the list already"));
        }
        found.push(parent);
    }
    Ok(if raw.join { Parents::join(found) } else { Parents::each(found) })
}
