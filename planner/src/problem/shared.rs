//! Problems of several services on the same workers: which rule decides, and what each service declares.

mod check;
pub mod raw;

use std::collections::BTreeMap;

use rt_core::sharing::{Rule, SharedService, Sharing};
use rt_core::{LatencyProfile, Span, Stalls, StreamSpec};
use serde_json::value::RawValue;

use super::ProblemError;
use crate::number::Number;
use crate::words::from_json;

/// Several services on the same workers, every value in its range.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedProblem {
    /// As it was written.
    pub raw: raw::SharedProblem,
    /// Identical ones, in `1..=`[`rt_core::MAX_WORKERS`].
    pub workers: usize,
    /// Rare losses of time that are counted on; they, the guard and a batch of one are at most the deadline of each service.
    pub stalls: Option<Stalls>,
    /// Which service a free worker serves next; `None` if either rule will do.
    pub rule: Option<Rule>,
    /// In `1..=`[`rt_core::sharing::MAX_SERVICES`], names are unique.
    pub services: Vec<Service>,
}

/// One of several services.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// From arrival to answer.
    pub deadline: Span,
    /// The part of it kept back for late dispatch, below `deadline`.
    pub guard: Span,
    /// The largest batch, in `1..=`[`rt_core::MAX_BATCH`].
    pub batch: usize,
    /// What that takes.
    pub time: Span,
    /// What batches of 1, 2, … take, `batch` of them at least.
    pub profile: LatencyProfile,
    /// Batches in a turn; `None` if they are to be chosen.
    pub turn: Option<u32>,
    /// At most [`MAX_STREAMS`](super::MAX_STREAMS) of all services together, names are unique in the service.
    pub streams: Vec<(String, StreamSpec)>,
}

impl SharedProblem {
    /// Checks every value of `raw`.
    ///
    /// # Errors
    /// [`ProblemError::Value`] for the first one that is outside its range.
    pub fn from_raw(raw: raw::SharedProblem) -> Result<Self, ProblemError> {
        check::problem(raw)
    }

    /// From a text with these fields at its top, `services` among them.
    pub(super) fn read(text: &str, fields: &BTreeMap<String, Box<RawValue>>) -> Result<Self, ProblemError> {
        check::no_field_of_one(fields)?;
        Self::from_raw(from_json(text)?)
    }

    /// The services on their workers by `rule`, with `turns` batches in a turn of each, for [`Sharing::admit`].
    ///
    /// Late dispatch meets all of them, so that all can stand what the smallest guard is; what a larger one keeps back
    /// beyond that is kept back none the less. Stalls meet all of them too, and are kept back by each.
    #[must_use]
    pub fn sharing(&self, rule: Rule, turns: &[u32]) -> Sharing {
        let lost = self.lost();
        let service = |(s, &turn): (&Service, &u32)| SharedService {
            latency: s.deadline.saturating_sub(s.guard + lost),
            batch: s.batch,
            time: s.time,
            turn,
        };
        Sharing {
            workers: self.workers,
            guard: self.services.iter().map(|s| s.guard).min().unwrap_or(Span::ZERO) + lost,
            stalls: self.stalls,
            longest: self.services.iter().map(|s| s.time).max().unwrap_or(Span::ZERO),
            rule,
            services: self.services.iter().zip(turns).map(service).collect(),
        }
    }

    /// What stalls may take of each deadline.
    #[must_use]
    pub fn lost(&self) -> Span {
        Stalls::reserve_of(self.stalls)
    }

    /// What the streams of each service declare and are promised, in order, for [`Sharing::admit`].
    pub fn specs(&self) -> impl Iterator<Item = Vec<StreamSpec>> {
        self.services.iter().map(|s| s.streams.iter().map(|(_, spec)| spec.clone()).collect())
    }

    /// `span` in the unit of the problem.
    #[must_use]
    pub fn number(&self, span: Span) -> Number {
        Number::of_span(span, self.raw.unit)
    }
}

#[cfg(test)]
mod tests;
