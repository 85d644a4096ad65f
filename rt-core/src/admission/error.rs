//! Why a load is refused, in words that name what is missing.

use core::fmt;

use super::Binding;
use crate::busy::MAX_RISES;
use crate::constraint::Constraint;
use crate::time::Span;

/// Requests a second for people, with as many decimals as tell two rates apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerSecond {
    /// In units of the last decimal.
    value: u64,
    decimals: u32,
}

impl PerSecond {
    /// A rate rounded up, and one below it rounded down, but for what is lost in rounding.
    pub(super) fn above(rate: f64, below: f64) -> (Self, Self) {
        // Four digits that count.
        let (mut decimals, mut unit) = (0, 1.0);
        while decimals < 12 && below * unit < 1000.0 {
            (decimals, unit) = (decimals + 1, unit * 10.0);
        }
        let rounded = |rate: f64, by: f64| Self { value: (rate * unit + by) as u64, decimals };
        (rounded(rate, 0.999_999), rounded(below, 1e-6))
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mut value, mut decimals } = *self;
        while decimals > 0 && value % 10 == 0 {
            (value, decimals) = (value / 10, decimals - 1);
        }
        let unit = 10_u64.pow(decimals);
        match decimals {
            0 => write!(f, "{value}"),
            _ => write!(f, "{}.{:0width$}", value / unit, value % unit, width = decimals as usize),
        }
    }
}

/// Why a load is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// No workers, or a group whose count or batch is outside its range.
    #[error("worker group {group}: batch {batch} is outside 1..={max_batch}, or {count} workers are none")]
    System {
        /// Which group, from 0; 0 with a count of 0 if there is none.
        group: usize,
        /// Batch size asked for.
        batch: usize,
        /// Largest batch of the profile.
        max_batch: usize,
        /// Workers asked for.
        count: usize,
    },
    /// In the long run more mandatory requests come than the workers can serve.
    #[error("{demand_per_s} mandatory requests/s are above the {capacity_per_s} requests/s of the workers")]
    Rate {
        /// Mandatory requests a second, rounded up.
        demand_per_s: PerSecond,
        /// Requests a second in full batches, rounded down.
        capacity_per_s: PerSecond,
    },
    /// A burst cannot be served in time; the binding instant says which.
    #[error(
        "{} mandatory requests within {} need up to {}, but {} is all there is",
        .0.backlog, .0.delta, .0.lhs, .0.rhs
    )]
    Burst(
        /// The instant at which the inequality fails by most.
        Binding,
    ),
    /// The load is so close to capacity that its busy period goes on beyond what is looked at.
    #[error("the busy period holds more than {MAX_RISES} instants to test: lower the load a little")]
    Horizon,
    /// More stalls than are kept back for may fall into one busy period.
    #[error("stalls must be so rare that a window of them covers {needed}, but it is {window}")]
    Stalls {
        /// A busy period behind a delay of a deadline, and what may end late after it; the longest of all spans if its end is
        /// not seen within a minute.
        needed: Span,
        /// The window that is declared.
        window: Span,
    },
    /// A constraint leaves no room for what stalls can make miss.
    #[error(
        "one stall can make {misses} requests that must be served miss, for which {constraint} has no room"
    )]
    Absorbed {
        /// The constraint.
        constraint: Constraint,
        /// How many requests that must be served one stall can make miss.
        misses: u64,
    },
    /// Requests may be missed for longer behind a stall than is counted on.
    #[error("behind a stall the workers need {needed} to catch up, but {recovery} is what is counted on")]
    Recovery {
        /// How long it takes; the longest of all spans if its end is not seen in time.
        needed: Span,
        /// What is counted on.
        recovery: Span,
    },
    /// Stalls are to be absorbed by workers of several kinds.
    #[error("stalls can be absorbed by workers of one kind only")]
    Kinds,
}
