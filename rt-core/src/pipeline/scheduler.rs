//! The scheduler of a pipeline: which source goes next at which stage, and when one can no longer be answered as a whole.

use alloc::vec::Vec;

use super::calm::Calm;
use super::prolong::Longer;
use super::sources::{SourceId, Sources};
use super::stage::Later;
use super::{MAX_FAN_OUT, MAX_STAGES, Pipeline, PipelineError, Stage};
use crate::admission::Dispatch;
use crate::safe_mode::SafeModeConfig;
use crate::scheduler::first::Behind;
use crate::scheduler::queue::MANDATORY;
use crate::stream::{MissReason, StreamId, StreamSpec};
use crate::time::{Instant, Span};
use crate::{
    Action, Arrival, ConfigError, Event, Joined, Newcomer, Outcome, Ran, Request, Resolution, Retired,
    Scheduler, SchedulerConfig, StreamError, WorkerId, Workers,
};

/// The end of time.
const NEVER: Instant = Instant::from_nanos(u64::MAX);
/// The most requests that may wait at a stage.
const MAX_WAITING: u64 = 1 << 16;

/// What a stage is served by.
#[derive(Clone, Debug, PartialEq)]
pub struct StageConfig {
    /// The stage whose results it takes, which stands before it; `None` for the first, which takes the sources.
    pub parent: Option<usize>,
    /// `F`: the most requests that a result of the parent becomes here; 1 for the first.
    pub fan_out: u32,
    /// How many it becomes on average: a hint for what nothing is promised for, at most `fan_out`.
    pub mean: f64,
    /// Its workers, batches and their times.
    pub workers: Workers,
}

/// Everything that is fixed for the life of a pipeline's scheduler.
#[derive(Clone, Debug)]
pub struct PipelineConfig {
    /// From the arrival of a source to the last answer to what it became.
    pub deadline: Span,
    /// By how much dispatch may come late at each stage.
    pub guard: Span,
    /// In `1..=MAX_STAGES`, every parent before its children.
    pub stages: Vec<StageConfig>,
    /// Sources waiting at most, and sources begun and not answered at most, in `1..=65536`.
    pub queue: usize,
    /// Streams at most, in `1..=4096`.
    pub streams: usize,
    /// When safe mode ends.
    pub safe_mode: SafeModeConfig,
}

/// Why a pipeline has no scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PipelineConfigError {
    /// The tree is none, or a number of it outside its range.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The first stage could not even be scheduled by itself in what the others leave of the deadline.
    #[error("first stage: {0}")]
    First(#[from] ConfigError),
    /// Not even one request at a time fits into the deadline.
    #[error("deadline {deadline} is below the {time} that the stages after the first take")]
    Deadline {
        /// The deadline.
        deadline: Span,
        /// The least time on the longest path, without the first stage.
        time: Span,
    },
}

/// One request of a batch: a source, or one of those that it became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The source.
    pub source: SourceId,
    /// The caller's handle of the source; `None` if the source has ended meanwhile, and nobody waits for the result.
    pub token: Option<u64>,
    /// Its number among what the source became at this stage, from 0: in the order of the calls that said so, and of their
    /// results.
    pub index: u32,
}

/// What the caller must do next; see [`Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineAction {
    /// Run [`PipelineScheduler::batch`] of this worker of this stage.
    Start {
        /// The stage.
        stage: usize,
        /// The worker, among those of the stage.
        worker: WorkerId,
    },
    /// Tell the client how its source ended.
    Resolve(Resolution),
    /// Announce this. In the evidence of a batch that took too long the window is the stage, from 0.
    Event(Event),
    /// Nothing more now; poll again at this instant, or only after the next `handle_*` if `None`.
    WakeAt(Option<Instant>),
}

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
    /// Of each stage: its children, and the least time that what follows it takes.
    children: Vec<Vec<usize>>,
    pub(super) rest: Vec<Span>,
    /// Of each stage how many requests of a source wait there mostly.
    usual: Vec<usize>,
    /// Of each worker of the first stage the sources that it runs.
    begun: Vec<Vec<SourceId>>,
    /// The stages from the second on.
    pub(super) later: Vec<Later>,
    pub(super) sources: Sources,
    calm: Calm,
    pub(super) longer: Longer,
    /// Since when a free worker should have been given what waits; the end of time if none should.
    armed: Instant,
}

impl PipelineConfig {
    /// What admission is computed for.
    #[must_use]
    pub fn pipeline(&self) -> Pipeline {
        let stage = |stage: &StageConfig| Stage {
            parent: stage.parent,
            fan_out: stage.fan_out,
            workers: stage.workers.count,
            batch: stage.workers.batch,
            time: stage.workers.batch_time(),
        };
        Pipeline {
            deadline: self.deadline,
            guard: self.guard,
            stages: self.stages.iter().map(stage).collect(),
        }
    }
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
            .map(|i| (0..stages.len()).filter(|&c| stages[c].parent == Some(i)).collect())
            .collect();
        let mut rest = alloc::vec![Span::ZERO; stages.len()];
        for i in (1..stages.len()).rev() {
            if let Some(parent) = stages[i].parent {
                rest[parent] = rest[parent].max(stages[i].workers.profile.bound(1) + rest[i]);
            }
        }
        let mut usual: Vec<f64> = Vec::with_capacity(stages.len());
        for stage in stages {
            let above = stage.parent.map_or(1.0, |parent| usual[parent]);
            usual.push(above * stage.mean.clamp(0.0, f64::from(MAX_FAN_OUT)));
        }
        if rest[0] >= config.deadline {
            return Err(PipelineConfigError::Deadline { deadline: config.deadline, time: rest[0] });
        }
        let mut first = Scheduler::new(SchedulerConfig {
            deadline: config.deadline.saturating_sub(rest[0]),
            guard: config.guard,
            tolerance: Span::ZERO,
            stalls: None,
            workers: alloc::vec![stages[0].workers.clone()],
            dispatch: Dispatch::Eager,
            background: true,
            queue: config.queue,
            streams: config.streams,
            safe_mode: config.safe_mode,
        })?;
        let room = |stage: usize| (descendants[stage] * config.queue as u64).min(MAX_WAITING) as usize;
        let later: Vec<_> = (1..stages.len())
            .map(|i| Later::new(&stages[i].workers, room(i).max(descendants[i] as usize), config.streams))
            .collect();
        let all = later.iter().map(|stage| stage.pool.len()).sum();
        first.lead(Behind { alive: all, all, cut: false }, config.queue);
        let batch = || Vec::with_capacity(stages[0].workers.profile.max_batch());
        Ok(Self {
            begun: (0..stages[0].workers.count).map(|_| batch()).collect(),
            usual: usual.into_iter().map(|mean| mean as usize + 1).collect(),
            sources: Sources::new(config.queue, stages.len()),
            calm: Calm::new(stages.len()),
            longer: Longer::new(&pipeline, &descendants),
            armed: NEVER,
            pipeline,
            first,
            children,
            rest,
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

    /// A stream to be added: all that is to be allocated for it.
    #[must_use]
    pub fn newcomer(&self, spec: StreamSpec) -> Newcomer {
        let path = self.pipeline.stages.iter().map(|stage| stage.time + self.pipeline.guard);
        let life = path.fold(self.pipeline.deadline, |all, time| all + time);
        Newcomer::lasting(self.first.config(), spec, life)
    }

    /// [`Scheduler::try_add_stream`] of one that was admitted beside [`Scheduler::load`] of the first stage.
    ///
    /// # Errors
    /// As there.
    pub fn try_add_stream(&mut self, now: Instant, newcomer: Newcomer) -> Result<Joined, StreamError> {
        // What was granted more than a full batch was safe for those that were there.
        if self.longer.since_calm {
            self.first.await_clear();
        }
        let joined = self.first.try_add_stream(now, newcomer);
        self.longer.recount = true;
        if let Ok(Joined::Added(id, _)) = &joined {
            self.later.iter_mut().for_each(|stage| stage.planner.forget(usize::from(id.slot)));
        }
        joined
    }

    /// [`Scheduler::add_stream`].
    ///
    /// # Errors
    /// As there.
    pub fn add_stream(&mut self, now: Instant, spec: StreamSpec) -> Result<StreamId, StreamError> {
        match self.try_add_stream(now, self.newcomer(spec))? {
            Joined::Added(id, _) => Ok(id),
            Joined::Wait(_) | Joined::Stale(_) => {
                self.first.withdraw();
                Err(StreamError::Wait)
            }
        }
    }

    /// [`Scheduler::remove_stream`]: what has begun of it is cancelled too. It counts for newcomers until nothing is in their way at
    /// any stage. Linear in the sources that have begun.
    pub fn remove_stream(&mut self, now: Instant, id: StreamId) -> Retired {
        self.close_all(now, MissReason::Cancelled, |request| request.stream == id);
        self.first.remove_stream(id)
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

    /// Requests waiting at a stage.
    #[must_use]
    pub fn waiting(&self, stage: usize) -> usize {
        if stage == 0 { self.first.waiting() } else { self.later[stage - 1].waiting.len() }
    }

    /// The batch that `worker` of `stage` runs, in order; empty if it runs none.
    pub fn batch(&self, stage: usize, worker: WorkerId) -> impl ExactSizeIterator<Item = Part> + '_ {
        let batch = if stage == 0 { &[][..] } else { self.later[stage - 1].pool.batch(worker) };
        let begun = if stage == 0 { &self.begun[worker][..] } else { &[] };
        (0..batch.len() + begun.len()).map(move |place| {
            let (source, index) = match begun.get(place) {
                Some(&source) => (source, 0),
                None => (source_of(&batch[place]), batch[place].seq as u32),
            };
            Part { source, token: self.sources.get(source).map(|request| request.token), index }
        })
    }

    /// [`Scheduler::handle_arrival`] of a source.
    pub fn handle_arrival(&mut self, now: Instant, arrival: Arrival) -> Option<Resolution> {
        self.handle_wanted(now, arrival, (arrival.at, self.pipeline.deadline), true)
    }

    /// [`Scheduler::handle_wanted`] of a source.
    pub fn handle_wanted(
        &mut self,
        now: Instant,
        arrival: Arrival,
        (sent, within): (Instant, Span),
        room: bool,
    ) -> Option<Resolution> {
        let within = within.min(self.pipeline.deadline).saturating_sub(self.rest[0]);
        let resolution = self.first.handle_wanted(now, arrival, (sent, within), room);
        if resolution.is_none() && self.first.first_free().is_some() {
            self.arm(arrival.at);
        }
        resolution.map(|resolution| self.as_whole(resolution))
    }

    /// Takes in the end of the batch that `worker` of `stage` was running: `became` says of each of its requests, by their place in
    /// the batch, how many requests of a child stage its result becomes. What is beyond the child's `fan_out` is dropped; it
    /// suspends the promise to the stream of the source. A worker that runs nothing is left alone.
    pub fn handle_completion(
        &mut self,
        now: Instant,
        (stage, worker): (usize, WorkerId),
        ran: Ran,
        mut became: impl FnMut(usize, usize) -> u32,
    ) {
        let count = self.batch(stage, worker).len();
        if !self.end(now, stage, worker, ran) {
            return;
        }
        self.calm.end(stage, worker);
        for place in 0..count {
            let source = match self.begun[..].get(worker).filter(|_| stage == 0) {
                Some(begun) => begun[place],
                None => source_of(&self.later[stage - 1].pool.batch(worker)[place]),
            };
            let Some(&request) = self.sources.get(source) else { continue };
            if ran == Ran::Failed {
                self.close(now, source, Outcome::Missed(MissReason::EngineFailed));
                continue;
            }
            for child in 0..self.children[stage].len() {
                let child = self.children[stage][child];
                self.fan_out(now, source, &request, child, became(place, child));
            }
            // It may have ended for want of room.
            if self.sources.get(source).is_some() && self.sources.end(source, stage) {
                let outcome = match now > request.wanted + self.rest[0] {
                    true => Outcome::Missed(MissReason::Late),
                    false => Outcome::Served,
                };
                self.close(now, source, outcome);
            }
        }
        self.forget_batch(stage, worker);
        self.arm(now);
    }

    /// Takes in that a worker of a stage is gone; the sources of its batch are missed. With the last of any stage so are all
    /// that wait.
    pub fn handle_worker_lost(&mut self, now: Instant, (stage, worker): (usize, WorkerId)) {
        let count = self.batch(stage, worker).len();
        let sources =
            (0..count).filter_map(|place| self.batch(stage, worker).nth(place)).map(|part| part.source);
        let sources: heapless::Vec<SourceId, { crate::MAX_BATCH }> = sources.collect();
        for source in sources {
            self.close(now, source, Outcome::Missed(MissReason::WorkerLost));
        }
        self.calm.end(stage, worker);
        if stage == 0 {
            // Its requests have ended already.
            self.first.fail_stage(now, worker, 0);
            self.begun[worker].clear();
            self.first.handle_worker_lost(now, worker);
        } else if self.later[stage - 1].pool.get(worker).is_some() {
            self.later[stage - 1].pool.lose(now, worker);
            self.forget_batch(stage, worker);
            self.count_workers(now, false);
        }
    }

    /// Takes in that a lost worker of a stage is back.
    pub fn handle_worker_ready(&mut self, now: Instant, (stage, worker): (usize, WorkerId)) {
        if stage == 0 {
            self.first.handle_worker_ready(now, worker);
        } else if self.later[stage - 1].is_lost(worker) {
            self.later[stage - 1].pool.regain(now, worker);
            self.count_workers(now, false);
        }
        self.arm(now);
    }

    /// The next thing to do at `now`; see the calling contract of [`Scheduler`].
    pub fn poll(&mut self, now: Instant) -> PipelineAction {
        if self.armed < now {
            let delay = now.since(core::mem::replace(&mut self.armed, NEVER));
            self.first.was_late(now, delay);
        }
        for stage in 1..=self.later.len() {
            while let Some((started, due)) = self.later[stage - 1].pool.report_overdue(now, |_, _| false) {
                self.first.stage_ran_over(now, stage, (started, due, false), None);
            }
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
            let next =
                self.later.iter().map(|stage| stage.next(self.pipeline.guard)).fold(first, Instant::min);
            return PipelineAction::WakeAt((next < NEVER).then_some(next));
        }
    }

    /// Ends what a worker ran: whether it ran anything. Its requests are still there.
    fn end(&mut self, now: Instant, stage: usize, worker: WorkerId, ran: Ran) -> bool {
        let time = match ran {
            Ran::Done(time) => Some(time),
            Ran::Failed => None,
        };
        if stage == 0 {
            return match self.begun.get(worker).is_some_and(|begun| !begun.is_empty()) {
                true if time.is_none() => self.first.fail_stage(now, worker, 1),
                true => self.first.end_stage(now, worker, time.unwrap_or(Span::ZERO)),
                false => false,
            };
        }
        let Some(ended) = self.later[stage - 1].pool.end(now, worker) else { return false };
        if now > ended.1 && time.is_some() {
            self.first.stage_ran_over(now, stage, ended, time);
        }
        if time.is_none() {
            self.count_workers(now, true);
        }
        true
    }

    /// A result of a source became so many requests of a stage.
    fn fan_out(&mut self, now: Instant, source: SourceId, request: &Request, stage: usize, count: u32) {
        let most = self.pipeline.stages[stage].fan_out;
        if count > most {
            self.first.fanned_out(now, request.stream, stage, (most.into(), count.into()));
        }
        let deadline = |at: Instant| at + self.rest[0].saturating_sub(self.rest[stage]);
        let (deadline, wanted) = (deadline(request.deadline), deadline(request.wanted));
        for _ in 0..count.min(most) {
            if self.later[stage - 1].waiting.is_full() && !self.make_room(now, stage) {
                self.close(now, source, Outcome::Missed(MissReason::QueueFull));
            }
            // Room may have been made by ending this very source.
            if self.sources.get(source).is_none() {
                return;
            }
            let seq = self.sources.come(source, stage).into();
            let SourceId { slot, generation } = source;
            let part = Request { token: slot.into(), place: generation, seq, deadline, wanted, ..*request };
            self.later[stage - 1].push(part);
        }
    }

    /// Ends the source that nothing is promised for and of which the first request waits at a full stage; false if there is none.
    fn make_room(&mut self, now: Instant, stage: usize) -> bool {
        let other = self.later[stage - 1].waiting.give_way(MANDATORY);
        other.inspect(|other| self.give_up(now, stage, other, MissReason::QueueFull)).is_some()
    }

    /// A request of a stage has been taken out of what waits and given up: with it all that waits of its source.
    fn give_up(&mut self, now: Instant, stage: usize, part: &Request, reason: MissReason) {
        let source = source_of(part);
        if self.sources.get(source).is_some() {
            self.sources.leave(source, stage);
            self.close(now, source, Outcome::Missed(reason));
        }
    }

    /// Ends a source, with all that waits of it; what runs ends unheard.
    fn close(&mut self, now: Instant, source: SourceId, outcome: Outcome) {
        let Some(&request) = self.sources.get(source) else { return };
        for stage in 1..=self.later.len() {
            let deadline = request.deadline + self.rest[0].saturating_sub(self.rest[stage]);
            for _ in 0..self.sources.waiting(source, stage) {
                let is = |part: &Request| source_of(part) == source;
                self.later[stage - 1].waiting.take_back(deadline, is);
            }
        }
        self.sources.close(source);
        self.first.close(now, &request, outcome, self.rest[0]);
    }

    /// Ends all sources that have begun and are such.
    fn close_all(&mut self, now: Instant, reason: MissReason, are: impl Fn(&Request) -> bool) {
        for slot in 0..self.sources.room() {
            if let Some(source) =
                self.sources.at(slot).filter(|&source| self.sources.get(source).is_some_and(&are))
            {
                self.close(now, source, Outcome::Missed(reason));
            }
        }
    }

    /// Ends the sources that can no longer be answered as a whole.
    fn expire(&mut self, now: Instant) {
        for stage in 1..=self.later.len() {
            while let Some(part) = self.later[stage - 1].pop_expired(now) {
                self.give_up(now, stage, &part, MissReason::Expired);
            }
        }
    }

    /// Starts a batch, if a worker is free and something waits.
    fn start(&mut self, now: Instant) -> Option<(usize, WorkerId)> {
        if let Some(worker) = self.first.first_free().filter(|_| self.first.waiting() > 0)
            && self.start_first(now, worker)
        {
            return Some((0, worker));
        }
        (1..=self.later.len()).find_map(|stage| Some((stage, self.start_later(now, stage)?)))
    }

    /// Starts a batch of a later stage.
    fn start_later(&mut self, now: Instant, stage: usize) -> Option<WorkerId> {
        let whole = self.first.safe_mode().state().is_suspended();
        loop {
            let worker = self.later[stage - 1].form(now, whole)?;
            if self.later[stage - 1].given_up.is_empty() {
                let later = &mut self.later[stage - 1];
                later.pool.batch(worker).iter().for_each(|part| self.sources.run(source_of(part), stage));
                later.pool.start(now, worker);
                return Some(worker);
            }
            while let Some((part, reason)) = self.later[stage - 1].given_up.pop() {
                self.give_up(now, stage, &part, reason);
            }
        }
    }

    /// Starts a batch of sources.
    fn start_first(&mut self, now: Instant, worker: WorkerId) -> bool {
        if self.first.waiting() > self.first.waiting_mandatory() {
            self.first.shed_before(now, self.likely_reach(now));
        }
        let background = self.first.first_mandatory() == NEVER;
        if self.first.waiting() == 0 || self.first.take_turn(now, worker, background).is_none() {
            return false;
        }
        for place in 0..self.first.batch(worker).len() {
            let request = self.first.batch(worker)[place];
            let source = self.sources.begin(&request).or_else(|| {
                // Of those that nothing is promised for the one that must be answered last gives way.
                let optional = self.sources.iter().filter(|(_, other)| !other.mandatory);
                let (other, _) = optional.max_by_key(|(_, other)| other.deadline)?;
                self.close(now, other, Outcome::Missed(MissReason::QueueFull));
                self.sources.begin(&request)
            });
            match source {
                Some(source) => self.begun[worker].push(source),
                None => self.first.close(now, &request, Outcome::Missed(MissReason::QueueFull), self.rest[0]),
            }
        }
        true
    }

    /// When a source that is begun now has most likely been answered as a whole, less the least time behind the first stage: at each
    /// stage it waits until what is there has been begun.
    fn likely_reach(&self, now: Instant) -> Instant {
        let mut ends = [now; MAX_STAGES];
        ends[0] = now + self.first.config().workers[0].profile.likely(1);
        let mut last = ends[0];
        for (i, later) in self.later.iter().enumerate() {
            let came = self.pipeline.stages[i + 1].parent.map_or(now, |parent| ends[parent]);
            let (busy, own) = later.likely_times(self.usual[i + 1]);
            ends[i + 1] = came.max(now + busy) + own;
            last = last.max(ends[i + 1]);
        }
        last - self.rest[0]
    }

    /// Where nothing that was before is in the way of what is to come, tells the first stage, if that waits for it.
    fn settle(&mut self, now: Instant) -> bool {
        if !self.first.awaits_clear() {
            return false;
        }
        self.calm.restart(self.first.breaks());
        for stage in 0..=self.later.len() {
            if !self.calm.is_next(stage, self.pipeline.stages[stage].parent) {
                continue;
            }
            match stage.checked_sub(1).map(|later| &self.later[later]) {
                None if self.first.is_clear(now) => {
                    let busy = (0..self.begun.len()).filter(|&worker| self.first.is_running(worker));
                    self.calm.note(stage, busy);
                }
                Some(later) if later.is_clear(now) => self.calm.note(stage, later.busy()),
                _ => {}
            }
        }
        let over = self.calm.is_over();
        if over {
            self.first.all_clear();
            self.longer.since_calm = false;
        }
        over
    }

    /// Tells the first stage how many workers there are behind it.
    fn count_workers(&mut self, now: Instant, failed: bool) {
        let (alive, all) = self
            .later
            .iter()
            .fold((0, 0), |(alive, all), stage| (alive + stage.pool.alive(), all + stage.pool.len()));
        let cut = self.later.iter().any(|stage| stage.pool.alive() == 0);
        if cut {
            self.close_all(now, MissReason::WorkerLost, |_| true);
        }
        self.first.set_behind(now, Behind { alive, all, cut }, failed);
    }

    /// The batch of a worker has ended, and what became of it is settled.
    fn forget_batch(&mut self, stage: usize, worker: WorkerId) {
        if stage == 0 {
            self.begun[worker].clear();
        } else {
            self.later[stage - 1].pool.batch_mut(worker).clear();
        }
    }

    /// Notes that a free worker should have been given what came at `since`.
    fn arm(&mut self, since: Instant) {
        self.armed = self.armed.min(since);
    }

    /// By the deadline of the pipeline.
    fn as_whole(&self, mut resolution: Resolution) -> Resolution {
        let request = &mut resolution.request;
        (request.deadline, request.wanted) = (request.deadline + self.rest[0], request.wanted + self.rest[0]);
        resolution
    }
}

/// Whose a request of a later stage is.
pub(super) fn source_of(part: &Request) -> SourceId {
    SourceId { slot: part.token as u32, generation: part.place }
}
