//! The checker of certificates against the program that writes them, and against a naive count, on random problems.

use std::collections::BTreeMap;

use planner::certificate::{Binding, Refutation, Rule, Shows};
use planner::problem::raw;
use planner::verify::{Verified, VerifyError, verify};
use planner::{Certificate, Claim, Number, Problem, certify};
use proptest::prelude::*;
use rt_core::Span;

fn problem(text: &str) -> raw::Problem {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn check(claim: &Claim) -> Result<Verified, VerifyError> {
    verify(&Certificate::new("by chance", BTreeMap::new(), vec![claim.clone()]))
}

fn arrivals() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (1u64..6, 2u64..10).prop_map(|(n, w)| format!(r#""windows": [[{n}, {w}]]"#)),
        2 => (1u64..6, 0u64..12).prop_map(|(t, j)| format!(r#""periodic": {{"period": {t}, "jitter": {j}}}"#)),
        1 => (2u64..7, 0u64..20)
            .prop_map(|(t, j)| format!(r#""periodic": {{"period": {t}, "jitter": {j}, "distance": 2}}"#)),
        1 => (1u64..5, 1u64..7, 1u64..4, 1u64..7).prop_map(|(b, t, n, w)| {
            format!(r#""token_bucket": {{"burst": {b}, "period": {t}}}, "windows": [[{n}, {w}]]"#)
        }),
    ]
}

/// Deadlines of one and a half to four batches, and loads near what the workers can do.
fn random_problem(closed: bool) -> impl Strategy<Value = String> {
    let constraint = prop_oneof![
        4 => (0u64..3, 1u64..4).prop_map(|(m, more)| format!("\"any_miss({m},{})\"", m + more)),
        1 => Just(String::new())
    ];
    let stream = (constraint, arrivals());
    let kind = (1usize..3, prop::collection::vec(0u64..2, 1..4), 1u64..4);
    let kinds = prop::collection::vec(kind, 1..=if closed { 1 } else { 2 });
    let rest = (15u64..40, 0u64..8, any::<bool>());
    (rest, kinds, prop::collection::vec(stream, 1..3)).prop_map(
        move |((tenths, guard, patient), kinds, streams)| {
            let (guard, mut longest, mut workers) = (guard.saturating_sub(5), 0, Vec::new());
            for (count, steps, first) in &kinds {
                let times: Vec<_> =
                    (0..steps.len()).map(|b| first + steps[1..=b].iter().sum::<u64>()).collect();
                longest = longest.max(times[times.len() - 1]);
                workers
                    .push(format!(r#"{{"count": {count}, "batch": {}, "times": {times:?}}}"#, times.len()));
            }
            let dispatch = if patient { "full-or-latest" } else { "eager" };
            let stream = |(i, (constraint, arrivals)): (usize, &(String, String))| {
                format!(r#"{{"name": "s{i}", "constraints": [{constraint}], "arrivals": {{{arrivals}}}}}"#)
            };
            let streams: Vec<_> = streams.iter().enumerate().map(stream).collect();
            format!(
                r#"{{"unit": "us", "deadline": {}, "guard": {guard}, "dispatch": "{dispatch}",
            "background": {}, "workers": [{}], "streams": [{}]}}"#,
                (longest * tenths).div_ceil(10) + guard,
                !closed,
                workers.join(","),
                streams.join(",")
            )
        },
    )
}

fn agrees(text: &str) -> Result<(), TestCaseError> {
    let Ok(parsed) = Problem::from_raw(problem(text)) else { return Ok(()) };
    let claim = certify(&parsed);
    let said = check(&claim);
    // The checker may find a refinement too much work, but never wrong.
    let unconfirmed = said.as_ref().is_err_and(|e| e.derived.starts_with("not confirmed"));
    let fine = said.is_ok() || unconfirmed && claim.rule == Rule::Refined;
    prop_assert!(fine, "{:?}: {} for {:?}", said, text, claim);
    if !claim.admissible && claim.rule != Rule::Horizon {
        let [delta, lhs, rhs] = [0, 1, 2].map(Number::whole);
        let any = Binding { delta, backlog: 1, lhs, rhs };
        for rule in [Rule::TheoremA, Rule::Refined, Rule::NothingPromised] {
            let forced = Claim { admissible: true, rule, binding: Some(any), ..claim.clone() };
            prop_assert!(check(&forced).is_err(), "{}", text);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(std::env::var("CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200)))]

    /// Each half-open interval that ends with an arrival, counted by the curve that the problem is read into.
    #[test]
    fn the_first_arrival_that_comes_too_soon_is_named(
        text in random_problem(false),
        pauses in prop::collection::vec((0u64..9, 0usize..2), 1..40),
    ) {
        let Ok(parsed) = Problem::from_raw(problem(&text)) else { return Ok(()) };
        let (mut now, mut sent, mut arrivals, mut soon) = (0, [vec![], vec![]], vec![], None);
        for (j, (pause, s)) in pauses.into_iter().enumerate() {
            now += pause.saturating_sub(4);
            let s = s % parsed.streams.len();
            let (name, spec) = &parsed.streams[s];
            sent[s].push(now);
            arrivals.push((Number::whole(now), name.clone()));
            let curve = spec.arrivals().expect("declared");
            let within = |since: u64| Span::from_nanos((now - since) * 1000 + 1);
            let mut ending = (1..).zip(sent[s].iter().rev());
            if ending.any(|(count, &first)| count > curve.count(within(first))) {
                soon = soon.or(Some(format!("refutation.arrivals[{j}]")));
            }
        }
        let mut claim = certify(&parsed);
        claim.admissible = false;
        claim.reason = Some("as a test".to_owned());
        let stream = parsed.streams[0].0.clone();
        claim.refutation = Some(Refutation { shows: Shows::Violation, stream, arrivals });
        prop_assert_eq!(check(&claim).err().map(|e| e.field), soon);
    }

    #[test]
    fn what_is_certified_is_verified(text in random_problem(false)) {
        agrees(&text)?;
    }

    #[test]
    fn what_the_refinement_certifies_is_verified(text in random_problem(true)) {
        agrees(&text)?;
    }
}
