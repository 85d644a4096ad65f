//! Variants inside the shield: whatever a table wishes for, no promise breaks, and what is run is its definition.

use proptest::prelude::*;
use rt_core::{
    BatchView, Instant, LEARNED_INPUTS, LearnedScale, LoadMonitor, Manner, Net, Scheduler, SelectTable,
    SelectTables, Selector, VariantSelector,
};

use crate::harness::Dice;
use crate::harness::load::{Bench, Setup, guarded, ns, setup, shield_of};
use crate::harness::select::{maybe_classed, run, table, tables, variants};

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
