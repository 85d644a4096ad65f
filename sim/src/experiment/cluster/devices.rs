//! Devices of several classes, and services with variants measured on each.

use std::collections::BTreeMap;
use std::sync::Arc;

use placement::Problem;
use placement::problem::{MAX_BATCH, MAX_CLASSES, MAX_VARIANTS, Runs, Service as Placed, Variant};
use planner::Number;
use planner::problem::raw as written;
use rt_core::Span;
use serde::Deserialize;

use crate::cluster::Cluster;
use crate::experiment::profile::{Data, numbers, read};
use crate::experiment::service::Service;
use crate::experiment::system::System;
use crate::experiment::value::{Positive, Share, Time};
use crate::experiment::{ExperimentError, raw, refuse, unique};

/// The most devices.
const MOST: u32 = 2_000;

/// Devices, and what they can hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::experiment) struct Raw {
    /// Of each class how many.
    devices: BTreeMap<String, u32>,
    /// Those with a name alone are in the table.
    services: Vec<RawService>,
    table: Option<Table>,
    /// Where the deadlines are of services that have none.
    deadlines: Option<Deadlines>,
    /// From one allocation to the next, and the soonest that another one follows if more comes than is allocated for.
    #[serde(default = "half_a_minute")]
    period: Time,
    #[serde(default = "five_seconds")]
    soonest: Time,
    /// How many times the demand that was seen is allocated for.
    #[serde(default = "once")]
    margin: Positive,
    /// How long it takes until a device holds another variant; no time if absent.
    load: Option<Time>,
}

/// A service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawService {
    /// Unique.
    name: String,
    /// From arrival to answer.
    deadline: Option<Time>,
    /// All that the table has of it if absent.
    #[serde(default)]
    variants: Vec<RawVariant>,
}

/// A model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawVariant {
    /// How good its answers are, in `0..=1`.
    accuracy: Share,
    /// Of each class, sizes of batches and their times.
    times: BTreeMap<String, Vec<(u32, Time)>>,
}

/// Measurements of all variants on all classes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    /// A CSV with a header, within the folder of data.
    file: String,
    /// The columns of services, variants, classes and sizes of batches.
    service: String,
    variant: String,
    class: String,
    batch: String,
    /// The column of times, and their unit.
    time: String,
    unit: written::Unit,
    /// The column of accuracies, in percent.
    accuracy_percent: String,
}

/// Deadlines of services.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Deadlines {
    /// A CSV with a header, within the folder of data.
    file: String,
    /// The column of services, that of deadlines, and their unit.
    service: String,
    deadline: String,
    unit: written::Unit,
}

fn half_a_minute() -> Time {
    Time(Span::from_millis(30_000))
}

fn five_seconds() -> Time {
    Time(Span::from_millis(5_000))
}

fn once() -> Positive {
    Positive(1.0)
}

fn time(unit: written::Unit, value: f64) -> Option<Span> {
    let nanos = value * Number::whole(1).to_span(unit).ok()?.as_nanos() as f64;
    (nanos >= 1.0 && nanos <= rt_core::MAX_SPAN.as_nanos() as f64)
        .then(|| Span::from_nanos(nanos.ceil() as u64))
}

impl System {
    /// A cluster.
    pub(in crate::experiment) fn of_cluster(
        field: &impl Fn(&str) -> String,
        raw: &raw::System,
        cluster: &Raw,
        service: Service,
        data: &Data,
    ) -> Result<Self, ExperimentError> {
        Self::nothing_beside("cluster", (field, raw, &service), "must be none of a cluster")?;
        let cluster = of(&|name: &str| field(&format!("cluster.{name}")), cluster, data)?;
        Ok(Self { cluster: Some(Arc::new(cluster)), ..Self::bare(raw, service) })
    }
}

fn of(field: &impl Fn(&str) -> String, raw: &Raw, data: &Data) -> Result<Cluster, ExperimentError> {
    let classes: Vec<(String, u32)> = raw.devices.clone().into_iter().collect();
    let devices: u64 = classes.iter().map(|&(_, count)| u64::from(count)).sum();
    if !(1..=MAX_CLASSES).contains(&classes.len()) || !(1..=u64::from(MOST)).contains(&devices) {
        let reason = format!("must be 1..={MOST} of 1..={MAX_CLASSES} classes");
        return Err(refuse(field("devices"), devices, reason));
    }
    unique(&field("services"), raw.services.iter().map(|service| &service.name))?;
    let measured =
        raw.table.as_ref().map(|table| measured(&field("table"), table, &classes, data)).transpose()?;
    let mut services = Vec::new();
    for (i, service) in raw.services.iter().enumerate() {
        let of = |name: &str| field(&format!("services[{i}].{name}"));
        let deadline = match (&service.deadline, &raw.deadlines) {
            (Some(deadline), _) => deadline.0,
            (None, Some(deadlines)) => {
                let rows = BTreeMap::from([(deadlines.service.clone(), service.name.clone())]);
                let column = std::slice::from_ref(&deadlines.deadline);
                let value = numbers(&of("deadline"), &deadlines.file, &rows, column, data)?[0];
                time(deadlines.unit, value)
                    .ok_or_else(|| refuse(of("deadline"), value, "must be above 0 and at most an hour"))?
            }
            (None, None) => return Err(refuse(of("deadline"), "", "must be there, or `deadlines`")),
        };
        let known = measured.as_ref().and_then(|all| all.get(&service.name));
        let variants: Vec<Variant> = match (&service.variants[..], known) {
            ([], Some(known)) => known.clone(),
            ([], None) => {
                return Err(refuse(of("variants"), &service.name, "must be there, or in the table"));
            }
            (list, _) => list
                .iter()
                .enumerate()
                .map(|(v, raw)| variant(&of(&format!("variants[{v}]")), v, raw, &classes))
                .collect::<Result<_, _>>()?,
        };
        if variants.len() > MAX_VARIANTS {
            return Err(refuse(of("variants"), variants.len(), format!("must be 1..={MAX_VARIANTS}")));
        }
        services.push(Placed {
            name: service.name.clone(),
            demand: 0.0,
            deadline,
            weight: 1.0,
            variants,
            promise: None,
        });
    }
    let problem = Problem { classes, services, pipelines: Vec::new(), rounds: Vec::new(), switch: false };
    Ok(Cluster {
        problem,
        period: raw.period.0,
        soonest: raw.soonest.0,
        margin: raw.margin.0,
        load: raw.load.map_or(Span::ZERO, |load| load.0),
    })
}

fn variant(
    field: &str,
    v: usize,
    raw: &RawVariant,
    classes: &[(String, u32)],
) -> Result<Variant, ExperimentError> {
    if let Some(class) = raw.times.keys().find(|class| classes.iter().all(|(name, _)| name != *class)) {
        return Err(refuse(format!("{field}.times"), class, "is no class of devices"));
    }
    let runs = |(class, _): &(String, u32)| {
        let list: Vec<(u32, Span)> =
            raw.times.get(class).into_iter().flatten().map(|&(size, time)| (size, time.0)).collect();
        let rising = list.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let sizes = list.iter().all(|(size, _)| (1..=MAX_BATCH).contains(size));
        let wrong = || {
            refuse(format!("{field}.times.{class}"), format!("{list:?}"), "must rise, in sizes and in times")
        };
        if rising && sizes { Ok(Runs::Batches(list.clone())) } else { Err(wrong()) }
    };
    let runs = classes.iter().map(runs).collect::<Result<_, _>>()?;
    Ok(Variant { name: format!("v{v}"), accuracy: raw.accuracy.0 * 100.0, runs })
}

/// The variants of each service, in the order of the table. Of several rows for one size the longest time counts, and a larger
/// batch never counts as faster.
fn measured(
    field: &str,
    table: &Table,
    classes: &[(String, u32)],
    data: &Data,
) -> Result<BTreeMap<String, Vec<Variant>>, ExperimentError> {
    let columns =
        [&table.service, &table.variant, &table.class, &table.batch, &table.time, &table.accuracy_percent];
    let mut all: BTreeMap<String, Vec<Variant>> = BTreeMap::new();
    for (line, row) in read(field, &table.file, &BTreeMap::new(), &columns, data)? {
        let wrong = |i: usize, reason: &str| {
            refuse(format!("{field}: {} line {line}: {}", table.file, columns[i]), &row[i], reason)
        };
        let Some(class) = classes.iter().position(|(name, _)| *name == row[2]) else { continue };
        let number = |i: usize| row[i].parse::<f64>().ok();
        let size =
            number(3).filter(|size| size.fract() == 0.0 && (1.0..=f64::from(MAX_BATCH)).contains(size));
        let size = size.ok_or_else(|| wrong(3, "must be a size of a batch"))? as u32;
        let took = number(4).and_then(|value| time(table.unit, value));
        let took = took.ok_or_else(|| wrong(4, "must be a time above 0 and of at most an hour"))?;
        let accuracy = number(5).filter(|percent| (0.0..=100.0).contains(percent));
        let accuracy = accuracy.ok_or_else(|| wrong(5, "must be in 0..=100"))?;
        let of = all.entry(row[0].clone()).or_default();
        let place = of.iter().position(|variant| variant.name == row[1]).unwrap_or_else(|| {
            let runs = vec![Runs::Batches(Vec::new()); classes.len()];
            of.push(Variant { name: row[1].clone(), accuracy, runs });
            of.len() - 1
        });
        let Runs::Batches(batches) = &mut of[place].runs[class] else { continue };
        match batches.binary_search_by_key(&size, |&(size, _)| size) {
            Ok(known) => batches[known].1 = batches[known].1.max(took),
            Err(next) => batches.insert(next, (size, took)),
        }
    }
    for runs in all.values_mut().flatten().flat_map(|variant| &mut variant.runs) {
        let Runs::Batches(batches) = runs else { continue };
        let mut longest = Span::ZERO;
        for (_, time) in batches {
            longest = longest.max(*time);
            *time = longest;
        }
    }
    Ok(all)
}
