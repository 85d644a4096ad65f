//! The plan of a pipeline as text: how its stages hang together, what each stage has of the deadline, and what limits the promise.

use rt_core::Span;
use rt_core::pipeline::{Leg, PipelineAdmission};
use serde_json::{Value, json};
use weir_engine::{ModelSpec, TensorSpec};
use weir_os::pipe::say;

use super::json::{rate_json, stalls_json, times_json};
use super::{declared, print_levers, print_profiled, print_standings};
use crate::config::{ServiceConfig, StageConfig};
use crate::models::{reply, run_singly};
use crate::plan::{Carried, PipelinePlan, RatePlan, ServicePlan, StagePlan, VariantPlan};

/// A pipeline whose stages have these models, line by line: what it answers, and what each stage runs on.
pub fn tree(pipeline: &ServiceConfig, specs: &[ModelSpec]) -> Vec<String> {
    let tensor = |tensor: &TensorSpec| format!("{} {}{:?}", tensor.name, tensor.data_type, tensor.shape);
    let answer: Vec<_> = reply(pipeline, specs).outputs().iter().map(tensor).collect();
    let head =
        format!("pipeline {}, answered within {}: {}", pipeline.name, pipeline.deadline, answer.join(", "));
    let stage = |((stage, variants), depth): ((&StageConfig, &[ModelSpec]), usize)| {
        let runs = &stage.runs;
        let parents = parents(pipeline, stage).collect::<Vec<_>>().join(" and ");
        let of = match stage.fan_out {
            _ if parents.is_empty() => String::new(),
            _ if stage.after.is_join() => {
                format!(", one of each request of the pipeline, once {parents} are done with it")
            }
            1 => format!(", one of each result of {parents}"),
            most => format!(", up to {most} of each result of {parents}"),
        };
        let indent = "  ".repeat(depth);
        let models: Vec<_> = variants.iter().map(|spec| spec.name.as_str()).collect();
        format!("{indent}{}: {} on {}{of}", runs.name, models.join(", "), runs.engine)
    };
    let stages = pipeline.stages.iter().zip(pipeline.by_stage(specs)).zip(pipeline.depths()).map(stage);
    [head].into_iter().chain(stages).collect()
}

/// The names of the stages that a stage comes after.
fn parents<'a>(pipeline: &'a ServiceConfig, stage: &StageConfig) -> impl Iterator<Item = &'a str> {
    stage.after.iter().map(|parent| pipeline.stages[parent].runs.name.as_str())
}

/// Prints the plan of a pipeline.
pub(super) fn print(plan: &ServicePlan, pipeline: &PipelinePlan) {
    let (config, carried) = (&plan.config, plan.carried());
    say!(
        "{}: a pipeline of {} stage(s), {} worker(s)",
        config.name,
        pipeline.stages.len(),
        pipeline.workers()
    );
    say!(
        "  deadline {} for a request and all that becomes of it; dispatch may be late by δ {} at each stage",
        config.deadline,
        config.guard
    );
    if let Some(stalls) = &config.stalls {
        say!("  of it {} are kept for stalls: {}", stalls.reserve(), declared(stalls));
    }
    for (i, (stage, depth)) in pipeline.stages.iter().zip(config.depths()).enumerate() {
        print_stage(stage, (depth, i), config.deadline, carried.as_ref());
    }
    match &plan.rate {
        Some(rate) => print_rate(plan, rate),
        None => say!("  no constraints of its own: streams bring theirs, or get best effort"),
    }
    if let Some(carried) = &carried {
        print_latest(plan, pipeline, carried);
    }
    let reserved: Vec<_> = config.reserved.iter().map(|s| s.name.as_str()).collect();
    match (reserved.is_empty(), &pipeline.admission) {
        (true, _) => {}
        (false, None) => say!("  reserved: {} (best effort)", reserved.join(", ")),
        (false, Some(admission)) => {
            say!("  reserved: {}; answered as a whole within {}", reserved.join(", "), admission.bound);
            if !pipeline.has_variants() {
                let margin = pipeline.overrun_margin(admission);
                say!("    so batches of all stages may run over by {margin} in all and make none late");
            }
        }
    }
}

fn print_stage(
    stage: &StagePlan,
    (depth, number): (usize, usize),
    deadline: Span,
    carried: Option<&Carried>,
) {
    let (runs, indent) = (&stage.runs, "  ".repeat(depth));
    let (config, workers) = (&runs.config, runs.workers());
    let simulated = if runs.is_simulated() { " SIMULATED" } else { "" };
    let becomes = match stage.config.fan_out {
        _ if number == 0 => String::new(),
        _ if stage.config.after.is_join() => ", each request of the pipeline becomes one".to_owned(),
        1 => ", each result becomes a request".to_owned(),
        most => format!(", each result becomes up to {most} requests, {} on average", stage.config.mean),
    };
    let answers = if stage.config.answers { "; in the answer" } else { "" };
    say!("{indent}{}: {} on {}{simulated}{becomes}{answers}", config.name, runs.spec.name, config.engine);
    say!(
        "{indent}  {} worker(s), batches of B = {} in P = {}: {:.1} requests/s, {:.1} of the pipeline",
        workers.count,
        workers.batch,
        workers.batch_time(),
        runs.capacity(),
        runs.capacity() / stage.most as f64
    );
    if let Some(carried) = carried {
        let busy = format!("busy to {:.1} % at most", 100.0 * carried.busy[number]);
        let response = carried.admission.responses[number];
        let share = 100.0 * response.as_secs_f64() / deadline.as_secs_f64();
        say!("{indent}  {busy}; by itself it adds up to {response}, {share:.0} % of the deadline");
    }
    if runs.variants.len() > 1 {
        say!("{indent}  variants, of which the most accurate runs that comes in nobody's way:");
        for VariantPlan { spec, times, .. } in &runs.variants {
            let batch = workers.batch.min(times.max_batch());
            let (accuracy, full) = (100.0 * spec.accuracy, times.bound(batch));
            say!("{indent}    {:<16} {accuracy:>5.1}% right, P({batch}) = {full}", spec.name);
        }
    }
    run_singly(config, runs.variants.iter().map(|variant| &variant.spec))
        .into_iter()
        .flatten()
        .for_each(|line| say!("{indent}  {line}"));
    print_profiled(runs, &indent);
    print_levers(runs, &indent);
}

fn print_rate(plan: &ServicePlan, rate: &RatePlan) {
    print_standings(plan, rate);
    let beside = if plan.config.reserved.is_empty() { "" } else { " beside the reserved ones" };
    let Some(per_second) = rate.per_second() else {
        say!("    one stream{beside}: no room");
        return;
    };
    say!("    one stream{beside}, up to {} late: {per_second:.1} requests/s", plan.config.jitter);
    match plan.split_per_s() {
        Some(split) => say!(
            "    with the deadline split among the stages by their shortest batches: {split:.1} requests/s, {:.2} times less",
            per_second / split
        ),
        None => say!("    with the deadline split among the stages by their shortest batches: none"),
    }
}

/// Where a request is answered latest, and what keeps more from being promised.
fn print_latest(plan: &ServicePlan, pipeline: &PipelinePlan, carried: &Carried) {
    let PipelineAdmission { bound, tightest, .. } = &carried.admission;
    let with = if plan.promised_stream().is_some() { ", with the promised stream" } else { "" };
    say!("    each that must be served is answered as a whole within {bound}{with}");
    if let Some(at) = tightest {
        let name = |leg: &Leg| pipeline.stages[leg.stage].runs.config.name.as_str();
        let share = |leg: &Leg| 100.0 * leg.time.as_secs_f64() / (at.delta + *bound).as_secs_f64();
        let leg =
            |leg: &Leg| format!("{} for {} at {} ({:.0} %)", leg.time, leg.requests, name(leg), share(leg));
        let path: Vec<_> = at.path.iter().map(leg).collect();
        say!("      latest {} behind the first of {}: {}", at.delta, at.sources, path.join(", "));
    }
    say!("      what limits it: {}", limit(plan, pipeline, carried));
}

/// What keeps more from being promised.
fn limit(plan: &ServicePlan, pipeline: &PipelinePlan, carried: &Carried) -> String {
    if plan.rate.as_ref().is_some_and(|rate| rate.queue_limits) {
        return format!("queue = {}; stages and deadline allow more", plan.config.queue);
    }
    match carried.full() {
        Some(stage) => format!("the workers of {}", pipeline.stages[stage].runs.config.name),
        None => "the deadline".to_owned(),
    }
}

/// The plan of a pipeline as a JSON object; times in nanoseconds.
pub(super) fn json(plan: &ServicePlan, pipeline: &PipelinePlan) -> Value {
    let (config, carried) = (&plan.config, plan.carried());
    let tightest = carried.as_ref().and_then(|carried| carried.admission.tightest.as_ref());
    let stage = |(i, stage): (usize, &StagePlan)| {
        let (runs, workers) = (&stage.runs, stage.runs.workers());
        let leg = tightest.and_then(|at| at.path.iter().find(|leg| leg.stage == i));
        let mut json = json!({
            "name": runs.config.name,
            "after": parents(config, &stage.config).next().filter(|_| stage.config.after.iter().count() == 1),
            "parents": parents(config, &stage.config).collect::<Vec<_>>(),
            "join": stage.config.after.is_join(),
            "fan_out": stage.config.fan_out,
            "mean": stage.config.mean,
            "most": stage.most,
            "answers": stage.config.answers,
            "model": runs.spec.name,
            "variants": runs.variants.iter().map(|variant| &variant.spec.name).collect::<Vec<_>>(),
            "engine": runs.config.engine.to_string(),
            "simulated": runs.is_simulated(),
            "workers": workers.count,
            "batch": workers.batch,
            "batch_time_ns": workers.batch_time().as_nanos(),
            "max_batch": runs.max_batch(),
            "capacity_per_s": runs.capacity(),
            "requests": leg.map(|leg| leg.requests),
            "share_ns": leg.map(|leg| leg.time.as_nanos()),
            "response_ns": carried.as_ref().map(|carried| carried.admission.responses[i].as_nanos()),
            "busy": carried.as_ref().map(|carried| carried.busy[i]),
        });
        times_json(&mut json, workers);
        json
    };
    let ns = |span: Span| span.as_nanos();
    json!({
        "name": config.name,
        "pipeline": pipeline.stages.iter().enumerate().map(stage).collect::<Vec<_>>(),
        "deadline_ns": ns(config.deadline),
        "guard_ns": ns(config.guard),
        "tolerance_ns": 0,
        "stalls_declared": stalls_json(plan),
        "workers": pipeline.workers(),
        "probability": config.probability,
        "background": config.background,
        "capacity_per_s": plan.capacity(),
        "bound_ns": carried.as_ref().map(|carried| ns(carried.admission.bound)),
        "latest": tightest.map(|at| json!({ "delta_ns": ns(at.delta), "requests": at.sources })),
        "limit": carried.as_ref().map(|carried| limit(plan, pipeline, carried)),
        "rate": rate_json(plan),
        "split_per_s": plan.split_per_s(),
        "reserved": config.reserved.iter().map(|s| &s.name).collect::<Vec<_>>(),
        "reserved_bound_ns": pipeline.admission.as_ref().map(|admission| ns(admission.bound)),
        "overrun_margin_ns": pipeline.admission.as_ref().map(|admission| ns(pipeline.overrun_margin(admission))),
        "device": Value::Null,
    })
}
