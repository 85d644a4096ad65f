//! When nothing that was before is in the way of what is to come, stage by stage.
//!
//! Theorems P1 and P2 count back, stage by stage, to an instant at which no mandatory request was left waiting there that goes
//! before, or is, the one that is looked at. What went wrong before that instant, and who was there, is of no matter. So let
//! `c_i` be an instant for each stage at which no mandatory request waits there and every worker is free within a full batch,
//! and not before the batches that ran at `c_p` of each parent `p` have ended. What comes to stage `i` at `c_i` or later is
//! counted from `c_i` or later; the parents of all that are counted end then or later, so they were begun after `c_p` by what
//! is said of the batches that ran then, and *came* to the parent after it, for nothing waited there. So on up to the first
//! stage: all that is counted are sources that came at `c_0` or later. From the last `c_i` on every mandatory source is in
//! time if the load from `c_0` on was admitted, whatever was begun or broken before.

use alloc::vec::Vec;

use super::Parents;
use crate::scheduler::few::Few;

/// What is known of each stage, of what happened last.
#[derive(Debug)]
pub(super) struct Calm {
    /// Counts what has to be waited out.
    breaks: u64,
    /// Of each stage that `c_i` is over: the workers whose batch ran then and has not ended.
    since: Vec<Option<Few>>,
}

impl Calm {
    /// Of so many stages. Allocates.
    pub(super) fn new(stages: usize) -> Self {
        Self { breaks: 0, since: alloc::vec![None; stages] }
    }

    /// Begins anew if something has happened since: how often that did is `breaks` by now.
    pub(super) fn restart(&mut self, breaks: u64) {
        if breaks != self.breaks {
            self.breaks = breaks;
            self.since.fill(None);
        }
    }

    /// Whether a stage is to be looked at: `c_i` is to come, and all is over that the parents ran.
    pub(super) fn is_next(&self, stage: usize, parents: Parents) -> bool {
        let over = |parent: usize| self.since[parent].is_some_and(|busy| busy.is_empty());
        self.since[stage].is_none() && parents.iter().all(over)
    }

    /// Now is `c_i`, and these workers run.
    pub(super) fn note(&mut self, stage: usize, busy: Few) {
        self.since[stage] = Some(busy);
    }

    /// A batch of a stage has ended.
    pub(super) fn end(&mut self, stage: usize, worker: usize) {
        if let Some(busy) = &mut self.since[stage] {
            busy.set(worker, false);
        }
    }

    /// Whether the last `c_i` is over; then it begins anew when something happens.
    pub(super) fn is_over(&self) -> bool {
        self.since.iter().all(Option::is_some)
    }

    /// Whether all that ran at any `c_i` has ended as well.
    pub(super) fn has_ended(&self) -> bool {
        self.since.iter().all(|since| since.is_some_and(|busy| busy.is_empty()))
    }
}
