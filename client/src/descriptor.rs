//! On a request's way: descriptors that travel through the socket along with the bytes of a frame.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Sends bytes with a descriptor; returns how many of them the socket took.
pub(crate) fn send_with(socket: impl AsFd, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))?)
}

/// Reads bytes, and keeps the last descriptor that came with them; returns how many bytes there were, 0 at the end.
pub(crate) fn receive_with(
    socket: impl AsFd,
    space: &mut [u8],
    kept: &mut Option<OwnedFd>,
) -> io::Result<usize> {
    // The kernel closes those that have no room.
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let message = recvmsg(socket, &mut [IoSliceMut::new(space)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            *kept = descriptors.last().or(kept.take());
        }
    }
    Ok(message.bytes)
}
