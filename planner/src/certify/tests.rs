//! Answers to problems, and limits that are the last values to be admitted.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::certificate::{Certificate, Limit};
use crate::number::Number;
use crate::problem::tests::problems;
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

/// The two examples of `docs/problems.md`: a problem, and the certificate that answers it.
#[test]
fn the_example_of_the_documentation_is_real() {
    let page = include_str!("../../../docs/problems.md");
    let mut blocks = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let problem = Problem::parse(blocks.next().expect("a problem")).expect("a problem");
    let certificate = Certificate::new("weir 0.1.0", BTreeMap::new(), vec![certify(&problem)]);
    assert_eq!(blocks.next().expect("a certificate"), certificate.to_json());
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
