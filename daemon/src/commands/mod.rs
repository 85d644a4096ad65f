//! The command line: what belongs to serving is done here, one file a subcommand; all else is handed to `weir-lab`.

mod check;
mod events;
mod exit;
mod lab;
mod reload;
mod serve;
mod status;
pub mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use weir_os::{notice, pipe, realtime};

pub use events::Line;
pub use exit::{conclude, stop_on_signals};
pub use lab::{COMMANDS as LAB, find};

/// Every command, in the order in which help lists them.
const ORDER: [&str; 21] = [
    "inspect",
    "import",
    "check",
    "profile",
    "plan",
    "train",
    "certify",
    "verify",
    "replay",
    "simulate",
    "accept",
    "serve",
    "reload",
    "infer",
    "status",
    "events",
    "top",
    "load",
    "demo",
    "models",
    "completions",
];

/// Serves inference under weakly-hard deadlines on one edge box.
#[derive(Parser)]
#[command(name = "weir", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a configuration file; says what is wrong with which field
    Check(check::Args),
    /// Serve requests on the Unix socket
    Serve(serve::Args),
    /// Have a running daemon take its configuration over anew, while it serves
    Reload(reload::Args),
    /// Show a running daemon's services, streams and safe mode
    Status(status::Args),
    /// Print a running daemon's changes of safe mode and warnings, a line each
    Events(events::Args),
    /// Run an engine for a daemon, which starts this by itself
    #[command(hide = true)]
    EngineWorker {
        /// What it is seen as: service and worker
        _name: String,
    },
}

/// A running daemon, reached through its socket.
#[derive(clap::Args)]
pub struct Socket {
    /// The daemon's socket
    #[arg(long, value_name = "PATH", env = "WEIR_SOCKET", hide_env_values = true, default_value = weir_client::DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

/// The program `weir`.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let ended = if let Some(arguments) = lab::asked_for(&arguments) {
        lab::become_lab(arguments)
    } else {
        prepare();
        let matches = command_line(lab::stubs()).get_matches_from(arguments);
        Cli::from_arg_matches(&matches).map_err(|error| error.exit()).and_then(Cli::run)
    };
    conclude(ended, pipe::finish(), |_| false)
}

/// What must be settled before any thread starts, alike when measuring and when serving.
pub fn prepare() {
    weir_engine::forbid_telemetry();
    weir_engine::settle_cuda();
    realtime::keep_memory();
}

/// The whole command line, with the commands of `weir-lab`.
pub fn command_line(lab: impl IntoIterator<Item = clap::Command>) -> clap::Command {
    let all = Cli::command().subcommands(lab);
    ORDER.iter().fold(all, |all, name| all.mut_subcommand(name, |command| command.display_order(place(name))))
}

/// Where help lists a command.
pub fn place(name: &str) -> usize {
    ORDER.iter().position(|listed| *listed == name).unwrap_or(ORDER.len())
}

impl Cli {
    /// Runs the subcommand; its exit code, or the error to print.
    fn run(self) -> Result<ExitCode> {
        match &self.command {
            Command::Serve(args) => notice::start(args.log.clone()),
            // It closes what it has inherited first.
            Command::EngineWorker { .. } => {}
            _ => notice::start(notice::default()),
        }
        match self.command {
            Command::Check(args) => {
                pipe::end_with_reader();
                check::run(&args)
            }
            Command::Serve(args) => serve::run(&args),
            Command::Reload(args) => reload::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Events(args) => events::run(&args),
            Command::EngineWorker { .. } => weir_engine::engine_worker().map(|()| ExitCode::SUCCESS),
        }
    }
}
