//! On a request's way: the two tasks between an async client and the socket, and the table of who waits for what.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::descriptor;
use crate::error::{Error, check_length};
use crate::incoming::{Incoming, Reply};
use crate::options::Options;
use crate::shared::{Arena, Memory};
use crate::types::Event;
use crate::wire::{ClientFrame, DEFAULT_MAX_FRAME, FrameBuffer, OLDEST_VERSION};

/// Frames handed over and not yet in the socket.
const OUTBOX: usize = 64;

/// An open connection; its tasks end with it.
///
/// Frames go through a queue to a task of their own, so that a caller who stops waiting never leaves half a
/// frame in the socket.
#[derive(Debug)]
pub(super) struct Connection {
    state: Arc<Mutex<State>>,
    outbox: mpsc::Sender<Outgoing>,
    next_id: AtomicU64,
    max_in_flight: usize,
    tasks: [AbortHandle; 2],
}

/// A frame on its way to the socket; an empty one only wakes the task that writes.
#[derive(Debug, Default)]
struct Outgoing {
    frame: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

/// What the reading task shares with the callers.
#[derive(Debug)]
struct State {
    waiting: HashMap<u64, oneshot::Sender<Reply>>,
    /// Streams granted to callers who had stopped waiting, by the id of the REGISTER; still to be given up.
    unclaimed: Vec<(u64, u32)>,
    /// Gone once the connection is closed, so that its receivers end.
    events: Option<broadcast::Sender<Event>>,
    /// Why the connection is closed.
    end: Option<Error>,
    /// Largest body in bytes that the daemon takes.
    max_frame: u32,
    /// Of the protocol, as it chose it.
    version: u16,
    /// The arena of this connection.
    arena: Weak<Memory>,
}

impl Connection {
    pub(super) fn open(socket: UnixStream, options: &Options) -> Self {
        let (reader, writer) = socket.into_split();
        let (outbox, frames) = mpsc::channel(OUTBOX);
        let (events, _) = broadcast::channel(options.event_backlog.max(1));
        let state = Arc::new(Mutex::new(State {
            waiting: HashMap::new(),
            unclaimed: Vec::new(),
            events: Some(events),
            end: None,
            max_frame: DEFAULT_MAX_FRAME,
            version: OLDEST_VERSION,
            arena: Weak::new(),
        }));
        let writing = tokio::spawn(write(writer, state.clone(), frames)).abort_handle();
        let reading = read(reader, state.clone(), outbox.clone(), writing.clone());
        let reading = tokio::spawn(reading).abort_handle();
        Self {
            state,
            outbox,
            next_id: AtomicU64::new(1),
            max_in_flight: options.max_in_flight.max(1),
            tasks: [reading, writing],
        }
    }

    /// Enters a frame in the table of those waiting, then queues it.
    pub(super) async fn send(
        self: &Arc<Self>,
        descriptor: Option<OwnedFd>,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> Result<Waiting, Error> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut frame = Vec::new();
        encode(id, &mut frame);
        let (sender, reply) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            check_length(&frame, state.max_frame)?;
            if state.waiting.len() >= self.max_in_flight {
                return Err(Error::TooManyInFlight { limit: self.max_in_flight });
            }
            state.waiting.insert(id, sender);
        }
        let waiting = Waiting { id, reply, connection: self.clone() };
        // If the writing task is gone, the reading task finds out why; `reply` tells.
        let _ = self.outbox.send(Outgoing { frame, descriptor }).await;
        Ok(waiting)
    }

    /// What was made of an answer; one that has no place here ends the connection.
    pub(super) fn taken<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        if let Err(error @ Error::Unexpected { .. }) = &read {
            lock(&self.state).finish(error.clone());
            self.tasks.iter().for_each(AbortHandle::abort);
        }
        read
    }

    /// A place where events arrive from now on.
    pub(super) fn events(&self) -> Result<broadcast::Receiver<Event>, Error> {
        let state = lock(&self.state);
        state.events.as_ref().map(broadcast::Sender::subscribe).ok_or_else(|| state.why())
    }

    /// The version of the protocol that both ends speak.
    pub(super) fn version(&self) -> u16 {
        lock(&self.state).version
    }

    /// The daemon has taken this arena.
    pub(super) fn shares(&self, arena: &Arena) {
        lock(&self.state).arena = arena.mark();
    }

    /// The one that it has taken.
    pub(super) fn arena(&self) -> Weak<Memory> {
        lock(&self.state).arena.clone()
    }

    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).end.is_some()
    }

    /// Why the connection is closed.
    pub(super) fn end(&self) -> Error {
        lock(&self.state).why()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl State {
    /// Tells everyone that waits, or will, why the connection ended.
    fn finish(&mut self, end: Error) {
        self.end.get_or_insert(end);
        self.events = None;
        self.waiting.clear();
    }

    fn why(&self) -> Error {
        self.end.clone().unwrap_or(Error::Closed)
    }

    /// Takes an answer that nobody waits for: what it grants is given up.
    fn drop_reply(&mut self, id: u64, reply: &Reply, outbox: &mpsc::Sender<Outgoing>) {
        if let Reply::Registered(stream) = reply {
            self.unclaimed.push((id, stream.id));
            // Where the queue is full, the frames in it wake the task as well.
            let _ = outbox.try_send(Outgoing::default());
        }
    }

    /// The frames that give up what nobody waits for. The id of each REGISTER is free again.
    fn give_up(&mut self, out: &mut Vec<u8>) {
        for (id, stream) in self.unclaimed.drain(..) {
            ClientFrame::Unregister { stream }.encode(id, out);
        }
    }
}

/// A place in the table of those waiting for an answer; given back when dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    id: u64,
    reply: oneshot::Receiver<Reply>,
    connection: Arc<Connection>,
}

impl Waiting {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Waits for the answer, or for the end of the connection.
    pub(super) async fn reply(mut self) -> Result<Reply, Error> {
        (&mut self.reply).await.map_err(|_| self.connection.end())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = lock(&self.connection.state);
        state.waiting.remove(&self.id);
        // It may have come without having been looked at.
        if let Ok(reply) = self.reply.try_recv() {
            state.drop_reply(self.id, &reply, &self.connection.outbox);
        }
    }
}

/// Writes queued frames until nobody can queue any more or the socket takes none.
async fn write(mut socket: OwnedWriteHalf, state: Arc<Mutex<State>>, mut frames: mpsc::Receiver<Outgoing>) {
    let mut first = Vec::new();
    while let Some(Outgoing { frame, descriptor }) = frames.recv().await {
        lock(&state).give_up(&mut first);
        if socket.write_all(&first).await.is_err() {
            return;
        }
        first.clear();
        let sent = match &descriptor {
            Some(descriptor) => send_with(socket.as_ref(), &frame, descriptor.as_fd()).await,
            None => Ok(0),
        };
        let Ok(sent) = sent else { return };
        if socket.write_all(&frame[sent..]).await.is_err() {
            return;
        }
    }
}

/// Sends the beginning of a frame and a descriptor with it.
async fn send_with(socket: &UnixStream, frame: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    socket.async_io(Interest::WRITABLE, || descriptor::send_with(socket, frame, descriptor)).await
}

/// Hands on what arrives until the connection ends, then tells everyone why and has the other task end: with both halves
/// the socket is closed, and whoever waits for room in the queue waits no more.
async fn read(
    socket: OwnedReadHalf,
    state: Arc<Mutex<State>>,
    outbox: mpsc::Sender<Outgoing>,
    writing: AbortHandle,
) {
    let Err(end) = deliver(socket.as_ref(), &state, &outbox).await;
    lock(&state).finish(end);
    writing.abort();
}

async fn deliver(
    socket: &UnixStream,
    state: &Mutex<State>,
    outbox: &mpsc::Sender<Outgoing>,
) -> Result<std::convert::Infallible, Error> {
    let mut buffer = FrameBuffer::new(DEFAULT_MAX_FRAME);
    // One that came and whose frame is still to be read.
    let mut kept = None;
    loop {
        while let Some((header, body)) = buffer.next_frame()? {
            match Incoming::read(&header, body, &mut kept)? {
                Incoming::Event(event) => {
                    if let Some(events) = &lock(state).events {
                        // Without a subscriber nobody is there to miss it.
                        let _ = events.send(event);
                    }
                }
                Incoming::Reply(id, reply) => {
                    let mut state = lock(state);
                    if let Reply::Welcome { version, max_frame, .. } = reply {
                        buffer.set_max_frame(max_frame);
                        state.max_frame = max_frame;
                        state.version = version;
                    }
                    // Nobody waits any more where a caller lost patience.
                    match state.waiting.remove(&id) {
                        // Who is about to stop waiting looks once more, see `Waiting`.
                        Some(waiting) => drop(waiting.send(reply)),
                        None => state.drop_reply(id, &reply, outbox),
                    }
                }
            }
        }
        let space = buffer.space();
        let read = || descriptor::receive_with(socket, space, &mut kept);
        match socket.async_io(Interest::READABLE, read).await? {
            0 => return Err(Error::Closed),
            count => buffer.filled(count),
        }
    }
}

/// No code panics while it holds the lock, and every state in between is whole.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
