//! A mutex whose holder runs at the priority of the most urgent thread that waits for it.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, WAITERS};
use rustix::thread::gettid;

/// How often the lock is looked at before the kernel is asked to wait, as the standard library's mutex does: it is held
/// for less than a system call takes.
const SPINS: u32 = 100;

thread_local! {
    /// The kernel's number of this thread; 0 before it was asked for.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// A mutex with priority inheritance (Sha, Rajkumar and Lehoczky, 1990), for what threads with real-time priority share
/// with others: a holder that has been put off its core by somebody else goes on as soon as a more urgent thread waits.
///
/// The kernel does it for a futex that holds the number of its owner's thread (futex(2), `FUTEX_LOCK_PI`). Whoever owns
/// the futex finds the standard library's mutex behind it free; that one alone protects the value, so that where the
/// kernel has no such futex it is as good as any other. Like the other locks of this program it knows no poison.
#[derive(Debug, Default)]
pub struct PiMutex<T> {
    /// The number of the owner's thread, or 0; the kernel sets a bit while others wait.
    owner: AtomicU32,
    value: Mutex<T>,
}

/// The value of a [`PiMutex`], until dropped.
pub struct PiGuard<'a, T> {
    // In this order: who owns the futex next must find the mutex free.
    value: MutexGuard<'a, T>,
    _turn: Option<Turn<'a>>,
}

/// The ownership of a futex.
struct Turn<'a>(&'a AtomicU32);

impl<T> PiMutex<T> {
    /// One that nobody holds.
    pub const fn new(value: T) -> Self {
        Self { owner: AtomicU32::new(0), value: Mutex::new(value) }
    }

    /// Locks.
    pub fn lock(&self) -> PiGuard<'_, T> {
        let turn = Turn::wait(&self.owner);
        PiGuard { value: self.value.lock().unwrap_or_else(PoisonError::into_inner), _turn: turn }
    }

    /// Locks unless somebody else has; never waits.
    pub fn try_lock(&self) -> Option<PiGuard<'_, T>> {
        let turn = Turn::take(&self.owner).ok()?;
        match self.value.try_lock() {
            Ok(value) => Some(PiGuard { value, _turn: Some(turn) }),
            Err(TryLockError::Poisoned(poisoned)) => {
                Some(PiGuard { value: poisoned.into_inner(), _turn: Some(turn) })
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> Deref for PiGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for PiGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<'a> Turn<'a> {
    /// Takes a free futex; else what stands in it.
    fn take(owner: &'a AtomicU32) -> Result<Self, u32> {
        let taken = owner.compare_exchange(0, thread(), Ordering::Acquire, Ordering::Relaxed);
        taken.map(|_| Self(owner))
    }

    /// Waits for the futex; `None` where the kernel has none of this kind.
    fn wait(owner: &'a AtomicU32) -> Option<Self> {
        for _ in 0..SPINS {
            match Self::take(owner) {
                Ok(turn) => return Some(turn),
                // Others wait already: the kernel says whose turn it is.
                Err(other) if other & WAITERS != 0 => break,
                Err(_) => std::hint::spin_loop(),
            }
        }
        loop {
            match futex::lock_pi(owner, Flags::PRIVATE, None) {
                Ok(()) => return Some(Self(owner)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.0.compare_exchange(thread(), 0, Ordering::Release, Ordering::Relaxed).is_err() {
            // Somebody waits, and is the owner once this returns. It cannot fail: this thread is the owner now.
            let given = futex::unlock_pi(self.0, Flags::PRIVATE);
            debug_assert_eq!(given, Ok(()));
        }
    }
}

/// The kernel's number of the calling thread.
fn thread() -> u32 {
    THREAD.with(|known| {
        if known.get() == 0 {
            known.set(gettid().as_raw_nonzero().get().cast_unsigned());
        }
        known.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_changes_the_value() {
        let mutex = PiMutex::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let before = *mutex.lock();
                        *mutex.lock() += 1;
                        if let Some(now) = mutex.try_lock() {
                            assert!(*now > before);
                        }
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), 80_000);
        let held = mutex.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(mutex.try_lock().is_none()));
        });
        drop(held);
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn a_panic_leaves_the_lock_free() {
        let mutex = PiMutex::new(1);
        let panicked = std::panic::catch_unwind(|| {
            let _held = mutex.lock();
            panic!("as the test wants it");
        });
        assert!(panicked.is_err() && *mutex.lock() == 1 && mutex.try_lock().is_some());
    }
}
