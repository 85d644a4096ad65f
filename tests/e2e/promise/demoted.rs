//! A service whose batches harm the others on its worker is named, demoted, and promised again once it keeps its time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{
    Daemon, Deployment, Listener, answers, best_effort, daemon_in_real_time, eventually, pause, quiet,
};
use serde_json::Value;
use weir_client::{Outcome, SafeModeCause, SafeModeState};

/// Batches of the scene may take 60 ms and take 700: the others can take 480 beyond.
fn deployment() -> Deployment {
    let service = |name: &str, ms: u64, deadline: &str, more: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\ndevice = \"box\"\nengine = \"simulated\"\nmax-batch = 1\n\
             simulated = {{ times = [\"{ms}ms\"], input = 3, output = 3 }}\n\
             deadline = \"{deadline}\"\nguard = \"200ms\"\nhandover = \"0ms\"\n{more}"
        )
    };
    let line = "[[service.stream]]\nname = \"line\"\nconstraints = [{ row-miss = 0 }]\n\
                arrivals = [{ periodic = { period = \"1s\", jitter = \"100ms\" } }]\n";
    let place = Deployment::new(format!(
        "{}[safe-mode]\nhold = \"3s\"\nclean = \"3s\"\n[[device]]\nname = \"box\"\n{}{}",
        daemon_in_real_time(),
        service("stop", 10, "800ms", line),
        service("scene", 700, "3s", "")
    ));
    place.succeed(&["profile", "--quick", "--samples", "3"]);
    place.set_variant_bounds(&[[10], [700]], &[[60], [60]]);
    place
}

fn status_of(daemon: &Daemon, service: usize) -> Value {
    daemon.status()["services"][service].clone()
}

fn is_normal(status: &Value) -> bool {
    status["safe_mode"]["state"] == "normal"
}

/// A request after each second, for as long as it is told to.
fn send(daemon: &Daemon, over: &AtomicBool) -> Vec<Outcome> {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("stop", "line")).expect("reserved");
    let mut ids = Vec::new();
    while !over.load(Ordering::Relaxed) {
        ids.push(client.submit(&stream, &[1.0; 3]).expect("sent"));
        pause(Duration::from_secs(1));
    }
    answers(&mut client, &ids)
}

#[test]
fn a_service_that_harms_others_is_demoted_and_they_are_promised_again_while_it_stays_slow() {
    quiet();
    let daemon = deployment().serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let scene = client.register(&best_effort("scene", "any")).expect("best effort");
    assert_eq!(status_of(&daemon, 1)["demoted"], false);
    let id = client.submit(&scene, &[1.0; 3]).expect("sent");
    answers(&mut client, &[id]);
    let (stop, slow) = (status_of(&daemon, 0), status_of(&daemon, 1));
    let text = |status: &Value| status["safe_mode"]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text(&stop).starts_with("service-overrun: a batch of service scene took"), "{stop}");
    let words = "which harms the others on device box: demoted until it keeps its time";
    assert!(slow["demoted"] == true && text(&slow).contains(words), "{slow}");
    assert!(stop["demoted"] == false, "{stop}");
    let over = AtomicBool::new(false);
    let (kept, shown) = thread::scope(|scope| {
        // Its batches go on being slow: while stop cannot send anything soon they may run.
        let sender = scope.spawn(|| send(&daemon, &over));
        let mut ids = Vec::new();
        for _ in 0..30 {
            ids.push(client.submit(&scene, &[1.0; 3]).expect("sent"));
            pause(Duration::from_millis(300));
        }
        let shown = (status_of(&daemon, 0), status_of(&daemon, 1));
        let slow = answers(&mut client, &ids);
        over.store(true, Ordering::Relaxed);
        let served = slow.iter().filter(|outcome| outcome.result().is_some()).count();
        assert!((3..30).contains(&served), "{served} of 30: {slow:?}");
        (sender.join().expect("sent"), shown)
    });
    let late = kept.iter().filter(|outcome| outcome.result().is_none()).count();
    listener.kept_or_told("stop", late == 0, &kept);
    // Once harmed, once promised again, and never harmed again.
    let told: Vec<_> = listener.changes().iter().filter(|change| change.service == "stop").cloned().collect();
    let states: Vec<_> = told.iter().map(|change| change.state).collect();
    let alone = told.iter().skip(1).all(|change| change.cause != SafeModeCause::ServiceOverrun);
    assert!(alone && states.starts_with(&[SafeModeState::SafeMode, SafeModeState::Normal]), "{told:?}");
    assert!(is_normal(&shown.0) && shown.1["demoted"] == true, "{shown:?}");
    eventually("it has kept its time, for nothing of it came", || {
        let status = status_of(&daemon, 1);
        (status["demoted"] == false && is_normal(&status)).then_some(())
    });
}
