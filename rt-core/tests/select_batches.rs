//! What becomes of single batches where variants are selected: when the base answers, what is left out and what is given up.

use rt_core::{
    ArrivalBound, ArrivalCurve, BatchView, Cause, Constraint, ConstraintSet, Dispatch, Instant,
    LatencyProfile, LoadMonitor, Manner, Outcome, Scheduler, SelectError, SelectTable, SelectTables,
    Selector, Shield, StreamSpec, Variant, Workers,
};

use crate::harness::load::ns;
use crate::harness::select::pair;
use crate::harness::{Harness, config};

/// One worker, at most three at once, in 25: 10 with the base, 20 with the other variant. The first of four that wait has 10 left.
#[test]
fn what_a_variant_is_too_late_for_is_left_out_of_a_batch_that_is_formed_for_it() {
    let formed = |manner| {
        let one = config(&[10], 1, 1, 25, Dispatch::Eager);
        let profile = LatencyProfile::new(&[10; 3].map(ns)).expect("valid");
        let workers = vec![Workers { count: 1, batch: 3, profile }];
        let base = rt_core::SchedulerConfig { workers, ..one };
        let better = LatencyProfile::new(&[20; 3].map(ns)).expect("valid");
        let profiles = [base.workers[0].profile.clone(), better];
        let variants = profiles.into_iter().zip([0.5, 0.7]);
        let variants: Vec<_> = variants.map(|(profile, accuracy)| Variant { profile, accuracy }).collect();
        let mut scheduler = Scheduler::new(base).expect("a configuration");
        let shield = Shield::new(&scheduler.config().workers[0], ns(25), []).expect("in range");
        scheduler.set_shield(Some(shield)).expect("made for it");
        let table = SelectTable::constant(1).in_manner(manner);
        let selector = Selector::new(variants, [table], LoadMonitor::default()).expect("valid");
        scheduler.set_selector(Some(selector)).expect("made for it");
        let at = |t| Instant::ZERO + ns(t);
        let id = scheduler.add_stream(at(0), StreamSpec::best_effort()).expect("room");
        for t in [0, 5, 15, 16, 17] {
            assert_eq!(scheduler.handle_arrival(at(t), rt_core::Arrival::new(id, t, at(t))), None);
            let started = matches!(scheduler.poll(at(t)), rt_core::Action::Start { worker: 0 });
            assert_eq!((started, scheduler.variant(0)), (t == 0, 1));
        }
        scheduler.handle_completion(at(20), 0, rt_core::Ran::Done(ns(20)));
        while let rt_core::Action::Resolve(_) = scheduler.poll(at(20)) {}
        let taken: Vec<u64> = scheduler.batch(0).iter().map(|request| request.token).collect();
        (taken, scheduler.variant(0))
    };
    assert_eq!(formed(Manner::Plain), (vec![5, 15, 16], 0), "the base alone is soon enough");
    assert_eq!(formed(Manner::Forming), (vec![15, 16, 17], 1));
}

/// One worker, at most three at once, in 60: 10 with the base, 40 with the other variant, which takes one. Behind a batch three wait, of
/// a stream that is promised nothing, or of one that must not miss.
#[test]
fn fewer_than_all_that_wait_are_taken_where_nothing_is_promised_and_no_worker_waits_for_more() {
    let formed = |sizes: &[u8], promised: bool, dispatch| {
        let profile = LatencyProfile::new(&[10; 3].map(ns)).expect("valid");
        let workers = vec![Workers { count: 1, batch: 3, profile: profile.clone() }];
        let base = rt_core::SchedulerConfig { workers, ..config(&[10], 1, 1, 60, dispatch) };
        let better = LatencyProfile::new(&[ns(40)]).expect("valid");
        let variants = vec![Variant { profile, accuracy: 0.5 }, Variant { profile: better, accuracy: 0.7 }];
        let never = ConstraintSet::new(&[Constraint::any_miss(0, 1).expect("valid")]).expect("one");
        let curve = ArrivalCurve::new(&[ArrivalBound::window(3, ns(400)).expect("valid")]).expect("one");
        let spec = if promised { StreamSpec::promised(never, curve) } else { StreamSpec::best_effort() };
        let mut scheduler = Scheduler::new(base).expect("a configuration");
        let shield = Shield::new(&scheduler.config().workers[0], ns(60), spec.demand()).expect("in range");
        scheduler.set_shield(Some(shield)).expect("made for it");
        let table = SelectTable::constant(1).in_batches(sizes).expect("valid");
        let selector = Selector::new(variants, [table], LoadMonitor::default()).expect("valid");
        scheduler.set_selector(Some(selector)).expect("made for it");
        let at = |t| Instant::ZERO + ns(t);
        let id = scheduler.add_stream(at(0), spec).expect("room");
        for token in 0..3 {
            assert_eq!(scheduler.handle_arrival(at(0), rt_core::Arrival::new(id, token, at(0))), None);
        }
        while let rt_core::Action::Resolve(_) = scheduler.poll(at(0)) {}
        (scheduler.batch(0).len(), scheduler.variant(0))
    };
    assert_eq!(formed(&[], false, Dispatch::Eager), (3, 0));
    assert_eq!(formed(&[1], false, Dispatch::Eager), (1, 1));
    assert_eq!(formed(&[1, 1, 2], false, Dispatch::Eager), (2, 0), "the other variant takes one");
    assert_eq!(formed(&[1], true, Dispatch::Eager), (3, 0), "what is promised is not left waiting");
    assert_eq!(formed(&[1], false, Dispatch::FullOrLatest), (3, 0));
}

/// One worker, 10 and 14 with the base, 8 and 11 with the better variant. Of two that wait the first has 12 left: the variant could answer
/// both, but the base, should that run them, would be late for one.
#[test]
fn a_batch_that_is_formed_for_a_quicker_variant_is_in_time_for_the_base() {
    let profile = |times: [u64; 2]| LatencyProfile::new(&times.map(ns)).expect("valid");
    let workers = vec![Workers { count: 1, batch: 2, profile: profile([10, 14]) }];
    let base = rt_core::SchedulerConfig { workers, ..config(&[10], 1, 1, 21, Dispatch::Eager) };
    let variants = vec![
        Variant { profile: profile([10, 14]), accuracy: 0.5 },
        Variant { profile: profile([8, 11]), accuracy: 0.7 },
    ];
    let mut bench = Harness::new(base, |_, bound| bound);
    let shield = Shield::new(&bench.scheduler.config().workers[0], ns(21), []).expect("in range");
    bench.scheduler.set_shield(Some(shield)).expect("made for it");
    let table = SelectTable::constant(1).in_manner(Manner::Forming);
    let selector = Selector::new(variants, [table], LoadMonitor::default()).expect("valid");
    bench.scheduler.set_selector(Some(selector)).expect("made for it");
    bench.longer = Some(Box::new(|scheduler, _, worker, _| scheduler.granted(worker).as_nanos()));
    let id = bench.add(StreamSpec::best_effort());
    // The worker is busy until 10, 12 before the second one is due.
    for now in [0, 1, 9] {
        bench.advance_to(now);
        bench.arrive(id);
    }
    bench.drain();
    assert_eq!(bench.batches, [(0, 1), (10, 1), (20, 1)]);
    assert!(bench.resolutions.iter().all(|(_, r)| r.outcome == Outcome::Served));
}

#[test]
fn without_a_shield_and_in_safe_mode_the_base_answers() {
    let (mut bench, variants) = pair();
    let shield = Shield::new(&bench.scheduler.config().workers[0], ns(40), []).expect("in range");
    bench.scheduler.set_selector(Some(Selector::greedy(variants).expect("valid"))).expect("made for it");
    let id = bench.add(StreamSpec::best_effort());
    let variant = |bench: &mut Harness| {
        bench.arrive(id);
        let chosen = (bench.scheduler.variant(0), bench.scheduler.granted(0));
        bench.drain();
        chosen
    };
    assert_eq!(variant(&mut bench), (0, ns(2)));
    bench.scheduler.set_shield(Some(shield)).expect("made for it");
    bench.longer = Some(Box::new(|scheduler, _, worker, _| scheduler.granted(worker).as_nanos()));
    assert_eq!(variant(&mut bench), (1, ns(9)));
    let (now, evidence) = (Instant::from_nanos(bench.now), rt_core::Evidence::default());
    bench.scheduler.raise_safe_mode(now, Cause::ProfileStale, evidence, now);
    assert_eq!(variant(&mut bench), (0, ns(2)));
    bench.scheduler.clear_safe_mode(now);
    assert_eq!(variant(&mut bench), (1, ns(9)));
    bench.scheduler.set_selector(None).expect("nothing");
    assert_eq!(variant(&mut bench).1, ns(2));
    assert_eq!(bench.scheduler.granted(0), ns(0), "nothing runs");
}

/// A sparing selector leaves what waits, promised or not, the time of a batch; a greedy one does not.
#[test]
fn what_waits_is_not_given_up_for_accuracy() {
    for (sparing, missed) in [(false, 3), (true, 0)] {
        // Four at once, due within 40: after one that takes 39, there is no time for another.
        let base = config(&[2], 1, 1, 40, Dispatch::Eager);
        let slow = LatencyProfile::new(&[ns(39)]).expect("valid");
        let variants = vec![
            Variant { profile: base.workers[0].profile.clone(), accuracy: 0.5 },
            Variant { profile: slow, accuracy: 0.9 },
        ];
        let mut bench = Harness::new(base, |_, bound| bound);
        let shield = Shield::new(&bench.scheduler.config().workers[0], ns(40), []).expect("in range");
        bench.scheduler.set_shield(Some(shield)).expect("made for it");
        let greedy = Selector::greedy(variants).expect("valid");
        let selector = if sparing { greedy.sparing(f64::INFINITY) } else { greedy };
        bench.scheduler.set_selector(Some(selector)).expect("made for it");
        bench.longer = Some(Box::new(|scheduler, _, worker, _| scheduler.granted(worker).as_nanos()));
        let id = bench.add(StreamSpec::best_effort());
        for _ in 0..4 {
            bench.arrive_unpolled(id);
        }
        bench.settle();
        bench.drain();
        let served = bench.outcomes(id);
        assert_eq!(served.iter().filter(|hit| !**hit).count(), missed, "{sparing}: {served:?}");
    }
}

/// Where more comes than the base could well answer, it is left to itself.
#[test]
fn near_its_capacity_the_base_is_left_to_itself() {
    let (_, variants) = pair();
    let mut selector = Selector::greedy(variants).expect("valid").sparing(100.0);
    let at = |i: u64| Instant::ZERO + rt_core::Span::from_micros(i * 11_400);
    // 88 a second, and then some more.
    (0..100).for_each(|i| selector.observe(at(i)));
    let batch = BatchView::alike(at(99), 1, 0, ns(40));
    assert_eq!(selector.wish(&batch), 1);
    (0..5).for_each(|_| selector.observe(at(99)));
    assert_eq!(selector.wish(&batch), 0);
}

/// The time granted is what the service monitor expects, no more and no less.
#[test]
fn a_variant_that_takes_longer_than_its_bound_is_seen() {
    for (time, causes) in [(9, vec![]), (10, vec![Cause::ServiceOverrun])] {
        let (mut bench, variants) = pair();
        let shield = Shield::new(&bench.scheduler.config().workers[0], ns(40), []).expect("in range");
        bench.scheduler.set_shield(Some(shield)).expect("made for it");
        bench.scheduler.set_selector(Some(Selector::greedy(variants).expect("valid"))).expect("made for it");
        bench.longer = Some(Box::new(move |_, _, _, _| time));
        let id = bench.add(StreamSpec::best_effort());
        bench.arrive(id);
        bench.drain();
        assert_eq!(bench.causes().into_iter().map(|(_, cause)| cause).collect::<Vec<_>>(), causes);
        assert!(bench.resolutions.iter().all(|(_, r)| r.outcome == Outcome::Served));
    }
}

/// Tables that are exchanged are read from the next batch on, and what nobody selects by is refused.
#[test]
fn tables_are_taken_over_between_two_batches() {
    let (mut bench, variants) = pair();
    let table = |wish| SelectTable::new(f64::INFINITY, ns(1), 1, [wish]).expect("valid");
    let mut fresh = SelectTables::new([table(1)], 2).expect("valid");
    assert_eq!(bench.scheduler.swap_tables(&mut fresh), Err(SelectError::Nobody));
    let shield = Shield::new(&bench.scheduler.config().workers[0], ns(40), []).expect("in range");
    bench.scheduler.set_shield(Some(shield)).expect("made for it");
    let selector = Selector::new(variants, [], LoadMonitor::default()).expect("valid");
    bench.scheduler.set_selector(Some(selector)).expect("made for it");
    bench.longer = Some(Box::new(|scheduler, _, worker, _| scheduler.granted(worker).as_nanos()));
    let id = bench.add(StreamSpec::best_effort());
    let mut seen = Vec::new();
    for _ in 0..4 {
        bench.arrive(id);
        seen.push(bench.scheduler.variant(0));
        // While the batch runs.
        bench.scheduler.swap_tables(&mut fresh).expect("for two variants");
        assert_eq!(bench.scheduler.variant(0), *seen.last().expect("one"));
        bench.drain();
    }
    assert_eq!(seen, [0, 1, 0, 1]);
}

#[test]
fn a_selector_for_other_workers_is_refused() {
    let (mut bench, mut variants) = pair();
    variants.remove(0);
    let other = Selector::greedy(variants).expect("valid");
    assert_eq!(bench.scheduler.set_selector(Some(other)), Err(SelectError::Base));
    let (_, variants) = pair();
    let mut mixed = config(&[2], 1, 1, 40, Dispatch::Eager);
    let kind = mixed.workers[0].clone();
    mixed.workers.push(kind);
    let mut mixed = Scheduler::new(mixed).expect("a configuration");
    let selector = Selector::greedy(variants).expect("valid");
    assert_eq!(mixed.set_selector(Some(selector)), Err(SelectError::Kinds { kinds: 2 }));
}
