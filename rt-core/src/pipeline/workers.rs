//! The workers of a pipeline's stages: who is there, who runs a batch, who is lost and comes back.

use super::scheduler::PipelineScheduler;
use super::sources::SourceId;
use crate::scheduler::first::Behind;
use crate::scheduler::pool::{Pool, State};
use crate::stream::MissReason;
use crate::time::Instant;
use crate::{Outcome, WorkerId};

impl PipelineScheduler {
    /// Whether a worker of a stage is there and not lost.
    #[must_use]
    pub fn is_alive(&self, stage: usize, worker: WorkerId) -> bool {
        self.pool(stage).get(worker).is_some_and(|w| w.state != State::Lost)
    }

    /// Whether a worker of a stage runs a batch.
    #[must_use]
    pub fn is_at_work(&self, stage: usize, worker: WorkerId) -> bool {
        self.pool(stage).get(worker).is_some_and(|w| matches!(w.state, State::Busy { .. }))
    }

    /// Workers of all stages that are not lost.
    #[must_use]
    pub fn workers_alive(&self) -> usize {
        self.pools().map(Pool::alive).sum()
    }

    /// Requests in batches of all stages.
    #[must_use]
    pub fn running(&self) -> usize {
        self.pools().map(Pool::running).sum()
    }

    /// Whether every stage has a worker: otherwise nothing can be answered.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.pools().all(|pool| pool.alive() > 0)
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
        } else if self.pool(stage).get(worker).is_some_and(|w| w.state == State::Lost) {
            self.later[stage - 1].pool.regain(now, worker);
            self.count_workers(now, false);
        }
        self.arm(now);
    }

    /// The workers of a stage.
    pub(super) fn pool(&self, stage: usize) -> &Pool {
        match stage.checked_sub(1) {
            None => self.first.pool(),
            Some(later) => &self.later[later].pool,
        }
    }

    /// Those of each stage.
    fn pools(&self) -> impl Iterator<Item = &Pool> {
        (0..=self.later.len()).map(|stage| self.pool(stage))
    }

    /// Tells the first stage how many workers there are behind it.
    pub(super) fn count_workers(&mut self, now: Instant, failed: bool) {
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
}
