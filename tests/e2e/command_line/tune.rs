//! What streams should declare, by what a daemon has recorded of them.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{DAEMON, Deployment, answers, best_effort, pause, stderr, weir};
use weir_client::{ArrivalBound, Constraint, Registration};

const SERVICE: &str = r#"
    [[service]]
    name = "lanes"
    engine = "simulated"
    simulated = { times = ["1ms", "1ms", "1ms", "1ms", "1ms", "1ms", "1ms", "1ms"], input = 1, output = 1 }
    deadline = "2s"
    constraints = [{ any-miss = { m = 1, k = 4 } }, { row-miss = 2 }]
    record = "arrivals.csv"
    [[service.stream]]
    name = "front"
    arrivals = [{ window = { count = 2, length = "1m" } }]
    [[service.stream]]
    name = "idle"
    arrivals = [{ token-bucket = { burst = 2, period = "50ms" } }]
"#;

fn tune(place: &Deployment, more: &[&str]) -> std::process::Output {
    let arguments = [&["tune"], more, &["weir.toml"]].concat();
    let place = place.config();
    let folder = place.parent().expect("a folder");
    std::process::Command::new(weir()).args(arguments).current_dir(folder).output().expect("weir can be run")
}

fn json(place: &Deployment) -> Value {
    let output = tune(place, &["lanes", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn what_came_beyond_a_declaration_is_told_with_the_lines_that_would_have_fitted() {
    let place = Deployment::new(format!("{DAEMON}{SERVICE}"));
    place.succeed(&["profile", "--quick", "--samples", "5"]);
    let mut daemon = place.serve();
    let mut client = daemon.client();
    let front = client.register(&best_effort("lanes", "front")).expect("reserved");
    let own = Registration::builder("lanes", "own \"one\"")
        .constraint(Constraint::RowMiss { misses: 1 })
        .arrivals(ArrivalBound::periodic(Duration::from_secs(30), Duration::from_millis(1)));
    let own = client.register(&own.build().expect("it fits")).expect("admitted");
    // At once, then one more: five of `front`, where two a minute are declared; a pair of `own`, and one more.
    let mut ids: Vec<_> = (0..4).map(|_| client.submit(&front, &[0.0]).expect("sent")).collect();
    ids.extend((0..2).map(|_| client.submit(&own, &[0.0]).expect("sent")));
    pause(Duration::from_millis(300));
    ids.extend([&front, &own].map(|stream| client.submit(stream, &[0.0]).expect("sent")));
    answers(&mut client, &ids);
    // The daemon has followed it as well, at the declared rate of one in 30 s.
    let live = daemon.stream_status("front");
    assert_eq!(live["burst_seen"], 5, "{live}");
    assert!(
        live["jitter_seen_ns"].as_u64().is_some_and(|ns| (119_000_000_000..120_000_000_000).contains(&ns)),
        "{live}"
    );
    daemon.signal(Signal::TERM);
    daemon.wait();

    let told = json(&place);
    let stream = |name: &str| {
        let all = told["streams"].as_array().expect("a list");
        all.iter().find(|stream| stream["name"] == name).unwrap_or_else(|| panic!("{name}: {told}"))
    };
    assert_eq!((&told["service"], &told["not_recorded"]), (&"lanes".into(), &0.into()));
    let front = stream("front");
    assert_eq!(
        (&front["requests"], &front["beyond"], &front["reserved"]),
        (&5.into(), &3.into(), &true.into())
    );
    assert_eq!(front["measured"][0]["seen"], "{ window = { count = 5, length = \"1m\" } }");
    let lines = front["lines"].as_str().expect("lines");
    assert!(lines.contains("arrivals = [{ window = { count = 5, length = \"1m\" } }]"), "{lines}");
    assert!(lines.contains("constraints = [{ any-miss = { m = 1, k = 4 } }, { row-miss = 2 }]"), "{lines}");
    // Two at once and one 300 ms later are nothing that comes once in 30 s.
    let own = stream("own \"one\"");
    assert_eq!((&own["requests"], &own["beyond"], &own["reserved"]), (&3.into(), &2.into(), &false.into()));
    assert_eq!(own["declared"]["constraints"][0], "row_miss(1)");
    let period = own["fitting"]["arrivals"]["periodic"]["period"].as_u64().expect("a period");
    assert!(period < 1_000_000_000, "{own}");
    let idle = stream("idle");
    assert!(
        idle["lines"].is_null()
            && idle["nothing_fits"].as_str().is_some_and(|why| why.contains("no request"))
    );

    // For people the same, and the lines can be pasted: nothing is beyond them any more.
    let text = String::from_utf8(tune(&place, &["lanes"]).stdout).expect("UTF-8");
    for part in [
        "front, reserved: 5 requests",
        "BROKEN: 3 requests",
        "2 per 60.0 s",
        "own \"one\", a client's own",
        "leave room",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let (service, _) = SERVICE.split_once("[[service.stream]]").expect("streams");
    place.configure(format!("{DAEMON}{service}{lines}"));
    place.succeed(&["check"]);
    let again = json(&place);
    assert_eq!(again["streams"][0]["beyond"], 0, "{again}");
    let text = String::from_utf8(tune(&place, &["lanes"]).stdout).expect("UTF-8");
    assert!(
        text.contains("kept: no request was beyond that") && text.contains("nothing less does"),
        "{text}"
    );
}

#[test]
fn a_reserved_declaration_is_judged_and_proposed_over_all_clients_that_held_the_stream() {
    let place = Deployment::new(format!("{DAEMON}{SERVICE}"));
    // Three at once in every second; another client is there 80 ms after the last three of the one before.
    let declared =
        r#"# stream {"name":"x","constraints":["any_miss(1,3)"],"arrivals":{"windows":[[3,1000000000]]}}"#;
    let three = |at_ms: u64| (0..3).map(move |i| format!("{},x\n", (at_ms + i * 10) * 1_000_000));
    let of = |client: u64| {
        let sent = (0..3).flat_map(move |second| three(client * 2_100 + second * 1_000));
        format!("{declared}\n{}", sent.collect::<String>())
    };
    let head = "# weir: arrivals at service lanes\ntime,stream\n";
    let recorded = [head.to_owned()].into_iter().chain((0..4).map(of)).collect::<String>();
    std::fs::write(place.path("arrivals.csv"), recorded).expect("written");
    let stream = |told: &Value| told["streams"].as_array().and_then(|all| all.last().cloned()).expect("x");
    let own = stream(&json(&place));
    assert_eq!((&own["name"], &own["reserved"], &own["beyond"]), (&"x".into(), &false.into(), &0.into()));
    let lines = own["lines"].as_str().expect("lines");
    assert!(lines.contains("arrivals = [{ window = { count = 6, length = \"1s\" } }]"), "{lines}");

    place.configure(format!("{DAEMON}{SERVICE}{lines}"));
    let reserved = stream(&json(&place));
    assert_eq!((&reserved["reserved"], &reserved["beyond"]), (&true.into(), &0.into()), "{reserved}");
    place.configure(format!("{DAEMON}{SERVICE}{}", lines.replace("count = 6", "count = 3")));
    let narrower = stream(&json(&place));
    assert_eq!(narrower["beyond"], 9, "{narrower}");
    assert_eq!(narrower["fitting"], reserved["declared"]);
}

#[test]
fn proposed_lines_keep_the_class_of_a_stream_and_say_whose_it_is() {
    let classes =
        "[[service.class]]\nname = \"plain\"\n[[service.class]]\nname = \"soft\"\n[[service.stream]]";
    let service = SERVICE.replacen("[[service.stream]]", classes, 1);
    let service = service.replace("name = \"front\"", "name = \"front\"\nclass = \"soft\"");
    let place = Deployment::new(format!("{DAEMON}{service}"));
    let sent = |stream: &str, class: &str| {
        (1..5).map(|i| format!("{i}0000000,{stream},{class}\n")).collect::<String>()
    };
    let recorded = |lines: &str| {
        let mut lines: Vec<_> = lines.lines().collect();
        lines.sort_unstable();
        let head = "# weir: arrivals at service lanes\ntime,stream\n";
        std::fs::write(place.path("arrivals.csv"), format!("{head}{}\n", lines.join("\n"))).expect("written");
        String::from_utf8(tune(&place, &["lanes"]).stdout).expect("UTF-8")
    };
    let text = recorded(&[sent("front", "plain"), sent("x", "soft")].concat());
    for lines in [
        "name = \"front\"\nclass = \"soft\"\nconstraints",
        "registers as best effort.\n[[service.stream]]\nname = \"x\"\nclass = \"soft\"\nconstraints = []",
    ] {
        assert!(text.contains(lines), "{lines} is not in {text}");
    }
    let mixed = sent("x", "plain").replacen("plain", "soft", 1);
    for lines in [mixed, sent("x", "plain"), sent("x", "unknown")] {
        let text = recorded(&lines);
        assert!(text.contains("name = \"x\"\nconstraints = []"), "{text}");
    }
}

/// Weaker promises behind a declaration are told beside it, and stay behind another one.
#[test]
fn proposed_lines_keep_the_weaker_promises_and_say_which_would_have_held() {
    let ladder = "degraded = [[{ row-miss = 2 }], [{ row-miss = 5 }]]\n    record =";
    let service = SERVICE.replace("record =", ladder);
    let place = Deployment::new(format!("{DAEMON}{service}"));
    let recorded = |count: u64| {
        let sent = (1..=count).map(|i| format!("{i}0000000,front\n")).collect::<String>();
        let head = "# weir: arrivals at service lanes\ntime,stream\n";
        std::fs::write(place.path("arrivals.csv"), format!("{head}{sent}")).expect("written");
        let front = json(&place)["streams"][0].clone();
        (front, String::from_utf8(tune(&place, &["lanes"]).stdout).expect("UTF-8"))
    };
    // Two a minute are declared, and as many of which a third must be served as leave no more of them: four.
    let (front, text) = recorded(5);
    assert_eq!((&front["beyond"], &front["beyond_degraded"]), (&3.into(), &serde_json::json!([1, 0])));
    let told = "row_miss(2), which stands in for it then, allows [{ window = { count = 4, length = \"1m\" } }]: beyond that came 1";
    assert!(text.contains(told), "{text}");
    let lines = front["lines"].as_str().expect("lines");
    assert!(lines.contains("\ndegraded = [[{ row-miss = 2 }], [{ row-miss = 5 }]]\narrivals"), "{lines}");
    let (without, _) = service.split_once("[[service.stream]]").expect("streams");
    place.configure(format!("{DAEMON}{without}{lines}"));
    let (again, text) = recorded(5);
    assert_eq!((&again["declared"], &again["beyond"]), (&front["fitting"], &0.into()));
    assert!(text.contains("that fits, and nothing less does") && !text.contains("leave room"), "{text}");
}

#[test]
fn without_a_recording_it_is_said_how_to_have_one() {
    let place = Deployment::new(format!("{DAEMON}{}", SERVICE.replace("record = \"arrivals.csv\"", "")));
    let refused = |more: &[&str], parts: &[&str]| {
        let output = tune(&place, more);
        let text = stderr(&output);
        assert!(
            !output.status.success() && parts.iter().all(|part| text.contains(part)),
            "{parts:?}: {text}"
        );
    };
    refused(&["lane"], &["SERVICE = lane: must be one of the services, lanes"]);
    refused(&["lanes"], &["records nothing", "record = \"arrivals.csv\"", "--arrivals"]);
    refused(&["lanes", "--arrivals", "none.csv"], &["none.csv", "No such file"]);
    std::fs::write(place.path("other.csv"), "# weir: arrivals at service signs\ntime,stream\n")
        .expect("written");
    refused(
        &["lanes", "--arrivals", "other.csv"],
        &["other.csv", "is of service signs, not of service lanes"],
    );
    std::fs::write(place.path("bad.csv"), "time,stream\n5,a\n4,a\n").expect("written");
    refused(&["lanes", "--arrivals", "bad.csv"], &["line 3", "must not be before"]);
}
