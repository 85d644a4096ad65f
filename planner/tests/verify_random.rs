//! The checker of certificates against the program that writes them, and against a naive count, on random problems.

use std::collections::BTreeMap;

use planner::certificate::{Binding, Refutation, Rule, Shows};
use planner::problem::raw;
use planner::verify::{Verified, VerifyError, verify};
use planner::{Certificate, Claim, Number, Problem, certify};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::Span;

use crate::prover::prover;

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

/// Also lists: least distances, and traces whose distances are meant.
fn any_arrivals() -> impl Strategy<Value = String> {
    let list = |first: u64| {
        prop::collection::vec(0u64..8, 1..6).prop_map(move |steps| {
            let sums = steps.iter().scan(first, |sum, step| {
                *sum += step;
                Some(*sum)
            });
            sums.collect::<Vec<_>>()
        })
    };
    prop_oneof![
        3 => arrivals(),
        1 => list(1).prop_map(|list| format!(r#""distances": {list:?}"#)),
        1 => (list(0), 1u64..5, 2u64..10)
            .prop_map(|(list, n, w)| format!(r#""trace": {list:?}, "windows": [[{n}, {w}]]"#)),
    ]
}

/// Deadlines of one and a half to four batches, and loads near what the workers can do.
fn random_problem(closed: bool) -> impl Strategy<Value = String> {
    random_problem_of(closed, arrivals())
}

fn random_problem_of(closed: bool, arrivals: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let constraint = prop_oneof![
        4 => (0u64..3, 1u64..4).prop_map(|(m, more)| format!("\"any_miss({m},{})\"", m + more)),
        1 => Just(String::new())
    ];
    let stream = (constraint, arrivals);
    let kind = (1usize..3, prop::collection::vec(0u64..2, 1..4), 1u64..4);
    let kinds = prop::collection::vec(kind, 1..=if closed { 1 } else { 2 });
    let stalls = prop_oneof![
        3 => Just(None),
        1 => (1u64..3, 50u64..400, 1u64..5).prop_map(Some),
    ];
    let rest = (15u64..40, 0u64..8, any::<bool>(), stalls);
    (rest, kinds, prop::collection::vec(stream, 1..3)).prop_map(
        move |((tenths, guard, patient, stalls), kinds, streams)| {
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
            let lost = stalls.map_or(0, |(count, _, length)| count * length);
            let stalls = stalls.map_or_else(String::new, |(count, window, length)| {
                format!(r#""stalls": {{"count": {count}, "window": {window}, "length": {length}}},"#)
            });
            format!(
                r#"{{"unit": "us", "deadline": {}, "guard": {guard}, {stalls} "dispatch": "{dispatch}",
            "background": {}, "workers": [{}], "streams": [{}]}}"#,
                (longest * tenths).div_ceil(10) + guard + lost,
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
            let forced = Claim { admissible: true, rule, binding: Some(any), reason: None, ..claim.clone() };
            prop_assert!(check(&forced).is_err(), "{}", text);
        }
    }
    Ok(())
}

/// The checker that is proved sound may be more cautious than the other, never less.
#[test]
fn what_is_proved_is_certified_and_nearly_all_that_is_certified_is_proved() {
    let Some(prover) = prover() else { return };
    let mut runner = TestRunner::deterministic();
    let (open, closed) = (random_problem_of(false, any_arrivals()), random_problem_of(true, any_arrivals()));
    let (mut admitted, mut refused, mut refined) = (Vec::new(), Vec::new(), 0);
    for case in 0..800 {
        let text = if case % 4 == 0 { closed.new_tree(&mut runner) } else { open.new_tree(&mut runner) };
        let Ok(parsed) = Problem::from_raw(problem(&text.expect("a problem").current())) else { continue };
        if parsed.stalls.is_some() {
            continue;
        }
        let claim = certify(&parsed);
        match (claim.admissible, claim.rule) {
            (_, Rule::NothingPromised | Rule::Horizon) => {}
            (true, rule) => {
                refined += usize::from(rule == Rule::Refined);
                admitted.push(claim);
            }
            (false, _) => {
                refused.push(Claim { admissible: true, rule: Rule::TheoremA, reason: None, ..claim });
            }
        }
    }
    let certificate = |claims: &Vec<Claim>| Certificate::new("by chance", BTreeMap::new(), claims.clone());
    let (proved, unproved) = prover.check(&certificate(&admitted)).expect("answers");
    let reasons = unproved.iter().filter(|u| admitted[u.claim].rule != Rule::Refined).count();
    println!("{proved} of {} proved, {refined} refined, {} refused", admitted.len(), refused.len());
    assert_eq!((proved + unproved.len(), unproved.len() - reasons), (admitted.len(), refined));
    assert!(reasons * 50 <= proved, "{reasons} of Theorem A are not confirmed: {unproved:?}");
    assert!(proved > 150 && refused.len() > 50, "too few to say anything");
    let (wrong, _) = prover.check(&certificate(&refused)).expect("answers");
    assert_eq!(wrong, 0, "confirmed, but refused");
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
        // One that sends.
        let stream = arrivals[0].1.clone();
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
