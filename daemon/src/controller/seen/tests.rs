//! Tests of what is seen: what is held, and what results become.

use std::time::Duration;

use weir_plan::config::Estimator;

use super::*;

/// A pipeline of two stages, on two devices of a class that only counts and on two cores.
const PIPELINE: &str = r#"
    [placement]
    [[placement.class]]
    name = "counted"
    engine = "simulated"
    count = 3
    [[placement.class]]
    name = "cores"
    engine = "simulated"
    cores = [4, 5]
    [[pipeline]]
    name = "p"
    deadline = "1s"
    [[pipeline.stage]]
    name = "x"
    engine = "simulated"
    workers = 2
    simulated = { times = ["2ms"], accuracy = 0.5, models = [{ accuracy = 0.5, times = { counted = ["2ms"] } }] }
    [[pipeline.stage]]
    name = "y"
    after = "x"
    engine = "simulated"
    workers = 2
    cores = [4, 5]
    simulated = { times = ["3ms"], accuracy = 0.5, models = [{ accuracy = 0.5, times = { cores = ["3ms"] } }] }
"#;

#[test]
fn a_pipeline_holds_what_each_of_its_stages_has_left() {
    let config = Config::parse(std::path::Path::new("weir.toml"), PIPELINE).expect("a configuration");
    let counted = Hold { class: 0, devices: 2, numbers: Vec::new() };
    let cores = Hold { class: 1, devices: 2, numbers: vec![4, 5] };
    assert_eq!(holds(&config)["p"], [counted, cores]);
    let gone = |class: &str, number| Gone { class: class.to_owned(), number };
    let told = |lost: &[(usize, bool)], gone: &[Gone]| {
        let lost =
            lost.iter().map(|&(worker, given_up)| (("p".to_owned(), worker), (Instant::ZERO, given_up)));
        Seen { lost: lost.collect(), gone: gone.to_vec(), ..Seen::default() }.held(&config, "p")
    };
    let [one, four, five] = [gone("counted", None), gone("cores", Some(4)), gone("cores", Some(5))];
    assert_eq!(told(&[(0, false)], &[]), [one.clone(), one.clone(), four.clone(), five.clone()]);
    assert_eq!(told(&[(1, true)], std::slice::from_ref(&one)), [one.clone(), four.clone(), five.clone()]);
    // The third worker is the first of the second stage.
    assert_eq!(told(&[(2, true)], &[four]), [one.clone(), one, five]);
}

#[test]
fn what_results_become_is_what_was_counted_and_else_what_the_file_says() {
    let text = PIPELINE.replace("after = \"x\"", "after = \"x\"\nfan-out = 4\nmean = 3.0");
    let config = Config::parse(std::path::Path::new("weir.toml"), &text).expect("a configuration");
    let demand = BTreeMap::from([("p".to_owned(), 10.0)]);
    let of = |name: &str, number: f64| (name.to_owned(), number);
    let mut seen = Seen::default();
    assert_eq!(seen.factors(&config), [of("p/y", 3.0)].into());
    assert_eq!(seen.load(&config, &demand), [of("p", 10.0), of("p/x", 10.0), of("p/y", 30.0)].into());
    let (estimator, period) = (Estimator::Mean, Duration::from_secs(2));
    let mut factors: Vec<_> = [1.0, 3.0].map(|mean| (Factor::new(estimator, period, mean), [0; 2])).into();
    factors[1].0.add((40, 60), Duration::from_secs(1));
    let one = One {
        demand: Demand::new(estimator, period),
        factors,
        instance: Weak::new(),
        served: 0,
        missed: 0,
        answered: Vec::new(),
        since: (0, 0, 0, 0.0),
        planned: None,
        carries: true,
    };
    seen.services.insert("p".to_owned(), one);
    assert_eq!(seen.factors(&config), [of("p/y", 1.5)].into());
    assert_eq!(seen.load(&config, &demand)["p/y"], 15.0);
    let told = seen.demand(&config);
    assert_eq!((told.len(), &*told[0].stages[0].stage, told[0].stages[0].mean), (1, "y", 1.5));
}
