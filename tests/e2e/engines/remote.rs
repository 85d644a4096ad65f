//! Workers that are servers elsewhere: another Weir, and one that lies in every way it can.

mod grpc;
mod hung;
mod killed;
mod liar;

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{
    Authority, DAEMON, Daemon, Deployment, Listener, answers, best_effort, eventually, own_address,
    repository, stderr, values, weir,
};
use liar::{Behaviour, Liar};
use rustix::process::Signal;
use serde_json::Value;
use weir_client::{ArrivalBound, Constraint, MissReason, Outcome, Registration, SafeModeCause};

/// What a front says of the models of its servers: one of the shipped ones, without its file, and a toy.
const MANIFEST: &str = r#"
[[model]]
name = "digits-s"
input = { name = "image", type = "f32", shape = [1, 28, 28] }
output = { name = "logits", type = "f32", shape = [10] }

[[model]]
name = "toy"
input = { name = "in", type = "f32", shape = [2] }
output = { name = "out", type = "f32", shape = [2] }
"#;

/// As long as a server may be given: how busy the machine is must not decide who is lost.
const PATIENT: &str = ", timeout = \"60s\"";

/// A Weir with a service of a shipped model, which others may call at `h` in its folder.
fn back() -> Deployment {
    Deployment::new(format!(
        "{DAEMON}models = {:?}\n[daemon.oip]\nhttp = \"unix:h\"\n{}",
        repository("models/manifest.toml"),
        r#"
        [[service]]
        name = "digits"
        model = "digits-s"
        deadline = "20s"
        guard = "1s"
        max-batch = 2
        "#
    ))
}

/// A Weir whose service `far` has its model at `url`, as `remote` says more of it, beside one with workers of its own.
fn front(model: &str, url: &str, remote: &str) -> Deployment {
    let place = Deployment::new(format!(
        "{DAEMON}models = \"models.toml\"\n[safe-mode]\nhold = \"100ms\"\nclean = \"100ms\"\n\
         [[service]]\nname = \"far\"\nengine = \"oip\"\nmodel = \"{model}\"\nremote = {{ url = \"{url}\"{remote} }}\n{}",
        r#"
        max-batch = 2
        deadline = "20s"
        guard = "1s"
        constraints = [{ any-miss = { m = 5, k = 10 } }]
        [[service]]
        name = "near"
        engine = "simulated"
        simulated = { times = ["1ms"], input = 2, output = 2 }
        deadline = "20s"
        guard = "1s"
        "#
    ));
    std::fs::write(place.path("models.toml"), MANIFEST).expect("written");
    place
}

/// Profiled, with these bounds in milliseconds of batches of one and two requests.
fn profiled(place: &Deployment, bounds_ms: [u64; 2]) {
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.change_entries(|entries| {
        let far = entries.iter().position(|entry| entry["engine"] == "oip").expect("it is profiled");
        entries.swap(0, far);
    });
    place.set_bounds(&bounds_ms);
}

fn url(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}

/// Waits until the service `far` has so many workers.
fn alive(daemon: &Daemon, workers: u64) {
    eventually("the worker's state", || {
        let services = daemon.status()["services"].clone();
        let far =
            services.as_array().expect("services").iter().find(|service| service["name"] == "far").cloned();
        (far.expect("it is there")["workers_alive"] == workers).then_some(())
    });
}

/// Waits until safe mode was told of `far` for this cause.
fn told(listener: &mut Listener, cause: SafeModeCause) {
    eventually(&cause.to_string(), || {
        listener.changes().iter().any(|change| change.service == "far" && change.cause == cause).then_some(())
    });
}

/// Waits until the daemon has said this: what it says is written by a thread of its own.
fn says(daemon: &Daemon, words: &str) {
    eventually(words, || daemon.stderr().contains(words).then_some(()));
}

/// What one request becomes.
fn infer(daemon: &Daemon, service: &str, input: &[f32]) -> Result<Vec<f32>, MissReason> {
    let mut client = daemon.client();
    let stream = client.register(&best_effort(service, "asker")).expect("a stream");
    let outcome = client.infer(&stream, input).expect("an answer");
    // The next one has the same name.
    client.unregister(&stream).expect("given up");
    match outcome {
        Outcome::Miss(miss) => Err(miss.reason),
        outcome => Ok(values(&stream, &outcome).expect("an output of f32")),
    }
}

/// The same, again and again until it is answered.
fn answered(daemon: &Daemon, service: &str, input: &[f32]) -> Vec<f32> {
    eventually("an answer", || infer(daemon, service, input).ok())
}

#[test]
fn a_weir_serves_what_another_computes_and_says_when_that_is_gone() {
    let (back_place, picture) = (back(), vec![0.25; 28 * 28]);
    let mut back = back_place.serve();
    let expected = answered(&back, "digits", &picture);

    let place = front(
        "digits-s",
        &url(&back_place.path("h")),
        ", model = \"digits\", stream = \"front\", timeout = \"60s\"",
    );
    place.succeed(&["check"]);
    profiled(&place, [2_000, 4_000]);
    let profile = std::fs::read_to_string(place.path("profile.json")).expect("a profile");
    let profile: Value = serde_json::from_str(&profile).expect("JSON");
    let entry = &profile["entries"][0];
    let version = entry["equipment"]["version"].as_str().expect("text");
    assert!(
        version.starts_with(&url(&back_place.path("h"))) && version.contains("digits by weir"),
        "{version}"
    );
    // Another Weir forms batches itself.
    assert_eq!(
        (&entry["batches"][0]["mode"], &entry["batches"][1]["mode"]),
        (&"batched".into(), &"loop".into())
    );
    assert!(place.succeed(&["plan"]).contains("digits-s on oip"));

    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    assert_eq!(answered(&daemon, "far", &picture), expected, "bit for bit");
    let served = back.stream_status("front")["served"].as_u64();
    assert!(
        served.is_some_and(|served| served > 0),
        "its calls belong to the stream that it names: {served:?}"
    );
    let infer_near = || infer(&daemon, "near", &[1.0, 2.0]);
    let shown =
        Command::new(weir()).args(["infer", "far", "--json", "--socket"]).arg(place.socket()).output();
    let shown = shown.expect("weir can be run");
    assert!(shown.status.success(), "{}", stderr(&shown));

    // Idle: nobody has to ask to see that it has gone.
    back.signal(Signal::KILL);
    back.wait();
    told(&mut listener, SafeModeCause::WorkerLost);
    alive(&daemon, 0);
    assert_eq!(infer(&daemon, "far", &picture), Err(MissReason::WorkerLost));
    assert_eq!(infer_near(), Ok(vec![1.0, 2.0]), "who is beside it does not notice");
    says(&daemon, "service far: worker 0: unix:");
    says(&daemon, "hung up while idle");

    // Without it nothing is planned, and the reason is its name.
    let refused = place.fail(&["plan"]);
    assert!(refused.contains(&url(&back_place.path("h"))) && refused.contains("refused"), "{refused}");

    let back = back_place.serve();
    alive(&daemon, 1);
    assert_eq!(answered(&daemon, "far", &picture), expected);

    // What comes back as another model is not taken for the same.
    drop(back);
    alive(&daemon, 0);
    let text = std::fs::read_to_string(back_place.config()).expect("there");
    back_place.configure(text.replace("digits-s", "scenes-detect"));
    let _back = back_place.serve();
    says(&daemon, "input `image` has shape");
    alive(&daemon, 0);
    assert!(place.fail(&["check"]).contains("by the manifest"));
}

#[test]
fn a_box_is_called_over_tls_and_only_by_whom_it_knows() {
    let back_place = back();
    let text = std::fs::read_to_string(back_place.config()).expect("there");
    let there = format!(
        "http = \"{0}:8010\"\ngrpc = \"{0}:8011\"\ntls = {{ certificate = \"box.pem\", key = \"box.key\", client-ca = \"ca.pem\", allow-clients = [\"front.example\"] }}",
        own_address()
    );
    back_place.configure(text.replace("http = \"unix:h\"", &there));
    let authority = Authority::new(&back_place.path("ca.pem"));
    authority.vouch(&back_place.path("box"), &own_address(), 4000);
    Authority::new(&back_place.path("strange.pem"));
    let back = back_place.serve();
    let expected = answered(&back, "digits", &vec![0.25; 28 * 28]);
    for port in [8010, 8011] {
        eventually("the port", || TcpStream::connect((own_address(), port)).ok());
    }
    let by = |scheme: &str, port: u16, name: &str, ca: &str| {
        let (certificate, key) = authority.vouch(&back_place.path(name), name, 4000);
        let more = format!(
            ", model = \"digits\", timeout = \"60s\", tls = {{ ca = {:?}, certificate = {certificate:?}, key = {key:?} }}",
            back_place.path(ca)
        );
        front("digits-s", &format!("{scheme}://{}:{port}", own_address()), &more)
    };
    let called = |name: &str, ca: &str| by("https", 8010, name, ca);
    // Whoever still writes when the server hangs up hears of that, and not of why.
    let is_kept_out =
        |refused: &str| ["AccessDenied", "reset", "roken pipe"].iter().any(|w| refused.contains(w));
    let refused = by("grpcs", 8011, "other.example", "ca.pem").fail(&["check"]);
    assert!(refused.contains("grpcs://127.") && is_kept_out(&refused), "{refused}");
    let refused = by("grpcs", 8011, "front.example", "strange.pem").fail(&["check"]);
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    by("grpcs", 8011, "front.example", "ca.pem").succeed(&["check"]);
    let refused = called("other.example", "ca.pem").fail(&["check"]);
    assert!(refused.contains("https://127.") && is_kept_out(&refused), "{refused}");
    let refused = called("front.example", "strange.pem").fail(&["check"]);
    assert!(refused.contains("UnknownIssuer"), "{refused}");

    let place = called("front.example", "ca.pem");
    place.succeed(&["check"]);
    profiled(&place, [2_000, 4_000]);
    let (daemon, picture) = (place.serve(), vec![0.25; 28 * 28]);
    let mut listener = Listener::new(&daemon);
    assert_eq!(answered(&daemon, "far", &picture), expected, "bit for bit");
    drop(back);
    told(&mut listener, SafeModeCause::WorkerLost);
    let _back = back_place.serve();
    alive(&daemon, 1);
    assert_eq!(answered(&daemon, "far", &picture), expected);
}

#[test]
fn a_server_that_is_late_is_an_overrun_and_one_that_hangs_is_given_up() {
    let liar = Liar::new();
    let place = front("toy", &url(&liar.socket()), ", timeout = \"10s\"");
    profiled(&place, [100, 100]);
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    assert_eq!(answered(&daemon, "far", &[1.0, -2.0]), [2.0, -4.0]);

    liar.behave(Behaviour::Late);
    assert_eq!(answered(&daemon, "far", &[1.0, 0.5]), [2.0, 1.0], "late is better than never");
    told(&mut listener, SafeModeCause::ServiceOverrun);

    liar.behave(Behaviour::Silent);
    assert_eq!(infer(&daemon, "far", &[1.0, 0.5]), Err(MissReason::WorkerLost));
    liar.behave(Behaviour::Well);
    told(&mut listener, SafeModeCause::WorkerLost);
    says(&daemon, "no answer came within 10000 ms");
    // The server is told, so that it need not go on.
    eventually("the connection's end", || liar.abandoned().then_some(()));
    alive(&daemon, 1);
    assert_eq!(answered(&daemon, "far", &[3.0, 0.5]), [6.0, 1.0]);
}

#[test]
fn whatever_a_server_says_is_bounded_and_told() {
    let liar = Liar::new();
    let place = front("toy", &url(&liar.socket()), PATIENT);
    profiled(&place, [2_000, 2_000]);
    let daemon = place.serve();
    for (behaviour, reason, words) in [
        (Behaviour::NoHttp, MissReason::WorkerLost, "the connection to unix:"),
        (Behaviour::Endless, MissReason::WorkerLost, "its answer has more than the"),
        (Behaviour::OtherShape, MissReason::WorkerLost, "output \"out\" is of shape"),
        (Behaviour::TooFew, MissReason::WorkerLost, "bytes are left"),
        (Behaviour::NoJson, MissReason::WorkerLost, "the answer: no such value can stand here"),
        // Of the same shape, and the answer to another's numbers.
        (Behaviour::Again, MissReason::WorkerLost, "it answers call "),
        (Behaviour::HangsUp, MissReason::WorkerLost, "connection closed before message completed"),
        (Behaviour::Refuses, MissReason::EngineFailed, "it answered 429: not  now"),
    ] {
        answered(&daemon, "far", &[1.0, 0.5]);
        liar.behave(behaviour);
        assert_eq!(infer(&daemon, "far", &[1.0, 0.5]), Err(reason), "{behaviour:?}: {}", daemon.stderr());
        says(&daemon, words);
        liar.behave(Behaviour::Well);
        alive(&daemon, 1);
    }
    assert!(daemon.resident_kib() < 1 << 20, "an endless answer was kept");
}

/// Models may take minutes to load, and nobody has been answered before.
#[test]
fn a_daemon_that_still_loads_ends_at_once_and_leaves_nothing_behind() {
    let liar = Liar::new();
    let place = front("toy", &url(&liar.socket()), PATIENT);
    profiled(&place, [2_000, 2_000]);
    liar.behave(Behaviour::Silent);
    let mut daemon = place.spawn(&[]);
    eventually("the socket", || place.socket().exists().then_some(()));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
    assert!(daemon.stderr().contains("stopped while loading"), "it has waited: {}", daemon.stderr());
    assert!(!place.socket().exists(), "the socket is left behind");
}

/// What a server may still be given time for, nobody waits for any more.
#[test]
fn a_daemon_that_ends_waits_for_a_server_no_longer_than_its_deadlines() {
    let liar = Liar::new();
    let place = front("toy", &url(&liar.socket()), PATIENT);
    let text = std::fs::read_to_string(place.config()).expect("there");
    place.configure(text.replace("\"20s\"", "\"2s\"").replace("guard = \"1s\"", "guard = \"200ms\""));
    profiled(&place, [200, 400]);
    let mut daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("far", "asker")).expect("a stream");
    liar.behave(Behaviour::Silent);
    let before = liar.calls();
    let id = client.submit(&stream, &[1.0f32, 0.5]).expect("submitted");
    eventually("the call", || (liar.calls() > before).then_some(()));
    daemon.signal(Signal::TERM);
    let outcomes = answers(&mut client, &[id]);
    // Its deadline passes just before the server is waited for no longer.
    let missed = [MissReason::Late, MissReason::WorkerLost];
    assert!(matches!(&outcomes[..], [Outcome::Miss(miss)] if missed.contains(&miss.reason)));
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
    assert!(daemon.stderr().contains("no answer has come, and the daemon ends"), "{}", daemon.stderr());
}

/// An error is an answer: who was promised nothing has lost his request, and nobody anything else.
#[test]
fn an_error_on_what_nothing_is_promised_for_breaks_no_promise() {
    let liar = Liar::new();
    let place = front("toy", &url(&liar.socket()), PATIENT);
    profiled(&place, [2_000, 2_000]);
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    liar.behave(Behaviour::Refuses);
    assert_eq!(infer(&daemon, "far", &[1.0, 0.5]), Err(MissReason::EngineFailed));
    let mut client = daemon.client();
    let promised = Registration::builder("far", "promised")
        .constraint(Constraint::any_miss(0, 1))
        .arrivals(ArrivalBound::window(1, Duration::from_secs(10)));
    let stream = client.register(&promised.build().expect("it fits the frame")).expect("a stream");
    assert!(listener.changes().iter().all(|change| change.cause != SafeModeCause::WorkerLost));
    let outcome = client.infer(&stream, &[1.0f32, 0.5]).expect("an answer");
    assert!(matches!(outcome, Outcome::Miss(miss) if miss.reason == MissReason::EngineFailed));
    told(&mut listener, SafeModeCause::WorkerLost);
}

#[test]
fn a_server_that_has_changed_is_another_one() {
    let liar = Liar::new();
    let place = front("toy", &url(&liar.socket()), PATIENT);
    profiled(&place, [2_000, 2_000]);
    let daemon = place.serve();
    assert_eq!(answered(&daemon, "far", &[1.0, 0.5]), [2.0, 1.0]);

    // Under the same connection: its answers say so.
    liar.behave(Behaviour::NewVersion);
    assert_eq!(infer(&daemon, "far", &[1.0, 0.5]), Err(MissReason::WorkerLost));
    says(&daemon, "version 2 of the model answers, version 1 did before");
    says(&daemon, "run `weir profile`");
    alive(&daemon, 0);

    // Started anew it is served by the old times, and nothing is promised by them.
    drop(daemon);
    let said = stderr(&place.weir(&["plan"]));
    assert!(said.contains("toy on oip: engine: profile unix:"), "{said}");
    let daemon = place.serve();
    assert_eq!(answered(&daemon, "far", &[1.0, 0.5]), [2.0, 1.0]);
    says(&daemon, "profile-stale");
    drop(daemon);
    profiled(&place, [2_000, 2_000]);
    assert!(!stderr(&place.weir(&["plan"])).contains("engine: profile"));
}

#[test]
fn services_take_turns_on_a_server_that_they_share() {
    let liar = Liar::new();
    let service = |name: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nengine = \"oip\"\nmodel = \"toy\"\ndevice = \"box\"\nmax-batch = 2\n\
             remote = {{ url = \"{}\"{PATIENT} }}\ndeadline = \"20s\"\nguard = \"1s\"\n\
             constraints = [{{ any-miss = {{ m = 5, k = 10 }} }}]\n",
            url(&liar.socket())
        )
    };
    let place = Deployment::new(format!(
        "{DAEMON}models = \"models.toml\"\n[[device]]\nname = \"box\"\n{}{}",
        service("far"),
        service("further")
    ));
    std::fs::write(place.path("models.toml"), MANIFEST).expect("written");
    profiled(&place, [1_000, 1_000]);
    assert!(place.succeed(&["plan"]).contains("device box: 1 worker(s) for far, further"));
    let daemon = place.serve();
    let both = |input: [f32; 2]| ["far", "further"].map(|service| answered(&daemon, service, &input));
    assert_eq!(both([1.0, 0.5]), [[2.0, 1.0], [2.0, 1.0]]);
    liar.behave(Behaviour::HangsUp);
    assert_eq!(infer(&daemon, "far", &[1.0, 0.5]), Err(MissReason::WorkerLost));
    liar.behave(Behaviour::Well);
    assert_eq!(both([3.0, 0.5]), [[6.0, 1.0], [6.0, 1.0]]);
}

#[test]
fn each_server_of_a_service_has_a_worker_and_is_measured() {
    let (one, other) = (Liar::new(), Liar::new());
    let place = front("toy", &url(&one.socket()), PATIENT);
    let text = std::fs::read_to_string(place.config()).expect("there");
    let (single, both) =
        (format!("url = {:?}", url(&one.socket())), [url(&one.socket()), url(&other.socket())]);
    place.configure(text.replace(&single, &format!("url = {both:?}")));
    let before = other.calls();
    profiled(&place, [2_000, 2_000]);
    // When it is loaded, and each size to warm up and to be timed at least once.
    assert!(other.calls() >= before + 5, "the second is measured too: {} calls", other.calls() - before);
    let daemon = place.serve();
    alive(&daemon, 2);
    let mut listener = Listener::new(&daemon);
    one.behave(Behaviour::HangsUp);
    other.behave(Behaviour::Well);
    // One of the two has the request at some time.
    eventually("the loss of one", || {
        let _ = infer(&daemon, "far", &[1.0, 0.5]);
        listener.changes().iter().any(|change| change.cause == SafeModeCause::WorkerLost).then_some(())
    });
    assert_eq!(answered(&daemon, "far", &[1.0, 0.5]), [2.0, 1.0], "the other goes on");
    one.behave(Behaviour::Well);
    alive(&daemon, 2);
}
