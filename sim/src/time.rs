//! Instants in the unit of a problem, exact both ways.

use planner::Number;
use planner::problem::raw::Unit;
use rt_core::Instant;
use serde::{Serialize, Serializer};

/// An instant, written as a number of its unit: a whole one without decimals, any other with as many as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// From the origin of the arrivals.
    pub instant: Instant,
    /// What it is written in.
    pub unit: Unit,
}

impl Time {
    /// The number of units.
    #[must_use]
    pub fn number(self) -> Number {
        Number::of_span(self.instant.since(Instant::ZERO), self.unit)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.number().serialize(serializer)
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = match self.unit {
            Unit::Ns => "ns",
            Unit::Us => "µs",
            Unit::Ms => "ms",
            Unit::S => "s",
        };
        write!(f, "{} {unit}", self.number())
    }
}

/// `nanos` after the origin.
pub(crate) const fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// A span of `nanos`.
#[cfg(test)]
pub(crate) const fn ns(nanos: u64) -> rt_core::Span {
    rt_core::Span::from_nanos(nanos)
}
