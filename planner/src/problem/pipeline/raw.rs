//! A problem of a pipeline as it is written: JSON fields, nothing checked but their names and types.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::number::Number;
use crate::problem::raw::{Stalls, Stream, Unit};

/// The file. Times are numbers of `unit`, whole or decimal, and whole nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineProblem {
    /// Of all times.
    pub unit: Unit,
    /// Whether requests that no curve bounds may occupy workers; the test allows for them either way.
    #[serde(default)]
    pub background: bool,
    /// From the arrival of a source to the last answer to what it became.
    pub deadline: Number,
    /// By how much dispatch may come late at each stage.
    #[serde(default)]
    pub guard: Number,
    /// Rare losses of time that are counted on; no constraint absorbs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    /// The most workers of all stages together; needed where those of a stage are to be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// Every parent before its children; the first has none.
    pub pipeline: Vec<Stage>,
    /// How sources come, in the order in which they are named elsewhere.
    pub streams: Vec<Stream>,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Unique.
    pub name: String,
    /// The stage whose results it takes; the first has neither this nor `parents`, all others one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The stages whose results it takes: each by itself, or of a source at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<Vec<String>>,
    /// Whether it takes a source once, when its parents are done with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub join: bool,
    /// The most requests that a source becomes at a join, by default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// The most requests that a result of a parent becomes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub fan_out: u32,
    /// Identical ones, that no other stage uses.
    pub workers: Count,
    /// The largest batch.
    pub batch: Count,
    /// The time of every batch; either this or `times`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Number>,
    /// The times of batches of 1, 2, …, at least `batch` of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Vec<Number>>,
}

impl PipelineProblem {
    /// Whether each stage takes the results of one other, each by itself.
    #[must_use]
    pub fn is_tree(&self) -> bool {
        self.pipeline.iter().all(|stage| !stage.join && stage.before().count() <= 1)
    }
}

impl Stage {
    /// The names of its parents.
    pub fn before(&self) -> impl Iterator<Item = &str> {
        self.parent.iter().chain(self.parents.iter().flatten()).map(String::as_str)
    }
}

/// A number, or that it is to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// As it is stated.
    Is(usize),
    /// `auto`.
    Auto,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(number) => number.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Is(number) => number.serialize(to),
            Self::Auto => to.serialize_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NumberOrAuto;

        impl Visitor<'_> for NumberOrAuto {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or \"auto\"")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Count, E> {
                // More than this is in no range.
                Ok(Count::Is(usize::try_from(number).unwrap_or(usize::MAX)))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Count, E> {
                let unknown = || E::invalid_value(serde::de::Unexpected::Str(word), &self);
                (word == "auto").then_some(Count::Auto).ok_or_else(unknown)
            }
        }

        from.deserialize_any(NumberOrAuto)
    }
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(fan_out: &u32) -> bool {
    *fan_out == 1
}
