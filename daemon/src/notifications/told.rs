//! What tests of the notifications hear: the events that were told in their own thread, as lines and with their fields.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, registry};
use weir_os::locks::lock;
use weir_os::notice::lines;

/// The lines that `run` has told in this thread.
pub(super) fn lines_of(run: impl FnOnce()) -> Vec<String> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let writer = {
        let told = Arc::clone(&told);
        move || Told(Arc::clone(&told))
    };
    tracing::subscriber::with_default(registry().with(lines(false, writer)), run);
    let told = String::from_utf8(lock(&told).clone()).expect("UTF-8");
    told.lines().map(|line| line.strip_prefix("weir: ").unwrap_or(line).to_owned()).collect()
}

struct Told(Arc<Mutex<Vec<u8>>>);

impl Write for Told {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The target, the level and the fields of an event.
pub(super) type Entry = (String, Level, BTreeMap<String, String>);

/// The events that `run` has told in this thread, with their fields.
pub(super) fn entries_of(run: impl FnOnce()) -> Vec<Entry> {
    let told = Arc::default();
    tracing::subscriber::with_default(registry().with(Kept(Arc::clone(&told))), run);
    std::mem::take(&mut *lock(&told))
}

struct Kept(Arc<Mutex<Vec<Entry>>>);

impl<S: Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        let of = event.metadata();
        lock(&self.0).push((of.target().to_owned(), *of.level(), fields.0));
    }
}

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

#[test]
fn a_line_is_the_message_and_no_terminal_is_commanded() {
    let told = lines_of(|| {
        tracing::warn!("a path \u{1b}[31m: {}", 7);
        tracing::trace!(token = 3, "arrival");
    });
    assert_eq!(told[0], "a path \\x1b[31m: 7");
    assert!(told[1].starts_with("TRACE ") && told[1].ends_with(": arrival token=3"), "{told:?}");
}
