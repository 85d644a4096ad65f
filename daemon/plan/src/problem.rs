//! A service, a pipeline, or the services of a device, as an abstract problem, in nanoseconds.

use planner::problem::{pipeline, raw, shared};
use planner::{Number, PipelineProblem, Problem, ProblemError, SharedProblem};
use rt_core::sharing::{Rule, Sharing};
use rt_core::{ArrivalBound, Dispatch, LatencyProfile, Span, Stalls, StreamSpec, Workers};

use crate::config::{DeviceConfig, ServiceConfig, StageConfig};

/// The services of a device on their workers as an abstract problem, in nanoseconds, with their reserved streams; by the rule and
/// with the turns that were `chosen`, or what the configuration leaves of them to be chosen.
///
/// # Errors
/// If a declaration has no form as a problem.
pub fn problem_of_device<'a>(
    device: &DeviceConfig,
    chosen: Option<&Sharing>,
    services: impl Iterator<Item = (&'a ServiceConfig, &'a Workers)>,
) -> Result<SharedProblem, ProblemError> {
    let number = |span: Span| Number::whole(span.as_nanos());
    let rule = chosen.map_or(device.rule, |sharing| Some(sharing.rule));
    let turns = chosen.filter(|_| rule == Some(Rule::Turns)).map(|sharing| &sharing.services);
    let turn = |s: usize, config: &ServiceConfig| match turns {
        Some(services) => services.get(s).map(|service| service.turn),
        None => config.share.and_then(|share| share.turn),
    };
    let service = |(s, (config, workers)): (usize, (&ServiceConfig, &Workers))| shared::raw::Service {
        name: config.name.clone(),
        deadline: number(config.deadline),
        guard: number(config.guard),
        batch: workers.batch,
        time: None,
        times: Some((1..=workers.profile.max_batch()).map(|b| number(workers.profile.bound(b))).collect()),
        turn: turn(s, config),
        streams: reserved(config).map(|(name, spec)| stream(&name, &spec)).collect(),
    };
    SharedProblem::from_raw(shared::raw::SharedProblem {
        unit: raw::Unit::Ns,
        background: true,
        stalls: device.stalls.map(stalls),
        workers: shared::raw::Workers { count: device.workers },
        rule: match rule {
            None => "auto",
            Some(Rule::Earliest) => "edf",
            Some(Rule::Turns) => "turns",
        }
        .to_owned(),
        services: services.enumerate().map(service).collect(),
    })
}

/// What batches of a stage take, and its workers and batch, if these are chosen already.
type Chosen<'a> = (&'a LatencyProfile, Option<(usize, usize)>);

/// A pipeline as an abstract problem, in nanoseconds.
///
/// # Errors
/// If a declaration has no form as a problem.
pub(crate) fn problem_of_pipeline<'a>(
    config: &ServiceConfig,
    stages: impl Iterator<Item = Chosen<'a>>,
    streams: &[(String, StreamSpec)],
) -> Result<PipelineProblem, ProblemError> {
    use pipeline::raw::{Count, PipelineProblem as Raw, Stage};
    let number = |span: Span| Number::whole(span.as_nanos());
    let open = |stage: &&StageConfig| stage.open;
    let workers = config.stages.iter().map(|stage| stage.runs.workers).sum();
    let workers = config.stages.iter().find(open).map(|_| workers);
    let names =
        |stage: &StageConfig| stage.after.iter().map(|parent| config.stages[parent].runs.name.clone());
    let stage = |(stage, (profile, chosen)): (&StageConfig, Chosen<'_>)| Stage {
        name: stage.runs.name.clone(),
        parent: names(stage).next().filter(|_| stage.after.is_of_tree()),
        parents: (!stage.after.is_of_tree()).then(|| names(stage).collect()),
        join: stage.after.is_join(),
        requests: None,
        fan_out: stage.fan_out,
        workers: match chosen {
            Some((workers, _)) => Count::Is(workers),
            None if stage.open => Count::Auto,
            None => Count::Is(stage.runs.workers),
        },
        batch: chosen.map(|(_, batch)| batch).or(stage.runs.batch).map_or(Count::Auto, Count::Is),
        time: None,
        times: Some((1..=profile.max_batch()).map(|b| number(profile.bound(b))).collect()),
    };
    PipelineProblem::from_raw(Raw {
        unit: raw::Unit::Ns,
        background: true,
        deadline: number(config.deadline),
        guard: number(config.guard),
        stalls: config.stalls.map(stalls),
        workers,
        pipeline: config.stages.iter().zip(stages).map(stage).collect(),
        streams: streams.iter().map(|(name, spec)| stream(name, spec)).collect(),
    })
}

/// A stream as it is written in a problem, with times in nanoseconds.
pub fn stream(name: &str, spec: &StreamSpec) -> raw::Stream {
    raw::Stream {
        name: name.to_owned(),
        constraints: spec.constraints().as_slice().iter().map(ToString::to_string).collect(),
        arrivals: spec.arrivals().map(|curve| arrivals(curve.bounds())),
        degraded: spec.levels().iter().map(level).collect(),
    }
}

fn level(level: &rt_core::Level) -> raw::Level {
    raw::Level {
        constraints: level.constraints.as_slice().iter().map(ToString::to_string).collect(),
        arrivals: arrivals(level.arrivals.bounds()),
    }
}

/// A stream as [`stream`] has written it, in JSON; its name beside it.
///
/// # Errors
/// If it is not the JSON of a stream, or no declaration has such bounds.
pub fn declared(text: &str) -> Result<(String, StreamSpec), ProblemError> {
    let mut stream: raw::Stream = planner::from_json(text)?;
    // A client may call it as no problem would, and it has its meaning within a problem, whichever it is.
    let name = std::mem::replace(&mut stream.name, "stream".to_owned());
    let second = Number::whole(1_000_000_000);
    let workers = raw::Workers { count: 1, batch: 1, time: Some(second), times: None };
    let mut problem = Problem::from_raw(raw::Problem {
        unit: raw::Unit::Ns,
        deadline: second,
        guard: Number::whole(0),
        stalls: None,
        dispatch: raw::Dispatch::Eager,
        background: true,
        workers: vec![workers],
        streams: vec![stream],
    })?;
    Ok((name, problem.streams.remove(0).1))
}

/// The reserved streams by name.
pub(crate) fn reserved(config: &ServiceConfig) -> impl Iterator<Item = (String, StreamSpec)> {
    config.reserved.iter().map(|s| (s.name.clone(), s.spec.clone()))
}

/// A service as an abstract problem, in nanoseconds.
///
/// # Errors
/// If a declaration has no form as a problem.
pub(crate) fn problem(
    config: &ServiceConfig,
    workers: &[Workers],
    streams: &[(String, StreamSpec)],
) -> Result<Problem, ProblemError> {
    let number = |span: Span| Number::whole(span.as_nanos());
    let kind = |kind: &Workers| raw::Workers {
        count: kind.count,
        batch: kind.batch,
        time: None,
        times: Some((1..=kind.profile.max_batch()).map(|b| number(kind.profile.bound(b))).collect()),
    };
    Problem::from_raw(raw::Problem {
        unit: raw::Unit::Ns,
        deadline: number(config.deadline),
        guard: number(config.guard),
        stalls: config.stalls.map(stalls),
        dispatch: match config.dispatch {
            Dispatch::Eager => raw::Dispatch::Eager,
            Dispatch::FullOrLatest => raw::Dispatch::FullOrLatest,
        },
        background: config.background,
        workers: workers.iter().map(kind).collect(),
        streams: streams.iter().map(|(name, spec)| stream(name, spec)).collect(),
    })
}

/// Stalls as they are written in a problem.
fn stalls(stalls: Stalls) -> raw::Stalls {
    let number = |span: Span| Number::whole(span.as_nanos());
    raw::Stalls {
        count: stalls.count(),
        window: number(stalls.window()),
        length: number(stalls.length()),
        recovery: stalls.recovery().map(number),
    }
}

fn arrivals(bounds: &[ArrivalBound]) -> raw::Arrivals {
    let number = |span: &Span| Number::whole(span.as_nanos());
    let mut arrivals = raw::Arrivals::default();
    for bound in bounds {
        match bound {
            ArrivalBound::Window { count, length } => arrivals.windows.push((*count, number(length))),
            ArrivalBound::Periodic { period, jitter } => arrivals.periodic.push(raw::Periodic {
                period: number(period),
                jitter: number(jitter),
                distance: None,
            }),
            ArrivalBound::Distances(list) => {
                arrivals.distances = Some(list.as_slice().iter().map(number).collect());
            }
        }
    }
    arrivals
}
