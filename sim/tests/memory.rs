//! Beside a run: memory is bounded by what is open at once, not by how long it takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::experiment::{Data, Experiment};

/// Counts the bytes that are held, and the most of them.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "an allocator that counts is one")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract of `GlobalAlloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; `pointer` came from `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes held while so many requests are simulated.
fn most(policy: &str, requests: u64) -> usize {
    let text = format!(
        "title = \"\"\nrequests = {requests}\npolicies = [\"{policy}\"]\n\
         [[system]]\nname = \"one\"\ndeadline = \"20ms\"\n\
         streams = [{{ count = 3, constraints = [\"any_miss(1,3)\"] }}]\n\
         workers = [{{ count = 2, batch = 4, time = \"10ms\" }}]\n\
         [[arrivals]]\nname = \"all\"\nprocess = {{ gamma = {{ shape = 0.5 }} }}\n[x]\nload = [1.1]\n"
    );
    let experiment = Experiment::parse(&text, &Data::default()).expect("an experiment");
    MOST.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
    experiment.run(&|| {}).expect("results");
    MOST.load(Ordering::Relaxed) - HELD.load(Ordering::Relaxed)
}

#[test]
fn a_run_of_any_length_takes_as_much_memory() {
    for policy in ["weir", "nexus", "proteus-aimd"] {
        most(policy, 1000);
        let (short, long) = (most(policy, 50_000), most(policy, 1_000_000));
        // Longer runs meet longer queues, and queues grow by doubling.
        assert!(long < short + short / 2 + 65_536, "{policy}: {short} bytes, then {long}");
    }
}
