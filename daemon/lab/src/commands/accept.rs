//! `weir accept LOG`: whether what a scheduler did is a run of the model in which its promise is proved.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use planner::verify::Prover;
use sim::Log;

use super::certify::read_problem;
use weir_os::pipe::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Log of `weir simulate --log`, or the recording of a service
    log: PathBuf,
    /// The abstract problem that it is about
    #[arg(long, value_name = "FILE")]
    problem: PathBuf,
    /// The program that `make proof` builds
    #[arg(long, value_name = "PROGRAM", default_value = "weir-proved")]
    proved: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let name = || args.log.display().to_string();
    let problem = read_problem(&args.problem)?;
    let log = Log::read(&problem, File::open(&args.log).with_context(name)?).with_context(name)?;
    log.accept(&problem, &Prover::new(&args.proved)).with_context(name)?;
    say!("{}: a run of the model: {} arrivals, starts and ends", name(), log.entries.len());
    Ok(ExitCode::SUCCESS)
}
