//! Merges and joins: a source that goes several ways is answered once, with what came of all of them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::pipelines::meter_of;
use crate::harness::{
    self, DAEMON, Daemon, Deployment, Listener, answers, best_effort, daemon_in_real_time, eventually, pause,
    quiet,
};
use weir_client::{Outcome, SafeModeCause, StreamInfo};

/// A source of four scores goes to `left` as a whole, and to `read` with each that is high enough; `both` takes each of their results,
/// and `all` a source once, when all of it is done; `last` takes what of that is highest.
pub(super) const DIAMOND: &str = r#"
    [[pipeline]]
    name = "meter"
    deadline = "2s"
    guard = "200ms"
    answer = ["both", "all", "last"]
    [[pipeline.stage]]
    name = "detect"
    engine = "simulated"
    simulated = { times = ["4ms", "5ms"], input = 4, output = 4 }
    max-batch = 2
    [[pipeline.stage]]
    name = "left"
    after = "detect"
    engine = "simulated"
    simulated = { times = ["6ms", "7ms"], input = 4, output = 1 }
    max-batch = 2
    [[pipeline.stage]]
    name = "read"
    after = "detect"
    fan-out = 3
    engine = "simulated"
    workers = 2
    simulated = { times = ["3ms", "4ms"], input = 1, output = 1 }
    max-batch = 2
    [pipeline.stage.adapter]
    each = { scores = "output", threshold = 0.5 }
    inputs.input = { row = "output" }
    [[pipeline.stage]]
    name = "both"
    after = ["left", "read"]
    engine = "simulated"
    workers = 2
    simulated = { times = ["2ms", "3ms"], input = 1, output = 1 }
    max-batch = 2
    [[pipeline.stage]]
    name = "all"
    after = ["both", "left"]
    join = true
    engine = "simulated"
    simulated = { times = ["2ms", "3ms"], input = 9, output = 9 }
    max-batch = 2
    [pipeline.stage.adapter]
    inputs.input = { concatenate = ["detect.output", "left.output", "both.output"] }
    [[pipeline.stage]]
    name = "last"
    after = "all"
    fan-out = 2
    engine = "simulated"
    simulated = { times = ["2ms", "3ms"], input = 5, output = 5 }
    max-batch = 2
    [pipeline.stage.adapter]
    each = { scores = "output", threshold = 0.875 }
    inputs.input = { concatenate = [{ row = "output" }, "detect.output"] }
"#;

/// What of one source came of the ways.
#[derive(Debug, PartialEq)]
pub(super) struct Whole {
    /// Of each result of `both`: the stage that it was made of, and what it is; in no order.
    both: Vec<(i32, f32)>,
    all: Vec<f32>,
    /// The row of `all`, and what was made of it.
    last: Vec<(i32, Vec<f32>)>,
}

impl Whole {
    /// `None` for a miss.
    pub(super) fn of(stream: &StreamInfo, outcome: &Outcome) -> Option<Self> {
        let result = outcome.result()?;
        let floats = |index| stream.output_at::<f32>(result, index).expect("an output of f32");
        let numbers = |index| stream.output_at::<i32>(result, index).expect("an output of i32");
        let (both, from, last) = (floats(0), numbers(3), floats(5));
        let there = from.iter().take_while(|&&from| from >= 0).count();
        assert!(both[there..].iter().all(|&value| value == 0.0), "{both:?}");
        let mut both: Vec<_> = from[..there].iter().copied().zip(both).collect();
        both.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let rows = numbers(7);
        let rows = rows.iter().copied().take_while(|&row| row >= 0);
        Some(Self { both, all: floats(4), last: rows.zip(last.chunks(5).map(<[_]>::to_vec)).collect() })
    }

    /// What these scores are to become.
    pub(super) fn expected(scores: &[f32; 4]) -> Self {
        let mut high: Vec<f32> = scores.iter().copied().filter(|score| *score >= 0.5).collect();
        high.sort_by(|a, b| b.total_cmp(a));
        high.truncate(3);
        let both: Vec<_> = [(1, scores[0])].into_iter().chain(high.iter().map(|&score| (2, score))).collect();
        // In one order, whichever way was quicker: that of the stages, and at each that of the scores.
        let mut all = [&scores[..], &[scores[0], scores[0]], &high].concat();
        all.resize(9, 0.0);
        let mut rows: Vec<usize> = (0..9).filter(|&row| all[row] >= 0.875).collect();
        rows.sort_by(|&a, &b| all[b].total_cmp(&all[a]).then(a.cmp(&b)));
        rows.truncate(2);
        let last = rows.iter().map(|&row| (row as i32, [&[all[row]], &scores[..]].concat())).collect();
        Self { both, all, last }
    }
}

/// What a command says that needs no configuration.
fn weir(arguments: &[&str]) -> String {
    let output =
        std::process::Command::new(harness::weir()).args(arguments).output().expect("weir can be run");
    assert!(output.status.success(), "weir {arguments:?}: {}", harness::stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn stage<'a>(status: &'a Value, name: &str) -> &'a Value {
    let stages = status["services"][0]["stages"].as_array().expect("stages");
    stages.iter().find(|stage| stage["name"] == name).expect("the stage")
}

#[test]
fn a_source_is_answered_once_with_what_came_of_all_its_ways() {
    let daemon = meter_of(DIAMOND, DAEMON, "", 10).serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "cam")).expect("registered");
    let names: Vec<_> = stream.outputs.iter().map(|tensor| (&*tensor.name, &tensor.shape[..])).collect();
    let expected: [(_, &[u32]); 8] = [
        ("both.output", &[4, 1]),
        ("both.parent", &[4]),
        ("both.row", &[4]),
        ("both.from", &[4]),
        ("all.output", &[9]),
        ("last.output", &[2, 5]),
        ("last.parent", &[2]),
        ("last.row", &[2]),
    ];
    assert_eq!(names, expected);
    for scores in [[0.1, 0.9, 0.2, 0.6], [0.5, 0.5, 0.5, 0.0], [0.0; 4], [0.95, 0.0, 0.0, 1.0]] {
        let outcome = client.infer(&stream, &scores).expect("an answer");
        assert_eq!(Whole::of(&stream, &outcome), Some(Whole::expected(&scores)), "{outcome:?}");
    }
    let status = daemon.status();
    let (detect, left, both, all) =
        (stage(&status, "detect"), stage(&status, "left"), stage(&status, "both"), stage(&status, "all"));
    assert_eq!((&detect["after"], detect["parents"].to_string()), (&Value::Null, "[]".to_owned()));
    assert_eq!((&left["after"], left["parents"].to_string()), (&"detect".into(), "[\"detect\"]".to_owned()));
    assert_eq!(
        (&both["after"], both["parents"].to_string()),
        (&Value::Null, "[\"left\",\"read\"]".to_owned())
    );
    assert_eq!((&both["join"], &all["join"]), (&false.into(), &true.into()));
    // Each source once, however many results there were.
    assert_eq!((&all["variants"][0]["answered"], &both["variants"][0]["answered"]), (&4.into(), &11.into()));
    let told = weir(&["status", "--socket", &daemon.deployment.socket().display().to_string()]);
    assert!(
        told.contains(", up to 1 a result of left, read") && told.contains(", once behind left, both"),
        "{told}"
    );
    let metrics = &status["services"][0];
    assert_eq!((&metrics["served"], &metrics["running"]), (&4.into(), &0.into()));
}

/// Sends sources of many marks at once and checks each answer; how many were served.
fn overlapping(daemon: &Daemon, client: u32, bursts: u32) -> usize {
    let mut connection = daemon.client();
    let stream = connection.register(&best_effort("meter", &format!("cam{client}"))).expect("registered");
    let scores = |n: u32| {
        let mark = 0.5 + (client * 1000 + n) as f32 / 10_000.0;
        [mark, (n % 2) as f32 * mark, 0.0, (n % 3 / 2) as f32 * (mark + 0.001)]
    };
    let mut served = 0;
    for burst in 0..bursts {
        let numbers = burst * 20..(burst + 1) * 20;
        let ids = numbers.clone().map(|n| connection.submit(&stream, &scores(n)).expect("submitted"));
        let ids: Vec<_> = ids.collect();
        let mut seen = HashSet::new();
        for whole in answers(&mut connection, &ids).iter().filter_map(|outcome| Whole::of(&stream, outcome)) {
            let whose = numbers.clone().find(|&n| scores(n) == whole.all[..4]).expect("somebody's");
            assert_eq!(whole, Whole::expected(&scores(whose)));
            assert!(seen.insert(whose), "{whose} was answered twice");
            served += 1;
        }
    }
    served
}

/// The same by so many clients beside each other, while something else goes on; how many of all were served.
fn all_overlapping(daemon: &Daemon, clients: u32, bursts: u32, meanwhile: impl FnOnce()) -> usize {
    std::thread::scope(|scope| {
        let spawn = |client| scope.spawn(move || overlapping(daemon, client, bursts));
        let clients: Vec<_> = (0..clients).map(spawn).collect();
        meanwhile();
        clients.into_iter().map(|client| client.join().expect("no panic")).sum()
    })
}

#[test]
fn sources_that_overlap_on_all_ways_are_each_answered_once_and_counted_once() {
    let daemon =
        meter_of(DIAMOND, &DAEMON.replace("[daemon]", "[daemon]\nclient-requests = 4096"), "", 10).serve();
    let served = all_overlapping(&daemon, 3, 10, || ());
    assert!(served > 0, "nothing was served, so nothing is shown");
    eventually("nothing is open", || (daemon.status()["services"][0]["running"] == 0).then_some(()));
    let status = daemon.status()["services"][0].clone();
    let missed: u64 = status["missed"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
    // A source that is missed at several stages is one miss.
    assert_eq!(
        status["served"].as_u64().map(|told| (told, told + missed)),
        Some((served as u64, 600)),
        "{status}"
    );
    let stages = status["stages"].as_array().expect("stages");
    assert!(stages.iter().all(|stage| stage["waiting"] == 0), "{status}");
}

#[test]
fn what_is_beyond_the_fan_out_on_one_way_is_dropped_and_the_others_go_on() {
    let streams = r#"
        [[pipeline.stream]]
        name = "busy"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 2, length = "2s" } }]
    "#;
    let daemon = meter_of(DIAMOND, DAEMON, streams, 10).serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "busy")).expect("reserved");
    let scores = [0.9, 0.6, 0.8, 0.7];
    let outcome = client.infer(&stream, &scores).expect("an answer");
    assert_eq!(Whole::of(&stream, &outcome), Some(Whole::expected(&scores)), "the best three");
    let told = &listener.until_promised_anew("busy", 1)[0];
    assert_eq!((told.cause, told.limit, told.seen), (SafeModeCause::FanOutExcess, 3, 4), "{told:?}");
    assert!(told.text.contains("became 4 requests of stage read, 3 were declared"), "{told:?}");
}

#[test]
fn what_has_begun_on_all_ways_is_cancelled_with_its_stream_and_another_is_served() {
    let slow = DIAMOND.replace("\"6ms\", \"7ms\"", "\"300ms\", \"300ms\"").replace("\"2s\"", "\"10s\"");
    let daemon = meter_of(&slow, DAEMON, "", 350).serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "cam")).expect("registered");
    for _ in 0..6 {
        client.submit(&stream, &[0.9, 0.8, 0.0, 0.7]).expect("submitted");
    }
    eventually("all ways are taken", || {
        (stage(&daemon.status(), "both")["variants"][0]["answered"].as_u64()? > 0).then_some(())
    });
    client.unregister(&stream).expect("given up");
    eventually("nothing waits", || {
        let status = daemon.status();
        let stages = status["services"][0]["stages"].as_array()?;
        (stages.iter().all(|stage| stage["waiting"] == 0) && status["services"][0]["running"] == 0)
            .then_some(())
    });
    let mut other = daemon.client();
    let stream = other.register(&best_effort("meter", "other")).expect("registered");
    let scores = [0.9, 0.0, 0.7, 0.0];
    let outcome = other.infer(&stream, &scores).expect("an answer");
    assert_eq!(Whole::of(&stream, &outcome), Some(Whole::expected(&scores)), "{outcome:?}");
}

#[test]
fn another_takes_over_while_sources_are_on_all_ways_and_each_is_answered_once() {
    let config = |deadline: &str| {
        let daemon = DAEMON.replace("[daemon]", "[daemon]\nclient-requests = 4096");
        format!("{daemon}{}", DIAMOND.replace("\"2s\"", deadline))
    };
    let place = meter_of(DIAMOND, &DAEMON.replace("[daemon]", "[daemon]\nclient-requests = 4096"), "", 10);
    let daemon = place.serve();
    let served = all_overlapping(&daemon, 2, 15, || {
        for deadline in ["\"3s\"", "\"2500ms\"", "\"3s\""] {
            pause(Duration::from_millis(300));
            daemon.deployment.configure(config(deadline));
            assert!(daemon.reload_accepted().contains("meter"), "it has changed");
        }
    });
    assert!(served > 100, "{served}");
    assert_eq!(daemon.status()["services"][0]["deadline_ns"], 3_000_000_000_u64);
    // As a tree it is another pipeline.
    let tree = config("\"3s\"")
        .replace("join = true", "")
        .replace("after = [\"both\", \"left\"]", "after = \"both\"");
    daemon.deployment.configure(tree);
    let refused = daemon.reload_refused();
    assert!(refused.contains("concatenate") || refused.contains("inputs.input"), "{refused}");
}

#[test]
fn a_promise_over_several_ways_is_kept_beside_a_flood() {
    quiet();
    let streams = r#"
        [[pipeline.stream]]
        name = "line"
        constraints = [{ row-miss = 1 }]
        arrivals = [{ periodic = { period = "100ms", jitter = "200ms" } }]
    "#;
    let daemon = meter_of(DIAMOND, &daemon_in_real_time(), streams, 20).serve();
    let (mut listener, on) = (Listener::new(&daemon), AtomicBool::new(true));
    let (missed, sent) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let (mut client, mut sent) = (daemon.client(), 0);
            let stream = client.register(&best_effort("meter", "flood")).expect("registered");
            while on.load(Ordering::Relaxed) {
                let scores = [0.9, 0.8, 0.7, 0.0];
                let ids: Vec<_> =
                    (0..50).map(|_| client.submit(&stream, &scores).expect("submitted")).collect();
                sent += answers(&mut client, &ids).len();
            }
            sent
        });
        let mut client = daemon.client();
        let stream = client.register(&best_effort("meter", "line")).expect("reserved");
        let served = (0..60).map(|n| {
            pause(Duration::from_millis(100));
            let scores = [0.9, 0.5 + n as f32 / 200.0, 0.0, 0.7];
            let whole = Whole::of(&stream, &client.infer(&stream, &scores).expect("an answer"));
            whole.is_some_and(|whole| whole == Whole::expected(&scores))
        });
        let served: Vec<bool> = served.collect();
        on.store(false, Ordering::Relaxed);
        (served.windows(2).filter(|two| !two[0] && !two[1]).count(), flood.join().expect("no panic"))
    });
    assert!(sent > 500, "only {sent} were sent, so nothing is shown");
    listener.kept_or_told("meter", missed == 0, &missed);
}

/// Planned, certified by the checker's fourth format, drawn, recorded and played again.
#[test]
fn a_graph_is_planned_certified_drawn_recorded_and_simulated() {
    let streams = r#"
        [[pipeline.stream]]
        name = "line"
        constraints = [{ row-miss = 1 }]
        arrivals = [{ periodic = { period = "400ms", jitter = "100ms" } }]
    "#;
    let config = DIAMOND.replace(
        "name = \"meter\"\n",
        "name = \"meter\"\nrecord = \"a.csv\"\nconstraints = [{ any-miss = { m = 1, k = 2 } }]\n",
    );
    let daemon = format!("{DAEMON}certificate = \"c.json\"\n");
    let place: Deployment = meter_of(&config, &daemon, streams, 10);
    let checked = place.succeed(&["check"]);
    for line in [
        ":       both: ",
        ", one of each result of left and read",
        ", one of each request of the pipeline, once left and both are done with it",
    ] {
        assert!(checked.contains(line), "{line}: {checked}");
    }
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    let stages = &plan["services"][0]["pipeline"];
    assert_eq!(stages[3]["parents"].to_string(), "[\"left\",\"read\"]");
    assert_eq!(
        (&stages[4]["join"], &stages[4]["most"], &stages[3]["most"]),
        (&true.into(), &1.into(), &4.into())
    );
    assert!(plan["services"][0]["rate"]["per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{plan}");
    assert!(place.succeed(&["certify"]).contains("meter: admissible, by theorem-p"));
    let certificate = place.path("c.json");
    let text = std::fs::read_to_string(&certificate).expect("written");
    let written: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(written["weir_certificate"], 4);
    // It goes on with the configuration's path.
    place.succeed(&["verify", &certificate.display().to_string(), "--config"]);
    let drawn = place.path("meter.svg");
    place.succeed(&["plan", "--pipeline", "meter", "--figure", &drawn.display().to_string()]);
    assert!(std::fs::read_to_string(drawn).expect("a figure").contains("5 all: 1 × B = "));
    std::fs::write(place.path("p.json"), place.succeed(&["plan", "--problem", "meter"])).expect("written");

    let mut daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "line")).expect("reserved");
    for scores in [[0.9, 0.0, 0.7, 0.0], [0.0; 4]] {
        pause(Duration::from_millis(450));
        assert!(client.infer(&stream, &scores).expect("an answer").result().is_some());
    }
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait().success(), "{}", daemon.stderr());
    let place = &daemon.deployment;
    let log = std::fs::read_to_string(place.path("a.csv")).expect("a recording");
    // A join takes each source once, and that is told before the end of the batch that let it.
    for source in 0..2 {
        let line = format!("# become,line,{source},all,1\n");
        assert_eq!(log.matches(&line).count(), 1, "{log}");
        let (_, behind) = log.split_once(&line).expect("it is there");
        assert!(behind.starts_with("# end,") || behind.starts_with("# become,"), "{log}");
    }
    let (problem, recording) =
        (place.path("p.json").display().to_string(), place.path("a.csv").display().to_string());
    let report = weir(&["simulate", "--problem", &problem, "--arrivals", &recording, "--json"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["streams"][0]["served"], 2, "{report}");
}

#[test]
fn what_no_graph_can_have_is_refused_by_the_check() {
    let refused = |from: &str, to: &str| {
        assert_eq!(DIAMOND.matches(from).count(), 1, "{from}");
        Deployment::new(format!("{DAEMON}{}", DIAMOND.replace(from, to))).fail(&["check"])
    };
    for (from, to, wanted) in [
        (
            "input = 4, output = 1 }",
            "input = 4, output = 2 }",
            "pipeline[0].stage[3].adapter.inputs.input = (nothing): on the way detect -> left: say what it is made of",
        ),
        (
            "\"both.output\"] }",
            "\"output\"] }",
            "stage[4].adapter.inputs.input.concatenate[2] = \"output\": several stages",
        ),
        (
            "simulated = { times = [\"6ms\", \"7ms\"], input = 4, output = 1 }",
            "simulated = { accuracy = 0.5, times = [\"6ms\", \"7ms\"], input = 4, output = 1, variants = [{ accuracy = 0.9, times = [\"8ms\", \"9ms\"] }] }",
            "pipeline[0].stage[1].simulated.variants = (present): is not possible where a stage has several parents or is a join",
        ),
        (
            "join = true",
            "join = true\nfan-out = 2",
            "stage[4].fan-out = 2: a join makes one request of a source",
        ),
    ] {
        let message = refused(from, to);
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
}
