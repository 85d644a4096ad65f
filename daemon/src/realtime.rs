//! Real-time scheduling of the threads on a request's way, where the system permits it.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::thread::{CpuSet, sched_setaffinity};

/// What a thread is for. Those that hold the scheduler's lock for an instant come before those that compute
/// for milliseconds: a computing worker must never keep the lock's next holder from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
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

/// From now on what is not permitted is done without and not told.
pub(crate) fn told_already() {
    TOLD.store(true, Ordering::Relaxed);
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether a thread of this process was refused its real-time priority.
pub(crate) fn is_denied() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// Gives the calling thread its core and, if `wanted`, its real-time priority. What is not permitted is told
/// once and done without.
pub(crate) fn enter(role: Role, core: Option<usize>, wanted: bool) {
    if let Some(core) = core {
        let mut set = CpuSet::new();
        set.set(core);
        if let Err(error) = sched_setaffinity(None, &set) {
            eprintln!("weir: a thread cannot be bound to core {core}: {error}");
        }
    }
    if wanted
        && let Err(error) = set_policy(role)
        && !TOLD.swap(true, Ordering::Relaxed)
    {
        eprintln!(
            "weir: no real-time priority ({error}): deadlines are kept as well as an ordinary process can \
             (LimitRTPRIO=50 or CAP_SYS_NICE permits it; daemon.realtime = false silences this)"
        );
    }
}

/// Locks the process's memory, present and future, so that no page fault comes between a request and its
/// deadline. What is not permitted is told and done without.
pub(crate) fn lock_memory() {
    if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)
        && !QUIET.load(Ordering::Relaxed)
    {
        eprintln!(
            "weir: memory is not locked ({error}): a page fault may delay an answer (LimitMEMLOCK=infinity)"
        );
    }
}

/// Keeps what was freed for the next batch instead of giving it back to the system: otherwise a model with
/// large tensors spends a good part of each run on page faults. To be called before any thread starts, alike
/// when measuring and when serving.
#[allow(unsafe_code)]
pub(crate) fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two integers and changes settings of the allocator only; no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
    }
}

/// A warning if workers that compute all the time would be stopped by the kernel's real-time throttle.
pub(crate) fn throttle_warning() -> Option<String> {
    let read = |name: &str| -> Option<i64> {
        std::fs::read_to_string(format!("/proc/sys/kernel/sched_rt_{name}_us")).ok()?.trim().parse().ok()
    };
    let (runtime, period) = (read("runtime")?, read("period")?);
    (0..period).contains(&runtime).then(|| {
        format!("real-time throttling is on: {runtime} of {period} µs; a core that is always busy is held up")
    })
}

#[allow(unsafe_code)]
fn set_policy(role: Role) -> std::io::Result<()> {
    let fifo = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    let (policy, priority) = match role {
        Role::Worker => (fifo, 10),
        Role::Dispatch => (fifo, 20),
        // What it starts runs like that too.
        Role::Background => (libc::SCHED_IDLE, 0),
    };
    // SAFETY: `sched_param` is a plain struct of integers for which all zeroes is a valid value.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: the calling thread is addressed by 0, and `param` lives until the call returns, which only reads it.
    let status = unsafe { libc::sched_setscheduler(0, policy, &param) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
