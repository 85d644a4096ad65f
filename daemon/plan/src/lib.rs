//! What is worked out before anything is served: the configuration, the models it names, how long their batches take
//! here, what can be promised by that, and the certificate of it.

// A failed `println!` panics, and so does a failed `eprintln!`.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![allow(missing_docs, reason = "of the daemon alone: a field whose name says it all has no sentence")]

pub mod certificate;
pub mod config;
pub mod models;
pub mod place;
pub mod placed;
pub mod plan;
pub mod problem;
pub mod profile;
pub mod text;
