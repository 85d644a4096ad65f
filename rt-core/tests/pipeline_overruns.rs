//! Batches of a pipeline may take longer than they may by what the bound leaves of the deadline, all together, and no promised source is
//! late for it; what is beyond that is announced before it does harm. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems of each kind.

use std::rc::Rc;

use rt_core::{StreamId, StreamSpec};

use crate::harness::choices::exhaust;
use crate::harness::{Dice, instances};
use crate::oracle::Bound;
use crate::stages;
use crate::stages::draw::{Bursts, bound, drawn_by, harshly, send_and_change, tree_or_graph, two_stages};
use crate::stages::{Line, at, config, ns};

/// Every way in which sources may come in so many ticks within the declaration, and one that nothing is promised for in each, where
/// each batch takes as long as it may, or longer by one or by all that is left; of so many pipelines, where the scheduler is told that the
/// margin is so much `more` than it is. In how many of them a promised source is missed, or it is told that one might be, and how many
/// batches took longer.
fn exhausted(count: usize, more: u64) -> (usize, usize) {
    let (mut dice, mut harmed, mut overran) = (Dice(1), 0, 0);
    for seed in 0..count as u64 {
        let (small, spec, least) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let Bound::Window { count, length } = small.stream.bounds[0] else { panic!("a window") };
        let (margin, mut misses) = (dice.within(1, 5), false);
        exhaust(1, 10_000, |ticks, choices| {
            let mut line = Line::new(config(&small, least + margin, 1_000));
            assert!(line.scheduler.set_overrun_margin(at(0), ns(margin + more)));
            let (promised, other) = (line.add(&spec), line.add(&StreamSpec::best_effort()));
            let over = Rc::clone(choices);
            line.over = Some(Box::new(move |left| match left {
                0 => 0,
                1 => over.borrow_mut().choose(2),
                _ => [0, 1, left][over.borrow_mut().choose(3) as usize],
            }));
            let mut recent: Vec<u64> = Vec::new();
            for tick in 0..ticks {
                line.advance_to(tick);
                if choices.borrow_mut().choose(2) == 1 {
                    line.arrive(other);
                }
                recent.retain(|&came| tick - came < u64::from(length));
                let come = choices.borrow_mut().choose(u64::from(count) - recent.len() as u64 + 1);
                (0..come).for_each(|_| _ = line.arrive(promised));
                recent.extend(std::iter::repeat_n(tick, come as usize));
            }
            line.drain();
            misses |= !line.missed().is_empty() || !line.causes.is_empty();
            assert!(!misses || more > 0, "{small:?} + {margin}: {:?}, {:?}", line.missed(), line.causes);
            overran += line.overran;
        });
        harmed += usize::from(misses);
    }
    (harmed, overran)
}

/// How much too much is seen depends on how far is searched: few runs are so short and as bad as can be.
#[test]
fn whoever_uses_the_margin_up_and_whenever_nothing_is_missed_and_more_would_be_too_much() {
    let count = instances(14);
    let (_, overran) = exhausted(count, 0);
    let (harmed, _) = exhausted(count / 4, 4);
    println!("{overran} batches took longer; with four ticks more {harmed} of {} pipelines miss", count / 4);
    assert!(harmed > count / 8);
}

/// Beside a flood, and with dispatch that is late within the guard.
#[test]
fn long_runs_within_the_margin_miss_nothing() {
    let (mut overran, count) = (0, instances(500));
    for seed in 0..count as u64 {
        let (mut dice, late) = (Dice(seed), u8::from(seed % 3 == 0));
        let (small, spec, least) = drawn_by(tree_or_graph(seed), &mut dice, late);
        let margin = dice.within(1, 8);
        let mut line = Line::new(config(&small, least + margin, 1_000));
        assert!(line.scheduler.set_overrun_margin(at(0), ns(margin)));
        let (mut promised, other) = (line.add(&spec), line.add(&StreamSpec::best_effort()));
        line.late = late.into();
        harshly(&mut line, seed);
        let (mut own, often) = (Dice(seed ^ 5), dice.within(1, 12));
        line.over = Some(Box::new(move |left| match own.within(0, often) {
            0 => left,
            1 => own.within(0, left),
            _ => 0,
        }));
        let (mut bursts, flood) = (Bursts::of(&small.stream), dice.within(0, 3));
        for tick in 0..400 {
            line.advance_to(tick);
            // It may be later than that.
            let now = line.now;
            (0..dice.within(0, flood)).for_each(|_| _ = line.arrive(other));
            if seed % 4 == 0 && dice.within(0, 30) == 0 {
                promised = line.restart(promised);
            }
            (0..bursts.next(now, &mut dice, 8)).for_each(|_| _ = line.arrive(promised));
        }
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?} + {margin}: {:?}", line.missed()[0]);
        assert_eq!(line.causes, [], "seed {seed}, {small:?} + {margin}");
        overran += line.overran;
    }
    println!("{overran} batches took longer");
    assert!(overran > 20 * count);
}

/// Streams come beside overruns, which leaves less for these, and go, and begin anew.
#[test]
fn who_comes_waits_until_no_more_was_run_over_than_is_left_then() {
    let mut dice = Dice(3);
    let (mut joined, mut waited, mut overran) = (0, 0, 0);
    for seed in 0..instances(400) as u64 {
        let (small, spec, alone) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let twice = bound(&small, &[spec.clone(), spec.clone()]);
        let deadline = twice.filter(|_| seed % 3 > 0).unwrap_or(alone) + dice.within(0, 5);
        let mut line = Line::new(config(&small, deadline, 50));
        harshly(&mut line, seed);
        let (mut own, often) = (Dice(seed ^ 9), dice.within(1, 8));
        line.over =
            Some(Box::new(move |left| if own.within(0, often) == 0 { own.within(0, left) } else { 0 }));
        let mut there: Vec<(StreamId, Bursts)> = Vec::new();
        for tick in 0..400 {
            line.advance_to(tick);
            // What runs over already is more than may be left then.
            if there.len() < 3 && line.planned() == 0 && dice.within(0, 5) == 0 {
                match line.try_add(&spec) {
                    Some(id) => there.push((id, Bursts::of(&small.stream))),
                    None => waited += 1,
                }
                joined = joined.max(there.len());
            }
            send_and_change(&mut line, &mut there, (tick, 9), &mut dice);
        }
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?} within {deadline}: {:?}", line.missed()[0]);
        assert_eq!(line.causes, [], "seed {seed}");
        overran += line.overran;
    }
    println!("{waited} times one had to wait or was refused, {overran} batches took longer");
    assert!(joined > 1 && waited > 100 && overran > 5_000);
}

/// What is beyond the margin is told, by itself or with what was before, also of a batch that never ends; and once safe mode is over
/// nothing is missed.
#[test]
fn what_is_beyond_the_margin_is_announced_before_it_does_harm() {
    let mut dice = Dice(4);
    let mut missed = 0;
    for seed in 0..instances(400) as u64 {
        let (small, spec, least) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let margin = dice.within(0, 6);
        let mut line = Line::new(config(&small, least + margin, 5));
        assert!(line.scheduler.set_overrun_margin(at(0), ns(margin)));
        let promised = line.add(&spec);
        let (mut own, most) = (Dice(seed), margin + dice.within(1, 15));
        line.time = Box::new(move |_, bound| match own.within(0, 15) {
            0 => bound + own.within(1, most),
            _ => bound,
        });
        let mut bursts = Bursts::of(&small.stream);
        for tick in 0..500 {
            line.advance_to(tick);
            (0..bursts.next(tick, &mut dice, 8)).for_each(|_| _ = line.arrive(promised));
        }
        line.drain();
        missed += line.missed_in_safe_mode().0;
    }
    println!("{missed} missed in safe mode");
    assert!(missed > 100, "overruns hardly ever do harm: {missed}");
}

/// Two stages of 3 and 2 ns: alone a source takes 3 + 3 + 2 + 2·2 = 12 at most, within 15. So 3 are left for all batches together, until
/// all that was begun by the last of them has ended.
#[test]
fn the_margin_is_for_all_stages_together() {
    let run = |overs: [u64; 2]| {
        let mut line = two_stages(15, 1);
        let spec = stages::draw::one_in(10);
        let admission = line.scheduler.pipeline().admit([&spec]).expect("admitted");
        assert_eq!(admission.bound, ns(12));
        assert!(line.scheduler.set_overrun_margin(at(0), ns(3)));
        let stream = line.add(&spec);
        line.time = Box::new(move |stage, bound| bound + overs[stage]);
        line.arrive(stream);
        line.drain();
        let left = line.scheduler.overruns_left();
        // Nothing runs any more.
        line.advance_to(40);
        line.time = Box::new(|_, bound| bound);
        line.arrive(stream);
        line.drain();
        (line.causes.len(), left, line.scheduler.overruns_left())
    };
    assert_eq!(run([3, 0]), (0, ns(3), ns(3)), "the last batches kept their time, and with them it was over");
    assert_eq!(run([1, 1]).0, 0, "one each for three batches");
    assert_eq!(run([2, 1]).0, 1, "two and twice one");
    assert_eq!(run([4, 0]).0, 1, "by itself");
}
