//! What is called and what is answered, however it travels.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde_json::value::RawValue;
use weir_client::TensorInfo;

/// What a model is called, and what it takes and gives.
#[derive(Clone, Copy, Debug)]
pub struct Model<'a> {
    /// Its name.
    pub name: &'a str,
    /// The tensors of a request.
    pub inputs: &'a [TensorInfo],
    /// The tensors of an answer.
    pub outputs: &'a [TensorInfo],
}

/// A parameter of a call, an input, an output or an answer.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum Parameter {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number above 2⁶³ - 1.
    Uint(u64),
    /// A number.
    Double(f64),
    /// Text.
    Text(String),
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Parameter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, a number or a text in quotes")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Parameter, E> {
                Ok(Parameter::Bool(value))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Parameter, E> {
                Ok(Parameter::Int(value))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Parameter, E> {
                Ok(Parameter::from(value))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Parameter, E> {
                Ok(Parameter::Double(value))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Parameter, E> {
                Ok(Parameter::Text(value.to_owned()))
            }
        }
        from.deserialize_any(Any)
    }
}

impl From<u64> for Parameter {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Uint(value), Self::Int)
    }
}

/// As it is written in JSON.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(bool) => bool.fmt(f),
            Self::Int(number) => number.fmt(f),
            Self::Uint(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// Parameters by name.
pub type Parameters = BTreeMap<String, Parameter>;

/// A call for inference.
#[derive(Debug, Default)]
pub struct Call<'a> {
    /// Comes back with the answer; empty for none.
    pub id: String,
    /// Of the whole call.
    pub parameters: Parameters,
    /// The tensors, in any order.
    pub inputs: Vec<Input<'a>>,
    /// The tensors that are wanted of the answer; all if there is none.
    pub outputs: Vec<Wanted>,
}

/// One tensor of a call, or of a remote server's answer.
#[derive(Debug)]
pub struct Input<'a> {
    /// Its name in the model.
    pub name: Cow<'a, str>,
    /// What its elements are, in the protocol's words.
    pub datatype: Cow<'a, str>,
    /// Its dimensions.
    pub shape: Vec<i64>,
    /// Its elements.
    pub data: Data<'a>,
}

/// The elements of a tensor, row-major, as they came.
#[derive(Debug)]
pub enum Data<'a> {
    /// As they lie in memory, little-endian.
    Raw(&'a [u8]),
    /// A JSON array, nested or flat.
    Json(&'a RawValue),
    /// `BOOL`.
    Bool(&'a [bool]),
    /// `INT8`, `INT16` and `INT32`.
    Int(&'a [i32]),
    /// `INT64`.
    Int64(&'a [i64]),
    /// `UINT8`, `UINT16` and `UINT32`.
    Uint(&'a [u32]),
    /// `UINT64`.
    Uint64(&'a [u64]),
    /// `FP32`.
    Fp32(&'a [f32]),
    /// `FP64`.
    Fp64(&'a [f64]),
}

/// A tensor that is wanted of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Its name in the model.
    pub name: String,
    /// Whether it is to come as it lies in memory, where both ways are there.
    pub binary: bool,
    /// What else is said of it.
    pub parameters: Parameters,
}

/// The answer to a call.
#[derive(Debug)]
pub struct Answer<'a> {
    /// Who answers.
    pub model: Model<'a>,
    /// The call's.
    pub id: &'a str,
    /// Of the answer.
    pub parameters: &'a Parameters,
    /// The tensors, packed as they are in an answer of Weir.
    pub packed: &'a [u8],
    /// Those that go out, by their place in the model, and whether as they lie in memory; all that the call wanted.
    pub outputs: &'a [(usize, bool)],
}
