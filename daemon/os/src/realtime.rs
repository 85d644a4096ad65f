//! Real-time scheduling of the threads on a request's way, where the system permits it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::unistd::Pid;
use tracing::warn;

/// What a thread is for. Those that hold the scheduler's lock for an instant come before those that compute
/// for milliseconds: a computing worker must never keep the lock's next holder from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs batches.
    Worker,
    /// Reads requests, wakes the scheduler.
    Dispatch,
    /// Runs where nobody else wants to.
    Background,
}

/// Told once, not by every thread.
static TOLD: AtomicBool = AtomicBool::new(false);
/// The daemon tells what is not permitted; its worker processes are not to repeat it.
static QUIET: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The real-time priority of this thread.
    static ROLE: Cell<Option<Role>> = const { Cell::new(None) };
}

/// From now on what is not permitted is done without and not told.
pub fn told_already() {
    TOLD.store(true, Ordering::Relaxed);
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether a thread of this process was refused its real-time priority.
pub fn is_denied() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// Gives the calling thread its core and, if `wanted`, its real-time priority. What is not permitted is told
/// once and done without.
pub fn enter(role: Role, core: Option<usize>, wanted: bool) {
    if let Some(core) = core {
        let mut set = CpuSet::new();
        if let Err(error) = set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)) {
            warn!("a thread cannot be bound to core {core}: {error}");
        }
    }
    if !wanted {
        return;
    }
    match set_policy(policy(role)) {
        Ok(()) => ROLE.set((role != Role::Background).then_some(role)),
        Err(_) if TOLD.swap(true, Ordering::Relaxed) => {}
        Err(error) => warn!(
            "no real-time priority ({error}): deadlines are kept as well as an ordinary process can \
             (LimitRTPRIO=50 or CAP_SYS_NICE permits it; daemon.realtime = false silences this)"
        ),
    }
}

/// Computes for long without being in the way of anybody who has a deadline: the calling thread has no real-time
/// priority meanwhile. It must hold no lock that such a one waits for, unless it is a [`crate::pi_mutex::PiMutex`].
pub fn calmly<T>(compute: impl FnOnce() -> T) -> T {
    let _calm = calm();
    compute()
}

/// Takes the calling thread's real-time priority, if it has one, until the value is dropped.
pub fn calm() -> Option<Otherwise> {
    let role = ROLE.get()?;
    set_policy(NORMAL).ok()?;
    ROLE.set(None);
    Some(Otherwise(Some(role)))
}

/// Gives the calling thread the priority of those who dispatch until the value is dropped, if it has no real-time
/// priority of its own and one is `wanted` and permitted: what it does for others meanwhile is not put off by workers
/// that compute. Not for threads of [`Role::Background`].
pub fn urgently(wanted: bool) -> Option<Otherwise> {
    if !wanted || ROLE.get().is_some() || is_denied() {
        return None;
    }
    set_policy(policy(Role::Dispatch)).ok()?;
    ROLE.set(Some(Role::Dispatch));
    Some(Otherwise(None))
}

/// The calling thread runs otherwise than its role says until this is dropped.
pub struct Otherwise(Option<Role>);

impl Drop for Otherwise {
    fn drop(&mut self) {
        ROLE.set(self.0);
        if let Err(error) = set_policy(self.0.map_or(NORMAL, policy)) {
            warn!("a thread does not get its priority back: {error}");
        }
    }
}

/// Locks the process's memory, present and future, so that no page fault comes between a request and its
/// deadline. What is not permitted is told and done without.
pub fn lock_memory() {
    if let Err(error) = mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        && !QUIET.load(Ordering::Relaxed)
    {
        warn!("memory is not locked ({error}): a page fault may delay an answer (LimitMEMLOCK=infinity)");
    }
}

/// Keeps what was freed for the next batch instead of giving it back to the system: otherwise a model with
/// large tensors spends a good part of each run on page faults. To be called before any thread starts, alike
/// when measuring and when serving.
#[allow(unsafe_code)]
pub fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two integers and changes settings of the allocator only; no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
    }
}

/// A warning if workers that compute all the time would be stopped by the kernel's real-time throttle.
pub fn throttle_warning() -> Option<String> {
    let read = |name: &str| -> Option<i64> {
        std::fs::read_to_string(format!("/proc/sys/kernel/sched_rt_{name}_us")).ok()?.trim().parse().ok()
    };
    let (runtime, period) = (read("runtime")?, read("period")?);
    (0..period).contains(&runtime).then(|| {
        format!("real-time throttling is on: {runtime} of {period} µs; a core that is always busy is held up")
    })
}

/// An ordinary thread's. The flag, once set, cannot be taken off again by everybody.
const NORMAL: (i32, i32) = (libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0);

/// The policy and priority of a role.
fn policy(role: Role) -> (i32, i32) {
    let fifo = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    match role {
        Role::Worker => (fifo, 10),
        Role::Dispatch => (fifo, 20),
        // What it starts runs like that too.
        Role::Background => (libc::SCHED_IDLE, 0),
    }
}

#[allow(unsafe_code)]
fn set_policy((policy, priority): (i32, i32)) -> std::io::Result<()> {
    // SAFETY: `sched_param` is a plain struct of integers for which all zeroes is a valid value.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: the calling thread is addressed by 0, and `param` lives until the call returns, which only reads it.
    let status = unsafe { libc::sched_setscheduler(0, policy, &param) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread's priority and policy, as `proc(5)` tells them.
    fn present() -> (i32, i32) {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let mut fields = fields.split_whitespace().skip(37).map(|field| field.parse().unwrap());
        (fields.next().unwrap(), fields.next().unwrap())
    }

    #[test]
    fn who_computes_calmly_has_no_real_time_priority_until_it_is_done() {
        let run = |role| {
            let thread = move || {
                enter(role, None, true);
                let entered = present();
                // Where it is not permitted, there is nothing to be given up.
                let expected =
                    if is_denied() { (0, libc::SCHED_OTHER) } else { (policy(role).1, libc::SCHED_FIFO) };
                assert_eq!(entered, expected);
                assert_eq!(calmly(present), (0, libc::SCHED_OTHER));
                assert_eq!(present(), entered);
                std::panic::catch_unwind(|| calmly(|| panic!("as the test wants it"))).unwrap_err();
                assert_eq!(present(), entered);
            };
            std::thread::spawn(thread).join().unwrap();
        };
        run(Role::Dispatch);
        run(Role::Worker);
    }

    #[test]
    fn who_is_urgent_has_the_priority_of_dispatch_until_it_is_done() {
        let ordinary = (0, libc::SCHED_OTHER);
        let thread = move || {
            assert_eq!(present(), ordinary);
            assert!(urgently(false).is_none());
            let urgent = urgently(true);
            let expected = if urgent.is_some() { (20, libc::SCHED_FIFO) } else { ordinary };
            assert_eq!(present(), expected);
            // Within it, who computes for long is in nobody's way, and whoever is urgent once is urgent.
            assert!(urgently(true).is_none() || urgent.is_none());
            assert_eq!(calmly(present), ordinary);
            assert_eq!(present(), expected);
            drop(urgent);
            assert_eq!(present(), ordinary);
            // A worker keeps its own.
            enter(Role::Worker, None, true);
            let own = present();
            assert!(urgently(true).is_none() || is_denied());
            assert_eq!(present(), own);
        };
        std::thread::spawn(thread).join().unwrap();
    }

    #[test]
    fn who_has_no_real_time_priority_computes_as_before() {
        std::thread::spawn(|| {
            enter(Role::Background, None, true);
            assert_eq!(calmly(present), (0, libc::SCHED_IDLE));
        })
        .join()
        .unwrap();
    }
}
