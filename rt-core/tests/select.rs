//! Variants inside the shield: whatever a table wishes for, no promise breaks, and what is run is its definition.

mod harness;

use harness::classes::{classed, worth_of};
use harness::load::{Bench, Setup, guarded, ns, setup, shield_of};
use harness::{Dice, Harness, config};
use proptest::prelude::*;
use rt_core::{
    BatchView, Cause, ClassWorth, Decay, Dispatch, Instant, LEARNED_INPUTS, LatencyProfile, LearnedScale,
    LoadMonitor, Manner, Net, Outcome, Scheduler, SelectError, SelectTable, SelectTables, Selector, Shield,
    StreamSpec, Variant, VariantSelector, Workers,
};

/// The base, and up to four more variants; most are slower, some take no full batch.
fn variants(workers: &Workers, dice: &mut Dice) -> Vec<Variant> {
    let base = Variant { profile: workers.profile.clone(), accuracy: 0.5 };
    let more = (0..dice.within(0, 4)).map(|i| {
        let percent = dice.within(80, 400);
        let sizes = workers.profile.max_batch() as u64;
        let sizes = if dice.within(0, 3) == 0 { dice.within(1, sizes) } else { sizes };
        let time = |b: u64| ns((workers.profile.bound(b as usize).as_nanos() * percent / 100).max(1));
        let times: Vec<_> = (1..=sizes).map(time).collect();
        Variant { profile: LatencyProfile::new(&times).expect("valid"), accuracy: 0.6 + 0.1 * i as f64 }
    });
    [base].into_iter().chain(more).collect()
}

/// A table of any shape with any wishes, and these: row by row.
fn table(rate_per_s: f64, variants: usize, dice: &mut Dice) -> (SelectTable, (u64, Vec<Vec<u8>>)) {
    let (bin, bins) = (dice.within(1, 30), dice.within(1, 12) as usize);
    let wish = |dice: &mut Dice| dice.within(0, variants as u64 - 1) as u8;
    let rows: Vec<Vec<u8>> =
        (0..dice.within(1, 12)).map(|_| (0..bins).map(|_| wish(dice)).collect()).collect();
    let made = SelectTable::new(rate_per_s, ns(bin), bins, rows.concat()).expect("valid");
    (made, (bin, rows))
}

/// Any tables for any rates.
fn tables(variants: usize, dice: &mut Dice) -> Vec<SelectTable> {
    let mut rate = 0.0;
    let count = dice.within(0, 4);
    let mut one = |_| {
        rate += dice.within(1, 400) as f64 * 1e6;
        table(rate, variants, dice).0
    };
    let manners = [Manner::Plain, Manner::Forming, Manner::Sparing];
    let tables: Vec<_> = (0..count).map(&mut one).collect();
    tables.into_iter().map(|table| table.in_manner(manners[dice.within(0, 2) as usize])).collect()
}

/// The same, and who reads them.
fn selector(setup: &Setup, dice: &mut Dice) -> Selector {
    let variants = variants(&setup.config.workers[0], dice);
    let tables = tables(variants.len(), dice);
    let load = LoadMonitor::new(ns(dice.within(1, 300))).expect("valid");
    let selector = Selector::new(variants, tables, load).expect("valid");
    let selector = maybe_classed(selector, setup, dice);
    let capacity = setup.config.workers[0].capacity_per_s();
    if dice.within(0, 2) == 0 { selector.sparing(capacity) } else { selector }
}

/// Every other time for classes.
fn maybe_classed(selector: Selector, setup: &Setup, dice: &mut Dice) -> Selector {
    match dice.within(0, 1) {
        0 => selector,
        _ => classed(selector, setup.config.deadline.as_nanos(), dice),
    }
}

/// Wishes for anything, also for what is not there.
#[derive(Clone, Debug)]
struct Erratic(u64);

impl VariantSelector for Erratic {
    fn wish(&mut self, batch: &BatchView) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(batch.now.as_nanos() | 1);
        (self.0 >> (self.0 >> 59)) as usize
    }
}

/// Asks a network of any shape with any weights, some of them as large as they may be.
fn learned(setup: &Setup, dice: &mut Dice) -> Selector {
    let variants = variants(&setup.config.workers[0], dice);
    let classes = 3 * dice.within(0, 1) as usize;
    let mut widths = vec![LEARNED_INPUTS + classes];
    widths.extend((0..dice.within(0, 2)).map(|_| dice.within(1, 24) as usize));
    widths.push(variants.len());
    let weights: Vec<f32> = (0..Net::weights_of(&widths).expect("few"))
        .map(|_| (dice.within(0, 2_000_000) as f32 - 1e6) / [1.0, 1e3, 1e6][dice.within(0, 2) as usize])
        .collect();
    let net = Net::new(widths, weights).expect("valid");
    let scale = LearnedScale {
        requests: dice.within(1, 20) as usize,
        slack: ns(dice.within(1, 300)),
        rate_per_s: dice.within(1, 400) as f64 * 1e6,
        workers: dice.within(1, 8) as usize,
        classes,
    };
    let load = LoadMonitor::new(ns(dice.within(1, 300))).expect("valid");
    let selector = match dice.within(0, 1) {
        0 => Selector::learned(variants, net, scale, load).expect("valid"),
        _ => {
            let mut tables = tables(variants.len(), dice);
            tables.push(SelectTable::constant(0).in_manner(Manner::Learned));
            Selector::mixed(variants, tables, (net, scale), load).expect("valid")
        }
    };
    let selector = maybe_classed(selector, setup, dice);
    let capacity = setup.config.workers[0].capacity_per_s();
    if dice.within(0, 2) == 0 { selector.sparing(capacity) } else { selector }
}

/// Batches take what their variant takes at most, or less. Tells each choice: when, variant, time.
fn run(
    setup: &Setup,
    selector: Selector,
    mut spare: Option<SelectTables>,
) -> (Bench, Vec<(u64, usize, u64)>) {
    let mut bench = Bench::new(setup);
    bench.harness.timer_delay = setup.config.guard.as_nanos();
    bench.harness.scheduler.set_shield(Some(shield_of(setup, &setup.streams))).expect("made for it");
    bench.harness.scheduler.set_selector(Some(selector)).expect("made for it");
    let choices = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let told = std::rc::Rc::clone(&choices);
    bench.harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
        let (variant, size) = (scheduler.variant(worker), scheduler.batch(worker).len());
        let time = scheduler.selector().and_then(|s| s.time(variant, size)).expect("a time").as_nanos();
        assert_eq!(scheduler.granted(worker), ns(time.max(bound)));
        told.borrow_mut().push((now, variant, time));
        if let Some(spare) = &mut spare {
            scheduler.swap_tables(spare).expect("for its variants");
        }
        time
    }));
    bench.attack(setup, 4_000);
    bench.harness.longer = None;
    let choices = choices.take();
    (bench, choices)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_table_wishes_no_promise_breaks(setup in setup(), guard in 0u64..4) {
        let setup = guarded(setup, guard);
        let mut dice = Dice(setup.seed ^ 55);
        let selector = selector(&setup, &mut dice);
        let variants = selector.variants().len();
        let spare = SelectTables::new(tables(variants, &mut dice), variants).expect("valid");
        let (bench, _) = run(&setup, selector, Some(spare));
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert!(bench.harness.scheduler.shield().is_some());
    }

    #[test]
    fn whatever_a_network_wishes_no_promise_breaks(setup in setup(), guard in 0u64..4) {
        let setup = guarded(setup, guard);
        let mut dice = Dice(setup.seed ^ 58);
        let (bench, _) = run(&setup, learned(&setup, &mut dice), None);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert!(bench.harness.scheduler.shield().is_some());
    }

    /// A rule that is out of its senses: any number at all.
    #[test]
    fn whatever_a_rule_wishes_no_promise_breaks(setup in setup(), guard in 0u64..4) {
        let setup = guarded(setup, guard);
        let mut dice = Dice(setup.seed ^ 57);
        let variants = variants(&setup.config.workers[0], &mut dice);
        let selector = Selector::of(variants, Erratic(setup.seed)).expect("valid");
        let selector = maybe_classed(selector, &setup, &mut dice);
        let (bench, choices) = run(&setup, selector, None);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert!(!choices.is_empty());
    }

    /// The same run without a selector: the caller reads the table, tries the variants from the wish down against
    /// what the shield allows, and prolongs the batch itself.
    #[test]
    fn the_choice_is_the_most_accurate_that_the_shield_allows(setup in setup(), guard in 0u64..4) {
        let setup = guarded(setup, guard);
        let mut dice = Dice(setup.seed ^ 56);
        let variants = variants(&setup.config.workers[0], &mut dice);
        let (table, (bin, rows)) = table(f64::INFINITY, variants.len(), &mut dice);
        let selector = Selector::new(variants.clone(), [table.clone()], LoadMonitor::default()).expect("valid");
        let same = SelectTables::new([table], variants.len()).expect("valid");
        let (bench, choices) = run(&setup, selector, Some(same));

        let mut again = Bench::new(&setup);
        again.harness.timer_delay = guard;
        again.harness.scheduler.set_shield(Some(shield_of(&setup, &setup.streams))).expect("made for it");
        let mut expected = choices.into_iter();
        again.harness.longer = Some(Box::new(move |scheduler: &mut Scheduler, now, worker, bound| {
            let at = Instant::from_nanos(now);
            let batch = scheduler.batch(worker);
            let slack = batch.iter().map(|r| r.deadline.as_nanos().saturating_sub(guard + now)).min();
            let requests = batch.len() + scheduler.waiting();
            let row = &rows[requests.min(rows.len()) - 1];
            let wish = row[(slack.expect("a request") / bin).min(row.len() as u64 - 1) as usize];
            let (size, longest) = (batch.len(), scheduler.longest(at, worker));
            let fits = |v: &usize| {
                let profile = &variants[*v].profile;
                size <= profile.max_batch() && profile.bound(size) <= longest
            };
            let variant = (0..=usize::from(wish)).rev().find(fits).expect("the base fits");
            let time = variants[variant].profile.bound(size);
            assert_eq!(expected.next(), Some((now, variant, time.as_nanos())));
            assert_eq!(scheduler.prolong(at, worker, time), Ok(()));
            assert!(time <= longest && longest >= ns(bound));
            time.as_nanos()
        }));
        again.attack(&setup, 4_000);
        prop_assert_eq!(again.harness.batches, bench.harness.batches);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    /// The same with classes: of what the shield allows and takes no longer than the slowest up to the wish, the variant is run
    /// that is worth most to this batch, by its definition.
    #[test]
    fn with_classes_the_choice_is_what_is_worth_most_of_what_the_shield_allows(setup in setup(), guard in 0u64..4) {
        let setup = guarded(setup, guard);
        let mut dice = Dice(setup.seed ^ 59);
        let variants = variants(&setup.config.workers[0], &mut dice);
        let wish = dice.within(0, variants.len() as u64 - 1) as u8;
        let constant = [SelectTable::constant(wish)];
        let selector = Selector::new(variants.clone(), constant, LoadMonitor::default()).expect("valid");
        let selector = classed(selector, setup.config.deadline.as_nanos(), &mut dice);
        let classes = selector.classes().to_vec();
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
            let slowest = (0..=usize::from(wish)).filter_map(time).max().expect("the base").min(longest);
            let fits = |v: &usize| *v == 0 || time(*v).is_some_and(|time| time <= slowest);
            let worth = |v: usize| worth_of(&classes, v, &batch, (now, time(v).expect("fits").as_nanos()));
            let all: Vec<usize> = (0..if wish == 0 { 1 } else { variants.len() }).filter(fits).collect();
            let most = all.iter().map(|&v| worth(v)).fold(0.0, f64::max);
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

/// One worker, at most three at once, in 25: 10 with the base, 20 with the other variant. The first of four that wait has 10 left.
#[test]
fn what_a_variant_is_too_late_for_is_left_out_of_a_batch_that_is_formed_for_it() {
    let formed = |manner| {
        let one = config(&[10], 1, 1, 25, Dispatch::Eager);
        let profile = LatencyProfile::new(&[10; 3].map(ns)).expect("valid");
        let workers = vec![Workers { count: 1, batch: 3, profile }];
        let base = rt_core::SchedulerConfig { workers, ..one };
        let better = LatencyProfile::new(&[20; 3].map(ns)).expect("valid");
        let profiles = [base.workers[0].profile.clone(), better];
        let variants = profiles.into_iter().zip([0.5, 0.7]);
        let variants: Vec<_> = variants.map(|(profile, accuracy)| Variant { profile, accuracy }).collect();
        let mut scheduler = Scheduler::new(base).expect("a configuration");
        let shield = Shield::new(&scheduler.config().workers[0], ns(25), []).expect("in range");
        scheduler.set_shield(Some(shield)).expect("made for it");
        let table = SelectTable::constant(1).in_manner(manner);
        let selector = Selector::new(variants, [table], LoadMonitor::default()).expect("valid");
        scheduler.set_selector(Some(selector)).expect("made for it");
        let at = |t| Instant::ZERO + ns(t);
        let id = scheduler.add_stream(at(0), StreamSpec::best_effort()).expect("room");
        for t in [0, 5, 15, 16, 17] {
            assert_eq!(scheduler.handle_arrival(at(t), rt_core::Arrival::new(id, t, at(t))), None);
            let started = matches!(scheduler.poll(at(t)), rt_core::Action::Start { worker: 0 });
            assert_eq!((started, scheduler.variant(0)), (t == 0, 1));
        }
        scheduler.handle_completion(at(20), 0, rt_core::Ran::Done(ns(20)));
        while let rt_core::Action::Resolve(_) = scheduler.poll(at(20)) {}
        let taken: Vec<u64> = scheduler.batch(0).iter().map(|request| request.token).collect();
        (taken, scheduler.variant(0))
    };
    assert_eq!(formed(Manner::Plain), (vec![5, 15, 16], 0), "the base alone is soon enough");
    assert_eq!(formed(Manner::Forming), (vec![15, 16, 17], 1));
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

/// The tests above say something only if slower variants run, and are held back, often enough.
#[test]
fn slower_variants_run_and_are_held_back() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut all, mut slower, mut less) = (0, 0, 0);
    for _ in 0..200 {
        let setup = setup().new_tree(&mut runner).expect("a setup").current();
        let variants = variants(&setup.config.workers[0], &mut Dice(setup.seed ^ 55));
        let (best, time) = (variants.len() - 1, setup.config.workers[0].batch_time().as_nanos());
        let greedy = Selector::greedy(variants).expect("valid");
        let same = SelectTables::new(greedy.tables(), best + 1).expect("valid");
        let (_, choices) = run(&setup, greedy, Some(same));
        all += choices.len();
        slower += choices.iter().filter(|&&(_, _, length)| length > time).count();
        less += choices.iter().filter(|&&(_, variant, _)| variant < best).count();
    }
    println!("of {all} batches {slower} take longer than P, and {less} less than the best variant");
    assert!(slower * 10 > all && less * 10 > all, "{slower} and {less} of {all}");
}

/// One worker, 2 a request or 9 with the better variant, due within 40.
fn pair() -> (Harness, Vec<Variant>) {
    let base = config(&[2], 1, 1, 40, Dispatch::Eager);
    let better = LatencyProfile::new(&[ns(9)]).expect("valid");
    let variants = vec![
        Variant { profile: base.workers[0].profile.clone(), accuracy: 0.5 },
        Variant { profile: better, accuracy: 0.9 },
    ];
    (Harness::new(base, |_, bound| bound), variants)
}

#[test]
fn without_a_shield_and_in_safe_mode_the_base_answers() {
    let (mut bench, variants) = pair();
    let shield = Shield::new(&bench.scheduler.config().workers[0], ns(40), []).expect("in range");
    bench.scheduler.set_selector(Some(Selector::greedy(variants).expect("valid"))).expect("made for it");
    let id = bench.add(StreamSpec::best_effort());
    let variant = |bench: &mut Harness| {
        bench.arrive(id);
        let chosen = (bench.scheduler.variant(0), bench.scheduler.granted(0));
        bench.drain();
        chosen
    };
    assert_eq!(variant(&mut bench), (0, ns(2)));
    bench.scheduler.set_shield(Some(shield)).expect("made for it");
    bench.longer = Some(Box::new(|scheduler, _, worker, _| scheduler.granted(worker).as_nanos()));
    assert_eq!(variant(&mut bench), (1, ns(9)));
    let (now, evidence) = (Instant::from_nanos(bench.now), rt_core::Evidence::default());
    bench.scheduler.raise_safe_mode(now, Cause::ProfileStale, evidence, now);
    assert_eq!(variant(&mut bench), (0, ns(2)));
    bench.scheduler.clear_safe_mode(now);
    assert_eq!(variant(&mut bench), (1, ns(9)));
    bench.scheduler.set_selector(None).expect("nothing");
    assert_eq!(variant(&mut bench).1, ns(2));
    assert_eq!(bench.scheduler.granted(0), ns(0), "nothing runs");
}

/// A sparing selector leaves what waits, promised or not, the time of a batch; a greedy one does not.
#[test]
fn what_waits_is_not_given_up_for_accuracy() {
    for (sparing, missed) in [(false, 3), (true, 0)] {
        // Four at once, due within 40: after one that takes 39, there is no time for another.
        let base = config(&[2], 1, 1, 40, Dispatch::Eager);
        let slow = LatencyProfile::new(&[ns(39)]).expect("valid");
        let variants = vec![
            Variant { profile: base.workers[0].profile.clone(), accuracy: 0.5 },
            Variant { profile: slow, accuracy: 0.9 },
        ];
        let mut bench = Harness::new(base, |_, bound| bound);
        let shield = Shield::new(&bench.scheduler.config().workers[0], ns(40), []).expect("in range");
        bench.scheduler.set_shield(Some(shield)).expect("made for it");
        let greedy = Selector::greedy(variants).expect("valid");
        let selector = if sparing { greedy.sparing(f64::INFINITY) } else { greedy };
        bench.scheduler.set_selector(Some(selector)).expect("made for it");
        bench.longer = Some(Box::new(|scheduler, _, worker, _| scheduler.granted(worker).as_nanos()));
        let id = bench.add(StreamSpec::best_effort());
        for _ in 0..4 {
            bench.arrive_unpolled(id);
        }
        bench.settle();
        bench.drain();
        let served = bench.outcomes(id);
        assert_eq!(served.iter().filter(|hit| !**hit).count(), missed, "{sparing}: {served:?}");
    }
}

/// Where more comes than the base could well answer, it is left to itself.
#[test]
fn near_its_capacity_the_base_is_left_to_itself() {
    let (_, variants) = pair();
    let mut selector = Selector::greedy(variants).expect("valid").sparing(100.0);
    let at = |i: u64| Instant::ZERO + rt_core::Span::from_micros(i * 11_400);
    // 88 a second, and then some more.
    (0..100).for_each(|i| selector.observe(at(i)));
    let batch = BatchView::alike(at(99), 1, 0, ns(40));
    assert_eq!(selector.wish(&batch), 1);
    (0..5).for_each(|_| selector.observe(at(99)));
    assert_eq!(selector.wish(&batch), 0);
}

/// The time granted is what the service monitor expects, no more and no less.
#[test]
fn a_variant_that_takes_longer_than_its_bound_is_seen() {
    for (time, causes) in [(9, vec![]), (10, vec![Cause::ServiceOverrun])] {
        let (mut bench, variants) = pair();
        let shield = Shield::new(&bench.scheduler.config().workers[0], ns(40), []).expect("in range");
        bench.scheduler.set_shield(Some(shield)).expect("made for it");
        bench.scheduler.set_selector(Some(Selector::greedy(variants).expect("valid"))).expect("made for it");
        bench.longer = Some(Box::new(move |_, _, _, _| time));
        let id = bench.add(StreamSpec::best_effort());
        bench.arrive(id);
        bench.drain();
        assert_eq!(bench.causes().into_iter().map(|(_, cause)| cause).collect::<Vec<_>>(), causes);
        assert!(bench.resolutions.iter().all(|(_, r)| r.outcome == Outcome::Served));
    }
}

/// Tables that are exchanged are read from the next batch on, and what nobody selects by is refused.
#[test]
fn tables_are_taken_over_between_two_batches() {
    let (mut bench, variants) = pair();
    let table = |wish| SelectTable::new(f64::INFINITY, ns(1), 1, [wish]).expect("valid");
    let mut fresh = SelectTables::new([table(1)], 2).expect("valid");
    assert_eq!(bench.scheduler.swap_tables(&mut fresh), Err(SelectError::Nobody));
    let shield = Shield::new(&bench.scheduler.config().workers[0], ns(40), []).expect("in range");
    bench.scheduler.set_shield(Some(shield)).expect("made for it");
    let selector = Selector::new(variants, [], LoadMonitor::default()).expect("valid");
    bench.scheduler.set_selector(Some(selector)).expect("made for it");
    bench.longer = Some(Box::new(|scheduler, _, worker, _| scheduler.granted(worker).as_nanos()));
    let id = bench.add(StreamSpec::best_effort());
    let mut seen = Vec::new();
    for _ in 0..4 {
        bench.arrive(id);
        seen.push(bench.scheduler.variant(0));
        // While the batch runs.
        bench.scheduler.swap_tables(&mut fresh).expect("for two variants");
        assert_eq!(bench.scheduler.variant(0), *seen.last().expect("one"));
        bench.drain();
    }
    assert_eq!(seen, [0, 1, 0, 1]);
}

#[test]
fn a_selector_for_other_workers_is_refused() {
    let (mut bench, mut variants) = pair();
    variants.remove(0);
    let other = Selector::greedy(variants).expect("valid");
    assert_eq!(bench.scheduler.set_selector(Some(other)), Err(SelectError::Base));
    let (_, variants) = pair();
    let mut mixed = config(&[2], 1, 1, 40, Dispatch::Eager);
    let kind = mixed.workers[0].clone();
    mixed.workers.push(kind);
    let mut mixed = Scheduler::new(mixed).expect("a configuration");
    let selector = Selector::greedy(variants).expect("valid");
    assert_eq!(mixed.set_selector(Some(selector)), Err(SelectError::Kinds { kinds: 2 }));
}
