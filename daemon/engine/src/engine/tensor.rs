//! Tensors stand between a client's bytes and an engine: their names, types and shapes.

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_client::TensorInfo;
use weir_client::wire::DataType as WireType;

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
    /// IEEE 754 binary64.
    F64,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// One byte, 0 or 1.
    Bool,
}

impl DataType {
    /// Every type.
    pub const ALL: [Self; 8] =
        [Self::F32, Self::F16, Self::F64, Self::I8, Self::U8, Self::I32, Self::I64, Self::Bool];

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Its number in ONNX's `TensorProto.DataType`.
    pub(super) fn onnx(self) -> i32 {
        match self {
            Self::F32 => 1,
            Self::U8 => 2,
            Self::I8 => 3,
            Self::I32 => 6,
            Self::I64 => 7,
            Self::Bool => 9,
            Self::F16 => 10,
            Self::F64 => 11,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Bool => "bool",
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
    /// Where the file has the batch dimension.
    #[serde(default)]
    pub batch: BatchAxis,
}

/// Where among a tensor's dimensions the file has that of the batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchAxis {
    /// In front, by one name for all such inputs, or fixed to 1; all other dimensions are fixed in the file.
    #[default]
    Front,
    /// At this place, as the manifest says; it gives dynamic dimensions their sizes as well.
    At(usize),
    /// Nowhere: the tensor is the same for the whole batch, so that requests are run one by one.
    Nowhere,
}

impl BatchAxis {
    /// The place, if there is one.
    pub fn place(self) -> Option<usize> {
        match self {
            Self::Front => Some(0),
            Self::At(place) => Some(place),
            Self::Nowhere => None,
        }
    }
}

impl TensorSpec {
    /// One with the batch dimension in front.
    pub fn new(name: &str, data_type: DataType, shape: &[usize]) -> Self {
        Self { name: name.to_owned(), data_type, shape: shape.to_vec(), batch: BatchAxis::Front }
    }

    /// The dimensions that the file's tensor has for a batch.
    pub fn file_shape(&self, batch: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if let Some(place) = self.batch.place() {
            shape.insert(place, batch);
        }
        shape
    }

    /// As clients are told it.
    pub fn info(&self) -> TensorInfo {
        let data_type = match self.data_type {
            DataType::F32 => WireType::F32,
            DataType::F16 => WireType::F16,
            DataType::F64 => WireType::F64,
            DataType::I8 => WireType::I8,
            DataType::U8 => WireType::U8,
            DataType::I32 => WireType::I32,
            DataType::I64 => WireType::I64,
            DataType::Bool => WireType::Bool,
        };
        let shape = self.shape.iter().map(|&dimension| dimension as u32).collect();
        TensorInfo { name: self.name.clone(), data_type, shape }
    }

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
/// floats in 0.0..1.0, integers in 0..=255 as far as they go, or 0 and 1 for `i32` and `i64`, which are mostly indices.
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
            DataType::F64 => {
                let value = (mixed >> 11) as f64 / (1u64 << 53) as f64;
                element.copy_from_slice(&value.to_le_bytes());
            }
            DataType::I64 => element.copy_from_slice(&(mixed >> 63).to_le_bytes()),
            DataType::I32 => element.copy_from_slice(&((mixed >> 63) as u32).to_le_bytes()),
            DataType::U8 => element[0] = (mixed >> 56) as u8,
            DataType::I8 => element[0] = (mixed >> 57) as u8,
            DataType::Bool => element[0] = (mixed >> 63) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(data_type: DataType, shape: &[usize]) -> TensorSpec {
        TensorSpec::new("t", data_type, shape)
    }

    #[test]
    fn tensors_of_a_request_begin_at_multiples_of_8() {
        use DataType::{F16, F32, I64, U8};
        assert_eq!(packed_len(&[tensor(F32, &[2, 3])]), 24);
        assert_eq!(packed_len(&[tensor(U8, &[3]), tensor(I64, &[]), tensor(F16, &[5])]), 8 + 8 + 10);
        assert_eq!(packed_len(&[]), 0);
    }

    #[test]
    fn the_batch_stands_where_the_file_has_it() {
        let at = |batch| TensorSpec { batch, ..tensor(DataType::F32, &[2, 128]) }.file_shape(3);
        assert_eq!(at(BatchAxis::Front), [3, 2, 128]);
        assert_eq!(at(BatchAxis::At(1)), [2, 3, 128]);
        assert_eq!(at(BatchAxis::Nowhere), [2, 128]);
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
        let doubles = filled(7, DataType::F64);
        assert!(doubles.as_chunks().0.iter().all(|b| (0.0..1.0).contains(&f64::from_le_bytes(*b))));
        let flags = filled(7, DataType::Bool);
        assert!(flags.iter().all(|flag| *flag <= 1));
    }
}
