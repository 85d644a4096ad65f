//! Stalls that constraints absorb, in cases that are reckoned by hand: what is counted, announced, refused, and handed on.

use std::cell::RefCell;
use std::rc::Rc;

use rt_core::{
    AdmissionError, BalancedWord, Cause, Dispatch, SchedulerConfig, Shield, ShieldError, Stalls, StreamId,
    StreamSpec,
};

use crate::harness::load::{absorbing, ns};
use crate::harness::{Harness, config, system};
use crate::standstill::{Driven, stand_still, stream, window};

/// One request in 4 at most, each takes 2, by 4; a stall of 3. Of any 6 at most 4 are missed, one for the stall.
fn lone() -> (Harness, StreamId, Stalls) {
    let spec = stream((4, 6), window(1, 4));
    let config = config(&[2], 1, 1, 4, Dispatch::Eager);
    let stalls = absorbing(&config, std::slice::from_ref(&spec), (1, 3)).expect("admitted");
    assert_eq!(stalls.absorb(&spec, ns(4)).map(|(misses, density)| (misses, density.as_f64())), Ok((1, 0.5)));
    let mut harness = Harness::new(SchedulerConfig { stalls: Some(stalls), ..config }, |_, bound| bound);
    let id = harness.add(spec);
    (harness, id, stalls)
}

/// A request comes, or is missed if it need not be served; its batch takes so long.
fn send(harness: &mut Harness, stream: &mut Driven, at: u64, time: u64) {
    harness.advance_to(at);
    harness.set_service(move |_, _| time);
    stream.send(harness, at);
    harness.advance_to(at + time + 4);
}

/// Who sends only when the machine stands still loses all: more than the constraint allows, of requests that many stalls lie
/// between. Nothing is raised for it, and what lies in one window of stalls is as it should be.
#[test]
fn over_many_stalls_each_costs_what_one_may_and_nothing_is_raised() {
    let (mut harness, id, stalls) = lone();
    let word = BalancedWord::new(stalls.absorb(&stream((4, 6), window(1, 4)), ns(4)).expect("room").1);
    let mut slow = Driven { id, word, history: Vec::new() };
    let window = stalls.window().as_nanos();
    for n in 0..12 {
        send(&mut harness, &mut slow, (n + 1) * window, 5);
    }
    assert_eq!(harness.outcomes(id), [false; 12]);
    assert_eq!((harness.scheduler.absorbed(), harness.scheduler.stalls()), (6, 6));
    assert_eq!((harness.causes(), harness.suspensions(id)), (vec![], vec![]));
    // In time again.
    for n in 0..12 {
        send(&mut harness, &mut slow, 14 * window + 10 * n, 2);
    }
    assert_eq!(harness.outcomes(id)[12..].iter().filter(|&&hit| hit).count(), 6);
    assert_eq!(harness.causes(), []);
}

#[test]
fn a_second_stall_in_the_window_and_a_longer_one_are_announced() {
    for (again, time, cause) in [(30, 5, true), (36, 5, false), (100, 6, true)] {
        let (mut harness, id, stalls) = lone();
        assert_eq!(stalls.window(), ns(33));
        harness.set_service(move |_, _| 5);
        harness.advance_to(100);
        harness.refuse(id);
        harness.advance_to(104);
        harness.arrive(id);
        harness.advance_to(104 + again - 8);
        harness.refuse(id);
        harness.advance_to(104 + again);
        assert_eq!((harness.causes(), harness.scheduler.stalls()), (vec![], 1));
        harness.set_service(move |_, _| time);
        harness.arrive(id);
        harness.advance_to(104 + again + 10);
        let raised: Vec<_> = harness.causes().into_iter().map(|(_, raised)| raised).collect();
        assert_eq!(raised, if cause { vec![Cause::ServiceOverrun] } else { vec![] }, "after {again}");
    }
}

/// Nor is there a second one for whoever takes over.
#[test]
fn a_second_stall_in_the_window_is_announced_though_another_has_taken_over_meanwhile() {
    for (again, told) in [(30, true), (36, false)] {
        let (mut harness, id, stalls) = lone();
        let config = config(&[2], 1, 1, 4, Dispatch::Eager);
        harness.set_service(move |_, _| 5);
        harness.advance_to(100);
        harness.refuse(id);
        harness.advance_to(104);
        harness.arrive(id);
        harness.advance_to(115);
        assert_eq!((harness.causes(), harness.scheduler.stalls()), (vec![], 1));
        assert_eq!(harness.hand_over(SchedulerConfig { stalls: Some(stalls), ..config }), Ok(()));
        harness.advance_to(104 + again - 8);
        harness.refuse(id);
        harness.advance_to(104 + again);
        harness.arrive(id);
        harness.advance_to(104 + again + 10);
        let raised: Vec<_> = harness.causes().into_iter().map(|(_, raised)| raised).collect();
        assert_eq!(raised, if told { vec![Cause::ServiceOverrun] } else { vec![] }, "after {again}");
    }
}

/// What a client says it sent, and what is read only behind a stall, need not be served: it is as if it had been missed, and the
/// promise to it stands. What is read later than any stall explains suspends it as ever.
#[test]
fn what_a_stall_kept_from_being_read_suspends_nothing() {
    let (mut harness, id, _) = lone();
    harness.advance_to(100);
    harness.arrive_sent(id, 98);
    harness.advance_to(102);
    harness.arrive_sent(id, 102);
    assert_eq!((harness.causes(), harness.suspensions(id)), (vec![], vec![]));
    harness.advance_to(200);
    harness.arrive_sent(id, 190);
    assert_eq!(harness.causes(), [(200, Cause::LateDispatch)]);
    assert_eq!(harness.suspensions(id).len(), 1);
}

/// What had to be served, was read only behind a stall and by then too late is on the account of stalls, and nothing else is.
#[test]
fn what_a_stall_kept_from_being_read_in_time_is_counted_as_absorbed() {
    // Every second request must be served.
    for (skipped, sent, absorbed) in [(true, 97, 1), (true, 98, 0), (false, 97, 0)] {
        let (mut harness, id, _) = lone();
        harness.advance_to(90);
        if skipped {
            harness.refuse(id);
        }
        harness.advance_to(100);
        harness.arrive_sent(id, sent);
        harness.advance_to(104);
        assert_eq!(harness.outcomes(id).last(), Some(&(sent == 98)), "{sent}");
        assert_eq!(harness.scheduler.absorbed(), absorbed, "{skipped} {sent}");
        assert_eq!((harness.causes(), harness.suspensions(id)), (vec![], vec![]));
    }
}

/// What is not to be absorbed is refused: no room, too often, a recovery that is too short, workers of several kinds.
#[test]
fn what_constraints_cannot_absorb_is_refused() {
    let spec = stream((4, 6), window(1, 4));
    let config = config(&[2], 1, 1, 4, Dispatch::Eager);
    let admit = |spec: &StreamSpec, window, recovery| {
        let stalls = Some(Stalls::new(1, ns(window), ns(3)).expect("valid").absorbed(ns(recovery)));
        system(&SchedulerConfig { stalls, ..config.clone() }).admit([spec])
    };
    assert!(admit(&spec, 33, 5).is_ok());
    assert_eq!(admit(&spec, 32, 5), Err(AdmissionError::Stalls { needed: ns(33), window: ns(32) }));
    assert_eq!(admit(&spec, 33, 4), Err(AdmissionError::Recovery { needed: ns(5), recovery: ns(4) }));
    let strict = stream((0, 6), window(1, 12));
    assert!(matches!(admit(&strict, 1_000, 5), Err(AdmissionError::Absorbed { misses: 1, .. })));
    let mut two = system(&config);
    two.workers.push(two.workers[0].clone());
    two.stalls = Some(Stalls::new(1, ns(1_000), ns(3)).expect("valid").absorbed(ns(5)));
    assert_eq!(two.admit([&spec]), Err(AdmissionError::Kinds));
}

/// One request each tick, of which every second or so must be served; eight of them take 10 together, and one takes 8. Behind a
/// stall of 20 the first that waits has always just enough time for a batch by itself: if that were made so small, it would be so for
/// ever.
#[test]
fn behind_a_stall_batches_are_full_and_what_piled_up_is_worked_off() {
    let spec = stream((500, 1_000), window(1, 1));
    let config = config(&[8, 10, 10, 10, 10, 10, 10, 10], 8, 1, 24, Dispatch::Eager);
    let stalls = absorbing(&config, std::slice::from_ref(&spec), (1, 20)).expect("admitted");
    let mut harness = Harness::new(SchedulerConfig { stalls: Some(stalls), ..config }, |_, bound| bound);
    stand_still(&mut harness, Rc::new(RefCell::new(vec![(500, 520)])), |bound| bound);
    let id = harness.add(spec);
    for at in 0..2_000 {
        harness.advance_to(at);
        harness.arrive(id);
    }
    harness.drain();
    let missed = harness.mandatory_misses();
    let last = missed.iter().map(|r| r.request.arrival.as_nanos()).max().expect("some are");
    assert!(last < 500 + stalls.recovery().expect("absorbed").as_nanos(), "{last} {stalls:?}");
    assert_eq!(harness.causes(), []);
}

/// A scheduler that takes over serves as much as its own stalls ask for, and the other way round: then all is counted anew, and a
/// shield for its streams is one again.
#[test]
fn who_takes_over_serves_by_its_own_stalls() {
    let specs = [stream((4, 6), window(1, 20)), stream((2, 3), window(1, 20))];
    let plain = config(&[2], 1, 1, 12, Dispatch::Eager);
    let stalls = absorbing(&plain, &specs, (1, 3)).expect("admitted");
    let absorbing = SchedulerConfig { stalls: Some(stalls), ..plain.clone() };
    let mut harness = Harness::new(plain.clone(), |_, bound| bound);
    let ids = specs.each_ref().map(|spec| harness.add(spec.clone()));
    let mandatory = |harness: &mut Harness| {
        let before = harness.resolutions.len();
        for _ in 0..12 {
            harness.advance_to(harness.now + 20);
            for id in ids {
                harness.arrive(id);
            }
        }
        harness.advance_to(harness.now + 20);
        let came = &harness.resolutions[before..];
        ids.map(|id| came.iter().filter(|(_, r)| r.request.stream == id && r.request.mandatory).count())
    };
    assert_eq!(mandatory(&mut harness), [4, 4]);
    harness.hand_over(absorbing).expect("nothing is in the way");
    assert_eq!(mandatory(&mut harness), [6, 8], "three of six, and two of three");
    let shield = || Shield::new(&plain.workers[0], ns(12), specs.iter().filter_map(StreamSpec::demand));
    let refused = harness.scheduler.set_shield(Some(shield().expect("admitted")));
    assert_eq!(refused.map(drop), Err(ShieldError::Absorbed));
    harness.hand_over(plain.clone()).expect("nothing is in the way");
    assert_eq!(mandatory(&mut harness), [4, 4]);
    harness.scheduler.set_shield(Some(shield().expect("admitted"))).expect("it counts both");
    let _ = harness.scheduler.remove_stream(ids[0]);
    assert_eq!(harness.scheduler.load().specs().count(), 1);
    assert_eq!((harness.causes(), harness.mandatory_misses()), (vec![], vec![]));
}
