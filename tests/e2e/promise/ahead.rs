//! What nothing is promised for goes before what is on a shared worker, where nobody is late for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{
    Daemon, Deployment, Listener, alone, answers, best_effort, daemon_in_real_time, now, pause,
};
use weir_client::{ArrivalBound, Constraint, Outcome, Registration};

const SECONDS: u32 = 8;

fn service(name: &str, ms: u64, deadline: &str, more: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\ndevice = \"box\"\nengine = \"simulated\"\n\
         simulated = {{ times = [\"{ms}ms\"], input = 3, output = 3 }}\n\
         deadline = \"{deadline}\"\nguard = \"100ms\"\nhandover = \"0ms\"\nmax-batch = 1\n{more}"
    )
}

/// One worker: nine requests a second that must be answered within 3 s keep it busy for 720 ms of it, and may for 810.
fn deployment(device: &str) -> Deployment {
    let burst = "[[service.stream]]\nname = \"line\"\nconstraints = [{ row-miss = 0 }]\n\
                 arrivals = [{ window = { count = 9, length = \"1s\" } }]\n";
    let place = Deployment::new(format!(
        "{}[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[[device]]\nname = \"box\"\n{device}{}{}{}{}",
        daemon_in_real_time(),
        service("steady", 80, "3s", burst),
        service("quick", 5, "250ms", ""),
        service("long", 60, "400ms", ""),
        service("guest", 10, "2s", ""),
    ));
    place.succeed(&["profile", "--quick", "--samples", "5"]);
    place.set_variant_bounds(&[[80], [5], [60], [10]], &[[90], [40], [80], [40]]);
    place
}

/// Of a service: requests without a promise, one after each `period`, for as long as the test lasts.
fn flood(daemon: &Daemon, service: &str, period: u64) -> Vec<Outcome> {
    let mut client = daemon.client();
    let stream = client.register(&best_effort(service, "flood")).expect("best effort");
    let (began, mut ids) = (now(), Vec::new());
    while began.elapsed() < Duration::from_secs(SECONDS.into()) {
        ids.push(client.submit(&stream, &[1.0; 3]).expect("sent"));
        pause(Duration::from_millis(period));
    }
    answers(&mut client, &ids)
}

/// Nine at once, and again after a second.
fn bursts(daemon: &Daemon) -> Vec<Outcome> {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("steady", "line")).expect("reserved");
    let mut ids = Vec::new();
    for _ in 0..SECONDS {
        ids.extend((0..9).map(|_| client.submit(&stream, &[1.0; 3]).expect("sent")));
        pause(Duration::from_millis(1_010));
    }
    answers(&mut client, &ids)
}

/// A stream with a promise comes, sends, and goes, again and again.
fn guests(daemon: &Daemon, over: &AtomicBool) -> Vec<Outcome> {
    let guest = Registration::builder("guest", "one")
        .constraint(Constraint::any_miss(0, 1))
        .arrivals(ArrivalBound::window(1, Duration::from_secs(10)))
        .build()
        .expect("it fits the frame");
    let (mut client, mut all) = (daemon.client(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        let stream = client.register(&guest).expect("it fits beside the burst");
        let id = client.submit(&stream, &[1.0; 3]).expect("sent");
        all.extend(answers(&mut client, &[id]));
        client.unregister(&stream).expect("given back");
        // Who has gone counts until nothing mandatory waits.
        pause(Duration::from_millis(60));
    }
    all
}

fn served(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.result().is_some()).count()
}

/// How many of the quick requests that nothing is promised for are answered of how many, and how many batches went ahead.
fn beside_bursts(device: &str) -> (usize, usize, u64) {
    let place = deployment(device);
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let over = AtomicBool::new(false);
    let config = std::fs::read_to_string(place.config()).expect("written");
    let (steady, quick, guests) = thread::scope(|scope| {
        let steady = scope.spawn(|| bursts(&daemon));
        let quick = scope.spawn(|| flood(&daemon, "quick", 50));
        let _long = scope.spawn(|| flood(&daemon, "long", 300));
        let guests = scope.spawn(|| guests(&daemon, &over));
        pause(Duration::from_secs(u64::from(SECONDS) / 2));
        place.configure(config.replace("deadline = \"400ms\"", "deadline = \"450ms\""));
        assert!(daemon.reload_accepted().contains("service long: "));
        let (steady, quick) = (steady.join().expect("sent"), quick.join().expect("sent"));
        over.store(true, Ordering::Relaxed);
        (steady, quick, guests.join().expect("sent"))
    });
    listener.kept_or_told("steady", served(&steady) == steady.len(), &steady);
    listener.kept_or_told("guest", served(&guests) == guests.len(), &guests);
    assert!(guests.len() > 5, "{} streams came and went", guests.len());
    let status = daemon.status();
    let all = status["services"].as_array().expect("services");
    let ahead = all.iter().map(|service| service["ahead"].as_u64().expect("a number")).sum();
    let shielded = all.iter().filter(|service| service["shielded"] == true).count();
    assert_eq!(shielded, if device.is_empty() { 4 } else { 0 }, "{status}");
    (served(&quick), quick.len(), ahead)
}

#[test]
fn what_nothing_is_promised_for_is_answered_beside_bursts_and_no_promise_is_broken() {
    alone();
    let (before, _, none) = beside_bursts("ahead = false\n");
    let (after, all, ahead) = beside_bursts("");
    println!("{before} without a shield and {after} with it, of {all}; {ahead} batches went ahead");
    assert_eq!(none, 0);
    // How many depends on how fast the machine is; what it is for is below.
    assert!(ahead > 5, "{ahead} batches went ahead");
    assert!(after * 2 > before * 3, "{before} without a shield, {after} with it, of {all}");
}

#[test]
fn a_plan_says_whether_anything_may_go_ahead() {
    let place = deployment("");
    let words =
        "what nothing is promised for goes before that where nobody is late for it, for up to 90.0 ms";
    let text = place.succeed(&["plan"]);
    assert!(text.contains(words), "{text}");
    let config = std::fs::read_to_string(place.config()).expect("written");
    for (other, words) in [
        ("ahead = false", "what nothing is promised for waits while anything else does"),
        ("workers = 2", words),
    ] {
        place.configure(config.replace("name = \"box\"", &format!("name = \"box\"\n{other}")));
        let text = place.succeed(&["plan"]);
        assert!(text.contains(words), "{text}");
    }
}
