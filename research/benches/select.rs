//! What selection costs: `cargo test --release -p research --bench select -- --nocapture` prints the table.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant as Clock;

use research::select::{Decision, Demand, Effort, Order, Profile, State, plan};
use rt_core::{Instant, LatencyProfile, Span, Variant};
use virtual_time::Poisson;

/// Nine models of which the largest batches within the objective have 9, 8, 5, 3, 2, 2, 1, 0 and 0 requests.
fn profile() -> Profile {
    let models = [(58, 22, 16), (73, 31, 17), (78, 54, 25), (81, 68, 40), (82, 81, 55), (83, 106, 40)]
        .into_iter()
        .chain([(84, 117, 73), (85, 193, 110), (86, 367, 180)])
        .map(|(accuracy, first, step)| {
            let times: Vec<_> = (0..32).map(|b| Span::from_millis(first + b * step)).collect();
            let profile = LatencyProfile::new(&times).expect("times that rise");
            Variant { accuracy: f64::from(accuracy) / 100.0, profile }
        });
    Profile::new(Span::from_millis(150), models.collect()).expect("a profile")
}

/// Queues of 1 to 24 requests that came as arrivals come, the oldest within `oldest` ms.
fn queues(load: f64, oldest: u64) -> Vec<(Instant, Vec<Instant>)> {
    let arrivals: Vec<Instant> = Poisson::new(load, 4).take(4096).collect();
    let queue = |end: usize| {
        let now = arrivals[end] + Span::from_micros(100);
        let first = (end + 1).saturating_sub(1 + end % 24);
        let recent = arrivals[first..=end].iter().filter(|&&a| now.since(a) <= Span::from_millis(oldest));
        (now, recent.copied().collect())
    };
    (100..4096).map(queue).collect()
}

#[test]
fn decisions_and_plans() {
    let profile = profile();
    println!("workers load   order      plan s   decision ns  starts");
    for (workers, load) in [(60, 800.0), (60, 1600.0), (60, 2800.0), (80, 3700.0)] {
        for order in [Order::Fifo, Order::NewestToo] {
            let demand = Demand { load, workers, order };
            let start = Clock::now();
            let found = plan(&profile, demand, Effort::default()).expect("a plan");
            let planned = start.elapsed().as_secs_f64();
            let queues = queues(load, 20);
            let (mut starts, mut count) = (0u64, 0u64);
            let start = Clock::now();
            for _ in 0..100 {
                for (index, (now, waiting)) in queues.iter().enumerate() {
                    let waiting = waiting.split_at(index % (waiting.len() + 1));
                    let state = State {
                        now: *now,
                        waiting,
                        free: 1 + index % 3,
                        soon: 5 + index % 11,
                        longest: profile.slo(),
                    };
                    let decision = found.policy.decide(black_box(&state));
                    starts += u64::from(matches!(decision, Decision::Start { .. }));
                    count += 1;
                }
            }
            let nanos = start.elapsed().as_secs_f64() * 1e9 / count as f64;
            let share = starts as f64 / count as f64;
            println!("{workers:<7} {load:<6} {order:<10?} {planned:<8.1} {nanos:<12.1} {share:.2}");
            assert!(nanos < 1000.0, "a decision takes {nanos} ns");
        }
    }
}
