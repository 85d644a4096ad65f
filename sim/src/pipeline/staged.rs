//! The scheduler of a pipeline as a policy: workers numbered stage by stage, a source the same request at all of them.

use planner::PipelineProblem;
use rt_core::pipeline::{Pipeline, PipelineAction, PipelineConfig, PipelineScheduler, Stage, StageConfig};
use rt_core::{
    Arrival, Event, Instant, LatencyProfile, MissReason, Outcome, Ran, Resolution, SafeModeConfig, Span,
    StreamId, StreamSpec, WorkerId, Workers,
};
use virtual_time::{Batch, Order, Run, drive};

use super::heard::Heard;
use crate::policy::{End, PlayError, Policy, Step, WeirError};
use crate::record::MAX_WAITING;

/// What takes less than a nanosecond takes one.
const SHORTEST: Span = Span::from_nanos(1);

/// The scheduler and what it is told of each source.
///
/// Batches of `b` take just `P(b)`, and each result becomes as many requests as it may. Only sources that are meant for a single
/// stage hurry to it: a batch of none but these takes a nanosecond on the way, and they become nothing off the way or behind.
#[derive(Debug)]
pub(crate) struct Staged<'a> {
    problem: &'a PipelineProblem,
    stages: &'a [Stage],
    scheduler: PipelineScheduler,
    /// Of each stream, and the stage that its sources are meant for if it is a single one.
    streams: Vec<(StreamId, Option<usize>)>,
    /// Of each worker its stage, and its number there.
    workers: Vec<(usize, WorkerId)>,
    /// Of each stage the number of its first worker among all.
    first: Vec<WorkerId>,
    /// Of each source its stream, and when it was begun.
    sources: Vec<(usize, Option<Instant>)>,
    pub(crate) heard: Heard,
}

/// Plays sources, each of one of `streams`, through the pipeline of `problem` with these stages.
///
/// # Errors
/// If no source could ever meet the deadline, there are too many streams, or arrivals go back.
pub(crate) fn play(
    (problem, pipeline): (&PipelineProblem, &Pipeline),
    streams: &[(StreamSpec, Option<usize>)],
    arrivals: &[(Instant, usize)],
    order: Order,
    heard: Heard,
) -> Result<(Run, Heard), PlayError> {
    let mut staged = Staged::new((problem, pipeline), streams, arrivals.len())?;
    staged.heard = heard;
    let mut run = Run { streams: streams.len(), ..Run::default() };
    drive(&mut staged, arrivals.iter().copied(), order, |_, _, bound| bound, &mut run)?;
    // A source runs in many batches: told is when the first began and the last ended.
    run.batches.clear();
    for (request, &(_, begun)) in run.requests.iter_mut().zip(&staged.sources) {
        let answered = matches!(request.outcome, Outcome::Served | Outcome::Missed(MissReason::Late));
        request.batch = begun.filter(|_| answered).map(|start| {
            run.batches.push(Batch { worker: 0, variant: 0, size: 1, start, finish: request.ended });
            run.batches.len() - 1
        });
    }
    Ok((run, staged.heard))
}

impl<'a> Staged<'a> {
    fn new(
        (problem, pipeline): (&'a PipelineProblem, &'a Pipeline),
        streams: &[(StreamSpec, Option<usize>)],
        sources: usize,
    ) -> Result<Self, PlayError> {
        let span = Span::from_millis(1_000);
        let stage = |(stage, profile): (&Stage, &LatencyProfile)| StageConfig {
            parents: stage.parents,
            fan_out: stage.fan_out,
            mean: stage.fan_out.into(),
            workers: Workers { count: stage.workers, batch: stage.batch, profile: profile.clone() },
        };
        let mut scheduler = PipelineScheduler::new(&PipelineConfig {
            deadline: pipeline.deadline,
            guard: pipeline.guard,
            stalls: pipeline.stalls,
            stages: pipeline.stages.iter().zip(&problem.profiles).map(stage).collect(),
            queue: sources.clamp(1, MAX_WAITING),
            streams: streams.len().max(1),
            safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        })?;
        let mut named = Vec::with_capacity(streams.len());
        for (spec, meant) in streams {
            named.push((scheduler.add_stream(Instant::ZERO, spec.clone()).map_err(WeirError::from)?, *meant));
        }
        let (mut workers, mut first) = (Vec::new(), Vec::new());
        for (i, stage) in pipeline.stages.iter().enumerate() {
            first.push(workers.len());
            workers.extend((0..stage.workers).map(|worker| (i, worker)));
        }
        let (sources, heard) = (Vec::with_capacity(sources), Heard::default());
        Ok(Self {
            problem,
            stages: &pipeline.stages,
            scheduler,
            streams: named,
            workers,
            first,
            sources,
            heard,
        })
    }

    /// The stage that a source is meant for, if it is a single one.
    fn meant(&self, token: u64) -> Option<usize> {
        self.streams[self.sources[token as usize].0].1
    }

    fn end(&mut self, now: Instant, resolution: &Resolution) -> End {
        let (token, outcome) = (resolution.request.token, resolution.outcome);
        let end = End { token, mandatory: resolution.request.mandatory, outcome };
        self.heard.over(now, &end);
        end
    }
}

/// How many requests of `stage` a result of its parent becomes, of a source that is meant for one stage if `meant` says so.
fn becomes(stages: &[Stage], stage: usize, meant: Option<usize>) -> u32 {
    let mut on_way = meant;
    while on_way.is_some_and(|way| way > stage) {
        on_way = on_way.and_then(|way| stages[way].parents.first());
    }
    if meant.is_none() || on_way == Some(stage) { stages[stage].fan_out } else { 0 }
}

impl Policy for Staged<'_> {
    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn arrive(&mut self, now: Instant, stream: usize, token: u64) -> Option<End> {
        self.sources.push((stream, None));
        self.heard.comes(now, stream);
        let arrival = Arrival::new(self.streams[stream].0, token, now);
        self.scheduler.handle_arrival(now, arrival).map(|refused| self.end(now, &refused))
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span) {
        let (stage, place) = self.workers[worker];
        let tokens: Vec<_> = self.scheduler.batch(stage, place).map(|part| part.token).collect();
        let meant: Vec<_> = tokens.iter().map(|token| token.and_then(|token| self.meant(token))).collect();
        let (stages, heard) = (self.stages, &mut self.heard);
        heard.ends(now, (stage, place));
        self.scheduler.handle_completion(now, (stage, place), Ran::Done(time), |of, child| {
            let count = becomes(stages, child, meant[of]);
            // Nobody asks of what has ended.
            tokens[of].into_iter().for_each(|token| heard.becomes(now, token, child, count));
            count
        });
        heard.ended(now, (stage, place));
    }

    fn poll(&mut self, now: Instant) -> Step {
        loop {
            return match self.scheduler.poll(now) {
                PipelineAction::Start { stage, worker } => {
                    let parts: Vec<_> = self.scheduler.batch(stage, worker).collect();
                    let parts: Vec<_> =
                        parts.into_iter().filter_map(|part| Some((part.token?, part.index))).collect();
                    for &(token, _) in parts.iter().filter(|_| stage == 0) {
                        self.sources[token as usize].1 = Some(now);
                    }
                    let worker_of_all = self.first[stage] + worker;
                    let length = self.bound(worker_of_all);
                    self.heard.begins(now, (stage, worker), length, &parts);
                    Step::Start { worker: worker_of_all }
                }
                PipelineAction::Resolve(resolution) => Step::End(self.end(now, &resolution)),
                PipelineAction::Event(Event::SafeMode(transition)) => Step::SafeMode(transition),
                PipelineAction::Event(Event::Suspension(told)) => {
                    match self.streams.iter().position(|&(id, _)| id == told.stream) {
                        Some(stream) => Step::Suspension { stream, state: told.state, alarm: told.alarm },
                        None => continue,
                    }
                }
                PipelineAction::Event(Event::MissesLeft { .. }) => continue,
                PipelineAction::WakeAt(until) => Step::Wait { until },
            };
        }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        let (stage, place) = self.workers[worker];
        self.scheduler.batch(stage, place).filter_map(|part| part.token)
    }

    fn bound(&self, worker: WorkerId) -> Span {
        let (stage, place) = self.workers[worker];
        let batch = self.scheduler.batch(stage, place);
        let (size, mut tokens) = (batch.len(), self.batch(worker));
        let hurries = |token| self.meant(token).is_some_and(|meant| meant != stage);
        if tokens.all(hurries) { SHORTEST } else { self.problem.profiles[stage].bound(size) }
    }
}
