//! `weir top`: how a running daemon's services stand, live in the terminal.

mod state;
mod view;
mod watcher;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::state::State;
use self::watcher::News;
use weir::commands::Socket;

/// How soon a key, a signal or news is seen.
const LOOK: Duration = Duration::from_millis(50);

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
    // From here on a panic restores the terminal before it is told.
    let mut terminal = ratatui::try_init().context("terminal")?;
    let ended = show(&mut terminal, &news, &stop);
    ratatui::try_restore().context("terminal")?;
    ended.map(|()| ExitCode::SUCCESS)
}

fn show(terminal: &mut DefaultTerminal, news: &Receiver<News>, stop: &AtomicBool) -> Result<()> {
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
        if event::poll(LOOK).context("terminal")? {
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
