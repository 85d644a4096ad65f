//! A connection on which a test can say anything, also what no client of ours would.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use weir_client::wire::{ClientFrame, DaemonFrame, ErrorCode, FrameBuffer, VERSION};

use super::PATIENCE;

/// A connection on which anything can be said.
pub(crate) struct Raw {
    pub(crate) socket: UnixStream,
    buffer: FrameBuffer,
}

impl Raw {
    /// One over `socket`.
    pub(crate) fn new(socket: UnixStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { socket, buffer: FrameBuffer::new(1 << 24) }
    }

    /// Sends bytes; false if the daemon no longer takes them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// Opens the protocol and waits for the WELCOME.
    pub(crate) fn hello(mut self) -> Self {
        assert!(self.send(&frame(1, &hello(VERSION))));
        let welcomed = self.next(|frame| matches!(frame, DaemonFrame::Welcome { .. }));
        assert_eq!(welcomed, Some(true));
        self
    }

    /// What `read` makes of the next frame; `None` at the end of the connection.
    pub(crate) fn next<T>(&mut self, read: impl FnOnce(&DaemonFrame<'_>) -> T) -> Option<T> {
        self.next_of(|_, frame| read(frame))
    }

    /// The same with the id that the frame has.
    pub(crate) fn next_of<T>(&mut self, read: impl FnOnce(u64, &DaemonFrame<'_>) -> T) -> Option<T> {
        loop {
            let whole = self.buffer.next_frame().expect("the daemon sends frames");
            if let Some((header, body)) = whole {
                let frame = DaemonFrame::decode(&header, body).expect("a frame of the protocol");
                return Some(read(header.id, &frame));
            }
            match self.socket.read(self.buffer.space()) {
                Ok(0) => return None,
                Ok(count) => self.buffer.filled(count),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing from the daemon: {error}"),
            }
        }
    }

    /// Reads to the end of the connection; the last ERROR, and how many other frames came.
    pub(crate) fn read_to_end(&mut self) -> (Option<(ErrorCode, String)>, usize) {
        let (mut error, mut others) = (None, 0);
        while let Some(found) = self.next(|frame| match frame {
            DaemonFrame::Error { code, text } => Some((*code, (*text).to_owned())),
            _ => None,
        }) {
            others += usize::from(found.is_none());
            error = found.or(error);
        }
        (error, others)
    }
}

/// The bytes of a client's frame.
pub(crate) fn frame(id: u64, frame: &ClientFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(id, &mut bytes);
    bytes
}

/// A HELLO for one version of the protocol.
pub(crate) fn hello(version: u16) -> ClientFrame<'static> {
    ClientFrame::Hello { min_version: version, max_version: version, name: "test" }
}
