//! Selection against each variant alone, and the tables that come of it.

use rt_core::{ClassWorth, Decay, LatencyProfile, LoadMonitor, Selector, Span, Variant};
use virtual_time::Poisson;

use super::*;

fn variant(accuracy: f64, ms: &[f64]) -> Variant {
    let times: Vec<_> = ms.iter().map(|ms| Span::from_nanos((ms * 1e6) as u64)).collect();
    Variant { profile: LatencyProfile::new(&times).expect("a profile"), accuracy }
}

/// Three variants for batches of up to 4, the last of which takes 2 at most, within 100 ms.
fn inputs(workers: usize) -> Inputs {
    let variants = vec![
        variant(0.6, &[8.0, 10.0, 12.0, 14.0]),
        variant(0.75, &[20.0, 26.0, 32.0, 38.0]),
        variant(0.9, &[40.0, 62.0]),
    ];
    Inputs {
        variants,
        latency: Span::from_millis(100),
        workers,
        batch: 4,
        max_miss: 1e-3,
        classes: Vec::new(),
    }
}

const LOADS: [f64; 5] = [5.0, 20.0, 50.0, 100.0, 200.0];

#[test]
fn selection_is_worth_at_least_the_best_variant_alone() {
    for workers in [1, 2] {
        let inputs = inputs(workers);
        let mut gained = 0.0f64;
        for planned in plan(&inputs, &LOADS.map(|load| load * workers as f64)).expect("tables") {
            let (best, alone) = planned.best_alone(inputs.max_miss).expect("three");
            let (found, load) = (planned.expected, planned.rate_per_s);
            // Each variant alone also forms its own batches.
            let better = alone.betters(found, inputs.max_miss);
            let close = found.missed <= inputs.max_miss && found.right() + 1e-3 > alone.right();
            assert!(!better || close, "{load}: {found:?} for {best}, {alone:?}");
            assert!(found.accuracy >= alone.accuracy - inputs.max_miss, "{load}: {found:?} for {alone:?}");
            gained = gained.max(found.accuracy - alone.accuracy);
        }
        assert!(gained > 0.05, "{workers}: {gained}");
    }
}

/// A full batch of it would be late by itself, two requests are not.
#[test]
fn a_variant_whose_full_batch_is_late_is_tried_with_smaller_ones() {
    let mut inputs = inputs(2);
    inputs.variants[2] = variant(0.9, &[40.0, 62.0, 90.0, 120.0]);
    let planned = plan(&inputs, &[5.0]).expect("tables");
    assert!(planned[0].alone[2].is_some_and(|alone| alone.missed < 1e-3), "{:?}", planned[0].alone);
}

#[test]
fn tables_are_read_by_the_scheduler() {
    for workers in [1, 3] {
        let inputs = inputs(workers);
        let planned = plan(&inputs, &LOADS).expect("tables");
        let tables: Vec<_> = planned.iter().map(|p| p.table.clone()).collect();
        Selector::new(inputs.variants.clone(), tables, LoadMonitor::default())
            .expect("they fit the variants");
        // What is there to lose when so little comes?
        assert_eq!(planned[0].table.wish(1, inputs.latency.saturating_sub(Span::from_nanos(1))), 2);
    }
}

#[test]
fn more_slack_for_what_fits_a_batch_is_never_less_accurate() {
    let inputs = inputs(1);
    for planned in plan(&inputs, &LOADS).expect("tables") {
        let rows = planned.table.wishes().chunks(planned.table.columns());
        for (n, row) in rows.take(inputs.batch).enumerate() {
            assert!(row.is_sorted(), "{}: {} wait: {row:?}", planned.rate_per_s, n + 1);
        }
    }
}

/// With other arrivals of the same load.
#[test]
fn what_is_expected_happens() {
    for (workers, load) in [(1, 30.0), (1, 120.0), (2, 60.0), (2, 240.0), (4, 480.0)] {
        let inputs = inputs(workers);
        let planned = &plan(&inputs, &[load]).expect("tables")[0];
        let table = planned.table.clone().up_to(f64::INFINITY).expect("above 0");
        let selector =
            Selector::new(inputs.variants.clone(), [table], LoadMonitor::default()).expect("valid");
        let arrivals = Poisson::new(planned.rate_per_s, 7).take(200_000);
        let Expected { accuracy, missed } = inputs.tried(selector, arrivals).expect("a scheduler");
        let Expected { accuracy: least, missed: most } = planned.expected;
        assert!((-0.01..0.02).contains(&(accuracy - least)), "{accuracy}, expected {least}");
        assert!(missed <= most + 3e-4, "{missed}, expected {most}");
    }
}

/// Each load gets tables until its neighbours are near each other, and then no more.
#[test]
fn what_is_missing_is_planned_for_until_neighbours_are_near() {
    let inputs = inputs(1);
    let capacity = inputs.capacity_per_s(0);
    let mut all: Vec<Planned> = Vec::new();
    for part in [0.3, 0.31, 0.02, 0.9, 0.5, 0.3] {
        let load = part * capacity;
        let mut asked = 0;
        while let Some(missing) = inputs.missing(&all, load) {
            let at = all.partition_point(|one| one.rate_per_s < missing);
            assert!(all.get(at).is_none_or(|one| one.rate_per_s > missing), "{missing} is there already");
            let effort = Effort { glance: (250, 8), rounds: [(500, 8), (2_000, 2)], last: 8_000 };
            let effort = (Kinds::Wishes, effort);
            all.insert(at, plan_with(&inputs, &[missing], effort).expect("a table").remove(0));
            asked += 1;
        }
        assert!(asked <= 6, "{part}: {asked}");
        let above = all.iter().find(|one| one.rate_per_s >= load);
        let below = all.iter().rfind(|one| one.rate_per_s < load);
        if let (Some(above), Some(below)) = (above, below) {
            let apart = (above.expected.right() - below.expected.right()).abs();
            let narrow = above.rate_per_s - below.rate_per_s < capacity / 40.0;
            assert!(apart <= APART || narrow, "{part}: {apart}");
        }
    }
    assert!(all.len() > 6 && all.len() <= MAX_PLANNED, "{}", all.len());
    // Whatever comes, there is an end to it; what is expected does not matter to that.
    let (mut rate, one) = (0.0, all[0].clone());
    let mut many: Vec<Planned> = Vec::new();
    while rate < capacity {
        rate += capacity / 1000.0;
        while let Some(missing) = inputs.missing(&many, rate) {
            let at = many.partition_point(|one| one.rate_per_s < missing);
            let accuracy = f64::from(many.len() as u32 % 2);
            let expected = Expected { accuracy, missed: 0.0 };
            many.insert(at, Planned { rate_per_s: missing, expected, ..one.clone() });
        }
    }
    assert!(many.len() > 20 && many.len() <= MAX_PLANNED, "{}", many.len());
    let loads = [0.0, -1.0, f64::NAN, capacity, f64::INFINITY];
    assert!(loads.iter().all(|&load| inputs.missing(&[], load).is_none()));
    assert_eq!(inputs.missing(&[], 1.0), Some(capacity / 2.0));
}

#[test]
fn every_refusal_names_field_value_and_limit() {
    let refusal = |change: &dyn Fn(&mut Inputs), loads: &[f64]| {
        let mut inputs = inputs(1);
        change(&mut inputs);
        plan(&inputs, loads).expect_err("refused").to_string()
    };
    assert_eq!(refusal(&|i| i.batch = 33, &[]), "batch = 33: must be 1 to 32");
    assert_eq!(refusal(&|i| i.batch = 5, &[]), "batches of variants[0] = 4: must be at least 5");
    assert_eq!(
        refusal(&|i| i.variants[1].accuracy = 0.5, &[]),
        "variants[1].accuracy = 0.5: must be 0.6 to 1"
    );
    assert_eq!(refusal(&|i| i.variants.clear(), &[]), "number of variants = 0: must be 1 to 64");
    assert_eq!(refusal(&|i| i.max_miss = f64::NAN, &[]), "max_miss = NaN: must be 0 to 1");
    assert_eq!(refusal(&|_| {}, &[2.0, 2.0]), "loads[1] = 2: must be above 2, the one before");
    let over = refusal(&|_| {}, &[1.0, 300.0]);
    assert!(over.starts_with("loads[1] = 300: must be below 285.7"), "{over}");
    assert_eq!(refusal(&|_| {}, &[0.0]), "loads[0] = 0: must be above 0");
    assert_eq!(refusal(&|_| {}, &[f64::NAN]), "loads[0] = NaN: must be above 0");
    assert_eq!(refusal(&|i| i.workers = 0, &[1.0]), "workers = 0: must be 1 to 256");
    assert_eq!(
        refusal(&|i| i.latency = Span::ZERO, &[1.0]),
        "latency in nanoseconds = 0: must be at least 8000000"
    );
    let short = refusal(&|i| i.latency = Span::from_millis(7), &[1.0]);
    assert_eq!(short, "latency in nanoseconds = 7000000: must be at least 8000000");
}

/// Chosen on other arrivals than it is compared on, and read by a rate that is measured over half a second.
#[test]
fn auto_is_worth_as_much_as_the_best_that_may_select_or_a_variant_alone() {
    for workers in [2, 4] {
        let inputs = inputs(workers);
        let effort = Effort::QUICK;
        let chosen = AUTO_PARTS.iter().map(|&part| inputs.choose_with(part, None, effort));
        let chosen = chosen.collect::<Result<Vec<_>, _>>().expect("in range");
        assert!(chosen.iter().any(|choice| choice.by == By::Tables), "{chosen:?}");
        let auto = inputs.auto(&chosen, None).expect("rates rise");
        let base = Selector::new(inputs.variants.clone(), [], LoadMonitor::default()).expect("valid");
        let others = [base, inputs.accurate().expect("valid")];
        for one in inputs.compared(&others, &auto).expect("in range") {
            assert!(one.lack() < 0.015, "{workers}, {}: {one:?}", one.part);
        }
    }
}

/// To one class the second variant is worth most, and to the other the third.
fn classed() -> Inputs {
    let class = |share, worth: [f64; 3]| Class {
        share,
        worth: ClassWorth { worth: worth.into(), deadline: Span::from_millis(100), decay: Decay::Hard },
    };
    Inputs { classes: vec![class(3.0, [0.6, 0.95, 0.7]), class(1.0, [0.2, 0.3, 0.9])], ..inputs(2) }
}

#[test]
fn with_classes_the_worth_by_their_shares_is_planned_for() {
    let inputs = classed();
    let shares = (0.75 * 0.95 + 0.25 * 0.3, 0.75 * 0.7 + 0.25 * 0.9);
    assert!((inputs.worth(1) - shares.0).abs() < 1e-12 && (inputs.worth(2) - shares.1).abs() < 1e-12);
    let of = inputs.of_classes(Poisson::new(10.0, 1).take(20_000));
    let first = of.filter(|&(_, class)| class == 0).count();
    assert!((14_700..15_300).contains(&first), "{first}");
    // With next to no load each batch has what its own mix is worth most with, and all are in time.
    let calm = &plan(&inputs, &[2.0]).expect("a table")[0];
    let most = 0.75 * 0.95 + 0.25 * 0.9;
    assert!((calm.expected.right() - most).abs() < 0.01, "{:?}", calm.expected);
    // No variant is worth as much to both.
    let alone = calm.best_alone(inputs.max_miss).expect("three").1;
    assert!(alone.right() < most - 0.1, "{alone:?}");
}

/// What a table of prices knows beyond one of wishes is what is in the batch; it is tried on arrivals that neither was planned on.
#[test]
fn prices_are_worth_more_than_wishes_where_classes_want_different_variants() {
    let inputs = classed();
    let load = 0.4 * inputs.capacity_per_s(0);
    let effort = Effort::QUICK;
    let found = |kinds| {
        let planned = plan_with(&inputs, &[load], (kinds, effort)).expect("a table").remove(0);
        let table = planned.table.up_to(f64::INFINITY).expect("above 0");
        let is_priced = !table.prices().is_empty();
        let selector =
            Selector::new(inputs.variants.clone(), [table], LoadMonitor::default()).expect("valid");
        (is_priced, inputs.tried(selector, Poisson::new(load, 7).take(40_000)).expect("a scheduler"))
    };
    let (wishes, prices, both) = (found(Kinds::Wishes), found(Kinds::Prices), found(Kinds::Both));
    assert_eq!((wishes.0, prices.0, both), (false, true, prices));
    assert!(prices.1.right() > wishes.1.right() + 0.003, "{prices:?} beside {wishes:?}");
    assert!(prices.1.missed <= inputs.max_miss + 1e-3, "{prices:?}");
    // Where requests are all alike there is nothing to weigh.
    let alike = Inputs { classes: Vec::new(), ..inputs };
    let planned = plan_with(&alike, &[load], (Kinds::Both, effort)).expect("a table").remove(0);
    assert!(planned.table.prices().is_empty());
}

/// Several workers, of which one is soon free, and a variant that two requests are too late for: what waits is answered better one by
/// one than all at once by whoever is free first.
#[test]
fn batches_of_fewer_than_all_that_wait_are_worth_more_where_workers_are_soon_free() {
    let mut inputs = inputs(6);
    inputs.variants[2] = variant(0.9, &[60.0, 110.0]);
    let load = 85.0;
    let effort = Effort::QUICK;
    let limited = plan_with(&inputs, &[load], (Kinds::Both, effort)).expect("a table").remove(0).table;
    assert_eq!(limited.sizes().first(), Some(&1), "{limited:?}");
    let all = limited.clone().in_batches([]).expect("no limit");
    let right = |table: &SelectTable| {
        let table = table.clone().up_to(f64::INFINITY).expect("above 0");
        let selector =
            Selector::new(inputs.variants.clone(), [table], LoadMonitor::default()).expect("valid");
        inputs.tried(selector, Poisson::new(load, 7).take(40_000)).expect("a scheduler").right()
    };
    assert!(right(&limited) > right(&all) + 0.005, "{} {}", right(&limited), right(&all));
}

#[test]
fn auto_takes_prices_where_classes_want_different_variants() {
    let inputs = classed();
    let effort = Effort::QUICK;
    let choice = inputs.choose_with(0.4, None, effort).expect("in range");
    assert_eq!(choice.by, By::Prices, "{choice:?}");
    assert_eq!(inputs.worthiest(1, 0.0), 1);
    assert_eq!(inputs.worthiest(1, 1e6), 0);
}

#[test]
fn late_answers_of_a_soft_class_count_by_what_they_keep() {
    let mut inputs = Inputs { variants: inputs(1).variants[..1].to_vec(), ..inputs(1) };
    let worth = |decay| ClassWorth { worth: [0.6].into(), deadline: Span::from_nanos(1), decay };
    let mut worth_of = |decay| {
        inputs.classes = vec![Class { share: 1.0, worth: worth(decay) }];
        let alone = inputs.accurate().expect("valid");
        inputs.tried(alone, Poisson::new(5.0, 1).take(1_000)).expect("a scheduler").right()
    };
    assert_eq!(worth_of(Decay::Hard), 0.0);
    // 8 ms late or more, at a deadline of a nanosecond: more than any part of that.
    assert_eq!(worth_of(Decay::Step { part: 0.5, cutoff: 100.0 }), 0.0);
    inputs.classes = vec![Class {
        share: 1.0,
        worth: ClassWorth {
            deadline: Span::from_millis(5),
            ..worth(Decay::Step { part: 0.5, cutoff: 10.0 })
        },
    }];
    let found = inputs.tried(inputs.accurate().expect("valid"), Poisson::new(5.0, 1).take(1_000));
    assert!((found.expect("a scheduler").right() - 0.3).abs() < 1e-9);
}

/// Where more comes than can be answered, what a class wants soon is begun before the rest, and given up when that is over.
#[test]
fn what_a_class_wants_sooner_goes_first_and_is_given_up_as_in_the_daemon() {
    let class = |share, ms| Class {
        share,
        worth: ClassWorth { worth: [1.0].into(), deadline: Span::from_millis(ms), decay: Decay::Hard },
    };
    let mut inputs = Inputs { variants: inputs(1).variants[..1].to_vec(), ..inputs(1) };
    let right = |inputs: &Inputs| {
        let load = 1.5 * inputs.capacity_per_s(0);
        let base = inputs.accurate().expect("valid");
        inputs.tried(base, Poisson::new(load, 1).take(8_000)).expect("a scheduler")
    };
    inputs.classes = vec![class(1.0, 100), class(1.0, 50)];
    let found = right(&inputs);
    // All that is answered is in time, so that it is worth 1: nothing is answered for nothing.
    assert!((found.accuracy - 1.0).abs() < 1e-9 && found.missed < 0.4, "{found:?}");
}
