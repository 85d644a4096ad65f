//! Several services on the same workers: what they promise together is planned, certified, kept and refused.

use std::thread;
use std::time::Duration;

use super::closed::refusal;
use crate::harness::{
    DAEMON, Daemon, Deployment, Listener, answers, best_effort, daemon_in_real_time, pause, quiet, repository,
};
use serde_json::Value;
use weir_client::{ArrivalBound, Constraint, Outcome, RefusalCode, Registration};

const PERIOD: Duration = Duration::from_millis(200);

/// A service on the device; its batches take `ms` by the clock, and by the profile what is put there.
fn service(name: &str, ms: u64, deadline: &str, more: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\ndevice = \"box\"\nengine = \"simulated\"\n\
         simulated = {{ times = [\"{ms}ms\"], input = 3, output = 3 }}\n\
         deadline = \"{deadline}\"\nguard = \"300ms\"\nhandover = \"0ms\"\n{more}"
    )
}

const CLOSE: &str = "[[service.stream]]\nname = \"line\"\nconstraints = [{ row-miss = 0 }]\n\
                     arrivals = [{ periodic = { period = \"200ms\", jitter = \"150ms\" } }]\n";

/// Three services on one worker, two of them with a reserved stream. A batch of each takes 10, 20 and 40 ms, and may take
/// `bounds`.
pub(super) fn deployment(daemon: &str, bounds: [u64; 3]) -> Deployment {
    let place = Deployment::new(format!(
        "{daemon}[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[[device]]\nname = \"box\"\n{}{}{}",
        service("stop", 10, "800ms", CLOSE),
        service("track", 20, "1200ms", &CLOSE.replace("row-miss = 0", "any-miss = { m = 1, k = 2 }")),
        service("scene", 40, "3s", "queue = 40\n"),
    ));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_variant_bounds(&[[10], [20], [40]], &bounds.map(|bound| [bound]));
    place
}

/// Sends so many requests, one a period; what became of them.
fn send(daemon: &Daemon, service: &str, count: usize) -> Vec<Outcome> {
    let mut client = daemon.client();
    let stream = client.register(&best_effort(service, "line")).expect("reserved");
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(client.submit(&stream, &[1.0; 3]).expect("sent"));
        pause(PERIOD);
    }
    answers(&mut client, &ids)
}

#[test]
fn what_is_reserved_on_a_shared_worker_is_kept_beside_a_flood_on_another_service() {
    quiet();
    let daemon = deployment(&daemon_in_real_time(), [60, 70, 90]).serve();
    let mut listener = Listener::new(&daemon);
    let (stop, track, flooded) = thread::scope(|scope| {
        let stop = scope.spawn(|| send(&daemon, "stop", 20));
        let track = scope.spawn(|| send(&daemon, "track", 20));
        let mut client = daemon.client();
        let flood = client.register(&best_effort("scene", "flood")).expect("best effort");
        let mut ids = Vec::new();
        for _ in 0..250 {
            ids.push(client.submit(&flood, &[2.0; 3]).expect("sent"));
            // More than twice what the worker could do for it alone.
            pause(Duration::from_millis(15));
        }
        (stop.join().expect("sent"), track.join().expect("sent"), answers(&mut client, &ids))
    });
    let served = |outcomes: &[Outcome]| outcomes.iter().filter(|outcome| outcome.result().is_some()).count();
    listener.kept_or_told("stop", served(&stop) == stop.len(), &stop);
    let pairs = track.windows(2).all(|pair| served(pair) >= 1);
    listener.kept_or_told("track", pairs, &track);
    // What is left of the worker goes to the flood: some 70 % of its time, of batches of 40 ms each.
    assert!(served(&flooded) >= 20, "{} of {}", served(&flooded), flooded.len());
    assert!(served(&flooded) < flooded.len(), "it was no flood");
    let status = daemon.status();
    let services = status["services"].as_array().expect("services");
    assert!(services.iter().all(|service| service["device"] == "box" && service["workers"] == 1), "{status}");
}

/// What STATUS says of two services after a batch of `scene`, which takes 700 ms longer than it may and is counted; `stop` has this deadline.
fn texts_behind_an_overrun(deadline: &str) -> [String; 2] {
    let place = Deployment::new(format!(
        "{DAEMON}[[device]]\nname = \"box\"\n{}{}",
        service("stop", 10, deadline, CLOSE),
        service("scene", 760, "30s", "")
    ));
    place.succeed(&["profile", "--quick", "--samples", "3"]);
    place.set_variant_bounds(&[[10], [760]], &[[60], [60]]);
    let daemon = place.serve();
    let mut client = daemon.client();
    let scene = client.register(&best_effort("scene", "any")).expect("best effort");
    let id = client.submit(&scene, &[1.0; 3]).expect("sent");
    answers(&mut client, &[id]);
    let status = daemon.status();
    assert_eq!(
        [0, 1].map(|service| status["services"][service]["overruns"].as_u64()),
        [Some(0), Some(1)],
        "{status}"
    );
    [0, 1].map(|service| {
        let text = status["services"][service]["safe_mode"]["text"].as_str();
        text.unwrap_or_default().to_owned()
    })
}

#[test]
fn the_service_whose_batch_harms_the_others_is_named_to_them() {
    let [stop, scene] = texts_behind_an_overrun("800ms");
    assert!(stop.starts_with("service-overrun: a batch of service scene took"), "{stop}");
    assert!(scene.starts_with("service-overrun: a batch took"), "{scene}");
}

#[test]
fn a_batch_that_takes_longer_within_the_margin_of_its_device_puts_nobody_into_safe_mode() {
    let texts = texts_behind_an_overrun("20s");
    assert!(!texts.iter().any(|text| text.starts_with("service-overrun")), "{texts:?}");
}

#[test]
fn a_stream_is_admitted_beside_what_all_services_of_the_device_have_promised() {
    let daemon = deployment(DAEMON, [60, 70, 90]).serve();
    let mut client = daemon.client();
    let every = |name: &str, period: u64| {
        Registration::builder("scene", name)
            .constraint(Constraint::any_miss(0, 1))
            .arrivals(ArrivalBound::window(1, Duration::from_millis(period)))
            .build()
            .expect("it fits")
    };
    // Stop and track take 0.3 + 0.175 of the worker's time: 90 ms in 150 are more than there is.
    let (code, text) = refusal(client.register(&every("fast", 150)));
    assert_eq!(code, RefusalCode::NotAdmissible, "{text}");
    assert!(text.contains("device box") && text.contains("worker"), "{text}");
    // 90 ms in 350 fit, or in 250, but not both.
    let slow = client.register(&every("slow", 350)).expect("it fits beside them");
    assert_eq!(refusal(client.register(&every("another", 250))).0, RefusalCode::NotAdmissible);
    client.unregister(&slow).expect("closed");
    client.register(&every("another", 250)).expect("the place is free again");
}

#[test]
fn a_device_is_planned_certified_and_insisted_on() {
    let place = deployment(&format!("{DAEMON}certificate = \"c.json\"\n"), [60, 70, 90]);
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    let device = &plan["devices"][0];
    assert_eq!(
        (&device["rule"], &device["longest_ns"]),
        (&"deadline".into(), &90_000_000.into()),
        "{device}"
    );
    assert!(device["overrun_margin_ns"].as_u64().is_some_and(|margin| margin > 0), "{device}");
    let text = place.succeed(&["plan"]);
    for words in ["of device box, shared", "device box: 1 worker(s) for stop, track, scene", "Theorem E"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    place.succeed(&["certify"]);
    let certificate: Value =
        serde_json::from_str(&std::fs::read_to_string(place.path("c.json")).expect("written")).expect("JSON");
    assert_eq!(
        (&certificate["weir_certificate"], &certificate["services"]),
        (&2.into(), &Value::Array(vec![]))
    );
    assert_eq!(certificate["devices"][0]["device"]["services"][1]["name"], "track");
    drop(place.serve());
    // Another time than was certified.
    place.set_variant_bounds(&[[10], [20], [40]], &[[60], [70], [95]]);
    let text = place.fail(&["serve"]);
    assert!(text.contains("service scene: profile is") && text.contains("weir certify"), "{text}");
}

#[test]
fn what_cannot_be_promised_together_is_refused_with_what_stands_in_its_way() {
    // Of 200 ms, 150 for stop and every other time 150 for track.
    let place = deployment(DAEMON, [150, 150, 160]);
    let text = place.fail(&["plan"]);
    assert!(text.contains("device box: not every promise can be kept"), "{text}");
    let text = place.fail(&["serve"]);
    assert!(text.contains("device box: not every promise can be kept"), "{text}");
    // It is in the certificate, which is genuine and promises nothing.
    place.weir(&["certify", "--output", place.path("c.json").to_str().expect("UTF-8")]);
    let text = std::fs::read_to_string(place.path("c.json")).expect("written");
    let certificate: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(certificate["devices"][0]["admissible"], false, "{text}");
}

#[test]
fn a_batch_of_the_longest_service_that_is_too_long_for_another_is_named() {
    // A batch of the scene may take 450 ms; stop has 500 after its guard, and needs 60 of them.
    let text = deployment(DAEMON, [60, 70, 450]).fail(&["plan"]);
    assert!(text.contains("device box") && text.contains("stop"), "{text}");
}

#[test]
fn a_device_is_taken_over_with_services_that_are_new_and_gone_while_its_promises_are_kept() {
    quiet();
    let place = deployment(&daemon_in_real_time(), [60, 70, 90]);
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let config = std::fs::read_to_string(place.config()).expect("written");
    let scene = service("scene", 40, "3s", "queue = 40\n");
    let changes = [
        ("deadline = \"3s\"".to_owned(), "deadline = \"2s\"".to_owned(), "service scene: "),
        ("name = \"box\"".to_owned(), "name = \"box\"\nrule = \"turns\"".to_owned(), "service stop: "),
        (scene.replace("3s", "2s"), service("extra", 5, "3s", ""), "service scene: gone"),
    ];
    let (stop, track) = thread::scope(|scope| {
        let stop = scope.spawn(|| send(&daemon, "stop", 60));
        let track = scope.spawn(|| send(&daemon, "track", 60));
        let mut client = daemon.client();
        let flood = client.register(&best_effort("scene", "flood")).expect("best effort");
        let mut config = config;
        for (index, (from, to, told)) in changes.iter().enumerate() {
            assert!(config.contains(from), "{from}");
            config = config.replacen(from, to, 1);
            let mut ids = Vec::new();
            if index < 2 {
                for _ in 0..40 {
                    ids.push(client.submit(&flood, &[2.0; 3]).expect("sent"));
                }
            } else {
                client.unregister(&flood).expect("given back");
            }
            place.configure(&config);
            let output = daemon.reload_accepted();
            assert!(output.contains(told), "{output}");
            // What waited of it was cancelled; nothing is without an answer.
            assert_eq!(answers(&mut client, &ids).len(), ids.len());
        }
        let extra = client.register(&best_effort("extra", "any")).expect("it is there now");
        let id = client.submit(&extra, &[1.0; 3]).expect("sent");
        assert!(answers(&mut client, &[id])[0].result().is_some());
        let gone = client.register(&best_effort("scene", "flood"));
        assert_eq!(refusal(gone).0, RefusalCode::UnknownService);
        (stop.join().expect("sent"), track.join().expect("sent"))
    });
    let served = |outcomes: &[Outcome]| outcomes.iter().filter(|outcome| outcome.result().is_some()).count();
    listener.kept_or_told("stop", served(&stop) == stop.len(), &stop);
    listener.kept_or_told("track", track.windows(2).all(|pair| served(pair) >= 1), &track);
    let status = daemon.status();
    let names: Vec<_> = status["services"].as_array().expect("a list").iter().map(|s| &s["name"]).collect();
    assert_eq!(names, ["stop", "track", "extra"], "{status}");
    // What a service has served counts, whichever device it was on.
    assert_eq!(status["services"][0]["served"], served(&stop), "{status}");
}

#[test]
fn nobody_who_holds_a_stream_of_a_device_is_promised_less_by_another() {
    let place = deployment(DAEMON, [60, 70, 90]);
    let daemon = place.serve();
    let mut client = daemon.client();
    let held = Registration::builder("scene", "slow")
        .constraint(Constraint::any_miss(0, 1))
        .arrivals(ArrivalBound::window(1, Duration::from_millis(350)))
        .build()
        .expect("it fits");
    let stream = client.register(&held).expect("beside the others");
    let config = std::fs::read_to_string(place.config()).expect("written");
    let scene = service("scene", 40, "3s", "queue = 40\n");
    let more = CLOSE.replace("200ms", "300ms");
    let alone = scene.replace("device = \"box\"\n", "");
    for (to, told) in [
        (scene.replace("3s", "4s"), "scene: stream slow is held: its deadline is 3.00 s, the new one 4.00 s"),
        (format!("{scene}{more}"), "scene: stream slow is held and could not be promised any more: "),
        (String::new(), "service scene is to go, but these streams are held: slow"),
        (alone, "service scene runs on device box, and on workers of its own from the next start on"),
    ] {
        place.configure(config.replace(&scene, &to));
        let output = daemon.reload_refused();
        assert!(output.contains(told), "{told}: {output}");
    }
    // It goes on as it was, and takes what leaves it as it was promised.
    place.configure(config.replace("deadline = \"800ms\"", "deadline = \"750ms\""));
    let output = daemon.reload_accepted();
    assert_eq!(output.lines().count(), 1, "the others change nothing for anybody: {output}");
    let id = client.submit(&stream, &[1.0; 3]).expect("sent");
    assert!(answers(&mut client, &[id])[0].result().is_some());
    let status = daemon.status();
    assert_eq!(status["services"][2]["streams"][0]["name"], "slow", "{status}");
}

#[test]
fn what_the_workers_of_a_device_load_is_counted_and_bounded() {
    let service = |name: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\ndevice = \"box\"\nmodel = \"digits-{name}\"\ndeadline = \"20s\"\nmax-batch = 1\n"
        )
    };
    let manifest = repository("models/manifest.toml");
    let config = format!(
        "{DAEMON}models = {manifest:?}\n[[device]]\nname = \"box\"\nworkers = 2\n{}{}",
        service("xs"),
        service("s")
    );
    let place = Deployment::new(&config);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let bytes = |name: &str| {
        std::fs::metadata(repository(&format!("models/digits-{name}.onnx"))).expect("shipped").len()
    };
    let all = 2 * (bytes("xs") + bytes("s"));
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    assert_eq!(plan["devices"][0]["model_bytes"], all, "{plan}");
    place.configure(config.replace("workers = 2", &format!("workers = 2\nmax-memory = {}", all - 1)));
    let text = place.fail(&["plan"]);
    let told =
        format!("device box: its worker(s) load model files of {all} bytes in all, max-memory = {}", all - 1);
    assert!(text.contains(&told), "{text}");
}

/// A better variant answers where it is in nobody's way: no longer than the longest batch of the device, which the other service has.
#[test]
fn in_lulls_better_variants_answer_on_a_shared_worker_too() {
    quiet();
    let line = |ms: u64| format!("times = [\"{ms}ms\"]");
    let variants = format!(
        "{}, accuracy = 0.6, input = 3, output = 3, variants = [{{ {}, accuracy = 0.8 }}, {{ {}, accuracy = 0.9 }}]",
        line(10),
        line(20),
        line(30)
    );
    let stop =
        service("stop", 10, "2s", CLOSE).replace("times = [\"10ms\"], input = 3, output = 3", &variants);
    let config = |select: &str| {
        format!(
            "{DAEMON}[[device]]\nname = \"box\"\n{}{}",
            stop.replace("guard", &format!("{select}guard")),
            service("scene", 40, "3s", "")
        )
    };
    let place = Deployment::new(config(""));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    // The best is longer than any batch that the promises are computed with.
    place.set_variant_bounds(&[[10], [20], [30], [40]], &[[60], [200], [400], [300]]);
    let plan = place.succeed(&["plan"]);
    assert!(plan.contains("select = accurate: in a lull a batch may take up to 300.0 ms"), "{plan}");
    assert!(plan.contains("P(1) = 400.0 ms, P(1) = 400.0 ms: never"), "{plan}");
    let certificate: Value = serde_json::from_str(&place.succeed(&["certify", "--json"])).expect("JSON");
    let told = &certificate["devices"][0]["device"]["services"][0]["variants"];
    assert_eq!(told.as_array().map(Vec::len), Some(2), "{certificate}");
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let outcomes = send(&daemon, "stop", 15);
    let answered: Vec<_> =
        outcomes.iter().map(|outcome| outcome.result().map(|result| result.variant)).collect();
    assert!(answered.contains(&Some(1)) && !answered.contains(&Some(2)), "{answered:?}");
    listener.kept_or_told("stop", answered.iter().all(Option::is_some), &outcomes);
    let status = daemon.status()["services"][0].clone();
    let count = |variant: u16| answered.iter().filter(|answer| **answer == Some(variant)).count();
    assert_eq!(
        (&status["select"], &status["variants"][1]["answered"]),
        (&"accurate".into(), &count(1).into()),
        "{status}"
    );
    drop(daemon);
    place.configure(config("select = \"base\"\n"));
    assert!(
        send(&place.serve(), "stop", 3)
            .iter()
            .all(|outcome| outcome.result().is_none_or(|result| result.variant == 0))
    );
    place.configure(config("select = \"planned\"\n"));
    assert!(
        place
            .fail(&["check"])
            .contains("service[0].select = \"planned\": is for workers of the service's own")
    );
}
