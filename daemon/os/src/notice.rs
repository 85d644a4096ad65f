//! What is said on standard error: a daemon does not wait for a slow reader of it, nor fail with one that has gone.

use std::fmt::Arguments;
use std::io::{self, Write, stderr};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rt_core::Span;

use crate::clock;
use crate::pi_mutex::PiMutex;

/// So many lines wait for the reader at most; what comes then is counted.
const ROOM: usize = 256;
/// How long the reader has at the end for what is there.
const LAST_LINES: Span = Span::from_millis(1_000);
/// How often it is looked whether that has been written.
const PAUSE: Duration = Duration::from_millis(1);

/// The way to the thread that writes, while there is one.
static QUEUE: PiMutex<Option<Queue>> = PiMutex::new(None);

struct Queue {
    lines: SyncSender<String>,
    lost: u64,
}

/// Says a line as `eprintln!` does, which panics where it cannot be written, with `weir: ` before it.
#[macro_export]
macro_rules! notice {
    ($($text:tt)*) => { $crate::notice::say(format_args!($($text)*)) };
}

pub use notice;

/// Has a thread of its own write the lines of all others, until dropped.
pub struct Notices(JoinHandle<()>);

impl Notices {
    /// Starts the thread.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn queue() -> io::Result<Self> {
        let (lines, written) = sync_channel(ROOM);
        let run = move || written.iter().for_each(|line: String| write(&line));
        let thread = std::thread::Builder::new().name("notices".to_owned()).spawn(run)?;
        *QUEUE.lock() = Some(Queue { lines, lost: 0 });
        Ok(Self(thread))
    }
}

impl Drop for Notices {
    /// Waits until what is there has been written, [`LAST_LINES`] at most: then the thread is left behind.
    fn drop(&mut self) {
        *QUEUE.lock() = None;
        let patient = patience();
        while !self.0.is_finished() && patient() {}
    }
}

/// Waits a little each time, and says whether it is worth it: whoever should read the last lines may not.
pub fn patience() -> impl Fn() -> bool {
    let until = clock::now() + LAST_LINES;
    move || {
        std::thread::park_timeout(PAUSE);
        clock::now() < until
    }
}

/// What the macro does.
pub fn say(text: Arguments<'_>) {
    let line = text.to_string();
    let mut queue = QUEUE.lock();
    match &mut *queue {
        Some(queue) => queue.put(line),
        None => {
            drop(queue);
            write(&line);
        }
    }
}

/// Writes a line at once, for a thread that has nothing else to do than to wait for the reader.
pub fn write(line: &str) {
    // Whom should one tell that it cannot be?
    let _ = writeln!(stderr(), "weir: {line}");
}

impl Queue {
    fn put(&mut self, line: String) {
        let lost = self.lost;
        if lost > 0 && self.lines.try_send(format!("{lost} lines found no room before this one")).is_ok() {
            self.lost = 0;
        }
        if let Err(TrySendError::Full(_)) = self.lines.try_send(line) {
            self.lost += 1;
        }
    }
}
