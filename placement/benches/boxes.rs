//! How long it takes to place random boxes, and how far a plan may be from the best: a table, for `docs/placement.md`.
//!
//! `cargo bench -p placement`; `-- 40/9 160/9` runs only these sizes.

#[path = "../tests/dice/mod.rs"]
mod dice;

use std::collections::BTreeMap;
use std::time::Duration;

use placement::{Answer, Outcome, Problem, place};
use serde_json::{Value, json};

use dice::Dice;

/// Devices and services.
const SIZES: [(u32, u32); 9] =
    [(8, 3), (20, 6), (40, 9), (40, 15), (80, 9), (160, 9), (160, 15), (160, 3), (1000, 60)];
/// Of the demand that the two fastest variants of each service carry with their share of the devices.
const LOADS: [f64; 2] = [0.6, 0.95];
/// Boxes of each kind.
const SEEDS: u64 = 4;
/// How long a search may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Three classes of devices, services of four variants, each slower and more accurate than the one before.
fn random_box(seed: u64, (devices, services): (u32, u32), promised: bool, load: f64) -> Value {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (seed << 20) ^ u64::from(devices * 100 + services));
    let counts = [devices - devices / 2, devices / 4, devices / 2 - devices / 4];
    let speeds = [1.0, dice.between(2.0, 4.0), dice.between(4.0, 8.0)];
    let mut all = Vec::new();
    let shares: Vec<f64> = (0..services).map(|_| dice.between(0.3, 1.0)).collect();
    for s in 0..services {
        let (one, deadline) = (dice.between(2.0, 12.0), dice.between(60.0, 200.0));
        let mut accuracy = dice.between(60.0, 85.0);
        let (mut variants, mut carried) = (Vec::new(), 0.0);
        let mut peaks = [0.0f64; 3];
        for v in 0..4 {
            let mut times: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
            for (class, speed) in speeds.iter().enumerate() {
                let base = one * 1.7f64.powi(v) / speed * dice.between(0.8, 1.25);
                let batches = [1, 2, 4, 8, 16].map(|batch| (batch, base * (0.4 + 0.6 * f64::from(batch))));
                for (batch, time) in batches.iter().filter(|(_, time)| v < 2 && 2.0 * time <= deadline) {
                    peaks[class] = peaks[class].max(1e3 * f64::from(*batch) / time);
                }
                times.insert(
                    format!("c{class}"),
                    batches.map(|(batch, time)| (batch.to_string(), time)).into(),
                );
            }
            variants.push(json!({"name": format!("v{v}"), "accuracy": accuracy, "time": times}));
            accuracy += dice.between(1.0, 6.0);
        }
        let share = shares[s as usize] / shares.iter().sum::<f64>();
        counts.iter().zip(peaks).for_each(|(&count, peak)| carried += f64::from(count) * peak * share);
        let demand = carried * load;
        let mut service =
            json!({"name": format!("s{s}"), "demand": demand, "deadline": deadline, "variants": variants});
        if promised && dice.between(0.0, 1.0) < 0.7 {
            let window = dice.between(10.0, 60.0);
            let count = (demand * dice.between(1.0, 1.6) * window / 1e3).ceil().max(1.0) as u64;
            service["promise"] =
                json!({"windows": [[count, window]], "m": dice.between(0.0, 6.0) as u32, "K": 10});
        }
        all.push(service);
    }
    let classes: BTreeMap<String, u32> =
        counts.iter().enumerate().map(|(class, &count)| (format!("c{class}"), count)).collect();
    json!({"devices": classes, "services": all})
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument.contains('/')).collect();
    println!(
        "| devices / services | promises | fit | median s | longest s | proven best | widest gap, points |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    for size in SIZES {
        if !wanted.is_empty() && !wanted.contains(&format!("{}/{}", size.0, size.1)) {
            continue;
        }
        for promised in [false, true] {
            let (mut times, mut gaps, mut unknown) = (Vec::new(), Vec::new(), 0);
            for (load, seed) in LOADS.iter().flat_map(|&load| (1..=SEEDS).map(move |seed| (load, seed))) {
                let text = random_box(seed, size, promised, load).to_string();
                let problem = Problem::parse(&text).expect("a problem");
                let placed = place(&problem, LIMIT).expect("an answer");
                match &placed.outcome {
                    Outcome::Fits { .. } => {
                        times.push(placed.took.as_secs_f64());
                        gaps.extend(Answer::new(&problem, &placed).gap);
                    }
                    Outcome::Unknown { .. } => unknown += 1,
                    _ => {}
                }
            }
            times.sort_by(f64::total_cmp);
            let (fit, of) = (times.len(), LOADS.len() * SEEDS as usize);
            let proven = gaps.iter().filter(|gap| **gap <= placement::PROVEN).count();
            let widest = gaps.iter().copied().fold(0.0, f64::max);
            let not_known = if unknown > 0 { format!(", {unknown} not known") } else { String::new() };
            let (median, longest) =
                (times.get(fit / 2).copied().unwrap_or(0.0), times.last().copied().unwrap_or(0.0));
            println!(
                "| {} / {} | {} | {fit} of {of}{not_known} | {median:.3} | {longest:.3} | {proven} | {widest:.4} |",
                size.0,
                size.1,
                if promised { "yes" } else { "no" },
            );
        }
    }
}
