//! The workers of a pipeline's stages: who is there, who runs a batch, who is lost and comes back.

use super::scheduler::{PipelineScheduler, source_of};
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
        if self.pool(stage).get(worker).is_none() {
            return;
        }
        self.pool_mut(stage).end(now, worker);
        self.calm.end(stage, worker);
        let mut lost = core::mem::take(self.pool_mut(stage).batch_mut(worker));
        // That it is gone is told before what is missed for it.
        if stage == 0 {
            self.first.handle_worker_lost(now, worker);
        } else {
            self.pool_mut(stage).lose(now, worker);
            self.count_workers(now);
        }
        lost.drain(..)
            .for_each(|part| self.close(now, source_of(&part), Outcome::Missed(MissReason::WorkerLost)));
        *self.pool_mut(stage).batch_mut(worker) = lost;
    }

    /// Takes in that a lost worker of a stage is back.
    pub fn handle_worker_ready(&mut self, now: Instant, (stage, worker): (usize, WorkerId)) {
        if stage == 0 {
            self.first.handle_worker_ready(now, worker);
        } else if self.pool(stage).get(worker).is_some_and(|w| w.state == State::Lost) {
            self.pool_mut(stage).regain(now, worker);
            self.count_workers(now);
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

    /// The same, to be changed.
    pub(super) fn pool_mut(&mut self, stage: usize) -> &mut Pool {
        match stage.checked_sub(1) {
            None => self.first.pool_mut(),
            Some(later) => &mut self.later[later].pool,
        }
    }

    /// Those of each stage.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Pool> {
        (0..=self.later.len()).map(|stage| self.pool(stage))
    }

    /// Tells the first stage how many workers there are behind it.
    fn count_workers(&mut self, now: Instant) {
        let behind = || self.pools().skip(1);
        let (alive, all) = (behind().map(Pool::alive).sum(), behind().map(Pool::len).sum());
        let cut = behind().any(|pool| pool.alive() == 0);
        self.first.set_behind(now, Behind { alive, all, cut });
        if cut {
            self.close_all(now, MissReason::WorkerLost, |_| true);
        }
    }
}
