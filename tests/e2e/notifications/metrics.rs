//! Metrics, as a reader of Prometheus' text format finds it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::harness::{DAEMON, Deployment, PATIENCE, best_effort, eventually};
use rustix::process::Signal;
use weir_client::{ArrivalBound, Constraint, Registration};

fn place(metrics: &str) -> Deployment {
    Deployment::new(format!(
        "{DAEMON}metrics = \"{metrics}\"\n{}",
        r#"
        [[service]]
        name = "null"
        engine = "simulated"
        simulated = { times = ["1ms"], input = 1, output = 1 }
        deadline = "20s"
        constraints = [{ any-miss = { m = 1, k = 3 } }]
        "#
    ))
    .profiled(&[400])
}

/// The head and the body of the answer to one request.
fn ask(mut stream: impl Read + Write, request: &str) -> (String, String) {
    let request = format!("{request} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

fn over_socket(place: &Deployment, request: &str) -> (String, String) {
    // It is bound after the clients' socket, before the daemon says that it is ready.
    let stream = eventually("the metrics' socket", || UnixStream::connect(place.path("m")).ok());
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    ask(stream, request)
}

/// Every sample by its name and labels; each must belong to a family that was declared before.
fn parse(text: &str) -> HashMap<String, f64> {
    let mut kinds: HashMap<&str, &str> = HashMap::new();
    let mut samples = HashMap::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').expect("a kind");
            assert!(kinds.insert(name, kind).is_none(), "{name} is declared twice");
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            let name = sample.split('{').next().expect("a name");
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let histogram = family.is_some_and(|family| kinds.get(family) == Some(&"histogram"));
            assert!(histogram || kinds.contains_key(name), "{name} is not declared");
            let value = value.parse().expect("a number");
            assert!(samples.insert(sample.to_owned(), value).is_none(), "{sample} comes twice");
        }
    }
    samples
}

#[test]
fn what_was_answered_and_missed_is_counted() {
    let place = place("unix:m");
    let mut daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("null", "cam0")).expect("a stream");
    for _ in 0..5 {
        assert!(client.infer(&stream, &[0.0]).expect("an answer").result().is_some());
    }
    let (head, body) = over_socket(&place, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    let samples = parse(&body);
    let of = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("{name} is not in\n{body}"));
    assert_eq!(of("weir_arrived_total{service=\"null\",stream=\"cam0\"}"), 5.0);
    assert_eq!(of("weir_served_total{service=\"null\",stream=\"cam0\"}"), 5.0);
    assert_eq!(of("weir_missed_total{service=\"null\",stream=\"cam0\",reason=\"late\"}"), 0.0);
    assert_eq!(of("weir_safe_mode_state{service=\"null\"}"), 1.0);
    assert_eq!(of("weir_breaches_total{service=\"null\"}"), 0.0);
    assert_eq!(of("weir_stream_suspended{service=\"null\",stream=\"cam0\"}"), 0.0);
    assert_eq!(of("weir_streams_suspended{service=\"null\"}"), 0.0);
    assert_eq!(of("weir_workers_alive{service=\"null\"}"), 1.0);
    let answers: Vec<_> =
        samples.iter().filter(|(name, _)| name.starts_with("weir_answers_total{")).collect();
    assert!(matches!(answers[..], [(_, &5.0)]), "{answers:?}");
    assert_eq!(of("weir_deadline_seconds{service=\"null\"}"), 20.0);
    assert!(of("weir_certified_rate{service=\"null\"}") > 0.0);
    assert_eq!(of("weir_batch_size_bucket{service=\"null\",le=\"1\"}"), 5.0);
    // A batch is waited out for 1 ms.
    assert_eq!(of("weir_latency_seconds_bucket{service=\"null\",le=\"0.0005\"}"), 0.0);
    assert_eq!(of("weir_latency_seconds_bucket{service=\"null\",le=\"+Inf\"}"), 5.0);
    assert!(of("weir_latency_seconds_sum{service=\"null\"}") >= 0.005);

    // More than was declared: nothing is promised to this stream, and to the other what was.
    let limited = Registration::builder("null", "limited")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(1, Duration::from_secs(30)));
    let limited = client.register(&limited.build().expect("valid")).expect("admitted");
    for _ in 0..2 {
        client.infer(&limited, &[0.0]).expect("an answer");
    }
    let samples = parse(&over_socket(&place, "GET /metrics").1);
    for (sample, value) in [
        ("weir_stream_suspended{service=\"null\",stream=\"limited\"}", 1.0),
        ("weir_stream_suspended{service=\"null\",stream=\"cam0\"}", 0.0),
        ("weir_streams_suspended{service=\"null\"}", 1.0),
        ("weir_suspensions_total{service=\"null\"}", 1.0),
    ] {
        assert_eq!(samples.get(sample), Some(&value), "{sample}");
    }
    assert!(over_socket(&place, "GET /").0.starts_with("HTTP/1.1 404 "));
    assert!(over_socket(&place, "DELETE /metrics").0.starts_with("HTTP/1.1 405 "));

    // Those who connect and say nothing keep nobody out for good, and do not keep the daemon from ending.
    let _silent: Vec<_> =
        (0..6).map(|_| UnixStream::connect(place.path("m")).expect("the backlog takes it")).collect();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!place.path("m").exists(), "the socket is left behind");
}

#[test]
fn a_port_of_this_machine_serves_too_and_one_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let place = place(&address.to_string());
    let message = place.fail(&["serve"]);
    assert!(message.contains(&format!("daemon.metrics = {address}")), "{message}");
    drop(taken);
    let _daemon = place.serve();
    let stream = eventually("the metrics' port", || TcpStream::connect(address).ok());
    let (head, body) = ask(stream, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && !parse(&body).is_empty(), "{head}");
}

#[test]
fn a_file_that_is_needed_is_never_replaced_by_a_socket() {
    let place = place("unix:m");
    let needed = |name: &str| std::fs::write(place.path(name), "needed").expect("written");
    let kept = |name: &str| assert_eq!(std::fs::read(place.path(name)).expect("a file"), b"needed");
    needed("m");
    assert!(place.fail(&["serve"]).contains("/m is there and is no socket"));
    kept("m");
    std::fs::remove_file(place.path("m")).expect("removed");
    needed("s");
    assert!(place.fail(&["serve"]).contains("/s is there and is no socket"));
    kept("s");
    let text = std::fs::read_to_string(place.config()).expect("there");
    place.configure(text.replace("unix:m", "unix:profile.json"));
    assert!(place.fail(&["check"]).contains("daemon.metrics"));
    // What cannot be loaded leaves no socket behind.
    std::fs::remove_file(place.path("s")).expect("removed");
    place.configure(text.replace("simulated = {", "record = \"no/folder\"\nsimulated = {"));
    assert!(place.fail(&["serve"]).contains("no/folder"));
    assert!(!place.path("m").exists() && !place.socket().exists());
}

#[test]
fn what_became_of_requests_is_kept_when_their_client_has_gone() {
    let place = place("unix:m");
    let daemon = place.serve();
    let serve = |name: &str, count: usize| {
        let mut client = daemon.client();
        let stream = client.register(&best_effort("null", name)).expect("a stream");
        for _ in 0..count {
            let outcome = client.infer(&stream, &[1.0]).expect("an answer");
            assert!(outcome.result().is_some(), "{outcome:?}");
        }
        let soon = client.infer(&stream.within(Duration::from_micros(1)), &[1.0]).expect("an answer");
        assert!(soon.result().is_none(), "{soon:?}");
        client.unregister(&stream).expect("given up");
    };
    serve("cam", 3);
    serve("other", 1);
    serve("cam", 2);
    let service = &daemon.status()["services"][0];
    let departed: Vec<_> = service["departed"].as_array().expect("a list").iter().collect();
    let told = |index: usize| {
        (&departed[index]["name"], departed[index]["arrived"].as_u64(), departed[index]["served"].as_u64())
    };
    assert_eq!(told(0), (&"other".into(), Some(2), Some(1)), "{service}");
    assert_eq!(told(1), (&"cam".into(), Some(7), Some(5)), "{service}");
    let missed: u64 =
        service["missed"].as_object().expect("by reason").values().filter_map(|count| count.as_u64()).sum();
    assert_eq!((service["served"].as_u64(), missed), (Some(6), 3), "{service}");
    let (_, text) = over_socket(&place, "GET /metrics");
    let samples = parse(&text);
    assert_eq!(samples["weir_requests_total{service=\"null\",outcome=\"served\"}"], 6.0);
}
