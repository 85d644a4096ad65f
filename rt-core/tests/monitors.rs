//! What happens when an assumption breaks: each breach raises its own cause, and streams may come and go.

use proptest::prelude::*;
use rt_core::{
    Action, Arrival, ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, Event, Instant,
    MAX_MEMORY, MissReason, Outcome, Scheduler, SchedulerConfig, Severity, StreamSpec,
};

use crate::harness::load::{Bench, ns, open_or_closed};
use crate::harness::{Harness, config, instances, system, violates_any};

/// At most `count` requests in any `length`, none to be missed.
fn strict(count: u64, length: u64) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let window = ArrivalBound::window(count, ns(length)).expect("valid");
    StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"))
}

/// One worker, batches of up to two in 10 (or 8), deadline 60, of which 5 are guard.
fn one_worker(dispatch: Dispatch) -> SchedulerConfig {
    SchedulerConfig { guard: ns(5), ..config(&[8, 10], 2, 1, 60, dispatch) }
}

fn severity(harness: &Harness) -> Severity {
    harness.scheduler.safe_mode().state().severity
}

const BOTH: [Dispatch; 2] = [Dispatch::Eager, Dispatch::FullOrLatest];

#[test]
fn a_batch_that_outlasts_its_bound_raises_service_overrun() {
    for dispatch in BOTH {
        // By a little, seen when it ends; by much, seen while it still runs, a guard later at the latest.
        for (time, seen_after) in [(9, 9), (13, 13), (500, 8 + 5 + 1)] {
            let mut harness = Harness::new(one_worker(dispatch), move |_, _| time);
            let id = harness.add(strict(1, 100));
            harness.arrive(id);
            harness.drain();
            let start = harness.batches[0].0;
            let first = harness.causes().first().copied();
            assert_eq!(first, Some((start + seen_after, Cause::ServiceOverrun)), "{dispatch:?} {time}");
        }
        let mut harness = Harness::new(one_worker(dispatch), |_, bound| bound);
        let id = harness.add(strict(1, 100));
        harness.arrive(id);
        harness.drain();
        assert_eq!(harness.causes(), []);
    }
}

#[test]
fn a_timer_later_than_the_guard_raises_late_dispatch() {
    for (delay, expected) in [(0, false), (5, false), (6, true), (7, true)] {
        let mut harness = Harness::new(one_worker(Dispatch::FullOrLatest), |_, bound| bound);
        harness.timer_delay = delay;
        let id = harness.add(strict(1, 100));
        harness.arrive(id);
        harness.drain();
        let causes: Vec<_> = harness.causes().iter().map(|(_, cause)| *cause).collect();
        assert_eq!(
            causes,
            if expected { vec![Cause::LateDispatch] } else { vec![] },
            "timer late by {delay}"
        );
    }
}

#[test]
fn a_way_to_and_from_the_engine_longer_than_the_bound_leaves_raises_late_dispatch() {
    // P(1) is 8, of which the engine takes 4.
    for (dispatch, delay, expected) in BOTH.iter().flat_map(|&d| [(d, 4, false), (d, 5, true)]) {
        let mut harness = Harness::new(one_worker(dispatch), |_, bound| bound / 2);
        harness.completion_delay = delay;
        let id = harness.add(strict(1, 100));
        harness.arrive(id);
        harness.drain();
        let causes: Vec<_> = harness.causes().iter().map(|(_, cause)| *cause).collect();
        assert_eq!(
            causes,
            if expected { vec![Cause::LateDispatch] } else { vec![] },
            "{dispatch:?} late by {delay}"
        );
    }
}

/// So late that the request which the timer was for can no longer be served: the worst lateness of all.
#[test]
fn a_timer_so_late_that_the_request_is_lost_raises_late_dispatch() {
    let mut harness = Harness::new(one_worker(Dispatch::FullOrLatest), |_, bound| bound);
    harness.timer_delay = 40;
    let id = harness.add(strict(1, 100));
    harness.arrive(id);
    harness.drain();
    assert!(harness.outcomes(id) == [false]);
    let raised = harness.scheduler.safe_mode().breaches();
    let causes = harness.causes();
    assert_eq!(
        causes.first().map(|(_, cause)| *cause),
        Some(Cause::LateDispatch),
        "{raised} breaches: {causes:?}"
    );
}

/// A free worker should have had the request at once, but the caller came round to polling late.
#[test]
fn an_eager_dispatch_later_than_the_guard_raises_late_dispatch() {
    let mut harness = Harness::new(one_worker(Dispatch::Eager), |_, bound| bound);
    let id = harness.add(strict(1, 100));
    harness.arrive_unpolled(id);
    harness.now += 30;
    harness.settle();
    harness.drain();
    assert_eq!(harness.causes().first().map(|(_, cause)| *cause), Some(Cause::LateDispatch));
}

/// It came before the scheduler was told, and a worker was free.
#[test]
fn a_request_taken_in_later_than_the_guard_raises_late_dispatch() {
    for (late, expected) in [(5, None), (6, Some(Cause::LateDispatch))] {
        let mut scheduler = Scheduler::new(one_worker(Dispatch::Eager)).expect("a configuration");
        let now = Instant::ZERO + ns(100);
        let stream = scheduler.add_stream(now, strict(1, 100)).expect("room");
        let arrival = Arrival::new(stream, 0, now - ns(late));
        assert_eq!(scheduler.handle_arrival(now, arrival), None);
        while !matches!(scheduler.poll(now), Action::WakeAt(_)) {}
        assert_eq!(scheduler.batch(0)[0].deadline, now - ns(late) + ns(60));
        assert_eq!(scheduler.safe_mode().state().alarm.map(|alarm| alarm.cause), expected, "late by {late}");
    }
}

/// And where none was free, if it must be served: what is begun meanwhile came later.
#[test]
fn requests_that_must_be_served_and_are_taken_in_late_are_told_of_though_all_workers_are_busy() {
    for dispatch in BOTH {
        for (late, expected) in [(5, None), (25, Some((25, Cause::LateDispatch)))] {
            let mut harness = Harness::new(one_worker(dispatch), |_, bound| bound);
            let (id, stranger) = (harness.add(strict(8, 100)), harness.add(StreamSpec::best_effort()));
            (0..6).for_each(|_| _ = harness.arrive(stranger));
            harness.advance_to(late);
            assert!(harness.is_busy(0));
            // What nothing is promised for may come late.
            harness.arrive_late(stranger, 0);
            assert_eq!(harness.causes(), []);
            (0..8).for_each(|_| harness.arrive_late(id, 0));
            harness.drain();
            assert_eq!(harness.mandatory_misses().is_empty(), expected.is_none(), "{dispatch:?} {late}");
            assert_eq!(harness.causes().first().copied(), expected, "{dispatch:?} {late}");
        }
    }
}

#[test]
fn a_lost_worker_and_a_failed_engine_raise_worker_lost() {
    for dispatch in BOTH {
        for lost in [true, false] {
            let mut harness = Harness::new(one_worker(dispatch), |_, bound| bound);
            let id = harness.add(strict(2, 100));
            for _ in 0..2 {
                harness.arrive(id);
            }
            assert!(harness.is_busy(0));
            harness.advance_to(3);
            if lost {
                harness.lose(0);
            } else {
                harness.fail(0);
            }
            // A lost request may violate its constraint as well; that is announced after its cause.
            assert_eq!(harness.causes().first(), Some(&(3, Cause::WorkerLost)));
            // Without a worker nothing waits for one; with one again, all is as before.
            if lost {
                harness.arrive(id);
                assert_eq!((harness.scheduler.waiting(), harness.scheduler.workers_alive()), (0, 0));
                harness.ready(0);
            }
            harness.advance_to(200);
            harness.arrive(id);
            harness.drain();
            harness.account(id);
            assert_eq!(harness.outcomes(id).last(), Some(&true));
        }
    }
}

/// To the others a restarted stream is still the same: neither its curve nor its word starts afresh.
#[test]
fn a_restarted_stream_goes_on_under_the_same_curve_and_word() {
    let set = ConstraintSet::new(&[Constraint::row_miss(1).expect("valid")]).expect("one");
    let window = ArrivalBound::window(2, ns(100)).expect("valid");
    let spec = StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"));
    let mut harness = Harness::new(one_worker(Dispatch::Eager), |_, bound| bound);
    let mut id = harness.add(spec);
    for at in [0, 50, 60] {
        harness.advance_to(at);
        harness.arrive(id);
        id = harness.scheduler.restart_stream(id).expect("a known stream");
        harness.settle();
    }
    harness.drain();
    harness.resolutions.sort_by_key(|(_, r)| r.request.token);
    let requests: Vec<_> =
        harness.resolutions.iter().map(|(_, r)| (r.request.seq, r.request.mandatory)).collect();
    assert_eq!(requests, [(0, false), (0, true), (0, false)]);
    assert_eq!(harness.causes(), [(60, Cause::ArrivalExcess)]);
}

#[test]
fn safe_mode_is_left_by_hysteresis_once_things_are_clean() {
    let mut harness = Harness::new(one_worker(Dispatch::Eager), {
        let mut first = Some(13);
        move |_, bound| first.take().unwrap_or(bound)
    });
    let id = harness.add(strict(1, 100));
    harness.arrive(id);
    // It took 13 of 8: then 1000 must be clean.
    harness.advance_to(13 + 999);
    assert_eq!(severity(&harness), Severity::Safe);
    harness.advance_to(13 + 1_000);
    assert_eq!(severity(&harness), Severity::Normal);
    let transitions = harness.events.iter().filter_map(|(at, event)| match event {
        Event::SafeMode(t) => Some((*at, t.sequence)),
        Event::Suspension(_) | Event::MissesLeft { .. } => None,
    });
    assert!(transitions.eq([(13, 1), (1_013, 2)]));
}

/// What a stream does beyond its declaration suspends the promise to that stream alone.
#[test]
fn an_excess_suspends_the_promise_of_its_own_stream_until_it_has_been_clean() {
    let mut harness = Harness::new(one_worker(Dispatch::Eager), |_, bound| bound);
    let (id, other) = (harness.add(strict(1, 100)), harness.add(strict(1, 100)));
    harness.arrive(id);
    harness.advance_to(50);
    // Too early by 50: its effects last for four windows, then 1000 must be clean.
    harness.arrive(id);
    let resumed = 50 + 4 * 100 + 1000;
    harness.advance_to(resumed - 1);
    let alarm = harness.scheduler.suspension(id).expect("suspended");
    assert_eq!(
        (alarm.cause, alarm.evidence.stream, alarm.entered.as_nanos()),
        (Cause::ArrivalExcess, Some(id), 50)
    );
    assert_eq!((harness.scheduler.suspension(other), harness.scheduler.suspensions()), (None, (1, 1)));
    harness.advance_to(resumed);
    assert_eq!((harness.scheduler.suspension(id), harness.scheduler.suspensions()), (None, (2, 0)));
    assert_eq!(harness.suspensions(id), [(50, resumed)]);
    assert_eq!((severity(&harness), harness.scheduler.safe_mode().sequence()), (Severity::Normal, 0));
}

/// While announcements are inhibited nothing is told of it, and it ends all the same: whoever shows it hears which streams changed.
#[test]
fn a_suspension_that_ends_unannounced_is_over() {
    let mut harness = Harness::new(one_worker(Dispatch::Eager), |_, bound| bound);
    let id = harness.add(strict(1, 100));
    let untold = |harness: &Harness| harness.scheduler.untold_suspensions().collect::<Vec<_>>();
    harness.arrive(id);
    harness.advance_to(50);
    harness.arrive(id);
    assert_eq!((untold(&harness), harness.scheduler.suspension_changes()), (vec![], 1));
    harness.scheduler.inhibit_safe_mode(Instant::from_nanos(9_000));
    harness.advance_to(50 + 4 * 100 + 1000);
    assert_eq!((harness.scheduler.suspension(id), harness.scheduler.suspensions()), (None, (1, 0)));
    assert_eq!((untold(&harness), harness.scheduler.suspension_changes()), (vec![id], 2));
    harness.advance_to(9_000);
    assert_eq!((untold(&harness), harness.scheduler.suspensions()), (vec![], (2, 0)));
}

/// Who was told that a stream is suspended is told when it goes; it counts no longer.
#[test]
fn a_stream_that_is_removed_is_suspended_no_longer() {
    let mut harness = Harness::new(one_worker(Dispatch::Eager), |_, bound| bound);
    let (id, other) = (harness.add(strict(1, 100)), harness.add(strict(1, 100)));
    for stream in [id, id, other] {
        harness.arrive(stream);
    }
    assert_eq!(harness.scheduler.suspensions(), (1, 1));
    harness.advance_to(20);
    drop(harness.scheduler.remove_stream(other));
    assert_eq!(harness.scheduler.suspensions(), (1, 1), "nothing was told of it");
    drop(harness.scheduler.remove_stream(id));
    harness.settle();
    assert_eq!((harness.suspensions(id), harness.scheduler.suspensions()), (vec![(0, 20)], (2, 0)));
    // Who comes in its place begins anew.
    let next = harness.add(strict(1, 100));
    harness.arrive(next);
    harness.drain();
    assert_eq!((harness.scheduler.suspension(next), harness.suspensions(next)), (None, vec![]));
}

/// One request an hour is declared, without constraints, and two are sent: the effects of the second are over long before
/// the hour is.
#[test]
fn the_suspension_for_one_excess_request_has_a_bound() {
    let hour = 3_600_000_000_000;
    let window = ArrivalBound::window(1, ns(hour)).expect("valid");
    let spec = StreamSpec::promised(ConstraintSet::default(), ArrivalCurve::new(&[window]).expect("one"));
    let mut harness = Harness::new(one_worker(Dispatch::Eager), |_, bound| bound);
    let id = harness.add(spec);
    harness.arrive(id);
    harness.advance_to(1);
    harness.arrive(id);
    harness.advance_to(hour);
    assert_eq!(harness.suspensions(id), [(1, 1 + MAX_MEMORY.as_nanos() + 1_000)]);
}

/// Once a stream in excess is spaced, hardly any of its requests breaks a bound: the flood must be seen all the same.
#[test]
fn a_suspension_lasts_as_long_as_a_flood() {
    let set = ConstraintSet::new(&[Constraint::row_miss(1).expect("valid")]).expect("one");
    let bound = ArrivalBound::periodic(ns(100), ns(3_000)).expect("valid");
    let spec = StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"));
    for gap in [33, 50, 75] {
        let mut harness = Harness::new(one_worker(Dispatch::Eager), |_, bound| bound);
        let id = harness.add(spec.clone());
        for now in (0..200_000).step_by(gap) {
            harness.advance_to(now);
            harness.arrive(id);
        }
        harness.advance_to(200_000 + 4 * 3_100 + 1_000);
        let suspensions = harness.suspensions(id);
        assert!(matches!(suspensions[..], [(_, 200_000..)]), "one each {gap}: {suspensions:?}");
        assert_eq!(harness.scheduler.suspension(id), None);
        assert_eq!(severity(&harness), Severity::Normal);
    }
}

/// Batches that end late by up to the guard each, one behind the other: either the promise holds, or
/// something else than its violation is announced first.
#[test]
fn no_promise_is_broken_by_delays_that_no_monitor_reports() {
    for dispatch in BOTH {
        let config = SchedulerConfig { guard: ns(5), ..config(&[10], 1, 1, 40 + 5, dispatch) };
        let system = system(&config);
        let spec = strict(2, 20);
        assert!(system.admit(std::slice::from_ref(&spec)).is_ok());
        let mut harness = Harness::new(config, |_, bound| bound);
        harness.completion_delay = 5;
        let id = harness.add(spec);
        for i in 0..400 {
            harness.advance_to(i / 2 * 20);
            harness.arrive(id);
        }
        harness.drain();
        let first = harness.causes().first().map(|(_, cause)| *cause);
        let kept = harness.mandatory_misses().is_empty();
        let told = matches!(first, Some(Cause::LateDispatch | Cause::ServiceOverrun));
        assert!(kept || told, "{dispatch:?}: first announced: {first:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: instances(700) as u32, ..ProptestConfig::default() })]

    /// Streams are restarted for new clients, and removed; what a removed one leaves is given to a new
    /// one of the same declaration as soon as that may come.
    #[test]
    fn streams_that_come_and_go_break_no_promise(setup in open_or_closed(), every in 5u64..60) {
        let mut bench = Bench::new(&setup);
        let mut clients: Vec<_> = bench.ids.iter().copied().enumerate().collect();
        let mut gone: Vec<usize> = Vec::new();
        for _ in 0..500 {
            bench.step(&setup);
            for s in std::mem::take(&mut gone) {
                if let Some(id) = bench.harness.try_add(&setup.streams[s], None) {
                    bench.ids[s] = id;
                    clients.push((s, id));
                    // A new client owes nothing to the past of the old one: its curve starts afresh.
                    bench.history[s].clear();
                    bench.next[s] = bench.harness.now;
                } else {
                    gone.push(s);
                }
            }
            let s = bench.dice.within(0, every) as usize;
            if s < bench.ids.len() && !gone.contains(&s) {
                let id = bench.ids[s];
                // What was given up as a request came is told by the next poll.
                bench.harness.settle();
                bench.harness.account(id);
                if bench.dice.within(0, 1) == 0 {
                    let fresh = bench.harness.scheduler.restart_stream(id);
                    bench.ids[s] = fresh.expect("a known stream");
                    clients.push((s, bench.ids[s]));
                } else {
                    bench.harness.scheduler.remove_stream(id);
                    gone.push(s);
                    bench.next[s] = u64::MAX;
                }
                prop_assert!(bench.harness.scheduler.stream_counts(id).is_none());
                bench.harness.settle();
            }
            if bench.next.iter().all(|&at| at == u64::MAX) {
                let next = bench.harness.next_event().unwrap_or(bench.harness.now);
                bench.harness.advance_to(next);
                break;
            }
        }
        bench.finish();
        prop_assert_eq!(bench.harness.causes(), []);
        for (s, id) in clients.into_iter().filter(|(s, id)| bench.ids[*s] == *id) {
            if bench.harness.scheduler.stream_counts(id).is_some() {
                prop_assert!(!violates_any(&bench.harness.outcomes(id), setup.streams[s].constraints()));
                bench.harness.account(id);
            }
        }
        // Only requests of those who left are missed, and only because they left.
        let missed = bench.harness.mandatory_misses();
        prop_assert!(missed.iter().all(|r| r.outcome == Outcome::Missed(MissReason::Cancelled)), "{:?}", missed);
    }
}
