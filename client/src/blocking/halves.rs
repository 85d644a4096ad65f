//! On a request's way: what both halves of a blocking connection know of it.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wire::{DEFAULT_MAX_FRAME, OLDEST_VERSION};

/// How many frames are without an answer, how long one may be, what is spoken, and whose turn it is to write.
#[derive(Debug)]
pub(super) struct Shared {
    in_flight: AtomicUsize,
    max_frame: AtomicU32,
    version: AtomicU16,
    closed: AtomicBool,
    writing: Mutex<()>,
}

impl Shared {
    pub(super) fn new() -> Self {
        let max_frame = AtomicU32::new(DEFAULT_MAX_FRAME);
        let (in_flight, version) = (AtomicUsize::default(), AtomicU16::new(OLDEST_VERSION));
        let (closed, writing) = (AtomicBool::default(), Mutex::default());
        Self { in_flight, max_frame, version, closed, writing }
    }

    /// Largest body in bytes that the daemon takes.
    pub(super) fn max_frame(&self) -> u32 {
        self.max_frame.load(Ordering::Relaxed)
    }

    /// The version of the protocol that both ends speak.
    pub(super) fn version(&self) -> u16 {
        self.version.load(Ordering::Relaxed)
    }

    /// Takes what WELCOME told.
    pub(super) fn welcome(&self, version: u16, max_frame: u32) {
        self.max_frame.store(max_frame, Ordering::Relaxed);
        self.version.store(version, Ordering::Relaxed);
    }

    /// Nothing can be sent any more, or read.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether that is so.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
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
