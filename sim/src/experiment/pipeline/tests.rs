//! Experiments on pipelines: what comes out of small ones, and what is none.

use super::super::{Experiment, ExperimentError, Quantity};
use super::*;

/// One request takes 2 ms and becomes just two of the next stage, of which two at once take 3 ms. Bursts of two sources.
const SMALL: &str = r#"
title = "t"
requests = 100
policies = ["stage-fifo", "split"]

[[system]]
name = "one"
deadline = "12ms"
streams = [{ constraints = ["any_miss(1,2)"] }]
[system.pipeline]
workers = 2
stages = [
    { name = "first", variants = [{ times = ["2ms"], accuracy = 0.5 }] },
    { name = "second", after = "first", fan-out = 2, variants = [{ times = ["2ms", "3ms"], accuracy = 0.8 }] },
]

[[arrivals]]
name = "bursts"
process = { bursts = { size = 3 } }

[x]
capacity = [0.3]
"#;

fn parse(text: &str) -> Result<Experiment, ExperimentError> {
    Experiment::parse(text, &Data::default())
}

#[test]
fn what_is_measured_is_what_happens_to_sources() {
    let experiment = parse(SMALL).expect("an experiment");
    let results = experiment.run(&|| {}).expect("results");
    let mean = |cell: usize, quantity| results.estimate(&results.cells[cell], quantity).expect("told").mean;
    // One worker each: 500 results a second of the first, two at once in 3 ms of the second: 333.3 sources.
    assert!((results.cells[0].rate - 0.3 * 1000.0 / 3.0).abs() < 1e-6, "{}", results.cells[0].rate);
    // Of three at once every 30 ms the answers are there after 5, 8 and 11 ms.
    assert_eq!(mean(0, Quantity::Misses), 0.0);
    assert_eq!(mean(0, Quantity::Latency(1000)).round(), 11.0);
    assert!((mean(0, Quantity::Accuracy) - 0.4).abs() < 1e-9);
    // Of 12 ms the first stage has 4.8: the third, which would leave it after 6, is given up. The last source is the first of a
    // burst.
    assert_eq!(mean(1, Quantity::Misses), 33.0 / 100.0);
    assert_eq!((mean(1, Quantity::Mcd), mean(1, Quantity::Strictest(10))), (1.0, 4.0));
    assert_eq!(mean(1, Quantity::Violations), 0.0);
}

#[test]
fn workers_in_use_are_told() {
    let text = SMALL.replace("workers = 2", "workers = 3").replace("\"stage-fifo\", \"split\"", "\"loki\"");
    let table = "[[table]]\ntitle = \"t\"\nmeasure = \"in-use\"\nrows = \"x\"\ncolumns = \"policy\"\n";
    let results = parse(&format!("{text}{table}")).expect("an experiment").run(&|| {}).expect("results");
    let told = results.estimate(&results.cells[0], "in-use".parse().expect("a quantity")).expect("told");
    assert!((told.mean - 2.0 / 3.0).abs() < 1e-9, "{told:?}");
}

/// Of three sources each stage is asked for one and two; the third is given up at the first.
#[test]
fn requests_that_are_lost_are_told() {
    let table = "[[table]]\ntitle = \"t\"\nmeasure = \"lost\"\nrows = \"x\"\ncolumns = \"policy\"\n";
    let text = format!("{SMALL}{table}").replace("requests = 100", "requests = 99");
    let results = parse(&text).expect("an experiment").run(&|| {}).expect("results");
    let lost = |cell: usize| results.estimate(&results.cells[cell], Quantity::Lost).expect("told").mean;
    assert_eq!((lost(0), lost(1)), (0.0, 1.0 / 7.0));
}

#[test]
fn results_do_not_depend_on_threads() {
    let text = SMALL.replace("\"stage-fifo\", \"split\"", "\"loki\", \"inferline\"");
    // Accurate answers alone are too slow for the second load.
    let text = text.replace("workers = 2", "workers = 7").replace("[0.3]", "[0.3, 1.5]");
    let slow = "{ times = [\"2ms\", \"3ms\"]";
    let text = text.replace(slow, &format!("{{ times = [\"1ms\"], accuracy = 0.6 }}, {slow}"));
    let text =
        text.replace("requests", "runs = 3\nrequests").replace("{ bursts = { size = 3 } }", "\"poisson\"");
    let experiment = parse(&text).expect("an experiment");
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| experiment.run(&|| {}).expect("results").csv())
    };
    let (one, three) = (with(1), with(3));
    assert_eq!(one, three);
    assert_eq!(one.lines().count(), 1 + 2 * 2);
}

#[test]
fn what_is_no_pipeline_is_refused_with_field_value_and_limit() {
    for (from, to, wanted) in [
        ("workers = 2", "workers = 0", "system[0].pipeline.workers = 0: must be in 1..=256"),
        ("workers = 2", "workers = 1", "system[0].pipeline.workers = 1: the most accurate variants must be"),
        ("\"12ms\"", "\"7ms\"", "system[0].pipeline.workers = 2: the most accurate variants must be"),
        ("workers = 2", "workers = 2\nbatches = [2, 4]", "batches = [2, 4]: must rise from 1 to at most 64"),
        ("after = \"first\", ", "", "stages[1].after = : must be given, but for the first stage"),
        (
            "after = \"first\"",
            "after = \"third\"",
            "stages[1].after = third: must be a stage that stands before it",
        ),
        ("\"second\"", "\"first\"", "stages[1].name = first: is there twice"),
        ("fan-out = 2", "fan-out = 0", "stages[1].fan-out = 0: must be in 1..=1024"),
        ("fan-out = 2", "fan-out = 2, mean = 3.0", "stages[1].mean = 3: must be in 0..=2, the fan-out"),
        (
            "fan-out = 2",
            "fan-out = 2, mean = [1.0, 2.0]",
            "stages[1].mean = 2: must be 1, one of each variant of first",
        ),
        (
            "{ name = \"first\"",
            "{ name = \"first\", fan-out = 2",
            "stages[0].fan-out = 2: must be none of the first",
        ),
        ("\"2ms\", \"3ms\"", "\"3ms\", \"2ms\"", "stages[1].variants[0] = its times: P(2) = "),
        ("times = [\"2ms\"], ", "", "stages[0].variants[0] = : must have times, or a name in a table"),
        (
            "streams = [{ ",
            "streams = [{ period = \"1s\", ",
            "system[0].streams = : must have no period of a pipeline",
        ),
        ("\"stage-fifo\"", "\"weir\"", "policies = weir: cannot serve a pipeline; system one"),
    ] {
        let error = parse(&SMALL.replacen(from, to, 1)).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let times = vec!["\"2ms\""; 64].join(", ");
    let long = format!("variants = [{{ times = [{times}] }}] }},");
    let more: String =
        (0..3).map(|i| format!("    {{ name = \"s{i}\", after = \"second\", {long}\n")).collect();
    let chain = more.replace("\"s1\", after = \"second\"", "\"s1\", after = \"s0\"");
    let chain = chain.replace("\"s2\", after = \"second\"", "\"s2\", after = \"s1\"");
    let error = parse(&SMALL.replace("\n]\n\n[[arr", &format!("\n{chain}]\n\n[[arr")))
        .expect_err("too many")
        .to_string();
    assert!(
        error.contains("pipeline.batches = 524288: at most 262144 choices of batches along a path"),
        "{error}"
    );
    let plain = "workers = [{ time = \"1ms\" }]\n[[arrivals]]";
    let (before, rest) = SMALL.split_once("[system.pipeline]").expect("a pipeline");
    let (_, after) = rest.split_once("[[arrivals]]").expect("arrivals");
    let error = parse(&format!("{before}{plain}{after}")).expect_err("no pipeline").to_string();
    assert!(error.contains("policies = stage-fifo: needs a pipeline; system one"), "{error}");
}
