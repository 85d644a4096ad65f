//! Asks the daemon at an interval and takes its events, in a thread that the terminal never waits for.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result};
use rt_core::Span;
use weir_client::blocking::Client;
use weir_client::status::Status;

use weir::commands::Line;
use weir::commands::watch;
use weir_os::clock;

/// News that may wait for the terminal; the thread waits where there is more.
const WAITING: usize = 64;

/// What has become known.
pub(super) enum News {
    Status(Box<Status>),
    Event(Line),
    /// There is no connection, and why.
    Gone(String),
}

/// Connects, and tells from then on; over a restart of the daemon too.
///
/// # Errors
/// If there is no daemon to begin with.
pub(super) fn start(socket: &Path, interval: Duration) -> Result<Receiver<News>> {
    let opened = watch::open(socket, "weir top")?;
    let (sender, news) = sync_channel(WAITING);
    let watcher = Watcher { socket: socket.to_owned(), interval, sender };
    let run = move || watcher.run(opened);
    std::thread::Builder::new().name("watcher".to_owned()).spawn(run).context("thread")?;
    Ok(news)
}

struct Watcher {
    socket: PathBuf,
    interval: Duration,
    sender: SyncSender<News>,
}

impl Watcher {
    /// Until nobody wants the news.
    fn run(&self, opened: (Client, Status)) {
        let (mut opened, mut pauses) = (Ok(opened), watch::pauses());
        loop {
            let error = match opened {
                Ok((client, status)) => {
                    pauses.reset();
                    match self.listen(client, status) {
                        Ok(never) => match never {},
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if error.is::<SendError<News>>() || self.sender.send(News::Gone(format!("{error:#}"))).is_err() {
                return;
            }
            std::thread::park_timeout(pauses.pause());
            opened = watch::open(&self.socket, "weir top");
        }
    }

    fn listen(&self, mut client: Client, mut status: Status) -> Result<std::convert::Infallible> {
        loop {
            self.sender.send(News::Status(Box::new(status)))?;
            let next = clock::now() + Span::from_nanos(self.interval.as_nanos() as u64);
            loop {
                let left = next.since(clock::now());
                match client.next_event_timeout(clock::duration(left))? {
                    Some(event) => {
                        let line = Line::event(&event, clock::now().as_nanos());
                        self.sender.send(News::Event(line))?;
                    }
                    None if left == Span::from_nanos(0) => break,
                    None => {}
                }
            }
            status = watch::status(&mut client)?;
        }
    }
}
