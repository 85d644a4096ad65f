//! The eventfd of a client counts what its events tell; who makes it full and blocking harms nobody else.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{DAEMON, Daemon, Deployment, PATIENCE, answers, best_effort, eventually, now, pause};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::write;
use rustix::process::Signal;
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::{
    Alarm, ArrivalBound, Constraint, Error, Event, EventMask, RefusalCode, Registration, StreamInfo,
};

/// After which no further change is expected.
const QUIET: Duration = Duration::from_millis(20);

/// A service whose suspensions end as soon as they may, with answers of 64 KiB.
fn serve() -> Daemon {
    let config = format!(
        r#"{DAEMON}
        max-pending = 8388608
        [safe-mode]
        hold = "1ms"
        clean = "1ms"
        [[service]]
        name = "null"
        engine = "simulated"
        simulated = {{ times = ["0ms"], input = 1, output = 16384 }}
        deadline = "30s"
        guard = "1s"
        queue = 1024
        "#
    );
    Deployment::new(config).profiled(&[1]).serve()
}

/// A stream that may have one request in 20 ms.
fn limited(client: &mut Client, name: &str) -> StreamInfo {
    let bound = ArrivalBound::window(1, Duration::from_millis(20));
    let registration =
        Registration::builder("null", name).constraint(Constraint::any_miss(1, 2)).arrivals(bound);
    client.register(&registration.build().expect("it fits")).expect("a stream")
}

/// Sends more than declared while it is calm, until that has been noticed; events are kept.
fn flood(client: &mut Client, stream: &StreamInfo) {
    let before = changes(client);
    eventually("a breach", || {
        client.submit(stream, &[0.0]).expect("submitted");
        client.infer(stream, &[0.0]).expect("answered");
        (changes(client) > before).then_some(())
    });
}

/// A client that hears of suspensions both ways, and how often it did.
struct Ears {
    client: Client,
    alarm: Alarm,
    told: u64,
    counted: u64,
}

impl Ears {
    /// Hears from now on.
    fn open(daemon: &Daemon) -> Self {
        let mut client = daemon.client();
        client.subscribe(EventMask::SUSPENSION).expect("subscribed");
        let alarm = client.alarm().expect("an eventfd");
        Self::of(client, alarm)
    }

    /// The same, once a busy machine has left it calm and what that changed was told and counted.
    fn of(mut client: Client, alarm: Alarm) -> Self {
        eventually("calm", || calm(&mut client).then_some(()));
        let stays = "the connection stays";
        while alarm.take(QUIET).expect(stays) > 0 || client.next_event_timeout(QUIET).expect(stays).is_some()
        {
        }
        let before = changes(&mut client);
        Self { client, alarm, told: before, counted: before }
    }

    /// Waits until it is calm, and every change since has been told and counted, each once.
    fn hears_all(&mut self) {
        eventually("every change, told and counted", || {
            self.counted += self.alarm.take(Duration::ZERO).expect("the eventfd stays");
            while let Some(event) =
                self.client.next_event_timeout(Duration::ZERO).expect("the connection stays")
            {
                let Event::Suspension(event) = event else { panic!("{event:?}") };
                self.told += 1;
                assert_eq!(event.sequence, self.told);
            }
            // Of one instant: between two questions a suspension can end.
            let now = suspensions(&mut self.client);
            let there = now["sequence"].as_u64().expect("a number");
            assert!(self.counted <= there, "{} counted, {there} there", self.counted);
            (now["streams"] == 0 && (self.told, self.counted) == (there, there)).then_some(())
        });
    }
}

fn suspensions(client: &mut Client) -> Value {
    let status: Value = serde_json::from_str(&client.status().expect("a status")).expect("JSON");
    status["services"][0]["suspensions"].clone()
}

/// How often a stream was suspended, or no longer.
fn changes(client: &mut Client) -> u64 {
    suspensions(client)["sequence"].as_u64().expect("a number")
}

fn calm(client: &mut Client) -> bool {
    suspensions(client)["streams"] == 0
}

/// Does to an eventfd the worst that one can: whoever writes it next waits.
fn filled(alarm: Alarm) -> OwnedFd {
    let file = OwnedFd::from(alarm);
    fill(&file);
    fcntl_setfl(&file, OFlags::empty()).expect("flags");
    file
}

/// As much as fits, without waiting.
fn fill(file: &OwnedFd) {
    fcntl_setfl(file, OFlags::NONBLOCK).expect("flags");
    for power in (0..64).rev() {
        write(file, &(1u64 << power).to_ne_bytes()).unwrap_or_default();
    }
}

fn refused<T: std::fmt::Debug>(asked: Result<T, Error>, text: &str) {
    match asked {
        Err(Error::Refused(refusal)) if refusal.code == RefusalCode::Alarm => {
            assert!(refusal.text.contains(text), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_change_that_is_told_is_counted() {
    let daemon = serve();
    let (mut ears, mut others) = (Ears::open(&daemon), Ears::open(&daemon));
    assert!(fcntl_getfl(&ears.alarm).expect("flags").contains(OFlags::NONBLOCK));
    let mut loud = daemon.client();
    let stream = limited(&mut loud, "loud");
    for _ in 0..10 {
        let before = ears.told;
        flood(&mut loud, &stream);
        ears.hears_all();
        others.hears_all();
        assert!(ears.told > before + 1, "the suspension came and went");
    }
    // What is no longer told is no longer counted.
    others.client.subscribe(EventMask::MISSES_LEFT).expect("subscribed");
    flood(&mut loud, &stream);
    ears.hears_all();
    assert_eq!(others.alarm.take(Duration::ZERO).expect("the eventfd stays"), 0);
}

#[test]
fn there_is_one_for_those_to_whom_it_means_something() {
    let daemon = serve();
    let mut client = daemon.client();
    refused(client.alarm(), "SUBSCRIBE");
    client.subscribe(EventMask::MISSES_LEFT).expect("subscribed");
    refused(client.alarm(), "SUBSCRIBE");
    client.subscribe(EventMask::ALL).expect("subscribed");
    let alarm = client.alarm().expect("an eventfd");
    refused(client.alarm(), "already");
    // Not even once the first is closed.
    drop(alarm);
    refused(client.alarm(), "already");
    client.ping().expect("the connection stays");
}

#[test]
fn it_comes_behind_answers_that_the_socket_has_not_taken_yet() {
    let daemon = serve();
    let mut client = daemon.client();
    client.subscribe(EventMask::SUSPENSION).expect("subscribed");
    let stream = client.register(&best_effort("null", "large")).expect("a stream");
    let ids: Vec<_> = (0..60).map(|_| client.submit(&stream, &[0.0]).expect("submitted")).collect();
    eventually("all answers, unread", || {
        (daemon.stream_status("large")["served"].as_u64() == Some(60)).then_some(())
    });
    let alarm = client.alarm().expect("an eventfd");
    answers(&mut client, &ids);
    let mut ears = Ears::of(client, alarm);
    let limited = limited(&mut ears.client, "limited");
    flood(&mut ears.client, &limited);
    ears.hears_all();
}

#[test]
fn tokio_waits_for_it_too() {
    let daemon = serve();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let path = daemon.deployment.socket();
        let client = weir_client::asynchronous::Client::connect(path).await.expect("connected");
        refused(client.alarm().await, "SUBSCRIBE");
        let mut events = client.subscribe(EventMask::SUSPENSION).await.expect("subscribed");
        let mut alarm = client.alarm().await.expect("an eventfd");
        refused(client.alarm().await, "already");
        // Who stops waiting takes nothing.
        assert!(tokio::time::timeout(Duration::from_millis(1), alarm.take()).await.is_err());
        let mut loud = daemon.client();
        let stream = limited(&mut loud, "loud");
        flood(&mut loud, &stream);
        let count = tokio::time::timeout(PATIENCE, alarm.take()).await.expect("in time");
        assert!(count.expect("the eventfd stays") > 0);
        let Event::Suspension(event) = events.next().await.expect("an event") else {
            panic!("another event")
        };
        assert!(event.state.is_suspended());
    });
}

#[test]
fn who_fills_it_and_makes_it_block_delays_nobody_and_leaves_nothing_behind() {
    let mut daemon = serve();
    let mut witness = Ears::open(&daemon);
    let stream = limited(&mut witness.client, "witness");
    let before = alone(&daemon, &mut witness);
    let mut kept = Vec::new();
    for round in 0..20 {
        let Ears { client: mut bad, alarm, .. } = Ears::open(&daemon);
        let flooding = limited(&mut bad, &format!("bad{round}"));
        let file = filled(alarm);
        // Its own alarms, then those of others.
        let heard = witness.told;
        flood(&mut bad, &flooding);
        witness.hears_all();
        flood(&mut witness.client, &stream);
        witness.hears_all();
        assert!(witness.told > heard);
        // It is served itself, and hears on the socket.
        flood(&mut bad, &flooding);
        witness.hears_all();
        assert!(matches!(bad.next_event_timeout(PATIENCE), Ok(Some(Event::Suspension(_)))));
        // The eventfd outlives the connection, full as it is.
        kept.push(file);
    }
    assert_eq!(alone(&daemon, &mut witness), before);
    // Nor does one that is there keep the daemon from ending.
    let Ears { client: bad, alarm, .. } = Ears::open(&daemon);
    let _file = filled(alarm);
    flood(&mut witness.client, &stream);
    witness.hears_all();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    drop(bad);
}

#[test]
fn who_goes_on_filling_it_after_the_end_keeps_no_thread_for_ever() {
    let daemon = serve();
    let mut witness = Ears::open(&daemon);
    let stream = limited(&mut witness.client, "witness");
    let before = alone(&daemon, &mut witness);
    for _ in 0..5 {
        let Ears { client: bad, alarm, .. } = Ears::open(&daemon);
        let (file, over, since) = (filled(alarm), AtomicBool::new(false), now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && since.elapsed() < PATIENCE {
                    fill(&file);
                    fcntl_setfl(&file, OFlags::empty()).expect("flags");
                }
            });
            flood(&mut witness.client, &stream);
            witness.hears_all();
            drop(bad);
            assert_eq!(alone(&daemon, &mut witness), before);
            over.store(true, Ordering::Relaxed);
        });
    }
}

/// Waits until the witness is the only client, and no thread or descriptor of another is left: how many there are.
fn alone(daemon: &Daemon, witness: &mut Ears) -> (usize, usize) {
    let count = || (daemon.count("fd"), daemon.count("task"));
    eventually("one client alone", || {
        let alone = witness.client.status().expect("a status").contains("\"clients\":1,");
        let found = count();
        pause(Duration::from_millis(20));
        (alone && found == count()).then_some(found)
    })
}
