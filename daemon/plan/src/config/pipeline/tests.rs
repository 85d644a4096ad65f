//! Tests of pipelines as they are configured: what is refused, in which words, and what is left out.

mod fused;
mod joins;
mod placed;

use std::path::Path;

use rt_core::Span;
use rt_core::pipeline::Parents;
use weir_engine::adapter::Each;

use crate::config::{Config, ConfigError};

const GOOD: &str = r#"
    [daemon]
    models = "models.toml"
    [[pipeline]]
    name = "plate"
    deadline = "100ms"
    guard = "2ms"
    queue = 32
    constraints = [{ any-miss = { m = 1, k = 5 } }]
    [[pipeline.stream]]
    name = "cam0"
    arrivals = [{ periodic = { period = "40ms" } }]
    [[pipeline.stage]]
    name = "detect"
    model = "scenes-s"
    workers = 2
    [[pipeline.stage]]
    name = "read"
    model = "digits-s"
    after = "detect"
    fan-out = 4
    mean = 1.5
    [pipeline.stage.adapter]
    each = { scores = "scores", threshold = 0.5 }
    [[pipeline.stage]]
    name = "sort"
    engine = "simulated"
    simulated = { times = ["1ms"] }
    after = "detect"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("dir/test.toml"), text)
}

fn with(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from}");
    GOOD.replace(from, to)
}

#[test]
fn a_pipeline_stands_among_the_services_with_what_each_stage_has_of_its_own() {
    let text = "[[service]]\nname = \"other\"\nmodel = \"m\"\ndeadline = \"1s\"\n";
    let config = parse(&format!("{GOOD}\n{text}")).expect("good");
    let names: Vec<_> = config.services.iter().map(|service| (&*service.name, &*service.at)).collect();
    assert_eq!(names, [("other", "service[0]"), ("plate", "pipeline[0]")]);
    assert!(config.services[0].stages.is_empty());
    let plate = &config.services[1];
    assert_eq!((plate.deadline, plate.guard), (Span::from_millis(100), Span::from_millis(2)));
    assert_eq!((plate.queue, plate.reserved.len(), plate.tolerance.most), (32, 1, Span::ZERO));
    // What the first stage runs on is the pipeline's as well.
    assert_eq!((plate.workers, plate.stages[0].runs.workers, plate.stages[1].runs.workers), (2, 2, 1));
    let tree: Vec<_> = plate
        .stages
        .iter()
        .map(|stage| (&*stage.runs.name, &*stage.runs.at, stage.after.first(), stage.fan_out, stage.mean))
        .collect();
    let expected = [
        ("detect", "pipeline[0].stage[0]", None, 1, 1.0),
        ("read", "pipeline[0].stage[1]", Some(0), 4, 1.5),
        ("sort", "pipeline[0].stage[2]", Some(0), 1, 1.0),
    ];
    assert_eq!(tree, expected);
    assert_eq!(plate.stages.iter().map(|stage| stage.answers).collect::<Vec<_>>(), [false, true, true]);
    let each = Each::Scores { scores: "scores".to_owned(), column: None, threshold: 0.5 };
    assert_eq!(plate.stages[1].adapter.each, Some(each));
    assert_eq!((plate.depths(), plate.most()), (vec![1, 2, 2], vec![1, 4, 1]));
    assert_eq!(plate.ways(), [vec![], vec![vec![0]], vec![vec![0]]]);
    let running: Vec<_> = config.services.iter().flat_map(|s| s.running()).map(|runs| &*runs.name).collect();
    assert_eq!(running, ["other", "detect", "read", "sort"]);
}

#[test]
fn what_is_left_out_is_as_of_a_service_and_of_a_fan_out_of_one() {
    let config = parse(&with("    mean = 1.5\n", "")).expect("good");
    assert_eq!(config.services[0].stages[1].mean, 4.0);
    let short =
        "[[pipeline]]\nname = \"p\"\ndeadline = \"1s\"\n[[pipeline.stage]]\nname = \"only\"\nmodel = \"m\"";
    let config = parse(short).expect("good");
    let (p, stage) = (&config.services[0], &config.services[0].stages[0]);
    assert_eq!((p.guard, p.queue, p.streams), (Span::from_millis(5), 256, 64));
    assert_eq!((stage.runs.handover, stage.runs.max_batch), (Span::from_micros(200), 8));
    assert!(stage.answers && p.is_best_effort() && stage.runs.is_best_effort());
}

#[test]
fn the_answer_is_of_the_stages_that_are_named() {
    let config = parse(&with("queue = 32", "answer = [\"read\", \"detect\"]")).expect("good");
    let answers: Vec<_> = config.services[0].stages.iter().map(|stage| stage.answers).collect();
    assert_eq!(answers, [true, true, false]);
}

#[test]
fn workers_that_no_stage_states_are_given_out_evenly_until_the_plan_chooses() {
    let config = parse(&with("queue = 32", "workers = 7\nrecord = \"x.csv\"")).expect("good");
    let plate = &config.services[0];
    let stages: Vec<_> = plate.stages.iter().map(|stage| (stage.runs.workers, stage.open)).collect();
    assert_eq!(stages, [(2, false), (3, true), (2, true)]);
    assert_eq!(plate.record.as_ref().map(|record| &*record.path), Some(Path::new("dir/x.csv")));
    let config = parse(GOOD).expect("good");
    assert!(config.services[0].stages.iter().all(|stage| !stage.open));
    let one = "[[pipeline]]\nname = \"p\"\ndeadline = \"1s\"\nworkers = 2\n[[pipeline.stage]]\nname = \"only\"\nmodel = \"m\"\nworkers = 2";
    let error = parse(one).expect_err("nothing is open").to_string();
    assert!(error.contains("pipeline[0].workers = 2: each stage says how many it has: remove it"), "{error}");
}

#[test]
fn no_stage_has_the_name_that_adapters_call_the_request_by() {
    let text =
        "[[pipeline]]\nname = \"p\"\ndeadline = \"1s\"\n[[pipeline.stage]]\nname = \"source\"\nmodel = \"m\"";
    let error = parse(text).expect_err("taken").to_string();
    assert!(error.contains("pipeline[0].stage[0].name = source: is what adapters call"), "{error}");
}

#[test]
fn what_is_so_anyway_may_be_said() {
    parse(&with("queue = 32", "background = true\ndispatch = \"eager\"\ntolerance = \"0s\"")).expect("good");
    parse(&with("workers = 2", "fan-out = 1\nmean = 1.0")).expect("good");
}

#[test]
fn the_stalls_of_a_pipeline_are_those_of_its_stages() {
    let text = with("queue = 32", "stalls = { at-most = 2, in = \"10s\", of = \"1ms\" }");
    let config = parse(&text).expect("good").services.remove(0);
    let stalls = config.stalls.expect("declared");
    assert_eq!((stalls.count(), stalls.lost(), stalls.recovery()), (2, Span::from_millis(2), None));
    assert!(config.stages.iter().all(|stage| stage.runs.stalls == Some(stalls)));
}

#[test]
fn every_refusal_names_field_value_and_limit() {
    let of_pipeline = |text: &str| with("queue = 32", text);
    let of_read = |text: &str| with("mean = 1.5", text);
    let of_detect = |text: &str| with("workers = 2", text);
    for (text, line, wanted) in [
        (
            of_pipeline("stalls = { at-most = 1, in = \"1s\", of = \"1ms\", by = \"constraints\" }"),
            8,
            "pipeline[0].stalls.by = \"constraints\": constraints absorb stalls of a service",
        ),
        (of_pipeline("stalls = { at-most = 1, in = \"1s\", of = \"1s\" }"), 8, "pipeline[0].stalls.of = 1s"),
        (
            of_pipeline("device = \"d\""),
            8,
            "pipeline[0].device = \"d\": no [[device]] has this name (there is none)",
        ),
        (of_pipeline("select = \"base\""), 8, "pipeline[0].select = \"base\": is not possible in a pipeline"),
        (of_pipeline("weights = \"w\""), 8, "pipeline[0].weights = \"w\": is not possible in a pipeline"),
        (of_pipeline("variants = [\"m\"]"), 8, "pipeline[0].variants = [\"m\"]: is said of each stage"),
        (
            of_pipeline("optimise = \"rate\""),
            8,
            "pipeline[0].optimise = \"rate\": is not possible in a pipeline",
        ),
        (
            of_pipeline("dispatch = \"full-or-latest\""),
            8,
            "pipeline[0].dispatch = \"full-or-latest\": is not possible",
        ),
        (
            of_pipeline("background = false"),
            8,
            "pipeline[0].background = false: is not possible in a pipeline",
        ),
        (
            of_pipeline("tolerance = \"1ms\""),
            8,
            "pipeline[0].tolerance = 1ms: is not possible where services share workers, in a pipeline",
        ),
        (
            of_pipeline("model = \"m\""),
            8,
            "pipeline[0].model = \"m\": is said of each stage: move it to a [[pipeline.stage]]",
        ),
        (of_pipeline("batch = 4"), 8, "pipeline[0].batch = 4: is said of each stage"),
        (of_pipeline("handover = \"1ms\""), 8, "pipeline[0].handover = \"1ms\": is said of each stage"),
        (
            of_pipeline("queue = 16385"),
            8,
            "pipeline[0].queue = 16385: each may become 4 requests of \"read\", where 65536 can wait: must be at most 16384",
        ),
        (of_pipeline("answer = []"), 8, "pipeline[0].answer (how many) = 0: must be in 1..=3"),
        (
            of_pipeline("answer = [\"reed\"]"),
            8,
            "pipeline[0].answer[0] = \"reed\": no stage has this name (detect, read, sort)",
        ),
        (
            of_pipeline("answer = [\"read\", \"read\"]"),
            8,
            "pipeline[0].answer[1] = \"read\": is there already",
        ),
        (of_pipeline("workers = 3"), 8, "pipeline[0].workers = 3: must be in 4..=8192"),
        (of_pipeline("record-limit = 7"), 8, "pipeline[0].record-limit = 7: only with record"),
        (of_pipeline("constraint = 1"), 8, "unknown field `constraint`"),
        (with("deadline = \"100ms\"", ""), 4, "pipeline[0].deadline = (absent): must be given"),
        (
            with("guard = \"2ms\"", "guard = \"100ms\""),
            7,
            "pipeline[0].guard = 100ms: must be below the deadline, 100.0 ms",
        ),
        (
            with("name = \"plate\"", "name = \"pl ate\""),
            5,
            "pipeline[0].name = \"pl ate\": must be 1..=64 letters",
        ),
        (
            of_read("device = \"d\""),
            22,
            "pipeline[0].stage[1].device = \"d\": is said of the pipeline as a whole",
        ),
        (of_read("variants = [\"digits-s\"]"), 22, "pipeline[0].stage[1].variants[0] = \"digits-s\""),
        (
            of_read("select = \"base\""),
            22,
            "pipeline[0].stage[1].select = \"base\": is not possible in a pipeline",
        ),
        (
            of_read("weights = \"w\""),
            22,
            "pipeline[0].stage[1].weights = \"w\": is not possible in a pipeline",
        ),
        (of_read("stalls = 1"), 22, "pipeline[0].stage[1].stalls = 1: is said of the pipeline as a whole"),
        (
            of_read("record = \"x.csv\""),
            22,
            "pipeline[0].stage[1].record = \"x.csv\": is said of the pipeline as a whole",
        ),
        (
            of_read("dispatch = \"full-or-latest\""),
            22,
            "pipeline[0].stage[1].dispatch = \"full-or-latest\": is not possible",
        ),
        (of_read("background = false"), 22, "pipeline[0].stage[1].background = false: is not possible"),
        (of_read("turn = 2"), 22, "pipeline[0].stage[1].turn = 2: is said of the pipeline as a whole"),
        (
            of_read("deadline = \"1s\""),
            22,
            "pipeline[0].stage[1].deadline = \"1s\": is said of the pipeline as a whole: move it to its [[pipeline]]",
        ),
        (of_read("queue = 9"), 22, "pipeline[0].stage[1].queue = 9: is said of the pipeline as a whole"),
        (of_read("mean = 4.5"), 22, "pipeline[0].stage[1].mean = 4.5: must be in 0..=4, as fan-out says"),
        (of_read("mean = nan"), 22, "pipeline[0].stage[1].mean = NaN: must be in 0..=4"),
        (of_read("batch = 9\nmax-batch = 8"), 22, "pipeline[0].stage[1].batch = 9: must be in 1..=8"),
        (of_read("workers = 0"), 22, "pipeline[0].stage[1].workers = 0: must be in 1..=256"),
        (
            of_read("engine = \"ort-cpu\"\ngpu = 1"),
            23,
            "pipeline[0].stage[1].gpu = 1: engine \"ort-cpu\" has only one, 0",
        ),
        (with("fan-out = 4", "fan-out = 0"), 21, "pipeline[0].stage[1].fan-out = 0: must be in 1..=1024"),
        (
            with("fan-out = 4", "fan-out = 257"),
            21,
            "pipeline[0].stage[1].fan-out = 257: a request of the pipeline would become 257 requests of \"read\", at most 256 are possible",
        ),
        (
            with("fan-out = 4", "fan-out = 1025"),
            21,
            "pipeline[0].stage[1].fan-out = 1025: must be in 1..=1024",
        ),
        (
            with("after = \"detect\"\n    fan-out", "after = \"sort\"\n    fan-out"),
            20,
            "pipeline[0].stage[1].after = \"sort\": no stage before it has this name (detect)",
        ),
        (
            with("after = \"detect\"\n    fan-out", "after = \"read\"\n    fan-out"),
            20,
            "pipeline[0].stage[1].after = \"read\": no stage before it has this name (detect)",
        ),
        (
            with("after = \"detect\"\n    fan-out", "after = [\"detect\", \"sort\"]\n    fan-out"),
            20,
            "pipeline[0].stage[1].after[1] = \"sort\": no stage before it has this name (detect)",
        ),
        (
            with("after = \"detect\"\n    fan-out", "fan-out"),
            17,
            "pipeline[0].stage[1].after = (absent): must name the stage whose results it takes (detect)",
        ),
        (
            with("name = \"read\"", "name = \"detect\""),
            18,
            "pipeline[0].stage[1].name = detect: is taken already",
        ),
        (
            of_detect("after = \"read\""),
            16,
            "pipeline[0].stage[0].after = \"read\": the first stage takes each request of the pipeline as it comes",
        ),
        (
            of_detect("fan-out = 2"),
            16,
            "pipeline[0].stage[0].fan-out = 2: the first stage takes each request",
        ),
        (of_detect("mean = 0.5"), 16, "pipeline[0].stage[0].mean = 0.5: the first stage takes each request"),
        (
            of_detect("adapter = { inputs = {} }"),
            16,
            "pipeline[0].stage[0].adapter = (present): the first stage takes each request",
        ),
        (of_detect("adapter = { crop = 1 }"), 16, "unknown field `crop`"),
        (
            with("name = \"sort\"", "name = \"sort\"\nmodel = \"m\""),
            27,
            "pipeline[0].stage[2].model = m: engine \"simulated\" runs no model",
        ),
    ] {
        let error = parse(&text).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
        assert!(error.contains(&format!("dir/test.toml:{line}: ")), "line {line} of {wanted}: {error}");
    }
}

#[test]
fn a_pipeline_needs_a_stage_and_a_name_that_no_service_has() {
    let error = |text: &str| parse(text).expect_err(text).to_string();
    let none = error("[[pipeline]]\nname = \"p\"\ndeadline = \"1s\"");
    assert!(none.contains("pipeline[0].stage (how many) = 0: must be in 1..=32"), "{none}");
    let same = error(&format!("{GOOD}\n[[service]]\nname = \"plate\"\nmodel = \"m\"\ndeadline = \"1s\""));
    assert!(same.contains("pipeline[0].name = plate: is taken already"), "{same}");
    let none = error("[daemon]\nrealtime = false");
    assert!(none.contains("service (how many, with those of pipeline) = 0: must be in 1..=16"), "{none}");
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let text = GOOD
        .replace("queue = 32", "batch = 2")
        .replace("fan-out = 4", "fan-out = 0\ndeadline = \"1s\"")
        .replace("workers = 2", "workers = 0");
    let Err(ConfigError::Wrong { problems, .. }) = parse(&text) else { panic!("must be refused") };
    let fields: Vec<_> = problems.iter().filter_map(|(_, text)| text.split(' ').next()).collect();
    let expected = [
        "pipeline[0].batch",
        "pipeline[0].stage[0].workers",
        "pipeline[0].stage[1].fan-out",
        "pipeline[0].stage[1].deadline",
    ];
    assert_eq!(fields, expected);
}

#[test]
fn nothing_is_said_of_a_mean_whose_fan_out_is_of_another_type() {
    let Err(ConfigError::Wrong { problems, .. }) = parse(&with("fan-out = 4", "fan-out = \"4\"")) else {
        panic!("must be refused")
    };
    let [(_, told)] = &*problems else { panic!("{problems:?}") };
    assert!(told.starts_with("pipeline[0].stage[1].fan-out: must be a whole number"), "{told}");
}
