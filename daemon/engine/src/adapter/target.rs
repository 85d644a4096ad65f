//! Where an input of a request is laid: the batch's memory, which is written piece by piece and never borrowed.

use crate::engine::{Buffers, DataType};

use super::number;

/// Bytes that are put together before they are written.
const PIECE: usize = 512;

/// An input tensor of one request of a batch.
#[derive(Debug)]
pub(super) struct Target<'a> {
    buffers: &'a mut Buffers,
    tensor: usize,
    index: usize,
    data_type: DataType,
    /// Where the next bytes go.
    at: usize,
}

impl<'a> Target<'a> {
    pub(super) fn new(
        buffers: &'a mut Buffers,
        (tensor, data_type): (usize, DataType),
        index: usize,
    ) -> Self {
        Self { buffers, tensor, index, data_type, at: 0 }
    }

    /// Goes on at this byte of the tensor.
    pub(super) fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    /// Writes what is of the tensor's type.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.buffers.write_part(self.tensor, self.index, self.at, bytes);
        self.at += bytes.len();
    }

    /// Writes zeros.
    pub(super) fn zeros(&mut self, elements: usize) {
        let mut left = elements * self.data_type.size();
        while left > 0 {
            let now = left.min(PIECE);
            self.write(&[0; PIECE][..now]);
            left -= now;
        }
    }

    /// Writes elements of another type, or booleans, of which engines want that they be 0 or 1.
    pub(super) fn convert(&mut self, from: DataType, bytes: &[u8]) {
        if from == self.data_type && from != DataType::Bool {
            return self.write(bytes);
        }
        let (size, into) = (from.size(), self.data_type);
        for bytes in bytes.chunks(PIECE / 8 * size) {
            let mut piece = [0; PIECE];
            let elements = bytes.chunks_exact(size);
            let length = elements.len() * into.size();
            for (element, place) in elements.zip(piece.chunks_exact_mut(into.size())) {
                number::store(into, number::load(from, element), place);
            }
            self.write(&piece[..length]);
        }
    }

    /// Writes one number.
    pub(super) fn number(&mut self, value: f64) {
        let mut element = [0; 8];
        let element = &mut element[..self.data_type.size()];
        number::store(self.data_type, value, element);
        self.write(element);
    }
}
