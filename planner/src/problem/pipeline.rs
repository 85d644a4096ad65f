//! Problems of a pipeline: stages that feed one another, and one deadline from the source to the last answer.

mod check;
pub mod raw;

use rt_core::{LatencyProfile, Span, StreamSpec};

use super::ProblemError;
use crate::choice::Choices;
use crate::number::Number;

/// A pipeline, every value in its range.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineProblem {
    /// As it was written.
    pub raw: raw::PipelineProblem,
    /// The stages and what is asked of them; each has one option where nothing is to be chosen.
    pub choices: Choices,
    /// What batches of 1, 2, … take at each stage.
    pub profiles: Vec<LatencyProfile>,
    /// At most [`MAX_STREAMS`](super::MAX_STREAMS), names are unique.
    pub streams: Vec<(String, StreamSpec)>,
}

impl PipelineProblem {
    /// Checks every value of `raw`.
    ///
    /// # Errors
    /// [`ProblemError::Value`] for the first one that is outside its range.
    pub fn from_raw(raw: raw::PipelineProblem) -> Result<Self, ProblemError> {
        check::problem(raw)
    }

    /// What the streams declare and are promised, in order, for [`Pipeline::admit`](rt_core::pipeline::Pipeline::admit).
    pub fn specs(&self) -> impl Iterator<Item = &StreamSpec> + Clone {
        self.streams.iter().map(|(_, spec)| spec)
    }

    /// `span` in the unit of the problem.
    #[must_use]
    pub fn number(&self, span: Span) -> Number {
        Number::of_span(span, self.raw.unit)
    }
}

#[cfg(test)]
mod tests;
