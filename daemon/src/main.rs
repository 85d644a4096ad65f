//! `weir`: one binary for the operator's whole day: check, profile, plan, serve, look, load, demonstrate.

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
mod manifest;
mod pipe;
mod plan;
mod profile;
mod realtime;
mod service;
mod socket;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    realtime::keep_memory();
    match commands::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir: {}", commands::whole(&error));
            ExitCode::FAILURE
        }
    }
}
