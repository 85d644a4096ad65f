//! A daemon takes its configuration over anew while it serves: connections, streams and promises go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{
    DAEMON, Deployment, Listener, answers, best_effort, eventually, one_in_three, pause, repository, sequence,
};
use rustix::process::Signal;
use weir_client::{ArrivalBound, Constraint, Outcome, RefusalCode, Registration, RequestId};

/// One service that answers in `time` within `deadline`, in milliseconds; `more` is put after it.
fn config(time: u64, deadline: u64, more: &str) -> String {
    format!("{DAEMON}{}{more}", service("lanes", time, deadline))
}

fn service(name: &str, time: u64, deadline: u64) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\nmax-batch = 1\nguard = \"100ms\"\n\
         deadline = \"{deadline}ms\"\nsimulated = {{ times = [\"{time}ms\"], input = 4, output = 4 }}\n"
    )
}

fn profiled(config: &str) -> Deployment {
    let place = Deployment::new(config);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place
}

/// At most one of any three missed, at most one request in `length`.
fn strict(stream: &str, length: Duration) -> Registration {
    Registration::builder("lanes", stream)
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(1, length))
        .build()
        .expect("it fits")
}

#[test]
fn a_stream_goes_on_under_another_configuration() {
    // What is promised must not depend on the host: all three are profiled, with bounds of the test's own.
    let all = format!("{}{}", service("two", 2, 2_000), service("eight", 8, 2_000));
    let place = profiled(&config(4, 2_000, &all));
    place.set_variant_bounds(&[[2], [4], [8]], &[[12], [14], [18]]);
    place.configure(config(4, 2_000, ""));
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let sending = Arc::new(AtomicBool::new(true));
    let sender = {
        let (mut client, sending) = (daemon.client(), Arc::clone(&sending));
        std::thread::spawn(move || {
            let stream = client.register(&strict("cam", Duration::from_millis(20))).expect("admitted");
            let mut outcomes = Vec::new();
            while sending.load(Ordering::Relaxed) {
                outcomes.push(client.infer(&stream, &[0.5; 4]).expect("an answer"));
                pause(Duration::from_millis(20));
            }
            outcomes
        })
    };
    // Others ask for as much as they can meanwhile, and are promised nothing.
    let flood = {
        let (mut client, sending) = (daemon.client(), Arc::clone(&sending));
        std::thread::spawn(move || {
            let stream = client.register(&best_effort("lanes", "flood")).expect("a stream");
            let (mut sent, mut last) = (0u64, 0);
            while sending.load(Ordering::Relaxed) {
                let ids: Vec<RequestId> =
                    (0..8).map(|_| client.submit(&stream, &[0.0; 4]).expect("submitted")).collect();
                sent += 8;
                last = answers(&mut client, &ids).iter().map(sequence).max().unwrap_or(last);
            }
            (sent, last)
        })
    };
    pause(Duration::from_millis(200));
    for (time, deadline) in [(2, 1_500), (8, 1_500), (4, 1_000)] {
        place.configure(config(time, deadline, ""));
        let told = daemon.reload_accepted();
        assert!(told.starts_with("service lanes: simulated-"), "{told}");
        let status = daemon.status();
        assert_eq!(status["services"][0]["deadline_ns"], deadline * 1_000_000, "{status}");
        pause(Duration::from_millis(200));
    }
    assert_eq!(daemon.reload_accepted(), "nothing has changed\n");
    sending.store(false, Ordering::Relaxed);
    let outcomes = sender.join().expect("no panic");
    let (sent, last) = flood.join().expect("no panic");
    assert_eq!(last, sent - 1, "every request has a number and an answer");
    assert!(outcomes.iter().map(sequence).eq(0..outcomes.len() as u64), "the numbers go on");
    let hit = |outcome: &Outcome| matches!(outcome, Outcome::Result(_));
    let kept = one_in_three(outcomes.iter().map(hit));
    listener.kept_or_told("lanes", kept, &outcomes);
    assert!(outcomes.iter().filter(|o| hit(o)).count() * 2 > outcomes.len());
    assert_eq!(daemon.status()["reload"]["sequence"], 4);
}

#[test]
fn nobody_who_holds_a_stream_is_promised_less() {
    let place = profiled(&config(4, 2_000, ""));
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&strict("cam", Duration::from_millis(20))).expect("admitted");
    for (wrong, reason) in [
        (config(4, 3_000, ""), "stream cam is held: its deadline is 2.00 s, the new one 3.00 s"),
        (config(50, 2_000, ""), "stream cam is held and could not be promised any more"),
        (
            format!("{DAEMON}{}", service("other", 4, 2_000)),
            "service lanes is to go, but these streams are held: cam",
        ),
        (config(4, 2_000, "").replace("input = 4", "input = 5"), "takes or gives other tensors than"),
        (config(4, 2_000, "").replace("4ms", "4 apples"), "apples"),
    ] {
        place.configure(wrong);
        let told = daemon.reload_refused();
        assert!(told.contains(reason) && told.contains("everything goes on as it was"), "{told}");
        assert!(matches!(client.infer(&stream, &[0.0; 4]).expect("an answer"), Outcome::Result(_)));
    }
    // Who holds nothing stands in nobody's way.
    client.unregister(&stream).expect("given up");
    place.configure(config(4, 3_000, ""));
    daemon.reload_accepted();
    assert_eq!(daemon.status()["services"][0]["deadline_ns"], 3_000_000_000u64);
}

/// A reserved stream that nobody has taken may be promised whatever, beside one that somebody holds.
#[test]
fn what_nobody_holds_may_be_promised_less() {
    let reserved = |name: &str, misses: u32| {
        format!(
            "[[service.stream]]\nname = \"{name}\"\nconstraints = [{{ any-miss = {{ m = {misses}, k = 4 }} }}]\n\
             arrivals = [{{ window = {{ count = {misses}, length = \"100ms\" }} }}]\n"
        )
    };
    let with = |held: u32, free: u32| config(4, 2_000, &(reserved("held", held) + &reserved("free", free)));
    let place = profiled(&with(1, 1));
    let daemon = place.serve();
    let mut client = daemon.client();
    let held = client.register(&best_effort("lanes", "held")).expect("reserved");
    let promised = |name: &str| daemon.stream_status(name)["constraints"][0].clone();

    place.configure(with(1, 2));
    daemon.reload_accepted();
    assert_eq!((promised("held"), promised("free")), ("any_miss(1,4)".into(), "any_miss(2,4)".into()));
    assert!(matches!(client.infer(&held, &[0.0; 4]).expect("an answer"), Outcome::Result(_)));

    client.unregister(&held).expect("given up");
    client.register(&best_effort("lanes", "free")).expect("reserved");
    // None at all, of what nobody holds.
    place.configure(config(4, 2_000, &reserved("free", 2)));
    daemon.reload_accepted();
    let streams = daemon.status()["services"][0]["streams"].clone();
    assert_eq!(streams.as_array().map(Vec::len), Some(1), "{streams}");
}

/// What is promised to a reserved stream is the configuration's: a wider declaration, weaker constraints and a later deadline
/// are taken over while it is held, and it is policed by the new declaration from that instant on.
#[test]
fn a_reserved_stream_that_is_held_may_be_promised_what_is_weaker() {
    let reserved = |misses: u32, count: u32| {
        format!(
            "[[service.stream]]\nname = \"cam\"\nconstraints = [{{ any-miss = {{ m = {misses}, k = 4 }} }}]\n\
             arrivals = [{{ window = {{ count = {count}, length = \"10s\" }} }}]\n"
        )
    };
    let with = |deadline: u64, misses: u32, count: u32| config(4, deadline, &reserved(misses, count));
    let place = profiled(&with(2_000, 1, 2));
    let daemon = place.serve();
    let mut client = daemon.client();
    let cam = client.register(&best_effort("lanes", "cam")).expect("reserved");
    let status = || daemon.stream_status("cam");
    for _ in 0..2 {
        assert!(matches!(client.infer(&cam, &[0.0; 4]).expect("an answer"), Outcome::Result(_)));
    }
    for (wrong, reason) in [
        (
            with(2_000, 0, 2),
            "stream cam is held: the new configuration reserves it with constraints that are not weaker",
        ),
        (
            with(2_000, 1, 1),
            "stream cam is held: the new configuration reserves it with a declaration that is not wider",
        ),
    ] {
        place.configure(wrong);
        let told = daemon.reload_refused();
        assert!(told.contains(reason), "{told}");
    }
    place.configure(with(2_500, 2, 20));
    let told = daemon.reload_accepted();
    let line = "stream cam, which is held: any_miss(2,4), 20 per 10.0 s; before any_miss(1,4), 2 per 10.0 s";
    assert!(told.lines().any(|told| told == line), "{told}");
    assert_eq!(
        (status()["constraints"][0].clone(), status()["arrived"].clone()),
        ("any_miss(2,4)".into(), 2.into())
    );
    assert_eq!(status()["arrivals"][0], "20 per 10.0 s");
    assert_eq!(daemon.status()["services"][0]["deadline_ns"], 2_500_000_000u64);
    // Ten times as many as were declared before, all of them within that time, and the numbers go on.
    let outcomes: Vec<_> = (0..20).map(|_| client.infer(&cam, &[0.0; 4]).expect("an answer")).collect();
    assert!(outcomes.iter().map(sequence).eq(2..22));
    assert!(status()["suspended"].is_null(), "{}", status());
    client.infer(&cam, &[0.0; 4]).expect("an answer");
    let suspended = status()["suspended"].clone();
    assert!(suspended["text"].as_str().is_some_and(|text| text.contains("21 requests")), "{suspended}");
    // Who holds it next has the same.
    client.unregister(&cam).expect("given up");
    let cam = client.register(&best_effort("lanes", "cam")).expect("reserved");
    assert_eq!(cam.density(), 0.5);
    let weaker = "constraints = [{ any-miss = { m = 2, k = 4 } }]\ndegraded = [[{ row-miss = 3 }]]\n";
    place.configure(with(2_500, 2, 20).replace("constraints = [{ any-miss = { m = 2, k = 4 } }]\n", weaker));
    let told = daemon.reload_accepted();
    let line = "stream cam, which is held: any_miss(2,4), 20 per 10.0 s, degraded-1: row_miss(3); before any_miss(2,4), 20 per 10.0 s";
    assert!(told.lines().any(|told| told == line), "{told}");
}

/// A reload that takes a while says what it is at, to who waits for it and in STATUS.
#[test]
fn who_waits_for_a_reload_is_told_what_it_is_at() {
    let place = profiled(&config(4, 2_000, ""));
    let daemon = place.serve();
    assert!(daemon.status()["reloading"].is_null());
    // A model that was never measured: 300 rounds of 5 ms.
    place.configure(config(4, 2_000, &service("signs", 5, 2_000)));
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| daemon.reload());
        let step = eventually("a round", || {
            let reloading = daemon.status()["reloading"].clone();
            (reloading["done"].as_u64() > Some(0)).then_some(reloading)
        });
        assert!(step["step"].as_str().is_some_and(|step| step.starts_with("measuring ")), "{step}");
        assert_eq!(step["of"], 300, "{step}");
        waiting.join().expect("no panic")
    });
    let told = crate::harness::stderr(&waiting);
    assert!(told.lines().any(|line| line.starts_with("measuring ") && line.ends_with(" of 300")), "{told}");
    assert_eq!(
        String::from_utf8_lossy(&waiting.stdout),
        "service signs: new\n",
        "what has changed stands alone"
    );
    assert!(daemon.status()["reloading"].is_null(), "it is over");
}

#[test]
fn what_takes_effect_and_what_waits_for_the_next_start_is_said_once() {
    let place = profiled(&config(4, 2_000, ""));
    let daemon = place.serve();
    let hooked = config(4, 2_000, "[safe-mode]\nhook = [\"/bin/true\"]\n");
    place.configure(&hooked);
    assert_eq!(daemon.reload_accepted(), "safe-mode.hook: /bin/true\n");
    // A profile elsewhere is read at once, a limit is not.
    std::fs::copy(place.path("profile.json"), place.path("other.json")).expect("copied");
    let elsewhere = hooked.replace("profile.json", "other.json");
    place.configure(&elsewhere);
    assert_eq!(daemon.reload_accepted(), "nothing has changed\n");
    place.configure(elsewhere.replace("realtime = false", "realtime = false\nmax-clients = 32"));
    let told = daemon.reload_accepted();
    assert_eq!(told, "[daemon]: what has changed there takes effect at the next start\n");
    assert_eq!(daemon.reload_accepted(), "nothing has changed\n");
}

#[test]
fn services_come_and_go() {
    let place = profiled(&config(4, 2_000, ""));
    let mut daemon = place.serve();
    let mut client = daemon.client();
    place.configure(config(4, 2_000, &service("signs", 3, 2_000)));
    assert_eq!(daemon.reload_accepted(), "service signs: new\n");
    let signs = client.register(&best_effort("signs", "cam")).expect("a stream");
    assert!(matches!(client.infer(&signs, &[0.0; 4]).expect("an answer"), Outcome::Result(_)));
    client.unregister(&signs).expect("given up");
    place.configure(config(4, 2_000, ""));
    assert_eq!(daemon.reload_accepted(), "service signs: gone\n");
    let gone = client.register(&best_effort("signs", "cam")).expect_err("no such service");
    assert!(matches!(gone, weir_client::Error::Refused(r) if r.code == RefusalCode::UnknownService));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
}

#[test]
fn who_asks_while_a_reload_goes_on_is_told_of_the_next_one() {
    let place = profiled(&config(4, 2_000, ""));
    let daemon = place.serve();
    // The profile has nothing of it: 300 runs come first.
    place.configure(config(4, 2_000, &service("signs", 5, 2_000)));
    daemon.signal(Signal::HUP);
    eventually("the measuring", || daemon.stderr().contains("measuring").then_some(()));
    assert!(daemon.status()["reload"].is_null(), "it goes on");
    place.configure(config(4, 2_000, ""));
    assert_eq!(daemon.reload_accepted(), "service signs: gone\n", "{}", daemon.stderr());
    assert_eq!(daemon.status()["reload"]["sequence"], 2);
}

#[test]
fn reserved_streams_are_those_of_the_new_configuration() {
    let reserved = |name: &str| {
        format!(
            "[[service.stream]]\nname = \"{name}\"\nconstraints = [{{ any-miss = {{ m = 1, k = 3 }} }}]\n\
             arrivals = [{{ window = {{ count = 1, length = \"100ms\" }} }}]\n"
        )
    };
    let with =
        |names: &[&str]| config(4, 2_000, &names.iter().map(|name| reserved(name)).collect::<String>());
    let place = profiled(&with(&["left", "right"]));
    let daemon = place.serve();
    let mut client = daemon.client();
    let left = client.register(&best_effort("lanes", "left")).expect("reserved");
    place.configure(with(&["left", "front"]));
    daemon.reload_accepted();
    let streams = daemon.status()["services"][0]["streams"].clone();
    let names: Vec<_> = streams.as_array().expect("streams").iter().map(|s| s["name"].clone()).collect();
    assert_eq!(names, ["front", "left"]);
    assert!(matches!(client.infer(&left, &[0.0; 4]).expect("an answer"), Outcome::Result(_)));
    client.register(&best_effort("lanes", "front")).expect("reserved now");
}

#[test]
fn a_new_version_of_a_model_is_measured_before_it_takes_over() {
    let place = Deployment::new(format!(
        "{DAEMON}models = \"manifest.toml\"\n[[service]]\nname = \"digits\"\nmodel = \"net\"\ndeadline = \"20s\"\n\
         max-batch = 1\n"
    ));
    let shipped = std::fs::read_to_string(repository("models/manifest.toml")).expect("the manifest");
    let entry = |name: &str, version: u32| {
        let start = shipped.find(&format!("[[model]]\nname = \"{name}\"")).expect("the model");
        let end = shipped[start + 9..].find("[[model]]").map_or(shipped.len(), |next| start + 9 + next);
        let file = format!("{name}.onnx");
        std::fs::copy(repository(&format!("models/{file}")), place.path(&file)).expect("copied");
        shipped[start..end]
            .replace(&format!("name = \"{name}\""), &format!("name = \"net\"\nversion = {version}"))
    };
    let write = |entries: &[String]| {
        std::fs::write(place.path("manifest.toml"), entries.concat()).expect("the manifest is written");
    };
    let (old, new) = (entry("digits-xs", 1), entry("digits-s", 2));
    write(std::slice::from_ref(&old));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("digits", "cam")).expect("a stream");
    let model = || daemon.status()["services"][0]["model"].as_str().expect("a name").to_owned();
    assert_eq!(model(), "net@1");
    // A file that is not what the manifest says is refused, and the old one serves on.
    let content = std::fs::read(place.path("digits-s.onnx")).expect("the model");
    write(&[old, new]);
    std::fs::write(place.path("digits-s.onnx"), &content[1..]).expect("written");
    let told = daemon.reload_refused();
    assert!(told.contains("SHA-256"), "{told}");
    assert_eq!(model(), "net@1");
    std::fs::write(place.path("digits-s.onnx"), &content).expect("written");
    assert!(daemon.reload_accepted().starts_with("service digits: net@2"), "{}", daemon.stderr());
    assert!(daemon.stderr().contains("measuring what the profile does not have: net@2 on tract"));
    assert!(matches!(client.infer(&stream, &[0.0; 784]).expect("an answer"), Outcome::Result(_)));
    // Back by name.
    let text = std::fs::read_to_string(place.config()).expect("the configuration");
    place.configure(text.replace("\"net\"", "\"net@1\""));
    assert!(daemon.reload_accepted().starts_with("service digits: net@1"));
}
