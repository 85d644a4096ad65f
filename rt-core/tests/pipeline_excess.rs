//! A stream of a pipeline that sends more than it declared: whatever becomes of its own sources, no mandatory one of anybody is missed.
//! `WEIR_EXHAUSTIVE=n` looks at `n` systems.

mod harness;
mod oracle;
mod shared;
mod stages;

use harness::{Dice, instances};
use oracle::{Bound, Stream};
use rt_core::StreamSpec;
use stages::draw::{Bursts, bound, drawn_by, harshly, tree_or_graph};
use stages::{Line, config};

/// At most so many sources in so many ticks, none to be missed.
fn strict(count: u8, length: u8) -> Stream {
    Stream { bounds: vec![Bound::Window { count, length }], constraints: vec![(0, 1)] }
}

#[test]
fn whoever_sends_too_much_makes_nobody_miss() {
    let mut dice = Dice(91);
    let (mut systems, mut excesses, mut served) = (0, 0, 0);
    for seed in 0..instances(2_000) as u64 {
        let (small, spec, _) = drawn_by(tree_or_graph(seed), &mut dice, 0);
        let others: Vec<Stream> = (0..dice.within(1, 2))
            .map(|_| {
                let count = dice.within(1, 6) as u8;
                strict(count, count * 3 + dice.within(1, 90) as u8)
            })
            .collect();
        let specs: Vec<StreamSpec> = others.iter().map(shared::spec).collect();
        let all: Vec<_> = specs.iter().cloned().chain([spec.clone()]).collect();
        let Some(deadline) = bound(&small, &all) else { continue };
        if deadline > 250 {
            continue;
        }
        systems += 1;
        let mut line = Line::new(config(&small, deadline, 1_000));
        let ids: Vec<_> = specs.iter().map(|spec| line.add(spec)).collect();
        let (wild, stranger) = (line.add(&spec), line.add(&StreamSpec::best_effort()));
        harshly(&mut line, seed);
        let mut bursts: Vec<_> = others.iter().map(Bursts::of).collect();
        let (wildness, busy) = (dice.within(1, 12), dice.within(0, 2));
        for tick in 0..300 {
            line.advance_to(tick);
            (0..dice.within(0, busy)).for_each(|_| _ = line.arrive(stranger));
            for _ in 0..dice.within(0, 2) {
                if dice.within(0, wildness) < 2 {
                    line.arrive(wild);
                }
            }
            for (id, bursts) in ids.iter().zip(&mut bursts) {
                (0..bursts.next(tick, &mut dice, 7)).for_each(|_| _ = line.arrive(*id));
            }
        }
        line.drain();
        assert!(
            line.missed().is_empty(),
            "seed {seed}, {small:?} {others:?} within {deadline}: {:?}",
            line.missed()
        );
        excesses += line.causes.len();
        served += line.sources.iter().filter(|s| s.mandatory).count();
    }
    println!("{systems} pipelines, {excesses} told, {served} mandatory served");
}

/// By hand.
#[test]
fn an_older_source_is_worked_off_behind_those_that_came_before_its_place() {
    use oracle::pipeline::{Pipeline, Stage};
    let stage = |parents, batch, time| Stage { parents, join: false, fan_out: 1, workers: 1, batch, time };
    for (g, q, w, later, at) in (3..9).flat_map(|g| {
        (1..4).flat_map(move |q| {
            (4..9).flat_map(move |w| (1..4).flat_map(move |l| (0..4).map(move |at| (g, q, w, l, at))))
        })
    }) {
        let small = Pipeline {
            stages: vec![stage(vec![], 2, 2), stage(vec![0], 1, 3)],
            stream: strict(1, w),
            late: 0,
        };
        let [wild, burst, single] = [strict(1, w), strict(g, 200), strict(q, 200)].map(|s| shared::spec(&s));
        let Some(deadline) = bound(&small, &[wild.clone(), burst.clone(), single.clone()]) else { continue };
        let mut config = config(&small, deadline, 1_000);
        config.stages[0].workers.profile = rt_core::LatencyProfile::new(&[stages::ns(2); 2]).expect("valid");
        let mut line = Line::new(config);
        line.became = Box::new(|_, most| most);
        let [single, burst, wild] = [single, burst, wild].map(|spec| line.add(&spec));
        let stranger = line.add(&StreamSpec::best_effort());
        line.advance_to(8);
        (0..2).for_each(|_| _ = line.arrive(stranger));
        line.advance_to(10);
        line.arrive(wild);
        (0..g).for_each(|_| _ = line.arrive(burst));
        line.advance_to(10 + at);
        line.arrive(wild);
        line.advance_to(10 + at + later);
        (0..q).for_each(|_| _ = line.arrive(single));
        line.advance_to(10 + u64::from(w));
        line.arrive(wild);
        line.drain();
        if line.missed().iter().any(|s| s.stream != wild) {
            println!("{g} {q} {w} {later} {at} {deadline} {:?}", line.missed());
        }
    }
}
