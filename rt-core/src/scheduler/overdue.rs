//! Requests whose batch does not end: each is missed when its deadline has passed, and told then. Its worker runs on, and is busy
//! until it is heard of.
//!
//! It is looked for from when a batch is reported that does not end in its time, so it costs nothing where all do.

use super::Scheduler;
use super::types::{NEVER, Note};
use super::wake::just_past;
use crate::stream::MissReason;
use crate::time::Instant;

impl Scheduler {
    /// A batch does not end in its time: what it holds is missed, one by one.
    pub(crate) fn runs_on(&mut self, now: Instant) {
        self.passes = now;
        self.changed = true;
        self.look_at(now);
    }

    /// Misses what runs in a batch that should have ended and whose deadline has passed; whether there was any. Linear in the workers.
    #[cold]
    pub(super) fn miss_overdue(&mut self, now: Instant) -> bool {
        let (mut next, mut any) = (NEVER, false);
        for worker in 0..self.pool.len() {
            if !self.pool.get(worker).is_some_and(|worker| worker.is_overdue(now)) {
                continue;
            }
            for place in 0..self.pool.batch(worker).len() {
                let request = self.pool.batch(worker)[place];
                if request.note == Note::Missed {
                    continue;
                }
                if now <= request.deadline {
                    next = next.min(just_past(request.deadline));
                    continue;
                }
                self.pool.batch_mut(worker)[place].note = Note::Missed;
                self.give_up(now, request, MissReason::Late);
                any = true;
            }
        }
        self.passes = next;
        any
    }
}
