//! What promises fall back on, and a weaker promise of a stream that sends too much, is in force within the time that is told, whatever was begun
//! before: long batches, early requests, late reading or late timers, stalls as declared. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems.

use std::cell::Cell;
use std::rc::Rc;

use proptest::test_runner::TestRunner;
use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, Instant, SchedulerConfig,
    Severity, StreamId, StreamSpec, longer,
};

use crate::harness::load::{QUICK, Setup, ns, stretch, weaker};
use crate::harness::mixed::{shield, some, tolerance};
use crate::harness::{Dice, Harness, config, earliest, end_of, fallbacks, instances, system};

/// What a weaker promise is in force for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// A worker is lost.
    Lost,
    /// Every batch that begins takes half as long again.
    Longer,
    /// The first of the streams sends what its next level allows.
    Excess,
}

/// What there was of it in all runs of a case.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    told: usize,
    waited: usize,
    longest: u64,
    /// Longer than a deadline and the longest busy period.
    long: usize,
}

/// Requests of which none is to be missed, so many in any interval of that length.
fn strict(count: u64, length: u64) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let bound = ArrivalBound::window(count, ns(length)).expect("valid");
    StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
}

/// When what `specs` fall back on without a worker is in force at the latest.
fn most(config: &SchedulerConfig, specs: &[StreamSpec]) -> Option<u64> {
    most_of(Case::Lost, config, specs)
}

fn most_of(case: Case, config: &SchedulerConfig, specs: &[StreamSpec]) -> Option<u64> {
    let [lost, longer] = system(config).times_to_fall_back(specs, fallbacks(config, specs));
    let most = match case {
        Case::Lost => lost,
        Case::Longer => longer,
        Case::Excess => system(config).time_to_calm(specs, tolerance(config, specs)),
    };
    most.map(|most| most.as_nanos())
}

/// A run of a system in which that happens: everybody sends as much as may be. Requests of one instant are taken in together, or one by one.
fn play(setup: &Setup, case: Case, mut dice: Dice, tally: &mut Tally) {
    let config = SchedulerConfig { safe_mode: QUICK, ..setup.config.clone() };
    let Some(most) = most_of(case, &config, &setup.streams).filter(|&most| most < 4_000) else { return };
    let guard = config.guard.as_nanos();
    let (timers, together) = (dice.within(0, 1) == 0, dice.within(0, 1) == 0);
    let mut stalls = Vec::new();
    if let Some(declared) = config.stalls {
        let (length, window) = (declared.length().as_nanos(), declared.window().as_nanos());
        let apart = (window + length).max(2 * (length + config.deadline.as_nanos()));
        let mut end = length + dice.within(0, 200);
        while end < 9_000 {
            stalls.push((end - length, end));
            end += apart + dice.within(0, 99);
        }
    }
    let (started, slow) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let (now, slower) = (Rc::clone(&started), Rc::clone(&slow));
    let mut harness = Harness::new(config.clone(), move |_, bound| {
        let bound = if slower.get() { longer(ns(bound)).as_nanos() } else { bound };
        end_of(now.get(), bound, &stalls) - now.get()
    });
    harness.timer_delay = if timers { guard } else { 0 };
    harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
        started.set(now);
        let at = Instant::from_nanos(now);
        let longest = scheduler.longest(at, worker);
        scheduler.prolong(at, worker, longest).map_or(bound, |()| longest.as_nanos())
    }));
    let ids: Vec<StreamId> = setup.streams.iter().map(|spec| harness.add(spec.clone())).collect();
    harness.scheduler.set_tolerance(tolerance(&config, &setup.streams));
    harness.scheduler.set_fallbacks(Instant::ZERO, fallbacks(&config, &setup.streams));
    harness.scheduler.set_shield(shield(&config, &setup.streams)).expect("made for it");
    let stranger = harness.add(StreamSpec::best_effort());
    let mut conformed = vec![Vec::new(); ids.len()];
    // What is sent, and when it is read.
    let mut unread: Vec<(usize, u64, u64)> = Vec::new();
    let (busy, greedy, from) = (dice.within(0, 4), dice.within(0, 3), dice.within(10, 200));
    tally.runs += 1;
    let mut told = None;
    for tick in 0..=from + 300 + most {
        harness.advance_to(tick);
        match case {
            Case::Lost if tick == from => {
                harness.lose(dice.within(0, config.worker_count() as u64 - 1) as usize);
                told = Some(tick);
            }
            Case::Longer if tick == from => slow.set(true),
            _ => {}
        }
        let mut causes = harness.causes();
        if case == Case::Excess {
            // That another level is in force has the same cause.
            causes.truncate(1);
        }
        if let Some(&(at, cause)) = causes.first() {
            let awaited = match case {
                Case::Lost => Cause::WorkerLost,
                Case::Longer => Cause::ServiceOverrun,
                Case::Excess => Cause::ArrivalExcess,
            };
            // What is longer still, as where a stall is in it too, is nothing to fall back on.
            if cause != awaited || causes.len() > 1 {
                assert!(case == Case::Longer && config.stalls.is_some(), "{causes:?} {setup:?}");
                return;
            }
            tally.told += usize::from(told.is_none() || case == Case::Lost && tick == from);
            told = told.or(Some(at));
        }
        let in_force = match case {
            Case::Excess => harness.scheduler.suspensions().1 == 0,
            _ => !harness.scheduler.safe_mode().severity().is_suspended(),
        };
        if let Some(told) = told {
            let waited = tick - told;
            if in_force {
                let load: Vec<_> = setup.streams.iter().map(|spec| spec.at_level(usize::MAX)).collect();
                let systems = match case {
                    Case::Lost => system(&config).with_a_worker_less(),
                    Case::Longer => system(&config).with_longer_batches().into_iter().collect(),
                    Case::Excess => vec![system(&config)],
                };
                let busy =
                    systems.iter().filter_map(|less| Some(less.admit(&load).ok()?.busy.as_nanos())).max();
                tally.waited += usize::from(waited > 0);
                tally.longest = tally.longest.max(waited);
                tally.long +=
                    usize::from(busy.is_some_and(|busy| waited > config.deadline.as_nanos() + busy));
                return;
            }
            assert!(
                waited < most,
                "{case:?} told at {told}, not in force within {most}: {setup:?}, {:?}",
                harness.events
            );
        }
        if dice.within(0, 4) < busy {
            harness.arrive(stranger);
        }
        for (k, spec) in setup.streams.iter().enumerate() {
            let first = spec.arrivals().expect("declared").bounds();
            // One that is to exceed its first declaration never does that of the next.
            let (early, bounds) = match (case == Case::Excess && k == 0, &spec.levels().first()) {
                (true, Some(next)) if tick >= from => (0, next.arrivals.bounds().to_vec()),
                (true, Some(next)) => (0, [first, next.arrivals.bounds()].concat()),
                _ => (harness.scheduler.tolerance().as_nanos(), first.to_vec()),
            };
            while let due = earliest(&conformed[k], &bounds, tick)
                && due <= tick + early
                && dice.within(0, 9) >= greedy
                && (due <= tick || unread.iter().all(|&(other, ..)| other != k))
            {
                conformed[k].push(due);
                let last = unread.iter().filter(|&&(other, ..)| other == k).map(|&(.., read)| read).max();
                let delay = if timers || due > tick { 0 } else { dice.within(0, guard) };
                unread.push((k, tick, last.unwrap_or(0).max(tick + delay)));
            }
        }
        for (k, sent, _) in unread.extract_if(.., |&mut (.., read)| read <= tick) {
            harness.arrive_sent_unpolled(ids[k], sent);
            if !together {
                harness.settle();
            }
        }
        harness.settle();
    }
}

#[test]
fn it_is_in_force_in_time() {
    for case in [Case::Lost, Case::Longer, Case::Excess] {
        let (mut runner, mut tally) = (TestRunner::deterministic(), Tally::default());
        let count = instances(1_500);
        for nth in 0..count {
            let Some((mut setup, dice)) = some(nth, &mut runner) else { continue };
            if case == Case::Excess {
                setup.streams[0] = weaker(&setup.streams[0]);
                if setup.streams[0].levels().is_empty() {
                    continue;
                }
            }
            if setup.config.background && system(&setup.config).admit(&setup.streams).is_ok() {
                play(&setup, case, dice, &mut tally);
            }
        }
        println!("{case:?} {tally:?}");
        assert!(tally.told * 20 > count && tally.waited * 9 > tally.told, "{tally:?}");
    }
}

/// One request in 20 ns, of 19 ns each, and the worker that is left has just begun a batch of 362 ns. While it runs as many wait as it has
/// worked off only in as many times 380 ns.
#[test]
fn what_waits_behind_a_long_batch_is_counted() {
    let config = config(&[19], 1, 2, 400, Dispatch::Eager);
    let spec = strict(1, 20);
    let most = most(&config, std::slice::from_ref(&spec)).expect("it is known");
    let mut harness = Harness::new(config.clone(), |_, bound| bound);
    let id = harness.add(spec.clone());
    harness.scheduler.set_fallbacks(Instant::ZERO, fallbacks(&config, [&spec]));
    harness.scheduler.set_shield(shield(&config, &[spec])).expect("made for it");
    stretch(&mut harness);
    let stranger = harness.add(StreamSpec::best_effort());
    (0..2).for_each(|_| _ = harness.arrive(stranger));
    harness.lose(0);
    let mut waited = None;
    for now in (0..20_000).step_by(20) {
        harness.advance_to(now);
        harness.arrive(id);
        let in_force = harness.scheduler.safe_mode().severity() == Severity::Warning;
        waited = waited.or(in_force.then_some(now));
    }
    assert_eq!(harness.mandatory_misses(), []);
    assert!(waited.is_some_and(|waited| waited > 7_000 && waited <= most), "{waited:?} of {most}");
}

/// Two workers that wait for two requests, of which one is enough, and two at once each 3 ns. If one is left at first, one always is.
#[test]
fn what_waits_for_a_full_batch_is_not_in_the_way() {
    let config = config(&[1, 1], 2, 2, 10, Dispatch::FullOrLatest);
    let spec = strict(2, 3);
    let mut harness = Harness::new(config.clone(), |_, bound| bound);
    let id = harness.add(spec.clone());
    harness.scheduler.set_fallbacks(Instant::ZERO, fallbacks(&config, [&spec]));
    let send = |harness: &mut Harness, from: u64, to: u64| {
        for now in (from..to).step_by(3) {
            harness.advance_to(now);
            (0..2).for_each(|_| _ = harness.arrive_unpolled(id));
            harness.settle();
        }
    };
    let severity = |harness: &Harness| harness.scheduler.safe_mode().severity();
    harness.arrive(id);
    send(&mut harness, 3, 30);
    assert_eq!(harness.scheduler.waiting(), 1);
    harness.lose(0);
    send(&mut harness, 30, 60);
    assert_eq!(severity(&harness), Severity::Warning, "what one worker can do is in force");
    harness.lose(1);
    (0..2).for_each(|worker| harness.ready(worker));
    send(&mut harness, 60, 3_000);
    assert_eq!(severity(&harness), Severity::Normal, "and then all is well again");
    assert_eq!(harness.scheduler.waiting(), 0);
}
