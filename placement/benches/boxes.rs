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
/// Those of the other kinds: with better variants beside the base, peaks in place of times, devices that two services share.
const OTHERS: [(Kind, (u32, u32)); 7] = [
    (Kind::Switched, (40, 9)),
    (Kind::Switched, (160, 9)),
    (Kind::Peaks, (40, 9)),
    (Kind::Peaks, (160, 9)),
    (Kind::Shared, (4, 2)),
    (Kind::Shared, (8, 3)),
    (Kind::Shared, (40, 9)),
];
/// Of the demand that the two fastest variants of each service carry with their share of the devices.
const LOADS: [f64; 2] = [0.6, 0.95];
/// Boxes of each kind.
const SEEDS: u64 = 4;
/// How long a search may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What is asked of a box.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Nothing is promised.
    Plain,
    Promised,
    /// The same, and a more accurate variant may stand beside the base.
    Switched,
    /// Nothing is promised, and only the best rate of each variant is known.
    Peaks,
    /// Promised, and two services may take turns on a device.
    Shared,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "no",
            Self::Promised => "yes",
            Self::Switched => "yes, and a better variant beside the base",
            Self::Peaks => "no, and peaks for times",
            Self::Shared => "yes, and devices shared by turns",
        }
    }
}

/// Three classes of devices, services of four variants, each slower and more accurate than the one before.
fn random_box(seed: u64, (devices, services): (u32, u32), kind: Kind, load: f64) -> Value {
    let promised = !matches!(kind, Kind::Plain | Kind::Peaks);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (seed << 20) ^ u64::from(devices * 100 + services));
    let counts = [devices - devices / 2, devices / 4, devices / 2 - devices / 4];
    let speeds = [1.0, dice.between(2.0, 4.0), dice.between(4.0, 8.0)];
    let mut all = Vec::new();
    let shares: Vec<f64> = (0..services).map(|_| dice.between(0.3, 1.0)).collect();
    for s in 0..services {
        let (one, deadline) = (dice.between(2.0, 12.0), dice.between(60.0, 200.0));
        let mut accuracy = dice.between(60.0, 85.0);
        let (mut variants, mut carried) = (Vec::new(), 0.0);
        let mut all_peaks: BTreeMap<String, f64> = BTreeMap::new();
        let mut peaks = [0.0f64; 3];
        for v in 0..4 {
            let mut times: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
            for (class, speed) in speeds.iter().enumerate() {
                let base = one * 1.7f64.powi(v) / speed * dice.between(0.8, 1.25);
                let batches = [1, 2, 4, 8, 16].map(|batch| (batch, base * (0.4 + 0.6 * f64::from(batch))));
                let fit = batches.iter().filter(|(_, time)| 2.0 * time <= deadline);
                let peak = fit.map(|(batch, time)| 1e3 * f64::from(*batch) / time).fold(0.0, f64::max);
                if v < 2 {
                    peaks[class] = peaks[class].max(peak);
                }
                all_peaks.insert(format!("{v}|c{class}"), peak);
                times.insert(
                    format!("c{class}"),
                    batches.map(|(batch, time)| (batch.to_string(), time)).into(),
                );
            }
            let mut variant = json!({"name": format!("v{v}"), "accuracy": accuracy});
            if kind != Kind::Peaks {
                variant["time"] = json!(times);
            }
            variants.push(variant);
            accuracy += dice.between(1.0, 6.0);
        }
        let share = shares[s as usize] / shares.iter().sum::<f64>();
        counts.iter().zip(peaks).for_each(|(&count, peak)| carried += f64::from(count) * peak * share);
        let demand = carried * load;
        let mut service =
            json!({"name": format!("s{s}"), "demand": demand, "deadline": deadline, "variants": variants});
        if kind == Kind::Peaks {
            service["peak"] = json!(all_peaks);
        }
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
    let share = if kind == Kind::Shared { json!([[1, 1], [1, 2], [2, 1]]) } else { json!([]) };
    json!({"devices": classes, "services": all, "switch": kind == Kind::Switched, "share": share})
}

/// How long this thread has run, whatever else the machine does.
fn busy() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("on Linux");
    let nanos = told.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok());
    nanos.map(|nanos| Duration::from_nanos(nanos).as_secs_f64()).expect("a number of nanoseconds")
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument.contains('/')).collect();
    println!(
        "| devices / services | promises | fit | median s | longest s | proven best | widest gap, points |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    let boxes = SIZES.into_iter().flat_map(|size| [(Kind::Plain, size), (Kind::Promised, size)]);
    for (kind, size) in boxes.chain(OTHERS) {
        if !wanted.is_empty() && !wanted.contains(&format!("{}/{}", size.0, size.1)) {
            continue;
        }
        let (mut times, mut gaps, mut unknown) = (Vec::new(), Vec::new(), 0);
        for (load, seed) in LOADS.iter().flat_map(|&load| (1..=SEEDS).map(move |seed| (load, seed))) {
            let text = random_box(seed, size, kind, load).to_string();
            let problem = Problem::parse(&text).expect("a problem");
            let before = busy();
            let placed = place(&problem, LIMIT).expect("an answer");
            let seconds = busy() - before;
            match &placed.outcome {
                Outcome::Fits { .. } => {
                    times.push(seconds);
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
            kind.name(),
        );
    }
}
