//! What a daemon records of services that share a worker and of a pipeline: a log that the proved model and the tools take.

use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::devices::deployment;
use super::pipelines::meter;
use crate::harness::prover::prover;
use crate::harness::{
    DAEMON, Deployment, alone, answers, best_effort, daemon_in_real_time, pause, stderr, weir,
};

const BURSTS: usize = 8;

/// Serves bursts in which the long service keeps the worker while a request of each other comes, the more patient one first;
/// whether nothing disturbed it.
fn serve(place: &Deployment) -> bool {
    let mut daemon = place.serve();
    let mut client = daemon.client();
    let streams = [("scene", "any"), ("track", "line"), ("stop", "line")]
        .map(|(service, name)| client.register(&best_effort(service, name)).expect("a stream"));
    for _ in 0..BURSTS {
        let ids = streams.iter().map(|stream| {
            pause(Duration::from_millis(3));
            client.submit(stream, &[0.0; 3]).expect("submitted")
        });
        let ids: Vec<_> = ids.collect();
        answers(&mut client, &ids);
        pause(Duration::from_millis(300));
    }
    let status = daemon.status();
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", daemon.stderr());
    status["services"]
        .as_array()
        .expect("services")
        .iter()
        .all(|service| service["safe_mode"]["sequence"] == 0)
}

fn run(place: &Deployment, arguments: &[&str]) -> Output {
    let config = place.config();
    let folder = config.parent().expect("a folder");
    Command::new(weir()).args(arguments).current_dir(folder).output().expect("weir can be run")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A machine that is busy otherwise may be late by more than is kept back, and the daemon says so: then it is asked again.
fn recorded() -> (Deployment, String) {
    alone();
    let place = deployment(&daemon_in_real_time(), [60, 70, 90]);
    let config = std::fs::read_to_string(place.config()).expect("written");
    place
        .configure(config.replace("name = \"box\"\n", "name = \"box\"\nahead = false\nrecord = \"a.csv\"\n"));
    std::fs::write(place.path("p.json"), place.succeed(&["plan", "--problem", "track"])).expect("written");
    assert!((0..4).any(|_| serve(&place)), "safe mode each time: the machine is too busy for this test");
    let log = std::fs::read_to_string(place.path("a.csv")).expect("a recording");
    (place, log)
}

#[test]
fn a_device_is_recorded_in_one_log_that_the_tools_take() {
    let (place, log) = recorded();
    assert!(log.starts_with("# weir: arrivals at device box\n"), "{log}");
    let count = |is: &dyn Fn(&str) -> bool| log.lines().filter(|line| is(line)).count();
    for stream in ["scene/any", "track/line", "stop/line"] {
        assert_eq!(
            count(&|line| line.ends_with(&format!(",{stream}")) && !line.starts_with('#')),
            BURSTS,
            "{log}"
        );
        assert_eq!(count(&|line| line.starts_with(&format!("# take,{stream},"))), BURSTS, "{log}");
    }
    assert_eq!(count(&|line| line.starts_with("# start,")), 3 * BURSTS, "{log}");
    assert_eq!(count(&|line| line.starts_with("# end,")), 3 * BURSTS, "{log}");
    let report = json(&run(&place, &["simulate", "--problem", "p.json", "--arrivals", "a.csv", "--json"]));
    let streams = report["streams"].as_array().expect("streams");
    let served = streams.iter().map(|stream| (stream["name"].as_str().expect("a name"), &stream["served"]));
    assert!(
        served.eq([
            ("stop/line", &BURSTS.into()),
            ("track/line", &BURSTS.into()),
            ("scene/any", &BURSTS.into())
        ]),
        "{report}"
    );
    for service in ["stop", "track"] {
        let tuned = json(&run(&place, &["tune", service, "weir.toml", "--json"]));
        let streams = tuned["streams"].as_array().expect("streams");
        assert_eq!((streams.len(), &streams[0]["name"]), (1, &"line".into()), "{tuned}");
        assert_eq!((&streams[0]["requests"], &streams[0]["beyond"]), (&BURSTS.into(), &0.into()), "{tuned}");
    }
    // Another device's is none of it.
    std::fs::write(place.path("other.csv"), log.replace("device box", "device bag")).expect("written");
    let refused = run(&place, &["tune", "stop", "weir.toml", "--arrivals", "other.csv"]);
    assert!(stderr(&refused).contains("is of device bag, not of device box"), "{}", stderr(&refused));
}

/// A pipeline that is recorded, with its problem beside it.
fn recorded_meter(daemon: &str, streams: &str, ms: u64) -> Deployment {
    let place = meter(daemon, streams, ms);
    let config = std::fs::read_to_string(place.config()).expect("written");
    place.configure(config.replace("name = \"meter\"\n", "name = \"meter\"\nrecord = \"a.csv\"\n"));
    std::fs::write(place.path("p.json"), place.succeed(&["plan", "--problem", "meter"])).expect("written");
    place
}

#[test]
fn a_pipeline_is_recorded_with_what_its_results_became_and_the_tools_take_that() {
    let place = recorded_meter(DAEMON, "", 10);
    let mut daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("meter", "cam")).expect("a stream");
    for scores in [[0.9, 0.0, 0.7, 0.0], [0.0; 4], [0.6, 0.7, 0.8, 0.9]] {
        let outcome = client.infer(&stream, &scores).expect("an answer");
        assert!(outcome.result().is_some(), "{outcome:?}");
    }
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", daemon.stderr());
    let log = std::fs::read_to_string(place.path("a.csv")).expect("a recording");
    let count = |is: &dyn Fn(&str) -> bool| log.lines().filter(|line| is(line)).count();
    // Of the last source four results are high enough, and three may go on.
    for (source, became) in [2, 0, 3].into_iter().enumerate() {
        let (take, line) = (format!("# take,cam,{source}"), format!("# become,cam,{source},read,{became}"));
        assert_eq!(count(&|other| other == take), 1 + became, "{log}");
        assert_eq!(count(&|other| other == line), became.min(1), "{log}");
    }
    assert_eq!(count(&|line| line.starts_with("# become")), 2, "{log}");
    for worker in ["detect,0", "read,0", "read,1"] {
        let starts = count(&|line| line.starts_with("# start,") && line.contains(&format!(",{worker},")));
        let ends = count(&|line| line.starts_with("# end,") && line.ends_with(&format!(",{worker}")));
        assert!(starts == ends && (worker != "detect,0" || starts == 3), "{worker}: {log}");
    }
    let report = json(&run(&place, &["simulate", "--problem", "p.json", "--arrivals", "a.csv", "--json"]));
    assert_eq!(report["streams"][0]["served"], 3, "{report}");
    let tuned = json(&run(&place, &["tune", "meter", "weir.toml", "--json"]));
    assert_eq!((&tuned["streams"][0]["name"], &tuned["streams"][0]["requests"]), (&"cam".into(), &3.into()));
}

#[test]
fn what_a_daemon_did_for_services_on_one_worker_is_a_run_of_the_proved_model() {
    let Some(prover) = prover() else { return };
    let (place, log) = recorded();
    let program = prover.program().display().to_string();
    let accept = |text: &str| {
        std::fs::write(place.path("l.csv"), text).expect("written");
        run(&place, &["accept", "--problem", "p.json", "--proved", &program, "l.csv"])
    };
    let said = accept(&log);
    let told = String::from_utf8_lossy(&said.stdout);
    for words in ["a run of the model", "proved: all that had to be answered in it was, in time"] {
        assert!(said.status.success() && told.contains(words), "{told}{}\n{log}", stderr(&said));
    }
    // Who may wait longer went first, though both waited; a batch that had never ended; an end an hour later.
    let swapped = log.replace("stop/line", "?").replace("track/line", "stop/line").replace('?', "track/line");
    let first_end = log.lines().find(|line| line.starts_with("# end,")).expect("an end");
    let (before, _) = log.split_once(first_end).expect("an end");
    let tampered =
        [swapped, log.replacen(&format!("{first_end}\n"), "", 1), format!("{before}# end,3600000000000,0\n")];
    for text in tampered {
        let said = accept(&text);
        assert!(stderr(&said).contains("the model does not allow it"), "{}\n{text}", stderr(&said));
    }
}

#[test]
fn what_a_daemon_did_for_a_pipeline_is_a_run_of_the_proved_model() {
    let Some(prover) = prover() else { return };
    alone();
    let streams = r#"
        [[pipeline.stream]]
        name = "line"
        constraints = [{ row-miss = 1 }]
        arrivals = [{ periodic = { period = "100ms", jitter = "100ms" } }]
    "#;
    let place = recorded_meter(&daemon_in_real_time(), streams, 30);
    let kept = || {
        let mut daemon = place.serve();
        let mut client = daemon.client();
        let line = client.register(&best_effort("meter", "line")).expect("reserved");
        let other = client.register(&best_effort("meter", "other")).expect("registered");
        for n in 0..12 {
            pause(Duration::from_millis(100));
            let scores = [0.9, 0.5, f32::from(n % 2 == 0), 0.0];
            let ids =
                [&other, &line, &other].map(|stream| client.submit(stream, &scores).expect("submitted"));
            answers(&mut client, &ids);
        }
        let status = daemon.status();
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success(), "{}", daemon.stderr());
        status["services"][0]["safe_mode"]["sequence"] == 0
            && status["services"][0]["suspensions"]["sequence"] == 0
    };
    // A machine that is busy otherwise may be late by more than is kept back, and the daemon says so: then it is asked again.
    assert!((0..4).any(|_| kept()), "safe mode each time: the machine is too busy for this test");
    let log = std::fs::read_to_string(place.path("a.csv")).expect("a recording");
    let program = prover.program().display().to_string();
    let accept = |text: &str| {
        std::fs::write(place.path("l.csv"), text).expect("written");
        run(&place, &["accept", "--problem", "p.json", "--proved", &program, "l.csv"])
    };
    let said = accept(&log);
    let told = String::from_utf8_lossy(&said.stdout);
    for words in ["a run of the model", "proved: all that had to be answered as a whole in it was, in time"] {
        assert!(said.status.success() && told.contains(words), "{told}{}\n{log}", stderr(&said));
    }
    // A batch that never ended, an end an hour later, and more results than may be of a source that must be answered.
    let first_end = log.lines().find(|line| line.starts_with("# end,")).expect("an end");
    let (before, _) = log.split_once(first_end).expect("an end");
    let became = log.lines().find(|line| line.starts_with("# become,line,")).expect("results of it");
    let (what, _) = became.rsplit_once(',').expect("a count");
    let tampered = [
        log.replacen(&format!("{first_end}\n"), "", 1),
        format!("{before}# end,3600000000000,detect,0\n"),
        log.replacen(became, &format!("{what},4"), 1),
    ];
    for text in tampered {
        let said = accept(&text);
        assert!(stderr(&said).contains("the model does not allow it"), "{}\n{text}", stderr(&said));
    }
}
