//! Answers to problems, and limits that are the last values to be admitted.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::certificate::{Case, Certificate, Limit, SharedReason};
use crate::number::Number;
use crate::problem::tests::problems;
use crate::problem::{Question, SharedProblem};
use rt_core::sharing::Rule as CoreRule;
use rt_core::{Span, System};

/// The worked example of `docs/guarantee.md`, in milliseconds.
fn worked() -> Value {
    json!({
        "unit": "ms", "deadline": 6, "background": true,
        "workers": [{"count": 1, "batch": 1, "time": 2}],
        "streams": [{"name": "cam", "constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[2, 4]]}}],
    })
}

fn problem(json: &Value) -> Problem {
    Problem::parse(&json.to_string()).expect("a problem")
}

fn text<T: ToString>(limit: Option<Limit<T>>) -> Option<String> {
    limit.map(|l| l.value.to_string())
}

#[test]
fn the_worked_example() {
    let claim = certify(&problem(&worked()));
    let number = |n| Number::whole(n);
    assert!(claim.admissible && claim.reason.is_none());
    assert_eq!(claim.rule, Rule::TheoremA);
    assert_eq!(claim.binding, Some(Binding { delta: number(0), backlog: 1, lhs: number(4), rhs: number(6) }));
    assert_eq!(claim.streams[0].density, (1, 2));
    assert_eq!(claim.streams[0].constraints, [("any_miss(1,2)".to_owned(), "binds".to_owned())]);
    assert_eq!(claim.streams[0].largest_count, Some(LargestCount { n_star: 2, spread_drop: 2 }));
    // Twice as fast is one mandatory request in 2 ms: all that the worker can do.
    assert_eq!(claim.max_load_scale, Some(number(2)));
    assert_eq!(text(claim.streams[0].max_rate_scale), Some("2".to_owned()));
    // Bursts of 4 in 8 ms bring two mandatory requests at once: 2·(1 + 2) = 6 ms.
    assert_eq!(text(claim.limits.max_burst_scale), Some("2".to_owned()));
    assert_eq!(text(claim.limits.min_deadline), Some("4".to_owned()));
    assert_eq!(text(claim.limits.min_workers), Some("1".to_owned()));
}

#[test]
fn refusals_say_why_and_what_would_do() {
    let mut late = worked();
    late["deadline"] = json!(3.5);
    let claim = certify(&problem(&late));
    assert!(!claim.admissible && claim.rule == Rule::TheoremA);
    assert!(claim.reason.as_ref().is_some_and(|r| r.contains("mandatory requests")), "{:?}", claim.reason);
    assert_eq!(claim.binding.map(|b| (b.lhs, b.rhs)), Some((Number::whole(4), Number::thousandths(3500))));
    assert_eq!(claim.max_load_scale, Some(Number::default()), "no load has so little time");
    assert_eq!(text(claim.limits.min_deadline), Some("4".to_owned()));
    assert_eq!((claim.limits.min_workers, claim.limits.max_burst_scale), (None, None));

    let mut fast = worked();
    fast["streams"][0]["arrivals"] = json!({"windows": [[2, 1]]});
    let claim = certify(&problem(&fast));
    assert_eq!((claim.admissible, claim.rule, claim.binding), (false, Rule::Rate, None));
    assert_eq!(claim.max_load_scale, Some(Number::thousandths(500)));
    assert_eq!(text(claim.limits.min_workers), Some("2".to_owned()));
    assert_eq!(text(claim.limits.min_deadline), None);
}

#[test]
fn nothing_is_promised_to_nobody() {
    let mut best_effort = worked();
    best_effort["streams"][0]["constraints"] = json!([]);
    for streams in [json!([]), best_effort["streams"].clone()] {
        let mut nothing = worked();
        nothing["streams"] = streams;
        let claim = certify(&problem(&nothing));
        assert_eq!((claim.admissible, claim.rule), (true, Rule::NothingPromised));
        assert_eq!((claim.binding, claim.max_load_scale), (None, None));
        assert_eq!(claim.limits, Limits::default());
        assert!(claim.streams.iter().all(|s| s.density == (0, 1) && s.largest_count.is_none()));
    }
}

#[test]
fn standings_name_what_binds() {
    let mut many = worked();
    many["streams"][0]["constraints"] =
        json!(["any_miss(5,10)", "row_miss(2)", "any_miss(5,9)", "any_hit(5,10)"]);
    let claim = certify(&problem(&many));
    let standings: Vec<_> = claim.streams[0].constraints.iter().map(|(_, s)| s.as_str()).collect();
    assert_eq!(standings, ["binds", "kept", "implied by any_miss(5,10)", "implied by any_miss(5,10)"]);
    assert_eq!(claim.streams[0].density, (5, 10), "as the binding constraint gives it");
    assert_eq!(claim.streams[0].largest_count, Some(LargestCount { n_star: 2, spread_drop: 1 }));
}

/// Problems of several streams, both dispatches, open and closed, at several loads.
fn several() -> Vec<Problem> {
    let mut all = Vec::new();
    for (i, background) in [true, false].into_iter().enumerate() {
        for dispatch in ["eager", "full-or-latest"] {
            for period in [2500, 4700, 9100] {
                all.push(problem(&json!({
                    "unit": "us", "deadline": 9000 + 1000 * i, "guard": 250, "dispatch": dispatch,
                    "background": background,
                    "workers": [{"count": 2, "batch": 2, "times": [1500, 2000]}],
                    "streams": [
                        {"name": "a", "constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[3, period]]}},
                        {"name": "b", "constraints": ["row_miss(2)"],
                         "arrivals": {"periodic": {"period": period / 2, "jitter": 900}}},
                        {"name": "c", "constraints": ["any_miss(0,1)"],
                         "arrivals": {"token_bucket": {"burst": 2, "period": 3 * period}}},
                    ],
                })));
            }
        }
    }
    // Some with stalls, which only a system with background is said to hold through.
    let with_stalls = |problem: &Problem| {
        let raw = crate::problem::raw::Problem {
            stalls: Some(crate::problem::raw::Stalls {
                count: 1,
                window: Number::whole(1_000_000),
                length: Number::whole(1_500),
                recovery: None,
            }),
            deadline: Number::whole(11_500),
            ..problem.raw.clone()
        };
        Problem::from_raw(raw).expect("in range")
    };
    let stalled: Vec<_> = all.iter().map(with_stalls).collect();
    all.extend(stalled);
    all
}

#[test]
fn limits_are_admissible_and_one_step_more_is_not() {
    for problem in several() {
        let claim = certify(&problem);
        let system = problem.system();
        let steps = |number: Number| (number.as_f64() * 1000.0).round() as u64;
        let scaled = |scale: u64, one: fn(&StreamSpec, u64) -> Option<StreamSpec>| {
            let specs: Option<Vec<_>> = problem.specs().map(|spec| one(spec, scale)).collect();
            specs.is_some_and(|specs| system.admit(&specs).is_ok())
        };
        let load = steps(claim.max_load_scale.expect("something is promised"));
        assert!(load > 0 && scaled(load, scale::faster) && !scaled(load + 1, scale::faster));
        assert_eq!(claim.admissible, load >= 1000);
        if let Some(burst) = claim.limits.max_burst_scale {
            let burst = steps(burst.value);
            assert!(scaled(burst, scale::burstier) && !scaled(burst + 1, scale::burstier));
        }
        for (i, stream) in claim.streams.iter().enumerate() {
            let Some(rate) = stream.max_rate_scale else { continue };
            let alone = |scale: u64| {
                let mut specs: Vec<_> = problem.specs().cloned().collect();
                let fast = scale::faster(&specs[i], scale);
                fast.is_some_and(|fast| {
                    specs[i] = fast;
                    system.admit(&specs).is_ok()
                })
            };
            let rate = steps(rate.value);
            assert!(alone(rate) && !alone(rate + 1));
        }
        let deadline = claim.limits.min_deadline.map(|d| d.value.to_span(problem.raw.unit).expect("a time"));
        if let Some(deadline) = deadline {
            let within = |deadline: Span| {
                let latency = deadline.saturating_sub(problem.guard);
                System { latency, ..system.clone() }.admit(problem.specs()).is_ok()
            };
            assert!(within(deadline) && !within(deadline.saturating_sub(Span::from_nanos(1))));
            assert_eq!(claim.admissible, deadline <= problem.deadline);
        }
    }
}

#[test]
fn with_many_streams_limits_are_still_admissible() {
    let streams: Vec<_> = (0..64u64)
        .map(|i| {
            json!({"name": format!("s{i}"), "constraints": ["any_miss(1,2)"],
                   "arrivals": {"periodic": {"period": 9000 + 70 * i, "jitter": 500}}})
        })
        .collect();
    let problem = problem(&json!({
        "unit": "us", "deadline": 20000, "workers": [{"count": 1, "batch": 8, "time": 2000}], "streams": streams,
    }));
    let claim = certify(&problem);
    assert!(claim.admissible);
    for (i, stream) in claim.streams.iter().enumerate().step_by(16) {
        let scale = stream.max_rate_scale.expect("it has a limit").value.as_f64();
        assert!(scale > 1.0);
        let mut specs: Vec<_> = problem.specs().cloned().collect();
        specs[i] = scale::faster(&specs[i], (scale * 1000.0).round() as u64).expect("in range");
        assert!(problem.system().admit(&specs).is_ok());
    }
}

/// The examples of `docs/problems.md`: a problem, and the certificate that answers it; the same of several services and of a
/// pipeline.
#[test]
fn the_examples_of_the_documentation_are_real() {
    let page = include_str!("../../../docs/problems.md");
    let mut blocks = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let problem = Problem::parse(blocks.next().expect("a problem")).expect("a problem");
    let certificate = Certificate::new("weir 0.1.0", BTreeMap::new(), vec![certify(&problem)]);
    assert_eq!(blocks.next().expect("a certificate"), certificate.to_json());
    let problem = several_services(blocks.next().expect("a problem"));
    let certificate = Certificate::of_shared("weir 0.1.0", certify_shared(&problem));
    assert_eq!(blocks.next().expect("a certificate"), certificate.to_json());
    let problem = match Question::parse(blocks.next().expect("a problem")) {
        Ok(Question::Pipeline(problem)) => problem,
        other => panic!("{other:?}"),
    };
    let certificate = Certificate::of_pipeline("weir 0.1.0", certify_pipeline(&problem));
    assert_eq!(blocks.next().expect("a certificate"), certificate.to_json());
    // Of joins and of what is chosen only a part is shown.
    for _ in 0..2 {
        let problem = match Question::parse(blocks.next().expect("a problem")) {
            Ok(Question::Pipeline(problem)) => problem,
            other => panic!("{other:?}"),
        };
        let made = serde_json::to_value(certify_pipeline(&problem)).expect("JSON");
        let shown: Value = serde_json::from_str(blocks.next().expect("an answer")).expect("JSON");
        for (field, value) in shown.as_object().expect("fields") {
            assert_eq!(value, &made[field], "{field} in {made:#}");
        }
    }
}

fn several_services(text: &str) -> SharedProblem {
    match Question::parse(text) {
        Ok(Question::Shared(problem)) => problem,
        other => panic!("{text}: {other:?}"),
    }
}

/// A service of full batches every millisecond beside one of bursts, which only turns keep.
fn bursts(rule: &str, turn: &str) -> SharedProblem {
    several_services(&format!(
        r#"{{"unit": "us", "background": true, "workers": {{"count": 1}}, "rule": "{rule}", "services": [
        {{"name": "a", "deadline": 3, "batch": 3, "time": 1, {turn} "streams": [
            {{"name": "s", "constraints": ["row_miss(0)"], "arrivals": {{"periodic": {{"period": 1}}}}}}]}},
        {{"name": "b", "deadline": 12, "batch": 1, "time": 1, "streams": [
            {{"name": "s", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[5, 12]]}}}}]}}]}}"#
    ))
}

#[test]
fn either_rule_will_do_unless_one_is_asked_for() {
    let [auto, turns, edf] = ["auto", "turns", "edf"].map(|rule| certify_shared(&bursts(rule, "")));
    assert_eq!((auto.admissible, auto.rule), (true, SharedReason::Turns));
    assert_eq!((turns.admissible, edf.admissible, edf.rule), (true, false, SharedReason::Edf));
    assert_eq!((&auto.services, &auto.binding), (&turns.services, &turns.binding));
    assert!(edf.services.iter().all(|s| s.turn.is_none() && s.start_within.is_none()), "{edf:?}");
    // Three batches of the one in a turn keep the other from its deadline.
    let long = certify_shared(&bursts("auto", "\"turn\": 3,"));
    assert!(!long.admissible && long.reason.as_ref().is_some_and(|r| r.contains("; by turns: ")), "{long:?}");
}

/// Where a service has more to do in its turn than one batch, its turn is made longer.
#[test]
fn turns_are_chosen() {
    let text = r#"{"unit": "us", "workers": {"count": 1}, "rule": "turns", "services": [
        {"name": "a", "deadline": 60, "batch": 1, "time": 5, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 8]]}}]},
        {"name": "b", "deadline": 16, "batch": 1, "time": 1, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[5, 16]]}}]}]}"#;
    let claim = certify_shared(&several_services(text));
    // Five turns of one would wait for five batches of `a`: 5 + 5·5 + 4 > 15. One of five waits for one.
    let turns: Vec<_> = claim.services.iter().map(|s| s.turn).collect();
    assert_eq!((claim.admissible, turns), (true, vec![Some(1), Some(5)]), "{claim:?}");
    let stated = text.replace("\"time\": 1,", "\"time\": 1, \"turn\": 4,");
    assert!(!certify_shared(&several_services(&stated)).admissible, "what is stated stays");
}

#[test]
fn refusals_of_services_that_share_workers_say_why() {
    let with = |from: &str, to: &str| {
        let raw = serde_json::to_string(&bursts("auto", "").raw).expect("JSON").replacen(from, to, 1);
        certify_shared(&several_services(&raw))
    };
    let rate = with(r#""period":1"#, r#""period":0.1"#);
    assert_eq!((rate.admissible, rate.rule, &rate.binding), (false, SharedReason::Rate, &None));
    assert!(rate.max_load_scale.is_some_and(|scale| scale.as_f64() < 1.0), "{rate:?}");
    let times = r#""batch":3,"times":[1,2,4]"#;
    let latency = with(r#""batch":3,"time":1"#, times);
    assert_eq!((latency.admissible, latency.rule), (false, SharedReason::Latency));
    assert!(latency.reason.is_some_and(|reason| reason.contains("a batch of a takes 4.00 µs")));
}

/// Each limit is admissible with the rule and the turns of the answer, and one step more is not.
#[test]
fn limits_of_services_that_share_workers_are_the_last_values() {
    let steps = |number: Number| (number.as_f64() * 1000.0).round() as u64;
    for problem in [bursts("auto", ""), bursts("edf", "")] {
        let claim = certify_shared(&problem);
        let rule = if claim.rule == SharedReason::Turns { CoreRule::Turns } else { CoreRule::Earliest };
        let turns: Vec<u32> = claim.services.iter().map(|s| s.turn.unwrap_or(1)).collect();
        let admits = |problem: &SharedProblem, specs: &[Vec<StreamSpec>]| {
            let streams: Vec<&[StreamSpec]> = specs.iter().map(Vec::as_slice).collect();
            problem.sharing(rule, &turns).admit(&streams).is_ok()
        };
        let scaled = |scale: u64, one: Option<usize>| {
            let of = |(s, specs): (usize, Vec<StreamSpec>)| {
                let fast = |spec| {
                    if one.is_none_or(|one| one == s) { scale::faster(&spec, scale) } else { Some(spec) }
                };
                specs.into_iter().map(fast).collect::<Option<Vec<_>>>()
            };
            let specs: Option<Vec<_>> = problem.specs().enumerate().map(of).collect();
            specs.is_some_and(|specs| admits(&problem, &specs))
        };
        let load = steps(claim.max_load_scale.expect("something is promised"));
        assert!((load == 0 || scaled(load, None)) && !scaled(load + 1, None), "{claim:?}");
        assert_eq!(claim.admissible, load >= 1000);
        for (s, answer) in claim.services.iter().enumerate() {
            let rate = steps(answer.max_rate_scale.expect("something is promised"));
            assert!((rate == 0 || scaled(rate, Some(s))) && !scaled(rate + 1, Some(s)), "{claim:?}");
            let Some(deadline) = answer.min_deadline else { continue };
            let deadline = deadline.to_span(problem.raw.unit).expect("a time");
            let within = |deadline: Span| {
                let mut problem = problem.clone();
                problem.services[s].deadline = deadline;
                admits(&problem, &problem.specs().collect::<Vec<_>>())
            };
            assert!(within(deadline) && !within(deadline.saturating_sub(Span::from_nanos(1))), "{claim:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_problem_gets_a_certificate(raw in problems()) {
        // Closed ones can take long; `several` has some.
        let problem = Problem::from_raw(crate::problem::raw::Problem { background: true, ..raw });
        let problem = problem.expect("in range");
        let claim = certify(&problem);
        prop_assert_eq!(claim.admissible, problem.system().admit(problem.specs()).is_ok());
        prop_assert_eq!(claim.admissible, claim.reason.is_none());
        let certificate = Certificate::new("test", BTreeMap::new(), vec![claim]);
        prop_assert_eq!(Certificate::parse(&certificate.to_json()).expect("its own text"), certificate);
    }
}

/// Two cameras on two workers of two kinds, one with two levels and one with none.
fn laddered() -> Value {
    let level = |constraint: &str, count: u64| json!({"constraints": [constraint], "arrivals": {"windows": [[count, 12]]}});
    json!({
        "unit": "ms", "deadline": 24, "background": true,
        "workers": [{"count": 2, "batch": 1, "time": 2}, {"count": 1, "batch": 4, "time": 6}],
        "streams": [
            {"name": "cam", "constraints": ["any_miss(1,4)"], "arrivals": {"windows": [[8, 12]]},
             "degraded": [level("any_miss(1,2)", 12), level("any_miss(3,4)", 24)]},
            {"name": "meter", "constraints": ["row_miss(0)"], "arrivals": {"periodic": {"period": 12, "jitter": 5}}},
        ],
    })
}

#[test]
fn contingencies_are_what_would_be_certified_with_a_worker_less_or_longer_batches() {
    let claim = certify(&problem(&laddered()));
    assert!(claim.admissible, "{claim:?}");
    let at = |json: &Value, level: Option<usize>| {
        let mut json = json.clone();
        if let Some(level) = level {
            json["streams"][0]["constraints"] = json["streams"][0]["degraded"][level]["constraints"].clone();
        }
        json["streams"][0]["degraded"] = json!([]);
        certify(&problem(&json)).max_load_scale.expect("something is promised")
    };
    let levels = [None, Some(0), Some(1)];
    let with = |change: &dyn Fn(&mut Value)| {
        let mut json = laddered();
        change(&mut json["workers"]);
        levels.map(|level| at(&json, level))
    };
    let one_of_each = [
        with(&|workers| workers[0]["count"] = json!(1)),
        with(&|workers| *workers = json!([{"count": 2, "batch": 1, "time": 2}])),
    ];
    let least = |level: usize| one_of_each.iter().map(|kind| kind[level].as_f64()).fold(f64::MAX, f64::min);
    let longer = with(&|workers| {
        *workers = json!([{"count": 2, "batch": 1, "time": 3}, {"count": 1, "batch": 4, "time": 9}]);
    });
    let told = |case: Case| {
        let found = claim.contingencies.iter().find(|told| told.case == case).expect("both");
        found.max_load_scales.iter().map(|scale| scale.as_f64()).collect::<Vec<_>>()
    };
    assert_eq!(told(Case::WorkerLost), [0, 1, 2].map(least));
    assert_eq!(told(Case::LongerBatches), longer.map(|scale| scale.as_f64()));
    assert!(told(Case::WorkerLost).is_sorted() && told(Case::WorkerLost)[0] < told(Case::WorkerLost)[2]);
}

#[test]
fn who_has_one_worker_keeps_nothing_without_it_and_who_has_no_levels_is_told_nothing() {
    let mut alone = laddered();
    alone["workers"] = json!([{"count": 1, "batch": 4, "time": 2}]);
    let told = certify(&problem(&alone)).contingencies;
    assert_eq!(told[0].max_load_scales, [Number::default(); 3]);
    assert!(told[1].max_load_scales[0].as_f64() > 0.0, "{told:?}");
    alone["streams"][0]["degraded"] = json!([]);
    assert_eq!(certify(&problem(&alone)).contingencies, []);
    // As long as anything may take, and half as long again.
    let mut slow = laddered();
    slow["unit"] = json!("s");
    slow["workers"] = json!([{"count": 1, "batch": 1, "time": 3600}]);
    slow["deadline"] = json!(3600);
    assert_eq!(certify(&problem(&slow)).contingencies[1].max_load_scales, [Number::default(); 3]);
}
