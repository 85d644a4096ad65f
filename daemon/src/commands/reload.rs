//! `weir reload`: the daemon takes its configuration over anew, and what came of it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use weir_client::blocking::Client;

use super::Socket;
use super::watch::status;
use crate::clock;
use crate::notice;
use crate::pipe::say;

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
    let asked = now["now_ns"].as_u64().context("the daemon's status tells no time")?;
    let number = now["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = number
        .filter(|&number| number > 0)
        .map(Pid::from_raw)
        .context("the daemon's status tells no process")?;
    kill(pid, Signal::SIGHUP).with_context(|| format!("process {pid} cannot be told"))?;
    let until = clock::now() + rt_core::Span::from_nanos(args.timeout.as_nanos() as u64);
    let outcome = loop {
        std::thread::park_timeout(PAUSE);
        let status = status(&mut client)?;
        if status["reload"]["began_ns"].as_u64().is_some_and(|began| began >= asked) {
            break status["reload"].clone();
        }
        if clock::now() >= until {
            bail!("no outcome within {}", humantime::format_duration(args.timeout));
        }
    };
    let error = outcome["error"].as_str();
    if args.json {
        say!("{outcome:#}");
    } else {
        let changes: Vec<_> =
            outcome["changes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        changes.iter().for_each(|change| say!("{change}"));
        match error {
            Some(error) => notice::say(error),
            None if changes.is_empty() => say!("nothing has changed"),
            None => {}
        }
    }
    Ok(if error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
