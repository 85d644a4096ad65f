//! Services that are placed anew while they serve: what is told, what is carried out, and who goes before.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, Listener, PATIENCE, best_effort, eventually, now, pause, weir,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_client::{Answer, RequestId};

mod apart;
mod circle;
mod elsewhere;
mod lost;
mod staged;

/// Requests a second of who is asked much, and of the others.
const MUCH: u64 = 60;
const LITTLE: u64 = 8;
/// Of that the reserved stream of each service sends so many.
const RESERVED: u64 = 5;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Four services on eight devices; three models may serve each.
fn file(mode: &str, demand: [u64; 4], more: &str) -> String {
    let services = NAMES.iter().zip(demand).map(|(name, demand)| {
        format!(
            "[[service]]\nname = \"{name}\"\ndemand = {demand}.0\ndeadline = \"2s\"\nguard = \"500ms\"\nhandover = \"0ms\"\n\
             max-batch = 1\nconstraints = [{{ any-miss = {{ m = 3, k = 10 }} }}]\n{more}\
             [service.simulated]\ninput = 4\noutput = 4\nmodels = [\n\
             {{ accuracy = 0.6, times = {{ box = [\"16ms\"] }} }},\n{{ accuracy = 0.8, times = {{ box = [\"32ms\"] }} }},\n\
             {{ accuracy = 0.9, times = {{ box = [\"64ms\"] }} }}]\n\
             [[service.stream]]\nname = \"cam\"\narrivals = [{{ periodic = {{ period = \"200ms\", jitter = \"150ms\" }} }}]\n"
        )
    });
    format!(
        "{DAEMON}[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[placement]\nmode = \"{mode}\"\nperiod = \"1s\"\nbudget = 4\n\
         limit = \"5s\"\nwindow = \"250ms\"\nhysteresis = 0.5\nheadroom = 1.2\nlost-after = \"500ms\"\n\
         [[placement.class]]\nname = \"box\"\nengine = \"simulated\"\ncount = 8\n{}",
        services.collect::<String>()
    )
}

/// Profiled, and placed for `demand`.
fn placed(mode: &str, demand: [u64; 4], more: &str) -> Deployment {
    let place = Deployment::new(file(mode, demand, more));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| usual * 5 / 4);
    let path = place.config();
    let path = path.to_str().expect("UTF-8");
    place.succeed(&["place", "-o", path]);
    place
}

/// What may be had at best, for that demand, in points.
fn optimum(place: &Deployment, demand: [u64; 4]) -> f64 {
    let demand: serde_json::Map<_, _> =
        NAMES.iter().zip(demand).map(|(name, rate)| ((*name).to_owned(), Value::from(rate as f64))).collect();
    let path = place.path("true.json");
    std::fs::write(&path, Value::Object(demand).to_string()).expect("written");
    let path = path.to_str().expect("UTF-8");
    let told: Value =
        serde_json::from_str(&place.succeed(&["place", "--json", "--demand", path])).expect("JSON");
    told["accuracy"].as_f64().expect("a plan")
}

/// Sends to one service until it is told to end: what is promised, and as much besides as is asked for.
struct Sender {
    service: &'static str,
    rate: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    /// Whether the promise was kept at each request, and how many were answered.
    thread: JoinHandle<(bool, usize)>,
}

impl Sender {
    fn start(daemon: &Daemon, service: &'static str, rate: u64) -> Self {
        let (rate, ends) = (Arc::new(AtomicU64::new(rate)), Arc::new(AtomicBool::new(false)));
        let (asked, told) = (Arc::clone(&rate), Arc::clone(&ends));
        let mut client = daemon.client();
        let cam = client.register(&best_effort(service, "cam")).expect("reserved");
        let more = client.register(&best_effort(service, "more")).expect("best effort");
        let send = move || {
            let (mut open, mut reserved): (HashSet<RequestId>, Vec<RequestId>) = Default::default();
            let (mut misses, mut answered) = (HashSet::new(), 0);
            let began = now();
            let (mut due, mut due_cam) = (Duration::ZERO, Duration::ZERO);
            loop {
                let at = began.elapsed();
                let sending = !told.load(Ordering::Relaxed);
                if !sending && open.is_empty() {
                    break;
                }
                if sending && at >= due_cam {
                    due_cam = at + Duration::from_millis(1000 / RESERVED);
                    let id = client.submit(&cam, &[0.0; 4]).expect("sent");
                    reserved.push(id);
                    open.insert(id);
                }
                if sending && at >= due {
                    due += Duration::from_secs(1) / (asked.load(Ordering::Relaxed) - RESERVED) as u32;
                    open.insert(client.submit(&more, &[0.0; 4]).expect("sent"));
                }
                let wait = if sending { due.min(due_cam).saturating_sub(began.elapsed()) } else { PATIENCE };
                let (id, missed) = match client.recv_timeout(wait).expect("the connection stays") {
                    Some(Answer::Result(id, _)) => (id, false),
                    Some(Answer::Miss(id, _)) => (id, true),
                    Some(other) => panic!("{other:?}"),
                    None => {
                        assert!(sending, "{} requests have no answer", open.len());
                        continue;
                    }
                };
                assert!(open.remove(&id), "{id} was answered twice");
                answered += 1;
                if missed {
                    misses.insert(id);
                }
            }
            let window = |ten: &[RequestId]| ten.iter().filter(|&id| misses.contains(id)).count() <= 3;
            (reserved.windows(10.min(reserved.len().max(1))).all(window), answered)
        };
        Self { service, rate, ends, thread: std::thread::spawn(send) }
    }

    fn all(daemon: &Daemon, rates: [u64; 4]) -> Vec<Self> {
        NAMES.into_iter().zip(rates).map(|(name, rate)| Self::start(daemon, name, rate)).collect()
    }

    /// Ends them all, and holds what became of it against the promises.
    fn end(all: Vec<Self>, listener: &mut Listener) {
        all.iter().for_each(|one| one.ends.store(true, Ordering::Relaxed));
        for one in all {
            let (kept, answered) = one.thread.join().expect("each request was answered once");
            assert!(answered > 0);
            listener.kept_or_told(one.service, kept, &answered);
        }
    }
}

fn set<const N: usize>(all: &[Sender], rates: [u64; N]) {
    all.iter().zip(rates).for_each(|(one, rate)| one.rate.store(rate, Ordering::Relaxed));
}

fn placement(daemon: &Daemon) -> Value {
    daemon.status()["placement"].clone()
}

/// Waits until what is served is the plan for about `demand`, or gains too little by it; its accuracy.
fn settled<const N: usize>(daemon: &Daemon, demand: [u64; N]) -> f64 {
    let near = |told: &Value| {
        let near = |(one, rate): (&Value, u64)| {
            let expected = one["expected_per_s"].as_f64().unwrap_or(0.0);
            (expected - rate as f64).abs() <= 0.2 * rate as f64 + 4.0
        };
        told["demand"].as_array().is_some_and(|all| all.iter().zip(demand).all(near))
    };
    let looks = |told: &Value| told["looks"].as_u64();
    let before = eventually("that demand", || Some(placement(daemon)).filter(near));
    eventually("a plan that is served", || {
        let told = Some(placement(daemon))
            .filter(near)
            .filter(|told| looks(told) > looks(&before).map(|n| n + 1))?;
        match told["state"].as_str()? {
            "the placement is as planned" => told["accuracy"].as_f64(),
            // Also what virtual time finds worse.
            state if state.starts_with("nothing is changed, ") => told["present_accuracy"].as_f64(),
            _ => None,
        }
    })
}

fn workers(daemon: &Daemon) -> Vec<u64> {
    let status = daemon.status();
    let services = status["services"].as_array().expect("services");
    services.iter().map(|service| service["workers"].as_u64().expect("a number")).collect()
}

const FIRST: [u64; 4] = [MUCH, MUCH, LITTLE, LITTLE];
const SWAPPED: [u64; 4] = [LITTLE, LITTLE, MUCH, MUCH];

#[test]
fn services_whose_demand_swaps_are_placed_anew_twice_and_a_restart_goes_on_from_there() {
    let place = placed("follow", FIRST, "");
    let file = std::fs::read_to_string(place.config()).expect("the file");
    let mut daemon = place.serve();
    let before = workers(&daemon);
    let mut listener = Listener::new(&daemon);
    let senders = Sender::all(&daemon, FIRST);
    let best = [optimum(&place, FIRST), optimum(&place, SWAPPED)];
    settled(&daemon, FIRST);
    let mut after = before;
    for (demand, best) in [(SWAPPED, best[1]), (FIRST, best[0])] {
        set(&senders, demand);
        // Where the machine has held the senders up, more was expected for a while than is asked.
        eventually(&format!("a plan within a point of {best}"), || {
            Some(settled(&daemon, demand)).filter(|&accuracy| accuracy >= best - 1.0)
        });
        let (then, now) = (after, workers(&daemon));
        let (more, less) = if demand == SWAPPED { (2, 0) } else { (0, 2) };
        assert!(now[less] < then[less] && now[more] > then[more], "{then:?} {now:?}");
        assert!(now.iter().sum::<u64>() <= 8, "{now:?}");
        after = now;
    }
    Sender::end(senders, &mut listener);
    assert_eq!(file, std::fs::read_to_string(place.config()).expect("the file"), "the file is its owner's");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    let again = place.serve();
    assert_eq!(workers(&again), after, "a restart goes on from what was served");
}

#[test]
fn who_is_only_advised_is_told_and_nothing_changes() {
    let place = placed("advise", FIRST, "");
    let daemon = place.serve();
    let before = workers(&daemon);
    let mut listener = Listener::new(&daemon);
    let senders = Sender::all(&daemon, SWAPPED);
    let told = eventually("advice", || {
        let told = placement(&daemon);
        let changes = told["changes"].as_array().map_or(0, Vec::len);
        (changes > 0 && told["state"].as_str().is_some_and(|state| state.starts_with("would change")))
            .then_some(told)
    });
    pause(Duration::from_millis(500));
    assert_eq!((workers(&daemon), told["made"].as_u64()), (before, Some(0)));
    assert_eq!(daemon.status()["reload"], Value::Null);
    assert!(daemon.stderr().contains("placement: would change"), "{}", daemon.stderr());
    let socket = place.socket();
    let printed = std::process::Command::new(weir()).args(["status", "--socket"]).arg(socket).output();
    let printed = String::from_utf8(printed.expect("weir can be run").stdout).expect("UTF-8");
    assert!(printed.contains("placement (advise): would change"), "{printed}");
    Sender::end(senders, &mut listener);
}

#[test]
fn who_edits_the_file_has_the_last_word() {
    let place = placed("follow", FIRST, "");
    let file = std::fs::read_to_string(place.config()).expect("the file");
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let senders = Sender::all(&daemon, SWAPPED);
    settled(&daemon, SWAPPED);
    assert!(kept(&place).exists());
    // What nobody has reloaded yet is not taken over by a step of the controller's.
    place.configure(
        file.replace("mode = \"follow\"", "mode = \"off\"")
            .replace("deadline = \"2s\"", "deadline = \"1900ms\""),
    );
    set(&senders, FIRST);
    let edited = |daemon: &Daemon| {
        placement(daemon)["state"].as_str().is_some_and(|state| state.contains("has been edited"))
    };
    eventually("a step that is left", || edited(&daemon).then_some(()));
    let deadlines = |daemon: &Daemon| -> Vec<u64> {
        let status = daemon.status();
        let services = status["services"].as_array().expect("services");
        services.iter().map(|service| service["deadline_ns"].as_u64().expect("a number")).collect()
    };
    assert_eq!(deadlines(&daemon), [2_000_000_000; 4]);
    daemon.reload_accepted();
    assert_eq!(deadlines(&daemon), [1_900_000_000; 4]);
    eventually("the end of it", || placement(&daemon).is_null().then_some(()));
    let text: toml::Table = toml::from_str(&file).expect("TOML");
    let stated = text["service"]
        .as_array()
        .expect("services")
        .iter()
        .map(|s| s["workers"].as_integer().expect("a number") as u64);
    assert_eq!(workers(&daemon), stated.collect::<Vec<_>>(), "as the file says");
    Sender::end(senders, &mut listener);
}

fn kept(place: &Deployment) -> std::path::PathBuf {
    place.path("profile.json.placement/served.toml")
}

/// The processes that look for a plan.
fn looking(daemon: &Daemon) -> Vec<Pid> {
    running(daemon, |words| words.contains(&"place"))
}

/// The processes of the daemon that are run with such words.
fn running(daemon: &Daemon, is: impl Fn(&[&str]) -> bool) -> Vec<Pid> {
    let is = |pid: &Pid| {
        let line = std::fs::read(Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("cmdline"));
        let line = String::from_utf8(line.unwrap_or_default()).expect("UTF-8");
        is(&line.split('\0').collect::<Vec<_>>())
    };
    daemon.children().into_iter().filter(is).collect()
}

#[test]
fn what_looks_for_a_plan_may_stand_still_or_die() {
    let place = placed("follow", FIRST, "");
    let mut daemon = place.serve();
    let before = workers(&daemon);
    let mut listener = Listener::new(&daemon);
    let senders = Sender::all(&daemon, FIRST);
    let killed = eventually("who looks", || {
        let [pid] = looking(&daemon)[..] else { return None };
        kill_process(pid, Signal::KILL).is_ok().then_some(pid)
    });
    let told = eventually("a failure", || {
        let told = placement(&daemon);
        // It may have been done before it died.
        (told["failures"].as_u64() > Some(0) || told["looks"].as_u64() > Some(1)).then_some(told)
    });
    let stopped = eventually("another one", || {
        let pid = looking(&daemon).into_iter().find(|pid| *pid != killed)?;
        kill_process(pid, Signal::STOP).is_ok().then_some(pid)
    });
    pause(Duration::from_millis(500));
    assert_eq!(workers(&daemon), before, "{told}");
    // Nobody waits for it: not who reloads, not who is served, and not the end.
    assert_eq!(daemon.reload_accepted(), "nothing has changed\n");
    Sender::end(senders, &mut listener);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert!(
        std::fs::metadata(Path::new("/proc").join(stopped.as_raw_nonzero().to_string())).is_err(),
        "it is killed"
    );
}

/// The processes of the workers.
fn working(daemon: &Daemon) -> Vec<Pid> {
    running(daemon, |words| words.contains(&"engine-worker"))
}
