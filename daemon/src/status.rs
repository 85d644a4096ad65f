//! Beside a request's way: what STATUS tells of a service. Only numbers are copied while its scheduler is held up.

use rt_core::{Alarm, MissReason, Scheduler, StreamId, StreamSpec};
use serde_json::{Map, Value, json};

use crate::engine::ModelSpec;
use crate::plan::VariantPlan;
use crate::service::{Service, lock};
use crate::socket::describe;

/// The state of a service, or of who has taken over from it, as a JSON object; `docs/protocol.md` lists the fields.
pub(crate) fn of(service: &Service) -> Value {
    let service = service.latest();
    let streams = streams(service);
    let safe_mode = safe_mode(service);
    let plan = &service.plan;
    let variant = |(v, answered): (&VariantPlan, u64)| json!({ "model": v.spec.name, "accuracy": accuracy(&v.spec), "answered": answered });
    let variants: Vec<_> = plan.variants.iter().zip(service.answered()).map(variant).collect();
    let measured = service.rate_seen_per_s();
    let (latency, batch_sizes) = service.meters_status();
    let (suspensions, suspended) = service.look(Scheduler::suspensions);
    let (shielded, alive, waiting, running, (late, handover)) = service.look(|scheduler| {
        let (waiting, running) = (scheduler.waiting(), scheduler.running());
        (scheduler.shield().is_some(), scheduler.workers_alive(), waiting, running, scheduler.worst_delays())
    });
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
        "shielded": shielded,
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
        "workers": plan.workers().count,
        "workers_alive": alive,
        "waiting": waiting,
        "running": running,
        "guard_seen_ns": late.as_nanos(),
        "handover_ns": plan.config.handover.as_nanos(),
        "handover_seen_ns": handover.as_nanos(),
        "safe_mode": safe_mode,
        "suspensions": { "sequence": suspensions, "streams": suspended },
        "streams": streams,
    })
}

fn safe_mode(service: &Service) -> Value {
    let (state, sequence, breaches) = service.look(|scheduler| {
        let mode = scheduler.safe_mode();
        (mode.state(), mode.sequence(), mode.breaches())
    });
    let mut told = json!({
        "state": state.severity.to_string(),
        "state_number": state.severity as u32,
        "cause_number": 0,
        "sequence": sequence,
        "breaches": breaches,
    });
    if let Some(Alarm { cause, evidence: e, entered }) = state.alarm {
        let stream = e.stream.map(|id| lock(&service.names).get(id).to_owned()).unwrap_or_default();
        told["cause"] = cause.to_string().into();
        told["cause_number"] = (cause as u32).into();
        told["entered_ns"] = entered.as_nanos().into();
        told["text"] = describe(cause, e.limit, e.seen, e.window, &stream).into();
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
    let copy = |(name, id, spec, reserved, held): (&str, StreamId, &StreamSpec, bool, bool)| {
        (name.to_owned(), id, spec.clone(), reserved, held)
    };
    let mut there: Vec<_> = lock(&service.registry).iter().map(copy).collect();
    there.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let told = |(name, id, spec, reserved, held): (String, StreamId, StreamSpec, bool, bool)| {
        // One at a time: a thousand would hold requests up.
        let ((counts, misses_left), alarm) =
            service.look(|scheduler| Some((scheduler.stream_counts(id)?, scheduler.suspension(id))))?;
        let missed: Map<_, _> = MissReason::ALL
            .iter()
            .map(|&reason| (reason.to_string(), counts.missed(reason).into()))
            .collect();
        Some(json!({
            "name": name,
            "reserved": reserved,
            "connected": held,
            "constraints": spec.constraints().as_slice().iter().map(|c| c.to_string()).collect::<Vec<_>>(),
            "arrivals": spec.arrivals().map(|a| a.bounds().iter().map(|b| b.to_string()).collect::<Vec<_>>()),
            "declared_per_s": spec.arrivals().map(|a| a.rate_per_s()),
            "arrived": counts.arrived,
            "served": counts.served,
            "missed": missed,
            "misses_left": misses_left,
            "suspended": alarm.map(|alarm| suspended(alarm, &name)),
        }))
    };
    there.into_iter().filter_map(told).collect()
}

/// `null` where it is not known.
fn accuracy(spec: &ModelSpec) -> Value {
    if spec.accuracy.is_nan() { Value::Null } else { spec.accuracy.into() }
}
