//! A real-time worker and its process are kept on one core while a batch runs, as the kernel does by itself with others.
//!
//! It wakes a real-time thread where no other one runs, and the one that wakes it runs: left to it, the two never share a
//! core, each wake-up is an interrupt to an idle core, and each byte of the batch crosses to the other's cache.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

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
        let everywhere = sched_getaffinity(None).ok()?;
        let core = sched_getcpu();
        let mut here = CpuSet::new();
        // More cores than a set has room for: they are left to the kernel.
        if core >= CpuSet::MAX_CPU {
            return None;
        }
        here.set(core);
        if self.core != Some(core) {
            sched_setaffinity(Some(self.process), &here).ok()?;
            self.core = Some(core);
        }
        sched_setaffinity(None, &here).ok()?;
        Some(Bound { everywhere })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It was allowed before.
        let _ = sched_setaffinity(None, &self.everywhere);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cores of a process, or of the calling thread.
    fn cores(of: Option<Pid>) -> Vec<usize> {
        let set = sched_getaffinity(of).unwrap();
        (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
    }

    #[test]
    fn both_are_on_one_core_while_bound_and_the_thread_is_free_again() {
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&other);
        let free = cores(None);
        let mut together = Together::new(pid);
        for _ in 0..3 {
            let bound = together.bind().unwrap();
            assert_eq!((cores(None).len(), cores(None)), (1, cores(Some(pid))));
            assert_eq!(cores(None), [sched_getcpu()]);
            drop(bound);
            assert_eq!(cores(None), free);
        }
        other.kill().unwrap();
        other.wait().unwrap();
        let mut gone = Together::new(pid);
        assert!(gone.bind().is_none() && cores(None) == free);
    }
}
