//! Which variant of a stage's model runs a batch: the most accurate one that comes in nobody's way.
//!
//! What is chosen depends on what there is when a batch begins, not on a plan: sources that are late get the base by themselves, as
//! with the opportunistic rerouting of Loki (section 5.2 there), and the shield keeps the promises whatever is wished.

use alloc::vec::Vec;

use super::Pipeline;
use super::scheduler::PipelineScheduler;
use crate::time::{Instant, Span};
use crate::{LatencyProfile, WorkerId};

/// What may run at a stage instead of its base.
#[derive(Clone, Debug, Default)]
pub struct StageVariants {
    /// The times of the variants behind the base, each more accurate than the one before.
    pub times: Vec<LatencyProfile>,
    /// By when after the arrival of its source a request should have left the stage: with a slower variant, what waits here leaves no
    /// later than that. A wish; what must hold is the shield's.
    pub leave: Span,
}

impl Pipeline {
    /// Of each stage the part of the deadline up to its end, on the longest path through it, where stages take these times.
    ///
    /// # Panics
    /// If they are not as many as the stages.
    #[must_use]
    pub fn parts(&self, times: &[Span]) -> Vec<Span> {
        assert_eq!(times.len(), self.stages.len(), "a time for each stage");
        let mut below = alloc::vec![0; times.len()];
        let mut through: Vec<u64> = times.iter().map(|time| time.as_nanos()).collect();
        for (i, stage) in self.stages.iter().enumerate() {
            through[i] += stage.parents.iter().map(|parent| through[parent]).max().unwrap_or(0);
        }
        for (i, stage) in self.stages.iter().enumerate().rev() {
            for parent in stage.parents.iter() {
                below[parent] = below[parent].max(below[i] + times[i].as_nanos());
            }
        }
        let part = |(through, below): (&u64, &u64)| {
            let whole = (through + below).max(1) as f64;
            Span::from_nanos((self.deadline.as_nanos() as f64 * *through as f64 / whole) as u64)
        };
        through.iter().zip(&below).map(part).collect()
    }
}

impl PipelineScheduler {
    /// Sets what each stage may run instead of its base; without it that is nothing. Allocates nothing, and drops what was before.
    pub fn set_variants(&mut self, variants: Vec<StageVariants>) {
        self.variants = variants;
    }

    /// The variant for the batch that `worker` of `stage` was told to start at `now`, 0 for the base; to be called at most once a batch,
    /// as [`PipelineScheduler::prolong`]. It is the most accurate one with which the batch ends within what `prolong` allows, while all
    /// that waits behind it, and most likely comes of the sources that are at the stages before, could be served as slowly and leave the
    /// stage in time.
    pub fn choose(&mut self, now: Instant, (stage, worker): (usize, WorkerId)) -> usize {
        // Where there are merges or joins nothing longer is ever allowed.
        let Some(of) =
            self.variants.get_mut(stage).filter(|of| !of.times.is_empty() && self.pipeline.is_tree())
        else {
            return 0;
        };
        // Put back below: the closure may not look at the scheduler.
        let times = core::mem::take(&mut of.times);
        let leave = of.leave;
        let batch = self.pool(stage).batch(worker);
        let size = batch.len();
        let oldest = batch.iter().map(|part| part.arrival).min().unwrap_or(now);
        let left = (oldest + leave).since(now);
        let of = &self.pipeline.stages[stage];
        let (full, rounds) = (of.batch, self.to_come(stage).div_ceil(of.workers * of.batch) as u64);
        let mut chosen = 0;
        self.prolong(now, (stage, worker), |longest| {
            let fits = |times: &LatencyProfile| {
                let served = size.max(full) <= times.max_batch();
                let behind = || times.likely(full).as_nanos().saturating_mul(rounds);
                served
                    && times.bound(size) <= longest
                    && times.likely(size).as_nanos().saturating_add(behind()) <= left.as_nanos()
            };
            chosen = times.iter().rposition(fits).map_or(0, |place| place + 1);
            // What the base takes it has.
            chosen.checked_sub(1).map_or(Span::ZERO, |place| times[place].bound(size))
        });
        self.variants[stage].times = times;
        chosen
    }

    /// Requests that wait at a stage, and that what waits or runs before it mostly becomes there.
    fn to_come(&self, stage: usize) -> usize {
        let before = (0..stage).map(|above| {
            let mean = self.means[stage] / self.means[above].max(f64::MIN_POSITIVE);
            let mostly = mean.min(self.longer.becomes(above, stage) as f64);
            mostly * (self.waiting(above) + self.pool(above).running()) as f64
        });
        (before.sum::<f64>() + 0.999) as usize + self.waiting(stage)
    }
}
