//! A scheduler takes over from another: what was promised holds across it, and nothing is lost.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, Event, HandOverError, Instant,
    Level, SafeModeConfig, SchedulerConfig, Severity, Stalls, StreamSpec, StreamState,
};

use crate::harness::load::{Bench, Setup, ns, setup_and_next, setup_and_wider};
use crate::harness::{Harness, config, violates_any};

/// A load under one configuration, then the next, as soon as the promises allow; with `wider`, its streams have these
/// declarations from then on. Tells whether it took over.
fn take_over(setup: &Setup, next: &SchedulerConfig, wider: Option<&[StreamSpec]>) -> (Bench, bool) {
    let mut bench = Bench::new(setup);
    let nothing = bench.harness.add(StreamSpec::best_effort());
    bench.load(setup, 40);
    bench.harness.scheduler.set_quiet(true);
    let mut done = false;
    for _ in 0..400 {
        while bench.next.iter().any(|&at| at <= bench.harness.now) {
            bench.step(setup);
        }
        bench.harness.settle();
        done = bench.harness.hand_over(next.clone()).is_ok();
        if done {
            break;
        }
        let now = bench.harness.now;
        bench.harness.advance(now + 1, true);
        bench.harness.arrive(nothing);
    }
    bench.harness.scheduler.set_quiet(false);
    let mut after = Setup { config: bench.harness.scheduler.config().clone(), ..setup.clone() };
    if let Some(wider) = wider.filter(|_| done) {
        for ((id, spec), (before, history)) in
            bench.ids.iter().zip(wider).zip(setup.streams.iter().zip(&mut bench.history))
        {
            assert!(bench.harness.scheduler.redeclare(*id, spec.clone()).is_some(), "nothing waits or runs");
            // Whatever came before does not count against another declaration: all that it allows may come at once.
            if spec.arrivals() != before.arrivals() {
                history.clear();
            }
        }
        wider.clone_into(&mut after.streams);
    }
    let until = bench.harness.now + 6 * after.config.deadline.as_nanos();
    bench.attack(&after, until);
    bench.harness.account(nothing);
    (bench, done)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn promises_hold_across_a_takeover((setup, next) in setup_and_next()) {
        let Some(next) = next else { return Ok(()) };
        let (bench, _) = take_over(&setup, &next, None);
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        for (id, stream) in bench.ids.iter().zip(&setup.streams) {
            let outcomes = bench.harness.outcomes(*id);
            prop_assert!(!violates_any(&outcomes, stream.constraints()), "{:?}", outcomes);
            bench.harness.account(*id);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2048, ..ProptestConfig::default() })]

    /// What is weaker is kept across the takeover as well, and nothing mandatory is missed for it.
    #[test]
    fn promises_hold_where_streams_are_taken_over_with_wider_declarations((setup, next) in setup_and_wider()) {
        let Some((next, wider)) = next else { return Ok(()) };
        let (bench, done) = take_over(&setup, &next, Some(&wider));
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        for (id, stream) in bench.ids.iter().zip(if done { &wider } else { &setup.streams }) {
            let outcomes = bench.harness.outcomes(*id);
            prop_assert!(!violates_any(&outcomes, stream.constraints()), "{:?}", outcomes);
            bench.harness.account(*id);
        }
    }
}

/// The tests above say something only if there are takeovers, most of them with requests in sight.
#[test]
fn most_loads_leave_an_instant_for_a_takeover() {
    let mut runner = TestRunner::deterministic();
    let (mut tried, mut done) = (0, 0);
    for _ in 0..300 {
        let (setup, next) = setup_and_next().new_tree(&mut runner).expect("a setup").current();
        if let Some(next) = next {
            tried += 1;
            done += usize::from(take_over(&setup, &next, None).1);
        }
    }
    println!("{done} of {tried} took over");
    assert!(tried > 150 && 3 * done > 2 * tried, "{done} of {tried}");
}

/// By hand: one worker, 10 a request, at most one request in 30 and none to be missed.
fn busy() -> (Harness, rt_core::StreamId) {
    let mut harness = Harness::new(config(&[10], 1, 1, 60, Dispatch::Eager), |_, bound| bound);
    let strict = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let window = ArrivalBound::window(1, ns(30)).expect("valid");
    let id = harness.add(StreamSpec::promised(strict, ArrivalCurve::new(&[window]).expect("one")));
    harness.arrive(id);
    (harness, id)
}

#[test]
fn work_that_was_promised_is_waited_for_and_other_work_is_cancelled() {
    let (mut harness, id) = busy();
    let nothing = harness.add(StreamSpec::best_effort());
    harness.arrive(nothing);
    let next = config(&[5], 1, 2, 40, Dispatch::Eager);
    assert_eq!(harness.hand_over(next.clone()), Err(HandOverError::Busy { running: 1, waiting: 0 }));
    harness.scheduler.set_quiet(true);
    harness.advance_to(10);
    assert_eq!(harness.scheduler.running(), 0, "nothing is begun that was not promised");
    assert_eq!(harness.hand_over(next), Ok(()));
    // The numbers go on, with the workers and the deadline of the new one.
    harness.advance_to(30);
    harness.arrive(id);
    harness.arrive(nothing);
    assert_eq!(harness.scheduler.running(), 2);
    harness.drain();
    assert_eq!(harness.now, 35);
    assert_eq!((harness.outcomes(id), harness.outcomes(nothing)), (vec![true, true], vec![false, true]));
    assert_eq!(harness.scheduler.stream_counts(id).expect("a stream").0.arrived, 2);
}

/// A quick worker and a slow one, both busy until 10. Then the quick one takes what has waited longest; of what else is
/// mandatory nothing is in reach of the slow one, and it starts nothing for the request that is.
#[test]
fn a_slow_worker_starts_nothing_that_was_not_promised_while_quick_ones_work() {
    for quiet in [true, false] {
        let kinds = [2, 10].map(|time| config(&[time], 1, 1, 12, Dispatch::Eager).workers.remove(0));
        let config = SchedulerConfig { workers: kinds.to_vec(), ..config(&[2], 1, 1, 12, Dispatch::Eager) };
        let mut harness = Harness::new(config, |_, bound| bound);
        let strict = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
        let window = ArrivalBound::window(9, ns(30)).expect("valid");
        let id = harness.add(StreamSpec::promised(strict, ArrivalCurve::new(&[window]).expect("one")));
        let nothing = harness.add(StreamSpec::best_effort());
        harness.scheduler.set_quiet(quiet);
        for (at, requests) in [(0, 2), (1, 4), (7, 2)] {
            harness.advance_to(at);
            for _ in 0..requests {
                harness.arrive(id);
            }
        }
        harness.advance_to(9);
        harness.arrive(nothing);
        harness.advance_to(10);
        let slow = harness.is_busy(1);
        assert_eq!(
            (harness.is_busy(0), slow, harness.scheduler.waiting()),
            (true, !quiet, 1 + usize::from(quiet))
        );
        harness.scheduler.set_quiet(false);
        harness.drain();
        assert_eq!(harness.mandatory_misses(), []);
    }
}

#[test]
fn suspensions_and_the_arrival_monitor_go_along() {
    let (mut harness, id) = busy();
    harness.arrive(id);
    assert_eq!(harness.causes().len(), 1);
    harness.advance_to(40);
    assert_eq!(harness.hand_over(config(&[5], 1, 1, 60, Dispatch::Eager)), Ok(()));
    assert!(harness.scheduler.suspension(id).is_some());
    assert_eq!(harness.scheduler.suspensions(), (1, 1));
    harness.advance_to(2_000);
    assert_eq!(
        (harness.scheduler.suspension(id), harness.scheduler.suspensions()),
        (None, (2, 0)),
        "in its time"
    );
    assert_eq!(harness.scheduler.safe_mode().sequence(), 0);
    harness.arrive(id);
    assert!(harness.hand_over(config(&[10], 1, 1, 60, Dispatch::Eager)).is_err());
    harness.advance_to(2_010);
    assert_eq!(harness.hand_over(config(&[10], 1, 1, 60, Dispatch::Eager)), Ok(()));
    harness.arrive(id);
    assert_eq!(harness.causes().last(), Some(&(2_010, Cause::ArrivalExcess)), "two within 30");
}

#[test]
fn what_was_counted_of_stalls_and_overruns_goes_along() {
    let stalls = Some(Stalls::new(1, ns(1_000), ns(3)).expect("valid"));
    let next = || SchedulerConfig { stalls, ..config(&[10], 1, 1, 60, Dispatch::Eager) };
    let mut harness = Harness::new(next(), |_, bound| bound + 3);
    let nothing = harness.add(StreamSpec::best_effort());
    harness.arrive(nothing);
    harness.drain();
    let counts = |harness: &Harness| (harness.scheduler.stalls(), harness.scheduler.overruns());
    assert_eq!(counts(&harness), (1, 1));
    assert_eq!(harness.hand_over(next()), Ok(()));
    assert_eq!(counts(&harness), (1, 1));
}

/// Its promise was computed with all of its workers, whatever the last one had.
#[test]
fn a_worker_that_the_next_one_has_lost_already_is_missed() {
    for (workers, severity) in [(1, Severity::Lost), (2, Severity::Safe)] {
        let (mut harness, _) = busy();
        harness.advance_to(10);
        let now = Instant::from_nanos(harness.now);
        let config = config(&[10], 1, workers, 60, Dispatch::Eager);
        let mut next = rt_core::Scheduler::new(config).expect("a configuration");
        next.handle_worker_lost(now, 0);
        assert_eq!(harness.scheduler.hand_over(now, &mut next, &[]), Ok(()));
        assert_eq!(next.safe_mode().severity(), severity);
        assert_eq!(next.safe_mode().state().alarm.map(|alarm| alarm.cause), Some(Cause::WorkerLost));
        next.handle_worker_ready(now, 0);
        next.clear_safe_mode(now);
        assert_eq!(next.safe_mode().severity(), Severity::Normal, "it is back, and nothing waits");
    }
}

#[test]
fn one_that_is_not_fit_is_refused_and_the_present_one_goes_on() {
    let (mut harness, id) = busy();
    harness.add(StreamSpec::best_effort());
    harness.advance_to(10);
    let next = config(&[10], 1, 1, 60, Dispatch::Eager);
    let few = SchedulerConfig { streams: 1, ..next.clone() };
    assert_eq!(harness.hand_over(few), Err(HandOverError::Limit { streams: 2, limit: 1 }));
    let closed = SchedulerConfig { background: false, ..next.clone() };
    assert_eq!(harness.hand_over(closed), Err(HandOverError::Undeclared));
    let mut used = rt_core::Scheduler::new(next).expect("a configuration");
    used.add_stream(Instant::ZERO, StreamSpec::best_effort()).expect("room");
    let now = Instant::from_nanos(harness.now);
    assert_eq!(harness.scheduler.hand_over(now, &mut used, &[]), Err(HandOverError::NotNew));
    harness.advance_to(40);
    harness.arrive(id);
    harness.drain();
    assert_eq!(harness.outcomes(id), [true, true]);
}

/// A scheduler for many streams hands over to one for a few: what counts are the streams that are there.
#[test]
fn places_that_streams_have_left_are_free_in_the_next_scheduler() {
    let mut harness = Harness::new(config(&[10], 1, 1, 60, Dispatch::Eager), |_, bound| bound);
    let ids: Vec<_> = (0..8).map(|_| harness.add(StreamSpec::best_effort())).collect();
    let (last, others) = ids.split_last().expect("eight");
    others[1..].iter().for_each(|id| drop(harness.scheduler.remove_stream(*id)));
    let few = SchedulerConfig { streams: 2, ..config(&[10], 1, 1, 60, Dispatch::Eager) };
    assert_eq!(harness.hand_over(few), Ok(()));
    let more = || StreamSpec::best_effort();
    assert!(
        harness.scheduler.add_stream(Instant::ZERO, more()).is_err(),
        "two are there, and two is the limit"
    );
    harness.arrive(*last);
    harness.arrive(others[0]);
    harness.drain();
    assert_eq!((harness.outcomes(*last), harness.outcomes(others[0])), (vec![true], vec![true]));
    harness.scheduler.remove_stream(others[0]);
    assert!(
        harness.scheduler.add_stream(Instant::ZERO, more()).is_ok()
            && harness.scheduler.add_stream(Instant::ZERO, more()).is_err()
    );
}

proptest! {
    /// Streams come and go, some end with the takeover: it is refused exactly if more go on than there is room for,
    /// however much is open, and what has taken over has room for the rest.
    #[test]
    fn only_the_streams_that_go_on_need_a_place(
        steps in proptest::collection::vec((any::<bool>(), 0usize..16), 1..40),
        ending in proptest::collection::vec(any::<bool>(), 16),
        limit in 1usize..16,
        at_work in any::<bool>(),
    ) {
        let mut harness = Harness::new(config(&[10], 1, 1, 60, Dispatch::Eager), |_, bound| bound);
        let mut there = Vec::new();
        for (come, which) in steps {
            if come && there.len() < 16 {
                there.push(harness.add(StreamSpec::best_effort()));
            } else if !there.is_empty() {
                harness.scheduler.remove_stream(there.swap_remove(which % there.len()));
            }
        }
        let (ended, stay): (Vec<_>, Vec<_>) =
            there.iter().zip(ending).partition(|(_, ends)| *ends);
        let (ended, stay): (Vec<_>, Vec<_>) =
            (ended.iter().map(|(id, _)| **id).collect(), stay.iter().map(|(id, _)| **id).collect());
        if at_work {
            for id in &stay {
                harness.arrive(*id);
            }
        }
        let few = SchedulerConfig { streams: limit, ..config(&[10], 1, 1, 60, Dispatch::Eager) };
        let done = harness.hand_over_without(few, &ended);
        if stay.len() > limit {
            prop_assert_eq!(done, Err(HandOverError::Limit { streams: stay.len(), limit }));
        } else if at_work && !stay.is_empty() {
            prop_assert_eq!(done, Err(HandOverError::Busy { running: 1, waiting: 0 }));
        } else {
            prop_assert_eq!(done, Ok(()));
            prop_assert!(ended.iter().all(|id| harness.scheduler.stream_counts(*id).is_none()));
            prop_assert!(stay.iter().all(|id| harness.scheduler.stream_counts(*id).is_some()));
            let added = std::iter::repeat_with(|| harness.scheduler.add_stream(Instant::ZERO, StreamSpec::best_effort()));
            prop_assert_eq!(added.take_while(Result::is_ok).count(), limit - stay.len());
        }
    }
}

/// By hand: one worker, 4 a request, within 10. A stream of two in 24 may miss one of three, and beyond that two of three: so it does amid
/// others. The next declaration says nothing of what it missed then, whenever it takes over.
#[test]
fn what_a_stream_missed_at_a_weaker_level_is_not_held_against_its_next_declaration() {
    let set = |m| ConstraintSet::new(&[Constraint::any_miss(m, 3).expect("m < k")]).expect("one");
    let ladder = |length| {
        let bound = ArrivalBound::window(2, ns(length)).expect("valid");
        let spec = StreamSpec::promised(set(1), ArrivalCurve::new(&[bound]).expect("one"));
        let level = Level::behind(spec.demand().expect("it demands something"), set(2)).expect("a bound");
        spec.with_levels(vec![level]).expect("a ladder")
    };
    let config = config(&[4], 1, 1, 10, Dispatch::Eager);
    let mut across = 0;
    for ticks in 200..250 {
        let mut harness = Harness::new(config.clone(), |_, bound| bound);
        let id = harness.add(ladder(24));
        let others: Vec<_> = (0..8).map(|_| harness.add(StreamSpec::best_effort())).collect();
        let send = |harness: &mut Harness, to: u64, every: u64| {
            let from = harness.now;
            for now in from..to {
                harness.advance_to(now);
                others.iter().for_each(|other| _ = harness.arrive(*other));
                if (now - from).is_multiple_of(every) {
                    harness.arrive(id);
                }
            }
            harness.drain();
        };
        send(&mut harness, ticks, 6);
        assert!(matches!(harness.scheduler.stream_state(id), Some((StreamState::Degraded(1), _))));
        let before = harness.outcomes(id).len();
        harness.hand_over(config.clone()).expect("nothing is open");
        assert!(harness.scheduler.redeclare(id, ladder(20)).is_some());
        let until = harness.now + 200;
        send(&mut harness, until, 10);
        let wrong =
            |(_, event): &(u64, Event)| matches!(event, Event::SafeMode(told) if told.state.is_suspended());
        assert!(!harness.events.iter().any(wrong), "{ticks}: {:?}", harness.events);
        let outcomes = harness.outcomes(id);
        assert!(!violates_any(&outcomes[before..], &set(1)), "{ticks}: {outcomes:?}");
        across += u64::from(violates_any(&outcomes[before - 2..], &set(1)));
    }
    assert!(across > 0, "some windows across do not keep it");
}

/// A stream that is suspended for what it sent has a weaker promise instead as soon as a new declaration brings one: that says why, too.
#[test]
fn what_suspended_a_stream_is_why_a_level_is_in_force_that_a_new_declaration_brings() {
    let set = |m| ConstraintSet::new(&[Constraint::any_miss(m, 3).expect("m < k")]).expect("one");
    let bound = ArrivalBound::window(2, ns(24)).expect("valid");
    let plain = StreamSpec::promised(set(1), ArrivalCurve::new(&[bound]).expect("one"));
    let level = Level::behind(plain.demand().expect("it demands something"), set(2)).expect("a bound");
    let laddered = plain.clone().with_levels(vec![level]).expect("a ladder");
    let safe_mode = SafeModeConfig { hold: ns(100), clean: ns(100), latch: false };
    let config = SchedulerConfig { safe_mode, ..config(&[4], 1, 1, 20, Dispatch::Eager) };
    let mut harness = Harness::new(config.clone(), |_, bound| bound);
    let id = harness.add(plain);
    (0..3).for_each(|_| _ = harness.arrive(id));
    harness.drain();
    let state = |harness: &Harness| harness.scheduler.stream_state(id).expect("a stream");
    assert_eq!(state(&harness).0, StreamState::Suspended);
    harness
        .hand_over_to(rt_core::Scheduler::new(config).expect("a configuration"), &[])
        .expect("nothing is open");
    assert!(harness.scheduler.redeclare(id, laddered).is_some());
    harness.settle();
    let (now, alarm) = state(&harness);
    assert_eq!((now, alarm.map(|alarm| alarm.cause)), (StreamState::Degraded(1), Some(Cause::ArrivalExcess)));
    let Some((_, Event::Suspension(told))) = harness.events.last() else { panic!("{:?}", harness.events) };
    assert_eq!((told.state, told.alarm.map(|alarm| alarm.cause)), (now, Some(Cause::ArrivalExcess)));
}
