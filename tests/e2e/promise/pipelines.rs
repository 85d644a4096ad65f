//! Pipelines: a source is answered once, as a whole, with what it became at each stage.

use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, Listener, answers, best_effort, daemon_in_real_time, eventually, pause, quiet,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use weir_client::{
    ArrivalBound, Constraint, MissReason, Outcome, RefusalCode, Registration, SafeModeCause, StreamInfo,
};

/// A source of four scores: each that is high enough is read, by a model that repeats it.
pub(crate) const METER: &str = r#"
    [[pipeline]]
    name = "meter"
    deadline = "2s"
    guard = "200ms"
    answer = ["detect", "read"]
    [[pipeline.stage]]
    name = "detect"
    engine = "simulated"
    simulated = { times = ["4ms", "5ms"], input = 4, output = 4 }
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
"#;

/// The same, with these tables before it and these streams of the pipeline; every batch is promised with `ms`.
pub(super) fn meter(daemon: &str, streams: &str, ms: u64) -> Deployment {
    meter_of(METER, daemon, streams, ms)
}

/// Another pipeline, likewise.
pub(super) fn meter_of(pipeline: &str, daemon: &str, streams: &str, ms: u64) -> Deployment {
    let deployment = Deployment::new(format!("{daemon}{pipeline}{streams}"));
    deployment.succeed(&["profile", "--quick", "--samples", "10"]);
    deployment.set_all_bounds(ms);
    deployment
}

/// What one source became: its scores, and of each that was read its row and what was read.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    scores: Vec<f32>,
    read: Vec<(i32, f32)>,
}

impl Read {
    /// `None` for a miss.
    pub(super) fn of(stream: &StreamInfo, outcome: &Outcome) -> Option<Self> {
        let result = outcome.result()?;
        let floats = |index| stream.output_at::<f32>(result, index).expect("an output of f32");
        let numbers = |index| stream.output_at::<i32>(result, index).expect("an output of i32");
        let (values, parents, rows) = (floats(1), numbers(2), numbers(3));
        assert_eq!((values.len(), parents.len(), rows.len()), (3, 3, 3));
        let there = parents.iter().take_while(|&&parent| parent >= 0).count();
        assert!(parents[..there].iter().all(|&parent| parent == 0), "{parents:?}");
        // Behind the last there is nothing.
        assert!(parents[there..].iter().chain(&rows[there..]).all(|&number| number == -1), "{rows:?}");
        assert!(values[there..].iter().all(|&value| value == 0.0), "{values:?}");
        let read = rows[..there].iter().copied().zip(values).collect();
        Some(Self { scores: floats(0), read })
    }

    /// What these scores are to become, the highest first.
    pub(super) fn expected(scores: &[f32], most: usize) -> Self {
        let mut read: Vec<(i32, f32)> =
            (0..).zip(scores.iter().copied()).filter(|(_, s)| *s >= 0.5).collect();
        read.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        read.truncate(most);
        Self { scores: scores.to_vec(), read }
    }
}

#[test]
fn a_source_is_answered_with_what_it_became_at_each_stage() {
    let daemon = meter(DAEMON, "", 10).serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "cam")).expect("registered");
    let names: Vec<_> =
        stream.outputs.iter().map(|tensor| (tensor.name.as_str(), &tensor.shape[..])).collect();
    let expected: [(&str, &[u32]); 4] =
        [("detect.output", &[4]), ("read.output", &[3, 1]), ("read.parent", &[3]), ("read.row", &[3])];
    assert!(names.iter().map(|(name, shape)| (*name, shape.len())).eq(expected.map(|(n, s)| (n, s.len()))));
    for scores in [[0.1, 0.9, 0.2, 0.6], [0.5, 0.5, 0.5, 0.0], [0.0; 4], [0.0, 0.0, 0.0, 1.0]] {
        let outcome = client.infer(&stream, &scores).expect("an answer");
        assert_eq!(Read::of(&stream, &outcome), Some(Read::expected(&scores, 3)), "{outcome:?}");
    }
    let status = daemon.status()["services"][0].clone();
    assert_eq!((&status["workers"], &status["workers_alive"]), (&3.into(), &3.into()), "{status}");
    let stages = status["stages"].as_array().expect("stages");
    let told: Vec<_> =
        stages.iter().map(|stage| (stage["name"].as_str(), stage["workers"].as_u64())).collect();
    assert_eq!(told, [(Some("detect"), Some(1)), (Some("read"), Some(2))]);
    assert_eq!((&stages[1]["after"], &stages[1]["fan_out"]), (&"detect".into(), &3.into()));
    assert_eq!((&stages[1]["parent_results"], &stages[1]["requests"]), (&4.into(), &6.into()), "{status}");
    assert_eq!(status["served"], 4);
}

#[test]
fn sources_that_overlap_are_each_answered_with_their_own_results() {
    let daemon = meter(&DAEMON.replace("[daemon]", "[daemon]\nclient-requests = 4096"), "", 10).serve();
    std::thread::scope(|scope| {
        for client in 0..3u32 {
            let daemon = &daemon;
            scope.spawn(move || {
                let mut connection = daemon.client();
                let name = format!("cam{client}");
                let stream = connection.register(&best_effort("meter", &name)).expect("registered");
                let scores = |n: u32| {
                    let mark = 0.5 + (client * 1000 + n) as f32 / 10_000.0;
                    [mark, (n % 2) as f32 * mark, 0.0, (n % 3 / 2) as f32 * (mark + 0.001)]
                };
                let mut served = 0;
                for burst in 0..10 {
                    let numbers = burst * 20..(burst + 1) * 20;
                    let ids: Vec<_> = numbers
                        .clone()
                        .map(|n| connection.submit(&stream, &scores(n)).expect("submitted"))
                        .collect();
                    let outcomes = answers(&mut connection, &ids);
                    for read in outcomes.iter().filter_map(|outcome| Read::of(&stream, outcome)) {
                        let whose = numbers.clone().find(|&n| scores(n) == read.scores[..]);
                        assert!(whose.is_some(), "{read:?} is nobody's");
                        assert_eq!(read, Read::expected(&read.scores, 3));
                        served += 1;
                    }
                }
                assert!(served > 0, "nothing was served, so nothing is shown");
            });
        }
    });
    eventually("nothing is open", || (daemon.status()["services"][0]["running"] == 0).then_some(()));
}

#[test]
fn results_beyond_the_fan_out_are_dropped_and_suspend_the_promise_of_their_stream_alone() {
    let streams = r#"
        [[pipeline.stream]]
        name = "busy"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 2, length = "2s" } }]
        [[pipeline.stream]]
        name = "calm"
        constraints = [{ any-miss = { m = 1, k = 2 } }]
        arrivals = [{ window = { count = 2, length = "2s" } }]
    "#;
    only_busy_is_suspended(&meter(DAEMON, streams, 10).serve());
}

/// A source of `busy` has more above the threshold than the fan-out lets through: that is told of its stream, and of no other.
pub(super) fn only_busy_is_suspended(daemon: &Daemon) {
    let mut listener = Listener::new(daemon);
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "busy")).expect("reserved");
    let scores = [0.9, 0.6, 0.8, 0.7];
    let outcome = client.infer(&stream, &scores).expect("an answer");
    assert_eq!(Read::of(&stream, &outcome), Some(Read::expected(&scores, 3)), "the best three");
    let told = listener.until_promised_anew("busy", 1);
    let first = &told[0];
    assert_eq!((first.cause, first.limit, first.seen), (SafeModeCause::FanOutExcess, 3, 4), "{first:?}");
    let words = "fan-out-excess: a result of a source of stream busy became 4 requests of stage read, 3 were declared";
    assert_eq!(first.text, words);
    assert!(first.stream == "busy" && told.iter().all(|told| told.stream == "busy"), "{told:?}");
    assert!(listener.changes().iter().all(|change| change.cause != SafeModeCause::FanOutExcess));
}

#[test]
fn what_the_stages_together_cannot_promise_is_refused_and_what_they_can_is_given() {
    let daemon = meter(DAEMON, "", 100).serve();
    let mut client = daemon.client();
    let promised = |name: &str, count| {
        Registration::builder("meter", name)
            .constraint(Constraint::RowMiss { misses: 1 })
            .arrivals(ArrivalBound::window(count, Duration::from_secs(2)))
            .build()
            .expect("valid")
    };
    // One of two must be answered, of three times as many requests of `read`, by two workers in batches of two.
    let refused = client.register(&promised("many", 200)).expect_err("too many");
    let weir_client::Error::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!(refusal.code, RefusalCode::NotAdmissible, "{refusal:?}");
    let stream = client.register(&promised("few", 4)).expect("it can be promised");
    for _ in 0..4 {
        let outcome = client.infer(&stream, &[0.9; 4].map(|s: f32| s)).expect("an answer");
        let _ = Read::of(&stream, &outcome);
    }
    // What comes and goes leaves room behind.
    client.unregister(&stream).expect("given up");
    client.register(&promised("other", 4)).expect("it can be promised");
}

#[test]
fn what_is_of_a_lost_worker_of_a_later_stage_is_missed_and_the_worker_comes_back() {
    let config = METER.replacen("workers = 2", "isolation = \"process\"", 1);
    let deployment = Deployment::new(format!(
        "{DAEMON}[safe-mode]\nhold = \"100ms\"\nclean = \"100ms\"\n{}",
        config.replace("\"3ms\", \"4ms\"", "\"60ms\", \"80ms\"")
    ));
    deployment.succeed(&["profile", "--quick", "--samples", "10"]);
    deployment.set_all_bounds(100);
    let daemon = deployment.serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "cam")).expect("registered");
    let process = eventually("the reader's process", || daemon.children().first().copied());
    let id = client.submit(&stream, &[0.9, 0.0, 0.0, 0.0]).expect("submitted");
    eventually("the second stage runs", || {
        let status = daemon.status();
        let (waiting, running) = (&status["services"][0]["waiting"], &status["services"][0]["running"]);
        // Or it was over before this looked: then the process is idle when it is killed.
        (waiting == 0 && running == 1 || status["services"][0]["served"] == 1).then_some(())
    });
    pause(Duration::from_millis(20));
    kill_process(process, Signal::KILL).expect("it is there");
    let outcome = answers(&mut client, &[id]).remove(0);
    if let Outcome::Miss(miss) = &outcome {
        assert_eq!(miss.reason, MissReason::WorkerLost, "{miss:?}");
    }
    eventually("the worker is lost", || {
        listener.changes().iter().any(|c| c.cause == SafeModeCause::WorkerLost).then_some(())
    });
    eventually("the worker", || (daemon.status()["services"][0]["workers_alive"] == 2).then_some(()));
    let scores = [0.0, 0.7, 0.0, 0.0];
    let outcome = client.infer(&stream, &scores).expect("an answer");
    assert_eq!(Read::of(&stream, &outcome), Some(Read::expected(&scores, 3)), "{outcome:?}");
}

/// Two stages that take 60 ms where they may take 10, of which one source is promised a second within so long, lateness of a second a
/// stage among it: 2.04 s in all. What `weir plan` leaves them to take longer, and whether any of five sources makes them tell of it.
fn overruns_within(deadline: &str) -> (u64, bool) {
    let stage = |name: &str, more: &str| {
        format!(
            "[[pipeline.stage]]\nname = \"{name}\"\nengine = \"simulated\"\nmax-batch = 1\n\
             simulated = {{ times = [\"60ms\"], input = 4, output = 4 }}\n{more}"
        )
    };
    let second = "after = \"first\"\n[pipeline.stage.adapter]\ninputs.input = { pass = \"output\" }\n";
    let streams = "[[pipeline.stream]]\nname = \"line\"\nconstraints = [{ row-miss = 0 }]\n\
                   arrivals = [{ periodic = { period = \"1s\" } }]\n";
    let pipeline = format!(
        "[[pipeline]]\nname = \"slow\"\ndeadline = \"{deadline}\"\nguard = \"1s\"\n{}{}",
        stage("first", ""),
        stage("second", second)
    );
    let place = meter_of(&pipeline, DAEMON, streams, 10);
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    let margin = plan["services"][0]["overrun_margin_ns"].as_u64().expect("a number");
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let stream = client.register(&best_effort("slow", "line")).expect("reserved");
    for n in 0..5 {
        pause(Duration::from_secs(1));
        assert!(client.infer(&stream, &[n as f32; 4]).is_ok(), "an answer");
    }
    let told = listener.changes().iter().any(|change| change.cause == SafeModeCause::ServiceOverrun);
    assert_eq!(daemon.status()["services"][0]["overruns"], 10, "both stages, of five sources, are counted");
    (margin / 1_000_000, told)
}

#[test]
fn batches_that_take_longer_are_told_of_once_that_is_more_than_is_left_of_the_deadline() {
    assert_eq!(overruns_within("20s"), (17_959, false));
    assert_eq!(overruns_within("2100ms"), (59, true));
}

#[test]
fn a_promise_from_end_to_end_is_kept_beside_a_flood() {
    quiet();
    let streams = r#"
        [[pipeline.stream]]
        name = "line"
        constraints = [{ row-miss = 1 }]
        arrivals = [{ periodic = { period = "100ms", jitter = "200ms" } }]
    "#;
    let daemon = meter(&daemon_in_real_time(), streams, 30).serve();
    let mut listener = Listener::new(&daemon);
    let on = std::sync::atomic::AtomicBool::new(true);
    let (missed, sent) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&daemon, &on));
        let mut client = daemon.client();
        let stream = client.register(&best_effort("meter", "line")).expect("reserved");
        let outcomes: Vec<Outcome> = (0..60)
            .map(|n| {
                pause(Duration::from_millis(100));
                let scores = [0.9, 0.5 + n as f32 / 200.0, 0.0, 0.7];
                let outcome = client.infer(&stream, &scores).expect("an answer");
                let read = Read::of(&stream, &outcome);
                assert!(read.is_none_or(|read| read == Read::expected(&scores, 3)), "{outcome:?}");
                outcome
            })
            .collect();
        on.store(false, std::sync::atomic::Ordering::Relaxed);
        let sent = flood.join().expect("no panic");
        (outcomes.windows(2).filter(|two| two.iter().all(|o| o.result().is_none())).count(), sent)
    });
    assert!(sent > 1000, "only {sent} were sent, so nothing is shown");
    listener.kept_or_told("meter", missed == 0, &missed);
}

/// Sends sources that nothing is promised for as fast as they are answered, until told to end; how many.
fn flood(daemon: &Daemon, on: &std::sync::atomic::AtomicBool) -> usize {
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "flood")).expect("registered");
    let mut sent = 0;
    while on.load(std::sync::atomic::Ordering::Relaxed) {
        let ids: Vec<_> =
            (0..50).map(|_| client.submit(&stream, &[0.9, 0.8, 0.7, 0.0]).expect("submitted")).collect();
        sent += ids.len();
        answers(&mut client, &ids);
    }
    sent
}
