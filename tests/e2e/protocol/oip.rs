//! The Open Inference Protocol over HTTP, as a client of its own finds it: the paths, JSON and binary tensors, streams, misses, the end.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{DAEMON, Daemon, Deployment, PATIENCE, best_effort, eventually, now, pause, values};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A null service, and one whose batches take longer than their bound; with `more` in `[daemon.oip]`.
pub(super) fn place(more: &str) -> Deployment {
    let place = Deployment::new(format!(
        "{DAEMON}max-frame = 16384\n[daemon.oip]\nhttp = \"unix:h\"\n{more}\n{}",
        r#"
        [safe-mode]
        hold = "1h"
        [[service]]
        name = "null"
        engine = "simulated"
        simulated = { times = ["1ms"], input = 3, output = 2 }
        deadline = "20s"
        [[service.stream]]
        name = "front"
        constraints = [{ row-miss = 1 }]
        arrivals = [{ periodic = { period = "10ms", jitter = "1s" } }]
        [[service]]
        name = "slow"
        engine = "simulated"
        simulated = { times = ["300ms"], input = 1, output = 1 }
        deadline = "2s"
        "#
    ))
    .profiled(&[5]);
    place.set_variant_bounds(&[[1], [300]], &[[5], [5]]);
    place
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.body)))
    }

    pub(super) fn error(&self) -> String {
        self.json()["error"].as_str().expect("an error").to_owned()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.to_lowercase().starts_with(&format!("{name}:"));
        self.head.lines().find(named).map(|line| line[name.len() + 1..].trim())
    }
}

/// One connection, which lasts.
pub(super) struct Caller(pub(super) UnixStream);

impl Caller {
    pub(super) fn of(place: &Deployment) -> Self {
        Self::at(&place.path("h"))
    }

    pub(super) fn at(socket: &Path) -> Self {
        let stream = eventually("the socket", || UnixStream::connect(socket).ok());
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(stream)
    }

    pub(super) fn send(&mut self, what: &str, headers: &str, body: &[u8]) {
        let head =
            format!("{what} HTTP/1.1\r\nHost: weir\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        self.0.write_all(&[head.as_bytes(), body].concat()).expect("sent");
    }

    pub(super) fn answer(&mut self) -> Answer {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("an answer");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        let status = head[9..12].parse().expect("a status");
        let mut answer = Answer { status, head, body: Vec::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        answer.body.resize(length, 0);
        self.0.read_exact(&mut answer.body).expect("the body");
        answer
    }

    pub(super) fn ask(&mut self, what: &str) -> Answer {
        self.send(what, "", b"");
        self.answer()
    }

    pub(super) fn call(&mut self, model: &str, call: &Value) -> Answer {
        self.send(&format!("POST /v2/models/{model}/infer"), "", call.to_string().as_bytes());
        self.answer()
    }
}

/// A call with these elements and parameters.
pub(super) fn call(data: &[f32], parameters: Value) -> Value {
    let input = json!({ "name": "input", "datatype": "FP32", "shape": [data.len()], "data": data });
    json!({ "id": "7", "inputs": [input], "parameters": parameters })
}

#[test]
fn a_model_is_described_and_answers_as_it_does_at_the_socket() {
    let place = place("");
    let daemon = place.serve();
    let mut caller = Caller::of(&place);
    for path in
        ["/v2/health/live", "/v2/health/ready", "/v2/models/null/ready", "/v2/models/null/versions/1/ready"]
    {
        assert_eq!(caller.ask(&format!("GET {path}")).status, 200, "{path}");
    }
    let server = caller.ask("GET /v2").json();
    assert_eq!((&server["name"], &server["version"]), (&json!("weir"), &json!(env!("CARGO_PKG_VERSION"))));
    let model = caller.ask("GET /v2/models/null").json();
    assert_eq!(model["inputs"], json!([{"name": "input", "datatype": "FP32", "shape": [3]}]));
    assert_eq!(caller.ask("GET /v2/models/null/config").json()["output"][0]["dims"], json!([2]));
    let index = caller.ask("POST /v2/repository/index").json();
    assert_eq!(index[1], json!({"name": "slow", "version": "1", "state": "READY"}));

    let mut client = daemon.client();
    let stream = client.register(&best_effort("null", "cam")).expect("a stream");
    let expected =
        values(&stream, &client.infer(&stream, &[1.0, 2.0, 3.0]).expect("an answer")).expect("in time");
    let answer = caller.call("null", &call(&[1.0, 2.0, 3.0], json!({}))).json();
    assert_eq!(
        (&answer["model_name"], &answer["model_version"], &answer["id"]),
        (&json!("null"), &json!("1"), &json!("7"))
    );
    assert_eq!(
        answer["outputs"],
        json!([{"name": "output", "datatype": "FP32", "shape": [2], "data": expected}])
    );
    assert_eq!(answer["parameters"]["weir_sequence"], json!(0));

    let head = json!({ "parameters": { "binary_data_output": true }, "inputs": [
        { "name": "input", "datatype": "FP32", "shape": [1, 3], "parameters": { "binary_data_size": 12 } }] });
    let head = head.to_string();
    let raw: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let length = format!("Inference-Header-Content-Length: {}\r\n", head.len());
    caller.send("POST /v2/models/null/versions/1/infer", &length, &[head.as_bytes(), &raw].concat());
    let answer = caller.answer();
    let length: usize =
        answer.header("inference-header-content-length").expect("binary").parse().expect("a length");
    let packed: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!((answer.status, &answer.body[length..]), (200, &packed[..]));
    let stats = &caller.ask("GET /v2/models/null/stats").json()["model_stats"][0];
    // Those of the socket count too.
    assert_eq!(stats["inference_stats"]["success"]["count"], json!(3));
    assert!(stats["inference_stats"]["success"]["ns"].as_u64() >= Some(3_000_000), "{stats}");
    let ns = |part: &str| stats["inference_stats"][part]["ns"].as_u64().expect("a time");
    assert_eq!(ns("queue") + ns("compute_infer"), ns("success"), "{stats}");
    assert_eq!(stats["inference_stats"]["queue"]["count"], json!(3));
}

#[test]
fn what_is_wrong_is_told_by_its_status_and_in_words() {
    let place = place("");
    let daemon = place.serve();
    let mut caller = Caller::of(&place);
    let good = call(&[1.0, 2.0, 3.0], json!({}));
    for (model, call, status, words) in [
        ("none", good.clone(), 404, &["no model none", "null, slow"][..]),
        ("null/versions/2", good.clone(), 404, &["version 1", "not 2"]),
        ("null", json!({}), 400, &["inputs"]),
        (
            "null",
            json!({ "inputs": [{ "name": "input", "datatype": "FP32", "shape": 3, "data": [0] }] }),
            400,
            &["the call: inputs[0].shape: must be a list, not 3"],
        ),
        ("null", call(&[1.0], json!({})), 400, &["[1]", "[3]"]),
        ("null", call(&[1.0; 9_000], json!({})), 413, &["daemon.max-frame = 16384"]),
        ("null", call(&[1.0; 3], json!({ "weir_stream": 7 })), 400, &["weir_stream"]),
        ("null", call(&[1.0; 3], json!({ "weir_stream": "" })), 400, &["1..=64 bytes"]),
        ("null", call(&[1.0; 3], json!({ "timeout": "1s" })), 400, &["timeout", "microseconds"]),
        ("null", call(&[1.0; 3], json!({ "sequence_id": 4 })), 501, &["weir_stream"]),
        (
            "null",
            call(&[1.0; 3], json!({ "weir_stream": "a", "weir_constraints": "row_miss" })),
            400,
            &["row_miss"],
        ),
        (
            "null",
            call(&[1.0; 3], json!({ "weir_stream": "a", "weir_constraints": "row_miss(1)" })),
            400,
            &["declare"],
        ),
        (
            "null",
            call(&[1.0; 3], json!({ "weir_stream": "a", "weir_period": "often" })),
            400,
            &["weir_period", "often"],
        ),
        ("null", call(&[1.0; 3], json!({ "weir_stream": "a", "weir_jitter": "1s" })), 400, &["weir_period"]),
    ] {
        let answer = caller.call(model, &call);
        assert_eq!(answer.status, status, "{model}: {}", answer.error());
        let error = answer.error();
        assert!(words.iter().all(|word| error.contains(word)), "{error}: {words:?}");
        if answer.status == 413 {
            // What was not read is not waited for.
            caller = Caller::of(&place);
        }
    }
    for (what, status) in [
        ("GET /", 404),
        ("GET /v2/models/null/infer", 404),
        ("GET /v2/models/null/more", 404),
        ("POST /v2/systemsharedmemory/region/x/register", 501),
        ("POST /v2/repository/models/x/load", 501),
    ] {
        assert_eq!(caller.ask(what).status, status, "{what}");
    }
    // One that asks whether it may send too much is told at once.
    let mut large = Caller::of(&place);
    large.0.write_all(b"POST /v2/models/null/infer HTTP/1.1\r\nHost: weir\r\nContent-Length: 99999\r\nExpect: 100-continue\r\n\r\n").expect("sent");
    assert_eq!(large.answer().status, 413);
    caller.send("POST /v2/models/null/infer", "weir-stream: caf\u{e9}\r\n", good.to_string().as_bytes());
    assert_eq!(caller.answer().json()["parameters"]["weir_sequence"], json!(0), "UTF-8 is text");
    let head = format!(
        "POST /v2/models/null/infer HTTP/1.1\r\nHost: weir\r\nContent-Length: {}\r\nweir-stream: ",
        good.to_string().len()
    );
    caller
        .0
        .write_all(&[head.as_bytes(), b"caf\xe9\r\n\r\n", good.to_string().as_bytes()].concat())
        .expect("sent");
    let answer = caller.answer();
    assert_eq!(
        (answer.status, answer.error().starts_with("weir-stream: must be UTF-8")),
        (400, true),
        "{}",
        answer.error()
    );
    // Whoever has said all that it wants to say is answered all the same.
    let mut half = Caller::of(&place);
    half.send("POST /v2/models/null/infer", "", good.to_string().as_bytes());
    half.0.shutdown(std::net::Shutdown::Write).expect("half of it");
    assert_eq!(half.answer().status, 200);
    half.0.read_to_end(&mut Vec::new()).expect("closed");
    // The head of what would be answered.
    let mut asked = Caller::of(&place);
    asked
        .0
        .write_all(b"HEAD /v2/health/ready HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut told = String::new();
    asked.0.read_to_string(&mut told).expect("closed");
    assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with("\r\n\r\n"), "{told}");
    // What is no HTTP ends that connection alone.
    let mut other = Caller::of(&place);
    other.0.write_all(b"\x01\x02\x03 nonsense\r\n\r\n").expect("sent");
    let mut rest = Vec::new();
    other.0.read_to_end(&mut rest).expect("closed");
    assert_eq!(caller.call("null", &good).status, 200);
    assert_eq!(daemon.status()["services"][0]["missed"]["late"], json!(0));
}

#[test]
fn a_call_belongs_to_the_stream_that_it_names_and_keeps_its_promise() {
    let place = place("");
    let daemon = place.serve();
    let (mut one, mut other) = (Caller::of(&place), Caller::of(&place));
    let sequence = |answer: &Answer| {
        let answer = answer.json();
        answer["parameters"]["weir_sequence"].as_u64().unwrap_or_else(|| panic!("{answer}"))
    };
    // Reserved, by header and by parameter, from any connection.
    one.send(
        "POST /v2/models/null/infer",
        "weir-stream: front\r\n",
        call(&[0.0; 3], json!({})).to_string().as_bytes(),
    );
    let answer = one.answer();
    assert_eq!((sequence(&answer), &answer.json()["parameters"]["weir_misses_left"]), (0, &json!(1)));
    assert_eq!(sequence(&other.call("null", &call(&[0.0; 3], json!({ "weir_stream": "front" })))), 1);
    // Declared by its first call; the next ones may say so again, or nothing, but nothing else.
    let declared = |jitter: &str| json!({ "weir_stream": "rear", "weir_constraints": "any_miss(1,3); row_miss(1)", "weir_period": "100ms", "weir_jitter": jitter });
    assert_eq!(sequence(&one.call("null", &call(&[0.0; 3], declared("5s")))), 0);
    assert_eq!(sequence(&other.call("null", &call(&[0.0; 3], declared("5s")))), 1);
    assert_eq!(sequence(&one.call("null", &call(&[0.0; 3], json!({ "weir_stream": "rear" })))), 2);
    let answer = one.call("null", &call(&[0.0; 3], declared("4s")));
    assert_eq!((answer.status, answer.error().contains("rear")), (409, true), "{}", answer.error());
    let rear = daemon.stream_status("rear");
    assert_eq!(rear["served"], json!(3), "{rear}");
    // Given back by its last call, it can be declared anew.
    let last = json!({ "weir_stream": "rear", "weir_last": true });
    assert_eq!(sequence(&one.call("null", &call(&[0.0; 3], last))), 3);
    assert_eq!(sequence(&other.call("null", &call(&[0.0; 3], declared("4s")))), 0);
    // What cannot be promised is refused, and what a client of the socket holds is its.
    let greedy =
        json!({ "weir_stream": "greedy", "weir_constraints": "row_miss(0)", "weir_period": "100us" });
    assert_eq!(one.call("null", &call(&[0.0; 3], greedy)).status, 409);
    let mut client = daemon.client();
    client.register(&best_effort("null", "own")).expect("a stream");
    let answer = one.call("null", &call(&[0.0; 3], json!({ "weir_stream": "own" })));
    assert_eq!((answer.status, answer.error().contains("in use")), (409, true), "{}", answer.error());
    assert!(client.register(&best_effort("null", "front")).is_err(), "calls hold it");
}

/// Also if it is refused at once, before what it brings is read: what waits already rules an answer out.
#[test]
fn the_last_call_of_a_stream_gives_it_back_whatever_comes_of_it() {
    let place = Deployment::new(format!(
        "{DAEMON}max-frame = 1048576\n[daemon.oip]\nhttp = \"unix:h\"\n[[service]]\nname = \"wide\"\nengine = \"simulated\"\n\
         simulated = {{ times = [\"700ms\"], input = 5000, output = 1 }}\ndeadline = \"8s\"\n"
    ));
    place.succeed(&["profile", "--quick", "--samples", "3"]);
    place.set_all_bounds(3_000);
    let daemon = place.serve();
    let data = [0.0; 5_000];
    let sent = |count: u64| {
        let mut caller = Caller::of(&place);
        caller.send("POST /v2/models/wide/infer", "", call(&data, json!({})).to_string().as_bytes());
        eventually("it is taken in", || {
            let service = &daemon.status()["services"][0];
            let taken_in = ["waiting", "running", "served"].iter().filter_map(|of| service[of].as_u64());
            (taken_in.sum::<u64>() >= count).then_some(())
        });
        caller
    };
    let mut others = [sent(1), sent(2)];
    let last = call(&data, json!({ "weir_stream": "once", "weir_last": true }));
    let status = Caller::of(&place).call("wide", &last).status;
    assert!([200, 503].contains(&status), "{status}");
    let streams = daemon.status()["services"][0]["streams"].to_string();
    assert!(!streams.contains("once"), "{status}: {streams}");
    others.iter_mut().for_each(|other| _ = other.answer());
}

#[test]
fn a_miss_is_unavailable_with_its_reason_and_what_is_left() {
    let place = place("ready-in-safe-mode = false");
    let mut daemon = place.serve();
    let mut caller = Caller::of(&place);
    let declared = json!({
        "weir_stream": "s", "weir_constraints": "any_miss(2,3)", "weir_period": "2s", "weir_jitter": "5s", "timeout": 1,
    });
    let answer = caller.call("slow", &call(&[0.0], declared));
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("weir-misses-left"), Some("1"), "{}", answer.head);
    assert!(answer.error().contains("no answer in time to request 0"), "{}", answer.error());
    assert_eq!(caller.ask("GET /v2/models/slow/ready").status, 200);

    // What is being answered when the daemon is stopped is answered, and nothing after it.
    caller.send("POST /v2/models/slow/infer", "", call(&[0.0], json!({})).to_string().as_bytes());
    eventually("the batch", || (daemon.status()["services"][1]["running"] == json!(1)).then_some(()));
    let mut late = Caller::of(&place);
    daemon.signal(Signal::TERM);
    assert_eq!(caller.answer().status, 200);
    let answered = |caller: &mut Caller| {
        caller.0.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let mut rest = Vec::new();
        caller.0.read_to_end(&mut rest).map(|_| rest)
    };
    assert!(answered(&mut late).expect("closed").is_empty());
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!place.path("h").exists(), "the socket is left behind");
}

#[test]
fn who_finds_no_place_is_told_and_one_who_leaves_makes_room() {
    let place = place("");
    place.configure(
        std::fs::read_to_string(place.config())
            .expect("read")
            .replace("max-frame", "max-clients = 2\nmax-frame"),
    );
    let _daemon = place.serve();
    let mut callers: Vec<_> = (0..3).map(|_| Caller::of(&place)).collect();
    let mut ask = |index: usize| callers[index].ask("GET /v2/health/live");
    assert_eq!([ask(0).status, ask(1).status], [200, 200]);
    let refused = ask(2);
    assert_eq!((refused.status, refused.error().contains("daemon.max-clients = 2")), (503, true));
    drop(callers);
    eventually("room", || (Caller::of(&place).ask("GET /v2/health/live").status == 200).then_some(()));
}

/// The time that its thread has taken so far.
fn taken(daemon: &Daemon) -> Duration {
    let (_, folder) = daemon.thread("oip");
    let told = std::fs::read_to_string(folder.join("schedstat")).expect("the thread is there");
    let nanos = told.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("nanoseconds"))
}

#[test]
fn questions_and_wrong_calls_without_end_take_a_part_of_a_core_and_delay_no_call() {
    const FLOODED: Duration = Duration::from_secs(3);
    let place = place("");
    let daemon = place.serve();
    let mut caller = Caller::of(&place);
    assert_eq!(caller.ask("GET /v2/health/live").status, 200);
    let going = AtomicBool::new(true);
    let (asked, calls, took, all) = std::thread::scope(|scope| {
        let flood = |index: usize| {
            let (place, going) = (&place, &going);
            move || {
                let (mut caller, mut asked) = (Caller::of(place), 0);
                while going.load(Ordering::Relaxed) {
                    let answered = match index % 2 {
                        0 => caller.ask("GET /v2/models/null").status == 200,
                        _ => caller.call("null", &call(&[1.0], json!({}))).status == 400,
                    };
                    asked += u64::from(answered);
                }
                asked
            }
        };
        let floods: Vec<_> = (0..8).map(|index| scope.spawn(flood(index))).collect();
        let (before, began) = (taken(&daemon), now());
        let mut calls = Vec::new();
        while began.elapsed() < FLOODED {
            calls
                .push(caller.call("null", &call(&[1.0, 2.0, 3.0], json!({ "weir_stream": "front" }))).status);
            pause(Duration::from_millis(20));
        }
        let (took, all) = (taken(&daemon) - before, began.elapsed());
        going.store(false, Ordering::Relaxed);
        let asked = floods.into_iter().map(|flood| flood.join().expect("it floods")).sum::<u64>();
        (asked, calls, took, all)
    });
    println!("{} calls in {all:?} beside {asked} questions and wrong calls: {took:?}", calls.len());
    // A tenth, what may be owed before that counts, and what the calls take.
    assert!(took.as_secs_f64() < 0.3 * all.as_secs_f64(), "{took:?} of {all:?}");
    assert!(calls.len() > 5 && calls.iter().all(|status| *status == 200), "{calls:?}");
    assert!(asked > 8, "whoever floods is answered all the same: {asked}");
    assert_eq!(daemon.stream_status("front")["missed"]["late"], json!(0));
}

#[test]
fn a_model_in_safe_mode_is_ready_or_not_as_is_configured() {
    for (more, status) in [("ready-in-safe-mode = false", 503), ("", 200)] {
        let place = place(more);
        let _daemon = place.serve();
        let mut caller = Caller::of(&place);
        assert_eq!(caller.ask("GET /v2/models/slow/ready").status, 200);
        assert_eq!(caller.call("slow", &call(&[0.0], json!({}))).status, 200);
        assert_eq!(caller.ask("GET /v2/models/slow/ready").status, status);
        assert_eq!(caller.ask("GET /v2/models/null/ready").status, 200);
        assert_eq!(caller.ask("GET /v2/health/ready").status, 200);
    }
}
