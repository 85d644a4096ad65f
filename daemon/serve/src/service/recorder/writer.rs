//! What the recorder noted, as lines of a file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use rt_core::{Instant, Span};
use tracing::{error, warn};

use super::{Note, PERIOD, Place, Shared, Ticket};
use weir_os::clock;
use weir_plan::config::{RECORDING, RecordConfig};

/// Losses are told at most this often.
const TELL: Span = Span::from_millis(1_000);

/// The thread's side.
pub(super) struct Writer<W> {
    pub(super) notes: Receiver<Note>,
    shared: Arc<Shared>,
    pub(super) out: W,
    /// A service, or a device, and its name.
    whose: String,
    path: String,
    /// How many notes are fetched at a time.
    room: usize,
    pub(super) origin: Instant,
    /// Arrivals and declarations so far.
    lines: u64,
    /// Of each stream, how many requests are in the file; and which request had each ticket last.
    sent: HashMap<Arc<str>, u64>,
    open: HashMap<Ticket, (Arc<str>, u64)>,
    /// Arrivals not recorded: since the last line, and since that was last told on standard error.
    missing: u64,
    pub(super) untold: u64,
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
    /// Fetches `room` notes at a time.
    pub(super) fn new(
        whose: String,
        config: &RecordConfig,
        (notes, shared): (Receiver<Note>, Arc<Shared>),
        out: W,
        room: usize,
    ) -> Self {
        Self {
            notes,
            shared,
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
        }
    }

    /// Whether writing has failed.
    #[cfg(test)]
    pub(super) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    pub(super) fn run(mut self) {
        while !self.shared.stopped.load(Ordering::Acquire) {
            self.fetch();
            self.tell(false);
            std::thread::park_timeout(PERIOD);
        }
        self.finish();
    }

    pub(super) fn finish(&mut self) {
        while !self.fetch() {}
        self.tell(true);
    }

    pub(super) fn head(&mut self) {
        let (whose, origin) = (self.whose.clone(), self.origin.as_nanos());
        self.line(format_args!("{RECORDING} {whose}"));
        self.line(format_args!("# in ns after {origin} ns of CLOCK_MONOTONIC\ntime,stream"));
        self.flush();
        self.lines = 0;
    }

    /// Writes down what was noted, so much at a time that the file is flushed now and then; true if that was all.
    pub(super) fn fetch(&mut self) -> bool {
        let mut all = false;
        for _ in 0..self.room {
            match self.notes.try_recv() {
                Ok(Note::Arrival(lost, now, stream, class, ticket)) => {
                    self.miss(lost);
                    self.arrival(now, (stream, class), ticket);
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
            Note::Take(ticket) => {
                if let Some(request) = self.named(ticket) {
                    self.comment(format_args!("# take,{request}"));
                }
            }
            Note::Start(at, place, length) => {
                self.comment(format_args!("# start,{},{},{}", since(at), worker(&place), length.as_nanos()));
            }
            Note::Become(ticket, stage, count) => {
                if let Some(request) = self.named(ticket) {
                    self.comment(format_args!("# become,{request},{},{count}", quoted(&stage)));
                }
            }
            Note::End(at, place) => self.comment(format_args!("# end,{},{}", since(at), worker(&place))),
            Note::Arrival(..) | Note::Declared(_) => {}
        }
    }

    /// The request of a ticket: its stream, and its number there. Without one it came when there was no room for a note of it,
    /// and the file says so.
    fn named(&mut self, ticket: Ticket) -> Option<String> {
        let named = self.open.get(&ticket).map(|(stream, seq)| format!("{},{seq}", quoted(stream)));
        if named.is_none() {
            self.untold_batches(1);
        }
        named
    }

    fn untold_batches(&mut self, count: u64) {
        if count > 0 {
            self.comment(format_args!("# {count} starts and ends of batches not recorded"));
        }
    }

    fn arrival(
        &mut self,
        now: Instant,
        (stream, class): (Arc<str>, Option<Arc<str>>),
        ticket: Option<Ticket>,
    ) {
        if self.has_room() {
            self.gap();
            let time = now.since(self.origin).as_nanos();
            match class {
                Some(class) => self.line(format_args!("{time},{},{}", quoted(&stream), quoted(&class))),
                None => self.line(format_args!("{time},{}", quoted(&stream))),
            }
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

/// A worker as fields of a line.
fn worker((stage, worker): &Place) -> String {
    stage.as_ref().map_or_else(|| worker.to_string(), |stage| format!("{},{worker}", quoted(stage)))
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
