//! Abstract problems: a system and its load, for people who have no daemon. The schema is stable and documented
//! in `docs/problems.md`.

mod check;
pub mod pipeline;
pub mod raw;
pub mod shared;

use std::collections::BTreeMap;

use rt_core::{Density, Dispatch, Span, Stalls, StreamSpec, System, Workers};
use serde_json::value::RawValue;

use crate::number::Number;
use crate::unique::Unique;
use crate::words::from_json;
pub use pipeline::PipelineProblem;
pub use shared::SharedProblem;

/// The longest text that is read as a problem, in bytes.
pub const MAX_BYTES: usize = 16 << 20;
/// The most streams of a problem.
pub const MAX_STREAMS: usize = 4096;
/// The most instants of a recorded trace.
pub const MAX_TRACE: usize = 1 << 16;

/// A problem in which every value is in its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// As it was written.
    pub raw: raw::Problem,
    /// From arrival to answer.
    pub deadline: Span,
    /// The part of it kept back for late dispatch, below `deadline`.
    pub guard: Span,
    /// Rare losses of time that are counted on; they, the guard and a batch of one are at most `deadline`.
    pub stalls: Option<Stalls>,
    /// When a free worker takes a batch.
    pub dispatch: Dispatch,
    /// See [`raw::Problem::background`].
    pub background: bool,
    /// Kind by kind, at least one, at most [`rt_core::MAX_WORKERS`] workers in all.
    pub workers: Vec<Workers>,
    /// At most [`MAX_STREAMS`], names are unique.
    pub streams: Vec<(String, StreamSpec)>,
}

/// What a file asks about.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// A service that has its workers for itself.
    One(Box<Problem>),
    /// Several that share them.
    Shared(SharedProblem),
    /// Stages that feed one another.
    Pipeline(PipelineProblem),
}

impl Question {
    /// Reads a problem of any kind from JSON: one with `services` is of several, one with `pipeline` of stages.
    ///
    /// # Errors
    /// [`ProblemError`]: too long a text, no JSON, unknown, missing or repeated fields, or a value outside its range.
    pub fn parse(text: &str) -> Result<Self, ProblemError> {
        if text.len() > MAX_BYTES {
            return Err(ProblemError::Size { bytes: text.len() });
        }
        let fields = fields(text)?;
        if fields.contains_key("services") {
            Ok(Self::Shared(SharedProblem::read(text, &fields)?))
        } else if fields.contains_key("pipeline") {
            Ok(Self::Pipeline(PipelineProblem::from_raw(from_json(text)?)?))
        } else {
            Ok(Self::One(Box::new(Problem::from_raw(from_json(text)?)?)))
        }
    }
}

/// Why something is no problem.
#[derive(Debug, thiserror::Error)]
pub enum ProblemError {
    /// Longer than [`MAX_BYTES`].
    #[error("no problem: {bytes} bytes or more, at most {MAX_BYTES} are read")]
    Size {
        /// How long it is at least.
        bytes: usize,
    },
    /// Not JSON, or not the fields of a problem.
    #[error("no problem: {0}")]
    Json(#[from] serde_json::Error),
    /// A problem of several services where one of a single service is needed.
    #[error("services: several services on the same workers, where a problem of a single one is needed")]
    Shared,
    /// A problem of a pipeline where one of a single service is needed.
    #[error("pipeline: several stages, where a problem of a single service is needed")]
    Pipeline,
    /// A value outside its range.
    #[error("{field} = {value}: {reason}")]
    Value {
        /// Which field, such as `streams[0].constraints[1]`.
        field: String,
        /// Its value as written, cut if it is long.
        value: String,
        /// What it must be.
        reason: String,
    },
}

impl Problem {
    /// Reads a problem from JSON.
    ///
    /// # Errors
    /// [`ProblemError`]: too long a text, no JSON, unknown, missing or repeated fields, several services or stages
    /// ([`Question::parse`] reads these too), or as [`Problem::from_raw`].
    pub fn parse(text: &str) -> Result<Self, ProblemError> {
        match Question::parse(text)? {
            Question::One(problem) => Ok(*problem),
            Question::Shared(_) => Err(ProblemError::Shared),
            Question::Pipeline(_) => Err(ProblemError::Pipeline),
        }
    }

    /// Checks every value of `raw`.
    ///
    /// # Errors
    /// [`ProblemError::Value`] for the first one that is outside its range.
    pub fn from_raw(raw: raw::Problem) -> Result<Self, ProblemError> {
        check::problem(raw)
    }

    /// The system of the problem, for [`System::admit`].
    #[must_use]
    pub fn system(&self) -> System {
        System {
            workers: self.workers.clone(),
            latency: self.deadline.saturating_sub(self.guard),
            guard: self.guard,
            stalls: self.stalls,
            dispatch: self.dispatch,
            background: self.background,
        }
    }

    /// What is kept back of the deadline: the guard, and what stalls may take.
    #[must_use]
    pub fn reserve(&self) -> Span {
        self.guard + Stalls::reserve_of(self.stalls)
    }

    /// The share of the requests of a stream that must be served: more than its constraints ask for where they absorb stalls.
    #[must_use]
    pub fn density(&self, spec: &StreamSpec) -> Density {
        let asked = spec.constraints().density();
        self.stalls.map_or(asked, |stalls| stalls.absorb(spec, self.deadline).map_or(asked, |(_, more)| more))
    }

    /// What the streams declare and are promised, in order, for [`System::admit`].
    pub fn specs(&self) -> impl Iterator<Item = &StreamSpec> + Clone {
        self.streams.iter().map(|(_, spec)| spec)
    }

    /// `span` in the unit of the problem.
    #[must_use]
    pub fn number(&self, span: Span) -> Number {
        Number::of_span(span, self.raw.unit)
    }
}

/// The fields of a text, which tell what it is a problem of; none of what is no JSON object.
fn fields(text: &str) -> Result<BTreeMap<String, Box<RawValue>>, serde_json::Error> {
    match serde_json::from_str::<Unique<Box<RawValue>>>(text) {
        Ok(Unique(fields)) => Ok(fields),
        Err(twice) if twice.to_string().starts_with("duplicate field") => Err(twice),
        Err(_) => Ok(BTreeMap::new()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
