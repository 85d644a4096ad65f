//! What a scheduling decision costs: the calls of a steady state at several queue lengths, and admission.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod load;
mod steady;

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rt_core::{
    BatchView, Instant, LEARNED_INPUTS, LearnedScale, LoadMonitor, Net, Selector, Shield, Span, StreamSpec,
    System,
};
use steady::Steady;

const LENGTHS: [usize; 3] = [8, 64, 512];
/// How many streams are admitted.
const STREAMS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Thousandths of the capacity that they ask for.
const LOADS: [u64; 8] = [500, 600, 700, 800, 900, 950, 990, 999];
/// Calls timed together where one alone would be lost in the cost of reading the clock.
const CHUNK: u64 = 16;

/// Times `timed` in chunks, with `between` untimed after each.
fn chunks(iterations: u64, mut timed: impl FnMut(), mut between: impl FnMut(u64)) -> Duration {
    let mut total = Duration::ZERO;
    let mut left = iterations;
    while left > 0 {
        let count = left.min(CHUNK);
        let start = Clock::now();
        (0..count).for_each(|_| timed());
        total += start.elapsed();
        between(count);
        left -= count;
    }
    total
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    for length in LENGTHS {
        // A completion, an arrival and four polls.
        let mut steady = Steady::new(length, 1);
        group.bench_function(BenchmarkId::from_parameter(length), |b| b.iter(|| steady.step()));
    }
    group.finish();

    let mut group = c.benchmark_group("handle_arrival");
    for length in LENGTHS {
        let steady = std::cell::RefCell::new(Steady::new(length, 1));
        let drain = |count| {
            let mut steady = steady.borrow_mut();
            for _ in 0..count {
                steady.poll();
                steady.complete();
                steady.poll();
            }
        };
        group.bench_function(BenchmarkId::from_parameter(length), |b| {
            b.iter_custom(|iterations| chunks(iterations, || steady.borrow_mut().arrive(), drain));
        });
    }
    group.finish();

    let mut group = c.benchmark_group("poll");
    for length in LENGTHS {
        // Nothing to do: when to wake up next.
        let mut steady = Steady::new(length, 1);
        group.bench_function(BenchmarkId::new("idle", length), |b| b.iter(|| black_box(steady.poll_once())));
        // A batch to resolve and one to start: three polls.
        let mut steady = Steady::new(length, 1);
        group.bench_function(BenchmarkId::new("turnover", length), |b| {
            b.iter_custom(|iterations| {
                let mut total = Duration::ZERO;
                for _ in 0..iterations {
                    steady.complete();
                    let start = Clock::now();
                    steady.poll();
                    total += start.elapsed();
                    steady.arrive();
                    steady.poll();
                }
                total
            });
        });
    }
    group.finish();
}

/// What it costs to have the variant of each batch selected: a step without and with, behind a shield, and the table
/// alone.
fn select(c: &mut Criterion) {
    let mut group = c.benchmark_group("select");
    for (name, select) in [("step without", false), ("step with", true)] {
        let mut steady = Steady::shielded(8, 1, select);
        group.bench_function(name, |b| b.iter(|| steady.step()));
    }
    let steady = Steady::shielded(8, 1, true);
    let mut selector = steady.scheduler.selector().expect("it selects").clone();
    let (mut now, slack) = (Instant::from_nanos(1_000_000_000), Span::from_nanos(50_000));
    group.bench_function("wish", |b| {
        b.iter(|| {
            now = now + Span::from_nanos(1_000);
            selector.wish(black_box(&BatchView::alike(now, 1, 8, slack)))
        });
    });
    // What a network costs that nothing is 0 in at first; behind a rectifier about half is.
    for (name, width) in [("wish of a network of 32 × 2", 32), ("wish of a network of 256 × 2", 256)] {
        let variants = selector.variants().to_vec();
        let widths = [LEARNED_INPUTS, width, width, variants.len()];
        let weights = Net::weights_of(&widths).expect("few");
        let weights: Vec<f32> = (0..weights).map(|i| ((i * 7919) % 1001) as f32 / 5e3 - 0.1).collect();
        let net = Net::new(widths, weights).expect("valid");
        let scale = LearnedScale { requests: 8, slack, rate_per_s: 1e6, workers: 8, classes: 0 };
        let mut learned = Selector::learned(variants, net, scale, LoadMonitor::default()).expect("valid");
        group.bench_function(name, |b| {
            b.iter(|| {
                now = now + Span::from_nanos(1_000);
                learned.wish(black_box(&BatchView::alike(now, 1, 8, slack)))
            });
        });
    }
    group.finish();
}

/// What a longer batch costs: the plan-time table, and the question at run time beside three busy workers with
/// so many requests waiting.
fn shield(c: &mut Criterion) {
    let streams = load::mixed(64);
    let System { workers, .. } = load::busy(&streams, 700, 1);
    let latency = Span::from_millis(80);
    let make = || Shield::new(&workers[0], latency, streams.iter().filter_map(StreamSpec::demand));
    let shield = make().expect("an admissible load");
    c.bench_function("shield/new/64", |b| b.iter(|| black_box(make())));
    let mut group = c.benchmark_group("shield/longest");
    let others = [Span::ZERO, Span::from_millis(5), Span::from_millis(13)];
    for waiting in [0, 8, 64] {
        let now = Instant::from_nanos(1_000_000_000);
        let due: Vec<_> = (0..waiting).map(|_| now + latency).collect();
        group.bench_function(BenchmarkId::from_parameter(waiting), |b| {
            let others = || black_box(&others).iter().copied();
            b.iter(|| black_box(&shield).longest(now, others(), due.iter().copied(), Span::ZERO));
        });
    }
    group.finish();
}

/// Over the number of streams at 70 % of capacity, and over the load of 64 streams.
fn admission(c: &mut Criterion) {
    let mut group = c.benchmark_group("admit");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    let points = STREAMS.map(|count| ("streams", count, count, 700));
    for (over, at, count, permille) in points.into_iter().chain(LOADS.map(|load| ("load", load, 64, load))) {
        let streams = load::mixed(count);
        let one_kind = load::busy(&streams, permille, 1);
        let two_kinds = load::busy(&streams, permille, 2);
        let refined = load::refined(one_kind.clone(), &streams);
        for (name, system) in [("one kind", one_kind), ("two kinds", two_kinds), ("refined", refined)] {
            let id = BenchmarkId::new(format!("{over}/{name}"), at);
            group.bench_function(id, |b| b.iter(|| black_box(&system).admit(black_box(&streams))));
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(50);
    targets = steps, select, shield, admission
}
criterion_main!(benches);
