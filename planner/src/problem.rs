//! Abstract problems: a system and its load, for people who have no daemon. The schema is stable and documented
//! in `docs/problems.md`.

pub mod raw;

use rt_core::{Dispatch, Span, StreamSpec, System, Workers};

/// A problem in which every value is in its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// As it was written.
    pub raw: raw::Problem,
    /// From arrival to answer.
    pub deadline: Span,
    /// The part of it kept back for late dispatch, below `deadline`.
    pub guard: Span,
    /// When a free worker takes a batch.
    pub dispatch: Dispatch,
    /// See [`raw::Problem::background`].
    pub background: bool,
    /// Kind by kind, at least one, at most 16 workers in all.
    pub workers: Vec<Workers>,
    /// Names are unique.
    pub streams: Vec<(String, StreamSpec)>,
}

/// Why something is no problem.
#[derive(Debug, thiserror::Error)]
pub enum ProblemError {
    /// Not JSON, or not the fields of a problem.
    #[error("no problem: {0}")]
    Json(#[from] serde_json::Error),
    /// A value outside its range.
    #[error("{field} = {value}: {reason}")]
    Value {
        /// Which field, such as `streams[0].constraints[1]`.
        field: String,
        /// Its value as written.
        value: String,
        /// What it must be.
        reason: String,
    },
}

impl Problem {
    /// The system of the problem, for [`System::admit`].
    #[must_use]
    pub fn system(&self) -> System {
        System {
            workers: self.workers.clone(),
            latency: self.deadline.saturating_sub(self.guard),
            guard: self.guard,
            dispatch: self.dispatch,
            background: self.background,
        }
    }
}
