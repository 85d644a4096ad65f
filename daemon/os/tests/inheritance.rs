//! Whoever holds a [`PiMutex`] runs at the priority of who waits for it.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use weir_os::pi_mutex::PiMutex;
use weir_os::realtime::{self, Role};

/// The kernel's number of the calling thread.
fn thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// The priority at which the kernel runs a thread now, as `proc(5)` tells it: -1 - p for a real-time priority of p.
fn priority(thread: u32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("a thread");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    fields.split_whitespace().nth(15).expect("a field").parse().expect("a number")
}

#[test]
#[allow(clippy::print_stderr, reason = "it says what it could not check")]
fn who_holds_it_runs_at_the_priority_of_who_waits_for_it() {
    let mutex = Arc::new(PiMutex::new(()));
    let (told, holds) = channel();
    let (let_go, wait) = channel::<()>();
    let holder = {
        let mutex = Arc::clone(&mutex);
        std::thread::spawn(move || {
            let held = mutex.lock();
            told.send(thread()).expect("somebody listens");
            // Until the other end is dropped.
            let _ = wait.recv();
            drop(held);
            priority(thread())
        })
    };
    let low = holds.recv().expect("it holds the lock");
    let own = priority(low);
    let (told, entered) = channel();
    let waiter = std::thread::spawn(move || {
        realtime::enter(Role::Dispatch, None, true);
        told.send(priority(thread())).expect("somebody listens");
        drop(mutex.lock());
    });
    let urgent = entered.recv().expect("it runs");
    if urgent >= 0 {
        eprintln!("NOT CHECKED: priority inheritance, for no real-time priority is permitted here");
    } else {
        assert!(own >= 0, "{own}");
        while priority(low) != urgent {
            assert!(!waiter.is_finished(), "it got the lock that is held");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
    drop(let_go);
    waiter.join().expect("no panic");
    assert_eq!(holder.join().expect("no panic"), own, "and no longer than that");
}
