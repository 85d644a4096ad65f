//! Beside all requests: what a daemon announces reaches a shell, over its restart too, until nobody reads.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use crate::harness::{DAEMON, Daemon, Deployment, answers, best_effort, eventually, stderr, weir};
use serde_json::Value;
use weir_client::{ArrivalBound, Constraint, Registration};

/// A stream that may send one request in 10 s, and suspensions that stay until the test is over.
fn deployment() -> Deployment {
    Deployment::new(format!(
        "{DAEMON}{}",
        r#"
        [safe-mode]
        hold = "10m"
        clean = "10m"
        [[service]]
        name = "cameras"
        engine = "simulated"
        simulated = { times = ["1ms"], input = 4, output = 4 }
        deadline = "20s"
        guard = "1s"
        [[service.stream]]
        name = "burst"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 1, length = "10s" } }]
        "#
    ))
    .profiled(&[100])
}

/// Sends more than was declared, and is gone when this returns: its name is free.
fn flood(daemon: &Daemon) {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("cameras", "burst")).expect("it is reserved");
    let ids: Vec<_> = (0..3).map(|_| client.submit(&stream, &[0.0; 4]).expect("submitted")).collect();
    answers(&mut client, &ids);
    client.unregister(&stream).expect("given up");
}

fn command(place: &Deployment, arguments: &[&str]) -> Command {
    let mut command = Command::new(weir());
    command.arg("events").arg("--socket").arg(place.socket()).args(arguments);
    command
}

fn once(place: &Deployment, arguments: &[&str]) -> Output {
    command(place, arguments).output().expect("weir can be run")
}

/// Listens until killed with the test.
struct Listener(Child, Option<BufReader<ChildStdout>>);

impl Listener {
    fn new(place: &Deployment, arguments: &[&str]) -> Self {
        let mut command = command(place, arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weir can be started");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Self(child, Some(out))
    }

    fn text(&mut self) -> String {
        let mut line = String::new();
        self.1.as_mut().expect("it is read").read_line(&mut line).expect("a line");
        line
    }

    fn line(&mut self) -> Value {
        let line = self.text();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The next line that tells a suspension or its end.
    fn suspension(&mut self) -> Value {
        std::iter::repeat_with(|| self.line())
            .find(|line| line["kind"] == "suspension")
            .expect("lines without end")
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_present_state_is_a_line_for_each_service() {
    let place = deployment();
    let daemon = place.serve();
    let before = once(&place, &["--json"]);
    let state: Value = serde_json::from_slice(&before.stdout).expect("one line of JSON");
    assert_eq!(
        (&state["kind"], &state["service"], &state["state"]),
        (&Value::from("state"), &Value::from("cameras"), &Value::from("normal"))
    );
    assert_eq!((&state["sequence"], &state["cause"]), (&Value::from(0), &Value::Null));
    let time = state["time"].as_str().expect("by the wall clock");
    assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{time}");
    let certified = daemon.status()["services"][0]["certified_per_s"].as_f64();
    assert!(certified.is_some_and(|rate| rate >= 0.1), "one in 10 s is reserved: {certified:?}");

    flood(&daemon);
    let after = once(&place, &[]);
    assert!(after.status.success(), "{}", stderr(&after));
    let text = String::from_utf8(after.stdout).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("cameras") && !lines[0].contains("suspended"), "{text}");
    let told = ["cameras", "suspended", "arrival-excess", "stream burst sent 2 requests"];
    assert!(told.iter().all(|word| lines[1].contains(word)), "{text}");
    assert!(lines.iter().all(|line| line.get(20..25).is_some_and(|rest| rest.ends_with("Z "))), "{text}");
    let status =
        Command::new(weir()).args(["status", "--socket"]).arg(place.socket()).output().expect("it runs");
    let text = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(text.contains("suspended: arrival-excess: stream burst sent 2 requests"), "{text}");
}

#[test]
fn a_stream_that_goes_is_suspended_no_longer_and_told_so_by_its_name() {
    let place = deployment();
    let daemon = place.serve();
    let mut listener = Listener::new(&place, &["--follow", "--json"]);
    assert_eq!(listener.line()["kind"], "state");
    let mut client = daemon.client();
    let visitor = Registration::builder("cameras", "visitor")
        .constraint(Constraint::any_miss(1, 2))
        .arrivals(ArrivalBound::window(1, Duration::from_secs(10)));
    let stream = client.register(&visitor.build().expect("valid")).expect("admitted");
    let ids: Vec<_> = (0..3).map(|_| client.submit(&stream, &[0.0; 4]).expect("submitted")).collect();
    answers(&mut client, &ids);
    assert_eq!(daemon.status()["services"][0]["suspensions"]["streams"], 1);
    client.unregister(&stream).expect("given up");
    for (state, sequence) in [("suspended", 1), ("normal", 2)] {
        let told = listener.suspension();
        assert_eq!(
            (&told["stream"], &told["state"], &told["sequence"]),
            (&Value::from("visitor"), &Value::from(state), &Value::from(sequence)),
            "{told}"
        );
    }
    let service = daemon.status()["services"][0].clone();
    assert_eq!(service["suspensions"]["streams"], 0, "{service}");
    // A reserved stream stays, and with it what it has broken, whoever takes it up next.
    flood(&daemon);
    let told = listener.suspension();
    assert_eq!(
        (&told["stream"], &told["state"]),
        (&Value::from("burst"), &Value::from("suspended")),
        "{told}"
    );
    client.register(&best_effort("cameras", "burst")).expect("it is free again");
    assert_eq!(daemon.stream_status("burst")["suspended"]["cause"], "arrival-excess");
}

#[test]
fn a_flood_is_told_as_it_happens_and_the_count_ends_it() {
    let place = deployment();
    let daemon = place.serve();
    let mut listener = Listener::new(&place, &["--json", "--count", "1"]);
    assert_eq!(listener.line()["kind"], "state");
    flood(&daemon);
    let event = listener.line();
    assert!(event["kind"] == "suspension" || event["kind"] == "misses-left", "{event}");
    let status = eventually("the end", || listener.0.try_wait().expect("a child"));
    assert!(status.success());
}

#[test]
fn following_outlasts_the_daemon_and_numbers_start_again_with_the_next() {
    let place = deployment();
    let mut daemon = place.serve();
    let mut listener = Listener::new(&place, &["--follow", "--json"]);
    assert_eq!(listener.line()["kind"], "state");
    flood(&daemon);
    let first = listener.suspension();
    assert_eq!(
        (&first["state"], &first["sequence"]),
        (&Value::from("suspended"), &Value::from(1)),
        "{first}"
    );
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let next = place.serve();
    let state =
        std::iter::repeat_with(|| listener.line()).find(|line| line["kind"] == "state").expect("lines");
    assert_eq!((&state["state"], &state["sequence"]), (&Value::from("normal"), &Value::from(0)), "{state}");
    flood(&next);
    assert_eq!(listener.suspension()["sequence"], 1);
}

#[test]
fn a_closed_pipe_ends_it_without_a_word() {
    let place = deployment();
    let _daemon = place.serve();
    let mut listener = Listener::new(&place, &["--follow"]);
    let line = listener.text();
    assert!(line.contains("normal"), "{line}");
    // Nothing is announced any more: it looks by itself.
    listener.1 = None;
    let status = eventually("the end", || listener.0.try_wait().expect("a child"));
    let mut errors = String::new();
    let mut pipe = listener.0.stderr.take().expect("a pipe");
    std::io::Read::read_to_string(&mut pipe, &mut errors).expect("UTF-8");
    assert_eq!((status.code(), errors.as_str()), (Some(0), ""));
}

#[test]
fn where_there_is_no_daemon_it_says_so() {
    let place = Deployment::new(DAEMON);
    for arguments in [&["--follow"][..], &[]] {
        let output = once(&place, arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("is the daemon running?"), "{}", stderr(&output));
    }
    let top = Command::new(weir()).args(["top", "--socket"]).arg(place.socket()).output().expect("weir runs");
    assert_eq!(top.status.code(), Some(2));
    assert!(stderr(&top).contains("no terminal") && stderr(&top).contains("weir status"), "{}", stderr(&top));
}
