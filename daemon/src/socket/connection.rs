//! The sending half of a client's connection: any thread may answer, none is ever kept waiting.

use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};
use rt_core::Span;
use weir_client::wire::{DaemonFrame, ErrorCode, EventMask};

use super::alarm::Alarm;
use super::debt;
use super::send::{Unsent, send_now};
use weir_os::pi_mutex::PiMutex;
use weir_serve::out::Replies;

/// One client as seen by those who answer it.
pub(crate) struct Connection {
    socket: UnixStream,
    /// Tells the client's thread that there is something to flush, or to take over.
    flush: EventFd,
    pending: PiMutex<Unsent>,
    max_pending: usize,
    /// Requests without an answer.
    open: AtomicUsize,
    /// What it took to read in vain what has not been charged yet, in nanoseconds.
    vain: AtomicU64,
    wanted: AtomicU32,
    events_lost: AtomicU64,
    alarm: OnceLock<Alarm>,
    /// What is sent is kept together, see [`Connection::cork`].
    corked: AtomicBool,
    dead: AtomicBool,
}

/// So many bytes are kept together at most.
const CORKED: usize = 16 << 10;

impl Connection {
    /// Takes the socket over; up to `max_pending` bytes wait for a client that reads slowly.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub(crate) fn new(socket: UnixStream, max_pending: usize) -> std::io::Result<Self> {
        Ok(Self {
            socket,
            flush: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            pending: PiMutex::default(),
            max_pending,
            open: AtomicUsize::new(0),
            vain: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            events_lost: AtomicU64::new(0),
            alarm: OnceLock::new(),
            corked: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        })
    }

    /// Sends a whole frame. A client with too much pending is cut off: its answers cannot wait for ever.
    pub(crate) fn send(&self, frame: &[u8]) {
        if !self.try_send(frame, None) {
            self.cut_off();
        }
    }

    /// Takes the client's alarm, the first on the connection, and sends a frame along with its file.
    pub(super) fn give_alarm(&self, alarm: Alarm, file: OwnedFd, frame: &[u8]) {
        self.alarm.get_or_init(|| alarm);
        if !self.try_send(frame, Some(file)) {
            self.cut_off();
        }
    }

    /// Whether the client has an alarm.
    pub(super) fn has_alarm(&self) -> bool {
        self.alarm.get().is_some()
    }

    /// Rings the alarm of a client that has one and asked for changes of this kind; never waits.
    pub(super) fn ring(&self, kind: EventMask) {
        if self.wants(kind) {
            self.alarm.get().into_iter().for_each(Alarm::ring);
        }
    }

    /// Ends what belongs to the alarm; the client's own thread alone may wait for that.
    pub(super) fn end_alarm(&self) {
        self.alarm.get().into_iter().for_each(Alarm::end);
    }

    /// Sends an event to a client that asked for its kind; what does not fit is counted and told later.
    pub(crate) fn send_event(&self, kind: EventMask, frame: &[u8]) {
        if !self.wants(kind) {
            return;
        }
        let lost = self.events_lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let mut notice = Vec::new();
            DaemonFrame::EventsLost { count: lost }.encode(0, &mut notice);
            if !self.try_send(&notice, None) {
                self.events_lost.fetch_add(lost + 1, Ordering::Relaxed);
                return;
            }
        }
        if !self.try_send(frame, None) {
            self.events_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the client asked for events of this kind, or of one of these.
    pub(super) fn wants(&self, kind: EventMask) -> bool {
        self.wanted.load(Ordering::Relaxed) & kind.0 != 0
    }

    /// Chooses the events to be sent.
    pub(crate) fn subscribe(&self, mask: EventMask) {
        self.wanted.store(mask.0, Ordering::Relaxed);
    }

    /// Resets the signal, and flushes: for the client's own thread, which then looks for all that it may have stood for.
    pub(super) fn heed(&self) {
        // That there was none is fine.
        let _ = self.flush.read();
        self.flush();
    }

    /// Writes what is pending as far as the socket takes it; true if something is left.
    pub(crate) fn flush(&self) -> bool {
        let mut pending = self.pending.lock();
        if self.is_dead() {
            return false;
        }
        pending.send(&self.socket);
        !pending.is_empty()
    }

    /// Ends the connection for both halves.
    pub(crate) fn close(&self) {
        self.dead.store(true, Ordering::Relaxed);
        // A peer that closed first is the only error, and closed is what is wanted.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// How many requests of this client have no answer yet.
    pub(crate) fn open_requests(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// From now on what is sent is kept together: for who is sent many small frames, and not in a hurry.
    pub(super) fn cork(&self) {
        self.corked.store(true, Ordering::Relaxed);
    }

    /// Sends what was kept together.
    pub(super) fn uncork(&self) {
        if self.corked.swap(false, Ordering::Relaxed) {
            self.flush();
        }
    }

    /// It took so long to read what came to nothing, or was no request.
    pub(super) fn owe(&self, took: Span) {
        self.vain.fetch_add(took.as_nanos(), Ordering::Relaxed);
    }

    /// What is owed since the last time.
    pub(super) fn take_owed(&self) -> Span {
        Span::from_nanos(self.vain.swap(0, Ordering::Relaxed))
    }

    /// Has the client's thread look for what others have left for it.
    pub(crate) fn wake(&self) {
        // The counter of an eventfd can only be full if nobody reads, and then the signal stands.
        let _ = self.flush.write(1);
    }

    /// Whether something waits to be flushed, and can be.
    pub(crate) fn has_pending(&self) -> bool {
        !self.is_dead() && !self.pending.lock().is_empty()
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    pub(crate) fn flush_signal(&self) -> BorrowedFd<'_> {
        self.flush.as_fd()
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Ends the connection of a client that does not read. It is told so only if all that was begun has gone
    /// out: within another frame the last word would be taken for a part of that frame.
    fn cut_off(&self) {
        let mut pending = self.pending.lock();
        if self.dead.swap(true, Ordering::Relaxed) {
            return;
        }
        pending.send(&self.socket);
        if pending.is_empty() {
            let mut last = Vec::new();
            let text = "answers were not read; the connection is closed";
            DaemonFrame::Error { code: ErrorCode::TooSlow, text }.encode(0, &mut last);
            // If even this does not fit, the close says enough.
            send_now(&self.socket, &last, None);
        }
        self.close();
    }

    fn try_send(&self, frame: &[u8], descriptor: Option<OwnedFd>) -> bool {
        let mut pending = self.pending.lock();
        if self.is_dead() {
            return true;
        }
        let file = descriptor.as_ref().map(OwnedFd::as_fd);
        let corked = file.is_none() && self.corked.load(Ordering::Relaxed);
        let full = pending.len() + frame.len() > CORKED.min(self.max_pending);
        if corked && full {
            pending.send(&self.socket);
        } else if corked {
            pending.push(frame, None);
            return true;
        }
        let sent = if pending.is_empty() { send_now(&self.socket, frame, file) } else { 0 };
        let rest = &frame[sent..];
        if rest.is_empty() {
            return true;
        }
        // A frame begun must be finished, whatever the limit.
        if sent == 0 && pending.len() + rest.len() > self.max_pending {
            return false;
        }
        pending.push(rest, descriptor.filter(|_| sent == 0));
        self.wake();
        true
    }
}

impl Replies for Connection {
    fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn in_vain(&self, bytes: usize) {
        self.owe(debt::of_frame(bytes));
    }

    fn send(&self, frame: &[u8]) {
        Self::send(self, frame);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_others_have_left_for_the_clients_thread_is_not_forgotten_when_answers_are_sent() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let connection = Connection::new(ours, 1 << 20).expect("an eventfd");
        connection.cork();
        connection.wake();
        connection.uncork();
        assert!(connection.flush.read().is_ok(), "the signal stands");
        connection.wake();
        connection.heed();
        assert!(connection.flush.read().is_err(), "it was looked for");
    }

    #[test]
    fn what_a_slow_reader_is_sent_before_it_is_cut_off_is_whole_up_to_the_end() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let connection = Connection::new(ours, 1 << 20).expect("an eventfd");
        let frame: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        let mut received = vec![0; 150_000];
        for i in 0.. {
            connection.send(&frame);
            if connection.is_dead() {
                break;
            }
            // Makes room in the socket, but what waits has begun within a frame.
            if i == 8 {
                theirs.read_exact(&mut received).expect("several frames are there");
            }
        }
        connection.send(&frame);
        assert!(!connection.flush(), "nothing may follow");
        theirs.read_to_end(&mut received).expect("the end");
        let mut expected = frame.iter().cycle();
        assert!(received.iter().all(|byte| Some(byte) == expected.next()), "something else within a frame");
    }
}
