//! What is said of problems: of those that cannot be read, that do not fit, and of one worked out by hand.

use std::time::Duration;

use placement::{Answer, Problem, place};

fn answer(text: &str) -> Answer {
    let problem = Problem::parse(text).expect("a problem");
    Answer::new(&problem, &place(&problem, Duration::from_secs(20)).expect("an answer"))
}

/// Two services on two devices: one variant of 10 ms a request and 80 points, one of 2 ms and 60.
fn two(demands: [f64; 2], promise: &str) -> String {
    let variants = r#"[{"name": "quick", "accuracy": 60, "time": {"gpu": {"1": 2}}},
                       {"name": "good", "accuracy": 80, "time": {"gpu": {"1": 10}}}]"#;
    format!(
        r#"{{"devices": {{"gpu": 2}}, "services": [
            {{"name": "a", "demand": {}, "deadline": 50, "variants": {variants}{promise}}},
            {{"name": "b", "demand": {}, "deadline": 50, "variants": {variants}}}]}}"#,
        demands[0], demands[1]
    )
}

#[test]
fn a_device_each_is_used_for_what_it_can_carry() {
    // A device carries 100 requests a second of the good variant, so b must take the quick one: (100·80 + 300·60)/400.
    let answer = answer(&two([100.0, 300.0], ""));
    assert!(answer.feasible);
    assert!((answer.accuracy.expect("a plan") - 65.0).abs() < 1e-6);
    assert!(answer.gap.expect("a bound") < 1e-6);
    assert_eq!(answer.plan.iter().map(|devices| devices.count).sum::<u32>(), 2);
}

#[test]
fn a_promise_takes_the_variant_that_keeps_it() {
    // Eight at once and a deadline of 50 ms: a device that is busy with 10 ms ends four in time, with 2 ms more than eight.
    let answer = answer(&two([100.0, 300.0], r#", "promise": {"windows": [[8, 80]], "m": 0, "K": 1}"#));
    assert!(answer.feasible);
    assert!((answer.accuracy.expect("a plan") - 60.0).abs() < 1e-6);
    assert_eq!(answer.promises.len(), 1);
    assert_eq!((answer.promises[0].service.as_str(), answer.promises[0].rule), ("a", "quotas"));
}

#[test]
fn of_a_demand_that_does_not_fit_the_largest_part_is_told() {
    // Two devices carry 500 a second each.
    let answer = answer(&two([500.0, 750.0], ""));
    assert!(!answer.feasible);
    assert_eq!(answer.reason, Some("demand"));
    let (fits, bound) = (answer.factor.expect("a part"), answer.factor_bound.expect("a bound"));
    assert!((fits - 500.0 / 750.0).abs() < 1e-4 && bound >= fits, "{fits} and {bound}");
    assert!(!answer.plan.is_empty());
}

#[test]
fn of_promises_that_do_not_fit_those_are_told_of_which_least_is_missing() {
    let answer = answer(&two([10.0, 10.0], r#", "promise": {"windows": [[100, 80]], "m": 0, "K": 1}"#));
    assert!(!answer.feasible);
    assert_eq!(answer.reason, Some("promises"));
    let violated = answer.violated.expect("which");
    assert_eq!(violated.len(), 1);
    // Each of the two devices ends 24 in time of 100.
    assert!(violated[0].service == "a" && (violated[0].missing - 0.52).abs() < 1e-6, "{violated:?}");
}

#[test]
fn a_service_that_no_device_answers_in_time_is_named() {
    let answer = answer(
        &two([10.0, 10.0], "").replace(r#""demand": 10, "deadline": 50"#, r#""demand": 10, "deadline": 3"#),
    );
    assert_eq!((answer.feasible, answer.factor), (false, Some(0.0)));
    let named: Vec<String> = answer.violated.into_iter().flatten().map(|violated| violated.service).collect();
    assert_eq!(named, ["a", "b"]);
}

#[test]
fn more_ways_than_can_be_looked_at_are_refused_at_once() {
    let times: Vec<String> =
        (1..=100).map(|batch| format!(r#""{batch}": {}"#, 1.0 + f64::from(batch) / 10.0)).collect();
    let text = two([10.0, 10.0], r#", "promise": {"windows": [[8, 80]], "m": 0, "K": 1}"#);
    let text = text.replacen(r#"{"1": 2}"#, &format!("{{{}}}", times.join(", ")), 1);
    let text = text.replacen(r#""services""#, r#""switch": true, "services""#, 1);
    let problem = Problem::parse(&text).expect("a problem");
    let error = place(&problem, Duration::from_secs(20)).expect_err("refused").to_string();
    assert!(error.contains("ways to hold a on a device, must be at most 8000"), "{error}");
}

#[test]
fn a_peak_may_stand_for_times() {
    let text = r#"{"devices": {"cpu": 1, "gpu": 1}, "services": [{"name": "s", "demand": 30,
        "variants": [{"name": "a", "accuracy": 70}, {"name": "b", "accuracy": 90}],
        "peak": {"0|cpu": 28, "0|gpu": 100, "1|gpu": 20}}]}"#;
    // 20 of b on the gpu, 10 of a on the cpu.
    assert!((answer(text).accuracy.expect("a plan") - (20.0 * 90.0 + 10.0 * 70.0) / 30.0).abs() < 1e-6);
}

#[test]
fn what_cannot_be_is_refused_by_field_value_and_limit() {
    let refused = |from: &str, to: &str| {
        let text =
            two([10.0, 10.0], r#", "promise": {"windows": [[8, 80]], "m": 0, "K": 1}"#).replacen(from, to, 1);
        assert!(text.contains(to), "{to}");
        Problem::parse(&text).expect_err("refused").to_string()
    };
    let cases = [
        (r#""gpu": 2}"#, r#""gpu": 20000}"#, "devices.gpu = 20000: must be in 0..=10000"),
        (r#""name": "b""#, r#""name": "a""#, "services[1].name = a: is taken already"),
        (
            r#""demand": 10"#,
            r#""demand": -1"#,
            "services[0].demand = -1: must be a number from 0 to 1000000000",
        ),
        (
            r#""deadline": 50"#,
            r#""deadline": 0"#,
            "services[0].deadline = 0: must be milliseconds from 1e-6 to 3600000",
        ),
        (
            r#"{"1": 2}"#,
            r#"{"0": 2}"#,
            "services[0].variants[0].time.gpu.0 = 0: a size of batch must be in 1..=4096",
        ),
        (
            r#"{"gpu": {"1": 2}}"#,
            r#"{"tpu": {"1": 2}}"#,
            "services[0].variants[0].time.tpu = tpu: is no class of devices",
        ),
        (r#""m": 0, "K": 1"#, r#""m": 1, "K": 1"#, "services[0].promise = m = 1, K = 1"),
        (r#"[[8, 80]]"#, r#"[[0, 80]]"#, "services[0].promise.windows[0] = [0, 80]"),
        (r#""m": 0"#, r#""n": 0"#, "unknown field `n`"),
    ];
    for (from, to, told) in cases {
        let error = refused(from, to);
        assert!(error.contains(told), "{error:?} does not say {told:?}");
    }
    let none = r#"{"devices": {"gpu": 1}, "pipelines": [{"name": "p", "slo": 10, "demand": 1, "stages": [
        {"name": "a", "parent": "b", "variants": [{"name": "x", "accuracy": 1}]}]}]}"#;
    let error = Problem::parse(none).expect_err("refused").to_string();
    assert!(error.contains("pipelines[0].stages[0].parent = b: must name another stage"), "{error}");
}
