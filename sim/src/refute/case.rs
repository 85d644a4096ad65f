//! What can be refuted: streams that declare something, background, and a way to play arrivals of both.

use std::borrow::Cow;

use planner::certificate::Shows;
use planner::certify::Decision;
use planner::problem::raw;
use planner::problem::shared::Service;
use planner::{Number, Problem, SharedProblem};
use rt_core::{Dispatch, Instant, Span, StreamSpec, Workers};

use crate::policy::{PlayError, on_device_by};
use crate::record::{MAX_WAITING, run};
use crate::replay::{Found, mandatory_misses, violations};
use virtual_time::{Order, Run, drive};

/// A service by itself, or several on the same workers.
pub(crate) struct Case<'a> {
    /// The problem; of several services one with the streams of all, each named as `service/stream`, and their workers one
    /// kind after the other.
    pub(crate) problem: Cow<'a, Problem>,
    shared: Option<(&'a SharedProblem, &'a Decision)>,
}

impl<'a> Case<'a> {
    pub(crate) fn one(problem: &'a Problem) -> Self {
        Self { problem: Cow::Borrowed(problem), shared: None }
    }

    /// By the rule and the turns of `decision`.
    pub(crate) fn several(problem: &'a SharedProblem, decision: &'a Decision) -> Self {
        Self { problem: Cow::Owned(flat(problem)), shared: Some((problem, decision)) }
    }

    /// How many kinds of background there are, numbered behind the streams: that of each service.
    pub(crate) fn strangers(&self) -> usize {
        self.shared.map_or(1, |(problem, _)| problem.services.len())
    }

    /// The stream of this name; another one is background, where there is some.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        let streams = &self.problem.streams;
        let service = || match self.shared {
            Some((problem, _)) => crate::arrivals::service_of(problem, name),
            None => Some(0),
        };
        let background = || service().filter(|_| self.problem.background).map(|s| streams.len() + s);
        streams.iter().position(|(known, _)| known == name).or_else(background)
    }

    /// The name of a stream, or of background.
    pub(crate) fn name_of(&self, stream: usize) -> String {
        let streams = &self.problem.streams;
        if let Some((name, _)) = streams.get(stream) {
            return name.clone();
        }
        let service = self.shared.and_then(|(problem, _)| problem.services.get(stream - streams.len()));
        let mut name =
            service.map_or_else(String::new, |service| format!("{}/", service.name)) + "background";
        while streams.iter().any(|(known, _)| *known == name) {
            name.push('_');
        }
        name
    }

    /// Plays arrivals, of the streams and of background, in the daemon's scheduler; batches take just their bounds.
    pub(crate) fn play(&self, arrivals: &[(Instant, usize)], order: Order) -> Result<Run, PlayError> {
        let Some((problem, decision)) = self.shared else { return run(&self.problem, arrivals, order) };
        let of = |(s, service): (usize, &Service)| {
            service.streams.iter().map(move |(_, spec)| (s, spec.clone())).collect::<Vec<_>>()
        };
        let mut streams: Vec<_> = problem.services.iter().enumerate().flat_map(of).collect();
        if self.problem.background {
            streams.extend((0..problem.services.len()).map(|service| (service, StreamSpec::best_effort())));
        }
        let queue = arrivals.len().clamp(1, MAX_WAITING);
        let mut device = on_device_by(problem, decision, queue, &streams)?;
        let mut run = Run { streams: streams.len(), ..Run::default() };
        drive(&mut device, arrivals.iter().copied(), order, |_, _, bound| bound, &mut run)?;
        Ok(run)
    }

    /// The first order in which `arrivals` show something (to `stream`, if given), with the run.
    pub(crate) fn find(
        &self,
        arrivals: &[(Instant, usize)],
        shows: Shows,
        stream: Option<&str>,
    ) -> Result<Option<(Order, Run, Found)>, PlayError> {
        for order in Order::ALL {
            let run = self.play(arrivals, order)?;
            let all = match shows {
                Shows::Violation => violations(&self.problem, &run),
                Shows::MandatoryMiss => mandatory_misses(&self.problem, &run),
            };
            let claimed =
                |found: &Found| stream.is_none_or(|name| self.problem.streams[found.stream].0 == name);
            if let Some(found) = all.into_iter().find(claimed) {
                return Ok(Some((order, run, found)));
            }
        }
        Ok(None)
    }
}

/// What declarations, constraints and the search for arrivals need of several services.
fn flat(problem: &SharedProblem) -> Problem {
    let named = |service: &Service, stream: &str| format!("{}/{stream}", service.name);
    let pairs = || problem.services.iter().zip(&problem.raw.services);
    let written = pairs().flat_map(|(of, raw)| {
        raw.streams.iter().map(|stream| raw::Stream { name: named(of, &stream.name), ..stream.clone() })
    });
    let streams = problem
        .services
        .iter()
        .flat_map(|of| of.streams.iter().map(|(name, spec)| (named(of, name), spec.clone())));
    let deadline = problem.services.iter().map(|s| s.deadline).max().unwrap_or(Span::ZERO);
    let workers = problem.services.iter().map(|of| {
        let (count, batch, profile) = (problem.workers, of.batch, of.profile.clone());
        Workers { count, batch, profile }
    });
    Problem {
        raw: raw::Problem {
            unit: problem.raw.unit,
            deadline: Number::of_span(deadline, problem.raw.unit),
            guard: Number::default(),
            stalls: None,
            dispatch: raw::Dispatch::Eager,
            background: problem.raw.background,
            workers: Vec::new(),
            streams: written.collect(),
        },
        deadline,
        guard: Span::ZERO,
        stalls: None,
        dispatch: Dispatch::Eager,
        background: problem.raw.background,
        workers: workers.collect(),
        streams: streams.collect(),
    }
}
