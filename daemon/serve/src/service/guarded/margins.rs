//! By how much batches may run over in all, where that is a matter of all streams on the workers: what each of them leaves.

use rt_core::{Span, StreamId};

/// What the admission of each stream left that may go again, and those that were there before any of them.
#[derive(Debug)]
pub(in crate::service) struct Margins {
    first: Span,
    left: Vec<(usize, StreamId, Span)>,
}

impl Margins {
    /// Nobody is there but those who leave so much.
    pub(in crate::service) fn new(first: Span) -> Self {
        Self { first, left: Vec::new() }
    }

    /// A stream of a service has come whose admission leaves so much.
    pub(in crate::service) fn came(&mut self, service: usize, id: StreamId, margin: Span) {
        self.left.push((service, id, margin));
    }

    /// A stream of a service has gone; false if it left all that there was.
    pub(super) fn gone(&mut self, service: usize, id: StreamId) -> bool {
        let before = self.left.len();
        self.left.retain(|&(of, other, _)| (of, other) != (service, id));
        self.left.len() < before
    }

    /// Of all that may go again only those are left who are still there.
    pub(super) fn keep(&mut self, is_there: impl Fn(usize, StreamId) -> bool) {
        self.left.retain(|&(of, id, _)| is_there(of, id));
    }

    /// What those who are there leave at least: the last of them was admitted beside all the others.
    pub(super) fn least(&self) -> Span {
        self.left.iter().map(|&(.., margin)| margin).fold(self.first, Span::min)
    }
}
