//! Standard output: a reader that has seen enough ends the program quietly, a full disk with an error, not a panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write, stdout};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, signal};

/// The first write that failed.
static FAILED: OnceLock<io::Error> = OnceLock::new();

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

/// From here on a closed pipe ends the process, as it ends any other Unix filter. Not for programs that write to
/// sockets afterwards: there a closed end is an error to be told.
#[allow(unsafe_code)]
pub fn end_with_reader() {
    // SAFETY: `SIG_DFL` is a valid disposition of `SIGPIPE`, and no handler of ours is replaced by it.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
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
    // Without a standard output nobody expects any.
    if let Err(error) = written
        && error.raw_os_error() != Some(Errno::EBADF as i32)
        && error.kind() != ErrorKind::Interrupted
    {
        let _ = FAILED.set(error);
    }
}
