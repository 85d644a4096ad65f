//! Loads for the admission test: streams of all kinds of curves, on workers that are as busy as one likes.

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Instant, LatencyProfile, MAX_SPAN, Span,
    StreamSpec, System, Workers,
};

const WORKERS: usize = 4;
const BATCH: usize = 8;

/// Streams number 0 to `count`, no two alike: windows, periods with jitter, token buckets, several bounds at once, and
/// the distances of a trace.
pub(crate) fn mixed(count: u64) -> Vec<StreamSpec> {
    (0..count).map(stream).collect()
}

fn stream(i: u64) -> StreamSpec {
    let ms = Span::from_millis;
    let period = [20, 25, 40, 50, 100][i as usize % 5];
    let burst = 2 + i % 4;
    let bounds = match i % 6 {
        0 => vec![ArrivalBound::window(burst, ms(period * burst))],
        1 => vec![ArrivalBound::periodic(ms(period), ms(1 + i % 7))],
        2 => vec![ArrivalBound::token_bucket(burst, ms(period))],
        3 => vec![ArrivalBound::token_bucket(burst, ms(period)), ArrivalBound::window(1, ms(3))],
        4 => vec![
            ArrivalBound::window(burst, ms(period)),
            ArrivalBound::periodic(ms(period), ms(3 * period)),
            ArrivalBound::window(1, ms(2)),
        ],
        _ => return promised(i, ArrivalCurve::of_trace(&trace(i, period))),
    };
    let bounds: Vec<_> = bounds.into_iter().map(|bound| bound.expect("valid")).collect();
    promised(i, ArrivalCurve::new(&bounds))
}

fn promised(i: u64, curve: Result<ArrivalCurve, rt_core::ArrivalError>) -> StreamSpec {
    let k = 2 + (i % 9) as u32;
    let set = [Constraint::any_miss(i as u32 % k, k), Constraint::row_miss(i as u32 % 4)];
    let set = ConstraintSet::new(&set.map(|c| c.expect("valid"))).expect("two");
    StreamSpec::promised(set, curve.expect("valid"))
}

/// Two hundred requests, one a `period` in milliseconds, each up to half a period late.
fn trace(seed: u64, period: u64) -> Vec<Instant> {
    let mut state = seed;
    let mut next = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let period = period * 1_000_000;
    (0..200).map(|n| Instant::from_nanos(n * period + next(period / 2))).collect()
}

/// Four workers whose batches of eight take as long as `streams` need to ask for `permille` of their capacity: of one
/// kind, or the last two slower by half. The deadline is long enough for everything.
pub(crate) fn busy(streams: &[StreamSpec], permille: u64, kinds: usize) -> System {
    let rate: f64 =
        streams.iter().filter_map(StreamSpec::demand).map(|(d, a)| d.as_f64() * a.rate_per_s()).sum();
    // Two workers that are slower by half are as good as 4/3.
    let capacity_for_1_s = BATCH as f64 * if kinds == 1 { WORKERS as f64 } else { 2.0 + 4.0 / 3.0 };
    let time = (permille as f64 / 1000.0 * capacity_for_1_s / rate * 1e9) as u64;
    let workers = |count, time| {
        let times: Vec<_> = (1..=BATCH as u64).map(|b| Span::from_nanos(time / 2 + time * b / 16)).collect();
        Workers { count, batch: BATCH, profile: LatencyProfile::new(&times).expect("a profile") }
    };
    let mut system = System::identical(workers(WORKERS, time), MAX_SPAN);
    if kinds == 2 {
        system.workers = vec![workers(2, time), workers(2, time + time / 2)];
    }
    system
}

/// `system` without background, and with a deadline that is too short for Theorem A by a thousandth, so that the
/// refinement is asked.
pub(crate) fn refined(mut system: System, streams: &[StreamSpec]) -> System {
    let tightest = system.admit(streams).expect("below capacity").binding.expect("something is promised");
    let least = system.latency.saturating_sub(tightest.rhs.saturating_sub(tightest.lhs));
    system.latency = Span::from_nanos(least.as_nanos() / 1000 * 999);
    system.background = false;
    system
}
