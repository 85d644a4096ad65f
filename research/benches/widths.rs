//! What a wider network brings and costs: `cargo test --release -p research --bench widths -- --nocapture` prints the table.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::thread;
use std::time::Instant as Clock;

use planner::selection::{Class, DEFAULT_MAX_MISS, Inputs, plan};
use research::learned::{AllLoads, Schooling, school};
use rt_core::{
    BatchView, ClassWorth, Decay, Instant, LatencyProfile, LoadMonitor, Net, Selector, Span, Variant,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use virtual_time::Poisson;

/// Loads that none was trained on, as parts of what the base carries, and requests of each.
const PARTS: [f64; 7] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0];
const REQUESTS: usize = 20_000;
const SEEDS: [u64; 3] = [1, 2, 3];
/// Hidden layers, and how wide each is.
const NETS: [&[usize]; 8] = [&[8], &[32], &[8, 8], &[16, 16], &[32, 32], &[64, 64], &[128, 128], &[256, 256]];
/// Of those that are also shown how many of a batch are of each class.
const CLASSED: [&[usize]; 4] = [&[8], &[32], &[32, 32], &[64, 64]];

/// Two workers and three models, within 180 ms.
fn inputs() -> Inputs {
    let models = [(0.6, 5, 3), (0.8, 15, 5), (0.95, 30, 15)].map(|(accuracy, first, step)| {
        let times: Vec<_> = (0..4).map(|b| Span::from_millis(first + b * step)).collect();
        Variant { accuracy, profile: LatencyProfile::new(&times).expect("times that rise") }
    });
    let (variants, latency) = (models.to_vec(), Span::from_millis(180));
    Inputs { variants, latency, workers: 2, batch: 4, max_miss: DEFAULT_MAX_MISS, classes: Vec::new() }
}

/// Half of the requests as above, three in ten for which only the best model will do, two in ten that want an answer in 60 ms and lose
/// a hundredth of it for each later.
fn classed() -> Inputs {
    let class = |share, worth: [f64; 3], ms, decay| {
        let deadline = Span::from_millis(ms);
        Class { share, worth: ClassWorth { worth: worth.into(), deadline, decay } }
    };
    let classes = vec![
        class(0.5, [0.6, 0.8, 0.95], 180, Decay::Hard),
        class(0.3, [0.2, 0.3, 0.9], 180, Decay::Hard),
        class(0.2, [0.7, 0.8, 0.85], 60, Decay::Linear { per_ms: 0.01, cutoff: 1.0 }),
    ];
    Inputs { classes, ..inputs() }
}

/// What a request is worth, in percent, over all loads: without classes the share of requests that are answered in time and right.
fn right(inputs: &Inputs, selector: &Selector) -> f64 {
    let of = |(seed, part): (u64, f64)| {
        let arrivals = Poisson::new(part * inputs.capacity_per_s(0), 0x7e57_0000 + seed).take(REQUESTS);
        inputs.tried(selector.clone(), arrivals).expect("a scheduler").right()
    };
    100.0 * (0..).zip(PARTS).map(of).sum::<f64>() / PARTS.len() as f64
}

/// What a wish takes, in nanoseconds: the least of many rounds, for others may use the machine.
fn wish(selector: &mut Selector) -> f64 {
    const WISHES: u32 = 5_000;
    const ROUNDS: u32 = 100;
    let slacks: Vec<_> = (0..64).map(|i| Span::from_micros(2_800 * i)).collect();
    let mut wishes: u32 = 0;
    let mut round = || {
        let begun = Clock::now();
        for _ in 0..WISHES {
            wishes += 1;
            let now = Instant::from_nanos(1_000 * u64::from(wishes));
            let (size, waiting, slack) = (1 + wishes as usize % 4, wishes as usize % 7, wishes as usize % 64);
            black_box(selector.wish(&BatchView::alike(now, size, waiting, slacks[slack])));
        }
        begun.elapsed().as_secs_f64() * 1e9 / f64::from(WISHES)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

#[test]
fn widths() {
    println!("requests that are all alike:");
    table(&inputs(), &NETS);
    println!("requests of three classes:");
    table(&classed(), &CLASSED);
}

fn table(inputs: &Inputs, nets: &[&[usize]]) {
    let base = Selector::new(inputs.variants.clone(), [], LoadMonitor::default()).expect("valid");
    println!("the base alone: {:.2} %", right(inputs, &base));
    let loads: Vec<_> = (1..10).map(|tenth| f64::from(tenth) / 10.0 * inputs.capacity_per_s(0)).collect();
    let tables: Vec<_> = plan(inputs, &loads).expect("tables").into_iter().map(|one| one.table).collect();
    let tables = Selector::new(inputs.variants.clone(), tables, LoadMonitor::default()).expect("valid");
    println!("planned tables: {:.2} %", right(inputs, &tables));
    println!("accurate: {:.2} %", right(inputs, &inputs.accurate().expect("valid")));
    println!("| hidden layers | weights | right, % | least and most | a wish, ns | a training, CPU s |");
    println!("|---|---:|---:|---:|---:|---:|");
    for hidden in nets {
        let trained = thread::scope(|scope| {
            let started = SEEDS.map(|seed| scope.spawn(move || train(inputs, hidden, seed)));
            started.map(|one| one.join().expect("no panic"))
        });
        let each = trained.iter().map(|(_, seconds)| seconds).sum::<f64>() / SEEDS.len() as f64;
        let learned = |net: &Net| inputs.learned(net.clone()).expect("it fits");
        let mut found = trained.each_ref().map(|(net, _)| right(inputs, &learned(net)));
        found.sort_by(f64::total_cmp);
        let name: Vec<_> = hidden.iter().map(ToString::to_string).collect();
        println!(
            "| {} | {} | {:.2} | {:.2} to {:.2} | {:.0} | {each:.1} |",
            name.join(" + "),
            trained[0].0.weights().len(),
            found.iter().sum::<f64>() / SEEDS.len() as f64,
            found[0],
            found[SEEDS.len() - 1],
            wish(&mut learned(&trained[0].0)),
        );
    }
}

/// A network, and what it took to train it, in seconds of one core.
fn train(inputs: &Inputs, hidden: &[usize], seed: u64) -> (Net, f64) {
    let schooling = Schooling {
        hidden: hidden.to_vec(),
        episodes: 300,
        patience: 6,
        discount: 0.98,
        unit: 16.0 * inputs.batch as f64,
        seed,
        ..Schooling::default()
    };
    let course = AllLoads { capacity_per_s: inputs.capacity_per_s(0) };
    let begun = clock_gettime(ClockId::ThreadCPUTime);
    let build = |selector| inputs.scheduled(selector);
    let go_on = &mut |_| ControlFlow::Continue(());
    let net = school(inputs, &schooling, &course, build, go_on).expect("a network").net;
    let spent: Timespec = clock_gettime(ClockId::ThreadCPUTime) - begun;
    (net, spent.tv_sec as f64 + 1e-9 * spent.tv_nsec as f64)
}
