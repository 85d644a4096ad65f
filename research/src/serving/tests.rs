//! Choosers of models: what must hold of all of them, and what tells them apart.

use std::sync::Arc;

use rt_core::{Instant, LatencyProfile, Outcome, Span, Variant};
use virtual_time::{Order as Instants, Poisson, Run, drive};

use super::*;
use crate::ramsis::{self, Batching, Flavour, PolicySet, RoundRobin, Slack, Spec};
use crate::select::{self, Demand, Effort, Order};

const WORKERS: usize = 4;
const DEADLINE: Span = Span::from_millis(100);

/// A fast one, a middling one and a slow one: milliseconds of one request and of each more.
fn models() -> Vec<Variant> {
    let model = |accuracy, first: u64, more: u64| {
        let times: Vec<_> = (0..16).map(|b| Span::from_millis(first + more * b)).collect();
        Variant { accuracy, profile: LatencyProfile::new(&times).expect("a profile") }
    };
    vec![model(0.6, 8, 4), model(0.75, 20, 9), model(0.85, 60, 30)]
}

fn ramsis(flavour: Flavour) -> Ramsis {
    let named =
        |(i, m): (usize, &Variant)| ramsis::Model::of_profile(&format!("m{i}"), m.accuracy, &m.profile);
    let models = models().iter().enumerate().map(named).collect::<Result<_, _>>().expect("models");
    let (slo_ns, slack, batching) = (DEADLINE.as_nanos(), Slack::Fixed(25), Batching::Maximal);
    let spec = Spec { models, slo_ns, queue: 12, slack, batching, flavour };
    let set = PolicySet::over(&spec, |load| RoundRobin::poisson(load, WORKERS), (20.0, 500.0), 0.05, 100.0);
    Ramsis(Arc::new(set.expect("policies")))
}

fn shared(loads: &[f64]) -> Shared {
    let profile = select::Profile::new(DEADLINE, models()).expect("a profile");
    let effort = Effort { tries: 300, requests: 4000, seed: 1, thorough: false };
    let plan = |&load: &f64| {
        let demand = Demand { load, workers: WORKERS, order: Order::NewestToo };
        (load, select::plan(&profile, demand, effort).expect("a plan").policy)
    };
    Shared(loads.iter().map(plan).collect())
}

/// Everything that there is, for loads around `load`.
fn all(load: f64) -> Vec<(&'static str, Box<dyn Chooser>)> {
    let models = models();
    let largest = |one: &Static| one.capacity(&models) * WORKERS as f64 * 0.8;
    vec![
        ("static", Box::new(Static::new(&models, 1, DEADLINE))),
        ("greedy", Box::new(Greedy::new(&models))),
        ("jellyfish", Box::new(Jellyfish::new(&models, WORKERS, DEADLINE))),
        ("switching", Box::new(Switching::new(&models, DEADLINE, largest))),
        ("ramsis", Box::new(ramsis(Flavour::Program))),
        ("requests", Box::new(ramsis(Flavour::Requests { max_miss: 0.001 }))),
        ("shared", Box::new(shared(&[load]))),
    ]
}

fn run(chooser: Box<dyn Chooser>, load: f64, requests: usize) -> Run {
    let arrivals = Poisson::new(load, 1).take(requests);
    let mut serving = Serving::new(chooser, models(), WORKERS, DEADLINE);
    let mut run = Run { streams: 1, ..Run::default() };
    let arrivals = arrivals.map(|instant| (instant, 0));
    drive(&mut serving, arrivals, Instants::Together, |_, _, bound| bound, &mut run).expect("a run");
    run
}

/// Mean accuracy of the answers in time, and the share of requests without one.
fn score(run: &Run) -> (f64, f64) {
    let models = models();
    let served: Vec<_> = run.requests.iter().filter(|r| r.outcome == Outcome::Served).collect();
    let accuracy = served.iter().map(|r| models[r.variant].accuracy).sum::<f64>() / served.len() as f64;
    (accuracy, 1.0 - served.len() as f64 / run.requests.len() as f64)
}

#[test]
fn every_request_ends_once_and_every_batch_takes_the_time_of_its_model() {
    let models = models();
    for load in [40.0, 150.0, 400.0, 1200.0] {
        for (name, chooser) in all(load) {
            let run = run(chooser, load, 1500);
            assert_eq!(run.requests.len(), 1500, "{name}");
            for (i, batch) in run.batches.iter().enumerate() {
                let size = run.requests.iter().filter(|request| request.batch == Some(i)).count();
                assert_eq!(batch.size, size, "{name}");
                assert_eq!(batch.finish, batch.start + models[batch.variant].profile.bound(size), "{name}");
                let next = run.batches[i + 1..].iter().find(|other| other.worker == batch.worker);
                assert!(next.is_none_or(|next| next.start >= batch.finish), "{name}");
            }
            for request in &run.requests {
                let finish = request.batch.map(|batch| run.batches[batch].finish);
                let in_time = finish.is_some_and(|finish| finish <= request.arrival + DEADLINE);
                assert_eq!(request.outcome == Outcome::Served, in_time, "{name}");
                assert!(
                    request.batch.is_none_or(|batch| run.batches[batch].start >= request.arrival),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn a_worker_with_its_own_queue_gets_every_fourth_request() {
    let run = run(Box::new(ramsis(Flavour::Program)), 150.0, 800);
    for (i, request) in run.requests.iter().enumerate() {
        assert_eq!(request.worker, Some(i % WORKERS));
    }
}

#[test]
fn models_follow_the_load() {
    let models = models();
    // Half of the deadline holds 11 of the first, 4 of the second and none of the third: 229 and 85 a second each.
    let jellyfish = |load| score(&run(Box::new(Jellyfish::new(&models, WORKERS, DEADLINE)), load, 3000)).0;
    assert!(jellyfish(100.0) > 0.74, "the second carries 340 a second");
    assert!(jellyfish(600.0) < 0.61, "only the first carries so much");
    let switching = || Box::new(Switching::new(&models, DEADLINE, |one| one.capacity(&models) * 2.0));
    assert!(score(&run(switching(), 10.0, 500)).0 > 0.84);
    assert!(score(&run(switching(), 400.0, 3000)).0 < 0.65);
}

#[test]
fn the_shared_queue_is_more_accurate_than_its_rivals_and_violates_no_more() {
    // At 80 four workers are mostly idle.
    for load in [80.0, 200.0, 300.0] {
        let of = |chooser: Box<dyn Chooser>| score(&run(chooser, load, 6000));
        let (accuracy, missed) = of(Box::new(shared(&[load])));
        for (name, rival) in all(load).into_iter().filter(|(name, _)| *name != "shared") {
            let (other, lost) = of(rival);
            // One that loses many may be accurate on the rest.
            assert!(
                accuracy > other - 1e-3 || lost > missed + 0.01,
                "{load}: {accuracy} against {name}: {other}, {lost}"
            );
        }
        assert!(missed < 2e-3, "{load}: {missed}");
    }
}

#[test]
fn of_several_plans_that_of_the_load_is_taken() {
    let slow = score(&run(Box::new(shared(&[60.0, 400.0])), 50.0, 2000));
    let fast = score(&run(Box::new(shared(&[400.0])), 50.0, 2000));
    assert!(slow.0 >= fast.0 && slow.1 == 0.0, "{slow:?} {fast:?}");
}

#[test]
fn what_is_no_file_of_models_is_refused_with_the_model() {
    let folder = std::env::temp_dir().join(format!("weir-models-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("models.json");
    let read = |text: &str| {
        std::fs::write(&path, text).expect("written");
        read_models(&path).map_err(|error| error.to_string())
    };
    let good = r#"{"pareto_models_used_by_artifact_in_order": ["a"], "models": {"a": {"accuracy_pct": 70}},
        "artifact_table_p95_monotone_ms": {"a": [1.5, 2.25]}, "unit": "ms"}"#;
    let models = read(good).expect("models");
    assert_eq!((models[0].accuracy, models[0].profile.bound(2)), (0.7, Span::from_micros(2250)));
    let refused = |from: &str, to: &str, message: &str| {
        let error = read(&good.replace(from, to)).expect_err(message);
        assert!(error.contains(message), "{error}");
    };
    refused("70", "170", "a: accuracy_pct = 170: must be in 0..=100");
    refused("\"models\": {\"a\"", "\"models\": {\"b\"", "a: has no accuracy");
    refused("_ms\": {\"a\"", "_ms\": {\"b\"", "a: has no latencies");
    refused("2.25", "1.25", "must not decrease");
    refused("\"unit\"", "unit", "key must be a string");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_queue_that_nobody_may_serve_is_given_up_when_time_is_over() {
    let waits = |view: &View<'_>| Choice::Wait { until: Some(view.now + Span::from_millis(10)) };
    struct Never<F>(F);
    impl<F: FnMut(&View<'_>) -> Choice + Send> Chooser for Never<F> {
        fn choose(&mut self, view: &View<'_>) -> Choice {
            if view.queue[0].deadline < view.now { Choice::Drop } else { (self.0)(view) }
        }
    }
    let run = run(Box::new(Never(waits)), 100.0, 50);
    assert!(run.batches.is_empty() && run.requests.iter().all(|r| r.outcome != Outcome::Served));
    assert!(run.requests.iter().all(|r| r.ended > r.arrival + DEADLINE));
    assert!(run.requests[0].arrival > Instant::ZERO);
}
