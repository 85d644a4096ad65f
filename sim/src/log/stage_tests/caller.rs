//! A pipeline's scheduler and its caller, who writes down all that happens, and is late where it may be.

use planner::PipelineProblem;
use planner::certify::chosen;
use rt_core::pipeline::{Pipeline, PipelineAction, PipelineConfig, PipelineScheduler, StageConfig};
use rt_core::{
    Arrival, Instant, LatencyProfile, MissReason, Outcome, Ran, SafeModeConfig, StreamId, StreamSpec, Workers,
};

use crate::curves::Pacer;
use crate::dice::Dice;
use crate::log::{Became, Entry, Log, Member};
use crate::time::ns;

/// For how long sources come, in nanoseconds.
const LENGTH: u64 = 150;

#[derive(Clone)]
struct Batch {
    began: u64,
    ends: u64,
    requests: Vec<Member>,
}

struct Caller<'a> {
    scheduler: PipelineScheduler,
    pipeline: &'a Pipeline,
    profiles: &'a [LatencyProfile],
    dice: &'a mut Dice,
    now: u64,
    wake: Option<u64>,
    /// Of each worker of each stage.
    running: Vec<Vec<Option<Batch>>>,
    /// Each source by its token.
    sources: Vec<Member>,
    entries: Vec<(Instant, Entry)>,
    /// Whether dispatch may be late, and what is left of that until nothing waits.
    late: bool,
    left: u64,
    /// Nobody has asked since what happened last.
    unasked: bool,
    delays: usize,
}

/// What a run was.
pub(super) struct Played {
    pub(super) log: Log,
    /// Nanoseconds of lateness.
    pub(super) delays: usize,
}

impl Caller<'_> {
    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn note(&mut self, entry: Entry) {
        self.entries.push((self.at(), entry));
    }

    /// Something has happened: mostly it is asked at once what to do.
    fn happened(&mut self) {
        self.unasked = true;
        if !(self.late && self.left > 0 && self.dice.within(0, 3) == 0) {
            self.ask();
        }
    }

    fn ask(&mut self) {
        self.unasked = false;
        loop {
            match self.scheduler.poll(self.at()) {
                PipelineAction::Start { stage, worker } => self.start(stage, worker),
                PipelineAction::Resolve(end) => {
                    let given_up =
                        matches!(end.outcome, Outcome::Missed(reason) if reason != MissReason::Late);
                    if end.request.mandatory && given_up {
                        self.note(Entry::Refuses(self.sources[end.request.token as usize]));
                    }
                }
                PipelineAction::Event(_) => {}
                PipelineAction::WakeAt(at) => {
                    self.wake = at.map(Instant::as_nanos);
                    break;
                }
            }
        }
        if self.scheduler.waiting_in_all() == 0 {
            self.left = self.pipeline.guard.as_nanos();
        }
    }

    fn start(&mut self, stage: usize, worker: usize) {
        let parts: Vec<_> = self.scheduler.batch(stage, worker).collect();
        let source = |part: &rt_core::pipeline::Part| self.sources[part.token.expect("open") as usize];
        let batch: Vec<_> = parts.iter().map(source).collect();
        let length = self.profiles[stage].bound(batch.len());
        let bound = length.as_nanos();
        let time = if self.dice.within(0, 2) == 0 { self.dice.within(1, bound) } else { bound };
        self.running[stage][worker] =
            Some(Batch { began: self.now, ends: self.now + time, requests: batch.clone() });
        self.note(Entry::StageStarts { stage, worker, length, batch });
    }

    /// What ends by now ends, in some order.
    fn end_batches(&mut self) {
        let all: Vec<_> =
            self.running.iter().enumerate().flat_map(|(s, of)| (0..of.len()).map(move |w| (s, w))).collect();
        let first = self.dice.within(0, all.len() as u64 - 1) as usize;
        for &(stage, worker) in all[first..].iter().chain(&all[..first]) {
            let ended = self.running[stage][worker].take_if(|batch| batch.ends <= self.now);
            let Some(batch) = ended else { continue };
            let (pipeline, dice, mut became) = (self.pipeline, &mut *self.dice, Vec::new());
            let results = |place: usize, child: usize| {
                let most = pipeline.stages[child].fan_out;
                // Mostly all of them.
                let count = if dice.within(0, 2) == 0 { dice.within(0, most.into()) as u32 } else { most };
                became.push(Became { source: batch.requests[place], stage: child, count });
                count
            };
            let ran = Ran::Done(ns(self.now - batch.began));
            self.scheduler.handle_completion(Instant::from_nanos(self.now), (stage, worker), ran, results);
            self.note(Entry::StageEnds { stage, worker, became: summed(became) });
            self.happened();
        }
    }

    /// 1 ns passes.
    fn tick(&mut self) {
        if self.wake.is_some_and(|at| at <= self.now) || (self.unasked && self.left == 0) {
            self.ask();
        }
        if self.unasked {
            self.left -= 1;
            self.delays += 1;
        }
        self.now += 1;
    }
}

/// One for each source and stage, of which something comes.
fn summed(all: Vec<Became>) -> Vec<Became> {
    let mut sums: Vec<Became> = Vec::new();
    for one in all.into_iter().filter(|one| one.count > 0) {
        match sums.iter_mut().find(|sum| (sum.source, sum.stage) == (one.source, one.stage)) {
            Some(sum) => sum.count += one.count,
            None => sums.push(one),
        }
    }
    sums
}

/// A run in which streams mostly send as soon as they may, and a stranger now and then.
pub(super) fn played(problem: &PipelineProblem, late: bool, dice: &mut Dice) -> Played {
    let pipeline = chosen(problem);
    let span = ns(1_000);
    let stage = |(stage, profile): (&rt_core::pipeline::Stage, &LatencyProfile)| StageConfig {
        parents: stage.parents,
        fan_out: stage.fan_out,
        mean: stage.fan_out.into(),
        workers: Workers { count: stage.workers, batch: stage.batch, profile: profile.clone() },
    };
    let config = PipelineConfig {
        deadline: pipeline.deadline,
        guard: pipeline.guard,
        stalls: pipeline.stalls,
        stages: pipeline.stages.iter().zip(&problem.profiles).map(stage).collect(),
        queue: 64,
        streams: 8,
        safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
    };
    let mut scheduler = PipelineScheduler::new(&config).expect("a scheduler");
    let stranger = StreamSpec::best_effort();
    let specs: Vec<_> = problem.specs().chain([&stranger]).collect();
    let add = |spec: &&StreamSpec| scheduler.add_stream(Instant::ZERO, (*spec).clone()).expect("room");
    let ids: Vec<StreamId> = specs.iter().map(add).collect();
    let mut rolls = Dice(dice.next());
    let (pause, strangers) = (rolls.within(0, 3), rolls.within(0, 3));
    let mut caller = Caller {
        scheduler,
        pipeline: &pipeline,
        profiles: &problem.profiles,
        dice,
        now: 0,
        wake: None,
        running: pipeline.stages.iter().map(|stage| vec![None; stage.workers]).collect(),
        sources: Vec::new(),
        entries: Vec::new(),
        late,
        left: pipeline.guard.as_nanos(),
        unasked: false,
        delays: 0,
    };
    let mut pacers: Vec<_> =
        problem.specs().map(|spec| Pacer::new(spec.arrivals().expect("declared"))).collect();
    let (mut next, mut sent) = (vec![0; pacers.len()], vec![0; ids.len()]);
    while caller.now < LENGTH || caller.scheduler.open() + caller.scheduler.running() > 0 {
        let before = rolls.within(0, 1) == 0;
        if before {
            caller.end_batches();
        }
        let mut coming: Vec<_> = (0..rolls.within(0, strangers) / 3).map(|_| pacers.len()).collect();
        for (stream, pacer) in pacers.iter_mut().enumerate() {
            while next[stream] <= caller.now {
                pacer.send(caller.now);
                coming.push(stream);
                let wish = caller.now
                    + if pause == 0 { 0 } else { rolls.within(0, 40 * pause).saturating_sub(25 * pause) };
                next[stream] = pacer.earliest(wish);
            }
        }
        while !coming.is_empty() && caller.now < LENGTH {
            let stream = coming.swap_remove(rolls.within(0, coming.len() as u64 - 1) as usize);
            let (token, at) = (caller.sources.len() as u64, caller.at());
            caller.sources.push(Member { stream, seq: sent[stream] });
            sent[stream] += 1;
            caller.note(Entry::Arrives(stream));
            let refused = caller.scheduler.handle_arrival(at, Arrival::new(ids[stream], token, at));
            assert!(!refused.is_some_and(|end| end.request.mandatory), "{refused:?}");
            caller.happened();
        }
        if !before {
            caller.end_batches();
        }
        caller.tick();
    }
    let streams = problem.streams.iter().map(|(name, _)| name.clone()).chain(["stranger".to_owned()]);
    Played { log: Log { streams: streams.collect(), entries: caller.entries }, delays: caller.delays }
}
