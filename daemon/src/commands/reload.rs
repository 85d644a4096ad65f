//! `weir reload`: the daemon takes its configuration over anew, and what came of it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weir_client::blocking::Client;

use super::Socket;
use super::watch::status;
use weir_os::clock;
use weir_os::notice;
use weir_os::pipe::say;

/// How often it is asked whether it is done.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Wait no longer than this for the outcome
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut client = Client::connect(&args.socket.socket)?;
    let now = status(&mut client)?;
    // One that begins later reads all that is written by now; one that runs already may not.
    let asked = now.now_ns;
    let number = i32::try_from(now.pid).ok().filter(|&number| number > 0);
    let pid = number.map(Pid::from_raw).context("the daemon's status tells no process")?;
    kill(pid, Signal::SIGHUP).with_context(|| format!("process {pid} cannot be told"))?;
    let until = clock::now() + rt_core::Span::from_nanos(args.timeout.as_nanos() as u64);
    let outcome = loop {
        std::thread::park_timeout(PAUSE);
        let status = status(&mut client)?;
        if let Some(reload) = status.reload.filter(|reload| reload.began_ns >= asked) {
            break reload;
        }
        if clock::now() >= until {
            bail!("no outcome within {}", humantime::format_duration(args.timeout));
        }
    };
    if args.json {
        say!("{:#}", serde_json::to_value(&outcome).context("the outcome")?);
    } else {
        outcome.changes.iter().for_each(|change| say!("{change}"));
        match &outcome.error {
            Some(error) => notice::say(error),
            None if outcome.changes.is_empty() => say!("nothing has changed"),
            None => {}
        }
    }
    Ok(if outcome.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
