//! On a request's way: where its answer reaches a blocking client, and waits if something else is wanted first.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::halves::Shared;
use crate::descriptor::receive_with;
use crate::error::Error;
use crate::incoming::{Incoming, Reply};
use crate::options::Options;
use crate::types::{Answer, Event};
use crate::wire::{ClientFrame, DEFAULT_MAX_FRAME, FrameBuffer, Kind};

/// The receiving half of a connection; see [`Client::split`](super::Client::split).
///
/// What arrives while something else is waited for is kept: answers without loss, because there are never
/// more than `Options::max_in_flight`; events up to `Options::event_backlog`, then the oldest give way and are
/// told as [`Event::Lost`].
#[derive(Debug)]
pub struct Receiver {
    socket: UnixStream,
    buffer: FrameBuffer,
    /// One that came and whose frame is still to be read.
    descriptor: Option<OwnedFd>,
    answers: VecDeque<(u64, Reply)>,
    events: VecDeque<Event>,
    lost: u64,
    /// Ids of frames whose answer nobody waits for any more.
    abandoned: Vec<u64>,
    shared: Arc<Shared>,
    options: Arc<Options>,
    read_timeout: Option<Duration>,
}

impl Receiver {
    pub(super) fn new(socket: UnixStream, shared: Arc<Shared>, options: Arc<Options>) -> Self {
        Self {
            socket,
            buffer: FrameBuffer::new(DEFAULT_MAX_FRAME),
            descriptor: None,
            answers: VecDeque::new(),
            events: VecDeque::new(),
            lost: 0,
            abandoned: Vec::new(),
            shared,
            options,
            read_timeout: None,
        }
    }

    /// Waits for the next answer or event, however long it takes; kept events come first, then kept answers.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Daemon`], [`Error::Protocol`], [`Error::Unexpected`], [`Error::Io`]: the
    /// connection is closed.
    pub fn recv(&mut self) -> Result<Answer, Error> {
        loop {
            if let Some(answer) = self.recv_until(None)? {
                return Ok(answer);
            }
        }
    }

    /// Waits at most `timeout` for the next answer or event; `None` if nothing came.
    ///
    /// The kernel rounds the time up to its tick (1 to 10 ms).
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Answer>, Error> {
        self.recv_until(after(timeout))
    }

    /// Waits for the next event, however long it takes; answers that arrive meanwhile are kept.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn next_event(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.event_until(None)? {
                return Ok(event);
            }
        }
    }

    /// Waits at most `timeout` for the next event; `None` if nothing came.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn next_event_timeout(&mut self, timeout: Duration) -> Result<Option<Event>, Error> {
        self.event_until(after(timeout))
    }

    /// Waits for the answer to the frame `id` of kind `what`, keeping everything else that arrives, and reads it.
    pub(super) fn reply<T>(
        &mut self,
        id: u64,
        what: Kind,
        timeout: Duration,
        read: impl FnOnce(Reply, u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let deadline = after(timeout);
        loop {
            match self.read(deadline)? {
                Some(Incoming::Reply(of, reply)) if of == id => {
                    self.release(of, &reply)?;
                    return read(reply, id).map_err(|error| match error {
                        Error::Unexpected { .. } => self.broken(error),
                        other => other,
                    });
                }
                Some(other) => self.keep(other)?,
                None => {
                    self.abandoned.push(id);
                    return Err(Error::Timeout { what, after: timeout });
                }
            }
        }
    }

    fn recv_until(&mut self, deadline: Option<Instant>) -> Result<Option<Answer>, Error> {
        loop {
            if let Some(event) = self.kept_event() {
                return Ok(Some(Answer::Event(event)));
            }
            if let Some((id, reply)) = self.answers.pop_front() {
                self.release(id, &reply)?;
                return reply.answer(id).map(Some).map_err(|error| self.broken(error));
            }
            match self.read(deadline)? {
                Some(incoming) => self.keep(incoming)?,
                None => return Ok(None),
            }
        }
    }

    fn event_until(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.kept_event() {
                return Ok(Some(event));
            }
            match self.read(deadline)? {
                Some(incoming) => self.keep(incoming)?,
                None => return Ok(None),
            }
        }
    }

    fn kept_event(&mut self) -> Option<Event> {
        match std::mem::take(&mut self.lost) {
            0 => self.events.pop_front(),
            count => Some(Event::Lost { count }),
        }
    }

    fn keep(&mut self, incoming: Incoming) -> Result<(), Error> {
        match incoming {
            Incoming::Event(event) => {
                self.events.push_back(event);
                if self.events.len() > self.options.event_backlog.max(1) {
                    self.lost += match self.events.pop_front() {
                        Some(Event::Lost { count }) => count,
                        _ => 1,
                    };
                }
            }
            Incoming::Reply(id, reply) => {
                if let Some(n) = self.abandoned.iter().position(|abandoned| *abandoned == id) {
                    if let Reply::Registered(stream) = reply {
                        self.give_up(id, stream.id);
                    } else {
                        self.abandoned.swap_remove(n);
                        self.release(id, &reply)?;
                    }
                } else if self.answers.len() < self.shared.in_flight() {
                    self.answers.push_back((id, reply));
                } else {
                    return Err(self.broken(Error::Unexpected { got: reply.kind(), id }));
                }
            }
        }
        Ok(())
    }

    /// Takes an answer off the number of those outstanding.
    fn release(&mut self, id: u64, reply: &Reply) -> Result<(), Error> {
        if self.shared.answered() {
            return Ok(());
        }
        Err(self.broken(Error::Unexpected { got: reply.kind(), id }))
    }

    /// Gives up a stream that nobody knows of. The id of its REGISTER is free again and stays abandoned, so that this
    /// answer is dropped as well.
    fn give_up(&self, id: u64, stream: u32) {
        let mut frame = Vec::new();
        ClientFrame::Unregister { stream }.encode(id, &mut frame);
        let _turn = self.shared.writing();
        if (&self.socket).write_all(&frame).is_err() {
            // Part of it may be out: nothing can follow it. The daemon ends the connection, and reading tells.
            let _ = self.socket.shutdown(Shutdown::Write);
            self.shared.close();
        }
    }

    /// The next frame, or `None` if none is whole by `deadline`; what came of it is kept for the next call.
    fn read(&mut self, deadline: Option<Instant>) -> Result<Option<Incoming>, Error> {
        loop {
            let frame = match self.buffer.next_frame() {
                Ok(Some((header, body))) => Incoming::read(&header, body, &mut self.descriptor),
                Ok(None) => {
                    if self.fill(deadline)? {
                        continue;
                    }
                    return Ok(None);
                }
                Err(error) => Err(error.into()),
            };
            if let Ok(Incoming::Reply(_, Reply::Welcome { version, max_frame, .. })) = frame {
                self.buffer.set_max_frame(max_frame);
                self.shared.welcome(version, max_frame);
            }
            return frame.map(Some).map_err(|error| self.broken(error));
        }
    }

    /// Reads some bytes, waiting until `deadline`; whether any came.
    fn fill(&mut self, deadline: Option<Instant>) -> Result<bool, Error> {
        loop {
            // A zero timeout would mean forever; a nanosecond is the shortest wait there is.
            let left = deadline.map(|at| at.saturating_duration_since(now()).max(Duration::from_nanos(1)));
            if left != self.read_timeout {
                self.socket.set_read_timeout(left)?;
                self.read_timeout = left;
            }
            match receive_with(&self.socket, self.buffer.space(), &mut self.descriptor) {
                Ok(0) => return Err(self.broken(Error::Closed)),
                Ok(count) => {
                    self.buffer.filled(count);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if deadline.is_none_or(|at| now() >= at) {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(self.broken(error.into())),
            }
        }
    }

    /// Whether the connection has ended, as far as either half knows.
    pub(super) fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Closes the connection: after this error its frames mean nothing.
    fn broken(&mut self, error: Error) -> Error {
        self.shared.close();
        let _ = self.socket.shutdown(Shutdown::Both);
        self.buffer = FrameBuffer::new(0);
        error
    }
}

/// The instant `timeout` from now; `None`, for ever, where the clock cannot tell it.
fn after(timeout: Duration) -> Option<Instant> {
    now().checked_add(timeout)
}

#[allow(clippy::disallowed_methods, reason = "a client waits in its own time, not the daemon's")]
fn now() -> Instant {
    Instant::now()
}
