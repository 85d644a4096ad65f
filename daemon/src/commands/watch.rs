//! What `weir events` and `weir top` share: a subscribed connection, taken up again when the daemon comes back.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use weir_client::blocking::Client;
use weir_client::status::Status;
use weir_client::{Error, EventMask, Options};

use weir_os::backoff::Backoff;

/// Connects, subscribes, and asks for the state only then: what changes in between is told as an event.
///
/// # Errors
/// A [`weir_client::Error`], or a state that is none.
pub fn open(socket: &Path, name: &str) -> Result<(Client, Status)> {
    let options = Options { name: name.to_owned(), ..Options::default() };
    let mut client = Client::connect_with(socket, options)?;
    client.subscribe(EventMask::ALL)?;
    let status = status(&mut client)?;
    Ok((client, status))
}

/// The daemon's state.
///
/// # Errors
/// Those of [`open`].
pub fn status(client: &mut Client) -> Result<Status> {
    serde_json::from_str(&client.status()?).context("the daemon's status")
}

/// The end of a connection after which it is worth trying again; any other error as it is.
pub fn gone(error: anyhow::Error) -> Result<Error> {
    match error.downcast::<Error>()? {
        error @ (Error::Refused(_) | Error::Version(_)) => Err(error.into()),
        error => Ok(error),
    }
}

/// The pauses between attempts to connect again.
pub fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(100), Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_attempt_may_cure_is_tried_again() {
        assert!(gone(Error::Closed.into()).is_ok());
        assert!(gone(Error::Version(9).into()).is_err());
        assert!(gone(anyhow::anyhow!("standard output")).is_err());
    }
}
