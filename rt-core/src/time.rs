//! Nanosecond instants and spans: every input of the scheduler carries one of the first.

use core::fmt;
use core::ops::{Add, Sub};

/// The longest span that any declaration (deadline, window, period, batch time) may state: one hour.
/// With [`crate::MAX_COUNT`] it keeps every product of the admission test far inside 128 bits.
pub const MAX_SPAN: Span = Span::from_nanos(3_600_000_000_000);

/// A point on the caller's monotonic clock, in nanoseconds from an origin of the caller's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of `micros` microseconds, saturating.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// A span of `millis` milliseconds, saturating.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// The span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in seconds, for people.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - other`; zero if `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Saturating: an instant past the end of the clock (584 years) is the end of the clock.
impl Add<Span> for Instant {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// Saturating: an instant before the origin is the origin.
impl Sub<Span> for Instant {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// Saturating.
impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// In the largest unit that keeps at least one digit before the point: `1.5 ms`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1e3, "µs"),
            1_000_000..1_000_000_000 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        let value = self.0 as f64 / unit;
        let digits = if value < 10.0 { 2 } else { 1 };
        write!(f, "{value:.digits$} {name}")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::from_nanos(5) - Span::from_nanos(9), Instant::ZERO);
        assert_eq!(Instant::from_nanos(u64::MAX) + Span::from_nanos(1), Instant::from_nanos(u64::MAX));
        assert_eq!(Instant::from_nanos(5).since(Instant::from_nanos(9)), Span::ZERO);
    }

    #[test]
    fn spans_read_well() {
        assert_eq!(Span::from_nanos(999).to_string(), "999 ns");
        assert_eq!(Span::from_micros(1_500).to_string(), "1.50 ms");
        assert_eq!(Span::from_millis(50).to_string(), "50.0 ms");
    }
}
