//! The journal's door: an entry with fields where standard error goes to the journal.
//!
//! The native protocol is one datagram of `NAME=value` lines (systemd, "Native Journal Protocol").

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rt_core::Severity;
use weir_client::StreamState;

use super::{Announcement, State};

/// Where the journal takes entries.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Names of the kinds of entry, for `journalctl MESSAGE_ID=`; they never change.
const SAFE_MODE: &str = "3196088eac6740908e38a5d725355185";
const SUSPENSION: &str = "c909c15bf2a2432fb38c7df9b265839d";

/// A connection to the journal.
pub(super) struct Journal {
    socket: UnixDatagram,
}

impl Journal {
    /// The journal, if standard error is connected to it and it takes entries.
    pub(super) fn of_stderr() -> Option<Self> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let stderr = File::from(io::stderr().as_fd().try_clone_to_owned().ok()?).metadata().ok()?;
        if stream != format!("{}:{}", stderr.dev(), stderr.ino()) {
            return None;
        }
        Self::connect(Path::new(SOCKET)).ok()
    }

    fn connect(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        // What the journal does not take at once goes to standard error.
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// Writes an entry; false if the journal does not take it.
    pub(super) fn send(&self, announcement: &Announcement) -> bool {
        let mut entry = Vec::new();
        put(&mut entry, "MESSAGE", &announcement.line());
        let (id, priority) = kind(announcement.state);
        put(&mut entry, "MESSAGE_ID", id);
        put(&mut entry, "PRIORITY", priority);
        put(&mut entry, "SYSLOG_IDENTIFIER", "weir");
        for (name, value) in announcement.fields() {
            put(&mut entry, name, &value);
        }
        self.socket.send(&entry).is_ok()
    }
}

/// Appends a field: on one line, or with its length if it has several.
fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

/// The kind of entry, and its priority as `syslog` numbers them: information, warning, error, critical.
fn kind(state: State) -> (&'static str, &'static str) {
    match state {
        State::Service(Severity::Normal) => (SAFE_MODE, "6"),
        State::Service(Severity::Warning) => (SAFE_MODE, "4"),
        State::Service(Severity::Safe) => (SAFE_MODE, "3"),
        State::Service(Severity::Lost) => (SAFE_MODE, "2"),
        State::Stream(StreamState::Normal) => (SUSPENSION, "6"),
        State::Stream(_) => (SUSPENSION, "4"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::announced::{overrun, suspension};

    #[test]
    fn an_entry_has_the_message_its_id_and_every_field() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let journal = UnixDatagram::bind(&path).expect("a socket");
        let door = Journal::connect(&path).expect("connected");
        let told = Announcement { stream: "two\nlines".into(), ..overrun("lanes", 9) };
        assert!(door.send(&told));
        let mut entry = [0; 4096];
        let length = journal.recv(&mut entry).expect("an entry");
        let entry = &entry[..length];
        let text = String::from_utf8_lossy(entry);
        for line in
            [&format!("MESSAGE_ID={SAFE_MODE}"), "PRIORITY=3", "WEIR_SEQUENCE=9", "WEIR_CAUSE_NUMBER=2"]
        {
            assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
        }
        assert!(text.contains("\nMESSAGE=") || text.starts_with("MESSAGE=lanes: safe-mode: "), "{text}");
        let field = b"WEIR_STREAM\n\x09\0\0\0\0\0\0\0two\nlines\n";
        assert!(entry.windows(field.len()).any(|window| window == field), "{text}");
        assert!(door.send(&suspension(("lanes", "cam0"), 2, true)));
        let mut entry = [0; 4096];
        let length = journal.recv(&mut entry).expect("an entry");
        let text = String::from_utf8_lossy(&entry[..length]);
        for line in [
            &format!("MESSAGE_ID={SUSPENSION}"),
            "PRIORITY=4",
            "WEIR_STREAM=cam0",
            "WEIR_STREAM_STATE=suspended",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
        }
        drop(journal);
        assert!(!door.send(&told), "nobody listens any more");
    }

    #[test]
    fn one_that_is_not_read_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let journal = UnixDatagram::bind(&path).expect("a socket");
        let door = Journal::connect(&path).expect("connected");
        let taken = (0..100_000).take_while(|&sequence| door.send(&overrun("lanes", sequence))).count();
        assert!((1..100_000).contains(&taken), "the rest goes to standard error: {taken}");
        journal.set_nonblocking(true).expect("set");
        let kept = (0..taken).filter(|_| journal.recv(&mut [0; 4096]).is_ok()).count();
        assert_eq!(kept, taken, "what was taken is there");
    }
}
