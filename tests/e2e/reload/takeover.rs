//! While a daemon takes a configuration over: whoever is served meanwhile, comes, goes or looks is not held up, and what
//! fails leaves nothing behind.

use std::borrow::Cow;
use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, Raw, answers, best_effort, eventually, frame, stderr, weir,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::wire::{ClientFrame, DaemonFrame};
use weir_client::{ArrivalBound, Constraint, Outcome, Registration, RequestId};

/// One that answers in `time` within `deadline`, in milliseconds; `more` are further lines of it.
fn service(name: &str, time: u64, deadline: u64, more: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\nmax-batch = 1\nguard = \"100ms\"\n\
         deadline = \"{deadline}ms\"\nsimulated = {{ times = [\"{time}ms\"], input = 4, output = 4 }}\n{more}"
    )
}

fn config(services: &[String]) -> String {
    format!("{DAEMON}{}", services.concat())
}

fn profiled(services: &[String]) -> Deployment {
    let place = Deployment::new(config(services));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place
}

fn reload(daemon: &Daemon) -> Output {
    let socket = daemon.deployment.socket();
    Command::new(weir()).args(["reload", "--socket"]).arg(socket).output().expect("weir can be run")
}

fn accepted(daemon: &Daemon) -> String {
    let output = reload(daemon);
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn refused(daemon: &Daemon) -> String {
    let output = reload(daemon);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    stderr(&output)
}

/// Has `slow` answer 30 requests that must be, 200 ms each, and asks meanwhile for what `changed` says, with another
/// deadline of `lanes`: that is taken over at once, and `slow` as soon as all are answered.
fn amid_a_takeover(
    daemon: &Daemon,
    changed: &[String],
) -> (Client, Vec<RequestId>, JoinHandle<Output>, Value) {
    let mut client = daemon.client();
    let burst = Registration::builder("slow", "burst")
        .constraint(Constraint::any_miss(0, 1))
        .arrivals(ArrivalBound::window(30, Duration::from_secs(60)));
    let stream = client.register(&burst.build().expect("it fits")).expect("admitted");
    let ids = (0..30).map(|_| client.submit(&stream, &[0.0; 4]).expect("submitted")).collect();
    client.ping().expect("they have come");
    daemon.deployment.configure(config(changed));
    let socket = daemon.deployment.socket();
    let reload = std::thread::spawn(move || {
        Command::new(weir()).args(["reload", "--socket"]).arg(socket).output().expect("weir can be run")
    });
    let status = eventually("the first takeover", || {
        Some(daemon.status()).filter(|status| status["services"][0]["deadline_ns"] == 1_500_000_000u64)
    });
    (client, ids, reload, status)
}

fn next_kind(raw: &mut Raw) -> String {
    let kind = raw.next(|frame| match frame {
        DaemonFrame::Registered(_) => "registered".to_owned(),
        DaemonFrame::Unregistered => "unregistered".to_owned(),
        DaemonFrame::Pong => "pong".to_owned(),
        other => format!("{other:?}"),
    });
    kind.expect("the connection stays")
}

fn names(service: &Value) -> Vec<&str> {
    let streams = service["streams"].as_array().expect("streams");
    streams.iter().map(|stream| stream["name"].as_str().expect("a name")).collect()
}

#[test]
fn while_one_service_is_still_taken_over_the_others_are_and_nobody_waits_but_who_registers() {
    let seat = "[[service.stream]]\nname = \"seat\"\n";
    let place = profiled(&[service("lanes", 4, 2_000, ""), service("slow", 200, 20_000, seat)]);
    let daemon = place.serve();
    let mut holder = daemon.client();
    holder.register(&best_effort("lanes", "cam")).expect("a stream");
    let mut raw = daemon.raw().hello();
    let register = |raw: &mut Raw, id, stream: &str| {
        let registration = best_effort("slow", stream);
        assert!(raw.send(&frame(id, &ClientFrame::Register(Cow::Borrowed(&registration)))));
    };
    for stream in ["leaves", "seat"] {
        register(&mut raw, 2, stream);
        assert_eq!(next_kind(&mut raw), "registered");
    }
    let changed = [service("lanes", 4, 1_500, ""), service("slow", 200, 19_000, "")];
    let (mut client, ids, reload, status) = amid_a_takeover(&daemon, &changed);
    assert_eq!(status["reload"], Value::Null, "{status}");
    assert_eq!(status["services"][1]["deadline_ns"], 20_000_000_000u64, "{status}");
    assert_eq!(names(&status["services"][0]), ["cam"], "who has taken over is seen at once");
    register(&mut raw, 3, "comes");
    // One that is nobody's then, and one that nobody reserves any more.
    assert!(raw.send(&frame(4, &ClientFrame::Unregister { stream: 1 })));
    assert!(raw.send(&frame(5, &ClientFrame::Unregister { stream: 2 })));
    assert!(raw.send(&frame(6, &ClientFrame::Ping)));
    let kinds = ["unregistered", "unregistered", "pong", "registered"];
    assert_eq!([(); 4].map(|()| next_kind(&mut raw)), kinds);
    let outcomes = answers(&mut client, &ids);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Result(_))), "{outcomes:?}");
    let told = reload.join().expect("no panic");
    assert!(told.status.success(), "{}", stderr(&told));
    let status = daemon.status();
    assert_eq!(status["services"][1]["deadline_ns"], 19_000_000_000u64, "{status}");
    assert_eq!(names(&status["services"][1]), ["burst", "comes"]);
}

#[test]
fn a_stream_that_is_registered_while_its_service_is_to_go_keeps_it() {
    let gone = || service("gone", 4, 2_000, "");
    let place = profiled(&[service("lanes", 4, 2_000, ""), service("slow", 200, 20_000, ""), gone()]);
    let daemon = place.serve();
    let changed = [service("lanes", 4, 1_500, ""), service("slow", 200, 19_000, "")];
    let (_client, _, reload, _) = amid_a_takeover(&daemon, &changed);
    let mut late = daemon.client();
    let stream = late.register(&best_effort("gone", "cam")).expect("it is there still");
    let told = reload.join().expect("no panic");
    assert_eq!(told.status.code(), Some(1));
    let reason = "service gone is to go, but these streams are held: cam";
    assert!(stderr(&told).contains(reason), "{}", stderr(&told));
    assert!(matches!(late.infer(&stream, &[0.0; 4]).expect("an answer"), Outcome::Result(_)));
    assert_eq!(daemon.status()["services"][2]["name"], "gone");
    late.unregister(&stream).expect("given up");
    assert_eq!(accepted(&daemon), "service gone: gone\n");
    let refusal = late.register(&best_effort("gone", "cam")).expect_err("no such service");
    assert!(refusal.to_string().contains("no service gone"), "{refusal}");
}

#[test]
fn recording_goes_on_across_takeovers_that_succeed_and_that_fail() {
    let lanes = |deadline, record: &str| service("lanes", 4, deadline, &format!("record = \"{record}\"\n"));
    let signs = |record: &str| service("signs", 4, 2_000, &format!("record = \"{record}\"\n"));
    let place = profiled(&[lanes(2_000, "a.csv")]);
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("lanes", "cam")).expect("a stream");
    let mut infer = || drop(client.infer(&stream, &[0.0; 4]).expect("an answer"));
    let recorded = |file: &str, count| {
        eventually("the arrivals in the file", || {
            let text = std::fs::read_to_string(place.path(file)).expect("a file");
            Some(()).filter(|()| text.lines().filter(|line| line.ends_with(",cam")).count() == count)
        });
    };
    infer();
    // The first service is ready to be taken over when the second one cannot be started.
    place.configure(config(&[lanes(1_500, "a.csv"), signs("nowhere/b.csv")]));
    assert!(refused(&daemon).contains("nowhere/b.csv"));
    infer();
    recorded("a.csv", 2);
    place.configure(config(&[lanes(1_500, "a.csv")]));
    accepted(&daemon);
    infer();
    recorded("a.csv", 3);
    // Another file is another recording, and the one before is left as it is.
    place.configure(config(&[lanes(1_500, "b.csv")]));
    accepted(&daemon);
    infer();
    recorded("b.csv", 1);
    recorded("a.csv", 3);
    // One that was recorded before takes its place: nothing of it is lost, and once it is moved away another one begins.
    place.configure(config(&[lanes(1_500, "a.csv")]));
    assert!(refused(&daemon).contains("a.csv: holds a recording, which would be lost; move it away"));
    recorded("a.csv", 3);
    place.configure(config(&[lanes(1_500, "c.csv"), signs("b.csv")]));
    assert!(refused(&daemon).contains("b.csv: service lanes is recorded there until then"));
    infer();
    recorded("b.csv", 2);
    std::fs::rename(place.path("a.csv"), place.path("before.csv")).expect("moved");
    place.configure(config(&[lanes(1_500, "a.csv")]));
    accepted(&daemon);
    infer();
    recorded("a.csv", 1);
    recorded("before.csv", 3);
}

#[test]
fn a_recording_that_a_reload_begins_has_what_clients_declared_before() {
    let own = |record: &str| service("own", 4, 2_000, record);
    let shared = |name: &str| service(name, 4, 2_000, "device = \"box\"\n");
    let all = |own: String, record: &str| {
        let device = format!("[[device]]\nname = \"box\"\n{record}");
        config(&[device, own, shared("front"), shared("rear")])
    };
    let place = Deployment::new(all(own(""), ""));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let daemon = place.serve();
    let mut client = daemon.client();
    let mut streams = Vec::new();
    for service in ["own", "front", "rear"] {
        let promised = Registration::builder(service, "promised")
            .constraint(Constraint::any_miss(1, 3))
            .arrivals(ArrivalBound::window(1, Duration::from_secs(1)));
        let promised = promised.build().expect("it fits");
        streams.push(client.register(&promised).expect("admitted"));
        streams.push(client.register(&best_effort(service, "cam")).expect("a stream"));
    }
    place.configure(all(own("record = \"a.csv\"\n"), "record = \"box.csv\"\n"));
    accepted(&daemon);
    for stream in &streams {
        client.infer(stream, &[0.0; 4]).expect("an answer");
    }
    let lines = |file: &str, names: &[&str]| {
        let text = eventually("the arrivals in the file", || {
            let text = std::fs::read_to_string(place.path(file)).expect("a file");
            let came = |name: &&str| text.lines().any(|line| line.ends_with(&format!(",{name}")));
            Some(text.clone()).filter(|_| names.iter().all(came))
        });
        let kept = |line: &&str| {
            line.starts_with("# stream ") || line.ends_with("cam") || line.ends_with("promised")
        };
        text.lines().filter(kept).map(str::to_owned).collect::<Vec<_>>()
    };
    let declared = |name: &str| {
        format!(
            "# stream {{\"name\":\"{name}\",\"constraints\":[\"any_miss(1,3)\"],\"arrivals\":{{\"windows\":[[1,1000000000]]}}}}"
        )
    };
    let told = lines("a.csv", &["promised", "cam"]);
    assert_eq!((told.len(), &told[0]), (3, &declared("promised")), "{told:?}");
    let told = lines("box.csv", &["front/promised", "front/cam", "rear/promised", "rear/cam"]);
    let mut heads = told[..2].to_vec();
    heads.sort();
    assert_eq!(
        (told.len(), heads),
        (6, ["front/promised", "rear/promised"].map(declared).to_vec()),
        "{told:?}"
    );
}

#[test]
fn a_service_whose_threads_cannot_all_be_started_leaves_none_behind() {
    let (lanes, many) = (service("lanes", 4, 2_000, ""), service("many", 4, 2_000, "workers = 16\n"));
    let place = profiled(&[lanes.clone(), many.clone()]);
    place.configure(config(std::slice::from_ref(&lanes)));
    let daemon = place.serve();
    accepted(&daemon);
    let before = daemon.count("task");
    let pid = daemon.status()["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).expect("a process");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
    let kib: u64 = line.and_then(|kib| kib.trim().parse().ok()).expect("VmSize");
    // Room for the stacks of a few threads, not of sixteen.
    let room = |bytes| Rlimit { current: bytes, maximum: None };
    prlimit(Some(pid), Resource::As, room(Some((kib << 10) + (12 << 20)))).expect("the limit is set");
    place.configure(config(&[lanes, many]));
    let told = refused(&daemon);
    assert!(told.contains("service many"), "{told}");
    // The last client's thread ends a moment after the client.
    eventually("the end of the threads", || Some(()).filter(|()| daemon.count("task") <= before));
    prlimit(Some(pid), Resource::As, room(None)).expect("the limit is lifted");
    assert_eq!(accepted(&daemon), "service many: new\n");
    let mut client = daemon.client();
    let stream = client.register(&best_effort("many", "cam")).expect("a stream");
    assert!(matches!(client.infer(&stream, &[0.0; 4]).expect("an answer"), Outcome::Result(_)));
}
