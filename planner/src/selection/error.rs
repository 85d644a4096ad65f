//! Why no tables can be made of inputs.

use std::fmt::Display;

use rt_core::{ConfigError, SelectError, ShieldError, StreamError};

/// Why no tables can be made of inputs.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// A value outside its range.
    #[error("{field} = {value}: {limit}")]
    Value {
        /// Which one.
        field: String,
        /// Its value.
        value: String,
        /// What it must be.
        limit: String,
    },
    /// A value that the scheduler cannot have.
    #[error(transparent)]
    Scheduler(#[from] ConfigError),
    /// A stream that it does not take.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Workers or a latency that no shield can be computed for.
    #[error(transparent)]
    Shield(#[from] ShieldError),
    /// A table that it cannot read.
    #[error(transparent)]
    Table(#[from] SelectError),
}

impl SelectionError {
    pub(super) fn value(field: impl Into<String>, value: impl Display, limit: impl Into<String>) -> Self {
        Self::Value { field: field.into(), value: value.to_string(), limit: limit.into() }
    }
}

/// `value` if it is in `least..=most`, the latter being the largest number if there is no such limit.
pub(super) fn within(
    field: impl Into<String>,
    value: f64,
    least: f64,
    most: f64,
) -> Result<f64, SelectionError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let limit = match most {
        f64::MAX => format!("must be at least {least}"),
        _ => format!("must be {least} to {most}"),
    };
    Err(SelectionError::value(field, value, limit))
}
