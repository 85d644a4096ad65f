//! Variants, tables that wish for any of them, and whole runs in which a selector chooses.

use rt_core::{
    Dispatch, LatencyProfile, MAX_PRICE, Manner, SelectTable, SelectTables, Selector, Variant, Workers,
};

use super::classes::classed;
use super::load::{Bench, Setup, ns, shield_of};
use super::{Dice, Harness, config};

/// The base, and up to four more variants; most are slower, some take no full batch.
pub(crate) fn variants(workers: &Workers, dice: &mut Dice) -> Vec<Variant> {
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
pub(crate) fn table(rate_per_s: f64, variants: usize, dice: &mut Dice) -> (SelectTable, (u64, Vec<Vec<u8>>)) {
    let (bin, bins) = (dice.within(1, 30), dice.within(1, 12) as usize);
    let wish = |dice: &mut Dice| dice.within(0, variants as u64 - 1) as u8;
    let rows: Vec<Vec<u8>> =
        (0..dice.within(1, 12)).map(|_| (0..bins).map(|_| wish(dice)).collect()).collect();
    let made = SelectTable::new(rate_per_s, ns(bin), bins, rows.concat()).expect("valid");
    (made, (bin, rows))
}

/// Any tables for any rates.
pub(crate) fn tables(variants: usize, dice: &mut Dice) -> Vec<SelectTable> {
    let mut rate = 0.0;
    let count = dice.within(0, 4);
    let mut one = |_| {
        rate += dice.within(1, 400) as f64 * 1e6;
        table(rate, variants, dice).0
    };
    let manners = [Manner::Plain, Manner::Forming, Manner::Sparing];
    let tables: Vec<_> = (0..count).map(&mut one).collect();
    let in_manner = |table: SelectTable| match manners.get(dice.within(0, 3) as usize) {
        Some(&manner) => table.in_manner(manner),
        None => prices(table.rate_per_s(), dice).0,
    };
    let mut tables: Vec<_> = tables.into_iter().map(in_manner).collect();
    // Some in batches of at most so many.
    for table in &mut tables {
        let count = dice.within(0, 1) * dice.within(1, 6);
        let sizes: Vec<u8> = (0..count).map(|_| dice.within(1, 5) as u8).collect();
        *table = table.clone().in_batches(sizes).expect("at least 1 each");
    }
    tables
}

/// A table of any shape with any prices of time, from nothing to all that there may be, and these: row by row.
pub(crate) fn prices(rate_per_s: f64, dice: &mut Dice) -> (SelectTable, Vec<Vec<f32>>) {
    let frees = dice.within(1, 4) as usize;
    let price = |dice: &mut Dice| match dice.within(0, 9) {
        0 => 0.0,
        1 => MAX_PRICE,
        // Batches take some nanoseconds here.
        _ => 1e3f32.powi(dice.within(0, 3) as i32) * dice.within(0, 1000) as f32,
    };
    let rows: Vec<Vec<f32>> =
        (0..dice.within(1, 12)).map(|_| (0..frees).map(|_| price(dice)).collect()).collect();
    (SelectTable::of_prices(rate_per_s, frees, rows.concat()).expect("valid"), rows)
}

/// Every other time for classes.
pub(crate) fn maybe_classed(selector: Selector, setup: &Setup, dice: &mut Dice) -> Selector {
    match dice.within(0, 1) {
        0 => selector,
        _ => classed(selector, setup.config.deadline.as_nanos(), dice),
    }
}

/// Batches take what their variant takes at most, or less. Tells each choice: when, variant, time.
pub(crate) fn run(
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

/// One worker, 2 a request or 9 with the better variant, due within 40.
pub(crate) fn pair() -> (Harness, Vec<Variant>) {
    let base = config(&[2], 1, 1, 40, Dispatch::Eager);
    let better = LatencyProfile::new(&[ns(9)]).expect("valid");
    let variants = vec![
        Variant { profile: base.workers[0].profile.clone(), accuracy: 0.5 },
        Variant { profile: better, accuracy: 0.9 },
    ];
    (Harness::new(base, |_, bound| bound), variants)
}
