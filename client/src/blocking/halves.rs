//! On a request's way: what both halves of a blocking connection know of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many frames are without an answer, and whose turn it is to write.
#[derive(Debug, Default)]
pub(super) struct Shared {
    in_flight: AtomicUsize,
    writing: Mutex<()>,
}

impl Shared {
    /// Frames without an answer.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// One more.
    pub(super) fn sent(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// One less; false if there was none.
    pub(super) fn answered(&self) -> bool {
        let one_less = |count: usize| count.checked_sub(1);
        self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Keeps the other half from writing: a frame goes out whole.
    pub(super) fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
