//! The commands of `weir-lab`, one file each: a thin layer over the room that does the work. People call them as `weir`,
//! which leads here.

mod accept;
mod certify;
mod completions;
mod demo;
mod import;
mod infer;
mod inspect;
mod load;
mod man;
mod models;
mod place;
mod plan;
mod profile;
mod replay;
mod simulate;
mod top;
mod train;
mod tune;
mod verify;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use weir_os::{notice, pipe};

/// What is done with Weir before and beside serving.
#[derive(Parser)]
#[command(name = "weir", bin_name = "weir", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what an ONNX file wants and gives
    Inspect(inspect::Args),
    /// Write a manifest, and a configuration to begin with, from ONNX files
    Import(import::Args),
    /// Measure how long each batch of each model takes on this machine
    Profile(profile::Args),
    /// Compute what can be promised, and why; refuse what cannot
    Plan(plan::Args),
    /// Choose which variant of which service runs on which devices, so that every promise is kept
    Place(place::Args),
    /// Propose, from a recording, what the streams of a service should declare of their arrivals
    Tune(tune::Args),
    /// Train a network that selects among the variants of a service, in simulated time, and compare it
    Train(train::Args),
    /// Write down what can be promised, or what breaks it, as a certificate that anyone can check
    Certify(certify::Args),
    /// Check a certificate with a program of its own
    Verify(verify::Args),
    /// Replay a certificate's counterexample in the scheduler
    Replay(replay::Args),
    /// Run given arrivals through the scheduler, in virtual time
    Simulate(simulate::Args),
    /// Hold what a scheduler did against the model in which its promise is proved
    Accept(accept::Args),
    /// Send one request and print its answer
    Infer(infer::Args),
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
    /// Run an engine for a profile, which starts this by itself
    #[command(hide = true)]
    EngineWorker {
        /// What it is seen as
        _name: String,
    },
}

/// A path as a word of a command line that is to be copied.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "_-./+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The whole command line of `weir`, for its manual and for shells.
fn whole() -> clap::Command {
    weir::commands::command_line(lab())
}

/// The commands of this program that `weir` leads on to.
fn lab() -> Vec<clap::Command> {
    let own = Cli::command();
    own.get_subcommands().filter(|command| command.get_name() != "engine-worker").cloned().collect()
}

impl Cli {
    /// Runs the subcommand; its exit code, or the error to print.
    pub(crate) fn run(self) -> Result<ExitCode> {
        // An engine's process closes what it has inherited first.
        if !matches!(self.command, Command::EngineWorker { .. }) {
            notice::start(notice::default());
        }
        match &self.command {
            // What they do for others is not over when nobody reads what they print.
            Command::Infer(_)
            | Command::Load(_)
            | Command::Demo(_)
            | Command::EngineWorker { .. }
            | Command::Top(_) => {}
            _ => pipe::end_with_reader(),
        }
        match self.command {
            Command::Inspect(args) => inspect::run(&args),
            Command::Import(args) => import::run(&args),
            Command::Profile(args) => profile::run(&args),
            Command::Plan(args) => plan::run(&args),
            Command::Place(args) => place::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Train(args) => train::run(&args),
            Command::Certify(args) => certify::run(&args),
            Command::Verify(args) => verify::run(&args),
            Command::Replay(args) => replay::run(&args),
            Command::Simulate(args) => simulate::run(&args),
            Command::Accept(args) => accept::run(&args),
            Command::Infer(args) => infer::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Load(args) => load::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Models(args) => models::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
            Command::EngineWorker { .. } => weir_engine::engine_worker().map(|()| ExitCode::SUCCESS),
        }
    }
}

/// The place, among services of these names, of the one that `argument` says is `name`.
fn place_of<'a>(argument: &str, name: &str, names: impl Iterator<Item = &'a str>) -> Result<usize> {
    let names: Vec<_> = names.collect();
    let place = names.iter().position(|one| *one == name);
    place.with_context(|| format!("{argument}{name}: must be one of the services, {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weir_leads_on_to_these_commands_and_says_of_each_what_it_does() {
        let visible = lab().into_iter().filter(|command| !command.is_hide_set());
        let own: Vec<_> = visible
            .map(|command| (command.get_name().to_owned(), command.get_about().expect("a line").to_string()))
            .collect();
        let known: Vec<_> =
            weir::commands::LAB.iter().map(|&(name, about)| (name.to_owned(), about.to_owned())).collect();
        assert_eq!(own, known);
        whole().debug_assert();
    }

    #[test]
    fn a_recording_holds_as_many_arrivals_as_a_simulation_reads() {
        assert_eq!(weir_plan::config::MAX_RECORDED, sim::MAX_ARRIVALS as u64);
    }
}
