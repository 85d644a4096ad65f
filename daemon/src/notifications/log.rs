//! The log, for people: each announcement as an event of the log, and the present state to the service manager.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rt_core::{Severity, Span};
use tracing::{Level, event, warn};
use weir_client::StreamState;

use super::newest::Newest;
use super::{Announcement, ROOM, State};
use weir_os::clock;
use weir_os::limit::Limit;
use weir_os::locks::lock;
use weir_os::notice::{self, ANNOUNCED, LOST};
use weir_serve::manager;

/// So many lines within [`WINDOW`] at most: what comes faster is counted, and told with the next line.
const LINES: usize = 20;
const WINDOW: Span = Span::from_millis(1_000);

/// Names of the kinds of entry, for `journalctl MESSAGE_ID=`; they never change.
const SAFE_MODE: &str = "3196088eac6740908e38a5d725355185";
const SUSPENSION: &str = "c909c15bf2a2432fb38c7df9b265839d";

/// The way to the thread that writes: what waits for a slow reader of standard error waits here.
pub(crate) struct Log {
    pub(super) queue: SyncSender<Item>,
    /// Services that have gone and of which there was no room to say so.
    pub(super) gone: Mutex<VecDeque<String>>,
    /// Absent once it was waited for.
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

/// What comes to that thread.
pub(super) enum Item {
    Tell(Arc<Announcement>),
    /// This service has gone.
    Forget(String),
    End,
}

impl Log {
    /// Starts the thread; `lost` counts what found no room in the queue of a channel.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn open(lost: &Arc<AtomicU64>) -> std::io::Result<Self> {
        let (queue, announcements) = sync_channel(ROOM);
        let lost = Arc::clone(lost);
        let run = move || write(&announcements, &lost);
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(run)?;
        Ok(Self { queue, gone: Mutex::default(), thread: Mutex::new(Some(thread)) })
    }

    /// False if there is no room.
    pub(super) fn put(&self, announcement: &Arc<Announcement>) -> bool {
        self.forget_all(&mut lock(&self.gone));
        self.queue.try_send(Item::Tell(Arc::clone(announcement))).is_ok()
    }

    /// Nothing of this service stands any more. Where there is no room, that is told before the next announcement.
    pub(super) fn forget(&self, service: &str) {
        let mut gone = lock(&self.gone);
        gone.push_back(service.to_owned());
        self.forget_all(&mut gone);
    }

    fn forget_all(&self, gone: &mut VecDeque<String>) {
        while let Some(service) = gone.front() {
            if self.queue.try_send(Item::Forget(service.clone())).is_err() {
                break;
            }
            gone.pop_front();
        }
    }

    /// Ends the thread once it has written what is there, and waits for that, but not for ever: then it is left behind
    /// with what nobody reads.
    pub(super) fn close(&self) {
        let patient = notice::patience();
        while matches!(self.queue.try_send(Item::End), Err(TrySendError::Full(_))) && patient() {}
        let Some(thread) = lock(&self.thread).take() else { return };
        while !thread.is_finished() && patient() {}
        if thread.is_finished() {
            // A panic there has told its message.
            let _ = thread.join();
        }
    }
}

/// Tells what comes, until the end; what did not come, or was too much, as a number.
pub(super) fn write(items: &Receiver<Item>, lost: &AtomicU64) {
    let mut limit = Limit::new(LINES, WINDOW);
    let mut standing = Standing::default();
    while let Ok(item) = items.recv() {
        match item {
            Item::End => break,
            Item::Forget(service) => standing.0.forget(&service),
            Item::Tell(announcement) => {
                tell_lost(lost);
                if let Some(untold) = limit.admit(clock::now()) {
                    tell_untold(untold);
                    tell(&announcement);
                }
                standing.0.note(&announcement);
            }
        }
        manager::status(&standing.line());
    }
    tell_lost(lost);
    tell_untold(limit.take_untold());
}

fn tell_lost(lost: &AtomicU64) {
    match lost.swap(0, Ordering::Relaxed) {
        0 => {}
        count => warn!(target: ANNOUNCED, "{count} announcements found no room in the queue of a channel"),
    }
}

fn tell_untold(untold: u64) {
    if untold > 0 {
        warn!(target: ANNOUNCED, "{untold} announcements are not in this log, at most {LINES} a second");
    }
}

/// One event, with the fields that the journal is to have; those that do not concern it are not there.
fn tell(announcement: &Announcement) {
    let (line, fields) = (announcement.line(), announcement.fields());
    let of = |name| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str());
    macro_rules! entry {
        ($level:ident, $target:expr, $id:expr) => {
            event!(
                target: $target,
                Level::$level,
                MESSAGE_ID = $id,
                WEIR_EVENT = of("WEIR_EVENT"),
                WEIR_SERVICE = of("WEIR_SERVICE"),
                WEIR_STATE = of("WEIR_STATE"),
                WEIR_STATE_NUMBER = of("WEIR_STATE_NUMBER"),
                WEIR_STREAM_STATE = of("WEIR_STREAM_STATE"),
                WEIR_STREAM_STATE_NUMBER = of("WEIR_STREAM_STATE_NUMBER"),
                WEIR_CAUSE = of("WEIR_CAUSE"),
                WEIR_CAUSE_NUMBER = of("WEIR_CAUSE_NUMBER"),
                WEIR_SEQUENCE = of("WEIR_SEQUENCE"),
                WEIR_BREACHES = of("WEIR_BREACHES"),
                WEIR_ENTERED_USEC = of("WEIR_ENTERED_USEC"),
                WEIR_LIMIT = of("WEIR_LIMIT"),
                WEIR_SEEN = of("WEIR_SEEN"),
                WEIR_WINDOW = of("WEIR_WINDOW"),
                WEIR_STREAM = of("WEIR_STREAM"),
                WEIR_TEXT = of("WEIR_TEXT"),
                "{line}"
            )
        };
    }
    match announcement.state {
        State::Service(Severity::Normal) => entry!(INFO, ANNOUNCED, SAFE_MODE),
        State::Service(Severity::Warning) => entry!(WARN, ANNOUNCED, SAFE_MODE),
        State::Service(Severity::Safe) => entry!(ERROR, ANNOUNCED, SAFE_MODE),
        State::Service(Severity::Lost) => entry!(ERROR, LOST, SAFE_MODE),
        State::Stream(StreamState::Normal) => entry!(INFO, ANNOUNCED, SUSPENSION),
        State::Stream(_) => entry!(WARN, ANNOUNCED, SUSPENSION),
    }
}

/// How all services and streams stand.
#[derive(Default)]
struct Standing(Newest);

impl Standing {
    /// The worst state, and why: that of services before that of streams.
    fn line(&self) -> String {
        let beside = |all: usize, what| match all {
            0 | 1 => String::new(),
            _ => format!(" (and {} more {what})", all - 1),
        };
        let severity = |told: &Announcement| match told.state {
            State::Service(severity) if severity > Severity::Normal => Some(severity),
            _ => None,
        };
        let services = || self.0.iter().filter_map(|told| Some((severity(told)?, told)));
        if let Some((severity, worst)) = services().max_by_key(|(severity, _)| *severity) {
            let beside = beside(services().count(), "services");
            return format!("{severity}: {}: {}{beside}", worst.service, worst.text);
        }
        let suspended =
            |told: &Announcement| matches!(told.state, State::Stream(state) if state.is_suspended());
        let streams = || self.0.iter().filter(|told| suspended(told));
        match streams().next() {
            Some(one) => {
                let beside = beside(streams().count(), "streams");
                format!("suspended: {}: {}{beside}", one.service, one.text)
            }
            None => "normal: every promise holds".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::announced::{overrun, suspension};
    use crate::notifications::told::{entries_of, lines_of};

    /// What the journal has, and `journalctl` finds: docs/notifications.md.
    #[test]
    fn an_entry_has_the_message_its_id_and_every_field() {
        let safe = overrun("lanes", 9);
        let lost = Announcement { state: State::Service(Severity::Lost), ..safe.clone() };
        let normal = Announcement { state: State::Service(Severity::Normal), ..safe.clone() };
        let warning = Announcement { state: State::Service(Severity::Warning), ..safe.clone() };
        let [suspended, over] = [true, false].map(|on| suspension(("lanes", "cam0"), 2, on));
        for (told, target, level, id) in [
            (safe, ANNOUNCED, Level::ERROR, SAFE_MODE),
            (lost, LOST, Level::ERROR, SAFE_MODE),
            (normal, ANNOUNCED, Level::INFO, SAFE_MODE),
            (warning, ANNOUNCED, Level::WARN, SAFE_MODE),
            (suspended, ANNOUNCED, Level::WARN, SUSPENSION),
            (over, ANNOUNCED, Level::INFO, SUSPENSION),
        ] {
            let entries = entries_of(|| tell(&told));
            let owned = |(name, value): (&str, String)| (name.to_owned(), value);
            let fields = told.fields().into_iter().map(owned);
            let message = [("MESSAGE_ID", id.to_owned()), ("message", told.line())].map(owned);
            assert_eq!(entries, [(target.to_owned(), level, fields.chain(message).collect())]);
            assert_eq!(lines_of(|| tell(&told)), [told.line()], "the line has the message alone");
        }
    }

    #[test]
    fn the_present_state_is_the_worst_and_never_an_old_one() {
        let mut standing = Standing::default();
        assert_eq!(standing.line(), "normal: every promise holds");
        let note = |standing: &mut Standing, told| standing.0.note(&Arc::new(told));
        note(&mut standing, suspension(("lanes", "a"), 1, true));
        assert!(
            standing.line().starts_with("suspended: lanes: arrival-excess: stream a"),
            "{}",
            standing.line()
        );
        note(&mut standing, suspension(("lanes", "b"), 2, true));
        assert!(standing.line().ends_with("(and 1 more streams)"), "{}", standing.line());
        note(&mut standing, overrun("lanes", 4));
        let left = Announcement { state: State::Service(Severity::Normal), ..overrun("lanes", 3) };
        note(&mut standing, left.clone());
        assert!(standing.line().starts_with("safe-mode: lanes: service-overrun"), "{}", standing.line());
        note(&mut standing, Announcement { state: State::Service(Severity::Lost), ..overrun("digits", 1) });
        assert!(standing.line().starts_with("lost: digits: "), "{}", standing.line());
        assert!(standing.line().ends_with("(and 1 more services)"), "{}", standing.line());
        standing.0.forget("digits");
        assert!(standing.line().starts_with("safe-mode: lanes: "), "{}", standing.line());
        note(&mut standing, Announcement { sequence: 5, ..left.clone() });
        note(&mut standing, Announcement { service: "digits".into(), sequence: 2, ..left });
        assert!(standing.line().starts_with("suspended: lanes: "), "{}", standing.line());
        note(&mut standing, suspension(("lanes", "a"), 3, false));
        note(&mut standing, suspension(("lanes", "b"), 4, false));
        assert_eq!(standing.line(), "normal: every promise holds");
    }
}
