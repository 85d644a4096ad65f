//! What turns the results of one stage of a pipeline into requests of the next.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Buffers, ModelSpec, TensorSpec};

/// How a stage's requests are made, as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AdapterConfig {
    /// Which rows of the parent's answer become a request each; absent if every answer becomes one.
    pub each: Option<EachRow>,
    /// What each input of the model is made of; of what is absent the tensor of that name, or the parent's only one.
    #[serde(default)]
    pub inputs: BTreeMap<String, toml::Value>,
}

/// Rows of the parent's answer: those of a score that is high enough.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EachRow {
    /// The output that has a score a row.
    pub scores: String,
    /// From which on a row counts.
    pub threshold: f64,
}

/// Makes the requests of a stage, by shapes that were checked.
#[derive(Clone, Debug)]
pub struct Adapter {}

/// A stage on the way to a request: the answer there, and the row of it that the way goes on with.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// As [`Buffers::get`] writes it.
    pub answer: &'a [u8],
    /// From 0.
    pub row: u32,
}

/// Why requests cannot be made as configured.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: {reason}")]
pub struct AdapterError {
    /// Below `adapter`, such as `inputs.image.crop`.
    pub field: String,
    /// As configured.
    pub value: String,
    /// What it must be.
    pub reason: String,
}

impl Adapter {
    /// For requests of `model`, of which a result of the parent becomes `fan_out` at most. `source` is the pipeline's request;
    /// `path` are the stages on the way, from the first to the parent, by name.
    ///
    /// # Errors
    /// A tensor that is not there, and one of another type or shape than is needed.
    pub fn new(
        _config: &AdapterConfig,
        _source: &[TensorSpec],
        _path: &[(&str, &ModelSpec)],
        _fan_out: u32,
        _model: &ModelSpec,
    ) -> Result<Self, AdapterError> {
        Ok(Self {})
    }

    /// Appends to `rows` those of the parent's `answer` that become a request, at most `fan_out`, the best first; returns how
    /// many there would be.
    pub fn select(&self, _answer: &[u8], rows: &mut Vec<u32>) -> u32 {
        rows.push(0);
        1
    }

    /// Lays the request that `path` leads to at place `index` of the batch: what that costs depends on shapes alone. `source` is
    /// the pipeline's request.
    pub fn lay(&self, _source: &[u8], path: &[Step<'_>], buffers: &mut Buffers, index: usize) {
        if let Some(step) = path.last() {
            buffers.put(index, step.answer);
        }
    }
}
