//! What every end-to-end test needs to start a daemon, talk to it and see it end.

pub(crate) mod bus;
pub(crate) mod polkit;
pub(crate) mod prover;

mod bounds;
mod daemon;
mod deployment;
mod machine;
mod raw;
mod told;
mod vouched;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use weir_client::blocking::Client;
use weir_client::{Answer, Outcome, Registration, RequestId, StreamInfo};

pub(crate) use daemon::Daemon;
pub(crate) use deployment::Deployment;
pub(crate) use machine::{alone, quiet};
pub(crate) use raw::{Raw, frame, hello};
pub(crate) use told::Listener;
pub(crate) use vouched::{Authority, own_address};

/// How long a test waits for what must come before it gives up; says nothing about how fast it should be.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The whole `[daemon]` table of a test: without real-time priorities and a bus of the machine's, which would only
/// disturb other tests.
pub(crate) const DAEMON: &str =
    "[daemon]\nsocket = \"s\"\nprofile = \"profile.json\"\nrealtime = false\nbus = \"off\"\n";

/// The same with real-time priorities, where the machine permits them: what is said at the end of a test's daemon tells
/// whether it did.
pub(crate) fn daemon_in_real_time() -> String {
    DAEMON.replace("realtime = false", "realtime = true")
}

/// The registration of a best-effort or reserved stream.
pub(crate) fn best_effort(service: &str, stream: &str) -> Registration {
    Registration::builder(service, stream).build().expect("it fits the frame")
}

/// The number of a request of its stream.
pub(crate) fn sequence(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Result(result) => result.sequence,
        Outcome::Miss(miss) => miss.sequence,
    }
}

/// Whether of any three in a row at most one was missed.
pub(crate) fn one_in_three(hits: impl IntoIterator<Item = bool>) -> bool {
    let hits: Vec<bool> = hits.into_iter().collect();
    hits.windows(3).all(|three| three.iter().filter(|hit| !**hit).count() <= 1)
}

/// Takes the answers to `ids` in any order, each exactly once; events are left out.
pub(crate) fn answers(client: &mut Client, ids: &[RequestId]) -> Vec<Outcome> {
    let mut open: Vec<RequestId> = ids.to_vec();
    let mut outcomes = Vec::new();
    while !open.is_empty() {
        let (id, outcome) = match client.recv_timeout(PATIENCE).expect("the connection stays") {
            Some(Answer::Result(id, result)) => (id, Outcome::Result(result)),
            Some(Answer::Miss(id, miss)) => (id, Outcome::Miss(miss)),
            Some(Answer::Event(_)) => continue,
            Some(Answer::Refused(id, refusal)) => panic!("{id}: {refusal}"),
            None => panic!("{} requests have no answer", open.len()),
        };
        let place = open.iter().position(|of| *of == id);
        open.swap_remove(place.unwrap_or_else(|| panic!("{id} was answered twice")));
        outcomes.push(outcome);
    }
    outcomes
}

/// The values of an answer's only output; `None` for a miss.
pub(crate) fn values(stream: &StreamInfo, outcome: &Outcome) -> Option<Vec<f32>> {
    outcome.result().map(|result| stream.output(result).expect("an output of f32"))
}

/// Looks again every few milliseconds until there is something to be found.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what} did not come");
        pause(Duration::from_millis(5));
    }
}

/// Lets at least this much time pass.
pub(crate) fn pause(length: Duration) {
    let started = now();
    while let Some(left) = length.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// A file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Says that a check cannot be made here, and why; the end of `make test` says it again.
pub(crate) fn not_checked(what: &str) {
    eprintln!("NOT CHECKED: {what}");
    if let Some(path) = std::env::var_os("WEIR_NOT_CHECKED") {
        let mut file = File::options().create(true).append(true).open(path).expect("a file to append to");
        file.write_all(format!("{what}\n").as_bytes()).expect("written");
    }
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The binary under test; whoever runs it shares the machine with other tests, or has it to itself ([`alone`]).
pub(crate) fn weir() -> &'static str {
    machine::share();
    env!("CARGO_BIN_EXE_weir")
}

/// The present instant of the test.
#[allow(clippy::disallowed_methods, reason = "a test paces its clients and waits in its own time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
