//! Plans the selection policy of a shared queue for several loads and plays each plan on fresh arrivals.
//!
//! `shared_queue PROFILE.json WORKERS LOADS [fifo|newest [SECONDS [SEEDS [SLO_MS [TRIES [REQUESTS [SEED [PERCENT]]]]]]]]`:
//! the loads in requests per second, separated by commas, and played at so many percent of them. The profile is a JSON
//! object with the models in rising order of latency in `pareto_models_used_by_artifact_in_order`, their accuracies in
//! `models.NAME.accuracy_pct`, and the latencies of batches of 1, 2, 3... in `artifact_table_p95_monotone_ms.NAME`.

use std::error::Error;
use std::time::Duration;

use planner::select::{Demand, Effort, Model, Order, Poisson, Profile, Score, ceiling, plan, trial};
use rt_core::{Instant, Span};
use serde_json::Value;

/// Requests that arrive before are not counted: at first all workers are free.
const WARM: u64 = 1_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, workers, loads, rest @ ..] = &args[..] else {
        return Err("shared_queue PROFILE.json WORKERS LOADS [fifo|newest] [SECONDS] [SEEDS] [SLO_MS [TRIES REQUESTS PLAN_SEED]]".into());
    };
    let number = |index: usize, default: u64| rest.get(index).map_or(Ok(default), |text| text.parse());
    let order = if rest.first().is_some_and(|o| o == "newest") { Order::NewestToo } else { Order::Fifo };
    let (seconds, seeds, slo) = (number(1, 120)?, number(2, 5)?, number(3, 150)?);
    let profile = read(&std::fs::read_to_string(file)?, Span::from_millis(slo))?;
    let effort = Effort {
        tries: number(4, 1000)? as usize,
        requests: number(5, 16_000)? as usize,
        seed: number(6, 1)?,
    };
    let percent = number(7, 100)? as f64 / 100.0;
    let workers: usize = workers.parse()?;
    println!("load  bound%  ceiling%  accuracy%          violations%  idle  planned in  batches");
    for load in loads.split(',') {
        let load: f64 = load.parse()?;
        let demand = Demand { load, workers, order };
        let (plan, took) = timed(|| plan(&profile, demand, effort))?;
        let bound = plan.bound.map_or(f64::NAN, |f| f.accuracy);
        let reachable = ceiling(&profile, demand, 1)?.unwrap_or(f64::NAN);
        let end = Instant::from_nanos(WARM) + Span::from_millis(seconds * 1000);
        let scores: Vec<Score> = (0..seeds)
            .map(|seed| {
                let arrivals = Poisson::new(load * percent, 1000 + seed);
                trial(&profile, &plan.policy, workers, arrivals, Instant::from_nanos(WARM)..end)
            })
            .collect();
        let (accuracy, error) = interval(scores.iter().map(|s| s.accuracy() * 100.0));
        let (violations, _) = interval(scores.iter().map(|s| s.violations() * 100.0));
        let (idle, _) = interval(scores.iter().map(Score::idle_workers));
        println!(
            "{load:<5} {:.3}  {:.3}  {accuracy:.3} +- {error:.3}    {violations:.5}      {idle:.2}  {:.1} s       {}",
            bound * 100.0,
            reachable * 100.0,
            took.as_secs_f64(),
            batches(&scores[0]),
        );
        if std::env::var_os("TUNING").is_some() {
            println!("      {:?}", plan.policy.tuning());
            for s in &scores {
                println!("      {:.3} {}", s.accuracy() * 100.0, batches(s));
            }
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(T, Duration), E> {
    let start = std::time::Instant::now();
    work().map(|value| (value, start.elapsed()))
}

/// The mean and the half width of its 95 % confidence interval.
fn interval(values: impl Iterator<Item = f64>) -> (f64, f64) {
    // Student's t for 1, 2... degrees of freedom.
    const T: [f64; 9] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let spread = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let t = T.get(values.len().wrapping_sub(2)).copied().unwrap_or(2.0);
    (mean, t * (spread / count).sqrt())
}

/// The five batches that serve most requests, as `model-batch share`.
fn batches(score: &Score) -> String {
    let of = |(model, sizes): (usize, &Vec<u64>)| -> Vec<(u64, usize, usize)> {
        sizes.iter().enumerate().map(|(batch, count)| (count * batch as u64, model, batch)).collect()
    };
    let mut all: Vec<_> = score.started.iter().enumerate().flat_map(of).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    let sum: u64 = all.iter().map(|x| x.0).sum();
    let shares = all.iter().take(5).filter(|x| x.0 > 0);
    let shares =
        shares.map(|(n, model, batch)| format!("{model}-{batch} {:.1}%", *n as f64 / sum as f64 * 100.0));
    shares.collect::<Vec<_>>().join(", ")
}

fn read(text: &str, slo: Span) -> Result<Profile, Box<dyn Error>> {
    let all: Value = serde_json::from_str(text)?;
    let names = all["pareto_models_used_by_artifact_in_order"].as_array().ok_or("no models")?;
    let models = names.iter().map(|name| {
        let name = name.as_str().ok_or("a model has no name")?;
        let accuracy = all["models"][name]["accuracy_pct"].as_f64().ok_or("a model has no accuracy")? / 100.0;
        let table =
            all["artifact_table_p95_monotone_ms"][name].as_array().ok_or("a model has no latencies")?;
        let latency = |ms: &Value| ms.as_f64().map(|ms| Span::from_nanos((ms * 1e6).round() as u64));
        let latencies = table.iter().map(latency).collect::<Option<_>>().ok_or("a latency is no number")?;
        Ok(Model { accuracy, latencies })
    });
    Ok(Profile::new(slo, models.collect::<Result<_, Box<dyn Error>>>()?)?)
}
