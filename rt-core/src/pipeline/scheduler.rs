//! The scheduler of a pipeline: which source goes next at which stage, and when one can no longer be answered as a whole.

use alloc::vec::Vec;

use super::calm::Calm;
use super::choose::StageVariants;
use super::overruns::Overruns;
use super::prolong::Longer;
use super::sources::{SourceId, Sources};
use super::stage::Later;
use super::types::{Part, PipelineAction, PipelineConfig, PipelineConfigError, StageConfig};
use super::{MAX_FAN_OUT, Pipeline};
use crate::admission::Dispatch;
use crate::scheduler::first::{Behind, Rest};
use crate::scheduler::queue::MANDATORY;
use crate::stream::{MissReason, StreamId};
use crate::time::{Instant, Span};
use crate::{
    Action, Arrival, LatencyProfile, LoadMonitor, Outcome, Ran, Request, Resolution, Scheduler,
    SchedulerConfig, WorkerId,
};

/// The end of time.
pub(super) const NEVER: Instant = Instant::from_nanos(u64::MAX);
/// The most requests that may wait at a stage.
const MAX_WAITING: u64 = 1 << 16;

/// Decides which request of which stage of a pipeline runs, when, where, or not at all.
///
/// It is called as a [`Scheduler`] is, by the same contract. Sources come in by the first stage, which is a scheduler of its
/// own: streams, declarations, marks, safe mode. At every other stage mandatory requests wait in the order in which their
/// sources came, and fill up with others. A source that can no longer be answered as a whole ends at once, with all that waits
/// of it. None of the calls allocates but those that add streams. A step looks at every stage.
#[derive(Debug)]
pub struct PipelineScheduler {
    pub(super) pipeline: Pipeline,
    pub(super) first: Scheduler,
    /// Of each stage: its children but for joins, and the least time that what follows it takes.
    pub(super) children: Vec<Vec<usize>>,
    pub(super) rest: Vec<Span>,
    /// The same by the times that batches most likely take: by it is reckoned what nothing is promised for.
    pub(super) likely_rest: Vec<Span>,
    /// Whether some stage takes a source once.
    joins: bool,
    /// Of each stage how many requests a source becomes there on average.
    pub(super) means: Vec<f64>,
    /// The stages from the second on.
    pub(super) later: Vec<Later>,
    pub(super) sources: Sources,
    pub(super) calm: Calm,
    pub(super) overruns: Overruns,
    pub(super) longer: Longer,
    /// Of each stage, if any has some.
    pub(super) variants: Vec<StageVariants>,
    /// Since when a free worker should have been given what waits; the end of time if none should.
    armed: Instant,
    /// When the next source of a batch that has been reported as overdue passes its deadline.
    pub(super) passes: Instant,
}

impl PipelineScheduler {
    /// Allocates everything that running needs.
    ///
    /// # Errors
    /// If a number is outside its range, or no source could ever meet the deadline.
    pub fn new(config: &PipelineConfig) -> Result<Self, PipelineConfigError> {
        let pipeline = config.pipeline();
        let descendants = pipeline.descendants()?;
        let stages = &config.stages;
        let children: Vec<Vec<usize>> = (0..stages.len())
            .map(|i| {
                let takes = |&c: &usize| stages[c].parents.has(i) && !stages[c].parents.is_join();
                (0..stages.len()).filter(takes).collect()
            })
            .collect();
        let rest = rest_by(stages, |profile| profile.bound(1));
        let likely_rest = rest_by(stages, |profile| profile.likely(1));
        let mut means: Vec<f64> = Vec::with_capacity(stages.len());
        for stage in stages {
            let above: f64 = stage.parents.iter().map(|parent| means[parent]).sum();
            let above = if means.is_empty() || stage.parents.is_join() { 1.0 } else { above };
            means.push(above * stage.mean.clamp(0.0, f64::from(MAX_FAN_OUT)));
        }
        if rest[0] >= config.deadline {
            return Err(PipelineConfigError::Deadline { deadline: config.deadline, time: rest[0] });
        }
        let mut first = Scheduler::new(SchedulerConfig {
            deadline: config.deadline.saturating_sub(rest[0]),
            guard: config.guard,
            tolerance: Span::ZERO,
            stalls: config.stalls,
            workers: alloc::vec![stages[0].workers.clone()],
            dispatch: Dispatch::Eager,
            background: true,
            spread: false,
            queue: config.queue,
            streams: config.streams,
            safe_mode: config.safe_mode,
        })?;
        let room = |stage: usize| (descendants[stage] * config.queue as u64).min(MAX_WAITING) as usize;
        let later: Vec<_> = (1..stages.len())
            .map(|i| {
                let room = room(i).max(descendants[i] as usize);
                Later::new(&stages[i].workers, room, config.streams)
            })
            .collect();
        let all = later.iter().map(|stage| stage.pool.len()).sum();
        let behind = Behind { alive: all, all, cut: false };
        first.lead(behind, config.queue, pipeline.life(), Rest { most: rest[0], likely: likely_rest[0] });
        Ok(Self {
            means,
            sources: Sources::new(config.queue, stages.len()),
            calm: Calm::new(stages.len()),
            overruns: Overruns::default(),
            longer: Longer::new(&pipeline, &descendants),
            variants: Vec::new(),
            armed: NEVER,
            passes: NEVER,
            joins: stages.iter().any(|stage| stage.parents.is_join()),
            pipeline,
            first,
            children,
            rest,
            likely_rest,
            later,
        })
    }

    /// What admission is computed for.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The scheduler that sources come in by, to be looked at: their streams, counts and safe mode. Its deadline is less by the
    /// least time that the stages after the first take.
    #[must_use]
    pub fn first(&self) -> &Scheduler {
        &self.first
    }

    /// The same, for what concerns safe mode; requests, workers and streams are the pipeline's.
    pub fn first_mut(&mut self) -> &mut Scheduler {
        &mut self.first
    }

    /// Sources that have begun and are not answered as a whole.
    #[must_use]
    pub fn open_sources(&self) -> usize {
        self.sources.len()
    }

    /// Whether a source has ended that had begun.
    #[must_use]
    pub fn is_ended(&self, source: SourceId) -> bool {
        self.sources.get(source).is_none()
    }

    /// Sources that have been taken in and are not answered as a whole: those that wait to begin too.
    #[must_use]
    pub fn open(&self) -> usize {
        self.first.waiting() + self.open_sources()
    }

    /// Requests waiting at a stage.
    #[must_use]
    pub fn waiting(&self, stage: usize) -> usize {
        stage.checked_sub(1).map_or(self.first.waiting(), |later| self.later[later].waiting.len())
    }

    /// Those that the promises count on.
    pub(super) fn waiting_mandatory(&self, stage: usize) -> usize {
        let later = |later: usize| self.later[later].waiting.class(MANDATORY).len();
        stage.checked_sub(1).map_or(self.first.waiting_mandatory(), later)
    }

    /// Requests waiting at all stages.
    #[must_use]
    pub fn waiting_in_all(&self) -> usize {
        (0..=self.later.len()).map(|stage| self.waiting(stage)).sum()
    }

    /// [`Scheduler::is_ruled_out`] of a source, which must be answered as a whole by the deadline of the pipeline: it is, if it
    /// could no longer pass the first stage in what the stages behind that most likely leave of the deadline.
    #[must_use]
    pub fn is_ruled_out(&self, now: Instant, id: StreamId, sent: Instant) -> bool {
        self.first.is_ruled_out(now, id, sent)
    }

    /// [`Scheduler::set_rate_warning`], of sources.
    pub fn set_rate_warning(&mut self, warning: Option<(LoadMonitor, u64)>) {
        self.first.set_rate_warning(warning);
    }

    /// [`Scheduler::rate_seen_per_s`], of sources.
    #[must_use]
    pub fn rate_seen_per_s(&mut self, now: Instant) -> Option<f64> {
        self.first.rate_seen_per_s(now)
    }

    /// The batch that `worker` of `stage` runs, in order; empty if it runs none.
    pub fn batch(&self, stage: usize, worker: WorkerId) -> impl ExactSizeIterator<Item = Part> + Clone + '_ {
        self.pool(stage).batch(worker).iter().map(|part| {
            let source = source_of(part);
            Part {
                source,
                token: self.sources.get(source).map(|request| request.token),
                index: part.seq as u32,
            }
        })
    }

    /// [`Scheduler::handle_arrival`] of a source.
    pub fn handle_arrival(&mut self, now: Instant, arrival: Arrival) -> Option<Resolution> {
        self.handle_wanted(now, arrival, (arrival.at, self.pipeline.deadline), true)
    }

    /// [`Scheduler::handle_wanted`] of a source, whose answer is that as a whole. One that nothing is promised for is given up when that
    /// would most likely come later than wanted.
    pub fn handle_wanted(
        &mut self,
        now: Instant,
        arrival: Arrival,
        wanted: (Instant, Span),
        room: bool,
    ) -> Option<Resolution> {
        let before = self.first.waiting_mandatory();
        let resolution = self.first.handle_wanted(now, arrival, wanted, room);
        let late = now.since(arrival.at) > self.pipeline.guard;
        let idle = resolution.is_none() && self.first.pool().first_alike().flatten().is_some();
        if idle || late && self.first.has_taken_in(before, resolution.as_ref()) {
            self.arm(arrival.at);
        }
        resolution.map(|resolution| self.as_whole(resolution))
    }

    /// Takes in the end of the batch that `worker` of `stage` was running: `became` says of each of its requests, by their place in
    /// the batch, how many requests of a child stage its result becomes. Of a join it is asked once for each source, when all of its
    /// parents are done with that: at the place of the last request of it, which may be of a stage above the parents. What is beyond
    /// the child's `fan_out` is dropped; it suspends the promise to the stream of the source. A worker that runs nothing is left
    /// alone.
    pub fn handle_completion(
        &mut self,
        now: Instant,
        (stage, worker): (usize, WorkerId),
        ran: Ran,
        mut became: impl FnMut(usize, usize) -> u32,
    ) {
        let Some((started, due, reported)) = self.pool_mut(stage).end(now, worker) else { return };
        let (Ran::Done(time) | Ran::Failed(time)) = ran;
        let failed = matches!(ran, Ran::Failed(_));
        self.first.count_overrun(time, due.since(started));
        // Within the margin it may take longer.
        let due = if self.note_overrun(now, (started, due, reported)) { due } else { due.max(now) };
        self.first.stage_ended(now, stage, (started, due, reported), time);
        if failed {
            let kinds = Scheduler::kinds_of(self.pool(stage).batch(worker));
            self.first.batch_failed(now, kinds);
        }
        self.calm.end(stage, worker);
        for place in 0..self.pool(stage).batch(worker).len() {
            let source = source_of(&self.pool(stage).batch(worker)[place]);
            let Some(&request) = self.sources.get(source) else { continue };
            if failed {
                self.close(now, source, Outcome::Missed(MissReason::EngineFailed));
                continue;
            }
            for child in 0..self.children[stage].len() {
                let child = self.children[stage][child];
                self.fan_out(now, source, &request, child, became(place, child));
            }
            // It may have ended for want of room.
            if self.sources.get(source).is_none() {
                continue;
            }
            let mut over = self.sources.end(source, stage);
            if self.joins {
                while let Some(join) = self.sources.next_join(source, &self.pipeline.stages) {
                    self.fan_out(now, source, &request, join, became(place, join));
                    if self.sources.get(source).is_none() {
                        break;
                    }
                }
                over = self.sources.get(source).is_some() && self.sources.is_over(source);
            }
            if over {
                let outcome = match now > request.wanted {
                    true => Outcome::Missed(MissReason::Late),
                    false => Outcome::Served,
                };
                self.close(now, source, outcome);
            }
        }
        self.pool_mut(stage).batch_mut(worker).clear();
        self.arm(now);
    }

    /// The next thing to do at `now`; see the calling contract of [`Scheduler`].
    pub fn poll(&mut self, now: Instant) -> PipelineAction {
        if self.armed < now {
            let delay = now.since(core::mem::replace(&mut self.armed, NEVER));
            let guard = self.pipeline.guard;
            let stalled = delay > guard && self.first.has_stalled(now - delay, now - delay + guard, now);
            self.first.was_late(now, delay, stalled);
        }
        self.report_overruns(now);
        if now >= self.passes {
            self.miss_overdue(now);
        }
        loop {
            let first = match self.first.poll(now) {
                Action::Resolve(resolution) => return PipelineAction::Resolve(self.as_whole(resolution)),
                Action::Event(event) => return PipelineAction::Event(event),
                // It starts nothing by itself.
                Action::Start { .. } => continue,
                Action::WakeAt(at) => at.unwrap_or(NEVER),
            };
            self.expire(now);
            if let Some((stage, worker)) = self.start(now) {
                self.armed = NEVER;
                return PipelineAction::Start { stage, worker };
            }
            if self.settle(now) || self.first.waits_until(now).is_none() {
                continue;
            }
            self.armed = NEVER;
            let next = self.later.iter().map(Later::next).fold(first, Instant::min);
            let next = next.min(self.overrun_alarm(now)).min(self.passes);
            return PipelineAction::WakeAt((next < NEVER).then_some(next));
        }
    }

    /// Notes that a free worker should have been given what came at `since`.
    pub(super) fn arm(&mut self, since: Instant) {
        self.armed = self.armed.min(since);
    }

    /// By when a source must be answered as a whole.
    pub(super) fn due_as_whole(&self, request: &Request) -> Instant {
        if request.mandatory { request.deadline + self.rest[0] } else { request.wanted }
    }

    /// By the deadline of the pipeline.
    fn as_whole(&self, mut resolution: Resolution) -> Resolution {
        let request = &mut resolution.request;
        request.deadline = self.due_as_whole(request);
        resolution
    }
}

/// Of each stage the least time that what follows it takes, where one request takes `time`.
fn rest_by(stages: &[StageConfig], time: impl Fn(&LatencyProfile) -> Span) -> Vec<Span> {
    let mut rest = alloc::vec![Span::ZERO; stages.len()];
    for (i, stage) in stages.iter().enumerate().skip(1).rev() {
        for parent in stage.parents.iter() {
            rest[parent] = rest[parent].max(time(&stage.workers.profile) + rest[i]);
        }
    }
    rest
}

/// Whose a request of a batch or of a later stage is.
pub(super) fn source_of(part: &Request) -> SourceId {
    SourceId { slot: part.token as u32, generation: part.place }
}

/// A request of that source, number `index` at its stage, with the deadlines of `like`.
pub(super) fn part_of(source: SourceId, index: u32, like: &Request) -> Request {
    let SourceId { slot, generation } = source;
    Request { token: slot.into(), place: generation, seq: index.into(), ..*like }
}
