//! The way out without a frame: an eventfd in the client's own poll, one more for each change of safe mode.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::io::{IoSliceMut, ReadWriteFlags, preadv2};

use weir_os::realtime::{self, Role};

/// Bytes of the stack of a thread that does next to nothing; the whole of it may be locked in memory.
const STACK: usize = 128 << 10;
/// The file has no position to read from.
const NO_OFFSET: u64 = u64::MAX;

/// The eventfd of one client, and the thread that writes it.
///
/// The client holds the same open file: it may take `O_NONBLOCK` off and fill the counter, and then a write waits
/// for as long as the client likes. The kernel has no write to an eventfd that never waits: `RWF_NOWAIT` is for
/// reading alone, looking before writing leaves an instant to the client, and what the kernel counts up by itself, at
/// the end of an operation of AIO or io_uring, takes unsafe code and is forbidden in many a container. So each of these
/// clients has a thread that does nothing else, for which nobody waits but the client's own thread in the end: ringing
/// costs a wake-up, and none of it stands in a queue of answers.
pub(super) struct Alarm {
    bell: Arc<Bell>,
    writer: JoinHandle<()>,
}

struct Bell {
    file: EventFd,
    /// Changes not yet counted in the file; above 0 as long as a write is on its way.
    owed: AtomicU64,
    over: AtomicBool,
}

impl Alarm {
    /// Makes the eventfd, for the client too, and starts its thread, with real-time priority if `realtime`.
    ///
    /// # Errors
    /// If the system is out of descriptors or threads.
    pub(super) fn new(realtime: bool) -> std::io::Result<(Self, OwnedFd)> {
        // Without waiting, for the client's sake: reading it in vain returns at once.
        let file = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let given = file.as_fd().try_clone_to_owned()?;
        let bell = Arc::new(Bell { file, owed: AtomicU64::new(0), over: AtomicBool::new(false) });
        let writer = std::thread::Builder::new().name("alarm".into()).stack_size(STACK).spawn({
            let bell = Arc::clone(&bell);
            move || {
                realtime::enter(Role::Dispatch, None, realtime);
                bell.write();
            }
        })?;
        Ok((Self { bell, writer }, given))
    }

    /// Has the count grow by one; never waits.
    pub(super) fn ring(&self) {
        self.bell.owed.fetch_add(1, Ordering::Release);
        self.writer.thread().unpark();
    }

    /// Ends the thread, whatever the client does to the eventfd meanwhile: reading makes room for a write that waits.
    /// A client that fills it again each time keeps the calling thread, its own, and with it no place but its own.
    pub(super) fn end(&self) {
        self.bell.over.store(true, Ordering::Release);
        while !self.writer.is_finished() {
            self.writer.thread().unpark();
            std::thread::park_timeout(Duration::from_millis(1));
            if self.bell.owed.load(Ordering::Acquire) > 0 {
                self.bell.make_room();
            }
        }
    }
}

impl Bell {
    fn write(&self) {
        while !self.over.load(Ordering::Acquire) {
            match self.owed.load(Ordering::Acquire) {
                0 => std::thread::park(),
                owed => {
                    // A file that is full and does not wait is readable already.
                    while self.file.write(owed) == Err(Errno::EINTR) {}
                    self.owed.fetch_sub(owed, Ordering::Release);
                }
            }
        }
    }

    fn make_room(&self) {
        let mut count = [0; 8];
        // Does not wait, whatever the client made of the file; an empty one has room.
        let _ = preadv2(&self.file, &mut [IoSliceMut::new(&mut count)], NO_OFFSET, ReadWriteFlags::NOWAIT);
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use nix::unistd::{read, write};

    use super::*;

    fn count(file: &OwnedFd) -> Option<u64> {
        let mut count = [0; 8];
        read(file, &mut count).ok().map(|_| u64::from_ne_bytes(count))
    }

    fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = look() {
                return found;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    #[test]
    fn each_ring_is_counted_once() {
        let (alarm, file) = Alarm::new(false).expect("an eventfd");
        assert_eq!(count(&file), None);
        let mut counted = 0;
        for rung in 1..=100 {
            alarm.ring();
            while counted < rung {
                counted += eventually(|| count(&file));
            }
            assert_eq!(counted, rung);
        }
        (0..1000).for_each(|_| alarm.ring());
        while counted < 1100 {
            counted += eventually(|| count(&file));
        }
        alarm.end();
        assert_eq!((counted, count(&file)), (1100, None));
    }

    #[test]
    fn what_was_counted_stays_when_the_thread_ends() {
        let (alarm, file) = Alarm::new(false).expect("an eventfd");
        alarm.ring();
        eventually(|| (alarm.bell.owed.load(Ordering::Acquire) == 0).then_some(()));
        alarm.end();
        assert_eq!(count(&file), Some(1));
    }

    #[test]
    fn a_full_counter_that_waits_keeps_neither_who_rings_nor_the_end() {
        let (alarm, file) = Alarm::new(false).expect("an eventfd");
        fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).expect("flags");
        write(&file, &(u64::MAX - 1).to_ne_bytes()).expect("room");
        (0..1000).for_each(|_| alarm.ring());
        assert!(!alarm.writer.is_finished() && alarm.bell.owed.load(Ordering::Acquire) > 0);
        alarm.end();
        assert!(alarm.writer.is_finished());
    }

    #[test]
    fn who_fills_it_again_and_again_does_not_win_for_ever() {
        let (alarm, file) = Alarm::new(false).expect("an eventfd");
        fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).expect("flags");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        // As much as fits, whatever is in there.
                        for power in (0..64).rev() {
                            let _ = fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
                            let _ = write(&file, &(1u64 << power).to_ne_bytes());
                        }
                        let _ = fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()));
                    }
                });
            }
            (0..100).for_each(|_| alarm.ring());
            alarm.end();
            over.store(true, Ordering::Relaxed);
        });
        assert!(alarm.writer.is_finished());
    }
}
