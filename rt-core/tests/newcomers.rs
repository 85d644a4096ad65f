//! Streams that come while batches take longer: what is promised to them holds from their first request on.

mod harness;

use harness::load::{Bench, Setup, ns, setup, shield_of, stretch};
use harness::{Dice, Harness, config};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, Shield, StreamSpec};

/// Streams of an admitted load come one by one, each at the first instant that is ready for it, if `patient`, and
/// with everything at once that it may send. Tells mandatory misses, and for how many streams it had to wait.
fn arrive_one_by_one(setup: &Setup, patient: bool) -> (usize, usize) {
    let (mut dice, mut waits) = (Dice(setup.seed ^ 99), 0);
    let first = Setup { streams: Vec::new(), ..setup.clone() };
    let mut bench = Bench::new(&first);
    bench.harness.scheduler.set_shield(Some(shield_of(setup, &[]))).expect("made for it");
    stretch(&mut bench.harness);
    let nothing = bench.harness.add(StreamSpec::best_effort());
    for count in 1..=setup.streams.len() {
        for _ in 0..dice.within(1, 6) {
            let to = bench.harness.now + dice.within(0, 30);
            bench.harness.advance(to, true);
            bench.harness.arrive(nothing);
        }
        let streams = &setup.streams[..count];
        let shield = shield_of(setup, streams);
        let ready = |harness: &mut Harness| {
            harness.scheduler.is_ready_for(Instant::from_nanos(harness.now), Some(&shield))
        };
        if patient && !ready(&mut bench.harness) {
            waits += 1;
            bench.harness.scheduler.set_shield(None).expect("nothing");
            bench.all_at_once(setup);
            while !ready(&mut bench.harness) {
                // The others go on meanwhile, and what is promised nothing.
                bench.harness.advance(bench.harness.now + 1, true);
                if dice.within(0, 9) == 0 {
                    bench.harness.arrive(nothing);
                }
                while bench.next.iter().any(|&next| next <= bench.harness.now) {
                    bench.step(setup);
                }
            }
        }
        bench.ids.push(bench.harness.add(streams[count - 1].clone()));
        bench.history.push(Vec::new());
        bench.next.push(bench.harness.now);
        bench.harness.scheduler.set_shield(Some(shield)).expect("made for it");
        bench.all_at_once(setup);
        for _ in 0..dice.within(1, 30) {
            bench.step(setup);
        }
    }
    bench.finish();
    (bench.harness.mandatory_misses().len(), waits)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_that_comes_when_it_may_is_promised_what_it_asks(setup in setup()) {
        prop_assert_eq!(arrive_one_by_one(&setup, true).0, 0);
    }
}

/// The test above says something only if those that do not wait are late.
#[test]
fn a_stream_that_does_not_wait_can_be_late() {
    let mut runner = TestRunner::deterministic();
    let (mut late, mut waits) = (0, 0);
    for _ in 0..1_000 {
        let setup = setup().new_tree(&mut runner).expect("a setup").current();
        late += usize::from(arrive_one_by_one(&setup, false).0 > 0);
        waits += arrive_one_by_one(&setup, true).1;
    }
    println!("{late} of 1000 are late without waiting, {waits} streams wait");
    assert!(late > 30 && waits > 100, "{late} {waits}");
}

/// By hand: one worker, 2 a request, within 40. With nothing promised a batch may take 40; a stream that comes at 1
/// and sends at once would be answered at 42, and is due at 41.
#[test]
fn a_long_batch_is_waited_for() {
    let mut harness = Harness::new(config(&[2], 1, 1, 40, Dispatch::Eager), |_, bound| bound);
    let workers = harness.scheduler.config().workers[0].clone();
    let strict = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let window = ArrivalBound::window(1, ns(4)).expect("valid");
    let spec = StreamSpec::promised(strict, ArrivalCurve::new(&[window]).expect("one"));
    let shield = Shield::new(&workers, ns(40), spec.demand()).expect("in range");
    let ready = |harness: &mut Harness| {
        let now = Instant::from_nanos(harness.now);
        harness.scheduler.is_ready_for(now, Some(&shield))
    };
    assert!(ready(&mut harness), "nothing has run yet");
    harness
        .scheduler
        .set_shield(Some(Shield::new(&workers, ns(40), []).expect("in range")))
        .expect("made for it");
    stretch(&mut harness);
    let nothing = harness.add(StreamSpec::best_effort());
    harness.arrive(nothing);
    harness.advance_to(1);
    assert!(!ready(&mut harness));
    // One that comes at 2 is due at 42, and can be answered by then.
    harness.advance_to(2);
    assert!(ready(&mut harness));
    let id = harness.add(spec);
    harness.arrive(id);
    harness.drain();
    assert_eq!(harness.mandatory_misses(), []);
}
