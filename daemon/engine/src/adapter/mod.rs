//! What turns the results of one stage of a pipeline into requests of the next.

mod boxes;
mod config;
mod crop;
mod lay;
mod names;
pub(crate) mod number;
mod regions;
mod rehearse;
mod select;
mod target;
#[cfg(test)]
mod tests;

use std::fmt::{Debug, Display};

use crate::engine::{Buffers, ModelSpec, TensorSpec, sha256_hex};
use lay::{Laid, Making};
use names::{Gathered, Known, list};
use select::Select;

pub use config::{AdapterConfig, BoxFormat, Crop, Each, Fit, Input, Part, Within};
pub use rehearse::Rehearsal;

/// Makes the requests of a stage, by shapes that were checked.
#[derive(Clone, Debug)]
pub struct Adapter {
    select: Select,
    fan_out: u32,
    /// One for each tensor of the model's request.
    inputs: Vec<Laid>,
    /// Those of the pipeline's request, then of the answer of each stage on the way.
    tensors: Vec<Vec<TensorSpec>>,
    /// Those of each stage of which all results are there, and how many these may be.
    above: Vec<(Vec<TensorSpec>, usize)>,
}

/// A stage of which all results of a source are there: one that a join waits for, be the join the model's own stage or above it.
#[derive(Clone, Copy, Debug)]
pub struct Above<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its model.
    pub model: &'a ModelSpec,
    /// The most results of a source.
    pub most: usize,
}

/// All that a request is made of.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The pipeline's request.
    pub source: &'a [u8],
    /// Of each stage above the join that the way begins at or leads to, all results.
    pub all: &'a [Results<'a>],
    /// The stages on the way, the parent last; none to a join.
    pub path: &'a [Step<'a>],
}

/// What a source became at a stage.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    /// As [`Buffers::get`] writes each, side by side.
    pub packed: &'a [u8],
    /// Which of them is first, second, …
    pub order: &'a [u16],
}

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

impl AdapterError {
    /// Of a value that is a string.
    fn new(field: impl Into<String>, value: &str, reason: String) -> Self {
        Self::plain(field, format!("{value:?}"), reason)
    }

    fn plain(field: impl Into<String>, value: impl Display, reason: String) -> Self {
        Self { field: field.into(), value: value.to_string(), reason }
    }
}

impl Adapter {
    /// For requests of `model`, of which a result of the parent becomes `fan_out` at most. `source` is the pipeline's request;
    /// `path` are the stages on the way, from the first to the parent, by name.
    ///
    /// # Errors
    /// A tensor that is not there, and one of another type or shape than is needed.
    pub fn new(
        config: &AdapterConfig,
        source: &[TensorSpec],
        path: &[(&str, &ModelSpec)],
        fan_out: u32,
        model: &ModelSpec,
    ) -> Result<Self, AdapterError> {
        Self::behind(config, source, (&[], path), fan_out, model)
    }

    /// The same of a way that begins at a join, which is the first on the `path`, or leads to one, with an empty `path`: of the stages
    /// `above` that join all results are there.
    ///
    /// # Errors
    /// As [`Adapter::new`].
    pub fn behind(
        config: &AdapterConfig,
        source: &[TensorSpec],
        (above, path): (&[Above<'_>], &[(&str, &ModelSpec)]),
        fan_out: u32,
        model: &ModelSpec,
    ) -> Result<Self, AdapterError> {
        let above: Vec<_> = above.iter().map(Gathered::new).collect();
        let known = Known { source, above: &above, path };
        let inputs = model.request();
        let unknown = config.inputs.keys().find(|name| inputs.iter().all(|input| input.name != **name));
        if let Some(name) = unknown {
            let all = list(inputs.iter().map(|input| &*input.name));
            return Err(AdapterError::new(
                "inputs",
                name,
                format!("{} has no such input; it has {all}", model.name),
            ));
        }
        let select = Select::new(config.each.as_ref(), &known, fan_out)?;
        let making = Making { known, rows: select.rows(), map: select.map(), model };
        let inputs = inputs.iter().enumerate();
        let inputs = inputs.map(|(number, input)| making.input(number, config.inputs.get(&input.name)));
        let answers = path.iter().map(|(_, model)| model.answer().to_vec());
        Ok(Self {
            inputs: inputs.collect::<Result<_, _>>()?,
            select,
            fan_out,
            tensors: [source.to_vec()].into_iter().chain(answers).collect(),
            above: above.iter().map(|one| (one.model.answer().to_vec(), one.most)).collect(),
        })
    }

    /// Appends to `rows` those of the parent's `answer` that become a request, at most `fan_out`, the best first; returns how
    /// many there would be.
    pub fn select(&self, answer: &[u8], rows: &mut Vec<u32>) -> u32 {
        self.select.rows_of(answer, self.fan_out, rows)
    }

    /// Lays the request that is made of what is `given` at place `index` of the batch: what that costs depends on shapes alone.
    ///
    /// # Panics
    /// If the buffers are another model's, or `index` is not below their max_batch.
    pub fn lay(&self, given: Given<'_>, buffers: &mut Buffers, index: usize) {
        for input in &self.inputs {
            input.lay(given, buffers, index);
        }
    }

    /// A hash of all that the cost of choosing rows and laying requests depends on: two adapters that differ in a threshold alone
    /// have the same.
    pub fn digest(&self) -> String {
        let all: [&dyn Debug; 3] = [&self.select.without_threshold(), &self.fan_out, &self.inputs];
        sha256_hex(format!("{all:?}").as_bytes())
    }
}
