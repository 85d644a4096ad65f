//! Where events go: standard error and the journal. A daemon waits for no slow reader, nor does it fail with one that has
//! gone.
//!
//! The queue of lines is our own: that of `tracing-appender` tells nobody how many lines it has lost, and at the end, if
//! it is full, it writes to standard output, which may be the same pipe that nobody reads.

use std::fmt;
use std::fs::File;
use std::io::{self, Write, stderr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rt_core::Span;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{DefaultFields, FormatFields, Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, registry};

use crate::clock;
use crate::pi_mutex::PiMutex;

/// What is told unless one asks for more or less.
pub const DEFAULT: &str = "weir=info";
/// The target of announcements. Their thread has nothing else to do, and so waits for the reader.
pub const ANNOUNCED: &str = "weir::announced";
/// That of those which leave nothing that answers: critical in the journal, where other errors are errors.
pub const LOST: &str = "weir::announced::lost";

/// So many lines wait for the reader at most; what comes then is counted.
const ROOM: usize = 1_024;
/// How long the reader has at the end for what is there.
const LAST_LINES: Span = Span::from_millis(1_000);
/// How often it is looked whether that has been written.
const PAUSE: Duration = Duration::from_millis(1);

/// The way to the thread that writes, while there is one.
static QUEUE: PiMutex<Option<Queue>> = PiMutex::new(None);

struct Queue {
    lines: SyncSender<Box<[u8]>>,
    lost: u64,
}

/// The filter of [`DEFAULT`].
pub fn default() -> Targets {
    Targets::new().with_target("weir", Level::INFO)
}

/// The filter that `text` says.
///
/// # Errors
/// If it is none: a word by itself that is neither a level nor a module of Weir is taken for a level that is misspelt, for as a
/// module of another library it would silence all of Weir.
pub fn parse(text: &str) -> Result<Targets, String> {
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let is_module = |word: &str| word.is_empty() || word.contains("::") || word.starts_with("weir");
    let known = |word: &&str| word.contains('=') || is_level(word) || is_module(word);
    if let Some(word) = text.split(',').map(str::trim).find(|word| !known(word)) {
        return Err(format!(
            "{word} is neither a level (off, error, warn, info, debug, trace) nor a module with one ({word}=info)"
        ));
    }
    text.parse::<Targets>().map_err(|error| error.to_string())
}

/// Tells the events that pass `filter` from now on: announcements to the journal with their fields, if standard error is
/// connected to it and it takes entries; all others, a line each, on standard error.
pub fn start(mut filter: Targets) {
    let journal = is_journal();
    let entries = |error| journal.then(|| entries(error)).and_then(Result::ok);
    let (errors, critical) = (entries(Priority::Error), entries(Priority::Critical));
    let mut levels = [Level::INFO, Level::WARN, Level::ERROR].into_iter();
    let level = levels
        .find(|level| filter.would_enable(ANNOUNCED, level))
        .map_or(LevelFilter::OFF, LevelFilter::from_level);
    if errors.is_some() && critical.is_some() {
        filter = filter.with_target(ANNOUNCED, LevelFilter::OFF);
    }
    // Each layer has the filter, and none lies over all of them: else no event would be known to be off by its level.
    let layers = registry()
        .with(lines(journal, Stderr).with_filter(filter))
        .with(errors.with_filter(Targets::new().with_targets([(ANNOUNCED, level), (LOST, LevelFilter::OFF)])))
        .with(critical.with_filter(Targets::new().with_target(LOST, level)));
    // It is called once.
    let _ = layers.try_init();
}

/// Whether standard error goes to the journal.
fn is_journal() -> bool {
    let told = std::env::var("JOURNAL_STREAM").ok();
    let file = || File::from(stderr().as_fd().try_clone_to_owned().ok()?).metadata().ok();
    told.is_some_and(|told| file().is_some_and(|file| told == format!("{}:{}", file.dev(), file.ino())))
}

/// Entries of the journal, those of errors with this priority.
fn entries(error: Priority) -> io::Result<tracing_journald::Layer> {
    let mappings = PriorityMappings { error, info: Priority::Informational, ..PriorityMappings::default() };
    let layer = tracing_journald::layer()?.with_field_prefix(None).with_priority_mappings(mappings);
    Ok(layer.with_syslog_identifier("weir".to_owned()))
}

/// Lines for `writer`; the journal finds the level of each before it.
pub fn lines<S, W>(journal: bool, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    let layer = tracing_subscriber::fmt::layer().event_format(Plain { journal }).with_ansi(false);
    // What cannot be written is not told by `eprintln!`, which waits for the reader and panics without one.
    layer.log_internal_errors(false).with_writer(writer)
}

/// `weir: ` and the message. What is told of each request has its instant too, its thread, and what it is part of.
struct Plain {
    journal: bool,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, DefaultFields> for Plain {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        if self.journal {
            writer.write_str(match level {
                Level::ERROR => "<3>",
                Level::WARN => "<4>",
                Level::INFO => "<6>",
                _ => "<7>",
            })?;
        }
        writer.write_str("weir: ")?;
        if level > Level::INFO {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            write!(writer, "{level} {} {name}: ", clock::now().as_nanos() / 1_000)?;
            for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
                write!(writer, "{}: ", span.name())?;
            }
        }
        if target.starts_with(ANNOUNCED) {
            // The message says it all in words; its fields are those of the journal.
            let message = debug_fn(|writer, field, value| match field.name() {
                "message" => write!(writer, "{value:?}"),
                _ => Ok(()),
            });
            message.format_fields(writer.by_ref(), event)?;
        } else {
            context.field_format().format_fields(writer.by_ref(), event)?;
        }
        writeln!(writer)
    }
}

/// Has a thread of its own write the lines of all others, until dropped.
pub struct Notices(JoinHandle<()>);

impl Notices {
    /// Starts the thread.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn queue() -> io::Result<Self> {
        let (lines, written) = sync_channel(ROOM);
        let run = move || written.iter().for_each(|line: Box<[u8]>| write(&line));
        let thread = std::thread::Builder::new().name("notices".to_owned()).spawn(run)?;
        *QUEUE.lock() = Some(Queue { lines, lost: 0 });
        Ok(Self(thread))
    }
}

/// Whether such a thread writes.
pub fn is_queued() -> bool {
    QUEUE.lock().is_some()
}

impl Drop for Notices {
    /// Waits until what is there has been written, `LAST_LINES` at most: then the thread is left behind.
    fn drop(&mut self) {
        *QUEUE.lock() = None;
        let patient = patience();
        while !self.0.is_finished() && patient() {}
    }
}

/// Waits a little each time, and says whether it is worth it: whoever should read the last lines may not.
pub fn patience() -> impl Fn() -> bool {
    let until = clock::now() + LAST_LINES;
    move || {
        std::thread::park_timeout(PAUSE);
        clock::now() < until
    }
}

/// Says what the caller asked for, and so whatever the filter is.
pub fn say(text: impl fmt::Display) {
    write(format!("weir: {text}\n").as_bytes());
}

/// Writes at once, and does not panic as `eprintln!` does where it cannot.
fn write(line: &[u8]) {
    // Whom should one tell that it cannot be?
    let _ = stderr().write_all(line);
}

/// Makes the writers of lines.
struct Stderr;

/// Writes one line.
struct Line {
    waits: bool,
}

impl MakeWriter<'_> for Stderr {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line { waits: false }
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> Line {
        Line { waits: event.target().starts_with(ANNOUNCED) }
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut queue = QUEUE.lock();
        match &mut *queue {
            Some(queue) if !self.waits => queue.put(line.into()),
            _ => {
                drop(queue);
                write(line);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Queue {
    fn put(&mut self, line: Box<[u8]>) {
        let lost = self.lost;
        let told = || format!("weir: {lost} lines found no room before this one\n").into_bytes();
        if lost > 0 && self.lines.try_send(told().into()).is_ok() {
            self.lost = 0;
        }
        if let Err(TrySendError::Full(_)) = self.lines.try_send(line) {
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_levels_and_modules_and_no_level_that_is_misspelt() {
        for text in [
            "warn",
            "WARN",
            "off",
            "weir=info",
            "warn,weir::request=trace",
            "weir::request",
            "hyper=debug, info",
            "",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
        for (text, word) in
            [("wran", "wran"), ("weir=info,foo", "foo"), ("weir=bananas", ""), ("hyper", "hyper")]
        {
            let error = parse(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(parse("wran").is_err_and(|error| error.contains("neither a level (off, error, warn")));
    }
}
