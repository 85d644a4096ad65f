//! The channels beside socket and bus, on a whole daemon: the hook, the service manager, the log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;

use crate::harness::bus::{Bus, Listener, daemon_on_bus, is_possible};
use crate::harness::{DAEMON, Daemon, Deployment, PATIENCE, best_effort, eventually, not_checked, weir};
use rustix::process::Signal;
use weir_client::Outcome;

/// Makes a shell script the program `hook`.
fn write_hook(place: &Deployment, script: &str) {
    let path = place.path("hook");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
}

/// One worker that takes 100 ms a request where the profile says 10, and a hook that notes what it is told.
fn place() -> Deployment {
    let place = Deployment::new("");
    write_hook(&place, r#"echo "$WEIR_SERVICE $WEIR_STATE $WEIR_CAUSE_NUMBER $WEIR_SEQUENCE" >> "$1""#);
    place.configure(format!(
        r#"{DAEMON}
        [safe-mode]
        hold = "300ms"
        clean = "300ms"
        hook = ["hook", {:?}]
        [[service]]
        name = "slow"
        engine = "simulated"
        simulated = {{ times = ["100ms"], input = 1, output = 1 }}
        deadline = "20s"
        guard = "1s"
        "#,
        place.path("told")
    ));
    place.profiled(&[10])
}

fn overrun(daemon: &Daemon) {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "one")).expect("a stream");
    client.infer(&stream, &[0.0]).expect("an answer");
}

#[test]
fn the_hook_runs_at_each_change_and_none_stays_unburied() {
    let place = place();
    let mut daemon = place.serve();
    overrun(&daemon);
    let told = eventually("two runs of the hook", || {
        let told = std::fs::read_to_string(place.path("told")).unwrap_or_default();
        (told.lines().count() == 2).then_some(told)
    });
    assert_eq!(told, "slow safe-mode 2 1\nslow normal 0 2\n");
    eventually("no child", || daemon.children().is_empty().then_some(()));
    // The log has a thread of its own.
    for line in ["weir: slow: safe-mode: service-overrun: ", "weir: slow: the promise holds again"] {
        eventually(line, || daemon.stderr().contains(line).then_some(()));
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

/// Puts the socket `$1` where the journal's is, for the rest of the command line alone.
const WITH_JOURNAL: &str = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
     ln -s \"$1\" /run/systemd/journal/socket && shift && exec \"$@\"";

/// The fields of an entry of the journal (systemd, "Native Journal Protocol"), where each tells its length.
fn fields(mut entry: &[u8]) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let mut fields = BTreeMap::new();
    while let Some(end) = entry.iter().position(|&byte| byte == b'\n') {
        let (name, rest) = (text(&entry[..end]), &entry[end + 1..]);
        if let Some((name, value)) = name.split_once('=') {
            fields.insert(name.to_owned(), value.to_owned());
            entry = rest;
        } else {
            let (length, rest) = rest.split_at(8);
            let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
            fields.insert(name, text(&rest[..length]));
            entry = &rest[length + 1..];
        }
    }
    fields
}

#[test]
fn the_journal_has_an_entry_with_fields_for_each_change_and_lines_with_their_levels() {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", WITH_JOURNAL, "sh"]);
    let place = place();
    command.arg(place.path("journal"));
    let mut trial = Command::new(command.get_program());
    if !trial.args(command.get_args()).arg("true").output().is_ok_and(|trial| trial.status.success()) {
        return not_checked("entries of the journal: a mount namespace is not permitted (CAP_SYS_ADMIN)");
    }
    let journal = UnixDatagram::bind(place.path("journal")).expect("a socket");
    journal.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let errors = File::create(place.path("stderr")).expect("a file");
    let file = errors.metadata().expect("there");
    command.env("JOURNAL_STREAM", format!("{}:{}", file.dev(), file.ino())).arg(weir());
    let daemon = place.spawn_by(&mut command, errors);
    eventually("the daemon's socket", || UnixStream::connect(place.socket()).ok());
    overrun(&daemon);
    let next = || loop {
        let mut entry = [0; 4096];
        let length = journal.recv(&mut entry).expect("an entry");
        // An empty one asks whether anybody is there.
        if length > 0 {
            return fields(&entry[..length]);
        }
    };
    for wanted in [
        [("PRIORITY", "3"), ("WEIR_STATE", "safe-mode"), ("WEIR_CAUSE_NUMBER", "2"), ("WEIR_SEQUENCE", "1")],
        [("PRIORITY", "6"), ("WEIR_STATE", "normal"), ("WEIR_CAUSE_NUMBER", "0"), ("WEIR_SEQUENCE", "2")],
    ] {
        let told = next();
        let of_all = [
            ("MESSAGE_ID", "3196088eac6740908e38a5d725355185"),
            ("SYSLOG_IDENTIFIER", "weir"),
            ("WEIR_SERVICE", "slow"),
        ];
        for (name, value) in wanted.into_iter().chain(of_all) {
            assert_eq!(told.get(name).map(String::as_str), Some(value), "{name}: {told:?}");
        }
        assert!(told["MESSAGE"].starts_with("slow: "), "{told:?}");
        assert!(!told.contains_key("WEIR_STREAM_STATE"), "{told:?}");
    }
    std::fs::write(place.config(), "nonsense").expect("written");
    daemon.reload_refused();
    eventually("a line with its level", || daemon.stderr().starts_with("<3>weir: reload: ").then_some(()));
    assert!(!daemon.stderr().contains("safe-mode"), "{}", daemon.stderr());
}

#[test]
fn the_filter_of_the_log_is_kept_and_a_request_can_be_followed() {
    let place = place();
    let mut daemon = place.spawn(&[("WEIR_LOG", Path::new("weir::request=trace"))]);
    eventually("the daemon's socket", || UnixStream::connect(place.socket()).ok());
    overrun(&daemon);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    let said = daemon.stderr();
    let mut lines = said.lines();
    for part in
        [": arrival service=\"slow\" stream=one token=", ": batch: start ", ": batch: end ", ": result "]
    {
        assert!(lines.any(|line| line.starts_with("weir: TRACE ") && line.contains(part)), "{part}: {said}");
    }
    assert!(!said.contains("safe-mode"), "that is not of requests: {said}");
}

/// Bytes that a pipe has room for.
const PIPE: usize = 65_536;

/// What is on the way to standard error waits for its reader, but the end of the daemon does not.
#[test]
fn the_daemon_ends_although_nobody_reads_its_log() {
    let place = place();
    let (unread, mut full) = std::io::pipe().expect("a pipe");
    let mut daemon = place.spawn_telling(&[], full.try_clone().expect("another end"));
    eventually("the daemon's socket", || UnixStream::connect(place.socket()).ok());
    let said = rustix::io::ioctl_fionread(&unread).expect("a number") as usize;
    full.write_all(&vec![b'.'; PIPE - said]).expect("there is room");
    overrun(&daemon);
    eventually("an announcement", || {
        std::fs::read_to_string(place.path("told")).is_ok_and(|told| !told.is_empty()).then_some(())
    });
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    drop(unread);
}

#[test]
fn a_reload_changes_the_hook_and_a_service_that_comes_back_is_told_anew() {
    let place = place();
    let daemon = place.serve();
    overrun(&daemon);
    let told = |file: &str, lines: usize| {
        eventually("runs of the hook", || {
            let told = std::fs::read_to_string(place.path(file)).unwrap_or_default();
            (told.lines().count() == lines).then_some(told)
        })
    };
    told("told", 2);
    let first = std::fs::read_to_string(place.config()).expect("there");
    place.configure(first.replace("\"slow\"", "\"other\""));
    assert_eq!(daemon.reload_accepted(), "service other: new\nservice slow: gone\n");
    place.configure(first.replace("/told\"", "/told-too\""));
    let changes = daemon.reload_accepted();
    assert!(changes.starts_with("service slow: new\nservice other: gone\nsafe-mode.hook: "), "{changes}");
    overrun(&daemon);
    assert_eq!(told("told-too", 2), "slow safe-mode 2 1\nslow normal 0 2\n");
    assert_eq!(told("told", 2).lines().count(), 2);
}

#[test]
fn the_service_manager_is_told_the_present_state() {
    let place = place();
    let manager = UnixDatagram::bind(place.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let daemon = place.spawn(&[("NOTIFY_SOCKET", &place.path("notify"))]);
    let next = |prefix: &str| {
        let mut message = [0; 4096];
        loop {
            let length = manager.recv(&mut message).expect("a notification");
            let text = String::from_utf8_lossy(&message[..length]).into_owned();
            if let Some(line) = text.lines().find(|line| line.starts_with(prefix)) {
                return line.to_owned();
            }
        }
    };
    next("READY=1");
    overrun(&daemon);
    assert!(next("STATUS=").starts_with("STATUS=safe-mode: slow: service-overrun: "));
    assert_eq!(next("STATUS="), "STATUS=normal: every promise holds");
}

/// A pipe that has no room left; what fills it are empty lines.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("set");
    while writer.write(b"\n").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("set");
    (reader, writer)
}

/// The number before `words` in the lines of a log that have them, all together.
fn counted(log: &str, words: &str) -> u64 {
    let lines = log.lines().filter(|line| line.contains(words));
    lines
        .map(|line| line.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok()).expect("a number"))
        .sum()
}

#[test]
fn stuck_channels_cost_no_answer_and_every_change_is_told_or_counted() {
    if !is_possible() {
        return;
    }
    let place = Deployment::new("");
    write_hook(&place, r#"echo $WEIR_SEQUENCE >> "$1/told"; while [ ! -e "$1/go" ]; do sleep 0.01; done"#);
    // Each request is an overrun, and over before the next one.
    place.configure(format!(
        r#"{}
        [safe-mode]
        hold = "1ms"
        clean = "1ms"
        hook = ["hook", {:?}]
        hook-limit = "60s"
        [[service]]
        name = "slow"
        engine = "simulated"
        simulated = {{ times = ["4ms"], input = 1, output = 1 }}
        deadline = "20s"
        guard = "1s"
        "#,
        daemon_on_bus(&place),
        place.path("")
    ));
    let place = place.profiled(&[1]);
    let bus = Bus::start(&place);
    let (mut log, errors) = full_pipe();
    let mut daemon = place.spawn_telling(&[], errors);
    bus.wait_for_weir();
    let ears = Listener::start(&place);

    bus.signal(Signal::STOP);
    let mut client = eventually("a client", || weir_client::blocking::Client::connect(place.socket()).ok());
    let stream = client.register(&best_effort("slow", "one")).expect("a stream");
    let state = |field: &str| daemon.status()["services"][0]["safe_mode"][field].clone();
    // More than all queues and pipes have room for.
    while state("sequence").as_u64() < Some(800) {
        let outcome = client.infer(&stream, &[0.0]).expect("an answer");
        assert!(matches!(outcome, Outcome::Result(_)), "{outcome:?}");
    }
    eventually("the end of the overruns", || (state("state") == "normal").then_some(()));
    let last = state("sequence").as_u64().expect("a number");

    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).map(|_| text)
    });
    std::fs::write(place.path("go"), "").expect("written");
    bus.signal(Signal::CONT);
    // The hook is told the newest change, the bus the newest properties.
    eventually("the newest change", || {
        let told = std::fs::read_to_string(place.path("told")).unwrap_or_default();
        (told.lines().last() == Some(&last.to_string())).then_some(())
    });
    let mut heard = 0;
    loop {
        let line = ears.hear(&["/org/weir/Weir1/service/slow:"]);
        heard += u64::from(line.contains("SafeModeChanged"));
        if line.contains(&format!("'Sequence': <uint64 {last}>")) {
            assert!(bus.call(None, &["EnterSafeMode", "s", "slow"]).ok);
        }
        if line.contains("SafeModeChanged") && line.contains(&format!("uint32 7, uint64 {},", last + 1)) {
            break;
        }
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    let log = reading.join().expect("no panic").expect("UTF-8");
    let changes = last + 1;
    let told = log.lines().filter(|line| line.starts_with("weir: slow: ")).count() as u64;
    let in_log = told + counted(&log, "are not in this log");
    assert!(heard < changes && in_log < changes, "{heard} and {in_log} of {changes}");
    let lost = counted(&log, "found no room in the queue of a channel");
    assert_eq!(lost, (changes - heard) + (changes - in_log), "{heard} and {in_log} of {changes}");
}
