//! What a process may hold: every limit, and the error that names it.

use std::fmt::Display;
use std::sync::Arc;

use rt_core::{Instant, MAX_COUNT, Span};

use super::phases::Course;
use super::ticks::{Ticks, tidy};
use super::{ModulatedState, Process, playback};

/// The least rate, in requests a second: one in 31 years.
pub const MIN_RATE: f64 = 1e-9;
/// The largest rate, in requests a second: one a nanosecond.
pub const MAX_RATE: f64 = 1e9;
/// The least shape of Gamma gaps: a coefficient of variation of 32.
pub const MIN_SHAPE: f64 = 1e-3;
/// The largest shape of Gamma gaps: a coefficient of variation of 0.001.
pub const MAX_SHAPE: f64 = 1e6;
/// The most jitter, in periods; no less than an arrival bound may have.
pub const MAX_JITTER: f64 = MAX_COUNT as f64;
/// The largest rate of a state or interval before it is scaled.
pub const MAX_WEIGHT: f64 = 1e18;
/// The longest mean time in a state, in seconds: 31 years.
pub const MAX_DWELL_S: f64 = 1e9;
/// The most states or intervals from one request to the next on average: all of them are stepped through.
pub const MAX_SWITCHES: f64 = 1e6;

/// Why a process has no arrivals.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: must be {limit}")]
pub struct ProcessError {
    /// What is wrong: a field of [`Process`], the rate, or what follows from both.
    pub field: String,
    /// Its value.
    pub value: String,
    /// What it must be.
    pub limit: String,
}

impl ProcessError {
    pub(super) fn new(field: impl Display, value: impl Display, limit: impl Display) -> Self {
        Self { field: field.to_string(), value: value.to_string(), limit: limit.to_string() }
    }
}

impl Process {
    /// Checks all that does not depend on the rate.
    pub(super) fn check(&self) -> Result<(), ProcessError> {
        match self {
            Self::Constant | Self::Poisson | Self::Adversarial(_) => Ok(()),
            Self::Periodic { jitter } => within("jitter", *jitter, 0.0, MAX_JITTER),
            Self::Gamma { shape } => within("shape", *shape, MIN_SHAPE, MAX_SHAPE),
            Self::Bursts { size } if *size == 0 => Err(ProcessError::new("size", size, "1 at least")),
            Self::Bursts { .. } => Ok(()),
            Self::MarkovModulated { states } => {
                for (i, state) in states.iter().enumerate() {
                    if !(state.dwell_s > 0.0 && state.dwell_s <= MAX_DWELL_S) {
                        let limit = format_args!("above 0, at most {MAX_DWELL_S:e}");
                        return Err(ProcessError::new(
                            format_args!("states[{i}].dwell_s"),
                            state.dwell_s,
                            limit,
                        ));
                    }
                }
                rates("states", ".rate", states.iter().map(|state| state.rate))
            }
            Self::Trace(trace) => check_trace(trace),
            Self::Resampled { trace, row } => {
                within("row", *row, 1.0, MAX_COUNT as f64).and_then(|()| check_trace(trace))
            }
            Self::Rates { interval, .. } if *interval == Span::ZERO => {
                Err(ProcessError::new("interval", interval, "1 ns at least"))
            }
            Self::Rates { rates: list, .. } => rates("rates", "", list.iter().copied()),
        }
    }
}

/// `1/rate` in nanoseconds, with few enough digits to add up exactly.
pub(super) fn period(rate_per_s: f64) -> Result<f64, ProcessError> {
    within("rate", rate_per_s, MIN_RATE, MAX_RATE)?;
    Ok(tidy(1e9 / rate_per_s))
}

/// `nanos`, which the clock must hold.
pub(super) fn ticks(field: &str, nanos: f64) -> Result<Ticks, ProcessError> {
    Ticks::of_nanos(nanos).ok_or_else(|| beyond(field, nanos))
}

/// The error that a time in nanoseconds is which the clock does not hold.
pub(super) fn beyond(field: &str, nanos: f64) -> ProcessError {
    ProcessError::new(field, format_args!("{nanos:e} ns"), format_args!("at most {} ns", u64::MAX))
}

/// The course of states for a mean gap of `mean` nanoseconds.
pub(super) fn modulated(states: &[ModulatedState], mean: f64) -> Result<Course, ProcessError> {
    let nanos = |state: &ModulatedState| state.dwell_s * 1e9;
    let whole: f64 = states.iter().map(nanos).sum();
    let requests: f64 = states.iter().map(|state| state.rate * nanos(state)).sum();
    // The long run is in each state for a share of its dwell time in all of them.
    let unit = whole / requests / mean;
    switches("dwell_s", states.len() as f64 * (mean / whole))?;
    let scaled = |(i, state): (usize, &ModulatedState)| {
        scaled(format_args!("states[{i}].rate"), state.rate * unit).map(|rate| (rate, nanos(state)))
    };
    let states = states.iter().enumerate().map(scaled).collect::<Result<_, _>>()?;
    Ok(Course::Modulated { states, index: 0 })
}

/// The course of a series of rates for a mean gap of `mean` nanoseconds.
pub(super) fn series(rates: &Arc<[f64]>, interval: Span, mean: f64) -> Result<Course, ProcessError> {
    let nanos = interval.as_nanos() as f64;
    switches("interval", mean / nanos)?;
    let unit = rates.len() as f64 / rates.iter().sum::<f64>() / mean;
    for (i, rate) in rates.iter().enumerate() {
        scaled(format_args!("rates[{i}]"), rate * unit)?;
    }
    let interval = ticks("interval", nanos)?;
    Ok(Course::Series { rates: rates.clone(), unit, interval, nanos, index: 0 })
}

/// A rate in requests a nanosecond, after scaling.
fn scaled(field: impl Display, rate: f64) -> Result<f64, ProcessError> {
    // A rate of just that much may be rounded up.
    if rate <= MAX_RATE / 1e9 * (1.0 + 1e-9) {
        return Ok(rate);
    }
    let limit = format_args!("at most {MAX_RATE:e} a second, scaled to the rate");
    Err(ProcessError::new(field, format_args!("{:e} a second", rate * 1e9), limit))
}

fn switches(field: &str, from_one_to_the_next: f64) -> Result<(), ProcessError> {
    if from_one_to_the_next <= MAX_SWITCHES {
        return Ok(());
    }
    let value = format_args!("so short that {from_one_to_the_next:e} pass from one request to the next");
    Err(ProcessError::new(field, value, format_args!("so long that at most {MAX_SWITCHES:e} do")))
}

fn within(field: &str, value: f64, least: f64, most: f64) -> Result<(), ProcessError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ProcessError::new(field, shown(value), format_args!("in {}..={}", shown(least), shown(most))))
}

/// With an exponent where that is shorter.
fn shown(number: f64) -> String {
    let (plain, exponent) = (number.to_string(), format!("{number:e}"));
    if exponent.len() < plain.len() { exponent } else { plain }
}

/// Rates before they are scaled: `list[i]part`, each in `0..=MAX_WEIGHT`, not all 0.
fn rates(list: &str, part: &str, all: impl ExactSizeIterator<Item = f64>) -> Result<(), ProcessError> {
    if all.len() == 0 {
        return Err(ProcessError::new(list, "none", "1 at least"));
    }
    let mut sum = 0.0;
    for (i, rate) in all.enumerate() {
        if !(0.0..=MAX_WEIGHT).contains(&rate) {
            let limit = format_args!("in 0..={MAX_WEIGHT:e}");
            return Err(ProcessError::new(format_args!("{list}[{i}]{part}"), shown(rate), limit));
        }
        sum += rate;
    }
    if sum > 0.0 {
        Ok(())
    } else {
        Err(ProcessError::new(format_args!("{list}{part}"), "0 in sum", "above 0"))
    }
}

fn check_trace(trace: &[Instant]) -> Result<(), ProcessError> {
    if let Some(i) = trace.windows(2).position(|pair| pair[1] < pair[0]) {
        let (before, at) = (trace[i].as_nanos(), trace[i + 1].as_nanos());
        let limit = format_args!("at least {before} ns, that of the request before");
        return Err(ProcessError::new(format_args!("trace[{}]", i + 1), format_args!("{at} ns"), limit));
    }
    if playback::mean_rate(trace).is_some() {
        return Ok(());
    }
    let value = match trace.len() {
        0 => "0 requests".into(),
        len => format!("{len} requests in 0 ns"),
    };
    Err(ProcessError::new("trace", value, "2 at least, not all at once"))
}
