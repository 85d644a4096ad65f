//! `weir serve FILE`: plan, then serve until told to stop.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use planner::Certificate;
use planner::verify::verify;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::plan::print_plan;
use crate::certificate::{check, of_plan};
use crate::config::Config;
use crate::daemon::Daemon;
use crate::manager;
use crate::pipe::say;
use crate::plan::Plan;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    file: PathBuf,
    /// Print nothing but warnings, errors and changes of safe mode
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let config = Config::load(&args.file)?;
    let plan = Plan::compute(&config)?;
    if !args.quiet {
        print_plan(&plan);
    }
    let here = of_plan(&plan)?;
    match &config.daemon.certificate {
        Some(path) => {
            let name = || format!("daemon.certificate = {}, which `weir certify` writes", path.display());
            check(&Certificate::load(path).with_context(name)?, &here).with_context(name)?;
        }
        // What was planned just now is checked no less.
        None => drop(verify(&here).context("the plan is not what the checker derives")?),
    }
    let (stop, stopper) = UnixStream::pair().context("signal pipe")?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, stopper.try_clone()?).context("signal handler")?;
    }
    Daemon::run(config, plan, &stop, |daemon| {
        manager::status(&format!("serving on {}", daemon.config.daemon.socket.display()));
        manager::ready();
        if !args.quiet {
            say!("listening on {}", daemon.config.daemon.socket.display());
        }
    })?;
    Ok(ExitCode::SUCCESS)
}
