//! Before any request: a configuration is checked and planned, and what is wrong is told by name.

use std::process::Command;

use crate::harness::{DAEMON, Deployment, repository, stderr, weir};
use serde_json::Value;

/// Two workers: up to two requests in 20 ms, a promise of their own and a reserved stream.
fn good() -> String {
    format!(
        "{DAEMON}{}",
        r#"
        [[service]]
        name = "lanes"
        engine = "simulated"
        simulated = { times = ["5ms", "8ms"], input = 4, output = 2 }
        deadline = "400ms"
        guard = "100ms"
        handover = "0ms"
        jitter = "30ms"
        workers = 2
        max-batch = 2
        batch = 2
        constraints = [{ any-miss = { m = 1, k = 3 } }, { row-miss = 4 }]
        [[service.stream]]
        name = "left"
        arrivals = [{ periodic = { period = "50ms", jitter = "10ms" } }]
        "#
    )
}

/// What `weir check` says of the good configuration with `from` replaced.
fn complaint(from: &str, to: &str) -> String {
    let text = good();
    assert!(text.contains(from), "{from} is not in the configuration");
    let place = Deployment::new(text.replace(from, to));
    let message = place.fail(&["check"]);
    assert!(message.contains("weir.toml"), "{to}: the file is not named: {message}");
    message
}

#[test]
fn every_shipped_configuration_passes_the_check() {
    let files: Vec<_> = std::fs::read_dir(repository("config"))
        .expect("the folder of configurations")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    assert!(!files.is_empty());
    let output =
        Command::new(weir()).args(["check", "--no-models"]).args(&files).output().expect("weir can be run");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches(": ok, ").count(), files.len());
}

#[test]
fn the_check_says_how_much_it_found() {
    let text = Deployment::new(good()).succeed(&["check"]);
    assert!(text.contains(": ok, 1 service(s), 1 reserved stream(s)"), "{text}");
}

#[test]
fn a_profile_that_cannot_be_used_is_told_where_the_configuration_is_right() {
    let place = Deployment::new(good());
    for (profile, told) in
        [("{", "profile.json: not a profile"), ("{\"weir_profile\": 1}", "run `weir profile FILE` anew")]
    {
        std::fs::write(place.path("profile.json"), profile).expect("written");
        let output =
            Command::new(weir()).arg("check").arg(place.path("weir.toml")).output().expect("weir can be run");
        assert!(output.status.success() && stderr(&output).contains(told), "{}", stderr(&output));
    }
}

#[test]
fn a_refusal_names_file_field_value_and_limit() {
    let stream = "periodic = { period = \"50ms\", jitter = \"10ms\" }";
    for (from, to, words) in [
        ("deadline =", "dedaline =", &["dedaline", "deadline"][..]),
        ("realtime = false", "realtime = false\nmax-client = 3", &["max-client", "max-clients"]),
        ("[[service.stream]]", "[[service.steam]]", &["steam", "stream"]),
        ("\"400ms\"", "\"400 furlongs\"", &["service[0].deadline", "400 furlongs"]),
        ("\"400ms\"", "\"400\"", &["service[0].deadline", "400"]),
        ("\"400ms\"", "400", &["service[0].deadline", "400", "a text in quotes"]),
        ("\"400ms\"", "\"0s\"", &["service[0].deadline", "0s", "1h"]),
        ("\"400ms\"", "\"2h\"", &["service[0].deadline", "2h", "1h"]),
        ("guard = \"100ms\"", "guard = \"400ms\"", &["service[0].guard", "400ms", "below the deadline"]),
        (
            "m = 1, k = 3",
            "m = 3, k = 3",
            &["service[0].constraints[0]", "m = 3", "K = 3", "m must be below K"],
        ),
        ("m = 1, k = 3", "m = 1, k = 5000", &["service[0].constraints[0]", "5000", "1..=4096"]),
        ("m = 1, k = 3", "m = -1, k = 3", &["service[0].constraints[0].any-miss.m", "-1", "at least 0"]),
        ("any-miss", "some-miss", &["some-miss", "any-miss"]),
        ("workers = 2", "workers = 0", &["service[0].workers", "0", "1..="]),
        ("\nmax-batch = 2", "\nmax-batch = 65", &["service[0].max-batch", "65", "1..=64"]),
        (" batch = 2", " batch = 3", &["service[0].batch", "3", "1..=2"]),
        ("name = \"lanes\"", "name = \"two lanes\"", &["service[0].name", "two lanes", "1..=64"]),
        ("engine = \"simulated\"", "engine = \"abacus\"", &["abacus", "tract", "simulated"]),
        ("simulated = {", "model = \"digits-s\"\nsimulated = {", &["service[0].model", "digits-s"]),
        ("\"50ms\"", "\"0s\"", &["service[0].stream[0].arrivals[0]", "0"]),
        (
            stream,
            "window = { count = 0, length = \"1s\" }",
            &["stream[0].arrivals[0]", "0 requests", "1..=65536"],
        ),
        (&format!("arrivals = [{{ {stream} }}]"), "", &["service[0].stream[0].arrivals", "must declare"]),
        ("socket = \"s\"", "socket-mode = \"999\"", &["daemon.socket-mode", "999", "0777"]),
        ("socket = \"s\"", "max-frame = 1", &["daemon.max-frame", "1", "16384..="]),
        ("socket = \"s\"", "allow-users = [\"no-such-user\"]", &["daemon.allow-users", "no-such-user"]),
        ("\"s\"", &format!("\"{}\"", "s".repeat(120)), &["daemon.socket", "103"]),
        ("[[service]]", "[[service]", &["unclosed array table", "expected"]),
        ("workers = 2", "record-limit = 5", &["service[0].record-limit", "5", "only with record"]),
        (
            "workers = 2",
            "record = \"a.csv\"\nrecord-limit = 10000001",
            &["service[0].record-limit", "10000001", "1..=10000000"],
        ),
        (
            "workers = 2",
            "record = \"./profile.json\"",
            &["service[0].record", "profile.json", "no other file"],
        ),
    ] {
        let from = if from.starts_with('\n') { from.trim_start() } else { from };
        let message = complaint(from, to);
        for word in words {
            assert!(message.contains(word), "{to}: {word} is not in: {message}");
        }
    }
}

#[test]
fn what_a_configuration_points_to_must_be_there() {
    let named = |model: &str, models: &str| {
        let service = format!("[[service]]\nname = \"x\"\nmodel = \"{model}\"\ndeadline = \"1s\"\n");
        Deployment::new(format!("{DAEMON}{models}\n{service}")).fail(&["check"])
    };
    let manifest = repository("models/manifest.toml");
    let shipped = format!("models = \"{}\"", manifest.display());
    for (message, words) in [
        (named("digits-s", ""), &["weir.toml", "service[0].model", "digits-s", "daemon.models"][..]),
        (named("digits-s", "models = \"gone.toml\""), &["daemon.models = ", "gone.toml: cannot be read"]),
        (
            named("digits-q", &shipped),
            &["weir.toml:", "service[0].model", "manifest.toml", "digits-q", "digits-xs, digits-s"],
        ),
        (Deployment::new(DAEMON).fail(&["check"]), &["weir.toml", "service (how many", "1..=16"]),
    ] {
        for word in words {
            assert!(message.contains(word), "{word} is not in: {message}");
        }
    }
    let output =
        Command::new(weir()).args(["check", "/nowhere/weir.toml"]).output().expect("weir can be run");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nowhere/weir.toml"), "{}", stderr(&output));
}

#[test]
fn a_recording_takes_the_place_of_nothing_but_a_recording() {
    let place = Deployment::new(good().replace("workers = 2", "workers = 2\nrecord = \"kept\""));
    std::fs::write(place.path("kept"), "a model").expect("written");
    let message = place.fail(&["check"]);
    for word in ["service[0].record", "kept", "no recording"] {
        assert!(message.contains(word), "{message} lacks {word}");
    }
    for recording in ["", "# weir: arr", "# weir: arrivals at service lanes\ntime,stream\n"] {
        std::fs::write(place.path("kept"), recording).expect("written");
        place.succeed(&["check"]);
    }
}

#[test]
fn a_queue_that_limits_the_rate_is_named() {
    let limited = |queue: &str| {
        let text = good().replace("workers = 2", &format!("workers = 2\nqueue = {queue}"));
        Deployment::new(text).profiled(&[5, 8]).succeed(&["plan"]).contains("queue = 20 is what limits it")
    };
    assert!(limited("20"));
    assert!(!limited("4096"));
    // Without room for anything it is the queue that is refused, not the deadline.
    let place = Deployment::new(good().replace("workers = 2", "workers = 2\nqueue = 1")).profiled(&[5, 8]);
    let message = place.fail(&["plan"]);
    assert!(message.contains("queue = 1, but up to "), "{message}");
}

#[test]
fn without_a_profile_the_remedy_is_told() {
    let place = Deployment::new(good());
    for command in ["plan", "serve"] {
        let message = place.fail(&[command]);
        assert!(message.contains("profile.json"), "{message}");
        assert_eq!(message.matches("No such file").count(), 1, "told twice: {message}");
        assert!(message.contains("weir profile"), "{command}: the remedy is not told: {message}");
    }
    // A profile of something else is none for this model.
    let place = place.profiled(&[20, 20]);
    place.configure(good().replace("\"8ms\"", "\"9ms\""));
    let message = place.fail(&["plan"]);
    assert!(message.contains("weir profile") && message.contains("simulated-"), "{message}");
}

#[test]
fn a_promise_that_cannot_hold_is_refused_before_anything_is_served() {
    let place = Deployment::new(good()).profiled(&[10, 20]);
    place.succeed(&["plan"]);
    let greedy = "[[service.stream]]\nname = \"greedy\"\nconstraints = [{ any-miss = { m = 0, k = 7 } }]\n\
                  arrivals = [{ window = { count = 900, length = \"1s\" } }]\n";
    place.configure(format!("{}{greedy}", good()));
    // As far as can be said without the profile, nothing is wrong with it.
    place.succeed(&["check"]);
    for command in ["plan", "serve"] {
        let message = place.fail(&[command]);
        for word in ["service lanes", "stream greedy", "any_miss(0,7)", "cannot be kept"] {
            assert!(message.contains(word), "{command}: {word} is not in: {message}");
        }
        assert!(!place.socket().exists());
    }
    // One batch and another before it do not fit before the deadline.
    place.configure(good());
    place.set_bounds(&[160, 160]);
    let message = place.fail(&["plan"]);
    assert!(message.contains("service lanes") && message.contains("any_miss(1,3)"), "{message}");
    // Not even one does.
    place.set_bounds(&[301, 301]);
    let message = place.fail(&["serve"]);
    assert!(message.contains("service lanes") && message.contains("P(1) = 301"), "{message}");
}

#[test]
fn the_plan_as_json_has_its_fields_and_its_numbers_agree() {
    let place = Deployment::new(good()).profiled(&[10, 20]);
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    assert!(plan["machine_differs"].as_array().is_some_and(Vec::is_empty), "{plan}");
    let service = &plan["services"][0];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("a number, not {value}"));
    assert_eq!((&service["name"], &service["engine"]), (&"lanes".into(), &"simulated".into()));
    assert_eq!(service["simulated"], true);
    assert!(service["model"].as_str().is_some_and(|model| model.starts_with("simulated-")));
    assert_eq!(service["reserved"], serde_json::json!(["left"]));
    assert_eq!(service["batch_times_ns"], serde_json::json!([10_000_000, 20_000_000]));
    let (deadline, guard) = (number(&service["deadline_ns"]), number(&service["guard_ns"]));
    assert_eq!((deadline, guard), (400_000_000, 100_000_000));
    let (workers, batch, time) =
        (number(&service["workers"]), number(&service["batch"]), number(&service["batch_time_ns"]));
    assert_eq!((workers, batch, time), (2, 2, 20_000_000));
    let capacity = service["capacity_per_s"].as_f64().expect("a number");
    assert!((capacity - 200.0).abs() < 1e-6, "{capacity}");

    let rate = &service["rate"];
    assert_eq!(rate["constraint"], "any_miss(1,3)", "the densest of both");
    let (p, q) = (number(&rate["density"][0]), number(&rate["density"][1]));
    assert_eq!((p, q), (2, 3));
    let (count, upper) = (number(&rate["n_star"]), number(&rate["upper_bound"]));
    // L = 300 ms is more than 2P, so N* = floor(n·B / density), which no policy can pass.
    assert!(deadline - guard >= 2 * time);
    assert_eq!((count, upper), (workers * batch * q / p, count));
    assert!(number(&rate["spread_drop_paper"]) <= upper);
    assert_eq!(number(&rate["jitter_ns"]), 30_000_000);
    let (period, per_second) = (number(&rate["period_ns"]), rate["per_s"].as_f64().expect("a number"));
    assert!((per_second * period as f64 / 1e9 - 1.0).abs() < 1e-6, "{rate}");
    assert!(per_second * p as f64 / q as f64 <= capacity, "more is promised than can be done: {rate}");
    for binding in [&rate["binding"], &service["binding"]] {
        assert!(number(&binding["lhs_ns"]) <= number(&binding["rhs_ns"]), "{binding}");
        assert!(number(&binding["rhs_ns"]) == number(&binding["delta_ns"]) + deadline - guard, "{binding}");
        let rounds = 1 + number(&binding["backlog"]).div_ceil(workers * batch);
        assert_eq!(number(&binding["lhs_ns"]), rounds * time, "{binding}");
    }
    assert_eq!((number(&service["max_batch"]), &service["stalls"]), (2, &Value::Null));
    // For people: the same numbers.
    let text = place.succeed(&["plan"]);
    assert!(text.contains(&format!("N* = {count} requests")) && text.contains("SIMULATED"), "{text}");
}

/// One worker whose times do not vary but in one run of a hundred or fewer, and are handed over at no cost.
fn stalling(more: &str) -> Deployment {
    let place = Deployment::new(format!(
        "{DAEMON}{}{more}",
        r#"
        [[service]]
        name = "line"
        engine = "simulated"
        simulated = { times = ["1ms", "1ms", "1ms", "1ms"], input = 1, output = 1 }
        deadline = "50ms"
        guard = "5ms"
        handover = "1ms"
        jitter = "0ms"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        "#
    ));
    let place = place.profiled(&[15, 31, 33, 37]);
    place.change_entries(|entries| {
        let batches = entries[0]["batches"].as_array_mut().expect("batches");
        for (batch, ms) in batches.iter_mut().zip([11, 12, 13, 15]) {
            for (field, ms) in
                [("p50_ns", ms - 1), ("p90_ns", ms), ("p95_ns", ms), ("p99_ns", ms), ("mean_ns", ms - 1)]
            {
                batch[field] = Value::from(ms * 1_000_000);
            }
        }
    });
    place
}

#[test]
fn what_rare_long_times_forbid_is_told_with_its_price() {
    let place = stalling("");
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    let service = &plan["services"][0];
    // Twice P(2) = 32 ms is more than the 45 ms that the deadline leaves; twice the 16 ms that 90 % of batches of 4 take is not.
    assert_eq!((&service["batch"], &service["max_batch"]), (&1.into(), &4.into()));
    let stalls = &service["stalls"];
    assert_eq!(
        (&stalls["batch"], &stalls["likely_ns"], &stalls["bound_ns"]),
        (&4.into(), &16_000_000.into(), &38_000_000.into())
    );
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("a number, not {value}"));
    assert!((number(&service["capacity_per_s"]) - 62.5).abs() < 0.1, "{service}");
    assert!((number(&stalls["capacity_per_s"]) - 250.0).abs() < 0.1, "{stalls}");
    let (now, without) = (number(&service["rate"]["per_s"]), number(&stalls["promised_per_s"]));
    assert!(without > 3.0 * now, "{without}/s instead of {now}/s");
    let text = place.succeed(&["plan"]);
    for words in [
        "batches of up to 4 are served: 90 % of these take at most 16.0 ms, 15.0 ms on average",
        "keep the promise to batches of B = 1: 90 % of batches of 4 take at most 16.0 ms, but P(4) = 38.0 ms;",
        &format!(
            "than 90 % do, {without:.1} requests/s could be promised instead of {now:.1}, of a capacity of 250.0"
        ),
        "a capacity of 250.0 requests/s instead of 62.5",
    ] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    // What is configured is nobody's fault, and without long times there is nothing to tell.
    place.set_bounds(&[15, 15, 15, 15]);
    let text = place.succeed(&["plan"]);
    assert!(text.contains("batches of B = 4") && !text.contains("rare long times"), "{text}");
    let text = stalling("batch = 1\n").succeed(&["plan"]);
    assert!(text.contains("batches of B = 1") && !text.contains("rare long times"), "{text}");
}

#[test]
fn what_is_expected_has_the_handover_and_the_probability_asked_for() {
    let expected = |more: &str| {
        let plan: Value = serde_json::from_str(&stalling(more).succeed(&["plan", "--json"])).expect("JSON");
        let service = &plan["services"][0];
        ["batch_times_ns", "likely_times_ns", "mean_times_ns"].map(|times| {
            let times = service[times].as_array().expect("times");
            times.iter().map(|ns| ns.as_u64().expect("a number") / 1_000_000).collect::<Vec<_>>()
        })
    };
    let (bounds, mean) = (vec![16, 32, 34, 38], vec![11, 12, 13, 15]);
    for (more, likely) in [
        ("", [12, 13, 14, 16]),
        ("probability = 0.5", [11, 12, 13, 15]),
        ("probability = 0.97", [12, 13, 14, 16]),
        ("probability = 0.999", [16, 32, 34, 38]),
    ] {
        assert_eq!(expected(more), [bounds.clone(), likely.to_vec(), mean.clone()], "{more}");
    }
}

/// `check` and `plan` warn of it, and promise what they did.
#[test]
fn a_class_that_wants_its_answer_within_the_guard_is_warned_of() {
    let service = "[[service]]\nname = \"a\"\nengine = \"simulated\"\nsimulated = { times = [\"1ms\"] }\ndeadline = \"1s\"\n\
                   guard = \"500ms\"\n[[service.class]]\nname = \"soon\"\ndeadline = \"500ms\"\n";
    let place = Deployment::new(format!("{DAEMON}{service}"));
    place.succeed(&["profile", "--quick", "--samples", "5"]);
    let warned = |arguments: &[&str]| {
        let output = place.weir(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stderr(&output).contains("service[0].class[0].deadline = 500.0 ms: is not above the guard, 500.0 ms")
    };
    assert!(warned(&["check", "--no-models"]) && warned(&["plan"]));
    place.configure(format!("{DAEMON}{}", service.replace("guard = \"500ms\"", "guard = \"499ms\"")));
    assert!(!warned(&["check", "--no-models"]) && !warned(&["plan"]));
}
