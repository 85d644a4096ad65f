//! What has been read from clients and not been dealt with yet: a daemon that ends waits for it, and reads no more.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rt_core::Span;

use weir_os::clock;

/// How often it is looked whether all has been dealt with.
const PAUSE: Duration = Duration::from_millis(1);

/// Counts the clients whose frames are in the daemon's hands.
///
/// A client's thread enters before it reads and leaves once each whole frame of it has been answered or handed on: one
/// that is put off its core in between would leave a request unanswered if the daemon ended meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    inside: AtomicUsize,
    closed: AtomicBool,
}

/// What has been read is dealt with until this is dropped.
pub(super) struct Taken<'a>(&'a Intake);

impl Intake {
    /// To be asked before anything is read; `None` if nothing is to be read any more.
    pub(super) fn enter(&self) -> Option<Taken<'_>> {
        // Either this sees that it is closed, or whoever closes it sees this one inside.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let taken = Taken(self);
        (!self.closed.load(Ordering::SeqCst)).then_some(taken)
    }

    /// Whether nothing is to be read any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Has nothing read from now on, and waits until what was read before has been dealt with, but no longer than
    /// `limit`.
    pub(crate) fn close(&self, limit: Span) {
        self.closed.store(true, Ordering::SeqCst);
        let until = clock::now() + limit;
        while self.inside.load(Ordering::SeqCst) > 0 && clock::now() < until {
            std::thread::park_timeout(PAUSE);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_read_something_is_waited_for_and_nobody_reads_afterwards() {
        let intake = Intake::default();
        let taken = intake.enter().expect("open");
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| intake.close(Span::from_millis(60_000)));
            while !intake.is_closed() {
                std::thread::yield_now();
            }
            assert!(intake.enter().is_none() && !closing.is_finished());
            drop(taken);
        });
        assert!(intake.enter().is_none());
        assert_eq!(intake.inside.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn who_never_gets_done_is_not_waited_for_longer_than_that() {
        let intake = Intake::default();
        let _taken = intake.enter().expect("open");
        intake.close(Span::from_millis(5));
    }
}
