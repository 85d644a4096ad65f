//! What is to be expected of the workers as they are: when they have answered, and whether any keeps others waiting.

use super::{Alike, Pool, State, Worker};
use crate::scheduler::WorkerId;
use crate::scheduler::few::Few;
use crate::scheduler::types::NEVER;
use crate::time::{Instant, Span};

impl Pool {
    /// The earliest instant at which a full batch started after the one that `acting` starts now can be done.
    pub(crate) fn next_answer(&self, now: Instant, acting: WorkerId) -> Instant {
        let own = self.workers[acting].kind;
        let of = |(index, alike): (usize, &Alike)| {
            let time = alike.kind.time;
            if alike.free_count > usize::from(index == own) {
                return Some(now + time);
            }
            let due = alike.next_due(&self.workers);
            let due = (due < NEVER).then(|| due.max(now) + time);
            let overdue = (alike.overdue > 0).then_some(now + time);
            let acting = (index == own).then_some(now + time + time);
            [due, overdue, acting].into_iter().flatten().min()
        };
        self.kinds.iter().enumerate().filter_map(of).min().unwrap_or(now)
    }

    /// Whether a request that comes now, with `ahead` requests to be begun before it, has most likely been answered by
    /// `deadline`: in batches that pay, of as many as profiles have if `long`, else of those that promises are computed for.
    /// Some worker is there.
    #[inline]
    pub(crate) fn is_likely_by(&self, deadline: Instant, now: Instant, ahead: usize, long: bool) -> bool {
        self.kinds.iter().any(|kind| {
            kind.likely_time(ahead, long).is_some_and(|time| {
                // Mostly it is in time though the next batch ends as late as it may.
                kind.free_by(now, &self.workers) + time <= deadline
                    || kind.free_count == 0 && kind.likely_free(now, &self.workers) + time <= deadline
            })
        })
    }

    /// How long the batch that `worker` started at `now` may take as things are.
    #[inline]
    pub(crate) fn time_granted(&self, now: Instant, worker: WorkerId) -> Option<Span> {
        match self.get(worker)?.state {
            State::Busy { started, due, .. } if started == now => Some(due.since(now)),
            _ => None,
        }
    }

    /// What the batch of `worker` still takes at most; nothing of one that runs none.
    #[inline]
    pub(crate) fn left(&self, now: Instant, worker: WorkerId) -> Span {
        self.get(worker).map_or(Span::ZERO, |worker| worker.left(now))
    }

    /// What the batch of each worker still takes at most, if one that was granted more than `P` may have `lost` so much until now.
    pub(crate) fn left_of_each(&self, now: Instant, lost: Span) -> impl Iterator<Item = Span> + '_ {
        let left =
            move |(id, w): (usize, &Worker)| w.left(now) + if self.long.has(id) { lost } else { Span::ZERO };
        self.iter().enumerate().map(left)
    }

    /// Whether every worker is free within its `P`, if one whose batch was granted more may have `lost` so much of it until now.
    pub(crate) fn is_prompt(&self, now: Instant, lost: Span) -> bool {
        let on_time = !self.iter().any(|worker| worker.is_overdue(now));
        on_time && self.left_of_each(now, lost).enumerate().all(|(id, left)| left <= self.kind(id).time)
    }

    /// Whether every worker is there and none is overdue.
    #[inline(always)]
    pub(crate) fn is_on_time(&self, now: Instant) -> bool {
        self.lost == 0 && self.overdue == 0 && now <= self.earliest_due()
    }

    /// By how much batches that run should have ended by now, in all, but for those that are `excused` by when they began and were due.
    pub(crate) fn overdue_by(&self, now: Instant, mut excused: impl FnMut(Instant, Instant) -> bool) -> Span {
        if self.overdue == 0 && now <= self.earliest_due() {
            return Span::ZERO;
        }
        let mut over = |worker: &Worker| match worker.state {
            State::Busy { started, due, reported } if due < now && (reported || !excused(started, due)) => {
                now.since(due)
            }
            _ => Span::ZERO,
        };
        self.iter().map(&mut over).fold(Span::ZERO, |all, over| all + over)
    }

    /// How many workers run a batch.
    pub(crate) fn at_work(&self) -> usize {
        self.alive() - self.free
    }

    /// The workers that run a batch.
    pub(crate) fn busy(&self) -> Few {
        let mut busy = Few::default();
        for (id, worker) in self.iter().enumerate() {
            busy.set(id, matches!(worker.state, State::Busy { .. }));
        }
        busy
    }

    /// What the batches of others than `worker` that were granted more than `P` still take at most.
    pub(crate) fn long_beside(
        &self,
        now: Instant,
        worker: WorkerId,
    ) -> impl Iterator<Item = Span> + Clone + '_ {
        let mut others = self.long;
        others.set(worker, false);
        others.map(move |other| self.workers[other].left(now))
    }
}
