//! Experiments on clusters: what is recorded comes, what comes out is told over time, and what is none is refused.

use std::path::PathBuf;
use std::sync::LazyLock;

use super::super::{Data, Experiment, ExperimentError, Quantity};

const SMALL: &str = r#"
title = "t"
requests = 100000
policies = ["proteus", "clipper-ht", "infaas-accuracy"]

[[system]]
name = "one"
[system.cluster]
devices = { cpu = 2, gpu = 1 }
services = [
    { name = "cars", deadline = "100ms", variants = [
        { accuracy = 0.7, times = { cpu = [[1, "10ms"]], gpu = [[1, "2ms"], [4, "4ms"]] } },
        { accuracy = 1.0, times = { gpu = [[1, "8ms"], [4, "16ms"]] } },
    ] },
    { name = "faces", deadline = "100ms", variants = [{ accuracy = 0.9, times = { cpu = [[1, "20ms"]] } }] },
]

[[arrivals]]
name = "day"
process = { services = { file = "counts.csv", rows = { trace = "a" }, service = "service", second = "second", count = "count" } }

[x]
recorded = [1, 2]

[[figure]]
name = "f"
title = "t"
measure = "goodput"
series = "policy"
over-time = true
at = { x = 1 }
"#;

/// A folder with what was recorded, written once, for tests that run beside each other read it.
fn data() -> Data {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(recorded);
    Data(Some(FOLDER.clone()))
}

fn recorded() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("weir-cluster-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut text = "trace,service,second,count\nb,cars,0,999\n".to_owned();
    for second in 0..20 {
        text += &format!("a,cars,{second},{}\na,faces,{second},10\n", 20 + 10 * (second % 3));
    }
    std::fs::write(folder.join("counts.csv"), text).expect("written");
    folder
}

fn parse(text: &str) -> Result<Experiment, ExperimentError> {
    Experiment::parse(text, &data())
}

#[test]
fn what_was_recorded_comes_and_is_told_over_time() {
    let experiment = parse(SMALL).expect("an experiment");
    let results = experiment.run(&|| {}).expect("results");
    let mean = |cell: usize, quantity| results.estimate(&results.cells[cell], quantity).expect("told").mean;
    // 30 on average of cars but for the last two seconds, and 10 of faces.
    assert!((results.cells[0].rate - 39.5).abs() < 1e-9 && (results.cells[3].rate - 79.0).abs() < 1e-9);
    assert!((mean(0, Quantity::Offered) - 39.5).abs() < 5.0);
    assert!(mean(0, Quantity::Misses) < 0.02 && mean(0, Quantity::Accuracy) > 0.95);
    assert!(mean(1, Quantity::Accuracy) < 0.8, "the least accurate variants");
    assert_eq!(results.cells[0].moments.len(), 2, "twenty seconds by ten");
    let (_, figure) = &experiment.figures(&results)[0];
    assert!(figure.contains("requests that come") && figure.contains("infaas-accuracy"));
    assert_eq!(experiment.run(&|| {}).expect("results").csv(), results.csv(), "the same again");
}

#[test]
fn what_cannot_be_is_refused_by_field_and_value() {
    let cases = [
        ("cpu = 2, gpu = 1", "cpu = 2000, gpu = 1", "system[0].cluster.devices = 2001: must be 1..=2000"),
        (
            "deadline = \"100ms\", variants = [{ acc",
            "variants = [{ acc",
            "services[1].deadline = : must be there",
        ),
        ("gpu = [[1, \"8ms\"], [4", "gpu = [[4, \"8ms\"], [4", "must rise, in sizes and in times"),
        ("times = { cpu = [[1, \"20ms\"]]", "times = { tpu = [[1, \"20ms\"]]", "tpu: is no class of devices"),
        ("recorded = [1, 2]", "rate = [1, 2]", "must be `recorded` of a cluster"),
        ("\"clipper-ht\"", "\"loki\"", "policies = loki: needs a pipeline"),
        ("trace = \"a\"", "trace = \"c\"", "no row says so, or all are 0"),
        ("service = \"service\"", "service = \"family\"", "family: must be a column of counts.csv"),
        ("name = \"faces\"", "name = \"plates\"", "holds services that are none of system one"),
        (
            "over-time = true",
            "over-time = true\ngroups = \"x\"",
            "must be of clusters or pipelines, and without groups",
        ),
    ];
    for (from, to, told) in cases {
        let text = SMALL.replacen(from, to, 1);
        assert!(text.contains(to), "{to}");
        let error = parse(&text).expect_err(to).to_string();
        assert!(error.contains(told), "{error:?} does not say {told:?}");
    }
}
