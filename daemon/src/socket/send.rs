//! The way out: what the socket takes now, and what waits for it, a descriptor among the bytes it travels with.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, send, sendmsg};

/// Bytes that the socket has not taken yet; one descriptor at most waits among them.
#[derive(Default)]
pub(super) struct Unsent {
    bytes: Vec<u8>,
    /// With which byte it goes.
    descriptor: Option<(usize, OwnedFd)>,
}

impl Unsent {
    /// How many bytes wait.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends bytes, and a descriptor to go with the first of them.
    pub(super) fn push(&mut self, bytes: &[u8], descriptor: Option<OwnedFd>) {
        self.descriptor = descriptor.map(|file| (self.bytes.len(), file)).or(self.descriptor.take());
        self.bytes.extend_from_slice(bytes);
    }

    /// Sends as much as the socket takes now.
    pub(super) fn send(&mut self, socket: &UnixStream) {
        let (before, file) =
            self.descriptor.as_ref().map_or((0, None), |(at, file)| (*at, Some(file.as_fd())));
        let mut sent = send_now(socket, &self.bytes[..before], None);
        if sent == before {
            sent += send_now(socket, &self.bytes[before..], file);
        }
        self.bytes.drain(..sent);
        self.descriptor =
            self.descriptor.take().filter(|_| sent <= before).map(|(at, file)| (at - sent, file));
    }
}

/// Sends as much as the socket takes now, with a descriptor along with the first byte; how much it was. A broken
/// connection takes everything: nobody reads it.
pub(super) fn send_now(socket: &UnixStream, bytes: &[u8], mut descriptor: Option<BorrowedFd<'_>>) -> usize {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = &bytes[sent..];
        let taken = match descriptor {
            Some(file) => {
                let files = [file.as_raw_fd()];
                let control = [ControlMessage::ScmRights(&files)];
                sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(rest)], &control, flags, None)
            }
            None => send(socket.as_raw_fd(), rest, flags),
        };
        match taken {
            Ok(count) => {
                sent += count;
                descriptor = None;
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => break,
            Err(_) => return bytes.len(),
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use nix::sys::stat::fstat;

    use super::super::receive::{Received, receive};
    use super::*;

    #[test]
    fn a_descriptor_travels_with_its_byte_whenever_the_socket_takes_it() {
        let file = File::open("/dev/null").expect("a device");
        for before in [0, 1, 70_000, 700_000] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let mut unsent = Unsent::default();
            unsent.push(&vec![1; before], None);
            unsent.push(b"with", Some(file.try_clone().expect("a descriptor").into()));
            unsent.push(&vec![2; 300_000], None);
            let (mut read, mut kept, mut space) = (0, None, vec![0; 50_000]);
            while read < before + 300_004 {
                unsent.send(&ours);
                let Received::Bytes(count) = receive(&theirs, &mut space, &mut kept) else {
                    panic!("the end")
                };
                read += count;
                // It comes with the read that brings its byte.
                assert_eq!(kept.is_some(), read > before, "{read} of {before} bytes before");
            }
            assert!(unsent.is_empty() && unsent.descriptor.is_none());
            let (sent, received) = (fstat(&file), kept.map(|file| fstat(&file)));
            assert_eq!(received.map(|f| f.expect("a file").st_rdev), Some(sent.expect("a file").st_rdev));
        }
    }

    #[test]
    fn a_connection_that_nobody_reads_takes_everything() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"unread").expect("room");
        drop(theirs);
        let mut unsent = Unsent::default();
        unsent.push(b"x", Some(File::open("/dev/null").expect("a device").into()));
        unsent.send(&ours);
        assert!(unsent.is_empty() && unsent.descriptor.is_none());
        let mut left = Vec::new();
        (&ours).read_to_end(&mut left).unwrap_or_default();
    }
}
