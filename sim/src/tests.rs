//! What must hold of whole runs, reports and refutations, over random problems.

use std::collections::BTreeMap;

use planner::Problem;
use planner::certificate::{Refutation, Shows};
use planner::problem::raw::Unit;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rt_core::{Cause, Dispatch, Instant, MissReason, Outcome, StreamSpec, largest_count};

use crate::curves::{Merged, Pacer};
use crate::dice::Dice;
use crate::samples::{admitted_problem, any_problem, problem, stream};
use crate::time::ns;
use crate::*;

/// Random arrivals that keep to the curves, in half of the cases as early as they may.
pub(crate) fn conforming(problem: &Problem, dice: &mut Dice, requests: usize) -> Vec<(Instant, usize)> {
    let greedy = dice.within(0, 1) == 0;
    let mut all = Merged::default();
    let mut pacers: Vec<_> =
        problem.streams.iter().map(|(_, spec)| Pacer::new(spec.arrivals().expect("declared"))).collect();
    let mut next = vec![0; pacers.len()];
    while all.len() < requests && !pacers.is_empty() {
        let stream = (0..pacers.len()).min_by_key(|&s| next[s]).expect("streams");
        pacers[stream].send(next[stream]);
        all.add(next[stream], stream);
        let pause = if greedy { 0 } else { dice.within(0, 40).saturating_sub(25) };
        next[stream] = pacers[stream].earliest(next[stream] + pause);
    }
    if problem.background {
        let last = next.iter().copied().max().unwrap_or(100);
        (0..requests).for_each(|_| all.add(dice.within(0, last), problem.streams.len()));
    }
    all.into_arrivals()
}

/// Whether some `K` outcomes in a row hold more than `m` misses, counted one by one.
fn violates(run: &Run, problem: &Problem, stream: usize) -> bool {
    let of_stream = run.requests.iter().filter(|r| r.stream == stream);
    let missed: Vec<bool> = of_stream.map(|r| r.outcome != Outcome::Served).collect();
    let over = |c: &rt_core::Constraint| {
        let count = |w: &[bool]| w.iter().filter(|&&miss| miss).count();
        (0..missed.len())
            .any(|i| count(&missed[i..missed.len().min(i + c.window() as usize)]) > c.misses() as usize)
    };
    problem.streams[stream].1.constraints().as_slice().iter().any(over)
}

fn admits(problem: &Problem) -> bool {
    problem.system().admit(problem.streams.iter().map(|(_, spec)| spec)).is_ok()
}

fn refused() -> impl Strategy<Value = Problem> {
    any_problem().prop_filter("refused", |problem| !admits(problem))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn admitted_loads_are_served_as_promised_in_any_order(problem in admitted_problem(), seed: u64) {
        let mut dice = Dice(seed);
        let arrivals = conforming(&problem, &mut dice, 200);
        prop_assert_eq!(check_curves(&problem, &arrivals), Ok(()));
        for order in Order::ALL {
            let slow = dice.within(0, 1) == 0;
            let time = |_, _, bound: rt_core::Span| if slow { bound } else { ns(dice.within(1, bound.as_nanos())) };
            let run = run_with(&problem, &arrivals, order, time).expect("a run");
            prop_assert_eq!(report::causes(&run), vec![], "{:?}", run.safe_mode);
            for stream in 0..problem.streams.len() {
                prop_assert!(!violates(&run, &problem, stream));
            }
        }
    }

    #[test]
    fn every_request_has_one_entry_and_every_batch_its_time(problem in any_problem(), seed: u64) {
        let arrivals = conforming(&problem, &mut Dice(seed), 200);
        let kinds: Vec<_> = problem.workers.iter().flat_map(|kind| vec![kind; kind.count]).collect();
        for order in Order::ALL {
            let Ok(run) = run(&problem, &arrivals, order) else { continue };
            let came: Vec<_> = run.requests.iter().map(|r| (r.arrival, r.stream)).collect();
            prop_assert_eq!(&came, &arrivals);
            let mut seqs = BTreeMap::new();
            for r in &run.requests {
                let next = seqs.entry(r.stream).or_insert(0);
                prop_assert_eq!(r.seq, *next);
                *next += 1;
                let batch = r.batch.map(|batch| run.batches[batch]);
                prop_assert_eq!(r.outcome == Outcome::Served, batch.is_some(), "no batch is late that takes P(b)");
                prop_assert!(batch.is_none_or(|b| b.start >= r.arrival && b.finish == r.ended));
                prop_assert!(r.outcome != Outcome::Served || r.ended <= r.arrival + problem.deadline);
            }
            for (index, batch) in run.batches.iter().enumerate() {
                prop_assert_eq!(batch.size, run.requests.iter().filter(|r| r.batch == Some(index)).count());
                prop_assert_eq!(batch.finish, batch.start + kinds[batch.worker].profile.bound(batch.size));
                let next = run.batches[index + 1..].iter().find(|other| other.worker == batch.worker);
                prop_assert!(next.is_none_or(|next| next.start >= batch.finish));
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn refutations_are_allowed_and_show_what_they_claim(problem in refused()) {
        if let Some(refutation) = refute(&problem) {
            // The replay checks the curves; the check itself is checked against a naive count.
            let shown = replay(&problem, &refutation).expect("as claimed");
            prop_assert_eq!(shown.broken.shows, refutation.shows);
            prop_assert_eq!(&shown.broken.stream, &refutation.stream);
            prop_assert_eq!(shown.report.requests.len(), refutation.arrivals.len());
            let broken = shown.report.streams.iter().flat_map(|s| &s.constraints).any(|c| !c.held);
            prop_assert_eq!(broken, refutation.shows == Shows::Violation);
            prop_assert!(shown.report.safe_mode.iter().all(|s| s.cause == Cause::ConstraintViolated));
        }
    }

    #[test]
    fn what_is_admitted_is_never_refuted(problem in admitted_problem()) {
        prop_assert_eq!(refute(&problem), None);
    }
}

#[test]
fn one_more_than_the_largest_count_is_refuted_by_a_violation() {
    for (m, k) in [(0, 1), (1, 2), (2, 3), (5, 10), (8, 10), (3, 10), (1, 7), (1, 40)] {
        for (workers, batch) in [(1, 1), (1, 4), (2, 3), (4, 8), (3, 1)] {
            let density = rt_core::Constraint::any_miss(m, k).expect("valid").density();
            let largest = largest_count(workers, batch, density).expect("a promise");
            for (dispatch, background) in
                [(Dispatch::Eager, false), (Dispatch::FullOrLatest, false), (Dispatch::Eager, true)]
            {
                let with = |count| {
                    let base = problem(&vec![10; batch], workers, 20, &[stream(m, k, count, 10)]);
                    Problem { dispatch, background, ..base }
                };
                assert_eq!(refute(&with(largest)), None);
                let refuted = refute(&with(largest + 1)).expect("a refutation");
                assert_eq!(refuted.shows, Shows::Violation, "({m},{k}) n={workers} B={batch} {dispatch:?}");
            }
        }
    }
}

#[test]
fn any_load_above_capacity_is_refuted_however_little_it_is_above() {
    // What is missing for a violation grows by a nanosecond or two with each request.
    for (period, least) in [(997, 600), (1999, 1_200), (9_999, 6_000), (19_999, 12_000)] {
        let problem = problem(&[period + 1], 1, 3 * (period + 1), &[stream(0, 1, 1, period)]);
        let refuted = refute(&problem).expect("a refutation");
        assert_eq!(refuted.shows, Shows::Violation);
        assert!(refuted.arrivals.len() >= least, "{} for {period} ns", refuted.arrivals.len());
    }
}

/// Behind background, with workers of one kind, time for two batches and one bound a stream, Theorem A refuses
/// nothing that could be served. Elsewhere a refusal may be pessimistic: this prints how often one is shown to be
/// right (`--nocapture`).
#[test]
fn what_is_refused_by_a_nanosecond_is_refuted_where_the_test_is_exact() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut counts = BTreeMap::new();
    for _ in 0..100 {
        let mut problem = any_problem().new_tree(&mut runner).expect("a problem").current();
        problem.deadline = ns(400);
        if !admits(&problem) {
            continue;
        }
        while admits(&problem) {
            problem.deadline = problem.deadline.saturating_sub(ns(1));
        }
        let shows = refute(&problem).map(|refutation| refutation.shows);
        let batch_time = problem.workers[0].batch_time().as_nanos();
        let single =
            |(_, spec): &(String, StreamSpec)| spec.arrivals().is_some_and(|a| a.bounds().len() == 1);
        let exact = problem.background
            && problem.workers.len() == 1
            && problem.deadline >= ns(2 * batch_time)
            && problem.streams.iter().all(single);
        assert!(!exact || shows.is_some(), "{problem:?}");
        let key = (problem.background, format!("{:?}", problem.dispatch), format!("{shows:?}"));
        *counts.entry(key).or_insert(0) += 1;
    }
    for ((background, dispatch, shows), count) in &counts {
        println!("background {background}, {dispatch}: {shows} {count} times");
    }
}

#[test]
fn the_worked_example_of_the_guarantee_is_served_as_worked_out() {
    let mut problem = problem(&[2_000_000], 1, 6_000_000, &[stream(1, 2, 2, 4_000_000)]);
    problem.raw.unit = Unit::Ms;
    let csv = "0,s0\n0,s0\n4,s0\n4,s0\n10.5,s0";
    let report = simulate(&problem, csv.as_bytes(), PolicyKind::Weir).expect("a report");
    // The second of each pair is mandatory and goes first; the other still has time, and the worker is never idle.
    let told: Vec<_> = report
        .requests
        .iter()
        .map(|r| (r.seq, r.mandatory, r.start.map(|t| t.to_string()), r.finish.map(|t| t.to_string())))
        .collect();
    let entry = |seq, mandatory, start: &str, finish: &str| {
        (seq, mandatory, Some(start.to_owned()), Some(finish.to_owned()))
    };
    let expected = [
        entry(0, false, "2 ms", "4 ms"),
        entry(1, true, "0 ms", "2 ms"),
        entry(2, false, "6 ms", "8 ms"),
        entry(3, true, "4 ms", "6 ms"),
        entry(4, false, "10.5 ms", "12.5 ms"),
    ];
    assert_eq!(told, expected);
    assert!(report.requests.iter().all(|r| r.outcome == report::Outcome::Served));
    assert_eq!(report.streams[0].constraints[0].worst_window, WorstWindow { from: 0, misses: 0 });
    assert_eq!(report.safe_mode, []);
}

#[test]
fn the_report_of_the_manual_is_the_one_that_is_made() {
    let manual = include_str!("../../docs/simulate.md");
    let block = |after: &str| {
        let from = manual.find(after).expect("the example") + after.len();
        &manual[from..from + manual[from..].find("```").expect("its end")]
    };
    let problem = Problem::parse(block("```json problem\n")).expect("a problem");
    let report = simulate(&problem, block("```csv\n").as_bytes(), PolicyKind::Weir).expect("a report");
    let made = serde_json::to_value(&report).expect("JSON");
    let written: serde_json::Value = serde_json::from_str(block("```json report\n")).expect("JSON");
    assert_eq!(made, written, "{}", serde_json::to_string(&report).expect("JSON"));
}

#[test]
fn batches_that_take_too_long_are_told() {
    let problem = problem(&[10], 1, 20, &[stream(0, 1, 1, 10)]);
    let arrivals = [(time::at(0), 0), (time::at(10), 0)];
    let run =
        run_with(&problem, &arrivals, Order::Together, |_, _, bound| bound + bound + ns(1)).expect("a run");
    let report = Report::new(&problem, &["s0".to_owned()], &run);
    let outcomes: Vec<_> = report.requests.iter().map(|r| (r.outcome, r.reason)).collect();
    // The first ends at 21; by then the second can no longer be done by 30.
    let expected = [
        (report::Outcome::Late, Some(MissReason::Late)),
        (report::Outcome::Dropped, Some(MissReason::Expired)),
    ];
    assert_eq!(outcomes, expected);
    let causes: Vec<_> = report.safe_mode.iter().map(|s| (s.at.to_string(), s.cause)).collect();
    assert_eq!(
        causes,
        [("11 ns".to_owned(), Cause::ServiceOverrun), ("21 ns".to_owned(), Cause::ConstraintViolated)]
    );
    assert_eq!(report.streams[0].longest_miss_run, 2);
}

#[test]
fn the_latest_arrivals_end_like_any_others() {
    let base = problem(&[10], 1, 20, &[stream(1, 2, 2, 10)]);
    let latest = |count: usize| vec![(time::at(time::LATEST), 0); count];
    let outcomes = |arrivals: &[(Instant, usize)]| {
        let run = run(&base, arrivals, Order::Together).expect("a run");
        run.requests.iter().filter(|r| r.outcome == Outcome::Served).count()
    };
    assert_eq!((outcomes(&latest(2)), outcomes(&latest(5))), (2, 2));
    let arrivals = vec![(planner::Number::whole(u64::MAX), "s0".to_owned())];
    let refutation = Refutation { shows: Shows::Violation, stream: "s0".to_owned(), arrivals };
    let refused = replay(&base, &refutation).expect_err("too late").to_string();
    assert_eq!(refused, "arrival 0 at 18446744073709551615: must be at most 9223372036854775807");
}

#[test]
fn what_cannot_be_run_is_refused() {
    let base = problem(&[10], 1, 20, &[stream(0, 1, 1, 10)]);
    let backwards = [(time::at(5), 0), (time::at(4), 0)];
    let text = |problem: &Problem, arrivals: &[(Instant, usize)]| {
        run(problem, arrivals, Order::Together).expect_err("refused").to_string()
    };
    assert_eq!(text(&base, &backwards), "arrival 1 at 4 ns comes after one at 5 ns");
    assert_eq!(text(&base, &[(time::at(0), 4096)]), "streams = 4097 is outside 1..=4096");
    assert_eq!(
        text(&base, &[(time::at(0), 1)]),
        "a stream must declare its arrivals where no background is served"
    );
    let hasty = Problem { deadline: ns(9), ..base };
    assert_eq!(text(&hasty, &[]), "deadline 9 ns is below guard 0 ns and the batch time 10 ns");
    assert_eq!(refute(&hasty), None);
    let unknown = "luck".parse::<PolicyKind>().expect_err("none").to_string();
    let rest = unknown.strip_prefix("policy = luck: must be one of ").expect("value and field");
    assert!(rest.split(", ").eq(PolicyKind::ALL.map(PolicyKind::name)), "{rest}");
}

#[test]
fn a_refutation_that_was_tampered_with_is_refused() {
    let problem = problem(&[10], 1, 20, &[stream(0, 1, 2, 10)]);
    let refuted = refute(&problem).expect("twice too much");
    let text = |refutation: &Refutation| replay(&problem, refutation).expect_err("refused").to_string();
    let mut sooner = refuted.clone();
    sooner.arrivals.insert(0, sooner.arrivals[0].clone());
    sooner.arrivals.insert(0, sooner.arrivals[0].clone());
    assert_eq!(text(&sooner), "request 2 of stream \"s0\" at 0 ns breaks 2 per 10 ns");
    let fewer = Refutation { arrivals: refuted.arrivals[..1].to_vec(), ..refuted.clone() };
    assert_eq!(text(&fewer), "no violation of stream \"s0\" in 1 requests");
    let mut stranger = refuted.clone();
    stranger.arrivals[0].1 = "x".to_owned();
    assert_eq!(text(&stranger), "arrival 0: stream \"x\" is none of the problem's, which has no background");
    let elsewhere = Refutation { stream: "s1".to_owned(), ..refuted };
    assert!(text(&elsewhere).starts_with("no violation of stream \"s1\""));
}
