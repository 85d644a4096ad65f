//! The tensors of a model, as its manifest lists them.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{ManifestError, check};
use crate::engine::{DataType, TensorSpec};

/// The most inputs or outputs of a model.
const MAX_TENSORS: usize = 16;
/// The most elements a tensor of one request may hold.
const MAX_ELEMENTS: usize = 1 << 24;
/// The longest name and the most dimensions that a client can be told.
const MAX_NAME: usize = 255;
const MAX_DIMENSIONS: usize = 8;

/// A model of one tensor on a side gives its table, one of several an array of tables.
#[derive(Debug)]
pub(super) struct Tensors(Vec<TensorToml>);

impl<'de> Deserialize<'de> for Tensors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TensorsVisitor)
    }
}

/// By hand, for the error messages of an untagged enum do not say what is wrong.
struct TensorsVisitor;

impl<'de> Visitor<'de> for TensorsVisitor {
    type Value = Tensors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tensor as a table, or several as an array of tables")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tensors, A::Error> {
        TensorToml::deserialize(MapAccessDeserializer::new(map)).map(|tensor| Tensors(vec![tensor]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Tensors, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Tensors)
    }
}

impl Tensors {
    /// What they are; `field` is where they stand.
    ///
    /// # Errors
    /// A number, name, type or shape outside its limits.
    pub(super) fn check(self, field: &str) -> Result<Vec<TensorSpec>, ManifestError> {
        let Self(tensors) = self;
        check((1..=MAX_TENSORS).contains(&tensors.len()), || {
            (field.to_owned(), format!("{} tensors", tensors.len()), "the limits are 1..=16")
        })?;
        let mut names = BTreeSet::new();
        for tensor in &tensors {
            let rule = "each tensor needs a name of its own";
            check(names.insert(&tensor.name), || (format!("{field}.name"), tensor.name.clone(), rule))?;
        }
        tensors.into_iter().map(|tensor| tensor.check(field)).collect()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorToml {
    name: String,
    #[serde(rename = "type")]
    data_type: String,
    shape: Vec<usize>,
}

impl TensorToml {
    fn check(self, field: &str) -> Result<TensorSpec, ManifestError> {
        let Some(data_type) = DataType::ALL.into_iter().find(|t| t.to_string() == self.data_type) else {
            let (field, rule) = (format!("{field}.type"), "only f32, f16, i64 and u8 are supported");
            return Err(ManifestError::Value { field, value: self.data_type, rule });
        };
        let rule = "dimensions of at least 1 are needed, 2^24 elements at most";
        let elements = self.shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
        let fits = elements.is_some_and(|elements| (1..=MAX_ELEMENTS).contains(&elements));
        check(fits, || (format!("{field}.shape"), format!("{:?}", self.shape), rule))?;
        let (name, dimensions) = (self.name.len(), self.shape.len());
        check(name <= MAX_NAME, || (format!("{field}.name"), format!("{name} bytes"), "at most 255 bytes"))?;
        check(dimensions <= MAX_DIMENSIONS, || {
            (format!("{field}.shape"), format!("{dimensions} dimensions"), "at most 8 dimensions")
        })?;
        Ok(TensorSpec { name: self.name, data_type, shape: self.shape })
    }
}
