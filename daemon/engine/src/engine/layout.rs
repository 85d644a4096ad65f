//! How the requests of a batch lie in a tensor: one after the other or, where dimensions stand before that of the batch,
//! in turns.

use super::TensorSpec;

/// Of one tensor. Buffers keep requests one after the other; engines want what the file says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// The pieces of a request.
    pieces: usize,
    /// Bytes of each.
    each: usize,
}

impl Layout {
    pub(super) fn of(spec: &TensorSpec) -> Self {
        let before = &spec.shape[..spec.batch.place().unwrap_or(0)];
        let pieces = before.iter().product();
        Self { pieces, each: spec.bytes() / pieces }
    }

    /// Whether the requests of such a batch lie one after the other.
    pub(super) fn is_plain(self, batch: usize) -> bool {
        self.pieces == 1 || batch == 1
    }

    /// Lays requests that lie one after the other into the tensor of a batch; places without a request become zeros.
    ///
    /// # Panics
    /// If `tensor` has not the length of `batch` requests.
    pub(super) fn spread(self, batch: usize, requests: &[u8], tensor: &mut [u8]) {
        assert_eq!(tensor.len(), batch * self.pieces * self.each);
        tensor.fill(0);
        for (request, bytes) in requests.chunks_exact(self.pieces * self.each).enumerate() {
            for (piece, bytes) in bytes.chunks_exact(self.each).enumerate() {
                tensor[(piece * batch + request) * self.each..][..self.each].copy_from_slice(bytes);
            }
        }
    }

    /// Takes as many requests as `requests` has room for out of the tensor of a batch.
    ///
    /// # Panics
    /// If `tensor` is shorter than `batch` requests.
    pub(super) fn gather(self, batch: usize, tensor: &[u8], requests: &mut [u8]) {
        for (request, bytes) in requests.chunks_exact_mut(self.pieces * self.each).enumerate() {
            for (piece, bytes) in bytes.chunks_exact_mut(self.each).enumerate() {
                bytes.copy_from_slice(&tensor[(piece * batch + request) * self.each..][..self.each]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BatchAxis, DataType};
    use super::*;

    #[test]
    fn requests_lie_in_turns_where_dimensions_stand_before_the_batch() {
        let spec = TensorSpec { batch: BatchAxis::At(1), ..TensorSpec::new("t", DataType::U8, &[2, 3]) };
        let layout = Layout::of(&spec);
        assert!(layout.is_plain(1) && !layout.is_plain(2));
        let (requests, mut tensor) = (b"abcdefABCDEF", [7; 18]);
        layout.spread(3, requests, &mut tensor);
        assert_eq!(&tensor, b"abcABC\0\0\0defDEF\0\0\0");
        let mut back = [0; 12];
        layout.gather(3, &tensor, &mut back);
        assert_eq!(&back, requests);
    }

    #[test]
    fn a_batch_in_front_or_behind_ones_leaves_requests_whole() {
        for (batch, shape) in [(BatchAxis::Front, [2, 3]), (BatchAxis::At(1), [1, 3])] {
            let layout = Layout::of(&TensorSpec { batch, ..TensorSpec::new("t", DataType::U8, &shape) });
            assert!(layout.is_plain(5));
        }
    }
}
