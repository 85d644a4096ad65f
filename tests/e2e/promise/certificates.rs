//! Around the promise: certificates written, checked, replayed, insisted on; arrivals recorded and simulated.

use std::process::{Command, Output};
use std::time::Duration;

use crate::harness::prover::prover;
use crate::harness::{
    Deployment, alone, answers, best_effort, daemon_in_real_time, eventually, pause, stderr, weir,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use weir_client::blocking::Client;
use weir_client::{ArrivalBound, Constraint, Registration};

/// The problem of the documentation, with a count of requests in its window and of workers.
fn problem(count: u64, workers: u64) -> Value {
    json!({
        "unit": "us", "deadline": 6000, "guard": 0, "dispatch": "full-or-latest",
        "workers": [{ "count": workers, "batch": 1, "time": 2000 }],
        "streams": [
            { "name": "cam0", "constraints": ["any_miss(1,2)"], "arrivals": { "windows": [[count, 4000]] } },
            { "name": "imu", "constraints": ["row_miss(1)"],
              "arrivals": { "periodic": { "period": 5000, "jitter": 500 } } },
        ],
    })
}

/// A folder with files, in which `weir` is run.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new(files: &[(&str, String)]) -> Self {
        let desk = Self(tempfile::tempdir().expect("a folder"));
        for (name, text) in files {
            std::fs::write(desk.0.path().join(name), text).expect("written");
        }
        desk
    }

    fn weir(&self, arguments: &[&str]) -> Output {
        Command::new(weir()).args(arguments).current_dir(self.0.path()).output().expect("weir can be run")
    }

    fn json(&self, arguments: &[&str]) -> (bool, Value) {
        let output = self.weir(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = serde_json::from_str(&text);
        (output.status.success(), value.unwrap_or_else(|e| panic!("{e}: {text}{}", stderr(&output))))
    }
}

#[test]
fn a_promise_is_certified_and_the_certificate_verified_but_for_one_digit() {
    let desk = Desk::new(&[("p.json", problem(2, 2).to_string())]);
    let (promised, answer) = desk.json(&["certify", "--problem", "p.json", "--json", "-o", "c.json"]);
    assert!(promised && answer["admissible"] == true, "{answer}");
    assert_eq!(answer["binding"], json!({ "delta": 0, "backlog": 2, "lhs": 4000, "rhs": 6000 }));
    assert_eq!(answer["streams"][0]["density"], json!([1, 2]));
    assert!(answer["max_load_scale"].as_f64().is_some_and(|scale| scale > 1.0), "{answer}");
    let (verified, verdict) = desk.json(&["verify", "c.json", "--json"]);
    assert!(verified && verdict["promised"] == 1, "{verdict}");
    let path = desk.0.path().join("c.json");
    let text = std::fs::read_to_string(&path).expect("written");
    std::fs::write(&path, text.replacen("\"lhs\": 4000", "\"lhs\": 4001", 1)).expect("written");
    let refused = desk.weir(&["verify", "c.json"]);
    assert!(!refused.status.success() && stderr(&refused).contains("digest"), "{}", stderr(&refused));
}

#[test]
fn a_refusal_comes_with_arrivals_that_replay_to_a_violation() {
    let desk = Desk::new(&[("p.json", problem(9, 1).to_string())]);
    let (promised, answer) = desk.json(&["certify", "--problem", "p.json", "--json", "-o", "c.json"]);
    assert!(!promised && answer["admissible"] == false, "{answer}");
    assert_eq!(answer["refutation"]["shows"], "violation");
    let (replayed, shown) = desk.json(&["replay", "c.json", "--json"]);
    assert!(replayed, "{shown}");
    assert_eq!(shown[0]["replay"]["broken"]["shows"], "violation");
    assert!(desk.weir(&["verify", "c.json"]).status.success(), "it promises nothing, and that is right");
}

#[test]
fn arrivals_are_simulated_request_by_request() {
    let csv = "time,stream\n0,cam0\n0,cam0\n100,imu\n4000,cam0\n";
    let desk = Desk::new(&[("p.json", problem(2, 1).to_string()), ("a.csv", csv.to_owned())]);
    let arguments = ["simulate", "--problem", "p.json", "--arrivals", "a.csv", "--policy", "weir", "--json"];
    let (held, report) = desk.json(&arguments);
    assert!(held, "{report}");
    let requests = report["requests"].as_array().expect("requests");
    let told: Vec<_> =
        requests.iter().map(|r| (r["stream"].as_str(), r["start"].as_u64(), r["finish"].as_u64())).collect();
    // Batches of one are full at once: the mandatory second request of cam0 goes first, the others in turn.
    assert_eq!(
        told,
        [
            (Some("cam0"), Some(2000), Some(4000)),
            (Some("cam0"), Some(0), Some(2000)),
            (Some("imu"), Some(4000), Some(6000)),
            (Some("cam0"), Some(6000), Some(8000)),
        ]
    );
    assert_eq!(report["streams"][0]["constraints"][0]["constraint"], "any_miss(1,2)");
    let refused = desk.weir(&["simulate", "--problem", "p.json", "--arrivals", "a.csv", "--policy", "luck"]);
    assert!(stderr(&refused).contains("weir"), "the policies are listed: {}", stderr(&refused));
}

#[test]
fn nonsense_is_refused_with_field_value_and_limit() {
    let mut bad = problem(2, 2);
    bad["streams"][0]["constraints"] = json!(["any_miss(2,2)"]);
    let desk = Desk::new(&[("p.json", bad.to_string())]);
    let message = stderr(&desk.weir(&["certify", "--problem", "p.json"]));
    assert!(message.contains("p.json") && message.contains("streams[0].constraints[0]"), "{message}");
    assert!(message.contains("m = 2") && message.contains("below K"), "{message}");
    let desk = Desk::new(&[
        ("p.json", problem(2, 2).to_string()),
        ("none.csv", "# weir: arrivals at service echo\ntime,stream\n".to_owned()),
    ]);
    let message = stderr(&desk.weir(&["certify", "--problem", "p.json", "--arrivals", "none.csv"]));
    assert!(message.contains("--arrivals = none.csv: the recording has no arrivals"), "{message}");
}

fn service(deadline: &str) -> String {
    let daemon = daemon_in_real_time();
    format!(
        "{daemon}certificate = \"promise.json\"\n[[service]]\nname = \"lanes\"\nengine = \"simulated\"\n\
         simulated = {{ times = [\"5ms\"], input = 4, output = 2 }}\ndeadline = \"{deadline}\"\n\
         guard = \"100ms\"\nhandover = \"0ms\"\nconstraints = [{{ row-miss = 1 }}]\n\
         [[service.stream]]\nname = \"left\"\narrivals = [{{ periodic = {{ period = \"50ms\", jitter = \"10ms\" }} }}]\n"
    )
}

#[test]
fn the_daemon_serves_by_the_certificate_of_its_configuration_and_no_other() {
    let place = Deployment::new(service("400ms")).profiled(&[20]);
    assert!(place.fail(&["serve"]).contains("promise.json"), "there is none yet");
    let told = place.succeed(&["certify"]);
    assert!(told.contains("lanes: admissible") && told.contains("promise.json"), "{told}");
    let path = place.path("promise.json");
    let certificate = std::fs::read_to_string(&path).expect("written");
    let claim: Value = serde_json::from_str(&certificate).expect("JSON");
    let streams = claim["services"][0]["streams"].as_array().expect("streams").len();
    assert_eq!(streams, 2, "the reserved one, and one at the promised rate");
    let daemon = place.serve();
    assert_eq!(daemon.status()["services"][0]["name"], "lanes");
    drop(daemon);
    // Another configuration, another profile, another machine, another digit.
    place.configure(service("401ms"));
    assert!(place.fail(&["serve"]).contains("problem"), "another deadline");
    place.configure(service("400ms"));
    place.set_bounds(&[21]);
    assert!(place.fail(&["serve"]).contains("profile"), "another profile");
    place.set_bounds(&[20]);
    let elsewhere = certificate.replacen("\"cores\": \"", "\"cores\": \"1", 1);
    std::fs::write(&path, elsewhere).expect("written");
    assert!(place.fail(&["serve"]).contains("digest"), "another digit");
    std::fs::write(&path, certificate).expect("written");
    drop(place.serve());
}

#[test]
fn a_certificate_is_of_the_variants_that_may_answer() {
    let configured = |select: &str| {
        let variant = "accuracy = 0.5, variants = [{ times = [\"20ms\"], accuracy = 0.9 }]";
        let base = "times = [\"5ms\"]";
        service("400ms")
            .replace(base, &format!("{base}, {variant}"))
            .replace("guard =", &format!("{select}guard ="))
    };
    let place = Deployment::new(configured(""));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.succeed(&["certify"]);
    drop(place.serve());
    let path = place.path("profile.json");
    let before = std::fs::read_to_string(&path).expect("a profile");
    let mut profile: Value = serde_json::from_str(&before).expect("JSON");
    let entries = profile["entries"].as_array_mut().expect("entries");
    let slower = entries.iter_mut().max_by_key(|entry| entry["batches"][0]["p50_ns"].as_u64()).expect("two");
    slower["batches"][0]["bound_ns"] = json!(90_000_000);
    slower["batches"][0]["max_ns"] = json!(90_000_000);
    std::fs::write(&path, profile.to_string()).expect("written");
    let message = place.fail(&["serve"]);
    assert!(message.contains("service lanes: variants[0], simulated-"), "{message}");
    assert!(message.contains(": profile is ") && message.contains("run `weir certify` again"), "{message}");
    std::fs::write(&path, before).expect("written");
    place.configure(configured("select = \"base\"\n"));
    let message = place.fail(&["serve"]);
    assert!(message.contains("number of variants that may answer is 1, here it is 0"), "{message}");
}

#[test]
fn a_service_that_cannot_be_promised_is_certified_as_refused() {
    let place = Deployment::new(service("130ms")).profiled(&[20]);
    let output = place.weir(&["certify"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && told.contains("lanes: refused"), "{told}{}", stderr(&output));
    assert!(place.fail(&["serve"]).contains("cannot be"), "and not served");
}

/// The service, without a certificate, recording to `path`.
fn recorded(path: &str) -> String {
    let plain = service("400ms").replace("certificate = \"promise.json\"\n", "");
    plain.replace("[[service]]\n", &format!("[[service]]\nrecord = \"{path}\"\nrecord-limit = 6\n"))
}

#[test]
fn what_a_daemon_recorded_is_simulated_by_its_problem() {
    let place = Deployment::new(recorded("a.csv")).profiled(&[20]);
    let mut daemon = place.serve();
    let mut client = daemon.client();
    let own = Registration::builder("lanes", "own")
        .constraint(Constraint::any_miss(1, 4))
        .arrivals(ArrivalBound::window(2, Duration::from_millis(500)))
        .build()
        .expect("it fits the frame");
    let streams = [best_effort("lanes", "left"), own, best_effort("lanes", "who, \"me\"?")];
    let streams = streams.map(|stream| client.register(&stream).expect("a stream"));
    let send = |client: &mut Client| {
        let ids = streams.iter().map(|stream| client.submit(stream, &[0.0; 4]).expect("submitted"));
        ids.collect::<Vec<_>>()
    };
    let ids = send(&mut client);
    answers(&mut client, &ids);
    let read = || std::fs::read_to_string(place.path("a.csv")).expect("a recording");
    // While it serves.
    let early = eventually("three arrivals", || Some(read()).filter(|text| text.contains("who")));
    let ids: Vec<_> = (0..2).flat_map(|_| send(&mut client)).collect();
    answers(&mut client, &ids);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", daemon.stderr());
    let text = read();
    assert!(text.starts_with(&early), "what was written stays");
    // Six lines are a declaration and five arrivals.
    assert!(text.contains("record-limit = 6") && text.ends_with("# 4 arrivals not recorded\n"), "{text}");
    assert!(daemon.stderr().contains("4 arrivals not recorded in "), "{}", daemon.stderr());

    let mut problem: Value =
        serde_json::from_str(&place.succeed(&["plan", "--problem", "lanes"])).expect("JSON");
    assert_eq!(problem["streams"].as_array().map(Vec::len), Some(1), "the reserved one: {problem}");
    let declared = text.lines().find_map(|line| line.strip_prefix("# stream ")).expect("a declaration");
    let declared: Value = serde_json::from_str(declared).expect("JSON");
    problem["streams"].as_array_mut().expect("a list").push(declared);
    let desk = Desk::new(&[("p.json", problem.to_string()), ("a.csv", text)]);
    let simulated = desk.weir(&["simulate", "--problem", "p.json", "--arrivals", "a.csv"]);
    assert!(stderr(&simulated).contains("a.csv: 4 arrivals were not recorded"), "{}", stderr(&simulated));
    let (held, report) = desk.json(&["simulate", "--problem", "p.json", "--arrivals", "a.csv", "--json"]);
    assert!(held && report["by_variant"].is_null(), "{report}");
    let streams: Vec<_> = report["streams"].as_array().expect("streams").iter().collect();
    let told = streams.iter().map(|s| (s["name"].as_str().expect("a name"), s["arrived"].as_u64()));
    assert!(told.eq([("left", Some(2)), ("own", Some(2)), ("who, \"me\"?", Some(1))]), "{report}");
    assert_eq!(streams[1]["constraints"][0]["constraint"], "any_miss(1,4)");
    assert!(place.fail(&["plan", "--problem", "lane"]).contains("lanes"), "the services are listed");
}

/// What a daemon did, where it kept its assumptions, is a run of the model in which its promise is proved.
#[test]
fn what_a_daemon_did_is_a_run_of_the_proved_model() {
    let Some(prover) = prover() else { return };
    alone();
    let program = prover.program().display().to_string();
    let kinds = "[[service.workers]]\n[[service.workers]]\nname = \"slow\"\n\
                 simulated = { times = [\"9ms\", \"9ms\"], input = 4, output = 2 }\n";
    let text = |dispatch: &str, kinds: &str| {
        let plain = service("2s").replace("certificate = \"promise.json\"\n", "");
        let own = "arrivals = [{ window = { count = 6, length = \"1s\" } }]\n";
        let burst = plain.split("arrivals =").next().expect("a service").to_owned() + own + kinds;
        // Of several kinds each says it for itself, or has it chosen.
        let batch = if kinds.is_empty() { "batch = 2\n" } else { "" };
        let more = format!("record = \"a.csv\"\nmax-batch = 2\n{batch}dispatch = \"{dispatch}\"\n");
        let slow = burst.replace("handover = \"0ms\"", "handover = \"200ms\"").replace("100ms", "300ms");
        slow.replace("times = [\"5ms\"]", "times = [\"5ms\", \"6ms\"]")
            .replace("deadline =", &(more + "deadline ="))
    };
    for (dispatch, kinds) in [("eager", ""), ("full-or-latest", ""), ("eager", kinds)] {
        let place = Deployment::new(text(dispatch, kinds)).profiled(&[5, 6]);
        if !kinds.is_empty() {
            place.set_bounds_by(|usual| usual + 1);
        }
        std::fs::write(place.path("p.json"), place.succeed(&["plan", "--problem", "lanes"]))
            .expect("written");
        let run = || {
            let mut daemon = place.serve();
            let mut client = daemon.client();
            let streams = ["left", "stranger"].map(|name| best_effort("lanes", name));
            let streams = streams.map(|stream| client.register(&stream).expect("a stream"));
            for _ in 0..2 {
                // Six at once of each, as many as are declared.
                let ids = (0..12).map(|i| client.submit(&streams[i % 2], &[0.0; 4]).expect("submitted"));
                let ids: Vec<_> = ids.collect();
                answers(&mut client, &ids);
                pause(Duration::from_millis(1_100));
            }
            let mode = daemon.status()["services"][0]["safe_mode"].clone();
            daemon.signal(Signal::TERM);
            assert!(daemon.wait().success(), "{}", daemon.stderr());
            mode["sequence"] == 0
        };
        // A machine that is busy otherwise may be late by more than is kept back, and the daemon says so.
        assert!((0..4).any(|_| run()), "safe mode each time: the machine is too busy for this test");
        let path = |name: &str| place.path(name).display().to_string();
        let accept = |proved: &str| {
            let arguments = ["accept", "--problem", &path("p.json"), "--proved", proved, &path("a.csv")];
            Command::new(weir()).args(arguments).output().expect("weir can be run")
        };
        let said = accept(&program);
        let told = String::from_utf8_lossy(&said.stdout).into_owned();
        let log = std::fs::read_to_string(place.path("a.csv")).expect("a recording");
        assert!(
            said.status.success() && told.contains("a run of the model"),
            "{told}{}\n{log}",
            stderr(&said)
        );
        assert!(log.lines().filter(|line| line.starts_with("# start,")).count() >= 4, "{log}");
        // A first batch that ends an hour later is no run of it.
        let (before, _) = log.split_once("# end,").expect("an end");
        std::fs::write(place.path("a.csv"), format!("{before}# end,3600000000000,0\n")).expect("written");
        let said = stderr(&accept(&program));
        assert!(said.contains("the model does not allow it"), "{said}");
        assert!(stderr(&accept("nowhere")).contains("`make proof` builds it"));
    }
}

#[test]
fn a_promise_is_confirmed_by_the_proved_checker_and_a_simulation_by_the_model() {
    let Some(prover) = prover() else { return };
    let program = prover.program().display().to_string();
    let arrivals = "0,cam0\n0,cam0\n0,imu\n0,nobody\n4000,cam0\n4000,cam0\n5000,imu\n".to_owned();
    let mut open = problem(2, 2);
    open["background"] = true.into();
    let desk = Desk::new(&[("p.json", open.to_string()), ("a.csv", arrivals)]);
    desk.json(&["certify", "--problem", "p.json", "--json", "-o", "c.json"]);
    let proved = format!("--proved={program}");
    let (verified, verdict) = desk.json(&["verify", "c.json", "--json", &proved]);
    assert!(verified && verdict["proved"] == 1, "{verdict}");
    let told = desk.weir(&["verify", "c.json", &proved]);
    assert!(String::from_utf8_lossy(&told.stdout).contains("proved: 1 claim(s)"), "{}", stderr(&told));
    // Without background the refinement decides, of which there is no proof by machine.
    let closed = json!({
        "unit": "ms", "deadline": 7, "workers": [{ "count": 1, "batch": 1, "time": 3 }],
        "streams": [{ "name": "pedal", "constraints": ["row_miss(0)"], "arrivals": { "windows": [[2, 8]] } }],
    });
    std::fs::write(desk.0.path().join("closed.json"), closed.to_string()).expect("written");
    desk.json(&["certify", "--problem", "closed.json", "--json", "-o", "c.json"]);
    let (verified, verdict) = desk.json(&["verify", "c.json", "--json", &proved]);
    assert!(!verified && verdict["error"].as_str().is_some_and(|e| e.contains("refinement")), "{verdict}");
    let pipeline = json!({
        "unit": "ms", "deadline": 9, "background": true,
        "pipeline": [
            { "name": "first", "workers": 1, "batch": 1, "time": 1 },
            { "name": "second", "parent": "first", "workers": 1, "batch": 1, "time": 1 },
        ],
        "streams": [{ "name": "cam", "constraints": ["row_miss(0)"], "arrivals": { "windows": [[6, 20]] } }],
    });
    std::fs::write(desk.0.path().join("pipeline.json"), pipeline.to_string()).expect("written");
    desk.json(&["certify", "--problem", "pipeline.json", "--json", "-o", "c.json"]);
    let (verified, verdict) = desk.json(&["verify", "c.json", "--json", &proved]);
    assert!(verified && verdict["proved"] == 1, "{verdict}");
    let log = ["simulate", "--problem", "p.json", "--arrivals", "a.csv", "--log", "l.csv"];
    assert!(desk.weir(&log).status.success());
    let accept = ["accept", "--problem", "p.json", "--proved", &program, "l.csv"];
    let said = desk.weir(&accept);
    assert!(said.status.success(), "{}", stderr(&said));
}

/// A recording of a service with variants is replayed with its selection.
#[test]
fn arrivals_are_simulated_with_the_selection_of_a_configuration() {
    let place = |select: &str| {
        let base = "times = [\"5ms\"]";
        let variant = "accuracy = 0.5, variants = [{ times = [\"20ms\"], accuracy = 0.9 }]";
        let plain = service("400ms").replace("certificate = \"promise.json\"\n", "");
        plain.replace(base, &format!("{base}, {variant}")).replace("guard =", &format!("{select}guard ="))
    };
    let desk = Deployment::new(place(""));
    desk.succeed(&["profile", "--quick", "--samples", "10"]);
    std::fs::write(desk.path("p.json"), desk.succeed(&["plan", "--problem", "lanes"])).expect("written");
    let arrivals: String = (0..20).map(|i| format!("{},left\n", i * 60_000_000u64)).collect();
    std::fs::write(desk.path("a.csv"), arrivals).expect("written");
    let path = |name: &str| desk.path(name).display().to_string();
    let select = format!("lanes={}", path("weir.toml"));
    let simulate = |select: &str| {
        let arguments = ["simulate", "--problem", &path("p.json"), "--arrivals", &path("a.csv"), "--json"];
        let more = ["--select", select];
        Command::new(weir()).args(arguments).args(more).output().expect("weir can be run")
    };
    // Tables have the first of which nothing is known answered by the base, which nothing else is in the way of either.
    for (mode, first) in [("", 0), ("select = \"planned\"\n", 2), ("select = \"auto\"\n", 2)] {
        desk.configure(place(mode));
        let output = simulate(&select);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(output.status.success(), "{}", stderr(&output));
        let by: Vec<u64> = serde_json::from_value(report["by_variant"].clone()).expect("numbers");
        assert!(by[0] <= first && by[0] + by[1] == 20, "nothing is in the way: {report}");
    }
    desk.configure(place("select = \"base\"\n"));
    assert!(stderr(&simulate(&select)).contains("the base answers alone"));
    let other = stderr(&simulate(&select.replace("lanes=", "lane=")));
    assert!(other.contains("--select = lane: must be one of the services, lanes"), "{other}");
}

#[test]
fn a_recording_that_cannot_be_created_is_told_with_field_and_path() {
    let place = Deployment::new(recorded("nowhere/a.csv")).profiled(&[20]);
    let message = place.fail(&["serve"]);
    assert!(message.contains("lanes: record = ") && message.contains("nowhere/a.csv: cannot"), "{message}");
}
