//! A connection that is opened again after it has ended, with the streams that it had.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::{Client, Events};
use crate::error::Error;
use crate::options::Options;
use crate::steady::{Held, Pauses, Streams, is_of_one_stream};
use crate::types::{Element, EventMask, Outcome, Registration, StreamInfo};

/// A handle on a [`Client`] that connects and registers again by itself, cheap to clone.
///
/// The first call after the connection has ended connects anew and registers all streams again. It fails if that does, and the
/// one after it tries again; names that are in use are asked for again for up to 0.6 s. A stream that is refused then keeps no other
/// from going on: each call for it asks once more, and fails if that is refused. What was in flight fails, and an arena, an alarm and [`Events`] are lost: subscribe again when
/// these end. Each connection counts its streams anew, so streams are named by [`Held`] here.
#[derive(Clone, Debug)]
pub struct Steady {
    path: Arc<Path>,
    options: Options,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    client: Client,
    streams: Streams,
    /// Whether all of them were asked for on this connection.
    whole: bool,
}

impl Steady {
    /// Connects to the daemon's socket, usually [`DEFAULT_SOCKET`](crate::DEFAULT_SOCKET).
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::connect_with(path, Options::default()).await
    }

    /// Connects with other options than the default ones.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub async fn connect_with(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        let path = PathBuf::from(path.as_ref());
        let client = Client::connect_with(&path, options.clone()).await?;
        let state = Arc::new(Mutex::new(State { client, streams: Streams::default(), whole: true }));
        Ok(Self { path: path.into(), options, state })
    }

    /// The present connection, which is opened now if the one before has ended: for all that needs no stream.
    ///
    /// # Errors
    /// Those of [`Client::connect`], and of [`Client::register`] but for a refusal.
    pub async fn client(&self) -> Result<Client, Error> {
        let mut state = self.state.lock().await;
        self.present(&mut state).await
    }

    /// The present connection, and a stream as it is there.
    ///
    /// # Errors
    /// Those of [`client`](Self::client) and [`Client::register`], and [`Error::GivenUp`] for a stream that was given up.
    pub async fn stream(&self, held: Held) -> Result<(Client, StreamInfo), Error> {
        let mut state = self.state.lock().await;
        let client = self.present(&mut state).await?;
        let (registration, stream) = state.streams.get(held)?;
        let stream = match stream {
            Some(stream) => stream,
            None => stream.insert(client.register(registration).await?),
        };
        Ok((client, stream.clone()))
    }

    /// Asks for a stream, and for it again on each later connection.
    ///
    /// # Errors
    /// Those of [`client`](Self::client) and [`Client::register`].
    pub async fn register(&self, registration: &Registration) -> Result<Held, Error> {
        let mut state = self.state.lock().await;
        let stream = self.present(&mut state).await?.register(registration).await?;
        Ok(state.streams.add(registration, stream))
    }

    /// Gives a stream up for good, also where that could not be told to the daemon.
    ///
    /// # Errors
    /// [`Error::GivenUp`] if it was given up before, and those of [`Client::unregister`].
    pub async fn unregister(&self, held: Held) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let stream = state.streams.remove(held)?;
        // A connection that has ended has given it up.
        match stream.filter(|_| state.whole && !state.client.is_closed()) {
            Some(stream) => state.client.unregister(&stream).await,
            None => Ok(()),
        }
    }

    /// Chooses the events of the present connection; they end with it.
    ///
    /// # Errors
    /// Those of [`client`](Self::client) and [`Client::subscribe`].
    pub async fn subscribe(&self, mask: EventMask) -> Result<Events, Error> {
        self.client().await?.subscribe(mask).await
    }

    /// Sends one request and waits for what it comes to; see [`Client::infer`].
    ///
    /// # Errors
    /// Those of [`stream`](Self::stream) and [`Client::infer`].
    pub async fn infer<T: Element>(&self, held: Held, input: &[T]) -> Result<Outcome, Error> {
        let (client, stream) = self.stream(held).await?;
        client.infer(&stream, input).await
    }

    /// Another connection with all that the one before had, where that one has ended.
    async fn present(&self, state: &mut State) -> Result<Client, Error> {
        if state.client.is_closed() || !state.whole {
            // Whoever stops waiting for this leaves the rest of it to the next call, on a connection of its own.
            state.whole = false;
            state.client = Client::connect_with(&self.path, self.options.clone()).await?;
            let mut pauses = Pauses::new();
            for (registration, stream) in state.streams.anew() {
                *stream = loop {
                    match state.client.register(registration).await {
                        Ok(stream) => break Some(stream),
                        Err(error) => match pauses.after(&error) {
                            Some(pause) => rest(pause).await,
                            None if is_of_one_stream(&error) => break None,
                            None => return Err(error),
                        },
                    }
                };
            }
            state.whole = true;
        }
        Ok(state.client.clone())
    }
}

#[allow(clippy::disallowed_methods, reason = "no deadline depends on how long it is")]
async fn rest(pause: Duration) {
    tokio::time::sleep(pause).await;
}
