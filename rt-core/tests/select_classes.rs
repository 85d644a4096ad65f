//! Classes of requests inside the shield: whatever answers are worth, no promise breaks, and the variant that is run is worth most.

use proptest::prelude::*;
use rt_core::{
    Cause, ClassWorth, Decay, Dispatch, Instant, LatencyProfile, LoadMonitor, Outcome, Scheduler,
    SelectTable, Selector, Shield, StreamSpec, Variant, Workers,
};

use crate::harness::classes::{classed, worth_of};
use crate::harness::load::{Bench, guarded, ns, setup, shield_of};
use crate::harness::select::{pair, prices, run, variants};
use crate::harness::{Dice, Harness, config};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    /// The same with classes: of what the shield allows and takes no longer than the slowest up to the wish, the variant is run
    /// that is worth most to this batch, by its definition; with prices of time, beyond what its own costs.
    #[test]
    fn with_classes_the_choice_is_what_is_worth_most_of_what_the_shield_allows(setup in setup(), guard in 0u64..4) {
        let setup = guarded(setup, guard);
        let mut dice = Dice(setup.seed ^ 59);
        let variants = variants(&setup.config.workers[0], &mut dice);
        let wish = dice.within(0, variants.len() as u64 - 1) as u8;
        let (priced, rows) = prices(f64::INFINITY, &mut dice);
        let weighs = dice.within(0, 1) == 1;
        let (table, wish) =
            if weighs { (priced, variants.len() - 1) } else { (SelectTable::constant(wish), usize::from(wish)) };
        let selector = Selector::new(variants.clone(), [table], LoadMonitor::default()).expect("valid");
        let selector = classed(selector, setup.config.deadline.as_nanos(), &mut dice);
        let (classes, workers) = (selector.classes().to_vec(), setup.config.workers[0].count);
        let (bench, choices) = run(&setup, selector, None);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        prop_assert_eq!(bench.harness.causes(), []);

        let mut again = Bench::new(&setup);
        again.harness.timer_delay = guard;
        again.harness.scheduler.set_shield(Some(shield_of(&setup, &setup.streams))).expect("made for it");
        let mut expected = choices.into_iter();
        again.harness.longer = Some(Box::new(move |scheduler: &mut Scheduler, now, worker, _| {
            let at = Instant::from_nanos(now);
            let (batch, longest) = (scheduler.batch(worker).to_vec(), scheduler.longest(at, worker));
            let time = |v: usize| {
                let profile = &variants[v].profile;
                (batch.len() <= profile.max_batch()).then(|| profile.bound(batch.len()))
            };
            let slowest = (0..=wish).filter_map(time).max().expect("the base").min(longest);
            let fits = |v: &usize| *v == 0 || time(*v).is_some_and(|time| time <= slowest);
            let free = (0..workers).filter(|&other| scheduler.granted(other) == ns(0)).count();
            let row = &rows[(batch.len() + scheduler.waiting()).min(rows.len()) - 1];
            let price = if weighs { f64::from(row[free.min(row.len() - 1)]) } else { 0.0 };
            let worth = |v: usize| {
                let time = time(v).expect("fits");
                worth_of(&classes, v, &batch, (now, time.as_nanos())) - price * time.as_secs_f64()
            };
            let all: Vec<usize> =
                (0..if wish == 0 && !weighs { 1 } else { variants.len() }).filter(fits).collect();
            let most = all.iter().map(|&v| worth(v)).fold(f64::NEG_INFINITY, f64::max);
            let (then, variant, took) = expected.next().expect("a choice");
            assert!(all.contains(&variant), "{variant} of {all:?}");
            assert_eq!((then, took), (now, time(variant).expect("fits").as_nanos()));
            assert_eq!(worth(variant), most, "{variant} of {all:?}");
            assert_eq!(scheduler.prolong(at, worker, ns(took)), Ok(()));
            took
        }));
        again.attack(&setup, 4_000);
        prop_assert_eq!(again.harness.batches, bench.harness.batches);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    /// Classes with deadlines of their own: what is mandatory is answered by the service's, whatever is selected, and missed
    /// only where its class wanted it sooner.
    #[test]
    fn whatever_classes_want_sooner_all_that_is_mandatory_is_answered(setup in setup(), guard in 0u64..4) {
        let setup = guarded(setup, guard);
        let (mut dice, deadline) = (Dice(setup.seed ^ 60), setup.config.deadline.as_nanos());
        let variants = variants(&setup.config.workers[0], &mut dice);
        let selector = classed(Selector::greedy(variants).expect("valid"), deadline, &mut dice);
        let mut bench = Bench::new(&setup);
        bench.harness.timer_delay = guard;
        bench.harness.wanted = (0..dice.within(1, 8)).map(|_| dice.within(0, deadline + 3)).collect();
        bench.harness.scheduler.set_shield(Some(shield_of(&setup, &setup.streams))).expect("made for it");
        bench.harness.scheduler.set_selector(Some(selector)).expect("made for it");
        bench.harness.longer = Some(Box::new(|scheduler, _, worker, _| scheduler.granted(worker).as_nanos()));
        bench.attack(&setup, 4_000);
        for missed in bench.harness.mandatory_misses() {
            prop_assert_eq!(missed.outcome, Outcome::Missed(rt_core::MissReason::Late));
            let (at, _) = bench.harness.resolutions.iter().find(|(_, r)| *r == missed).expect("resolved");
            prop_assert!(missed.request.wanted.as_nanos() < *at && *at <= missed.request.deadline.as_nanos());
        }
        prop_assert!(bench.harness.causes().iter().all(|(_, cause)| *cause == Cause::ConstraintViolated));
        prop_assert_eq!(bench.harness.scheduler.safe_mode().breaches(), 0);
    }
}

/// One worker, 2 a request or 9 with either of two more variants, each of which one class is better off with.
#[test]
fn a_batch_has_the_variant_that_its_own_mix_is_worth_most_with() {
    let base = config(&[18], 4, 1, 400, Dispatch::Eager);
    let base = rt_core::SchedulerConfig {
        workers: vec![Workers {
            profile: LatencyProfile::new(&[2, 2, 2, 2].map(ns)).expect("valid"),
            ..base.workers[0].clone()
        }],
        ..base
    };
    let better = LatencyProfile::new(&[9, 9, 9, 9].map(ns)).expect("valid");
    let profiles = [base.workers[0].profile.clone(), better.clone(), better];
    let variants: Vec<_> = profiles
        .into_iter()
        .zip([0.5, 0.6, 0.7])
        .map(|(profile, accuracy)| Variant { profile, accuracy })
        .collect();
    let class = |worth: [f64; 3], deadline| ClassWorth {
        worth: worth.into(),
        deadline: ns(deadline),
        decay: Decay::Hard,
    };
    // To the last, whose answers are to be there within 5, the slower ones are too late.
    let classes = [class([0.5, 0.9, 0.5], 400), class([0.5, 0.2, 0.9], 400), class([3.0, 9.0, 9.0], 5)];
    let mut bench = Harness::new(base, |_, bound| bound);
    let shield = Shield::new(&bench.scheduler.config().workers[0], ns(400), []).expect("in range");
    bench.scheduler.set_shield(Some(shield)).expect("made for it");
    let selector = Selector::greedy(variants).expect("valid").for_classes(classes).expect("valid");
    bench.scheduler.set_selector(Some(selector)).expect("made for it");
    let id = bench.add(StreamSpec::best_effort());
    let mut chosen = |classes: &[u8]| {
        let now = Instant::from_nanos(bench.now);
        let mut variant = None;
        for &class in classes {
            let arrival = rt_core::Arrival::new(id, 0, now).of_class(class);
            assert_eq!(bench.scheduler.handle_arrival(now, arrival), None);
        }
        while let rt_core::Action::Start { worker } = bench.scheduler.poll(now) {
            assert_eq!(bench.scheduler.batch(worker).len(), classes.len());
            variant = Some(bench.scheduler.variant(worker));
            bench.now += bench.scheduler.granted(worker).as_nanos();
            let end = Instant::from_nanos(bench.now);
            bench.scheduler.handle_completion(end, worker, rt_core::Ran::Done(ns(1)));
            while let rt_core::Action::Resolve(_) = bench.scheduler.poll(end) {}
        }
        bench.now += 1;
        variant.expect("a batch")
    };
    assert_eq!([&[0][..], &[1], &[2], &[0, 0, 1], &[0, 1, 1]].map(&mut chosen), [1, 2, 0, 1, 2]);
    // What is none of them counts as one of the first.
    assert_eq!([&[9][..], &[1, 2], &[1, 1, 1, 2]].map(&mut chosen), [1, 0, 0]);
}

#[test]
fn classes_outside_their_range_are_refused() {
    let (_, variants) = pair();
    let selector = || Selector::greedy(variants.clone()).expect("valid");
    let class = |worth: &[f64]| ClassWorth { worth: worth.into(), deadline: ns(40), decay: Decay::Hard };
    let text = |classes: Vec<ClassWorth>| {
        selector().for_classes(classes).map(drop).expect_err("refused").to_string()
    };
    assert_eq!(text(vec![]), "number of classes = 0 is outside 1..=16");
    assert_eq!(text(vec![class(&[0.5, 0.5]); 17]), "number of classes = 17 is outside 1..=16");
    assert_eq!(text(vec![class(&[0.5])]), "variants that a class knows the worth of = 1 is outside 2..=2");
    let worth = text(vec![class(&[0.5, 0.5]), class(&[0.5, f64::NAN])]);
    assert_eq!(worth, "class[1].worth[1] = NaN: must be in 0..=1000000");
    let decay = Decay::Step { part: 2.0, cutoff: 0.5 };
    let decay = text(vec![ClassWorth { decay, ..class(&[0.5, 0.5]) }]);
    assert_eq!(decay, "class[0].decay is outside its range");
}
