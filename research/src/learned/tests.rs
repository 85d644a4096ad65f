//! What a network is shown and told of classes.

use rt_core::{ClassWorth, Decay, LatencyProfile, Span};

use super::*;

/// One worker, and two models of which one is slow and better for the second class alone.
fn inputs() -> Inputs {
    let model = |accuracy, ms| {
        let profile = LatencyProfile::new(&[Span::from_millis(ms); 2]).expect("a profile");
        Variant { accuracy, profile }
    };
    let class = |worth: [f64; 2]| Class {
        share: 1.0,
        worth: ClassWorth { worth: worth.into(), deadline: Span::from_millis(100), decay: Decay::Hard },
    };
    Inputs {
        variants: vec![model(0.5, 5), model(0.7, 40)],
        latency: Span::from_millis(100),
        workers: 1,
        batch: 2,
        max_miss: 1e-3,
        classes: vec![class([0.5, 0.5]), class([0.1, 0.9])],
    }
}

#[test]
fn with_classes_a_network_is_shown_the_mix_and_told_what_that_was_worth() {
    let inputs = inputs();
    let schooling = Schooling { hidden: vec![16], episodes: 40, steps: 100, ..Schooling::default() };
    let course = AllLoads { capacity_per_s: inputs.capacity_per_s(0) };
    let schooled = || {
        let build = |selector| inputs.scheduled(selector);
        school(&inputs, &schooling, &course, build, &mut |_| ControlFlow::Continue(()))
    };
    let one = schooled().expect("a network");
    assert_eq!(one.net.widths(), [rt_core::LEARNED_INPUTS + 2, 16, 2]);
    assert_eq!(one, schooled().expect("a network"), "the same each time");
    // What it was worth where it was tried is what the planner counts.
    let trials = course.trials(schooling.requests);
    let selector = || inputs.learned(one.net.clone()).expect("it fits");
    let right = |arrivals: &Vec<Instant>| {
        let found = inputs.tried(selector(), arrivals.iter().copied()).expect("a scheduler");
        found.right() * arrivals.len() as f64
    };
    let asked: usize = trials.iter().map(Vec::len).sum();
    let counted = trials.iter().map(right).sum::<f64>() / asked as f64;
    assert!((one.progress.right.expect("tried") - counted).abs() < 1e-9, "{counted}");
    // The base alone is worth 0.3 on the whole, where it misses nothing.
    assert!(counted > 0.33, "{counted}");
}
