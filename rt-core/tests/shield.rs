//! Longer batches within the guarantee: the shield against its definition, and against an adversary.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Density, Dispatch, Instant, MissReason, Outcome,
    SchedulerConfig, Shield, ShieldError, ShieldRefusal, Span, StreamSpec, Workers,
};

use crate::harness;
use crate::harness::load::{Bench, Setup, guarded, ns, setup, shield_of};
use crate::harness::{Dice, Harness, system};

/// The definition: the longest `ℓ` for which every mandatory request, waiting or to come, is in time.
fn naive_longest(setup: &Setup, (others, due): (&[u64], &[u64]), horizon: u64) -> u64 {
    let Workers { batch, ref profile, .. } = setup.config.workers[0];
    let (time, latency) = (profile.bound(batch).as_nanos(), setup.config.deadline.as_nanos());
    let batch = batch as u64;
    let demand: Vec<_> = setup.streams.iter().filter_map(StreamSpec::demand).collect();
    let coming = |offset: u64| {
        let of = |(density, curve): &(Density, &ArrivalCurve)| density.ceil_of(curve.count(ns(offset + 1)));
        due.len() as u64 + demand.iter().map(of).sum::<u64>()
    };
    let coming: Vec<u64> = (0..horizon).map(coming).collect();
    let safe = |length: u64| {
        let starts_of = |g: u64| (0..=(horizon + latency) / time).map(move |i| g + i * time);
        let free = others.iter().map(|&f| f.max(time)).chain([length]);
        let mut starts: Vec<u64> = free.flat_map(starts_of).collect();
        starts.sort_unstable();
        let done = |requests: u64| starts[requests.div_ceil(batch) as usize - 1] + time;
        due.iter().zip(1..).all(|(&due, i)| done(i) <= due)
            && coming.iter().zip(0..).all(|(&n, offset)| n == 0 || done(n) <= offset + latency)
    };
    (time..=latency).take_while(|&length| length == time || safe(length)).last().expect("P at least")
}

/// Lets batches run longer now and then; `shielded`, or whenever they are in time themselves.
fn lengthen(bench: &mut Bench, seed: u64, shielded: bool) {
    let mut dice = Dice(seed);
    bench.harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
        let now = Instant::from_nanos(now);
        let own = scheduler.batch(worker).iter().map(|r| r.deadline.since(now).as_nanos()).min();
        let longest = if shielded { scheduler.longest(now, worker).as_nanos() } else { own.unwrap_or(bound) };
        let length = match dice.within(0, 5) {
            0 => bound,
            1 | 2 => dice.within(bound, longest.max(bound)),
            _ => longest,
        };
        if shielded {
            assert_eq!(scheduler.prolong(now, worker, ns(length)), Ok(()));
            let more = ns(longest + 1);
            let refused = ShieldRefusal::Length { length: more, limit: ns(longest) };
            assert_eq!(scheduler.prolong(now, worker, more), Err(refused));
        }
        length
    }));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_shield_allows_breaks_no_promise(setup in setup(), guard in 0u64..4) {
        let setup = guarded(setup, guard);
        let mut bench = Bench::new(&setup);
        bench.harness.timer_delay = guard;
        bench.harness.scheduler.set_shield(Some(shield_of(&setup, &setup.streams))).expect("made for it");
        lengthen(&mut bench, setup.seed ^ 77, true);
        bench.attack(&setup, 4_000);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert!(bench.harness.scheduler.shield().is_some());
    }
}

/// Every share of the load of the case before, without a shield: it must miss, or the test above says nothing.
#[test]
fn without_the_shield_promises_break() {
    let mut runner = TestRunner::deterministic();
    let (mut broken, mut longer, mut batches) = (0, 0, 0);
    let count = 200;
    for _ in 0..count {
        let setup = setup().new_tree(&mut runner).expect("a setup").current();
        let mut bench = Bench::new(&setup);
        lengthen(&mut bench, setup.seed ^ 77, false);
        bench.attack(&setup, 4_000);
        broken += usize::from(!bench.harness.mandatory_misses().is_empty());
        // And with it: how many batches could run longer than a full one?
        let mut bench = Bench::new(&setup);
        bench.harness.scheduler.set_shield(Some(shield_of(&setup, &setup.streams))).expect("made for it");
        lengthen(&mut bench, setup.seed ^ 77, true);
        bench.attack(&setup, 4_000);
        longer += bench.harness.longer_than(setup.config.workers[0].batch_time().as_nanos());
        batches += bench.harness.batches.len();
    }
    println!("{broken} of {count} broken without; with it, {longer} of {batches} batches run longer than P");
    assert!(broken * 3 > count, "{broken} of {count}");
    assert!(longer * 10 > batches, "{longer} of {batches}");
}

/// Instances that repeat soon, so that the definition can be looked at as far as it takes.
fn short() -> impl Strategy<Value = Setup> {
    setup().prop_filter("repeats soon", |setup| {
        let short = |spec: &StreamSpec| {
            let (density, curve) = spec.demand().expect("promised");
            let period = |b: &ArrivalBound| match b {
                ArrivalBound::Window { length, .. } => length.as_nanos(),
                ArrivalBound::Periodic { period, .. } => period.as_nanos(),
                ArrivalBound::Distances(list) => list.as_slice()[list.as_slice().len() - 1].as_nanos(),
            };
            12 % density.denominator() == 0 && curve.bounds().iter().all(|b| 240 % period(b) == 0)
        };
        let time = setup.config.workers[0].batch_time().as_nanos();
        !setup.streams.is_empty() && setup.streams.iter().all(short) && setup.config.deadline <= ns(10 * time)
    })
}

#[test]
fn the_shield_is_its_definition() {
    let mut runner = TestRunner::deterministic();
    let (mut some, count) = (0, 300);
    for _ in 0..count {
        let setup = short().new_tree(&mut runner).expect("a setup").current();
        let (shield, mut dice) = (shield_of(&setup, &setup.streams), Dice(setup.seed));
        let latency = setup.config.deadline.as_nanos();
        let time = setup.config.workers[0].batch_time().as_nanos();
        let others: Vec<u64> =
            (1..setup.config.worker_count()).map(|_| dice.within(0, latency).saturating_sub(time)).collect();
        let waiting = dice.within(0, 12).saturating_sub(6);
        let mut due: Vec<u64> = (0..waiting).map(|_| dice.within(latency / 2, latency)).collect();
        due.sort_unstable();
        let now = Instant::from_nanos(1_000);
        let spans: Vec<Span> = others.iter().map(|&t| ns(t)).collect();
        let deadlines = due.iter().map(|&t| now + ns(t));
        let longest = shield.longest(now, spans.iter().copied(), deadlines, Span::ZERO).as_nanos();
        let expected = naive_longest(&setup, (&others, &due), 3_000);
        assert_eq!(longest, expected, "{setup:?} {others:?} {due:?}");
        some += usize::from(longest > time && longest < latency);
    }
    assert!(some * 8 > count, "{some} of {count} are neither nothing nor everything");
}

#[test]
fn a_shield_is_only_used_where_it_was_made_for() {
    let mut runner = TestRunner::deterministic();
    let fits = |s: &Setup| s.streams.len() > 1 && s.streams[0] != s.streams[1];
    let setup = setup().prop_filter("two", fits).new_tree(&mut runner).expect("a setup").current();
    let mut bench = Bench::new(&setup);
    let scheduler = &mut bench.harness.scheduler;
    let shield = shield_of(&setup, &setup.streams);
    assert_eq!(scheduler.prolong(Instant::ZERO, 0, ns(1)), Err(ShieldRefusal::NoShield));
    assert_eq!(scheduler.set_shield(Some(shield.clone())).map(drop), Ok(()));
    assert_eq!(scheduler.prolong(Instant::ZERO, 0, ns(1)), Err(ShieldRefusal::NotStarted { worker: 0 }));
    assert_eq!(scheduler.longest(Instant::ZERO, 99), ns(0));
    // What is promised nothing changes nothing; another client of a stream is no other stream.
    scheduler.add_stream(Instant::ZERO, StreamSpec::best_effort()).expect("room");
    scheduler.restart_stream(bench.ids[0]).expect("known");
    assert!(scheduler.shield().is_some());
    // A second one of a kind that is counted once is one too many.
    scheduler.add_stream(Instant::ZERO, setup.streams[1].clone()).expect("room");
    assert!(scheduler.shield().is_none());
    assert_eq!(
        scheduler.set_shield(Some(shield)).map(drop).map_err(|e| matches!(e, ShieldError::Stream { .. })),
        Err(true)
    );
    let kind = setup.config.workers[0].clone();
    let other = Workers { count: kind.count + 1, ..kind.clone() };
    let load = || setup.streams.iter().filter_map(StreamSpec::demand);
    let foreign = Shield::new(&other, setup.config.deadline, load()).expect("more workers");
    assert_eq!(scheduler.set_shield(Some(foreign)).map(drop), Err(ShieldError::Foreign));
    let later = Shield::new(&kind, setup.config.deadline + ns(1), load()).expect("more time");
    assert!(matches!(scheduler.set_shield(Some(later)), Err(ShieldError::Deadline { .. })));
    let config = SchedulerConfig { queue: 1, ..setup.config.clone() };
    let mut small = rt_core::Scheduler::new(config).expect("a configuration");
    let error = small.set_shield(Some(shield_of(&setup, &setup.streams)));
    assert!(matches!(error, Err(ShieldError::Queue { limit: 1, .. })), "{error:?}");
}

/// One request every 2, answered in 2, within 20: at capacity. A batch of 18 is in time for all, but eight wait behind
/// it, where admission alone asks for a queue of two.
#[test]
fn behind_a_long_batch_more_wait_than_admission_asks_for() {
    let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let window = ArrivalBound::window(1, ns(2)).expect("valid");
    let spec = StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"));
    let config = harness::config(&[2], 1, 1, 20, Dispatch::Eager);
    let asked = system(&config).admit([&spec]).expect("at capacity").waiting;
    let shield = Shield::new(&config.workers[0], ns(20), spec.demand()).expect("at capacity");
    let missed = |queue: usize| {
        let config = SchedulerConfig { queue, ..config.clone() };
        let mut harness = Harness::new(config, |_, bound| bound);
        let id = harness.add(spec.clone());
        let set = harness.scheduler.set_shield(Some(shield.clone())).map(drop);
        // Whatever the shield says, the first batch takes 18.
        harness.longer = Some(Box::new(move |_, now, _, bound| if now == 0 { 18 } else { bound }));
        for i in 0..40 {
            harness.advance_to(2 * i);
            harness.arrive(id);
        }
        harness.drain();
        (set, harness.mandatory_misses().first().map(|r| r.outcome))
    };
    assert_eq!(asked, 2);
    let full = Some(Outcome::Missed(MissReason::QueueFull));
    assert_eq!(missed(1), (Err(ShieldError::Queue { waiting: 10, limit: 1 }), full));
    assert_eq!((missed(7).1, missed(8).1), (full, None));
    assert_eq!(missed(10), (Ok(()), None));
}

/// In safe mode, or without all workers, nothing may take longer.
#[test]
fn safe_mode_and_a_lost_worker_put_the_shield_down() {
    let base = harness::config(&[2], 1, 2, 40, Dispatch::Eager);
    let shield = Shield::new(&base.workers[0], ns(40), []).expect("in range");
    let mut bench = Harness::new(base, |_, bound| bound);
    bench.scheduler.set_shield(Some(shield)).expect("made for it");
    let id = bench.add(StreamSpec::best_effort());
    bench.arrive(id);
    let now = Instant::ZERO;
    assert_eq!(bench.scheduler.longest(now, 0), ns(40));
    bench.lose(1);
    assert_eq!(bench.scheduler.prolong(now, 0, ns(9)), Err(ShieldRefusal::Unsafe));
    assert_eq!(bench.scheduler.longest(now, 0), ns(2));
    bench.ready(1);
    assert_eq!(bench.scheduler.prolong(now, 0, ns(9)), Err(ShieldRefusal::Unsafe), "safe mode is on");
    bench.scheduler.clear_safe_mode(now);
    assert_eq!(bench.scheduler.prolong(now, 0, ns(9)), Ok(()));
}
