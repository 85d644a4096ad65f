//! The way of sources through the stages: what results become, what is begun, what ends early, and when all of that is over.

use super::MAX_STAGES;
use super::scheduler::{NEVER, PipelineScheduler, part_of, source_of};
use super::sources::SourceId;
use crate::scheduler::queue::MANDATORY;
use crate::stream::MissReason;
use crate::time::Instant;
use crate::{Outcome, Request, WorkerId};

impl PipelineScheduler {
    /// A result of a source became so many requests of a stage.
    pub(super) fn fan_out(
        &mut self,
        now: Instant,
        source: SourceId,
        request: &Request,
        stage: usize,
        count: u32,
    ) {
        let most = self.pipeline.stages[stage].fan_out;
        if count > most {
            self.first.fanned_out(now, request.stream, stage, (most.into(), count.into()));
        }
        let part = Request { deadline: self.due_at(stage, request), ..*request };
        for _ in 0..count.min(most) {
            if self.later[stage - 1].waiting.is_full() && !self.make_room(now, stage) {
                self.close(now, source, Outcome::Missed(MissReason::QueueFull));
            }
            // Room may have been made by ending this very source.
            if self.sources.get(source).is_none() {
                return;
            }
            let index = self.sources.come(source, stage);
            self.later[stage - 1].push(part_of(source, index, &part));
        }
    }

    /// Ends the source that nothing is promised for and of which the first request waits at a full stage; false if there is none.
    pub(super) fn make_room(&mut self, now: Instant, stage: usize) -> bool {
        let other = self.later[stage - 1].waiting.give_way(MANDATORY);
        other.inspect(|other| self.give_up(now, stage, other, MissReason::QueueFull)).is_some()
    }

    /// A request of a stage has been taken out of what waits and given up: with it all that waits of its source.
    pub(super) fn give_up(&mut self, now: Instant, stage: usize, part: &Request, reason: MissReason) {
        let source = source_of(part);
        if self.sources.get(source).is_some() {
            self.sources.leave(source, stage);
            self.close(now, source, Outcome::Missed(reason));
        }
    }

    /// Ends a source, with all that waits of it; what runs ends unheard.
    pub(super) fn close(&mut self, now: Instant, source: SourceId, outcome: Outcome) {
        let Some(&request) = self.sources.get(source) else { return };
        for stage in 1..=self.later.len() {
            let deadline = self.due_at(stage, &request);
            for _ in 0..self.sources.waiting(source, stage) {
                let is = |part: &Request| source_of(part) == source;
                self.later[stage - 1].waiting.take_back(deadline, is);
            }
        }
        self.sources.close(source);
        self.first.close(now, &request, outcome);
    }

    /// When what a source becomes at a later stage must leave it.
    fn due_at(&self, stage: usize, source: &Request) -> Instant {
        let due = source.deadline + self.rest[0].saturating_sub(self.rest[stage]);
        // What nothing is promised for may still be answered when what follows takes as long as it most likely does.
        if source.mandatory { due } else { due.min(source.wanted - self.likely_rest[stage]) }
    }

    /// Ends all sources that have begun and are such.
    pub(super) fn close_all(&mut self, now: Instant, reason: MissReason, are: impl Fn(&Request) -> bool) {
        for slot in 0..self.sources.room() {
            if let Some(source) =
                self.sources.at(slot).filter(|&source| self.sources.get(source).is_some_and(&are))
            {
                self.close(now, source, Outcome::Missed(reason));
            }
        }
    }

    /// Ends the sources that can no longer be answered as a whole.
    pub(super) fn expire(&mut self, now: Instant) {
        for stage in 1..=self.later.len() {
            while let Some(part) = self.later[stage - 1].pop_expired(now) {
                self.give_up(now, stage, &part, MissReason::Expired);
            }
        }
    }

    /// Starts a batch, if a worker is free and something waits.
    pub(super) fn start(&mut self, now: Instant) -> Option<(usize, WorkerId)> {
        if let Some(worker) = self.first.pool().first_alike().flatten().filter(|_| self.may_start(0))
            && self.start_first(now, worker)
        {
            return Some((0, worker));
        }
        (1..=self.later.len()).find_map(|stage| Some((stage, self.start_later(now, stage)?)))
    }

    /// Whether anything waits at a stage that a batch may be started for.
    fn may_start(&self, stage: usize) -> bool {
        if self.first.is_quiet() { self.waiting_mandatory(stage) > 0 } else { self.waiting(stage) > 0 }
    }

    /// Starts a batch of a later stage.
    pub(super) fn start_later(&mut self, now: Instant, stage: usize) -> Option<WorkerId> {
        let formed = (self.first.safe_mode().state().is_suspended(), self.first.keeps_apart(now));
        loop {
            if !self.may_start(stage) {
                return None;
            }
            let worker = self.later[stage - 1].form(now, formed)?;
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
    pub(super) fn start_first(&mut self, now: Instant, worker: WorkerId) -> bool {
        if self.first.waiting() > self.first.waiting_mandatory() {
            self.first.shed_before(now, self.likely_end(now));
        }
        let background = self.first.first_mandatory() == NEVER;
        let turn = (background, self.present_margin());
        if self.first.waiting() == 0 || self.first.take_turn(now, worker, turn).is_none() {
            return false;
        }
        let mut place = 0;
        while let Some(&request) = self.first.batch(worker).get(place) {
            if let Some(source) = self.begin(now, &request) {
                self.first.pool_mut().batch_mut(worker)[place] = part_of(source, 0, &request);
                place += 1;
            } else {
                self.first.pool_mut().take_out(worker, place);
                self.first.close(now, &request, Outcome::Missed(MissReason::QueueFull));
            }
        }
        if place == 0 {
            self.first.pool_mut().end(now, worker);
        }
        place > 0
    }

    /// Gives a source a place among those that have begun; if all are taken, of those that nothing is promised for the one that
    /// must be answered last gives way.
    fn begin(&mut self, now: Instant, request: &Request) -> Option<SourceId> {
        self.sources.begin(request).or_else(|| {
            let optional = self.sources.iter().filter(|(_, other)| !other.mandatory);
            let (other, _) = optional.max_by_key(|(_, other)| other.deadline)?;
            self.close(now, other, Outcome::Missed(MissReason::QueueFull));
            self.sources.begin(request)
        })
    }

    /// When a source that is begun now has most likely been answered as a whole: at each stage it waits until what is there has been
    /// begun.
    fn likely_end(&self, now: Instant) -> Instant {
        let mut ends = [now; MAX_STAGES];
        ends[0] = now + self.first.config().workers[0].profile.likely(1);
        let mut last = ends[0];
        for (i, later) in self.later.iter().enumerate() {
            let came = self.pipeline.stages[i + 1].parents.most(&ends);
            let (busy, own) = later.likely_times(self.means[i + 1] as usize + 1);
            ends[i + 1] = came.max(now + busy) + own;
            last = last.max(ends[i + 1]);
        }
        last
    }

    /// Where nothing that was before is in the way of what is to come, tells the first stage, if that waits for it, and forgets overruns.
    pub(super) fn settle(&mut self, now: Instant) -> bool {
        let awaited = self.first.awaits_clear();
        if !awaited && !self.overruns.is_strained() {
            return false;
        }
        self.calm.restart(self.first.breaks() + self.overruns.count);
        for stage in 0..=self.later.len() {
            if !self.calm.is_next(stage, self.pipeline.stages[stage].parents) {
                continue;
            }
            if self.waiting_mandatory(stage) == 0
                && self.pool(stage).is_prompt(now, self.first.most_stalled())
            {
                let busy = self.pool(stage).busy();
                self.calm.note(stage, busy);
            }
        }
        if self.calm.has_ended() {
            self.overruns.forget();
        }
        let over = awaited && self.calm.is_over();
        if over {
            self.first.all_clear();
            self.longer.since_calm = false;
        }
        over
    }
}
