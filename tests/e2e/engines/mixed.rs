//! Workers of several kinds in one service: a model here and on another Weir, and kinds that come and go with a reload.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, Listener, answers, best_effort, eventually, one_in_three, pause, repository,
    sequence, stderr, values, weir,
};
use rustix::process::Signal;
use serde_json::Value;
use weir_client::{ArrivalBound, Constraint, Outcome, Registration, RequestId, SafeModeCause};

fn shipped() -> String {
    format!("models = {:?}\n", repository("models/manifest.toml"))
}

/// A Weir whose service others may call at `h` in its folder.
fn back() -> Deployment {
    let service = "[[service]]\nname = \"digits\"\nmodel = \"digits-s\"\ndeadline = \"20s\"\nguard = \"1s\"\nmax-batch = 1\n";
    Deployment::new(format!("{DAEMON}{}[daemon.oip]\nhttp = \"unix:h\"\n{service}", shipped()))
}

/// A Weir with a worker of its own, and one that is the Weir whose socket that is and is waited for that long.
fn front(socket: &Path, timeout: &str) -> String {
    format!(
        "{DAEMON}{}[safe-mode]\nhold = \"100ms\"\nclean = \"100ms\"\n\
         [[service]]\nname = \"digits\"\nmodel = \"digits-s\"\ndeadline = \"20s\"\nguard = \"1s\"\nmax-batch = 1\n\
         constraints = [{{ any-miss = {{ m = 5, k = 10 }} }}]\n\
         [[service.workers]]\nengine = \"tract\"\n\
         [[service.workers]]\nname = \"far\"\nengine = \"oip\"\n\
         remote = {{ url = \"unix:{}\", model = \"digits\", stream = \"front\", timeout = \"{timeout}\" }}\n",
        shipped(),
        socket.display()
    )
}

/// Serves there, and waits until others may call it.
fn serve(place: &Deployment) -> Daemon {
    let daemon = place.serve();
    eventually("the door for others", || UnixStream::connect(place.path("h")).ok());
    daemon
}

fn service(daemon: &Daemon) -> Value {
    daemon.status()["services"][0].clone()
}

/// Waits until so many of the two workers are there, one of each kind.
fn alive(daemon: &Daemon, [here, far]: [u64; 2]) {
    eventually("the workers' states", || {
        let kinds = service(daemon)["kinds"].clone();
        (kinds[0]["workers_alive"] == here && kinds[1]["workers_alive"] == far).then_some(())
    });
}

/// What eight requests at once become, that must all be answered.
fn infer(daemon: &Daemon, picture: &[f32]) -> Vec<Vec<f32>> {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("digits", "asker")).expect("a stream");
    let ids: Vec<RequestId> = (0..8).map(|_| client.submit(&stream, picture).expect("submitted")).collect();
    let outcomes = answers(&mut client, &ids);
    let results = outcomes.iter().map(|outcome| values(&stream, outcome).expect("answered")).collect();
    client.unregister(&stream).expect("given up");
    results
}

#[test]
fn a_worker_here_and_one_elsewhere_serve_together_and_either_alone() {
    let (back_place, picture) = (back(), vec![0.25; 28 * 28]);
    let mut back = serve(&back_place);
    let socket = back_place.path("h");
    let place = Deployment::new(front(&socket, "60s"));
    place.succeed(&["check"]);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(1_000);
    let profile = std::fs::read_to_string(place.path("profile.json")).expect("a profile");
    let profile: Value = serde_json::from_str(&profile).expect("JSON");
    let measured: Vec<_> = profile["entries"].as_array().expect("entries").iter().collect();
    let of = |entry: &Value| (entry["model"].clone(), entry["engine"].clone(), entry["workers"].clone());
    assert_eq!(of(measured[0]), ("digits-s".into(), "tract".into(), 2.into()), "beside each other");
    assert_eq!(of(measured[1]), ("digits-s by digits/far".into(), "oip".into(), 2.into()));

    let plan = place.succeed(&["plan"]);
    assert!(
        plan.contains("digits: digits-s on tract, oip") && plan.contains("2 workers of 2 kinds"),
        "{plan}"
    );
    assert!(plan.contains("far: 1 worker(s) on oip, batches of B = 1 in P = 1.00 s"), "{plan}");
    // It is certified, and another program confirms it.
    place.succeed(&["certify"]);
    let certificate = place.path("weir.certificate.json");
    let told: Value =
        serde_json::from_str(&std::fs::read_to_string(&certificate).expect("written")).expect("JSON");
    let claim = &told["services"][0];
    assert_eq!(claim["service"]["kinds"][1]["name"], "far", "{claim}");
    assert_eq!(claim["problem"]["workers"].as_array().map(Vec::len), Some(2), "{claim}");
    let verified = Command::new(weir()).arg("verify").arg(&certificate).output().expect("weir can be run");
    assert!(verified.status.success(), "{}", stderr(&verified));

    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    alive(&daemon, [1, 1]);
    let answered = infer(&daemon, &picture);
    assert!(answered.iter().all(|one| *one == answered[0]), "the same engine computes on both: {answered:?}");
    let served = back.stream_status("front")["served"].as_u64();
    assert!(served.is_some_and(|served| served > 0), "one of the two is there: {served:?}");
    let mut client = daemon.client();
    let every = Duration::from_millis(400);
    let cam = Registration::builder("digits", "cam")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(1, every));
    let cam = client.register(&cam.build().expect("it fits")).expect("admitted by both");
    let mut send = || -> Vec<bool> {
        let one = |_| {
            pause(every);
            client.infer(&cam, &picture).expect("an answer").result().is_some()
        };
        (0..6).map(one).collect()
    };
    let outcomes = send();
    let kept = one_in_three(outcomes.iter().copied());
    listener.kept_or_told("digits", kept, &outcomes);

    back.signal(Signal::KILL);
    back.wait();
    eventually("that it is told", || {
        listener.changes().iter().any(|change| change.cause == SafeModeCause::WorkerLost).then_some(())
    });
    alive(&daemon, [1, 0]);
    let mode = service(&daemon)["safe_mode"]["text"].as_str().map(str::to_owned);
    assert!(
        mode.as_ref().is_some_and(|text| text.contains("1 of 2 workers are left; of far 0 of 1")),
        "{mode:?}"
    );
    assert_eq!(infer(&daemon, &picture), answered, "the other goes on");
    assert!(send().contains(&true), "whoever is promised nothing meanwhile is served too");
    drop(client);
    eventually("what is said of it", || daemon.stderr().contains("worker 1 (far): unix:").then_some(()));
    drop(daemon);

    // Started without it the other one serves all the same.
    let said = stderr(&place.weir(&["plan"]));
    assert!(said.contains("its worker is lost until it is there"), "{said}");
    assert!(place.fail(&["check"]).contains("refused"), "whoever checks wants to know");
    let daemon = place.serve();
    alive(&daemon, [1, 0]);
    assert_eq!(service(&daemon)["safe_mode"]["cause"], "worker-lost");
    assert_eq!(infer(&daemon, &picture), answered);
    assert_eq!(daemon.reload_accepted(), "nothing has changed\n");
    place.configure(front(&socket, "60s").replace("20s", "19s"));
    assert!(daemon.reload_accepted().contains("deadline 19.0 s"), "it takes over without it too");
    alive(&daemon, [1, 0]);
    assert_eq!(infer(&daemon, &picture), answered);
    let back = serve(&back_place);
    alive(&daemon, [1, 1]);
    eventually("the end of safe mode", || (service(&daemon)["safe_mode"]["state"] == "normal").then_some(()));
    drop((daemon, back));

    // Who would give a server up within its bound is told so.
    place.configure(front(&socket, "500ms"));
    let _back = serve(&back_place);
    for command in ["plan", "check", "certify"] {
        let refused = place.fail(&[command]);
        let told = "service[0].workers[1].remote.timeout = 500.0 ms: must be at least P(1) = 1.00 s";
        assert!(refused.contains(told), "{command}: {refused}");
    }
}

/// A service of simulated workers, and what its workers are.
fn lanes(workers: &str) -> String {
    format!(
        "{DAEMON}[[service]]\nname = \"lanes\"\nengine = \"simulated\"\nmax-batch = 1\nguard = \"100ms\"\n\
         deadline = \"2s\"\nsimulated = {{ times = [\"4ms\"], input = 4, output = 4 }}\n{workers}"
    )
}

#[test]
fn kinds_come_and_go_with_a_reload_and_no_request_is_lost() {
    let slow = "[[service.workers]]\n[[service.workers]]\nname = \"slow\"\n\
                simulated = { times = [\"8ms\"], input = 4, output = 4 }\n";
    let more = format!("{slow}count = 2\n");
    let place = Deployment::new(lanes(slow));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(18);
    place.configure(lanes(""));
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let sending = Arc::new(AtomicBool::new(true));
    let sender = {
        let (mut client, sending) = (daemon.client(), Arc::clone(&sending));
        std::thread::spawn(move || {
            let strict = Registration::builder("lanes", "cam")
                .constraint(Constraint::any_miss(1, 3))
                .arrivals(ArrivalBound::window(1, Duration::from_millis(20)));
            let stream = client.register(&strict.build().expect("it fits")).expect("admitted");
            let mut outcomes = Vec::new();
            while sending.load(Ordering::Relaxed) {
                outcomes.push(client.infer(&stream, &[0.5; 4]).expect("an answer"));
                pause(Duration::from_millis(20));
            }
            outcomes
        })
    };
    pause(Duration::from_millis(200));
    for (workers, count, kinds) in [(slow, 2, 2), (&*more, 3, 2), (slow, 2, 2), ("", 1, 0)] {
        place.configure(lanes(workers));
        let told = daemon.reload_accepted();
        assert!(told.starts_with("service lanes: simulated-"), "{told}");
        let status = service(&daemon);
        assert_eq!(
            (&status["workers"], &status["workers_alive"]),
            (&count.into(), &count.into()),
            "{status}"
        );
        assert_eq!(status["kinds"].as_array().map(Vec::len), Some(kinds), "{status}");
        pause(Duration::from_millis(200));
    }
    sending.store(false, Ordering::Relaxed);
    let outcomes = sender.join().expect("no panic");
    assert!(outcomes.iter().map(sequence).eq(0..outcomes.len() as u64), "the numbers go on");
    let hit = |outcome: &Outcome| matches!(outcome, Outcome::Result(_));
    let kept = one_in_three(outcomes.iter().map(hit));
    listener.kept_or_told("lanes", kept, &outcomes);
    assert!(outcomes.iter().filter(|o| hit(o)).count() * 2 > outcomes.len());
}
