//! The way in: bytes of a client, and a descriptor that may travel with them.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

/// What one look at the socket brought.
pub(super) enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The end of the stream, or a broken connection.
    End,
    /// More descriptors than a frame can have. Those beyond the first are closed already.
    TooManyDescriptors,
}

/// Reads what is there into `space`, and keeps a descriptor that came with it.
pub(super) fn receive(socket: &UnixStream, space: &mut [u8], kept: &mut Option<OwnedFd>) -> Received {
    // Room for two, so that a second one is seen; the kernel closes what does not fit, and says so.
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = match recvmsg(socket, &mut [IoSliceMut::new(space)], &mut control, flags) {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::End,
    };
    let mut excess = message.flags.contains(ReturnFlags::CTRUNC);
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            for descriptor in descriptors {
                excess |= kept.is_some();
                kept.get_or_insert(descriptor);
            }
        }
    }
    match message.bytes {
        _ if excess => Received::TooManyDescriptors,
        0 => Received::End,
        count => Received::Bytes(count),
    }
}
