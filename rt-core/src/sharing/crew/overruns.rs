//! By how much batches run over: what of that harms nobody, what is told, and when it is forgotten.
//!
//! *Which overruns meet which request.* A mandatory request counts back to an instant at which nothing that goes before it waited, and
//! what was before that is of no matter. What has run over is forgotten when, since the last batch that did, all was calm once,
//! and all batches that ran then have ended. A request that came before that calm instant has been answered by then; one that came
//! later meets nothing that was before. So none meets more than what runs over from one such end to the next, that of its own batch
//! included. What is beyond the margin is a stall, if stalls as declared explain it: for these a part of each deadline is kept back
//! beside the margin.

use super::{Crew, Running};
use crate::WorkerId;
use crate::scheduler::few::Few;
use crate::stalls::StallMonitor;
use crate::time::{Instant, Span};

impl Crew {
    /// From now on batches may run over by `margin`, or if that is more than before once what is there has ended; false, and nothing
    /// has changed, if they have by more.
    pub(in crate::sharing) fn set_margin(&mut self, now: Instant, margin: Span) -> bool {
        let kept = self.excess(now) <= margin;
        if kept {
            if margin > self.after {
                // What has begun since all was calm last leaves no room for it.
                self.await_calm();
            }
            self.after = margin;
            self.count_on(margin.min(self.margin));
        }
        kept
    }

    /// From now on batches may run over by `margin` at most, until all is calm once more and what is there then has ended: no calm instant
    /// before counts.
    pub(in crate::sharing) fn keep_to(&mut self, margin: Span) {
        self.count_on(margin.min(self.margin));
        self.await_calm();
    }

    /// Something begins that counts on what is left of the margin: that grows no sooner than when all has been calm once more.
    pub(in crate::sharing) fn await_calm(&mut self) {
        self.calm = None;
    }

    fn count_on(&mut self, margin: Span) {
        (self.margin, self.beyond_each) = (margin, beyond_share(margin, self.running.len()));
    }

    /// By how much batches may run over in all while one that begins now runs: what ran over before may be forgotten meanwhile.
    pub(in crate::sharing) fn most_over(&self) -> Span {
        self.after
    }

    /// Whether more has run over than may, and is not forgotten.
    pub(in crate::sharing) fn has_harmed(&self) -> bool {
        self.harmed
    }

    /// The service whose batches have run over most of that; `last` if there are several. One that is promised again meanwhile keeps its
    /// part: that others are beyond the margin is its doing, be they late by a little.
    pub(in crate::sharing) fn worst(&self, now: Instant, last: usize) -> usize {
        let of = |service: usize| {
            let running = self.running.iter().flatten().filter(|running| running.service == service);
            running.fold(self.spent_by[service], |all, running| all + now.since(running.due))
        };
        (0..self.spent_by.len()).max_by_key(|&service| (of(service), service == last)).unwrap_or(last)
    }

    /// When it is to be looked again whether a batch is to be reported; the end of time if none runs that is not.
    #[inline]
    pub(in crate::sharing) fn alarm(&self, now: Instant) -> Instant {
        if self.is_on_time(now) { self.due.instant() + self.beyond_each } else { self.alarm_when_late(now) }
    }

    #[inline(never)]
    fn alarm_when_late(&self, now: Instant) -> Instant {
        let left = beyond_share(self.margin.saturating_sub(self.excess(now)), self.running.len());
        let due = self.due.instant();
        // If nothing is left: by now it may be a stall, then it has as long as one may last.
        let due = if left == Span::from_nanos(1) && due < now { due + self.stall } else { due };
        due.max(now) + left
    }

    /// A batch that runs on although, with what ran over before, that may harm others; it counts as reported now.
    pub(in crate::sharing) fn report(&mut self, now: Instant) -> Option<Running> {
        if self.due.instant() >= now || self.excess(now) <= self.margin {
            return None;
        }
        let worker = match self.stalls.clone() {
            None => self.due.earliest()?.1,
            Some(stalls) => self.unexplained(now, stalls)?,
        };
        self.due.remove(worker);
        let running = self.running[worker].as_mut()?;
        (running.reported, self.harmed) = (true, true);
        Some(*running)
    }

    /// The first worker whose batch runs over and has not been reported, if those that no stall would explain which ended now have by more
    /// than the margin. None has ended yet, so nothing of it is on the account.
    #[inline(never)]
    fn unexplained(&self, now: Instant, mut stalls: StallMonitor) -> Option<WorkerId> {
        let (mut first, mut excess) = (None, self.spent);
        let running = self.running.iter().enumerate();
        for (worker, running) in running.filter_map(|(worker, running)| Some((worker, running.as_ref()?))) {
            let over = now.since(running.due);
            if over == Span::ZERO || !running.reported && stalls.explains(running.started, running.due, now) {
                continue;
            }
            excess = excess + over;
            first = first.or((!running.reported).then_some(worker));
        }
        first.filter(|_| excess > self.margin)
    }

    /// Whether it waits for a calm instant, to forget what ran over.
    pub(in crate::sharing) fn is_strained(&self) -> bool {
        // What is lost before it has ended has harmed, and spent nothing.
        (self.spent > Span::ZERO || self.harmed || self.margin < self.after) && self.calm.is_none()
    }

    /// Nothing mandatory waits, and every worker is free within the longest batch: what ran over before harms nobody that
    /// is to come, and what runs once it has ended.
    pub(in crate::sharing) fn calm(&mut self) {
        if !self.is_strained() {
            return;
        }
        let mut busy = Few::default();
        let running = self.running.iter().enumerate().filter(|(_, running)| running.is_some());
        running.for_each(|(worker, _)| busy.set(worker, true));
        self.calm = Some(busy);
        if busy.is_empty() {
            self.forget();
        }
    }

    /// Whether what ran over has been forgotten since this was asked last.
    #[inline]
    pub(in crate::sharing) fn take_forgotten(&mut self) -> bool {
        core::mem::take(&mut self.forgotten)
    }

    /// A batch has ended later than it was due: whether by a stall, and else it ran over.
    #[cold]
    pub(super) fn ran_over(&mut self, now: Instant, ended: Running) -> bool {
        let over = now.since(ended.due);
        let beyond = !ended.reported && self.excess(now) + over > self.margin;
        if beyond && self.has_stalled(ended.started, ended.due, now) {
            return true;
        }
        self.spent = self.spent + over;
        self.spent_by[ended.service] = self.spent_by[ended.service] + over;
        self.calm = None;
        self.harmed |= self.excess(now) > self.margin;
        false
    }

    /// What `worker` ran is over, in time or for good.
    #[inline]
    pub(super) fn is_over(&mut self, worker: WorkerId) {
        if let Some(busy) = &mut self.calm {
            busy.set(worker, false);
            if busy.is_empty() {
                self.forget();
            }
        }
    }

    /// No request that is to be answered has met anything that ran over.
    fn forget(&mut self) {
        (self.spent, self.calm, self.harmed) = (Span::ZERO, None, false);
        self.forgotten = true;
        self.spent_by.fill(Span::ZERO);
        self.count_on(self.after);
    }

    /// By how much batches have run over that is not forgotten, those that run on among them.
    #[inline]
    pub(super) fn excess(&self, now: Instant) -> Span {
        if self.due.instant() >= now && !self.harmed { self.spent } else { self.recount_excess(now) }
    }

    /// The same, looked up: linear in the workers.
    #[inline(never)]
    fn recount_excess(&self, now: Instant) -> Span {
        self.running.iter().flatten().fold(self.spent, |all, running| all + now.since(running.due))
    }

    /// Stalls so far that were declared.
    pub(in crate::sharing) fn stalls(&self) -> u64 {
        self.stalls.as_ref().map_or(0, |stalls| stalls.count)
    }

    /// So many were counted before, if they are still declared.
    pub(in crate::sharing) fn set_stalls(&mut self, count: u64) {
        self.stalls.iter_mut().for_each(|stalls| stalls.count = count);
    }

    /// Whether a batch that ends now, or dispatch that comes now, is late by a stall that was declared.
    pub(in crate::sharing) fn has_stalled(&mut self, started: Instant, due: Instant, now: Instant) -> bool {
        self.stalls.as_mut().is_some_and(|stalls| stalls.explains(started, due, now))
    }
}

/// What is just more than each of so many has of it: all may run over at once.
pub(super) fn beyond_share(of: Span, count: usize) -> Span {
    Span::from_nanos(of.as_nanos() / count as u64) + Span::from_nanos(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A margin that is to grow does not grow sooner because a batch begins beside which there is a smaller one.
    #[test]
    fn what_is_kept_to_is_no_more_than_what_there_is() {
        let [least, kept, most, length] = [2, 4, 6, 10].map(Span::from_nanos);
        let end = Instant::ZERO + length;
        let mut crew = Crew::new(1, 1, (most, None));
        let left = |crew: &Crew| crew.spare(Instant::ZERO).map(|spare| spare.over);
        assert!(crew.set_margin(Instant::ZERO, least));
        crew.start(Instant::ZERO, 0, 0, length);
        assert!(crew.set_margin(Instant::ZERO, most));
        crew.keep_to(kept);
        assert_eq!(left(&crew), Some(least));
        crew.calm();
        assert_eq!(left(&crew), Some(least), "the batch runs that was there when all was calm");
        let ended = crew.take(0).expect("a batch");
        crew.end(end, 0, ended);
        assert_eq!(left(&crew), Some(most));
        crew.keep_to(kept);
        assert_eq!(left(&crew), Some(kept));
    }

    /// What ran when all was calm has ended as well if its worker is lost, or one that ran nothing is lost twice.
    #[test]
    fn what_is_lost_has_ended() {
        let [margin, over, length] = [6, 3, 10].map(Span::from_nanos);
        let [end, late] = [length, length + over].map(|span| Instant::ZERO + span);
        let mut crew = Crew::new(3, 1, (margin, None));
        crew.start(Instant::ZERO, 0, 0, length);
        crew.start(end, 1, 0, length);
        let ended = crew.take(0).expect("a batch");
        crew.end(late, 0, ended);
        let left = |crew: &Crew| crew.spare(late).map(|spare| spare.over);
        crew.calm();
        (0..2).for_each(|_| crew.lose(2));
        assert_eq!((left(&crew), crew.first_free()), (Some(Span::from_nanos(3)), Some(0)));
        crew.lose(1);
        assert_eq!((left(&crew), crew.take_forgotten()), (Some(margin), true));
        crew.lose(0);
        assert!(!crew.has_free());
    }
}
