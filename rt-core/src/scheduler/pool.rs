//! The pool: workers of one or of several kinds, who of them is free, by when the others are due, and who is lost.
//!
//! Nothing here is linear in the workers while requests flow: free ones are bits, and of the busy ones the earliest that is
//! due is known, unless somebody else watches them ([`Pool::forget_due`]).

mod kind;
mod outlook;
mod worker;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::few::Few;
use super::types::{NEVER, Request, WorkerId};
use crate::fallback::longer;
use crate::time::{Instant, Span};
use crate::workers::Workers;
use kind::Alike;
pub(crate) use kind::Kind;
pub(crate) use worker::{State, Worker};

/// All workers of a scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    kinds: Box<[Alike]>,
    /// Kinds by the time of a full batch, the first of equals first.
    order: Box<[usize]>,
    workers: Box<[Worker]>,
    running: usize,
    free: usize,
    /// Since when at least one has been.
    free_since: Instant,
    /// Those whose batch was granted more than `P`, and how many they are.
    long: Few,
    long_count: usize,
    lost: usize,
    /// Those that are busy and were reported as overdue.
    overdue: usize,
    /// The least time in which a worker that is there answers one request: at most, and most likely.
    quickest: Option<(Span, Span)>,
    /// Batches may take longer than profiles say.
    slower: bool,
}

impl Pool {
    /// All of them free. Allocates.
    pub(crate) fn new(kinds: &[Workers]) -> Self {
        let mut first = 0;
        let mut workers = Vec::new();
        let kinds: Box<[Alike]> = kinds
            .iter()
            .enumerate()
            .map(|(kind, of)| {
                let batch = || Vec::with_capacity(of.profile.max_batch());
                workers.extend((0..of.count).map(|_| Worker {
                    kind,
                    state: State::Free,
                    batch: batch(),
                    variant: 0,
                }));
                first += of.count;
                Alike::new(of, first - of.count)
            })
            .collect();
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        order.sort_by_key(|&kind| kinds[kind].kind.time);
        let mut pool = Self {
            kinds,
            order: order.into(),
            free: workers.len(),
            workers: workers.into(),
            running: 0,
            free_since: Instant::ZERO,
            long: Few::default(),
            long_count: 0,
            lost: 0,
            overdue: 0,
            quickest: None,
            slower: false,
        };
        pool.find_quickest();
        pool
    }

    /// From now on somebody else watches who is due: here it is looked for when asked, which is linear in the workers.
    pub(crate) fn forget_due(&mut self) {
        self.kinds.iter_mut().for_each(Alike::forget_due);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Those that are free.
    pub(crate) fn free_count(&self) -> usize {
        self.free
    }

    /// Those not lost.
    pub(crate) fn alive(&self) -> usize {
        self.workers.len() - self.lost
    }

    /// Requests in batches.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn get(&self, worker: WorkerId) -> Option<&Worker> {
        self.workers.get(worker)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Worker> {
        self.workers.iter()
    }

    /// What a worker is.
    #[inline]
    pub(crate) fn kind(&self, worker: WorkerId) -> &Kind {
        match &*self.kinds {
            [only] => &only.kind,
            kinds => &kinds[self.workers[worker].kind].kind,
        }
    }

    /// The only kind, as it was made; `None` if there are several.
    pub(crate) fn only_kind(&self) -> Option<&Workers> {
        match &*self.kinds {
            [only] => Some(only.made(self.slower)),
            _ => None,
        }
    }

    /// The least time in which a worker that is there answers one request, at most and most likely; `None` if none is.
    pub(crate) fn quickest(&self) -> Option<(Span, Span)> {
        self.quickest
    }

    /// Of each kind with a free worker the first that is, kinds with the shortest full batch first.
    pub(crate) fn free(&self) -> impl Iterator<Item = WorkerId> {
        self.order.iter().map(|&kind| &self.kinds[kind]).filter_map(Alike::first_free)
    }

    /// The first of all, if they are alike.
    #[inline]
    pub(crate) fn first_alike(&self) -> Option<Option<WorkerId>> {
        match &*self.kinds {
            [only] => Some(only.first_free()),
            _ => None,
        }
    }

    /// Whether none is.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.free == 0
    }

    /// Since when at least one has been free; means something only if one is.
    #[inline]
    pub(crate) fn free_since(&self) -> Instant {
        self.free_since
    }

    /// The earliest instant at which a batch is due that has not been reported; the end of time without one.
    #[inline(always)]
    pub(crate) fn earliest_due(&self) -> Instant {
        match &*self.kinds {
            [only] => only.next_due(&self.workers),
            _ => self.earliest_of_all(),
        }
    }

    #[inline(never)]
    fn earliest_of_all(&self) -> Instant {
        self.kinds.iter().map(|kind| kind.next_due(&self.workers)).min().unwrap_or(NEVER)
    }

    /// A batch that should have ended, has not been reported, and is not `excused` for it by when it began and was due: these
    /// two. It counts as reported now.
    pub(crate) fn report_overdue(
        &mut self,
        now: Instant,
        mut excused: impl FnMut(Instant, Instant) -> bool,
    ) -> Option<(Instant, Instant)> {
        if self.earliest_due() >= now {
            return None;
        }
        let late = |worker: &Worker| match worker.state {
            State::Busy { started, due, reported: false } if due < now && !excused(started, due) => {
                Some((started, due))
            }
            _ => None,
        };
        let (id, told) =
            self.workers.iter().map(late).enumerate().find_map(|(id, told)| Some((id, told?)))?;
        let worker = &mut self.workers[id];
        worker.state = State::Busy { started: told.0, due: told.1, reported: true };
        let alike = &mut self.kinds[worker.kind];
        alike.set_due(id, NEVER);
        alike.overdue += 1;
        self.overdue += 1;
        Some(told)
    }

    /// `worker`, which is free, starts its batch: what it takes at most, and whether that is longer than a full one.
    #[inline(always)]
    pub(crate) fn start(&mut self, now: Instant, worker: WorkerId) -> (Span, bool) {
        let w = &mut self.workers[worker];
        let alike = kind_of(&mut self.kinds, w);
        let time = alike.kind.workers.profile.bound(w.batch.len());
        let (due, long) = (now + time, time > alike.kind.time);
        alike.set_free(worker, false);
        self.free -= 1;
        alike.set_due(worker, due);
        if long {
            self.long.set(worker, true);
            self.long_count += 1;
        }
        w.state = State::Busy { started: now, due, reported: false };
        w.variant = 0;
        self.running += w.batch.len();
        (time, long)
    }

    /// `worker` has longer than it had: until `due`, if that is later.
    pub(crate) fn prolong(&mut self, worker: WorkerId, until: Instant) {
        let w = &mut self.workers[worker];
        if let State::Busy { started, due, reported: false } = &mut w.state
            && until > *due
        {
            let alike = &mut self.kinds[w.kind];
            let is_long = |due: Instant| due.since(*started) > alike.kind.time;
            if is_long(until) && !is_long(*due) {
                self.long.set(worker, true);
                self.long_count += 1;
            }
            *due = until;
            alike.set_due(worker, until);
        }
    }

    /// The batch of `worker`; empty if it has none.
    #[inline]
    pub(crate) fn batch(&self, worker: WorkerId) -> &[Request] {
        self.workers.get(worker).map_or(&[], |w| &w.batch)
    }

    /// The batch that `worker` is given, to be filled before [`Pool::start`].
    pub(crate) fn batch_mut(&mut self, worker: WorkerId) -> &mut Vec<Request> {
        &mut self.workers[worker].batch
    }

    /// Takes a request out of the batch that `worker` runs.
    pub(crate) fn take_out(&mut self, worker: WorkerId, place: usize) {
        self.workers[worker].batch.remove(place);
        self.running -= 1;
    }

    /// Whether a batch was granted more than `P`.
    pub(crate) fn has_long(&self) -> bool {
        self.long_count > 0
    }

    /// What its batch is to be run with.
    pub(crate) fn set_variant(&mut self, worker: WorkerId, variant: u8) {
        self.workers[worker].variant = variant;
    }

    /// The batch that `worker` runs has ended, and it is free: when it began, was due, and whether it was reported that it
    /// did not end by then; `None` if it runs none. The batch is still there: [`Pool::batch_mut`].
    #[inline(always)]
    pub(crate) fn end(&mut self, now: Instant, worker: WorkerId) -> Option<(Instant, Instant, bool)> {
        let w = self.workers.get_mut(worker)?;
        let State::Busy { started, due, reported } = w.state else { return None };
        w.state = State::Free;
        self.running -= w.batch.len();
        let alike = kind_of(&mut self.kinds, w);
        alike.set_due(worker, NEVER);
        if reported {
            alike.overdue -= 1;
            self.overdue -= 1;
        }
        alike.set_free(worker, true);
        if self.free == 0 {
            self.free_since = now;
        }
        self.free += 1;
        if due.since(started) > alike.kind.time {
            self.long.set(worker, false);
            self.long_count -= 1;
        }
        Some((started, due, reported))
    }

    /// Batches that are begun from now on may take [`longer`](crate::longer) or, as they were made, no longer than profiles say;
    /// which it was before. Linear in the workers.
    pub(crate) fn set_slower(&mut self, slower: bool) -> bool {
        let before = core::mem::replace(&mut self.slower, slower);
        if before == slower {
            return before;
        }
        for alike in &mut self.kinds {
            alike.exchange();
        }
        self.long_count = 0;
        for (id, worker) in self.workers.iter().enumerate() {
            let time = self.kinds[worker.kind].kind.time;
            let long = matches!(worker.state, State::Busy { started, due, .. } if due.since(started) > time);
            self.long.set(id, long);
            self.long_count += usize::from(long);
        }
        self.find_quickest();
        before
    }

    /// What runs and is not overdue may take [`longer`](crate::longer) as well. Linear in the workers.
    pub(crate) fn extend(&mut self) {
        for (id, worker) in self.workers.iter_mut().enumerate() {
            if let State::Busy { started, due, reported: false } = &mut worker.state {
                *due = *started + longer(due.since(*started));
                let alike = &mut self.kinds[worker.kind];
                alike.set_due(id, *due);
            }
        }
    }

    /// `worker` is gone. Its batch is still there: [`Pool::batch_mut`].
    pub(crate) fn lose(&mut self, now: Instant, worker: WorkerId) {
        self.end(now, worker);
        let w = &mut self.workers[worker];
        if w.state == State::Free {
            w.state = State::Lost;
            self.count_lost(worker, true);
        }
    }

    /// `worker`, which was lost, is back.
    pub(crate) fn regain(&mut self, now: Instant, worker: WorkerId) {
        self.workers[worker].state = State::Free;
        if self.free == 0 {
            self.free_since = now;
        }
        self.count_lost(worker, false);
    }

    /// `worker` was free and is `lost`, or the other way round.
    fn count_lost(&mut self, worker: WorkerId, lost: bool) {
        let alike = &mut self.kinds[self.workers[worker].kind];
        alike.set_free(worker, !lost);
        let count = |of: usize, more: bool| if more { of + 1 } else { of - 1 };
        self.free = count(self.free, !lost);
        (alike.lost, self.lost) = (count(alike.lost, lost), count(self.lost, lost));
        self.find_quickest();
    }

    fn find_quickest(&mut self) {
        let there = self.kinds.iter().filter(|of| of.lost < of.kind.workers.count);
        let there = there.map(|of| &of.kind.workers.profile);
        let bound = there.clone().map(|profile| profile.bound(1)).min();
        self.quickest = bound.zip(there.map(|profile| profile.likely(1)).min());
    }
}

/// Those that `worker` is one of: mostly all are alike.
#[inline(always)]
fn kind_of<'a>(kinds: &'a mut [Alike], worker: &Worker) -> &'a mut Alike {
    match kinds {
        [only] => only,
        kinds => &mut kinds[worker.kind],
    }
}
