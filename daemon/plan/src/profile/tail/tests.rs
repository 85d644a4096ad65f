//! Tests of bounds from tails: coverage by fresh samples, and samples of every odd kind.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use proptest::prelude::*;

/// Draws through `quantile` of uniform numbers above 0 and below 1.
pub(crate) fn draws<T>(seed: u64, count: usize, quantile: impl Fn(f64) -> T) -> Vec<T> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut uniform = || ((random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    (0..count).map(|_| quantile(uniform())).collect()
}

pub(crate) fn sorted(mut sample: Vec<f64>) -> Vec<f64> {
    sample.sort_by(f64::total_cmp);
    sample
}

fn rule(exceedance: f64) -> Rule {
    Rule::new(exceedance, DEFAULT_MARGIN, false).unwrap()
}

/// A millisecond and on top of it what `quantile` makes of an exceedance probability, in microseconds.
fn time(quantile: impl Fn(f64) -> f64) -> impl Fn(f64) -> u64 {
    move |u| 1_000_000 + (1000.0 * quantile(u)) as u64
}

/// A name, and the quantile of an exceedance probability in microseconds.
type Named = (&'static str, fn(f64) -> f64);

/// Light, bounded and heavy tails.
fn tails() -> [Named; 4] {
    [
        ("exponential", |u| -50.0 * u.ln()),
        ("uniform", |u| 300.0 * (1.0 - u)),
        ("Pareto of index 3", |u| 40.0 * u.powf(-1.0 / 3.0)),
        ("Weibull of shape 0.7", |u| 30.0 * (-u.ln()).powf(1.0 / 0.7)),
    ]
}

#[test]
fn fresh_times_exceed_a_quantile_about_as_often_as_asked() {
    let (samples, seeds) = (2000, 60);
    for (name, quantile) in tails() {
        let quantile = time(quantile);
        for wanted in [5e-3, 5e-4] {
            let mut shares = 0.0;
            let mut fitted = 0;
            for seed in 0..seeds {
                let times = draws(seed, samples, &quantile);
                if let Some(tail) = Tail::fit(&times).filter(|tail| tail.p_value >= ACCEPT) {
                    let bound = tail.quantile(wanted, samples);
                    let fresh = draws(1000 + seed, 20_000, &quantile);
                    shares += fresh.iter().filter(|&&time| time > bound).count() as f64 / 20_000.0;
                    fitted += 1;
                }
            }
            let share = shares / f64::from(fitted) / wanted;
            assert!(fitted >= 55, "{name}: only {fitted} of 60 samples were fitted");
            // Close to the end of a bounded tail a nanosecond decides.
            let least = if name == "uniform" { 0.1 } else { 0.6 };
            assert!((least..1.6).contains(&share), "{name}: {share} times as often as {wanted}");
        }
    }
}

#[test]
fn bounds_hold_beyond_what_was_seen() {
    // Of the fewest times that do, and of more; beyond the longest alone there are one in a thousand, and one in 5000.
    for (name, quantile) in tails() {
        let quantile = time(quantile);
        for samples in [1000, 5000] {
            let (mut above, mut tails) = (0.0, 0.0);
            for seed in 0..60 {
                let bound = rule(1e-4).bound(&draws(seed, samples, &quantile));
                if bound.basis == Basis::Tail {
                    let fresh = draws(5000 + seed, 100_000, &quantile);
                    above += fresh.iter().filter(|&&time| time > bound.bound_ns).count() as f64 / 1e5;
                    tails += 1.0;
                }
            }
            assert!(above / tails < 2e-4, "{name}: {above} from {samples} times");
        }
    }
}

#[test]
fn the_standard_error_is_that_of_repeated_samples() {
    for (name, quantile) in [tails()[0], tails()[2]] {
        let quantile = time(quantile);
        let tails: Vec<Tail> = (0..100).filter_map(|seed| Tail::fit(&draws(seed, 3000, &quantile))).collect();
        // Of those with the lowest threshold, for others see fewer times.
        let tails: Vec<&Tail> = tails.iter().filter(|tail| tail.excesses == 600).collect();
        let count = tails.len() as f64;
        let log = |tail: &&Tail| (tail.quantile(1e-3, 3000) as f64 - 1e6).ln();
        let mean = tails.iter().map(log).sum::<f64>() / count;
        let seen = (tails.iter().map(|tail| (log(tail) - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
        let said = tails.iter().map(|tail| {
            tail.error(1e-3, 3000) as f64 * tail.extremal_index.sqrt()
                / (tail.quantile(1e-3, 3000) as f64 - 1e6)
        });
        let said = said.sum::<f64>() / count;
        assert!((0.75..1.33).contains(&(said / seen)), "{name}: {said} is said, {seen} is seen");
    }
}

#[test]
fn clusters_are_measured_and_do_not_bend_the_quantile() {
    // The largest of each 4 neighbours of independent draws: P(X ≤ x) = P(draw ≤ x)⁴, and θ = 1/4.
    let (mut above, mut indices) = (0.0, 0.0);
    for seed in 0..20 {
        let draws = draws(seed, 20_003, time(|u| -50.0 * u.ln()));
        let times: Vec<u64> = draws.windows(4).map(|w| *w.iter().max().unwrap()).collect();
        let tail = Tail::fit(&times).unwrap();
        indices += tail.extremal_index / 20.0;
        let bound = tail.quantile(1e-3, times.len()) as f64;
        let draw_above = (-(bound - 1e6) / 50_000.0).exp();
        above += (1.0 - (1.0 - draw_above).powi(4)) / 20.0;
    }
    assert!((indices - 0.25).abs() < 0.1, "{indices}");
    assert!((0.6e-3..1.6e-3).contains(&above), "{above}");
}

#[test]
fn few_times_and_times_that_do_not_differ_have_the_margin() {
    let constant = [5_000_000; 3000];
    let few = draws(1, 900, time(|u| -50.0 * u.ln()));
    let two: Vec<u64> = draws(2, 3000, |u| if u < 0.1 { 2000 } else { 1000 });
    // One long disturbance: as many long times as could be wished, and all of one cluster.
    let burst: Vec<u64> = (0..2000u64).map(|i| 1000 + if i < 450 { 500 + i } else { 0 }).collect();
    for times in [&constant[..], &few, &two, &burst, &[7], &[0, 0]] {
        let bound = rule(1e-4).bound(times);
        let max = *times.iter().max().unwrap();
        assert_eq!((bound.basis, bound.tail), (Basis::Few, None), "{} times", times.len());
        assert_eq!(bound.bound_ns, (max + (max as f64 * 0.1).ceil() as u64).max(1));
    }
    assert_eq!(rule(1e-4).bound(&[]).bound_ns, 1);
}

#[test]
fn what_does_not_look_like_a_tail_has_the_margin_too() {
    // Long times in three heaps far apart, of which every share of the sample sees two at least.
    let heaps = |u: f64| match u {
        u if u < 0.006 => 90_000.0 + 10.0 * u,
        u if u < 0.04 => 9000.0 + 10.0 * u,
        u => 10.0 * u,
    };
    let times = draws(3, 8000, time(heaps));
    let bound = rule(1e-4).bound(&times);
    let max = *times.iter().max().unwrap();
    assert_eq!(bound.basis, Basis::Rejected, "{bound:?}");
    assert!(bound.tail.unwrap().p_value < ACCEPT);
    assert_eq!(bound.bound_ns, max + (max as f64 * 0.1).ceil() as u64);
}

#[test]
fn the_longest_is_taken_where_asked_for() {
    let times = draws(4, 3000, time(|u| -50.0 * u.ln()));
    let bound = Rule::new(1e-4, 0.5, true).unwrap().bound(&times);
    let max = *times.iter().max().unwrap();
    assert_eq!((bound.basis, bound.tail), (Basis::Longest, None));
    assert_eq!(bound.bound_ns, max + (max as f64 * 0.5).ceil() as u64);
}

#[test]
fn rules_outside_their_limits_are_refused() {
    for margin in [-0.1, 10.1, f64::NAN] {
        let error = Rule::new(1e-4, margin, false).unwrap_err().to_string();
        assert_eq!(error, format!("margin is {margin}, the limits are 0..=10"));
    }
    for exceedance in [0.0, -1.0, 0.2, f64::NAN] {
        let error = Rule::new(exceedance, 0.1, false).unwrap_err().to_string();
        assert_eq!(error, format!("exceedance is {exceedance}, it must be above 0 and at most 0.1"));
    }
}

#[test]
fn a_tail_says_the_same_of_times_and_of_probabilities() {
    let times = draws(6, 3000, time(|u| -50.0 * u.ln()));
    let tail = rule(1e-4).bound(&times).tail.unwrap();
    assert_eq!(tail.fault(*times.iter().max().unwrap(), times.len()), None);
    assert!(tail.fault(tail.threshold_ns, times.len()).is_some());
    let share = |time: u64| tail.share(3000) * tail.pareto().survival((time - tail.threshold_ns) as f64);
    for exceedance in [1e-2, 1e-4, 1e-6] {
        let again = share(tail.quantile(exceedance, times.len()));
        assert!((again / exceedance - 1.0).abs() < 1e-2, "{again} is not {exceedance}");
        // The error does not jump where its formula changes.
        let error = |shape: f64| Tail { shape, ..tail }.error(exceedance, times.len()) as f64;
        assert!((error(0.000_009) / error(0.000_011) - 1.0).abs() < 1e-3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_times_have_a_bound_that_is_not_below_them(
        times in prop::collection::vec(prop_oneof![0u64..50, 1_000_000u64..2_000_000, Just(u64::MAX / 2)], 1..1500),
        exceedance in 1e-3..0.1f64,
    ) {
        let bound = rule(exceedance).bound(&times);
        let below = times.iter().all(|&time| time <= bound.bound_ns);
        prop_assert!((below || bound.basis == Basis::Quantile) && bound.bound_ns >= 1);
        prop_assert_eq!(bound, rule(exceedance).bound(&times));
    }

    #[test]
    fn ties_do_no_harm(seed in 0u64..1000, grain in 1u64..200_000) {
        let times: Vec<u64> = draws(seed, 2000, time(|u| -50.0 * u.ln())).iter().map(|t| t / grain * grain).collect();
        let bound = rule(1e-3).bound(&times);
        let max = *times.iter().max().unwrap();
        prop_assert!(bound.bound_ns >= max && bound.bound_ns < 4 * max, "{:?}", bound);
    }
}
