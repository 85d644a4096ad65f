//! A stream of a pipeline that sends more than it declared makes nobody else miss anything, whoever comes and goes beside it, with batches
//! as long as the shield allows or longer than they may within the margin. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems.

use rt_core::{Cause, LatencyProfile, StreamSpec};

use crate::harness::{Dice, instances};
use crate::oracle::Stream;
use crate::oracle::pipeline::{Pipeline, Stage};
use crate::shared;
use crate::stages::draw::{Bursts, bound, drawn_by, harshly, send_and_change, tree_or_graph};
use crate::stages::{Line, at, config, ns};

/// At most so many sources in so many ticks, none to be missed.
fn strict(count: u8, length: u8) -> Stream {
    Stream::hard(count, length)
}

#[test]
fn whoever_sends_too_much_makes_nobody_miss() {
    let mut dice = Dice(91);
    let (mut systems, mut told, mut served, mut longs, mut overran) = (0, 0, 0, 0, 0);
    for seed in 0..instances(1_500) as u64 {
        let (small, spec, _) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let steady = strict(dice.within(1, 6) as u8, dice.within(30, 120) as u8);
        let all = [shared::spec(&steady), spec.clone(), spec.clone()];
        let more = dice.within(0, 6);
        let Some(deadline) = bound(&small, &all).filter(|&bound| bound < 250).map(|bound| bound + more)
        else {
            continue;
        };
        systems += 1;
        let mut line = Line::new(config(&small, deadline, 50));
        let [steady_id, wild] = [&all[0], &spec].map(|spec| line.add(spec));
        let stranger = line.add(&StreamSpec::best_effort());
        let mut there = vec![(line.add(&spec), Bursts::of(&small.stream))];
        harshly(&mut line, seed);
        if seed % 3 == 0 {
            line.raise_shield();
            line.longer = Some(Box::new(|_, longest| longest));
        } else if seed % 3 == 1 {
            assert!(line.scheduler.set_overrun_margin(at(0), ns(more)));
            let mut own = Dice(seed ^ 5);
            line.over =
                Some(Box::new(move |left| if own.within(0, 5) == 0 { own.within(0, left) } else { 0 }));
        }
        let mut bursts = Bursts::of(&steady);
        let (wildness, busy) = (dice.within(1, 30), dice.within(0, 2));
        for tick in 0..300 {
            line.advance_to(tick);
            (0..dice.within(0, busy)).for_each(|_| _ = line.arrive(stranger));
            (0..dice.within(0, wildness) / wildness.max(2)).for_each(|_| _ = line.arrive(wild));
            if tick % 7 == 0 {
                (0..dice.within(0, 2)).for_each(|_| _ = line.arrive(wild));
            }
            (0..bursts.next(tick, &mut dice, 7)).for_each(|_| _ = line.arrive(steady_id));
            if there.is_empty() && line.planned() == 0 {
                there.extend(line.try_add(&spec).map(|id| (id, Bursts::of(&small.stream))));
            }
            send_and_change(&mut line, &mut there, (tick, 30), &mut dice);
        }
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?} within {deadline}: {:?}", line.missed());
        assert!(line.causes.iter().all(|(_, cause)| *cause == Cause::ArrivalExcess), "{:?}", line.causes);
        (told, longs, overran) = (told + line.causes.len(), longs + line.longs, overran + line.overran);
        served += line.sources.iter().filter(|source| source.mandatory).count();
    }
    println!(
        "{systems} pipelines: {told} told, {served} served, {longs} long batches, {overran} took longer"
    );
    assert!(
        systems > 500 && told > systems && longs > systems && overran > systems,
        "{told} {longs} {overran}"
    );
}

/// By hand, two stages: two requests in 2 ns, and one in 3. At 10 come one source of a stream of one in 5 and six of another; two of a
/// third follow at 11, to be answered by 45. The first sends one too many then and the next at 15. Were that one worked off in the place of
/// its later one, it would go before the two at the second stage, where only what came before them is counted: 31 + 2·3 and 3 more.
#[test]
fn a_source_that_was_one_too_many_goes_before_no_other_at_the_next_stage() {
    let stage = |parents, batch, time| Stage { parents, join: false, fan_out: 1, workers: 1, batch, time };
    let streams = [strict(1, 5), strict(6, 200), strict(2, 200)];
    let stages = vec![stage(vec![], 2, 2), stage(vec![0], 1, 3)];
    let small = Pipeline { stages, stream: streams[0].clone(), late: 0 };
    let specs = streams.map(|stream| shared::spec(&stream));
    assert_eq!(bound(&small, &specs), Some(34));
    let mut config = config(&small, 34, 1_000);
    config.stages[0].workers.profile = LatencyProfile::new(&[ns(2); 2]).expect("valid");
    let mut line = Line::new(config);
    line.became = Box::new(|_, most| most);
    let [pair, burst, wild] = [2, 1, 0].map(|stream: usize| line.add(&specs[stream]));
    let stranger = line.add(&StreamSpec::best_effort());
    // Both stages have just begun something else.
    line.advance_to(8);
    (0..2).for_each(|_| _ = line.arrive(stranger));
    line.advance_to(10);
    line.arrive(wild);
    (0..6).for_each(|_| _ = line.arrive(burst));
    line.arrive(wild);
    line.advance_to(11);
    (0..2).for_each(|_| _ = line.arrive(pair));
    line.advance_to(15);
    line.arrive(wild);
    line.drain();
    assert!(line.missed().is_empty(), "{:?}", line.missed());
    assert_eq!(line.causes, [(10, Cause::ArrivalExcess)]);
    let last =
        line.sources.iter().filter(|s| s.stream == pair).filter_map(|s| s.ended).map(|(at, _)| at).max();
    assert_eq!(last, Some(43));
}
