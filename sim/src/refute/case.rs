//! What can be refuted: streams that declare something, background, and a way to play arrivals of both.

use std::borrow::Cow;

use planner::certificate::Shows;
use planner::certify::{Decision, chosen};
use planner::problem::raw::{self, Unit};
use planner::problem::shared::Service;
use planner::{Number, PipelineProblem, Problem, SharedProblem};
use rt_core::pipeline::Pipeline;
use rt_core::{Dispatch, Instant, Span, StreamSpec, Workers};

use crate::arrivals::part_of;
use crate::pipeline::heard::Heard;
use crate::pipeline::staged;
use crate::policy::{PlayError, on_device_by};
use crate::record::{MAX_WAITING, run};
use crate::replay::{Found, mandatory_misses, violations};
use virtual_time::{Order, Run, drive};

/// A service by itself, several on the same workers, or a pipeline.
pub(crate) struct Case<'a> {
    /// The problem; of several services one with the streams of all, each named as `service/stream`, and their workers one
    /// kind after the other; of a pipeline its streams, and the workers of one stage after the other.
    pub(crate) problem: Cow<'a, Problem>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    One,
    Shared(&'a SharedProblem, &'a Decision),
    /// With the batches and workers that are chosen.
    Staged(&'a PipelineProblem, Pipeline),
}

impl<'a> Case<'a> {
    pub(crate) fn one(problem: &'a Problem) -> Self {
        Self { problem: Cow::Borrowed(problem), kind: Kind::One }
    }

    /// By the rule and the turns of `decision`.
    pub(crate) fn several(problem: &'a SharedProblem, decision: &'a Decision) -> Self {
        Self { problem: Cow::Owned(flat(problem)), kind: Kind::Shared(problem, decision) }
    }

    pub(crate) fn staged(problem: &'a PipelineProblem) -> Self {
        let pipeline = chosen(problem);
        Self { problem: Cow::Owned(flat_pipeline(problem, &pipeline)), kind: Kind::Staged(problem, pipeline) }
    }

    /// The stages, if it has some.
    pub(crate) fn pipeline(&self) -> Option<&Pipeline> {
        if let Kind::Staged(_, pipeline) = &self.kind { Some(pipeline) } else { None }
    }

    /// How many kinds of background there are, numbered behind the streams: that of each service, or what is meant for each stage.
    pub(crate) fn strangers(&self) -> usize {
        self.parts().map_or(1, |parts| parts.len())
    }

    /// The names of the services, or of the stages.
    pub(crate) fn parts(&self) -> Option<Vec<&str>> {
        match &self.kind {
            Kind::One => None,
            Kind::Shared(problem, _) => Some(problem.services.iter().map(|s| s.name.as_str()).collect()),
            Kind::Staged(problem, _) => Some(problem.raw.pipeline.iter().map(|s| s.name.as_str()).collect()),
        }
    }

    /// The stream of this name; another one is background, where there is some.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        let streams = &self.problem.streams;
        let part = || self.parts().map_or(Some(0), |parts| part_of(parts, name));
        let background = || part().filter(|_| self.problem.background).map(|s| streams.len() + s);
        streams.iter().position(|(known, _)| known == name).or_else(background)
    }

    /// The name of a stream, or of background.
    pub(crate) fn name_of(&self, stream: usize) -> String {
        let streams = &self.problem.streams;
        if let Some((name, _)) = streams.get(stream) {
            return name.clone();
        }
        let part = self.parts().and_then(|parts| parts.get(stream - streams.len()).copied());
        let mut name = part.map_or_else(String::new, |part| format!("{part}/")) + "background";
        while streams.iter().any(|(known, _)| *known == name) {
            name.push('_');
        }
        name
    }

    /// Plays arrivals, of the streams and of background, in the daemon's scheduler; batches take just their bounds, but for those
    /// of a pipeline that hold nothing but background on its way to another stage.
    pub(crate) fn play(&self, arrivals: &[(Instant, usize)], order: Order) -> Result<Run, PlayError> {
        let (problem, decision) = match &self.kind {
            Kind::One => return run(&self.problem, arrivals, order),
            Kind::Shared(problem, decision) => (problem, decision),
            Kind::Staged(..) => return Ok(self.hear(arrivals, order, Heard::Nothing)?.0),
        };
        let of = |(s, service): (usize, &Service)| {
            service.streams.iter().map(move |(_, spec)| (s, spec.clone())).collect::<Vec<_>>()
        };
        let mut streams: Vec<_> = problem.services.iter().enumerate().flat_map(of).collect();
        if self.problem.background {
            streams.extend((0..problem.services.len()).map(|service| (service, StreamSpec::best_effort())));
        }
        let queue = arrivals.len().clamp(1, MAX_WAITING);
        let mut device = on_device_by(problem, decision, queue, &streams, false)?;
        let mut run = Run { streams: streams.len(), ..Run::default() };
        drive(&mut device, arrivals.iter().copied(), order, |_, _, bound| bound, &mut run)?;
        Ok(run)
    }

    /// Plays sources of a pipeline, heard by `heard`; of others nothing is heard.
    pub(crate) fn hear(
        &self,
        arrivals: &[(Instant, usize)],
        order: Order,
        heard: Heard,
    ) -> Result<(Run, Heard), PlayError> {
        let Kind::Staged(problem, pipeline) = &self.kind else {
            return Ok((self.play(arrivals, order)?, heard));
        };
        let mut streams: Vec<_> = problem.specs().map(|spec| (spec.clone(), None)).collect();
        if self.problem.background {
            streams.extend((0..pipeline.stages.len()).map(|stage| (StreamSpec::best_effort(), Some(stage))));
        }
        staged::play((problem, pipeline), &streams, arrivals, order, heard)
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
    let background = (problem.raw.unit, problem.raw.background);
    made_flat(background, deadline, workers.collect(), written.collect(), streams.collect())
}

/// The same of a pipeline.
fn flat_pipeline(problem: &PipelineProblem, pipeline: &Pipeline) -> Problem {
    let workers = pipeline.stages.iter().zip(&problem.profiles).map(|(stage, profile)| {
        let (count, batch, profile) = (stage.workers, stage.batch, profile.clone());
        Workers { count, batch, profile }
    });
    let background = (problem.raw.unit, problem.raw.background);
    let (written, streams) = (problem.raw.streams.clone(), problem.streams.clone());
    made_flat(background, pipeline.deadline, workers.collect(), written, streams)
}

fn made_flat(
    (unit, background): (Unit, bool),
    deadline: Span,
    workers: Vec<Workers>,
    written: Vec<raw::Stream>,
    streams: Vec<(String, StreamSpec)>,
) -> Problem {
    Problem {
        raw: raw::Problem {
            unit,
            deadline: Number::of_span(deadline, unit),
            guard: Number::default(),
            stalls: None,
            dispatch: raw::Dispatch::Eager,
            background,
            workers: Vec::new(),
            streams: written,
        },
        deadline,
        guard: Span::ZERO,
        stalls: None,
        dispatch: Dispatch::Eager,
        background,
        workers,
        streams,
    }
}
