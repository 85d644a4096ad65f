//! On a request's way: what both halves of a blocking connection know of it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wire::{DEFAULT_MAX_FRAME, SENT_VERSION};

/// How many frames are without an answer, how long one may be, whether requests say when they were sent, and whose turn it
/// is to write.
#[derive(Debug)]
pub(super) struct Shared {
    in_flight: AtomicUsize,
    max_frame: AtomicU32,
    says_when: AtomicBool,
    writing: Mutex<()>,
}

impl Shared {
    pub(super) fn new() -> Self {
        let max_frame = AtomicU32::new(DEFAULT_MAX_FRAME);
        let (in_flight, says_when) = (AtomicUsize::default(), AtomicBool::default());
        Self { in_flight, max_frame, says_when, writing: Mutex::default() }
    }

    /// Largest body in bytes that the daemon takes.
    pub(super) fn max_frame(&self) -> u32 {
        self.max_frame.load(Ordering::Relaxed)
    }

    /// Whether the daemon reads when a request was sent.
    pub(super) fn says_when(&self) -> bool {
        self.says_when.load(Ordering::Relaxed)
    }

    /// Takes what WELCOME told.
    pub(super) fn welcome(&self, version: u16, max_frame: u32) {
        self.max_frame.store(max_frame, Ordering::Relaxed);
        self.says_when.store(version >= SENT_VERSION, Ordering::Relaxed);
    }

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
