//! A model as the manifest describes it: its files, its tensors, and the state of its streams.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::tensor::PACKING;
use super::{BatchAxis, Side, TensorSpec, fill_tensor, packed_len, sha256_hex};

/// One variant as the manifest describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// Unique within its manifest.
    pub name: String,
    /// The ONNX file; empty if it is on servers alone.
    pub path: PathBuf,
    /// SHA-256 of the file, or of what the manifest says where there is none; 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// What a request brings, in the order of its bytes, at least one; then its stream's state.
    pub inputs: Vec<TensorSpec>,
    /// What an answer consists of, likewise; then the state that the next request of the stream finds.
    pub outputs: Vec<TensorSpec>,
    /// The state that a stream's first request finds: of each tensor of it the elements, little-endian.
    pub states: Vec<Vec<u8>>,
    /// Inputs of the file that no request brings, as they are the same in all.
    pub constants: Vec<Constant>,
    /// The files beside it that hold its weights.
    pub external: Vec<ExternalFile>,
    /// Share of right answers on held-out data, 0..=1; NaN where nobody has told it.
    pub accuracy: f64,
    /// The same by class of requests, where that was measured.
    pub accuracy_by_class: Vec<(String, f64)>,
}

/// An input that is the same in every request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constant {
    /// What it is; it has no batch dimension.
    pub tensor: TensorSpec,
    /// Its elements, little-endian.
    pub bytes: Vec<u8>,
}

/// A file that holds weights of an ONNX file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalFile {
    /// What the ONNX file calls it: a path from its own folder.
    pub location: String,
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of the file, 64 lower-case hexadecimal digits.
    pub sha256: String,
}

impl ModelSpec {
    /// Share of right answers to requests of a class, if that was measured.
    pub fn accuracy_of(&self, class: &str) -> Option<f64> {
        self.accuracy_by_class.iter().find(|(name, _)| name == class).map(|&(_, accuracy)| accuracy)
    }

    /// The tensors that a request brings.
    pub fn request(&self) -> &[TensorSpec] {
        &self.inputs[..self.inputs.len() - self.states.len()]
    }

    /// The tensors that an answer has.
    pub fn answer(&self) -> &[TensorSpec] {
        &self.outputs[..self.outputs.len() - self.states.len()]
    }

    /// Whether it remembers something from each request of a stream to the next.
    pub fn has_state(&self) -> bool {
        !self.states.is_empty()
    }

    /// Whether the one is as large as the other, and of its type.
    pub fn fits_as_state(&self, input: &str, output: &str) -> bool {
        let of = |tensors: &[TensorSpec], name: &str| {
            let tensor = tensors.iter().find(|tensor| tensor.name == name)?;
            Some((tensor.data_type, tensor.shape.clone()))
        };
        of(&self.inputs, input).is_some_and(|input| of(&self.outputs, output) == Some(input))
    }

    /// Bytes of a stream's state; 0 if the model has none.
    pub fn state_len(&self) -> usize {
        packed_len(&self.inputs[self.request().len()..])
    }

    /// The state before a stream's first request.
    pub fn initial_state(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(self.state_len());
        for state in &self.states {
            bytes.resize(bytes.len().next_multiple_of(PACKING), 0);
            bytes.extend_from_slice(state);
        }
        bytes
    }

    /// A request whose tensors look random, the same for the same `seed`.
    pub fn made_up_request(&self, seed: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(packed_len(self.request()));
        for input in self.request() {
            let at = bytes.len().next_multiple_of(PACKING);
            bytes.resize(at + input.bytes(), 0);
            fill_tensor(seed, input.data_type, &mut bytes[at..]);
        }
        bytes
    }

    /// Bytes of its files, which each worker loads; 0 for one that is simulated.
    pub fn file_bytes(&self) -> u64 {
        let paths = [&self.path].into_iter().chain(self.external.iter().map(|file| &file.path));
        paths.filter_map(|path| std::fs::metadata(path).ok()).map(|file| file.len()).sum()
    }

    /// The tensors of a side.
    pub fn tensors(&self, side: Side) -> &[TensorSpec] {
        match side {
            Side::Input => &self.inputs,
            Side::Output => &self.outputs,
        }
    }

    /// What its times depend on: the hash of the file or, where the manifest says more than the file about what is
    /// computed (sizes, constants, weights elsewhere), of all that.
    pub fn identity(&self) -> String {
        let tensors = || self.inputs.iter().chain(&self.outputs);
        let plain = tensors().all(|tensor| tensor.batch == BatchAxis::Front);
        if plain && self.constants.is_empty() && self.external.is_empty() {
            return self.sha256.clone();
        }
        let weights: Vec<_> = self.external.iter().map(|file| &file.sha256).collect();
        let all = (&self.sha256, tensors().collect::<Vec<_>>(), &self.constants, weights);
        sha256_hex(format!("{all:?}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::toy_spec;
    use super::*;

    #[test]
    fn what_the_manifest_adds_to_a_file_is_part_of_its_identity() {
        let spec = ModelSpec { sha256: "aa".to_owned(), ..toy_spec(2, 2) };
        assert_eq!(spec.identity(), "aa");
        let with = |change: fn(&mut ModelSpec)| {
            let mut spec = spec.clone();
            change(&mut spec);
            spec.identity()
        };
        let all = [
            spec.identity(),
            with(|s| s.inputs[0].batch = BatchAxis::At(0)),
            with(|s| {
                s.inputs[0].batch = BatchAxis::At(0);
                s.inputs[0].shape = vec![3];
            }),
            with(|s| s.constants = vec![Constant { tensor: s.inputs[0].clone(), bytes: vec![1] }]),
            with(|s| s.constants = vec![Constant { tensor: s.inputs[0].clone(), bytes: vec![2] }]),
        ];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }
}
