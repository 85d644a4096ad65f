//! Policies against the authors' own, against what is counted one by one, and against what happens.

mod happens;
mod objectives;
mod oracle;
mod overload;
mod references;
mod table;

use super::*;

/// A model whose batches take these times, in milliseconds.
fn model(name: &str, accuracy: f64, ms: &[f64]) -> Model {
    Model { name: name.to_owned(), accuracy, latencies: ms.iter().map(|ms| ms * 1e6).collect() }
}

/// Three models for queues of up to 4, with an objective of 20 ms.
fn three(slack: Slack, batching: Batching, flavour: Flavour) -> Spec {
    let models = vec![
        model("fast", 0.5, &[2.0, 3.0, 4.0, 5.0, 6.0]),
        model("middle", 0.7, &[5.0, 8.0, 11.0, 14.0, 17.0]),
        model("slow", 0.8, &[12.0, 19.0, 27.0, 35.0, 43.0]),
    ];
    Spec { models, slo_ns: 20_000_000, queue: 4, slack, batching, flavour }
}

const REQUESTS: Flavour = Flavour::Requests { max_miss: 1.0 };

/// Everything that can be done in every state, with its name.
fn all(problem: &Problem) -> Vec<(State, Action)> {
    let states = 0..problem.layout.empty();
    states.flat_map(|s| problem.choices(s).iter().map(move |c| (problem.state(s), c.action))).collect()
}
