//! One worker: what it does, and with which batch.

use alloc::vec::Vec;

use crate::scheduler::Request;
use crate::time::{Instant, Span};

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
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
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(super) kind: usize,
    pub(crate) state: State,
    pub(crate) batch: Vec<Request>,
    /// The variant that its last batch was to be run with.
    pub(crate) variant: u8,
}

impl Worker {
    /// What its batch still takes at most; 0 if it runs none.
    pub(crate) fn left(&self, now: Instant) -> Span {
        match self.state {
            State::Busy { due, .. } => due.since(now),
            State::Free | State::Lost => Span::ZERO,
        }
    }

    /// Whether its batch should have ended.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        matches!(self.state, State::Busy { due, .. } if due < now)
    }
}
