//! `weir top`: how a running daemon's services stand, live in the terminal.

mod state;
mod view;
mod watcher;

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::state::State;
use self::watcher::News;
use weir::commands::Socket;

/// How soon a key, a signal or news is seen.
const LOOK: Duration = Duration::from_millis(50);
/// How long after a signal the program ends at the latest, whatever the terminal does.
const LAST: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// How often the daemon is asked, 100ms to 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    ensure!(
        io::stdout().is_terminal(),
        "standard output is no terminal; `weir status` prints the same once, `weir events --follow` line by line"
    );
    // Before the terminal is taken: what is wrong with the socket is told as by any other subcommand.
    let news = watcher::start(&args.socket.socket, args.interval)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signal handler")?;
    }
    end_in_time(Arc::clone(&stop)).context("thread")?;
    let keys = Keys::open().context("terminal")?;
    // From here on a panic restores the terminal before it is told.
    let mut terminal = ratatui::try_init().context("terminal")?;
    let ended = show(&mut terminal, &keys, &news, &stop);
    ratatui::try_restore().context("terminal")?;
    ended.map(|()| ExitCode::SUCCESS)
}

/// Where keys come from.
enum Keys {
    Input(io::Stdin),
    Terminal(File),
}

impl Keys {
    /// Standard input, or the terminal that the program was started from: as those do who read keys.
    fn open() -> io::Result<Self> {
        let input = io::stdin();
        if input.is_terminal() { Ok(Self::Input(input)) } else { File::open("/dev/tty").map(Self::Terminal) }
    }

    /// Whether there is something to read within `LOOK`.
    ///
    /// # Errors
    /// If the terminal has gone: who reads from it then may never come back.
    fn wait(&self) -> io::Result<bool> {
        let file = match self {
            Self::Input(input) => input.as_fd(),
            Self::Terminal(file) => file.as_fd(),
        };
        let mut polled = [PollFd::new(file, PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO)) {
            Err(Errno::EINTR) => return Ok(false),
            polled => polled?,
        };
        let seen = polled[0].revents().unwrap_or(PollFlags::POLLERR);
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        if seen.intersects(gone) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(!seen.is_empty()) }
    }
}

/// Ends the program soon after it was told to, also where the terminal holds it.
#[allow(clippy::disallowed_methods, reason = "nothing wakes a thread that reads a terminal without end")]
fn end_in_time(stop: Arc<AtomicBool>) -> io::Result<()> {
    let wait = move || {
        while !stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(LOOK);
        }
        std::thread::park_timeout(LAST);
        let _ = ratatui::try_restore();
        std::process::exit(1);
    };
    std::thread::Builder::new().name("end".to_owned()).spawn(wait).map(drop)
}

fn show(terminal: &mut DefaultTerminal, keys: &Keys, news: &Receiver<News>, stop: &AtomicBool) -> Result<()> {
    let mut state = State::default();
    let mut changed = true;
    while !stop.load(Ordering::Relaxed) {
        loop {
            match news.try_recv() {
                Ok(News::Status(status)) => state.take(*status),
                Ok(News::Event(line)) => state.tell(line),
                Ok(News::Gone(why)) => state.lose(why),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => bail!("the daemon is no longer asked"),
            }
            changed = true;
        }
        if std::mem::take(&mut changed) {
            terminal.draw(|frame| view::draw(frame, &state)).context("terminal")?;
        }
        if keys.wait().context("the terminal has gone")? && event::poll(Duration::ZERO).context("terminal")? {
            changed = true;
            match event::read().context("terminal")? {
                Event::Key(key) if key.kind == KeyEventKind::Release => {}
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => break,
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => break,
                    KeyCode::Char('p') => state.pause(),
                    KeyCode::Down | KeyCode::Right => state.select(1),
                    KeyCode::Up | KeyCode::Left => state.select(-1),
                    _ => {}
                },
                _ => {}
            }
        }
    }
    Ok(())
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(60);
    if allowed.contains(&interval) { Ok(interval) } else { Err("must be 100ms to 1m".to_owned()) }
}
