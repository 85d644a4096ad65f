//! `weir serve FILE`: plan, then serve until told to stop.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing_subscriber::filter::Targets;

use crate::daemon;
use weir_os::notice;
use weir_os::pipe::say;
use weir_plan::certificate::checked;
use weir_plan::models::resolve_models;
use weir_plan::placed;
use weir_plan::plan::Plan;
use weir_plan::profile::profile_to_serve;
use weir_plan::text::print_plan;
use weir_serve::manager;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    file: PathBuf,
    /// Print nothing but warnings, errors and changes of safe mode
    #[arg(long)]
    quiet: bool,
    /// What to log: a level (error, warn, info, debug, trace, off), or levels by module, as in
    /// weir=info,weir::request=trace
    #[arg(long, value_name = "FILTER", env = "WEIR_LOG", default_value = notice::DEFAULT, value_parser = notice::parse)]
    pub(super) log: Targets,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let config = placed::serving(&args.file)?;
    let models = resolve_models(&config)?;
    let profile = profile_to_serve(&config, &models, &AtomicBool::new(false))?;
    let plan = checked(&config, Plan::of(&config, models, &profile)?)?;
    if !args.quiet {
        print_plan(&plan);
        say!("loading and warming up, each batch size on each worker; clients are answered from then on");
    }
    let (stop, stopper) = UnixStream::pair().context("signal pipe")?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, stopper.try_clone()?).context("signal handler")?;
    }
    let (again, asker) = UnixStream::pair().context("signal pipe")?;
    signal_hook::low_level::pipe::register(SIGHUP, asker).context("signal handler")?;
    daemon::run(config, plan, (&stop, again), |config| {
        manager::status(&format!("serving on {}", config.daemon.socket.display()));
        manager::ready();
        if !args.quiet {
            say!("listening on {}", config.daemon.socket.display());
        }
    })?;
    Ok(ExitCode::SUCCESS)
}
