//! The doors beside socket and bus, on a whole daemon: the hook, the service manager, the log.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use common::{DAEMON, Daemon, Deployment, PATIENCE, best_effort, eventually};
use rustix::process::Signal;

/// One worker that takes 100 ms a request where the profile says 10, and a hook that notes what it is told.
fn place() -> Deployment {
    let place = Deployment::new("");
    let hook = place.path("hook");
    let script =
        "#!/bin/sh\necho \"$WEIR_SERVICE $WEIR_STATE $WEIR_CAUSE_NUMBER $WEIR_SEQUENCE\" >> \"$1\"\n";
    std::fs::write(&hook, script).expect("written");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("set");
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
    let log = daemon.stderr();
    assert!(log.contains("weir: slow: safe-mode: service-overrun: "), "{log}");
    assert!(log.contains("weir: slow: the promise holds again"), "{log}");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
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
