//! `weir-lab`: what is done with Weir before and beside serving: profiles, plans, certificates, simulation, load, pictures,
//! and the pages of the manual. `weir` leads on to it, so that people need know one command.

// A failed `println!` panics, and so does a failed `eprintln!`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod commands;
#[cfg(test)]
mod garbled;
mod load;
mod manual;
mod train;
mod tune;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    weir::commands::prepare();
    let ended = commands::Cli::parse().run();
    let refuses = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<sim::ReplayError>()
            || matches!(cause.downcast_ref(), Some(sim::AcceptError::Refused { .. }))
    };
    weir::commands::conclude(ended, weir_os::pipe::finish(), refuses)
}
