//! On a request's way: its first and last step for a program on tokio, many requests at once.
//!
//! Every future here may be dropped at any point (in a `select!` or a `timeout`): the request it stood for
//! still counts in its stream, its answer is dropped when it comes, a stream granted to nobody is given up
//! again (until then its name is in use), and the connection stays whole. The runtime needs its I/O and time drivers (`enable_all`).

mod alarm;
mod connection;
mod steady;

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::timeout;

use crate::error::Error;
use crate::incoming::Reply;
use crate::options::Options;
use crate::shared::{Arena, Place};
use crate::types::{Element, Event, EventMask, Outcome, Registration, RequestId, StreamInfo};
use crate::wire::{ClientFrame, Kind};
use connection::{Connection, Waiting};

pub use alarm::Alarm;
pub use steady::Steady;

/// A handle on a connection to the daemon, cheap to clone; it closes when the last handle, [`Ticket`] and
/// [`Events`] are gone, and gives up its streams.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Arc<Connection>,
    timeout: Duration,
    daemon: Arc<str>,
    max_arena: u64,
}

impl Client {
    /// Connects to the daemon's socket, usually [`DEFAULT_SOCKET`](crate::DEFAULT_SOCKET).
    ///
    /// # Errors
    /// [`Error::Connect`] with what to look at; [`Error::Daemon`] if the daemon will not have this client;
    /// [`Error::Timeout`] if it does not answer.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::connect_with(path, Options::default()).await
    }

    /// Connects with other options than the default ones.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub async fn connect_with(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        let path = path.as_ref();
        let socket = timeout(options.timeout, UnixStream::connect(path));
        let socket =
            socket.await.map_err(|_| Error::Timeout { what: Kind::Hello, after: options.timeout })?;
        Self::over(socket.map_err(|error| Error::connect(path, error))?, options).await
    }

    /// Opens the protocol over a socket that is already connected.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub async fn over(socket: UnixStream, options: Options) -> Result<Self, Error> {
        let connection = Arc::new(Connection::open(socket, &options));
        let (timeout, daemon) = (options.timeout, Arc::default());
        let mut client = Self { connection, timeout, daemon, max_arena: 0 };
        let (daemon, max_arena) = client.ask(&options.hello(), Reply::welcome).await?;
        (client.daemon, client.max_arena) = (daemon.into(), max_arena);
        Ok(client)
    }

    /// Name and version of the daemon.
    pub fn daemon(&self) -> &str {
        &self.daemon
    }

    /// The largest arena that the daemon accepts, in bytes; 0 where it accepts none.
    pub fn max_arena(&self) -> u64 {
        self.max_arena
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Shares memory of `bytes` bytes with the daemon, for tensors too large to be copied through the socket;
    /// once on a connection.
    ///
    /// # Errors
    /// [`Error::Memory`] if there is no such memory to be had, [`Error::Refused`] if the daemon will not have
    /// it; the connection stays usable.
    pub async fn share(&self, bytes: usize) -> Result<Arena, Error> {
        let (arena, file) = Arena::create(bytes)?;
        let frame = ClientFrame::Arena { length: bytes as u64 };
        self.ask_with(&frame, Some(file), |reply, id| reply.done(Kind::Mapped, id)).await?;
        self.connection.shares(&arena);
        Ok(arena)
    }

    /// Asks for a stream and the promise that goes with it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason; the connection stays usable. [`Error::Timeout`], after which a stream that is
    /// granted late is given up again; its name may be in use until then.
    pub async fn register(&self, registration: &Registration) -> Result<StreamInfo, Error> {
        registration.is_of(self.connection.version())?;
        self.ask(&ClientFrame::Register(Cow::Borrowed(registration)), Reply::registered).await
    }

    /// Gives a stream up; its requests still without an answer are told as cancelled.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such stream.
    pub async fn unregister(&self, stream: &StreamInfo) -> Result<(), Error> {
        let frame = ClientFrame::Unregister { stream: stream.id };
        self.ask(&frame, |reply, id| reply.done(Kind::Unregistered, id)).await
    }

    /// Chooses the events the connection is told from now on, replacing the choice made before, and returns
    /// where they arrive.
    ///
    /// # Errors
    /// [`Error::Refused`] if this user may not.
    pub async fn subscribe(&self, mask: EventMask) -> Result<Events, Error> {
        let receiver = self.connection.events()?;
        self.ask(&ClientFrame::Subscribe { mask }, |reply, id| reply.done(Kind::Subscribed, id)).await?;
        Ok(Events { receiver, connection: self.connection.clone() })
    }

    /// An eventfd that counts the changes of safe mode and the suspensions that are subscribed to by then; once on a
    /// connection.
    ///
    /// # Errors
    /// [`Error::Refused`] without that subscription, or a second time; the connection stays usable.
    pub async fn alarm(&self) -> Result<Alarm, Error> {
        Ok(Alarm::new(self.ask(&ClientFrame::Alarm, Reply::alarm).await?.into())?)
    }

    /// The daemon's state, a JSON object.
    ///
    /// # Errors
    /// [`Error::Timeout`], or that the connection is closed.
    pub async fn status(&self) -> Result<String, Error> {
        self.ask(&ClientFrame::Status, Reply::status).await
    }

    /// Returns once the daemon has answered.
    ///
    /// # Errors
    /// [`Error::Timeout`], or that the connection is closed.
    pub async fn ping(&self) -> Result<(), Error> {
        self.ask(&ClientFrame::Ping, |reply, id| reply.done(Kind::Pong, id)).await
    }

    /// Hands one request of a stream with one input to the connection without waiting for its answer; waits only while the socket is
    /// full and many requests wait before this one.
    ///
    /// # Errors
    /// [`Error::Tensor`], [`Error::InputLength`] and [`Error::TooManyInFlight`], after which nothing was sent, or that the
    /// connection is closed.
    pub async fn submit<T: Element>(&self, stream: &StreamInfo, input: &[T]) -> Result<Ticket, Error> {
        self.submit_bytes(stream, stream.payload(input)?).await
    }

    /// Hands on one request whose tensors are already packed, as by [`StreamInfo::pack`].
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit).
    pub async fn submit_bytes(&self, stream: &StreamInfo, payload: &[u8]) -> Result<Ticket, Error> {
        stream.check_input(payload.len())?;
        self.submit_frame(stream, ClientFrame::Submit { stream: stream.id, payload }).await
    }

    /// Sends one request and waits for what it comes to, at most its deadline and `Options::timeout`; any
    /// number of tasks may do so at once.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit) and [`Ticket::outcome`], and [`Error::Timeout`].
    pub async fn infer<T: Element>(&self, stream: &StreamInfo, input: &[T]) -> Result<Outcome, Error> {
        self.infer_bytes(stream, stream.payload(input)?).await
    }

    /// Sends one request whose tensors are already packed, and waits as [`infer`](Self::infer) does.
    ///
    /// # Errors
    /// Those of [`infer`](Self::infer).
    pub async fn infer_bytes(&self, stream: &StreamInfo, payload: &[u8]) -> Result<Outcome, Error> {
        self.outcome(stream, self.submit_bytes(stream, payload)).await
    }

    /// Hands on one request whose tensors lie in the arena.
    ///
    /// Until the answer has come, what is written to the place spoils this request and no other.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit), and [`Error::OtherArena`], after which nothing was sent.
    pub async fn submit_shared(&self, place: &Place) -> Result<Ticket, Error> {
        let frame = place.submit(&self.connection.arena())?;
        self.submit_frame(place.stream(), frame).await
    }

    /// Hands on a request with what the daemon reads of when it is sent and wanted.
    async fn submit_frame(&self, stream: &StreamInfo, frame: ClientFrame<'_>) -> Result<Ticket, Error> {
        let frame = stream.stamped(frame, self.connection.version())?;
        let waiting = self.connection.send(None, |id, out| frame.encode(id, out)).await?;
        Ok(Ticket { waiting })
    }

    /// Sends one request whose tensors lie in the arena, and waits as [`infer`](Self::infer) does; its output
    /// is then in the arena as well.
    ///
    /// # Errors
    /// Those of [`infer`](Self::infer), and [`Error::OtherArena`].
    pub async fn infer_shared(&self, place: &Place) -> Result<Outcome, Error> {
        self.outcome(place.stream(), self.submit_shared(place)).await
    }

    /// Waits for what a request comes to, from before it is sent.
    async fn outcome(
        &self,
        stream: &StreamInfo,
        submit: impl Future<Output = Result<Ticket, Error>>,
    ) -> Result<Outcome, Error> {
        let after = stream.deadline.saturating_add(self.timeout);
        let outcome = async { submit.await?.outcome().await };
        timeout(after, outcome).await.unwrap_or(Err(Error::Timeout { what: Kind::Submit, after }))
    }

    /// Sends one frame and waits for its answer.
    async fn ask<T>(
        &self,
        frame: &ClientFrame<'_>,
        read: impl FnOnce(Reply, u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.ask_with(frame, None, read).await
    }

    async fn ask_with<T>(
        &self,
        frame: &ClientFrame<'_>,
        descriptor: Option<OwnedFd>,
        read: impl FnOnce(Reply, u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let reply = async {
            let waiting = self.connection.send(descriptor, |id, out| frame.encode(id, out)).await?;
            let id = waiting.id();
            Ok((waiting.reply().await?, id))
        };
        let after = self.timeout;
        let (reply, id) =
            timeout(after, reply).await.unwrap_or(Err(Error::Timeout { what: frame.kind(), after }))?;
        self.connection.taken(read(reply, id))
    }
}

/// A request on its way; dropping it drops the answer.
#[derive(Debug)]
#[must_use = "the answer is dropped with the ticket"]
pub struct Ticket {
    waiting: Waiting,
}

impl Ticket {
    /// The request's number.
    pub fn id(&self) -> RequestId {
        RequestId(self.waiting.id())
    }

    /// Waits for what the request comes to, however long it takes.
    ///
    /// # Errors
    /// [`Error::Refused`] if the request was not taken at all, or that the connection is closed.
    pub async fn outcome(self) -> Result<Outcome, Error> {
        let id = self.waiting.id();
        let connection = Arc::clone(self.waiting.connection());
        connection.taken(self.waiting.reply().await?.outcome(id))
    }
}

/// Where the events of a connection arrive; keeps at most `Options::event_backlog`.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Event>,
    connection: Arc<Connection>,
}

impl Events {
    /// Waits for the next event, however long it takes; those this place had no room for are told as
    /// [`Event::Lost`].
    ///
    /// # Errors
    /// Why the connection is closed, after the last event it brought.
    pub async fn next(&mut self) -> Result<Event, Error> {
        match self.receiver.recv().await {
            Ok(event) => Ok(event),
            Err(RecvError::Lagged(count)) => Ok(Event::Lost { count }),
            Err(RecvError::Closed) => Err(self.connection.end()),
        }
    }
}
