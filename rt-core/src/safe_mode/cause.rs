//! What may break an assumption, and how bad that is, in numbers that never change.

use core::fmt;

/// Why safe mode was raised. The numbers are stable; 0 is never raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// More requests than a stream declared. Evidence: allowed, seen, window.
    ArrivalExcess = 1,
    /// A batch took longer than its profile. Evidence: `P(b)` and the time seen, in nanoseconds; then 0, or where services share
    /// workers and the batch was of another one, the number of that service from 1.
    ServiceOverrun = 2,
    /// Dispatch came later than the guard allows, or the way to and from the engine made a batch longer than
    /// `P(b)`. Evidence: time allowed and seen, in nanoseconds.
    LateDispatch = 3,
    /// A worker was lost or its engine failed. Evidence: workers configured and left.
    WorkerLost = 4,
    /// A stream's constraint was violated, whatever the reason. Evidence: `m`, `m + 1`, `K`.
    ConstraintViolated = 5,
    /// The hardware is not as profiled. Evidence: in `window` what about it, a number of the caller's, and of that
    /// the value profiled and seen.
    ProfileStale = 6,
    /// An operator asked for it.
    Operator = 7,
    /// A warning: a stream has one miss left, or none. Evidence: `m`, misses left, `K`.
    MissesLow = 8,
    /// A warning: more comes than nine tenths of what is certified. Evidence: requests, seen, window.
    RateHigh = 9,
    /// A result became more requests of a stage than declared. Evidence: allowed, seen, and of which stage from 0.
    FanOutExcess = 10,
}

/// How bad it is. The numbers are stable; 0 is never told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Severity {
    /// Every assumption holds as far as can be seen, with room to spare.
    Normal = 1,
    /// The promises hold, perhaps weaker ones that streams are told of, and little is missing until they do not.
    Warning = 2,
    /// Safe mode: an assumption broke, and the promises are suspended.
    Safe = 3,
    /// No worker is left: nothing is answered.
    Lost = 4,
}

impl Severity {
    /// Whether promises do not stand.
    #[must_use]
    pub fn is_suspended(self) -> bool {
        self >= Self::Safe
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
            Self::Safe => "safe-mode",
            Self::Lost => "lost",
        })
    }
}

impl Cause {
    /// How bad it is by itself.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::MissesLow | Self::RateHigh => Severity::Warning,
            _ => Severity::Safe,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ArrivalExcess => "arrival-excess",
            Self::ServiceOverrun => "service-overrun",
            Self::LateDispatch => "late-dispatch",
            Self::WorkerLost => "worker-lost",
            Self::ConstraintViolated => "constraint-violated",
            Self::ProfileStale => "profile-stale",
            Self::Operator => "operator",
            Self::MissesLow => "misses-low",
            Self::RateHigh => "rate-high",
            Self::FanOutExcess => "fan-out-excess",
        })
    }
}
