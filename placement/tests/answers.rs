//! What is said of problems: of those that cannot be read, that do not fit, and of one worked out by hand.

use std::time::Duration;

use placement::{Answer, Problem, place};

fn answer(text: &str) -> Answer {
    let problem = Problem::parse(text).expect("a problem");
    Answer::new(&problem, &place(&problem, Duration::from_secs(120)).expect("an answer"))
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

/// What is demanded keeps less of the device busy than the solver of linear programs may leave out.
#[test]
fn hardly_any_demand_is_served_too() {
    let text = r#"{"devices": {"b": 1}, "share": [[2, 1]], "services": [
        {"name": "s1", "demand": 0.001, "deadline": 150, "variants": [{"name": "v", "accuracy": 42, "time": {"b": {"8": 10}}}]},
        {"name": "s2", "demand": 1020, "deadline": 150, "variants": [{"name": "v", "accuracy": 77, "time": {"b": {"3": 62}}}]}]}"#;
    let shared = answer(text);
    // Three requests in 62 ms, of 1020 a second.
    let factor = shared.factor.expect("a part of it");
    assert!((factor - 3.0 / 0.062 / 1020.0).abs() < 1e-5, "{factor}");
    assert_eq!(shared.flows.len(), 2, "{shared:?}");
    let pipeline = r#"{"devices": {"g": 2}, "services": [
        {"name": "s", "demand": 100, "deadline": 50, "variants": [{"name": "v", "accuracy": 80, "time": {"g": {"1": 2}}}]}],
        "pipelines": [{"name": "p", "slo": 100, "demand": 0.000001,
        "stages": [{"name": "a", "variants": [{"name": "x", "accuracy": 90, "time": {"g": {"1": 5}}}]}]}]}"#;
    let staged = answer(pipeline);
    assert!(staged.feasible && staged.flows.len() == 2, "{staged:?}");
}

#[test]
fn a_service_of_which_nothing_is_demanded_or_promised_needs_no_device() {
    for share in ["", r#", "share": [[1, 1]]"#] {
        let text = format!(
            r#"{{"devices": {{"g": 1}}{share}, "services": [
            {{"name": "s", "demand": 0, "deadline": 20, "variants": [{{"name": "v", "accuracy": 1, "time": {{"g": {{"1": 15}}}}}}]}},
            {{"name": "t", "demand": 1, "deadline": 100, "variants": [{{"name": "v", "accuracy": 1, "time": {{"g": {{"1": 5}}}}}}]}}]}}"#
        );
        let answer = answer(&text);
        assert!(answer.feasible && answer.plan.len() == 1, "{answer:?}");
        assert!(answer.gap.expect("a bound") < 1e-6);
    }
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

/// What is promised holds without any demand too; a mean of no answers has no accuracy.
#[test]
fn where_nothing_is_demanded_promises_are_kept_and_nothing_else_is_hosted() {
    let promise = r#", "promise": {"windows": [[8, 80]], "m": 0, "K": 1}"#;
    for (text, promises) in [(two([0.0, 0.0], ""), 0), (two([0.0, 0.0], promise), 1)] {
        let answer = answer(&text);
        assert!(answer.feasible && answer.flows.is_empty(), "{answer:?}");
        assert_eq!((answer.promises.len(), answer.accuracy), (promises, None));
        assert_eq!(answer.plan.iter().map(|devices| devices.count).sum::<u32>(), promises as u32);
    }
    let pipeline = r#"{"devices": {"gpu": 2}, "pipelines": [{"name": "p", "slo": 100, "demand": 0,
        "stages": [{"name": "a", "variants": [{"name": "x", "accuracy": 90, "time": {"gpu": {"1": 5}}}]}]}]}"#;
    let answer = answer(pipeline);
    assert!(answer.feasible && answer.plan.is_empty() && answer.flows.is_empty(), "{answer:?}");
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
    assert!((answer.missing_bound.expect("a bound") - 0.52).abs() < 1e-6);
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
    let error = place(&problem, Duration::from_secs(120)).expect_err("refused").to_string();
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
        (r#"{"gpu": 2}"#, r#"{"gpu": 1, "gpu": 2}"#, "duplicate field `gpu`"),
        (r#"{"1": 2}"#, r#"{"1": 2, "1": 9}"#, "duplicate field `1`"),
        (
            r#"{"1": 2}"#,
            r#"{"1": 2, "+1": 3, "01": 9}"#,
            "services[0].variants[0].time.gpu.01 = 9: batches of 1 are there already",
        ),
    ];
    for (from, to, told) in cases {
        let error = refused(from, to);
        assert!(error.contains(told), "{error:?} does not say {told:?}");
    }
    let none = r#"{"devices": {"gpu": 1}, "pipelines": [{"name": "p", "slo": 10, "demand": 1, "stages": [
        {"name": "a", "parent": "b", "variants": [{"name": "x", "accuracy": 1}]}]}]}"#;
    let error = Problem::parse(none).expect_err("refused").to_string();
    assert!(error.contains("pipelines[0].stages[0].parent = b: must name another stage"), "{error}");
    // Twice as much would be no number any more, which the solver would find.
    let much = r#"{"devices": {"gpu": 1}, "pipelines": [{"name": "p", "slo": 10, "demand": 2, "stages": [
        {"name": "a", "variants": [{"name": "x", "accuracy": 1}]}], "path_accuracy": {"x": 1e308}}]}"#;
    let error = Problem::parse(much).expect_err("refused").to_string();
    assert!(error.contains("pipelines[0].path_accuracy.x = 1"), "{error}");
    assert!(error.ends_with("must be points, from -1000000 to 1000000"), "{error}");
}

/// Of many services the least that is missing may not be found; that something is missing is, long before the time is up.
#[test]
fn that_promises_do_not_fit_is_known_long_before_the_time_is_up() {
    let times = |one: f64| {
        let speeds = [1.0, 2.7, 5.3].iter().enumerate();
        let class = |(c, speed): (usize, &f64)| {
            let time = |b: &u32| format!(r#""{b}": {}"#, one / speed * (0.4 + 0.6 * f64::from(*b)));
            format!(r#""c{c}": {{{}}}"#, [1, 2, 4, 8, 16].iter().map(time).collect::<Vec<_>>().join(", "))
        };
        speeds.map(class).collect::<Vec<_>>().join(", ")
    };
    let service = |s: u32| {
        let windows = format!("[[{}, {}]]", 60 + 11 * (s * 3 % 5), 20 + 7 * (s % 4));
        format!(
            r#"{{"name": "s{s}", "demand": 50, "deadline": {}, "promise": {{"windows": {windows}, "m": {}, "K": 10}},
            "variants": [{{"name": "v", "accuracy": 70, "time": {{{}}}}}]}}"#,
            80 + 17 * s,
            s % 4,
            times(f64::from(3 + s * 5 % 7))
        )
    };
    let services = (0..6).map(service).collect::<Vec<_>>().join(", ");
    let text = format!(r#"{{"devices": {{"c0": 10, "c1": 5, "c2": 5}}, "services": [{services}]}}"#);
    let problem = Problem::parse(&text);
    let problem = problem.expect("a problem");
    let placed = place(&problem, Duration::from_secs(3)).expect("an answer");
    let answer = Answer::new(&problem, &placed);
    assert_eq!(answer.reason, Some("promises"));
    let missing: f64 = answer.violated.iter().flatten().map(|of| of.missing).sum();
    assert!(answer.missing_bound.is_some_and(|bound| bound <= missing + 1e-9), "{answer:?}");
}

/// With turns allowed there are so many ways that the solver may find none in its time: those without are a plan too.
#[test]
fn a_plan_of_devices_that_nobody_shares_is_one_where_they_may_be_shared() {
    let time = |one: f64| {
        let batches: Vec<String> = [1, 2, 4, 8, 16]
            .iter()
            .map(|b| format!(r#""{b}": {}"#, one * (0.4 + 0.6 * f64::from(*b))))
            .collect();
        batches.join(", ")
    };
    let variant = |v: i32| {
        let one = 8.0 * 1.7f64.powi(v);
        format!(
            r#"{{"name": "v{v}", "accuracy": {}, "time": {{"cpu": {{{}}}, "gpu": {{{}}}}}}}"#,
            70 + 4 * v,
            time(one),
            time(one / 3.1)
        )
    };
    let variants = (0..3).map(variant).collect::<Vec<_>>().join(", ");
    let service = |name: &str| {
        format!(
            r#"{{"name": "{name}", "demand": 320, "deadline": 120, "variants": [{variants}],
            "promise": {{"windows": [[14, 40]], "m": 2, "K": 10}}}}"#
        )
    };
    let text = |share: &str| {
        format!(
            r#"{{"devices": {{"gpu": 2, "cpu": 2}}, "services": [{}, {}]{share}}}"#,
            service("a"),
            service("b")
        )
    };
    let accuracy = |share| {
        let problem = Problem::parse(&text(share)).expect("a problem");
        let placed = place(&problem, Duration::from_millis(400)).expect("an answer");
        Answer::new(&problem, &placed).accuracy.unwrap_or_else(|| panic!("no plan: {placed:?}"))
    };
    assert!(accuracy(r#", "share": [[1, 1], [1, 2], [2, 1]]"#) >= accuracy("") - 1e-9);
}

/// The promise of `a` lacks one request of 22 on the one device that two services may share, and nothing shows that but how it is counted.
#[test]
fn promises_that_fit_but_for_the_rule_by_which_they_are_kept_do_not_fit() {
    let text = r#"{"devices": {"slow": 2, "fast": 1}, "share": [[2, 1]], "services": [
        {"name": "a", "demand": 1500, "deadline": 100, "variants": [
            {"name": "small", "accuracy": 0, "time": {"fast": {"3": 2}}},
            {"name": "large", "accuracy": 43.43, "time": {"slow": {"6": 9}}}],
         "promise": {"windows": [[87, 34]], "m": 3, "K": 4}},
        {"name": "b", "demand": 260, "deadline": 65, "variants": [
            {"name": "only", "accuracy": 86, "time": {"slow": {"4": 15}, "fast": {"6": 17}}}],
         "promise": {"windows": [[28, 85]], "m": 0, "K": 1}}]}"#;
    let problem = Problem::parse(text).expect("a problem");
    let placed = place(&problem, Duration::from_secs(20)).expect("an answer");
    let answer = Answer::new(&problem, &placed);
    assert_eq!(answer.reason, Some("promises"), "{placed:?}");
    let missing: f64 = answer.violated.iter().flatten().map(|of| of.missing).sum();
    assert!(missing > 0.01 && missing < 0.2, "{answer:?}");
}
