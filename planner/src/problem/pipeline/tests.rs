//! Problems of a pipeline as they are written: what is read, and what is refused with field, value and limit.

use rt_core::pipeline::Parents;
use serde_json::{Value, json};

use super::*;
use crate::problem::Question;

fn worked() -> Value {
    json!({
        "unit": "ms", "background": true, "deadline": 40, "guard": 1,
        "pipeline": [
            {"name": "detect", "workers": 1, "batch": 2, "times": [2, 3]},
            {"name": "read", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 2, "time": 2},
        ],
        "streams": [{"name": "cam", "constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[2, 14]]}}],
    })
}

/// `worked()` with the value at `path` put there, or taken away if it is null.
fn with(path: &str, value: Value) -> String {
    let mut problem = worked();
    let (at, field) = path.rsplit_once('/').expect("a path");
    let at = problem.pointer_mut(at).unwrap_or_else(|| panic!("no {path}"));
    match (field.parse::<usize>(), value) {
        (Ok(index), value) => at[index] = value,
        (_, Value::Null) => drop(at.as_object_mut().expect("an object").remove(field)),
        (_, value) => at[field] = value,
    }
    problem.to_string()
}

fn parse(text: &str) -> Result<PipelineProblem, ProblemError> {
    match Question::parse(text)? {
        Question::Pipeline(problem) => Ok(problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pipeline_is_read_exactly() {
    let problem = parse(&worked().to_string()).expect("a problem");
    let ms = Span::from_millis;
    let pipeline = problem.choices.pipeline(&[0, 0]);
    assert!(problem.choices.is_fixed());
    assert_eq!((pipeline.deadline, pipeline.guard), (ms(40), ms(1)));
    let [detect, read] = pipeline.stages.as_slice() else { panic!("two") };
    assert_eq!(
        (detect.parents, detect.fan_out, detect.workers, detect.batch, detect.time),
        (Parents::NONE, 1, 1, 2, ms(3))
    );
    let first = Parents::each([0]);
    assert_eq!((read.parents, read.fan_out, read.workers, read.batch, read.time), (first, 2, 2, 2, ms(2)));
    assert_eq!((problem.profiles[0].bound(1), problem.streams.len()), (ms(2), 1));
    let written = serde_json::to_string(&problem.raw).expect("JSON");
    assert_eq!(parse(&written).expect("its own text"), problem);
}

#[test]
fn what_is_to_be_chosen_is_read_as_options() {
    let mut problem = worked();
    problem["workers"] = json!(4);
    problem["pipeline"][0]["batch"] = json!("auto");
    problem["pipeline"][1]["workers"] = json!("auto");
    let problem = parse(&problem.to_string()).expect("a problem");
    let options = |i: usize| -> Vec<_> {
        let of = problem.choices.stages[i].options.iter();
        of.map(|o| (o.workers, o.batch, o.time.as_nanos() / 1_000_000)).collect()
    };
    assert_eq!((options(0), options(1)), (vec![(1, 1, 2), (1, 2, 3)], vec![(1, 2, 2), (2, 2, 2), (3, 2, 2)]));
    assert_eq!((problem.choices.workers, problem.choices.is_fixed()), (Some(4), false));
    let written = serde_json::to_string(&problem.raw).expect("JSON");
    assert_eq!(parse(&written).expect("its own text"), problem);
}

/// Two ways from the first stage, and what is behind both, in place of what stands in `stage`.
fn ways(stage: &Value) -> Value {
    let mut problem = worked();
    problem["deadline"] = json!(60);
    let way = |name: &str| json!({"name": name, "parent": "detect", "workers": 1, "batch": 1, "time": 2});
    let mut last = json!({"name": "both", "workers": 1, "batch": 1, "time": 1});
    let fields = stage.as_object().expect("an object").clone();
    last.as_object_mut().expect("an object").extend(fields);
    problem["pipeline"] = json!([worked()["pipeline"][0], way("left"), way("right"), last]);
    problem
}

#[test]
fn several_parents_are_read_as_a_merge_or_a_join() {
    for (stage, parents, fan_out) in [
        (json!({"parents": ["left", "right"]}), Parents::each([1, 2]), 1),
        (json!({"parents": ["right", "left"], "fan_out": 3}), Parents::each([1, 2]), 3),
        (json!({"parents": ["detect", "left"], "join": true}), Parents::join([0, 1]), 1),
        (json!({"parents": ["left", "right"], "join": true, "requests": 4}), Parents::join([1, 2]), 4),
        (json!({"parent": "left", "join": true, "requests": 2}), Parents::join([1]), 2),
        (json!({"parents": ["left"], "join": false}), Parents::each([1]), 1),
    ] {
        let problem = parse(&ways(&stage).to_string()).unwrap_or_else(|no| panic!("{stage}: {no}"));
        let last = &problem.choices.stages[3];
        assert_eq!((last.parents, last.fan_out), (parents, fan_out), "{stage}");
        assert_eq!(problem.raw.is_tree(), parents.is_of_tree());
        let written = serde_json::to_string(&problem.raw).expect("JSON");
        assert_eq!(parse(&written).expect("its own text"), problem);
    }
}

#[test]
fn what_is_no_merge_and_no_join_is_refused_with_field_value_and_limit() {
    for (stage, expected) in [
        (json!({}), "pipeline[3].parent = (absent): every stage but the first has one"),
        (json!({"parents": []}), "length of pipeline[3].parents = 0: must be in 1..=32"),
        (
            json!({"parents": ["left", "top"]}),
            "pipeline[3].parents[1] = top: must be the name of a stage that stands",
        ),
        (
            json!({"parents": ["both", "left"]}),
            "pipeline[3].parents[0] = both: must be the name of a stage that stands",
        ),
        (json!({"parents": ["left", "left"]}), "pipeline[3].parents[1] = left: is in the list already"),
        (
            json!({"parent": "left", "parents": ["right"]}),
            "pipeline[3].parents = (a list): stands beside parent: keep one",
        ),
        (
            json!({"parents": ["left", "right"], "requests": 2}),
            "pipeline[3].requests = 2: only a join declares it",
        ),
        (
            json!({"parents": ["left", "right"], "join": true, "requests": 0}),
            "pipeline[3].requests = 0: must be in 1..=1024",
        ),
        (
            json!({"parents": ["left", "right"], "join": true, "fan_out": 2}),
            "pipeline[3].fan_out = 2: a join takes a source once",
        ),
        (
            json!({"parents": ["left", "right"], "join": "yes"}),
            "pipeline[3].join: must be true or false, not \"yes\"",
        ),
    ] {
        let error = parse(&ways(&stage).to_string()).expect_err("refused").to_string();
        assert!(error.contains(expected), "{stage}: {error}");
    }
    let mut first = worked();
    for (field, value, expected) in [
        ("parents", json!(["read"]), "pipeline[0].parents[0] = read: the first stage takes the sources"),
        ("join", json!(true), "pipeline[0].join = true: the first stage takes the sources"),
    ] {
        first["pipeline"][0] = worked()["pipeline"][0].clone();
        first["pipeline"][0][field] = value;
        let error = parse(&first.to_string()).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_no_pipeline_is_refused_with_field_value_and_limit() {
    for (path, value, expected) in [
        ("/pipeline", json!([]), "length of pipeline = 0: must be in 1..=32"),
        ("/pipeline/0/parent", json!("read"), "pipeline[0].parent = read: the first stage takes the sources"),
        (
            "/pipeline/1/parent",
            Value::Null,
            "pipeline[1].parent = (absent): every stage but the first has one",
        ),
        (
            "/pipeline/1/parent",
            json!("read"),
            "pipeline[1].parent = read: must be the name of a stage that stands",
        ),
        ("/pipeline/1/name", json!("detect"), "pipeline[1].name = detect: is taken already"),
        ("/pipeline/1/name", json!(""), "pipeline[1].name = \"\": must be 1..=64 letters"),
        ("/pipeline/0/fan_out", json!(2), "pipeline[0].fan_out = 2: must be in 1..=1"),
        ("/pipeline/1/fan_out", json!(1025), "pipeline[1].fan_out = 1025: must be in 1..=1024"),
        ("/pipeline/1/workers", json!(0), "pipeline[1].workers = 0: must be in 1..=256"),
        ("/pipeline/0/batch", json!(3), "length of pipeline[0].times = 2: must be in 3..=64"),
        ("/pipeline/1/time", json!(0), "pipeline[1].time = 0: must be in 0.000001..=3600000 ms"),
        (
            "/deadline",
            json!(5),
            "deadline = 5: leaves no time for one source: must be at least guard + P(1) of each stage on the longest path = 6",
        ),
        ("/guard", json!(-1), "guard"),
        ("/workers", json!([]), "workers: must be a whole number of at least 0, not a list"),
        (
            "/pipeline/0/workers",
            json!(usize::MAX),
            "pipeline[0].workers = 18446744073709551615: must be in 1..=256",
        ),
        ("/workers", json!(2), "workers = 2: must be in 3..=8192, 3 being what the stages need"),
        (
            "/pipeline/0/batch",
            json!("all"),
            "pipeline[0].batch: must be a whole number, or \"auto\", not \"all\"",
        ),
        (
            "/pipeline/1/batch",
            json!("auto"),
            "pipeline[1].batch = auto: needs times, what batches of 1, 2, … take",
        ),
        (
            "/pipeline/0/workers",
            json!("auto"),
            "pipeline[0].workers = auto: needs workers beside pipeline: how many all stages may have together",
        ),
        ("/dispatch", json!("eager"), "unknown field `dispatch`"),
        (
            "/streams/0/arrivals",
            Value::Null,
            "streams[0].arrivals = (absent): a stream with constraints must declare",
        ),
    ] {
        let error = parse(&with(path, value)).expect_err(path).to_string();
        assert!(error.contains(expected), "{path}: {error}");
    }
    let mut deep = worked();
    let stage = |i: usize| {
        json!({"name": format!("s{i}"), "parent": if i == 0 { "detect".into() } else { format!("s{}", i - 1) },
               "fan_out": 1024, "workers": 1, "batch": 1, "time": 1})
    };
    deep["pipeline"] = json!([worked()["pipeline"][0], stage(0), stage(1)]);
    let error = parse(&deep.to_string()).expect_err("too many").to_string();
    assert!(
        error.contains("descendants of pipeline[2], of a source in all, = 1048576: must be in 1..=65536"),
        "{error}"
    );
}
