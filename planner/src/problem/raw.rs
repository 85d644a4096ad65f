//! A problem as it is written: JSON fields, nothing checked but their names and types.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::number::Number;

/// The file. Times are numbers of `unit`, whole or decimal, and whole nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Problem {
    /// Of all times.
    pub unit: Unit,
    /// From arrival to answer.
    pub deadline: Number,
    /// The part of the deadline kept back for late dispatch.
    #[serde(default)]
    pub guard: Number,
    /// Rare losses of time that are counted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    /// When a free worker takes a batch.
    #[serde(default)]
    pub dispatch: Dispatch,
    /// Whether requests that no curve bounds may occupy workers: best effort, or beyond a declaration.
    #[serde(default)]
    pub background: bool,
    /// Kind by kind.
    pub workers: Vec<Workers>,
    /// In the order in which they are named elsewhere.
    pub streams: Vec<Stream>,
}

/// See [`rt_core::Stalls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stalls {
    /// How many there are at most in a window.
    pub count: u32,
    /// The window.
    pub window: Number,
    /// How long each may be.
    pub length: Number,
    /// If constraints absorb them: how long after one began requests may be missed for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Number>,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

impl Unit {
    /// `e` where the unit is 10^e nanoseconds.
    pub(crate) fn exponent(self) -> i32 {
        match self {
            Self::Ns => 0,
            Self::Us => 3,
            Self::Ms => 6,
            Self::S => 9,
        }
    }
}

/// See [`rt_core::Dispatch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dispatch {
    /// At once.
    #[default]
    Eager,
    /// When a batch is full, or at the latest start.
    FullOrLatest,
}

/// Identical workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workers {
    /// How many.
    pub count: usize,
    /// The largest batch that they run.
    pub batch: usize,
    /// The time of every batch; either this or `times`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Number>,
    /// The times of batches of 1, 2, …, at least `batch` of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Vec<Number>>,
}

/// A stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Unique.
    pub name: String,
    /// Such as `any_miss(1,2)`; none for best effort.
    #[serde(default)]
    pub constraints: Vec<String>,
    /// How its requests come; needed with constraints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// Weaker promises behind the first, from the strongest to the weakest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<Level>,
}

/// A promise behind a stream's first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// As of the stream.
    pub constraints: Vec<String>,
    /// How its requests may come then.
    pub arrivals: Arrivals,
}

/// Bounds on arrivals; the least of all that are given counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// `[count, length]`: at most `count` in any half-open interval of `length`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<(u64, Number)>,
    /// One a period, each up to `jitter` late; one object, or a list of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_several")]
    pub periodic: Vec<Periodic>,
    /// `burst` at once, and one more a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_bucket: Option<TokenBucket>,
    /// The least time from a request to the next, the one after that, and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<Vec<Number>>,
    /// A recorded trace of arrival instants, whose empirical curve is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Vec<Number>>,
}

/// Periodic arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Periodic {
    /// From one to the next.
    pub period: Number,
    /// How late each may be.
    #[serde(default)]
    pub jitter: Number,
    /// The least time between two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<Number>,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenBucket {
    /// Tokens at most.
    pub burst: u64,
    /// Until the next one.
    pub period: Number,
}

/// A single bound is written as itself.
mod one_or_several {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(all: &[Periodic], to: S) -> Result<S::Ok, S::Error> {
        match all {
            [one] => one.serialize(to),
            all => all.serialize(to),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Periodic>, D::Error> {
        struct OneOrSeveral;

        impl<'de> Visitor<'de> for OneOrSeveral {
            type Value = Vec<Periodic>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a periodic bound, or a list of several")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Ok(vec![Periodic::deserialize(MapAccessDeserializer::new(map))?])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq))
            }
        }

        from.deserialize_any(OneOrSeveral)
    }
}
