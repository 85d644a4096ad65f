//! The crew: the workers of a device, who of them is free, whose batch each of the others runs, and which is overdue.

use alloc::boxed::Box;

use crate::WorkerId;
use crate::scheduler::earliest::Earliest;
use crate::scheduler::few::Few;
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
    free: Few,
    /// Since when at least one is free; means something only if one is.
    pub(super) free_since: Instant,
    /// Of those that run, when a batch has harmed others if it has not ended; those reported are no longer there.
    harmful: Earliest,
}

impl Crew {
    /// All of them free. Allocates.
    pub(super) fn new(count: usize) -> Self {
        let mut free = Few::default();
        (0..count).for_each(|worker| free.set(worker, true));
        Self {
            running: alloc::vec![None; count].into(),
            free,
            free_since: Instant::ZERO,
            harmful: Earliest::new(count),
        }
    }

    pub(super) fn first_free(&self) -> Option<WorkerId> {
        self.free.first()
    }

    pub(super) fn get(&self, worker: WorkerId) -> Option<Running> {
        *self.running.get(worker)?
    }

    /// `worker`, which is free, starts a batch of `service`, which takes up to `time`, and harms nobody up to `margin` longer.
    pub(super) fn start(
        &mut self,
        now: Instant,
        worker: WorkerId,
        service: usize,
        (time, margin): (Span, Span),
    ) {
        let due = now + time;
        self.running[worker] = Some(Running { service, started: now, due, reported: false });
        self.free.set(worker, false);
        self.harmful.set(worker, due + margin + Span::from_nanos(1));
    }

    /// The batch that `worker` ran, if it ran one, has ended: it is free.
    pub(super) fn end(&mut self, now: Instant, worker: WorkerId) -> Option<Running> {
        let ended = self.running.get_mut(worker)?.take()?;
        self.harmful.remove(worker);
        self.set_free(now, worker);
        Some(ended)
    }

    /// `worker` is lost, with whatever it ran.
    pub(super) fn lose(&mut self, worker: WorkerId) {
        if let Some(running) = self.running.get_mut(worker) {
            *running = None;
            self.harmful.remove(worker);
            self.free.set(worker, false);
        }
    }

    /// `worker`, which runs nothing, is free from now on.
    pub(super) fn set_free(&mut self, now: Instant, worker: WorkerId) {
        if self.free.first().is_none() {
            self.free_since = now;
        }
        self.free.set(worker, true);
    }

    /// When there is the next batch to be reported; the end of time if there is none.
    pub(super) fn alarm(&self) -> Instant {
        self.harmful.instant()
    }

    /// A batch that has run for longer than harms nobody; it counts as reported now.
    pub(super) fn report(&mut self, now: Instant) -> Option<Running> {
        let (_, worker) = self.harmful.earliest().filter(|&(at, _)| at <= now)?;
        self.harmful.remove(worker);
        let running = self.running[worker].as_mut()?;
        running.reported = true;
        Some(*running)
    }

    /// Whether every worker is free within `longest`: one that is overdue may yet take any time, reported or not.
    pub(super) fn is_prompt(&self, now: Instant, longest: Span) -> bool {
        let prompt = |running: &Running| now <= running.due && running.due.since(now) <= longest;
        self.running.iter().flatten().all(prompt)
    }
}
