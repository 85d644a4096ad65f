//! Requests whose answers are wanted sooner than the deadline: nobody else is promised less, and what is missed for that alone
//! is their own.

use proptest::prelude::*;
use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, MissReason, Outcome, StreamSpec,
};

use crate::harness::load::{Bench, Setup, ns, setup, tight_setup};
use crate::harness::{Harness, config, earliest, violates_any};

/// So many requests of each stream as its curve allows, in order: when, and of which stream.
fn arrivals(setup: &Setup, bench: &mut Bench, count: usize) -> Vec<(u64, usize)> {
    let mut all = Vec::new();
    for (s, spec) in setup.streams.iter().enumerate() {
        let (bounds, mut sent) = (spec.arrivals().expect("declared").bounds(), Vec::new());
        for _ in 0..count {
            let pause = if setup.greedy { 0 } else { bench.dice.within(0, 40).saturating_sub(25) };
            sent.push(earliest(&sent, bounds, sent.last().copied().unwrap_or(0) + pause));
        }
        all.extend(sent.into_iter().map(|at| (at, s)));
    }
    all.sort_unstable();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn who_wants_its_answers_sooner_harms_nobody_else(
        setup in prop_oneof![setup(), tight_setup()], share in 1u64..4,
    ) {
        prop_assume!(!setup.streams.is_empty());
        let wants = setup.seed as usize % setup.streams.len();
        let deadline = setup.config.deadline.as_nanos();
        let mut bench = Bench::new(&setup);
        for (at, s) in arrivals(&setup, &mut bench, 120) {
            let first = bench.dice.within(0, 1) == 0;
            bench.harness.advance(at, first);
            if s == wants && bench.dice.within(0, share) > 0 {
                let within = bench.dice.within(0, deadline + 3);
                bench.harness.arrive_wanted(bench.ids[s], within);
            } else {
                bench.harness.arrive(bench.ids[s]);
            }
        }
        bench.finish();
        // All that is mandatory is answered by the deadline; missed is what was wanted sooner.
        for (at, missed) in bench.harness.resolutions.iter().filter(|(_, r)| r.request.mandatory && r.outcome != Outcome::Served) {
            prop_assert_eq!(missed.outcome, Outcome::Missed(MissReason::Late));
            prop_assert_eq!(missed.request.stream, bench.ids[wants]);
            prop_assert!(missed.request.wanted.as_nanos() < *at && *at <= missed.request.deadline.as_nanos());
        }
        for (s, id) in bench.ids.iter().enumerate() {
            bench.harness.account(*id);
            let kept = !violates_any(&bench.harness.outcomes(*id), setup.streams[s].constraints());
            prop_assert!(kept || s == wants && !bench.harness.suspensions(*id).is_empty());
            prop_assert!(s == wants || bench.harness.suspensions(*id).is_empty());
        }
        let causes = bench.harness.causes();
        prop_assert!(causes.iter().all(|(_, cause)| *cause == Cause::ConstraintViolated), "{:?}", causes);
        prop_assert_eq!(bench.harness.scheduler.safe_mode().breaches(), 0);
    }

    #[test]
    fn in_order_no_request_begins_after_a_later_one_of_its_stream_and_promises_are_kept(
        setup in prop_oneof![setup(), tight_setup()], more in 0u64..6,
    ) {
        let mut bench = Bench::new(&setup);
        bench.harness.scheduler.set_in_order(true);
        let nothing = bench.harness.add(StreamSpec::best_effort());
        for (at, s) in arrivals(&setup, &mut bench, 120) {
            bench.harness.advance(at, true);
            bench.harness.arrive(bench.ids[s]);
            if bench.dice.within(0, 6) < more {
                bench.harness.arrive(nothing);
            }
        }
        bench.finish();
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        prop_assert_eq!(bench.harness.causes(), []);
        for id in bench.ids.iter().copied().chain([nothing]) {
            let of_stream = bench.harness.begun.iter().filter(|(stream, ..)| *stream == id);
            // Those of one batch are begun together.
            let mut begun: Vec<_> = of_stream.map(|&(_, batch, seq)| (batch, seq)).collect();
            begun.sort_unstable();
            let begun: Vec<u64> = begun.into_iter().map(|(_, seq)| seq).collect();
            prop_assert!(begun.is_sorted(), "{:?}", begun);
        }
    }
}

/// At most every second request is missed; one in 10.
fn half() -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::any_miss(1, 2).expect("valid")]).expect("one");
    let bound = ArrivalBound::window(2, ns(20)).expect("valid");
    StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
}

/// A mandatory request overtakes an optional one of its stream, which is begun after it only where order does not matter.
#[test]
fn what_is_overtaken_is_shed() {
    for (in_order, outcome) in [(false, Outcome::Served), (true, Outcome::Missed(MissReason::Shed))] {
        let mut harness = Harness::new(config(&[4], 1, 1, 40, Dispatch::Eager), |_, bound| bound);
        harness.scheduler.set_in_order(in_order);
        let (busy, id) = (harness.add(StreamSpec::best_effort()), harness.add(half()));
        harness.arrive(busy);
        let first = harness.arrive(id);
        harness.arrive(id);
        harness.drain();
        let ended = harness.resolutions.iter().find(|(_, r)| r.request.token == first).expect("resolved").1;
        assert_eq!((ended.request.mandatory, ended.outcome), (false, outcome));
    }
}

/// What waits rules the request out that is wanted within 6, not the same with the deadline of 40.
#[test]
fn an_optional_request_that_the_backlog_rules_out_is_refused_on_arrival() {
    let mut harness = Harness::new(config(&[4], 1, 1, 40, Dispatch::Eager), |_, bound| bound);
    let id = harness.add(StreamSpec::best_effort());
    harness.arrive(id);
    harness.arrive(id);
    let (sooner, later) = (harness.arrive_wanted(id, 6), harness.arrive_wanted(id, 40));
    let (at, refused) = harness.resolutions[0];
    assert_eq!((at, refused.request.token), (0, sooner));
    assert_eq!(refused.outcome, Outcome::Missed(MissReason::Shed));
    harness.drain();
    let (at, served) = harness.resolutions.last().expect("resolved");
    assert_eq!((*at, served.request.token, served.outcome), (12, later, Outcome::Served));
}

/// A mandatory request that is answered in time, but later than wanted, is a miss of its client's own making.
#[test]
fn a_constraint_that_is_violated_by_a_wish_suspends_the_promise_to_its_stream_alone() {
    let strict = {
        let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
        let bound = ArrivalBound::periodic(ns(10), ns(0)).expect("valid");
        StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
    };
    let mut harness = Harness::new(config(&[4], 1, 1, 20, Dispatch::Eager), |_, bound| bound);
    let id = harness.add(strict);
    harness.arrive_wanted(id, 3);
    harness.drain();
    assert_eq!(harness.resolutions[0].1.outcome, Outcome::Missed(MissReason::Late));
    assert_eq!(harness.causes(), [(4, Cause::ConstraintViolated)]);
    assert_eq!(harness.suspensions(id).len(), 1);
    assert_eq!(harness.scheduler.safe_mode().breaches(), 0);
}
