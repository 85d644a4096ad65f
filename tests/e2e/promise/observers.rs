//! Whoever only looks on keeps nobody from being served: questions on every channel beside a stream that is promised.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::bus::{Bus, address, is_possible};
use crate::harness::{
    Deployment, Listener, PATIENCE, alone, answers, best_effort, daemon_in_real_time, eventually, pause,
    repository,
};
use weir_client::{ArrivalBound, Constraint, Outcome, Registration};

/// Streams that are there to be told of.
const OTHERS: usize = 60;

/// A service whose worker takes 10 ms a request, its promises computed with 60 ms, and one whose worker computes for as
/// long as somebody asks it to, on the first core.
fn deployment(bus: bool) -> Deployment {
    let place = Deployment::new("");
    let on_bus = format!("bus = \"{}\"", address(&place));
    let daemon = daemon_in_real_time().replace("bus = \"off\"", if bus { &on_bus } else { "bus = \"off\"" });
    place.configure(format!(
        "{daemon}models = {:?}\nmetrics = \"unix:m\"\nclient-streams = 64\nclient-questions = 65536\n{}",
        repository("models/manifest.toml"),
        r#"
        [[service]]
        name = "arm"
        engine = "simulated"
        simulated = { times = ["10ms"], input = 1, output = 1 }
        deadline = "300ms"
        guard = "100ms"
        [[service]]
        name = "eye"
        model = "digits-xl"
        deadline = "2s"
        guard = "1s"
        max-batch = 1
        cores = [0]
        "#
    ));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(60);
    place
}

/// Does it again and again while it is `going`, and counts.
fn repeat(going: &AtomicBool, count: &AtomicU64, mut ask: impl FnMut()) {
    while going.load(Ordering::Relaxed) {
        ask();
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn scrape(place: &Deployment) -> String {
    let mut stream = UnixStream::connect(place.path("m")).expect("the socket for metrics");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_flood_of_questions_on_every_door_leaves_a_promised_stream_its_promise() {
    alone();
    let on_bus = is_possible();
    let place = deployment(on_bus);
    let bus = on_bus.then(|| Bus::start(&place));
    let daemon = place.serve();
    bus.iter().for_each(Bus::wait_for_weir);
    eventually("the metrics' socket", || UnixStream::connect(place.path("m")).ok());
    let mut listener = Listener::new(&daemon);
    let mut others = daemon.client();
    for n in 0..OTHERS {
        others.register(&best_effort("arm", &format!("other{n}"))).expect("a stream");
    }
    let period = Duration::from_millis(100);
    let strict = Registration::builder("arm", "joint")
        .constraint(Constraint::RowMiss { misses: 0 })
        .arrivals(ArrivalBound::window(1, period))
        .build()
        .expect("it fits the frame");
    let mut client = daemon.client();
    let stream = client.register(&strict).expect("it can be promised");
    let (going, counts) = (AtomicBool::new(true), [(); 4].map(|()| AtomicU64::new(0)));
    let outcomes = std::thread::scope(|scope| {
        let [asked, scraped, called, computed] = &counts;
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = daemon.client();
                repeat(&going, asked, || assert!(client.status().expect("a status").contains("other0")));
            });
        }
        scope.spawn(|| repeat(&going, scraped, || assert!(scrape(&place).contains("weir_arrived_total"))));
        if let Some(bus) = &bus {
            scope.spawn(|| repeat(&going, called, || assert!(bus.call(None, &["Status"]).ok)));
            scope.spawn(|| {
                let path = "/org/weir/Weir1/service/arm";
                let left = || bus.property(path, "org.weir.Weir1.Service", "MissesLeft");
                repeat(&going, called, || assert!(left().contains("joint")));
            });
        }
        scope.spawn(|| {
            let mut client = daemon.client();
            let stream = client.register(&best_effort("eye", "busy")).expect("a stream");
            let picture = vec![0.5f32; stream.input_bytes as usize / 4];
            let mut open = Vec::new();
            repeat(&going, computed, || {
                open.push(client.submit(&stream, &picture).expect("submitted"));
                // One waits while one runs.
                if open.len() == 2 {
                    answers(&mut client, &open.drain(..1).collect::<Vec<_>>());
                }
            });
        });
        let mut outcomes: Vec<Outcome> = Vec::new();
        for _ in 0..40 {
            outcomes.push(client.infer(&stream, &[1.0]).expect("an answer"));
            // Counted from the answer: the daemon has read the request before.
            pause(period);
        }
        going.store(false, Ordering::Relaxed);
        outcomes
    });
    let [asked, scraped, called, computed] = counts.map(AtomicU64::into_inner);
    println!(
        "beside 40 requests: {asked} times STATUS, {scraped} scrapes, {called} calls on D-Bus, {computed} pictures"
    );
    assert!(
        asked > 30 && scraped > 10 && (called > 3 || bus.is_none()),
        "no flood: {asked}, {scraped}, {called}"
    );
    let kept = outcomes.iter().all(|outcome| outcome.result().is_some());
    listener.kept_or_told("arm", kept, &outcomes);
    let status = daemon.status()["services"][0].clone();
    let told =
        (&status["streams"].as_array().expect("streams").len(), &status["waiting"], &status["running"]);
    assert_eq!(told, (&(OTHERS + 1), &0.into(), &0.into()));
    let held = status["lock_held_ns"].as_u64().expect("it was held");
    println!("the longest hold of the scheduler: {held} ns");
    assert!(held > 0 && scrape(&place).contains("weir_lock_held_seconds{service=\"arm\"} "), "{held}");
}
