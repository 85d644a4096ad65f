//! `weir`: one binary for the operator's whole day: check, profile, plan, serve, look, load, demonstrate.

// A failed `println!` panics, and so does a failed `eprintln!`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod backoff;
mod certificate;
mod clock;
mod commands;
mod config;
mod daemon;
mod doors;
mod engine;
#[cfg(test)]
mod garbled;
mod hardware;
mod idx;
mod load;
mod manager;
mod manifest;
mod manual;
mod notice;
mod pi_mutex;
mod pipe;
mod plan;
mod profile;
mod realtime;
mod reload;
mod service;
mod socket;
mod status;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    engine::forbid_telemetry();
    engine::settle_cuda();
    realtime::keep_memory();
    let ended = commands::Cli::parse().run();
    commands::conclude(ended, pipe::finish())
}
