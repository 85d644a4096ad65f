//! Overruns: by how much the batches of all stages together may take longer than they may, and make no promised source late.
//!
//! Theorems P1 and P2 add up, stage by stage, what the workers of a stage run between an instant and the end of a request. A batch that
//! takes longer adds no more than that to the time of its stage, and each stage has workers of its own; so all overruns together add no
//! more than their sum to the bound, and what it leaves of the deadline is the *margin*.
//!
//! *Which overruns meet which source.* Those that are counted are forgotten at an instant `E` if, since the last one, there was a `c_i` of
//! every stage (see `calm.rs`) and all batches that ran at any of these have ended. A source that came before `c_0` is over by `E`: at
//! each `c_i` what there was of it at the stage ran, and ended before the `c` of the stages behind. One that came at `c_0` or later meets
//! nothing that was before. So no source meets more than what is counted from one such instant to the next.
//!
//! What is beyond the margin is a stall, if stalls as declared explain it: for these a part of the deadline is kept back beside the
//! margin, and each batch is late by what is counted either here or there.

use super::scheduler::{NEVER, PipelineScheduler, source_of};
use crate::Outcome;
use crate::scheduler::pool::Pool;
use crate::stream::MissReason;
use crate::time::{Instant, Span};

/// What is left of the margin.
#[derive(Debug, Default)]
pub(super) struct Overruns {
    /// By how much batches may take longer in all, now and once what was is forgotten.
    margin: Span,
    after: Span,
    /// By how much those did that ended, and how often that, or the margin, became more.
    spent: Span,
    pub(super) count: u64,
}

impl Overruns {
    /// Whether a batch that has ended took longer.
    pub(super) fn are_any(&self) -> bool {
        self.spent > Span::ZERO
    }

    /// Whether there is anything to be forgotten.
    pub(super) fn is_strained(&self) -> bool {
        self.are_any() || self.margin < self.after
    }

    /// No source that is to be answered has met an overrun.
    pub(super) fn forget(&mut self) {
        (self.spent, self.margin) = (Span::ZERO, self.after);
    }
}

impl PipelineScheduler {
    /// Sets by how much batches may take longer in all, between instants at which nothing that was before is in the way: what the bound of
    /// an admission leaves of the deadline. It must be that of the streams that are there and, if it counts one more, be set before that
    /// is added. False, and nothing has changed, if they have by more already: then the stream is to be added later. Zero before it is
    /// set, and where there is a shield, which grants what is left of the deadline to longer batches, but none behind an overrun.
    #[must_use]
    pub fn set_overrun_margin(&mut self, now: Instant, margin: Span) -> bool {
        let kept = self.excess(now) <= margin;
        if kept {
            // What is there was promised beside what counted until now: for that nothing more is left.
            let overruns = &mut self.overruns;
            overruns.count += u64::from(margin > overruns.margin);
            (overruns.margin, overruns.after) = (overruns.margin.min(margin), margin);
            self.settle(now);
        }
        kept
    }

    /// What [`PipelineScheduler::set_overrun_margin`] has set last.
    #[must_use]
    pub fn overrun_margin(&self) -> Span {
        self.overruns.after
    }

    /// By how much batches that have not ended may yet take longer in all.
    #[must_use]
    pub fn overruns_left(&self) -> Span {
        self.present_margin().saturating_sub(self.overruns.spent)
    }

    /// By how much they may in all.
    pub(super) fn present_margin(&self) -> Span {
        if self.has_shield() || self.longer.since_calm { Span::ZERO } else { self.overruns.margin }
    }

    /// By how much batches took longer since the last such instant, those that run among them.
    fn excess(&self, now: Instant) -> Span {
        self.pools().fold(self.overruns.spent, |all, pool| all + pool.overdue_by(now, |_, _| false))
    }

    /// A batch that began and was due then has ended, and was `reported` before, or not: whether it is to be told that it took longer.
    pub(super) fn note_overrun(
        &mut self,
        now: Instant,
        (started, due, reported): (Instant, Instant, bool),
    ) -> bool {
        let over = now.since(due);
        if over == Span::ZERO {
            return reported;
        }
        let beyond = self.excess(now) + over > self.present_margin();
        if beyond && !reported && self.first.has_stalled(started, due, now) {
            return false;
        }
        self.overruns.spent = self.overruns.spent + over;
        self.overruns.count += 1;
        beyond || reported
    }

    /// Tells of batches that run on, if all of them together may make something late.
    pub(super) fn report_overruns(&mut self, now: Instant) {
        let margin = self.present_margin();
        if self.earliest_due() >= now || self.excess(now) <= margin {
            return;
        }
        // None has ended yet, so nothing of it is on the account.
        let mut stalls = self.first.stall_account();
        let mut excused =
            |started, due| stalls.as_mut().is_some_and(|stalls| stalls.explains(started, due, now));
        let overdue = self.pools().map(|pool| pool.overdue_by(now, &mut excused));
        if overdue.fold(self.overruns.spent, |all, over| all + over) <= margin {
            return;
        }
        for stage in 0..=self.later.len() {
            while let Some((started, due)) = self.pool_mut(stage).report_overdue(now, &mut excused) {
                self.first.stage_ran_over(now, stage, (started, due, false), None);
                self.passes = now;
            }
        }
    }

    /// Ends the sources of which something runs in a batch that should have ended, and whose deadline has passed: nobody waits for what
    /// that becomes.
    #[cold]
    pub(super) fn miss_overdue(&mut self, now: Instant) {
        self.passes = NEVER;
        for stage in 0..=self.later.len() {
            for worker in 0..self.pool(stage).len() {
                if !self.pool(stage).get(worker).is_some_and(|worker| worker.is_overdue(now)) {
                    continue;
                }
                for place in 0..self.pool(stage).batch(worker).len() {
                    let source = source_of(&self.pool(stage).batch(worker)[place]);
                    let Some(request) = self.sources.get(source) else { continue };
                    let deadline = self.due_as_whole(request);
                    if now > deadline {
                        self.close(now, source, Outcome::Missed(MissReason::Late));
                    } else {
                        self.passes = self.passes.min(deadline + Span::from_nanos(1));
                    }
                }
            }
        }
    }

    /// When it is to be looked again whether a batch is to be told of; the end of time if none is.
    pub(super) fn overrun_alarm(&self, now: Instant) -> Instant {
        let due = self.earliest_due();
        if due == NEVER {
            return NEVER;
        }
        // All that run may take longer at once.
        let running = self.pools().map(Pool::at_work).sum::<usize>().max(1) as u64;
        let left = self.present_margin().saturating_sub(self.excess(now)).as_nanos() / running;
        // By now it may be a stall, then it has as long as one may last.
        if let Some(stalls) = self.pipeline.stalls.filter(|_| left == 0 && due < now) {
            return (due + stalls.length()).max(now) + Span::from_nanos(1);
        }
        let soonest = if due < now { now } else { due + self.pipeline.guard };
        soonest + Span::from_nanos(left + 1)
    }

    fn earliest_due(&self) -> Instant {
        self.pools().map(Pool::earliest_due).min().unwrap_or(NEVER)
    }
}
