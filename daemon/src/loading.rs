//! Told to stop while it loads, the daemon ends at once: nobody has been answered yet, and loading may take minutes.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, Builder};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::low_level::exit;

/// What `load` returns, on the calling thread, which the processes of engines end with. If `stop` becomes readable before, the process
/// ends after `clean_up`, with 0: what is being loaded can be asked nothing.
///
/// # Errors
/// If the thread that watches cannot be started.
pub(crate) fn unless_stopped<T>(
    stop: &UnixStream,
    clean_up: impl FnOnce() + Send,
    load: impl FnOnce() -> T,
) -> io::Result<T> {
    // Hung up once all is loaded.
    let (loading, loaded) = UnixStream::pair()?;
    thread::scope(|scope| {
        Builder::new().name("loading".to_owned()).spawn_scoped(scope, move || {
            if is_stopped(stop, &loaded) {
                clean_up();
                exit(0);
            }
        })?;
        let result = load();
        drop(loading);
        Ok(result)
    })
}

/// Whether `stop` becomes readable before `loaded` does.
fn is_stopped(stop: &UnixStream, loaded: &UnixStream) -> bool {
    let mut waits = [stop.as_fd(), loaded.as_fd()].map(|file| PollFd::new(file, PollFlags::POLLIN));
    let mut woken = poll(&mut waits, PollTimeout::NONE);
    while woken == Err(Errno::EINTR) {
        woken = poll(&mut waits, PollTimeout::NONE);
    }
    woken.is_ok() && waits[1].any() == Some(false)
}
