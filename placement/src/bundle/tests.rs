//! Bundles of one service are held against an enumeration of all numbers of devices of each configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::search::{Use, Wanted};
use super::*;
use crate::configuration;
use crate::problem::Problem;
use crate::promise::Rule;

/// A service of two classes, of which models run in several sizes of batches.
#[derive(Debug)]
struct Case {
    problem: Problem,
    prices: Vec<f64>,
}

fn case(most: (u32, u32)) -> impl Strategy<Value = Case> {
    let batches = prop::collection::vec((1u64..6, prop::collection::vec(0u64..9, 2)), 4);
    let sizes = (2..most.0, 1..most.1, 20u32..1200, 10u64..60, any::<bool>());
    let promise = proptest::option::weighted(0.8, (2u64..40, 4u64..40, 0u32..3));
    (batches, sizes, promise, prop::collection::vec(0.1f64..40.0, 2)).prop_map(
        |(batches, (first, second, demand, deadline, switch), promise, prices)| {
            let times = |v: usize, class: usize| {
                let (one, more) = &batches[2 * (v % 2) + class];
                let one = one << v;
                format!(r#"{{"1": {one}, "3": {}, "5": {}}}"#, one + more[0], one + more[0] + more[1])
            };
            let variant = |v: usize| {
                let times = [0, 1].map(|class| format!(r#""c{class}": {}"#, times(v, class))).join(", ");
                format!(r#"{{"name": "v{v}", "accuracy": {}, "time": {{{times}}}}}"#, 60 + 10 * v)
            };
            let promise = promise.map_or(String::new(), |(count, window, m)| {
                format!(r#", "promise": {{"windows": [[{count}, {window}]], "m": {m}, "K": 4}}"#)
            });
            let text = format!(
                r#"{{"devices": {{"c0": {first}, "c1": {second}}}, "switch": {switch}, "services": [{{"name": "s",
                "demand": {demand}, "deadline": {deadline}, "variants": [{}, {}]{promise}}}]}}"#,
                variant(0),
                variant(1)
            );
            Case { problem: Problem::parse(&text).expect("a problem"), prices }
        },
    )
}

/// Of each use the most that devices are worth less their prices, whatever they hold.
fn enumerated(
    hosting: &Hosting<'_>,
    demand: &Demand<'_>,
    keeping: Option<&Keeping<'_>>,
    case: &Case,
) -> BTreeMap<Use, f64> {
    let mut best: BTreeMap<Use, f64> = BTreeMap::new();
    let mut counts = vec![0; demand.configurations.len()];
    let mut left: Vec<u32> = case.problem.classes.iter().map(|(_, count)| *count).collect();
    all(0, &mut counts, &mut left, demand.configurations, &mut |counts| {
        let kept = keeping.is_none_or(|keeping| match keeping.rule(counts) {
            Some(Rule::Pool(_)) => demand.pooled.is_some(),
            Some(Rule::Quotas(_)) => true,
            None => false,
        });
        let Some(value) = hosting.value(counts).filter(|_| kept) else { return };
        let classes = || demand.configurations.iter().map(|of| of.class).zip(counts);
        let paid: f64 = classes().map(|(class, &count)| case.prices[class] * f64::from(count)).sum();
        let used: Use = classes().map(|(class, &count)| devices(class, count)).sum();
        let known = best.entry(used).or_insert(f64::NEG_INFINITY);
        *known = known.max(value - paid);
    });
    best
}

fn all(
    at: usize,
    counts: &mut Vec<u32>,
    left: &mut Vec<u32>,
    configurations: &[Configuration],
    judge: &mut dyn FnMut(&[u32]),
) {
    let Some(configuration) = configurations.get(at) else { return judge(counts) };
    for count in 0..=left[configuration.class] {
        counts[at] = count;
        left[configuration.class] -= count;
        all(at + 1, counts, left, configurations, judge);
        left[configuration.class] += count;
    }
    counts[at] = 0;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bundles_of_a_service_are_the_best_of_all_numbers_of_devices(
        case in case((4, 3)), pooled in any::<bool>(), weightless in proptest::bool::weighted(0.1)
    ) {
        let service = &case.problem.services[0];
        let counts: Vec<u32> = case.problem.classes.iter().map(|(_, count)| *count).collect();
        let configurations: Vec<Configuration> =
            (0..2).flat_map(|class| configuration::alone(&case.problem, service, class)).collect();
        prop_assume!(configurations.len() <= 14);
        let keeping = || service.promise.as_ref().map(|of| Keeping::new(of, service.deadline, &configurations));
        let demand = Demand {
            rate: service.demand,
            worth: if weightless { 0.0 } else { 1.0 / service.demand },
            promised: service.promise.is_some(),
            pooled: keeping().filter(|_| pooled),
            configurations: &configurations,
        };
        let hosting = Hosting::new(&demand, &counts);
        let best = enumerated(&hosting, &demand, keeping().as_ref(), &case);
        let most = best.values().copied().fold(f64::NEG_INFINITY, f64::max);
        // Nothing is lost by what was left out from the beginning.
        let every: Vec<Configuration> =
            (0..2).flat_map(|class| configuration::every(&case.problem, service, class)).collect();
        if every.len() <= 10 {
            let keeping = || service.promise.as_ref().map(|of| Keeping::new(of, service.deadline, &every));
            let demand = Demand { pooled: keeping().filter(|_| pooled), configurations: &every, ..demand };
            let best = enumerated(&Hosting::new(&demand, &counts), &demand, keeping().as_ref(), &case);
            let of_all = best.values().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(of_all == most || of_all <= most + 1e-6, "{of_all} of all, {most} of those that are looked at");
        }
        // What cannot be done is told of nothing that can.
        prop_assert!(hosting.may_do(&counts) || best.is_empty());
        let both = |a: &Use| best.keys().any(|b| (0..2).all(|c| of_class(a + b, c) <= counts[c]));
        let end = Until::after(Duration::from_secs(600));
        let twice = [Hosting::new(&demand, &counts), Hosting::new(&demand, &counts)];
        prop_assert!(fits::may_fit(&twice, &counts, end) || !best.keys().any(both));
        let effort = Effort { nodes: 100_000_000, end: Until::after(Duration::from_secs(600)) };
        let terms = hosting.terms(&case.prices, &counts);
        // By one search, by limits that rise, and by the devices used.
        let by_use = hosting.best_use(&case.prices, &counts, effort);
        let searched = [effort.nodes, 3].map(|first| hosting.best_within(&terms, first, effort));
        for found in searched.into_iter().chain([by_use]) {
            prop_assert!(found.complete);
            let worth = found.bundles.first().map_or(f64::NEG_INFINITY, |bundle| found.linear - bundle.loss);
            prop_assert!(worth == most || (worth - most).abs() < 1e-6, "{worth} for {most}");
            prop_assert!(found.linear - found.least >= most - 1e-6, "{} below {most}", found.linear - found.least);
        }
        // A limit below which some are and some are not.
        let limit = (terms.linear - most).max(0.0) * 1.5 + 0.5;
        for found in [
            hosting.search_all(&terms, limit, effort),
            hosting.uses(&case.prices, &counts, Wanted::All, limit, effort),
        ] {
        prop_assert!(found.complete);
        let known: BTreeMap<Use, f64> =
            found.bundles.iter().map(|bundle| (bundle.used, found.linear - bundle.loss)).collect();
        for (used, worth) in &best {
            if found.linear - worth < limit - 1e-6 {
                // What is of no use may be left out.
                let within = |less: &Use| (0..2).all(|class| of_class(*less, class) <= of_class(*used, class));
                let least = known.iter().filter(|(less, _)| within(less)).map(|(_, worth)| *worth);
                let least = least.fold(f64::NEG_INFINITY, f64::max);
                prop_assert!(least >= worth - 1e-6, "{used:x}: {least} for {worth}");
            }
        }
        }
    }
    #[test]
    fn both_searches_find_bundles_that_are_worth_as_much(case in case((12, 9)), pooled in any::<bool>()) {
        let service = &case.problem.services[0];
        let counts: Vec<u32> = case.problem.classes.iter().map(|(_, count)| *count).collect();
        let configurations: Vec<Configuration> =
            (0..2).flat_map(|class| configuration::alone(&case.problem, service, class)).collect();
        let keeping = || service.promise.as_ref().map(|of| Keeping::new(of, service.deadline, &configurations));
        let demand = Demand {
            rate: service.demand,
            worth: 1.0 / service.demand,
            promised: service.promise.is_some(),
            pooled: keeping().filter(|_| pooled),
            configurations: &configurations,
        };
        let hosting = Hosting::new(&demand, &counts);
        let effort = Effort { nodes: 3_000_000, end: Until::after(Duration::from_secs(600)) };
        let by_item = hosting.best_within(&hosting.terms(&case.prices, &counts), 10_000, effort);
        let by_use = hosting.best_use(&case.prices, &counts, effort);
        prop_assume!(by_item.complete);
        prop_assert!(by_use.complete);
        let worth = |of: &Found| of.bundles.first().map(|bundle| of.linear - bundle.loss);
        match (worth(&by_item), worth(&by_use)) {
            (Some(one), Some(other)) => prop_assert!((one - other).abs() < 1e-6, "{one} and {other}"),
            (one, other) => prop_assert_eq!(one.is_some(), other.is_some()),
        }
    }
}
