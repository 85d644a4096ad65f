//! On a request's way: where it leaves a blocking client for the socket.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use super::halves::Shared;
use crate::descriptor::send_with;
use crate::error::{Error, check_length};
use crate::options::Options;
use crate::shared::{Arena, Memory, Place};
use crate::types::{Element, RequestId, StreamInfo};
use crate::wire::{ClientFrame, Kind};

/// The sending half of a connection; see [`Client::split`](super::Client::split).
#[derive(Debug)]
pub struct Sender {
    socket: UnixStream,
    frame: Vec<u8>,
    next_id: u64,
    shared: Arc<Shared>,
    options: Arc<Options>,
    /// The arena of this connection.
    arena: Weak<Memory>,
}

impl Sender {
    pub(super) fn new(socket: UnixStream, shared: Arc<Shared>, options: Arc<Options>) -> Self {
        Self { socket, frame: Vec::new(), next_id: 1, shared, options, arena: Weak::new() }
    }

    /// Sends one request of a stream with one input, without waiting for its answer.
    ///
    /// Blocks while the socket is full, at most `Options::timeout`. Allocates only for the first request of
    /// a size.
    ///
    /// # Errors
    /// [`Error::Tensor`], [`Error::InputLength`], [`Error::FrameTooLarge`] and [`Error::TooManyInFlight`], after which nothing was
    /// sent; [`Error::Timeout`] and [`Error::Closed`], after which the connection is closed.
    pub fn submit<T: Element>(&mut self, stream: &StreamInfo, input: &[T]) -> Result<RequestId, Error> {
        self.submit_bytes(stream, stream.payload(input)?)
    }

    /// Sends one request whose tensors are already packed, as by [`StreamInfo::pack`].
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit).
    pub fn submit_bytes(&mut self, stream: &StreamInfo, payload: &[u8]) -> Result<RequestId, Error> {
        stream.check_input(payload.len())?;
        self.submit_frame(stream, ClientFrame::Submit { stream: stream.id, payload })
    }

    /// Sends one request whose tensors lie in the arena, without waiting for its answer.
    ///
    /// Until the answer has come, what is written to the place spoils this request and no other.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit), and [`Error::OtherArena`], after which nothing was sent.
    pub fn submit_shared(&mut self, place: &Place) -> Result<RequestId, Error> {
        self.submit_frame(place.stream(), place.submit(&self.arena)?)
    }

    /// The daemon has taken this arena.
    pub(super) fn shares(&mut self, arena: &Arena) {
        self.arena = arena.mark();
    }

    /// What the connection speaks.
    pub(super) fn version(&self) -> u16 {
        self.shared.version()
    }

    /// Sends a request with what the daemon reads of when it is sent and wanted.
    fn submit_frame(&mut self, stream: &StreamInfo, frame: ClientFrame<'_>) -> Result<RequestId, Error> {
        let frame = stream.stamped(frame, self.version())?;
        self.send_frame(&frame).map(RequestId)
    }

    /// Sends a frame and a descriptor with it.
    pub(super) fn send_with(
        &mut self,
        frame: &ClientFrame<'_>,
        descriptor: BorrowedFd<'_>,
    ) -> Result<u64, Error> {
        self.send(frame.kind(), Some(descriptor), |id, out| frame.encode(id, out))
    }

    pub(super) fn send_frame(&mut self, frame: &ClientFrame<'_>) -> Result<u64, Error> {
        self.send(frame.kind(), None, |id, out| frame.encode(id, out))
    }

    fn send(
        &mut self,
        kind: Kind,
        descriptor: Option<BorrowedFd<'_>>,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> Result<u64, Error> {
        // Only this half adds, so the limit holds although the other half may take away in between.
        if self.shared.in_flight() >= self.options.max_in_flight.max(1) {
            return Err(Error::TooManyInFlight { limit: self.options.max_in_flight.max(1) });
        }
        let id = self.next_id;
        self.next_id += 1;
        self.frame.clear();
        encode(id, &mut self.frame);
        check_length(&self.frame, self.shared.max_frame())?;
        self.shared.sent();
        let _turn = self.shared.writing();
        let sent = match descriptor {
            Some(descriptor) => send_with(&self.socket, &self.frame, descriptor),
            None => Ok(0),
        };
        sent.and_then(|sent| self.socket.write_all(&self.frame[sent..])).map_err(|error| {
            // Part of the frame may be out: nothing can follow it. What the daemon said last stays readable.
            let _ = self.socket.shutdown(Shutdown::Write);
            self.shared.close();
            match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    Error::Timeout { what: kind, after: self.options.timeout }
                }
                _ => Error::from(error),
            }
        })?;
        Ok(id)
    }
}
