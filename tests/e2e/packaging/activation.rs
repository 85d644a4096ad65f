//! Before a client comes: the service manager passes the socket, hears that the daemon is alive and how it ends.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, PATIENCE, best_effort, eventually, not_checked, pause, stderr, values, weir,
};
use rustix::process::Signal;
use weir_client::blocking::Client;

fn deployment() -> Deployment {
    let service = |name: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\n\
             simulated = {{ times = [\"1ms\"], input = 4, output = 4 }}\ndeadline = \"20s\"\nguard = \"1s\"\n"
        )
    };
    Deployment::new(format!("{DAEMON}{}{}", service("quick"), service("idle"))).profiled(&[400])
}

/// Starts the daemon as a service manager does, with these sockets, two at most, as its descriptors 3 and 4.
fn activated(place: &Deployment, sockets: &[&UnixListener]) -> Child {
    let passed = |index: usize| {
        let socket = sockets.get(index).map(|socket| socket.try_clone().expect("the same socket"));
        socket.map_or_else(Stdio::null, |socket| Stdio::from(OwnedFd::from(socket)))
    };
    // The shell moves the descriptors and, by `exec`, keeps the process that LISTEN_PID must name. They come as standard
    // input and output: whatever else a child may inherit, those of all tests that run beside this one do.
    let moves = ["3<&0", "4<&1"][..sockets.len()].join(" ");
    let script = format!(
        "exec {moves} 0</dev/null 1>/dev/null; LISTEN_PID=$$ LISTEN_FDS={} exec \"$@\"",
        sockets.len()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script, "manager", weir(), "serve", "--quiet"]).arg(place.config());
    command.stdin(passed(0)).stdout(passed(1)).stderr(Stdio::piped()).spawn().expect("bash")
}

#[test]
fn a_socket_that_is_passed_is_served_and_stays_for_the_next_daemon() {
    let place = deployment();
    let socket = UnixListener::bind(place.socket()).expect("bound");
    for start in 0..2 {
        let mut child = activated(&place, &[&socket]);
        // Before the daemon accepts, the connection waits: nobody is turned away while it starts.
        let mut client = Client::connect(place.socket()).expect("the manager listens");
        let stream = client.register(&best_effort("quick", "s")).expect("a stream");
        let outcome = client.infer(&stream, &[start as f32; 4]).expect("an answer");
        assert_eq!(values(&stream, &outcome), Some(vec![start as f32; 4]));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::TERM).expect("sent");
        assert_eq!(child.wait().expect("ended").code(), Some(0));
        assert!(place.socket().exists(), "the manager's socket was removed");
    }
}

fn refused(place: &Deployment, sockets: &[&UnixListener]) -> String {
    let output = activated(place, sockets).wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn a_socket_at_another_path_and_more_than_one_are_refused() {
    let place = deployment();
    let bind = |name: &str| UnixListener::bind(place.path(name)).expect("bound");
    let (own, other) = (bind("s"), bind("other"));
    let message = refused(&place, &[&other]);
    assert!(message.contains("daemon.socket = ") && message.contains("/other"), "{message}");
    let message = refused(&place, &[&own, &other]);
    assert!(message.contains("passed 2 sockets, 1 is expected"), "{message}");
}

#[test]
fn systemd_s_own_activation_starts_the_daemon_with_the_first_client() {
    let program = Path::new("/usr/bin/systemd-socket-activate");
    if !program.exists() {
        return not_checked(&format!("socket activation by systemd: {} is not here", program.display()));
    }
    let place = deployment();
    let mut child = Command::new(program)
        .arg(format!("--listen={}", place.socket().display()))
        .args([weir(), "serve", "--quiet"])
        .arg(place.config())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut client = eventually("the socket", || Client::connect(place.socket()).ok());
    client.ping().expect("an answer");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).expect("sent");
    assert_eq!(child.wait().expect("ended").code(), Some(0));
}

/// What the manager hears, line by line, until `last`.
fn heard(manager: &UnixDatagram, last: &str) -> Vec<String> {
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.starts_with(last)) {
        let mut message = [0; 4096];
        let length = manager.recv(&mut message).expect("a notification");
        lines.extend(String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned));
    }
    lines
}

#[test]
fn the_manager_hears_ready_then_pings_while_nothing_happens_then_the_end() {
    let place = deployment();
    let manager = UnixDatagram::bind(place.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let notify = place.path("notify");
    let mut daemon = place.spawn(&[("NOTIFY_SOCKET", &notify), ("WATCHDOG_USEC", Path::new("100000"))]);
    let start = heard(&manager, "READY=1");
    assert!(start.iter().any(|line| line.starts_with("STATUS=serving on ")), "{start:?}");
    for _ in 0..3 {
        heard(&manager, "WATCHDOG=1");
    }
    daemon.signal(Signal::TERM);
    // The drain of 20 s and ten more, whatever the unit's limit is; before it, what a reload may take.
    let end = heard(&manager, "EXTEND_TIMEOUT_USEC=30");
    assert!(end.contains(&"STOPPING=1".to_owned()), "{end:?}");
    assert!(end.contains(&"EXTEND_TIMEOUT_USEC=30000000".to_owned()), "{end:?}");
    assert_eq!(daemon.wait().code(), Some(0));
}

/// A thread of another process, stopped until it is let go or this one ends; all others go on.
struct Stopped {
    thread: i32,
}

impl Stopped {
    /// Waits until it has stopped; `None` if that is not permitted here.
    fn new(daemon: &Daemon, name: &str) -> Option<Self> {
        let (thread, folder) = daemon.thread(name);
        if let Err(error) = trace(libc::PTRACE_SEIZE, thread) {
            not_checked(&format!("a stalled scheduler: threads cannot be traced: {error}"));
            return None;
        }
        trace(libc::PTRACE_INTERRUPT, thread).expect("traced");
        let state = || std::fs::read_to_string(folder.join("stat")).expect("the thread is there");
        eventually("the stop", || state().contains(") t ").then_some(()));
        Some(Self { thread })
    }
}

impl Drop for Stopped {
    /// Lets it go. A process that is killed meanwhile could not be buried before.
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = trace(libc::PTRACE_DETACH, self.thread);
    }
}

#[allow(unsafe_code)]
fn trace(request: libc::c_uint, thread: i32) -> std::io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: none of the requests made here touches memory of this process.
    match unsafe { libc::ptrace(request, thread, none, none) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits until the manager has heard nothing for a second.
fn silence(manager: &UnixDatagram) {
    manager.set_nonblocking(true).expect("set");
    eventually("silence", || {
        while manager.recv(&mut [0; 4096]).is_ok() {}
        pause(Duration::from_secs(1));
        manager.recv(&mut [0; 4096]).is_err().then_some(())
    });
    manager.set_nonblocking(false).expect("set");
}

#[test]
fn one_scheduler_that_is_stalled_ends_the_pings_although_all_else_goes_on() {
    let place = deployment();
    let manager = UnixDatagram::bind(place.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let notify = place.path("notify");
    // A ping every 50 ms.
    let mut daemon = place.spawn(&[("NOTIFY_SOCKET", &notify), ("WATCHDOG_USEC", Path::new("200000"))]);
    heard(&manager, "READY=1");
    heard(&manager, "WATCHDOG=1");
    let Some(stalled) = Stopped::new(&daemon, "idle/timer") else { return };
    silence(&manager);
    let mut client = daemon.client();
    let stream = client.register(&best_effort("quick", "s")).expect("a stream");
    let outcome = client.infer(&stream, &[7.0; 4]).expect("an answer");
    assert_eq!(values(&stream, &outcome), Some(vec![7.0; 4]), "another service is served");
    silence(&manager);
    drop(stalled);
    heard(&manager, "WATCHDOG=1");
    drop(client);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_reload_that_is_cut_short_by_the_end_is_not_told_as_done() {
    let place = deployment();
    let manager = UnixDatagram::bind(place.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut daemon = place.spawn(&[("NOTIFY_SOCKET", &place.path("notify"))]);
    heard(&manager, "READY=1");
    // One that takes minutes to measure.
    let more = "[[service]]\nname = \"slow\"\nengine = \"simulated\"\ndeadline = \"20s\"\nguard = \"1s\"\n\
                simulated = { times = [\"500ms\"], input = 4, output = 4 }\n";
    place.configure(std::fs::read_to_string(place.config()).expect("there") + more);
    daemon.signal(Signal::HUP);
    heard(&manager, "RELOADING=1");
    eventually("the measurement", || daemon.stderr().contains("measuring").then_some(()));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    manager.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
    let mut lines = Vec::new();
    let mut message = [0; 4096];
    while let Ok(length) = manager.recv(&mut message) {
        lines.extend(String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned));
    }
    assert!(
        lines.iter().any(|line| line == "STOPPING=1") && lines.iter().all(|l| l != "READY=1"),
        "{lines:?}"
    );
}

#[test]
fn without_a_wish_for_pings_there_are_none() {
    let place = deployment();
    let manager = UnixDatagram::bind(place.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut daemon = place.spawn(&[("NOTIFY_SOCKET", &place.path("notify"))]);
    heard(&manager, "READY=1");
    daemon.signal(Signal::TERM);
    let end = heard(&manager, "STOPPING=1");
    assert!(!end.iter().any(|line| line.starts_with("WATCHDOG")), "{end:?}");
    assert_eq!(daemon.wait().code(), Some(0));
}

/// The number may belong to something that the daemon has opened itself by then.
#[test]
fn a_descriptor_that_was_not_passed_is_refused() {
    let place = deployment();
    let mut command = Command::new("bash");
    command.args([
        "-c",
        "exec 3<&-; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"",
        "manager",
        weir(),
        "serve",
        "--quiet",
    ]);
    let output = command.arg(place.config()).output().expect("bash");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("service manager passed"), "{}", stderr(&output));
}
