//! Stalls of a pipeline that are declared: no source takes longer than its bound and what they may take, whatever stands still and
//! whenever, and the promise holds through them. `WEIR_EXHAUSTIVE=n` looks at `n` times as many of each kind.

use std::rc::Rc;

use rt_core::pipeline::{PipelineConfig, PipelineError};
use rt_core::{Cause, Event, MAX_SPAN, SafeModeConfig, Stalls, StreamId, StreamSpec};

use crate::harness::choices::exhaust;
use crate::harness::{Dice, instances};
use crate::oracle::Bound;
use crate::oracle::pipeline::{Pipeline, Stalls as Lost};
use crate::stages::draw::{Bursts, Draw, drawn_by, harshly, send_and_change, tree_or_graph};
use crate::stages::{Line, at, config, ns};
use crate::{shared, stages};

/// A configuration whose promise to these streams holds through so many stalls of such a length, in the least window, and leaves
/// `more`; `None` if they never catch up.
fn stalling(
    small: &Pipeline,
    streams: &[StreamSpec],
    (count, length): (u32, u64),
    more: u64,
) -> Option<(PipelineConfig, Stalls)> {
    let bound = stages::draw::bound(small, streams).expect("below capacity, or at it");
    let lost = u64::from(count) * length;
    let with = |window| {
        let stalls = Stalls::new(count, ns(window), ns(length)).expect("valid");
        (PipelineConfig { stalls: Some(stalls), ..config(small, bound + lost + more, 1_000) }, stalls)
    };
    let admit = |window| with(window).0.pipeline().admit(streams);
    match admit(lost + 1) {
        Err(PipelineError::Stalls { needed, .. }) if needed < MAX_SPAN => {
            assert!(admit(needed.as_nanos()).is_ok(), "not admitted with what is said to be needed");
            assert!(admit(needed.as_nanos() - 1).is_err());
            Some(with(needed.as_nanos()))
        }
        Err(PipelineError::Stalls { .. }) => None,
        other => panic!("{other:?}: {small:?}"),
    }
}

/// Looks at `limit` states of each of `count` systems, in which time is lost at whatever workers, from one instant at which no mandatory
/// source is unanswered to the next, or, if `rare`, once in a window. In how many the bound and that is the truth, of how many; and in how
/// many stalls that come in half the window break it.
fn never_later_than_said(draw: Draw, (late, rare): (u8, bool), (count, limit): (usize, usize), seed: u64) {
    let mut dice = Dice(seed);
    let (mut judged, mut exact, mut too_large, mut endless, mut broken) = (0, 0, 0, 0, 0);
    while judged + too_large + endless < count {
        let small = draw(&mut dice, late);
        let bound =
            stages::draw::bound(&small, &[shared::spec(&small.stream)]).expect("below capacity, or at it");
        let length = dice.within(1, 2) as u8;
        let Some((_, declared)) = stalling(&small, &[shared::spec(&small.stream)], (1, length.into()), 0)
        else {
            endless += 1;
            continue;
        };
        // How long ago a stall was is a part of each state.
        let Ok(window) = u8::try_from(declared.window().as_nanos()) else { continue };
        if rare && window > 45 {
            continue;
        }
        let window = rare.then_some(window);
        let promised = bound + u64::from(length);
        let judge = |window| small.judge_with(Lost { length, window }, limit);
        let Some(truth) = judge(window) else {
            too_large += 1;
            continue;
        };
        assert!(
            u64::from(truth) <= promised,
            "{truth} where {promised} is promised: {length} {window:?} {small:?}"
        );
        judged += 1;
        exact += usize::from(u64::from(truth) == promised);
        if let Some(window) = window {
            let often = judge(Some((window / 4).max(length + 1)));
            broken += usize::from(often.is_some_and(|truth| u64::from(truth) > promised));
        }
    }
    println!(
        "late {late}, rare {rare}: {exact} of {judged} exact, {too_large} too large, {endless} at capacity; {broken} broken by four times as \
         many"
    );
    assert!(
        judged * 4 > count && exact * 3 > judged,
        "too many searches were cut short, or too few are exact"
    );
}

#[test]
fn no_source_takes_longer_than_said_through_stalls() {
    never_later_than_said(Pipeline::draw, (0, false), (instances(6), 60_000), 31);
}

#[test]
fn so_it_is_where_dispatch_is_late() {
    never_later_than_said(Pipeline::draw, (1, false), (instances(5), 200_000), 32);
}

#[test]
fn so_it_is_through_merges_and_joins() {
    never_later_than_said(Pipeline::draw_graph, (0, false), (instances(20), 60_000), 33);
}

#[test]
fn so_it_is_where_stalls_come_as_often_as_they_may() {
    never_later_than_said(Pipeline::draw, (0, true), (instances(3), 200_000), 34);
}

/// Every way in which sources may come in so many ticks within the declaration, one that nothing is promised for in each, and the stream
/// may begin anew; in which one stall of two ticks may begin, everything or some batches stand still in it, and each batch takes as
/// long as it may, or as long as the shield allows.
#[test]
fn no_mandatory_source_is_missed_whatever_an_adversary_does_with_a_stall() {
    let (mut dice, mut stalled, mut longs, mut ticks) = (Dice(35), 0, 0, 0);
    let count = instances(10);
    for seed in 0..count as u64 {
        let (config, small, spec) = loop {
            let (small, spec, _) = drawn_by(tree_or_graph(seed), &mut dice, 0);
            if let Some((config, _)) =
                stalling(&small, std::slice::from_ref(&spec), (1, 2), dice.within(0, 4))
            {
                break (config, small, spec);
            }
        };
        let Bound::Window { count, length } = small.stream.bounds[0] else { panic!("a window") };
        ticks += exhaust(1, 8_000, |ticks, choices| {
            let mut line = Line::new(config.clone());
            let (mut promised, other) = (line.add(&spec), line.add(&StreamSpec::best_effort()));
            let choose = |options| choices.borrow_mut().choose(options);
            let from = choose(ticks + 1);
            line.stalls = vec![(from, from + 2)];
            line.frozen = choose(2) == 1;
            if !line.frozen {
                let own = Rc::clone(choices);
                line.spared = Box::new(move |_| own.borrow_mut().choose(2) == 1);
            }
            if seed % 2 == 0 && line.raise_shield() {
                let own = Rc::clone(choices);
                line.longer = Some(Box::new(move |_, longest| longest * own.borrow_mut().choose(2)));
            }
            let (mut recent, mut pending): (Vec<u64>, Vec<(bool, u64)>) = (Vec::new(), Vec::new());
            for tick in 0..ticks {
                let may_restart = line.sources.iter().any(|s| s.ended.is_none() && s.stream == promised);
                if line.awake(tick) == tick && may_restart && choose(2) == 1 {
                    promised = line.restart(promised);
                }
                if choose(2) == 1 {
                    pending.push((false, tick));
                }
                recent.retain(|&came| tick - came < u64::from(length));
                let come = choose(u64::from(count) - recent.len() as u64 + 1);
                (0..come).for_each(|_| pending.push((true, tick)));
                recent.extend(std::iter::repeat_n(tick, come as usize));
                if line.awake(tick) == tick {
                    line.advance_to(tick);
                    for (own, came) in pending.drain(..) {
                        line.take_in(if own { promised } else { other }, came);
                    }
                }
            }
            line.advance_to(line.awake(ticks));
            for (own, came) in pending.drain(..) {
                line.take_in(if own { promised } else { other }, came);
            }
            line.drain();
            assert!(line.missed().is_empty(), "{small:?} {config:?}: {:?}", line.missed());
            assert_eq!(line.causes, [], "{small:?} {config:?}");
            (stalled, longs) = (stalled + line.stalled, longs + line.longs);
        });
    }
    println!(
        "{count} pipelines, {ticks} ticks exhausted in all: {stalled} batches stood still, {longs} were longer than a full one"
    );
    assert!(stalled > 10_000 && longs > 1_000);
}

/// Stalls as often as declared, within the window as they like: beside a flood, with dispatch that is late within the guard, streams that
/// begin anew, and batches as long as the shield allows, or longer than they may within the margin.
#[test]
fn long_runs_miss_nothing_through_stalls() {
    let (mut stalled, mut longs, mut overran, mut told, mut runs) = (0, 0, 0, 0, 0);
    for seed in 0..instances(500) as u64 {
        let (mut dice, late) = (Dice(seed), u8::from(seed % 3 == 0));
        let (small, spec, _) = drawn_by(tree_or_graph(seed), &mut dice, late);
        let declared = (dice.within(1, 3) as u32, dice.within(1, 8));
        let margin = dice.within(0, 8);
        let Some((config, stalls)) = stalling(&small, std::slice::from_ref(&spec), declared, margin) else {
            continue;
        };
        runs += 1;
        let mut line = Line::new(config.clone());
        let (mut promised, other) = (line.add(&spec), line.add(&StreamSpec::best_effort()));
        line.late = late.into();
        harshly(&mut line, seed);
        let shielded = seed % 2 == 0 && line.raise_shield();
        let overruns = !shielded && seed % 4 == 1;
        if shielded {
            line.longer = Some(Box::new(|_, longest| longest));
        } else if overruns {
            assert!(line.scheduler.set_overrun_margin(at(0), ns(margin)));
            let (mut own, often) = (Dice(seed ^ 5), dice.within(1, 12));
            line.over =
                Some(Box::new(move |left| if own.within(0, often) == 0 { own.within(0, left) } else { 0 }));
        }
        // Together in each window, or so far apart that no batch can have lost its time in either.
        let (window, length) = (stalls.window().as_nanos(), stalls.length().as_nanos());
        let together = seed % 5 == 0;
        let apart = if together { 1 } else { 2 * (length + config.deadline.as_nanos()) };
        let mut ends: Vec<u64> = vec![apart + length + dice.within(0, 50)];
        while ends.last().is_some_and(|&last| last < 600) {
            let soonest =
                ends.len().checked_sub(stalls.count() as usize).map_or(0, |i| ends[i] + window + length);
            let next = ends.last().map_or(0, |last| last + length + apart).max(soonest);
            ends.push(next + dice.within(0, 2) * dice.within(0, 9));
        }
        line.stalls = ends.iter().map(|&end| (end - length, end)).collect();
        line.frozen = seed % 7 < 3;
        let mut own = Dice(seed ^ 21);
        line.spared = Box::new(move |_| own.within(0, 3) == 0);
        let (mut bursts, flood) = (Bursts::of(&small.stream), dice.within(0, 3));
        let mut pending: Vec<(bool, u64)> = Vec::new();
        for tick in 0..600 {
            if line.awake(tick) == tick {
                line.advance_to(tick);
            }
            (0..dice.within(0, flood)).for_each(|_| pending.push((false, tick)));
            // What came a little later than this tick is sent then.
            let now = line.now.max(tick);
            (0..bursts.next(now, &mut dice, 8)).for_each(|_| pending.push((true, now)));
            if line.awake(line.now) == line.now && line.awake(tick) == tick {
                if seed % 4 == 2 && dice.within(0, 30) == 0 {
                    promised = line.restart(promised);
                }
                for (own, came) in pending.drain(..) {
                    line.take_in(if own { promised } else { other }, came.min(line.now));
                }
            }
        }
        line.advance_to(line.awake(line.now.max(600)));
        for (own, came) in pending.drain(..) {
            line.take_in(if own { promised } else { other }, came.min(line.now));
        }
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?} {config:?}: {:?}", line.missed()[0]);
        // What is late for two reasons, or may be for either of two stalls, may be told of without need.
        if !together && !overruns && late == 0 {
            assert_eq!(line.causes, [], "seed {seed}, {small:?} {config:?} {:?}", line.stalls);
        }
        told += usize::from(!line.causes.is_empty());
        (stalled, longs, overran) = (stalled + line.stalled, longs + line.longs, overran + line.overran);
    }
    println!(
        "{runs} runs: {stalled} batches stood still, {longs} were longer than a full one, {overran} took longer; {told} runs in which something \
         was told"
    );
    assert!(stalled > 10 * runs && longs > runs && overran > runs && told * 4 < runs);
}

/// Streams come, leave and begin anew while time is lost, with batches as long as the shield allows; beside every other one another
/// sends more than it declared.
#[test]
fn who_comes_and_goes_beside_stalls_breaks_no_promise() {
    let (mut dice, mut joined, mut waited, mut stalled, mut longs, mut told) = (Dice(36), 0, 0, 0, 0, 0);
    for seed in 0..instances(200) as u64 {
        let (small, spec, _) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let both = [spec.clone(), spec.clone()];
        let twice = stages::draw::bound(&small, &both).is_some();
        let asked = if twice && seed % 3 > 0 { &both[..] } else { &both[..1] };
        let declared = (dice.within(1, 2) as u32, dice.within(1, 6));
        let Some((config, stalls)) = stalling(&small, asked, declared, dice.within(0, 5)) else { continue };
        let mut line = Line::new(PipelineConfig { safe_mode: short_safe_mode(), ..config });
        harshly(&mut line, seed);
        line.longer = Some(Box::new(|_, longest| longest));
        let step = stalls.window().as_nanos() + stalls.length().as_nanos();
        let ends = (1..).map(|i| step * i).take_while(|&end| end < 900);
        line.stalls = ends.map(|end| (end - stalls.length().as_nanos(), end)).collect();
        let (mut there, mut own): (Vec<(StreamId, Bursts)>, _) = (Vec::new(), Dice(seed ^ 9));
        let (wild, wildness) = ((seed % 2 == 1).then(|| line.add(&spec)), own.within(2, 30));
        for tick in 0..900 {
            line.advance_to(tick);
            if let Some(wild) = wild.filter(|_| own.within(0, wildness) == 0) {
                (0..own.within(1, 4)).for_each(|_| _ = line.arrive(wild));
            }
            if there.len() < 3 && dice.within(0, 5) == 0 {
                match line.try_add(&spec) {
                    Some(id) => {
                        there.push((id, Bursts::of(&small.stream)));
                        _ = seed % 2 == 0 && line.raise_shield();
                    }
                    None => waited += 1,
                }
                joined = joined.max(there.len());
            }
            send_and_change(&mut line, &mut there, (tick, 15), &mut dice);
        }
        line.drain();
        assert!(
            line.missed().is_empty(),
            "seed {seed}, {small:?}, {:?}: {:?}",
            line.config,
            line.missed()[0]
        );
        let of_its_own = |(_, event): &(u64, Event)| match event {
            Event::SafeMode(transition) => transition.breach().is_none(),
            Event::Suspension(told) => Some(told.stream) == wild,
            Event::MissesLeft { .. } => true,
        };
        let others: Vec<_> = line.events.iter().filter(|event| !of_its_own(event)).collect();
        assert!(others.is_empty(), "seed {seed}, {small:?}, {:?}: {others:?}", line.config);
        (stalled, longs, told) = (stalled + line.stalled, longs + line.longs, told + line.causes.len());
    }
    println!(
        "up to {joined} at once, {waited} times one had to wait or was refused; {stalled} batches stood still, {longs} were long, {told} times \
         one sent too much"
    );
    assert!(joined > 1 && waited > 100 && stalled > 1_000 && longs > 1_000 && told > 100);
}

/// What stalls more than is declared is announced before a promised source is missed, also while it stands still.
#[test]
fn longer_stalls_are_announced_before_they_do_harm() {
    let (mut missed, mut raised) = (0, 0);
    for seed in 0..instances(300) as u64 {
        let mut dice = Dice(seed);
        let (small, spec, _) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let length = dice.within(1, 4);
        let Some((config, _)) = stalling(&small, std::slice::from_ref(&spec), (1, length), 0) else {
            continue;
        };
        let mut line = Line::new(PipelineConfig { safe_mode: short_safe_mode(), ..config.clone() });
        let promised = line.add(&spec);
        line.stalls = (1..6).map(|i| 97 * i).map(|at| (at, at + length + dice.within(0, 12))).collect();
        let mut bursts = Bursts::of(&small.stream);
        for tick in 0..500 {
            line.advance_to(tick);
            (0..bursts.next(tick, &mut dice, 8)).for_each(|_| _ = line.arrive(promised));
        }
        line.drain();
        missed += line.missed_in_safe_mode().0;
        raised += line.causes.iter().filter(|(_, cause)| *cause == Cause::ServiceOverrun).count();
    }
    println!("{missed} missed in safe mode, raised {raised} times");
    assert!(missed > 100 && raised > 100);
}

fn short_safe_mode() -> SafeModeConfig {
    SafeModeConfig { hold: ns(5), clean: ns(5), latch: false }
}
