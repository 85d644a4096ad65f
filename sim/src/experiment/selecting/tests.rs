//! Selectors by class in experiments: what is told of them, and what is no such experiment.

use super::super::{Data, Experiment, ExperimentError, Quantity, Results};

/// Two workers, three models and two classes, the second of which comes as often as `coming` says.
fn text(policies: &str, process: &str, x: &str, coming: &str) -> String {
    format!(
        "title = \"t\"\nruns = 2\nrequests = 4000\npolicies = [{policies}]\n[[system]]\nname = \"one\"\n\
         selecting = {{ workers = 2, deadline = \"100ms\", batch = 2, models = [\n\
         {{ name = \"small\", times = [\"5ms\", \"8ms\"] }}, {{ name = \"medium\", times = [\"15ms\", \"22ms\"] }},\n\
         {{ name = \"large\", times = [\"30ms\", \"50ms\"] }} ], classes = [\n\
         {{ name = \"a\", share = 3, accuracy = [0.6, 0.9, 0.92] }},\n\
         {{ name = \"b\", share = 1, {coming} accuracy = [0.1, 0.2, 0.9] }} ] }}\n\
         [[arrivals]]\nname = \"all\"\nprocess = {process}\n[x]\n{x}\n\
         [[table]]\ntitle = \"t\"\nmeasure = \"worth\"\nrows = \"x\"\ncolumns = \"policy\"\n"
    )
}

fn parse(text: &str) -> Result<Experiment, ExperimentError> {
    Experiment::parse(text, &Data::default())
}

const SOME: &str = r#""weir-alone", "weir-base", "weir-tables", "weir-prices", "weir-learned""#;

fn worth(results: &Results, policy: &str) -> f64 {
    let cell = results.cells.iter().find(|cell| cell.policy.name() == policy).expect("a cell");
    results.estimate(cell, Quantity::Worth).expect("asked for").mean
}

#[test]
fn what_knows_the_classes_of_a_batch_is_worth_most_and_nobody_is_told_what_comes() {
    let run = |policies: &str, coming: &str| {
        let text = text(policies, "\"poisson\"", "capacity = [0.3]", coming);
        parse(&text).expect("an experiment").hurried_selectors().run(&|| {}).expect("results")
    };
    let results = run(SOME, "");
    let of = |policy| worth(&results, policy);
    assert!((of("weir-base") - (0.75 * 0.6 + 0.25 * 0.1)).abs() < 0.02, "{}", of("weir-base"));
    assert!(of("weir-prices") > of("weir-tables") + 0.01, "{} {}", of("weir-prices"), of("weir-tables"));
    assert!(of("weir-prices") > of("weir-alone") + 0.01, "{} {}", of("weir-prices"), of("weir-alone"));
    assert!(of("weir-alone") >= of("weir-base") && of("weir-learned") > 0.0);
    let (few, again) = (r#""weir-base", "weir-prices""#, run(SOME, ""));
    assert_eq!(results.csv(), again.csv());
    // Nearly all are of the second class.
    let base = worth(&run(few, "coming = 300,"), "weir-base");
    assert!((base - (0.6 * 3.0 + 0.1 * 300.0) / 303.0).abs() < 0.02, "{base}");
}

#[test]
fn what_compares_no_selectors_is_refused() {
    let refused = |text: String| parse(&text).expect_err("refused").to_string();
    let by = |policy: &str, process: &str, x: &str| refused(text(policy, process, x, ""));
    assert_eq!(by("\"weir\"", "\"poisson\"", "rate = [1]"), "policies = weir: cannot select by class");
    assert_eq!(by("\"ramsis\"", "\"poisson\"", "rate = [1]"), "policies = ramsis: cannot select by class");
    assert_eq!(
        by(SOME, "\"poisson\"", "load = [1]"),
        "x = load (1: the certified rate): must be `capacity` or `rate` where selectors are compared"
    );
    assert_eq!(by(SOME, "\"adversarial\"", "rate = [1]"), "arrivals = all: must be a process of one stream");
    let wrong = text(SOME, "\"poisson\"", "rate = [1]", "").replace("[0.1, 0.2, 0.9]", "[0.1, 0.2]");
    assert_eq!(
        refused(wrong),
        "system[0].selecting.classes[1].accuracy = 2: must be 3 values, one for each model"
    );
    let wrong = text(SOME, "\"poisson\"", "rate = [1]", "").replace("workers = 2", "workers = 0");
    assert_eq!(refused(wrong), "system[0].selecting = : workers = 0: must be 1 to 256");
    let beside = text(SOME, "\"poisson\"", "rate = [1]", "")
        .replace("name = \"one\"", "name = \"one\"\ndeadline = \"1ms\"");
    assert_eq!(refused(beside), "system[0].deadline = : must be none beside selecting");
}
