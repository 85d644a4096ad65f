//! Looks at a plan by itself: nothing here uses what found it.

use planner::certify::decide;
use planner::problem::raw;
use planner::problem::shared::raw as shared;
use planner::{Number, SharedProblem};
use rt_core::{MAX_BATCH, MAX_WORKERS, Span};

use crate::configuration::Shared;
use crate::plan::{Held, Of, Plan};
use crate::problem::{Problem, Promise, Service};
use crate::promise::Rule;
use crate::quota::Shape;

/// The part by which sums of numbers may be off.
const EPSILON: f64 = 1e-6;
/// The most rises of a promise that two kinds are looked at.
const MAX_RISES: usize = 1_000_000;

/// Whether `plan` is one for `problem`: devices, capacity, demand, accuracy and promises.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn verify(problem: &Problem, plan: &Plan) -> Result<(), String> {
    for (class, (name, count)) in problem.classes.iter().enumerate() {
        let used: u64 =
            plan.devices.iter().filter(|devices| devices.class == class).map(|d| u64::from(d.count)).sum();
        if used > u64::from(*count) {
            return Err(format!("{used} devices of class {name}, there are {count}"));
        }
    }
    for (i, devices) in plan.devices.iter().enumerate() {
        let busy: f64 =
            plan.flows.iter().filter(|flow| flow.devices == i).map(|flow| flow.rate / flow.post.peak).sum();
        if busy > f64::from(devices.count) * (1.0 + EPSILON) + EPSILON {
            return Err(format!("{} devices are busy for {busy} seconds a second", devices.count));
        }
    }
    let mut worth = 0.0;
    for (s, service) in problem.services.iter().enumerate() {
        let flows = || plan.flows.iter().filter(|flow| flow.of == Of::Service(s));
        let served: f64 = flows().map(|flow| flow.rate).sum();
        if (served - service.demand).abs() > EPSILON * service.demand.max(1.0) {
            return Err(format!(
                "{served} of {} requests a second of {} are served",
                service.demand, service.name
            ));
        }
        worth += service.weight
            * flows().map(|flow| flow.rate * service.variants[flow.post.variant].accuracy).sum::<f64>();
        if service.promise.is_some() {
            let rule = plan.promises.iter().find(|(of, _)| *of == s).map(|(_, rule)| rule);
            let rule = rule.ok_or_else(|| format!("nothing keeps the promise of {}", service.name))?;
            kept(problem, plan, s, rule).map_err(|reason| format!("{}: {reason}", service.name))?;
        }
    }
    for (p, pipeline) in problem.pipelines.iter().enumerate() {
        for (stage, of) in pipeline.stages.iter().enumerate() {
            let flows = |stage| plan.flows.iter().filter(move |flow| flow.of == Of::Stage(p, stage));
            let served: f64 = flows(stage).map(|flow| flow.rate).sum();
            let comes = of.parent.map_or(pipeline.demand, |parent| {
                flows(parent).map(|flow| flow.rate * of.requests[flow.post.variant]).sum()
            });
            if (served - comes).abs() > EPSILON * comes.max(1.0) {
                return Err(format!(
                    "{served} of {comes} requests a second of {}, stage {}, are served",
                    pipeline.name, of.name
                ));
            }
        }
    }
    let services: f64 = worth / problem.worth();
    if problem.pipelines.is_empty() && (services - plan.accuracy).abs() > EPSILON * services.abs().max(1.0) {
        return Err(format!("the accuracy is {services}, not {}", plan.accuracy));
    }
    Ok(())
}

/// Whether the devices that `rule` counts are there and keep the promise to service `s`.
fn kept(problem: &Problem, plan: &Plan, s: usize, rule: &Rule) -> Result<(), String> {
    let service = &problem.services[s];
    let Some(promise) = &service.promise else { return Ok(()) };
    let counted: Vec<(Shape, u32)> = match rule {
        Rule::Quotas(kinds) => kinds.iter().map(|&(shape, count, _)| (shape, count)).collect(),
        Rule::Pool(kinds) => kinds.clone(),
    };
    for &(shape, count) in &counted {
        let there = plan.devices.iter().filter(|devices| shapes(&devices.held, s).any(|held| held == shape));
        if there.map(|devices| devices.count).sum::<u32>() < count {
            return Err(format!("fewer than {count} devices of a kind that is counted"));
        }
    }
    match rule {
        Rule::Pool(kinds) if kinds.iter().any(|(shape, _)| !shape.is_plain()) => {
            Err("a pool of devices that do more".to_owned())
        }
        Rule::Pool(kinds) => certified(service, promise, kinds),
        Rule::Quotas(kinds) => {
            let all: f64 = kinds.iter().map(|(_, count, quota)| f64::from(*count) * quota).sum();
            for (i, &(shape, count, quota)) in kinds.iter().enumerate() {
                // What goes to a kind: of any mandatory requests in a row its share, rounded up. The last takes what is left.
                let share = if kinds.len() == 1 { 1.0 } else { f64::from(count) * quota / all };
                by_kind(service, promise, shape, count, share)
                    .map_err(|reason| format!("kind {i}: {reason}"))?;
                if kinds.len() == 1 && shape.is_plain() {
                    certified(service, promise, &[(shape, count)])?;
                }
                let mut held = plan.devices.iter().map(|devices| &devices.held);
                let held = held.find(|held| shapes(held, s).any(|held| held == shape));
                if let (Some(Held::Shared(shared)), true) = (held, is_one(rule, shape)) {
                    by_turns(problem, plan, shared)?;
                }
            }
            Ok(())
        }
    }
}

/// What a device that holds `held` is to service `s`, by definition.
fn shapes(held: &Held, s: usize) -> impl Iterator<Item = Shape> {
    let shape = match held {
        Held::Alone(of, configuration) if *of == s => configuration.base.batch.map(|batch| {
            let longest = configuration.better.map_or(Span::ZERO, |better| better.time);
            Shape::alone(batch, configuration.base.time, longest)
        }),
        Held::Shared(shared) => shared.of.iter().position(|(of, _)| *of == s).and_then(|i| {
            let (own, other) = (&shared.of[i].1.base, &shared.of[1 - i].1.base);
            let others = (shared.turns[1 - i], other.time);
            own.batch.map(|batch| Shape::shared(batch, own.time, shared.turns[i], others))
        }),
        _ => None,
    };
    shape.into_iter()
}

/// Theorem Q by its definition: at each rise the batches that surely end in time hold the share of all that can come.
fn by_kind(service: &Service, promise: &Promise, shape: Shape, count: u32, share: f64) -> Result<(), String> {
    let per_round = u64::from(count) * u64::from(shape.batch);
    let (supply, comes) = (shape.rate() * f64::from(count), promise.rate() * share);
    if supply < comes * (1.0 - EPSILON) {
        return Err(format!("{supply} requests a second are served of {comes}"));
    }
    let repetition = promise.repetition([shape.round()]);
    for rise in promise.rises().take(MAX_RISES) {
        if repetition.is_some_and(|repetition| rise.length > repetition) {
            return Ok(());
        }
        let by = rise.length + service.deadline;
        let batches = shape.batches_by(by);
        let most = (share * rise.requests as f64 - EPSILON).ceil() as u64;
        if per_round * batches < most {
            return Err(format!(
                "{most} requests come within {} ns and {} are answered",
                rise.length.as_nanos(),
                per_round * batches
            ));
        }
        // Whatever comes from here on is no worse.
        let caught_up = supply * (by.as_secs_f64() - shape.blocked.as_secs_f64())
            - per_round as f64 * f64::from(shape.turn);
        if caught_up >= comes * rise.length.as_secs_f64() + promise.excess() * share + 1.0 {
            return Ok(());
        }
    }
    Err(format!("too close to capacity to be looked at to the end, {supply} requests a second of {comes}"))
}

/// Whether admission promises it, of workers that can be told to it; others have been looked at by definition alone.
fn certified(service: &Service, promise: &Promise, kinds: &[(Shape, u32)]) -> Result<(), String> {
    let all: u32 = kinds.iter().map(|(_, count)| count).sum();
    let beyond =
        all as usize > MAX_WORKERS || kinds.iter().any(|(shape, _)| shape.batch as usize > MAX_BATCH);
    if beyond {
        return if kinds.len() == 1 {
            Ok(())
        } else {
            Err("a pool of more workers than admission knows".to_owned())
        };
    }
    let nanos = |span: Span| Number::whole(span.as_nanos());
    let workers = kinds.iter().map(|&(shape, count)| raw::Workers {
        count: count as usize,
        batch: shape.batch as usize,
        time: Some(nanos(shape.time)),
        times: None,
    });
    let problem = raw::Problem {
        unit: raw::Unit::Ns,
        deadline: nanos(service.deadline),
        guard: Number::whole(0),
        stalls: None,
        dispatch: raw::Dispatch::default(),
        background: true,
        workers: workers.collect(),
        streams: vec![stream(promise)],
    };
    let problem = planner::Problem::from_raw(problem).map_err(|error| error.to_string())?;
    problem.system().admit(problem.specs()).map(|_| ()).map_err(|error| error.to_string())
}

/// Whether one device of that shape is all that keeps a promise.
fn is_one(rule: &Rule, shape: Shape) -> bool {
    matches!(rule, Rule::Quotas(kinds) if matches!(kinds[..], [(only, 1, _)] if only == shape))
}

/// Whether admission promises what one device keeps alone of the two services that take turns on it. Of the other devices what goes to each
/// is no declaration of its own.
fn by_turns(problem: &Problem, plan: &Plan, shared: &Shared) -> Result<(), String> {
    let held = Held::Shared(shared.clone());
    let service = |(i, turn): (usize, u32)| {
        let (s, of) = &shared.of[i];
        let alone =
            |(of, rule): &(usize, Rule)| of == s && shapes(&held, *s).any(|shape| is_one(rule, shape));
        let promise = problem.services[*s].promise.as_ref().filter(|_| plan.promises.iter().any(alone));
        of.base.batch.map(|batch| shared::Service {
            name: i.to_string(),
            deadline: Number::whole(problem.services[*s].deadline.as_nanos()),
            guard: Number::whole(0),
            batch: batch as usize,
            time: Some(Number::whole(of.base.time.as_nanos())),
            times: None,
            turn: Some(turn),
            streams: promise.map(stream).into_iter().collect(),
        })
    };
    let services: Vec<_> = shared.turns.into_iter().enumerate().filter_map(service).collect();
    if services.iter().any(|service| service.batch > MAX_BATCH) {
        return Ok(());
    }
    let workers = shared::Workers { count: 1 };
    let rule = "turns".to_owned();
    let raw = shared::SharedProblem {
        unit: raw::Unit::Ns,
        background: true,
        stalls: None,
        workers,
        rule,
        services,
    };
    let problem = SharedProblem::from_raw(raw).map_err(|error| error.to_string())?;
    decide(&problem).reason.map_or(Ok(()), Err)
}

/// A promise as a stream of its own.
fn stream(promise: &Promise) -> raw::Stream {
    let nanos = |length: Span| Number::whole(length.as_nanos());
    let windows = promise.windows.iter().map(|&(count, length)| (count, nanos(length))).collect();
    raw::Stream {
        name: "all".to_owned(),
        constraints: vec![format!("any_miss({},{})", promise.m, promise.k)],
        arrivals: Some(raw::Arrivals { windows, ..raw::Arrivals::default() }),
        degraded: Vec::new(),
    }
}
