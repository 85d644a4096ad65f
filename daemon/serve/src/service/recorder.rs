//! Beside a request's way: when each came and what the scheduler made of it, for a thread of its own to write down.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use anyhow::{Context, Result};
use rt_core::{Instant, Span, WorkerId};

use tracing::{error, warn};
use weir_os::clock;
use weir_plan::config::{RECORDING, RecordConfig};

/// Notes on their way to the file at most.
const ROOM: usize = 1 << 16;
/// How often they are fetched, and the file is flushed.
const PERIOD: Duration = Duration::from_millis(100);
/// Losses are told at most this often.
const TELL: Span = Span::from_millis(1_000);

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
    /// How many before it have no note, when it came, its stream, and its ticket if it has one.
    Arrival(u64, Instant, Arc<str>, Option<Ticket>),
    /// What a client declared of its stream.
    Declared(String),
    /// The ticket of a request of the batch that is about to start.
    Take(Ticket),
    /// A batch has started: when, on which worker, and how long it may take.
    Start(Instant, WorkerId, Span),
    /// It has ended.
    End(Instant, WorkerId),
}

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

    /// Notes that a request of `stream` came at `now`, with its ticket, if the scheduler is to have one. To be called in
    /// the scheduler's order, under its lock; neither allocates nor waits.
    pub(crate) fn arrival(&self, now: Instant, stream: &Arc<str>, ticket: Option<Ticket>) {
        take_down(&self.notes, &self.shared, now, stream, ticket);
    }

    /// Notes that `worker` begins a batch of these requests, and may take `length`; to be called as [`Recorder::arrival`].
    pub(crate) fn start_of(
        &self,
        now: Instant,
        worker: WorkerId,
        length: Span,
        batch: impl Iterator<Item = Ticket>,
    ) {
        let taken = batch.fold(true, |all, ticket| all & self.note(Note::Take(ticket)));
        if !self.note(Note::Start(now, worker, length)) || !taken {
            self.shared.lost_batches.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that the batch of `worker` has ended; to be called as [`Recorder::arrival`].
    pub(crate) fn end_of(&self, now: Instant, worker: WorkerId) {
        if !self.note(Note::End(now, worker)) {
            self.shared.lost_batches.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note(&self, note: Note) -> bool {
        self.notes.try_send(note).is_ok()
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
    let writer = Writer {
        notes,
        shared: Arc::clone(&shared),
        out,
        whose,
        path: config.path.display().to_string(),
        room,
        origin: clock::now(),
        lines: 0,
        sent: HashMap::new(),
        open: HashMap::new(),
        missing: 0,
        untold: 0,
        told: Instant::ZERO,
        state: State::Open,
    };
    (sender, shared, writer)
}

fn take_down(
    notes: &SyncSender<Note>,
    shared: &Shared,
    now: Instant,
    stream: &Arc<str>,
    ticket: Option<Ticket>,
) {
    let before = shared.lost.swap(0, Ordering::Relaxed);
    if notes.try_send(Note::Arrival(before, now, Arc::clone(stream), ticket)).is_err() {
        shared.lost.fetch_add(before + 1, Ordering::Relaxed);
    }
}

/// The thread's side.
struct Writer<W> {
    notes: Receiver<Note>,
    shared: Arc<Shared>,
    out: W,
    /// A service, or a device, and its name.
    whose: String,
    path: String,
    /// How many notes are fetched at a time.
    room: usize,
    origin: Instant,
    /// Arrivals and declarations so far.
    lines: u64,
    /// Of each stream, how many requests are in the file; and which request had each ticket last.
    sent: HashMap<Arc<str>, u64>,
    open: HashMap<Ticket, (Arc<str>, u64)>,
    /// Arrivals not recorded: since the last line, and since that was last told on standard error.
    missing: u64,
    untold: u64,
    told: Instant,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// As long as it may become.
    Full,
    /// Writing failed.
    Broken,
}

impl<W: Write> Writer<W> {
    fn run(mut self) {
        while !self.shared.stopped.load(Ordering::Acquire) {
            self.fetch();
            self.tell(false);
            std::thread::park_timeout(PERIOD);
        }
        self.finish();
    }

    fn finish(&mut self) {
        while !self.fetch() {}
        self.tell(true);
    }

    fn head(&mut self) {
        let (whose, origin) = (self.whose.clone(), self.origin.as_nanos());
        self.line(format_args!("{RECORDING} {whose}"));
        self.line(format_args!("# in ns after {origin} ns of CLOCK_MONOTONIC\ntime,stream"));
        self.flush();
        self.lines = 0;
    }

    /// Writes down what was noted, so much at a time that the file is flushed now and then; true if that was all.
    fn fetch(&mut self) -> bool {
        let mut all = false;
        for _ in 0..self.room {
            match self.notes.try_recv() {
                Ok(Note::Arrival(lost, now, stream, ticket)) => {
                    self.miss(lost);
                    self.arrival(now, stream, ticket);
                }
                Ok(Note::Declared(text)) if self.has_room() => self.line(format_args!("# stream {text}")),
                Ok(Note::Declared(_)) => {}
                Ok(note) if self.state == State::Open => self.batch(note),
                Ok(_) => {}
                Err(_) => {
                    let lost = self.shared.lost.swap(0, Ordering::Relaxed);
                    self.miss(lost);
                    all = true;
                    break;
                }
            }
        }
        if self.state == State::Open {
            self.gap();
            let batches = self.shared.lost_batches.swap(0, Ordering::Relaxed);
            self.untold_batches(batches);
        }
        self.flush();
        all
    }

    /// What the scheduler did, as comments that a reader of arrivals leaves out.
    fn batch(&mut self, note: Note) {
        let origin = self.origin;
        let since = |at: Instant| at.since(origin).as_nanos();
        match note {
            Note::Take(ticket) => match self.open.get(&ticket).cloned() {
                Some((stream, seq)) => self.comment(format_args!("# take,{},{seq}", quoted(&stream))),
                // It came when there was no room for a note of it.
                None => self.untold_batches(1),
            },
            Note::Start(at, worker, length) => {
                self.comment(format_args!("# start,{},{worker},{}", since(at), length.as_nanos()));
            }
            Note::End(at, worker) => self.comment(format_args!("# end,{},{worker}", since(at))),
            Note::Arrival(..) | Note::Declared(_) => {}
        }
    }

    fn untold_batches(&mut self, count: u64) {
        if count > 0 {
            self.comment(format_args!("# {count} starts and ends of batches not recorded"));
        }
    }

    fn arrival(&mut self, now: Instant, stream: Arc<str>, ticket: Option<Ticket>) {
        if self.has_room() {
            self.gap();
            let time = now.since(self.origin).as_nanos();
            self.line(format_args!("{time},{}", quoted(&stream)));
            let sent = self.sent.entry(Arc::clone(&stream)).or_default();
            let seq = *sent;
            *sent += 1;
            if let Some(ticket) = ticket {
                self.open.insert(ticket, (stream, seq));
            }
        } else {
            self.miss(1);
        }
    }

    /// Whether there is room for a line, and for one that says what is missing.
    fn has_room(&mut self) -> bool {
        let limit = self.shared.limit.load(Ordering::Relaxed);
        if self.state == State::Full && self.lines < limit {
            self.state = State::Open;
        }
        if self.state == State::Open && self.lines >= limit {
            self.gap();
            let whose = self.whose.clone();
            self.line(format_args!("# record-limit = {limit} is reached: what follows is not recorded"));
            self.state = State::Full;
            warn!("{whose}: record-limit = {limit} is reached: no more arrivals are recorded");
        }
        self.state == State::Open
    }

    fn miss(&mut self, count: u64) {
        self.missing += count;
        self.untold += count;
    }

    /// Says in the file that something is missing here.
    fn gap(&mut self) {
        let missing = std::mem::take(&mut self.missing);
        if missing > 0 {
            self.line(format_args!("# {missing} arrivals not recorded"));
        }
    }

    /// Says what is missing on standard error, now and then, and in the file at its end.
    fn tell(&mut self, last: bool) {
        if last && self.state == State::Full {
            self.gap();
            self.flush();
        }
        // Of a file that has ended it was said once, and how many it were is said at the end.
        let due = self.state == State::Open && clock::now().since(self.told) >= TELL;
        if self.untold > 0 && (last || due) {
            let untold = std::mem::take(&mut self.untold);
            warn!("{}: {untold} arrivals not recorded in {}", self.whose, self.path);
            self.told = clock::now();
        }
    }

    /// A line that counts.
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.lines += 1;
        self.comment(line);
    }

    fn comment(&mut self, line: std::fmt::Arguments<'_>) {
        if self.state != State::Broken
            && let Err(error) = writeln!(self.out, "{line}")
        {
            self.fail(&error);
        }
    }

    fn flush(&mut self) {
        if self.state != State::Broken
            && let Err(error) = self.out.flush()
        {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &std::io::Error) {
        self.state = State::Broken;
        error!(
            "{}: record = {}: {error}: the last lines may be missing, and further arrivals are not \
             recorded",
            self.whose, self.path
        );
    }
}

/// A name as a field of a line.
fn quoted(name: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.chars().all(plain) {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(format!("\"{}\"", name.replace('"', "\"\"")))
    }
}

#[cfg(test)]
mod tests;
