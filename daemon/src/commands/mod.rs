//! The command line: one file a subcommand, each a thin layer over the room that does the work.

mod accept;
mod certify;
mod check;
mod completions;
mod demo;
mod events;
mod exit;
mod infer;
mod load;
mod man;
mod models;
pub(crate) mod plan;
mod profile;
mod reload;
mod replay;
mod serve;
mod simulate;
mod status;
mod top;
mod verify;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::engine::engine_worker;
use crate::{notice, pipe};

pub(crate) use exit::conclude;
pub(crate) use profile::profile_missing;

/// Serves inference under weakly-hard deadlines on one edge box.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a configuration file; says what is wrong with which field
    Check(check::Args),
    /// Measure how long each batch of each model takes on this machine
    Profile(profile::Args),
    /// Compute what can be promised, and why; refuse what cannot
    Plan(plan::Args),
    /// Write down what can be promised, or what breaks it, as a certificate that anyone can check
    Certify(certify::Args),
    /// Check a certificate with a program of its own
    Verify(verify::Args),
    /// Run the arrivals that a refusal shows through the scheduler
    Replay(replay::Args),
    /// Run given arrivals through the scheduler, in virtual time
    Simulate(simulate::Args),
    /// Hold what a scheduler did against the model in which its promise is proved
    Accept(accept::Args),
    /// Serve requests on the Unix socket
    Serve(serve::Args),
    /// Have a running daemon take its configuration over anew, while it serves
    Reload(reload::Args),
    /// Send one request and print its answer
    Infer(infer::Args),
    /// Show a running daemon's services, streams and safe mode
    Status(status::Args),
    /// Print a running daemon's changes of safe mode and warnings, a line each
    Events(events::Args),
    /// Watch a running daemon's services in the terminal
    Top(top::Args),
    /// Load a service at a fixed pace; judge what became of every request
    Load(load::Args),
    /// See a promise kept, broken into safe mode by overload, and restored: about a minute, nothing to set up
    Demo(demo::Args),
    /// Measure the accuracy of the models of a manifest on its held-out data
    Models(models::Args),
    /// Print what a shell needs to complete this command line
    Completions(completions::Args),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(man::Args),
    /// Run an engine for a daemon, which starts this by itself
    #[command(hide = true)]
    EngineWorker {
        /// What it is seen as: service and worker
        _name: String,
    },
}

/// A running daemon, reached through its socket.
#[derive(clap::Args)]
pub(crate) struct Socket {
    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = weir_client::DEFAULT_SOCKET)]
    pub(crate) socket: PathBuf,
}

impl Cli {
    /// Runs the subcommand; its exit code, or the error to print.
    pub(crate) fn run(self) -> Result<ExitCode> {
        match &self.command {
            Command::Serve(args) => notice::start(args.log.clone()),
            // It closes what it has inherited first.
            Command::EngineWorker { .. } => {}
            _ => notice::start(notice::default()),
        }
        match &self.command {
            // They have sockets to write to.
            Command::Infer(_)
            | Command::Load(_)
            | Command::Demo(_)
            | Command::Serve(_)
            | Command::Reload(_)
            | Command::EngineWorker { .. }
            | Command::Status(_)
            | Command::Events(_)
            | Command::Top(_) => {}
            _ => pipe::end_with_reader(),
        }
        match self.command {
            Command::Check(args) => check::run(&args),
            Command::Profile(args) => profile::run(&args),
            Command::Plan(args) => plan::run(&args),
            Command::Certify(args) => certify::run(&args),
            Command::Verify(args) => verify::run(&args),
            Command::Replay(args) => replay::run(&args),
            Command::Simulate(args) => simulate::run(&args),
            Command::Accept(args) => accept::run(&args),
            Command::Serve(args) => serve::run(&args),
            Command::Reload(args) => reload::run(&args),
            Command::Infer(args) => infer::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Events(args) => events::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Load(args) => load::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Models(args) => models::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
            Command::EngineWorker { .. } => engine_worker().map(|()| ExitCode::SUCCESS),
        }
    }
}

/// An error with its causes, but for those that its own text has told already.
pub(crate) fn whole(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |told, cause| match cause.to_string() {
        cause if cause.starts_with(&told) => cause,
        cause if told.contains(&cause) => told,
        cause => format!("{told}: {cause}"),
    })
}
