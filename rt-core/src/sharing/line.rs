//! The line of services in which rule T serves them.

use super::MAX_SERVICES;

/// Services of which something mandatory waits, the first of which is served next.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    services: heapless::Deque<u8, MAX_SERVICES>,
    /// Batches that the first has had in its turn.
    used: u32,
}

impl Line {
    /// Who is served next.
    pub(super) fn first(&self) -> Option<usize> {
        self.services.front().map(|&service| usize::from(service))
    }

    /// A request of `service` has found no other of it waiting.
    pub(super) fn join(&mut self, service: usize) {
        self.leave(service);
        let _ = self.services.push_back(service as u8);
    }

    /// The first has begun a batch of its turn of `turn`; `more` of it wait.
    pub(super) fn served(&mut self, turn: u32, more: bool) {
        self.used += 1;
        if !more || self.used >= turn {
            let first = self.services.pop_front();
            self.used = 0;
            if let Some(first) = first.filter(|_| more) {
                let _ = self.services.push_back(first);
            }
        }
    }

    /// Nothing of `service` waits any more.
    pub(super) fn leave(&mut self, service: usize) {
        if self.first() == Some(service) {
            self.services.pop_front();
            self.used = 0;
        } else if self.services.iter().any(|&other| usize::from(other) == service) {
            for _ in 0..self.services.len() {
                if let Some(first) = self.services.pop_front().filter(|&first| usize::from(first) != service)
                {
                    let _ = self.services.push_back(first);
                }
            }
        }
    }
}
