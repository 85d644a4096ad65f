//! Workers of several kinds on one queue: what the bound over their sum promises, the scheduler keeps.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{
    ArrivalBound, ArrivalCurve, ConfigError, ConstraintSet, Dispatch, LatencyProfile, MAX_WORKERS, Outcome,
    Scheduler, SchedulerConfig, StreamSpec, Workers,
};

use crate::harness;
use crate::harness::load::{Bench, Setup, ns};
use crate::harness::mixed::{HORIZON, mixed};
use crate::harness::{Harness, violates_any};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_the_sum_of_the_workers_can_do_is_done_in_time(setup in mixed()) {
        let mut bench = Bench::new(&setup);
        bench.harness.timer_delay = setup.config.guard.as_nanos();
        bench.attack(&setup, HORIZON / 4);
        prop_assert!(bench.harness.now < HORIZON);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        prop_assert_eq!(bench.harness.causes(), []);
        for (id, spec) in bench.ids.iter().zip(&setup.streams) {
            prop_assert!(!violates_any(&bench.harness.outcomes(*id), spec.constraints()));
        }
    }

    /// So it is while a takeover is waited for, and then no batch is begun without a request that must be served, also where
    /// there is too little time for all of those.
    #[test]
    fn while_quiet_no_batch_is_begun_for_what_is_not_promised(setup in mixed(), part in prop_oneof![Just(None), (1u64..100).prop_map(Some)]) {
        let setup = part.map_or(setup.clone(), |part| hurried(setup, part));
        let mut bench = Bench::new(&setup);
        bench.harness.scheduler.set_quiet(true);
        bench.harness.longer = Some(Box::new(|scheduler, now, worker, bound| {
            let batch = scheduler.batch(worker);
            assert!(batch.iter().any(|request| request.mandatory), "at {now}: {batch:?}");
            bound
        }));
        bench.harness.timer_delay = setup.config.guard.as_nanos();
        bench.attack(&setup, HORIZON / 4);
        bench.ids.iter().for_each(|&id| bench.harness.account(id));
        if part.is_none() {
            prop_assert_eq!(bench.harness.mandatory_misses(), []);
            prop_assert_eq!(bench.harness.causes(), []);
        }
    }

    /// Beyond the promise nothing is promised, but every request is accounted for and no call hangs.
    #[test]
    fn with_too_little_time_all_is_still_accounted_for(setup in mixed(), part in 1u64..100) {
        let setup = hurried(setup, part);
        let mut bench = Bench::new(&setup);
        for round in 0..40 {
            bench.load(&setup, 10);
            let worker = round % setup.config.worker_count();
            if round % 3 == 0 { bench.harness.lose(worker) } else { bench.harness.ready(worker) }
        }
        bench.finish();
        bench.ids.iter().for_each(|&id| bench.harness.account(id));
    }
}

/// With only so many hundredths of the time, but enough for one request on any worker.
fn hurried(setup: Setup, part: u64) -> Setup {
    let single = setup.config.workers.iter().map(|k| k.profile.bound(1)).max().expect("workers");
    let guard = setup.config.guard;
    let deadline = ns(setup.config.deadline.as_nanos() * part / 100).max(single + guard);
    Setup { config: SchedulerConfig { deadline, ..setup.config }, ..setup }
}

#[test]
fn with_too_little_time_requests_are_missed() {
    let mut runner = TestRunner::deterministic();
    let (mut missed, count) = (0, 200);
    for _ in 0..count {
        let setup = hurried(mixed().new_tree(&mut runner).expect("a setup").current(), 50);
        let mut bench = Bench::new(&setup);
        bench.attack(&setup, HORIZON / 4);
        missed += usize::from(!bench.harness.mandatory_misses().is_empty());
    }
    println!("{missed} of {count}");
    assert!(missed * 4 > count, "{missed} of {count}: the promise is too far from the truth to be tested");
}

fn fast_and_slow(deadline: u64) -> SchedulerConfig {
    let kind =
        |time| Workers { count: 1, batch: 1, profile: LatencyProfile::new(&[ns(time)]).expect("valid") };
    let base = harness::config(&[1], 1, 1, deadline, Dispatch::Eager);
    // The slow one has the lower number.
    SchedulerConfig { workers: vec![kind(10), kind(2)], ..base }
}

fn strict() -> StreamSpec {
    let set = ConstraintSet::new(&[rt_core::Constraint::row_miss(0).expect("valid")]).expect("one");
    let window = ArrivalBound::window(9, ns(1)).expect("valid");
    StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"))
}

/// Eight at once, for a worker of 2 and one of 10, within 13. At 10 both are free and two of the eight wait, with
/// 3 left. Only the fast one can still answer one of them (the later one, as it happens, to spread the misses);
/// the slow one takes the ninth, that has just come.
#[test]
fn a_slow_worker_leaves_to_a_quick_one_what_only_that_can_answer() {
    let mut harness = Harness::new(fast_and_slow(13), |_, bound| bound);
    let id = harness.add(strict());
    for _ in 0..8 {
        harness.arrive(id);
    }
    // The fast worker goes first: the first request is answered at 2.
    harness.advance_to(9);
    assert_eq!(harness.resolutions.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [2, 4, 6, 8]);
    harness.advance(10, false);
    harness.arrive_unpolled(id);
    harness.drain();
    let missed: Vec<u64> = (harness.resolutions.iter())
        .filter_map(|(_, r)| (r.outcome != Outcome::Served).then_some(r.request.seq))
        .collect();
    let ninth = harness.resolutions.iter().find(|(_, r)| r.request.seq == 8).expect("resolved");
    assert_eq!((missed, ninth.0), (vec![6], 20));
}

#[test]
fn once_the_quick_worker_is_gone_the_slow_one_takes_what_it_can() {
    let mut harness = Harness::new(fast_and_slow(12), |_, bound| bound);
    let id = harness.add(strict());
    harness.lose(1);
    harness.arrive(id);
    harness.arrive(id);
    harness.drain();
    let outcomes = harness.outcomes(id);
    assert_eq!(outcomes, [true, false]);
}

#[test]
fn workers_of_a_kind_are_checked_kind_by_kind() {
    let base = fast_and_slow(13);
    let with = |workers: Vec<Workers>| SchedulerConfig { workers, ..base.clone() };
    let refused = |workers| Scheduler::new(with(workers)).map(drop).expect_err("refused");
    let [slow, fast] = [&base.workers[0], &base.workers[1]];
    let range = |field, value, max| ConfigError::Range { field, value, min: 1, max };
    assert_eq!(refused(vec![]), range("workers", 0, MAX_WORKERS as u64));
    assert_eq!(
        refused(vec![fast.clone(), Workers { count: 0, ..slow.clone() }]),
        range("workers", 0, MAX_WORKERS as u64)
    );
    assert_eq!(
        refused(vec![Workers { count: MAX_WORKERS, ..fast.clone() }, slow.clone()]),
        range("workers", MAX_WORKERS as u64 + 1, MAX_WORKERS as u64)
    );
    assert_eq!(refused(vec![fast.clone(), Workers { batch: 2, ..slow.clone() }]), range("batch", 2, 1));
    let short = SchedulerConfig { deadline: ns(9), ..base.clone() };
    assert!(matches!(Scheduler::new(short), Err(ConfigError::Deadline { .. })));
    assert_eq!((base.worker_count(), base.worker(1), base.worker(2)), (2, Some(fast), None));
}
