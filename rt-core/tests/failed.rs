//! An engine that fails on a batch, as for an input that its model cannot take: what it costs whom, and for how long what nothing is
//! promised for keeps out of the batches of what is.

use proptest::prelude::*;
use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, MissReason, Outcome, Resolution,
    Span, StreamId, StreamSpec,
};

use crate::harness::load::{Bench, setup, tight_setup};
use crate::harness::{Harness, config, earliest, violates_any};

/// How long safe mode lasts at least, which is how long they keep apart the first time.
const CLEAN: u64 = 1_000;

/// All must be served; one in 5.
fn strict() -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let bound = ArrivalBound::window(1, Span::from_nanos(5)).expect("valid");
    StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
}

/// Batches of up to 2 in 4 on one worker, with a promised stream, one whose requests the engine takes, and one whose it fails on.
fn three() -> (Harness, [StreamId; 3]) {
    let mut harness = Harness::new(config(&[4, 4], 2, 1, 40, Dispatch::Eager), |_, bound| bound);
    let ids = [strict(), StreamSpec::best_effort(), StreamSpec::best_effort()].map(|spec| harness.add(spec));
    harness.spoils = Some(ids[2]);
    (harness, ids)
}

/// With the worker busy until 4 later, one request of each of these comes; how many batches they take.
fn batches_of(harness: &mut Harness, first: StreamId, others: [StreamId; 2]) -> usize {
    harness.arrive(first);
    let before = harness.batches.len();
    for id in others {
        harness.arrive(id);
    }
    harness.drain();
    harness.batches.len() - before
}

#[test]
fn a_batch_in_which_nothing_had_to_be_served_breaks_no_promise() {
    let (mut harness, [_, other, bad]) = three();
    assert_eq!(batches_of(&mut harness, other, [other, bad]), 1);
    assert_eq!(harness.outcomes(other), [true, false], "with it all that runs beside it");
    assert_eq!(harness.causes(), []);
    // What it takes of the worker's time counts, though.
    harness.set_service(|_, bound| bound + 1);
    harness.arrive(bad);
    harness.drain();
    assert_eq!(harness.causes().iter().map(|(_, cause)| *cause).collect::<Vec<_>>(), [Cause::ServiceOverrun]);
}

#[test]
fn what_nothing_is_promised_for_keeps_apart_for_a_while_after_a_failure() {
    let (mut harness, [promised, other, bad]) = three();
    assert_eq!(batches_of(&mut harness, other, [promised, other]), 1, "they fill batches up");
    harness.advance_to(100);
    harness.arrive(bad);
    harness.drain();
    assert_eq!(batches_of(&mut harness, other, [promised, other]), 2);
    harness.advance_to(104 + CLEAN - 9);
    assert_eq!(batches_of(&mut harness, other, [promised, bad]), 2);
    assert_eq!(harness.causes(), [], "it was kept apart, and fails again");
    harness.advance_to(harness.now + CLEAN - 9);
    assert_eq!(batches_of(&mut harness, other, [promised, other]), 2);
    harness.advance_to(harness.now + 9);
    assert_eq!(batches_of(&mut harness, other, [promised, other]), 1);
    assert_eq!(harness.mandatory_misses(), []);
    // A takeover changes nothing of it.
    harness.arrive(bad);
    harness.drain();
    harness.hand_over(config(&[4, 4], 2, 1, 40, Dispatch::Eager)).expect("nothing is in the way");
    assert_eq!(batches_of(&mut harness, other, [promised, other]), 2);
}

#[test]
fn each_promise_that_is_harmed_doubles_the_while() {
    let (mut harness, [promised, other, bad]) = three();
    let mut lasted = CLEAN / 2;
    for harm in 1..=13 {
        assert_eq!(batches_of(&mut harness, other, [promised, bad]), 1);
        assert_eq!(harness.mandatory_misses().len(), harm);
        // At most for an hour.
        lasted = (2 * lasted).clamp(CLEAN, 3_600_000_000_000);
        harness.advance_to(harness.now + lasted - 9);
        assert_eq!(batches_of(&mut harness, other, [promised, other]), 2, "after {harm}");
        harness.advance_to(harness.now + 9);
        assert_eq!(batches_of(&mut harness, other, [promised, other]), 1, "after {harm}");
    }
    assert_eq!(harness.causes()[0].1, Cause::WorkerLost);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One client whose inputs the engine fails on, beside promises: what it makes miss of them is announced when it happens, it does so
    /// ever more rarely, and nothing else of them is missed.
    #[test]
    fn who_sends_what_the_engine_fails_on_harms_promises_ever_more_rarely(
        setup in prop_oneof![setup(), tight_setup()], often in 1u64..6, clean in 1u64..200,
    ) {
        prop_assume!(!setup.streams.is_empty());
        let mut setup = setup;
        setup.config.safe_mode.clean = Span::from_nanos(clean);
        setup.config.safe_mode.hold = Span::from_nanos(clean);
        let mut bench = Bench::new(&setup);
        let bad = bench.harness.add(StreamSpec::best_effort());
        bench.harness.spoils = Some(bad);
        let mut all = Vec::new();
        for (s, spec) in setup.streams.iter().enumerate() {
            let (bounds, mut sent) = (spec.arrivals().expect("declared").bounds(), Vec::new());
            for _ in 0..100 {
                sent.push(earliest(&sent, bounds, sent.last().copied().unwrap_or(0) + bench.dice.within(0, 5)));
            }
            all.extend(sent.into_iter().map(|at| (at, s)));
        }
        all.sort_unstable();
        for (at, s) in all {
            bench.harness.advance(at, true);
            bench.harness.arrive(bench.ids[s]);
            if bench.dice.within(0, often) == 0 {
                bench.harness.arrive(bad);
            }
        }
        bench.finish();
        let harness = &bench.harness;
        let mut harmed: Vec<u64> = Vec::new();
        let missed = |r: &&(u64, Resolution)| r.1.request.mandatory && r.1.outcome != Outcome::Served;
        for (at, missed) in harness.resolutions.iter().filter(missed) {
            prop_assert_eq!(missed.outcome, Outcome::Missed(MissReason::EngineFailed));
            prop_assert!(harness.resolutions.iter().any(|(ended, r)| ended == at && r.request.stream == bad));
            if harmed.last() != Some(at) {
                harmed.push(*at);
            }
        }
        // Of as many batches as there are workers, and one, the last to end was not begun before the first did.
        let workers = harness.scheduler.config().worker_count();
        for (harm, pair) in harmed.windows(workers + 1).enumerate() {
            prop_assert!(pair[workers] >= pair[0] + (clean << harm.min(20)), "{:?}", harmed);
        }
        for (s, id) in bench.ids.iter().enumerate() {
            harness.account(*id);
            let kept = !violates_any(&harness.outcomes(*id), setup.streams[s].constraints());
            prop_assert!(kept || !harmed.is_empty());
        }
        let causes = harness.causes();
        let of_it = |cause: Cause| matches!(cause, Cause::WorkerLost | Cause::ConstraintViolated);
        prop_assert!(causes.iter().all(|(_, cause)| of_it(*cause)), "{:?}", causes);
        prop_assert!(harmed.is_empty() || causes.first().is_some_and(|(at, cause)| (*at, *cause) == (harmed[0], Cause::WorkerLost)));
    }
}
