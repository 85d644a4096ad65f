//! On a request's way: what a client asks, holds and is told, as owned values shared by both clients.

mod registration;
mod stream;
mod tensor;

use std::fmt;
use std::time::Duration;

pub use crate::wire::{
    DataType, ErrorCode, EventMask, MissReason, RefusalCode, SafeModeCause, SafeModeState, StreamState,
};
pub use registration::{ArrivalBound, Constraint, Registration, RegistrationBuilder, RegistrationError};
pub use stream::{ClassInfo, Packer, StreamInfo};
pub(crate) use tensor::place;
pub use tensor::{Double, Element, TensorError, TensorInfo};

/// The number a client gave one of its requests; unique within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.0)
    }
}

/// What one request came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// An output, in time, or late where that is worth something ([`Inference::late`]).
    Result(Inference),
    /// No output in time.
    Miss(Miss),
}

impl Outcome {
    /// The output that came in time, if one did; [`StreamInfo::output`] reads it.
    pub fn result(&self) -> Option<&Inference> {
        match self {
            Self::Result(inference) => Some(inference),
            Self::Miss(_) => None,
        }
    }

    /// Misses the tightest constraint still allows; `None` without one.
    pub fn misses_left(&self) -> Option<u32> {
        match self {
            Self::Result(inference) => inference.misses_left,
            Self::Miss(miss) => miss.misses_left,
        }
    }
}

/// An output that came in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    /// The request's stream.
    pub stream: u32,
    /// Number of the request within its stream, from 0.
    pub sequence: u64,
    /// Misses the tightest constraint still allows; `None` without one.
    pub misses_left: Option<u32>,
    /// Time from arrival to the start of its batch.
    pub queued: Duration,
    /// Time its batch ran.
    pub run: Duration,
    /// Requests in its batch.
    pub batch: u16,
    /// Index of the variant that answered, in the order of the service's configuration.
    pub variant: u16,
    /// How many requests of the stream just before this one were missed without being executed, where the model remembers
    /// something from each request to the next: it does not remember these.
    pub skipped: u32,
    /// Whether it came later than its class wants it, and is worth less: only of classes whose late answers are worth something.
    pub late: bool,
    /// The output tensors, packed; [`StreamInfo::output`] reads them.
    pub output: Vec<u8>,
}

/// A request without an output in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The request's stream.
    pub stream: u32,
    /// Number of the request within its stream, from 0.
    pub sequence: u64,
    /// Misses the tightest constraint still allows; `None` without one.
    pub misses_left: Option<u32>,
    /// Why.
    pub reason: MissReason,
}

/// The daemon did not grant a request; the connection stays usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused, {code}: {text}")]
pub struct Refusal {
    /// Why.
    pub code: RefusalCode,
    /// Why, for people.
    pub text: String,
}

/// What a client finds when it looks for the next thing that arrived.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// This request's output came in time.
    Result(RequestId, Inference),
    /// This request has no output in time.
    Miss(RequestId, Miss),
    /// This request was not taken at all, and has no number in its stream.
    Refused(RequestId, Refusal),
    /// An event of the subscription.
    Event(Event),
}

/// What the daemon tells without being asked each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A service entered or left safe mode.
    SafeMode(SafeModeEvent),
    /// The promise to one stream is suspended, or holds again.
    Suspension(SuspensionEvent),
    /// A stream has few misses left.
    MissesLeft(MissesLeftEvent),
    /// Events that did not arrive: the daemon or this client had no room left for them.
    Lost {
        /// How many, since this was last told.
        count: u64,
    },
}

/// A service entered or left safe mode: while in it, its promises do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeModeEvent {
    /// The service.
    pub service: String,
    /// The state entered.
    pub state: SafeModeState,
    /// The assumption that broke.
    pub cause: SafeModeCause,
    /// Number of the change within the service, from 1.
    pub sequence: u64,
    /// When, as time of the host's `CLOCK_MONOTONIC`.
    pub entered: Duration,
    /// The stream that broke it; empty where no single stream did.
    pub stream: String,
    /// What the assumption allows, in the unit its cause gives.
    pub limit: u64,
    /// What was seen, in the same unit.
    pub seen: u64,
    /// The stretch of time looked at; zero where there is none.
    pub window: Duration,
    /// Breaches of the service since the daemon started, those that were not announced included.
    pub breaches: u64,
    /// The evidence, for people.
    pub text: String,
}

/// The promise to one stream is suspended, for it broke what it declared, or holds again; those to others stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspensionEvent {
    /// The stream's service.
    pub service: String,
    /// The stream.
    pub stream: String,
    /// The state entered.
    pub state: StreamState,
    /// What it broke; `Unknown(0)` where its promise holds again.
    pub cause: SafeModeCause,
    /// Number of the change among the streams of the service, from 1; not that of the service's safe mode.
    pub sequence: u64,
    /// When, as time of the host's `CLOCK_MONOTONIC`.
    pub entered: Duration,
    /// What it declared, in the unit its cause gives.
    pub limit: u64,
    /// What was seen, in the same unit.
    pub seen: u64,
    /// The stretch of time looked at; zero where there is none.
    pub window: Duration,
    /// Breaches of the stream since it was registered, those that were not announced included.
    pub breaches: u64,
    /// The evidence, for people.
    pub text: String,
}

/// A stream has few misses left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissesLeftEvent {
    /// The stream's service.
    pub service: String,
    /// The stream.
    pub stream: String,
    /// Misses the constraint still allows.
    pub misses_left: u32,
    /// The constraint.
    pub constraint: Constraint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_why() {
        let refusal = Refusal { code: RefusalCode::NameInUse, text: "front is held by pid 7".into() };
        assert_eq!(refusal.to_string(), "refused, name-in-use: front is held by pid 7");
    }
}
