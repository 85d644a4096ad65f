//! Where a request's tensors and its way back to the client wait while the scheduler decides.

use std::sync::{Arc, Mutex, MutexGuard};

use super::lock;
use crate::pi_mutex::PiMutex;
use crate::socket::{Connection, Place};

/// One request in the daemon's hands.
#[derive(Default)]
pub(crate) struct Slot {
    /// Where the answer goes; `None` while the slot is free.
    pub(crate) origin: Option<Origin>,
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    pub(crate) started_ns: u64,
    pub(crate) run_ns: u64,
    pub(crate) batch: u16,
    pub(crate) variant: u16,
}

/// The client, the frame, and the stream's number on its connection. One of the client's requests without an answer
/// for as long as it is there.
pub(crate) struct Origin {
    pub(crate) connection: Arc<Connection>,
    pub(crate) frame: u64,
    pub(crate) stream: u32,
    /// Where the output goes, if not into the frame of the answer.
    pub(crate) output: Option<Place>,
}

impl Origin {
    pub(crate) fn new(connection: &Arc<Connection>, frame: u64, stream: u32, output: Option<Place>) -> Self {
        connection.request_opened();
        Self { connection: Arc::clone(connection), frame, stream, output }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.connection.request_closed();
    }
}

/// A fixed number of slots; a token names one of them.
pub(crate) struct Slots {
    slots: Box<[Mutex<Slot>]>,
    free: PiMutex<Vec<u32>>,
}

impl Slots {
    /// `count` slots, whose buffers grow to a tensor's size when first used and stay.
    pub(crate) fn new(count: usize) -> Self {
        let free = (0..count as u32).rev().collect();
        Self { slots: (0..count).map(|_| Mutex::default()).collect(), free: PiMutex::new(free) }
    }

    /// Takes a free slot; `None` if all are in use.
    pub(crate) fn take(&self) -> Option<u64> {
        self.free.lock().pop().map(u64::from)
    }

    /// The slot of a token from [`Slots::take`].
    pub(crate) fn get(&self, token: u64) -> MutexGuard<'_, Slot> {
        lock(&self.slots[token as usize])
    }

    /// Gives a slot back; its origin is handed out for the answer.
    pub(crate) fn put_back(&self, token: u64) -> Option<Origin> {
        let origin = self.get(token).origin.take();
        self.free.lock().push(token as u32);
        origin
    }
}
