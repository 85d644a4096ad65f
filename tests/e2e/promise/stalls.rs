//! Stalls that constraints absorb: the engine, a worker process or the daemon stands still for less than is declared, some requests are
//! missed, and the promise is kept all the same.

use std::time::Duration;

use crate::harness::{
    Daemon, Deployment, Listener, answers, best_effort, daemon_in_real_time, eventually, now, pause, quiet,
};
use rustix::process::{Signal, kill_process};
use weir_client::{Outcome, SafeModeCause};

const PERIOD: Duration = Duration::from_millis(50);
/// The longest that is declared, …
const STALL: Duration = Duration::from_millis(1_500);
/// … and for how long what is stopped stands still: longer than a worker process may be silent that declares none.
const STOPPED: Duration = Duration::from_millis(1_200);
/// Of any so many requests no more than so many are missed.
const KEPT: (usize, usize) = (70, 140);
/// The machine stands still as well, now and then; what the daemon does wrong it does each time.
const ATTEMPTS: usize = 4;

/// A worker process whose batches take 5 ms.
const APART: &str = "isolation = \"process\"\nsimulated = { times = [\"5ms\"], input = 2, output = 2 }\n";
/// On a thread: of each hundred batches the 21st takes as long as what is stopped stands still, the others 5 ms.
const STALLING: &str = "simulated = { times = [{ bound = \"1200ms\", likely = \"5ms\", mean = \"16950us\" }], input = 2, output = 2 }\n";

/// One service of that engine, whose batches may take 20 ms; of its deadline no stall could be kept back.
fn serve(engine: &str) -> Daemon {
    let (misses, window) = KEPT;
    Deployment::new(format!(
        "{}[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[[service]]\nname = \"cameras\"\n\
         engine = \"simulated\"\n{engine}deadline = \"300ms\"\nguard = \"100ms\"\nmax-batch = 1\n\
         stalls = {{ at-most = 1, in = \"60s\", of = \"{}ms\", by = \"constraints\" }}\n\
         [[service.stream]]\nname = \"front\"\nconstraints = [{{ any-miss = {{ m = {misses}, k = {window} }} }}]\n\
         arrivals = [{{ periodic = {{ period = \"50ms\", jitter = \"25ms\" }} }}]\n",
        daemon_in_real_time(),
        STALL.as_millis(),
    ))
    .profiled(&[20])
    .serve()
}

/// The worker process, once it serves.
fn worker(daemon: &Daemon) -> rustix::process::Pid {
    eventually("the worker", || {
        let ready = daemon.status()["services"][0]["workers_alive"] == 1;
        daemon.children().first().copied().filter(|_| ready)
    })
}

/// Requests one a period at most, and which of them were answered in time. From the thirtieth on `halt` stops something for
/// so long.
fn through(daemon: &Daemon, count: usize, length: Duration, halt: impl Fn(Signal)) -> Vec<bool> {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("cameras", "front")).expect("it is reserved");
    let (mut ids, mut stopped) = (Vec::new(), None);
    for number in 0..count {
        if number == 30 {
            halt(Signal::STOP);
            stopped = Some(now());
        }
        if stopped.is_some_and(|since| since.elapsed() >= length) {
            stopped = None;
            halt(Signal::CONT);
        }
        ids.push(client.submit(&stream, &[1.0, 2.0]).expect("submitted"));
        // That this test is put off brings no two together.
        pause(PERIOD);
    }
    assert!(stopped.is_none(), "it stands still no more");
    let outcomes: Vec<Outcome> = answers(&mut client, &ids);
    client.unregister(&stream).expect("given up");
    let mut served = vec![false; count];
    for outcome in &outcomes {
        if let Outcome::Result(result) = outcome {
            served[result.sequence as usize] = true;
        }
    }
    served
}

/// Tries `attempt` until it has nothing to excuse, with a new daemon each time; what it says was announced otherwise.
fn undisturbed(engine: &str, attempt: impl Fn(&Daemon, &mut Listener) -> Option<String>) {
    let mut told = Vec::new();
    for _ in 0..ATTEMPTS {
        quiet();
        let daemon = serve(engine);
        let mut listener = Listener::new(&daemon);
        match attempt(&daemon, &mut listener) {
            None => return,
            Some(excuse) => told.push(excuse),
        }
    }
    panic!("announced at each of {ATTEMPTS} attempts: {told:#?}");
}

/// What was announced of the promises: nothing, if they were kept.
fn announced(listener: &mut Listener) -> Option<String> {
    let changes: Vec<_> =
        listener.changes().iter().filter(|change| change.state.is_suspended()).cloned().collect();
    let suspensions = listener.suspensions().to_vec();
    (!changes.is_empty() || !suspensions.is_empty()).then(|| format!("{changes:?} {suspensions:?}"))
}

/// The constraint is kept, what the stall cost is counted as such, and there was something to count.
fn kept(daemon: &Daemon, served: &[bool]) {
    let missed = |window: &[bool]| window.iter().filter(|served| !**served).count();
    let most = served.windows(KEPT.1.min(served.len())).map(missed).max().expect("at least one");
    assert!(most <= KEPT.0, "{most} of {} missed", KEPT.1);
    let status = daemon.status();
    let absorbed = status["services"][0]["stall_misses"].as_u64().expect("a count") as usize;
    // What must be served is most of what comes.
    let all = missed(served);
    assert!(absorbed <= all && 2 * absorbed >= all && all > 5, "{absorbed} of {all} missed: {status}");
    let last = &served[served.len() - 60..];
    assert_eq!(missed(last), 0, "long behind the stall all are served: {served:?}");
}

#[test]
fn an_engine_that_stalls_for_less_than_declared_breaks_no_promise_and_once_more_is_announced() {
    undisturbed(STALLING, |daemon, listener| {
        // Before the next stall, which is a hundred batches later.
        let served = through(daemon, 120, Duration::ZERO, |_| ());
        if let Some(told) = announced(listener) {
            return Some(told);
        }
        kept(daemon, &served);
        assert_eq!(daemon.status()["services"][0]["stalls_seen"], 1);
        through(daemon, 60, Duration::ZERO, |_| ());
        assert!(announced(listener).is_some(), "one more was not declared");
        None
    });
}

#[test]
fn a_worker_process_that_stands_still_for_less_than_declared_breaks_no_promise_and_one_more_is_announced() {
    undisturbed(APART, |daemon, listener| {
        let process = worker(daemon);
        let halt = |signal| kill_process(process, signal).expect("the process is there");
        let served = through(daemon, 170, STOPPED, halt);
        if let Some(told) = announced(listener) {
            return Some(told);
        }
        assert_eq!(daemon.children(), [process], "it was not given up");
        kept(daemon, &served);
        assert_eq!(daemon.status()["services"][0]["stalls_seen"], 1);
        // The window holds one already.
        through(daemon, 60, Duration::from_millis(400), halt);
        let told = announced(listener);
        assert!(told.is_some(), "one more was not declared");
        let causes: Vec<_> = listener.changes().iter().map(|change| change.cause).collect();
        assert!(causes.contains(&SafeModeCause::ServiceOverrun), "{causes:?}");
        None
    });
}

#[test]
fn a_daemon_that_stands_still_for_less_than_declared_keeps_its_promise() {
    undisturbed(APART, |daemon, listener| {
        worker(daemon);
        let served = through(daemon, 170, STOPPED, |signal| daemon.signal(signal));
        let told = announced(listener);
        if told.is_none() {
            kept(daemon, &served);
        }
        told
    });
}
