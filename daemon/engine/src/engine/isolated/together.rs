//! A real-time worker and its process are kept on one core while a batch runs, as the kernel does by itself with others.
//!
//! It wakes a real-time thread where no other one runs, and the one that wakes it runs: left to it, the two never share a
//! core, each wake-up is an interrupt to an idle core, and each byte of the batch crosses to the other's cache.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread.
const OWN: Pid = Pid::from_raw(0);

/// A worker process that follows the thread which waits for it. What is not permitted is done without.
#[derive(Debug)]
pub(super) struct Together {
    process: Pid,
    /// Where it is bound.
    core: Option<usize>,
}

/// Binds the calling thread to the core it is on, until dropped.
pub(super) struct Bound {
    everywhere: CpuSet,
}

impl Together {
    pub(super) fn new(process: Pid) -> Self {
        Self { process, core: None }
    }

    /// Brings the process to the core of the calling thread, and keeps that there.
    pub(super) fn bind(&mut self) -> Option<Bound> {
        let everywhere = sched_getaffinity(OWN).ok()?;
        let core = sched_getcpu().ok()?;
        let mut here = CpuSet::new();
        // More cores than a set has room for: they are left to the kernel.
        here.set(core).ok()?;
        if self.core != Some(core) {
            sched_setaffinity(self.process, &here).ok()?;
            self.core = Some(core);
        }
        sched_setaffinity(OWN, &here).ok()?;
        Some(Bound { everywhere })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(OWN, &self.everywhere);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cores of a process, or of the calling thread.
    fn cores(of: Pid) -> Vec<usize> {
        let set = sched_getaffinity(of).unwrap();
        (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap()).collect()
    }

    #[test]
    fn both_are_on_one_core_while_bound_and_the_thread_is_free_again() {
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(other.id().cast_signed());
        let free = cores(OWN);
        let mut together = Together::new(pid);
        for _ in 0..3 {
            let bound = together.bind().unwrap();
            assert_eq!((cores(OWN).len(), cores(OWN)), (1, cores(pid)));
            assert_eq!(cores(OWN), [sched_getcpu().unwrap()]);
            drop(bound);
            assert_eq!(cores(OWN), free);
        }
        other.kill().unwrap();
        other.wait().unwrap();
        let mut gone = Together::new(pid);
        assert!(gone.bind().is_none() && cores(OWN) == free);
    }
}
