//! What a model selection policy costs: `cargo test --release -p research --bench ramsis -- --nocapture` prints the
//! table, for the models in `$WEIR_DATA/ramsis`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use research::ramsis::{Batching, Flavour, Model, PolicySet, Problem, RoundRobin, Slack, Spec};
use rt_core::Span;
use serde_json::Value;

/// The nine models of the image task; nothing, which is told, without them.
fn image() -> Option<Vec<Model>> {
    let Some(data) = std::env::var_os("WEIR_DATA") else {
        println!("skipped: WEIR_DATA does not say where the models are");
        return None;
    };
    let text =
        fs::read_to_string(PathBuf::from(data).join("ramsis/latency_profile_image.json")).expect("the file");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let model = |name: &Value| {
        let name = name.as_str().expect("a name");
        let times = profile["artifact_table_p95_monotone_ms"][name].as_array().expect("times");
        let mut latencies: Vec<f64> = times.iter().map(|t| t.as_f64().expect("ms") * 1e6).collect();
        latencies.push(latencies[31]);
        let accuracy = profile["models"][name]["accuracy_pct"].as_f64().expect("accuracy") / 100.0;
        Model { name: name.to_owned(), accuracy, latencies }
    };
    Some(
        profile["pareto_models_used_by_artifact_in_order"]
            .as_array()
            .expect("names")
            .iter()
            .map(model)
            .collect(),
    )
}

/// So many models between those of `models`, the latencies of neighbours mixed as their accuracies are (section
/// 7.3.2).
fn between(models: &[Model], count: usize) -> Vec<Model> {
    let (first, last) = (models[0].accuracy, models[models.len() - 1].accuracy);
    let one = |i: usize| {
        let accuracy = first + (last - first) * i as f64 / (count - 1) as f64;
        let above = models.iter().position(|m| m.accuracy >= accuracy).unwrap_or(models.len() - 1).max(1);
        let (a, b) = (&models[above - 1], &models[above]);
        let share = (accuracy - a.accuracy) / (b.accuracy - a.accuracy);
        let latencies = a.latencies.iter().zip(&b.latencies).map(|(x, y)| x + (y - x) * share).collect();
        Model { name: format!("m{i}"), accuracy, latencies }
    };
    (0..count).map(one).collect()
}

/// The shortest of several runs, and the longest.
fn times<T>(mut run: impl FnMut() -> T) -> [Duration; 2] {
    let mut all = Vec::new();
    let begin = Instant::now();
    while all.is_empty() || (all.len() < 20 && begin.elapsed() < Duration::from_secs(3)) {
        let start = Instant::now();
        std::hint::black_box(run());
        all.push(start.elapsed());
    }
    all.sort_unstable();
    [all[0], all[all.len() - 1]]
}

/// The most memory that the process has had, in MB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

#[test]
fn policies() {
    let Some(nine) = image() else { return };
    let sixty = between(&nine, 60);
    let max = Batching::Maximal;
    let any = Batching::Variable;
    let requests = Flavour::Requests { max_miss: 1e-3 };
    println!("| models | slack | batches | for | least | most | sweeps | peak MB |");
    println!("|---:|---|---|---|---:|---:|---:|---:|");
    for (models, slack, batching, flavour) in [
        (&nine, Slack::Fixed(10), max, Flavour::Program),
        (&nine, Slack::Fixed(100), max, Flavour::Program),
        (&nine, Slack::Fixed(100), max, Flavour::Paper),
        (&nine, Slack::ModelBased, max, Flavour::Paper),
        (&sixty, Slack::Fixed(100), max, Flavour::Paper),
        (&sixty, Slack::ModelBased, max, Flavour::Paper),
        (&nine, Slack::ModelBased, any, Flavour::Paper),
        (&nine, Slack::Fixed(100), any, Flavour::Paper),
        (&sixty, Slack::Fixed(100), any, Flavour::Paper),
        (&nine, Slack::Fixed(100), max, requests),
        (&nine, Slack::Fixed(100), any, requests),
        (&nine, Slack::ModelBased, any, requests),
        (&sixty, Slack::ModelBased, any, Flavour::Paper),
    ] {
        let spec = Spec { models: models.clone(), slo_ns: 150_000_000, queue: 32, slack, batching, flavour };
        let arrivals = RoundRobin::poisson(2000.0, 60).expect("valid");
        let run = || Problem::new(&spec, &arrivals).expect("valid").solve();
        let sweeps = run().sweeps;
        let [least, most] = times(run);
        println!(
            "| {} | {slack:?} | {batching:?} | {flavour:?} | {least:.1?} | {most:.1?} | {sweeps} | {} |",
            models.len(),
            peak()
        );
    }
}

#[test]
fn looking_up_and_sets() {
    let Some(models) = image() else { return };
    for slack in [Slack::Fixed(100), Slack::ModelBased] {
        let (batching, flavour) = (Batching::Maximal, Flavour::Paper);
        let spec = Spec { models: models.clone(), slo_ns: 150_000_000, queue: 32, slack, batching, flavour };
        let arrivals = |load| RoundRobin::poisson(load, 60);
        let set = || PolicySet::over(&spec, arrivals, (200.0, 4000.0), 0.01, 10.0).expect("a set");
        let made = set();
        let [least, most] = times(set);
        println!(
            "{slack:?}: a set of {} policies for 200 to 4000 requests/s: {least:.1?} to {most:.1?}",
            made.all().len()
        );
        let policy = &made.all()[0].policy;
        let look = || {
            let one = |i: u64| policy.action((i % 34) as usize, Span::from_nanos(i * 7_919 % 160_000_000));
            (0..1_000_000).map(|i| usize::from(one(i).model)).sum::<usize>()
        };
        let [least, most] = times(look);
        println!("{slack:?}: a million look-ups: {least:.1?} to {most:.1?}");
    }
}
