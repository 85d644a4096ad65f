//! Profiles as an operator takes them: beside each other, interrupted and gone on with, checked, drawn.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::prompt::fed;
use crate::harness::{DAEMON, Deployment, best_effort, eventually, repository, stderr, weir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_client::Outcome;

/// A batch of 2 ms, and one of 3 ms.
fn simulated() -> Deployment {
    Deployment::new(format!(
        "{DAEMON}[[service]]\nname = \"a\"\nengine = \"simulated\"\ndeadline = \"1s\"\n\
         simulated = {{ times = [\"2ms\", \"3ms\"], input = 4, output = 4 }}\n"
    ))
}

fn read(place: &Deployment) -> Value {
    let text = std::fs::read_to_string(place.path("profile.json")).expect("a profile");
    serde_json::from_str(&text).expect("the profile is JSON")
}

fn kept(place: &Deployment) -> PathBuf {
    place.path("profile.json.part")
}

/// Starts a measurement of some 800 rounds, and sends it `signal` once blocks of it are kept. What it said.
fn interrupted(place: &Deployment, signal: Signal) -> String {
    let child = Command::new(weir())
        .args(["profile", "--quick", "--samples", "8000"])
        .arg(place.config())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir can be started");
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    let ending = std::thread::spawn(|| child.wait_with_output());
    eventually("blocks that are kept", || {
        let lines = std::fs::read_to_string(kept(place)).map_or(0, |text| text.lines().count());
        (lines >= 3).then_some(())
    });
    kill_process(pid, signal).expect("the signal is sent");
    let output = ending.join().expect("no panic").expect("its end");
    assert!(!output.status.success());
    stderr(&output)
}

#[test]
fn what_is_interrupted_is_gone_on_with() {
    let place = simulated();
    interrupted(&place, Signal::KILL);
    assert!(!place.path("profile.json").exists() && kept(&place).exists());
    let again = place.weir(&["profile", "--quick", "--samples", "8000", "--json"]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert!(stderr(&again).contains("goes on after"), "{}", stderr(&again));
    let told: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    let resumed = told["resumed"].as_u64().expect("a number");
    assert!((2..1600).contains(&resumed), "{resumed}");
    assert_eq!(told["profile"], read(&place));
    for batch in read(&place)["entries"][0]["batches"].as_array().expect("batches") {
        assert_eq!(batch["samples"], 800);
    }
    assert!(!kept(&place).exists());
}

#[test]
fn an_interrupt_says_what_is_kept_and_for_what() {
    let place = simulated();
    let said = interrupted(&place, Signal::INT);
    assert!(said.contains("interrupted") && said.contains("profile.json.part"), "{said}");
    // Another number of runs is another measurement; so is one that is to start over.
    let other = place.weir(&["profile", "--quick", "--samples", "10"]);
    assert!(other.status.success() && stderr(&other).contains("starts over"), "{}", stderr(&other));
    assert_eq!(read(&place)["entries"][0]["batches"][0]["samples"], 1);
    interrupted(&place, Signal::INT);
    let afresh = place.weir(&["profile", "--quick", "--samples", "8000", "--afresh"]);
    assert!(afresh.status.success() && stderr(&afresh).is_empty(), "{}", stderr(&afresh));
}

#[test]
fn models_are_measured_beside_each_other_and_drawn() {
    let manifest = repository("models/manifest.toml");
    let place = Deployment::new(format!(
        "{DAEMON}models = {manifest:?}\n[[service]]\nname = \"a\"\nmodel = \"digits-xs\"\ndeadline = \"1s\"\n\
         workers = 2\nmax-batch = 2\n[[service]]\nname = \"b\"\nmodel = \"digits-s\"\ndeadline = \"1s\"\n\
         max-batch = 1\n"
    ));
    let figures = place.path("figures");
    let folder = figures.to_str().expect("UTF-8");
    // The exceedance is one that the fewest runs reach, so that there are tails.
    place.succeed(&["profile", "--quick", "--samples", "6000", "--exceedance", "0.001", "--figure", folder]);
    let profile = read(&place);
    let entries = profile["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 2);
    for (entry, model) in entries.iter().zip(["digits-s", "digits-xs"]) {
        assert_eq!((entry["model"].as_str(), entry["workers"].as_u64()), (Some(model), Some(3)));
        for batch in entry["batches"].as_array().expect("batches") {
            let number = |field: &str| batch[field].as_u64().expect("a number");
            assert!(number("samples") >= 600, "{batch}");
            assert!(number("bound_ns") >= number("max_ns"), "{batch}");
            assert!(
                ["tail", "rejected", "unsure", "few"].contains(&batch["basis"].as_str().expect("text")),
                "{batch}"
            );
        }
        let figure = std::fs::read_to_string(figures.join(format!("{model}-tract.svg"))).expect("a figure");
        assert!(figure.contains("P(b) ") && figure.contains("measured"), "{figure}");
    }
    place.succeed(&["profile", "--quick", "--samples", "10", "--alone"]);
    assert!(read(&place)["entries"].as_array().expect("entries").iter().all(|entry| entry["workers"] == 1));
    // Every command says the same of it.
    let plan = place.weir(&["plan"]);
    let told = "digits-xs on tract was measured with 1 worker(s) at once, the configuration has 3: its times may be too short";
    assert!(plan.status.success() && stderr(&plan).contains(told), "{}", stderr(&plan));
    let check = place.weir(&["profile", "--check", "--quick"]);
    assert!(stderr(&check).contains(told), "{}", stderr(&check));
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    assert_eq!(plan["workers_differ"].as_array().map(Vec::len), Some(2), "{plan}");
}

#[test]
fn a_profile_is_checked_against_fresh_times() {
    let place = simulated();
    // So many that twenty fresh times can speak against them.
    place.succeed(&["profile", "--quick", "--samples", "500"]);
    place.set_bounds(&[200, 300]);
    let verdict = |code: i32| -> Value {
        let output = place.weir(&["profile", "--check", "--json"]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let held = verdict(0);
    assert_eq!((&held["holds"], held["found"].as_array().map(Vec::len)), (&Value::from(true), Some(2)));
    // Medians that fell to a hundredth are told, and break nothing.
    assert!(held["found"].as_array().expect("found").iter().all(|found| found["moved"] == true));
    let said = place.succeed(&["profile", "--check"]);
    assert!(said.contains("The profile holds."), "{said}");

    place.set_bounds(&[1, 300]);
    let broken = verdict(1);
    let found = |index: usize| &broken["found"][index];
    assert_eq!((&found(0)["too_often"], &found(1)["too_often"]), (&Value::from(true), &Value::from(false)));
    assert_eq!(found(0)["above"], found(0)["samples"]);

    place.set_bounds(&[200, 300]);
    let mut profile = read(&place);
    profile["fingerprint"]["governor"] = Value::from("another");
    std::fs::write(place.path("profile.json"), profile.to_string()).expect("written");
    let elsewhere = verdict(1);
    let difference = elsewhere["differences"][0].as_str().expect("a difference");
    assert!(difference.starts_with("governor: profile another"), "{difference}");
    let output = place.weir(&["profile", "--check"]);
    assert!(stderr(&output).contains("not as profiled: governor"), "{}", stderr(&output));
}

#[test]
fn simulated_times_that_vary_are_measured_as_stated() {
    let place = Deployment::new(format!(
        "{DAEMON}[[service]]\nname = \"a\"\nengine = \"simulated\"\ndeadline = \"1s\"\nsimulated = {{ times = \
         [\"1ms\", {{ bound = \"60ms\", likely = \"4ms\", mean = \"2ms\" }}], input = 4, output = 4 }}\n"
    ));
    place.succeed(&["profile", "--samples", "200"]);
    let profile = read(&place);
    let times = &profile["entries"][0]["batches"][1];
    let ms = |field: &str| times[field].as_f64().expect("a number") / 1e6;
    // A busy machine wakes late, never early: one in a hundred takes the bound, one in nine the likely time.
    assert!(ms("p90_ns") >= 4.0 && ms("max_ns") >= 60.0 && ms("bound_ns") >= 66.0, "{times}");
    assert!(ms("p50_ns") < 60.0 && ms("mean_ns") <= ms("p99_ns"), "{times}");
}

#[test]
fn a_limit_is_kept_whatever_is_missing_then() {
    let place = simulated();
    // Half a minute, if it were not for the limit.
    let said = place.succeed(&["profile", "--samples", "6000", "--limit", "1s"]);
    let samples = read(&place)["entries"][0]["batches"][1]["samples"].as_u64().expect("a number");
    assert!((1..3000).contains(&samples), "{samples}");
    assert!(said.contains(&format!("--limit ended it after {samples} of 6000 rounds")), "{said}");
    let heading = said.lines().find(|line| line.starts_with("model")).expect("a table");
    assert!(heading.contains("engine") && heading.contains("undisturbed"), "{heading}");
    assert!(said.lines().any(|line| line.contains(" simulated ")), "{said}");
}

/// What the machine did is in the profile, and in what a plan says of the batches that it promises by.
#[test]
fn what_disturbed_the_runs_is_written_and_told() {
    let place = simulated();
    place.succeed(&["profile", "--quick", "--samples", "500"]);
    let mut profile = read(&place);
    for batch in profile["entries"][0]["batches"].as_array().expect("batches") {
        let calm = batch["machine"]["longest_calm_ns"].as_u64().expect("it was watched");
        assert!(calm <= batch["max_ns"].as_u64().expect("a number"), "{batch}");
        assert_eq!(batch["machine"]["longest"].as_array().map(Vec::len), Some(8), "{batch}");
    }
    // One run of 900 ms, in which the host had the processor.
    let entry = &mut profile["entries"][0];
    for batch in entry["batches"].as_array_mut().expect("batches") {
        batch["max_ns"] = Value::from(900_000_000);
        batch["longest_ns"][0] = Value::from(900_000_000);
        batch["bound_ns"] = Value::from(990_000_000);
        batch["machine"] = serde_json::json!({
            "disturbed": 1, "stolen": 1, "waited": 0, "paged": 0, "mapped": 0, "slowed": 0,
            "longest_calm_ns": batch["p50_ns"],
            "longest": [["stolen"], [], [], [], [], [], [], []],
        });
    }
    entry["stalls"] =
        serde_json::json!({ "count": 1, "longest_ns": 850_000_000, "closest_ns": 60_000_000_000_u64 });
    std::fs::write(place.path("profile.json"), profile.to_string()).expect("written");
    let said = place.succeed(&["plan"]);
    for wanted in [
        "the longest 900.0 ms (stolen by the host)",
        "1 were disturbed (1 stolen by the host), the longest of the others took ",
        "stalls = { at-most = 1, in = \"1m\", of = \"935ms\" } would declare the 1 that the profile saw",
        "what would help: a host that leaves the processor to this machine",
    ] {
        assert!(said.contains(wanted), "{wanted:?} is missing in\n{said}");
    }
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    let measured = &plan["services"][0]["measured"];
    assert_eq!(
        (&measured["proposal"]["of_ns"], &measured["stalls_seen"]["count"]),
        (&Value::from(935_000_000), &Value::from(1))
    );
}

/// Best effort needs no profile, whatever its bound would be; a promise does.
#[test]
fn a_service_that_promises_nothing_is_served_without_a_profile() {
    let place = simulated();
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("a", "s")).expect("registered");
    let frame = [0.5_f32; 4];
    assert!(matches!(client.infer(&stream, &frame).expect("an answer"), Outcome::Result(_)));
    drop((client, daemon));
    assert!(!place.path("profile.json").exists(), "nothing was measured that promises could rely on");
    // One that takes longer than the deadline once in a while is served no less.
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds(&[1500, 2000]);
    drop(place.serve());
    let text = std::fs::read_to_string(place.config()).expect("the configuration");
    place.configure(format!("{text}constraints = [{{ row-miss = 1 }}]\n"));
    let message = place.fail(&["serve"]);
    assert!(message.contains("leaves nothing of the deadline"), "{message}");
    std::fs::remove_file(place.path("profile.json")).expect("removed");
    let message = place.fail(&["serve"]);
    assert!(message.contains("weir profile FILE"), "{message}");
}

/// A box that got the files of another is told to measure, not to certify what was measured elsewhere.
#[test]
fn a_profile_of_another_machine_says_what_to_run() {
    let place = simulated();
    let text = std::fs::read_to_string(place.config()).expect("the configuration");
    place.configure(text.replace("bus = \"off\"", "bus = \"off\"\ncertificate = \"promise.json\""));
    place.succeed(&["profile", "--quick", "--samples", "100"]);
    place.succeed(&["certify"]);
    drop(place.serve());
    let text = std::fs::read_to_string(place.path("profile.json")).expect("written before");
    let text = text.replace("\"governor\": \"", "\"governor\": \"other ");
    std::fs::write(place.path("profile.json"), text).expect("written");
    let message = place.fail(&["serve"]);
    let wanted = "the profile is of another machine, whose governor is other ";
    assert!(
        message.contains(wanted) && message.contains("run `weir profile`, then `weir certify`"),
        "{message}"
    );
}

/// A file that is replaced meanwhile, or can be read but once, is the one that is certified.
#[test]
fn what_is_certified_is_read_once() {
    let place = simulated();
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let profile = std::fs::read_to_string(place.path("profile.json")).expect("a profile");
    let text = std::fs::read_to_string(place.config()).expect("the configuration");
    place.configure(text.replace("profile = \"profile.json\"", "profile = \"/dev/stdin\""));
    let file = place.config().display().to_string();
    for arguments in
        [&["certify", &file][..], &["verify", "--config", &file, &file.replace(".toml", ".certificate.json")]]
    {
        let output = fed(arguments, &profile);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    }
}

/// Before anything is served as well, also where nothing could be promised by it.
#[test]
fn plan_and_check_say_that_a_profile_is_of_another_machine() {
    let place = simulated();
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let wanted = "the machine is not as profiled: governor: profile other ";
    let told = |arguments: &[&str], code: i32| {
        let output = place.weir(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        let told = stderr(&output);
        told.contains(wanted) && told.contains("; run `weir profile` again")
    };
    assert!(!told(&["plan"], 0) && !told(&["check"], 0));
    let text = std::fs::read_to_string(place.path("profile.json")).expect("written before");
    let other = text.replace("\"governor\": \"", "\"governor\": \"other ");
    std::fs::write(place.path("profile.json"), other).expect("written");
    assert!(told(&["plan"], 0) && told(&["check"], 0));
    assert!(!told(&["check", "--no-models"], 0), "right for some machine");
    place.set_bounds(&[60_000, 60_000]);
    let text = std::fs::read_to_string(place.config()).expect("the configuration");
    place.configure(format!("{text}constraints = [{{ any-miss = {{ m = 1, k = 2 }} }}]\n"));
    assert!(told(&["plan"], 1) && told(&["check"], 0));
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let place = simulated();
    for (option, value, wanted) in [
        ("--exceedance", "0", "exceedance is 0, it must be above 0 and at most 0.1"),
        ("--exceedance", "0.5", "exceedance is 0.5"),
        ("--margin", "11", "margin is 11, the limits are 0..=10"),
        ("--stable", "0", "--stable is 0, must be above 0"),
        ("--limit", "soon", "--limit"),
    ] {
        let message = place.fail(&["profile", option, value]);
        assert!(message.contains(wanted), "{option} {value}: {message}");
    }
    let message = place.fail(&["profile", "--check"]);
    assert!(message.contains("weir profile FILE"), "{message}");
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let text = std::fs::read_to_string(place.path("profile.json")).expect("a profile");
    std::fs::write(place.path("profile.json"), text.replace("\"weir_profile\": 4", "\"weir_profile\": 3"))
        .expect("written");
    for command in [&["profile", "--check"][..], &["plan"]] {
        let message = place.fail(command);
        assert!(message.contains("weir_profile is 3, this weir reads 4"), "{message}");
    }
}
