//! What is to come: when which mandatory request of a service can come at the earliest, as its arrival monitors have it.

use alloc::vec::Vec;

use super::device::NEVER;
use crate::scheduler::Scheduler;
use crate::time::Instant;

/// When the next mandatory requests of a service can come.
#[derive(Debug)]
pub(super) struct Coming {
    streams: Vec<Next>,
    /// The end of time if none can.
    pub(super) next: Instant,
}

/// When which mandatory request of the stream in this place can come.
#[derive(Clone, Copy, Debug)]
struct Next {
    slot: u16,
    nth: u64,
    at: Instant,
}

impl Coming {
    pub(super) fn new(streams: usize) -> Self {
        Self { streams: Vec::with_capacity(streams), next: NEVER }
    }

    /// Those that are there, at most as many as there is room for.
    pub(super) fn set_streams(&mut self, scheduler: &Scheduler) {
        self.streams.clear();
        self.streams.extend(scheduler.promised_slots().map(|slot| Next { slot, nth: 0, at: NEVER }));
    }

    /// What comes from now on.
    pub(super) fn begin(&mut self, now: Instant, scheduler: &Scheduler) {
        self.next = NEVER;
        for stream in &mut self.streams {
            (stream.nth, stream.at) = (0, scheduler.nth_mandatory(stream.slot, now, 0));
            self.next = self.next.min(stream.at);
        }
    }

    /// Goes on behind the next.
    pub(super) fn advance(&mut self, now: Instant, scheduler: &Scheduler) {
        let (from, mut next) = (self.next, NEVER);
        let mut found = false;
        for stream in &mut self.streams {
            if !found && stream.at == from {
                found = true;
                stream.nth += 1;
                stream.at = scheduler.nth_mandatory(stream.slot, now, stream.nth);
            }
            next = next.min(stream.at);
        }
        self.next = next;
    }
}
