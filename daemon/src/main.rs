//! `weir`: one binary for the operator's whole day: check, profile, plan, serve, look, load, demonstrate.

// A failed `println!` panics.
#![warn(clippy::print_stdout)]

mod backoff;
mod certificate;
mod clock;
mod commands;
mod config;
mod daemon;
mod doors;
mod engine;
mod hardware;
mod idx;
mod load;
mod manager;
mod manifest;
mod manual;
mod pipe;
mod plan;
mod profile;
mod realtime;
mod reload;
mod service;
mod socket;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    engine::forbid_telemetry();
    realtime::keep_memory();
    let ended = commands::Cli::parse().run();
    commands::conclude(ended, pipe::finish())
}
