//! Pipelines by hand: what a certificate says of each stage, and that whatever is changed in it is found out.

use planner::{Certificate, PipelineClaim, Question, certify_pipeline};
use serde_json::{Value, json};

use crate::pipelines::{certified, checked, prover};

fn worked() -> Value {
    json!({
        "unit": "ms", "deadline": 15, "guard": 0,
        "pipeline": [
            {"name": "detect", "workers": 1, "batch": 1, "time": 3},
            {"name": "read", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 2, "time": 2},
            {"name": "log", "parent": "detect", "workers": 1, "batch": 4, "time": 1},
        ],
        "streams": [{"name": "cam", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[2, 14]]}}],
    })
}

#[test]
fn a_certificate_says_what_each_stage_adds() {
    let claim = certified(&worked());
    let said = serde_json::to_value(&claim).expect("JSON");
    assert_eq!(said["bound"], json!(13));
    assert_eq!(said["rule"], json!("theorem-p2"));
    assert_eq!(said["binding"], json!({"delta": 0, "sources": 2, "lhs": 13, "rhs": 15}));
    assert_eq!(said["stages"][0], json!({"name": "detect", "requests": 2, "share": 9, "response": 9}));
    assert_eq!(said["stages"][1], json!({"name": "read", "requests": 2, "share": 4, "response": 4}));
    assert_eq!(said["stages"][2], json!({"name": "log", "response": 2}));
    assert_eq!(checked(claim).map(|v| (v.promised, v.limits)), Ok((1, 1)));
}

/// A frame goes two ways, and what both have is put together.
fn joined() -> Value {
    json!({
        "unit": "ms", "deadline": 30, "guard": 0,
        "pipeline": [
            {"name": "detect", "workers": 1, "batch": 1, "time": 1},
            {"name": "left", "parent": "detect", "workers": 1, "batch": 1, "time": 2},
            {"name": "right", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 1, "time": 3},
            {"name": "both", "parents": ["left", "right"], "join": true, "workers": 1, "batch": 1, "time": 1},
        ],
        "streams": [{"name": "cam", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[2, 20]]}}],
    })
}

#[test]
fn a_certificate_of_a_join_says_what_each_stage_adds_and_has_a_version_of_its_own() {
    let claim = certified(&joined());
    let said = serde_json::to_value(&claim).expect("JSON");
    assert_eq!((&said["bound"], &said["rule"]), (&json!(13), &json!("theorem-p2")));
    assert_eq!(said["stages"][0], json!({"name": "detect", "requests": 1, "share": 2, "response": 3}));
    assert_eq!(said["stages"][1], json!({"name": "left", "response": 6}));
    assert_eq!(said["stages"][2], json!({"name": "right", "requests": 4, "share": 9, "response": 9}));
    assert_eq!(said["stages"][3], json!({"name": "both", "requests": 1, "share": 2, "response": 3}));
    assert_eq!(checked(claim.clone()).map(|v| (v.promised, v.limits)), Ok((1, 1)));
    let version = |claim| {
        let written = serde_json::to_value(Certificate::of_pipeline("weir", claim)).expect("JSON");
        written["weir_certificate"].as_u64()
    };
    assert_eq!((version(claim.clone()), version(certified(&worked()))), (Some(4), Some(3)));
    if let Some(prover) = prover() {
        let (proved, unproved) = prover.check(&Certificate::of_pipeline("weir", claim)).expect("answers");
        assert_eq!(proved, 0);
        assert!(unproved[0].reason.contains("not known to the proved checker"), "{unproved:?}");
    }
}

#[test]
fn what_is_changed_in_a_certificate_of_a_join_is_found_out() {
    let whole = serde_json::to_value(certified(&joined())).expect("JSON");
    for (path, value) in [
        ("/bound", json!(12)),
        ("/binding/sources", json!(1)),
        ("/binding/lhs", json!(12)),
        ("/max_load_scale", json!(9)),
        ("/stages/0/requests", json!(2)),
        ("/stages/2/requests", json!(2)),
        ("/stages/2/requests", json!(3)),
        ("/stages/2/share", json!(6)),
        ("/stages/2/requests", Value::Null),
        ("/stages/3/requests", Value::Null),
        ("/stages/1/response", json!(5)),
        ("/problem/deadline", json!(12)),
        ("/problem/pipeline/2/fan_out", json!(3)),
        ("/problem/pipeline/3/join", json!(false)),
        ("/problem/pipeline/3/requests", json!(2)),
        ("/problem/pipeline/3/requests", json!(0)),
        ("/problem/pipeline/3/fan_out", json!(2)),
        ("/problem/pipeline/3/parent", json!("left")),
        ("/problem/pipeline/3/parents", json!(["left"])),
        ("/problem/pipeline/3/parents", json!([])),
        ("/problem/pipeline/3/parents", json!(["right", "right"])),
        ("/problem/pipeline/3/parents", json!(["right", "both"])),
        ("/problem/pipeline/3/parents/0", json!("top")),
        ("/problem/pipeline/2/requests", json!(1)),
        ("/problem/pipeline/0/join", json!(true)),
    ] {
        let mut changed = whole.clone();
        let (object, field) = path.rsplit_once('/').expect("a path");
        let at = changed.pointer_mut(object).unwrap_or_else(|| panic!("no {path}"));
        match at.as_array_mut() {
            Some(list) => list[field.parse::<usize>().expect("an index")] = value.clone(),
            None => at[field] = value.clone(),
        }
        let Ok(claim) = serde_json::from_value::<PipelineClaim>(changed) else { panic!("{path} {value}") };
        assert!(checked(claim).is_err(), "{path} = {value} is confirmed");
    }
}

#[test]
fn a_stage_above_capacity_is_named() {
    let mut problem = worked();
    problem["pipeline"][1]["fan_out"] = json!(40);
    let claim = certified(&problem);
    assert_eq!(claim.reason.as_deref(), Some("read needs 2858 thousandths of its 2 worker(s)"));
    assert!(!claim.admissible && claim.max_load_scale.is_some_and(|scale| scale.to_string() == "0"));
}

/// Every number of a claim that is changed is found out.
#[test]
fn what_is_changed_is_found_out() {
    let (prover, whole) = (prover(), serde_json::to_value(certified(&worked())).expect("JSON"));
    for (path, value) in [
        ("/bound", json!(12)),
        ("/bound", json!(14)),
        ("/bound", Value::Null),
        ("/rule", json!("theorem-p1")),
        ("/rule", json!("nothing-promised")),
        ("/binding/delta", json!(1)),
        ("/binding/sources", json!(1)),
        ("/binding/lhs", json!(12)),
        ("/binding/rhs", json!(16)),
        ("/binding", Value::Null),
        ("/max_load_scale", json!(9)),
        ("/stages/0/requests", json!(1)),
        ("/stages/0/share", json!(8)),
        ("/stages/1/response", json!(3)),
        ("/stages/1/name", json!("write")),
        ("/stages/1/share", json!(5)),
        ("/streams/0/density", json!([1, 2])),
        ("/streams/0/name", json!("other")),
        ("/problem/deadline", json!(12)),
        ("/problem/pipeline/0/time", json!(4)),
        ("/problem/pipeline/1/fan_out", json!(3)),
        ("/problem/pipeline/1/parent", json!("log")),
        ("/problem/pipeline/1/parent", Value::Null),
        ("/problem/pipeline/1/workers", json!(1)),
        ("/problem/pipeline/2/name", json!("read")),
        ("/problem/guard", json!(1)),
        ("/problem/streams/0/arrivals/windows/0/0", json!(3)),
    ] {
        let mut changed = whole.clone();
        *changed.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value.clone();
        let Ok(claim) = serde_json::from_value::<PipelineClaim>(changed) else { panic!("{path} {value}") };
        if let Some(prover) = &prover {
            let asked = serde_json::to_string(&claim.problem).expect("JSON");
            let right = matches!(Question::parse(&asked), Ok(Question::Pipeline(p)) if certify_pipeline(&p).admissible);
            let said = prover.check(&Certificate::of_pipeline("weir 0.1.0", claim.clone()));
            assert!(said.map_or(true, |(proved, _)| proved == 0 || right), "{path} = {value} is proved");
        }
        assert!(checked(claim).is_err(), "{path} = {value} is confirmed");
    }
}

#[test]
fn a_choice_that_was_not_asked_for_is_found_out() {
    let mut problem = worked();
    problem["workers"] = json!(5);
    problem["pipeline"][1]["times"] = json!([1, 2, 4]);
    problem["pipeline"][1].as_object_mut().expect("an object").remove("time");
    problem["pipeline"][1]["batch"] = json!("auto");
    problem["pipeline"][1]["workers"] = json!("auto");
    let whole = certified(&problem);
    assert!(whole.admissible && checked(whole.clone()).is_ok());
    let changed = |change: fn(&mut PipelineClaim)| {
        let mut claim = whole.clone();
        change(&mut claim);
        checked(claim).expect_err("changed")
    };
    assert!(changed(|c| c.stages[0].batch = Some(1)).contains("stages[0].batch is 1"));
    assert!(changed(|c| c.stages[1].batch = None).contains("stages[1].batch is absent"));
    assert!(changed(|c| c.stages[1].batch = Some(4)).contains("pipeline[1]"));
    assert!(changed(|c| c.stages[1].workers = Some(4)).contains("their workers together, is 5, derived: 6"));
    assert!(changed(|c| c.stages[1].workers = Some(0)).contains("pipeline[1]"));
    assert!(changed(|c| c.problem.workers = Some(2)).contains("their workers together"));
}

/// At capacity nothing ends but what repeats, for the test as for the checker.
#[test]
fn a_load_at_capacity_is_looked_at_until_it_repeats() {
    let mut problem = worked();
    problem["streams"][0]["arrivals"] = json!({"periodic": {"period": 3, "jitter": 4}});
    problem["pipeline"][1]["workers"] = json!(1);
    problem["deadline"] = json!(60);
    let claim = certified(&problem);
    assert!(claim.admissible, "{:?}", claim.reason);
    assert_eq!(claim.max_load_scale.map(|scale| scale.to_string()), Some("1".to_owned()));
    assert_eq!(checked(claim).map(|v| v.promised), Ok(1));
}
