//! What exchange finds is a plan, and one that sharing alone makes possible; both searches for the best plan agree.

use std::time::Duration;

use proptest::prelude::*;

use super::exchange::Exchange;
use super::relaxation::Relaxation;
use super::{FIRST, Looking, MORE, NEAR};
use crate::plan::{Held, Plan};
use crate::problem::Problem;
use crate::until::Until;
use crate::whole::{Columns, filled};

/// As many devices as said of one class, and three services of each of which so much is demanded: the first two are promised something.
fn problem(devices: u32, demand: u32) -> Problem {
    let service = |name: &str, promise: &str| {
        format!(
            r#"{{"name": "{name}", "demand": {demand}, "deadline": 100, {promise} "variants": [
                {{"name": "small", "accuracy": 70, "time": {{"gpu": {{"1": 2, "4": 5}}}}}},
                {{"name": "large", "accuracy": 80, "time": {{"gpu": {{"1": 4, "4": 10}}}}}}]}}"#
        )
    };
    let promise = r#""promise": {"windows": [[6, 40]], "m": 1, "K": 10},"#;
    let services = [service("a", promise), service("b", promise), service("c", "")].join(",");
    let text = format!(
        r#"{{"devices": {{"gpu": {devices}}}, "services": [{services}], "share": [[1, 1], [2, 1]]}}"#
    );
    Problem::parse(&text).expect("a problem")
}

fn improved(problem: &Problem, known: Option<&Plan>) -> Option<Plan> {
    let columns = Columns::new(problem).expect("few columns");
    let bound = columns.bounded(problem).expect("multipliers").bound();
    let held = |plan: &Plan| plan.devices.iter().map(|of| (of.held.clone(), of.count)).collect();
    let start: Vec<(Held, u32)> = known.map_or_else(Vec::new, held);
    let least = known.map_or(f64::NEG_INFINITY, |plan| plan.accuracy);
    let end = Until::after(Duration::from_secs(60));
    let held = Exchange::new(problem, &columns).improved(&start, (least, bound), 400, end)?;
    filled(problem, held).expect("its promises are kept")
}

#[test]
fn exchange_finds_a_plan_from_nothing_where_devices_must_be_shared() {
    // Each needs less than one device.
    let problem = problem(2, 100);
    let plan = improved(&problem, None).expect("a plan");
    assert_eq!(plan.promises.len(), 2);
    let best = crate::place(&problem, Duration::from_secs(60)).expect("an answer");
    let crate::Outcome::Fits { plan: best, .. } = best.outcome else { panic!("it fits") };
    // Exchange stops at what no few devices better; the best is found by the search behind it.
    assert!(
        plan.accuracy > 70.0 && plan.accuracy < best.accuracy + 1e-6,
        "{} of {}",
        plan.accuracy,
        best.accuracy
    );
    assert!(plan.devices.iter().any(|devices| matches!(devices.held, Held::Shared(_))));
    assert!(improved(&problem, Some(&best)).is_none(), "nothing is better");
}

#[test]
fn exchange_finds_nothing_where_no_plan_is() {
    assert!(improved(&problem(1, 100), None).is_none(), "three services, and a device holds two");
}

#[test]
fn of_what_loses_little_exchange_makes_a_plan_that_loses_little() {
    let problem = problem(10, 1500);
    let columns = Columns::new(&problem).expect("few columns");
    let bounded = columns.bounded(&problem).expect("multipliers");
    let near = bounded.near(&columns, NEAR[1] * bounded.device, None);
    assert!(near.count() < columns.count(), "{} of {}", near.count(), columns.count());
    let rounded = Relaxation::new(&problem, &near).0.rounded();
    assert!(rounded.iter().map(|(_, count)| count).sum::<u32>() >= 6, "{rounded:?}");
    let limits = (f64::NEG_INFINITY, bounded.bound());
    let end = Until::after(Duration::from_secs(60));
    let held = Exchange::new(&problem, &near).improved(&rounded, limits, 400, end).expect("a plan");
    let plan = filled(&problem, held).expect("its promises are kept").expect("all is served");
    assert!(bounded.bound() - plan.accuracy < 0.05, "{} of {}", plan.accuracy, bounded.bound());
    assert!(plan.devices.iter().any(|devices| matches!(devices.held, Held::Shared(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// They have only the ways to share a device and the bound in common.
    #[test]
    fn device_by_device_the_same_is_best_as_by_numbers_of_devices(
        ones in prop::collection::vec(1u64..7, 4),
        steps in prop::collection::vec(1u64..9, 4),
        demands in prop::collection::vec(20u32..500, 2..4),
        (gpus, cpus, slower, deadline) in (1u32..4, 0u32..3, 1u64..4, 20u64..80),
        promises in prop::collection::vec((1u64..12, 5u64..40, 0u32..3), 0..4),
    ) {
        let variant = |v: usize| {
            let times = |by: u64| format!(r#"{{"1": {}, "4": {}}}"#, by * ones[v], by * (ones[v] + steps[v]));
            format!(
                r#"{{"name": "v{v}", "accuracy": {}, "time": {{"gpu": {}, "cpu": {}}}}}"#,
                60 + 7 * (v % 2), times(1), times(slower)
            )
        };
        let service = |(s, demand): (usize, &u32)| {
            let promised = promises.get(s).map_or_else(String::new, |(count, window, m)| {
                format!(r#", "promise": {{"windows": [[{count}, {window}]], "m": {m}, "K": 4}}"#)
            });
            let variants = [variant(s % 3), variant((s + 1) % 4)].join(", ");
            format!(
                r#"{{"name": "s{s}", "demand": {demand}, "deadline": {deadline}, "variants": [{variants}]{promised}}}"#
            )
        };
        let services = demands.iter().enumerate().map(service).collect::<Vec<_>>().join(", ");
        let text = format!(
            r#"{{"devices": {{"gpu": {gpus}, "cpu": {cpus}}}, "services": [{services}], "share": [[1, 1], [2, 1]]}}"#
        );
        let problem = Problem::parse(&text).expect("a problem");
        let columns = Columns::new(&problem).expect("few columns");
        let looking = || {
            let bounded = columns.bounded(&problem).expect("multipliers");
            let bound = bounded.bound();
            Looking { problem: &problem, columns: &columns, bounded, known: None, bound, lost: FIRST }
        };
        let end = Until::after(Duration::from_secs(60));
        let (mut each, mut numbers) = (looking(), looking());
        prop_assert!(numbers.best(end).expect("an answer"), "{text}");
        prop_assert_eq!(each.each(end), numbers.known.is_some(), "{}", text);
        let accuracy = |of: &Looking<'_>| of.known.as_ref().map(|plan| plan.accuracy);
        let (found, best) = (accuracy(&each), accuracy(&numbers));
        prop_assert_eq!(found.is_some(), best.is_some(), "{}", text);
        if let Some((found, best)) = found.zip(best) {
            prop_assert!((found - best).abs() <= MORE + 1e-6, "{found} and {best}: {text}");
            prop_assert!(each.bound <= found + MORE + 1e-6, "{} above {found}: {text}", each.bound);
        }
    }
}
