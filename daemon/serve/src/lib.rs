//! The serving core: services at work, from a request in its slot to what became of it. It knows no socket, no
//! notification channel and no command line: whoever starts a service says where replies go and who hears of it.

// A failed `println!` panics, and so does a failed `eprintln!`.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![allow(missing_docs, reason = "of the daemon alone: a field whose name says it all has no sentence")]

pub mod announcement;
pub mod cause;
pub mod manager;
pub mod out;
pub mod served;
pub mod service;
pub mod status;
