//! Beside the daemon: the process of one service is killed, and others share its worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{DAEMON, Daemon, Deployment, answers, best_effort, eventually, now, pause};
use weir_client::Outcome;

const PERIOD: Duration = Duration::from_millis(50);

/// Two services on one worker, each with its engine in a process of its own.
fn deployment() -> Deployment {
    let service = |name: &str, ms: u64, more: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\ndevice = \"box\"\nengine = \"simulated\"\nisolation = \"process\"\n\
             simulated = {{ times = [\"{ms}ms\"], input = 4, output = 4 }}\nmax-batch = 1\ndeadline = \"2s\"\n\
             guard = \"500ms\"\nhandover = \"0ms\"\n{more}"
        )
    };
    let reserved = "[[service.stream]]\nname = \"line\"\nconstraints = [{ any-miss = { m = 1, k = 2 } }]\n\
                    arrivals = [{ periodic = { period = \"50ms\", jitter = \"1s\" } }]\n";
    let place = Deployment::new(format!(
        "{DAEMON}[safe-mode]\nhold = \"100ms\"\nclean = \"100ms\"\n[[device]]\nname = \"box\"\n{}{}",
        service("stop", 5, reserved),
        service("scene", 8, "")
    ));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_variant_bounds(&[[5], [8]], &[[15], [20]]);
    place
}

/// The process that runs the engine of a service.
fn engine_of(daemon: &Daemon, service: &str) -> Option<Pid> {
    let named = format!("{service}/0");
    let is_it = |process: &Pid| {
        let line = std::fs::read(format!("/proc/{}/cmdline", process.as_raw_nonzero())).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|word| word == named.as_bytes())
    };
    daemon.children().into_iter().find(is_it)
}

fn kill(process: Pid) {
    // It may have gone by itself.
    let _ = kill_process(process, Signal::KILL);
}

/// Ends the killing when it goes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The outcomes of so many requests to `stop`, one a period.
fn paced(daemon: &Daemon, count: usize) -> Vec<Outcome> {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("stop", "line")).expect("reserved");
    let submit = |_| {
        pause(PERIOD);
        client.submit(&stream, &[1.0; 4]).expect("submitted")
    };
    let ids: Vec<_> = (0..count).map(submit).collect();
    answers(&mut client, &ids)
}

fn missed_in_a_row(outcomes: &[Outcome]) -> usize {
    let runs = outcomes.split(|outcome| outcome.result().is_some());
    runs.map(<[Outcome]>::len).max().unwrap_or(0)
}

/// From a crash on the others wait for what a load takes, and no longer.
#[test]
fn an_engine_that_crashes_once_costs_the_other_services_of_its_worker_little_and_comes_back() {
    let daemon = deployment().serve();
    let first = eventually("a process", || engine_of(&daemon, "scene"));
    let outcomes = thread::scope(|scope| {
        let stop = scope.spawn(|| paced(&daemon, 60));
        pause(Duration::from_secs(1));
        kill(first);
        stop.join().expect("answered")
    });
    let row = missed_in_a_row(&outcomes);
    println!("stop missed {row} of its requests in a row, one every {PERIOD:?}");
    assert!(row < 10, "{row} in a row");
    let second = eventually("another process", || engine_of(&daemon, "scene"));
    assert_ne!(first, second);
    let mut client = daemon.client();
    let scene = client.register(&best_effort("scene", "any")).expect("best effort");
    let served = || client.infer(&scene, &[2.0; 4]).expect("an answer").result().is_some().then_some(());
    eventually("the service that crashed", served);
    eventually("no safe mode", || {
        let status = daemon.status();
        let services = status["services"].as_array().expect("services");
        services.iter().all(|service| service["safe_mode"]["state"] != "safe-mode").then_some(())
    });
}

#[test]
fn an_engine_that_crashes_each_time_leaves_its_worker_to_the_other_services() {
    let daemon = deployment().serve();
    let over = AtomicBool::new(false);
    // It answers once all engines are loaded; a daemon whose engine crashes before does not start.
    daemon.status();
    eventually("a process", || engine_of(&daemon, "scene"));
    let (outcomes, seen) = thread::scope(|scope| {
        // Whatever goes wrong: the scope waits for who kills.
        let end = Ends(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                engine_of(&daemon, "scene").into_iter().for_each(kill);
                pause(Duration::from_millis(2));
            }
        });
        let stop = scope.spawn(|| paced(&daemon, 120));
        let begun = now();
        let seen = eventually("one service without its worker", || {
            let status = daemon.status();
            let alive = |service: usize| status["services"][service]["workers_alive"].clone();
            (alive(0) == 1 && alive(1) == 0).then_some(status)
        });
        println!("seen after {:?}", begun.elapsed());
        let outcomes = stop.join().expect("answered");
        drop(end);
        (outcomes, seen)
    });
    let text = seen["services"][1]["safe_mode"]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("worker-lost: 0 of 1 workers are left"), "{seen}");
    let served = outcomes.iter().filter(|outcome| outcome.result().is_some()).count();
    println!(
        "stop: {served} of {} served, at most {} missed in a row",
        outcomes.len(),
        missed_in_a_row(&outcomes)
    );
    assert!(served * 10 >= outcomes.len() * 7, "{served} of {}", outcomes.len());
    // Once it can be loaded it is, after the longest pause at the latest.
    eventually("the worker of the service that crashed", || {
        (daemon.status()["services"][1]["workers_alive"] == 1).then_some(())
    });
}
