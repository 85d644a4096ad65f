//! Refutations of several services on the same workers: allowed, and they show what they claim.

use planner::Question;
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;
use crate::{ReplayError, replay_shared};

fn shared(text: &str) -> SharedProblem {
    match Question::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")) {
        Question::Shared(problem) => problem,
        other => panic!("{other:?}"),
    }
}

/// Services `(deadline, time, batch, count, length)` with a stream of this constraint each, times in milliseconds.
fn services(
    workers: usize,
    rule: &str,
    constraint: &str,
    all: &[(u64, u64, usize, u64, u64)],
) -> SharedProblem {
    let service = |(i, &(deadline, time, batch, count, length)): (usize, &(u64, u64, usize, u64, u64))| {
        serde_json::json!({"name": format!("v{i}"), "deadline": deadline, "batch": batch, "time": time, "streams": [
            {"name": "s", "constraints": [constraint], "arrivals": {"windows": [[count, length]]}}]})
    };
    let services: Vec<_> = all.iter().enumerate().map(service).collect();
    let workers = serde_json::json!({"count": workers});
    shared(
        &serde_json::json!({"unit": "ms", "background": true, "rule": rule, "workers": workers, "services": services})
            .to_string(),
    )
}

fn any() -> impl Strategy<Value = SharedProblem> {
    let service = (0u64..14, 1u64..4, 1usize..4, 1u64..5, 3u64..20);
    let service =
        service.prop_map(|(slack, time, batch, count, length)| (time + slack, time, batch, count, length));
    let all = proptest::collection::vec(service, 2..4);
    let constraint = prop_oneof![Just("row_miss(0)"), Just("row_miss(1)"), Just("any_miss(1,3)")];
    let rule = prop_oneof![Just("edf"), Just("turns"), Just("auto")];
    (1usize..3, rule, constraint, all)
        .prop_map(|(workers, rule, constraint, all)| services(workers, rule, constraint, &all))
}

fn admits(problem: &SharedProblem) -> bool {
    decide(problem).answer.is_ok()
}

proptest! {
    #![proptest_config(Config { cases: 24, ..Config::default() })]

    #[test]
    fn refutations_of_several_services_are_allowed_and_show_what_they_claim(
        problem in any().prop_filter("refused", |problem| !admits(problem))
    ) {
        if let Some(refutation) = refute_shared(&problem) {
            let shown = replay_shared(&problem, &refutation).expect("as claimed");
            prop_assert_eq!(shown.broken.shows, refutation.shows);
            prop_assert_eq!(&shown.broken.stream, &refutation.stream);
            prop_assert_eq!(shown.report.requests.len(), refutation.arrivals.len());
            let broken = shown.report.streams.iter().flat_map(|stream| &stream.constraints).any(|c| !c.held);
            prop_assert_eq!(broken, refutation.shows == Shows::Violation);
        }
    }

    /// The search that refutes finds nothing against what is admitted.
    #[test]
    fn nothing_breaks_what_several_services_are_admitted(problem in any().prop_filter("admitted", admits)) {
        let decision = decide(&problem);
        prop_assert_eq!(refuted(&Case::several(&problem, &decision), 0, 1_000), None);
    }
}

#[test]
fn a_batch_in_the_way_is_shown_by_two_requests() {
    // Started just before, a batch of 2 of the other leaves 3 - 2 for one that takes 2.
    let problem = services(1, "auto", "row_miss(0)", &[(3, 2, 1, 1, 20), (20, 2, 1, 1, 20)]);
    let refutation = refute_shared(&problem).expect("refuted");
    assert_eq!((refutation.shows, refutation.stream.as_str()), (Shows::Violation, "v0/s"));
    assert_eq!(refutation.arrivals.len(), 2, "{refutation:?}");
    let shown = replay_shared(&problem, &refutation).expect("as claimed");
    assert_eq!((shown.broken.constraint.as_deref(), shown.broken.misses), (Some("row_miss(0)"), 1));
    let mut other = refutation.clone();
    other.arrivals[0].1 = "v7/s".to_owned();
    assert!(matches!(replay_shared(&problem, &other), Err(ReplayError::Service { index: 0, .. })));
    let mut twice = refutation;
    twice.arrivals.push((twice.arrivals[1].0, "v0/s".to_owned()));
    assert!(matches!(replay_shared(&problem, &twice), Err(ReplayError::Curve(_))));
    // With a worker for each it is admitted.
    assert_eq!(
        refute_shared(&services(2, "auto", "row_miss(0)", &[(4, 2, 1, 1, 20), (20, 2, 1, 1, 20)])),
        None
    );
}

#[test]
fn each_fits_by_itself_and_together_they_are_above_capacity() {
    // So many of each take just all of the time: 2 and 3 for two of them.
    for (workers, constraint, count) in [(1, "row_miss(0)", 4), (2, "row_miss(0)", 8), (1, "row_miss(1)", 8)]
    {
        let both =
            |count| services(workers, "auto", constraint, &[(400, 2, 2, count, 10), (500, 3, 2, count, 10)]);
        let refutation = refute_shared(&both(count + 1)).expect("refuted");
        assert_eq!(refutation.shows, Shows::Violation, "{workers} {constraint}");
        assert!(replay_shared(&both(count + 1), &refutation).is_ok());
        assert!(admits(&both(count - 1)), "{workers} {constraint}");
    }
}

#[test]
fn nothing_is_shown_where_nothing_is_promised() {
    let text = r#"{"unit": "ms", "background": true, "workers": {"count": 1}, "services": [
        {"name": "a", "deadline": 3, "batch": 2, "times": [2, 4], "streams": []}]}"#;
    assert!(!admits(&shared(text)), "a batch of two takes 4");
    assert_eq!(refute_shared(&shared(text)), None);
}
