//! What computes: engines and their models, in this process or in one of their own, and the manifest that names the
//! models.

// A failed `println!` panics, and so does a failed `eprintln!`.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![allow(missing_docs, reason = "of the daemon alone: a field whose name says it all has no sentence")]

pub mod adapter;
mod engine;
pub mod idx;
mod independence;
pub mod inspect;
pub mod manifest;

pub use engine::*;
pub use independence::mixed_output;
