//! Tests of plans of workers of several kinds, against the inequality of Theorem A evaluated naively.

use rt_core::Density;

use super::*;
use crate::certificate::of_plan;
use crate::config::Config;
use crate::plan::Plan;
use crate::plan::tests::plan_as_stated;

/// So many workers of each kind, and the milliseconds of their batches of 1, 2, …
type Kinds<'a> = &'a [(usize, &'a [u64])];

/// A service of simulated workers, called `k0`, `k1`, …
fn config(kinds: Kinds<'_>, service: &str) -> Config {
    let mut text = format!(
        "[[service]]\nname = \"s\"\nengine = \"simulated\"\nguard = \"1ms\"\nhandover = \"0ms\"\n{service}\n"
    );
    for (i, (count, times)) in kinds.iter().enumerate() {
        let times: Vec<_> = times.iter().map(|ms| format!("\"{ms}ms\"")).collect();
        let times = times.join(", ");
        text += &format!(
            "[[service.workers]]\nname = \"k{i}\"\ncount = {count}\nmax-batch = 64\nsimulated = {{ times = [{times}] }}\n"
        );
    }
    Config::parse(std::path::Path::new("weir.toml"), &text).expect("good")
}

fn rate(plan: &Plan) -> f64 {
    plan.services[0].rate.as_ref().and_then(RatePlan::per_second).unwrap_or(0.0)
}

/// Whether `min{u : σ(u) ≥ ⌈ρ·α(δ + 1)⌉} + max P ≤ δ + L` at each of the first 400 rises of a stream of one request a `period`, up to
/// `jitter` late, in nanoseconds, and no more must be served than can be; workers are count, `B` and `P`.
fn holds(workers: &[(u64, u64, u64)], latency: u64, density: Density, (period, jitter): (u64, u64)) -> bool {
    let (p, q) = (u64::from(density.numerator()), u64::from(density.denominator()));
    let capacity: f64 = workers.iter().map(|&(n, b, time)| (n * b) as f64 / time as f64).sum();
    if p as f64 / q as f64 / period as f64 > capacity {
        return false;
    }
    let sigma = |u: u64| workers.iter().map(|&(n, b, time)| n * b * (u / time)).sum::<u64>();
    let slowest = workers.iter().map(|&(.., time)| time).max().expect("workers");
    (1..=400).all(|n| {
        let (delta, must) = (((n - 1) * period).saturating_sub(jitter), (n * p).div_ceil(q));
        let ends = workers.iter().flat_map(|&(.., time)| (1..=must).map(move |round| round * time));
        let begun = ends.filter(|&u| sigma(u) >= must).min().expect("the last of them does");
        begun + slowest <= delta + latency
    })
}

const KEEPS: &str = "deadline = \"40ms\"\njitter = \"3ms\"\nconstraints = [{ any-miss = { m = 1, k = 4 } }]";

#[test]
fn the_plan_is_the_best_of_all_choices_of_batches_and_the_largest_rate_of_theorem_a() {
    let drawn: [Kinds<'_>; 3] = [
        &[(1, &[4, 5, 6, 7]), (2, &[6, 9, 12])],
        &[(1, &[2, 3, 4]), (1, &[10, 11, 12, 13])],
        &[(3, &[7, 8]), (1, &[1, 2, 3]), (1, &[5, 5, 5])],
    ];
    for kinds in drawn {
        let plan = plan_as_stated(&config(kinds, KEEPS)).expect("it can be promised");
        let service = &plan.services[0];
        let (period, _) = service.rate.as_ref().expect("constraints").spare.expect("room");
        let (density, jitter) = (service.rate.as_ref().expect("constraints").density, 3_000_000);
        let of = |workers: &[Workers]| -> Vec<_> {
            workers.iter().map(|w| (w.count as u64, w.batch as u64, w.batch_time().as_nanos())).collect()
        };
        assert!(holds(&of(service.all_workers()), 39_000_000, density, (period.as_nanos(), jitter)));
        let faster = period.as_nanos() - period.as_nanos() / 256;
        let sizes: Sizes = service
            .all_workers()
            .iter()
            .map(|kind| {
                (1..=kind.profile.max_batch()).map(|batch| Workers { batch, ..kind.clone() }).collect()
            })
            .collect();
        for picks in choices(&sizes) {
            let other: Vec<_> = picks.iter().zip(&sizes).map(|(&pick, sizes)| sizes[pick].clone()).collect();
            assert!(!holds(&of(&other), 39_000_000, density, (faster, jitter)), "{kinds:?} {picks:?}");
        }
        let certificate = of_plan(&plan).expect("it has a form");
        let told = certificate.claims[0].service.as_ref().expect("of a service");
        let names: Vec<_> = told.kinds.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["k0", "k1", "k2"][..kinds.len()]);
        let verified = planner::verify::verify(&certificate).expect("it is what the checker derives");
        assert_eq!((verified.promised, verified.refused), (1, 0));
        // A kind less than the problem has is told.
        let mut claims = certificate.claims.clone();
        claims[0].service.as_mut().expect("of a service").kinds.pop();
        let tampered = planner::Certificate::new("a test", certificate.machine.clone(), claims);
        let error = planner::verify::verify(&tampered).expect_err("tampered with").to_string();
        assert!(error.contains("service.kinds"), "{error}");
    }
}

#[test]
fn a_kind_that_the_promise_would_be_better_without_is_named() {
    let quick = (2, &[4, 5, 6][..]);
    let both = plan_as_stated(&config(&[quick, (1, &[34, 35])], KEEPS)).expect("it can be promised");
    let alone = plan_as_stated(&config(&[quick], KEEPS)).expect("it can be promised");
    let kinds = &both.services[0].kinds;
    assert_eq!(
        both.services[0].slowest_kind().map(|kind| kind.runs.config.kind_name()),
        Some("k1".to_owned())
    );
    assert!(rate(&alone) > rate(&both), "{} {}", rate(&alone), rate(&both));
    assert_eq!(kinds[1].without_per_s, Some(rate(&alone)));
    assert_eq!(kinds[0].without_per_s, None, "without the quick ones there is less");
    // With time enough each helps.
    let patient = KEEPS.replace("40ms", "400ms");
    let both = plan_as_stated(&config(&[quick, (1, &[34, 35])], &patient)).expect("it can be promised");
    assert!(both.services[0].kinds.iter().all(|kind| kind.without_per_s.is_none()));
}

#[test]
fn a_worker_is_of_the_kind_whose_number_it_has() {
    let plan =
        plan_as_stated(&config(&[(2, &[4]), (3, &[5]), (1, &[6])], KEEPS)).expect("it can be promised");
    let service = &plan.services[0];
    let of = |worker| (service.kind_of(worker).expect("of a kind"), service.on_worker(worker).1);
    let all: Vec<_> = (0..service.worker_count()).map(of).collect();
    let names = [("k0", 0), ("k0", 1), ("k1", 0), ("k1", 1), ("k1", 2), ("k2", 0)];
    assert_eq!(all, names.map(|(name, own)| (name.to_owned(), own)));
    assert_eq!(service.max_batch(), 1);
    assert!((service.capacity() - (2.0 / 4e-3 + 3.0 / 5e-3 + 1.0 / 6e-3)).abs() < 1e-6);
}

#[test]
fn what_cannot_be_promised_is_refused_with_the_times_of_both() {
    let error = plan_as_stated(&config(&[(1, &[4]), (1, &[36])], KEEPS))
        .expect_err("4 + 36 ms are above 39")
        .to_string();
    assert!(error.contains("any_miss(1,4)") && error.contains("40.0 ms"), "{error}");
    assert!(error.ends_with("; without the workers of k1 it could be"), "{error}");
    let error = plan_as_stated(&config(&[(1, &[4]), (1, &[41])], KEEPS))
        .expect_err("no batch of the slow one")
        .to_string();
    assert!(error.contains("P(1) = 41.0 ms leaves nothing"), "{error}");
}

/// Reserved streams may leave no room for one more: that is said, and is no refusal. Of 37 at once 28 must be served, which are begun by
/// 75 ms, 25 by the one worker and 3 by the other, and answered by 99 ms at the latest. One more is begun by 78.
#[test]
fn what_is_reserved_may_leave_no_room() {
    let full = "deadline = \"100ms\"\njitter = \"3ms\"\nconstraints = [{ any-miss = { m = 1, k = 4 } }]\n\
                [[service.stream]]\nname = \"all\"\narrivals = [{ window = { count = 37, length = \"10s\" } }]";
    let kinds: Kinds<'_> = &[(1, &[3]), (1, &[24])];
    let plan = plan_as_stated(&config(kinds, full)).expect("what is reserved holds");
    assert!(plan.services[0].rate.as_ref().is_some_and(|rate| rate.spare.is_none()));
    assert!(plan.services[0].admission.as_ref().is_some_and(|admission| admission.binding.is_some()));
}

/// Where not all choices are tried, what is found is bettered by no change for one kind, and by little else; merits as plans have them.
#[test]
fn a_climb_ends_where_no_kind_alone_betters_it() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let (mut best_found, mut cases) = (0, 0);
    for _ in 0..40 {
        let times: Vec<Vec<u64>> = (0..2)
            .map(|_| {
                let first = 1 + next(8);
                (0..1 + next(4))
                    .scan(first, |time, _| Some(std::mem::replace(time, *time + next(5))))
                    .collect()
            })
            .collect();
        let kinds: Vec<_> = times.iter().map(|times| (1 + next(2) as usize, &times[..])).collect();
        let config = config(&kinds, KEEPS);
        let Ok(planned) = plan_as_stated(&config) else { continue };
        let service = &planned.services[0];
        let sizes: Sizes = service
            .all_workers()
            .iter()
            .map(|kind| {
                (1..=kind.profile.max_batch()).map(|batch| Workers { batch, ..kind.clone() }).collect()
            })
            .collect();
        let merit = |picks: &[usize]| {
            let workers = picks.iter().zip(&sizes).map(|(&pick, sizes)| sizes[pick].clone()).collect();
            let system = System { workers, ..service.system.clone() };
            ServicePlan::with_system(&service.config, &service.spec, "", system).ok().map(|plan| plan.merit())
        };
        let found = climb(&sizes, merit);
        let reached = merit(&found).expect("there is a plan");
        for kind in 0..sizes.len() {
            for pick in 0..sizes[kind].len() {
                let mut other = found.clone();
                other[kind] = pick;
                assert!(merit(&other).is_none_or(|other| other <= reached), "{times:?}: {found:?}");
            }
        }
        assert!(reached <= rate(&planned) && reached > 0.9 * rate(&planned), "{times:?}: {reached}");
        best_found += usize::from(reached == rate(&planned));
        cases += 1;
    }
    assert!(cases >= 20 && best_found * 10 >= cases * 9, "{best_found} of {cases}");
}
