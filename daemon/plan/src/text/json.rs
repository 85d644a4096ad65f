//! A plan as JSON, for programs; times in nanoseconds.

use rt_core::sharing::Rule;
use rt_core::{BatchTime, Binding, Span, Workers};
use serde_json::{Value, json};

use super::{fused, kinds, ladder, pipeline, reserved_tolerance};
use crate::plan::{DevicePlan, ServicePlan, inputs, inputs_sha256};

/// What is promised and why, as a JSON object; times in nanoseconds.
pub fn service_json(plan: &ServicePlan) -> Value {
    if let Some(staged) = &plan.pipeline {
        return pipeline::json(plan, staged);
    }
    let workers = plan.workers();
    let mut json = json!({
        "name": plan.config.name,
        "model": plan.spec.name,
        "engine": plan.config.engines(),
        "simulated": plan.is_simulated(),
        "deadline_ns": plan.config.deadline.as_nanos(),
        "guard_ns": plan.config.guard.as_nanos(),
        "tolerance_ns": reserved_tolerance(plan).unwrap_or(plan.config.tolerance.most).as_nanos(),
        "stalls_declared": stalls_json(plan),
        "ladders": ladder::json(plan),
        "contingencies": ladder::contingencies_json(plan),
        "fallback": ladder::fallback_json(plan),
        "workers": plan.worker_count(),
        "kinds": kinds::json(plan),
        "stages": fused::json(plan),
        "batch": workers.batch,
        "batch_time_ns": workers.batch_time().as_nanos(),
        "max_batch": plan.max_batch(),
        "probability": plan.config.probability,
        "background": plan.config.background,
        "best_effort": if plan.config.spread { "spread" } else { "refuse-early" },
        "capacity_per_s": plan.capacity(),
        "headroom_ns": plan.shared.is_none().then(|| plan.headroom().as_nanos()),
        "select": if plan.variants.len() > 1 { plan.config.select.name().into() } else { Value::Null },
        "lull_ns": plan.lull().ok().filter(|_| plan.shared.is_none()).map(|lull| lull.as_nanos()),
        "select_inputs": inputs(plan),
        "select_inputs_sha256": inputs_sha256(plan),
        "measured": plan.measured().map(|(times, entry)| json!({
            "times": times,
            "stalls_seen": entry.stalls,
            "levers": plan.levers(),
            "proposal": plan.proposal().map(|proposal| json!({
                "at_most": proposal.stalls.count(),
                "in_ns": proposal.stalls.window().as_nanos(),
                "of_ns": proposal.stalls.length().as_nanos(),
                "batch": proposal.batch,
                "batch_time_ns": proposal.bound.as_nanos(),
                "promised_per_s": proposal.promised_per_s,
            })),
        })),
        "rate": rate_json(plan),
        "reserved": plan.config.reserved.iter().map(|s| &s.name).collect::<Vec<_>>(),
        "device": plan.shared.as_ref().map(|share| &share.device.config.name),
        "binding": binding_json(plan.admission.as_ref().and_then(|admission| admission.binding)),
    });
    times_json(&mut json, workers);
    json
}

/// The same as a JSON object; times in nanoseconds.
pub fn device_json(device: &DevicePlan) -> Value {
    let DevicePlan { config, services, sharing, admission, limits, untried, model_bytes } = device;
    let service = |(index, name): (usize, &String)| {
        let own = sharing.services[index];
        json!({
            "name": name,
            "batch": own.batch,
            "batch_time_ns": own.time.as_nanos(),
            "turn": (sharing.rule == Rule::Turns).then_some(own.turn),
            "start_within_ns": admission.start_within[index].as_nanos(),
        })
    };
    json!({
        "name": config.name,
        "workers": config.workers,
        "rule": match sharing.rule { Rule::Earliest => "deadline", Rule::Turns => "turns" },
        "ahead": device.config.ahead,
        "longest_ns": sharing.longest.as_nanos(),
        "overrun_margin_ns": admission.binding.map(|_| admission.overrun_margin().as_nanos()),
        "services": services.iter().enumerate().map(service).collect::<Vec<_>>(),
        "limits": limits,
        "untried": untried,
        "model_bytes": model_bytes,
    })
}

pub(super) fn stalls_json(plan: &ServicePlan) -> Value {
    let json = |stalls: rt_core::Stalls| {
        json!({
            "at_most": stalls.count(),
            "in_ns": stalls.window().as_nanos(),
            "of_ns": stalls.length().as_nanos(),
            "recovery_ns": stalls.recovery().map(Span::as_nanos),
            "otherwise": plan.otherwise,
        })
    };
    plan.config.stalls.map_or(Value::Null, json)
}

/// Adds what batches of 1, 2, … take.
pub(super) fn times_json(json: &mut Value, workers: &Workers) {
    let sizes = 1..=workers.profile.max_batch();
    let times = |of: fn(BatchTime) -> Span| -> Vec<u64> {
        sizes.clone().map(|b| of(workers.profile.time(b)).as_nanos()).collect()
    };
    json["batch_times_ns"] = times(|time| time.bound).into();
    json["likely_times_ns"] = times(|time| time.likely).into();
    json["mean_times_ns"] = times(|time| time.mean).into();
}

/// The largest rate under the constraints of its own.
pub(super) fn rate_json(plan: &ServicePlan) -> Value {
    json!(plan.rate.as_ref().map(|rate| json!({
        "constraint": rate.binding.to_string(),
        "density": [rate.density.numerator(), rate.density.denominator()],
        "n_star": rate.alone.map(|counts| counts.count),
        "upper_bound": rate.alone.map(|counts| counts.upper),
        "spread_drop_paper": rate.alone.map(|counts| counts.seed),
        "jitter_ns": plan.config.jitter.as_nanos(),
        "period_ns": rate.spare.map(|(period, _)| period.as_nanos()),
        "per_s": rate.per_second(),
        "binding": rate.spare.map(|(_, tightest)| binding_json(tightest)),
    })))
}

fn binding_json(binding: Option<Binding>) -> Value {
    binding.map_or(Value::Null, |b| {
        json!({
            "delta_ns": b.delta.as_nanos(),
            "backlog": b.backlog,
            "lhs_ns": b.lhs.as_nanos(),
            "rhs_ns": b.rhs.as_nanos(),
        })
    })
}
