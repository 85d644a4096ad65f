//! On a request's way: what its tensors consist of, and where each lies within a payload or an output.

use std::ops::Range;

use half::f16;
/// An `f64` as an element of a tensor: [`Double::new`] makes it, `get` gives the number.
pub use zerocopy::little_endian::F64 as Double;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::wire::{DataType, PACKING};

#[cfg(target_endian = "big")]
compile_error!("tensors are little-endian on the socket and are sent as they lie in memory");

/// One tensor of a request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name in the model; at most 255 bytes.
    pub name: String,
    /// What its elements are.
    pub data_type: DataType,
    /// Its dimensions, at most 8, each at least 1; none for a single element. Row-major.
    pub shape: Vec<u32>,
}

impl TensorInfo {
    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().fold(1, |product: usize, dimension| product.saturating_mul(*dimension as usize))
    }

    /// The number of bytes; `None` where this version does not know the type.
    pub fn bytes(&self) -> Option<usize> {
        self.data_type.size().map(|size| self.elements().saturating_mul(size))
    }

    /// That a tensor of `elements` elements of `given` is what belongs here.
    pub(crate) fn check(&self, given: DataType, elements: usize) -> Result<(), TensorError> {
        let (tensor, expected) = (self.name.clone(), self.data_type);
        if given != expected {
            return Err(TensorError::Type { tensor, given, expected });
        }
        let (given, expected) = (elements, self.elements());
        if given == expected { Ok(()) } else { Err(TensorError::Elements { tensor, given, expected }) }
    }
}

/// Where tensor `index` lies among those of its side.
pub(crate) fn place(tensors: &[TensorInfo], index: usize) -> Result<Range<usize>, TensorError> {
    let mut end: usize = 0;
    let mut range = None;
    for tensor in tensors.iter().take(index.saturating_add(1)) {
        let unknown =
            || TensorError::UnknownType { tensor: tensor.name.clone(), code: tensor.data_type.code() };
        let start = end.checked_next_multiple_of(PACKING).unwrap_or(usize::MAX);
        end = start.saturating_add(tensor.bytes().ok_or_else(unknown)?);
        range = Some(start..end);
    }
    range.filter(|_| index < tensors.len()).ok_or(TensorError::Index { index, count: tensors.len() })
}

/// A type that tensors may consist of: `f32`, [`half::f16`], [`Double`], `i8`, `u8`, `i32`, `i64` or `bool`. Not `f64` itself, so
/// that `0.5` is an `f32` wherever it stands.
pub trait Element: Copy + FromZeros + IntoBytes + Immutable {
    /// Its code.
    const TYPE: DataType;

    /// The bytes of some elements, as they travel.
    fn bytes_of(values: &[Self]) -> &[u8] {
        values.as_bytes()
    }

    /// The elements that these bytes stand for; what is no whole element at their end is left out.
    fn values_of(bytes: &[u8]) -> Vec<Self>;
}

/// Of any bytes.
fn any_values<T: FromBytes + IntoBytes + Copy>(bytes: &[u8]) -> Vec<T> {
    let mut values = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
    let whole = size_of_val(values.as_slice());
    values.as_mut_slice().as_mut_bytes().copy_from_slice(&bytes[..whole]);
    values
}

macro_rules! elements {
    ($($element:ty => $code:ident),*) => {$(
        impl Element for $element {
            const TYPE: DataType = DataType::$code;

            fn values_of(bytes: &[u8]) -> Vec<Self> {
                any_values(bytes)
            }
        }
    )*};
}

elements!(f32 => F32, f16 => F16, Double => F64, i8 => I8, u8 => U8, i32 => I32, i64 => I64);

impl Element for bool {
    const TYPE: DataType = DataType::Bool;

    fn values_of(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|byte| *byte != 0).collect()
    }
}

/// Values that are not those of a stream's tensors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// Elements of another type.
    #[error("tensor `{tensor}` consists of {expected}, not {given}")]
    Type {
        /// The tensor's name.
        tensor: String,
        /// The type given or asked for.
        given: DataType,
        /// The tensor's type.
        expected: DataType,
    },
    /// As many elements, in another layout.
    #[error("tensor `{tensor}` has shape {expected:?}, {given:?} was given")]
    Shape {
        /// The tensor's name.
        tensor: String,
        /// The shape given.
        given: Vec<usize>,
        /// The tensor's shape.
        expected: Vec<u32>,
    },
    /// More or fewer elements than the tensor has.
    #[error("tensor `{tensor}` has {expected} elements, {given} were given")]
    Elements {
        /// The tensor's name.
        tensor: String,
        /// Elements given.
        given: usize,
        /// Elements of the tensor.
        expected: usize,
    },
    /// A number of tensors other than the stream has on this side.
    #[error("the stream has {expected} {side}, {given} were given")]
    Count {
        /// `inputs` or `outputs`.
        side: &'static str,
        /// Tensors given.
        given: usize,
        /// Tensors of the stream.
        expected: usize,
    },
    /// No tensor of this number.
    #[error("there is no tensor {index}, only {count} of them, counted from 0")]
    Index {
        /// The number asked for.
        index: usize,
        /// Tensors on this side.
        count: usize,
    },
    /// A tensor of a type that came after this version.
    #[error("tensor `{tensor}` is of type {code}, which this version does not know")]
    UnknownType {
        /// The tensor's name.
        tensor: String,
        /// The code of its type.
        code: u16,
    },
    /// An output whose length is not that of the stream's tensors.
    #[error("the output is {bytes} bytes, tensor `{tensor}` ends at {end}")]
    Output {
        /// The tensor's name.
        tensor: String,
        /// Where it should end.
        end: usize,
        /// Bytes there are.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(data_type: DataType, shape: &[u32]) -> TensorInfo {
        TensorInfo { name: "t".into(), data_type, shape: shape.into() }
    }

    #[test]
    fn tensors_begin_at_multiples_of_8() {
        let tensors = [tensor(DataType::U8, &[3]), tensor(DataType::I64, &[]), tensor(DataType::F16, &[5])];
        let places: Result<Vec<_>, _> = (0..3).map(|index| place(&tensors, index)).collect();
        assert_eq!(places, Ok(vec![0..3, 8..16, 16..26]));
        assert_eq!(place(&tensors, 3), Err(TensorError::Index { index: 3, count: 3 }));
        let newer = [tensor(DataType::from_code(99), &[1]), tensor(DataType::U8, &[1])];
        assert_eq!(place(&newer, 1), Err(TensorError::UnknownType { tensor: "t".into(), code: 99 }));
    }

    #[test]
    fn shapes_beyond_all_memory_do_not_overflow() {
        let vast = [tensor(DataType::I64, &[u32::MAX; 8]), tensor(DataType::U8, &[1])];
        assert_eq!(vast[0].elements(), usize::MAX);
        assert_eq!(place(&vast, 1), Ok(usize::MAX..usize::MAX));
    }

    #[test]
    fn elements_survive_the_way_through_their_bytes() {
        fn there_and_back<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
            let mut bytes = vec![0; 1];
            bytes.extend_from_slice(T::bytes_of(values));
            bytes.push(7);
            // Wherever they lie in memory, and with a rest that is no element unless it is a byte.
            let back = T::values_of(&bytes[1..]);
            assert_eq!(&back[..values.len()], values);
            assert_eq!(Some(size_of::<T>()), T::TYPE.size());
        }
        there_and_back(&[1.5f32, -0.0, f32::MAX]);
        there_and_back(&[f16::from_f32(0.5), f16::NEG_INFINITY]);
        there_and_back(&[i64::MIN, 3]);
        there_and_back(&[0u8, 255]);
        there_and_back(&[Double::new(0.1), Double::new(f64::MIN)]);
        there_and_back(&[i8::MIN, 3]);
        there_and_back(&[i32::MIN, 3]);
        there_and_back(&[true, false]);
        assert_eq!(bool::values_of(&[0, 1, 2, 255]), [false, true, true, true]);
    }
}
