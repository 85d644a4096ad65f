//! The line of services in which rule T serves them.

use super::MAX_SERVICES;

/// Services of which something mandatory waits, the first of which is served next.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    services: heapless::Deque<u8, MAX_SERVICES>,
    /// Which these are, a bit each.
    members: u64,
    /// Batches that the first has had in its turn.
    used: u32,
}

impl Line {
    /// Who is served next.
    pub(super) fn first(&self) -> Option<usize> {
        self.services.front().map(|&service| usize::from(service))
    }

    /// Whether something mandatory of `service` waits now: it joins at the end if nothing did before, and leaves if nothing
    /// does any more.
    #[inline(always)]
    pub(super) fn set(&mut self, service: usize, waits: bool) {
        if (self.members >> service & 1 == 1) != waits {
            self.change(service, waits);
        }
    }

    #[inline(never)]
    fn change(&mut self, service: usize, waits: bool) {
        self.members ^= 1 << service;
        if waits {
            let _ = self.services.push_back(service as u8);
        } else {
            self.leave(service);
        }
    }

    /// The first has begun a batch of its turn of `turn`; `more` of it wait.
    pub(super) fn served(&mut self, turn: u32, more: bool) {
        self.used += 1;
        if self.used >= turn && more {
            self.used = 0;
            if let Some(first) = self.services.pop_front() {
                let _ = self.services.push_back(first);
            }
        }
    }

    fn leave(&mut self, service: usize) {
        if self.first() == Some(service) {
            self.services.pop_front();
            self.used = 0;
            return;
        }
        for _ in 0..self.services.len() {
            if let Some(first) = self.services.pop_front().filter(|&first| usize::from(first) != service) {
                let _ = self.services.push_back(first);
            }
        }
    }
}
