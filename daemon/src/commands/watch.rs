//! What `weir events` and `weir top` share: a subscribed connection, taken up again when the daemon comes back.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::{Error, EventMask, Options};

/// Connects, subscribes, and asks for the state only then: what changes in between is told as an event.
///
/// # Errors
/// A [`weir_client::Error`], or a state that is not JSON.
pub(super) fn open(socket: &Path, name: &str) -> Result<(Client, Value)> {
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
pub(super) fn status(client: &mut Client) -> Result<Value> {
    serde_json::from_str(&client.status()?).context("the daemon's status")
}

/// The end of a connection after which it is worth trying again; any other error as it is.
pub(super) fn gone(error: anyhow::Error) -> Result<Error> {
    match error.downcast::<Error>()? {
        error @ (Error::Refused(_) | Error::Version(_)) => Err(error.into()),
        error => Ok(error),
    }
}

/// Ever longer pauses between attempts.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    /// The next pause.
    pub(super) fn next(&mut self) -> Duration {
        let longer = self.0.saturating_mul(2).min(Self::LONGEST);
        std::mem::replace(&mut self.0, longer)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..8).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn only_what_another_attempt_may_cure_is_tried_again() {
        assert!(gone(Error::Closed.into()).is_ok());
        assert!(gone(Error::Version(9).into()).is_err());
        assert!(gone(anyhow::anyhow!("standard output")).is_err());
    }
}
