//! From a problem as written to values that can only be right, or an error that says which field is not.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::ops::RangeInclusive;

use planner::Unique;
use rt_core::{ArrivalBound, ArrivalCurve, Constraint, Span};

use super::{
    MAX_BATCH, MAX_CLASSES, MAX_DEVICES, MAX_ROUNDS, MAX_SERVICES, MAX_STAGES, MAX_VARIANTS, Pipeline,
    Problem, ProblemError, Promise, Runs, Service, Stage, Variant, raw,
};

/// The longest time, in ms: an hour.
const MAX_MS: f64 = 3_600_000.0;
/// The largest demand, peak, weight or number of requests.
const MAX_NUMBER: f64 = 1e9;
/// Of accuracy.
const POINTS: RangeInclusive<f64> = -1e6..=1e6;
const POINTS_ARE: &str = "must be points, from -1000000 to 1000000";

pub(super) fn problem(raw: raw::Problem) -> Result<Problem, ProblemError> {
    let devices = raw.devices.0;
    within("number of devices' classes", devices.len(), 1, MAX_CLASSES)?;
    within("length of services", raw.services.len(), 0, MAX_SERVICES)?;
    within("length of pipelines", raw.pipelines.len(), 0, MAX_SERVICES)?;
    if raw.services.is_empty() && raw.pipelines.is_empty() {
        return Err(refuse("services", "[]", "there must be a service or a pipeline"));
    }
    for (name, &count) in &devices {
        within(&format!("devices.{name}"), count, 0, MAX_DEVICES)?;
    }
    let classes: Vec<(String, u32)> = devices.into_iter().collect();
    let rounds = raw.share.unwrap_or_default();
    within("length of share", rounds.len(), 0, MAX_ROUNDS)?;
    for (i, &(one, other)) in rounds.iter().enumerate() {
        within(&format!("share[{i}][0]"), one, 1, 64)?;
        within(&format!("share[{i}][1]"), other, 1, 64)?;
    }
    let mut names = HashSet::new();
    let mut unique = |field: String, name: &str| {
        if name.is_empty() {
            return Err(refuse(&field, "\"\"", "must not be empty"));
        }
        if !names.insert(name.to_owned()) {
            return Err(refuse(&field, name, "is taken already"));
        }
        Ok(())
    };
    let mut services = Vec::new();
    for (i, service) in raw.services.into_iter().enumerate() {
        unique(format!("services[{i}].name"), &service.name)?;
        services.push(self::service(&format!("services[{i}]"), service, &classes)?);
    }
    let mut pipelines = Vec::new();
    for (i, pipeline) in raw.pipelines.into_iter().enumerate() {
        unique(format!("pipelines[{i}].name"), &pipeline.name)?;
        pipelines.push(self::pipeline(&format!("pipelines[{i}]"), pipeline, &classes)?);
    }
    Ok(Problem { classes, services, pipelines, rounds, switch: raw.switch.unwrap_or(false) })
}

fn service(field: &str, raw: raw::Service, classes: &[(String, u32)]) -> Result<Service, ProblemError> {
    let demand = amount(&format!("{field}.demand"), raw.demand)?;
    let weight = amount(&format!("{field}.weight"), raw.weight.unwrap_or(1.0))?;
    let timed = raw.variants.iter().any(|variant| !variant.time.0.is_empty());
    let deadline = match raw.deadline {
        Some(ms) => floor(&format!("{field}.deadline"), ms)?,
        None if !timed && raw.promise.is_none() => Span::ZERO,
        None => {
            return Err(refuse(&format!("{field}.deadline"), "absent", "is needed where times are given"));
        }
    };
    let promise = raw.promise.map(|raw| promise(&format!("{field}.promise"), raw)).transpose()?;
    let mut variants = variants(&format!("{field}.variants"), raw.variants, classes)?;
    for (key, peak) in raw.peak.unwrap_or_default().0 {
        let field = format!("{field}.peak.{key}");
        if promise.is_some() {
            return Err(refuse(&field, peak, "a promise needs the times of batches, no peak"));
        }
        let peak = amount(&field, peak)?;
        let place = key.split_once('|').and_then(|(variant, class)| {
            let variant = variant.trim().parse::<usize>().ok().filter(|&v| v < variants.len());
            let variant = variant
                .or_else(|| variants.iter().position(|v| v.name == key.split('|').next().unwrap_or("")));
            Some((variant?, classes.iter().position(|(name, _)| name == class.trim())?))
        });
        let Some((variant, class)) = place else {
            return Err(refuse(
                &field,
                peak,
                "must be named by the index of a variant, a bar and a class of devices",
            ));
        };
        let before = std::mem::replace(&mut variants[variant].runs[class], Runs::Peak(peak));
        if matches!(before, Runs::Peak(_)) {
            return Err(refuse(&field, peak, "is there already"));
        }
    }
    Ok(Service { name: raw.name, demand, deadline, weight, variants, promise })
}

fn variants(
    field: &str,
    raw: Vec<raw::Variant>,
    classes: &[(String, u32)],
) -> Result<Vec<Variant>, ProblemError> {
    within(&format!("length of {field}"), raw.len(), 1, MAX_VARIANTS)?;
    let mut names = HashSet::new();
    let mut variants = Vec::new();
    for (i, raw) in raw.into_iter().enumerate() {
        let field = format!("{field}[{i}]");
        if !names.insert(raw.name.clone()) {
            return Err(refuse(&format!("{field}.name"), raw.name, "is taken already"));
        }
        if !POINTS.contains(&raw.accuracy) {
            return Err(refuse(&format!("{field}.accuracy"), raw.accuracy, POINTS_ARE));
        }
        let mut runs = vec![Runs::Batches(Vec::new()); classes.len()];
        for (class, times) in raw.time.0 {
            let field = format!("{field}.time.{class}");
            let Some(at) = classes.iter().position(|(name, _)| *name == class) else {
                return Err(refuse(&field, class, "is no class of devices"));
            };
            let mut batches = BTreeMap::new();
            for (batch, ms) in times.0 {
                let field = format!("{field}.{batch}");
                let size = batch.parse().ok().filter(|size| (1..=MAX_BATCH).contains(size));
                let Some(size) = size else {
                    return Err(refuse(
                        &field,
                        batch,
                        &format!("a size of batch must be in 1..={MAX_BATCH}"),
                    ));
                };
                let time = ceil(&field, ms)?;
                if batches.insert(size, time).is_some() {
                    return Err(refuse(&field, ms, &format!("batches of {size} are there already")));
                }
            }
            runs[at] = Runs::Batches(batches.into_iter().collect());
        }
        variants.push(Variant { name: raw.name, accuracy: raw.accuracy, runs });
    }
    Ok(variants)
}

fn promise(field: &str, raw: raw::Promise) -> Result<Promise, ProblemError> {
    let mut windows = Vec::new();
    let mut bounds = Vec::new();
    for (i, (count, ms)) in raw.windows.into_iter().enumerate() {
        let field = format!("{field}.windows[{i}]");
        let length = floor(&field, ms)?;
        let bound = ArrivalBound::window(count, length);
        bounds.push(
            bound.map_err(|error| refuse(&field, format_args!("[{count}, {ms}]"), &error.to_string()))?,
        );
        windows.push((count, length));
    }
    let of = |error: &dyn Display| refuse(&format!("{field}.windows"), windows.len(), &error.to_string());
    let curve = ArrivalCurve::new(&bounds).map_err(|error| of(&error))?;
    let (m, k) = (raw.m, raw.k);
    let constraint = Constraint::any_miss(m, k)
        .map_err(|error| refuse(field, format_args!("m = {m}, K = {k}"), &error.to_string()))?;
    Ok(Promise { curve, density: constraint.density(), windows, m, k })
}

fn pipeline(field: &str, raw: raw::Pipeline, classes: &[(String, u32)]) -> Result<Pipeline, ProblemError> {
    let demand = amount(&format!("{field}.demand"), raw.demand)?;
    let weight = amount(&format!("{field}.weight"), raw.weight.unwrap_or(1.0))?;
    let deadline = floor(&format!("{field}.slo"), raw.slo)?;
    within(&format!("length of {field}.stages"), raw.stages.len(), 1, MAX_STAGES)?;
    let stages = stages(field, raw.stages, &raw.mult, classes)?;
    let mut pipeline = Pipeline { name: raw.name, deadline, demand, weight, stages, accuracy: None };
    let Some(listed) = raw.path_accuracy.0 else { return Ok(pipeline) };
    let mut accuracy = BTreeMap::new();
    for (names, points) in listed {
        let field = format!("{field}.path_accuracy.{}", names.join("|"));
        let Some(path) = path(&pipeline, &names) else {
            return Err(refuse(
                &field,
                points,
                "must name a variant of each stage from the first to a last one",
            ));
        };
        if !POINTS.contains(&points) {
            return Err(refuse(&field, points, POINTS_ARE));
        }
        if accuracy.insert(path, points).is_some() {
            return Err(refuse(&field, points, "is there already"));
        }
    }
    pipeline.accuracy = Some(accuracy);
    Ok(pipeline)
}

/// The path from the root to a leaf along which the variants have these names.
fn path(pipeline: &Pipeline, names: &[String]) -> Option<Vec<(usize, usize)>> {
    let leaves = (0..pipeline.stages.len()).filter(|&stage| pipeline.is_leaf(stage));
    leaves.into_iter().find_map(|leaf| {
        let up = std::iter::successors(Some(leaf), |&stage| pipeline.stages[stage].parent);
        let mut stages: Vec<usize> = up.collect();
        stages.reverse();
        let variant = |(&stage, name): (&usize, &String)| {
            let of = &pipeline.stages[stage].variants;
            Some((stage, of.iter().position(|variant| variant.name == *name)?))
        };
        if stages.len() == names.len() { stages.iter().zip(names).map(variant).collect() } else { None }
    })
}

/// The stages, a parent before its children, with how many requests each makes.
fn stages(
    field: &str,
    raw: Vec<raw::Stage>,
    mult: &Unique<Unique<Unique<f64>>>,
    classes: &[(String, u32)],
) -> Result<Vec<Stage>, ProblemError> {
    let mut left: Vec<(usize, raw::Stage)> = raw.into_iter().enumerate().collect();
    let mut stages: Vec<Stage> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    while !left.is_empty() {
        let ready = |(_, stage): &(usize, raw::Stage)| match &stage.parent {
            None => stages.is_empty(),
            Some(parent) => places.contains_key(parent),
        };
        let Some(next) = left.iter().position(ready) else {
            let (i, stage) = &left[0];
            let parent = stage.parent.as_deref().unwrap_or("absent");
            let reason = "must name another stage, so that all descend from the one stage that has none";
            return Err(refuse(&format!("{field}.stages[{i}].parent"), parent, reason));
        };
        let (i, stage) = left.remove(next);
        if places.insert(stage.name.clone(), stages.len()).is_some() {
            return Err(refuse(&format!("{field}.stages[{i}].name"), stage.name, "is taken already"));
        }
        let variants = variants(&format!("{field}.stages[{i}].variants"), stage.variants, classes)?;
        let parent = stage.parent.as_ref().map(|parent| places[parent]);
        let mut requests = Vec::new();
        for variant in parent.into_iter().flat_map(|parent| &stages[parent].variants) {
            let above = stage.parent.as_deref().unwrap_or_default();
            let of =
                mult.0.get(above).and_then(|of| of.0.get(&variant.name)).and_then(|of| of.0.get(&stage.name));
            let field = format!("{field}.mult.{above}.{}.{}", variant.name, stage.name);
            requests.push(amount(&field, of.copied().unwrap_or(1.0))?);
        }
        stages.push(Stage { name: stage.name, parent, variants, requests });
    }
    for (stage, of) in &mult.0 {
        let Some(&place) = places.get(stage) else {
            return Err(refuse(&format!("{field}.mult.{stage}"), stage, "is no stage"));
        };
        for (variant, of) in &of.0 {
            let known = stages[place].variants.iter().any(|known| known.name == *variant);
            let child =
                of.0.keys().find(|child| places.get(*child).is_none_or(|&c| stages[c].parent != Some(place)));
            if let Some(wrong) = child.or((!known).then_some(variant)) {
                let reason = "must name a variant of the stage, and stages after it";
                return Err(refuse(&format!("{field}.mult.{stage}.{variant}"), wrong, reason));
            }
        }
    }
    Ok(stages)
}

/// Milliseconds, rounded up to nanoseconds: nothing takes less than it is said to.
fn ceil(field: &str, ms: f64) -> Result<Span, ProblemError> {
    time(field, ms).map(|nanos| Span::from_nanos((nanos - 1e-3).ceil().max(1.0) as u64))
}

/// Milliseconds, rounded down to nanoseconds: no deadline or window is longer than it is said to be.
fn floor(field: &str, ms: f64) -> Result<Span, ProblemError> {
    time(field, ms).map(|nanos| Span::from_nanos((nanos + 1e-3).floor() as u64))
}

fn time(field: &str, ms: f64) -> Result<f64, ProblemError> {
    if (1e-6..=MAX_MS).contains(&ms) {
        return Ok(ms * 1e6);
    }
    Err(refuse(field, ms, &format!("must be milliseconds from 1e-6 to {MAX_MS}")))
}

fn amount(field: &str, value: f64) -> Result<f64, ProblemError> {
    if (0.0..=MAX_NUMBER).contains(&value) {
        return Ok(value);
    }
    Err(refuse(field, value, &format!("must be a number from 0 to {MAX_NUMBER}")))
}

fn within<T: PartialOrd + Display>(field: &str, value: T, least: T, most: T) -> Result<(), ProblemError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(refuse(field, value, &format!("must be in {least}..={most}")))
}

fn refuse(field: &str, value: impl Display, reason: &str) -> ProblemError {
    let value: String = value.to_string().chars().take(60).collect();
    ProblemError::Value { field: field.to_owned(), value, reason: reason.to_owned() }
}
