//! Values of an experiment, checked as they are read: an error shows the line, the value and its limit.

use rt_core::Span;
use serde::Deserialize;

/// A time such as `20ms`, above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Time(pub(super) Span);

/// A share, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Share(pub(super) f64);

/// A number above 0.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Positive(pub(super) f64);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let duration = humantime::parse_duration(&text).map_err(|error| format!("{text}: {error}"))?;
        match u64::try_from(duration.as_nanos()) {
            Ok(nanos) if nanos > 0 => Ok(Self(Span::from_nanos(nanos))),
            _ => Err(format!("{text}: must be above 0, and of at most 584 years")),
        }
    }
}

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&value) { Ok(Self(value)) } else { Err(format!("{value}: must be in 0..=1")) }
    }
}

impl TryFrom<f64> for Positive {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        if value > 0.0 && value.is_finite() {
            Ok(Self(value))
        } else {
            Err(format!("{value}: must be above 0"))
        }
    }
}
