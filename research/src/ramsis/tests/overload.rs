//! Loads far above what a worker can do and far below, and accuracy per request against a greedy worker.

use super::super::*;
use super::happens::{Dice, run};
use super::{model, three};

/// An idle worker comes back to where it was every other decision; values must not go round with it.
#[test]
fn an_idle_worker_takes_few_sweeps() {
    for slack in [Slack::Fixed(20), Slack::ModelBased] {
        for rate in [0.1, 1.0, 50.0] {
            let spec = three(slack, Batching::Maximal, Flavour::Paper);
            let problem = Problem::new(&spec, &RoundRobin::poisson(rate, 3).expect("valid")).expect("valid");
            let solution = problem.solve();
            let expected = problem.evaluate(&solution.policy).expect("its own");
            assert!(solution.sweeps < 60, "{rate}: {}", solution.sweeps);
            assert!(solution.gain.1 - solution.gain.0 <= 1e-9, "{:?}", solution.gain);
            assert!(expected.residual <= 1e-13, "{expected:?}");
            // Every other decision is to wait, which is worth nothing.
            assert!(
                rate > 1.0 || (expected.accuracy_per_decision - 0.4).abs() < 1e-3 || expected.batch < 1.01
            );
        }
    }
}

/// What a full queue loses is counted by how many come, not as one: what is expected bounds what happens.
#[test]
fn an_overload_is_missed_as_expected() {
    for batching in [Batching::Maximal, Batching::Variable] {
        for rate in [2500.0, 3000.0, 30_000.0, 1e6] {
            let spec = three(Slack::Fixed(20), batching, Flavour::Requests { max_miss: 1e-3 });
            let arrivals = RoundRobin::poisson(rate, 3).expect("valid");
            let problem = Problem::new(&spec, &arrivals).expect("valid");
            let policy = problem.solve().policy;
            let expected = problem.evaluate(&policy).expect("its own");
            let seen = run(&spec, &arrivals, &policy, 30_000);
            let missed = seen.missed / seen.requests;
            assert!(expected.residual <= 1e-13, "{rate}: {expected:?}");
            assert!(missed < expected.missed + 0.01, "{rate}: {missed}, {expected:?}");
            assert!(rate < 1e4 || expected.missed < missed + 0.05, "{rate}: {missed}, {expected:?}");
        }
    }
}

#[test]
fn accuracy_per_request_is_no_worse_than_a_greedy_worker_s() {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    for case in 0..60 {
        let mut between = |low: f64, high: f64| low + (high - low) * dice.unit();
        let queue = between(4.0, 16.0) as usize;
        let (mut first, mut each, mut accuracy) = (between(0.5, 5.0), between(0.1, 2.0), between(0.3, 0.7));
        let mut models = Vec::new();
        for i in 0..between(2.0, 6.0) as usize {
            let ms: Vec<f64> = (0..=queue).map(|b| first + each * b as f64).collect();
            models.push(model(&format!("{i}"), accuracy, &ms));
            (first, each) = (first * between(1.2, 2.0), each * between(1.2, 2.0));
            accuracy += (1.0 - accuracy) * between(0.05, 0.5);
        }
        let workers = between(1.0, 9.0) as usize;
        let times = models[0].latencies.iter().zip(1..=queue).filter(|(time, _)| **time <= 2e7);
        let most = times.map(|(time, batch)| batch as f64 / time * 1e9).fold(0.0, f64::max);
        let load = between(0.05, 1.1) * most * workers as f64;
        let slack = if case % 2 == 0 { Slack::Fixed(50) } else { Slack::ModelBased };
        let (batching, flavour) = (Batching::Maximal, Flavour::Requests { max_miss: 1e-4 });
        let spec = Spec { models, slo_ns: 20_000_000, queue, slack, batching, flavour };
        let arrivals = RoundRobin::poisson(load, workers).expect("valid");
        let problem = Problem::new(&spec, &arrivals).expect("valid");
        let of = |policy: &Policy| {
            let seen = run(&spec, &arrivals, policy, 30_000);
            (seen.accurate / seen.requests, seen.missed / seen.requests)
        };
        let planned = problem.solve().policy;
        let (right, missed) = of(&planned);
        // Greedy: in each state the most accurate model that is in time for all that wait.
        let (other, lost) = of(&Policy::constant(&problem, spec.models.len() - 1));
        let beaten = other > right + 0.003 && lost <= missed || lost < missed - 0.003 && other >= right;
        assert!(!beaten, "{case}: {right} and {missed} missed, greedy {other} and {lost}");
        // What is expected is of the problem, not of what happens: near, but no bound of it.
        let expected = problem.evaluate(&planned).expect("its own");
        assert!(missed < expected.missed + 0.005, "{case}: {missed}, {expected:?}");
        for model in 0..spec.models.len() {
            let single = problem.evaluate(&Policy::constant(&problem, model)).expect("its own");
            let better = if single.missed <= 1e-4 {
                expected.missed > 1e-4 + 1e-9 || single.right() > expected.right() + 1e-6
            } else {
                single.missed < expected.missed - 1e-6
            };
            assert!(!better, "{case}: {expected:?}, {model}: {single:?}");
        }
    }
}
