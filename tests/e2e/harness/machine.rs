//! Who has the machine: a few tests run beside each other, but for those that hold a daemon to times of the real clock.

use std::cell::RefCell;
use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard};

/// How many tests share the machine, how many quiet ones have it together, whether one has it to itself, and how many wait to have it
/// without those that share it. Once one has had it so, all of these go before others: the machine is empty already.
struct Use {
    shared: usize,
    quiet: usize,
    alone: bool,
    waiting: usize,
    emptied: bool,
}

static USE: Mutex<Use> = Mutex::new(Use { shared: 0, quiet: 0, alone: false, waiting: 0, emptied: false });
static CHANGED: Condvar = Condvar::new();

/// What a test holds, until its thread ends.
enum Held {
    Share,
    Quiet,
    Alone,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Waits until no other test runs the binary, and keeps others from it to the end of this test: it needs most of the machine, and the
/// real clock.
pub(crate) fn alone() {
    hold(Held::Alone, |now| now.shared == 0 && now.quiet == 0 && !now.alone);
}

/// Waits until only so few others run the binary that are as quiet as this one: it holds a daemon to times of the real clock, but
/// waits most of the time, so that each of these has a core whenever it wants one.
pub(crate) fn quiet() {
    hold(Held::Quiet, |now| now.shared == 0 && now.quiet < cores() && !now.alone);
}

fn hold(what: Held, may: impl Fn(&Use) -> bool) {
    HELD.with_borrow_mut(|held| {
        // Two tests that hold a share and wait for each other's would wait for ever.
        *held = None;
        USE.lock().expect("no panic").waiting += 1;
        let mut now = wait(may);
        now.waiting -= 1;
        now.emptied = true;
        match what {
            Held::Alone => now.alone = true,
            Held::Quiet => now.quiet += 1,
            Held::Share => now.shared += 1,
        }
        *held = Some(what);
    });
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Has this test share the machine from now on, if it does not have it to itself; called where the binary is run.
pub(super) fn share() {
    // Threads that a test starts have no name, and run on what the test holds.
    if std::thread::current().name().is_some() {
        HELD.with_borrow_mut(|held| {
            held.get_or_insert_with(|| {
                let goes_first = |now: &Use| now.alone || now.quiet > 0 || now.emptied && now.waiting > 0;
                // Most of the time each waits for a clock.
                let mut now = wait(|now| !goes_first(now) && now.shared < 2 * cores());
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
            Self::Quiet => now.quiet -= 1,
            Self::Alone => now.alone = false,
        }
        CHANGED.notify_all();
    }
}
