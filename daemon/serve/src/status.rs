//! Beside a request's way: what STATUS tells of a service, read from what its scheduler's holders publish.

use std::sync::Arc;

use rt_core::{Alarm, StreamSpec};
use serde_json::{Map, Value, json};

use crate::cause::describe;
use crate::service::{AlarmView, Service, Standing, StreamView};
use weir_engine::ModelSpec;
use weir_plan::plan::VariantPlan;

/// The state of a service, or of who has taken over from it, as a JSON object; `docs/protocol.md` lists the fields.
pub fn of(service: &Service) -> Value {
    let service = service.latest();
    let streams = streams(service);
    let (view, standing) = (service.view(), service.view().standing());
    let plan = &service.plan;
    let variant = |(v, answered): (&VariantPlan, u64)| json!({ "model": v.spec.name, "accuracy": accuracy(&v.spec), "answered": answered });
    let variants: Vec<_> = plan.variants.iter().zip(service.answered()).map(variant).collect();
    let measured = service.rate_seen_per_s();
    let (latency, batch_sizes) = service.meters_status();
    let (late, handover) = standing.worst_delays;
    let (suspensions, suspended) = standing.suspensions;
    if service.successor().is_some() {
        // Meanwhile, so that streams may be missing.
        return of(service);
    }
    json!({
        "name": service.name(),
        "engine": plan.config.engine.to_string(),
        "simulated": plan.is_simulated(),
        "model": plan.spec.name,
        "accuracy": accuracy(&plan.spec),
        "variants": variants,
        "select": if plan.variants.len() > 1 { plan.config.select.name().into() } else { Value::Null },
        "planning": service.planning_status(),
        "shielded": standing.shielded,
        "inputs": plan.spec.inputs,
        "outputs": plan.spec.outputs,
        "deadline_ns": plan.config.deadline.as_nanos(),
        "guard_ns": plan.config.guard.as_nanos(),
        "batch": plan.workers().batch,
        "batch_time_ns": plan.workers().batch_time().as_nanos(),
        "jitter_ns": plan.config.jitter.as_nanos(),
        "constraints": plan.config.constraints.iter().map(|c| c.to_string()).collect::<Vec<_>>(),
        "promised_period_ns": plan.rate.as_ref().and_then(|r| r.spare).map(|(period, _)| period.as_nanos()),
        "certified_per_s": plan.certified_per_s(),
        "measured_per_s": measured,
        "latency_ns": latency,
        "batch_sizes": batch_sizes,
        "background": plan.config.background,
        "workers": plan.workers().count,
        "workers_alive": view.workers_alive(),
        "waiting": view.waiting(),
        "running": view.running(),
        "guard_seen_ns": late.as_nanos(),
        "handover_ns": plan.config.handover.as_nanos(),
        "handover_seen_ns": handover.as_nanos(),
        "lock_held_ns": view.longest_hold().as_nanos(),
        "safe_mode": safe_mode(&standing),
        "suspensions": { "sequence": suspensions, "streams": suspended },
        "streams": streams,
    })
}

fn safe_mode(standing: &Standing) -> Value {
    let mut told = json!({
        "state": standing.severity.to_string(),
        "state_number": standing.severity as u32,
        "cause_number": standing.cause_number(),
        "sequence": standing.sequence,
        "breaches": standing.breaches,
    });
    if let Some(alarm @ AlarmView { cause, entered, .. }) = &standing.alarm {
        told["cause"] = cause.to_string().into();
        told["entered_ns"] = entered.as_nanos().into();
        told["text"] = alarm.text().into();
    }
    told
}

/// Why a stream is suspended, as it was announced.
fn suspended(Alarm { cause, evidence: e, entered }: Alarm, stream: &str) -> Value {
    json!({
        "cause": cause.to_string(),
        "cause_number": cause as u32,
        "entered_ns": entered.as_nanos(),
        "limit": e.limit,
        "seen": e.seen,
        "window": e.window,
        "text": describe(cause, e.limit, e.seen, e.window, stream),
    })
}

/// Those that are there, by name.
fn streams(service: &Service) -> Vec<Value> {
    let copy = |(view, spec, reserved, held): (&Arc<StreamView>, &StreamSpec, bool, bool)| {
        (Arc::clone(view), spec.clone(), reserved, held)
    };
    let mut there: Vec<_> = service.registry.lock().iter().map(copy).collect();
    there.sort_by(|(one, ..), (other, ..)| one.name.cmp(&other.name));
    let told = |(view, spec, reserved, held): (Arc<StreamView>, StreamSpec, bool, bool)| {
        let fared = view.fared();
        let missed: Map<_, _> =
            fared.missed().map(|(reason, count)| (reason.to_string(), count.into())).collect();
        json!({
            "name": view.name,
            "reserved": reserved,
            "connected": held,
            "constraints": spec.constraints().as_slice().iter().map(|c| c.to_string()).collect::<Vec<_>>(),
            "arrivals": spec.arrivals().map(|a| a.bounds().iter().map(|b| b.to_string()).collect::<Vec<_>>()),
            "declared_per_s": spec.arrivals().map(|a| a.rate_per_s()),
            "arrived": fared.arrived,
            "served": fared.served,
            "missed": missed,
            "misses_left": fared.misses_left,
            "suspended": fared.suspended.map(|alarm| suspended(alarm, &view.name)),
        })
    };
    there.into_iter().map(told).collect()
}

/// `null` where it is not known.
fn accuracy(spec: &ModelSpec) -> Value {
    if spec.accuracy.is_nan() { Value::Null } else { spec.accuracy.into() }
}
