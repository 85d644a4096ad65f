//! Beside a request's way: when each came and what the scheduler made of it, for a thread of its own to write down.

mod writer;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use anyhow::{Context, Result};
use rt_core::{Instant, Span, WorkerId};

use tracing::warn;
use weir_plan::config::RecordConfig;
use writer::Writer;

/// Notes on their way to the file at most.
const ROOM: usize = 1 << 16;
/// How often they are fetched, and the file is flushed.
const PERIOD: Duration = Duration::from_millis(100);

/// Takes notes of arrivals without ever waiting. What finds no room is counted, and told in the file where it is
/// missing.
pub(crate) struct Recorder {
    notes: SyncSender<Note>,
    shared: Arc<Shared>,
    writer: Thread,
}

#[derive(Default)]
struct Shared {
    /// Arrivals without a note since the last one with a note.
    lost: AtomicU64,
    /// Starts and ends of batches without a note since that was last told in the file.
    lost_batches: AtomicU64,
    /// Arrivals and declarations in the file at most.
    limit: AtomicU64,
    stopped: AtomicBool,
}

enum Note {
    /// How many before it have no note, when it came, its stream, its class if there are such, and its ticket if it has one.
    Arrival(u64, Instant, Arc<str>, Option<Arc<str>>, Option<Ticket>),
    /// What a client declared of its stream.
    Declared(String),
    /// The ticket of a request of the batch that is about to start, or of the source that it is of.
    Take(Ticket),
    /// A batch has started: when, on which worker, and how long it may take.
    Start(Instant, Place, Span),
    /// Of the batch that is about to end, results of the source of this ticket have become so many requests of a stage.
    Become(Ticket, Arc<str>, u32),
    /// It has ended.
    End(Instant, Place),
}

/// A worker; of a pipeline the name of the stage, and its worker's number there.
pub(crate) type Place = (Option<Arc<str>>, WorkerId);

/// Which request: the number of its service on its device, and its slot there, which is used again once it is answered.
pub(crate) type Ticket = (usize, u64);

impl Recorder {
    /// Creates the file of a service or a device of this name anew and starts the thread that writes it, until [`Recorder::stop`].
    ///
    /// # Errors
    /// If the file cannot be created, with its field and path.
    pub(crate) fn start((kind, name): (&str, &str), config: &RecordConfig) -> Result<(Self, JoinHandle<()>)> {
        let at = || format!("{kind} {name}: record = {}", config.path.display());
        let file = File::create(&config.path).context("cannot be created").with_context(at)?;
        let out = BufWriter::new(file);
        let (notes, shared, mut writer) = open(format!("{kind} {name}"), config, out, ROOM);
        writer.head();
        let name = format!("{name}/record");
        let thread = std::thread::Builder::new().name(name).spawn(move || writer.run())?;
        Ok((Self { notes, shared, writer: thread.thread().clone() }, thread))
    }

    /// Notes that a request of `stream` came at `now`, of that class if there are such, with its ticket, if the scheduler is to have one. To be called in
    /// the scheduler's order, under its lock; neither allocates nor waits.
    pub(crate) fn arrival(
        &self,
        now: Instant,
        (stream, class): (&Arc<str>, Option<&Arc<str>>),
        ticket: Option<Ticket>,
    ) {
        take_down(&self.notes, &self.shared, now, (stream, class), ticket);
    }

    /// Notes that a worker begins a batch of these requests, and may take `length`; to be called as [`Recorder::arrival`].
    pub(crate) fn start_of(
        &self,
        now: Instant,
        place: Place,
        length: Span,
        batch: impl Iterator<Item = Ticket>,
    ) {
        self.take_down(batch.map(Note::Take).chain([Note::Start(now, place, length)]));
    }

    /// Notes of the batch that is about to end which source's results have become how many requests of which stages; to be called as
    /// [`Recorder::arrival`].
    pub(crate) fn became(&self, became: impl Iterator<Item = (Ticket, Arc<str>, u32)>) {
        self.take_down(became.map(|(ticket, stage, count)| Note::Become(ticket, stage, count)));
    }

    /// Notes that the batch of a worker has ended; to be called as [`Recorder::arrival`].
    pub(crate) fn end_of(&self, now: Instant, place: Place) {
        self.take_down([Note::End(now, place)].into_iter());
    }

    /// What finds no room is counted once, however much of it there is.
    fn take_down(&self, mut notes: impl Iterator<Item = Note>) {
        if !notes.all(|note| self.notes.try_send(note).is_ok()) {
            self.shared.lost_batches.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes what a client declared of its stream, as one line of JSON.
    pub(crate) fn declared(&self, stream: &str, declaration: String) {
        if self.notes.try_send(Note::Declared(declaration)).is_err() {
            warn!("the declaration of stream {stream} is not recorded: no room for a note of it");
        }
    }

    /// Lets the file have so many lines from now on.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.shared.limit.store(limit, Ordering::Relaxed);
    }

    /// Ends the thread once all that was noted before is in the file.
    pub(crate) fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.writer.unpark();
    }
}

/// A channel that holds all it may from the start: sending moves a note into its place, and nobody waits at the
/// other end who would have to be woken.
fn open<W: Write>(
    whose: String,
    config: &RecordConfig,
    out: W,
    room: usize,
) -> (SyncSender<Note>, Arc<Shared>, Writer<W>) {
    let (sender, notes) = sync_channel(room);
    let shared = Arc::new(Shared { limit: AtomicU64::new(config.limit), ..Shared::default() });
    let writer = Writer::new(whose, config, (notes, Arc::clone(&shared)), out, room);
    (sender, shared, writer)
}

fn take_down(
    notes: &SyncSender<Note>,
    shared: &Shared,
    now: Instant,
    (stream, class): (&Arc<str>, Option<&Arc<str>>),
    ticket: Option<Ticket>,
) {
    let before = shared.lost.swap(0, Ordering::Relaxed);
    if notes.try_send(Note::Arrival(before, now, Arc::clone(stream), class.cloned(), ticket)).is_err() {
        shared.lost.fetch_add(before + 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
