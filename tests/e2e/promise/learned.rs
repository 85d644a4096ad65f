//! A network that selects: trained, checked, served; a file of weights that is wrong is refused, and the one before it stays.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{DAEMON, Daemon, Deployment, answers, best_effort, stderr, weir};
use weir_client::Outcome;

/// A worker with a slower variant, which always has time for a single request; `more` goes into the service.
fn service(name: &str, more: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nengine = \"simulated\"\nhandover = \"0ms\"\nbatch = 2\nmax-batch = 2\n\
         deadline = \"2s\"\nguard = \"1s\"\n{more}\nsimulated = {{ times = [\"5ms\", \"8ms\"], accuracy = 0.6, input = 4, \
         output = 4, variants = [{{ times = [\"15ms\", \"20ms\"], accuracy = 0.8 }}] }}\n"
    )
}

fn config(more: &str) -> String {
    format!("{DAEMON}{}", service("lanes", more))
}

const LEARNED: &str = "select = \"learned\"\nweights = \"router.weights\"";

/// Profiled with bounds of the test's own.
fn profiled(more: &str) -> Deployment {
    let place = Deployment::new(config(more));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_variant_bounds(&[[5, 8], [15, 20]], &[[50, 80], [150, 200]]);
    place
}

fn train(place: &Deployment, file: &str, more: &[&str]) -> Value {
    let file = place.path(file).display().to_string();
    let small = ["train", "lanes", "--episodes", "6", "--width", "8", "--layers", "1", "--json", "-o", &file];
    serde_json::from_str(&place.succeed(&[&small, more].concat())).expect("JSON")
}

/// Each is answered, late or not, for nothing is promised and the deadline is far.
fn asked(daemon: &Daemon) {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("lanes", "cam")).expect("best effort");
    for i in 0..5 {
        let id = client.submit(&stream, &[i as f32; 4]).expect("sent");
        let outcomes = answers(&mut client, &[id]);
        assert!(matches!(&outcomes[..], [Outcome::Result(_) | Outcome::Miss(_)]), "{outcomes:?}");
    }
    client.unregister(&stream).expect("given up");
}

#[test]
fn a_network_is_trained_and_selects_and_a_wrong_file_changes_nothing() {
    let place = profiled(LEARNED);
    // What is trained need not be there before.
    let message = place.fail(&["plan"]);
    assert!(
        message.contains("router.weights: cannot be read") && message.contains("`weir train`"),
        "{message}"
    );
    // Nor what another service is to have.
    place.configure(config(LEARNED) + &service("tracks", &LEARNED.replace("router", "tracks")));
    let trained = train(&place, "router.weights", &["--seed", "7"]);
    place.configure(config(LEARNED));
    assert_eq!((&trained["widths"], &trained["simulated"]), (&json!([5, 8, 2]), &json!(true)), "{trained}");
    assert_eq!(trained["loads"].as_array().expect("loads").len(), 7, "{trained}");
    for load in trained["loads"].as_array().expect("loads") {
        for who in ["learned", "tables", "accurate", "alone"] {
            let right = load[who]["right"].as_f64().expect("a share");
            assert!((0.0..=0.8 + 1e-9).contains(&right), "{load}");
        }
    }
    let read = |name: &str| std::fs::read(place.path(name)).expect("weights");
    train(&place, "again.weights", &["--seed", "7"]);
    assert_eq!(read("router.weights"), read("again.weights"), "the same seed, the same bytes");
    // Each seed is followed by those of its restarts.
    train(&place, "other.weights", &["--seed", "9"]);
    assert_ne!(read("router.weights"), read("other.weights"));
    place.succeed(&["check"]);
    let text = place.succeed(&["plan"]);
    assert!(text.contains("select = learned"), "{text}");
    let daemon = place.serve();
    asked(&daemon);
    assert_eq!(daemon.status()["services"][0]["select"], "learned");
    assert_eq!(daemon.reload_accepted(), "nothing has changed\n");
    // One digit of a weight, and a network of other inputs.
    let whole = read("router.weights");
    let mut damaged = whole.clone();
    let digit = whole.len() / 2;
    damaged[digit] = if damaged[digit] == b'1' { b'2' } else { b'1' };
    std::fs::write(place.path("router.weights"), &damaged).expect("written");
    for told in [place.fail(&["check"]), daemon.reload_refused()] {
        assert!(told.contains("router.weights: sha256 is") && told.contains("damaged or changed"), "{told}");
    }
    assert_eq!(daemon.status()["services"][0]["select"], "learned");
    asked(&daemon);
    std::fs::write(place.path("router.weights"), &whole).expect("written");
    place.configure(config(&format!("{LEARNED}\nworkers = 2")));
    let told = daemon.reload_refused();
    assert!(told.contains("router.weights: inputs_sha256 is") && told.contains("train it anew"), "{told}");
    asked(&daemon);
    // Another network under the same name is taken over; and so is going back to none.
    place.configure(config(LEARNED));
    std::fs::write(place.path("router.weights"), read("other.weights")).expect("written");
    assert!(daemon.reload_accepted().starts_with("service lanes"));
    asked(&daemon);
    place.configure(config("select = \"base\""));
    assert!(daemon.reload_accepted().starts_with("service lanes"));
    assert_eq!(daemon.status()["services"][0]["select"], "base");
}

#[test]
fn what_cannot_be_trained_is_refused_in_words() {
    let place = profiled("");
    let refused = |arguments: &[&str]| place.fail(&[&["train", "-o", "w"], arguments].concat());
    let recording = place.path("short.csv").display().to_string();
    std::fs::write(&recording, "# weir: arrivals at service lanes\ntime,stream\n1,cam\n2,cam\n")
        .expect("written");
    let other = place.path("other.csv").display().to_string();
    std::fs::write(&other, "# weir: arrivals at service tracks\n1,cam\n").expect("written");
    for (arguments, wanted) in [
        (&["other"][..], "SERVICE = other: must be one of the services, lanes"),
        (&["lanes", "--arrivals", "poisson:-1"], "--arrivals"),
        (&["lanes", "--arrivals", "waves"], "must be poisson:RATE or mmpp:RATE@SECONDS"),
        (&["lanes", "--width", "257"], "257 is not in 1..=256"),
        (&["lanes", "--layers", "4"], "4 is not in 1..=3"),
        (&["lanes", "--recording", &recording], "2 arrivals: must be 1000 at least"),
        (&["lanes", "--recording", &other], "is of service tracks, not of service lanes"),
    ] {
        let told = refused(arguments);
        assert!(told.contains(wanted), "{arguments:?}: {told}");
    }
    let single = config("").replace(", variants = [{ times = [\"15ms\", \"20ms\"], accuracy = 0.8 }]", "");
    place.configure(single);
    let told = refused(&["lanes"]);
    assert!(told.contains("lanes: has no variants to select among"), "{told}");
    let shared = config("")
        .replace("workers = 1\n", "")
        .replace("[[service]]\n", "[[device]]\nname = \"core\"\n[[service]]\ndevice = \"core\"\n");
    place.configure(shared);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    let told = refused(&["lanes"]);
    assert!(told.contains("lanes: shares device core, where `select` may be"), "{told}");
}

/// Where the load is stated or recorded, it is trained and compared there.
#[test]
fn what_comes_may_be_stated_or_recorded() {
    let place = profiled("");
    let rates = |trained: &Value| -> Vec<f64> {
        let loads = trained["loads"].as_array().expect("loads").iter();
        loads.map(|load| load["rate_per_s"].as_f64().expect("a rate")).collect()
    };
    let trained = train(&place, "w", &["--arrivals", "mmpp:4@9,24@1"]);
    assert_eq!(rates(&trained), [3.0, 4.5, 6.0, 7.5, 9.0]);
    let recording = place.path("arrivals.csv").display().to_string();
    let lines: String = (0..1_500u64).map(|i| format!("{},cam\n", i * 100_000_000)).collect();
    std::fs::write(&recording, format!("# weir: arrivals at service lanes\ntime,stream\n{lines}"))
        .expect("written");
    let trained = train(&place, "w", &["--recording", &recording]);
    assert!(matches!(rates(&trained)[..], [rate] if (rate - 10.0).abs() < 0.1), "{trained}");
}

/// What is to be done next is said in words that can be copied, into the file and into a shell.
#[test]
fn what_is_next_can_be_copied() {
    let place = profiled("");
    let file = place.path("it's a robot.toml");
    std::fs::rename(place.config(), &file).expect("renamed");
    let folder = file.parent().expect("a folder");
    let told = |from: &std::path::Path, file: &str, output: &str| {
        let small =
            ["train", "lanes", "--episodes", "1", "--width", "8", "--layers", "1", "-o", output, file];
        let output = Command::new(weir()).args(small).current_dir(from).output().expect("weir can be run");
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let text = told(folder, "it's a robot.toml", "a \"b\".weights");
    for part in [r#"weights = 'a "b".weights' in"#, r"run `weir check 'it'\''s a robot.toml'`"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // A configuration names files from its own folder, and not from where the command is given.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let text = told(elsewhere.path(), file.to_str().expect("UTF-8"), "w");
    let whole = elsewhere.path().canonicalize().expect("a folder").join("w");
    assert!(text.contains(&format!("weights = \"{}\" in", whole.display())), "{text}");
    let beside = place.path("w");
    let text = told(elsewhere.path(), file.to_str().expect("UTF-8"), beside.to_str().expect("UTF-8"));
    assert!(text.contains("weights = \"w\" in"), "{text}");
}
