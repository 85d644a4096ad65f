//! Longer batches at a stage: what the pipeline's shield allows, for a slower variant, say.

use alloc::vec::Vec;

use super::scheduler::PipelineScheduler;
use super::shield::PipelineShield;
use super::{Pipeline, Stage};
use crate::scheduler::queue::MANDATORY;
use crate::time::{Instant, Span};
use crate::{Request, WorkerId};

/// The most requests that are looked at for one decision.
const MOST: usize = 1 << 12;

/// What is known for it.
#[derive(Debug)]
pub(super) struct Longer {
    shield: Option<PipelineShield>,
    /// Streams have come that it may not count.
    pub(super) recount: bool,
    /// A batch was granted more than a full one since nothing that was before was in the way of what is to come.
    pub(super) since_calm: bool,
    /// By stage, then by stage: how many requests of the first a request of the second becomes at most, 1 for itself, 0 beside the way.
    /// Of a tree; for other pipelines there is no shield.
    becomes: Vec<Vec<u64>>,
    /// Room for sources by when they came, with how many requests they may become at the stage that is asked about.
    alive: Vec<(Instant, u64)>,
    /// And for when these must be answered.
    due: Vec<Instant>,
}

impl Longer {
    /// Without a shield. Allocates.
    pub(super) fn new(pipeline: &Pipeline, descendants: &[u64]) -> Self {
        let stages = &pipeline.stages;
        let of = |i: usize| {
            let mut becomes = alloc::vec![0; stages.len()];
            let mut above = Some(i);
            while let Some(stage) = above {
                becomes[stage] = descendants[i] / descendants[stage];
                above = stages[stage].parents.iter().next();
            }
            becomes
        };
        Self {
            shield: None,
            recount: false,
            since_calm: false,
            becomes: if pipeline.is_tree() { (0..stages.len()).map(of).collect() } else { Vec::new() },
            alive: Vec::with_capacity(MOST),
            due: Vec::with_capacity(MOST),
        }
    }
}

impl Longer {
    /// How many requests of `stage` one of `above` becomes at most; 0 of one that is not on the way there.
    pub(super) fn becomes(&self, above: usize, stage: usize) -> u64 {
        self.becomes[stage][above]
    }
}

impl PipelineScheduler {
    /// Sets the shield that longer batches are asked of, or takes it away; the old one is to be dropped where nobody waits. It must
    /// count every promised stream that is there; once a stream comes that it does not count it is asked no more. One for another
    /// pipeline comes back where this one has merges or joins, for which there is none.
    pub fn set_shield(&mut self, shield: Option<PipelineShield>) -> Option<PipelineShield> {
        if !self.pipeline.is_tree() {
            return shield;
        }
        self.longer.recount = true;
        core::mem::replace(&mut self.longer.shield, shield)
    }

    /// Whether there is a shield.
    #[must_use]
    pub fn has_shield(&self) -> bool {
        self.longer.shield.is_some()
    }

    /// Whether there is a shield that counts every promised stream that is there.
    #[must_use]
    pub fn is_shielded(&self) -> bool {
        self.longer.shield.as_ref().is_some_and(|shield| self.first.left_out(&shield.counted) == 0)
    }

    /// Grants the batch that `worker` of `stage` was told to start at `now` what `wish` makes of the longest that it may take, instead of
    /// `P(b)`; to be called as [`crate::Scheduler::prolong`] is, of which it is one with [`crate::Scheduler::longest`]: all that has
    /// begun is looked at once. What the batch has then: no less than `P(b)` and no more than the longest, 0 if there is no such batch.
    pub fn prolong(
        &mut self,
        now: Instant,
        (stage, worker): (usize, WorkerId),
        wish: impl FnOnce(Span) -> Span,
    ) -> Span {
        let Some(granted) = self.pool(stage).time_granted(now, worker) else { return Span::ZERO };
        let suspended = self.first.is_awaited() || self.first.safe_mode().state().is_suspended();
        let allowed = if suspended { Span::ZERO } else { self.longest_by_shield(now, stage, worker) };
        let longest = allowed.max(granted);
        let length = wish(longest).clamp(granted, longest);
        if length > granted {
            self.longer.since_calm |= length > self.pipeline.stages[stage].time;
            self.pool_mut(stage).prolong(worker, now + length);
        }
        length
    }

    /// What all requests together allow; 0 without a shield.
    fn longest_by_shield(&mut self, now: Instant, stage: usize, worker: WorkerId) -> Span {
        if core::mem::take(&mut self.longer.recount)
            && self.longer.shield.as_ref().is_some_and(|shield| self.first.left_out(&shield.counted) > 0)
        {
            // It stays where it is: dropping it takes time.
            self.longer.recount = true;
            return Span::ZERO;
        }
        if !self.first.promises() {
            return self.slack(now, stage, worker, self.pipeline.deadline);
        }
        let Some(own) = self.longer.shield.as_ref().map(|shield| &shield.stages[stage]) else {
            return Span::ZERO;
        };
        let (theta, beside) = (own.theta.saturating_sub(self.pipeline.guard), own.beside);
        let on_time = !self.overruns.are_any() && self.pools().all(|pool| pool.is_on_time(now));
        if !on_time || !self.look_at(stage, theta) {
            return Span::ZERO;
        }
        let slack = self.slack(now, stage, worker, theta);
        let Some(shield) = self.longer.shield.as_ref().and_then(|all| all.stages[stage].shield.as_ref())
        else {
            return Span::ZERO;
        };
        let Stage { workers, time, .. } = self.pipeline.stages[stage];
        if workers > 1 && self.pool(stage).long_beside(now, worker).next().is_some() {
            return time.min(slack);
        }
        let due = self.longer.due.iter().copied();
        slack.min(beside).min(shield.longest(now, core::iter::empty(), due, Span::ZERO))
    }

    /// By when its own requests let the batch of a worker end: mandatory ones `theta` after their sources came, others so that
    /// what follows can be in time.
    fn slack(&self, now: Instant, stage: usize, worker: WorkerId, theta: Span) -> Span {
        let end = |request: &Request| match request.mandatory {
            true => (request.arrival + theta).min(request.deadline),
            false => request.deadline,
        };
        self.pool(stage).batch(worker).iter().map(end).min().map_or(Span::ZERO, |end| end.since(now))
    }

    /// Writes down by when all that may wait at a stage must be answered there, of the mandatory sources that have come, in order;
    /// false if they are too many.
    fn look_at(&mut self, stage: usize, theta: Span) -> bool {
        let Self { longer, sources, first, .. } = self;
        let Longer { becomes, alive, due, .. } = longer;
        alive.clear();
        due.clear();
        for (id, request) in sources.iter().filter(|(_, request)| request.mandatory) {
            let at = |above: usize| {
                let (waiting, running) = sources.at_stage(id, above);
                // What runs at the stage itself is no longer in anybody's way.
                becomes[stage][above] * if above == stage { waiting } else { waiting + running }
            };
            let count = (0..=stage).map(at).sum();
            if count > 0 && alive.len() < MOST {
                alive.push((request.arrival, count));
            }
        }
        for request in first.waiting_of(MANDATORY) {
            if alive.len() < MOST {
                alive.push((request.arrival, becomes[stage][0]));
            }
        }
        alive.sort_unstable();
        let all: u64 = alive.iter().map(|&(_, count)| count).sum();
        if alive.len() == MOST || all > MOST as u64 {
            return false;
        }
        for &(came, count) in alive.iter() {
            due.extend(core::iter::repeat_n(came + theta, count as usize));
        }
        true
    }
}
