//! Standard output: a reader that has seen enough ends the program quietly, a full disk with an error, not a panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write, stdout};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, raise, signal};

/// The first write that failed.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Whether the process ends with who reads its standard output.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Prints a line as `println!` does; where that fails the program goes on, and [`finish`] tells.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::pipe::write(format_args!($($text)*), "\n") };
}

/// As [`say`], without ending the line.
#[macro_export]
macro_rules! say_part {
    ($($text:tt)*) => { $crate::pipe::write(format_args!($($text)*), "") };
}

pub use {say, say_part};

/// From here on standard output that nobody reads ends the process, as it ends any other Unix filter. A socket whose other end has
/// closed, that of a server or of a worker process, stays an error to be told.
pub fn end_with_reader() {
    ENDS.store(true, Ordering::Relaxed);
}

#[allow(unsafe_code)]
fn end() {
    // SAFETY: `SIG_DFL` is a valid disposition of `SIGPIPE`, and no handler of ours is replaced by it.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    let _ = raise(Signal::SIGPIPE);
}

/// Writes what is left.
///
/// # Errors
/// If that or a write before it failed: not all of the output has arrived.
pub fn finish() -> Result<(), &'static io::Error> {
    note(stdout().flush());
    FAILED.get().map_or(Ok(()), Err)
}

/// What the macros do.
pub fn write(text: Arguments<'_>, end: &str) {
    if FAILED.get().is_none() {
        note(stdout().write_fmt(format_args!("{text}{end}")));
    }
}

fn note(written: io::Result<()>) {
    if let Err(error) = &written
        && error.kind() == ErrorKind::BrokenPipe
        && ENDS.load(Ordering::Relaxed)
    {
        end();
    }
    // Without a standard output nobody expects any.
    if let Err(error) = written
        && error.raw_os_error() != Some(Errno::EBADF as i32)
        && error.kind() != ErrorKind::Interrupted
    {
        let _ = FAILED.set(error);
    }
}
