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
    seen.services.insert("p".to_owned(), One { factors, ..one() });
    assert_eq!(seen.factors(&config), [of("p/y", 1.5)].into());
    assert_eq!(seen.load(&config, &demand)["p/y"], 15.0);
    let told = seen.demand(&config);
    assert_eq!((told.len(), &*told[0].stages[0].stage, told[0].stages[0].mean), (1, "y", 1.5));
}

/// A service of which nothing was seen.
fn one() -> One {
    One {
        demand: Demand::new(Estimator::Mean, Duration::from_secs(2)),
        factors: Vec::new(),
        instance: Weak::new(),
        served: 0,
        missed: 0,
        answered: Vec::new(),
        since: (0, 0, 0, 0.0),
        planned: None,
        carries: true,
    }
}

#[test]
fn what_a_service_that_is_left_out_misses_is_no_gain_of_a_plan_for_the_others() {
    let more = PIPELINE.replace("name = \"p\"", "name = \"q\"");
    let more = &more[more.find("[[pipeline]]").expect("a pipeline")..];
    let text = format!("{PIPELINE}{more}").replacen("count = 3", "count = 4", 1);
    let text = text.replace("cores = [4, 5]\n    [[pipeline]]", "cores = [4, 5, 6, 7]\n    [[pipeline]]");
    let config = Config::parse(std::path::Path::new("weir.toml"), &text).expect("a configuration");
    let demand = BTreeMap::from(["p", "q"].map(|name| (name.to_owned(), 10.0)));
    let mut seen = Seen::default();
    // All of `p` is answered, half of `q` misses.
    seen.services.insert("p".to_owned(), One { since: (100, 0, 100, 80.0), ..one() });
    seen.services.insert("q".to_owned(), One { since: (50, 50, 50, 40.0), ..one() });
    assert_eq!(seen.present(&config, &demand, &[]), Some(60.0));
    assert_eq!(seen.present(&config, &demand, &["q".to_owned()]), Some(80.0));
}

#[test]
fn others_move_for_need_only_with_one_that_is_urgent_and_not_left_out() {
    let [p, q] = ["p", "q"].map(str::to_owned);
    let mut seen = Seen::default();
    seen.services.insert(p.clone(), One { carries: false, ..one() });
    seen.services.insert(q.clone(), one());
    assert!(seen.is_needed(&[&p, &q], &[]));
    assert!(!seen.is_needed(&[&q], &[]), "what is urgent stays as it is");
    assert!(!seen.is_needed(&[&p, &q], std::slice::from_ref(&p)), "it is left out");
}
