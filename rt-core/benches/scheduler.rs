//! What a scheduling decision costs: the calls of a steady state at several queue lengths, and admission.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod steady;

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Instant, LatencyProfile, Shield, Span, StreamSpec,
    System, Workers,
};
use steady::Steady;

const LENGTHS: [usize; 3] = [8, 64, 512];
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
        let mut steady = Steady::new(length);
        group.bench_function(BenchmarkId::from_parameter(length), |b| b.iter(|| steady.step()));
    }
    group.finish();

    let mut group = c.benchmark_group("handle_arrival");
    for length in LENGTHS {
        let steady = std::cell::RefCell::new(Steady::new(length));
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
        let mut steady = Steady::new(length);
        group.bench_function(BenchmarkId::new("idle", length), |b| b.iter(|| black_box(steady.poll_once())));
        // A batch to resolve and one to start: three polls.
        let mut steady = Steady::new(length);
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

/// Sixty-four cameras, sensors and bursts, no two alike, on four workers at about 70 % of capacity.
fn mixed_streams() -> (System, Vec<StreamSpec>) {
    let ms = Span::from_millis;
    let stream = |i: u64| {
        let k = 2 + (i % 9) as u32;
        let set = [Constraint::any_miss(i as u32 % k, k), Constraint::row_miss(i as u32 % 4)];
        let period = [20, 25, 40, 50, 100][i as usize % 5];
        let bound = match i % 3 {
            0 => ArrivalBound::periodic(ms(period), ms(i % 7)),
            1 => ArrivalBound::window(1 + i % 4, ms(period * (1 + i % 4))),
            _ => ArrivalBound::token_bucket(1 + i % 3, ms(period)),
        };
        let set = ConstraintSet::new(&set.map(|c| c.expect("valid"))).expect("two");
        StreamSpec::promised(set, ArrivalCurve::new(&[bound.expect("valid")]).expect("one"))
    };
    let times: Vec<_> = (1..=8).map(|b| Span::from_micros(2_000 + 900 * b)).collect();
    let profile = LatencyProfile::new(&times).expect("a profile");
    let system = System::identical(Workers { count: 4, batch: 8, profile }, ms(80));
    (system, (0..64).map(stream).collect())
}

/// What a longer batch costs: the plan-time table, and the question at run time beside three busy workers with
/// so many requests waiting.
fn shield(c: &mut Criterion) {
    let (System { workers, latency, .. }, streams) = mixed_streams();
    let make = || Shield::new(&workers[0], latency, streams.iter().filter_map(StreamSpec::demand));
    let shield = make().expect("an admissible load");
    c.bench_function("shield/new/64", |b| b.iter(|| black_box(make())));
    let mut group = c.benchmark_group("shield/longest");
    let others = [Span::ZERO, Span::from_millis(5), Span::from_millis(13)];
    for waiting in [0, 8, 64] {
        let now = Instant::from_nanos(1_000_000_000);
        let due: Vec<_> = (0..waiting).map(|_| now + latency).collect();
        group.bench_function(BenchmarkId::from_parameter(waiting), |b| {
            b.iter(|| black_box(&shield).longest(now, black_box(&others), due.iter().copied()));
        });
    }
    group.finish();
}

fn admission(c: &mut Criterion) {
    let (system, streams) = mixed_streams();
    let admission = system.admit(&streams).expect("an admissible load");
    assert!(admission.binding.is_some());
    c.bench_function("admit/64", |b| b.iter(|| black_box(&system).admit(black_box(&streams))));
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(50);
    targets = steps, shield, admission
}
criterion_main!(benches);
