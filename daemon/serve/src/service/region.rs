//! Where the tensors of a request lie that a client does not send along, but shares.

use std::sync::Arc;

use weir_client::shared::Memory;

/// Some bytes of a client's memory, known to be there.
pub struct Region {
    memory: Arc<Memory>,
    start: usize,
    length: usize,
}

impl Region {
    /// The `length` bytes at `start`, which lie within `memory`.
    pub fn new(memory: Arc<Memory>, start: usize, length: usize) -> Self {
        Self { memory, start, length }
    }

    /// Replaces `into` by a copy of the bytes.
    pub fn read(&self, into: &mut Vec<u8>) {
        into.resize(self.length, 0);
        self.memory.read(self.start, into);
    }

    /// Writes an output of this length there, and returns what is left for the answer's frame: nothing.
    pub fn write<'o>(&self, output: &'o [u8]) -> &'o [u8] {
        let (here, rest) = output.split_at(self.length.min(output.len()));
        self.memory.write(self.start, here);
        rest
    }
}
