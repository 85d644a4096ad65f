//! The report of a run, request by request and stream by stream, with times in the problem's unit.

use std::sync::Arc;

use planner::Problem;
use planner::problem::raw::{Stream, Unit};
use rt_core::{Constraint, Instant, MissReason, StreamSpec, StreamState};
use serde::{Serialize, Serializer};

use crate::classes::ClassReport;
use crate::measure::{Misses, Violations};
use crate::record::misses;
use crate::time::Time;
use virtual_time::{Request, Run};

/// What became of given arrivals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Every request, in the order in which they came.
    pub requests: Vec<RequestReport>,
    /// Every stream: those of the problem, then those of no promise.
    pub streams: Vec<StreamReport>,
    /// The causes for which safe mode was raised, as they were announced.
    pub safe_mode: Vec<SafeModeReport>,
    /// Requests served by each variant, the base first; left out where the base alone served.
    #[serde(skip_serializing_if = "base_alone")]
    pub by_variant: Vec<u64>,
    /// What came of each class of requests; left out where they are all alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassReport>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestReport {
    /// The name of its stream.
    #[serde(serialize_with = "text")]
    pub stream: Arc<str>,
    /// Its number within the stream, from 0.
    pub seq: u64,
    /// When it came.
    pub arrival: Time,
    /// Whether the promise counts on it.
    pub mandatory: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was missed, if it was.
    #[serde(serialize_with = "reason")]
    pub reason: Option<MissReason>,
    /// When its batch started; absent if it ran in none.
    pub start: Option<Time>,
    /// When its batch ended.
    pub finish: Option<Time>,
    /// With how many requests that batch ran.
    pub batch: Option<usize>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Answered by its deadline.
    Served,
    /// Never run.
    Dropped,
    /// Run, and answered after its deadline.
    Late,
}

/// How a stream fared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamReport {
    /// Its name.
    pub name: String,
    /// Requests that came.
    pub arrived: u64,
    /// Requests answered by their deadline.
    pub served: u64,
    /// All others.
    pub missed: u64,
    /// The most misses in a row.
    pub longest_miss_run: u64,
    /// Its constraints, in the problem's order.
    pub constraints: Vec<ConstraintReport>,
}

/// How a constraint fared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConstraintReport {
    /// The constraint, as it was written.
    pub constraint: String,
    /// The first window that holds the most misses.
    pub worst_window: WorstWindow,
    /// The misses that it may hold.
    pub allowed: u32,
    /// Whether no window held more.
    pub held: bool,
}

/// A window of as many requests as the constraint counts, or of all while fewer had come: before the first
/// request, hits are imagined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WorstWindow {
    /// The number of its first request within the stream.
    pub from: u64,
    /// Misses in it.
    pub misses: u32,
}

/// A cause for safe mode, or for the suspension of one stream's promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SafeModeReport {
    /// When it was announced.
    pub at: Time,
    /// The cause.
    #[serde(serialize_with = "text")]
    pub cause: rt_core::Cause,
    /// Whose promise alone is suspended; absent if it concerns all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Which weaker promise is in force instead, from 1; absent if none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
}

impl Report {
    /// The report of `run`; `names` are the problem's streams and then those of no promise.
    pub(crate) fn new(problem: &Problem, names: &[String], run: &Run) -> Self {
        let streams: Vec<_> = problem.specs().zip(&problem.raw.streams).collect();
        Self::of(problem.raw.unit, &streams, names, run)
    }

    /// Of sources of a pipeline, each of which runs in many batches: nothing is told of their sizes.
    pub(crate) fn without_batches(mut self) -> Self {
        self.requests.iter_mut().for_each(|request| request.batch = None);
        self
    }

    /// The same of streams as they were read and written, times in `unit`.
    pub(crate) fn of(unit: Unit, streams: &[(&StreamSpec, &Stream)], names: &[String], run: &Run) -> Self {
        let time = |instant| Time { instant, unit };
        let shared: Vec<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
        let stream = |(index, requests): (usize, Vec<usize>)| {
            let spec = streams.get(index).map(|(spec, _)| spec.constraints().as_slice());
            let written = streams.get(index).map(|(_, stream)| stream.constraints.as_slice());
            let misses = misses(run, &requests, spec.unwrap_or_default());
            stream_report(names[index].clone(), written.unwrap_or_default(), &misses)
        };
        Self {
            requests: run.requests.iter().map(|r| request_report(r, run, &shared, unit)).collect(),
            streams: run.by_stream().into_iter().enumerate().map(stream).collect(),
            safe_mode: causes(run)
                .into_iter()
                .map(|(instant, stream, cause)| {
                    let level = match stream {
                        Some((_, StreamState::Degraded(level))) => Some(level),
                        _ => None,
                    };
                    let stream = stream.map(|(stream, _)| names[stream].clone());
                    SafeModeReport { at: time(instant), cause, stream, level }
                })
                .collect(),
            by_variant: by_variant(run),
            classes: Vec::new(),
        }
    }
}

fn by_variant(run: &Run) -> Vec<u64> {
    let served = run.requests.iter().filter(|request| request.outcome == rt_core::Outcome::Served);
    let mut counts = vec![0];
    for request in served {
        counts.resize(counts.len().max(request.variant + 1), 0);
        counts[request.variant] += 1;
    }
    counts
}

fn base_alone(by_variant: &[u64]) -> bool {
    by_variant.len() < 2
}

fn request_report(request: &Request, run: &Run, names: &[Arc<str>], unit: Unit) -> RequestReport {
    let time = |instant| Time { instant, unit };
    let batch = request.batch.map(|batch| run.batches[batch]);
    let (outcome, reason) = match request.outcome {
        rt_core::Outcome::Served => (Outcome::Served, None),
        rt_core::Outcome::Missed(reason) if batch.is_some() => (Outcome::Late, Some(reason)),
        rt_core::Outcome::Missed(reason) => (Outcome::Dropped, Some(reason)),
    };
    RequestReport {
        stream: Arc::clone(&names[request.stream]),
        seq: request.seq,
        arrival: time(request.arrival),
        mandatory: request.mandatory,
        outcome,
        reason,
        start: batch.map(|batch| time(batch.start)),
        finish: batch.map(|batch| time(batch.finish)),
        batch: batch.map(|batch| batch.size),
    }
}

fn stream_report(name: String, written: &[String], misses: &Misses) -> StreamReport {
    let constraint = |((constraint, _), written): ((Constraint, Violations), &String)| {
        let worst = misses.worst(constraint.window()).map(|window| (window.from, window.misses));
        let (from, misses) = worst.unwrap_or_default();
        ConstraintReport {
            constraint: written.clone(),
            worst_window: WorstWindow { from, misses },
            allowed: constraint.misses(),
            held: misses <= constraint.misses(),
        }
    };
    StreamReport {
        name,
        arrived: misses.arrived(),
        served: misses.arrived() - misses.missed(),
        missed: misses.missed(),
        longest_miss_run: misses.longest_row(),
        constraints: misses.violations().zip(written).map(constraint).collect(),
    }
}

/// When a cause was announced, and for whose promise alone, and how that stands.
type Announced = (Instant, Option<(usize, StreamState)>, rt_core::Cause);

/// The causes announced.
pub(crate) fn causes(run: &Run) -> Vec<Announced> {
    let shared = run.safe_mode.iter().filter_map(|(at, transition)| Some((*at, None, transition.breach()?)));
    let own = run.suspensions.iter();
    let own = own.filter_map(|&(at, stream, state, alarm)| Some((at, Some((stream, state)), alarm?.cause)));
    let mut all: Vec<_> = shared.chain(own).collect();
    all.sort_by_key(|&(at, ..)| at);
    all
}

fn text<S: Serializer>(value: &impl ToString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

fn reason<S: Serializer>(reason: &Option<MissReason>, serializer: S) -> Result<S::Ok, S::Error> {
    reason.map(|reason| reason.to_string()).serialize(serializer)
}
