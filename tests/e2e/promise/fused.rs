//! Pipelines on devices: each batch runs all stages, beside the batches of other services.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::joins::{DIAMOND, Whole};
use super::pipelines::{METER, Read, only_busy_is_suspended};
use crate::harness::{
    DAEMON, Daemon, Deployment, Listener, answers, best_effort, daemon_in_real_time, eventually, pause, quiet,
};
use rustix::process::{Signal, kill_process};
use weir_client::{MissReason, Outcome};

/// A pipeline whose stages have workers of their own, on a device, beside a service that answers what it is asked.
fn on_device(pipeline: &str) -> String {
    let own = pipeline.replace("    workers = 2\n", "");
    let shared = own.replacen("deadline = \"2s\"", "deadline = \"2s\"\n    device = \"box\"", 1);
    format!(
        "[[device]]\nname = \"box\"\n{shared}\n[[service]]\nname = \"stop\"\ndevice = \"box\"\nengine = \"simulated\"\n\
         simulated = {{ times = [\"2ms\"], input = 1, output = 1 }}\ndeadline = \"1s\"\nguard = \"300ms\"\nqueue = 40\n"
    )
}

/// Every batch of every stage is promised with `ms`.
fn deployment(daemon: &str, pipeline: &str, ms: u64) -> Deployment {
    let place = Deployment::new(format!("{daemon}{}", on_device(pipeline)));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(ms);
    place
}

fn stages(daemon: &Daemon) -> Vec<(String, u64, u64)> {
    let status = daemon.status();
    let services = status["services"].as_array().expect("services");
    let meter = services.iter().find(|service| service["name"] == "meter").expect("there");
    let stage = |stage: &Value| {
        let results = stage["variants"][0]["answered"].as_u64().expect("a count");
        (
            stage["name"].as_str().expect("a name").to_owned(),
            stage["workers"].as_u64().expect("a count"),
            results,
        )
    };
    meter["stages"].as_array().expect("stages").iter().map(stage).collect()
}

#[test]
fn a_source_is_answered_on_a_device_as_by_stages_with_workers_of_their_own() {
    let daemon = deployment(DAEMON, METER, 10).serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "cam")).expect("registered");
    let other = client.register(&best_effort("stop", "line")).expect("registered");
    for scores in [[0.1, 0.9, 0.2, 0.6], [0.5, 0.5, 0.5, 0.0], [0.0; 4], [0.0, 0.0, 0.0, 1.0]] {
        let outcome = client.infer(&stream, &scores).expect("an answer");
        assert_eq!(Read::of(&stream, &outcome), Some(Read::expected(&scores, 3)), "{outcome:?}");
        let outcome = client.infer(&other, &[scores[1]]).expect("an answer");
        assert!(outcome.result().is_some(), "{outcome:?}");
    }
    // Four sources, and what they became.
    assert_eq!(stages(&daemon), [("detect".to_owned(), 1, 4), ("read".to_owned(), 1, 6)]);
    let status = daemon.status();
    let meter = status["services"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "meter"));
    let read = &meter.expect("there")["stages"][1];
    assert_eq!((&read["parent_results"], &read["requests"]), (&4.into(), &6.into()), "{read}");
}

#[test]
fn sources_of_one_batch_are_each_answered_with_what_came_of_all_their_ways() {
    let daemon =
        deployment(&DAEMON.replace("[daemon]", "[daemon]\nclient-requests = 4096"), DIAMOND, 10).serve();
    thread::scope(|scope| {
        for client in 0..2_u16 {
            let daemon = &daemon;
            scope.spawn(move || {
                let mut connection = daemon.client();
                let name = format!("cam{client}");
                let stream = connection.register(&best_effort("meter", &name)).expect("registered");
                let scores = |n: u16| {
                    let mark = 0.5 + f32::from(client * 1000 + n) / 8192.0;
                    [mark, f32::from(n % 2) * mark, f32::from(n % 3 / 2) * 0.95, 0.25]
                };
                let (mut served, mut together) = (0, 0);
                for burst in 0..8 {
                    let numbers = burst * 12..(burst + 1) * 12;
                    let ids: Vec<_> = numbers
                        .clone()
                        .map(|n| connection.submit(&stream, &scores(n)).expect("submitted"))
                        .collect();
                    for (n, outcome) in numbers.zip(answers(&mut connection, &ids)) {
                        together += usize::from(outcome.result().is_some_and(|result| result.batch > 1));
                        if let Some(whole) = Whole::of(&stream, &outcome) {
                            assert_eq!(whole, Whole::expected(&scores(n)), "{outcome:?}");
                            served += 1;
                        }
                    }
                }
                assert!(
                    served > 0 && together > 0,
                    "{served} served, {together} of them in batches of several"
                );
            });
        }
    });
    let all = stages(&daemon);
    // Each source that was answered is one request of these, whatever became of it elsewhere.
    let results = |name: &str| all.iter().find(|stage| stage.0 == name).map(|stage| stage.2);
    assert_eq!((results("left"), results("all")), (results("detect"), results("detect")));
}

#[test]
fn results_beyond_the_fan_out_suspend_the_promise_of_their_stream_alone_on_a_device_too() {
    let streams = ["busy", "calm"].map(|name| {
        format!(
            "[[pipeline.stream]]\nname = \"{name}\"\nconstraints = [{{ any-miss = {{ m = 1, k = 2 }} }}]\n\
             arrivals = [{{ window = {{ count = 1, length = \"2s\" }} }}]\n"
        )
    });
    only_busy_is_suspended(&deployment(DAEMON, &format!("{METER}{}", streams.concat()), 10).serve());
}

#[test]
fn a_process_has_the_models_of_all_stages_and_what_it_takes_with_it_is_missed() {
    let slow = METER.replace("\"3ms\", \"4ms\"", "\"60ms\", \"80ms\"").replacen(
        "    name = \"read\"",
        "    name = \"read\"\n    isolation = \"process\"",
        1,
    );
    let daemon =
        deployment(&format!("{DAEMON}[safe-mode]\nhold = \"100ms\"\nclean = \"100ms\"\n"), &slow, 100)
            .serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "cam")).expect("registered");
    let process = eventually("the process", || daemon.children().first().copied());
    assert_eq!(daemon.children().len(), 1, "one for all stages");
    let id = client.submit(&stream, &[0.9, 0.8, 0.7, 0.0]).expect("submitted");
    pause(Duration::from_millis(30));
    kill_process(process, Signal::KILL).expect("it is there");
    // Or it was over before.
    if let Outcome::Miss(miss) = answers(&mut client, &[id]).remove(0) {
        assert_eq!(miss.reason, MissReason::WorkerLost, "{miss:?}");
    }
    let scores = [0.0, 0.7, 0.0, 0.0];
    eventually("an answer of the new process", || {
        let outcome = client.infer(&stream, &scores).expect("an outcome");
        (Read::of(&stream, &outcome) == Some(Read::expected(&scores, 3))).then_some(())
    });
}

#[test]
fn a_pipeline_on_a_device_is_planned_certified_and_insisted_on_as_a_service_of_it() {
    let stream = "[[pipeline.stream]]\nname = \"cam\"\nconstraints = [{ row-miss = 0 }]\n\
                  arrivals = [{ periodic = { period = \"500ms\" } }]\n";
    let place = deployment(&format!("{DAEMON}certificate = \"c.json\"\n"), &format!("{METER}{stream}"), 10);
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    let services = plan["services"].as_array().expect("services");
    let meter = services.iter().find(|service| service["name"] == "meter").expect("planned");
    assert_eq!((&meter["device"], &meter["stages"][1]["most"]), (&"box".into(), &3.into()), "{meter}");
    // Of one source three requests at the second stage, in batches of two and one; and one handover.
    assert_eq!(meter["batch_times_ns"][0], 10_200_000 + 2 * 10_000_000, "{meter}");
    let text = place.succeed(&["plan"]);
    for words in ["meter: a pipeline of 2 stage(s)", "each batch runs all 2 stages, one behind the other:"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let drawn = place.succeed(&[
        "plan",
        "--pipeline",
        "meter",
        "--figure",
        &place.path("m.svg").display().to_string(),
    ]);
    assert!(drawn.contains("meter: all of it within "), "{drawn}");
    let figure = std::fs::read_to_string(place.path("m.svg")).expect("drawn");
    assert!(figure.contains("waits: ") && figure.contains("3 read: up to "), "{figure}");
    assert!(place.succeed(&["check"]).contains("pipeline meter, answered within "));
    place.succeed(&["certify"]);
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "cam")).expect("reserved");
    let outcome = client.infer(&stream, &[0.9, 0.0, 0.0, 0.0]).expect("an answer");
    assert!(outcome.result().is_some(), "{outcome:?}");
    drop(daemon);
    // Another time of a later stage than was certified.
    place.set_stage_bounds("meter/read", &[11, 11]);
    let text = place.fail(&["serve"]);
    assert!(text.contains("service meter: profile is") && text.contains("weir certify"), "{text}");
}

#[test]
fn what_is_reserved_for_a_pipeline_on_a_device_is_kept_beside_a_flood_on_another_service_of_it() {
    quiet();
    let stream = "[[pipeline.stream]]\nname = \"cam\"\nconstraints = [{ row-miss = 0 }]\n\
                  arrivals = [{ periodic = { period = \"200ms\", jitter = \"150ms\" } }]\n";
    let daemon = deployment(&daemon_in_real_time(), &format!("{METER}{stream}"), 60).serve();
    let mut listener = Listener::new(&daemon);
    let (kept, flooded) = thread::scope(|scope| {
        let cam = scope.spawn(|| {
            let mut client = daemon.client();
            let stream = client.register(&best_effort("meter", "cam")).expect("reserved");
            let mut ids = Vec::new();
            for _ in 0..20 {
                ids.push(client.submit(&stream, &[0.9, 0.8, 0.7, 0.1]).expect("sent"));
                pause(Duration::from_millis(200));
            }
            answers(&mut client, &ids)
        });
        let mut client = daemon.client();
        let flood = client.register(&best_effort("stop", "flood")).expect("best effort");
        let mut ids = Vec::new();
        for _ in 0..2500 {
            ids.push(client.submit(&flood, &[2.0]).expect("sent"));
            // About three times what the worker could do for it alone.
            pause(Duration::from_micros(1500));
        }
        (cam.join().expect("sent"), answers(&mut client, &ids))
    });
    let lost = kept.iter().filter(|outcome| outcome.result().is_none()).count();
    listener.kept_or_told("meter", lost == 0, &kept);
    assert!(flooded.iter().any(|outcome| outcome.result().is_some()), "the others are served too");
}
