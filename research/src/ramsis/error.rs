//! Why inputs or a file are refused: the one error of policies.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

/// Why no policy can be made of inputs, or of a file.
#[derive(Debug, thiserror::Error)]
pub enum RamsisError {
    /// A value outside its range.
    #[error("{field} = {value}: {limit}")]
    Value {
        /// Which one, such as `models[2].latencies[3]`.
        field: String,
        /// Its value.
        value: String,
        /// What it must be.
        limit: String,
    },
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is too long.
    #[error("no policy: {bytes} bytes or more, at most {} are read", super::file::MAX_BYTES)]
    Size {
        /// How long it is at least.
        bytes: u64,
    },
    /// Not JSON, or not the fields of a policy.
    #[error("no policy: {0}")]
    Json(#[from] serde_json::Error),
    /// A version that this program does not read.
    #[error(
        "weir_ramsis_policy is {found}, this program reads {}: make the policy anew",
        super::file::VERSION
    )]
    Version {
        /// Which one.
        found: u32,
    },
    /// The contents were changed after the file was made.
    #[error(
        "the digest is {written}, the contents have {computed}: the policy was changed after it was made"
    )]
    Digest {
        /// The digest in the file.
        written: String,
        /// That of its contents.
        computed: String,
    },
    /// The policy was made from other inputs than those at hand.
    #[error(
        "the policy was made from inputs with the hash {written}, those here have {expected}: make it anew"
    )]
    Inputs {
        /// The hash in the file.
        written: String,
        /// The hash of the inputs at hand.
        expected: String,
    },
}

/// The error for `field`.
pub(super) fn refuse(field: impl Into<String>, value: impl Display, limit: impl Display) -> RamsisError {
    RamsisError::Value { field: field.into(), value: value.to_string(), limit: limit.to_string() }
}

/// `value` if it is in `least..=most`; the smallest positive number as `least` means above 0.
pub(super) fn within(
    field: impl Into<String>,
    value: f64,
    least: f64,
    most: f64,
) -> Result<f64, RamsisError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let limit = if least == f64::MIN_POSITIVE {
        format!("must be above 0 and at most {most}")
    } else {
        format!("must be {least} to {most}")
    };
    Err(refuse(field, value, limit))
}
