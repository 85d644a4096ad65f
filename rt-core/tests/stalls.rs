//! Stalls that are declared: the promise holds through them, and whoever stalls more is announced.

use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{
    Action, AdmissionError, Arrival, ArrivalBound, ArrivalCurve, BatchTime, Cause, Constraint, ConstraintSet,
    Dispatch, Instant, LatencyProfile, MAX_SPAN, Outcome, Ran, Scheduler, SchedulerConfig, Shield, Span,
    Stalls, StreamSpec, System,
};

use crate::harness::load::{Bench, Setup, ns, setup, shield_of, stalls, with_stalls};
use crate::harness::mixed::mixed;
use crate::harness::{Dice, Harness, config, instances, system, violates_any};
use crate::oracle::sample::{Scale, systematic};
use crate::oracle::theory::{inequality_holds, mandatory_within};
use crate::oracle::{Instance, Judge, Mode, Verdict};

/// Small systems that may stand still for a tick or two, from an instant at which no mandatory request waits to the next: where Theorem A holds with as much less of the deadline, the judge finds no miss. `WEIR_EXHAUSTIVE=n` looks at `n` times as many.
#[test]
fn what_is_admitted_with_stalls_is_kept_through_every_one_of_them() {
    let count = instances(50);
    let mut dice = Dice(11);
    let mut cases = systematic();
    cases.extend((0..count).map(|_| Scale { streams: 2, groups: 1, crowd: 7 }.draw(&mut dice)));
    let (mut looked_at, mut yes, mut pessimistic, mut broken, mut too_large) = (0, 0, 0, 0, 0);
    for instance in &cases {
        let stall = dice.within(1, 2) as u8;
        let longer = Instance { latency: instance.latency + stall, ..instance.clone() };
        // What can wait must fit into a state.
        if mandatory_within(&longer, u64::from(longer.latency) + 1) > 11 {
            continue;
        }
        looked_at += 1;
        let promised = inequality_holds(instance, 4_000);
        yes += usize::from(promised);
        for full_or_latest in [false, true] {
            let mode = Mode { full_or_latest, background: true, ..Mode::default() };
            match (Judge { stall, ..Judge::new(mode, 150_000) }.run(&longer), promised) {
                (Verdict::Miss(trace), true) => panic!("{longer:?} {stall}: {trace:?}"),
                (Verdict::Miss(_), false) => {}
                (Verdict::Safe(_), _) => pessimistic += usize::from(!promised),
                (Verdict::TooLarge, _) => too_large += 1,
            }
            // Without what is kept back for it a stall does harm.
            let judge = Judge { stall, ..Judge::new(mode, 150_000) };
            broken += usize::from(promised && matches!(judge.run(instance), Verdict::Miss(_)));
        }
    }
    let all = 2 * looked_at;
    println!(
        "{yes} of {} admitted; {pessimistic} pessimistic noes, {too_large} too large of {all}",
        cases.len()
    );
    println!("{broken} of {} break without the reserve", 2 * yes);
    assert!(yes * 5 > looked_at && (looked_at - yes) * 5 > looked_at);
    assert!(too_large * 4 < all && broken * 4 > 2 * yes);
}

/// A load on a machine that stands still as often and as long as `stalls` allow, as batches see it that run then.
fn stalling(setup: &Setup, stalls: Stalls, shielded: bool) -> Bench {
    let mut bench = Bench::new(setup);
    if shielded {
        bench.harness.scheduler.set_shield(Some(shield_of(setup, &setup.streams))).expect("made for it");
    }
    let started = Rc::new(Cell::new(0));
    let now = Rc::clone(&started);
    bench.harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
        started.set(now);
        if !shielded {
            return bound;
        }
        let now = Instant::from_nanos(now);
        let longest = scheduler.longest(now, worker);
        let _ = scheduler.prolong(now, worker, longest);
        longest.as_nanos()
    }));
    let (mut dice, slow) = (Dice(setup.seed), setup.slow);
    let mut ends: Vec<u64> = Vec::new();
    let (count, window, length) =
        (stalls.count() as usize, stalls.window().as_nanos(), stalls.length().as_nanos());
    // No batch runs through two of them or beside one that ran through another, for then it could have lost its time in that one as
    // well; and none is seen to be late sooner than a window after one of them ended.
    let apart = 2 * (length + setup.config.deadline.as_nanos());
    bench.harness.set_service(move |_, bound| {
        let (now, time) = (now.get(), if slow { bound } else { dice.within(1, bound) });
        while ends.last().is_none_or(|&last| last < now + apart) {
            let soonest = ends.len().checked_sub(count).map_or(0, |i| ends[i] + window + length);
            let last = ends.last().map_or(0, |last| last + apart);
            ends.push(soonest.max(last).max(length) + dice.within(0, 2) * dice.within(0, apart));
        }
        // Those that have begun by then stand still with it.
        let stalled = |&&end: &&u64| now <= end - length && end - length < now + time;
        time + if ends.iter().rev().find(stalled).is_some() { length } else { 0 }
    });
    bench
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_promise_holds_through_the_stalls_that_it_was_computed_with(
        setup in setup(), (count, length) in stalls(), shielded: bool,
    ) {
        let Some((setup, stalls)) = with_stalls(setup, count, length) else { return Ok(()) };
        let mut bench = stalling(&setup, stalls, shielded);
        bench.attack(&setup, 40 * setup.config.deadline.as_nanos());
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        for (id, stream) in bench.ids.iter().zip(&setup.streams) {
            prop_assert!(!violates_any(&bench.harness.outcomes(*id), stream.constraints()));
        }
    }

    #[test]
    fn so_it_does_on_workers_of_several_kinds(setup in mixed(), (count, length) in stalls()) {
        let Some((setup, stalls)) = with_stalls(setup, count, length) else { return Ok(()) };
        let mut bench = stalling(&setup, stalls, false);
        bench.attack(&setup, 40 * setup.config.deadline.as_nanos());
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
    }

    /// The queue that admission says is needed is enough for what piles up behind stalls.
    #[test]
    fn a_queue_as_long_as_admission_says_is_enough_with_stalls(setup in setup(), (count, length) in stalls()) {
        let Some((setup, stalls)) = with_stalls(setup, count, length) else { return Ok(()) };
        let admission = system(&setup.config).admit(&setup.streams).expect("admitted");
        let config = SchedulerConfig { queue: admission.waiting.max(1) as usize, ..setup.config.clone() };
        let setup = Setup { config, ..setup };
        let mut bench = stalling(&setup, stalls, false);
        bench.attack(&setup, 400);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
    }
}

/// The property above says something only if stalls are absorbed, and if longer ones than are declared break promises.
#[test]
fn stalls_are_absorbed_and_longer_ones_break_promises() {
    let mut runner = TestRunner::deterministic();
    let (mut absorbed, mut loads, mut broken) = (0, 0, 0);
    for _ in 0..200 {
        let setup = (setup(), stalls()).new_tree(&mut runner).expect("a setup").current();
        let Some((setup, declared)) = with_stalls(setup.0, setup.1.0, setup.1.1) else { continue };
        let mut bench = stalling(&setup, declared, false);
        bench.attack(&setup, 40 * setup.config.deadline.as_nanos());
        absorbed += bench.harness.scheduler.stalls();
        loads += 1;
        let longer = declared.length() + setup.config.deadline;
        let Ok(longer) = Stalls::new(declared.count(), MAX_SPAN, longer) else { continue };
        let mut bench = stalling(&setup, longer, false);
        bench.attack(&setup, 40 * setup.config.deadline.as_nanos());
        if !bench.harness.mandatory_misses().is_empty() {
            broken += 1;
            let raised = bench.harness.causes();
            assert!(raised.iter().any(|(_, cause)| *cause == Cause::ServiceOverrun), "{raised:?}");
        }
    }
    println!("{absorbed} stalls in {loads} loads; {broken} loads broken by longer ones");
    assert!(loads > 100 && absorbed > loads && broken > 10, "{absorbed} {loads} {broken}");
}

/// One request a time, 10 each and at most one in 30, none to be missed, within 40: of which 20 are for one stall.
fn one_stall() -> (Harness, rt_core::StreamId) {
    let stalls = Some(Stalls::new(1, ns(1_000), ns(20)).expect("valid"));
    let config = SchedulerConfig { stalls, ..config(&[10], 1, 1, 40, Dispatch::Eager) };
    let strict = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let window = ArrivalBound::window(1, ns(30)).expect("valid");
    let spec = StreamSpec::promised(strict, ArrivalCurve::new(&[window]).expect("one"));
    assert!(system(&config).admit([&spec]).is_ok());
    let shorter = System { latency: ns(39), ..system(&config) };
    assert!(matches!(shorter.admit([&spec]), Err(AdmissionError::Burst(_))));
    let mut harness = Harness::new(config, |_, bound| bound);
    let id = harness.add(spec);
    (harness, id)
}

/// A load that repeats soon, at three quarters of what the worker does: behind a delay of 100, which it works off by a
/// quarter of the time, it has caught up by 400; a deadline and a stall later nothing of it is seen.
#[test]
fn a_load_that_repeats_has_time_to_catch_up() {
    let strict = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let window = ArrivalBound::window(3, ns(40)).expect("valid");
    let spec = StreamSpec::promised(strict, ArrivalCurve::new(&[window]).expect("one"));
    let admit = |window| {
        let stalls = Some(Stalls::new(1, ns(window), ns(20)).expect("valid"));
        system(&SchedulerConfig { stalls, ..config(&[10], 1, 1, 100, Dispatch::Eager) }).admit([&spec])
    };
    for window in [100, 519] {
        assert_eq!(admit(window), Err(AdmissionError::Stalls { needed: ns(520), window: ns(window) }));
    }
    assert!(admit(520).is_ok());
}

#[test]
fn the_first_stall_is_absorbed_and_another_within_the_window_is_announced() {
    let (mut harness, id) = one_stall();
    for (at, time, causes) in [(0, 30, 0), (100, 10, 0), (1_008, 30, 1), (5_000, 30, 1), (6_009, 30, 1)] {
        harness.advance_to(at);
        harness.set_service(move |_, _| time);
        harness.arrive(id);
        harness.advance_to(at + 60);
        assert_eq!(harness.causes().len(), causes, "at {at}: {:?}", harness.causes());
    }
    assert_eq!(harness.scheduler.stalls(), 3);
    assert_eq!(harness.outcomes(id), [true; 5]);
    // What lasts longer than any stall that is declared is announced while it lasts.
    harness.advance_to(8_000);
    harness.set_service(|_, _| 1_000);
    harness.arrive(id);
    harness.advance_to(8_031);
    assert_eq!(harness.causes().last(), Some(&(8_031, Cause::ServiceOverrun)));
}

/// The machine stands still while the worker is free: a request is taken in late.
#[test]
fn a_stall_of_dispatch_counts_with_those_of_batches() {
    let (mut harness, id) = one_stall();
    harness.advance_to(50);
    harness.arrive_late(id, 30);
    harness.advance_to(100);
    assert_eq!((harness.causes(), harness.scheduler.stalls()), (vec![], 1));
    assert_eq!(harness.outcomes(id), [true]);
    harness.advance_to(500);
    harness.arrive_late(id, 495);
    assert_eq!(harness.causes(), [(500, Cause::LateDispatch)]);
}

/// How long the second of two workers may be given, when the first was given all that it may have a while ago.
fn second_beside_a_long_one(stalls: Option<Stalls>, latency: Span) -> (Span, Span) {
    let reserve = stalls.map_or(0, |stalls| stalls.lost().as_nanos());
    let config = config(&[10], 1, 2, latency.as_nanos() + reserve, Dispatch::Eager);
    let curve = ArrivalCurve::new(&[ArrivalBound::window(1, ns(40)).expect("valid")]).expect("one");
    let spec = StreamSpec::promised(
        ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one"),
        curve,
    );
    let shield = Shield::new(&config.workers[0], latency, spec.demand()).expect("it holds");
    let mut scheduler = Scheduler::new(SchedulerConfig { stalls, ..config }).expect("valid");
    scheduler.add_stream(Instant::ZERO, spec).expect("room");
    let other = scheduler.add_stream(Instant::ZERO, StreamSpec::best_effort()).expect("room");
    scheduler.set_shield(Some(shield)).expect("made for it");
    let mut start = |at: u64, token: u64| {
        let at = Instant::from_nanos(at);
        assert_eq!(scheduler.handle_arrival(at, Arrival::new(other, token, at)), None);
        loop {
            match scheduler.poll(at) {
                Action::Start { worker } => {
                    let longest = scheduler.longest(at, worker);
                    scheduler.prolong(at, worker, longest).expect("it is the longest");
                    return longest;
                }
                Action::WakeAt(_) => panic!("a worker is free"),
                _ => {}
            }
        }
    };
    (start(1_000, 1), start(1_005, 2))
}

#[test]
fn what_a_long_batch_has_left_is_what_stalls_may_have_taken_of_it_as_well() {
    let latency = ns(60);
    let unstalled = second_beside_a_long_one(None, latency);
    let stalled = second_beside_a_long_one(Some(Stalls::new(1, ns(10_000), ns(7)).expect("valid")), latency);
    assert_eq!(stalled.0, unstalled.0, "the first has nothing long beside it");
    assert!(unstalled.0 > ns(10), "it is a long one");
    // The promised request that may come next waits for the sooner of both: for 7 ns longer where the first may be so late.
    assert!(stalled.1 < unstalled.1, "{stalled:?} {unstalled:?}");
}

/// By hand: one worker, 10 a request, within 25, of which 5 are for one stall in 65. As long as nothing is promised a batch may take as
/// long as it likes: 300 at most, though mostly 5. One stall meets it when it has just begun, so it ends 5 late. Who comes 10 before it
/// should, and sends at once, is begun 15 later, and meets the next stall: it would be answered by 30.
#[test]
fn who_comes_waits_for_what_a_stall_may_have_taken_of_a_long_batch() {
    let time = |bound| BatchTime { bound: ns(bound), likely: ns(5), mean: ns(5) };
    let profile = LatencyProfile::expected(&[time(10), time(300)]).expect("a profile");
    let stalls = Some(Stalls::new(1, ns(65), ns(5)).expect("valid"));
    let mut config = SchedulerConfig { stalls, ..config(&[10], 1, 1, 25, Dispatch::Eager) };
    config.workers[0].profile = profile;
    let curve = ArrivalCurve::new(&[ArrivalBound::window(1, ns(100)).expect("valid")]).expect("one");
    let strict = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let spec = StreamSpec::promised(strict, curve);
    assert!(system(&config).admit([&spec]).is_ok());
    let mut scheduler = Scheduler::new(config).expect("valid");
    let nothing = scheduler.add_stream(Instant::ZERO, StreamSpec::best_effort()).expect("room");
    let at = Instant::from_nanos;
    let send = |scheduler: &mut Scheduler, stream, now: u64, token| {
        assert_eq!(scheduler.handle_arrival(at(now), Arrival::new(stream, token, at(now))), None);
    };
    let settle = |scheduler: &mut Scheduler, now: u64| loop {
        match scheduler.poll(at(now)) {
            Action::Event(event) => panic!("{event:?}"),
            Action::Resolve(resolution) => {
                assert!(!resolution.request.mandatory || resolution.outcome == Outcome::Served);
            }
            Action::Start { .. } => {}
            Action::WakeAt(_) => break,
        }
    };
    (0..3).for_each(|token| {
        send(&mut scheduler, nothing, 1_000, token);
        settle(&mut scheduler, 1_000);
    });
    scheduler.handle_completion(at(1_010), 0, Ran::Done(ns(10)));
    settle(&mut scheduler, 1_010);
    assert_eq!(scheduler.batch(0).len(), 2, "it may take until 1310, and takes until 1315");
    let added = (1_280..1_315).find_map(|now| Some((now, scheduler.add_stream(at(now), spec.clone()).ok()?)));
    let (came, stream) = added.expect("it comes");
    send(&mut scheduler, stream, came, 3);
    settle(&mut scheduler, came);
    scheduler.handle_completion(at(1_315), 0, Ran::Done(ns(305)));
    settle(&mut scheduler, 1_315);
    scheduler.handle_completion(at(1_330), 0, Ran::Done(ns(15)));
    settle(&mut scheduler, 1_330);
    assert_eq!((came, scheduler.stalls()), (1_305, 2));
    assert_eq!(scheduler.stream_counts(stream).expect("there").0.served, 1);
}
