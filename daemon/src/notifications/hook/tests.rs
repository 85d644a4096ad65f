//! Hooks as operators write them: short ones, ones that hang, ones that leave others behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::notifications::announced::{overrun, suspension};
use rt_core::Span;
use std::os::unix::fs::PermissionsExt;

/// A folder with a shell script as hook, which finds its own folder in `$1`.
pub(in super::super) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(in super::super) fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hook");
        std::fs::write(&path, format!("#!/bin/sh\ncd \"$1\"\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
        Self { folder }
    }

    pub(in super::super) fn open(&self, limit_ms: u64) -> (Hook, JoinHandle<()>) {
        let arguments = vec![self.folder.path().display().to_string()];
        let limit = Span::from_millis(limit_ms);
        Hook::open(Some(HookConfig { program: self.path("hook"), arguments, limit })).expect("a thread")
    }

    pub(in super::super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The words of a file, once there are `count`.
    pub(in super::super) fn words(&self, name: &str, count: usize) -> Vec<String> {
        eventually(|| {
            let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
            let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            (words.len() >= count).then_some(words)
        })
    }
}

fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6_000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("it did not come within 30 s");
}

fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    // An orphan that was killed may wait for the first process to bury it.
    stat.map_or(true, |stat| stat.contains(") Z "))
}

fn put(hook: &Hook, service: &str, sequence: u64) {
    hook.put(&Arc::new(overrun(service, sequence)));
}

#[test]
fn it_is_told_service_state_cause_and_evidence() {
    let place = Place::new("env | grep ^WEIR_ | sort > draft; mv draft told");
    let (hook, thread) = place.open(30_000);
    put(&hook, "lanes", 4);
    let words = place.words("told", 14);
    for word in [
        "WEIR_SERVICE=lanes",
        "WEIR_STATE=safe-mode",
        "WEIR_CAUSE_NUMBER=2",
        "WEIR_SEQUENCE=4",
        "WEIR_LIMIT=5000",
    ] {
        assert!(words.iter().any(|w| w == word), "{word} is not in {words:?}");
    }
    hook.close();
    thread.join().expect("no panic");
}

#[test]
fn of_a_service_one_runs_at_a_time_and_then_for_the_newest() {
    let place =
        Place::new("echo $WEIR_SERVICE$WEIR_SEQUENCE >> runs; while [ ! -e go ]; do sleep 0.01; done");
    let (hook, thread) = place.open(30_000);
    put(&hook, "a", 1);
    assert_eq!(place.words("runs", 1), ["a1"]);
    for sequence in 2..50 {
        put(&hook, "a", sequence);
    }
    put(&hook, "a", 48);
    put(&hook, "b", 1);
    assert_eq!(place.words("runs", 2), ["a1", "b1"]);
    std::fs::write(place.path("go"), "").expect("written");
    assert_eq!(place.words("runs", 3), ["a1", "b1", "a49"]);
    hook.close();
    thread.join().expect("no panic");
}

/// However many streams flood: of a service one run tells of streams at a time, and safe mode waits for none of them.
#[test]
fn streams_are_told_one_after_the_other_and_beside_safe_mode() {
    let place = Place::new(
        "echo $WEIR_EVENT/$WEIR_STREAM/$WEIR_STREAM_STATE >> runs; while [ ! -e go ]; do sleep 0.01; done",
    );
    let (hook, thread) = place.open(30_000);
    let suspend = |stream, sequence, suspended| {
        hook.put(&Arc::new(suspension(("a", stream), sequence, suspended)));
    };
    suspend("x", 1, true);
    assert_eq!(place.words("runs", 1), ["suspension/x/suspended"]);
    suspend("z", 2, true);
    suspend("y", 3, true);
    suspend("z", 4, false);
    put(&hook, "a", 1);
    assert_eq!(place.words("runs", 2)[1], "safe-mode//");
    std::fs::write(place.path("go"), "").expect("written");
    // In the order in which they came, each with its newest state.
    assert_eq!(place.words("runs", 4)[2..], ["suspension/z/normal", "suspension/y/suspended"]);
    hook.close();
    thread.join().expect("no panic");
}

#[test]
fn a_service_that_was_forgotten_is_told_from_its_first_announcement_on() {
    let place = Place::new("echo $WEIR_SEQUENCE >> runs");
    let (hook, thread) = place.open(30_000);
    put(&hook, "a", 7);
    assert_eq!(place.words("runs", 1), ["7"]);
    hook.forget("a");
    put(&hook, "a", 1);
    assert_eq!(place.words("runs", 2), ["7", "1"]);
    hook.close();
    thread.join().expect("no panic");
}

/// On a busy machine a run may be killed before its script got anywhere: then the next one's is waited for.
#[test]
fn one_that_hangs_is_killed_with_what_it_started_and_the_next_one_runs() {
    let place = Place::new("sleep 1000 & echo $$ $! >> pids; wait");
    let (hook, thread) = place.open(200);
    let mut sequence = 0;
    let mut pids_of = |runs: usize| {
        eventually(|| {
            sequence += 1;
            put(&hook, "a", sequence);
            let text = std::fs::read_to_string(place.path("pids")).unwrap_or_default();
            let pids: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            (pids.len() >= 2 * runs).then_some(pids)
        })
    };
    let first = pids_of(1);
    let both = pids_of(2);
    assert_eq!(both[..2], first[..2]);
    eventually(|| first[..2].iter().all(|pid| is_gone(pid)).then_some(()));
    hook.close();
    thread.join().expect("no panic");
    eventually(|| both.iter().all(|pid| is_gone(pid)).then_some(()));
}

#[test]
fn what_one_leaves_behind_ends_with_it_and_nothing_stays_unburied() {
    let place = Place::new("sleep 1000 & echo $! >> left; exit 3");
    let (hook, thread) = place.open(30_000);
    for sequence in 1..=3 {
        put(&hook, "a", sequence);
        place.words("left", sequence as usize);
    }
    let left = place.words("left", 3);
    eventually(|| left.iter().all(|pid| is_gone(pid)).then_some(()));
    hook.close();
    thread.join().expect("no panic");
}

#[test]
fn the_thread_ends_with_what_runs() {
    let place = Place::new("echo $$ > pid; trap '' TERM INT; while :; do sleep 1; done");
    let (hook, thread) = place.open(60_000);
    put(&hook, "a", 1);
    let pid = place.words("pid", 1);
    hook.close();
    thread.join().expect("no panic");
    assert!(!Path::new("/proc").join(&pid[0]).exists(), "it was not buried");
}

#[test]
fn one_that_cannot_be_run_harms_nobody() {
    let place = Place::new("");
    std::fs::remove_file(place.path("hook")).expect("removed");
    let (hook, thread) = place.open(1_000);
    put(&hook, "a", 1);
    hook.close();
    thread.join().expect("no panic");
}
