//! Routers: the workers against arithmetic, what decays, and that training is repeatable and learns.

use super::*;

/// The system of the experiments, which is that of Jha et al. as far as they tell it.
fn setting(decay: Decay) -> Setting {
    let model = |name: &str, step_ms, request_ms| Model { name: name.to_owned(), step_ms, request_ms };
    let class = |name: &str, small, medium| Class {
        name: name.to_owned(),
        deadline_ms: 40.0,
        accuracy: vec![small, medium, 1.0],
    };
    Setting {
        workers: 4,
        tokens: 128.0,
        models: vec![model("small", 3.0, 0.5), model("medium", 6.0, 1.1), model("large", 22.0, 4.4)],
        classes: vec![
            class("hard", 0.47, 0.8),
            class("easy", 0.81, 0.97),
            class("soft", 0.83, 0.94),
            class("odd", 0.75, 0.89),
        ],
        decay,
    }
}

fn run(setting: &Setting, load: Load, requests: usize, router: &mut dyn Router) -> Tally {
    let mut tally = Tally::new(setting, requests);
    let arrivals = Arrivals::new(load, Mix::even(setting.classes.len()), 7);
    play(setting, arrivals, requests, router, |end| tally.ended(setting, end));
    tally
}

#[test]
fn requests_that_share_a_worker_slow_one_another_down() {
    let setting = Setting { workers: 1, tokens: 10.0, ..setting(Decay::Hard) };
    // At 0 and at 132 ms, when the first has 5 of its 10 tokens; then a step takes 30.8 ms for both.
    let arrivals = [0.0, 0.132].map(|at| Coming { at, class: 0, rate: 1.0 });
    let mut ends = Vec::new();
    play(&setting, arrivals.into_iter(), 2, &mut Static(2), |end| ends.push((end.request, end.token_ms)));
    let told: Vec<(usize, i64)> = ends.iter().map(|(i, ms)| (*i, (ms * 10.0).round() as i64)).collect();
    // The first: 5 steps of 26.4 ms and 5 of 30.8; the second: 5 of 30.8 and 5 of 26.4.
    assert_eq!(told, [(0, 286), (1, 286)]);
    assert_eq!(setting.round_ms(&[2, 0, 1]), 4.0 + 26.4);
    assert_eq!((setting.largest(0), setting.largest(1), setting.largest(2)), (74, 30, 4));
}

#[test]
fn every_decay_falls_from_all_to_nothing() {
    let part = |decay: &Decay, late_ms: f64| (decay.part(40.0 + late_ms, 40.0) * 1e6).round() / 1e6;
    let linear = Decay::Linear { per_ms: 0.01, cutoff: 0.1 };
    assert_eq!([0.0, 3.0, 4.0, 4.1].map(|late| part(&linear, late)), [1.0, 0.97, 0.96, 0.0]);
    let step = Decay::Step { part: 0.5, cutoff: 0.1 };
    assert_eq!([0.0, 0.1, 4.0, 4.1].map(|late| part(&step, late)), [1.0, 0.5, 0.5, 0.0]);
    let points = Decay::Points(vec![(0.1, 0.8), (0.3, 0.2)]);
    assert_eq!([0.0, 2.0, 4.0, 8.0, 12.1].map(|late| part(&points, late)), [1.0, 0.9, 0.8, 0.5, 0.0]);
    assert_eq!([0.0, 0.1].map(|late| part(&Decay::Hard, late)), [1.0, 0.0]);
    let wrong = setting(Decay::Points(vec![(0.1, 0.8), (0.05, 0.2)])).check().expect_err("falls back");
    assert_eq!(wrong.to_string(), "decay.points[1][0] = 0.05: must be in 0.1..=100");
}

#[test]
fn every_refusal_names_field_value_and_limit() {
    let refused = |setting: Setting| setting.check().expect_err("refused").to_string();
    let sound = || setting(Decay::Hard);
    assert_eq!(sound().check(), Ok(()));
    assert_eq!(refused(Setting { workers: 0, ..sound() }), "workers = 0: must be in 1..=64");
    assert_eq!(refused(Setting { tokens: f64::NAN, ..sound() }), "tokens = NaN: must be in 1..=100000");
    let mut fewer = sound();
    fewer.classes[2].accuracy.pop();
    assert_eq!(refused(fewer), "number of classes[2].accuracy = 2: must be in 3..=3");
    let load = Load::Redrawn { ranges: vec![(1.0, 3.0, 2.0)], requests: 5.0, seconds: 0.0 };
    assert_eq!(load.check().expect_err("refused").to_string(), "ranges[0][2] = 2: must be in 3..=10000");
    let mix = Mix { shares: vec![0.0; 4], shift: None };
    assert_eq!(
        mix.check(4).expect_err("refused").to_string(),
        "sum of mix = 0: must be in 0.000001..=1000000000"
    );
}

#[test]
fn what_comes_has_the_rate_and_the_mix_that_are_asked_for() {
    let mix = Mix { shares: vec![1.0, 3.0], shift: Some((20_000, vec![0.0, 1.0])) };
    let coming: Vec<Coming> = Arrivals::new(Load::Steady(50.0), mix, 3).take(40_000).collect();
    assert!((coming[39_999].at - 800.0).abs() < 20.0, "{}", coming[39_999].at);
    assert!(coming.iter().all(|one| one.rate == 50.0));
    let first = coming[..20_000].iter().filter(|one| one.class == 0).count();
    assert!((4_700..5_300).contains(&first), "{first}");
    assert!(coming[20_000..].iter().all(|one| one.class == 1));
    // Redrawn: a tenth of the draws is 50 times as high for as long, so 5.6 times as much comes then.
    let load =
        Load::Redrawn { ranges: vec![(0.9, 1.0, 1.0), (0.1, 50.0, 50.0)], requests: 0.0, seconds: 20.0 };
    let coming: Vec<Coming> = Arrivals::new(load, Mix::even(1), 3).take(2_000_000).collect();
    let rate = 2e6 / coming[1_999_999].at;
    assert!((rate / 5.9 - 1.0).abs() < 0.15, "{rate}");
    // What is told is what the last five say.
    let told = 5.0 / (coming[105].at - coming[100].at);
    assert!((coming[105].rate / told - 1.0).abs() < 1e-9);
}

#[test]
fn the_planned_router_is_never_far_below_the_best_of_one_model_and_above_between_two() {
    let setting = setting(Decay::Hard);
    let planned = Planned::new(&setting, &[1.0; 4], (0.25, 48.0), 1.1).expect("few states");
    for (rate, above) in
        [(0.5, 0.0), (2.0, -0.01), (4.0, 0.02), (8.0, 0.0), (24.0, 0.1), (32.0, 0.05), (48.0, 0.0)]
    {
        let of = |router: &mut dyn Router| run(&setting, Load::Steady(rate), 4_000, router).mean();
        let alone = (0..3).map(|model| of(&mut Static(model))).fold(0.0, f64::max);
        let told = of(&mut &planned);
        assert!(told >= alone + above - 1e-3, "at {rate}/s: {told} against {alone}");
    }
}

#[test]
fn training_is_repeatable_and_learns() {
    let setting = setting(Decay::Hard);
    let training = Training { hidden: vec![24], episodes: 60, steps: 100, batch: 32, ..Training::default() };
    let trained = train(&setting, &Training { episodes: 4, ..training.clone() });
    let again = train(&setting, &Training { episodes: 4, ..training.clone() });
    assert_eq!(trained.net, again.net);
    let trained = train(&setting, &training);
    for rate in [4.0, 24.0] {
        let of = |router: &mut dyn Router| run(&setting, Load::Steady(rate), 4_000, router).mean();
        let (learned, large) = (of(&mut trained.router()), of(&mut Static(2)));
        assert!(learned > large + 0.1, "at {rate}/s: {learned} against {large}");
    }
}
