//! Who has the machine: a few tests run beside each other, but for those that hold a daemon to times of the real clock.

use std::cell::RefCell;
use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard};

/// How many tests share the machine, whether one has it to itself, and how many wait to have it so. Once one has had it, all of
/// these go before others: the machine is empty already.
struct Use {
    shared: usize,
    alone: bool,
    waiting: usize,
    emptied: bool,
}

static USE: Mutex<Use> = Mutex::new(Use { shared: 0, alone: false, waiting: 0, emptied: false });
static CHANGED: Condvar = Condvar::new();

/// What a test holds, until its thread ends.
enum Held {
    Share,
    Alone,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Waits until no other test runs the binary, and keeps others from it to the end of this test.
pub(crate) fn alone() {
    HELD.with_borrow_mut(|held| {
        // Two tests that hold a share and wait for each other's would wait for ever.
        *held = None;
        USE.lock().expect("no panic").waiting += 1;
        let mut now = wait(|now| now.shared == 0 && !now.alone);
        now.waiting -= 1;
        (now.alone, now.emptied) = (true, true);
        *held = Some(Held::Alone);
    });
}

/// How many tests share the machine at most. Most of the time each waits for a clock.
fn at_most() -> usize {
    2 * std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Has this test share the machine from now on, if it does not have it to itself; called where the binary is run.
pub(super) fn share() {
    // Threads that a test starts have no name, and run on what the test holds.
    if std::thread::current().name().is_some() {
        HELD.with_borrow_mut(|held| {
            held.get_or_insert_with(|| {
                let goes_first = |now: &Use| now.alone || now.emptied && now.waiting > 0;
                let mut now = wait(|now| !goes_first(now) && now.shared < at_most());
                now.shared += 1;
                now.emptied = false;
                Held::Share
            });
        });
    }
}

fn wait(until: impl Fn(&Use) -> bool) -> MutexGuard<'static, Use> {
    let now = USE.lock().expect("no panic");
    CHANGED.wait_while(now, |now| !until(now)).expect("no panic")
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut now = USE.lock().expect("no panic");
        match self {
            Self::Share => now.shared -= 1,
            Self::Alone => now.alone = false,
        }
        CHANGED.notify_all();
    }
}
