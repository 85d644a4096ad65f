//! Drives the scheduler of a pipeline in virtual time, beside a naive account of what became of each source.

mod account;
pub(crate) mod draw;
mod takeover;

use std::collections::HashMap;

use rt_core::pipeline::{Parents, PipelineAction, PipelineConfig, PipelineScheduler, SourceId, StageConfig};
use rt_core::{
    Arrival, Cause, Event, Instant, Joined, LatencyProfile, MissReason, Outcome, Ran, SafeModeConfig, Span,
    StreamId, StreamSpec, Workers,
};

use crate::harness::Dice;
use crate::oracle::pipeline::Pipeline;

pub(crate) fn ns(n: u64) -> Span {
    Span::from_nanos(n)
}

pub(crate) fn at(n: u64) -> Instant {
    Instant::from_nanos(n)
}

/// A configuration of a small pipeline, with plenty of room, safe mode left after `clean`.
pub(crate) fn config(small: &Pipeline, deadline: u64, clean: u64) -> PipelineConfig {
    let stage = |stage: &crate::oracle::pipeline::Stage| {
        // Smaller batches may be quicker, and promises do not count on it.
        let bound = |b: usize| (u64::from(stage.time) * b as u64).div_ceil(stage.batch as u64);
        let bounds: Vec<_> = (1..=stage.batch).map(|b| ns(bound(b))).collect();
        let profile = LatencyProfile::new(&bounds).expect("a profile");
        StageConfig {
            parents: if stage.join {
                Parents::join(stage.parents.iter().copied())
            } else {
                Parents::each(stage.parents.iter().copied())
            },
            fan_out: stage.fan_out.into(),
            mean: f64::from(stage.fan_out) / 2.0,
            workers: Workers { count: stage.workers, batch: stage.batch, profile },
        }
    };
    PipelineConfig {
        deadline: ns(deadline),
        guard: ns(small.late.into()),
        stalls: None,
        stages: small.stages.iter().map(stage).collect(),
        queue: 64,
        streams: 8,
        safe_mode: SafeModeConfig { hold: ns(clean), clean: ns(clean), latch: false },
    }
}

/// One source, as a naive account has it.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) stream: StreamId,
    pub(crate) came: u64,
    pub(crate) deadline: u64,
    /// By when its client wants it answered.
    pub(crate) wanted: u64,
    pub(crate) mandatory: bool,
    /// Of each stage: how many requests came there, and which of them wait.
    numbers: Vec<u32>,
    waiting: Vec<Vec<u32>>,
    running: Vec<usize>,
    /// Which joins have taken it.
    joined: Vec<bool>,
    pub(crate) ended: Option<(u64, Outcome)>,
}

impl Source {
    fn come(&mut self, stage: usize, count: u32) {
        let first = self.numbers[stage];
        self.numbers[stage] += count;
        self.waiting[stage].extend(first..self.numbers[stage]);
    }

    /// A join that has not taken it, though all of its parents are done with it.
    fn next_join(&self, stages: &[StageConfig]) -> Option<usize> {
        let parents = |join: usize| stages[join].parents.iter();
        let takes =
            |&join: &usize| !self.joined[join] && parents(join).all(|parent| self.is_done(stages, parent));
        (0..stages.len()).filter(|&i| stages[i].parents.is_join()).find(takes)
    }

    fn is_done(&self, stages: &[StageConfig], stage: usize) -> bool {
        let comes = match stages[stage].parents.is_join() {
            true => !self.joined[stage],
            false => stages[stage].parents.iter().any(|parent| !self.is_done(stages, parent)),
        };
        !comes && self.running[stage] == 0 && self.waiting[stage].is_empty()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    started: u64,
    bound: u64,
    ends: u64,
}

/// From a stage and the bound of a batch: how long it takes.
type Time = Box<dyn FnMut(usize, u64) -> u64>;
/// From a stage and its fan-out: how many requests of it a result becomes.
type Became = Box<dyn FnMut(usize, u32) -> u32>;

/// From a stage and the longest that a batch may take: how long it may.
type Longer = Box<dyn FnMut(usize, u64) -> u64>;

/// From what is left of the margin for overruns: by how much the next batch takes longer than it may.
type Over = Box<dyn FnMut(u64) -> u64>;

/// A scheduler with its caller.
pub(crate) struct Line {
    pub(crate) scheduler: PipelineScheduler,
    pub(crate) now: u64,
    pub(crate) config: PipelineConfig,
    wake: Option<u64>,
    pub(crate) running: Vec<Vec<Option<Batch>>>,
    pub(crate) sources: Vec<Source>,
    names: HashMap<SourceId, usize>,
    pub(crate) time: Time,
    pub(crate) became: Became,
    /// The causes of safe mode and of suspensions that were announced, and when.
    pub(crate) causes: Vec<(u64, Cause)>,
    pub(crate) events: Vec<(u64, Event)>,
    /// Mandatory sources of which something waited when a later one's was begun at that stage.
    overtaken: Vec<usize>,
    /// By how much dispatch may be late, once from one instant at which nothing mandatory waits anywhere to the next; and whether
    /// that is still to come, and how often it was.
    pub(crate) late: u64,
    may_be_late: bool,
    pub(crate) lates: usize,
    /// Lets batches take longer, from the stage and the longest that is allowed; and how many took longer than a full one.
    pub(crate) longer: Option<Longer>,
    pub(crate) longs: usize,
    /// From what is left of the margin: by how much a batch that begins takes longer than it may; and how many did.
    pub(crate) over: Option<Over>,
    pub(crate) overran: usize,
    /// More may be amiss than mandatory requests that begin too late.
    pub(crate) lenient: bool,
    /// From when to when time is lost, in order: by batches that may run then, and, if all is `frozen`, by what is taken in then too; which
    /// batches get on nevertheless, from the stage; and how many did not.
    pub(crate) stalls: Vec<(u64, u64)>,
    pub(crate) frozen: bool,
    pub(crate) spared: Box<dyn FnMut(usize) -> bool>,
    pub(crate) stalled: usize,
    /// Streams that want answers sooner, and may have to do without; and by the deadline, within what.
    pub(crate) hasty: Vec<StreamId>,
    pub(crate) wishes: Box<dyn FnMut(u64) -> u64>,
}

impl Line {
    pub(crate) fn new(config: PipelineConfig) -> Self {
        Self {
            scheduler: PipelineScheduler::new(&config).expect("a configuration"),
            now: 0,
            wake: None,
            running: config.stages.iter().map(|stage| vec![None; stage.workers.count]).collect(),
            sources: Vec::new(),
            names: HashMap::new(),
            time: Box::new(|_, bound| bound),
            became: Box::new(|_, most| most),
            causes: Vec::new(),
            events: Vec::new(),
            overtaken: Vec::new(),
            late: 0,
            may_be_late: false,
            lates: 0,
            longer: None,
            longs: 0,
            over: None,
            overran: 0,
            lenient: false,
            stalls: Vec::new(),
            frozen: false,
            spared: Box::new(|_| false),
            stalled: 0,
            hasty: Vec::new(),
            wishes: Box::new({
                let mut dice = Dice(7);
                move |deadline| dice.within(0, deadline + 3)
            }),
            config,
        }
    }

    pub(crate) fn add(&mut self, spec: &StreamSpec) -> StreamId {
        self.scheduler.add_stream(at(self.now), spec.clone()).expect("room for a stream")
    }

    /// Adds a stream if it is admitted beside all that count and nothing is in its way.
    pub(crate) fn try_add(&mut self, spec: &StreamSpec) -> Option<StreamId> {
        let load = self.scheduler.first().load();
        let admission = self.scheduler.pipeline().admit(load.specs().chain([spec])).ok()?;
        if self.over.is_some() {
            let margin = self.scheduler.pipeline().latency().saturating_sub(admission.bound);
            if !self.scheduler.set_overrun_margin(at(self.now), margin) {
                return None;
            }
        }
        let newcomer = self.scheduler.newcomer(spec.clone()).beside(&load);
        let joined = self.scheduler.try_add_stream(at(self.now), newcomer).expect("room for a stream");
        let added = match joined {
            Joined::Added(id, _) => Some(id),
            Joined::Wait(_) => None,
            Joined::Stale(_) => panic!("nobody came meanwhile"),
        };
        self.settle();
        added
    }

    /// Sets the shield for what is there.
    pub(crate) fn raise_shield(&mut self) -> bool {
        let workers: Vec<_> = self.config.stages.iter().map(|stage| stage.workers.clone()).collect();
        let load = self.scheduler.first().load();
        let specs: Vec<_> = load.specs().cloned().collect();
        let shield = self.scheduler.pipeline().shield(&workers, &specs);
        let there = shield.is_some();
        self.scheduler.set_shield(shield);
        there
    }

    pub(crate) fn remove(&mut self, id: StreamId) {
        self.scheduler.remove_stream(at(self.now), id);
        self.settle();
    }

    /// Another client has the stream: its number from now on.
    pub(crate) fn restart(&mut self, id: StreamId) -> StreamId {
        let fresh = self.scheduler.restart_stream(at(self.now), id).expect("a known stream");
        self.settle();
        assert_eq!(self.scheduler.restart_stream(at(self.now), id), None, "it is there no more");
        let open = self.sources.iter().any(|s| s.stream == id && s.ended.is_none());
        assert!(!open, "what was left of it has been cancelled");
        fresh
    }

    /// A source comes now; its token.
    pub(crate) fn arrive(&mut self, stream: StreamId) -> usize {
        self.take_in(stream, self.now)
    }

    /// A source that came then is taken in.
    pub(crate) fn take_in(&mut self, stream: StreamId, came: u64) -> usize {
        self.read(stream, (came, came))
    }

    /// One that was sent at the first of these instants, as its client says, and came at the other is taken in.
    pub(crate) fn read(&mut self, stream: StreamId, (sent, came): (u64, u64)) -> usize {
        let token = self.sources.len();
        let most = self.config.deadline.as_nanos();
        let hasty = self.hasty.contains(&stream);
        let within = if hasty { (self.wishes)(most) } else { most };
        let deadline = sent + most;
        let stages = self.config.stages.len();
        let mut source = Source {
            stream,
            came: sent,
            deadline,
            wanted: deadline.min(sent + within),
            mandatory: false,
            numbers: vec![0; stages],
            waiting: vec![Vec::new(); stages],
            running: vec![0; stages],
            joined: vec![false; stages],
            ended: None,
        };
        (source.numbers[0], source.waiting[0]) = (1, vec![0]);
        self.sources.push(source);
        let arrival = Arrival::new(stream, token as u64, at(came));
        let wanted = (at(sent), ns(within));
        let refused = self.scheduler.handle_wanted(at(self.now), arrival, wanted, true);
        refused.into_iter().for_each(|r| self.resolved(r));
        self.settle();
        token
    }

    /// Lets time pass up to and with `to`.
    pub(crate) fn advance_to(&mut self, to: u64) {
        while let Some(next) = self.next_event().map(|next| self.awake(next)).filter(|&next| next <= to) {
            self.now = self.now.max(next);
            self.step();
        }
        self.now = self.now.max(to);
    }

    /// When what happens then is taken in.
    pub(crate) fn awake(&self, at: u64) -> u64 {
        let mut stalls = self.stalls.iter().filter(|stall| self.frozen && stall.0 <= at && at < stall.1);
        stalls.next().map_or(at, |stall| stall.1)
    }

    /// When the next thing happens by itself.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let ends = self.running.iter().flatten().flatten().map(|batch| batch.ends);
        ends.chain(self.wake).min()
    }

    /// Answers all that is left.
    pub(crate) fn drain(&mut self) {
        while self.sources.iter().any(|source| source.ended.is_none()) {
            let next = self.awake(self.next_event().expect("what waits or runs ends some time"));
            self.advance_to(next);
        }
        assert_eq!(self.scheduler.open_sources(), 0);
        assert!((0..self.config.stages.len()).all(|stage| self.scheduler.waiting(stage) == 0));
    }

    /// Sources that had to be answered and were not, but for what was cancelled, or wanted sooner and was in time by the deadline.
    pub(crate) fn missed(&self) -> Vec<&Source> {
        let gone = Outcome::Missed(MissReason::Cancelled);
        let late = Outcome::Missed(MissReason::Late);
        let hasty = |s: &Source, (at, outcome)| outcome == late && s.wanted < at && at <= s.deadline;
        let missed = |s: &&Source| {
            let ended = s.ended.filter(|&ended| !hasty(s, ended));
            s.mandatory && ended.is_some_and(|(_, o)| o != Outcome::Served && o != gone)
        };
        self.sources.iter().filter(missed).collect()
    }

    /// What the present batch of a worker ends with, now.
    pub(crate) fn end(&mut self, stage: usize, worker: usize, failed: bool) {
        let batch = self.running[stage][worker].take().expect("it runs");
        let parts: Vec<_> = self.scheduler.batch(stage, worker).collect();
        let mut yields: HashMap<(usize, usize), u32> = HashMap::new();
        for (place, part) in parts.iter().enumerate() {
            let token = self.names[&part.source];
            let source = &mut self.sources[token];
            source.running[stage] -= 1;
            assert_eq!(
                part.token.is_none(),
                source.ended.is_some(),
                "an open source has a token, and no other"
            );
            for child in 0..self.config.stages.len() {
                let of = &self.config.stages[child];
                if !of.parents.has(stage) || of.parents.is_join() || failed || source.ended.is_some() {
                    continue;
                }
                let count = (self.became)(child, of.fan_out);
                yields.insert((place, child), count);
                source.come(child, count.min(of.fan_out));
            }
            while !failed
                && source.ended.is_none()
                && let Some(join) = source.next_join(&self.config.stages)
            {
                let count = (self.became)(join, self.config.stages[join].fan_out);
                yields.insert((place, join), count);
                source.joined[join] = true;
                source.come(join, count.min(self.config.stages[join].fan_out));
            }
        }
        let took = ns(self.now - batch.started);
        let ran = if failed { Ran::Failed(took) } else { Ran::Done(took) };
        self.scheduler.handle_completion(at(self.now), (stage, worker), ran, |place, child| {
            yields.get(&(place, child)).copied().unwrap_or(0)
        });
    }

    pub(crate) fn lose(&mut self, stage: usize, worker: usize) {
        if self.running[stage][worker].take().is_some() {
            for part in self.scheduler.batch(stage, worker).collect::<Vec<_>>() {
                self.sources[self.names[&part.source]].running[stage] -= 1;
            }
        }
        self.scheduler.handle_worker_lost(at(self.now), (stage, worker));
        self.settle();
    }

    pub(crate) fn ready(&mut self, stage: usize, worker: usize) {
        self.scheduler.handle_worker_ready(at(self.now), (stage, worker));
        self.settle();
    }

    pub(crate) fn busy(&self) -> Vec<(usize, usize)> {
        let of = |(stage, workers): (usize, &Vec<Option<Batch>>)| {
            let busy = workers.iter().enumerate().filter(|(_, batch)| batch.is_some());
            busy.map(|(worker, _)| (stage, worker)).collect::<Vec<_>>()
        };
        self.running.iter().enumerate().flat_map(of).collect()
    }

    fn step(&mut self) {
        let mut ended = false;
        for stage in 0..self.running.len() {
            for worker in 0..self.running[stage].len() {
                if self.running[stage][worker].is_some_and(|batch| batch.ends <= self.now) {
                    self.end(stage, worker, false);
                    ended = true;
                }
            }
        }
        if !ended {
            self.wake = None;
        }
        let ends = self.running.iter().flatten().flatten().map(|batch| batch.ends);
        let quiet = ends.min().is_none_or(|next| next > self.now + self.late);
        if ended && quiet && self.late > 0 && std::mem::take(&mut self.may_be_late) {
            self.now += self.late;
            self.lates += 1;
        }
        self.settle();
    }

    /// Polls until there is nothing more to do now.
    pub(crate) fn settle(&mut self) {
        loop {
            match self.scheduler.poll(at(self.now)) {
                PipelineAction::Start { stage, worker } => self.started(stage, worker),
                PipelineAction::Resolve(resolution) => self.resolved(resolution),
                PipelineAction::Event(event) => self.announced(event),
                PipelineAction::WakeAt(wake) => {
                    self.wake = wake.map(Instant::as_nanos);
                    assert!(self.wake.is_none_or(|wake| wake > self.now), "a wake-up that is due already");
                    break;
                }
            }
        }
        let waits = |s: &Source| s.mandatory && s.ended.is_none() && s.waiting.iter().any(|w| !w.is_empty());
        self.may_be_late |=
            self.scheduler.first().waiting_mandatory() == 0 && !self.sources.iter().any(waits);
        for token in self.overtaken.drain(..) {
            let missed = |(at, o)| at == self.now && o != Outcome::Served;
            assert!(self.sources[token].ended.is_some_and(missed), "overtaken: {:?}", self.sources[token]);
        }
        let open = self.sources.iter().filter(|s| s.ended.is_none()).count();
        assert_eq!(self.scheduler.open(), open, "open sources");
        for (stage, workers) in self.running.iter().enumerate() {
            for (worker, batch) in workers.iter().enumerate() {
                assert_eq!(self.scheduler.is_at_work(stage, worker), batch.is_some());
            }
            let open = |s: &&Source| s.ended.is_none();
            let waiting: usize = self.sources.iter().filter(open).map(|s| s.waiting[stage].len()).sum();
            assert_eq!(self.scheduler.waiting(stage), waiting, "waiting at stage {stage}");
            let idle = workers
                .iter()
                .enumerate()
                .any(|(worker, batch)| batch.is_none() && self.scheduler.is_alive(stage, worker));
            assert!(
                self.lenient || !idle || waiting == 0,
                "a worker of stage {stage} idles while {waiting} wait"
            );
        }
    }
}
