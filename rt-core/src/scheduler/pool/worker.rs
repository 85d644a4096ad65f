//! One worker: what it does, and with which batch.

use alloc::vec::Vec;

use crate::scheduler::Request;
use crate::time::{Instant, Span};

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum State {
    Free,
    /// Began at, must have been heard of by, and whether it was reported that it was not.
    Busy {
        started: Instant,
        due: Instant,
        reported: bool,
    },
    Lost,
}

/// One worker, and the batch that it runs.
#[derive(Debug)]
pub(in crate::scheduler) struct Worker {
    pub(super) kind: usize,
    pub(in crate::scheduler) state: State,
    pub(in crate::scheduler) batch: Vec<Request>,
    /// The variant that its last batch was to be run with.
    pub(in crate::scheduler) variant: u8,
}

impl Worker {
    /// What its batch still takes at most; 0 if it runs none.
    pub(in crate::scheduler) fn left(&self, now: Instant) -> Span {
        match self.state {
            State::Busy { due, .. } => due.since(now),
            State::Free | State::Lost => Span::ZERO,
        }
    }

    /// Whether its batch should have ended.
    pub(in crate::scheduler) fn is_overdue(&self, now: Instant) -> bool {
        matches!(self.state, State::Busy { due, .. } if due < now)
    }
}
