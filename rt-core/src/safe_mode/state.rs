//! What is told of safe mode, as values.

use super::{Cause, Severity};
use crate::stream::{StreamId, StreamState};
use crate::time::{Instant, Span};

/// What was seen when an assumption broke; [`Cause`] gives the units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// What was assumed.
    pub limit: u64,
    /// What was seen instead.
    pub seen: u64,
    /// Over which window, if the cause has one.
    pub window: u64,
    /// At which stream, if at one.
    pub stream: Option<StreamId>,
}

/// When a state ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafeModeConfig {
    /// It lasts at least this long.
    pub hold: Span,
    /// It ends only after this long without a breach.
    pub clean: Span,
    /// Safe mode lasts until cleared by an operator, however clean things look; a warning does not.
    pub latch: bool,
}

/// Why the state is not normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The cause announced last.
    pub cause: Cause,
    /// Its evidence.
    pub evidence: Evidence,
    /// When that was: a further cause in the same stay has its own instant.
    pub entered: Instant,
}

/// Present state of the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SafeModeState {
    /// How bad it is.
    pub severity: Severity,
    /// Why; `None` in the normal state alone.
    pub alarm: Option<Alarm>,
}

impl SafeModeState {
    /// Whether the promises do not stand.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.severity.is_suspended()
    }
}

/// A change of severity or a further cause, to be announced on every channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Rises by one at each transition, so that a listener sees what it missed.
    pub sequence: u64,
    /// The state entered.
    pub state: SafeModeState,
    /// Breaches since the start, those that were not announced included.
    pub breaches: u64,
}

/// The promise to one stream is suspended, a weaker one stands in for it, or it holds again; those to others are not concerned. To be announced on
/// every channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// Rises by one at each suspension and resumption of a scheduler's streams, so that a listener sees what it missed.
    pub sequence: u64,
    /// Whose promise.
    pub stream: StreamId,
    /// How it stands from now on.
    pub state: StreamState,
    /// What the stream itself broke; `None` if its promise holds again.
    pub alarm: Option<Alarm>,
    /// How often the stream broke it since it was added, those that were not announced included.
    pub breaches: u64,
}

impl Transition {
    /// What suspends the promises; `None` in the normal state and of a warning.
    #[must_use]
    pub fn breach(&self) -> Option<Cause> {
        self.state.alarm.filter(|_| self.state.is_suspended()).map(|alarm| alarm.cause)
    }
}
