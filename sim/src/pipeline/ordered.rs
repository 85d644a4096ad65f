//! The scheduler of pipelines on Loki's plan: how many workers a stage has and which batches; what runs when, with which model and
//! what is given up is decided by [`rt_core::pipeline::PipelineScheduler`].

use std::collections::{HashMap, VecDeque};

use rt_core::pipeline::{
    PipelineAction, PipelineConfig, PipelineScheduler, SourceId, StageConfig, StageVariants,
};
use rt_core::{
    Arrival, Instant, LatencyProfile, MissReason, Outcome, Ran, SafeModeConfig, Span, StreamId, StreamSpec,
    WorkerId, Workers,
};
use virtual_time::{Arriving, Child, Model, PipelinePolicy, PipelineStep};

use super::cluster::{Cluster, Plan};

/// Room for sources, and for streams.
const QUEUE: usize = 4096;
const STREAMS: usize = 64;

/// Workers as a plan has them, and what runs on them.
pub(super) struct Ordered<'a> {
    cluster: &'a Cluster,
    scheduler: PipelineScheduler,
    streams: Vec<StreamId>,
    /// Of each worker its stage, and its number there.
    posts: Vec<(usize, WorkerId)>,
    /// Of each stage how many workers come before its own.
    before: Vec<usize>,
    /// The variants of each stage: the one that batches are formed for, the fastest, and those that are more accurate, the least
    /// accurate of them first.
    ranked: Vec<Vec<usize>>,
    running: Vec<Vec<u64>>,
    /// Of each source that has not begun, the name of its first request.
    first: HashMap<u64, u64>,
    /// The names of what sources became at a stage, in order.
    names: HashMap<(SourceId, usize), Vec<u64>>,
    ended: VecDeque<u64>,
}

impl<'a> Ordered<'a> {
    /// Workers by stage as `plan` has them, the rest where they are scarcest.
    ///
    /// # Errors
    /// If the fastest models are too slow for the deadline.
    pub(super) fn new(cluster: &'a Cluster, plan: &Plan) -> Result<Self, String> {
        let tree = &cluster.tree;
        let stages = 0..tree.stages.len();
        let of_stage = |stage: usize| plan.posts.iter().filter(move |(post, _)| post.model.stage == stage);
        let mut counts: Vec<usize> = stages
            .clone()
            .map(|stage| of_stage(stage).map(|&(_, count)| count).sum::<usize>().max(1))
            .collect();
        let share = |stage: usize, count: usize| {
            count as f64 / of_stage(stage).map(|&(_, n)| n).sum::<usize>().max(1) as f64
        };
        while counts.iter().sum::<usize>() < cluster.workers {
            let scarcest =
                stages.clone().min_by(|&a, &b| share(a, counts[a]).total_cmp(&share(b, counts[b])));
            counts[scarcest.unwrap_or(0)] += 1;
        }
        let batch = |stage: usize| of_stage(stage).map(|(post, _)| post.batch).max().unwrap_or(1);
        let base: Vec<usize> = stages
            .clone()
            .map(|stage| {
                let time = |&variant: &usize| tree.bound(Model { stage, variant }, batch(stage));
                (0..tree.stages[stage].variants.len()).min_by_key(time).unwrap_or(0)
            })
            .collect();
        let config = |stage: usize| {
            let of = &tree.stages[stage];
            let times = &of.variants[base[stage]].profile;
            let most = batch(stage).min(times.max_batch());
            let bounds: Vec<Span> = (1..=most).map(|size| times.bound(size)).collect();
            let profile = LatencyProfile::new(&bounds).map_err(|error| error.to_string())?;
            let mean = of.means.iter().copied().fold(1.0, f64::max);
            let workers = Workers { count: counts[stage], batch: most, profile };
            Ok::<_, String>(StageConfig {
                parents: of.parent.into(),
                fan_out: of.fan_out.max(1),
                mean,
                workers,
            })
        };
        let span = Span::from_millis(1_000);
        let config = PipelineConfig {
            deadline: tree.deadline,
            guard: Span::ZERO,
            stalls: None,
            stages: stages.clone().map(config).collect::<Result<_, _>>()?,
            queue: QUEUE,
            streams: STREAMS,
            safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        };
        let ranked = |stage: usize| {
            let accuracy = |variant: usize| tree.variant(Model { stage, variant }).accuracy;
            let all = 0..tree.stages[stage].variants.len();
            let mut ranked: Vec<_> =
                all.filter(|&one| one == base[stage] || accuracy(one) > accuracy(base[stage])).collect();
            ranked.sort_by(|&a, &b| accuracy(a).total_cmp(&accuracy(b)));
            ranked
        };
        let ranked: Vec<Vec<usize>> = stages.clone().map(ranked).collect();
        let mut before = vec![0];
        counts.iter().for_each(|count| before.push(before[before.len() - 1] + count));
        let slowest =
            |stage: usize| of_stage(stage).map(|&(post, _)| cluster.time(post)).max().unwrap_or(Span::ZERO);
        let mut scheduler = PipelineScheduler::new(&config).map_err(|error| error.to_string())?;
        // A request should leave a stage within the part of the deadline that the plan's models take up to there.
        let parts = scheduler.pipeline().parts(&stages.clone().map(slowest).collect::<Vec<_>>());
        let times = |stage: usize, variant: usize| tree.stages[stage].variants[variant].profile.clone();
        let variants = stages.clone().map(|stage| StageVariants {
            times: ranked[stage][1..].iter().map(|&variant| times(stage, variant)).collect(),
            leave: parts[stage],
        });
        scheduler.set_variants(variants.collect());
        Ok(Self {
            scheduler,
            streams: Vec::new(),
            posts: stages.flat_map(|stage| (0..counts[stage]).map(move |worker| (stage, worker))).collect(),
            before,
            ranked,
            running: vec![Vec::new(); cluster.workers.max(counts.iter().sum())],
            first: HashMap::new(),
            names: HashMap::new(),
            ended: VecDeque::new(),
            cluster,
        })
    }

    fn started(&mut self, now: Instant, stage: usize, worker: WorkerId) -> PipelineStep {
        let parts: Vec<_> = self.scheduler.batch(stage, worker).collect();
        let own = self.before[stage] + worker;
        for part in &parts {
            let source = part.token.unwrap_or_default();
            let name = match stage {
                0 => self.first.remove(&source).unwrap_or_default(),
                _ => self.names[&(part.source, stage)][part.index as usize],
            };
            self.running[own].push(name);
        }
        let variant = self.ranked[stage][self.scheduler.choose(now, (stage, worker))];
        PipelineStep::Start { worker: own, model: Model { stage, variant } }
    }
}

impl PipelinePolicy for Ordered<'_> {
    fn workers(&self) -> usize {
        self.running.len()
    }

    fn arrive(&mut self, now: Instant, arriving: Arriving) {
        while self.streams.len() <= arriving.stream {
            match self.scheduler.add_stream(now, StreamSpec::best_effort()) {
                Ok(id) => self.streams.push(id),
                Err(_) => break,
            }
        }
        let Arriving { stream, source, token } = arriving;
        let known = self.streams.get(stream).copied();
        self.first.insert(source, token);
        let refused =
            known.map(|stream| self.scheduler.handle_arrival(now, Arrival::new(stream, source, now)));
        if refused != Some(None) {
            self.ended.push_back(source);
        }
    }

    fn complete(&mut self, now: Instant, worker: WorkerId, time: Span, children: &[Child]) {
        let (stage, own) = self.posts[worker];
        let parts: Vec<_> = self.scheduler.batch(stage, own).collect();
        let parents = std::mem::take(&mut self.running[worker]);
        let of = |place: usize, stage: usize| {
            let parent = parents[place];
            children.iter().filter(move |child| child.parent == parent && child.stage == stage)
        };
        for (place, part) in parts.iter().enumerate().filter(|(_, part)| part.token.is_some()) {
            for child in self.cluster.tree.children(stage) {
                let names = self.names.entry((part.source, child)).or_default();
                names.extend(of(place, child).map(|child| child.token));
            }
        }
        let became = |place: usize, child: usize| of(place, child).count() as u32;
        self.scheduler.handle_completion(now, (stage, own), Ran::Done(time), became);
        for part in parts.iter().filter(|part| part.token.is_some()) {
            if self.scheduler.is_ended(part.source) {
                (0..self.cluster.tree.stages.len())
                    .for_each(|stage| _ = self.names.remove(&(part.source, stage)));
            }
        }
    }

    fn poll(&mut self, now: Instant) -> PipelineStep {
        loop {
            if let Some(source) = self.ended.pop_front() {
                self.first.remove(&source);
                return PipelineStep::DropSource(source);
            }
            match self.scheduler.poll(now) {
                PipelineAction::Start { stage, worker } => return self.started(now, stage, worker),
                PipelineAction::Resolve(resolution) => match resolution.outcome {
                    Outcome::Served | Outcome::Missed(MissReason::Late) => {}
                    Outcome::Missed(_) => self.ended.push_back(resolution.request.token),
                },
                PipelineAction::Event(_) => {}
                PipelineAction::WakeAt(until) => return PipelineStep::Wait { until },
            }
        }
    }

    fn batch(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.running[worker].iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chain, choice, plan, play, post};
    use super::*;

    /// The first stage takes 2 and yields two, of which the second does one in 2 and two in 3.
    #[test]
    fn a_source_that_can_no_longer_be_answered_ends_and_leaves_its_place_to_the_next() {
        let run = |deadline: u64, arrivals: &[u64]| {
            let cluster = chain(deadline);
            let mut ordered = Ordered::new(&cluster, &plan(&[(0, 1, 1), (1, 2, 1)])).expect("fast enough");
            play(&cluster, &mut ordered, arrivals)
        };
        // As first come first served would: they end at 5, 8 and 11.
        assert_eq!(run(11, &[0, 0, 0]), [(5, true), (8, true), (11, true)]);
        // Of the third nothing is begun at the second stage, once it is plain that it would come too late.
        let ends = run(9, &[0, 0, 0]);
        assert_eq!((&ends[..2], ends[2].1), (&[(5, true), (8, true)][..], false));
        assert!(ends[2].0 <= 7, "{ends:?}");
    }

    /// Two of each source for the second stage: the accurate model takes 4 ms for one, the other 1.
    #[test]
    fn models_are_accurate_while_what_waits_has_the_time() {
        let cluster = choice();
        let mut of = plan(&[]);
        of.posts = vec![(post(0, 0, 1), 1), (post(1, 0, 1), 3)];
        let mut ordered = Ordered::new(&cluster, &of).expect("fast enough");
        let at = |ms: u64| ms * 1_000_000;
        let alone = play(&cluster, &mut ordered, &[at(0)]);
        assert_eq!(alone, [(at(6), true)], "both at once by the accurate one");
        let mut ordered = Ordered::new(&cluster, &of).expect("fast enough");
        // Far more than the accurate one could do within 100 ms: 200 for 3 workers.
        let many = play(&cluster, &mut ordered, &[0; 60]);
        let served = many.iter().filter(|(_, served)| *served).count();
        assert!(served >= 48, "{served} of 60: the first stage does 50 in 100 ms");
    }
}
