//! Where a request's tensors and its way back to the client wait while the scheduler decides.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rt_core::Span;

use super::lock;
use super::memory::Memory;
use super::region::Region;
use crate::out::Replies;
use weir_os::pi_mutex::PiMutex;
use weir_plan::models::Descent;

/// One request in the daemon's hands.
#[derive(Default)]
pub struct Slot {
    /// Where the answer goes; `None` while the slot is free.
    pub origin: Option<Origin>,
    pub input: Vec<u8>,
    pub output: Vec<u8>,
    pub started_ns: u64,
    pub run_ns: u64,
    pub batch: u16,
    pub variant: u16,
    /// Where the model finds what it remembers of the stream, if it remembers anything; the request's number in the stream, and
    /// how many just before it have no part in that.
    pub memory: Option<Arc<Memory>>,
    pub sequence: u64,
    pub skipped: u32,
    /// From when on after its arrival an answer is late.
    pub due: Span,
    /// Of a pipeline: what the source became at each stage.
    pub results: Vec<StageResults>,
}

/// What one source became at one stage of a pipeline.
#[derive(Default)]
pub struct StageResults {
    /// Of each request that has begun, what it was made of.
    pub origins: Vec<Descent>,
    /// Their results, as the engine packs them, side by side.
    pub packed: Vec<u8>,
}

impl StageResults {
    /// Keeps the result of the request of that number.
    pub(super) fn put(&mut self, number: usize, result: &[u8]) {
        let (from, to) = (number * result.len(), (number + 1) * result.len());
        if self.packed.len() < to {
            self.packed.resize(to, 0);
        }
        self.packed[from..to].copy_from_slice(result);
    }
}

/// The token of a request that nobody waits for.
pub(super) const NOBODY: u64 = u64::MAX;

/// The place that a token names.
pub(super) fn place(token: u64) -> usize {
    token as u32 as usize
}

/// The client, the frame, and the stream's number on its connection. One of the client's requests without an answer
/// for as long as it is there.
pub struct Origin {
    pub replies: Arc<dyn Replies>,
    pub frame: u64,
    pub stream: u32,
    /// Where the output goes, if not into the frame of the answer.
    pub output: Option<Region>,
    /// Whether the answer tells how many requests were skipped.
    pub tells_skipped: bool,
    /// Whether it tells that it is late, if it is.
    pub tells_late: bool,
    /// The bytes that were read for it, if nothing is promised to whoever sent it.
    pub unpromised: Option<usize>,
}

impl Origin {
    pub fn new(replies: Arc<dyn Replies>, frame: u64, stream: u32, output: Option<Region>) -> Self {
        replies.opened();
        Self { replies, frame, stream, output, tells_skipped: false, tells_late: false, unpromised: None }
    }

    /// The same of a request for which so many bytes were read and nothing is promised, if it is one.
    #[must_use]
    pub fn unpromised(mut self, bytes: Option<usize>) -> Self {
        self.unpromised = bytes;
        self
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.replies.closed();
    }
}

/// A fixed number of slots; a token names one of them for as long as it is taken.
pub struct Slots {
    slots: Box<[Mutex<Slot>]>,
    /// How often each was taken: the upper half of its token.
    taken: Box<[AtomicU32]>,
    free: PiMutex<Vec<u32>>,
}

impl Slots {
    /// `count` slots, whose buffers grow to a tensor's size when first used and stay.
    pub fn new(count: usize) -> Self {
        let free = (0..count as u32).rev().collect();
        Self {
            slots: (0..count).map(|_| Mutex::default()).collect(),
            taken: (0..count).map(|_| AtomicU32::new(0)).collect(),
            free: PiMutex::new(free),
        }
    }

    /// Takes a free slot; `None` if all are in use.
    pub fn take(&self) -> Option<u64> {
        let place = self.free.lock().pop()?;
        // Nobody else takes it.
        let taken = self.taken[place as usize].fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Some(u64::from(taken) << 32 | u64::from(place))
    }

    /// The slot of a token from [`Slots::take`] that was not put back.
    pub fn get(&self, token: u64) -> MutexGuard<'_, Slot> {
        lock(&self.slots[place(token)])
    }

    /// The slot of a token, if it was not put back: a request may still run when it has been missed, or its source has ended.
    /// [`NOBODY`] has none.
    pub(super) fn get_if_taken(&self, token: u64) -> Option<MutexGuard<'_, Slot>> {
        let slot = lock(self.slots.get(place(token))?);
        let taken = self.taken[place(token)].load(Ordering::Relaxed);
        (slot.origin.is_some() && u64::from(taken) == token >> 32).then_some(slot)
    }

    /// Gives a slot back; its origin is handed out for the answer.
    pub fn put_back(&self, token: u64) -> Option<Origin> {
        let origin = {
            let mut slot = self.get(token);
            slot.memory = None;
            slot.origin.take()
        };
        self.free.lock().push(token as u32);
        origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Replies for Nobody {
        fn send(&self, _: &[u8]) {}
        fn opened(&self) {}
        fn closed(&self) {}
        fn in_vain(&self, _: usize) {}
    }

    #[test]
    fn a_token_is_out_of_date_once_its_slot_was_put_back() {
        let slots = Slots::new(1);
        let take = || {
            let token = slots.take().expect("it is free");
            slots.get(token).origin = Some(Origin::new(Arc::new(Nobody), 1, 1, None));
            token
        };
        let first = take();
        assert!(slots.get_if_taken(first).is_some() && slots.take().is_none());
        slots.put_back(first);
        assert!(slots.get_if_taken(first).is_none(), "it is free");
        let second = take();
        assert!(second != first && place(second) == place(first));
        assert!(slots.get_if_taken(first).is_none(), "it is another's");
        assert!(slots.get_if_taken(second).is_some() && slots.get_if_taken(NOBODY).is_none());
    }
}
