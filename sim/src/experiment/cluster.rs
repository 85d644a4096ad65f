//! Clusters of an experiment: devices of several classes, services with variants measured on each, and recorded demand.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use placement::Problem;
use placement::problem::{MAX_BATCH, MAX_CLASSES, MAX_VARIANTS, Runs, Service as Placed, Variant};
use planner::Number;
use planner::problem::raw as written;
use rt_core::Span;
use serde::Deserialize;

use super::contender::Contender;
use super::profile::{Data, numbers};
use super::quantity::Quantity;
use super::service::Service;
use super::system::System;
use super::value::{Positive, Share, Time};
use super::{Arrivals, Experiment, ExperimentError, Of, raw, refuse};
use crate::cluster::{BUCKET, Bucket, Cluster, Told};
use crate::process::{Merged, Process, stream_seed};

/// The most devices.
const MOST: u32 = 2_000;
/// The longest recording, in seconds.
const LONGEST: usize = 1_000_000;

/// The quantities of what came from some seconds on.
pub(super) type Moments = Vec<(f64, Vec<f64>)>;

/// Devices, and what they can hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Raw {
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

/// How many requests came to each service, second by second.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Counts {
    /// A CSV with a header, within the folder of data; compressed by gzip if its name ends so.
    file: String,
    /// Columns and what they must say.
    #[serde(default)]
    rows: BTreeMap<String, String>,
    /// The columns of services, of seconds from 0, and of requests.
    service: String,
    second: String,
    count: String,
}

/// What came to each service, second by second.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    seconds: usize,
    services: BTreeMap<String, Vec<f64>>,
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

/// The columns of these names, and the rows that say what `rows` says, each with its line.
type Rows = Vec<(u64, Vec<String>)>;

fn read(
    field: &str,
    file: &str,
    rows: &BTreeMap<String, String>,
    columns: &[&String],
    data: &Data,
) -> Result<Rows, ExperimentError> {
    let path = data.path(&format!("{field}.file"), file)?;
    let wrong = |error: &dyn std::fmt::Display| refuse(format!("{field}.file"), path.display(), error);
    let opened = File::open(&path).map_err(|error| wrong(&error))?;
    let text: Box<dyn Read> =
        if file.ends_with(".gz") { Box::new(flate2::read::GzDecoder::new(opened)) } else { Box::new(opened) };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    let header = reader.headers().map_err(|error| wrong(&error))?.clone();
    let column = |name: &String| {
        let found = header.iter().position(|column| column == name);
        found.ok_or_else(|| refuse(field, name, format!("must be a column of {file}")))
    };
    let wanted: Vec<_> = rows
        .iter()
        .map(|(name, value)| Ok((column(name)?, value)))
        .collect::<Result<_, ExperimentError>>()?;
    let columns: Vec<usize> = columns.iter().map(|name| column(name)).collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| wrong(&error))?;
        if wanted.iter().all(|&(column, value)| record.get(column) == Some(value)) {
            let line = record.position().map_or(0, csv::Position::line);
            found.push((line, columns.iter().map(|&column| record[column].to_owned()).collect()));
        }
    }
    Ok(found)
}

impl Recorded {
    pub(super) fn new(field: &str, counts: &Counts, data: &Data) -> Result<Self, ExperimentError> {
        let columns = [&counts.service, &counts.second, &counts.count];
        let mut recorded = Self { seconds: 0, services: BTreeMap::new() };
        for (line, row) in read(field, &counts.file, &counts.rows, &columns, data)? {
            let number = |i: usize, most: f64| {
                let value = row[i].parse::<f64>().ok().filter(|value| (0.0..=most).contains(value));
                let place = format!("{field}: {} line {line}: {}", counts.file, columns[i]);
                value.ok_or_else(|| refuse(place, &row[i], format!("must be a number in 0..={most}")))
            };
            let (second, count) = (number(1, LONGEST as f64)? as usize, number(2, 1e9)?);
            let of = recorded.services.entry(row[0].clone()).or_default();
            of.resize(of.len().max(second + 1), 0.0);
            of[second] += count;
            recorded.seconds = recorded.seconds.max(second + 1);
        }
        let seconds = recorded.seconds;
        recorded.services.values_mut().for_each(|of| of.resize(seconds, 0.0));
        if recorded.rate() > 0.0 {
            Ok(recorded)
        } else {
            Err(refuse(field, &counts.file, "no row says so, or all are 0"))
        }
    }

    /// Requests a second of each service of a cluster.
    pub(super) fn means(&self, cluster: &Cluster) -> Vec<f64> {
        let mean = |service: &Placed| {
            let of = self.services.get(&service.name);
            of.map_or(0.0, |of| of.iter().sum::<f64>() / self.seconds as f64)
        };
        cluster.problem.services.iter().map(mean).collect()
    }

    /// Requests a second of all services.
    pub(super) fn rate(&self) -> f64 {
        self.services.values().flatten().sum::<f64>() / self.seconds as f64
    }
}

impl System {
    /// A cluster.
    pub(super) fn of_cluster(
        field: &impl Fn(&str) -> String,
        raw: &raw::System,
        cluster: &Raw,
        service: Service,
        data: &Data,
    ) -> Result<Self, ExperimentError> {
        let wrong = [
            ("deadline", raw.deadline.is_some()),
            ("workers", !raw.workers.is_empty()),
            ("streams", !raw.streams.is_empty()),
            ("variants", !raw.variants.is_empty()),
            ("fleet", raw.fleet.is_some()),
            ("sharing", raw.sharing.is_some()),
            ("pipeline", raw.pipeline.is_some()),
            ("service", service.stall() > Span::ZERO),
        ];
        if let Some(&(name, _)) = wrong.iter().find(|(_, wrong)| *wrong) {
            return Err(refuse(field(name), "", "must be none of a cluster"));
        }
        let one = Number::whole(1);
        let workers = written::Workers { count: 1, batch: 1, time: Some(one), times: None };
        let stream = written::Stream { name: "s0".to_owned(), constraints: Vec::new(), arrivals: None };
        Ok(Self {
            name: raw.name.clone(),
            written: written::Problem {
                unit: written::Unit::Ns,
                deadline: Number::whole(1_000),
                guard: Number::default(),
                stalls: None,
                dispatch: raw.dispatch,
                background: true,
                workers: vec![workers],
                streams: vec![stream],
            },
            service,
            periods: vec![None],
            queue: raw.queue,
            accuracy: Vec::new(),
            selector: None,
            fleet: None,
            sharing: None,
            pipeline: None,
            cluster: Some(Arc::new(of(&|name: &str| field(&format!("cluster.{name}")), cluster, data)?)),
        })
    }
}

fn of(field: &impl Fn(&str) -> String, raw: &Raw, data: &Data) -> Result<Cluster, ExperimentError> {
    let classes: Vec<(String, u32)> = raw.devices.clone().into_iter().collect();
    let devices: u64 = classes.iter().map(|&(_, count)| u64::from(count)).sum();
    if !(1..=MAX_CLASSES).contains(&classes.len()) || !(1..=u64::from(MOST)).contains(&devices) {
        let reason = format!("must be 1..={MOST} of 1..={MAX_CLASSES} classes");
        return Err(refuse(field("devices"), devices, reason));
    }
    super::unique(&field("services"), raw.services.iter().map(|service| &service.name))?;
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

/// What a run is told by, and the same of what came from each of some seconds on.
fn at(bucket: &Bucket, quantity: Quantity, seconds: f64) -> f64 {
    match quantity {
        Quantity::Misses => bucket.misses(),
        Quantity::Goodput => bucket.served as f64 / seconds,
        Quantity::Offered => bucket.arrived as f64 / seconds,
        Quantity::Accuracy if bucket.served > 0 => bucket.accuracy_of_served(),
        Quantity::AccuracyOfAll => bucket.accuracy_of_all(),
        _ => f64::NAN,
    }
}

/// What a run is told by.
pub(super) fn told(run: &Told, quantities: &[Quantity]) -> (Vec<f64>, Moments) {
    let seconds = run.seconds();
    let all = |&quantity: &Quantity| match quantity {
        Quantity::Batch => run.batch(),
        Quantity::AccuracyDrop => run.largest_drop(),
        Quantity::InUse => run.in_use(),
        other => at(&run.total(), other, seconds),
    };
    let moments = run.buckets().map(|(from, bucket)| {
        let length = (BUCKET as f64).min(seconds - from).max(1.0);
        (from, quantities.iter().map(|&quantity| at(bucket, quantity, length)).collect())
    });
    (quantities.iter().map(all).collect(), moments.collect())
}

impl Experiment {
    /// Whether clusters are served by those who can and what was recorded of services comes to them, and to nobody else.
    pub(super) fn check_clusters(&self) -> Result<(), ExperimentError> {
        let clusters = self.systems.iter().filter(|system| system.cluster.is_some()).count();
        if clusters == 0 {
            if let Some(arrivals) = self.arrivals.iter().find(|arrivals| arrivals.recorded.is_some()) {
                return Err(refuse("arrivals", &arrivals.name, "needs a cluster"));
            }
            if let Some(policy) =
                self.policies.iter().find(|policy| matches!(policy, Contender::Allocation(_)))
            {
                return Err(refuse("policies", policy, "needs a cluster"));
            }
            return if self.x.of == Of::Recorded {
                Err(refuse("x.recorded", "", "needs a cluster"))
            } else {
                Ok(())
            };
        }
        if clusters < self.systems.len() {
            return Err(refuse("system", clusters, "must all be clusters, or none"));
        }
        if self.x.of != Of::Recorded {
            return Err(refuse("x", self.x.label(), "must be `recorded` of a cluster"));
        }
        if let Some(policy) = self.policies.iter().find(|policy| policy.allocation().is_none()) {
            return Err(refuse("policies", policy, "cannot serve a cluster"));
        }
        for arrivals in &self.arrivals {
            let Some(recorded) = &arrivals.recorded else {
                return Err(refuse("arrivals", &arrivals.name, "must be `services` of a cluster"));
            };
            let of = |system: &System| {
                system.cluster.as_ref().map(|cluster| &cluster.problem).map_or(0, |problem| {
                    problem
                        .services
                        .iter()
                        .filter(|service| recorded.services.contains_key(&service.name))
                        .count()
                })
            };
            if let Some(system) = self.systems.iter().find(|system| of(system) < recorded.services.len()) {
                return Err(refuse(
                    "arrivals",
                    &arrivals.name,
                    format!("holds services that are none of system {}", system.name),
                ));
            }
        }
        Ok(())
    }

    /// One run on a cluster: what was recorded, from one second to the next at random.
    pub(super) fn play_cluster(
        &self,
        cluster: &Cluster,
        (system, arrivals): (&str, &Arrivals),
        policy: Contender,
        x: f64,
        seed: u64,
    ) -> Result<Told, ExperimentError> {
        let (Some(recorded), Some(kind)) = (&arrivals.recorded, policy.allocation()) else {
            unreachable!("checked when the experiment was read")
        };
        let factor = x * arrivals.mean;
        let (mut demand, mut sources, mut whose) = (Vec::new(), Vec::new(), Vec::new());
        for (s, service) in cluster.problem.services.iter().enumerate() {
            let rates = recorded.services.get(&service.name).map_or(&[][..], Vec::as_slice);
            let mean = rates.iter().sum::<f64>() / recorded.seconds as f64 * factor;
            demand.push(mean);
            if mean > 0.0 {
                let process = Process::Rates { rates: rates.into(), interval: Span::from_millis(1000) };
                let source = process.arrivals(mean, stream_seed(seed, s));
                let wrong = |error| ExperimentError::Process { arrivals: arrivals.name.clone(), error };
                sources.push(source.map_err(wrong)?);
                whose.push(s);
            }
        }
        let end = rt_core::Instant::ZERO + Span::from_millis(recorded.seconds as u64 * 1000);
        let most = usize::try_from(self.requests).unwrap_or(usize::MAX);
        let coming = Merged::new(sources).take_while(|&(at, _)| at < end).take(most);
        let coming = coming.map(|(at, source)| (at, whose[source]));
        let played = cluster.play(kind, &demand, coming, |_, _, bound| bound);
        played.map_err(|error| ExperimentError::Play {
            system: system.to_owned(),
            policy,
            error: error.into(),
        })
    }
}

#[cfg(test)]
mod tests;
