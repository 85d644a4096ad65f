//! The crew: the workers of a device, who of them is free, and whose batch each of the others runs.

mod overruns;

use alloc::boxed::Box;

use overruns::beyond_share;

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
    /// Those that are free.
    free: Few,
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

    /// How many there are, lost ones among them.
    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    #[inline]
    pub(super) fn first_free(&self) -> Option<WorkerId> {
        self.free.first()
    }

    /// Whether one is free.
    #[inline]
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether none is free, and none has run over since the last calm instant.
    #[inline]
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.free.is_empty() && self.is_on_time(now)
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

    /// `worker` is lost, with whatever it ran.
    pub(super) fn lose(&mut self, worker: WorkerId) {
        if let Some(running) = self.running.get_mut(worker) {
            *running = None;
            self.due.remove(worker);
            self.free.set(worker, false);
            self.is_over(worker);
        }
    }

    /// `worker`, which runs nothing, is free from now on.
    pub(super) fn set_free(&mut self, now: Instant, worker: WorkerId) {
        if self.free.is_empty() {
            self.free_since = now;
        }
        self.free.set(worker, true);
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
}
