//! Replays a refutation: runs its arrivals once more, and says what they show.

use planner::certificate::{Refutation, Shows};
use planner::certify::decide;
use planner::{PipelineProblem, Problem, SharedProblem};
use rt_core::{Cause, Constraint, Instant, Outcome};
use serde::Serialize;

use crate::curves::{Breach, check_curves};
use crate::pipeline::heard::{Heard, Waits};
use crate::policy::PlayError;
use crate::record::misses;
use crate::refute::Case;
use crate::report::{Report, causes};
use crate::time::{Time, of_arrival};
use virtual_time::{Order, Run};

/// What a refutation shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// What is broken, and where.
    pub broken: Broken,
    /// What came first of all that happened at one instant.
    pub order: Order,
    /// The run, request by request.
    #[serde(flatten)]
    pub report: Report,
}

/// A violated constraint, or a missed request that the promise counts on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Broken {
    /// Which of the two.
    pub shows: Shows,
    /// The stream.
    pub stream: String,
    /// The constraint that is violated.
    pub constraint: Option<String>,
    /// The numbers of the first and the last request of the window, or twice that of the one missed.
    pub window: (u64, u64),
    /// When these two came.
    pub instants: (Time, Time),
    /// Misses in the window.
    pub misses: u32,
    /// When all of them were known.
    pub known: Time,
    /// Of a pipeline: where the source waited longest that was missed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited: Option<Waited>,
}

/// Where a source waited longest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waited {
    /// The number of the source within its stream.
    pub source: u64,
    /// The stage.
    pub stage: String,
    /// How long one of its requests waited there.
    pub time: Time,
}

/// Why a refutation does not show what it claims.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// An instant that is none.
    #[error("arrival {index} at {value}: {reason}")]
    Instant {
        /// Which arrival, from 0.
        index: usize,
        /// Its instant as written.
        value: String,
        /// What it must be.
        reason: String,
    },
    /// A stream that is none of the problem's, which has no background.
    #[error("arrival {index}: stream {name:?} is none of the problem's, which has no background")]
    Unknown {
        /// Which arrival, from 0.
        index: usize,
        /// The name.
        name: String,
    },
    /// A stream that is of none of several services.
    #[error("arrival {index}: stream {name:?} is of no service, as service/stream")]
    Service {
        /// Which arrival, from 0.
        index: usize,
        /// The name.
        name: String,
    },
    /// A stream that is none of a pipeline's, and of none of its stages.
    #[error(
        "arrival {index}: stream {name:?} is none of the problem's, and of none of its stages, as stage/background"
    )]
    Stage {
        /// Which arrival, from 0.
        index: usize,
        /// The name.
        name: String,
    },
    /// A stream sends sooner than it declared.
    #[error(transparent)]
    Curve(#[from] Breach),
    /// It cannot be run.
    #[error(transparent)]
    Run(#[from] PlayError),
    /// It runs, and nothing of what it claims happens.
    #[error("no {what} of stream {stream:?} in {requests} requests")]
    Nothing {
        /// What should happen.
        what: &'static str,
        /// The stream that it should happen to.
        stream: String,
        /// How many requests were run.
        requests: usize,
    },
}

/// Runs the arrivals of `refutation` in `problem`: what they show, if it is what is claimed. The orders of
/// [`Order`] are tried one after the other, since the promise holds in any.
///
/// # Errors
/// [`ReplayError`]: if the arrivals do not keep to the declared curves or cannot be run, or show something else.
pub fn replay(problem: &Problem, refutation: &Refutation) -> Result<Replay, ReplayError> {
    replay_case(&Case::one(problem), refutation)
}

/// The same of services that share workers, whose streams are named as `service/stream`.
///
/// # Errors
/// As [`replay`].
pub fn replay_shared(problem: &SharedProblem, refutation: &Refutation) -> Result<Replay, ReplayError> {
    replay_case(&Case::several(problem, &decide(problem)), refutation)
}

/// The same of a pipeline; background is meant for a stage, as `stage/background`.
///
/// # Errors
/// As [`replay`].
pub fn replay_pipeline(problem: &PipelineProblem, refutation: &Refutation) -> Result<Replay, ReplayError> {
    replay_case(&Case::staged(problem), refutation)
}

fn replay_case(case: &Case<'_>, refutation: &Refutation) -> Result<Replay, ReplayError> {
    let problem = &case.problem;
    let mut arrivals = Vec::with_capacity(refutation.arrivals.len());
    for (index, (time, name)) in refutation.arrivals.iter().enumerate() {
        let wrong = |reason: String| ReplayError::Instant { index, value: time.to_string(), reason };
        let span = of_arrival(*time, problem.raw.unit).map_err(wrong)?;
        let stream = case.named(name).ok_or_else(|| match (name.clone(), problem.background) {
            (name, true) if case.pipeline().is_some() => ReplayError::Stage { index, name },
            (name, true) => ReplayError::Service { index, name },
            (name, false) => ReplayError::Unknown { index, name },
        })?;
        arrivals.push((Instant::ZERO + span, stream));
    }
    check_curves(problem, &arrivals)?;
    let claimed = Some(refutation.stream.as_str());
    let Some((order, run, found)) = case.find(&arrivals, refutation.shows, claimed)? else {
        let what = match refutation.shows {
            Shows::Violation => "violation",
            Shows::MandatoryMiss => "miss of a mandatory request",
        };
        let (stream, requests) = (refutation.stream.clone(), arrivals.len());
        return Err(ReplayError::Nothing { what, stream, requests });
    };
    let names: Vec<_> = (0..run.streams).map(|stream| case.name_of(stream)).collect();
    let (mut report, mut broken) = (Report::new(problem, &names, &run), found.told(problem, &run));
    if case.pipeline().is_some() {
        report = report.without_batches();
        let (_, heard) = case.hear(&arrivals, order, Heard::Waits(Waits::default()))?;
        broken.waited = waited(case, &run, &found, &heard);
    }
    Ok(Replay { broken, order, report })
}

/// Where the source waited longest that was missed last.
fn waited(case: &Case<'_>, run: &Run, found: &Found, heard: &Heard) -> Option<Waited> {
    let Heard::Waits(waits) = heard else { return None };
    let missed = found.requests.iter().filter(|&&index| run.requests[index].outcome != Outcome::Served);
    let last = *missed.max_by_key(|&&index| (run.requests[index].mandatory, run.requests[index].ended))?;
    let (stage, wait) = waits.longest(last as u64)?;
    let time = Time { instant: Instant::ZERO + wait, unit: case.problem.raw.unit };
    Some(Waited { source: run.requests[last].seq, stage: case.parts()?[stage].to_owned(), time })
}

/// The first violation of `run`, else the first miss of a mandatory request; `None` too if anything but the promise
/// was broken.
pub(crate) fn examine(problem: &Problem, run: &Run) -> Option<Found> {
    if causes(run).iter().any(|&(_, _, cause)| cause != Cause::ConstraintViolated) {
        return None;
    }
    violations(problem, run).into_iter().next().or_else(|| mandatory_misses(problem, run).into_iter().next())
}

/// What breaks the promise in a run.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) shows: Shows,
    pub(crate) stream: usize,
    constraint: Option<Constraint>,
    /// Indices of the requests of the window.
    requests: Vec<usize>,
}

impl Found {
    fn told(&self, problem: &Problem, run: &Run) -> Broken {
        let time = |instant| Time { instant, unit: problem.raw.unit };
        let requests = || self.requests.iter().map(|&index| &run.requests[index]);
        let missed = || requests().filter(|request| request.outcome != Outcome::Served);
        let (first, last) = (&run.requests[self.requests[0]], &run.requests[self.last()]);
        Broken {
            shows: self.shows,
            stream: problem.streams[self.stream].0.clone(),
            constraint: self.constraint.map(|constraint| constraint.to_string()),
            window: (first.seq, last.seq),
            instants: (time(first.arrival), time(last.arrival)),
            misses: missed().count() as u32,
            known: time(missed().map(|request| request.ended).max().unwrap_or(last.ended)),
            waited: None,
        }
    }

    fn last(&self) -> usize {
        self.requests[self.requests.len() - 1]
    }
}

/// The first violation of each constraint, in the order in which their last requests came.
pub(crate) fn violations(problem: &Problem, run: &Run) -> Vec<Found> {
    let mut found = Vec::new();
    for (stream, ((_, spec), requests)) in problem.streams.iter().zip(run.by_stream()).enumerate() {
        let misses = misses(run, &requests, spec.constraints().as_slice());
        for (constraint, violations) in misses.violations() {
            if let Some(last) = violations.first.map(|last| last as usize) {
                let first = (last + 1).saturating_sub(constraint.window() as usize);
                let requests = requests[first..=last].to_vec();
                found.push(Found { shows: Shows::Violation, stream, constraint: Some(constraint), requests });
            }
        }
    }
    found.sort_by_key(Found::last);
    found
}

/// The misses of mandatory requests, as they came.
pub(crate) fn mandatory_misses(problem: &Problem, run: &Run) -> Vec<Found> {
    let miss = |(index, request): (usize, &crate::Request)| {
        let counts = request.mandatory && request.outcome != Outcome::Served;
        let (stream, requests) = (request.stream, vec![index]);
        (counts && stream < problem.streams.len()).then_some(Found {
            shows: Shows::MandatoryMiss,
            stream,
            constraint: None,
            requests,
        })
    };
    run.requests.iter().enumerate().filter_map(miss).collect()
}
