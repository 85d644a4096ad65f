//! Beside a request's way: what STATUS tells of a service, read from what its scheduler's holders publish.

use std::sync::Arc;

use rt_core::{Alarm, ArrivalBound, StreamSpec};
use weir_client::status::{
    Fallback, Kind, Level, SafeMode, Service as Told, Stage, Stream, Suspended, Suspensions, Tensor, Variant,
};
use weir_engine::{ModelSpec, TensorSpec};
use weir_plan::plan::{KindPlan, StagePlan, VariantPlan};

use crate::service::{Service, Standing, StreamView, WorkerView};

/// The state of a service, or of who has taken over from it.
pub fn of(service: &Service) -> Told {
    let service = service.latest();
    let streams = streams(service);
    let departed = service.registry.lock().departed();
    let (view, standing) = (service.view(), service.view().standing());
    let plan = &service.plan;
    let variants = plan.variants.iter().zip(service.answered()).map(variant).collect();
    let measured_per_s = service.rate_seen_per_s();
    let (latency_ns, batch_sizes) = service.meters_status();
    let (late, handover) = standing.worst_delays;
    let (sequence, suspended) = standing.suspensions;
    if service.successor().is_some() {
        // Meanwhile, so that streams may be missing.
        return of(service);
    }
    Told {
        name: service.name().to_owned(),
        engine: plan.config.engines(),
        simulated: plan.is_simulated(),
        device: plan.shared_device().map(str::to_owned),
        model: plan.spec.name.clone(),
        accuracy: accuracy(&plan.spec),
        variants,
        kinds: kinds(service),
        stages: stages(service),
        select: (plan.variants.len() > 1).then(|| plan.config.select.name().to_owned()),
        planning: service.planning_status(),
        shielded: standing.shielded,
        ahead: standing.ahead,
        demoted: standing.demoted,
        inputs: plan.spec.request().iter().map(tensor).collect(),
        outputs: plan.spec.answer().iter().map(tensor).collect(),
        state_bytes: plan.spec.state_len() as u64,
        deadline_ns: plan.config.deadline.as_nanos(),
        guard_ns: plan.config.guard.as_nanos(),
        batch: plan.workers().batch,
        batch_time_ns: plan.workers().batch_time().as_nanos(),
        max_batch: plan.max_batch(),
        jitter_ns: plan.config.jitter.as_nanos(),
        constraints: plan.config.constraints.iter().map(ToString::to_string).collect(),
        promised_period_ns: plan.rate.as_ref().and_then(|r| r.spare).map(|(period, _)| period.as_nanos()),
        certified_per_s: plan.certified_per_s(),
        measured_per_s,
        latency_ns,
        batch_sizes,
        background: plan.config.background,
        spread: plan.config.spread,
        workers: plan.worker_count(),
        workers_alive: view.workers_alive(),
        fallback: Fallback { worker_lost: standing.fallbacks[0], longer_batches: standing.fallbacks[1] },
        waiting: view.waiting(),
        running: view.running(),
        guard_seen_ns: late.as_nanos(),
        overruns: standing.overruns,
        stalls_seen: standing.stalls,
        stall_misses: standing.stall_misses,
        tolerance_ns: standing.tolerance.as_nanos(),
        handover_ns: plan.config.handover.as_nanos(),
        handover_seen_ns: handover.as_nanos(),
        lock_held_ns: view.longest_hold().as_nanos(),
        safe_mode: safe_mode(service, &standing),
        suspensions: Suspensions { sequence, streams: suspended },
        streams,
        served: service.totals().served(),
        missed: service.totals().missed(),
        classes: service.classes_status(),
        departed,
    }
}

fn variant((variant, answered): (&VariantPlan, u64)) -> Variant {
    Variant { model: variant.spec.name.clone(), accuracy: accuracy(&variant.spec), answered }
}

/// Those of its workers, if there are several.
pub fn kinds(service: &Service) -> Vec<Kind> {
    let kind = |(kind, alive): (&KindPlan, usize)| {
        let (config, workers) = (&kind.runs.config, kind.runs.workers());
        Kind {
            name: config.kind_name(),
            engine: config.engine.to_string(),
            batch: workers.batch,
            batch_time_ns: workers.batch_time().as_nanos(),
            max_batch: workers.profile.max_batch(),
            workers: workers.count,
            workers_alive: alive,
        }
    };
    service.kinds().into_iter().map(kind).collect()
}

/// Those of a pipeline.
pub fn stages(service: &Service) -> Vec<Stage> {
    let (stages, shared) = (service.plan.stages(), service.plan.fused.is_some());
    let mut workers = service.view().workers();
    let (mut results, mut factors) = (service.results(), service.factors());
    let stage = |(stage, waiting): (&StagePlan, usize)| {
        let results = results.next().into_iter().flatten();
        let [parent_results, requests] = factors.next().unwrap_or_default();
        let variants = stage.runs.variants.iter().zip(results).map(variant).collect();
        let (config, runs) = (&stage.config, stage.runs.workers());
        let parents = || config.after.iter().map(|parent| stages[parent].config.runs.name.clone());
        let alive = match shared {
            // The device's, which run all stages.
            true => service.view().workers_alive(),
            false => workers.by_ref().take(runs.count).filter(|&does| does != WorkerView::Lost).count(),
        };
        Stage {
            name: config.runs.name.clone(),
            model: stage.runs.spec.name.clone(),
            after: parents().next().filter(|_| parents().count() == 1),
            parents: parents().collect(),
            join: config.after.is_join(),
            fan_out: config.fan_out,
            parent_results,
            requests,
            batch: runs.batch,
            batch_time_ns: runs.batch_time().as_nanos(),
            workers: runs.count,
            workers_alive: alive,
            waiting,
            variants,
        }
    };
    // Nothing waits between stages that one batch runs.
    let waiting = service.view().waiting_at_stages().chain(std::iter::repeat(0));
    stages.iter().zip(waiting).map(stage).collect()
}

fn tensor(spec: &TensorSpec) -> Tensor {
    Tensor { name: spec.name.clone(), data_type: spec.data_type.to_string(), shape: spec.shape.clone() }
}

fn safe_mode(service: &Service, standing: &Standing) -> SafeMode {
    let alarm = standing.alarm.as_ref();
    SafeMode {
        state: standing.severity.to_string(),
        state_number: standing.severity as u32,
        cause_number: standing.cause_number(),
        sequence: standing.sequence,
        breaches: standing.breaches,
        cause: alarm.map(|alarm| alarm.cause.to_string()),
        entered_ns: alarm.map(|alarm| alarm.entered.as_nanos()),
        text: alarm.map(|alarm| service.words_of(alarm)),
    }
}

/// Why a stream is suspended, as it was announced.
fn suspended(service: &Service, Alarm { cause, evidence: e, entered }: Alarm, stream: &str) -> Suspended {
    Suspended {
        cause: cause.to_string(),
        cause_number: cause as u32,
        entered_ns: entered.as_nanos(),
        limit: e.limit,
        seen: e.seen,
        window: e.window,
        text: service.told(cause, [e.limit, e.seen, e.window], stream),
    }
}

/// A promise behind a stream's first.
fn level(level: &rt_core::Level) -> Level {
    Level {
        constraints: level.constraints.as_slice().iter().map(ToString::to_string).collect(),
        arrivals: level.arrivals.bounds().iter().map(ToString::to_string).collect(),
        declared_per_s: level.arrivals.rate_per_s(),
    }
}

/// Those that are there, by name.
fn streams(service: &Service) -> Vec<Stream> {
    let copy = |(view, spec, reserved, held): (&Arc<StreamView>, &StreamSpec, bool, bool)| {
        (Arc::clone(view), spec.clone(), reserved, held)
    };
    let mut there: Vec<_> = service.registry.lock().iter().map(copy).collect();
    there.sort_by(|(one, ..), (other, ..)| one.name.cmp(&other.name));
    let told = |(view, spec, reserved, connected): (Arc<StreamView>, StreamSpec, bool, bool)| {
        let (fared, seen) = (view.fared(), view.pace.seen());
        Stream {
            name: view.name.clone(),
            reserved,
            connected,
            constraints: spec.constraints().as_slice().iter().map(ToString::to_string).collect(),
            arrivals: spec.arrivals().map(|a| a.bounds().iter().map(ToString::to_string).collect()),
            declared_per_s: spec.arrivals().map(|a| a.rate_per_s()),
            jitter_seen_ns: seen.map(|seen| seen.jitter.as_nanos()),
            burst_seen: seen.map(|seen| seen.burst),
            fitting: seen
                .and_then(|seen| ArrivalBound::periodic(seen.period, seen.jitter).ok())
                .map(|b| b.to_string()),
            arrived: fared.arrived,
            served: fared.served,
            early: fared.early,
            earliest_ns: fared.earliest.as_nanos(),
            missed: fared.missed().map(|(reason, count)| (reason.to_string(), count)).collect(),
            misses_left: fared.misses_left,
            suspended: fared.suspended.map(|alarm| suspended(service, alarm, &view.name)),
            levels: spec.levels().iter().map(level).collect(),
            level: fared.degraded.map_or(0, |(level, _)| level),
            degraded: fared.degraded.map(|(_, alarm)| suspended(service, alarm, &view.name)),
        }
    };
    there.into_iter().map(told).collect()
}

/// None where it is not known.
fn accuracy(spec: &ModelSpec) -> Option<f64> {
    (!spec.accuracy.is_nan()).then_some(spec.accuracy)
}
