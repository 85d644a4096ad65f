//! How much of a connection is read, and when: less of who owes for what was read in vain.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rt_core::Span;
use weir_client::wire::{ErrorCode, FrameBuffer};

use super::super::intake::Taken;
use super::super::receive::{Received, receive};
use super::{Goodbye, Session, malformed};
use weir_os::clock;

/// A client that connects must say hello within this time.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Fewer bytes at a time that make no frame whole are read in vain: whoever sends frames sends more at once.
pub(super) const CRUMBS: usize = 4096;
/// So many bytes are read at a time with real-time priority of who is promised nothing: only what was read can be charged, and
/// until then as many connections as there may be are each read so far, while workers and who is promised something wait.
const AT_ONCE: usize = 2 << 10;

impl<'a> Session<'a> {
    /// Waits for bytes, flushing meanwhile what others could not send, and reads them; whether they were fewer than who sends
    /// frames sends at once. `None` at the end of the stream.
    pub(super) fn read(&mut self, buffer: &mut FrameBuffer) -> Result<Option<(Taken<'a>, bool)>, Goodbye> {
        let (front, connection) = (self.front, self.connection);
        let socket = connection.socket();
        loop {
            let pause = self.pause();
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::POLLIN, pause.is_none() && !front.intake.is_closed());
            wanted.set(PollFlags::POLLOUT, connection.has_pending());
            let mut waits = [
                PollFd::new(socket.as_fd(), wanted),
                PollFd::new(connection.flush_signal(), PollFlags::POLLIN),
            ];
            // Counted from the first instant: a byte now and then does not put it off.
            let left = HELLO_LIMIT.saturating_sub(clock::duration(clock::now().since(self.begun)));
            let limit = self.version.is_none().then_some(left).into_iter().chain(pause).min();
            let limit = limit.map(|limit| PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX));
            match poll(&mut waits, limit) {
                Ok(0) if pause.is_some() && (self.version.is_some() || !left.is_zero()) => continue,
                Ok(0) => {
                    let text = format!("no HELLO within {} s", HELLO_LIMIT.as_secs());
                    return Err(Goodbye(ErrorCode::ProtocolOrder, text));
                }
                Err(Errno::EINTR) => continue,
                Err(_) => return Ok(None),
                Ok(_) => {}
            }
            let (socket_ready, signalled) =
                (waits[0].revents().unwrap_or(PollFlags::POLLERR), waits[1].any() != Some(false));
            if signalled || socket_ready.contains(PollFlags::POLLOUT) {
                self.connection.heed();
                for (id, outcome) in self.waiting.take() {
                    self.registered(id, outcome);
                }
            }
            // Nobody is there to be answered any more, be it that nothing is to be read now: what is left was sent for nothing.
            if socket_ready.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
                return Ok(None);
            }
            if !socket_ready.contains(PollFlags::POLLIN) {
                continue;
            }
            // What has not been read by now is not the daemon's any more.
            let Some(taken) = front.intake.enter() else { continue };
            // A frame that has begun is read to its end all the same.
            let most = self.at_a_time().max(buffer.missing());
            let space = buffer.space();
            let most = most.min(space.len());
            match receive(socket, &mut space[..most], &mut self.descriptor) {
                Received::Bytes(count) => {
                    buffer.filled(count);
                    return Ok(Some((taken, count < most.min(CRUMBS))));
                }
                Received::Nothing => {}
                Received::End => return Ok(None),
                Received::TooManyDescriptors => {
                    return Err(malformed("more than one descriptor for one ARENA"));
                }
            }
        }
    }

    /// How many bytes are to be read now: fewer while its process owes too much, unless it holds a stream that is promised
    /// something and has read nothing in vain itself.
    fn at_a_time(&self) -> usize {
        let urgent = self.calm.is_none();
        if urgent && self.leases.values().any(|lease| lease.promised) {
            return usize::MAX;
        }
        let most = self.debt.at_a_time(clock::now, self.portion);
        if urgent { most.min(AT_ONCE) } else { most }
    }

    /// How long nothing is to be read: so long as too much is owed of what was read in vain. It is read without real-time
    /// priority until all is paid.
    fn pause(&mut self) -> Option<Duration> {
        self.charge();
        let now = self.pause.map(|_| clock::now())?;
        self.pause = self.pause.filter(|until| *until > now);
        // In whole milliseconds, and at least one.
        self.pause.map(|until| clock::duration(until.since(now)) + Duration::from_millis(1))
    }

    /// Puts down to its process what was read in vain since the last time.
    pub(super) fn charge(&mut self) {
        let owed = self.connection.take_owed();
        if owed > Span::ZERO {
            let now = clock::now();
            let promised = self.leases.values().any(|lease| lease.promised);
            // What it took in truth, of which that part was in vain.
            let (time, read) = (clock::thread_time(), self.read.max(owed).as_nanos());
            let all = time.as_nanos().saturating_sub(self.charged.as_nanos());
            let took = u128::from(all) * u128::from(owed.as_nanos()) / u128::from(read);
            (self.read, self.charged) = (Span::ZERO, time);
            // Who floods several services has its turn as one of those that flood the first.
            let first = self.leases.iter().min_by_key(|(number, _)| **number);
            let service = first.map_or(0, |(_, lease)| Arc::as_ptr(&lease.service) as usize);
            let pause = self.debt.charge(now, Span::from_nanos(took as u64), service, promised);
            self.portion = pause.map(|pause| pause.then).unwrap_or_default();
            if let Some(pause) = pause {
                self.pause = Some(pause.until);
                self.calm_down(pause.paid);
            }
        }
    }
}
