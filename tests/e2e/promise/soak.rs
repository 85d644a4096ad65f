//! Everything a daemon meets in its life, again and again: it keeps its word and grows by nothing.
//!
//! `WEIR_SOAK_SECONDS` says how long it lasts, about 10 unless set; `make soak` takes 600.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::bus::{Bus, daemon_on_bus, is_possible};
use crate::harness::{
    Daemon, Deployment, Listener, Raw, alone, answers, best_effort, eventually, frame, hello, now, pause,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use weir_client::blocking::Client;
use weir_client::wire::{ClientFrame, VERSION};
use weir_client::{
    ArrivalBound, Constraint, Error, MissReason, Outcome, RefusalCode, Registration, RequestId,
};

/// Kinds of mischief, one a round.
const KINDS: usize = 9;
/// What the resident memory may be above that after the warm-up: allocators keep what threads that came and went have
/// touched, and stop growing only after many rounds.
const SLACK_KIB: u64 = 24 * 1024;
/// At most one request of a client that keeps to what it has declared in this time.
const PERIOD: Duration = Duration::from_millis(100);
/// Of so many requests in a row it accepts `MISSES` misses.
const WINDOW: usize = 10;
const MISSES: usize = 2;

/// A service on a thread and one in processes of its own; `queue` is what reloads change. On the bus of `place`, which
/// may not be there.
fn config(place: &Deployment, queue: u64) -> String {
    let service = |name: &str, more: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\nmax-batch = 1\nguard = \"1s\"\nstreams = 64\n\
             simulated = {{ times = [\"2ms\"], input = 4, output = 4 }}\n{more}"
        )
    };
    let thread = service("thread", &format!("deadline = \"5s\"\nqueue = {queue}\n"));
    let process = service("process", "deadline = \"5s\"\nisolation = \"process\"\nworkers = 2\n");
    let daemon = daemon_on_bus(place);
    format!(
        "{daemon}max-pending = 65536\nclient-streams = 4\nclient-requests = 64\n\
         [safe-mode]\nhold = \"100ms\"\nclean = \"100ms\"\n{thread}{process}"
    )
}

/// A client that keeps to what it has declared, until `going` is false: how many requests, and whether one answer too
/// many was missed.
fn behave(daemon: &Daemon, service: &str, going: &AtomicBool) -> (u64, bool) {
    let mut client = daemon.client();
    let registration = Registration::builder(service, "good")
        .constraint(Constraint::any_miss(MISSES as u32, WINDOW as u32))
        .arrivals(ArrivalBound::window(1, PERIOD));
    let stream = client.register(&registration.build().expect("it fits")).expect("admitted");
    let mut missed = Vec::new();
    while going.load(Ordering::Relaxed) {
        let outcome = client.infer(&stream, &[1.0; 4]).expect("an answer");
        let (sequence, miss) = match &outcome {
            Outcome::Result(result) => (result.sequence, false),
            Outcome::Miss(miss) => (miss.sequence, true),
        };
        assert_eq!(sequence, missed.len() as u64, "{service}: every request has a number and an answer");
        missed.push(miss);
        pause(PERIOD);
    }
    check_counts(&mut client, service, "good", missed.len() as u64);
    let violated = missed.windows(WINDOW).any(|some| some.iter().filter(|miss| **miss).count() > MISSES);
    (missed.len() as u64, violated)
}

/// The status says of a stream that `sent` requests came, and each was served or missed.
fn check_counts(client: &mut Client, service: &str, stream: &str, sent: u64) {
    let status: Value = serde_json::from_str(&client.status().expect("a status")).expect("JSON");
    let found = |list: &Value, name: &str| {
        let found = list.as_array().expect("a list").iter().find(|one| one["name"] == name).cloned();
        found.unwrap_or_else(|| panic!("{name} is in {status}"))
    };
    let counts = found(&found(&status["services"], service)["streams"], stream);
    let missed = counts["missed"].as_object().expect("reasons").values().filter_map(Value::as_u64);
    let answered = counts["served"].as_u64().map(|served| served + missed.sum::<u64>());
    assert_eq!((counts["arrived"].as_u64(), answered), (Some(sent), Some(sent)), "{counts}");
}

/// What a round leaves for the next ones.
struct Company {
    idle: Vec<Raw>,
    /// Absent where no bus can be had.
    bus: Option<Bus>,
}

impl Company {
    fn round(&mut self, daemon: &Daemon, round: usize) {
        let odd = !(round / KINDS).is_multiple_of(2);
        let service = if odd { "process" } else { "thread" };
        match round % KINDS {
            0 => die_within_frames(daemon, service),
            1 => flood(daemon, service),
            // Cut off for want of a HELLO, or gone with the next of them.
            2 => self.idle = (0..4).map(|_| daemon.raw()).collect(),
            3 => talk_nonsense(daemon, round),
            4 => exhaust(daemon, service),
            5 => share(daemon, service),
            6 => lose_a_worker(daemon),
            7 => reload(daemon, if odd { 256 } else { 300 }),
            _ => self.restart_bus(daemon),
        }
    }

    /// Ends the bus under the daemon and starts another, in whichever order the daemon takes notice.
    fn restart_bus(&mut self, daemon: &Daemon) {
        if let Some(bus) = self.bus.take() {
            bus.kill();
            let bus = Bus::start(&daemon.deployment);
            bus.wait_for_weir();
            self.bus = Some(bus);
        }
    }
}

fn die_within_frames(daemon: &Daemon, service: &str) {
    let register = frame(2, &ClientFrame::Register(Cow::Owned(best_effort(service, "dying"))));
    let whole = [register, frame(3, &ClientFrame::Submit { stream: 1, payload: &[0; 16] })].concat();
    for cut in (1..whole.len()).step_by(5) {
        daemon.raw().hello().send(&whole[..cut]);
    }
}

/// Three streams, as much as goes in, and nothing read, until it is cut off or tired of it.
fn flood(daemon: &Daemon, service: &str) {
    let mut raw = daemon.raw().hello();
    raw.socket.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let register = |name| frame(2, &ClientFrame::Register(Cow::Owned(best_effort(service, name))));
    let submit = |stream| frame(3, &ClientFrame::Submit { stream, payload: &[0; 16] });
    let mut open = ["flood", "flood too", "flood as well"].iter().all(|name| raw.send(&register(name)));
    for _ in 0..5_000 {
        open = open && (1..=3).all(|stream| raw.send(&submit(stream)));
    }
}

fn talk_nonsense(daemon: &Daemon, round: usize) {
    for n in 0..8u32 {
        let noise = |i: u32| ((i ^ (round as u32 * 8 + n)).wrapping_mul(2_654_435_761) >> 13) as u8;
        let noise: Vec<u8> = (0..4096).map(noise).collect();
        let mut raw = if n % 2 == 0 { daemon.raw() } else { daemon.raw().hello() };
        raw.send(&noise);
        let (error, _) = raw.read_to_end();
        assert!(error.is_some(), "closed without a word");
    }
    daemon.raw().send(&frame(1, &hello(VERSION + 1)));
}

/// As many streams and requests as a connection may have, and more: each request has its answer and its count.
fn exhaust(daemon: &Daemon, service: &str) {
    let mut client = daemon.client();
    let mut streams = Vec::new();
    let refusal = loop {
        match client.register(&best_effort(service, &format!("many{}", streams.len()))) {
            Ok(stream) => streams.push(stream),
            Err(Error::Refused(refusal)) => break refusal,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((streams.len(), refusal.code), (4, RefusalCode::TooManyStreams), "{}", refusal.text);
    let mut sent = 0;
    eventually("requests beyond the limit", || {
        let mut ids: Vec<RequestId> = Vec::new();
        for _ in 0..50 {
            ids.extend(streams.iter().map(|s| client.submit(s, &[0.0; 4]).expect("submitted")));
        }
        sent += 50;
        let refused = |o: &Outcome| matches!(o, Outcome::Miss(m) if m.reason == MissReason::QueueFull);
        answers(&mut client, &ids).iter().any(refused).then_some(())
    });
    for n in 0..streams.len() {
        check_counts(&mut client, service, &format!("many{n}"), sent);
    }
}

/// An arena that is used and dropped, and one that is dropped under a request.
fn share(daemon: &Daemon, service: &str) {
    for n in 0..6 {
        let mut client = daemon.client();
        let stream = client.register(&best_effort(service, &format!("arena{n}"))).expect("a stream");
        let mut arena = client.share(1 << 20).expect("an arena");
        let place = arena.place(&stream).expect("a place");
        place.write(0, &[n as f32; 4]).expect("values of the stream");
        match n % 2 {
            0 => drop(client.submit_shared(&place).expect("submitted")),
            _ => drop(client.infer_shared(&place).expect("an answer")),
        }
    }
    eventually("arenas unmapped", || (daemon.arenas() == 0).then_some(()));
}

/// Kills one of both workers' processes, unless the last one killed is not back yet: those that die again and again
/// stay away for seconds.
fn lose_a_worker(daemon: &Daemon) {
    if daemon.status()["services"][1]["workers_alive"] != 2 {
        return;
    }
    if let [victim, _] = daemon.children()[..] {
        kill_process(victim, Signal::KILL).expect("the process is there");
        eventually("its end", || (!daemon.children().contains(&victim)).then_some(()));
    }
}

fn reload(daemon: &Daemon, queue: u64) {
    let sequence = |status: &Value| status["reload"]["sequence"].as_u64().unwrap_or(0);
    let before = sequence(&daemon.status());
    daemon.deployment.configure(config(&daemon.deployment, queue));
    daemon.signal(Signal::HUP);
    let status = eventually("the end of the reload", || {
        let status = daemon.status();
        (sequence(&status) > before).then_some(status)
    });
    assert_eq!(status["reload"]["changes"].as_array().map(Vec::len), Some(1), "{}", status["reload"]);
}

/// Memory in KiB, descriptors and threads, once all but `clients` are gone and both workers serve.
fn footprint(daemon: &Daemon, clients: u64) -> (u64, usize, usize) {
    eventually("a quiet daemon", || {
        let status = daemon.status();
        let quiet = status["clients"] == clients + 1 && status["services"][1]["workers_alive"] == 2;
        quiet.then_some(())
    });
    // The connection that has just asked goes as well.
    pause(Duration::from_millis(50));
    (daemon.resident_kib(), daemon.count("fd"), daemon.count("task"))
}

#[test]
fn a_long_life_among_bad_clients() {
    alone();
    let seconds = std::env::var("WEIR_SOAK_SECONDS").ok();
    let seconds = seconds.map_or(10, |text| text.parse().expect("WEIR_SOAK_SECONDS is a number of seconds"));
    let length = Duration::from_secs(seconds);
    let place = Deployment::new("");
    place.configure(config(&place, 256));
    // What is promised must not depend on the host.
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(20);
    let bus = is_possible().then(|| Bus::start(&place));
    let mut daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let (going, started) = (AtomicBool::new(true), now());
    let (rounds, good) = std::thread::scope(|scope| {
        // What goes wrong below must not leave the others going.
        let _stop = Stop(&going);
        let good = ["thread", "process"].map(|service| {
            let (daemon, going) = (&daemon, &going);
            (service, scope.spawn(move || behave(daemon, service, going)))
        });
        let mut company = Company { idle: Vec::new(), bus };
        let mut warm = None;
        let mut rounds = 0;
        // Whole cycles of all kinds: two at least to warm up, two to compare.
        while started.elapsed() < length || warm.is_none_or(|(at, _)| rounds < at + 2 * KINDS) {
            (0..KINDS).for_each(|kind| company.round(&daemon, rounds + kind));
            rounds += KINDS;
            listener.changes();
            if warm.is_none() && rounds >= 2 * KINDS && started.elapsed() >= length / 3 {
                company.idle.clear();
                warm = Some((rounds, footprint(&daemon, 3)));
            }
        }
        company.idle.clear();
        let (_, before) = warm.expect("a warm-up");
        let after = footprint(&daemon, 3);
        eprintln!("{rounds} rounds; KiB, descriptors, threads: {before:?}, then {after:?}");
        assert!(
            after.0 <= before.0 + SLACK_KIB,
            "{} KiB after {rounds} rounds, {} before",
            after.0,
            before.0
        );
        eventually("as many descriptors and threads", || {
            let (_, fds, tasks) = footprint(&daemon, 3);
            (fds <= before.1 && tasks <= before.2).then_some(())
        });
        going.store(false, Ordering::Relaxed);
        (rounds, good.map(|(service, thread)| (service, thread.join().expect("no panic"))))
    });
    for (service, (sent, violated)) in good {
        listener.kept_or_told(service, !violated, &"more missed than promised");
        assert!(sent >= rounds as u64 / KINDS as u64, "{service}: {sent} requests in {rounds} rounds");
    }
    assert_eq!(listener.suspensions(), [], "all have kept to what they declared");
    drop(listener);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
    assert!(!daemon.stderr().contains("panicked"), "{}", daemon.stderr());
}

/// Ends what goes on when dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
