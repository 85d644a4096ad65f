//! The crew: the workers of a device, who of them is free, whose batch each of the others runs, and which is overdue.
//!
//! *Which overruns meet which request.* A mandatory request counts back to an instant at which nothing that goes before it waited, and
//! what was before that is of no matter. What has run over is forgotten when, since the last batch that did, all was calm once,
//! and all batches that ran then have ended. A request that came before that calm instant has been answered by then; one that came
//! later meets nothing that was before. So none meets more than what runs over from one such end to the next, that of its own batch
//! included. What is beyond the margin is a stall, if stalls as declared explain it: for these a part of each deadline is kept back
//! beside the margin.

use alloc::boxed::Box;

use super::shield::Spare;
use crate::WorkerId;
use crate::scheduler::due::Due;
use crate::scheduler::few::Few;
use crate::stalls::{StallMonitor, Stalls};
use crate::time::{Instant, Span};

/// A batch that a worker runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) service: usize,
    pub(super) started: Instant,
    /// When it ends at the latest, if it keeps its time.
    pub(super) due: Instant,
    /// That it has not ended has been told to the other services.
    pub(super) reported: bool,
}

/// Workers of a device.
#[derive(Debug)]
pub(super) struct Crew {
    running: Box<[Option<Running>]>,
    /// Those that are free, and how many they are.
    free: Few,
    free_count: usize,
    /// Since when at least one is free; means something only if one is.
    pub(super) free_since: Instant,
    /// Of those that run and are not reported, when their batch is due.
    due: Due,
    /// By how much batches may run over in all until what ran over is forgotten, by how much each if all do, and a bit more, and by how much
    /// those that ended since have.
    margin: Span,
    beyond_each: Span,
    spent: Span,
    /// How much of that was of which service.
    spent_by: Box<[Span]>,
    /// The margin once it is forgotten.
    after: Span,
    /// All was calm since the last batch that ran over: the workers whose batch ran then and has not ended.
    calm: Option<Few>,
    /// Batches have run over by more.
    harmed: bool,
    /// What ran over has been forgotten, and [`Crew::take_forgotten`] has not told.
    forgotten: bool,
    /// Of what is lost rarely, if that is declared: what is beyond the margin, and they explain, is no overrun.
    stalls: Option<StallMonitor>,
    /// How long one lasts at most, and what all of a window may take.
    stall: Span,
    lost: Span,
}

impl Crew {
    /// All of them free, of so many services; batches may run over by `margin` and harm nobody, beside stalls. Allocates.
    pub(super) fn new(count: usize, services: usize, (margin, stalls): (Span, Option<Stalls>)) -> Self {
        let mut free = Few::default();
        (0..count).for_each(|worker| free.set(worker, true));
        Self {
            running: alloc::vec![None; count].into(),
            free,
            free_count: count,
            free_since: Instant::ZERO,
            due: Due::new(count),
            margin,
            beyond_each: beyond_share(margin, count),
            spent: Span::ZERO,
            spent_by: alloc::vec![Span::ZERO; services].into(),
            after: margin,
            calm: None,
            harmed: false,
            forgotten: false,
            stalls: stalls.map(StallMonitor::new),
            stall: stalls.map_or(Span::ZERO, |stalls| stalls.length()),
            lost: Stalls::reserve_of(stalls),
        }
    }

    /// Stalls so far that were declared.
    pub(super) fn stalls(&self) -> u64 {
        self.stalls.as_ref().map_or(0, |stalls| stalls.count)
    }

    /// So many were counted before, if they are still declared.
    pub(super) fn set_stalls(&mut self, count: u64) {
        self.stalls.iter_mut().for_each(|stalls| stalls.count = count);
    }

    /// Whether a batch that ends now, or dispatch that comes now, is late by a stall that was declared.
    pub(super) fn has_stalled(&mut self, started: Instant, due: Instant, now: Instant) -> bool {
        self.stalls.as_mut().is_some_and(|stalls| stalls.explains(started, due, now))
    }

    /// How many there are, lost ones among them.
    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    #[inline]
    pub(super) fn first_free(&self) -> Option<WorkerId> {
        if self.free_count > 0 { self.free.first() } else { None }
    }

    /// Whether one is free.
    #[inline]
    pub(super) fn has_free(&self) -> bool {
        self.free_count > 0
    }

    /// Whether none is free, and none has run over since the last calm instant.
    #[inline]
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.free_count == 0 && self.is_on_time(now)
    }

    /// Whether nothing has run over that is not forgotten, and nothing does.
    #[inline]
    fn is_on_time(&self, now: Instant) -> bool {
        self.due.instant() >= now && self.spent == Span::ZERO && !self.harmed
    }

    pub(super) fn get(&self, worker: WorkerId) -> Option<Running> {
        *self.running.get(worker)?
    }

    /// `worker`, which is free, starts a batch of `service`, which takes up to `time`.
    #[inline]
    pub(super) fn start(&mut self, now: Instant, worker: WorkerId, service: usize, time: Span) {
        let due = now + time;
        self.running[worker] = Some(Running { service, started: now, due, reported: false });
        self.free.set(worker, false);
        self.free_count -= 1;
        self.due.set(worker, due);
    }

    /// `worker` runs no batch any more: which it ran, to be [`Crew::end`]ed.
    #[inline(always)]
    pub(super) fn take(&mut self, worker: WorkerId) -> Option<Running> {
        self.running.get_mut(worker)?.take()
    }

    /// The batch that `worker` ran has ended: it is free. Whether it stood still in a stall.
    #[inline(always)]
    pub(super) fn end(&mut self, now: Instant, worker: WorkerId, ended: Running) -> bool {
        self.due.remove(worker);
        self.set_free(now, worker);
        let late = now > ended.due;
        let stalled = late && self.ran_over(now, ended);
        if !late || stalled {
            self.is_over(worker);
        }
        stalled
    }

    /// A batch has ended later than it was due: whether by a stall, and else it ran over.
    #[cold]
    fn ran_over(&mut self, now: Instant, ended: Running) -> bool {
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
    fn is_over(&mut self, worker: WorkerId) {
        if let Some(busy) = &mut self.calm {
            busy.set(worker, false);
            if busy.is_empty() {
                self.forget();
            }
        }
    }

    /// `worker` is lost, with whatever it ran.
    pub(super) fn lose(&mut self, worker: WorkerId) {
        if let Some(running) = self.running.get_mut(worker) {
            let was_free = running.take().is_none() && self.free.has(worker);
            self.free_count -= usize::from(was_free);
            self.due.remove(worker);
            self.free.set(worker, false);
            self.is_over(worker);
        }
    }

    /// `worker`, which runs nothing, is free from now on.
    pub(super) fn set_free(&mut self, now: Instant, worker: WorkerId) {
        if self.free_count == 0 {
            self.free_since = now;
        }
        self.free.set(worker, true);
        self.free_count += 1;
    }

    /// From now on batches may run over by `margin`, or if that is more than before once what is there has ended; false, and nothing
    /// has changed, if they have by more.
    pub(super) fn set_margin(&mut self, now: Instant, margin: Span) -> bool {
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
    pub(super) fn keep_to(&mut self, margin: Span) {
        self.count_on(margin.min(self.margin));
        self.await_calm();
    }

    /// Something begins that counts on what is left of the margin: that grows no sooner than when all has been calm once more.
    pub(super) fn await_calm(&mut self) {
        self.calm = None;
    }

    fn count_on(&mut self, margin: Span) {
        (self.margin, self.beyond_each) = (margin, beyond_share(margin, self.running.len()));
    }

    /// What is left of the batches that run, and by how much those and others may yet run over until the next calm instant; `None` if
    /// they have by more. Linear in the workers.
    pub(super) fn spare(&self, now: Instant) -> Option<Spare> {
        let excess = self.excess(now);
        let mut taken = Span::ZERO;
        for running in self.running.iter().flatten() {
            if running.reported {
                return None;
            }
            taken = taken + running.due.since(now);
        }
        let over = self.margin.saturating_sub(excess);
        (excess <= self.margin).then_some(Spare { taken, over, excess })
    }

    /// By how much batches may run over in all while one that begins now runs: what ran over before may be forgotten meanwhile.
    pub(super) fn most_over(&self) -> Span {
        self.after
    }

    /// Whether it waits for a calm instant, to forget what ran over.
    pub(super) fn is_strained(&self) -> bool {
        // What is lost before it has ended has harmed, and spent nothing.
        (self.spent > Span::ZERO || self.harmed || self.margin < self.after) && self.calm.is_none()
    }

    /// Nothing mandatory waits, and every worker is free within the longest batch: what ran over before harms nobody that
    /// is to come, and what runs once it has ended.
    pub(super) fn calm(&mut self) {
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

    /// No request that is to be answered has met anything that ran over.
    fn forget(&mut self) {
        (self.spent, self.calm, self.harmed) = (Span::ZERO, None, false);
        self.forgotten = true;
        self.spent_by.fill(Span::ZERO);
        self.count_on(self.after);
    }

    /// Whether what ran over has been forgotten since this was asked last.
    #[inline]
    pub(super) fn take_forgotten(&mut self) -> bool {
        core::mem::take(&mut self.forgotten)
    }

    /// By how much batches have run over that is not forgotten, those that run on among them.
    #[inline]
    fn excess(&self, now: Instant) -> Span {
        if self.due.instant() >= now && !self.harmed { self.spent } else { self.recount_excess(now) }
    }

    /// The same, looked up: linear in the workers.
    #[inline(never)]
    fn recount_excess(&self, now: Instant) -> Span {
        self.running.iter().flatten().fold(self.spent, |all, running| all + now.since(running.due))
    }

    /// The service whose batches have run over most of that; `last` if there are several. One that is promised again meanwhile keeps its
    /// part: that others are beyond the margin is its doing, be they late by a little.
    pub(super) fn worst(&self, now: Instant, last: usize) -> usize {
        let of = |service: usize| {
            let running = self.running.iter().flatten().filter(|running| running.service == service);
            running.fold(self.spent_by[service], |all, running| all + now.since(running.due))
        };
        (0..self.spent_by.len()).max_by_key(|&service| (of(service), service == last)).unwrap_or(last)
    }

    /// When it is to be looked again whether a batch is to be reported; the end of time if none runs that is not.
    #[inline]
    pub(super) fn alarm(&self, now: Instant) -> Instant {
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
    pub(super) fn report(&mut self, now: Instant) -> Option<Running> {
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

    /// Whether every worker is free within `longest`: one that is overdue may yet take any time, reported or not, and what stalls took
    /// until now of a batch that is longer is not known.
    pub(super) fn is_prompt(&self, now: Instant, longest: Span) -> bool {
        let prompt = |running: &Running| {
            let long = running.due.since(running.started) > longest;
            let lost = if long { self.lost } else { Span::ZERO };
            now <= running.due && running.due.since(now) + lost <= longest
        };
        self.running.iter().flatten().all(prompt)
    }

    /// Whether a batch runs that was to take more than `longest`. Linear in the workers.
    pub(super) fn runs_a_longer(&self, longest: Span) -> bool {
        self.running.iter().flatten().any(|running| running.due.since(running.started) > longest)
    }

    /// Whether more has run over than may, and is not forgotten.
    pub(super) fn has_harmed(&self) -> bool {
        self.harmed
    }
}

/// What is just more than each of so many has of it: all may run over at once.
fn beyond_share(of: Span, count: usize) -> Span {
    Span::from_nanos(of.as_nanos() / count as u64) + Span::from_nanos(1)
}
