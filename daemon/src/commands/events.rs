//! `weir events`: what a running daemon announces, a line each.

mod line;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use weir_client::blocking::Client;
use weir_client::status::{Status, Stream};
use weir_client::{Event, StreamState};

use super::Socket;
use super::watch;
use tracing::warn;
use weir_os::clock;

pub use line::Line;

/// How soon it is seen that nobody reads any more.
const LOOK: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Go on with what is announced from now on, also over a restart of the daemon
    #[arg(long)]
    follow: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Go on, and end after this many announcements
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut out = Out { json: args.json, left: args.count, ..Out::default() };
    match follow(args, &mut out) {
        // Not by the signal: that would also end it where the daemon has closed the socket.
        Err(error) if error.downcast_ref().is_some_and(is_closed_pipe) => Ok(ExitCode::SUCCESS),
        ended => ended.map(|()| ExitCode::SUCCESS),
    }
}

fn follow(args: &Args, out: &mut Out) -> Result<()> {
    let goes_on = args.follow || args.count.is_some();
    let socket = &args.socket.socket;
    let mut opened = watch::open(socket, "weir events")?;
    loop {
        let (client, status) = &mut opened;
        out.state(status)?;
        let error = match listen(client, goes_on, out) {
            Ok(()) => return Ok(()),
            Err(error) if goes_on => watch::gone(error)?,
            Err(error) => return Err(error),
        };
        warn!("{error}; trying again");
        let mut pauses = watch::pauses();
        opened = loop {
            std::thread::park_timeout(pauses.pause());
            is_read()?;
            match watch::open(socket, "weir events") {
                Ok(opened) => break opened,
                Err(error) => watch::gone(error)?,
            };
        };
        // Another daemon counts anew.
        out.told.clear();
        out.suspended.clear();
    }
}

/// Prints what is announced; without `goes_on` only what is here already.
fn listen(client: &mut Client, goes_on: bool, out: &mut Out) -> Result<()> {
    loop {
        let event = client.next_event_timeout(if goes_on { LOOK } else { Duration::ZERO })?;
        let lost = matches!(event, Some(Event::Lost { .. }));
        match event {
            Some(event) => out.event(&event)?,
            None if goes_on => is_read()?,
            None => return Ok(()),
        }
        if out.left == Some(0) {
            return Ok(());
        }
        if lost {
            out.state(&watch::status(client)?)?;
        }
    }
}

/// Standard output, and what has been told on it.
#[derive(Default)]
struct Out {
    json: bool,
    /// Announcements still wanted; `None`: all.
    left: Option<u64>,
    /// The last change that was told of each service.
    told: HashMap<String, u64>,
    /// The streams that were told as suspended, by service and name, and since when.
    suspended: BTreeMap<(String, String), u64>,
    /// When the last state was taken, in nanoseconds of `CLOCK_MONOTONIC`.
    state_at: u64,
}

impl Out {
    /// Prints the state of the services and streams that have changed since they were last told.
    fn state(&mut self, status: &Status) -> io::Result<()> {
        self.state_at = status.now_ns;
        for service in &status.services {
            let (line, sequence) = Line::present(service, self.state_at);
            if self.told.insert(line.service().to_owned(), sequence) != Some(sequence) {
                self.print(&line)?;
            }
            self.streams(line.service(), &service.streams)?;
        }
        Ok(())
    }

    /// Prints which streams of a service are suspended, and which are no longer.
    fn streams(&mut self, service: &str, streams: &[Stream]) -> io::Result<()> {
        let mut before: BTreeMap<_, _> = self.suspended.extract_if(.., |(of, _), _| of == service).collect();
        for stream in streams {
            let Some((line, since)) = Line::suspended(service, stream) else { continue };
            let key = (service.to_owned(), stream.name.clone());
            if before.remove(&key) != Some(since) {
                self.print(&line)?;
            }
            self.suspended.insert(key, since);
        }
        before.keys().try_for_each(|(_, stream)| self.print(&Line::resumed(service, stream, self.state_at)))
    }

    /// Prints an event, unless the state has told it already.
    fn event(&mut self, event: &Event) -> io::Result<()> {
        if let Event::SafeMode(event) = event {
            // A service that a reload has replaced counts from 1 again.
            let before = event.entered.as_nanos() <= u128::from(self.state_at);
            if before && self.told.get(&event.service).is_some_and(|&told| event.sequence <= told) {
                return Ok(());
            }
            self.told.insert(event.service.clone(), event.sequence);
        }
        if let Event::Suspension(event) = event {
            let since = u64::try_from(event.entered.as_nanos()).unwrap_or(u64::MAX);
            let key = (event.service.clone(), event.stream.clone());
            let known = match event.state != StreamState::Normal {
                true => self.suspended.insert(key, since) == Some(since),
                false => self.suspended.remove(&key).is_none() && since <= self.state_at,
            };
            if known {
                return Ok(());
            }
        }
        self.left = self.left.map(|left| left - 1);
        self.print(&Line::event(event, clock::now().as_nanos()))
    }

    fn print(&self, line: &Line) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.json {
            return writeln!(out, "{} {line}", line.time());
        }
        let mut told = line.json();
        told["time"] = line.time().into();
        writeln!(out, "{told}")
    }
}

/// # Errors
/// A broken pipe if whoever read standard output has gone.
fn is_read() -> io::Result<()> {
    let out = io::stdout();
    let mut polled = [PollFd::new(out.as_fd(), PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO)?;
    let closed = polled[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLERR));
    if closed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}
