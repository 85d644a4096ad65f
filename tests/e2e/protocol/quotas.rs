//! The first step of a request's way, taken too often by one client: it is bounded, and costs others nothing.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, Listener, PATIENCE, answers, best_effort, eventually, frame, pause,
};
use rustix::process::Signal;
use weir_client::blocking::Client;
use weir_client::wire::ClientFrame;
use weir_client::{
    ArrivalBound, Constraint, Error, EventMask, MissReason, Outcome, RefusalCode, Registration,
    SafeModeEvent, StreamInfo,
};

/// One worker that takes `time` for each request; `daemon` goes into the `[daemon]` table.
fn serve(daemon: &str, time: &str) -> Daemon {
    let service = format!(
        "[[service]]\nname = \"lanes\"\nengine = \"simulated\"\nmax-batch = 1\ndeadline = \"30s\"\nguard = \"5s\"\n\
         simulated = {{ times = [\"{time}\"], input = 2, output = 2 }}\nqueue = 512\n"
    );
    Deployment::new(format!("{DAEMON}{daemon}{service}")).profiled(&[1_000]).serve()
}

/// At most one of any two missed, at most one request in `length`.
fn strict(name: &str, length: Duration) -> Registration {
    let stream = Registration::builder("lanes", name).constraint(Constraint::any_miss(1, 2));
    stream.arrivals(ArrivalBound::window(1, length)).build().expect("it fits")
}

fn stream(client: &mut Client, name: &str) -> StreamInfo {
    client.register(&best_effort("lanes", name)).expect("a stream")
}

fn reason(outcome: &Outcome) -> Option<MissReason> {
    match outcome {
        Outcome::Miss(miss) => Some(miss.reason),
        _ => None,
    }
}

#[test]
fn a_connection_holds_so_many_streams_and_no_more() {
    let daemon = serve("client-streams = 2\n", "1ms");
    let mut client = daemon.client();
    let first = stream(&mut client, "first");
    stream(&mut client, "second");
    match client.register(&best_effort("lanes", "third")) {
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::TooManyStreams);
            assert!(refusal.text.contains("daemon.client-streams = 2"), "{}", refusal.text);
        }
        other => panic!("{other:?}"),
    }
    // Another connection has places of its own, and one that is given up is free again.
    stream(&mut daemon.client(), "elsewhere");
    client.unregister(&first).expect("given up");
    stream(&mut client, "third");
}

#[test]
fn requests_beyond_those_that_may_be_open_are_missed_and_counted_but_promised_ones_are_not() {
    let daemon = serve("client-requests = 4\n", "300ms");
    let mut client = daemon.client();
    let (one, two) = (stream(&mut client, "one"), stream(&mut client, "two"));
    let promised = client.register(&strict("promised", Duration::from_secs(10))).expect("admitted");
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(client.submit(if n % 2 == 0 { &one } else { &two }, &[0.0; 2]).expect("submitted"));
    }
    let kept = client.submit(&promised, &[0.0; 2]).expect("submitted");
    ids.push(kept);
    let outcomes = answers(&mut client, &ids);
    let refused = outcomes.iter().filter(|o| reason(o) == Some(MissReason::QueueFull)).count();
    assert!(refused > 0, "{outcomes:?}");
    assert!(outcomes.iter().all(|o| reason(o).is_none_or(|r| r == MissReason::QueueFull)), "{outcomes:?}");
    let of = |name: &str| {
        let status = daemon.stream_status(name);
        let missed = status["missed"].as_object().expect("reasons").values().filter_map(|n| n.as_u64());
        (status["arrived"].as_u64(), status["served"].as_u64().unwrap_or(0), missed.sum::<u64>())
    };
    let (mut served, mut missed) = (0, 0);
    for name in ["one", "two"] {
        let (arrived, s, m) = of(name);
        assert_eq!((arrived, s + m), (Some(10), 10), "{name}");
        (served, missed) = (served + s, missed + m);
    }
    assert_eq!((served + 1, missed), ((ids.len() - refused) as u64, refused as u64));
    assert_eq!(of("promised"), (Some(1), 1, 0));
    // Who waits for its answers is served.
    for _ in 0..6 {
        assert_eq!(reason(&client.infer(&one, &[0.0; 2]).expect("an answer")), None);
    }
}

#[test]
fn questions_beyond_so_many_a_second_are_refused_and_requests_are_not() {
    let daemon = serve("client-questions = 5\n", "1ms");
    let mut client = daemon.client();
    let lane = stream(&mut client, "lane");
    let refused = |answer: Result<(), Error>| match answer {
        Ok(()) => false,
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::TooManyQuestions);
            assert!(refusal.text.contains("daemon.client-questions = 5"), "{}", refusal.text);
            true
        }
        Err(other) => panic!("{other:?}"),
    };
    // Faster than five a second, on whatever machine: each is asked as soon as the one before is answered.
    let mut first = eventually("a refusal", || {
        let answers: Vec<bool> = (0..12).map(|_| refused(client.ping())).collect();
        answers.contains(&true).then_some(answers)
    });
    first.truncate(5);
    let both = [client.status().map(drop), client.subscribe(EventMask::SAFE_MODE)];
    println!("{first:?}, then {both:?}");
    assert_eq!(reason(&client.infer(&lane, &[0.0; 2]).expect("an answer")), None);
    // Another connection has a quota of its own, and time brings this one back.
    assert!(!refused(daemon.client().ping()));
    pause(Duration::from_millis(1_100));
    assert!(!refused(client.ping()) && !refused(client.status().map(drop)));
}

/// Four streams, all requests at once, not one answer read; as often as it is cut off, it comes again.
fn flood(daemon: &Daemon, going: &AtomicBool) -> u64 {
    let mut sent = 0;
    while going.load(Ordering::Relaxed) {
        let mut raw = daemon.raw().hello();
        let mut bytes = Vec::new();
        for n in 0..4 {
            let name = format!("flood{n}");
            bytes.extend(frame(2, &ClientFrame::Register(Cow::Owned(best_effort("lanes", &name)))));
        }
        let submit = |stream| frame(3, &ClientFrame::Submit { stream, payload: &[0; 8] });
        let round: Vec<u8> = (1..=4).flat_map(submit).collect();
        raw.socket.set_write_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let mut open = raw.send(&bytes);
        while open && going.load(Ordering::Relaxed) {
            open = raw.send(&round);
            sent += 4;
        }
    }
    sent
}

#[test]
fn the_flood_of_one_client_voids_no_promise_of_another() {
    let mut daemon = serve("max-pending = 65536\nclient-requests = 256\n", "2ms");
    let length = Duration::from_secs(1);
    let mut client = daemon.client();
    let kept = client.register(&strict("kept", length)).expect("admitted");
    let mut listener = Listener::new(&daemon);
    let going = AtomicBool::new(true);
    let (outcomes, sent) = std::thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&daemon, &going));
        let mut outcomes = Vec::new();
        for _ in 0..6 {
            outcomes.push(client.infer(&kept, &[1.0; 2]).expect("an answer"));
            pause(length);
        }
        going.store(false, Ordering::Relaxed);
        (outcomes, flooding.join().expect("no panic"))
    });
    assert!(sent > 1_000, "a flood of {sent} requests");
    let kept = outcomes.windows(2).all(|two| two.iter().any(|o| reason(o).is_none()));
    listener.kept_or_told("lanes", kept, &outcomes);
    // A flood of streams that are promised nothing breaks no assumption; that a request which need not be served was missed
    // beside it is only warned of.
    let suspends = |change: &&SafeModeEvent| change.state.is_suspended();
    let told: Vec<_> = listener.changes().iter().filter(suspends).cloned().collect();
    listener.kept_or_told("lanes", told.is_empty(), &told);
    let alone = |s: &serde_json::Value| s["services"][0]["streams"].as_array().map(Vec::len) == Some(1);
    eventually("the end of the flood", || alone(&daemon.status()).then_some(()));
    drop((client, listener));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "within {PATIENCE:?}");
}
