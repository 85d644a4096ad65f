//! What the rooms of the daemon want of the operating system: the clock, locks, priorities, the standard streams, the log.

// A failed `println!` panics, and so does a failed `eprintln!`.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![allow(missing_docs, reason = "of the daemon alone: a field whose name says it all has no sentence")]

pub mod backoff;
pub mod clock;
pub mod counters;
pub mod limit;
pub mod locks;
pub mod notice;
pub mod panics;
pub mod pi_mutex;
pub mod pipe;
pub mod realtime;
