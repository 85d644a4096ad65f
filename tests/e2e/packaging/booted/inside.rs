//! What is checked within the container that `booted` boots, as root, one after the other; none of it runs elsewhere.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Once;
use std::time::Duration;

use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::{ArrivalBound, Constraint, Error, Registration};

use crate::harness::{answers, best_effort, eventually, not_checked, stderr, values};
use crate::packaging::files::{MOST_EXPOSED, verdict};

/// So many checks are below: none may be passed over.
pub(super) const CHECKS: usize = 11;

const WEIR: &str = "/usr/local/bin/weir";
const CONFIG: &str = "/etc/weir/weir.toml";
const SOCKET: &str = "/run/weir/weir.sock";
const MANAGER: [&str; 3] = ["org.weir.Weir1", "/org/weir/Weir1", "org.weir.Weir1.Manager"];

/// One service that takes 50 ms a request and has `deadline`; everything else is as the pages say it is by default.
fn config(deadline: &str) -> String {
    format!(
        "[safe-mode]\nhold = \"100ms\"\nclean = \"100ms\"\n[[service]]\nname = \"lanes\"\nengine = \"simulated\"\n\
         simulated = {{ times = [\"50ms\"], input = 4, output = 4 }}\nmax-batch = 1\ndeadline = \"{deadline}\"\n\
         guard = \"1s\"\nconstraints = [{{ any-miss = {{ m = 1, k = 3 }} }}]\n"
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// What a program that must succeed says.
fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {}{}", text(&output.stdout), stderr(&output));
    text(&output.stdout)
}

fn systemctl(arguments: &[&str]) -> String {
    succeed("systemctl", arguments)
}

/// A property of the unit.
fn show(property: &str) -> String {
    systemctl(&["show", "--value", "--property", property, "weir.service"]).trim().to_owned()
}

/// The process, once the unit is active with another one than `before`.
fn process_after(before: &str) -> String {
    eventually("the next process", || {
        let (process, state) = (show("MainPID"), show("ActiveState"));
        (state == "active" && process != before && process != "0").then_some(process)
    })
}

/// Stops everything of Weir, and forgets what it did; with `deadline` in the configuration.
fn clean(deadline: &str) {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        std::fs::write(CONFIG, config("10s")).expect("the folder is there");
        succeed(WEIR, &["profile", "--quick", "--samples", "10", CONFIG]);
        // In the group, and nothing else.
        std::fs::create_dir_all("/etc/sysusers.d").expect("a folder");
        std::fs::write("/etc/sysusers.d/member.conf", "u member -\nm member weir\n").expect("written");
        succeed("systemd-sysusers", &[]);
    });
    systemctl(&["stop", "weir.socket", "weir.service"]);
    // Among it how often it was started: more than five times in ten seconds is refused.
    let _ = run("systemctl", &["reset-failed", "weir.service", "weir.socket"]);
    std::fs::write(CONFIG, config(deadline)).expect("written");
}

/// The daemon, started as an operator does; a client that is connected at the first attempt.
fn started() -> Client {
    clean("10s");
    systemctl(&["start", "weir.service"]);
    Client::connect(SOCKET).expect("ready is told once clients can connect")
}

/// The number of the daemon's user.
fn weir_user() -> u32 {
    let passwd = std::fs::read_to_string("/etc/passwd").expect("users");
    let user = passwd.lines().find_map(|line| line.strip_prefix("weir:")).expect("the user weir");
    user.split(':').nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

fn status(client: &mut Client) -> Value {
    serde_json::from_str(&client.status().expect("a status")).expect("JSON")
}

/// Nobody in particular, and a member of the group of clients.
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
const MEMBER: [&str; 3] = ["--reuid=member", "--regid=member", "--init-groups"];

/// What `busctl` says on the system's bus of a call by `user`.
fn busctl(user: [&str; 3], arguments: &[&str]) -> Output {
    run("setpriv", &[&user, &["busctl", "call", "--system"][..], arguments].concat())
}

/// The same of a call on the manager.
fn call(user: [&str; 3], arguments: &[&str]) -> Output {
    busctl(user, &[&MANAGER, arguments].concat())
}

/// The entries of the present daemon in the journal with that number, of which `count` must come.
fn entries(message: &str, count: usize) -> Vec<Value> {
    eventually("entries of the journal", || {
        let (message, daemon) = (format!("MESSAGE_ID={message}"), format!("_PID={}", show("MainPID")));
        let said = succeed("journalctl", &["--quiet", "--output=json", &message, &daemon]);
        let entries: Vec<_> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        (entries.len() >= count).then_some(entries)
    })
}

#[test]
#[ignore = "within the container"]
fn boot_makes_the_user_and_the_folders() {
    let folders =
        [("/etc/weir", 0o755, 0), ("/run/weir", 0o755, weir_user()), ("/var/lib/weir", 0o750, weir_user())];
    for (path, mode, owner) in folders {
        let folder = Path::new(path).metadata().expect("the folder is there");
        assert_eq!((folder.mode() & 0o777, folder.uid()), (mode, owner), "{path}");
    }
}

#[test]
#[ignore = "within the container"]
fn a_start_returns_once_clients_are_taken() {
    let mut client = started();
    client.ping().expect("an answer");
    assert_eq!((show("ActiveState"), show("NRestarts")), ("active".to_owned(), "0".to_owned()));
    assert_eq!(show("StatusText"), format!("serving on {SOCKET}"));
    let process = Path::new("/proc").join(show("MainPID")).metadata().expect("the process is there");
    assert_eq!(process.uid(), weir_user());
}

#[test]
#[ignore = "within the container"]
fn threads_have_the_priority_that_the_unit_permits() {
    let _client = started();
    let process = format!("/proc/{}", show("MainPID"));
    let said = succeed("journalctl", &["--quiet", "--unit=weir"]);
    if said.contains("no real-time priority") {
        return not_checked("LimitRTPRIO= under a real systemd: it may not raise limits in a container here");
    }
    let threads = std::fs::read_dir(Path::new(&process).join("task")).expect("threads").flatten();
    let priorities: BTreeMap<String, (u32, u32)> = threads.map(|thread| priority(&thread.path())).collect();
    let of = |name: &str| priorities.get(name).copied();
    // 1 is SCHED_FIFO.
    assert_eq!((of("lanes/timer"), of("lanes/0")), (Some((1, 20)), Some((1, 10))), "{priorities:?}");
}

/// The name of a thread, its policy and its priority.
fn priority(thread: &Path) -> (String, (u32, u32)) {
    let read = |name: &str| std::fs::read_to_string(thread.join(name)).expect("the thread is there");
    let stat = read("stat");
    let (_, after) = stat.rsplit_once(") ").expect("a name in brackets");
    // The third field of proc(5) is the first here.
    let field = |number: usize| after.split_whitespace().nth(number - 3).and_then(|word| word.parse().ok());
    (read("comm").trim().to_owned(), (field(41).expect("a policy"), field(40).expect("a priority")))
}

#[test]
#[ignore = "within the container"]
fn the_first_client_starts_the_daemon_by_the_socket() {
    clean("10s");
    systemctl(&["start", "weir.socket"]);
    let socket = Path::new(SOCKET).metadata().expect("the socket is there");
    assert_eq!(socket.permissions().mode() & 0o777, 0o660);
    for _ in 0..2 {
        assert_eq!(show("ActiveState"), "inactive");
        // It waits meanwhile instead of being turned away.
        Client::connect(SOCKET).expect("systemd listens").ping().expect("an answer");
        assert_eq!(show("ActiveState"), "active");
        systemctl(&["stop", "weir.service"]);
        assert!(Path::new(SOCKET).exists(), "the socket is systemd's");
    }
    systemctl(&["stop", "weir.socket"]);
    assert!(!Path::new(SOCKET).exists(), "RemoveOnStop=");
}

#[test]
#[ignore = "within the container"]
fn a_killed_daemon_is_started_anew() {
    let _client = started();
    let before = show("MainPID");
    systemctl(&["kill", "--kill-whom=main", "--signal=KILL", "weir.service"]);
    process_after(&before);
    assert_eq!(show("NRestarts"), "1");
    Client::connect(SOCKET).expect("ready again").ping().expect("an answer");
}

#[test]
#[ignore = "within the container"]
fn a_stopped_daemon_is_started_anew_by_the_watchdog() {
    let _client = started();
    let before = show("MainPID");
    systemctl(&["kill", "--kill-whom=main", "--signal=STOP", "weir.service"]);
    process_after(&before);
    assert_eq!(show("NRestarts"), "1");
    let said =
        succeed("journalctl", &["--quiet", "--unit=weir", &format!("--grep=Main process.*{before}|atchdog")]);
    assert!(said.contains("Watchdog timeout"), "{said}");
    Client::connect(SOCKET).expect("ready again").ping().expect("an answer");
}

#[test]
#[ignore = "within the container"]
fn a_reload_changes_what_is_promised_in_the_same_process() {
    let mut client = started();
    let before = show("MainPID");
    std::fs::write(CONFIG, config("8s")).expect("written");
    let version = systemctl(&["--version"]);
    let version: u32 = version.split_whitespace().nth(1).and_then(|v| v.parse().ok()).expect("a version");
    if version < 253 {
        // It knows no notify-reload.
        systemctl(&["kill", "--kill-whom=main", "--signal=HUP", "weir.service"]);
    } else {
        systemctl(&["reload", "weir.service"]);
    }
    let status = eventually("the end of the reload", || {
        Some(status(&mut client)).filter(|status| status["reload"]["sequence"] == 1)
    });
    assert_eq!(status["services"][0]["deadline_ns"], 8_000_000_000u64, "{}", status["reload"]);
    assert_eq!((show("MainPID"), show("ActiveState")), (before, "active".to_owned()));
}

#[test]
#[ignore = "within the container"]
fn a_stop_under_load_answers_what_was_taken_in() {
    let mut client = started();
    let stream = client.register(&best_effort("lanes", "last")).expect("a stream");
    let ids: Vec<_> = (0..30).map(|_| client.submit(&stream, &[1.0; 4]).expect("submitted")).collect();
    client.ping().expect("an answer");
    systemctl(&["stop", "--no-block", "weir.service"]);
    let outcomes = answers(&mut client, &ids);
    assert!(outcomes.iter().all(|outcome| values(&stream, outcome) == Some(vec![1.0; 4])), "{outcomes:?}");
    assert!(matches!(client.recv(), Err(Error::Closed)));
    eventually("the end", || (show("ActiveState") == "inactive").then_some(()));
    assert_eq!((show("Result"), show("ExecMainStatus")), ("success".to_owned(), "0".to_owned()));
}

#[test]
#[ignore = "within the container"]
fn what_cannot_be_promised_is_not_tried_again() {
    // Of the 80 ms beside the guard one request takes 50, and another may be in its way.
    clean("1080ms");
    assert!(!run("systemctl", &["start", "weir.service"]).status.success());
    assert_eq!((show("ActiveState"), show("NRestarts")), ("failed".to_owned(), "0".to_owned()));
    assert_eq!((show("Result"), show("ExecMainStatus")), ("exit-code".to_owned(), "1".to_owned()));
}

#[test]
#[ignore = "within the container"]
fn everybody_may_look_on_the_bus_and_the_group_may_manage_and_the_journal_has_fields() {
    let mut client = started();
    eventually("the name on the bus", || call(NOBODY, &["Status"]).status.success().then_some(()));
    let enter = ["EnterSafeMode", "s", "lanes"];
    // What the member may below shows that nothing else is in the way of the others.
    assert!(!call(NOBODY, &enter).status.success(), "nobody in particular changed something");
    assert_eq!(status(&mut client)["services"][0]["safe_mode"]["sequence"], 0);
    let bus = ["org.freedesktop.DBus", "/", "org.freedesktop.DBus"];
    let name = ["RequestName", "su", "org.weir.Weir1", "2"];
    assert!(!busctl(NOBODY, &[&bus[..], &name].concat()).status.success(), "the name was given away");
    let allowed = call(MEMBER, &enter);
    assert!(allowed.status.success(), "{}", stderr(&allowed));
    let entry = entries("3196088eac6740908e38a5d725355185", 1).remove(0);
    for (field, value) in [
        ("WEIR_SERVICE", "lanes"),
        ("WEIR_STATE", "safe-mode"),
        ("WEIR_SEQUENCE", "1"),
        ("PRIORITY", "3"),
        ("_SYSTEMD_UNIT", "weir.service"),
    ] {
        assert_eq!(entry[field], value, "{field} of {entry}");
    }
    assert!(call(MEMBER, &["Clear", "s", ""]).status.success());
    // A stream that sends more than it declares.
    let stream = Registration::builder("lanes", "cam")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(1, Duration::from_secs(10)));
    let stream = client.register(&stream.build().expect("valid")).expect("admitted");
    let ids: Vec<_> = (0..3).map(|_| client.submit(&stream, &[0.0; 4]).expect("submitted")).collect();
    answers(&mut client, &ids);
    let entry = entries("c909c15bf2a2432fb38c7df9b265839d", 1).remove(0);
    for (field, value) in [("WEIR_STREAM", "cam"), ("WEIR_CAUSE", "arrival-excess"), ("PRIORITY", "4")] {
        assert_eq!(entry[field], value, "{field} of {entry}");
    }
}

#[test]
#[ignore = "within the container"]
fn little_is_open_in_the_running_unit() {
    let _client = started();
    let said = succeed("systemd-analyze", &["security", "--no-pager", "weir.service"]);
    assert!(verdict(&said) <= MOST_EXPOSED, "{said}");
}
