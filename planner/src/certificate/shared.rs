//! Claims about services that share workers: one problem, whether all that it asks for can be promised, and why.

use serde::{Deserialize, Serialize};

use super::{Refutation, Service};
use crate::number::Number;
use crate::problem::shared::raw;

/// One problem of several services, its answer and the reasons. Times are in the problem's unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedClaim {
    /// The device that it is about; absent for an abstract problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<SharedDevice>,
    /// The question.
    pub problem: raw::SharedProblem,
    /// Whether all is promised.
    pub admissible: bool,
    /// By which rule the workers must go, or what else decided.
    pub rule: SharedReason,
    /// The tightest line; absent if nothing is promised, or the answer needed none.
    pub binding: Option<SharedBinding>,
    /// By so much one batch may exceed its time without harm to anyone, between two instants at which nothing
    /// mandatory waits: the margin of `binding`. Absent for a refusal, or without one.
    pub overrun_margin: Option<Number>,
    /// How many times as fast all streams may send, in steps of a thousandth, at most
    /// [`MAX_SCALE`](crate::certify::MAX_SCALE); absent if nothing is promised, 0 if not even a thousandth of the rate is.
    pub max_load_scale: Option<Number>,
    /// In the order of the problem.
    pub services: Vec<SharedServiceAnswer>,
    /// For a refusal: why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For a refusal: arrivals that show it, by the rule that is named; streams as `service/stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refutation: Option<Refutation>,
}

/// A device of a configuration, and what runs on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedDevice {
    /// Its name.
    pub name: String,
    /// In the order of the problem.
    pub services: Vec<Service>,
}

/// What decided (`docs/guarantee.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedReason {
    /// Theorem E: the earliest deadline goes first.
    Edf,
    /// Theorem T: the services take turns.
    Turns,
    /// No stream has a constraint.
    NothingPromised,
    /// In the long run more mandatory requests come than the workers can serve.
    Rate,
    /// A full batch of a service takes longer than there is.
    Latency,
    /// So close to capacity that more distances would have to be looked at than are.
    Horizon,
    /// More stalls may meet one request than are kept back for.
    Stalls,
}

/// The tightest line `lhs ≤ rhs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedBinding {
    /// What it counts from.
    pub reference: Reference,
    /// The service whose request is looked at.
    pub service: String,
    /// From the reference to when that must be answered; for [`Reference::Turn`] to when it came.
    pub distance: Number,
    /// When its batch begins at the latest, counted from the reference.
    pub lhs: Number,
    /// When it must; in a refusal perhaps below zero.
    pub rhs: Number,
}

/// What a line counts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// The last instant at which nothing waited that is as urgent.
    Clear,
    /// The start of a batch of the named service that was not full.
    Short(String),
    /// The last arrival of the service that found none of its own waiting.
    Turn,
    /// As `clear`, if each batch may hold a single request: in place of all lines of the service.
    Singly,
    /// An instant since the arrival of the request itself, or the start after it: in place of all lines of the service.
    Arrival,
    /// An instant since what another line would count from, or the start after it: in place of those at this distance and beyond.
    After,
}

/// What is answered of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedServiceAnswer {
    /// Its name.
    pub name: String,
    /// Within what time of its arrival each mandatory request is in a batch; absent for a refusal, or if nothing of it
    /// is promised.
    pub start_within: Option<Number>,
    /// Batches in a turn, stated or chosen, where the rule is [`SharedReason::Turns`].
    pub turn: Option<u32>,
    /// How many times as fast all its streams may send, the other services as they are, as
    /// [`SharedClaim::max_load_scale`]; absent if nothing of it is promised.
    pub max_rate_scale: Option<Number>,
    /// The smallest deadline, the other services as they are; absent if nothing of it is promised, or none is known to
    /// do.
    pub min_deadline: Option<Number>,
    /// In the order of the problem.
    pub streams: Vec<SharedStreamAnswer>,
}

/// What is answered of one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedStreamAnswer {
    /// Its name.
    pub name: String,
    /// `[p, q]`: the share `p/q` of its requests is mandatory.
    pub density: (u32, u32),
    /// Each constraint as it was written, and whether it `binds`, is `implied by …` another, or is `kept` by the
    /// binding density.
    pub constraints: Vec<(String, String)>,
}
