//! Problems of several services as they are written: what is read, and what is refused with field, value and limit.

use serde_json::{Value, json};

use super::*;
use crate::problem::{Problem, Question};

fn worked() -> Value {
    json!({
        "unit": "us", "background": true, "workers": {"count": 2}, "rule": "turns",
        "services": [
            {"name": "scene", "deadline": 9000, "guard": 100, "batch": 2, "times": [1500, 2000, 2500], "turn": 3,
             "streams": [{"name": "cam0", "constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[2, 4000]]}},
                         {"name": "log"}]},
            {"name": "stop", "deadline": 5000.5, "guard": 50, "batch": 1, "time": 1000,
             "streams": [{"name": "cam0", "constraints": ["row_miss(0)"],
                          "arrivals": {"periodic": {"period": 20000, "jitter": 300}}}]},
        ],
    })
}

/// `worked()` with the value at `path` put there, whether or not there was one.
fn with(path: &str, value: Value) -> String {
    let mut problem = worked();
    let (at, field) = path.rsplit_once('/').expect("a path");
    let at = problem.pointer_mut(at).unwrap_or_else(|| panic!("no {path}"));
    match field.parse::<usize>() {
        Ok(index) => at[index] = value,
        Err(_) => at[field] = value,
    }
    problem.to_string()
}

fn parse(text: &str) -> Result<SharedProblem, ProblemError> {
    match Question::parse(text)? {
        Question::Shared(problem) => Ok(problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn several_services_are_read_exactly() {
    let problem = parse(&worked().to_string()).expect("a problem");
    let us = Span::from_micros;
    assert_eq!((problem.workers, problem.rule), (2, Some(Rule::Turns)));
    let [scene, stop] = problem.services.as_slice() else { panic!("two") };
    assert_eq!((scene.deadline, scene.guard, scene.batch, scene.time), (us(9000), us(100), 2, us(2000)));
    assert_eq!((scene.turn, stop.turn, stop.deadline), (Some(3), None, Span::from_nanos(5_000_500)));
    assert_eq!((scene.streams.len(), stop.streams.len()), (2, 1));
    let sharing = problem.sharing(Rule::Earliest, &[3, 1]);
    assert_eq!((sharing.guard, sharing.longest), (us(50), us(2000)), "what all can stand, and the longest");
    assert_eq!((sharing.services[0].latency, sharing.services[1].time), (us(8900), us(1000)));
    // What is read is written and read again.
    let written = serde_json::to_string(&problem.raw).expect("JSON");
    assert_eq!(parse(&written).expect("its own text"), problem);
    let mut least = worked();
    for field in ["background", "rule"] {
        least.as_object_mut().expect("an object").remove(field);
    }
    let least = parse(&least.to_string()).expect("a problem");
    assert_eq!((least.rule, least.raw.background, least.raw.rule.as_str()), (None, false, "auto"));
}

#[test]
fn what_is_no_problem_of_several_services_is_refused_with_field_value_and_limit() {
    for (path, value, expected) in [
        ("/rule", json!("patience"), "rule = patience: is not supported: must be edf, turns or auto"),
        ("/rule", json!("fifo"), "rule = fifo: must be edf, turns or auto"),
        ("/workers/count", json!(0), "workers.count = 0: must be in 1..=256"),
        ("/workers/batch", json!(1), "unknown field `batch`"),
        ("/workers", json!([{"count": 1, "batch": 1, "time": 2}]), "workers = [{\"batch\":1,\"count\":1"),
        ("/services", json!([]), "length of services = 0: must be in 1..=64"),
        ("/services/1/name", json!("scene"), "services[1].name = scene: is taken already"),
        ("/services/1/name", json!("a b"), "services[1].name = \"a b\": must be 1..=64 letters"),
        ("/services/0/deadline", json!(0), "services[0].deadline = 0: must be in 0.001..=3600000000 us"),
        ("/services/0/guard", json!(9000), "services[0].guard = 9000: must be below the deadline, 9000"),
        ("/services/1/deadline", json!(1049), "must be at least guard + P(1) = 50 + 1000"),
        ("/services/1/batch", json!(65), "services[1].batch = 65: must be in 1..=64"),
        ("/services/0/batch", json!(4), "length of services[0].times = 3: must be in 4..=64"),
        ("/services/0/time", json!(1), "services[0].time = 1: times are there too: remove one"),
        ("/services/0/turn", json!(0), "services[0].turn = 0: must be in 1..=65536"),
        ("/services/0/turn", json!(65537), "services[0].turn = 65537: must be in 1..=65536"),
        ("/services/0/patience", json!(3), "unknown field `patience`"),
        ("/services/0/streams/1/name", json!("cam0"), "services[0].streams[1].name = cam0: is taken already"),
        (
            "/services/0/streams/0/constraints/0",
            json!("any_miss(2,2)"),
            "services[0].streams[0].constraints[0] = any_miss(2,2)",
        ),
        ("/deadline", json!(6), "deadline = 6: each of the services has its own: move it there"),
        ("/guard", json!(0), "guard = 0: each of the services has its own"),
        ("/dispatch", json!("eager"), "dispatch = \"eager\": a worker that is shared takes a batch at once"),
        ("/streams", json!([]), "streams = []: each of the services has its own: move them there"),
        (
            "/stalls",
            json!({"count": 1, "window": 90, "length": 1, "recovery": 2}),
            "stalls.recovery = 2: stalls of shared workers are kept back of the deadlines: remove it",
        ),
        (
            "/stalls",
            json!({"count": 1, "window": 90000, "length": 4500}),
            "leaves no time for one request: must be at least guard + P(1) + stalls = ",
        ),
        ("/patience", json!(1), "unknown field `patience`"),
    ] {
        let error = parse(&with(path, value)).expect_err(path).to_string();
        assert!(error.contains(expected), "{path}: {error:?} instead of {expected:?}");
    }
    let twice = worked().to_string().replacen("\"unit\"", "\"unit\":\"us\",\"unit\"", 1);
    assert!(Question::parse(&twice).expect_err("twice").to_string().contains("duplicate field `unit`"));
}

#[test]
fn who_asks_for_a_single_service_is_told_that_there_are_several() {
    let error = Problem::parse(&worked().to_string()).expect_err("several").to_string();
    assert!(error.starts_with("services: several services on the same workers"), "{error}");
}
