//! Tensors stand between a client's bytes and an engine: their names, types and shapes, and the memory in
//! which a batch lies.

use std::fmt;
use std::ops::Range;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::memory::{LINE, Memory};
use super::{EngineError, ModelSpec, Side};

/// Within a request and an answer each tensor begins at a multiple of this many bytes.
const PACKING: usize = 8;

/// What a tensor's elements are; little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DataType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 8 bits.
    U8,
}

impl DataType {
    /// Every type.
    pub(crate) const ALL: [Self; 4] = [Self::F32, Self::F16, Self::I64, Self::U8];

    /// Bytes of one element.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::I64 => 8,
            Self::U8 => 1,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::I64 => "i64",
            Self::U8 => "u8",
        })
    }
}

/// One tensor of one request or answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TensorSpec {
    /// Its name in the ONNX file.
    pub(crate) name: String,
    /// What it consists of.
    #[serde(rename = "type")]
    pub(crate) data_type: DataType,
    /// Its dimensions without the batch dimension, each at least 1; none for one element.
    pub(crate) shape: Vec<usize>,
}

impl TensorSpec {
    /// The number of elements.
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.elements() * self.data_type.size()
    }
}

/// Bytes of a request or an answer of these tensors, which follow each other at multiples of 8 bytes.
pub(crate) fn packed_len(tensors: &[TensorSpec]) -> usize {
    tensors.iter().fold(0, |end: usize, tensor| end.next_multiple_of(PACKING) + tensor.bytes())
}

/// The inputs and outputs of one batch: each tensor's requests side by side, in memory that stays in place.
#[derive(Debug)]
pub(crate) struct Buffers {
    memory: Memory,
    inputs: Vec<Block>,
    outputs: Vec<Block>,
    request_len: usize,
    max_batch: usize,
    model: String,
}

/// The requests of one tensor.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Where it begins in memory.
    at: usize,
    /// Bytes of one request.
    each: usize,
    /// Where the tensor begins within a packed request or answer.
    packed: usize,
}

impl Buffers {
    /// Zeros for up to `max_batch` requests of the model.
    pub(crate) fn new(spec: &ModelSpec, max_batch: usize) -> Self {
        Self::within(spec, max_batch, Memory::zeros(Self::len(spec, max_batch)))
    }

    /// The same in `file`, from `offset` on, a multiple of 64, for [`Buffers::len`] bytes: whoever else maps
    /// them sees the same batch. The file must hold them and be sealed against shrinking.
    ///
    /// # Errors
    /// If the system has no room for the mapping.
    pub(super) fn shared(
        spec: &ModelSpec,
        max_batch: usize,
        (file, offset): (impl AsFd, u64),
    ) -> std::io::Result<Self> {
        let memory = Memory::shared(file, offset, Self::len(spec, max_batch))?;
        Ok(Self::within(spec, max_batch, memory))
    }

    /// The bytes that `max_batch` requests of the model take, a multiple of 64.
    pub(super) fn len(spec: &ModelSpec, max_batch: usize) -> usize {
        let mut end = 0;
        blocks(&spec.inputs, max_batch, &mut end);
        blocks(&spec.outputs, max_batch, &mut end);
        end.next_multiple_of(LINE)
    }

    fn within(spec: &ModelSpec, max_batch: usize, memory: Memory) -> Self {
        let mut end = 0;
        let inputs = blocks(&spec.inputs, max_batch, &mut end);
        let outputs = blocks(&spec.outputs, max_batch, &mut end);
        let request_len = packed_len(&spec.inputs);
        Self { memory, inputs, outputs, request_len, max_batch, model: spec.name.clone() }
    }

    /// Lays a request's tensors at place `index` of the batch.
    ///
    /// # Panics
    /// If `index` is not below max_batch or `request` not as long as [`packed_len`] says.
    pub(crate) fn put(&mut self, index: usize, request: &[u8]) {
        assert!(index < self.max_batch && request.len() == self.request_len);
        for block in &self.inputs {
            let place = &mut self.memory.bytes_mut()[block.requests(index..index + 1)];
            place.copy_from_slice(&request[block.packed..][..block.each]);
        }
    }

    /// Writes the answer at place `index` of the batch over `answer`.
    ///
    /// # Panics
    /// If `index` is not below max_batch.
    pub(crate) fn get(&self, index: usize, answer: &mut Vec<u8>) {
        assert!(index < self.max_batch);
        answer.clear();
        for block in &self.outputs {
            answer.resize(block.packed, 0);
            answer.extend_from_slice(&self.memory.bytes()[block.requests(index..index + 1)]);
        }
    }

    /// The bytes of input `tensor` for `requests` of the batch.
    pub(crate) fn input(&self, tensor: usize, requests: Range<usize>) -> &[u8] {
        &self.memory.bytes()[self.inputs[tensor].requests(requests)]
    }

    /// The same, to be filled.
    pub(crate) fn input_mut(&mut self, tensor: usize, requests: Range<usize>) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.inputs[tensor].requests(requests)]
    }

    /// The bytes of output `tensor` for `requests` of the batch, to be filled.
    pub(crate) fn output_mut(&mut self, tensor: usize, requests: Range<usize>) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.outputs[tensor].requests(requests)]
    }

    /// Where the memory begins, for an engine that computes in place: good until the buffers are used otherwise.
    pub(crate) fn base(&mut self) -> *mut u8 {
        self.memory.bytes_mut().as_mut_ptr()
    }

    /// How far from there a tensor has the request at place `index` of the batch.
    pub(crate) fn offset(&self, side: Side, tensor: usize, index: usize) -> usize {
        let block = match side {
            Side::Input => self.inputs[tensor],
            Side::Output => self.outputs[tensor],
        };
        block.requests(index..index).start
    }

    /// The first input and output `tensor` at place `index` of the batch.
    pub(crate) fn first_input_and(&mut self, tensor: usize, index: usize) -> (&[u8], &mut [u8]) {
        let (input, output) = (self.inputs[0], self.outputs[tensor]);
        // All inputs lie before the first output.
        let (inputs, outputs) = self.memory.bytes_mut().split_at_mut(output.at);
        (&inputs[input.requests(index..index + 1)], &mut outputs[index * output.each..][..output.each])
    }

    /// Whether a batch of that size may be run.
    ///
    /// # Errors
    /// [`EngineError::Batch`] outside 1..=max_batch.
    pub(crate) fn check(&self, batch: usize) -> Result<(), EngineError> {
        if (1..=self.max_batch).contains(&batch) {
            return Ok(());
        }
        Err(EngineError::Batch { model: self.model.clone(), batch, max_batch: self.max_batch })
    }

    /// Requests that there is room for.
    pub(crate) fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// The model they belong to.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// The number of tensors on a side.
    pub(crate) fn count(&self, side: Side) -> usize {
        match side {
            Side::Input => self.inputs.len(),
            Side::Output => self.outputs.len(),
        }
    }
}

impl Block {
    fn requests(self, requests: Range<usize>) -> Range<usize> {
        self.at + requests.start * self.each..self.at + requests.end * self.each
    }
}

fn blocks(tensors: &[TensorSpec], max_batch: usize, end: &mut usize) -> Vec<Block> {
    let mut packed_end: usize = 0;
    let block = |tensor: &TensorSpec| {
        let (at, packed) = (end.next_multiple_of(LINE), packed_end.next_multiple_of(PACKING));
        let each = tensor.bytes();
        (*end, packed_end) = (at + max_batch * each, packed + each);
        Block { at, each, packed }
    };
    tensors.iter().map(block).collect()
}

/// Fills `bytes` with elements of `data_type` that look random and depend only on `seed` and their place:
/// floats in 0.0..1.0, integers in 0..=255, or 0 and 1 for `i64`, which are mostly indices.
pub(crate) fn fill_tensor(seed: u64, data_type: DataType, bytes: &mut [u8]) {
    let mut state = seed;
    for element in bytes.chunks_exact_mut(data_type.size()) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        match data_type {
            DataType::F32 => {
                let value = (mixed >> 40) as f32 / (1u64 << 24) as f32;
                element.copy_from_slice(&value.to_le_bytes());
            }
            // Below 1.0 (0x3c00) every pattern with a clear sign is a number in 0.0..1.0.
            DataType::F16 => element.copy_from_slice(&((mixed >> 48) as u16 % 0x3c00).to_le_bytes()),
            DataType::I64 => element.copy_from_slice(&(mixed >> 63).to_le_bytes()),
            DataType::U8 => element[0] = (mixed >> 56) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::toy_spec;
    use super::*;

    fn tensor(data_type: DataType, shape: &[usize]) -> TensorSpec {
        TensorSpec { name: "t".to_owned(), data_type, shape: shape.to_vec() }
    }

    #[test]
    fn tensors_of_a_request_begin_at_multiples_of_8() {
        use DataType::{F16, F32, I64, U8};
        assert_eq!(packed_len(&[tensor(F32, &[2, 3])]), 24);
        assert_eq!(packed_len(&[tensor(U8, &[3]), tensor(I64, &[]), tensor(F16, &[5])]), 8 + 8 + 10);
        assert_eq!(packed_len(&[]), 0);
    }

    #[test]
    fn requests_come_out_where_they_were_put() {
        let mut spec = toy_spec(1, 1);
        spec.inputs = vec![tensor(DataType::U8, &[3]), tensor(DataType::F32, &[2])];
        spec.outputs = vec![tensor(DataType::U8, &[1]), tensor(DataType::U8, &[2])];
        let mut buffers = Buffers::new(&spec, 2);
        assert_eq!((packed_len(&spec.inputs), packed_len(&spec.outputs)), (16, 10));
        let request: Vec<u8> = (1..=16).collect();
        buffers.put(0, &request);
        buffers.put(1, &request[..].iter().map(|b| b + 100).collect::<Vec<_>>());
        assert_eq!(buffers.input(0, 0..2), [1, 2, 3, 101, 102, 103]);
        assert_eq!(buffers.input(1, 0..1), [9, 10, 11, 12, 13, 14, 15, 16]);
        buffers.output_mut(0, 0..2).copy_from_slice(&[1, 2]);
        buffers.output_mut(1, 0..2).copy_from_slice(&[3, 4, 5, 6]);
        let mut answer = vec![9; 40];
        buffers.get(1, &mut answer);
        assert_eq!(answer, [2, 0, 0, 0, 0, 0, 0, 0, 5, 6]);
    }

    #[test]
    fn every_tensor_begins_on_a_cache_line() {
        let mut spec = toy_spec(1, 1);
        spec.inputs = vec![tensor(DataType::U8, &[3]), tensor(DataType::F32, &[2])];
        let buffers = Buffers::new(&spec, 5);
        for tensor in 0..2 {
            assert_eq!(buffers.input(tensor, 0..5).as_ptr().addr() % LINE, 0);
        }
    }

    #[test]
    fn types_are_the_same_in_files_and_in_messages() {
        for data_type in DataType::ALL {
            assert_eq!(serde_json::to_string(&data_type).unwrap(), format!("\"{data_type}\""));
        }
    }

    #[test]
    fn inputs_repeat_by_seed_and_stay_in_range() {
        let filled = |seed, data_type| {
            let mut bytes = [0; 64];
            fill_tensor(seed, data_type, &mut bytes);
            bytes
        };
        for data_type in DataType::ALL {
            assert_eq!(filled(7, data_type), filled(7, data_type));
            assert_ne!(filled(7, data_type), filled(8, data_type));
        }
        let floats = filled(7, DataType::F32);
        assert!(floats.as_chunks().0.iter().all(|b| (0.0..1.0).contains(&f32::from_le_bytes(*b))));
        let halves = filled(7, DataType::F16);
        assert!(halves.as_chunks().0.iter().all(|b| u16::from_le_bytes(*b) < 0x3c00));
        let integers = filled(7, DataType::I64);
        assert!(integers.as_chunks().0.iter().all(|b| u64::from_le_bytes(*b) <= 1));
    }
}
