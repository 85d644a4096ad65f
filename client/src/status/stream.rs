//! A promise in STATUS: the streams of a service, and how what they are promised stands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How the promises of a service stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SafeMode {
    /// By the names of EVENT_SAFE_MODE.
    pub state: String,
    /// Its number.
    pub state_number: u32,
    /// Of the cause; 0 without one.
    pub cause_number: u32,
    /// Of the last change.
    pub sequence: u64,
    /// Since the start.
    pub breaches: u64,
    /// Why the state is not normal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entered_ns: Option<u64>,
    /// The cause and its evidence in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The suspensions of a service's streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Suspensions {
    /// Of the last suspension or its end.
    pub sequence: u64,
    /// How many streams are suspended now.
    pub streams: u64,
}

/// A stream of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stream {
    /// Under which it was registered.
    pub name: String,
    /// Whether the configuration has a place for it.
    pub reserved: bool,
    /// Whether a client holds it.
    pub connected: bool,
    /// What it is promised.
    pub constraints: Vec<String>,
    /// What it declared of its arrivals, if it did.
    pub arrivals: Option<Vec<String>>,
    /// Requests a second by that.
    pub declared_per_s: Option<f64>,
    /// By how much its requests came before they were due at that rate, at most; none before the second one.
    pub jitter_seen_ns: Option<u64>,
    /// The tokens of a bucket of that rate that all of them could have been paid from.
    pub burst_seen: Option<u64>,
    /// The declaration of that rate that would have fitted all of them.
    pub fitting: Option<String>,
    /// Requests that came.
    pub arrived: u64,
    /// Requests answered in time.
    pub served: u64,
    /// Requests that came before its declaration allows them, by no more than the tolerance: they count as declared.
    pub early: u64,
    /// By how much such a request was early at most.
    pub earliest_ns: u64,
    /// Requests missed, by the name of the reason.
    pub missed: BTreeMap<String, u64>,
    /// Misses until a constraint is violated; none without constraints.
    pub misses_left: Option<u32>,
    /// Why its promise is suspended, if it is.
    pub suspended: Option<Suspended>,
    /// The weaker promises behind its own, from the strongest to the weakest.
    pub levels: Vec<Level>,
    /// Which of them is in force instead of its own, counted from 1; 0 if its own is, or nothing is promised.
    pub level: u8,
    /// Why its own is not, if a weaker one is in force.
    pub degraded: Option<Suspended>,
}

/// A weaker promise of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Level {
    /// What it is promised.
    pub constraints: Vec<String>,
    /// For what arrivals.
    pub arrivals: Vec<String>,
    /// Requests a second by that.
    pub declared_per_s: f64,
}

/// Why a stream is suspended, or a weaker promise is in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Suspended {
    /// By the names of EVENT_SUSPENSION.
    pub cause: String,
    /// Its number.
    pub cause_number: u32,
    /// Since when.
    pub entered_ns: u64,
    /// What was allowed, in the units of the cause.
    pub limit: u64,
    /// What was seen.
    pub seen: u64,
    /// Within what.
    pub window: u64,
    /// All of it in words.
    pub text: String,
}
