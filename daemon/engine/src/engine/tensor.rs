//! Tensors stand between a client's bytes and an engine: their names, types and shapes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Within a request and an answer each tensor begins at a multiple of this many bytes.
pub(super) const PACKING: usize = 8;

/// What a tensor's elements are; little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataType {
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
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::I64, Self::U8];

    /// Bytes of one element.
    pub fn size(self) -> usize {
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
pub struct TensorSpec {
    /// Its name in the ONNX file.
    pub name: String,
    /// What it consists of.
    #[serde(rename = "type")]
    pub data_type: DataType,
    /// Its dimensions without the batch dimension, each at least 1; none for one element.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.elements() * self.data_type.size()
    }
}

/// Bytes of a request or an answer of these tensors, which follow each other at multiples of 8 bytes.
pub fn packed_len(tensors: &[TensorSpec]) -> usize {
    tensors.iter().fold(0, |end: usize, tensor| end.next_multiple_of(PACKING) + tensor.bytes())
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
