//! Pipelines, drawn at random: what is certified is confirmed by the independent checker, and what counts on less is not.
//! `WEIR_EXHAUSTIVE=n` looks at `n` times as many.

use planner::certificate::PipelineReason;
use planner::{Certificate, PipelineClaim, Question, certify_pipeline};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::MAX_SPAN;
use rt_core::pipeline::PipelineError;
use serde_json::{Value, json};

use crate::naive::effort;
use crate::pipelines::{certified, checked, prover, read};

/// A tree of up to four stages, and one or two streams.
fn problem() -> impl Strategy<Value = Value> {
    let stage = (0usize..3, 1u32..4, 1usize..3, 1usize..5, 1u64..40);
    let stream = (1u64..5, 20u64..400, 0u64..60, 0u32..3);
    let all = (
        proptest::collection::vec(stage, 1..5),
        proptest::collection::vec(stream, 1..3),
        0u64..4,
        30u64..900,
    );
    all.prop_map(|(stages, streams, guard, deadline)| {
        let stages: Vec<_> = stages
            .iter()
            .enumerate()
            .map(|(i, &(parent, fan_out, workers, batch, time))| {
                let mut stage = json!({"name": format!("s{i}"), "workers": workers, "batch": batch, "time": time});
                if i > 0 {
                    stage["parent"] = json!(format!("s{}", parent.min(i - 1)));
                    stage["fan_out"] = json!(fan_out);
                }
                stage
            })
            .collect();
        let streams: Vec<_> = streams
            .iter()
            .enumerate()
            .map(|(i, &(count, length, jitter, m))| {
                let arrivals = if jitter % 2 == 0 {
                    json!({"windows": [[count, length]]})
                } else {
                    json!({"periodic": {"period": length, "jitter": jitter}})
                };
                json!({"name": format!("c{i}"), "constraints": [format!("any_miss({m},4)")], "arrivals": arrivals})
            })
            .collect();
        json!({"unit": "us", "deadline": deadline + 200, "guard": guard, "pipeline": stages, "streams": streams})
    })
}

/// The same with one more stage, which takes the results of several or a source once, and now and then one behind it.
fn graph() -> impl Strategy<Value = Value> {
    (problem(), 1u32..3, 1usize..3, 1usize..4, 1u64..30, 0usize..16).prop_map(
        |(mut problem, most, workers, batch, time, kind)| {
            let stages = problem["pipeline"].as_array_mut().expect("stages");
            let mut last = json!({"name": "last", "workers": workers, "batch": batch, "time": time});
            let parents: Vec<_> = (0..stages.len()).rev().step_by(1 + kind / 8).take(2 + kind % 2).collect();
            last["parents"] = json!(parents.iter().map(|i| format!("s{i}")).collect::<Vec<_>>());
            let join = kind % 4 < 2 || parents.len() == 1;
            last["join"] = json!(join);
            last[if join { "requests" } else { "fan_out" }] = json!(most);
            stages.push(last);
            if kind % 3 == 0 {
                stages
                    .push(json!({"name": "end", "parent": "last", "workers": 1, "batch": batch, "time": 2}));
            }
            problem
        },
    )
}

/// Of merges and joins all is confirmed as of trees, by the checker that shares nothing with the program; the one that is proved
/// knows none of them and says so.
#[test]
fn what_is_certified_of_merges_and_joins_is_confirmed() {
    let (mut runner, mut promised, mut limits, mut late) = (TestRunner::deterministic(), 0, 0, 0);
    let all = 90 * effort() as usize;
    for _ in 0..all {
        let mut problem = graph().new_tree(&mut runner).expect("a problem").current();
        let claim = certified(&problem);
        let bound = claim.bound;
        let verified = checked(claim).unwrap_or_else(|no| panic!("{problem}: {no}"));
        promised += verified.promised;
        limits += verified.limits;
        let Some(bound) = bound else { continue };
        // One less than the bound is refused, and no checker is talked into it.
        let bound: u64 = bound.to_string().parse().expect("whole");
        problem["deadline"] = json!(bound - 1);
        if let Ok(Question::Pipeline(problem)) = Question::parse(&problem.to_string()) {
            let refused = certify_pipeline(&problem);
            assert!(!refused.admissible);
            assert!(checked(PipelineClaim { admissible: true, reason: None, ..refused }).is_err());
            late += 1;
        }
    }
    println!("{promised} of {all} promise something, {limits} limits derived again, {late} a tick too short");
    assert!(promised * 5 >= all && limits * 10 >= promised * 9 && late * 5 >= all);
}

/// A limit may lie so near capacity, of periods that have so little in common, that neither program says anything of it.
#[test]
fn what_is_certified_is_confirmed() {
    let (mut runner, mut promised, mut limits) = (TestRunner::deterministic(), 0, 0);
    let all = 90 * effort() as usize;
    for _ in 0..all {
        let problem = problem().new_tree(&mut runner).expect("a problem").current();
        let claim = certified(&problem);
        let admissible = claim.admissible;
        let verified = checked(claim).unwrap_or_else(|no| panic!("{problem}: {no}"));
        assert_eq!(
            (verified.promised, verified.refused),
            (usize::from(admissible), usize::from(!admissible))
        );
        promised += verified.promised;
        limits += verified.limits;
    }
    println!("{promised} of {all} promise something, {limits} limits derived again");
    assert!(promised * 5 >= all && limits * 10 >= promised * 9);
}

/// The checker that is proved sound confirms what is certified, but near capacity, and nothing that is refused, be it forged
/// into a yes: a deadline 1 us shorter than the bound, or any other problem that is not certified.
#[test]
fn what_is_proved_is_certified_and_nearly_all_that_is_certified_is_proved() {
    let Some(prover) = prover() else { return };
    let asked = |claim: PipelineClaim| {
        let said = prover.check(&Certificate::of_pipeline("by chance", claim));
        said.expect("answers").0 == 1
    };
    let forged = |problem: &Value| PipelineClaim {
        admissible: true,
        reason: None,
        rule: PipelineReason::TheoremP2,
        ..certified(problem)
    };
    let (mut runner, mut tally) = (TestRunner::deterministic(), [0; 3]);
    for _ in 0..120 {
        let mut problem = problem().new_tree(&mut runner).expect("a problem").current();
        let claim = certified(&problem);
        let Some(bound) = claim.bound.filter(|_| claim.rule != PipelineReason::NothingPromised) else {
            if claim.rule != PipelineReason::NothingPromised {
                assert!(!asked(forged(&problem)), "{problem}");
                tally[2] += 1;
            }
            continue;
        };
        let bound: u64 = bound.to_string().parse().expect("whole");
        problem["deadline"] = json!(bound);
        tally[usize::from(!asked(certified(&problem)))] += 1;
        problem["deadline"] = json!(bound - 1);
        assert!(!asked(forged(&problem)), "{problem}");
        tally[2] += 1;
    }
    let [confirmed, cautious, refused] = tally;
    println!("{confirmed} confirmed, {cautious} not, {refused} refused");
    assert!(cautious * 20 <= confirmed && confirmed > 60 && refused > 80, "{tally:?}");
}

/// Of stalls: what is certified is confirmed, and the program and its checker ask for the same window to the nanosecond, and for the
/// same deadline; the checker that is proved knows none and says so.
#[test]
fn what_is_certified_of_stalls_is_confirmed_and_what_counts_on_less_is_not() {
    let (prover, mut runner) = (prover(), TestRunner::deterministic());
    let (mut rare, mut late) = (0, 0);
    for i in 0..120 {
        let drawn = if i % 3 == 0 { graph().boxed() } else { problem().boxed() };
        let mut problem = drawn.new_tree(&mut runner).expect("a problem").current();
        let Some(bound) = certified(&problem).bound else { continue };
        let (count, length) = (1 + i % 3, 7 + 5 * (i % 11));
        let latency: u64 = bound.to_string().parse().expect("whole");
        problem["deadline"] = json!(latency + count * length);
        let with = |window: u64| {
            let mut problem = problem.clone();
            problem["stalls"] = json!({"count": count, "window": window, "length": length});
            problem
        };
        let refused = certified(&with(count * length + 1));
        assert_eq!((refused.admissible, refused.rule), (false, PipelineReason::Stalls));
        assert!(refused.reason.as_ref().is_some_and(|reason| reason.contains("so rare")));
        checked(refused).expect("a refusal");
        let short = read(&with(count * length + 1));
        let window = match planner::certify::chosen(&short).admit(short.specs()) {
            Err(PipelineError::Stalls { needed, .. }) if needed < MAX_SPAN => needed.as_nanos() / 1_000,
            Err(PipelineError::Stalls { .. }) => continue,
            other => panic!("{other:?}"),
        };
        let claim = certified(&with(window));
        assert!(claim.admissible && claim.bound == Some(bound), "{problem}");
        rare += 1;
        let json = serde_json::to_value(&claim).expect("JSON");
        assert_eq!(
            json["binding"]["rhs"],
            json!(json["binding"]["delta"].as_u64().expect("whole") + latency)
        );
        if let Some(prover) = &prover {
            let (proved, unproved) =
                prover.check(&Certificate::of_pipeline("weir", claim.clone())).expect("answers");
            assert_eq!((proved, unproved[0].reason), (0, "it counts on stalls, of which nothing is proved"));
        }
        assert_eq!(checked(claim.clone()).map(|v| v.promised), Ok(1));
        for (path, value) in [
            ("/problem/stalls/window", json!(window - 1)),
            ("/problem/stalls/length", json!(length + 1)),
            ("/problem/stalls/count", json!(count + 1)),
            ("/problem/stalls/recovery", json!(1)),
            ("/problem/deadline", json!(latency + count * length - 1)),
        ] {
            let mut changed = json.clone();
            let (object, field) = path.rsplit_once('/').expect("a path");
            changed.pointer_mut(object).expect("there")[field] = value.clone();
            let forged = serde_json::from_value(changed).expect("a claim");
            assert!(checked(forged).is_err(), "{path} = {value} is confirmed");
        }
        let mut short = with(window);
        short["deadline"] = json!(latency + count * length - 1);
        if let Ok(Question::Pipeline(short)) = Question::parse(&short.to_string()) {
            let refused = certify_pipeline(&short);
            assert!(!refused.admissible && refused.bound == Some(bound));
            assert!(checked(PipelineClaim { admissible: true, reason: None, ..refused }).is_err());
            late += 1;
        }
    }
    println!("{rare} certified in the least window, {late} a microsecond too short");
    assert!(rare > 40 && late > 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The bound says nothing of the deadline: one that is as long is kept, and any shorter one refused.
    #[test]
    fn the_bound_is_the_shortest_deadline(problem in problem()) {
        let claim = certified(&problem);
        let Some(bound) = claim.bound else { return Ok(()) };
        let bound: u64 = bound.to_string().parse().expect("whole");
        let mut asked = problem;
        asked["deadline"] = json!(bound);
        prop_assert!(certified(&asked).admissible);
        asked["deadline"] = json!(bound - 1);
        let refused = certified(&asked);
        prop_assert!(!refused.admissible && refused.bound == claim.bound);
        // And no checker is talked into it.
        let lied = PipelineClaim { admissible: true, reason: None, ..refused };
        prop_assert!(checked(lied).is_err());
    }
}

/// `problem()`, of which batches are to be chosen, and now and then workers.
fn open() -> impl Strategy<Value = Value> {
    (problem(), proptest::collection::vec((1u64..6, 0usize..3), 4), 0usize..4).prop_map(
        |(mut problem, draws, spare)| {
            let mut fewest = 0;
            let stages = problem["pipeline"].as_array_mut().expect("stages");
            for (stage, (each, kind)) in stages.iter_mut().zip(draws) {
                let first = stage["time"].as_u64().expect("a time");
                let times: Vec<_> = (0..4).map(|b| first + each * b).collect();
                stage.as_object_mut().expect("an object").remove("time");
                stage["times"] = json!(times);
                if kind > 0 {
                    stage["batch"] = json!("auto");
                }
                if spare > 0 && kind < 2 {
                    stage["workers"] = json!("auto");
                }
                fewest += stage["workers"].as_u64().unwrap_or(1);
            }
            if spare > 0 {
                problem["workers"] = json!(fewest + spare as u64);
            }
            problem
        },
    )
}

/// The same with what was chosen in place of `auto`.
fn closed(problem: &Value, claim: &PipelineClaim) -> Value {
    let mut problem = problem.clone();
    for (i, stage) in claim.stages.iter().enumerate() {
        for (field, chosen) in [("workers", stage.workers), ("batch", stage.batch)] {
            if let Some(chosen) = chosen {
                problem["pipeline"][i][field] = json!(chosen);
            }
        }
    }
    problem
}

#[test]
fn what_is_chosen_is_confirmed_and_is_no_less_than_anything_stated() {
    let (mut runner, mut promised, mut gains) = (TestRunner::deterministic(), 0, 0);
    for _ in 0..25 {
        let problem = open().new_tree(&mut runner).expect("a problem").current();
        let claim = certified(&problem);
        let verified = checked(claim.clone()).unwrap_or_else(|no| panic!("{problem}: {no}"));
        promised += verified.promised;
        // What is stated instead is answered alike, but for what tells of the choice.
        let stated = certified(&closed(&problem, &claim));
        let told = |claim: &PipelineClaim| {
            (claim.admissible, claim.bound, claim.binding.clone(), claim.max_load_scale)
        };
        assert_eq!(told(&stated), told(&claim), "{problem}");
        assert!(
            stated.split.is_none() && stated.stages.iter().all(|s| s.workers.is_none() && s.batch.is_none())
        );
        // Batches of one, or as large as can be, with as many workers.
        let scale = claim.max_load_scale.expect("something is promised").as_f64();
        for batch in [1, 4] {
            let mut other = closed(&problem, &claim);
            let stages = claim.stages.iter().enumerate().filter(|(_, stage)| stage.batch.is_some());
            stages.for_each(|(i, _)| other["pipeline"][i]["batch"] = json!(batch));
            let other = certified(&other).max_load_scale.expect("something is promised").as_f64();
            assert!(other <= scale, "{problem}");
            gains += usize::from(other < scale);
        }
        if let Some(split) = &claim.split {
            assert!(split.max_load_scale.as_f64() <= scale, "{problem}");
            assert_eq!(split.batches.is_empty(), split.max_load_scale.as_f64() == 0.0);
        }
    }
    println!("{promised} of 25 promise something, {gains} of 50 choices without thought promise less");
    assert!(promised >= 15 && gains >= 10);
}
