//! Refutations of pipelines: allowed, they show what they claim, and most refusals have one.

use planner::Question;
use serde_json::{Value, json};

use super::*;
use crate::replay_pipeline;

fn staged(problem: &Value) -> PipelineProblem {
    match Question::parse(&problem.to_string()).unwrap_or_else(|error| panic!("{problem}: {error}")) {
        Question::Pipeline(problem) => problem,
        other => panic!("{other:?}"),
    }
}

/// A pipeline with two or three stages, batches of up to two, up to two workers, each result up to two requests; its stream
/// keeps no stage busy all the time. Whatever the deadline.
fn drawn(dice: &mut Dice, background: bool) -> Value {
    let stages = dice.within(2, 3);
    let stage = |i: u64, dice: &mut Dice| {
        let mut stage = json!({"name": format!("s{i}"), "workers": dice.within(1, 2), "batch": dice.within(1, 2),
            "time": dice.within(1, 5)});
        if i > 0 {
            stage["parent"] = json!(format!("s{}", dice.within(0, i - 1)));
            stage["fan_out"] = json!(dice.within(1, 2));
        }
        stage
    };
    let stages: Vec<_> = (0..stages).map(|i| stage(i, dice)).collect();
    let constraint =
        ["row_miss(0)", "row_miss(1)", "any_miss(1,3)", "any_miss(2,3)"][dice.within(0, 3) as usize];
    let stream = json!({"name": "cam", "constraints": [constraint],
        "arrivals": {"windows": [[dice.within(1, 4), dice.within(4, 40)]]}});
    json!({"unit": "ms", "background": background, "deadline": 1000, "pipeline": stages, "streams": [stream]})
}

/// Refused problems whose deadlines are `below` what would be admitted: by a millisecond, or any that could be met at all.
fn refused(dice: &mut Dice, background: bool, barely: bool) -> PipelineProblem {
    loop {
        let mut problem = drawn(dice, background);
        let read = staged(&problem);
        let case = Case::staged(&read);
        let pipeline = case.pipeline().expect("stages");
        let Ok(admission) = pipeline.admit(read.specs()) else { continue };
        let mut ends: Vec<u64> = Vec::new();
        for stage in &pipeline.stages {
            ends.push(stage.parent.map_or(0, |parent| ends[parent]) + stage.time.as_nanos());
        }
        let least = ends.into_iter().max().unwrap_or(0) / 1_000_000;
        let most = admission.bound.as_nanos() / 1_000_000 - 1;
        if most < least {
            continue;
        }
        problem["deadline"] = json!(if barely { most } else { dice.within(least, most) });
        return staged(&problem);
    }
}

/// Of so many refusals, how many have a violation and how many at least a mandatory miss.
fn shares(count: usize, seed: u64, background: bool, barely: bool) -> (usize, usize) {
    let mut dice = Dice(seed);
    let (mut violated, mut missed) = (0, 0);
    for _ in 0..count {
        let problem = refused(&mut dice, background, barely);
        let Some(refutation) = refute_pipeline(&problem) else {
            if std::env::var("SHOW").is_ok() {
                println!("NONE {}", serde_json::to_string(&problem.raw).unwrap());
            }
            continue;
        };
        let shown = replay_pipeline(&problem, &refutation).expect("as claimed");
        assert_eq!(shown.broken.shows, refutation.shows);
        assert!(shown.broken.waited.is_some());
        match refutation.shows {
            Shows::Violation => violated += 1,
            Shows::MandatoryMiss => missed += 1,
        }
    }
    (violated, missed)
}

#[test]
fn most_refusals_of_pipelines_are_refuted() {
    let count = std::env::var("WEIR_REFUSALS").ok().and_then(|count| count.parse().ok()).unwrap_or(10);
    for background in [true, false] {
        for barely in [false, true] {
            let (violated, missed) = shares(count, 1, background, barely);
            println!(
                "background {background}, barely {barely}: of {count} refusals {violated} violated, {missed} missed"
            );
        }
    }
}

#[test]
fn debugging() {
    let Ok(text) = std::env::var("PROBLEM") else { return };
    let problem = staged(&serde_json::from_str(&text).unwrap());
    let case = Case::staged(&problem);
    let mut search = Search { case: &case, budget: BUDGET, best: None };
    println!("in the way: {}", search.in_the_way(0));
    println!("best {:?}", search.best.map(|(a, o, s)| (a.len(), o, s)));
}
