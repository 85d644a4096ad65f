//! Beside a request's way: what a control loop adds to its own poll to hear of safe mode without reading a frame.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, retry_on_intr};

/// An eventfd that counts changes of safe mode and suspensions; see `Client::alarm`.
///
/// It is readable from a change on until the count is taken. What has changed is told by the event on the socket, an
/// instant before or after, or by the status. It does not tell that the connection has ended: poll the socket as well.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new(file: OwnedFd) -> Self {
        Self(file)
    }

    /// Waits at most `timeout` for a change and takes the count: how many there were since it was last taken, 0 if
    /// none. With a `timeout` of zero it only looks.
    ///
    /// # Errors
    /// Those of the system.
    pub fn take(&self, timeout: Duration) -> io::Result<u64> {
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(0),
            ready => ready?,
        };
        let mut count = [0; 8];
        match retry_on_intr(|| read(&self.0, &mut count)) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            // Another holder of the file was first.
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<Alarm> for OwnedFd {
    fn from(alarm: Alarm) -> Self {
        alarm.0
    }
}
