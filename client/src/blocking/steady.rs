//! A connection that is opened again after it has ended, with the streams that it had.

use std::path::{Path, PathBuf};

use super::Client;
use crate::error::Error;
use crate::options::Options;
use crate::steady::{Held, Pauses, Streams, is_of_one_stream};
use crate::types::{Element, EventMask, Outcome, Registration, StreamInfo};

/// A [`Client`] that connects, registers and subscribes again by itself.
///
/// The call that finds the connection ended fails as it would with a [`Client`]; the next one connects anew, registers all streams
/// again and subscribes to what was subscribed to. It fails if that does, and the one after it tries again; names that are in use
/// are asked for again for up to 0.6 s. A stream that is refused then keeps no other from going on: each call for it asks once more,
/// and fails if that is refused. What was in flight is lost, and so are an arena and an alarm. Each connection counts its streams and requests anew, so streams are named by
/// [`Held`] here.
///
/// ```no_run
/// # fn run(registration: &weir_client::Registration, frames: impl Iterator<Item = Vec<f32>>) -> Result<(), weir_client::Error> {
/// let mut client = weir_client::blocking::Steady::connect(weir_client::DEFAULT_SOCKET)?;
/// let camera = client.register(registration)?;
/// for frame in frames {
///     match client.infer(camera, &frame) {
///         Ok(outcome) => println!("{outcome:?}"),
///         Err(error) => println!("{error}; the next frame tries again"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Steady {
    path: PathBuf,
    options: Options,
    client: Option<Client>,
    streams: Streams,
    mask: Option<EventMask>,
}

impl Steady {
    /// Connects to the daemon's socket, usually [`DEFAULT_SOCKET`](crate::DEFAULT_SOCKET).
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::connect_with(path, Options::default())
    }

    /// Connects with other options than the default ones.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub fn connect_with(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let client = Some(Client::connect_with(&path, options.clone())?);
        Ok(Self { path, options, client, streams: Streams::default(), mask: None })
    }

    /// The present connection, which is opened now if the one before has ended: for all that needs no stream.
    ///
    /// # Errors
    /// Those of [`Client::connect`], and of [`Client::register`] but for a refusal.
    pub fn client(&mut self) -> Result<&mut Client, Error> {
        let client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => self.open()?,
        };
        Ok(self.client.insert(client))
    }

    /// The present connection, and a stream as it is there.
    ///
    /// # Errors
    /// Those of [`client`](Self::client) and [`Client::register`], and [`Error::GivenUp`] for a stream that was given up.
    pub fn stream(&mut self, held: Held) -> Result<(&mut Client, &StreamInfo), Error> {
        self.client()?;
        let (registration, stream) = self.streams.get(held)?;
        // It is there.
        let client = self.client.as_mut().ok_or(Error::Closed)?;
        let stream = match stream {
            Some(stream) => stream,
            None => stream.insert(client.register(registration)?),
        };
        Ok((client, stream))
    }

    /// Asks for a stream, and for it again on each later connection.
    ///
    /// # Errors
    /// Those of [`client`](Self::client) and [`Client::register`].
    pub fn register(&mut self, registration: &Registration) -> Result<Held, Error> {
        let stream = self.client()?.register(registration)?;
        Ok(self.streams.add(registration, stream))
    }

    /// Gives a stream up for good, also where that could not be told to the daemon.
    ///
    /// # Errors
    /// [`Error::GivenUp`] if it was given up before, and those of [`Client::unregister`].
    pub fn unregister(&mut self, held: Held) -> Result<(), Error> {
        let stream = self.streams.remove(held)?;
        // A connection that has ended has given it up.
        match (self.client.as_mut().filter(|client| !client.is_closed()), stream) {
            (Some(client), Some(stream)) => client.unregister(&stream),
            _ => Ok(()),
        }
    }

    /// Chooses the events to be told, on each later connection too.
    ///
    /// # Errors
    /// Those of [`client`](Self::client) and [`Client::subscribe`].
    pub fn subscribe(&mut self, mask: EventMask) -> Result<(), Error> {
        self.client()?.subscribe(mask)?;
        self.mask = Some(mask);
        Ok(())
    }

    /// Sends one request and waits for what it comes to; see [`Client::infer`].
    ///
    /// # Errors
    /// Those of [`stream`](Self::stream) and [`Client::infer`].
    pub fn infer<T: Element>(&mut self, held: Held, input: &[T]) -> Result<Outcome, Error> {
        let (client, stream) = self.stream(held)?;
        client.infer(stream, input)
    }

    /// Another connection with all that the one before had.
    fn open(&mut self) -> Result<Client, Error> {
        let mut client = Client::connect_with(&self.path, self.options.clone())?;
        let mut pauses = Pauses::new();
        for (registration, stream) in self.streams.anew() {
            *stream = loop {
                match client.register(registration) {
                    Ok(stream) => break Some(stream),
                    Err(error) => match pauses.after(&error) {
                        Some(pause) => std::thread::park_timeout(pause),
                        None if is_of_one_stream(&error) => break None,
                        None => return Err(error),
                    },
                }
            };
        }
        if let Some(mask) = self.mask {
            client.subscribe(mask)?;
        }
        Ok(client)
    }
}
