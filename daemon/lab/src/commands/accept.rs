//! `weir accept LOG`: whether what a scheduler did is a run of the model in which its promise is proved.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use planner::Question;
use planner::verify::Prover;
use sim::Log;

use super::certify::read_question;
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
    let (question, prover) = (read_question(&args.problem)?, Prover::new(&args.proved));
    let file = File::open(&args.log).with_context(name)?;
    let log = match question {
        Question::One(problem) => {
            let log = Log::read(&problem, file).with_context(name)?;
            log.accept(&problem, &prover).with_context(name)?;
            log
        }
        Question::Shared(problem) => {
            let log = Log::read_shared(&problem, file).with_context(name)?;
            log.accept_shared(&problem, &prover).with_context(name)?;
            if log.is_in_time(&problem, &prover).with_context(name)? {
                say!("{}: proved: all that had to be answered in it was, in time", name());
            }
            log
        }
        Question::Pipeline(problem) => {
            let log = Log::read_pipeline(&problem, file).with_context(name)?;
            log.accept_pipeline(&problem, &prover).with_context(name)?;
            if log.is_pipeline_in_time(&problem, &prover).with_context(name)? {
                say!("{}: proved: all that had to be answered as a whole in it was, in time", name());
            }
            log
        }
    };
    say!("{}: a run of the model: {} arrivals, starts and ends", name(), log.entries.len());
    Ok(ExitCode::SUCCESS)
}
