//! Requests that say when they were sent: promises count from there, and whoever reads late is blamed for it.

use proptest::prelude::*;
use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, MissReason, Outcome,
    SafeModeConfig, SchedulerConfig, StreamSpec,
};

use crate::harness::load::{
    Bench, QUICK, Setup, guarded, ladder, ns, open_or_closed, setup, shield_of, stretch, tight_setup, window,
};
use crate::harness::mixed::mixed;
use crate::harness::{Harness, config, earliest, violates_any};

/// A request: when it is read, of which stream, when it was sent.
type Letter = (u64, usize, u64);

/// So many requests of each stream, sent as its curve allows, and read up to `most(stream)` later, in the order in which the
/// stream sent them.
fn letters(setup: &Setup, bench: &mut Bench, count: usize, most: impl Fn(usize) -> u64) -> Vec<Letter> {
    let mut letters = Vec::new();
    for (s, spec) in setup.streams.iter().enumerate() {
        let bounds = spec.arrivals().expect("declared").bounds();
        let (mut sent, mut read) = (Vec::new(), 0);
        for _ in 0..count {
            let pause = if setup.greedy { 0 } else { bench.dice.within(0, 40).saturating_sub(25) };
            let at = earliest(&sent, bounds, sent.last().copied().unwrap_or(0) + pause);
            sent.push(at);
            // Often the most: that is what brings requests together.
            let late = if bench.dice.within(0, 1) == 0 { most(s) } else { bench.dice.within(0, most(s)) };
            read = read.max(at + late);
            letters.push((read, s, at));
        }
    }
    letters.sort_by_key(|&(read, ..)| read);
    letters
}

fn deliver(bench: &mut Bench, letters: &[Letter]) {
    for &(read, s, sent) in letters {
        let first = bench.dice.within(0, 1) == 0;
        bench.harness.advance(read, first);
        bench.harness.arrive_sent(bench.ids[s], sent);
    }
    bench.finish();
}

/// With background, some with nothing to spare, some with workers of several kinds.
fn setup_or_tight() -> impl Strategy<Value = Setup> {
    prop_oneof![setup(), tight_setup(), mixed()]
}

fn kept(bench: &Bench, setup: &Setup, s: usize) -> bool {
    !violates_any(&bench.harness.outcomes(bench.ids[s]), setup.streams[s].constraints())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_within_the_guard_is_answered_in_time_counted_from_its_sending(
        setup in setup_or_tight(), guard in 0u64..40,
    ) {
        let setup = guarded(setup, guard);
        let mut bench = Bench::new(&setup);
        let letters = letters(&setup, &mut bench, 120, |_| guard);
        deliver(&mut bench, &letters);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        prop_assert_eq!(bench.harness.causes(), []);
        for (s, id) in bench.ids.iter().enumerate() {
            prop_assert!(kept(&bench, &setup, s));
            bench.harness.account(*id);
        }
    }

    #[test]
    fn long_batches_leave_room_for_what_is_read_late(setup in setup(), guard in 0u64..40) {
        let setup = guarded(setup, guard);
        let mut bench = Bench::new(&setup);
        bench.harness.scheduler.set_shield(Some(shield_of(&setup, &setup.streams))).expect("it counts all");
        stretch(&mut bench.harness);
        let letters = letters(&setup, &mut bench, 120, |_| guard);
        deliver(&mut bench, &letters);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        prop_assert_eq!(bench.harness.causes(), []);
    }

    #[test]
    fn without_background_all_counts_from_the_reading(setup in open_or_closed(), ago in 0u64..200) {
        let closed = SchedulerConfig { background: false, ..setup.config.clone() };
        let setup = guarded(Setup { config: closed, ..setup }, 7);
        // Read as declared, whatever it says of its sending.
        let (mut said, mut silent) = (Bench::new(&setup), Bench::new(&setup));
        let letters = letters(&setup, &mut said, 60, |_| 0);
        silent.dice = said.dice.clone();
        for &(read, s, _) in &letters {
            for (bench, sent) in [(&mut said, read.saturating_sub(ago)), (&mut silent, read)] {
                bench.harness.advance(read, true);
                bench.harness.arrive_sent(bench.ids[s], sent);
            }
        }
        said.finish();
        silent.finish();
        prop_assert_eq!(&said.harness.resolutions, &silent.harness.resolutions);
        prop_assert_eq!(said.harness.causes(), []);
    }

    #[test]
    fn who_is_read_too_late_harms_nobody_else_and_is_not_blamed(
        setup in setup_or_tight(), guard in 0u64..20, more in 1u64..200,
    ) {
        prop_assume!(!setup.streams.is_empty());
        let setup = guarded(setup, guard);
        let victim = setup.seed as usize % setup.streams.len();
        let mut bench = Bench::new(&setup);
        let letters = letters(&setup, &mut bench, 120, |s| if s == victim { guard + more } else { guard });
        deliver(&mut bench, &letters);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        for s in (0..bench.ids.len()).filter(|&s| s != victim) {
            prop_assert!(kept(&bench, &setup, s));
            prop_assert_eq!(bench.harness.suspensions(bench.ids[s]), []);
        }
        let mut late = letters.iter().filter(|&&(read, s, sent)| s == victim && read > sent + guard);
        let causes = bench.harness.causes();
        prop_assert!(causes.iter().all(|(_, cause)| matches!(cause, Cause::LateDispatch | Cause::ConstraintViolated)), "{:?}", causes);
        prop_assert_eq!(causes.first().copied(), late.next().map(|&(read, ..)| (read, Cause::LateDispatch)));
        // None is violated before it is told.
        prop_assert!(kept(&bench, &setup, victim) || !bench.harness.suspensions(bench.ids[victim]).is_empty());
        let safe = bench.harness.scheduler.safe_mode();
        prop_assert_eq!(safe.breaches(), 0, "no safe mode for what concerns one stream");
    }
}

/// One request in 10, none to be missed.
fn strict() -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let bound = ArrivalBound::periodic(ns(10), ns(0)).expect("valid");
    StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
}

/// One worker, a request takes 2, deadline 20, of which 5 are guard.
fn small() -> SchedulerConfig {
    let quick = SafeModeConfig { hold: ns(50), clean: ns(50), latch: false };
    SchedulerConfig { guard: ns(5), safe_mode: quick, ..config(&[2], 1, 1, 20, Dispatch::Eager) }
}

#[test]
fn requests_that_were_sent_apart_and_are_read_at_once_are_no_excess() {
    let mut harness = Harness::new(small(), |_, bound| bound);
    let id = harness.add(strict());
    // By when they are read, the second comes 6 after the first: too soon.
    for (sent, read) in [(100, 104), (110, 110), (120, 125), (130, 131)] {
        harness.advance_to(read);
        harness.arrive_sent(id, sent);
    }
    harness.drain();
    assert_eq!(harness.causes(), []);
    assert_eq!(harness.outcomes(id), [true; 4]);
    // The same without the instants of sending.
    let mut harness = Harness::new(small(), |_, bound| bound);
    let id = harness.add(strict());
    for read in [104, 110, 125, 131] {
        harness.advance_to(read);
        harness.arrive(id);
    }
    assert_eq!(harness.causes(), [(110, Cause::ArrivalExcess), (131, Cause::ArrivalExcess)][..1]);
}

#[test]
fn the_deadline_counts_from_the_sending() {
    let mut harness = Harness::new(SchedulerConfig { guard: ns(0), ..small() }, |_, bound| bound);
    let id = harness.add(StreamSpec::best_effort());
    // Read with 2, 1 and 0 of its 20 left, where a batch takes 2; and after its deadline.
    for (sent, read) in [(100, 118), (200, 219), (300, 320), (400, 900)] {
        harness.advance_to(read);
        harness.arrive_sent(id, sent);
        harness.drain();
    }
    let ends: Vec<_> = harness.resolutions.iter().map(|(at, r)| (*at, r.outcome)).collect();
    let expired = Outcome::Missed(MissReason::Expired);
    assert_eq!(ends, [(120, Outcome::Served), (219, expired), (320, expired), (900, expired)]);
    assert_eq!(harness.causes(), []);
}

#[test]
fn nobody_can_say_that_it_sent_later_than_now_or_before_what_it_sent_last() {
    let mut harness = Harness::new(small(), |_, bound| bound);
    let id = harness.add(StreamSpec::best_effort());
    for (sent, read, counts) in [(90, 50, 50), (45, 60, 50), (0, 62, 50), (61, 64, 61)] {
        harness.advance_to(read);
        harness.arrive_sent(id, sent);
        harness.drain();
        let (_, last) = harness.resolutions.last().expect("answered");
        assert_eq!(last.request.arrival.as_nanos(), counts);
    }
}

#[test]
fn one_delivery_too_late_suspends_its_own_stream_and_no_other_for_a_bounded_time() {
    let mut harness = Harness::new(small(), |_, bound| bound);
    let (late, other) = (harness.add(strict()), harness.add(StreamSpec::best_effort()));
    harness.advance_to(106);
    harness.arrive_sent(late, 100);
    // Whatever those say that are promised nothing.
    harness.arrive_sent(other, 90);
    harness.drain();
    assert_eq!(harness.causes(), [(106, Cause::LateDispatch)]);
    harness.advance_to(400);
    assert_eq!(harness.suspensions(late), [(106, 156)]);
    assert_eq!(harness.suspensions(other), []);
    assert_eq!(harness.outcomes(late), [true], "served as well as can be");
    harness.arrive_sent(late, 400);
    harness.drain();
    assert!(harness.resolutions.last().expect("answered").1.request.mandatory);
}

/// Of a stream that sends one too many at 0, whose effects last until 40, three requests that were sent then and are read then: whether
/// its promise is suspended, and which of them must be served.
fn behind_an_excess(sent: u64, read: u64) -> (bool, Vec<bool>) {
    let config = config(&[1], 1, 1, 20, Dispatch::Eager);
    let config = SchedulerConfig { guard: ns(3), safe_mode: QUICK, ..config };
    let mut harness = Harness::new(config, |_, bound| bound);
    let id = harness.add(ladder((0, 1), &window(3, 10), &[]));
    (0..4).for_each(|_| _ = harness.arrive(id));
    harness.advance_to(read);
    let suspended = harness.scheduler.suspension(id).is_some();
    (0..3).for_each(|_| harness.arrive_sent(id, sent));
    harness.drain();
    let behind = harness.resolutions.iter().map(|(_, resolution)| resolution.request);
    (suspended, behind.filter(|request| request.seq > 3).map(|request| request.mandatory).collect())
}

/// It is held against the declaration by when it was sent, and there it is one of those that are let pass one by one.
#[test]
fn what_was_sent_while_an_excess_lasted_is_read_before_the_promise_is_resumed() {
    assert_eq!(behind_an_excess(39, 42), (true, vec![true, true, false]));
    assert_eq!(behind_an_excess(40, 43), (false, vec![true; 3]));
}
