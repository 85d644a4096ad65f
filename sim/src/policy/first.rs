//! Policies that serve in order of arrival.

use rt_core::Instant;

use super::rival::{Floor, Rule, Waiting};

/// Plain FIFO with tail drop: full batches or what there is, at once, whether or not it is still in time.
///
/// It keeps no deadlines, as a server that knows none. How long its queue is, is open: as many requests as are
/// served within the deadline, so that a request that is let in is late only behind partial batches.
pub(super) struct Fifo {
    /// Requests that may wait.
    pub(super) room: usize,
}

impl Rule for Fifo {
    fn arrive(&mut self, _: &mut Waiting, waiting: usize, _: bool) -> bool {
        waiting < self.room
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        let size = floor.queue.len().min(floor.worker.batch);
        floor.take_first(size);
        None
    }
}
