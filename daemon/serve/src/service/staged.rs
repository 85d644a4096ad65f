//! The scheduler of a pipeline, with what each request that a source became was made of.

use std::sync::Arc;

use rt_core::pipeline::{PipelineAction, PipelineScheduler};
use rt_core::{Action, Instant, MAX_BATCH, Ran, SafeModeConfig, WorkerId};

use super::slots::{NOBODY, place};
use super::worker::Part;
use weir_plan::models::Descent;
use weir_plan::plan::{PipelinePlan, ServicePlan};

/// The scheduler of a pipeline. Its workers are numbered stage by stage.
pub(super) struct Staged {
    pub(super) scheduler: PipelineScheduler,
    /// Of each worker its stage, and its number there.
    workers: Vec<(usize, WorkerId)>,
    /// The first worker of each stage, and the stage's name.
    first: Vec<WorkerId>,
    names: Vec<Arc<str>>,
    /// Of each worker, the variant for its batch.
    variants: Vec<usize>,
    /// Of each stage whether it takes a source once.
    joins: Vec<bool>,
    /// The sources of the batch that has ended last which joins have taken.
    joined: Vec<(u64, usize)>,
    /// By slot, then by stage, of each request what it was made of. In the order in which the scheduler numbers them.
    origins: Vec<Vec<Vec<Descent>>>,
}

/// What the results of a batch become: of each, for each child of the stage, the rows that are a request each.
#[derive(Default)]
pub(super) struct Found {
    rows: Vec<u32>,
    /// Of each result, child by child: where its rows begin and end, and how many there were before the limit.
    of: Vec<(usize, usize, u32)>,
    /// The children.
    children: Vec<usize>,
}

impl Found {
    /// Nothing yet of a batch of a stage with these children.
    pub(super) fn begin(&mut self, children: impl Iterator<Item = usize>) {
        self.rows.clear();
        self.of.clear();
        self.children.clear();
        self.children.extend(children);
    }

    /// Takes down what `select` finds for the next child of the next result: it appends rows, and says how many there would be. Returns
    /// how many there are.
    pub(super) fn add(&mut self, select: impl FnOnce(&mut Vec<u32>) -> u32) -> usize {
        let from = self.rows.len();
        let seen = select(&mut self.rows);
        self.of.push((from, self.rows.len(), seen));
        self.rows.len() - from
    }

    /// Of a result: which children it becomes requests of, and how many.
    pub(super) fn counts(&self, result: usize) -> impl Iterator<Item = (usize, u32)> + '_ {
        let counts = self.children.iter().map(move |&child| (child, self.get(result, child).0.len() as u32));
        counts.filter(|&(_, count)| count > 0)
    }

    /// The rows of a result that become requests of a child, and how many there would be without the limit.
    fn get(&self, result: usize, child: usize) -> (&[u32], u32) {
        let number = self.children.iter().position(|&one| one == child);
        let found = number.and_then(|number| self.of.get(result * self.children.len() + number));
        found.map_or((&[], 0), |&(from, to, seen)| (&self.rows[from..to], seen))
    }
}

impl Staged {
    /// For a pipeline of that plan, of which so many sources have slots.
    ///
    /// # Errors
    /// If a number is outside its range.
    pub(super) fn new(
        (plan, pipeline): (&ServicePlan, &PipelinePlan),
        safe_mode: SafeModeConfig,
        slots: usize,
    ) -> anyhow::Result<Self> {
        let mut scheduler = PipelineScheduler::new(&pipeline.scheduler_config(&plan.config, safe_mode))?;
        if pipeline.has_variants() {
            scheduler.set_variants(pipeline.variants());
        }
        let none = || pipeline.stages.iter().map(|stage| Vec::with_capacity(stage.most)).collect();
        let workers: Vec<_> = (0..pipeline.workers()).map(|worker| pipeline.place_of(worker)).collect();
        let first = workers.iter().enumerate().filter(|(_, place)| place.1 == 0).map(|(worker, _)| worker);
        let first = first.collect();
        let names = pipeline.stages.iter().map(|stage| stage.config.runs.name.as_str().into()).collect();
        let (variants, stages) = (vec![0; workers.len()], &pipeline.stages);
        let joins: Vec<_> = stages.iter().map(|stage| stage.config.after.is_join()).collect();
        let joined = Vec::with_capacity(MAX_BATCH * joins.iter().filter(|&&joins| joins).count());
        let origins = (0..slots).map(|_| none()).collect();
        Ok(Self { scheduler, workers, first, names, variants, joins, joined, origins })
    }

    /// Of all stages together.
    pub(super) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// The stage of a worker, and its number there.
    pub(super) fn place_of(&self, worker: WorkerId) -> (usize, WorkerId) {
        self.workers[worker]
    }

    /// The variant for the batch that a worker runs.
    pub(super) fn variant(&self, worker: WorkerId) -> usize {
        self.variants[worker]
    }

    /// The name of a stage.
    pub(super) fn name_of(&self, stage: usize) -> &Arc<str> {
        &self.names[stage]
    }

    /// As [`PipelineScheduler::poll`].
    pub(super) fn poll(&mut self, now: Instant) -> Action {
        match self.scheduler.poll(now) {
            PipelineAction::Start { stage, worker } => {
                if stage == 0 {
                    let begun = self.scheduler.batch(stage, worker).filter_map(|part| part.token);
                    begun.for_each(|token| self.origins[place(token)].iter_mut().for_each(Vec::clear));
                }
                let id = self.first[stage] + worker;
                self.variants[id] = self.scheduler.choose(now, (stage, worker));
                Action::Start { worker: id }
            }
            PipelineAction::Resolve(resolution) => Action::Resolve(resolution),
            PipelineAction::Event(event) => Action::Event(event),
            PipelineAction::WakeAt(at) => Action::WakeAt(at),
        }
    }

    /// The batch that a worker runs, without what is of sources that have ended.
    pub(super) fn batch(&self, worker: WorkerId) -> impl Iterator<Item = Part> + Clone + '_ {
        let (stage, worker) = self.workers[worker];
        self.scheduler.batch(stage, worker).map(move |part| {
            let token = part.token.unwrap_or(NOBODY);
            let origin = part
                .token
                .and_then(|token| self.origins.get(place(token))?.get(stage)?.get(part.index as usize));
            Part { token, index: part.index, of: origin.copied().unwrap_or_default() }
        })
    }

    /// As [`PipelineScheduler::handle_completion`], of a batch of these requests of which that was `found`. Of a join a source becomes
    /// one request.
    pub(super) fn handle_completion(
        &mut self,
        now: Instant,
        worker: WorkerId,
        ran: Ran,
        (parts, found): (&[Part], &Found),
    ) {
        let Self { origins, joined, joins, .. } = self;
        joined.clear();
        let stage = self.workers[worker].0 as u32;
        self.scheduler.handle_completion(now, self.workers[worker], ran, |result, child| {
            let Some(part) = parts.get(result) else { return 0 };
            let Some(of) = origins.get_mut(place(part.token)) else { return 0 };
            if joins[child] {
                joined.push((part.token, child));
                of[child].push(Descent::default());
                return 1;
            }
            let (rows, seen) = found.get(result, child);
            of[child].extend(rows.iter().map(|&row| Descent { stage, parent: part.index, row }));
            seen
        });
    }

    /// Of the batch that has ended last: which sources, by their tokens, joins have taken.
    pub(super) fn joined(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.joined.iter().copied()
    }

    /// As [`PipelineScheduler::handle_worker_lost`].
    pub(super) fn handle_worker_lost(&mut self, now: Instant, worker: WorkerId) {
        self.scheduler.handle_worker_lost(now, self.workers[worker]);
    }

    /// As [`PipelineScheduler::handle_worker_ready`].
    pub(super) fn handle_worker_ready(&mut self, now: Instant, worker: WorkerId) {
        self.scheduler.handle_worker_ready(now, self.workers[worker]);
    }

    /// Whether a worker runs a batch.
    pub(super) fn is_at_work(&self, worker: WorkerId) -> bool {
        let (stage, worker) = self.workers[worker];
        self.scheduler.is_at_work(stage, worker)
    }

    /// Requests that wait, at all stages.
    pub(super) fn waiting(&self) -> usize {
        self.waiting_at().sum()
    }

    /// Requests that wait at each stage.
    pub(super) fn waiting_at(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.scheduler.pipeline().stages.len()).map(|stage| self.scheduler.waiting(stage))
    }
}
