//! The fluid bound against brute force, decisions over random profiles and queues, and whole trials.

mod cases;

use proptest::prelude::*;
use rt_core::{Instant, LatencyProfile, MissReason, Outcome, Span, Variant};
use std::ops::Range;
use virtual_time::{Order as Instants, Poisson, Run, drive};

use super::*;
use crate::serving::Serving;

fn ms(time: f64) -> Span {
    Span::from_nanos((time * 1e6).round() as u64)
}

fn model(accuracy: f64, latencies: &[f64]) -> Variant {
    let times: Vec<_> = latencies.iter().map(|&l| ms(l)).collect();
    Variant { accuracy, profile: LatencyProfile::new(&times).expect("times that rise") }
}

/// A fast, a middling and an accurate model: batches help the fast one most.
fn synthetic() -> Profile {
    let models = vec![
        model(0.6, &[8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0]),
        model(0.75, &[20.0, 30.0, 40.0, 50.0, 60.0]),
        model(0.9, &[45.0, 80.0, 115.0]),
    ];
    Profile::new(ms(100.0), models).expect("a profile")
}

const QUICK: Effort = Effort { tries: 60, requests: 4000, seed: 3, thorough: false };

fn tuning() -> Tuning {
    Tuning {
        reserve: 0.05,
        pressure: 1.0,
        stiffness: 1e-3,
        target: 2.0,
        drift: 0.5,
        lost: 0.5,
        drain: 0.5,
        share: 0.5,
        horizon: ms(20.0),
        patience: ms(20.0),
        hold: [-0.01, -0.02],
        anticipation: 0.0,
    }
}

#[test]
fn a_profile_is_checked() {
    let refusal = |slo, models| Profile::new(slo, models).expect_err("refused").to_string();
    let fine = || model(0.5, &[1.0, 2.0]);
    assert_eq!(refusal(Span::ZERO, vec![fine()]), "slo = 0 ns: must be above 0 and at most 60.0 s");
    assert_eq!(refusal(ms(9.0), vec![]), "models = 0 entries: must be 1 to 64");
    assert_eq!(
        refusal(ms(9.0), vec![fine(), model(1.5, &[1.0])]),
        "models[1].accuracy = 1.5: must be in 0..=1"
    );
    assert!(refusal(ms(9.0), vec![model(f64::NAN, &[1.0])]).contains("accuracy = NaN"));
    assert_eq!(
        refusal(ms(9.0), vec![model(0.5, &[10.0])]),
        "models[..].latencies[0] = 10.0 ms at least: one must be at most slo = 9.00 ms"
    );
    let profile = synthetic();
    assert_eq!(profile.largest_batch(), 8);
}

#[test]
fn demands_efforts_and_tunings_are_checked() {
    let profile = synthetic();
    let demand = Demand { load: 100.0, workers: 4, order: Order::Fifo };
    let refusal = |demand, effort| plan(&profile, demand, effort).expect_err("refused").to_string();
    for load in [0.0, -1.0, f64::NAN, 2e6] {
        assert!(refusal(Demand { load, ..demand }, QUICK).starts_with("load = "), "{load}");
    }
    for workers in [0, MAX_SELECT_WORKERS + 1] {
        assert!(refusal(Demand { workers, ..demand }, QUICK).starts_with("workers = "), "{workers}");
    }
    assert_eq!(refusal(demand, Effort { tries: 0, ..QUICK }), "tries = 0: must be at least 1");
    assert_eq!(refusal(demand, Effort { requests: 0, ..QUICK }), "requests = 0: must be at least 1");
    let refusal = |tuning| Policy::new(&profile, demand, tuning).expect_err("refused").to_string();
    assert_eq!(refusal(Tuning { reserve: 1.0, ..tuning() }), "reserve = 1: must be at least 0 and below 1");
    assert_eq!(refusal(Tuning { pressure: 0.0, ..tuning() }), "pressure = 0: must be above 0");
    assert_eq!(refusal(Tuning { share: -1.0, ..tuning() }), "share = -1: must be at least 0");
    assert_eq!(refusal(Tuning { target: f64::NAN, ..tuning() }), "target = NaN: must be finite");
    assert_eq!(
        refusal(Tuning { horizon: ms(101.0), ..tuning() }),
        "horizon = 0.101: must be at most the objective"
    );
}

/// The best mix of two choices, of all pairs.
fn brute_force(profile: &Profile, limit: Span, per_request: f64) -> Option<f64> {
    let points: Vec<(f64, f64)> = profile
        .within(limit)
        .map(|(m, b, l)| (l.as_secs_f64() / b as f64, profile.models()[m].accuracy))
        .collect();
    let mut best = None;
    for &(t, a) in &points {
        for &(u, b) in &points {
            // The share of the second that uses all the time, or all of it.
            let share = if t <= per_request && u <= per_request {
                1.0
            } else if t <= per_request {
                (per_request - t) / (u - t)
            } else {
                continue;
            };
            best = best.max(Some(ordered(((1.0 - share) * a + share * b).max(a))));
        }
    }
    best.map(f64::from_bits)
}

/// Accuracies are not negative, so that their bits have their order.
fn ordered(value: f64) -> u64 {
    value.to_bits()
}

fn profiles() -> impl Strategy<Value = Profile> {
    let one = (0.0..=1.0f64, prop::collection::vec(0.05..40.0f64, 1..6), 0.5..60.0f64);
    (10.0..120.0f64, prop::collection::vec(one, 1..5)).prop_map(|(slo, models)| {
        let models = models.into_iter().map(|(accuracy, steps, first)| {
            let rising = steps.iter().scan(first, |sum, step| {
                let latency = *sum;
                *sum += step;
                Some(latency)
            });
            model(accuracy, &rising.collect::<Vec<_>>())
        });
        let models: Vec<Variant> = models.chain([model(0.3, &[slo * 0.2, slo * 0.3])]).collect();
        Profile::new(ms(slo), models).expect("a profile")
    })
}

fn tunings() -> impl Strategy<Value = Tuning> {
    let spans = (0.0..10.0f64, 0.0..10.0f64);
    let ages = (0.0..2.0f64, 0.0..1.0f64, 0.0..1.0f64);
    let holds = (-0.1..0.1f64, -0.1..0.1f64);
    (0.0..0.5f64, 0.5..2.0f64, 0.0..0.1f64, -50.0..50.0f64, 0.0..8.0f64, spans, ages, holds).prop_map(
        |(reserve, pressure, stiffness, target, share, (horizon, patience), ages, (hold, anticipation))| {
            let (drift, lost, drain) = ages;
            Tuning {
                reserve,
                pressure,
                stiffness,
                target,
                drift,
                lost,
                drain,
                share,
                horizon: ms(horizon),
                patience: ms(patience),
                hold: [hold, -hold],
                anticipation,
            }
        },
    )
}

/// What becomes of the requests in the simulator's way through virtual time.
fn simulated(
    profile: &Profile,
    policy: &Policy,
    workers: usize,
    arrivals: &[Instant],
    counted: Range<Instant>,
) -> Score {
    let mut serving = Serving::new(policy, profile.models().to_vec(), workers, profile.slo());
    let mut run = Run { streams: 1, ..Run::default() };
    let arrivals = arrivals.iter().map(|&at| (at, 0));
    drive(&mut serving, arrivals, Instants::Together, |_, _, bound| bound, &mut run)
        .expect("they do not go back");
    let mut score = Score::default();
    for request in run.requests.iter().filter(|request| counted.contains(&request.arrival)) {
        match request.outcome {
            Outcome::Served => {
                score.answered += 1;
                score.accuracy_sum += profile.models()[request.variant].accuracy;
            }
            Outcome::Missed(MissReason::Late) => score.late += 1,
            Outcome::Missed(_) => score.refused += 1,
        }
    }
    score
}

/// By prices, with a horizon and a patience that the objective allows, or one of the rules.
fn policy(profile: &Profile, demand: Demand, tuning: Tuning, kind: usize) -> Policy {
    match kind {
        0 => return Policy::greedy(profile),
        1 => return Policy::thresholds(profile, [kind + 1, 1, 0], [tuning.target as i64, 20]),
        2 => return Policy::single(profile, profile.models().len() - 1),
        _ => {}
    }
    let [horizon, patience] = [tuning.horizon, tuning.patience].map(|span| span.min(profile.slo()));
    Policy::new(profile, demand, Tuning { horizon, patience, ..tuning }).expect("a policy")
}

proptest! {
    #[test]
    fn the_fluid_bound_is_the_best_mix(profile in profiles(), per_request in 0.0001..0.1f64, cut in 0.3..1.0f64) {
        let limit = ms(profile.slo().as_secs_f64() * 1e3 * cut);
        let found = fluid(&profile, limit, per_request);
        let best = brute_force(&profile, limit, per_request);
        prop_assert_eq!(found.is_some(), best.is_some());
        if let (Some(found), Some(best)) = (found, best) {
            prop_assert!((found.accuracy - best).abs() < 1e-9, "{} for {}", found.accuracy, best);
            let mixed = |value: &dyn Fn(Choice) -> f64| {
                found.mix.iter().map(|&(c, share)| share * value(c)).sum::<f64>()
            };
            prop_assert!((mixed(&|_| 1.0) - 1.0).abs() < 1e-9);
            prop_assert!((mixed(&|c| profile.models()[c.model].accuracy) - found.accuracy).abs() < 1e-9);
            // Nothing is worth more than the worth, at the price.
            for (model, batch, latency) in profile.within(limit) {
                let time = latency.as_secs_f64() / batch as f64;
                let value = profile.models()[model].accuracy - found.price * time;
                prop_assert!(value <= found.worth + 1e-9);
            }
        }
    }

    #[test]
    fn decisions_keep_every_deadline(
        profile in profiles(),
        tuning in tunings(),
        newest in any::<bool>(),
        workers in 1..40usize,
        load in 1.0..5000.0f64,
        busy in (0..40usize, 0..40usize),
        ages in prop::collection::vec(0.0..1.1f64, 0..40),
        split in 0..40usize,
        longest in 0.0..130.0f64,
        kind in 0..8usize,
    ) {
        let order = if newest { Order::NewestToo } else { Order::Fifo };
        let policy = policy(&profile, Demand { load, workers, order }, tuning, kind);
        let now = Instant::from_nanos(1_000_000_000);
        let mut waiting: Vec<Instant> =
            ages.iter().map(|age| now - ms(age * profile.slo().as_secs_f64() * 1e3)).collect();
        waiting.sort();
        let state = State {
            now,
            waiting: waiting.split_at(split.min(waiting.len())),
            free: workers.saturating_sub(busy.0),
            soon: busy.1.min(workers),
            longest: ms(longest),
        };
        let slack = |arrival: Instant| profile.slo().as_nanos().checked_sub(now.since(arrival).as_nanos());
        match policy.decide(&state) {
            Decision::Start { model, batch, take } => {
                prop_assert!(state.free > 0 && (1..=waiting.len()).contains(&batch));
                let taken = match take {
                    Take::Oldest => &waiting[..batch],
                    Take::Newest => &waiting[waiting.len() - batch..],
                };
                prop_assert!(take == Take::Oldest || newest);
                prop_assert!(batch <= profile.models()[model].profile.max_batch());
                let latency = profile.models()[model].profile.bound(batch).as_nanos();
                prop_assert!(latency <= state.longest.as_nanos());
                prop_assert!(slack(taken[0]).is_some_and(|s| latency <= s));
            }
            Decision::Wait { until } => {
                prop_assert!(until.is_none_or(|until| until > now));
                let any = profile.within(state.longest).next().is_some();
                prop_assert!(until.is_some() || waiting.is_empty() || state.free == 0 || !any);
            }
            Decision::Refuse if policy.tuning().is_some() => {
                let age = now.since(waiting[0]).as_nanos() as f64;
                let most = (profile.slo().as_nanos() - profile.fastest().as_nanos()) as f64;
                prop_assert!(age >= (tuning.lost * most).floor());
            }
            // A rule leaves to nobody what its models can do in time.
            Decision::Refuse => {
                let last = if kind == 2 { profile.models().len() - 1 } else { 0 };
                let time = profile.models()[last].profile.bound(1).as_nanos();
                prop_assert!(slack(waiting[0]).is_none_or(|slack| time > slack.min(state.longest.as_nanos())));
            }
        }
    }

    #[test]
    fn every_request_has_its_fate(
        profile in profiles(),
        tuning in tunings(),
        newest in any::<bool>(),
        workers in 1..6usize,
        load in 1.0..2000.0f64,
        seed in any::<u64>(),
        kind in 0..8usize,
    ) {
        let order = if newest { Order::NewestToo } else { Order::Fifo };
        let policy = policy(&profile, Demand { load, workers, order }, tuning, kind);
        let arrivals: Vec<Instant> = Poisson::new(load, seed).take(300).collect();
        let counted = arrivals[20]..arrivals[250];
        let score = trial(&profile, &policy, workers, arrivals.iter().copied(), counted.clone());
        let expected = arrivals.iter().filter(|a| counted.contains(a)).count() as u64;
        prop_assert_eq!(score.answered + score.late + score.refused, expected);
        prop_assert_eq!(score.late, 0);
        prop_assert!(score.accuracy() <= 1.0);
        let other = simulated(&profile, &policy, workers, &arrivals, counted);
        // They are summed up in another order, and decisions are counted by a trial alone.
        prop_assert!((score.accuracy_sum - other.accuracy_sum).abs() < 1e-6);
        let of = |score: Score| Score { accuracy_sum: 0.0, decisions: 0, ..score };
        prop_assert_eq!(of(score), of(other));
    }
}

#[test]
fn a_plan_beats_the_best_single_model_and_stays_under_the_ceiling() {
    let profile = synthetic();
    for (load, order) in [(150.0, Order::Fifo), (300.0, Order::NewestToo), (500.0, Order::Fifo)] {
        let demand = Demand { load, workers: 8, order };
        let play = |profile: &Profile| {
            let found = plan(profile, demand, QUICK).expect("a plan");
            let from = Instant::from_nanos(1_000_000_000);
            let until = Instant::from_nanos(31_000_000_000);
            let arrivals = Poisson::new(load, 77).take_while(|&at| at < until + profile.slo());
            trial(profile, &found.policy, 8, arrivals, from..until)
        };
        let single =
            profile.models().iter().map(|m| Profile::new(profile.slo(), vec![m.clone()]).expect("one"));
        let best = single.map(|p| play(&p)).filter(|s| s.violations() < 1e-3).map(|s| s.accuracy());
        let best = best.max_by(f64::total_cmp).expect("a model that carries the load");
        let mixed = play(&profile);
        assert!(mixed.violations() < 1e-4, "{load}: {}", mixed.violations());
        assert!(mixed.accuracy() > best + 0.02, "{load}: {} for {best}", mixed.accuracy());
        let bound = fluid(&profile, profile.slo(), demand.per_request()).expect("a bound").accuracy;
        let reachable = ceiling(&profile, demand, 5).expect("a demand").expect("a ceiling");
        // The load that was drawn differs from the mean by less than this.
        assert!(reachable < bound + 1e-9 && mixed.accuracy() < reachable + 0.005, "{load}: {reachable}");
        assert!(mixed.accuracy() > 0.97 * bound, "{load}: {} of {bound}", mixed.accuracy());
    }
}

#[test]
fn misses_cost_more_beyond_one_in_a_thousand() {
    let of = |answered: u64, refused| {
        let accuracy_sum = 0.8 * answered as f64;
        Score { answered, refused, accuracy_sum, ..Score::default() }
    };
    let near = |score: &Score, worth: f64| assert!((score.worth() - worth).abs() < 1e-9, "{score:?}");
    near(&of(10_000, 0), 0.8);
    near(&of(9_995, 5), 0.8 * 0.9995 - 2.0 * 0.0005);
    near(&of(9_900, 100), 0.8 * 0.99 - 2.0 * 0.001 - 20.0 * 0.009);
    assert_eq!(of(0, 0).worth(), 0.0);
}

#[test]
fn a_plan_is_the_same_each_time() {
    let demand = Demand { load: 200.0, workers: 4, order: Order::NewestToo };
    let once = plan(&synthetic(), demand, QUICK).expect("a plan");
    let again = plan(&synthetic(), demand, QUICK).expect("a plan");
    assert_eq!(format!("{:?}", once.policy), format!("{:?}", again.policy));
    assert_eq!((once.accuracy, once.violations), (again.accuracy, again.violations));
}

#[test]
fn an_overload_is_shed_not_served_late() {
    let profile = synthetic();
    // 8 requests take 22 ms at best: 364 per second and worker.
    let demand = Demand { load: 1000.0, workers: 2, order: Order::Fifo };
    let found = plan(&profile, demand, QUICK).expect("a plan");
    assert_eq!(found.bound, None);
    assert_eq!(ceiling(&profile, demand, 1), Ok(None));
    let counted = Instant::from_nanos(1_000_000_000)..Instant::from_nanos(11_000_000_000);
    let arrivals = Poisson::new(1000.0, 9).take_while(|&at| at < counted.end + profile.slo());
    let score = trial(&profile, &found.policy, 2, arrivals, counted.clone());
    assert_eq!(score.late, 0);
    let served = score.answered as f64 / (score.answered + score.refused) as f64;
    assert!(served > 0.6, "{served} of at most 0.727");
}
