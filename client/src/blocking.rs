//! On a request's way: its first and last step for a program with plain threads.
//!
//! One connection, used by one thread ([`Client`]) or split for two ([`Sender`], [`Receiver`]): one that
//! submits at its own pace, another that takes the answers.

mod halves;
mod receiver;
mod sender;
mod steady;

use std::borrow::Cow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::alarm::Alarm;
use crate::error::Error;
use crate::incoming::Reply;
use crate::options::Options;
use crate::shared::{Arena, Place};
use crate::types::{Answer, Element, Event, EventMask, Outcome, Registration, RequestId, StreamInfo};
use crate::wire::{ClientFrame, Kind};

use halves::Shared;
pub use receiver::Receiver;
pub use sender::Sender;
pub use steady::Steady;

/// A connection to the daemon; dropping it gives up its streams.
///
/// Calls that wait for one answer keep what else arrives for [`recv`](Self::recv) and
/// [`next_event`](Self::next_event), see [`Receiver`].
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    receiver: Receiver,
    timeout: Duration,
    daemon: String,
    max_arena: u64,
}

impl Client {
    /// Connects to the daemon's socket, usually [`DEFAULT_SOCKET`](crate::DEFAULT_SOCKET).
    ///
    /// # Errors
    /// [`Error::Connect`] with what to look at; [`Error::Daemon`] if the daemon will not have this client;
    /// [`Error::Timeout`] if it does not answer.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::connect_with(path, Options::default())
    }

    /// Connects with other options than the default ones.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub fn connect_with(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        let path = path.as_ref();
        Self::over(UnixStream::connect(path).map_err(|error| Error::connect(path, error))?, options)
    }

    /// Opens the protocol over a socket that is already connected.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub fn over(socket: UnixStream, options: Options) -> Result<Self, Error> {
        let (options, shared) = (Arc::new(options), Arc::new(Shared::new()));
        socket.set_write_timeout(Some(options.timeout))?;
        let sender = Sender::new(socket.try_clone()?, shared.clone(), options.clone());
        let receiver = Receiver::new(socket, shared, options.clone());
        let (timeout, daemon) = (options.timeout, String::new());
        let mut client = Self { sender, receiver, timeout, daemon, max_arena: 0 };
        (client.daemon, client.max_arena) = client.ask(&options.hello(), Reply::welcome)?;
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

    /// Whether a call has found that the connection has ended, or has ended it.
    pub fn is_closed(&self) -> bool {
        self.receiver.is_closed()
    }

    /// Shares memory of `bytes` bytes with the daemon, for tensors too large to be copied through the socket;
    /// once on a connection.
    ///
    /// # Errors
    /// [`Error::Memory`] if there is no such memory to be had, [`Error::Refused`] if the daemon will not have
    /// it; the connection stays usable.
    pub fn share(&mut self, bytes: usize) -> Result<Arena, Error> {
        let (arena, file) = Arena::create(bytes)?;
        let frame = ClientFrame::Arena { length: bytes as u64 };
        let sent = self.sender.send_with(&frame, file.as_fd());
        self.answer_to(sent, Kind::Arena, |reply, id| reply.done(Kind::Mapped, id))?;
        self.sender.shares(&arena);
        Ok(arena)
    }

    /// Asks for a stream and the promise that goes with it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason; the connection stays usable. [`Error::Timeout`], after which a stream that is
    /// granted late is given up again; its name may be in use until then.
    pub fn register(&mut self, registration: &Registration) -> Result<StreamInfo, Error> {
        registration.is_of(self.sender.version())?;
        self.ask(&ClientFrame::Register(Cow::Borrowed(registration)), Reply::registered)
    }

    /// Gives a stream up; its requests still without an answer are told as cancelled.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such stream.
    pub fn unregister(&mut self, stream: &StreamInfo) -> Result<(), Error> {
        let frame = ClientFrame::Unregister { stream: stream.id };
        self.ask(&frame, |reply, id| reply.done(Kind::Unregistered, id))
    }

    /// Chooses the events to be told from now on; replaces the choice made before.
    ///
    /// # Errors
    /// [`Error::Refused`] if this user may not.
    pub fn subscribe(&mut self, mask: EventMask) -> Result<(), Error> {
        self.ask(&ClientFrame::Subscribe { mask }, |reply, id| reply.done(Kind::Subscribed, id))
    }

    /// An eventfd that counts the changes of safe mode and the suspensions that are subscribed to, for the caller's own
    /// poll; once on a connection, after the subscription.
    ///
    /// # Errors
    /// [`Error::Refused`] without that subscription, or a second time; the connection stays usable.
    pub fn alarm(&mut self) -> Result<Alarm, Error> {
        self.ask(&ClientFrame::Alarm, Reply::alarm)
    }

    /// The daemon's state, a JSON object.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv), and [`Error::Timeout`].
    pub fn status(&mut self) -> Result<String, Error> {
        self.ask(&ClientFrame::Status, Reply::status)
    }

    /// Returns once the daemon has answered.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv), and [`Error::Timeout`].
    pub fn ping(&mut self) -> Result<(), Error> {
        self.ask(&ClientFrame::Ping, |reply, id| reply.done(Kind::Pong, id))
    }

    /// Sends one request without waiting for its answer; see [`Sender::submit`].
    ///
    /// # Errors
    /// Those of [`Sender::submit`].
    pub fn submit<T: Element>(&mut self, stream: &StreamInfo, input: &[T]) -> Result<RequestId, Error> {
        self.sender.submit(stream, input)
    }

    /// Sends one request whose tensors are already packed; see [`Sender::submit_bytes`].
    ///
    /// # Errors
    /// Those of [`Sender::submit`].
    pub fn submit_bytes(&mut self, stream: &StreamInfo, payload: &[u8]) -> Result<RequestId, Error> {
        self.sender.submit_bytes(stream, payload)
    }

    /// Sends one request and waits for what it comes to, at most its deadline and `Options::timeout`.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit) and [`recv`](Self::recv), and [`Error::Timeout`], after which the
    /// answer is dropped when it comes.
    pub fn infer<T: Element>(&mut self, stream: &StreamInfo, input: &[T]) -> Result<Outcome, Error> {
        self.infer_bytes(stream, stream.payload(input)?)
    }

    /// Sends one request whose tensors are already packed, and waits as [`infer`](Self::infer) does.
    ///
    /// # Errors
    /// Those of [`infer`](Self::infer).
    pub fn infer_bytes(&mut self, stream: &StreamInfo, payload: &[u8]) -> Result<Outcome, Error> {
        let RequestId(id) = self.submit_bytes(stream, payload)?;
        let timeout = stream.deadline.saturating_add(self.timeout);
        self.receiver.reply(id, Kind::Submit, timeout, Reply::outcome)
    }

    /// Sends one request whose tensors lie in the arena; see [`Sender::submit_shared`].
    ///
    /// # Errors
    /// Those of [`Sender::submit_shared`].
    pub fn submit_shared(&mut self, place: &Place) -> Result<RequestId, Error> {
        self.sender.submit_shared(place)
    }

    /// Sends one request whose tensors lie in the arena, and waits as [`infer`](Self::infer) does; its output
    /// is then in the arena as well.
    ///
    /// # Errors
    /// Those of [`infer`](Self::infer), and [`Error::OtherArena`].
    pub fn infer_shared(&mut self, place: &Place) -> Result<Outcome, Error> {
        let RequestId(id) = self.submit_shared(place)?;
        let timeout = place.stream().deadline.saturating_add(self.timeout);
        self.receiver.reply(id, Kind::SubmitShared, timeout, Reply::outcome)
    }

    /// Waits for the next answer or event; see [`Receiver::recv`].
    ///
    /// # Errors
    /// Those of [`Receiver::recv`].
    pub fn recv(&mut self) -> Result<Answer, Error> {
        self.receiver.recv()
    }

    /// Waits at most `timeout` for the next answer or event; see [`Receiver::recv_timeout`].
    ///
    /// # Errors
    /// Those of [`Receiver::recv`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Answer>, Error> {
        self.receiver.recv_timeout(timeout)
    }

    /// Waits for the next event; see [`Receiver::next_event`].
    ///
    /// # Errors
    /// Those of [`Receiver::recv`].
    pub fn next_event(&mut self) -> Result<Event, Error> {
        self.receiver.next_event()
    }

    /// Waits at most `timeout` for the next event; see [`Receiver::next_event_timeout`].
    ///
    /// # Errors
    /// Those of [`Receiver::recv`].
    pub fn next_event_timeout(&mut self, timeout: Duration) -> Result<Option<Event>, Error> {
        self.receiver.next_event_timeout(timeout)
    }

    /// Splits the connection for two threads; it closes when both halves are gone.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// Sends one frame and waits for its answer.
    fn ask<T>(
        &mut self,
        frame: &ClientFrame<'_>,
        read: impl FnOnce(Reply, u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let sent = self.sender.send_frame(frame);
        self.answer_to(sent, frame.kind(), read)
    }

    fn answer_to<T>(
        &mut self,
        sent: Result<u64, Error>,
        kind: Kind,
        read: impl FnOnce(Reply, u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let id = match sent {
            // No answer has id 0, but what the daemon said before it closed is still to be read.
            Err(Error::Closed) => 0,
            sent => sent?,
        };
        self.receiver.reply(id, kind, self.timeout, read)
    }
}
