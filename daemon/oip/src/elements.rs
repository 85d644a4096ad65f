//! The elements of a tensor as bytes: from numbers as JSON and typed fields have them, and back to JSON.

use std::fmt;

use half::f16;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Unexpected, Visitor};
use serde_json::Value;
use weir_client::wire::DataType;

/// A number, or `true` or `false`, that is to be an element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
}

/// Why a number is no element of a type.
#[derive(Debug)]
pub(crate) struct NoElement {
    number: Number,
    wanted: DataType,
}

impl fmt::Display for NoElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = crate::name_of(self.wanted);
        match self.number {
            Number::Bool(value) => write!(f, "{value} is no {name}"),
            Number::Int(value) => write!(f, "{value} is no {name}"),
            Number::Uint(value) => write!(f, "{value} is no {name}"),
            Number::Float(value) => write!(f, "{value:?} is no {name}"),
        }
    }
}

/// Adds a number to `bytes` as an element of a type.
pub(crate) fn push(bytes: &mut Vec<u8>, wanted: DataType, number: Number) -> Result<(), NoElement> {
    let none = || NoElement { number, wanted };
    let whole = || match number {
        Number::Int(value) => Ok(i128::from(value)),
        Number::Uint(value) => Ok(i128::from(value)),
        Number::Bool(_) | Number::Float(_) => Err(none()),
    };
    let float = || match number {
        Number::Int(value) => Ok(value as f64),
        Number::Uint(value) => Ok(value as f64),
        Number::Float(value) => Ok(value),
        Number::Bool(_) => Err(none()),
    };
    // What is finite stays so: beyond the largest of a type there is none.
    let check = |is_finite: bool| match float()?.is_finite() && !is_finite {
        true => Err(none()),
        false => Ok(()),
    };
    match wanted {
        DataType::Bool => match number {
            Number::Bool(value) => bytes.push(value.into()),
            Number::Int(value @ 0..=1) => bytes.push(value as u8),
            Number::Uint(value @ 0..=1) => bytes.push(value as u8),
            _ => return Err(none()),
        },
        DataType::U8 => bytes.push(u8::try_from(whole()?).map_err(|_| none())?),
        DataType::I8 => bytes.extend(i8::try_from(whole()?).map_err(|_| none())?.to_le_bytes()),
        DataType::I32 => bytes.extend(i32::try_from(whole()?).map_err(|_| none())?.to_le_bytes()),
        DataType::I64 => bytes.extend(i64::try_from(whole()?).map_err(|_| none())?.to_le_bytes()),
        DataType::F16 => {
            let element = f16::from_f64(float()?);
            check(element.is_finite())?;
            bytes.extend(element.to_le_bytes());
        }
        DataType::F32 => {
            let element = float()? as f32;
            check(element.is_finite())?;
            bytes.extend(element.to_le_bytes());
        }
        DataType::F64 => bytes.extend(float()?.to_le_bytes()),
        DataType::Unknown(_) => return Err(none()),
    }
    Ok(())
}

/// Adds the elements of a JSON array, nested or flat, to `bytes`; at most `limit` of them.
///
/// # Errors
/// If it is none, holds something else or too much: which element, and what is wrong with it.
pub(crate) fn push_json(
    bytes: &mut Vec<u8>,
    wanted: DataType,
    limit: usize,
    json: &str,
) -> Result<(), serde_json::Error> {
    let before = bytes.len();
    let mut left = limit;
    let mut source = serde_json::Deserializer::from_str(json);
    let read = Elements { bytes, wanted, left: &mut left, whole: true }.deserialize(&mut source);
    read.or_else(|_| {
        // Once more, for the place of what is wrong: to keep it all the time would cost every call.
        bytes.truncate(before);
        let mut left = limit;
        planner::seed_from_json("data", Elements { bytes, wanted, left: &mut left, whole: true }, json)
    })
}

/// What stands in an array: elements, or arrays.
struct Elements<'a> {
    bytes: &'a mut Vec<u8>,
    wanted: DataType,
    left: &'a mut usize,
    /// The array itself, and nothing in it.
    whole: bool,
}

impl Elements<'_> {
    fn push<E: Error>(self, number: Number) -> Result<(), E> {
        if self.whole {
            let found = match number {
                Number::Bool(value) => Unexpected::Bool(value),
                Number::Int(value) => Unexpected::Signed(value),
                Number::Uint(value) => Unexpected::Unsigned(value),
                Number::Float(value) => Unexpected::Float(value),
            };
            return Err(E::invalid_type(found, &self));
        }
        let left = self.left.checked_sub(1);
        *self.left = left.ok_or_else(|| E::custom("there are more elements than the shape has"))?;
        push(self.bytes, self.wanted, number).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = if self.wanted == DataType::Bool { "true or false" } else { "a number" };
        match self.whole {
            true => write!(f, "a list of the elements, each {element}"),
            false => write!(f, "{element}, or a list of the elements there"),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        let Self { bytes, wanted, left, .. } = self;
        while array.next_element_seed(Elements { bytes, wanted, left, whole: false })?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.push(Number::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.push(Number::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.push(Number::Uint(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.push(Number::Float(value))
    }
}

/// The elements in `bytes` as a flat JSON array; what is no finite number is `null`. `None` for a type that JSON has no
/// numbers for in this protocol.
pub(crate) fn to_json(data_type: DataType, bytes: &[u8]) -> Option<Value> {
    fn of<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> Value) -> Value {
        bytes.as_chunks().0.iter().map(|&element| value(element)).collect()
    }
    match data_type {
        DataType::Bool => Some(of(bytes, |[byte]| (byte != 0).into())),
        DataType::U8 => Some(of(bytes, |[byte]| byte.into())),
        DataType::I8 => Some(of(bytes, |element| i8::from_le_bytes(element).into())),
        DataType::I32 => Some(of(bytes, |element| i32::from_le_bytes(element).into())),
        DataType::I64 => Some(of(bytes, |element| i64::from_le_bytes(element).into())),
        DataType::F32 => Some(of(bytes, |element| f32::from_le_bytes(element).into())),
        DataType::F64 => Some(of(bytes, |element| f64::from_le_bytes(element).into())),
        DataType::F16 | DataType::Unknown(_) => None,
    }
}
