//! `weir reload`: the daemon takes its configuration over anew, and what came of it.

use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weir_client::blocking::Client;
use weir_client::status::Reloading;

use super::Socket;
use super::watch::status;
use rt_core::{Instant, Span};
use weir_os::clock;
use weir_os::notice;
use weir_os::pipe::say;

/// How often it is asked whether it is done.
const PAUSE: Duration = Duration::from_millis(50);
/// What takes no longer than this needs no progress to be shown.
const PATIENCE: Span = Span::from_millis(300);
/// Of one step, how often it is said how far it is, where that makes lines.
const LINES: Span = Span::from_millis(5_000);

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
    let until = clock::now() + Span::from_nanos(args.timeout.as_nanos() as u64);
    let mut shown = Shown::new(clock::now() + PATIENCE, asked);
    let outcome = loop {
        std::thread::park_timeout(PAUSE);
        let status = status(&mut client)?;
        match &status.reloading {
            Some(reloading) => shown.tell(clock::now(), reloading),
            None => shown.clear(),
        }
        if let Some(reload) = status.reload.filter(|reload| reload.began_ns >= asked) {
            break reload;
        }
        if clock::now() >= until {
            shown.clear();
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

/// What was said of a reload so far, on standard error: on a terminal one line that changes, else a line for each step, and
/// one now and then.
struct Shown {
    /// Nothing is said before.
    from: Instant,
    asked_ns: u64,
    terminal: bool,
    step: String,
    next: Instant,
}

impl Shown {
    fn new(from: Instant, asked_ns: u64) -> Self {
        let terminal = stderr().is_terminal();
        Self { from, asked_ns, terminal, step: String::new(), next: from }
    }

    fn tell(&mut self, now: Instant, reloading: &Reloading) {
        let news = reloading.step != self.step;
        if now < self.from || reloading.step.is_empty() || !(news || self.terminal || now >= self.next) {
            return;
        }
        self.step.clone_from(&reloading.step);
        self.next = now + LINES;
        let line = line(reloading, self.asked_ns);
        if self.terminal {
            // Nothing hangs on it.
            let _ = write!(stderr(), "\r{line}\x1b[K");
        } else {
            let _ = writeln!(stderr(), "{line}");
        }
    }

    /// Leaves a line of its own to what comes.
    fn clear(&mut self) {
        if self.terminal && !std::mem::take(&mut self.step).is_empty() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// What a reload is at; `asked_ns` is when this program asked for one.
fn line(reloading: &Reloading, asked_ns: u64) -> String {
    let Reloading { began_ns, step, done, of } = reloading;
    let whose = if *began_ns < asked_ns { "a reload before this one: " } else { "" };
    let far = if *of > 0 { format!(": {done} of {of}") } else { String::new() };
    format!("{whose}{step}{far}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_with_how_far_it_is_and_whose_it_is() {
        let at = |began_ns, of| {
            line(&Reloading { began_ns, step: "measuring x, in rounds".to_owned(), done: 7, of }, 10)
        };
        assert_eq!(at(10, 300), "measuring x, in rounds: 7 of 300");
        assert_eq!(at(9, 0), "a reload before this one: measuring x, in rounds");
    }
}
