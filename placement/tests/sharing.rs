//! Boxes whose devices two services may share, too large to be enumerated: the best plan is known, and is better than any without sharing.

mod dice;

use std::collections::BTreeMap;
use std::time::Duration;

use placement::{Answer, PROVEN, Problem, place};
use serde_json::{Value, json};

use dice::Dice;

/// Two classes of two devices, and two services of three variants in batches of up to eight, of which one or both are promised something.
fn random_box(seed: u64, share: &Value) -> Problem {
    let mut dice = Dice(seed);
    let service = |s: u32| {
        let (one, deadline) = (dice.between(2.0, 10.0), dice.between(60.0, 150.0));
        let mut accuracy = dice.between(60.0, 80.0);
        let variant = |v: i32| {
            accuracy += dice.between(1.0, 6.0);
            let times = [1.0, 3.0].map(|speed| {
                let base = one * 1.7f64.powi(v) / speed * dice.between(0.8, 1.25);
                [1, 2, 4, 8].map(|batch: u32| (batch.to_string(), base * (0.4 + 0.6 * f64::from(batch))))
            });
            let times: BTreeMap<String, BTreeMap<String, f64>> =
                times.into_iter().enumerate().map(|(c, times)| (format!("c{c}"), times.into())).collect();
            json!({"name": format!("v{v}"), "accuracy": accuracy, "time": times})
        };
        let variants: Vec<Value> = (0..3).map(variant).collect();
        let demand = 1e3 / one * dice.between(1.0, 3.0);
        let mut service =
            json!({"name": format!("s{s}"), "demand": demand, "deadline": deadline, "variants": variants});
        if s == 0 || dice.below(2) == 0 {
            let count = (demand * dice.between(1.0, 1.5) * 0.04).ceil() as u64;
            service["promise"] = json!({"windows": [[count, 40]], "m": dice.within(0, 5), "K": 10});
        }
        service
    };
    let services: Vec<Value> = (0..2).map(service).collect();
    let text = json!({"devices": {"c0": 2, "c1": 2}, "services": services, "share": share}).to_string();
    Problem::parse(&text).expect("a problem")
}

#[test]
fn the_best_plan_of_two_services_that_may_share_devices_is_known() {
    let (mut fit, mut better) = (0, 0);
    for seed in 1..=8 {
        let answer = |share: Value| {
            let problem = random_box(seed, &share);
            Answer::new(&problem, &place(&problem, Duration::from_secs(120)).expect("an answer"))
        };
        let (alone, shared) = (answer(json!([])), answer(json!([[1, 1], [1, 2], [2, 1]])));
        assert!(
            shared.feasible || !alone.feasible,
            "{seed}: what fits alone fits where devices may be shared"
        );
        let Some((accuracy, gap)) = shared.accuracy.zip(shared.gap) else { continue };
        assert!(gap <= PROVEN, "{seed}: within {gap} points");
        assert!(alone.accuracy.is_none_or(|alone| accuracy >= alone - PROVEN), "{seed}: {accuracy}");
        fit += 1;
        better += usize::from(alone.accuracy.is_none_or(|alone| accuracy > alone + PROVEN));
    }
    assert!(fit >= 5 && better >= 4, "{fit} fit, {better} of them better than without sharing");
}
