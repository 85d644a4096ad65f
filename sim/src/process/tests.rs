//! Tests of all kinds of processes alike.

use proptest::prelude::*;
use rt_core::{ArrivalBound, Constraint, ConstraintSet, StreamSpec};

use super::*;
use crate::check_curves;
use crate::samples;
use crate::time::{at, ns};

pub(super) fn curve_of(bound: ArrivalBound) -> ArrivalCurve {
    ArrivalCurve::new(&[bound]).expect("one")
}

/// Whether a stream that declares `curve` may send so.
pub(super) fn keeps(curve: &ArrivalCurve, sent: &[Instant]) -> bool {
    let set = ConstraintSet::new(&[Constraint::any_miss(1, 2).expect("valid")]).expect("one");
    let problem = samples::problem(&[1], 1, 4, &[StreamSpec::promised(set, curve.clone())]);
    let arrivals: Vec<_> = sent.iter().map(|&instant| (instant, 0)).collect();
    check_curves(&problem, &arrivals).is_ok()
}

fn states(list: &[(f64, f64)]) -> Process {
    let state = |&(rate, dwell_s): &(f64, f64)| ModulatedState { rate, dwell_s };
    Process::MarkovModulated { states: list.iter().map(state).collect() }
}

fn series(rates: &[f64], interval: u64) -> Process {
    Process::Rates { rates: rates.into(), interval: ns(interval) }
}

fn trace(nanos: &[u64]) -> Process {
    Process::Trace(nanos.iter().map(|&nanos| at(nanos)).collect())
}

/// Of three gaps of 1 and one of 97.
fn resampled() -> Process {
    Process::Resampled { trace: [0, 1, 2, 3, 100].map(at).into(), row: 5.0 }
}

fn all() -> Vec<Process> {
    vec![
        Process::Constant,
        Process::Periodic { jitter: 0.5 },
        Process::Periodic { jitter: 20.0 },
        Process::Poisson,
        Process::Gamma { shape: 0.2 },
        Process::Gamma { shape: 3.0 },
        states(&[(1.0, 0.4), (5.0, 0.1), (0.0, 0.2)]),
        Process::Bursts { size: 10 },
        Process::Adversarial(samples::window(4, 4_000_000)),
        trace(&[5, 5, 9, 100, 1_000]),
        series(&[3.0, 0.0, 8.0], 100_000_000),
        resampled(),
    ]
}

fn sent(process: &Process, rate: f64, seed: u64, count: usize) -> Vec<Instant> {
    process.arrivals(rate, seed).expect("valid").take(count).collect()
}

#[test]
fn a_seed_gives_the_same_arrivals_always_and_another_seed_others() {
    for process in all() {
        let given = sent(&process, 1_000.0, 1, 3_000);
        assert!(given.len() == 3_000 && given.is_sorted(), "{process:?}");
        assert_eq!(given, sent(&process.clone(), 1_000.0, 1, 3_000), "{process:?}");
        let random = !matches!(process, Process::Constant | Process::Bursts { .. } | Process::Trace(_));
        assert_eq!(given != sent(&process, 1_000.0, 2, 3_000), random, "{process:?}");
    }
}

/// The last of these would move with any change to any draw before.
#[test]
fn arrivals_are_those_of_every_machine_and_release() {
    let last = |process: &Process| sent(process, 1_000.0, 42, 10_000)[9_999].as_nanos();
    let found: Vec<_> = all().iter().map(last).collect();
    let expected = [
        9_999_000_000,
        9_999_335_719,
        10_009_334_655,
        10_018_717_735,
        9_828_659_716,
        9_966_641_036,
        12_441_717_099,
        9_990_000_000,
        11_568_200_817,
        9_999_000_000,
        10_116_912_295,
        9_961_600_000,
    ];
    assert_eq!(found, expected);
}

/// Of `n` requests at a rate, the time that they take deviates by `√(d/n)` of itself, where `d` is the dispersion of
/// the counts: 1 of a Poisson process, `1/shape` of Gamma gaps, and of a modulated process at most
/// `1 + 2·variance·time/rate`, where the rate has a variance of `1.5·rate²` here and forgets its past in less than
/// the 0.7 s that its states last. Five such deviations are allowed, and what a grid or a repeated list may hold back.
#[test]
fn the_mean_rate_is_as_asked_for_at_every_rate() {
    let n = 200_000;
    for (process, rate) in all().iter().flat_map(|process| [0.01, 10.0, 1_000.0].map(|rate| (process, rate)))
    {
        let (dispersion, held) = match process {
            Process::Adversarial(_) => continue,
            Process::Constant => (0.0, 1.0),
            Process::Periodic { jitter } => (0.0, jitter + 1.0),
            Process::Bursts { size } => (0.0, f64::from(*size)),
            Process::Trace(trace) => (0.0, trace.len() as f64),
            Process::Poisson => (1.0, 1.0),
            Process::Gamma { shape } => (1.0 / shape, 1.0),
            Process::MarkovModulated { .. } => (1.0 + 2.0 * 1.5 * 0.7 * rate, 1.0),
            Process::Rates { .. } => (1.0, 1.0 + 0.3 * rate),
            // Of the variance of a gap, 2.76, each row of 5 on average has at most as much as twice 5 gaps.
            Process::Resampled { .. } => (2.76 * 10.0, 1.0),
        };
        let last = sent(process, rate, 3, n)[n - 1].as_nanos() as f64 / 1e9;
        // And what floats round.
        let allowed = 5.0 * (dispersion / n as f64).sqrt() + held / n as f64 + 1e-9;
        assert!((last * rate / n as f64 - 1.0).abs() <= allowed, "{process:?} at {rate}: {last} s");
    }
}

proptest! {
    #[test]
    fn constant_is_exact_without_drift(period in 1u64..1 << 40, i in 0usize..2_000) {
        let sent = sent(&Process::Constant, 1e9 / period as f64, 0, 2_000);
        prop_assert_eq!(sent[i].as_nanos(), i as u64 * period);
    }

    #[test]
    fn nonsense_is_refused_and_nothing_else_is_wrong(
        number: f64, small in 1e-12f64..1e12, rate in 1e-12f64..1e12, size: u32, seed: u64, nanos: [u64; 2],
    ) {
        let processes = |x: f64| vec![
            Process::Constant,
            Process::Poisson,
            Process::Periodic { jitter: x },
            Process::Gamma { shape: x },
            Process::Bursts { size },
            states(&[(x, 1.0), (1.0, x)]),
            states(&[(0.0, x), (x, 1e-3)]),
            series(&[1.0, x], nanos[0]),
            trace(&nanos),
        ];
        for x in [number, small] {
            for (process, rate) in processes(x).into_iter().flat_map(|p| [(p.clone(), rate), (p, number)]) {
                if let Ok(source) = process.arrivals(rate, seed) {
                    prop_assert!(source.take(50).is_sorted(), "{process:?}");
                }
            }
        }
    }
}

#[test]
fn ten_million_in_a_row_do_not_drift() {
    // Thirds of a nanosecond: floor(i · 10/3), as 48 bits have it.
    let last = Process::Constant.arrivals(3e8, 0).expect("valid").nth(10_000_000).expect("inside the clock");
    assert_eq!(last.as_nanos(), 33_333_333);
}

#[test]
fn only_what_has_a_rate_of_its_own_tells_one() {
    let own: Vec<_> = all().iter().filter_map(Process::own_rate).collect();
    assert_eq!(own, [1_000.0, 4.0 / 995e-9, 11.0 / 3.0, 4.0 / 100e-9]);
    assert_eq!(series(&[-1.0, 2.0], 1).own_rate(), None);
    assert_eq!(trace(&[1]).own_rate(), None);
}

#[test]
fn errors_name_field_value_and_limit() {
    let refused = |process: Process, rate| process.arrivals(rate, 0).expect_err("refused").to_string();
    for (rate, shown) in [(0.0, "0"), (-1.0, "-1"), (f64::NAN, "NaN"), (f64::INFINITY, "inf"), (2e9, "2e9")] {
        assert_eq!(refused(Process::Poisson, rate), format!("rate = {shown}: must be in 1e-9..=1e9"));
    }
    let cases = [
        (Process::Periodic { jitter: -0.1 }, "jitter = -0.1: must be in 0..=65536"),
        (Process::Gamma { shape: 0.0 }, "shape = 0: must be in 1e-3..=1e6"),
        (Process::Bursts { size: 0 }, "size = 0: must be 1 at least"),
        (states(&[]), "states = none: must be 1 at least"),
        (states(&[(0.0, 1.0)]), "states.rate = 0 in sum: must be above 0"),
        (states(&[(1.0, 1.0), (f64::NAN, 1.0)]), "states[1].rate = NaN: must be in 0..=1e18"),
        (states(&[(1.0, 0.0)]), "states[0].dwell_s = 0: must be above 0, at most 1e9"),
        (
            states(&[(1.0, 1e-12), (1.0, 1e-12)]),
            "dwell_s = so short that 1e9 pass from one request to the next: must be so long that at most 1e6 do",
        ),
        (
            states(&[(1.0, 1.0), (0.0, 1e9)]),
            "states[0].rate = 1.000000001e12 a second: must be at most 1e9 a second, scaled to the rate",
        ),
        (trace(&[]), "trace = 0 requests: must be 2 at least, not all at once"),
        (trace(&[3, 2]), "trace[1] = 2 ns: must be at least 3 ns, that of the request before"),
        (series(&[], 1), "rates = none: must be 1 at least"),
        (series(&[1.0], 0), "interval = 0 ns: must be 1 ns at least"),
        (series(&[1.0, -1.0], 1), "rates[1] = -1: must be in 0..=1e18"),
    ];
    for (process, error) in cases {
        assert_eq!(refused(process, 1_000.0), error);
    }
    let late = "size/rate = 4.294967295e27 ns: must be at most 18446744073709551615 ns";
    assert_eq!(refused(Process::Bursts { size: u32::MAX }, 1e-9), late);
}
