//! Beside the daemon: worker processes that are killed, stopped or orphaned while requests are on their way.

use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, PATIENCE, answers, best_effort, eventually, pause, repository, values,
};
use rustix::process::{Pid, Signal, kill_process};
use weir_client::blocking::Client;
use weir_client::{
    Answer, Event, EventMask, MissReason, Outcome, Registration, RequestId, SafeModeCause, SafeModeState,
    StreamInfo,
};

/// Two workers with processes of their own that take 30 ms a request and 40 ms for two.
fn deployment() -> Deployment {
    let place = Deployment::new(format!(
        "{DAEMON}{}",
        r#"
        [safe-mode]
        hold = "100ms"
        clean = "100ms"
        [[service]]
        name = "slow"
        engine = "simulated"
        isolation = "process"
        workers = 2
        simulated = { times = ["30ms", "40ms"], input = 4, output = 4 }
        max-batch = 2
        batch = 2
        deadline = "20s"
        guard = "1s"
        [[service.stream]]
        name = "loop"
        constraints = [{ any-miss = { m = 5, k = 10 } }]
        arrivals = [{ periodic = { period = "20ms", jitter = "5s" } }]
        "#
    ));
    place.profiled(&[60, 80])
}

/// The processes of both workers, once both serve.
fn workers(daemon: &Daemon) -> Vec<Pid> {
    eventually("both workers", || {
        let children = daemon.children();
        (daemon.status()["services"][0]["workers_alive"] == 2 && children.len() == 2).then_some(children)
    })
}

fn send_signal(process: Pid, signal: Signal) {
    kill_process(process, signal).expect("the process is there");
}

/// What `count` requests, one every 20 ms, come to; `at(n)` is called before the `n`th.
fn paced(client: &mut Client, count: usize, mut at: impl FnMut(usize)) -> (StreamInfo, Vec<Outcome>) {
    let registration = Registration::builder("slow", "loop").build().expect("valid");
    let stream = client.register(&registration).expect("reserved");
    let mut ids = Vec::new();
    for n in 0..count {
        at(n);
        ids.push(client.submit(&stream, &[n as f32; 4]).expect("submitted"));
        pause(Duration::from_millis(20));
    }
    let outcomes = in_order(client, &ids);
    client.unregister(&stream).expect("given up");
    (stream, outcomes)
}

/// The answers in the order of `ids`, each exactly one.
pub(crate) fn in_order(client: &mut Client, ids: &[RequestId]) -> Vec<Outcome> {
    let mut outcomes = vec![None; ids.len()];
    while outcomes.iter().any(Option::is_none) {
        let (id, outcome) = match client.recv_timeout(PATIENCE).expect("the connection stays") {
            Some(Answer::Result(id, result)) => (id, Outcome::Result(result)),
            Some(Answer::Miss(id, miss)) => (id, Outcome::Miss(miss)),
            Some(Answer::Event(_)) => continue,
            other => panic!("{other:?}"),
        };
        let place = ids.iter().position(|of| *of == id).expect("asked for");
        assert!(outcomes[place].replace(outcome).is_none(), "{id} was answered twice");
    }
    outcomes.into_iter().flatten().collect()
}

pub(crate) fn miss(outcome: &Outcome) -> Option<MissReason> {
    match outcome {
        Outcome::Miss(miss) => Some(miss.reason),
        _ => None,
    }
}

#[test]
fn a_killed_worker_process_costs_the_batch_in_flight_and_is_replaced() {
    let daemon = deployment().serve();
    let first = workers(&daemon);
    let descriptors = daemon.count("fd");
    let mut listener = daemon.client();
    listener.subscribe(EventMask::SAFE_MODE).expect("subscribed");
    let (stream, outcomes) = paced(&mut daemon.client(), 150, |n| {
        if n == 50 {
            send_signal(first[0], Signal::KILL);
        }
    });
    let misses: Vec<_> = outcomes.iter().filter_map(miss).collect();
    assert!(misses.len() <= 2 && misses.iter().all(|m| *m == MissReason::WorkerLost), "{misses:?}");
    for (n, outcome) in outcomes.iter().enumerate().filter(|(_, outcome)| miss(outcome).is_none()) {
        assert_eq!(values(&stream, outcome), Some(vec![n as f32; 4]));
    }
    let mut next = || match listener.next_event_timeout(PATIENCE).expect("the connection stays") {
        Some(Event::SafeMode(event)) => event,
        other => panic!("{other:?}"),
    };
    let lost = std::iter::repeat_with(&mut next).find(|event| event.cause == SafeModeCause::WorkerLost);
    assert_eq!(
        lost.map(|event| (event.state, event.limit, event.seen)),
        Some((SafeModeState::SafeMode, 2, 1))
    );
    while next().state != SafeModeState::Normal {}

    // The promise holds again: nothing is missed any more.
    let second = workers(&daemon);
    assert!(second.contains(&first[1]) && !second.contains(&first[0]), "{first:?}, then {second:?}");
    let (_, again) = paced(&mut daemon.client(), 50, |_| {});
    assert!(again.iter().all(|outcome| miss(outcome).is_none()), "{again:?}");
    drop(listener);
    eventually("as many descriptors as before", || (daemon.count("fd") <= descriptors).then_some(()));
}

#[test]
fn processes_that_die_idle_again_and_again_are_replaced_and_leave_nothing_behind() {
    let daemon = deployment().serve();
    let mut seen: HashSet<Pid> = workers(&daemon).into_iter().collect();
    let counts = |daemon: &Daemon| (daemon.count("fd"), daemon.count("task"));
    let before = counts(&daemon);
    for _ in 0..4 {
        let victim = workers(&daemon)[0];
        send_signal(victim, Signal::KILL);
        eventually("another process", || (!workers(&daemon).contains(&victim)).then_some(()));
        seen.extend(workers(&daemon));
    }
    assert_eq!(seen.len(), 6);
    // Those of clients that have just gone are closed a little later.
    eventually("as many descriptors and threads as before", || (counts(&daemon) <= before).then_some(()));
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "after")).expect("a stream");
    let outcome = client.infer(&stream, &[2.0; 4]).expect("an answer");
    assert_eq!(values(&stream, &outcome), Some(vec![2.0; 4]));
    assert!(daemon.stderr().contains("its process ended while idle"), "{}", daemon.stderr());
}

/// Standard error is a pipe that nobody reads, or whose reader has gone.
#[test]
fn a_process_that_dies_is_replaced_though_nobody_can_be_told() {
    for read in [true, false] {
        let (reader, mut full) = std::io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&full, true).expect("set");
        while full.write(&[b'.'; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&full, false).expect("reset");
        let reader = read.then_some(reader);
        let mut daemon = deployment().spawn_telling(&[], full);
        eventually("the daemon", || Client::connect(daemon.deployment.socket()).ok());
        let victim = workers(&daemon)[0];
        send_signal(victim, Signal::KILL);
        eventually("another process", || (!workers(&daemon).contains(&victim)).then_some(()));
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.wait().code(), Some(0));
        drop(reader);
    }
}

#[test]
fn a_worker_process_that_dies_while_it_warms_up_is_replaced_before_it_serves() {
    let place = Deployment::new(format!(
        "{DAEMON}{}",
        r#"
        [[service]]
        name = "slow"
        engine = "simulated"
        isolation = "process"
        simulated = { times = ["500ms"], input = 4, output = 4 }
        max-batch = 1
        deadline = "20s"
        guard = "1s"
        "#
    ));
    let daemon = place.profiled(&[600]).spawn(&[]);
    let process = eventually("a process", || daemon.children().first().copied());
    // It is loaded in no time, and warms up for a second.
    pause(Duration::from_millis(300));
    send_signal(process, Signal::KILL);
    let mut client = eventually("the daemon's socket", || Client::connect(daemon.deployment.socket()).ok());
    eventually("the worker", || (daemon.status()["services"][0]["workers_alive"] == 1).then_some(()));
    let stream = client.register(&best_effort("slow", "first")).expect("a stream");
    let outcome = eventually("a worker that runs", || {
        let outcome = client.infer(&stream, &[1.0; 4]).expect("an answer");
        outcome.result().is_some().then_some(outcome)
    });
    assert_eq!(values(&stream, &outcome), Some(vec![1.0; 4]));
    assert!(daemon.stderr().contains("it ended with signal: 9 (SIGKILL)"), "{}", daemon.stderr());
    assert!(!daemon.children().contains(&process));
}

#[test]
fn a_stopped_worker_process_is_given_up_and_replaced() {
    let daemon = deployment().serve();
    let stopped = workers(&daemon);
    stopped.iter().for_each(|process| send_signal(*process, Signal::STOP));
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "stuck")).expect("a stream");
    let ids: Vec<_> = (0..2).map(|_| client.submit(&stream, &[0.0; 4]).expect("submitted")).collect();
    let outcomes = answers(&mut client, &ids);
    assert!(outcomes.iter().all(|outcome| miss(outcome) == Some(MissReason::WorkerLost)), "{outcomes:?}");
    let outcome = eventually("a worker that runs", || {
        let outcome = client.infer(&stream, &[3.0; 4]).expect("an answer");
        outcome.result().is_some().then_some(outcome)
    });
    assert_eq!(values(&stream, &outcome), Some(vec![3.0; 4]));
    assert!(daemon.stderr().contains("it has been silent for 1.2"), "{}", daemon.stderr());
}

#[test]
fn a_daemon_ends_in_order_though_its_worker_processes_are_stuck() {
    for busy in [false, true] {
        let mut daemon = deployment().serve();
        let stuck = workers(&daemon);
        stuck.iter().for_each(|process| send_signal(*process, Signal::STOP));
        let mut client = daemon.client();
        let stream = client.register(&best_effort("slow", "stuck")).expect("a stream");
        let asked = if busy { 3 } else { 0 };
        let ids: Vec<_> = (0..asked).map(|_| client.submit(&stream, &[0.0; 4]).expect("submitted")).collect();
        client.ping().expect("an answer");
        daemon.signal(Signal::TERM);
        let outcomes = answers(&mut client, &ids);
        assert!(outcomes.iter().all(|outcome| miss(outcome).is_some()), "{outcomes:?}");
        assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
        let ended = |process: &Pid| eventually("its end", || has_ended(*process).then_some(()));
        stuck.iter().for_each(ended);
    }
}

#[test]
fn a_batch_in_flight_outlives_a_signal_to_every_process() {
    let mut daemon = deployment().serve();
    let processes = workers(&daemon);
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "last")).expect("a stream");
    let ids: Vec<_> = (0..4).map(|_| client.submit(&stream, &[1.0; 4]).expect("submitted")).collect();
    client.ping().expect("an answer");
    // As a service manager ends a service, or a terminal a job.
    processes.iter().for_each(|process| send_signal(*process, Signal::TERM));
    processes.iter().for_each(|process| send_signal(*process, Signal::INT));
    daemon.signal(Signal::TERM);
    let outcomes = answers(&mut client, &ids);
    assert!(outcomes.iter().all(|outcome| values(&stream, outcome) == Some(vec![1.0; 4])), "{outcomes:?}");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
}

#[test]
fn worker_processes_end_with_a_daemon_that_is_killed_even_when_stuck() {
    let mut daemon = deployment().serve();
    let processes = workers(&daemon);
    send_signal(processes[0], Signal::STOP);
    daemon.signal(Signal::KILL);
    daemon.wait();
    eventually("the end of both", || processes.iter().all(|process| has_ended(*process)).then_some(()));
}

#[test]
fn a_worker_process_holds_only_what_it_needs() {
    let daemon = deployment().serve();
    for process in workers(&daemon) {
        let path = |what: &str| format!("/proc/{}/{what}", process.as_raw_nonzero());
        // Standard input, output and errors, and the socket to the daemon.
        assert_eq!(std::fs::read_dir(path("fd")).expect("a folder").count(), 4);
        assert_eq!(std::fs::read_link(path("fd/0")).expect("a link").to_str(), Some("/dev/null"));
        let status = std::fs::read_to_string(path("status")).expect("a file");
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }
}

#[test]
fn a_real_model_answers_the_same_from_a_process_as_from_a_thread() {
    let manifest = repository("models/manifest.toml");
    let service = |name: &str, isolation: &str| {
        format!(
            "[[service]]\nname = {name:?}\nmodel = \"digits-xs\"\nvariants = [\"digits-m\"]\ndeadline = \"20s\"\n\
             max-batch = 2\nworkers = 2\n{isolation}\n"
        )
    };
    let place = Deployment::new(format!(
        "{DAEMON}models = {manifest:?}\n{}{}",
        service("thread", ""),
        service("process", "isolation = \"process\"")
    ));
    // Measured times may say that a better variant is faster than the base, which is refused.
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(60);
    let daemon = place.serve();
    let mut client = daemon.client();
    let input: Vec<f32> = (0..784).map(|i| i as f32 / 784.0).collect();
    let mut ask = |service| {
        let stream = client.register(&best_effort(service, "same")).expect("a stream");
        values(&stream, &client.infer(&stream, &input).expect("an answer"))
    };
    let (thread, process) = (ask("thread"), ask("process"));
    assert!(thread.is_some() && thread == process, "{thread:?} and {process:?}");
    // One process a worker serves all its variants.
    assert_eq!(daemon.children().len(), 2);
}

/// Gone, or a zombie that whoever inherited it has not buried.
fn has_ended(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
}

/// Has the next reload start the service anew.
fn change_deadline(daemon: &Daemon) {
    let text = std::fs::read_to_string(daemon.deployment.config()).expect("a configuration");
    daemon.deployment.configure(text.replace("deadline = \"20s\"", "deadline = \"19s\""));
}

/// The processes that a reload has started end no sooner than what is in flight there.
#[test]
fn a_stop_after_a_reload_answers_what_was_taken_in() {
    let mut daemon = deployment().serve();
    let first = workers(&daemon);
    change_deadline(&daemon);
    daemon.reload_accepted();
    eventually("the processes of the reload", || {
        let children = daemon.children();
        (children.len() == 2 && children.iter().all(|child| !first.contains(child))).then_some(())
    });
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "last")).expect("a stream");
    let ids: Vec<_> = (0..40).map(|n| client.submit(&stream, &[n as f32; 4]).expect("submitted")).collect();
    // All of it has been taken in, and little of it answered.
    client.ping().expect("an answer");
    daemon.signal(Signal::TERM);
    let outcomes = in_order(&mut client, &ids);
    assert!(outcomes.iter().all(|outcome| miss(outcome).is_none()), "{outcomes:?}");
    assert_eq!(daemon.wait().code(), Some(0));
}

/// One that hangs while it loads, or compiles for minutes, is not waited for.
#[test]
fn a_stop_does_not_wait_for_what_a_reload_loads() {
    let mut daemon = deployment().serve();
    let first = workers(&daemon);
    change_deadline(&daemon);
    daemon.signal(Signal::HUP);
    let new = eventually("a process of the reload", || {
        let children = daemon.children();
        children.into_iter().find(|child| !first.contains(child))
    });
    send_signal(new, Signal::STOP);
    eventually("the reload", || daemon.status()["reloading"].is_object().then_some(()));
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "last")).expect("a stream");
    let ids: Vec<_> = (0..4).map(|n| client.submit(&stream, &[n as f32; 4]).expect("submitted")).collect();
    client.ping().expect("an answer");
    daemon.signal(Signal::TERM);
    let outcomes = in_order(&mut client, &ids);
    assert!(outcomes.iter().all(|outcome| miss(outcome).is_none()), "{outcomes:?}");
    assert_eq!(daemon.wait().code(), Some(0));
}
