//! What is told of a worker's batches that fail: the first at once, and all others with how many they were.

use std::fmt::Arguments;

use rt_core::{Instant, Span};
use tracing::{error, warn};
use weir_engine::EngineError;
use weir_os::limit::Limit;

/// So often at most: a server that refuses one batch may refuse each.
const WINDOW: Span = Span::from_millis(1_000);

/// Batches of one worker that have failed.
pub(super) struct Failures(Limit);

impl Default for Failures {
    fn default() -> Self {
        Self(Limit::new(1, WINDOW))
    }
}

impl Failures {
    /// A batch has failed.
    pub(super) fn note(&mut self, now: Instant, whose: Arguments<'_>, error: &EngineError) {
        // Without its worker there will be no other batch for a while.
        let lost = matches!(error, EngineError::Lost { .. });
        let untold = if lost { Some(self.0.take_untold()) } else { self.0.admit(now) };
        match untold {
            None => {}
            Some(0) => error!("{whose}: {error}"),
            Some(more) => {
                error!("{whose}: {error}; {more} more batches have failed since the last such line");
            }
        }
    }

    /// A batch has not.
    #[inline]
    pub(super) fn note_end(&mut self, now: Instant, whose: Arguments<'_>) {
        if let Some(more) = self.0.rest(now) {
            warn!("{whose}: {more} more batches had failed before this one");
        }
    }
}
