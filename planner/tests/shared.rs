//! The checker where services share workers: it confirms what follows, and names the field that does not.

use planner::certificate::{
    Reference, Refutation, SharedBinding, SharedReason, SharedServiceAnswer, SharedStreamAnswer, Shows,
};
use planner::verify::{Verified, VerifyError, verify};
use planner::{Certificate, Number, Question, SharedClaim, SharedProblem, certify_shared};

fn n(text: &str) -> Number {
    text.parse().unwrap_or_else(|e| panic!("{text} {e}"))
}

fn problem(text: &str) -> SharedProblem {
    match Question::parse(text) {
        Ok(Question::Shared(problem)) => problem,
        other => panic!("{text}: {other:?}"),
    }
}

fn check(claim: &SharedClaim) -> Result<Verified, VerifyError> {
    verify(&Certificate::of_shared("by hand", claim.clone()))
}

/// The field that a claim is refused for.
fn field(claim: &SharedClaim) -> String {
    check(claim).map_or_else(|e| e.field, |_| panic!("verified: {claim:?}"))
}

/// Full batches of `scene` beside single ones of `stop`; a stream of `scene` has no promise.
fn page(rule: &str) -> String {
    format!(
        r#"{{"unit": "ms", "background": true, "workers": {{"count": 1}}, "rule": "{rule}", "services": [
        {{"name": "scene", "deadline": 33, "guard": 1, "batch": 4, "time": 4, "streams": [
            {{"name": "a", "constraints": ["any_miss(1,2)"], "arrivals": {{"windows": [[4, 16]]}}}},
            {{"name": "b", "constraints": []}}]}},
        {{"name": "stop", "deadline": 20, "guard": 2, "batch": 1, "time": 2, "streams": [
            {{"name": "a", "constraints": ["row_miss(0)"], "arrivals": {{"periodic": {{"period": 10, "jitter": 1}}}}}}]}}]}}"#
    )
}

fn claim(rule: &str) -> SharedClaim {
    certify_shared(&problem(&page(rule)))
}

#[test]
fn both_rules_are_confirmed_with_all_their_limits() {
    for (rule, decided) in
        [("edf", SharedReason::Edf), ("turns", SharedReason::Turns), ("auto", SharedReason::Edf)]
    {
        let claim = claim(rule);
        assert_eq!((claim.admissible, claim.rule), (true, decided), "{claim:?}");
        assert_eq!(check(&claim), Ok(Verified { promised: 1, refused: 0, limits: 5 }), "{rule}: {claim:?}");
    }
}

#[test]
fn every_field_that_is_tampered_with_is_named() {
    type Tamper = fn(&mut SharedClaim);
    fn binding(c: &mut SharedClaim) -> &mut SharedBinding {
        c.binding.as_mut().expect("there is one")
    }
    let cases: &[(&str, Tamper)] = &[
        ("services", |c| c.services.truncate(1)),
        ("services[0].name", |c| c.services[0].name = "x".into()),
        ("services[0].streams", |c| c.services[0].streams.truncate(1)),
        ("services[0].streams[0].name", |c| c.services[0].streams[0].name = "x".into()),
        ("services[0].streams[0].density", |c| c.services[0].streams[0].density = (1, 3)),
        ("services[0].streams[0].density", |c| c.services[0].streams[0].density = (0, 0)),
        ("services[0].streams[0].constraints", |c| c.services[0].streams[0].constraints.clear()),
        ("rule", |c| c.rule = SharedReason::NothingPromised),
        ("rule", |c| c.rule = SharedReason::Rate),
        ("rule", |c| c.problem.rule = "turns".into()),
        ("problem.rule", |c| c.problem.rule = "fifo".into()),
        ("problem.rule", |c| c.problem.rule = "patience".into()),
        ("binding", |c| c.binding = None),
        ("binding.reference", |c| binding(c).reference = Reference::Short("x".into())),
        ("binding.service", |c| binding(c).service = "x".into()),
        ("binding.distance", |c| binding(c).distance = n("0.5")),
        ("binding.distance", |c| binding(c).distance = n("9999999999")),
        ("binding.distance", |c| binding(c).reference = Reference::Turn),
        ("binding.lhs", |c| binding(c).lhs = n("0.1")),
        ("binding.rhs", |c| binding(c).rhs = n("99")),
        ("binding.rhs", |c| binding(c).rhs = Number::of_nanos(-1, c.problem.unit)),
        ("overrun_margin", |c| c.overrun_margin = None),
        ("overrun_margin", |c| c.overrun_margin = Some(n("9.5"))),
        ("services[1].turn", |c| c.services[1].turn = Some(1)),
        ("services[1].start_within", |c| c.services[1].start_within = None),
        ("services[1].start_within", |c| c.services[1].start_within = Some(n("19.000001"))),
        ("services[1].start_within", |c| c.services[1].start_within = Some(n("0.0000001"))),
        ("max_load_scale", |c| c.max_load_scale = Some(n("99"))),
        ("services[0].max_rate_scale", |c| c.services[0].max_rate_scale = Some(n("1000"))),
        ("services[1].min_deadline", |c| c.services[1].min_deadline = Some(n("2"))),
        // What the answer rests on.
        ("services[1].start_within", |c| c.problem.services[1].deadline = n("9")),
        ("problem.services[0]", |c| c.problem.services[0].batch = 1 << 40),
        ("problem.services[0]", |c| c.problem.services[0].batch = 0),
        ("problem.services[0].time", |c| c.problem.services[0].time = Some(n("0"))),
        ("problem.services[1].name, taken already,", |c| {
            c.problem.services[1].name = "scene".into();
            c.services[1].name = "scene".into();
        }),
        ("problem.workers.count", |c| c.problem.workers.count = 0),
        ("problem.services[1].guard", |c| c.problem.services[1].guard = n("-1")),
    ];
    let right = claim("auto");
    for (i, (expected, tamper)) in cases.iter().enumerate() {
        let mut claim = right.clone();
        tamper(&mut claim);
        assert_eq!(field(&claim), *expected, "case {i}");
    }
}

#[test]
fn turns_that_are_too_long_or_none_are_named() {
    let turns = claim("turns");
    assert_eq!(turns.services[0].turn, Some(3), "with a shorter one less could be sent");
    let with = |turn: Option<u32>| {
        let mut claim = turns.clone();
        claim.services[0].turn = turn;
        field(&claim)
    };
    assert_eq!(with(None), "services[0].turn");
    assert_eq!(with(Some(0)), "services[0].turn");
    assert_eq!(with(Some(1 << 17)), "services[0].turn");
    assert_eq!(with(Some(20)), "admissible", "the other service would wait for too many");
    // A turn that is stated is the one.
    let mut stated = turns.clone();
    stated.problem.services[0].turn = Some(2);
    assert_eq!(field(&stated), "services[0].turn");
    stated.problem.services[0].turn = Some(0);
    stated.services[0].turn = Some(0);
    assert_eq!(field(&stated), "services[0].turn");
    // By turns it is known when each begins at the latest.
    let mut sooner = turns;
    sooner.services[1].start_within = Some(n("1"));
    assert_eq!(field(&sooner), "services[1].start_within");
}

#[test]
fn starts_that_keep_no_line_are_no_proof() {
    let mut claim = claim("edf");
    claim.services[1].start_within = Some(n("0"));
    assert_eq!(field(&claim), "admissible");
}

#[test]
fn a_refusal_needs_a_reason() {
    let refused = problem(&page("auto").replace("\"deadline\": 20", "\"deadline\": 7"));
    let claim = certify_shared(&refused);
    assert!(!claim.admissible && claim.overrun_margin.is_none(), "{claim:?}");
    assert_eq!(check(&claim), Ok(Verified { promised: 0, refused: 1, limits: 0 }));
    assert_eq!(field(&SharedClaim { reason: None, ..claim.clone() }), "reason");
    for rule in [SharedReason::Edf, SharedReason::Turns, SharedReason::NothingPromised] {
        let lied = SharedClaim { admissible: true, rule, reason: None, refutation: None, ..claim.clone() };
        assert!(check(&lied).is_err());
    }
}

#[test]
fn nothing_is_promised_to_nobody() {
    let text = page("auto").replace("\"any_miss(1,2)\"", "").replace("\"row_miss(0)\"", "");
    let claim = certify_shared(&problem(&text));
    assert_eq!((claim.admissible, claim.rule), (true, SharedReason::NothingPromised));
    assert_eq!(check(&claim), Ok(Verified { promised: 1, refused: 0, limits: 0 }));
    let claimed = SharedClaim { rule: SharedReason::Edf, ..claim };
    assert_eq!(field(&claimed), "rule");
}

/// At capacity only the repetition ends the walk. In the first period the number of batches says more than the average
/// does, by 1 ns; later it no longer does, and the margin is what is left then.
#[test]
fn at_capacity_the_average_governs_in_the_end() {
    let text = r#"{"unit": "ns", "background": true, "workers": {"count": 2}, "rule": "edf", "services": [
        {"name": "a", "deadline": 25, "batch": 1, "time": 3, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 6]]}}]},
        {"name": "b", "deadline": 24, "batch": 1, "time": 4, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[3, 8]]}}]}]}"#;
    let claim = certify_shared(&problem(text));
    assert_eq!((claim.admissible, claim.overrun_margin), (true, Some(n("11"))), "{claim:?}");
    check(&claim).unwrap_or_else(|e| panic!("{e}: {claim:?}"));
    let mut more = claim;
    more.problem.services[0].streams[0].arrivals.as_mut().expect("declared").windows[0].1 = n("5");
    assert_eq!(field(&more), "admissible", "above capacity");
}

/// All that a worker can do is asked of it, beside a service that is promised nothing: that takes no turns, so no time either.
#[test]
fn who_is_promised_nothing_takes_no_turns() {
    let text = r#"{"unit": "ns", "background": true, "workers": {"count": 1}, "rule": "turns", "services": [
        {"name": "a", "deadline": 4, "batch": 1, "time": 2, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 2]]}}]},
        {"name": "b", "deadline": 4, "batch": 1, "time": 1, "streams": [{"name": "log", "constraints": []}]}]}"#;
    let claim = certify_shared(&problem(text));
    assert_eq!((claim.admissible, claim.overrun_margin), (true, Some(n("0"))), "{claim:?}");
    check(&claim).unwrap_or_else(|e| panic!("{e}: {claim:?}"));
}

/// Where all batches take the same time, a worker always gets so many of them, and never the average: by that alone two
/// workers that must do all they can would be 1 ns late, in every period.
#[test]
fn at_capacity_the_number_of_batches_governs_where_they_are_alike() {
    for rule in ["edf", "turns"] {
        let text = format!(
            r#"{{"unit": "ns", "background": true, "workers": {{"count": 2}}, "rule": "{rule}", "services": [
            {{"name": "a", "deadline": 4, "batch": 1, "time": 2, "streams": [
                {{"name": "s", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[2, 2]]}}}}]}}]}}"#
        );
        let claim = certify_shared(&problem(&text));
        assert_eq!((claim.admissible, claim.overrun_margin), (true, Some(n("0"))), "{claim:?}");
        check(&claim).unwrap_or_else(|e| panic!("{e}: {claim:?}"));
    }
}

/// Turns of `a` would take more than all the time there is, but of `b` no more can have come than fits.
#[test]
fn at_capacity_turns_are_no_more_than_can_have_come() {
    let text = r#"{"unit": "ns", "background": true, "workers": {"count": 1}, "rule": "turns", "services": [
        {"name": "a", "deadline": 12, "batch": 1, "time": 1, "turn": 1, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 2]]}}]},
        {"name": "b", "deadline": 5, "batch": 1, "time": 2, "turn": 1, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 4]]}}]}]}"#;
    let claim = certify_shared(&problem(text));
    assert!(claim.admissible, "{claim:?}");
    check(&claim).unwrap_or_else(|e| panic!("{e}: {claim:?}"));
}

/// A stream of two in 3 ns comes in batches of three: in 3 ns, a period of the bound and of the batch, there is not one
/// whole batch more, in 9 ns there are two. The fourth batch, 12 ns on, is the first for which time lacks.
#[test]
fn a_period_is_one_in_which_batches_are_whole() {
    let text = |rule: &str| {
        format!(
            r#"{{"unit": "ns", "background": true, "workers": {{"count": 1}}, "rule": "{rule}", "services": [
            {{"name": "a", "deadline": 10, "batch": 3, "time": 2, "turn": 1, "streams": [
                {{"name": "s", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[2, 3]]}}}}]}},
            {{"name": "b", "deadline": 10, "batch": 1, "time": 3, "turn": 1, "streams": [
                {{"name": "s", "constraints": ["row_miss(0)"], "arrivals": {{"periodic": {{"period": 8}}}}}}]}}]}}"#
        )
    };
    let refused = certify_shared(&problem(&text("turns")));
    let line = refused.binding.clone().expect("the line that fails");
    assert_eq!((refused.admissible, line.distance, line.lhs, line.rhs), (false, n("12"), n("21"), n("20")));
    let mut claim = SharedClaim {
        admissible: true,
        overrun_margin: Some(n("0")),
        reason: None,
        refutation: None,
        ..refused
    };
    for (answer, within) in claim.services.iter_mut().zip(["8", "7"]) {
        answer.start_within = Some(n(within));
    }
    let before = SharedBinding { distance: n("3"), lhs: n("11"), rhs: n("11"), ..line };
    claim.binding = Some(before);
    assert_eq!(field(&claim), "admissible");
}

/// Products that leave 128 bits: a turn of 65536 batches of twelve minutes made a slope that wrapped around, and the walk
/// ended before the line that fails, after eight hours. 1033 thousandths of the worker are wanted.
#[test]
fn a_slope_that_is_too_steep_to_reckon_with_ends_no_walk() {
    let text = r#"{"unit": "s", "background": true, "workers": {"count": 1}, "rule": "turns", "services": [
        {"name": "a", "deadline": 3600, "batch": 65536, "time": 360, "turn": 1, "streams": [
            {"name": "s", "constraints": ["any_miss(0,65535)"], "arrivals": {"windows": [[65536, 432]]}}]},
        {"name": "b", "deadline": 3600, "batch": 1, "time": 720, "turn": 65536, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 3600]]}}]}]}"#;
    let stream = |density: u32, constraint: &str| SharedStreamAnswer {
        name: "s".to_owned(),
        density: (density, density),
        constraints: vec![(constraint.to_owned(), "binds".to_owned())],
    };
    let service = |name: &str, within, turn, stream| SharedServiceAnswer {
        name: name.to_owned(),
        start_within: Some(n(within)),
        turn: Some(turn),
        max_rate_scale: None,
        min_deadline: None,
        streams: vec![stream],
    };
    let claim = SharedClaim {
        device: None,
        problem: serde_json::from_str(text).expect("a problem"),
        admissible: true,
        rule: SharedReason::Turns,
        binding: Some(SharedBinding {
            reference: Reference::Turn,
            service: "a".to_owned(),
            distance: n("1296"),
            lhs: n("3960"),
            rhs: n("4536"),
        }),
        overrun_margin: Some(n("576")),
        max_load_scale: None,
        services: vec![
            service("a", "3240", 1, stream(65535, "any_miss(0,65535)")),
            service("b", "2880", 65536, stream(1, "row_miss(0)")),
        ],
        reason: None,
        refutation: None,
    };
    assert_eq!(field(&claim), "admissible");
}

/// Promise: what is said to break a refused load keeps to what its streams declare.
#[test]
fn arrivals_against_a_refusal_keep_to_the_declarations() {
    let text = r#"{"unit": "ms", "background": true, "workers": {"count": 1}, "services": [
        {"name": "a", "deadline": 3, "batch": 1, "time": 2, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 10]]}}]},
        {"name": "b", "deadline": 10, "batch": 1, "time": 2, "streams": [
            {"name": "s", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 10]]}}]}]}"#;
    let mut claim = certify_shared(&problem(text));
    assert!(!claim.admissible);
    let mut with = |arrivals: &[(&str, &str)]| {
        let arrivals = arrivals.iter().map(|&(time, stream)| (n(time), stream.to_owned())).collect();
        let (shows, stream) = (Shows::Violation, "a/s".to_owned());
        claim.refutation = Some(Refutation { shows, stream, arrivals });
        claim.clone()
    };
    for kept in [&[("0", "b/s"), ("0.1", "a/s")][..], &[("0", "b/other"), ("0.1", "a/s"), ("10.1", "a/s")]] {
        let claim = with(kept);
        check(&claim).unwrap_or_else(|e| panic!("{e}: {claim:?}"));
    }
    for wrong in [
        &[("0", "a/s"), ("9.9", "a/s")][..],
        &[("0", "a/s"), ("0", "s")],
        &[("0", "a/s"), ("1", "c/s")],
        &[("1", "a/s"), ("0", "b/s")],
    ] {
        assert_eq!(field(&with(wrong)), "refutation.arrivals[1]", "{wrong:?}");
    }
    let mut closed = with(&[("0", "b/other"), ("0.1", "a/s")]);
    closed.problem.background = false;
    assert_eq!(field(&closed), "refutation.arrivals[0]");
}
