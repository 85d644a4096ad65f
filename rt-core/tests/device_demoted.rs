//! A service whose batches harm the others on its workers is demoted: the promises of the others come back and hold, whatever it goes
//! on doing as far as that has been seen of it, and so does its own once it keeps its time. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems of each.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rt_core::sharing::SharingError;
use rt_core::{Cause, Instant, SafeModeConfig, Severity, Span, StreamId, StreamSpec};

use crate::harness::choices::{Choices, exhaust};
use crate::harness::{Dice, earliest, instances};
use crate::oracle::Stream;
use crate::oracle::sharing::{Service, Shared};
use crate::shared::clients::{margin, senders};
use crate::shared::{Run, admission, admitted, streams};

/// How long it lasts until all is well again.
const CLEAN: u64 = 12;

fn safe_mode() -> SafeModeConfig {
    let span = Span::from_nanos(CLEAN);
    SafeModeConfig { hold: span, clean: span, latch: false }
}

fn severity(run: &Run, service: usize) -> Severity {
    run.device.service(service).safe_mode().severity()
}

/// A run with somebody who sends what nothing is promised for to the first service and to the last, in which a batch of the first has
/// taken so much `more` than it may, twice, and the others' promises hold again: it is
/// still demoted, for it is to keep its time for longer than they. From then on `over` says by how much a batch of a service runs over.
fn harmed(
    shared: &Shared,
    margin: u64,
    more: u64,
    over: impl Fn(usize) -> u64 + 'static,
) -> (Run, Vec<(usize, StreamSpec, StreamId)>, [StreamId; 2]) {
    let slow = Rc::new(Cell::new(true));
    let now = Rc::clone(&slow);
    let guards = vec![0; shared.services.len()];
    let mut run = Run::lasting(shared, (&guards, safe_mode()), margin, move |service, bound| match service {
        0 if now.get() => bound + more,
        _ => bound + over(service),
    });
    let streams = streams(shared);
    let added: Vec<_> = streams.into_iter().map(|(s, spec)| (s, spec.clone(), run.add(s, spec))).collect();
    let strangers = [0, shared.services.len() - 1].map(|s| run.add(s, StreamSpec::best_effort()));
    let others = 1..shared.services.len();
    for _ in 0..2 {
        assert!(!run.demoted[0]);
        run.arrive(0, strangers[0]);
        run.settle();
        run.drain();
        assert!(run.demoted[0] && others.clone().all(|s| severity(&run, s) == Severity::Safe), "{shared:?}");
        while others.clone().any(|s| severity(&run, s) > Severity::Normal) {
            let next = run.next_event().expect("safe mode ends");
            run.advance(next, true);
        }
    }
    slow.set(false);
    run.steady = true;
    (run, added, strangers)
}

/// Whoever sends whenever: the first service goes on as slowly as it was seen to, or keeps its time.
fn search(
    shared: &Shared,
    (margin, more): (u64, u64),
    ticks: u64,
    choices: &Rc<RefCell<Choices>>,
) -> [usize; 4] {
    let slow = Rc::clone(choices);
    let searching = Rc::new(Cell::new(false));
    let on = Rc::clone(&searching);
    let (mut run, streams, strangers) = harmed(shared, margin, more, move |service| {
        let slow = service == 0 && on.get() && slow.borrow_mut().choose(2) == 0;
        if slow { more } else { 0 }
    });
    searching.set(true);
    let (missed, began, demoted) = (run.missed.len(), run.now, run.demoted[0]);
    let mut history = vec![Vec::new(); streams.len()];
    for now in began..began + ticks {
        run.advance(now, true);
        loop {
            let bounds = |k: usize| streams[k].1.arrivals().expect("declared").bounds();
            let mut open: Vec<_> =
                (0..streams.len()).filter(|&k| earliest(&history[k], bounds(k), now) == now).collect();
            open.extend([streams.len(), streams.len() + 1]);
            let choice = choices.borrow_mut().choose(open.len() as u64 + 1) as usize;
            match choice.checked_sub(1).map(|index| open[index]) {
                None => break,
                Some(k) if k >= streams.len() => {
                    let stranger = k - streams.len();
                    run.arrive([0, shared.services.len() - 1][stranger], strangers[stranger]);
                    run.settle();
                    break;
                }
                Some(k) => {
                    history[k].push(now);
                    run.arrive(streams[k].0, streams[k].2);
                    run.settle();
                }
            }
        }
        run.advance(now, true);
    }
    searching.set(false);
    run.drain();
    // What harms the others is announced: they miss nothing without a word.
    let unwarned = run.missed[missed..].iter().find(|&&(_, _, warned)| !warned);
    assert_eq!(unwarned, None, "{more} beyond {margin}: {shared:?}: {history:?}");
    let beside = if shared.workers > 1 { run.alone } else { 0 };
    [run.alone, beside, usize::from(demoted), run.served.iter().sum()]
}

#[test]
fn over_every_short_sequence_nobody_is_harmed_by_a_service_that_is_demoted() {
    for turns in [false, true] {
        let (mut dice, mut depths, mut sums) = (Dice(21), 0, [0; 4]);
        let count = instances(6);
        for _ in 0..count {
            let (shared, margin) = admitted_several(&mut dice, turns);
            let more = margin + dice.within(1, 6);
            depths += exhaust(2, 6_000, |ticks, choices| {
                let found = search(&shared, (margin, more), ticks, choices);
                sums.iter_mut().zip(found).for_each(|(sum, more)| *sum += more);
            });
        }
        println!(
            "turns {turns}: {} ticks exhausted on average, long ones, of them beside others, demoted, served: {sums:?}",
            depths as f64 / count as f64
        );
        assert!(sums.iter().all(|&sum| sum > 100), "{sums:?}");
    }
}

/// Of several services, so that there are others.
fn admitted_several(dice: &mut Dice, turns: bool) -> (Shared, u64) {
    loop {
        let (shared, margin) = admitted(dice, turns, 0);
        let promised = shared.services[1..].iter().any(|service| !service.streams.is_empty());
        if shared.services.len() > 1 && promised {
            return (shared, margin);
        }
    }
}

/// A long run in which everybody sends as soon as it may; the first service is slow for a while, and then is not. Of every other system
/// batches of the others run over now and then as well.
#[test]
fn the_promises_of_the_others_come_back_while_a_service_stays_slow_and_its_own_once_it_is_not() {
    for (turns, others) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut dice, mut sums) = (Dice(22), [0; 4]);
        for _ in 0..instances(300) {
            let (shared, margin) = admitted_several(&mut dice, turns);
            let more = margin + dice.within(1, 8);
            let slow = Rc::new(Cell::new(false));
            let is = Rc::clone(&slow);
            let (chance, on) = (RefCell::new(Dice(dice.within(1, 1 << 40))), Rc::new(Cell::new(false)));
            let begun = Rc::clone(&on);
            let (mut run, mut streams, strangers) = harmed(&shared, margin, more, move |service| {
                let mut chance = chance.borrow_mut();
                match service {
                    0 if is.get() => more,
                    1.. if others && begun.get() && chance.within(0, 7) == 0 => chance.within(1, 1 + margin),
                    _ => 0,
                }
            });
            slow.set(true);
            on.set(true);
            // Several that run over a little are none that harms.
            run.steady = !others;
            let (missed, told, began) = (run.missed.len(), run.causes.len(), run.now);
            let mut history = vec![Vec::new(); streams.len()];
            let greedy = dice.within(0, 2);
            for now in began..began + 400 {
                slow.set(now < began + 200);
                run.advance(now, dice.within(0, 1) == 0);
                for (s, stranger) in [0, shared.services.len() - 1].into_iter().zip(strangers) {
                    if dice.within(0, 3) == 0 {
                        run.arrive(s, stranger);
                        run.settle();
                    }
                }
                for (k, (s, spec, id)) in streams.iter_mut().enumerate() {
                    let bounds = spec.arrivals().expect("declared").bounds();
                    while dice.within(0, 2) >= greedy && earliest(&history[k], bounds, now) == now {
                        history[k].push(now);
                        run.arrive(*s, *id);
                        run.settle();
                    }
                }
                run.advance(now, true);
            }
            on.set(false);
            run.drain();
            while (0..shared.services.len()).any(|s| severity(&run, s) > Severity::Normal) {
                let end = run.next_event().unwrap_or_else(|| panic!("never promised again: {shared:?}"));
                run.advance(end, true);
            }
            assert!(!run.demoted[0], "{shared:?}");
            let unwarned = run.missed[missed..].iter().find(|&&(_, _, warned)| !warned);
            assert_eq!(unwarned, None, "{more} beyond {margin}: {shared:?}");
            // Each time that it is promised again it harms the others once at most, and later each time.
            let harmed = run.causes[told..]
                .iter()
                .filter(|&&(at, s, cause)| s > 0 && cause == Cause::ServiceOverrun && at < began + 250);
            sums[0] += harmed.count();
            sums[1] += run.served[1..].iter().sum::<usize>();
            sums[2] += run.missed[missed..].iter().filter(|&&(_, s, _)| s > 0).count();
            sums[3] += run.alone;
        }
        println!(
            "turns {turns}, others {others}: harmed, served, missed of the others, long ones alone: {sums:?}"
        );
        assert!(sums[1] > 1_000 && sums[3] > 100, "{sums:?}");
    }
}

/// Whoever harms the others as soon as it is promised again waits twice as long.
#[test]
fn who_harms_again_waits_longer_a_device_that_takes_over_goes_on_with_it_and_an_operator_ends_it() {
    let (shared, margin) = admitted_several(&mut Dice(23), false);
    let (mut run, ..) = harmed(&shared, margin, margin + 4, |_| 0);
    let told = run.causes.iter().filter(|&&(_, s, cause)| s == 0 && cause == Cause::ServiceOverrun);
    let last = told.map(|&(at, ..)| at).max().expect("told");
    while run.demoted[0] {
        let next = run.next_event().expect("it is promised again");
        run.advance(next, true);
    }
    assert!((2 * CLEAN..3 * CLEAN).contains(&(run.now - last)), "{} after {last}", run.now);

    let (mut run, ..) = harmed(&shared, margin, margin + 4, |_| 0);
    let mut turned = shared;
    turned.services.rotate_right(1);
    run.set_quiet(true);
    run.hand_over(&turned, margin, None).expect("nothing is open");
    let demoted = |run: &Run| [0, 1].map(|service| run.device.service(service).is_demoted());
    assert_eq!(demoted(&run), [false, true]);
    let now = Instant::from_nanos(run.now);
    run.device.service_mut(1).clear_safe_mode(now);
    run.settle();
    assert_eq!((demoted(&run), severity(&run, 1)), ([false; 2], Severity::Normal));
}

/// Nothing is promised of what came while a service was demoted: not when it is promised again, nor by a device that takes over, be it that
/// it stays demoted there, or that it is not, as its batches take another time by its profile.
#[test]
fn what_a_service_missed_while_it_was_demoted_is_told_of_nowhere_behind_a_takeover_either() {
    for (time, again) in [(2, false), (1, false), (2, true)] {
        let stream = Stream { constraints: vec![(1, 2)], ..Stream::hard(1, 5) };
        let services = vec![Service::of(vec![stream], 2, 20), Service::of(vec![Stream::hard(1, 60)], 2, 20)];
        let shared = Shared::of(services, 1, 2, false);
        let left = margin(&shared).expect("admitted");
        let mut run = Run::lasting(&shared, (&[0, 0], safe_mode()), left, move |_, bound| bound + left + 1);
        let (clients, strangers) = senders(&shared, &mut run);
        let id = clients[0].id.expect("there");
        run.arrive(0, strangers[0]);
        run.settle();
        run.drain();
        assert!(run.demoted[0]);
        run.refuse(0, id);
        run.advance(run.now + 5, true);
        run.refuse(0, id);
        let mut turned = shared;
        turned.services[0].time = time;
        turned.services.rotate_right(1);
        let margin = margin(&turned).expect("admitted");
        run.hand_over(&turned, margin, None).expect("nothing is open");
        assert_eq!(run.device.service(1).is_demoted(), time == 2);
        run.advance(run.now + if again { 200 } else { 5 }, true);
        assert_eq!(run.device.service(1).is_demoted(), time == 2 && !again);
        run.refuse(1, id);
        let violated = |&(.., cause): &(u64, usize, Cause)| cause == Cause::ConstraintViolated;
        assert!(!run.causes.iter().any(violated), "{time}: {:?}", run.causes);
        // From now on it is promised something again.
        run.advance(run.now + 200, true);
        for _ in 0..2 {
            run.advance(run.now + 20, true);
            run.refuse(1, id);
        }
        assert!(run.causes.iter().any(violated), "{time}: {:?}", run.causes);
    }
}

/// Two workers, and a service of which two at once are promised something within `deadline`, beside another; batches take 2.
fn on_two_workers(deadline: u8) -> (Shared, u64) {
    let stream = Stream::hard(2, 12);
    let service = |deadline, streams| Service::of(streams, 2, deadline);
    let services = vec![service(40, Vec::new()), service(deadline, vec![stream])];
    let (late, overrun, stall, window) = (0, 0, 0, rt_core::MAX_SPAN.as_nanos());
    let shared = Shared { services, workers: 2, longest: 2, turns: false, late, overrun, stall, window };
    let margin = admission(&shared).expect("admitted").binding.expect("something is promised").margin();
    (shared, u64::try_from(margin).expect("admitted"))
}

/// Batches of the other service take 30: one of them may run where one worker is enough for what is promised, and none where both are
/// needed; what nothing is promised for keeps the other.
#[test]
fn a_batch_of_any_length_runs_on_a_worker_that_the_others_can_do_without_and_one_at_a_time() {
    for (deadline, enough) in [(4, false), (6, true)] {
        let (shared, margin) = on_two_workers(deadline);
        let (mut run, streams, strangers) =
            harmed(&shared, margin, 28, |service| if service == 0 { 28 } else { 0 });
        for _ in 0..2 {
            run.arrive(0, strangers[0]);
            run.arrive(1, strangers[1]);
            run.settle();
        }
        assert_eq!(run.alone, usize::from(enough), "deadline {deadline}");
        for _ in 0..2 {
            run.arrive(1, streams[0].2);
            run.settle();
        }
        run.drain();
        assert_eq!(run.missed.iter().filter(|&&(_, _, warned)| !warned).count(), 0, "deadline {deadline}");
    }
}

/// What would be late goes before what is mandatory and due long after, unless the other worker runs a batch of 30, of whatever that takes.
#[test]
fn nothing_goes_ahead_beside_a_batch_that_is_longer_than_any() {
    for long in [false, true] {
        let service = |deadline, streams| Service::of(streams, 2, deadline);
        let waits = service(40, vec![Stream::hard(2, 12)]);
        let hurried = service(7, vec![Stream::hard(1, 50)]);
        let shared =
            Shared::of(vec![service(40, Vec::new()), waits, hurried, service(6, Vec::new())], 2, 2, false);
        let margin = admission(&shared).expect("admitted").binding.expect("something is promised").margin();
        let margin = u64::try_from(margin).expect("admitted");
        let over = |service| if service == 0 { 28 } else { 0 };
        let (mut run, streams, strangers) = harmed(&shared, margin, 28, over);
        let (began, alone, ahead) = (run.now, run.alone, run.gone_ahead);
        let mut send = |at, service, stream| {
            run.advance(began + at, true);
            run.arrive(service, stream);
            run.settle();
        };
        // One worker is busy with this, the other until 3.
        send(0, if long { 0 } else { 3 }, strangers[usize::from(!long)]);
        send(1, 3, strangers[1]);
        send(1, 1, streams[0].2);
        send(1, 3, strangers[1]);
        run.advance(began + 3, true);
        assert_eq!((run.alone - alone, run.gone_ahead - ahead), if long { (1, 0) } else { (0, 1) });
        run.drain();
        assert_eq!(run.missed.iter().filter(|&&(_, _, warned)| !warned).count(), 0);
    }
}

/// With both workers batches may run over by 3 in all, with one by 1. What ran over before such a batch began is forgotten while it
/// runs, as all was calm; yet until it has ended they may by 1 alone, and 2 are told before they do harm.
#[test]
fn while_a_worker_is_spared_the_smaller_margin_counts_whatever_is_forgotten() {
    let (shared, margin) = on_two_workers(7);
    assert_eq!(margin, 3);
    let over = Rc::new(Cell::new(0));
    let more = Rc::clone(&over);
    let time = move |service, bound| if service == 0 { bound + 28 } else { bound + more.get() };
    let mut run = Run::lasting(&shared, (&[0, 0], safe_mode()), margin, time);
    let promised = run.add(1, streams(&shared).pop().expect("one").1);
    let strangers = [0, 1].map(|service| run.add(service, StreamSpec::best_effort()));
    for _ in 0..2 {
        run.arrive(0, strangers[0]);
        run.settle();
        run.drain();
        while severity(&run, 1) > Severity::Normal {
            let next = run.next_event().expect("safe mode ends");
            run.advance(next, true);
        }
    }
    let (began, alone, told) = (run.now, run.alone, run.causes.len());
    let send = |run: &mut Run, at, service, stream| {
        run.advance(began + at, true);
        run.arrive(service, stream);
        run.settle();
    };
    over.set(1);
    send(&mut run, 0, 1, strangers[1]);
    over.set(0);
    send(&mut run, 2, 1, strangers[1]);
    send(&mut run, 3, 0, strangers[0]);
    assert_eq!((run.alone, run.causes.len()), (alone + 1, told));
    over.set(2);
    send(&mut run, 4, 1, strangers[1]);
    over.set(0);
    send(&mut run, 4, 1, promised);
    send(&mut run, 4, 1, promised);
    run.drain();
    assert!(run.missed.iter().all(|&(_, _, warned)| warned), "{:?}", run.missed);
    assert!(run.causes[told..].iter().any(|&(_, s, cause)| (s, cause) == (1, Cause::ServiceOverrun)));
}

/// Declared stalls of its batches are none of its own: they neither keep it from being promised again, however rarely that would leave
/// it in peace for long enough, nor make its batches count as longer.
#[test]
fn a_service_that_keeps_its_time_but_for_declared_stalls_is_promised_again() {
    for (turns, lasts) in [(false, 1), (true, 1), (false, 4), (true, 4)] {
        let (shared, margin) = stalling(turns);
        let window = shared.window + u64::from(shared.stall);
        let span = Span::from_nanos(lasts * window);
        let safe_mode = SafeModeConfig { hold: span, clean: span, latch: false };
        let slow = Rc::new(Cell::new(true));
        let is = Rc::clone(&slow);
        let mut run = Run::lasting(&shared, (&[0, 0], safe_mode), margin, move |service, bound| {
            if service == 0 && is.get() { bound + margin + 3 } else { bound }
        });
        let stream = streams(&shared).pop().expect("one").1;
        let promised = run.add(1, stream);
        let stranger = run.add(0, StreamSpec::best_effort());
        run.arrive(0, stranger);
        run.settle();
        run.drain();
        slow.set(false);
        assert!(run.demoted[0]);
        let began = run.now + 10;
        run.stalls =
            (0..20).map(|nth| began + nth * window).map(|at| (at, at + u64::from(shared.stall))).collect();
        for now in run.now..began + 20 * window {
            run.advance(now, true);
            run.arrive(0, stranger);
            if now % 60 == 0 {
                run.arrive(1, promised);
            }
            run.settle();
        }
        assert!(run.stalled > 10 && run.missed.is_empty(), "{:?}", run.missed);
        assert!(!run.demoted[0], "{:?}", run.causes);
    }
}

/// Two services on one worker, of which the second is promised something, with stalls as rare as they must be.
fn stalling(turns: bool) -> (Shared, u64) {
    let stream = Stream::hard(1, 60);
    let service = |streams| Service::of(streams, 2, 10);
    let services = vec![service(Vec::new()), service(vec![stream])];
    let mut shared =
        Shared { services, workers: 1, longest: 2, turns, late: 0, overrun: 0, stall: 2, window: 3 };
    let Err(SharingError::Stalls { needed, .. }) = admission(&shared) else { panic!("too often") };
    shared.window = needed.as_nanos();
    let margin = admission(&shared).expect("admitted").binding.expect("something is promised").margin();
    (shared, u64::try_from(margin).expect("admitted"))
}
