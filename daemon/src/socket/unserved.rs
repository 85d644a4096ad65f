//! What is told of clients that are not let in: one line a second, and how many there should have been.

use std::fmt::Display;

use rt_core::{Instant, Span};
use tracing::warn;
use weir_os::limit::Limit;

/// So often at most: whoever is not let in may try again at once.
const WINDOW: Span = Span::from_millis(1_000);

/// Clients that are not let in for one kind of reason.
pub(crate) struct Unserved(Limit);

impl Default for Unserved {
    fn default() -> Self {
        Self(Limit::new(1, WINDOW))
    }
}

impl Unserved {
    /// One more, and why.
    pub(crate) fn note(&mut self, now: Instant, text: impl Display) {
        match self.0.admit(now) {
            None => {}
            Some(0) => warn!("{text}"),
            Some(more) => warn!("{text}; {more} more since the last such line"),
        }
    }
}
