//! Beside a request's way: how a program on tokio hears of safe mode without reading a frame.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe::Receiver;

/// An eventfd that counts changes of safe mode and suspensions; see [`Client::alarm`](super::Client::alarm).
///
/// What has changed is told by the event, an instant before or after, or by the status. It does not tell that the connection has ended;
/// [`Events`](super::Events) do.
#[derive(Debug)]
pub struct Alarm(Receiver);

impl Alarm {
    /// Takes an eventfd that does not block.
    pub(super) fn new(file: OwnedFd) -> io::Result<Self> {
        // What tokio knows of a pipe is all that is needed here: it is readable, and then read.
        Receiver::from_owned_fd_unchecked(file).map(Self)
    }

    /// Waits for a change and takes the count: how many there were since it was last taken. Whoever stops waiting takes
    /// nothing.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn take(&mut self) -> io::Result<u64> {
        loop {
            self.0.readable().await?;
            let mut count = [0; 8];
            match self.0.try_read(&mut count) {
                Ok(_) => return Ok(u64::from_ne_bytes(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
