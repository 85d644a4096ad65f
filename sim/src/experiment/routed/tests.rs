//! Routers of an experiment: what is told of them, who may route, and what is no router.

use super::super::{Data, Experiment, ExperimentError, Quantity, Results};

/// Two workers, two models and two classes; `more` goes into the router.
fn text(policies: &str, process: &str, x: &str, more: &str) -> String {
    format!(
        "title = \"t\"\nruns = 2\nrequests = 2000\npolicies = [{policies}]\n[[system]]\nname = \"one\"\n\
         router = {{ workers = 2, tokens = 20, hidden = [8], episodes = 3, {more} models = [\n\
         {{ name = \"small\", step = \"2ms\", request = \"1ms\" }}, {{ name = \"large\", step = \"10ms\", request = \"5ms\" }}\n\
         ], classes = [{{ name = \"a\", deadline = \"20ms\", accuracy = [0.5, 1] }}, \
         {{ name = \"b\", deadline = \"20ms\", accuracy = [0.9, 1] }}] }}\n\
         [[arrivals]]\nname = \"all\"\nprocess = {process}\n[x]\n{x}\n"
    )
}

fn parse(text: &str) -> Result<Experiment, ExperimentError> {
    Experiment::parse(text, &Data::default())
}

fn mean(results: &Results, cell: usize, quantity: &str) -> f64 {
    let quantity: Quantity = quantity.parse().expect("a quantity");
    results.estimate(&results.cells[cell], quantity).map_or(f64::NAN, |estimate| estimate.mean)
}

#[test]
fn what_is_told_of_a_router_is_what_it_did() {
    let tables = ["worth", "windows(100)", "routed(1,1)", "routed(2,2)", "unavailable(5)"];
    let tables = tables.map(|measure| {
        format!("[[table]]\ntitle = \"t\"\nmeasure = \"{measure}\"\nrows = \"x\"\ncolumns = \"policy\"\n")
    });
    let policies =
        r#""model-1", "model-2", "router-greedy", "router-planned", "router-learned", "router-auto""#;
    let all = text(policies, "\"poisson\"", "rate = [0.1, 20]", "") + &tables.concat();
    let results = parse(&all).expect("an experiment").run(&|| {}).expect("results");
    let told = |cell, quantity| (mean(&results, cell, quantity) * 1e3).round() / 1e3;
    // Hardly anything comes: the large model answers all in time, the small one is worth 0.7 on average.
    assert_eq!((told(1, "worth"), told(1, "windows(100)"), told(1, "misses")), (1.0, 1.0, 0.0));
    assert!((told(0, "worth") - 0.7).abs() < 0.02 && told(0, "windows(100)") == 0.0);
    assert_eq!((told(0, "routed(1,1)"), told(0, "routed(2,2)"), told(1, "routed(2,2)")), (1.0, 0.0, 1.0));
    assert!(told(2, "worth") > 0.99 && told(3, "worth") > 0.99);
    // Twice what the large model can: the small one is there, and whoever routes is better than the large one alone.
    assert_eq!((told(6, "unavailable(5)"), told(7, "unavailable(5)")), (0.0, 1.0));
    assert!(told(9, "worth") > told(7, "worth") + 0.3, "{} {}", told(9, "worth"), told(7, "worth"));
    // Whoever is best is chosen, but for what trials of other requests say otherwise.
    let best = |first: usize| (first..first + 5).map(|cell| told(cell, "worth")).fold(0.0, f64::max);
    for (auto, first) in [(5, 0), (11, 6)] {
        assert!(told(auto, "worth") > best(first) - 0.02, "{} of {}", told(auto, "worth"), best(first));
    }
    assert!(results.cells[3].policy.to_string() == "router-planned");
    let again = parse(&all).expect("an experiment").run(&|| {}).expect("results");
    assert_eq!(results.csv(), again.csv());
}

#[test]
fn what_is_no_router_is_refused() {
    let refused = |text: String| parse(&text).expect_err("refused").to_string();
    let with = |more: &str| refused(text("\"model-1\"", "\"poisson\"", "rate = [1]", more));
    assert_eq!(with("mix = [1],"), "system[0].router.number of mix = 1: must be in 2..=2");
    assert_eq!(
        with("decay = { linear = { per-ms = 2, cutoff = 0.1 } },"),
        "system[0].router.decay.per-ms = 2: must be in 0..=1"
    );
    let by = |policy: &str, process: &str, x: &str| refused(text(policy, process, x, ""));
    assert_eq!(by("\"weir\"", "\"poisson\"", "rate = [1]"), "policies = weir: cannot route");
    assert_eq!(
        by("\"model-3\"", "\"poisson\"", "rate = [1]"),
        "policies = model-3: is no model of system one"
    );
    assert_eq!(
        by("\"model-1\"", "\"constant\"", "rate = [1]"),
        "arrivals = all: must be `poisson` or `redrawn` of a router"
    );
    let range = "{ redrawn = { requests = 5, ranges = [[1, 3, 2]] } }";
    let wrong = by("\"model-1\"", range, "rate = [1]");
    assert_eq!(wrong, "arrivals all: ranges[0][2] = 2: must be in 3..=10000");
    let wrong = by("\"model-1\"", "\"poisson\"", "load = [1]");
    assert_eq!(wrong, "x = load (1: the certified rate): must be `rate` of a router");
    for (quantity, reason) in
        [("windows(101)", "a number in 0..=100"), ("routed(0,1)", "a class and a model")]
    {
        let wrong = quantity.parse::<Quantity>().expect_err("refused");
        assert!(wrong.contains(reason), "{wrong}");
    }
}
