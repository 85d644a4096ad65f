//! The checker of certificates: it confirms what follows, and names the field that does not.

use std::collections::BTreeMap;

use planner::certificate::{Binding, Limit, Limits, Refutation, Rule, Shows, StreamAnswer};
use planner::problem::raw;
use planner::verify::{ProverError, Verified, VerifyError, verify};
use planner::{Certificate, Claim, Number, Problem, certify};

use crate::prover::prover;

fn problem(text: &str) -> raw::Problem {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn n(text: &str) -> Number {
    text.parse().unwrap_or_else(|e| panic!("{text} {e}"))
}

fn binding(delta: &str, backlog: u64, lhs: &str, rhs: &str) -> Binding {
    Binding { delta: n(delta), backlog, lhs: n(lhs), rhs: n(rhs) }
}

/// The digest is always right: what is tested is what it protects. The proved checker confirms what is verified, but for
/// what the refinement decides, and no promise that is not.
fn check(claim: &Claim) -> Result<Verified, VerifyError> {
    let certificate = Certificate::new("by hand", BTreeMap::new(), vec![claim.clone()]);
    let said = verify(&certificate);
    if let Some(prover) = prover()
        && claim.admissible
        && matches!(claim.rule, Rule::TheoremA | Rule::Refined)
    {
        match (&said, prover.check(&certificate)) {
            (_, Err(ProverError::Problem(_))) => assert!(said.is_err()),
            (_, Err(other)) => panic!("{other}"),
            (Ok(_), Ok((proved, _))) => assert_eq!(proved == 1, claim.rule == Rule::TheoremA),
            (Err(no), Ok((proved, _))) => assert!(no.field != "admissible" || proved == 0, "{no}"),
        }
    }
    said
}

/// The field that a claim is refused for.
fn field(claim: &Claim) -> String {
    check(claim).map_or_else(|e| e.field, |_| panic!("verified: {claim:?}"))
}

fn yes(
    problem: raw::Problem,
    rule: Rule,
    binding: Binding,
    busy: &str,
    waiting: u64,
    density: (u32, u32),
) -> Claim {
    let answer = |s: &raw::Stream| StreamAnswer {
        name: s.name.clone(),
        density,
        constraints: s.constraints.iter().map(|text| (text.clone(), "binds".to_owned())).collect(),
        max_rate_scale: None,
        largest_count: None,
    };
    Claim {
        service: None,
        streams: problem.streams.iter().map(answer).collect(),
        problem,
        admissible: true,
        rule,
        binding: Some(binding),
        busy: Some(n(busy)),
        waiting: Some(waiting),
        max_load_scale: None,
        limits: Limits::default(),
        contingencies: Vec::new(),
        reason: None,
        refutation: None,
    }
}

/// The worked example of `docs/guarantee.md`.
fn page() -> Claim {
    let text = r#"{"unit": "ms", "deadline": 6, "background": true, "workers": [{"count": 1, "batch": 1, "time": 2}],
        "streams": [{"name": "a", "constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[2, 4]]}}]}"#;
    yes(problem(text), Rule::TheoremA, binding("0", 1, "4", "6"), "2", 1, (1, 2))
}

#[test]
fn the_worked_example_of_the_guarantee_page_holds() {
    let mut claim = page();
    assert_eq!(check(&claim), Ok(Verified { promised: 1, refused: 0, limits: 0 }));
    claim.limits.min_deadline = Some(Limit { value: n("4"), binding: None });
    claim.limits.min_workers = Some(Limit { value: 1, binding: None });
    claim.max_load_scale = Some(n("2"));
    assert_eq!(check(&claim), Ok(Verified { promised: 1, refused: 0, limits: 3 }));
}

/// The same with levels behind the promise, each a constraint and so many in 4 ms.
fn with_levels(levels: &[(&str, u64)]) -> Claim {
    let mut claim = page();
    let level = |&(constraint, count): &(&str, u64)| raw::Level {
        constraints: vec![constraint.to_owned()],
        arrivals: raw::Arrivals { windows: vec![(count, n("4"))], ..raw::Arrivals::default() },
    };
    claim.problem.streams[0].degraded = levels.iter().map(level).collect();
    claim
}

#[test]
fn levels_are_verified_and_one_of_which_more_must_be_served_is_refused() {
    let good = with_levels(&[("any_miss(2,3)", 3), ("row_miss(7)", 8)]);
    assert_eq!(check(&good), Ok(Verified { promised: 1, refused: 0, limits: 0 }));
    for bad in [
        // One in four each, of which a third is one more; but half of them, of which no more may come; a denser one behind.
        with_levels(&[("any_miss(2,3)", 4)]),
        with_levels(&[("any_miss(1,2)", 3)]),
        with_levels(&[("row_miss(7)", 8), ("any_miss(2,3)", 3)]),
        with_levels(&[("any_miss(3,3)", 3)]),
    ] {
        let refused = field(&bad);
        assert!(refused.contains("problem.streams"), "{refused}");
    }
}

#[test]
fn contingencies_are_verified_and_more_than_holds_is_refused() {
    let mut claim = with_levels(&[("any_miss(2,3)", 3), ("row_miss(7)", 8)]);
    claim.problem.workers[0].count = 2;
    claim = certify(&Problem::from_raw(claim.problem).expect("a problem"));
    let scales = |claim: &Claim, case: usize| claim.contingencies[case].max_load_scales.clone();
    // One worker is left of two: as the example is, at its own level.
    assert_eq!(scales(&claim, 0)[0], n("2"));
    assert!(check(&claim).expect("it follows").limits >= 6);
    for case in 0..2 {
        for level in 0..3 {
            let mut more = claim.clone();
            let scale = &mut more.contingencies[case].max_load_scales[level];
            *scale = Number::thousandths((scale.as_f64() * 1000.0).round() as u64 + 1);
            let refused = field(&more);
            assert_eq!(refused, format!("contingencies[{case}].max_load_scales[{level}]"));
        }
    }
    let mut without = claim.clone();
    without.problem.workers[0].count = 1;
    without.contingencies.truncate(1);
    assert!(check(&without).is_err(), "nothing holds without the only worker");
    claim.contingencies[1].max_load_scales.pop();
    assert!(field(&claim).starts_with("contingencies[1]"));
    claim.contingencies.clear();
    check(&claim).expect("nothing is said of them");
}

/// Whether the checker and the code that it checks agree on which levels ask for no more, over many pairs.
#[test]
fn what_is_taken_as_a_ladder_is_verified() {
    let set = |m, k| {
        rt_core::ConstraintSet::new(&[rt_core::Constraint::any_miss(m, k).expect("m < k")]).expect("one")
    };
    let ms = |n: u64| rt_core::Span::from_millis(n);
    let mut taken = 0;
    for (m, k) in [(0, 1), (1, 10), (1, 4), (1, 3)] {
        for (weak, of) in [(1, 2), (2, 3), (5, 10), (3, 10), (8, 9)] {
            for (period, jitter) in [(4, 0), (4, 3), (6, 9), (5, 20)] {
                let strong = set(m, k).density();
                let bound = rt_core::ArrivalBound::periodic(ms(period), ms(jitter)).expect("valid");
                let first = rt_core::ArrivalCurve::new(&[bound]).expect("one");
                let level = rt_core::Level::behind((strong, &first), set(weak, of)).expect("a bound");
                let rt_core::ArrivalBound::Periodic { period: own, jitter: late } =
                    level.arrivals.bounds()[0]
                else {
                    panic!("{level:?}")
                };
                let ns = |span: rt_core::Span| Number::whole(span.as_nanos());
                let text = format!(
                    r#"{{"unit": "ns", "deadline": 900000000, "background": true, "workers": [{{"count": 8, "batch": 8, "time": 1000000}}],
                    "streams": [{{"name": "a", "constraints": ["any_miss({m},{k})"],
                        "arrivals": {{"periodic": {{"period": {}, "jitter": {}}}}},
                        "degraded": [{{"constraints": ["any_miss({weak},{of})"],
                            "arrivals": {{"periodic": {{"period": {}, "jitter": {}}}}}}}]}}]}}"#,
                    ns(ms(period)),
                    ns(ms(jitter)),
                    ns(own),
                    ns(late)
                );
                let Ok(asked) = Problem::from_raw(problem(&text)) else { continue };
                let claim = certify(&asked);
                assert!(claim.admissible, "{text}");
                check(&claim).unwrap_or_else(|no| panic!("{text}: {no}"));
                taken += 1;
            }
        }
    }
    assert!(taken > 40, "{taken}");
}

#[test]
fn every_field_that_is_tampered_with_is_named() {
    type Tamper = fn(&mut Claim);
    let cases: &[(&str, Tamper)] = &[
        ("streams[0].density", |c| c.streams[0].density = (1, 3)),
        ("streams[0].density", |c| c.streams[0].density = (0, 0)),
        ("streams[0].name", |c| c.streams[0].name = "b".into()),
        ("streams", |c| c.streams.clear()),
        ("streams[0].constraints", |c| c.streams[0].constraints[0].0 = "any_miss(0,1)".into()),
        ("streams[0].constraints", |c| c.streams[0].constraints.push(("row_miss(0)".into(), "kept".into()))),
        ("streams[0].constraints", |c| c.streams[0].constraints.clear()),
        ("rule", |c| c.rule = Rule::Refined),
        ("rule", |c| c.rule = Rule::NothingPromised),
        ("rule", |c| c.rule = Rule::Horizon),
        ("binding", |c| c.binding = None),
        ("binding.delta", |c| c.binding = Some(binding("4", 2, "6", "10"))),
        ("binding.backlog", |c| c.binding = Some(binding("0", 2, "4", "6"))),
        ("binding.lhs", |c| c.binding = Some(binding("0", 1, "3.999999", "6"))),
        ("binding.rhs", |c| c.binding = Some(binding("0", 1, "4", "6.000001"))),
        ("waiting", |c| c.waiting = Some(0)),
        ("waiting", |c| c.waiting = None),
        ("busy", |c| c.busy = Some(n("2.1"))),
        ("busy", |c| c.busy = None),
        ("limits.min_deadline", |c| {
            c.limits.min_deadline = Some(Limit { value: n("3.999999"), binding: None });
        }),
        ("limits.min_workers", |c| c.limits.min_workers = Some(Limit { value: 0, binding: None })),
        ("max_load_scale", |c| c.max_load_scale = Some(n("2.001"))),
        ("max_load_scale", |c| c.max_load_scale = Some(n("0"))),
        ("admissible", |c| c.problem.deadline = n("3")),
        ("binding.rhs", |c| c.problem.deadline = n("5")),
        ("binding.rhs", |c| c.problem.guard = n("0.000001")),
        ("binding.backlog", |c| c.problem.streams[0].arrivals.as_mut().expect("declared").windows[0].0 = 3),
        ("streams[0].density", |c| {
            c.problem.streams[0].constraints.push("row_hit(2,3)".into());
            c.streams[0].constraints.push(("row_hit(2,3)".into(), "binds".into()));
        }),
        ("admissible", |c| c.problem.workers[0].time = Some(n("4"))),
        ("reason", |c| c.admissible = false),
    ];
    for (i, (named, tamper)) in cases.iter().enumerate() {
        let mut claim = page();
        tamper(&mut claim);
        let error = check(&claim).map_or_else(|e| e, |_| panic!("case {i}, {named}: verified"));
        assert_eq!((&*error.field, &*error.claim), (*named, "claim 0"), "case {i}: {error}");
    }
    let mut certificate = Certificate::new("by hand", BTreeMap::new(), vec![page()]);
    certificate.made_by.push('!');
    assert_eq!(verify(&certificate).expect_err("changed").field, "digest");
}

#[test]
fn a_problem_that_is_none_is_refused() {
    type Tamper = fn(&mut raw::Problem);
    let cases: &[(&str, Tamper)] = &[
        ("problem.deadline", |p| p.deadline = n("0.0000001")),
        ("problem.deadline", |p| p.deadline = n("-6")),
        ("problem.workers.time", |p| p.workers[0].time = Some(n("0"))),
        ("problem.workers.time", |p| p.workers[0].times = Some(vec![n("1")])),
        ("problem.workers", |p| p.workers[0].count = 0),
        ("problem.workers", |p| p.workers[0].batch = 0),
        ("problem.workers", |p| p.workers.clear()),
        ("problem.streams.constraints", |p| p.streams[0].constraints.push("any_miss(2,2)".into())),
        ("problem.streams.constraints", |p| p.streams[0].constraints.push("row_hit(0,2)".into())),
        ("problem.streams.constraints", |p| p.streams[0].constraints.push("any_hit(3,2)".into())),
        ("problem.streams.arrivals", |p| p.streams[0].arrivals = None),
        ("problem.streams.arrivals", |p| p.streams[0].arrivals = Some(raw::Arrivals::default())),
    ];
    for (i, (named, tamper)) in cases.iter().enumerate() {
        let mut claim = page();
        tamper(&mut claim.problem);
        assert_eq!(field(&claim), *named, "case {i}");
    }
}

#[test]
fn all_four_names_and_all_bounds_are_read() {
    let text = |constraint: &str, arrivals: &str| {
        problem(&format!(
            r#"{{"unit": "us", "deadline": 1000, "background": true, "workers": [{{"count": 1, "batch": 1, "time": 1}}],
            "streams": [{{"name": "a", "constraints": ["{constraint}"], "arrivals": {{{arrivals}}}}}]}}"#
        ))
    };
    // Request k comes at such an offset, and finds no one waiting but those at the same instant.
    for (constraint, density, arrivals, backlog) in [
        ("any_miss(1,4)", (3, 4), r#""windows": [[8, 90]]"#, 6),
        ("any_hit(3,4)", (3, 4), r#""windows": [[8, 90]]"#, 6),
        ("row_miss(3)", (1, 4), r#""windows": [[8, 90]]"#, 2),
        ("row_hit(2,7)", (5, 7), r#""windows": [[7, 90]]"#, 5),
        ("row_miss(0)", (1, 1), r#""periodic": {"period": 30, "jitter": 60}"#, 3),
        ("row_miss(0)", (1, 1), r#""periodic": {"period": 30, "jitter": 60, "distance": 9}"#, 1),
        ("row_miss(0)", (1, 1), r#""token_bucket": {"burst": 4, "period": 30}"#, 4),
        ("row_miss(0)", (1, 1), r#""token_bucket": {"burst": 4, "period": 30}, "windows": [[3, 40]]"#, 3),
        ("row_miss(0)", (1, 1), r#""distances": [0, 0, 50]"#, 3),
        ("row_miss(0)", (1, 1), r#""trace": [7, 7, 60, 60, 60, 200]"#, 3),
    ] {
        let (lhs, busy) = ((backlog + 1).to_string(), backlog.to_string());
        let binding = binding("0", backlog, &lhs, "1000");
        let claim = yes(text(constraint, arrivals), Rule::TheoremA, binding, &busy, backlog, density);
        check(&claim).unwrap_or_else(|e| panic!("{constraint} {arrivals}: {e}"));
    }
}

#[test]
fn at_capacity_with_jitter_the_busy_period_never_ends_and_the_load_repeats() {
    let text = r#"{"unit": "us", "deadline": 30, "background": true, "workers": [{"count": 2, "batch": 1, "time": 4}],
        "streams": [{"name": "a", "constraints": ["any_hit(2,3)"], "arrivals": {"periodic": {"period": 3, "jitter": 2}}},
                    {"name": "b", "constraints": ["row_miss(0)"], "arrivals": {"periodic": {"period": 6, "jitter": 1}}},
                    {"name": "c", "constraints": ["row_miss(0)"], "arrivals": {"periodic": {"period": 9, "jitter": 7}}}]}"#;
    let parsed = Problem::from_raw(problem(text)).expect("a problem");
    let claim = certify(&parsed);
    assert!(claim.admissible, "{claim:?}");
    check(&claim).unwrap_or_else(|e| panic!("{e}"));
    // A little more is above capacity, whatever the deadline.
    let mut more = claim;
    more.problem.deadline = n("3600000000");
    more.problem.streams[2].arrivals.as_mut().expect("declared").periodic[0].period = n("8.999");
    let error = check(&more).expect_err("above capacity");
    assert_eq!(error.field, "admissible", "{error}");
}

#[test]
fn workers_of_two_kinds_begin_batches_each_at_their_own_pace() {
    let text = r#"{"unit": "ms", "deadline": 12, "background": true,
        "workers": [{"count": 1, "batch": 2, "time": 5}, {"count": 2, "batch": 1, "times": [2]}],
        "streams": [{"name": "a", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[7, 20]]}}]}"#;
    // By 4 ms four are begun, by 5 ms six, by 6 ms eight; the slow one answers 5 ms later.
    let claim = yes(problem(text), Rule::TheoremA, binding("0", 7, "11", "12"), "6", 8, (1, 1));
    check(&claim).unwrap_or_else(|e| panic!("{e}"));
    let mut late = claim;
    late.problem.deadline = n("10.999999");
    assert_eq!(field(&late), "admissible");
}

#[test]
fn a_refusal_needs_a_reason_and_its_arrivals_keep_to_the_curves() {
    let arrivals = |list: &[(&str, &str)]| list.iter().map(|(t, name)| (n(t), (*name).to_owned())).collect();
    let refused = |list: &[(&str, &str)]| {
        let refutation = Refutation { shows: Shows::Violation, stream: "a".into(), arrivals: arrivals(list) };
        let reason = Some("too much".to_owned());
        Claim {
            admissible: false,
            binding: None,
            busy: None,
            waiting: None,
            reason,
            refutation: Some(refutation),
            ..page()
        }
    };
    let fine = refused(&[("0", "a"), ("1", "a"), ("1", "nobody"), ("4", "a"), ("5", "a")]);
    assert_eq!(check(&fine), Ok(Verified { promised: 0, refused: 1, limits: 0 }));
    assert_eq!(field(&refused(&[("0", "a"), ("1", "a"), ("3.999999", "a")])), "refutation.arrivals[2]");
    assert_eq!(field(&refused(&[("3", "a"), ("2", "a")])), "refutation.arrivals[1]");
    // It shows what becomes of a stream that sends.
    assert_eq!(field(&refused(&[])), "refutation: requests of stream a");
    assert_eq!(field(&refused(&[("0", "nobody")])), "refutation: requests of stream a");
    let mut closed = fine.clone();
    closed.problem.background = false;
    assert_eq!(field(&closed), "refutation.arrivals[2]");
    assert_eq!(field(&Claim { reason: None, ..fine }), "reason");
}

#[test]
fn the_arrivals_of_a_refusal_may_be_many() {
    let mut claim = Claim { admissible: false, reason: Some("too much".to_owned()), ..page() };
    let list = (0..20_000).flat_map(|i| [4 * i; 2]);
    let arrivals: Vec<_> = list.map(|at| (Number::whole(at), "a".to_owned())).collect();
    let mut refutation = Refutation { shows: Shows::Violation, stream: "a".into(), arrivals };
    claim.refutation = Some(refutation.clone());
    assert_eq!(check(&claim), Ok(Verified { promised: 0, refused: 1, limits: 0 }));
    refutation.arrivals.push((n("79999"), "a".to_owned()));
    claim.refutation = Some(refutation);
    assert_eq!(field(&claim), "refutation.arrivals[40000]");
}

/// The example of section 3 of the theory: Theorem A needs 9, the refinement shows that 7 are enough.
#[test]
fn the_refinement_is_confirmed_by_brute_force() {
    let text = |deadline: &str| {
        problem(&format!(
            r#"{{"unit": "ms", "deadline": {deadline}, "workers": [{{"count": 1, "batch": 1, "time": 3}}],
            "streams": [{{"name": "a", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[2, 6]]}}}}]}}"#
        ))
    };
    let claim = certify(&Problem::from_raw(text("7")).expect("a problem"));
    assert_eq!((claim.admissible, claim.rule), (true, Rule::Refined));
    check(&claim).unwrap_or_else(|e| panic!("{e}"));
    let mut open = claim.clone();
    open.problem.background = true;
    assert_eq!(field(&open), "rule");
    let mut slack = claim.clone();
    slack.binding = slack.binding.map(|b| Binding { lhs: n("1"), ..b });
    assert_eq!(field(&slack), "binding.lhs");
    // Times that have next to nothing in common are not looked at.
    let mut fine = claim;
    fine.problem.deadline = n("7.000001");
    let error = check(&fine).expect_err("too fine");
    assert!(error.derived.starts_with("not confirmed"), "{error}");
}

/// The worker that is ahead by less begins its batch later, which may then hold more and take longer: the worst is where it is not
/// ahead at all, though the mandatory request comes 3 ns after the last start that clears.
#[test]
fn a_batch_that_begins_later_may_hold_more_and_end_later() {
    let text = r#"{"unit": "ns", "deadline": 12, "dispatch": "full-or-latest", "background": false,
        "workers": [{"count": 2, "batch": 3, "times": [6, 7, 9]}],
        "streams": [{"name": "s", "constraints": ["any_miss(0,1)"], "arrivals": {"windows": [[2, 1]], "distances": [4]}}]}"#;
    let claim = certify(&Problem::from_raw(problem(text)).expect("a problem"));
    assert!(claim.admissible);
    let binding = claim.binding.expect("an instant");
    assert_eq!((binding.delta, binding.lhs, binding.rhs), (n("3"), n("15"), n("15")));
    assert!(check(&claim).is_ok(), "{:?}", check(&claim));
}
