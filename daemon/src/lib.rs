//! The daemon behind `weir serve`: sockets, notification channels, reload, and the watch on the machine around the
//! serving core; and the light half of the command line, which `weir-lab` completes.

#![allow(missing_docs, reason = "of these programs alone: a field whose name says it all has no sentence")]
// A failed `println!` panics, and so does a failed `eprintln!`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod commands;
mod controller;
mod daemon;
pub mod errors;
mod hardware;
mod loading;
mod local;
mod notifications;
mod oip;
mod overview;
mod placement;
mod reload;
mod reloads;
#[cfg(test)]
mod rooms;
mod socket;
