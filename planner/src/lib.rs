//! What is worked out ahead: abstract problems, the certificates that answer them, and their checker.
#![forbid(unsafe_code)]

pub mod certificate;
pub mod problem;

pub use certificate::{Certificate, Claim};
pub use problem::{Problem, ProblemError};
