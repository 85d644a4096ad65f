//! What exchange finds is a plan, and one that sharing alone makes possible.

use std::time::Duration;

use super::exchange::Exchange;
use crate::plan::{Held, Plan};
use crate::problem::Problem;
use crate::until::Until;
use crate::whole::{Columns, filled};

/// As many devices as said of one class, and three services that each need less than one: the first two are promised something.
fn problem(devices: u32) -> Problem {
    let service = |name: &str, promise: &str| {
        format!(
            r#"{{"name": "{name}", "demand": 100, "deadline": 100, {promise} "variants": [
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
    let bound = columns.bounded(problem).expect("multipliers").bound;
    let held = Exchange::new(problem, &columns).improved(
        known,
        bound,
        400,
        Until::after(Duration::from_secs(60)),
    )?;
    filled(problem, held).expect("its promises are kept")
}

#[test]
fn exchange_finds_a_plan_from_nothing_where_devices_must_be_shared() {
    let problem = problem(2);
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
    assert!(improved(&problem(1), None).is_none(), "three services, and a device holds two");
}
