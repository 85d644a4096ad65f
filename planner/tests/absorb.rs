//! Certificates of problems in which constraints absorb stalls: what is certified is verified, and less than it counts on is not.

use std::collections::BTreeMap;

use planner::certificate::Rule;
use planner::verify::{VerifyError, verify};
use planner::{Certificate, Claim, Number, Problem, certify};

/// The next number of a sequence that looks random, in `low..=high`.
fn draw(state: &mut u64, low: u64, high: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    low + (*state >> 33) % (high - low + 1)
}

fn problem(state: &mut u64) -> Option<Problem> {
    let mut draw = |low, high| draw(state, low, high);
    let stream = |i: u64, draw: &mut dyn FnMut(u64, u64) -> u64| {
        let k = draw(4, 40);
        let m = k - 1 - draw(0, k / 2);
        let arrivals = match draw(0, 2) {
            0 => format!(r#""windows": [[{}, {}]]"#, draw(1, 4), draw(5, 40)),
            1 => format!(r#""periodic": {{"period": {}, "jitter": {}}}"#, draw(3, 20), draw(0, 20)),
            _ => format!(r#""distances": [{}, {}]"#, draw(0, 9), draw(9, 40)),
        };
        format!(r#"{{"name": "s{i}", "constraints": ["any_miss({m},{k})"], "arrivals": {{{arrivals}}}}}"#)
    };
    let streams: Vec<_> = (0..draw(1, 3)).map(|i| stream(i, &mut draw)).collect();
    let (time, more, guard) = (draw(1, 4), draw(0, 2), draw(0, 2));
    let deadline = 2 * (time + more) + guard + draw(0, 8);
    Problem::parse(&format!(
        r#"{{"unit": "us", "deadline": {deadline}, "guard": {guard}, "background": true,
        "stalls": {{"count": {}, "window": {}, "length": {}, "recovery": {}}},
        "workers": [{{"count": {}, "batch": 2, "times": [{time}, {}]}}], "streams": [{}]}}"#,
        draw(1, 2),
        draw(200, 4_000),
        draw(1, 20),
        draw(3, 90),
        draw(1, 2),
        time + more,
        streams.join(",")
    ))
    .ok()
}

fn check(claim: &Claim) -> Result<(), VerifyError> {
    verify(&Certificate::new("by chance", BTreeMap::new(), vec![claim.clone()])).map(drop)
}

/// The claim with another recovery, window or density; where the program says no to that, or serves more than it did, the checker
/// does not say yes.
#[test]
fn what_is_certified_of_absorbed_stalls_is_verified_and_what_counts_on_less_is_refused() {
    let (mut state, mut yes, mut no, mut forged) = (7, 0, 0, 0);
    for _ in 0..1_500 {
        let Some(problem) = problem(&mut state) else { continue };
        let claim = certify(&problem);
        if let Err(error) = check(&claim) {
            panic!("{error}: {}", serde_json::to_string(&claim).expect("JSON"));
        }
        if !claim.admissible {
            no += usize::from(claim.rule == Rule::Stalls);
            continue;
        }
        yes += 1;
        let stalls = claim.problem.stalls.expect("declared");
        let recovery = problem.system().recovery(problem.specs()).expect("it is over some time");
        assert!(recovery <= problem.stalls.and_then(|stalls| stalls.recovery()).expect("absorbed"));
        let nanos = |ns: u64| Number::of_span(rt_core::Span::from_nanos(ns), problem.raw.unit);
        let short = recovery.as_nanos().checked_sub(1).filter(|&ns| ns > 0);
        let mut less = Vec::new();
        less.extend(short.map(|ns| planner::problem::raw::Stalls { recovery: Some(nanos(ns)), ..stalls }));
        less.push(planner::problem::raw::Stalls { window: stalls.recovery.expect("absorbed"), ..stalls });
        less.push(planner::problem::raw::Stalls { recovery: None, ..stalls });
        for stalls in less {
            let raw = planner::problem::raw::Problem { stalls: Some(stalls), ..claim.problem.clone() };
            // Another recovery may go with another density, and be enough.
            let same = Problem::from_raw(raw.clone()).is_ok_and(|p| {
                let told = certify(&p);
                told.admissible && told.streams == claim.streams && told.binding == claim.binding
            });
            if !same {
                assert!(check(&Claim { problem: raw, ..claim.clone() }).is_err(), "{claim:?}");
                forged += 1;
            }
        }
        let mut thin = claim.clone();
        let Some(dense) = thin.streams.iter_mut().find(|s| s.density.0 > 1) else { continue };
        dense.density.0 -= 1;
        assert!(check(&thin).expect_err("less is served").field.ends_with("density"));
    }
    println!("{yes} certified, {no} refused for stalls, {forged} forged");
    assert!(yes > 50 && no > 50 && forged > 50);
}
