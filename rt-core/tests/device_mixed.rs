//! Everything that a device must stand, all at once: streams that leave and come back, strangers in long batches, requests
//! that are read late, overruns within the margin, turns of several batches, on one worker or two. `WEIR_EXHAUSTIVE=n` looks
//! at `n` times as many systems of each.

use std::cell::RefCell;
use std::rc::Rc;

use rt_core::{SafeModeConfig, Severity, Span};

use crate::harness::choices::{Choices, exhaust};
use crate::harness::{Dice, earliest, instances};
use crate::oracle::sharing::Shared;
use crate::shared::Run;
use crate::shared::clients::{read, roomy, senders, stalling};

#[derive(Clone, Copy)]
struct Trouble {
    churn: bool,
    /// One batch in so many runs over; none if 0.
    overruns: u64,
    /// By up to so much more than the margin; if by none, all together stay within it.
    beyond: u64,
    late: u8,
    /// The first of the streams sends too much, now and then.
    wild: bool,
    /// Safe mode lasts so long.
    clean: u64,
}

fn play(shared: &Shared, margin: u64, dice: &mut Dice, trouble: Trouble) -> Run {
    let mut times = Dice(dice.next());
    let (every, full) = (trouble.overruns, dice.within(0, 3));
    let more: Vec<u8> = shared.services.iter().map(|_| dice.within(0, 3) as u8).collect();
    let clean = Span::from_nanos(trouble.clean);
    let safe_mode = SafeModeConfig { hold: clean, clean, latch: false };
    let mut run = Run::lasting(shared, (&more, safe_mode), margin, move |_, bound| {
        if every > 0 && times.within(1, every) == 1 {
            return bound + times.within(1, margin.max(1) + trouble.beyond);
        }
        if times.within(0, 3) < full { bound } else { times.within(1, bound) }
    });
    run.margin = (trouble.beyond == 0).then_some(margin);
    run.wild = trouble.wild;
    // One that is seen to end later than it did must not be seen with the next one.
    let (length, step) = (u64::from(shared.stall), shared.window.saturating_add(shared.stall.into()));
    if length > 0 {
        let mut end = length + dice.within(0, 30);
        while end < 400 {
            run.stalls.push((end - length, end));
            end += step + dice.within(0, 9);
        }
        let mut own = Dice(dice.next());
        run.spared = Box::new(move || own.within(0, 3) == 0);
    }
    let (mut clients, strangers) = senders(shared, &mut run);
    let (greedy, busy) = (dice.within(0, 2), dice.within(0, 4));
    let wildness = dice.within(1, 20);
    for now in 0..200 {
        run.advance(now, dice.within(0, 1) == 0);
        for _ in 0..dice.within(0, busy) {
            let s = dice.within(0, strangers.len() as u64 - 1) as usize;
            run.arrive(s, strangers[s]);
            run.settle();
        }
        for _ in 0..4 * clients.len() {
            let k = dice.within(0, clients.len() as u64 - 1) as usize;
            let client = &mut clients[k];
            let Some(id) = client.id else {
                client.come_back(&mut run, shared);
                continue;
            };
            let bounds = client.spec.arrivals().expect("declared").bounds();
            let change = if trouble.churn { dice.within(0, 50) } else { 50 };
            if change == 0 {
                run.remove(client.service, id);
                client.id = None;
            } else if change == 1 {
                // What is sent and not read is the next one's.
                client.id = Some(run.restart(client.service, id));
            } else if dice.within(0, 3) >= greedy && earliest(&client.history, bounds, now) == now
                || trouble.wild && k == 0 && dice.within(0, wildness) == 0
            {
                client.send(now, trouble.late.into(), dice);
            }
            read(&mut run, client, dice);
        }
        clients.iter_mut().for_each(|client| read(&mut run, client, dice));
        run.advance(now, true);
    }
    run.drain();
    run
}

/// Nothing mandatory is missed, and nobody is told of anything.
fn stands(count: usize, seed: u64, of: impl Fn(&mut Dice) -> (u8, bool, u64)) {
    for turns in [false, true] {
        let (mut dice, mut served, mut over, mut ahead, mut varied) = (Dice(seed), 0, 0, [0; 2], [0; 2]);
        for _ in 0..instances(count) {
            let (late, churn, overruns) = of(&mut dice);
            let (shared, margin) = roomy(&mut dice, turns, late);
            let run = play(
                &shared,
                margin,
                &mut dice,
                Trouble { churn, overruns, beyond: 0, late, wild: false, clean: 0 },
            );
            assert!(run.missed.is_empty(), "{:?} missed, margin {margin}: {shared:?}", run.missed);
            assert!(run.causes.is_empty(), "{:?}, margin {margin}: {shared:?}", run.causes);
            served += run.served.iter().sum::<usize>();
            ahead[shared.workers - 1] += run.gone_ahead;
            varied = [varied[0] + run.varied[0], varied[1] + run.varied[1]];
            over += run.overran.iter().filter(|over| **over).count();
        }
        println!(
            "turns {turns}: {served} served, {over} services ran over, {ahead:?} batches went ahead on one worker and of two, {varied:?} were slower"
        );
        assert!(
            served > 10 * count
                && ahead.iter().all(|&ahead| ahead > count)
                && varied[0] > count
                && varied[1] > count / 4
        );
    }
}

#[test]
fn streams_come_and_go_beside_long_batches_and_late_reading() {
    stands(400, 1, |dice| (dice.within(0, 2) as u8, true, 0));
}

#[test]
fn overruns_within_the_margin_are_harmless_whoever_comes_and_goes() {
    stands(400, 2, |dice| (0, dice.within(0, 1) == 0, dice.within(2, 20)));
}

#[test]
fn all_of_it_at_once_is_harmless() {
    stands(400, 3, |dice| (dice.within(0, 2) as u8, true, dice.within(2, 30)));
}

/// Whoever sends too much, beside others who come and go, late reading and overruns, through stalls or without, harms itself alone.
#[test]
fn beside_a_stream_that_sends_too_much_nobody_misses_anything() {
    for turns in [false, true] {
        let (mut dice, mut served, mut ahead, mut told) = (Dice(9), 0, 0, 0);
        let count = instances(400);
        for nth in 0..count {
            let (late, churn) = (dice.within(0, 2) as u8, dice.within(0, 2) == 0);
            let overruns = if dice.within(0, 2) == 0 { dice.within(2, 30) } else { 0 };
            let system = if nth % 3 == 0 { stalling } else { roomy };
            let (shared, margin) = system(&mut dice, turns, late);
            let trouble = Trouble { churn, overruns, beyond: 0, late, wild: true, clean: 0 };
            let run = play(&shared, margin, &mut dice, trouble);
            assert!(run.missed.is_empty(), "{:?} missed, margin {margin}: {shared:?}", run.missed);
            served += run.served.iter().sum::<usize>();
            ahead += run.gone_ahead;
            told += run.device.service(0).suspensions().0;
        }
        println!("turns {turns}: {served} served, {ahead} went ahead, {told} told");
    }
}

/// Also on a machine that stands still as often and as long as declared.
#[test]
fn through_stalls_nothing_is_missed_whoever_comes_and_goes() {
    for turns in [false, true] {
        let (mut dice, mut stalled, mut ahead, mut served, mut varied) = (Dice(7), 0, 0, 0, 0);
        let count = instances(300);
        for _ in 0..count {
            let (late, churn) = (dice.within(0, 2) as u8, dice.within(0, 2) > 0);
            let overruns = if dice.within(0, 2) == 0 { dice.within(2, 30) } else { 0 };
            let (shared, margin) = stalling(&mut dice, turns, late);
            let run = play(
                &shared,
                margin,
                &mut dice,
                Trouble { churn, overruns, beyond: 0, late, wild: false, clean: 0 },
            );
            assert!(
                run.missed.is_empty(),
                "{:?} missed, margin {margin}, {:?}: {shared:?}",
                run.missed,
                run.stalls
            );
            // What runs over and stands still as well may be told of without need.
            if overruns == 0 {
                assert!(
                    run.causes.is_empty(),
                    "{:?}, margin {margin}, {:?}: {shared:?}",
                    run.causes,
                    run.stalls
                );
            }
            (stalled, ahead, varied) =
                (stalled + run.stalled, ahead + run.gone_ahead, varied + run.varied[0]);
            served += run.served.iter().sum::<usize>();
        }
        println!(
            "turns {turns}: {served} served, {stalled} batches stood still, {ahead} went ahead, {varied} were slower"
        );
        assert!(stalled > count && ahead > count && varied > count / 2);
    }
}

/// Over every short run, with one stall that may come at any time, in which each batch may stand still or not.
#[test]
fn over_every_short_run_with_a_stall_nothing_mandatory_is_missed() {
    for turns in [false, true] {
        let (mut dice, mut depths, count) = (Dice(8), 0, instances(3));
        for _ in 0..count {
            let (shared, margin) = stalling(&mut dice, turns, 0);
            depths += exhaust(2, 16_000, |ticks, choices| choose_all(&shared, margin, ticks, choices));
        }
        println!("turns {turns}: {} ticks exhausted on average", depths as f64 / count as f64);
    }
}

/// Nobody is harmed without having been told, also beside a stream that sends too much and through stalls; and some time all is well
/// again, of those that did harm too.
#[test]
fn what_is_beyond_the_margin_is_announced_before_it_does_harm() {
    for turns in [false, true] {
        let (mut dice, mut missed, mut stalled, mut demoted) = (Dice(5), 0, 0, 0);
        for nth in 0..instances(400) {
            let late = dice.within(0, 2) as u8;
            let system = if nth % 3 == 0 { stalling } else { roomy };
            let (shared, margin) = system(&mut dice, turns, late);
            let (overruns, beyond) = (dice.within(5, 40), dice.within(1, 8));
            let trouble = Trouble {
                churn: true,
                overruns,
                beyond,
                late,
                wild: nth % 2 == 0,
                clean: dice.within(0, 1) * 15,
            };
            let mut run = play(&shared, margin, &mut dice, trouble);
            let unwarned = run.missed.iter().find(|&&(_, _, warned)| !warned);
            assert_eq!(unwarned, None, "margin {margin}: {shared:?}");
            missed += run.missed.len();
            stalled += run.stalled;
            demoted += run.demoted.iter().filter(|&&demoted| demoted).count();
            let all = 0..shared.services.len();
            let stands = |run: &Run, s: usize| {
                let scheduler = run.device.service(s);
                (scheduler.safe_mode().severity(), scheduler.suspensions().1) == (Severity::Normal, 0)
            };
            while !all.clone().all(|s| stands(&run, s)) {
                let next = run.next_event().unwrap_or_else(|| panic!("it never ends: {shared:?}"));
                assert!(next < 5_000, "it does not end: {shared:?}");
                run.advance(next, true);
            }
        }
        println!(
            "turns {turns}: {missed} missed, {stalled} batches stood still, {demoted} were demoted in the end"
        );
        assert!(missed > 50 && stalled > 50 && demoted > 20, "overruns hardly ever do harm: {missed}");
    }
}

/// One short run in which `choices` decides all: who sends, who leaves, once, and comes back, what is read late, and whether a batch
/// is quick or runs over by all that is left of the margin. Every third tick a stranger comes to each service.
fn choose_all(shared: &Shared, margin: u64, ticks: u64, choices: &Rc<RefCell<Choices>>) {
    let (times, late) = (Rc::clone(choices), u64::from(shared.late));
    let choose = |options: u64| choices.borrow_mut().choose(options);
    let stalls = shared.stall > 0;
    let mut run =
        Run::new(shared, margin, move |_, bound| match times.borrow_mut().choose(2 - u64::from(stalls)) {
            0 if stalls => bound,
            0 => bound + margin,
            _ => 1.max(bound - 1),
        });
    run.margin = Some(margin);
    if stalls {
        let from = choose(ticks);
        run.stalls = vec![(from, from + u64::from(shared.stall))];
        let spared = Rc::clone(choices);
        run.spared = Box::new(move || spared.borrow_mut().choose(2) == 1);
    }
    let (mut clients, strangers) = senders(shared, &mut run);
    let mut stays = true;
    for now in 0..ticks {
        run.advance(now, true);
        for (s, &stranger) in strangers.iter().enumerate().filter(|_| now % 3 == 0) {
            run.arrive(s, stranger);
        }
        run.settle();
        for client in &mut clients {
            let Some(id) = client.id else {
                client.come_back(&mut run, shared);
                continue;
            };
            let bounds = client.spec.arrivals().expect("declared").bounds();
            // It sends all that it may, or nothing, or leaves.
            match if earliest(&client.history, bounds, now) == now {
                choose(if stays { 3 } else { 2 })
            } else {
                1
            } {
                0 => {
                    let read = now + if late > 0 { late * choose(2) } else { 0 };
                    while earliest(&client.history, bounds, now) == now {
                        client.history.push(now);
                        client.unread.push((now, client.unread.last().map_or(0, |u| u.1).max(read)));
                    }
                }
                1 => {}
                _ => {
                    run.remove(client.service, id);
                    (client.id, stays) = (None, false);
                }
            }
        }
        for client in &mut clients {
            read(&mut run, client, &mut Dice(0));
        }
        run.advance(now, true);
    }
    run.drain();
    assert!(run.missed.is_empty(), "{:?} missed, margin {margin}: {shared:?}", run.missed);
    assert!(run.causes.is_empty(), "{:?}, margin {margin}: {shared:?}", run.causes);
}

#[test]
fn over_every_short_run_of_all_of_it_nothing_mandatory_is_missed() {
    for turns in [false, true] {
        let (mut dice, mut depths, count) = (Dice(4), 0, instances(4));
        for _ in 0..count {
            let late = dice.within(0, 2) as u8;
            let (shared, margin) = roomy(&mut dice, turns, late);
            depths += exhaust(2, 8_000, |ticks, choices| choose_all(&shared, margin, ticks, choices));
        }
        println!("turns {turns}: {} ticks exhausted on average", depths as f64 / count as f64);
    }
}
