//! Instants in the unit of a problem, exact both ways.

use planner::Number;
use planner::problem::raw::Unit;
use rt_core::{Instant, Span};
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

/// The latest arrival, in nanoseconds (292 years): what follows from it still has instants of its own.
pub(crate) const LATEST: u64 = u64::MAX / 2;

/// The time of an arrival, or why it is none.
pub(crate) fn of_arrival(number: Number, unit: Unit) -> Result<Span, String> {
    let span = number.to_span(unit).map_err(|e| e.to_string())?;
    let latest = Span::from_nanos(LATEST);
    if span > latest {
        return Err(format!("must be at most {}", Number::of_span(latest, unit)));
    }
    Ok(span)
}

/// `nanos` after the origin.
pub(crate) const fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// A span of `nanos`.
#[cfg(test)]
pub(crate) const fn ns(nanos: u64) -> Span {
    Span::from_nanos(nanos)
}
