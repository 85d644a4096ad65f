//! Sources that say when they were sent: read up to the guard later, each is answered as a whole in time, counted from its sending, whoever
//! sends, comes and goes. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems.

use std::collections::VecDeque;

use rt_core::{Cause, Event, Outcome, StreamId};

use crate::harness::{Dice, instances};
use crate::stages::draw::{Bursts, bound, drawn_by, harshly, tree_or_graph};
use crate::stages::{Line, Source, config};

/// A stream, what it may send, and what of it is sent and is to be read when.
type Client = (StreamId, Bursts, VecDeque<(u64, u64)>);

#[test]
fn what_is_read_within_the_guard_is_in_time_counted_from_its_sending() {
    let mut dice = Dice(101);
    let (mut wished, mut granted) = (0, 0);
    let (mut systems, mut read_late, mut served, mut longest, mut longs) = (0, 0, 0, 0, 0);
    for seed in 0..instances(600) as u64 {
        let late = 1 + (seed % 3) as u8;
        let (small, spec, alone) = drawn_by(tree_or_graph(seed), &mut dice, late);
        let twice = bound(&small, &[spec.clone(), spec.clone()]);
        let more = if seed % 4 == 0 { dice.within(1, 8) } else { 0 };
        let mut line = Line::new(config(&small, twice.unwrap_or(alone) + more, 1_000));
        let mut clients: Vec<Client> = (0..1 + usize::from(twice.is_some()))
            .map(|_| (line.add(&spec), Bursts::of(&small.stream), VecDeque::new()))
            .collect();
        let stranger = line.add(&rt_core::StreamSpec::best_effort());
        harshly(&mut line, seed);
        // Whoever wants its answers sooner may go without, and harms nobody else.
        line.hasty = vec![stranger];
        line.hasty.extend((seed % 5 == 0).then(|| clients[0].0));
        if more > 0 && line.raise_shield() {
            line.longer = Some(Box::new(|_, longest| longest));
        }
        let flood = dice.within(0, 2);
        for tick in 0..300 {
            line.advance_to(tick);
            for (id, bursts, unread) in &mut clients {
                for _ in 0..bursts.next(tick, &mut dice, 8) {
                    let before = unread.back().map_or(0, |&(_, read)| read);
                    let delay = dice.within(0, late.into());
                    read_late += usize::from(delay > 0);
                    unread.push_back((tick, before.max(tick + delay)));
                }
                while let Some(&(sent, read)) = unread.front()
                    && read <= tick
                {
                    unread.pop_front();
                    line.read(*id, (sent, tick));
                }
                if dice.within(0, 60) == 0 {
                    let before = std::mem::replace(id, line.restart(*id));
                    line.hasty.extend(line.hasty.contains(&before).then_some(*id));
                }
            }
            (0..dice.within(0, flood)).for_each(|_| _ = line.arrive(stranger));
        }
        line.drain();
        assert!(line.missed().is_empty(), "seed {seed}, {small:?} {:?}: {:?}", line.config, line.missed()[0]);
        // What is missed for that is told of that stream alone.
        let other = |told: &&(u64, Event)| match told.1 {
            Event::SafeMode(told) => told.breach().is_some(),
            Event::Suspension(told) => !line.hasty.contains(&told.stream),
            Event::MissesLeft { .. } => false,
        };
        let wrong = line.events.iter().find(other);
        assert!(
            wrong.is_none() && line.causes.iter().all(|told| told.1 == Cause::ConstraintViolated),
            "seed {seed}: {wrong:?}"
        );
        let hasty = |s: &&Source| s.mandatory && s.wanted < s.deadline;
        let answered = |s: &&Source| s.ended.is_some_and(|(_, o)| o == Outcome::Served);
        wished += line.sources.iter().filter(hasty).count();
        granted += line.sources.iter().filter(hasty).filter(answered).count();
        systems += 1;
        longs += line.longs;
        let took = line.sources.iter().filter(|s| s.mandatory).filter_map(|s| Some((s.came, s.ended?.0)));
        let most = took.clone().map(|(sent, ended)| ended - sent).max().unwrap_or(0);
        longest += 100 * most / line.config.deadline.as_nanos();
        served += took.count();
    }
    println!(
        "{systems} pipelines: {read_late} read late, {served} served, {longs} long batches, the longest took {} % of the deadline",
        longest / systems
    );
    assert!(granted > 100 && wished - granted > 100, "{granted} of {wished}");
    assert!(read_late > 10_000 && longs > 500);
}
