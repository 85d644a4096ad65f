//! The memory in which a batch lies, tensor by tensor.

use std::ops::Range;
use std::os::fd::AsFd;

use super::memory::{LINE, Memory};
use super::tensor::{DataType, PACKING, TensorSpec, fill_tensor, packed_len};
use super::{EngineError, ModelSpec, Side};

/// The inputs and outputs of one batch: each tensor's requests side by side, in memory that stays in place.
#[derive(Debug)]
pub struct Buffers {
    memory: Memory,
    inputs: Vec<Block>,
    outputs: Vec<Block>,
    request_len: usize,
    /// How many tensors at the end of each side are state, and the bytes that a request's take.
    states: usize,
    state_len: usize,
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
    /// Whether its elements must be 0 or 1: engines take them for booleans of their own.
    flags: bool,
}

impl Buffers {
    /// Zeros for up to `max_batch` requests of the model.
    pub fn new(spec: &ModelSpec, max_batch: usize) -> Self {
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
        blocks(spec, Side::Input, max_batch, &mut end);
        blocks(spec, Side::Output, max_batch, &mut end);
        end.next_multiple_of(LINE)
    }

    fn within(spec: &ModelSpec, max_batch: usize, memory: Memory) -> Self {
        let mut end = 0;
        let inputs = blocks(spec, Side::Input, max_batch, &mut end);
        let outputs = blocks(spec, Side::Output, max_batch, &mut end);
        let (request_len, state_len) = (packed_len(spec.request()), spec.state_len());
        let states = spec.states.len();
        Self { memory, inputs, outputs, request_len, states, state_len, max_batch, model: spec.name.clone() }
    }

    /// Lays a request's tensors at place `index` of the batch. What is no 0 in a `bool` becomes 1.
    ///
    /// # Panics
    /// If `index` is not below max_batch or `request` not as long as [`packed_len`] says.
    pub fn put(&mut self, index: usize, request: &[u8]) {
        assert!(index < self.max_batch && request.len() == self.request_len);
        for block in &self.inputs[..self.inputs.len() - self.states] {
            let bytes = &request[block.packed..][..block.each];
            if block.flags && bytes.iter().any(|byte| *byte > 1) {
                let flags: Vec<u8> = bytes.iter().map(|byte| u8::from(*byte != 0)).collect();
                self.memory.write(block.start(index), &flags);
            } else {
                self.memory.write(block.start(index), bytes);
            }
        }
    }

    /// Writes the answer at place `index` of the batch over `answer`.
    ///
    /// # Panics
    /// If `index` is not below max_batch.
    pub fn get(&self, index: usize, answer: &mut Vec<u8>) {
        assert!(index < self.max_batch);
        self.append(&self.outputs[..self.outputs.len() - self.states], index, answer);
    }

    /// Lays the state before a request at place `index` of the batch beside it.
    ///
    /// # Panics
    /// If `index` is not below max_batch or `state` not as long as [`ModelSpec::state_len`] says.
    pub fn put_state(&mut self, index: usize, state: &[u8]) {
        assert!(index < self.max_batch && state.len() == self.state_len);
        for block in &self.inputs[self.inputs.len() - self.states..] {
            self.memory.write(block.start(index), &state[block.packed..][..block.each]);
        }
    }

    /// Writes the state after the request at place `index` of the batch over `state`.
    ///
    /// # Panics
    /// If `index` is not below max_batch.
    pub fn get_state(&self, index: usize, state: &mut Vec<u8>) {
        assert!(index < self.max_batch);
        self.append(&self.outputs[self.outputs.len() - self.states..], index, state);
    }

    /// Writes these tensors of the request at `index` one after the other over `bytes`.
    fn append(&self, blocks: &[Block], index: usize, bytes: &mut Vec<u8>) {
        bytes.clear();
        for block in blocks {
            bytes.resize(block.packed, 0);
            self.memory.append(block.start(index), block.each, bytes);
        }
    }

    /// Copies a tensor of as many requests as `into` has room for, from place `first` of the batch on.
    ///
    /// # Panics
    /// If they are not whole, or beyond the batch.
    pub fn read(&self, side: Side, tensor: usize, first: usize, into: &mut [u8]) {
        let at = self.requests(side, tensor, first, into.len());
        self.memory.read(at, into);
    }

    /// Writes a tensor of as many requests as `bytes` holds, from place `first` of the batch on.
    ///
    /// # Panics
    /// If they are not whole, or beyond the batch.
    pub fn write(&mut self, side: Side, tensor: usize, first: usize, bytes: &[u8]) {
        let at = self.requests(side, tensor, first, bytes.len());
        self.memory.write(at, bytes);
    }

    /// Writes `bytes` over a part of input `tensor` of the request at place `index` of the batch, from byte `at` of it on.
    ///
    /// # Panics
    /// If they reach beyond that tensor of that request, or `index` is not below max_batch.
    pub fn write_part(&mut self, tensor: usize, index: usize, at: usize, bytes: &[u8]) {
        let block = self.inputs[tensor];
        assert!(index < self.max_batch && at <= block.each && bytes.len() <= block.each - at);
        self.memory.write(block.start(index) + at, bytes);
    }

    /// Makes the inputs of these requests zeros.
    ///
    /// # Panics
    /// If they are beyond the batch.
    pub(super) fn clear(&mut self, requests: Range<usize>) {
        assert!(requests.end <= self.max_batch);
        for block in &self.inputs {
            self.memory.clear(block.start(requests.start), requests.len() * block.each);
        }
    }

    /// Makes up input `tensor`, of that type, for the first `batch` requests; see `fill_tensor`.
    pub(super) fn fill(&mut self, seed: u64, tensor: usize, data_type: DataType, batch: usize) {
        let mut bytes = vec![0; batch * self.each(Side::Input, tensor)];
        fill_tensor(seed, data_type, &mut bytes);
        self.write(Side::Input, tensor, 0, &bytes);
    }

    /// Repeats the first input over output `tensor` at place `index` of the batch.
    ///
    /// # Panics
    /// If `index` is not below max_batch.
    pub fn repeat_input(&mut self, tensor: usize, index: usize) {
        assert!(index < self.max_batch);
        let (input, output) = (self.inputs[0], self.outputs[tensor]);
        for done in (0..output.each).step_by(input.each) {
            let length = input.each.min(output.each - done);
            self.memory.copy(input.start(index), output.start(index) + done, length);
        }
    }

    /// Where the memory begins, for an engine that computes in place: good until the buffers are used otherwise.
    pub fn base(&mut self) -> *mut u8 {
        self.memory.base()
    }

    /// How far from there a tensor has the request at place `index` of the batch.
    pub fn offset(&self, side: Side, tensor: usize, index: usize) -> usize {
        self.block(side, tensor).start(index)
    }

    /// Bytes of a tensor of one request.
    pub fn each(&self, side: Side, tensor: usize) -> usize {
        self.block(side, tensor).each
    }

    /// Whether a batch of that size may be run.
    ///
    /// # Errors
    /// [`EngineError::Batch`] outside 1..=max_batch.
    pub fn check(&self, batch: usize) -> Result<(), EngineError> {
        if (1..=self.max_batch).contains(&batch) {
            return Ok(());
        }
        Err(EngineError::Batch { model: self.model.clone(), batch, max_batch: self.max_batch })
    }

    /// Requests that there is room for.
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// The model they belong to.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The number of tensors on a side.
    pub fn count(&self, side: Side) -> usize {
        match side {
            Side::Input => self.inputs.len(),
            Side::Output => self.outputs.len(),
        }
    }

    fn block(&self, side: Side, tensor: usize) -> Block {
        match side {
            Side::Input => self.inputs[tensor],
            Side::Output => self.outputs[tensor],
        }
    }

    /// Where these bytes of a tensor begin.
    fn requests(&self, side: Side, tensor: usize, first: usize, bytes: usize) -> usize {
        let block = self.block(side, tensor);
        assert!(bytes.is_multiple_of(block.each) && first + bytes / block.each <= self.max_batch);
        block.start(first)
    }
}

impl Block {
    /// Where it has the request at place `index` of the batch.
    fn start(self, index: usize) -> usize {
        self.at + index * self.each
    }
}

/// Those of requests or answers are packed by themselves, and so are those of the state after them.
fn blocks(spec: &ModelSpec, side: Side, max_batch: usize, end: &mut usize) -> Vec<Block> {
    let (mut packed_end, tensors): (usize, _) = (0, spec.tensors(side));
    let first_state = tensors.len() - spec.states.len();
    let block = |(number, tensor): (usize, &TensorSpec)| {
        if number == first_state {
            packed_end = 0;
        }
        let (at, packed) = (end.next_multiple_of(LINE), packed_end.next_multiple_of(PACKING));
        let each = tensor.bytes();
        (*end, packed_end) = (at + max_batch * each, packed + each);
        Block { at, each, packed, flags: tensor.data_type == DataType::Bool }
    };
    tensors.iter().enumerate().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::super::conformance::toy_spec;
    use super::*;

    fn tensor(data_type: DataType, shape: &[usize]) -> TensorSpec {
        TensorSpec::new("t", data_type, shape)
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
        let (mut first, mut second) = ([0; 6], [0; 8]);
        buffers.read(Side::Input, 0, 0, &mut first);
        buffers.read(Side::Input, 1, 0, &mut second);
        assert_eq!(first, [1, 2, 3, 101, 102, 103]);
        assert_eq!(second, [9, 10, 11, 12, 13, 14, 15, 16]);
        buffers.write(Side::Output, 0, 0, &[1, 2]);
        buffers.write(Side::Output, 1, 0, &[3, 4, 5, 6]);
        let mut answer = vec![9; 40];
        buffers.get(1, &mut answer);
        assert_eq!(answer, [2, 0, 0, 0, 0, 0, 0, 0, 5, 6]);
    }

    #[test]
    fn state_lies_beside_requests_and_answers_and_is_packed_by_itself() {
        let mut spec = toy_spec(1, 1);
        spec.inputs =
            vec![tensor(DataType::U8, &[3]), tensor(DataType::U8, &[2]), tensor(DataType::U8, &[1])];
        spec.outputs =
            vec![tensor(DataType::U8, &[1]), tensor(DataType::U8, &[2]), tensor(DataType::U8, &[1])];
        spec.states = vec![vec![7, 8], vec![9]];
        let initial = spec.initial_state();
        assert_eq!(initial, [7, 8, 0, 0, 0, 0, 0, 0, 9]);
        let mut buffers = Buffers::new(&spec, 2);
        buffers.put(1, &[1, 2, 3]);
        buffers.put_state(1, &initial);
        let mut seen = [0; 2];
        buffers.read(Side::Input, 1, 1, &mut seen);
        assert_eq!(seen, [7, 8]);
        buffers.write(Side::Output, 0, 1, &[4]);
        buffers.write(Side::Output, 1, 1, &[5, 6]);
        buffers.write(Side::Output, 2, 1, &[7]);
        let (mut answer, mut state) = (vec![0; 30], vec![0; 30]);
        buffers.get(1, &mut answer);
        buffers.get_state(1, &mut state);
        assert_eq!((answer, state), (vec![4], vec![5, 6, 0, 0, 0, 0, 0, 0, 7]));
    }

    #[test]
    fn no_engine_sees_a_boolean_that_is_neither_0_nor_1() {
        let mut spec = toy_spec(1, 1);
        spec.inputs = vec![tensor(DataType::Bool, &[4])];
        let mut buffers = Buffers::new(&spec, 1);
        buffers.put(0, &[0, 1, 2, 255]);
        let mut flags = [7; 4];
        buffers.read(Side::Input, 0, 0, &mut flags);
        assert_eq!(flags, [0, 1, 1, 1]);
    }

    #[test]
    fn every_tensor_begins_on_a_cache_line() {
        let mut spec = toy_spec(1, 1);
        spec.inputs = vec![tensor(DataType::U8, &[3]), tensor(DataType::F32, &[2])];
        let buffers = Buffers::new(&spec, 5);
        for tensor in 0..2 {
            assert_eq!(buffers.offset(Side::Input, tensor, 0) % LINE, 0);
        }
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn a_tensor_does_not_reach_into_the_next() {
        let mut buffers = Buffers::new(&toy_spec(2, 2), 2);
        buffers.write(Side::Input, 0, 1, &[0; 16]);
    }
}
