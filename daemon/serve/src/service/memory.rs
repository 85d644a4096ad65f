//! What a model with state remembers of a stream: what one of its requests leaves, the next one finds.

use std::sync::Mutex;

use super::lock;
use weir_engine::{Buffers, ModelSpec, TensorSpec};

/// The state of one stream, from when a client registers it until that gives it up.
#[derive(Default)]
pub struct Memory(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Whose it is; another model begins anew.
    model: Option<Model>,
    bytes: Vec<u8>,
    /// The number of the stream's request after the last one that was executed.
    next: u64,
}

/// What a state depends on.
#[derive(PartialEq)]
struct Model {
    sha256: String,
    tensors: [Vec<TensorSpec>; 2],
    initial: Vec<Vec<u8>>,
}

impl Memory {
    /// Lays the state beside the request at place `index` of a batch of the model.
    pub(super) fn recall(&self, spec: &ModelSpec, buffers: &mut Buffers, index: usize) {
        let mut kept = lock(&self.0);
        if !kept.model.as_ref().is_some_and(|model| model.is(spec)) {
            kept.model = Some(Model::of(spec));
            kept.bytes = spec.initial_state();
        }
        buffers.put_state(index, &kept.bytes);
    }

    /// Takes the state that request `sequence` of the stream has left at place `index`. Returns how many requests just before it
    /// were not executed, and so have no part in it.
    pub(super) fn keep(&self, sequence: u64, buffers: &Buffers, index: usize) -> u32 {
        let mut kept = lock(&self.0);
        // The scheduler begins them in order.
        let skipped = sequence.saturating_sub(kept.next);
        kept.next = kept.next.max(sequence + 1);
        buffers.get_state(index, &mut kept.bytes);
        u32::try_from(skipped).unwrap_or(u32::MAX)
    }
}

impl Model {
    fn of(spec: &ModelSpec) -> Self {
        let tensors = [spec.inputs.clone(), spec.outputs.clone()];
        Self { sha256: spec.sha256.clone(), tensors, initial: spec.states.clone() }
    }

    /// The same, compared where it lies.
    fn is(&self, spec: &ModelSpec) -> bool {
        self.sha256 == spec.sha256
            && self.tensors[0] == spec.inputs
            && self.tensors[1] == spec.outputs
            && self.initial == spec.states
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use weir_engine::{DataType, Side};

    /// One byte of state beside one of a request.
    fn spec() -> ModelSpec {
        let tensor = |name: &str| TensorSpec::new(name, DataType::U8, &[1]);
        ModelSpec {
            name: "counter".to_owned(),
            path: PathBuf::new(),
            sha256: "aa".to_owned(),
            inputs: vec![tensor("x"), tensor("h")],
            outputs: vec![tensor("y"), tensor("hn")],
            states: vec![vec![7]],
            constants: Vec::new(),
            external: Vec::new(),
            accuracy: f64::NAN,
            accuracy_by_class: Vec::new(),
        }
    }

    /// The state that a request finds.
    fn found(memory: &Memory, spec: &ModelSpec, buffers: &mut Buffers) -> u8 {
        memory.recall(spec, buffers, 0);
        let mut state = [0];
        buffers.read(Side::Input, 1, 0, &mut state);
        state[0]
    }

    #[test]
    fn a_request_finds_what_the_last_one_executed_has_left_and_how_many_were_not() {
        let (memory, spec) = (Memory::default(), spec());
        let mut buffers = Buffers::new(&spec, 1);
        assert_eq!(found(&memory, &spec, &mut buffers), 7);
        buffers.write(Side::Output, 1, 0, &[8]);
        assert_eq!(memory.keep(0, &buffers, 0), 0);
        // One that fails leaves all as it was.
        assert_eq!(found(&memory, &spec, &mut buffers), 8);
        assert_eq!(found(&memory, &spec, &mut buffers), 8);
        buffers.write(Side::Output, 1, 0, &[9]);
        assert_eq!(memory.keep(4, &buffers, 0), 3);
        assert_eq!(memory.keep(5, &buffers, 0), 0);
        assert_eq!(found(&memory, &spec, &mut buffers), 9);
        let other = ModelSpec { sha256: "bb".to_owned(), states: vec![vec![1]], ..spec };
        assert_eq!(found(&memory, &other, &mut buffers), 1, "another model begins anew");
    }
}
