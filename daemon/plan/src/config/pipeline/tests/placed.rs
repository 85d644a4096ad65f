//! Pipelines that `weir place` places.

use super::*;

/// A pipeline of which `weir place` may choose.
const PLACED: &str = r#"
    [placement]
    [[placement.class]]
    name = "own"
    engine = "simulated"
    count = 2
    [[placement.class]]
    name = "all"
    engine = "simulated"
    count = 1
    shared = true
    [[pipeline]]
    name = "p"
    deadline = "1s"
    [[pipeline.stream]]
    name = "s"
    constraints = [{ row-miss = 1 }]
    arrivals = [{ periodic = { period = "100ms" } }]
    [[pipeline.stage]]
    name = "a"
    simulated.models = [{ accuracy = 0.5, times = { own = ["2ms"] } }]
    [[pipeline.stage]]
    name = "b"
    after = "a"
    simulated.models = [{ accuracy = 0.5, times = { own = ["2ms"] } }, { accuracy = 0.7, times = { own = ["4ms"] } }]
"#;

#[test]
fn stages_say_among_which_models_to_choose() {
    let parse = |text: &str| Config::parse_box(Path::new("box.toml"), text);
    let config = parse(PLACED).expect("good");
    let pipeline = &config.services[0];
    assert!(pipeline.is_open() && pipeline.is_placed() && pipeline.places().is_none());
    assert_eq!(pipeline.worth(), Some((10.0, 1.0)), "it comes as often as it declares");
    let of = |stage: usize| pipeline.stages[stage].runs.candidates.as_ref().expect("it is placed");
    assert_eq!((of(0).models.count(), of(1).models.count(), &of(1).classes[..]), (1, 2, &[0, 1][..]));
    let worth = PLACED.replace("deadline = \"1s\"", "deadline = \"1s\"\ndemand = 3.5\nvalue = 2.0");
    assert_eq!(parse(&worth).expect("good").services[0].worth(), Some((3.5, 2.0)));
}

/// `PLACED` where each model runs on the shared class too, and every stage on the classes that are named.
fn shared(of_pipeline: &str, of_each: &str) -> String {
    let text = PLACED.replace("own = [\"2ms\"]", "own = [\"2ms\"], all = [\"1ms\"]");
    let text = text.replace("deadline = \"1s\"", &format!("deadline = \"1s\"\n{of_pipeline}"));
    text.replace("    simulated.models", &format!("    {of_each}\n    simulated.models"))
}

#[test]
fn a_pipeline_shares_a_class_with_all_of_its_stages() {
    let parse =
        |text: &str| Config::parse_box(Path::new("box.toml"), text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let classes = |config: &Config| {
        let of = |runs: &crate::config::ServiceConfig| runs.candidates.as_ref().map(|of| of.classes.clone());
        config.services[0].running().map(of).collect::<Option<Vec<_>>>().expect("it is placed")
    };
    assert_eq!(classes(&parse(&shared("", ""))), [[0, 1], [0, 1]]);
    assert_eq!(classes(&parse(&shared("", "classes = [\"all\"]"))), [[1], [1]]);
    // One stage may not run there, so that no other one does.
    let one = PLACED.replacen("name = \"b\"", "name = \"b\"\nclasses = [\"own\"]", 1);
    assert_eq!(classes(&parse(&one)), [[0], [0]]);
    // As it is written once it is placed there.
    let chosen = "engine = \"simulated\"\n    simulated.times = [\"1ms\"]\n    simulated.accuracy = 0.5";
    let text = shared("device = \"all\"\nweight = 2.0", chosen) + "[[device]]\nname = \"all\"\n";
    let closed = Config::parse(Path::new("weir.toml"), &text).expect("nothing is open");
    let pipeline = &closed.services[0];
    let on = |model: usize| crate::config::Placed { class: 1, devices: 0, models: vec![model] };
    assert_eq!(pipeline.places(), Some(vec![on(0), on(0)]));
    assert!(pipeline.is_fused() && pipeline.share.is_some_and(|share| share.weight == 2.0));
}

#[test]
fn what_no_pipeline_that_is_placed_has_is_refused() {
    let b = "simulated.models = [{ accuracy = 0.5, times = { own = [\"2ms\"] } }, { accuracy = 0.7, times = { own = [\"4ms\"] } }]";
    let told = |text: &str| Config::parse_box(Path::new("box.toml"), text).expect_err("wrong").to_string();
    for (from, to, expected) in [
        (
            b,
            "engine = \"simulated\"\nsimulated.times = [\"2ms\"]",
            "pipeline[0].stage[1].models = (absent): is placed with the other stages, which list models: a list may have one",
        ),
        (
            "deadline = \"1s\"",
            "deadline = \"1s\"\nworkers = 4",
            "pipeline[0].workers = 4: is chosen by `weir place`, stage by stage: remove it",
        ),
        (
            "deadline = \"1s\"",
            "deadline = \"1s\"\ndemand = -1.0",
            "pipeline[0].demand = -1: must be in 0..=1000000000",
        ),
        (
            "name = \"b\"",
            "name = \"b\"\nworkers = 2",
            "pipeline[0].stage[1].workers = (present): is chosen by `weir place`",
        ),
    ] {
        let text = PLACED.replacen(from, to, 1);
        assert_ne!(text, PLACED, "{from}");
        let told = told(&text);
        assert!(told.contains(expected), "{told}");
    }
    let apart = PLACED.replacen("name = \"a\"", "name = \"a\"\nclasses = [\"own\"]", 1);
    let apart = told(&apart.replacen("name = \"b\"", "name = \"b\"\nclasses = [\"own\", \"all\"]", 1));
    let expected = "pipeline[0].stage[1].classes = all: is shared, which a pipeline does with all of its stages or with none";
    assert!(apart.contains(expected), "{apart}");
    let closed = Config::parse(Path::new("weir.toml"), PLACED).expect_err("open").to_string();
    assert!(
        closed.contains("pipeline[0].stage[0].model = (absent): must say what serves it: run `weir place`"),
        "{closed}"
    );
    let fixed = "[[pipeline]]\nname = \"p\"\ndeadline = \"1s\"\nvalue = 2.0\n[[pipeline.stage]]\nname = \"only\"\nmodel = \"m\"";
    assert!(
        told(fixed)
            .contains("pipeline[0].value = 2: only for a pipeline whose stages say among which models")
    );
}
