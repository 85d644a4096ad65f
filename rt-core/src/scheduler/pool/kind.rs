//! Workers that are alike: who of them is free, when the others are, and when they have most likely answered.

use alloc::boxed::Box;

use super::{State, Worker};
use crate::scheduler::WorkerId;
use crate::scheduler::due::Due;
use crate::scheduler::few::Few;
use crate::scheduler::types::NEVER;
use crate::time::{Instant, Span};
use crate::workers::Workers;

/// What batches are formed for.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) workers: Workers,
    /// `P`, the time of a full batch.
    pub(crate) time: Span,
    /// By the most requests that a batch may hold, from 1: the fewest that make at least 99 % of the most requests a
    /// second.
    pub(crate) paying: Box<[u8]>,
}

/// Workers that are alike: what they are, who is free, and who is due when.
#[derive(Clone, Debug)]
pub(super) struct Alike {
    pub(super) kind: Kind,
    /// Its workers with longer batches, or as they were made while batches may take longer.
    other: Workers,
    /// The number of the first of them.
    pub(super) first: usize,
    /// Those that are free.
    free: Few,
    pub(super) free_count: usize,
    /// Those that are busy and not yet reported as overdue; nothing if they are looked for when asked.
    due: Option<Due>,
    /// Those that were.
    pub(super) overdue: usize,
    pub(super) lost: usize,
}

impl Kind {
    pub(crate) fn new(workers: Workers) -> Self {
        Self { paying: paying(&workers), time: workers.batch_time(), workers }
    }
}

impl Alike {
    pub(super) fn new(workers: &Workers, first: usize) -> Self {
        let mut alike = Self {
            first,
            free: Few::default(),
            free_count: 0,
            due: Some(Due::new(workers.count)),
            overdue: 0,
            lost: 0,
            other: workers.slower().unwrap_or_else(|| workers.clone()),
            kind: Kind::new(workers.clone()),
        };
        (first..first + workers.count).for_each(|worker| alike.set_free(worker, true));
        alike
    }

    /// They as they were made, while batches may take longer if `slower`.
    pub(super) fn made(&self, slower: bool) -> &Workers {
        if slower { &self.other } else { &self.kind.workers }
    }

    /// Batches may take longer from now on, or no longer may.
    pub(super) fn exchange(&mut self) {
        core::mem::swap(&mut self.kind.workers, &mut self.other);
        self.kind.time = self.kind.workers.batch_time();
    }

    pub(super) fn first_free(&self) -> Option<WorkerId> {
        Some(self.first + self.free.first()?)
    }

    /// From now on those that are due are looked for when asked, which is linear in the workers.
    pub(super) fn forget_due(&mut self) {
        self.due = None;
    }

    /// `worker` is due at `at`; at the end of time if it is not busy, or reported.
    #[inline]
    pub(super) fn set_due(&mut self, worker: WorkerId, at: Instant) {
        if let Some(due) = &mut self.due {
            due.set(worker - self.first, at);
        }
    }

    /// The earliest instant at which one is due; the end of time if none is.
    #[inline]
    pub(super) fn next_due(&self, workers: &[Worker]) -> Instant {
        match &self.due {
            Some(due) => due.instant(),
            None => self.find_due(workers).map_or(NEVER, |(at, _)| at),
        }
    }

    /// That instant, and which of them it is.
    fn first_due(&self, workers: &[Worker]) -> Option<(Instant, WorkerId)> {
        let Some(due) = &self.due else { return self.find_due(workers) };
        due.earliest().map(|(at, index)| (at, self.first + index))
    }

    #[inline(never)]
    fn find_due(&self, workers: &[Worker]) -> Option<(Instant, WorkerId)> {
        let due = |(id, worker): (usize, &Worker)| match worker.state {
            State::Busy { due, reported: false, .. } => Some((due, id)),
            _ => None,
        };
        let all = workers.iter().enumerate().skip(self.first).take(self.kind.workers.count);
        all.filter_map(due).min()
    }

    /// Of a worker for which the opposite is true.
    pub(super) fn set_free(&mut self, worker: WorkerId, free: bool) {
        self.free.set(worker - self.first, free);
        self.free_count = if free { self.free_count + 1 } else { self.free_count - 1 };
    }

    /// How long a request that comes as a worker is free most likely takes, with `ahead` requests to be begun before it;
    /// `None` if all workers are lost.
    pub(super) fn likely_time(&self, ahead: usize, long: bool) -> Option<Span> {
        let Kind { workers, paying, .. } = &self.kind;
        let alive = workers.count - self.lost;
        if alive == 0 {
            return None;
        }
        let profile = &workers.profile;
        let most = if long { profile.max_batch() } else { workers.batch };
        let size = usize::from(paying[most - 1]);
        // All fit into 32 bits, which divide faster.
        let (ahead, alive, round) = (ahead as u32, alive as u32, (alive * size) as u32);
        let (rounds, before) = (ahead / round, ahead % round);
        let begun = Span::from_nanos(profile.mean(size).as_nanos().saturating_mul(rounds.into()));
        // Of its own batch at least those are that come before it.
        Some(begun + profile.likely((before / alive) as usize + 1))
    }

    /// When one of its workers is free at the latest.
    pub(super) fn free_by(&self, now: Instant, workers: &[Worker]) -> Instant {
        if self.free_count > 0 { now } else { self.next_due(workers).max(now) }
    }

    /// When the next of its busy workers is free, by the mean time of its batch.
    #[inline(never)]
    pub(super) fn likely_free(&self, now: Instant, workers: &[Worker]) -> Instant {
        let Some((due, worker)) = self.first_due(workers) else { return now };
        let profile = &self.kind.workers.profile;
        let size = workers[worker].batch.len();
        (due - profile.bound(size).saturating_sub(profile.mean(size))).max(now)
    }
}

/// By the most requests that a batch may hold, from 1: the fewest that make at least 99 % of the most requests a
/// second, by mean times. Fewer are answered sooner.
fn paying(workers: &Workers) -> Box<[u8]> {
    let time = |size: usize| u128::from(workers.profile.mean(size).as_nanos());
    let mut best = 1;
    let least = |most: usize| {
        if most as u128 * time(best) >= best as u128 * time(most) {
            best = most;
        }
        let pays = |&size: &usize| 100 * size as u128 * time(best) >= 99 * best as u128 * time(size);
        (1..=most).find(pays).unwrap_or(most) as u8
    };
    (1..=workers.profile.max_batch()).map(least).collect()
}
