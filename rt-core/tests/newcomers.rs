//! Streams that come while batches take longer: what is promised to them holds from their first request on.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, MissReason, Outcome, Shield,
    StreamSpec,
};

use crate::harness;
use crate::harness::load::{Bench, Setup, ns, setup, shield_of, stretch};
use crate::harness::{Dice, Harness, config};

/// Streams of an admitted load come one by one, each at the first instant that is ready for it, and with everything at
/// once that it may send. Tells mandatory misses, and for how many streams it had to wait.
fn arrive_one_by_one(setup: &Setup) -> (usize, usize) {
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
        let add =
            |harness: &mut Harness| harness.try_add(&streams[count - 1], Some(shield_of(setup, streams)));
        let mut added = add(&mut bench.harness);
        if added.is_none() {
            waits += 1;
            bench.all_at_once(setup);
        }
        while added.is_none() {
            // The others go on meanwhile, and what is promised nothing.
            bench.harness.advance(bench.harness.now + 1, true);
            if dice.within(0, 9) == 0 {
                bench.harness.arrive(nothing);
            }
            while bench.next.iter().any(|&next| next <= bench.harness.now) {
                bench.step(setup);
            }
            added = add(&mut bench.harness);
        }
        bench.ids.extend(added);
        bench.history.push(Vec::new());
        bench.next.push(bench.harness.now);
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
        prop_assert_eq!(arrive_one_by_one(&setup).0, 0);
    }
}

/// The test above says something only if streams have to wait.
#[test]
fn streams_do_have_to_wait() {
    let mut runner = TestRunner::deterministic();
    let waits: usize = (0..1_000)
        .map(|_| arrive_one_by_one(&setup().new_tree(&mut runner).expect("a setup").current()).1)
        .sum();
    println!("{waits} streams wait");
    assert!(waits > 100, "{waits}");
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
    let bare = Shield::new(&workers, ns(40), []).expect("in range");
    harness.scheduler.set_shield(Some(bare)).expect("made for it");
    stretch(&mut harness);
    let nothing = harness.add(StreamSpec::best_effort());
    harness.arrive(nothing);
    harness.advance_to(1);
    assert_eq!(harness.try_add(&spec, Some(shield.clone())), None);
    // One that comes at 2 is due at 42, and can be answered by then.
    harness.advance_to(2);
    let id = harness.try_add(&spec, Some(shield)).expect("ready");
    harness.arrive(id);
    harness.drain();
    assert_eq!(harness.mandatory_misses(), []);
}

/// By hand: one worker, 1 ms a request, within 10. Behind a batch of 5 a stream bursts, leaves at 8 and would burst again
/// at once. Others have waited since, so it counts twice, and the shield that allowed the long batch has counted it once.
#[test]
fn a_stream_that_leaves_amid_a_busy_period_does_not_give_its_place_away() {
    let ms = |t: f64| (t * 1e6) as u64;
    let mut harness = Harness::new(config(&[ms(1.0)], 1, 1, ms(10.0), Dispatch::Eager), |_, bound| bound);
    let workers = harness.scheduler.config().workers[0].clone();
    let strict = |count, window| {
        let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
        let bound = ArrivalBound::window(count, ns(ms(window))).expect("valid");
        StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
    };
    let (x, y) = (strict(4, 1_000.0), strict(1, 1.1));
    let system = harness::system(harness.scheduler.config());
    assert!(system.admit([&y, &x]).is_ok());
    let (steady, mut bursts) = (harness.add(y.clone()), harness.add(x.clone()));
    let shield = Shield::new(&workers, ns(ms(10.0)), [y.demand(), x.demand()].into_iter().flatten());
    harness.scheduler.set_shield(Some(shield.expect("an admitted load"))).expect("made for it");
    let mut first = true;
    harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
        if !std::mem::take(&mut first) {
            return bound;
        }
        let now = Instant::from_nanos(now);
        let length = scheduler.longest(now, worker);
        scheduler.prolong(now, worker, length).expect("allowed");
        length.as_nanos()
    }));
    let (mut left, mut back) = (false, None);
    for now in (0..ms(220.0)).step_by(100_000) {
        harness.advance_to(now);
        if now % ms(1.1) == 0 {
            harness.arrive(steady);
        }
        if now == 0 {
            (0..4).for_each(|_| _ = harness.arrive(bursts));
        }
        if now >= ms(8.0) && back.is_none() {
            if !std::mem::replace(&mut left, true) {
                harness.scheduler.remove_stream(bursts);
                harness.settle();
            }
            back = harness.try_add(&x, None);
            if let Some(id) = back {
                bursts = id;
                (0..4).for_each(|_| _ = harness.arrive(bursts));
            }
        }
    }
    harness.drain();
    let cancelled = |r: &rt_core::Resolution| r.outcome == Outcome::Missed(MissReason::Cancelled);
    assert!(harness.mandatory_misses().iter().all(cancelled), "{:?}", harness.mandatory_misses());
    assert_eq!(harness.causes(), []);
    assert!(back.is_some(), "it came back when it could");
}
