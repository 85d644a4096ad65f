//! The scheduler of a pipeline keeps what admission promises: no mandatory source is missed, whatever an adversary does.
//! `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems of each kind.

use std::cell::RefCell;
use std::rc::Rc;

use rt_core::{MissReason, Outcome, StreamId, StreamSpec};

use crate::harness::choices::exhaust;
use crate::harness::{Dice, instances};
use crate::oracle::pipeline::Pipeline;
use crate::oracle::{Bound, Stream};
use crate::stages::draw::{Bursts, Draw, bound, drawn, drawn_by, harshly, tree_or_graph};
use crate::stages::{Line, config};
use crate::{oracle, shared, stages};

/// Every way in which sources may come in so many ticks within the declaration, and one that nothing is promised for in each,
/// where batches take as long and results become as many as they may. With `restarts` the client gives the stream up before any of
/// these ticks, or does not, and the next one may send what is left of the declaration.
fn never_misses(draw: Draw, seed: u64, count: usize, runs: u64, restarts: bool) {
    let mut dice = Dice(seed);
    let (mut ticks, mut longest, mut begun_anew) = (0, 0, 0);
    for _ in 0..count {
        let (small, spec, deadline) = drawn_by(draw, &mut dice, 0);
        let Bound::Window { count, length } = small.stream.bounds[0] else { panic!("a window") };
        let (mut all, mut worst) = (0, 0);
        ticks += exhaust(1, runs, |ticks, choices| {
            let mut line = Line::new(config(&small, deadline, 1_000));
            let mut promised = line.add(&spec);
            let other = line.add(&StreamSpec::best_effort());
            let mut recent: Vec<u64> = Vec::new();
            for tick in 0..ticks {
                line.advance_to(tick);
                let open = line.sources.iter().any(|s| s.ended.is_none() && s.stream == promised);
                if restarts && open && choices.borrow_mut().choose(2) == 1 {
                    promised = line.restart(promised);
                    begun_anew += 1;
                }
                // One that nothing is promised for comes before, or behind.
                let optional = choices.borrow_mut().choose(2) == 1;
                if optional {
                    line.arrive(other);
                }
                recent.retain(|&came| tick - came < u64::from(length));
                let room = u64::from(count) - recent.len() as u64;
                let come = choices.borrow_mut().choose(room + 1);
                for _ in 0..come {
                    line.arrive(promised);
                    recent.push(tick);
                }
            }
            line.drain();
            assert!(line.missed().is_empty(), "{small:?} within {deadline}: {:?}", line.missed());
            assert_eq!(line.causes, [], "{small:?}");
            let took = |s: &stages::Source| s.ended.map_or(0, |(at, _)| at - s.came);
            let of = line.sources.iter().filter(|s| s.mandatory).map(took);
            worst = worst.max(of.max().unwrap_or(0));
            all += 1;
        });
        longest += 100 * worst / deadline;
        assert!(all > 0);
    }
    let mean = longest / count as u64;
    println!(
        "{count} pipelines, {ticks} ticks exhausted in all, streams begun anew {begun_anew} times; the longest took {mean} % of the \
         bound on average"
    );
    assert_eq!(begun_anew > 0, restarts);
}

#[test]
fn no_mandatory_source_is_missed_whatever_an_adversary_does() {
    never_misses(Pipeline::draw, 11, instances(14), 20_000, false);
    never_misses(Pipeline::draw_graph, 13, instances(14), 5_000, false);
}

#[test]
fn no_mandatory_source_is_missed_whenever_streams_begin_anew() {
    never_misses(Pipeline::draw, 12, instances(14), 20_000, true);
    never_misses(Pipeline::draw_graph, 14, instances(14), 5_000, true);
}

/// Clients give streams up with whatever of them waits and runs, promised or not, and others have them: all that is cancelled is what
/// they left, each client's account begins anew, and what the new ones send is answered in time.
#[test]
fn streams_that_begin_anew_break_no_promise() {
    let mut dice = Dice(81);
    let (mut anew, mut cancelled, mut served) = (0, 0, 0);
    for seed in 0..instances(400) as u64 {
        let (small, spec, alone) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let twice = bound(&small, &[spec.clone(), spec.clone()]);
        let mut line = Line::new(config(&small, twice.unwrap_or(alone), 1_000));
        let mut there: Vec<_> = (0..1 + usize::from(twice.is_some()))
            .map(|_| (line.add(&spec), Bursts::of(&small.stream)))
            .collect();
        let mut other = line.add(&StreamSpec::best_effort());
        harshly(&mut line, seed);
        if seed % 3 == 0 {
            line.raise_shield();
            line.longer = Some(Box::new(|_, longest| longest));
        }
        let (flood, every) = (dice.within(0, 3), dice.within(1, 12));
        for tick in 0..300 {
            line.advance_to(tick);
            for (id, bursts) in &mut there {
                if dice.within(0, every) == 0 {
                    line.account(*id);
                    *id = line.restart(*id);
                    anew += 1;
                }
                (0..bursts.next(tick, &mut dice, 8)).for_each(|_| _ = line.arrive(*id));
            }
            if dice.within(0, 4 * every) == 0 {
                line.account(other);
                other = line.restart(other);
            }
            (0..dice.within(0, flood)).for_each(|_| _ = line.arrive(other));
        }
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?}: {:?}", line.missed()[0]);
        assert_eq!(line.causes, [], "seed {seed}");
        there.iter().for_each(|(id, _)| line.account(*id));
        line.account(other);
        let mandatory = || line.sources.iter().filter(|s| s.mandatory);
        let so = |outcome| mandatory().filter(|s| s.ended.is_some_and(|(_, o)| o == outcome)).count();
        cancelled += so(Outcome::Missed(MissReason::Cancelled));
        served += so(Outcome::Served);
    }
    println!("begun anew {anew} times: {cancelled} promised sources cancelled, {served} served");
    assert!(anew > 5_000 && cancelled > 5_000 && served > 5_000);
}

#[test]
fn long_runs_miss_nothing_beside_a_flood() {
    let mut dice = Dice(21);
    let (mut served, mut optional, mut reached) = (0, 0, 0);
    for seed in 0..instances(400) as u64 {
        let (small, spec, deadline) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let mut line = Line::new(config(&small, deadline, 1_000));
        let (promised, other) = (line.add(&spec), line.add(&StreamSpec::best_effort()));
        harshly(&mut line, seed);
        let (mut bursts, flood) = (Bursts::of(&small.stream), dice.within(0, 4));
        for tick in 0..300 {
            line.advance_to(tick);
            (0..dice.within(0, flood)).for_each(|_| _ = line.arrive(other));
            (0..bursts.next(tick, &mut dice, seed % 10)).for_each(|_| _ = line.arrive(promised));
        }
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?} within {deadline}: {:?}", line.missed()[0]);
        assert_eq!(line.causes, [], "seed {seed}");
        [promised, other].into_iter().for_each(|stream| line.account(stream));
        let took = |s: &stages::Source| s.ended.filter(|_| s.mandatory).map_or(0, |(at, _)| at - s.came);
        let longest = line.sources.iter().map(took).max().unwrap_or(0);
        reached += 100 * longest / deadline;
        let of = |stream| line.scheduler.first().stream_counts(stream).expect("there").0.served;
        (served, optional) = (served + of(promised), optional + of(other));
    }
    let mean = reached / instances(400) as u64;
    println!("{served} promised and {optional} other sources served; the longest took {mean} % of the bound");
    assert!(served > 0 && optional > 0);
}

/// At every stage dispatch may be late by the guard, from one instant at which nothing mandatory waits to the next.
#[test]
fn late_dispatch_within_the_guard_costs_nothing() {
    let mut dice = Dice(51);
    let mut lates = 0;
    for seed in 0..instances(300) as u64 {
        let (small, spec, deadline) = drawn_by(tree_or_graph(seed), &mut dice, 1 + (seed % 2) as u8);
        let mut line = Line::new(config(&small, deadline, 1_000));
        let promised = line.add(&spec);
        line.late = small.late.into();
        harshly(&mut line, seed);
        let mut bursts = Bursts::of(&small.stream);
        for tick in 0..300 {
            line.advance_to(tick);
            let now = line.now;
            (0..bursts.next(now, &mut dice, 8)).for_each(|_| _ = line.arrive(promised));
        }
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?} within {deadline}: {:?}", line.missed()[0]);
        assert_eq!(line.causes, [], "seed {seed}");
        lates += line.lates;
    }
    println!("dispatch was late {lates} times");
    assert!(lates > 1_000);
}

/// Batches take as long as the shield allows, of what is promised and what is not: nothing is missed. How many were longer than a
/// full one, and whether there is a shield.
fn longer_batches(dice: &mut Dice, small: &Pipeline, deadline: u64, seed: u64) -> (usize, bool) {
    let spec = shared::spec(&small.stream);
    let mut line = Line::new(config(small, deadline, 1_000));
    let (promised, other) = (line.add(&spec), line.add(&StreamSpec::best_effort()));
    let shielded = line.raise_shield();
    harshly(&mut line, seed);
    let mut wishes = Dice(seed ^ 77);
    line.longer = Some(Box::new(move |_, longest| match wishes.within(0, 3) {
        0 => wishes.within(1, longest),
        _ => longest,
    }));
    let (mut bursts, flood, eager) = (Bursts::of(&small.stream), dice.within(0, 2), dice.within(2, 9));
    for tick in 0..300 {
        line.advance_to(tick);
        (0..dice.within(0, flood)).for_each(|_| _ = line.arrive(other));
        (0..bursts.next(tick, dice, eager)).for_each(|_| _ = line.arrive(promised));
    }
    line.drain();
    assert!(line.missed().is_empty(), "seed {seed}, {small:?} within {deadline}: {:?}", line.missed()[0]);
    assert_eq!(line.causes, [], "seed {seed}");
    (line.longs, shielded)
}

#[test]
fn batches_as_long_as_the_shield_allows_break_no_promise() {
    let mut dice = Dice(61);
    let (mut longs, mut shields) = (0, 0);
    for seed in 0..instances(600) as u64 {
        let (small, _, least) = drawn(&mut dice, 0);
        let deadline = least + dice.within(1, 8);
        let (long, shielded) = longer_batches(&mut dice, &small, deadline, seed);
        (longs, shields) = (longs + long, shields + usize::from(shielded));
    }
    println!("{longs} long batches under {shields} shields");
    assert!(longs > 5_000 && shields * 2 > instances(600));
}

/// Nothing is proved of longer batches where a stage takes the results of several others, or a source at once: there are none.
#[test]
fn with_merges_or_joins_there_is_no_shield() {
    let mut dice = Dice(62);
    let (_, _, least) = drawn(&mut dice, 0);
    for seed in 0..30 {
        let (small, _, own) = drawn_by(Pipeline::draw_graph, &mut dice, 0);
        assert_eq!(longer_batches(&mut dice, &small, 3 * own + least, seed), (0, false), "{small:?}");
    }
}

/// Where a stage has several workers, what comes behind a long batch is counted from an instant at which that still runs: its own
/// rule. Without it these runs miss what is promised.
#[test]
fn behind_a_long_batch_beside_another_worker_nothing_is_missed() {
    let stage = |parents, fan_out, workers, time| oracle::pipeline::Stage {
        parents,
        join: false,
        fan_out,
        workers,
        batch: 1,
        time,
    };
    let stream = Stream::hard(1, 7);
    let small = Pipeline { stages: vec![stage(vec![], 1, 1, 1), stage(vec![0], 2, 2, 3)], stream, late: 0 };
    let mut dice = Dice(71);
    let mut longs = 0;
    for seed in 0..instances(1_000) as u64 {
        longs += longer_batches(&mut dice, &small, 9, seed).0;
    }
    assert!(longs > 1_000, "{longs}");
}

#[test]
fn streams_that_come_and_leave_break_no_promise() {
    let mut dice = Dice(31);
    let (mut joined, mut left, mut waited, mut anew, mut longs) = (0, 0, 0, 0, 0);
    for seed in 0..instances(400) as u64 {
        let (small, spec, alone) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        // Room for a second of its kind, mostly.
        let twice = bound(&small, &[spec.clone(), spec.clone()]);
        let deadline = twice.filter(|_| seed % 3 > 0).unwrap_or(alone);
        let mut line = Line::new(config(&small, deadline, 50));
        harshly(&mut line, seed);
        let long = seed % 2 == 0;
        line.longer = long.then(|| Box::new(|_, longest| longest) as _);
        let mut there: Vec<(StreamId, Bursts)> = Vec::new();
        for tick in 0..400 {
            line.advance_to(tick);
            if there.len() < 3 && dice.within(0, 5) == 0 {
                match line.try_add(&spec) {
                    Some(id) => {
                        there.push((id, Bursts::of(&small.stream)));
                        joined += 1;
                        if long {
                            line.raise_shield();
                        }
                    }
                    None => waited += 1,
                }
            }
            for (id, bursts) in &mut there {
                (0..bursts.next(tick, &mut dice, 8)).for_each(|_| _ = line.arrive(*id));
            }
            if seed % 4 > 1 && !there.is_empty() && dice.within(0, 9) == 0 {
                let (id, _) = &mut there[0];
                *id = line.restart(*id);
                anew += 1;
            }
            if !there.is_empty() && dice.within(0, 9) == 0 {
                let (id, _) = there.swap_remove(dice.within(0, there.len() as u64 - 1) as usize);
                line.remove(id);
                left += 1;
            }
        }
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?} within {deadline}: {:?}", line.missed()[0]);
        assert_eq!(line.causes, [], "seed {seed}");
        longs += line.longs;
    }
    println!(
        "{joined} came, {left} left, {anew} began anew, {waited} times one had to wait or was refused, {longs} long batches"
    );
    assert!(anew > 1_000 && joined > left && left > 100 && waited > 100 && longs > 1_000);
}

/// Batches run over for a while, and clients come and go. What is missed is announced, safe mode ends, and from then on nothing is missed.
#[test]
fn once_safe_mode_has_ended_nothing_is_missed() {
    let mut dice = Dice(41);
    let (mut stays, mut missed) = (0, 0);
    for seed in 0..instances(300) as u64 {
        let (small, spec, deadline) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let mut line = Line::new(config(&small, deadline, 5));
        let mut promised = line.add(&spec);
        let clock = Rc::new(RefCell::new((Dice(seed), false)));
        let times = Rc::clone(&clock);
        line.time = Box::new(move |_, bound| {
            let (dice, bad) = &mut *times.borrow_mut();
            if *bad && dice.within(0, 2) == 0 { bound + dice.within(1, 20) } else { bound }
        });
        let mut bursts = Bursts::of(&small.stream);
        for tick in 0..600 {
            clock.borrow_mut().1 = tick % 300 < 60;
            line.advance_to(tick);
            if seed % 3 == 0 && dice.within(0, 19) == 0 {
                promised = line.restart(promised);
            }
            (0..bursts.next(tick, &mut dice, 8)).for_each(|_| _ = line.arrive(promised));
        }
        line.drain();
        let (harmed, ends) = line.missed_in_safe_mode();
        (missed, stays) = (missed + harmed, stays + ends);
    }
    println!("{stays} stays in safe mode, {missed} missed in them");
    assert!(stays > 100 && missed > 100);
}
