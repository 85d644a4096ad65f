//! The scheduler of a pipeline keeps what admission promises: no mandatory source is missed, whatever an adversary does.
//! `WEIR_EXHAUSTIVE=n` looks at `n` systems of each kind.

mod harness;
mod oracle;
mod shared;
mod stages;

use std::cell::RefCell;
use std::rc::Rc;

use harness::choices::exhaust;
use harness::{Dice, instances};
use oracle::pipeline::Pipeline;
use oracle::{Bound, Stream};
use rt_core::{Cause, Event, LoadMonitor, MissReason, Outcome, Ran, StreamId, StreamSpec};
use stages::{Line, at, config, ns};

/// Within what time every mandatory source is answered.
fn bound(small: &Pipeline, streams: &[StreamSpec]) -> Option<u64> {
    let pipeline = config(small, 1_000_000, 1).pipeline();
    let admission = pipeline.admit(streams).ok()?;
    Some(admission.bound.as_nanos())
}

/// A small pipeline, what its stream declares, and the least deadline that is admitted.
fn drawn(dice: &mut Dice, late: u8) -> (Pipeline, StreamSpec, u64) {
    loop {
        let small = Pipeline::draw(dice, late);
        let spec = shared::spec(&small.stream);
        // Deadlines that no source could meet are refused with the configuration.
        if let Some(bound) = bound(&small, std::slice::from_ref(&spec)) {
            return (small, spec, bound);
        }
    }
}

/// Every way in which sources may come in so many ticks within the declaration, and one that nothing is promised for in each,
/// where batches take as long and results become as many as they may. With `restarts` the client gives the stream up before any of
/// these ticks, or does not, and the next one may send what is left of the declaration.
fn never_misses(late: u8, seed: u64, count: usize, runs: u64, restarts: bool) {
    let mut dice = Dice(seed);
    let (mut ticks, mut longest, mut begun_anew) = (0, 0, 0);
    for _ in 0..count {
        let (small, spec, deadline) = drawn(&mut dice, late);
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
    never_misses(0, 11, instances(40), 20_000, false);
}

#[test]
fn no_mandatory_source_is_missed_whenever_streams_begin_anew() {
    never_misses(0, 12, instances(40), 20_000, true);
}

/// Sources as they may come within the declaration, most of them in bursts.
struct Bursts {
    window: (u64, u64),
    recent: Vec<u64>,
}

impl Bursts {
    fn of(stream: &Stream) -> Self {
        let Bound::Window { count, length } = stream.bounds[0] else { panic!("a window") };
        Self { window: (count.into(), length.into()), recent: Vec::new() }
    }

    /// How many come now.
    fn next(&mut self, now: u64, dice: &mut Dice, eager: u64) -> u64 {
        let (count, length) = self.window;
        self.recent.retain(|&came| now - came < length);
        let room = count - self.recent.len() as u64;
        let come = if dice.within(0, 9) < eager {
            room
        } else {
            dice.within(0, 2 * room) / 2 * (dice.within(0, 3) / 3)
        };
        self.recent.extend(std::iter::repeat_n(now, come as usize));
        come
    }
}

/// Times and fan-outs of a run: mostly the longest and the most.
fn harshly(line: &mut Line, seed: u64) {
    let dice = Rc::new(RefCell::new(Dice(seed)));
    let other = Rc::clone(&dice);
    line.time = Box::new(move |_, bound| {
        let mut dice = dice.borrow_mut();
        match dice.within(0, 5) {
            0 => 1,
            1 => dice.within(1, bound),
            _ => bound,
        }
    });
    line.became = Box::new(move |_, most| {
        let mut dice = other.borrow_mut();
        if dice.within(0, 5) == 0 { dice.within(0, u64::from(most)) as u32 } else { most }
    });
}

/// Clients give streams up with whatever of them waits and runs, promised or not, and others have them: all that is cancelled is what
/// they left, each client's account begins anew, and what the new ones send is answered in time.
#[test]
fn streams_that_begin_anew_break_no_promise() {
    let mut dice = Dice(81);
    let (mut anew, mut cancelled, mut served) = (0, 0, 0);
    for seed in 0..instances(400) as u64 {
        let (small, spec, alone) = drawn(&mut dice, 0);
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
        let (small, spec, deadline) = drawn(&mut dice, 0);
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
        let (small, spec, deadline) = drawn(&mut dice, 1 + (seed % 2) as u8);
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

#[test]
fn dispatch_later_than_the_guard_is_announced() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    line.late = 2;
    line.arrive(stream);
    line.drain();
    assert_eq!(line.causes, [(5, Cause::LateDispatch)], "the first batch ended at 3");
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

/// Where a stage has several workers, what comes behind a long batch is counted from an instant at which that still runs: its own
/// rule. Without it these runs miss what is promised.
#[test]
fn behind_a_long_batch_beside_another_worker_nothing_is_missed() {
    let stage =
        |parent, fan_out, workers, time| oracle::pipeline::Stage { parent, fan_out, workers, batch: 1, time };
    let stream = Stream { bounds: vec![Bound::Window { count: 1, length: 7 }], constraints: vec![(0, 1)] };
    let small = Pipeline { stages: vec![stage(None, 1, 1, 1), stage(Some(0), 2, 2, 3)], stream, late: 0 };
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
        let (small, spec, alone) = drawn(&mut dice, 0);
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
        let (small, spec, deadline) = drawn(&mut dice, 0);
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
        let (mut safe, mut ends) = (Vec::new(), Vec::new());
        for (at, event) in &line.events {
            if let Event::SafeMode(transition) = event {
                if transition.breach().is_some() {
                    safe.push(*at);
                } else {
                    ends.push(*at);
                }
            }
        }
        stays += ends.len();
        for source in line.missed() {
            missed += 1;
            let (at, _) = source.ended.expect("ended");
            let began = safe.iter().filter(|&&began| began <= at).max();
            let ended = ends.iter().filter(|&&ended| ended <= source.came).max();
            assert!(
                began.is_some() && began >= ended,
                "seed {seed}, {small:?}: {source:?} beside {safe:?} {ends:?}"
            );
        }
    }
    println!("{stays} stays in safe mode, {missed} missed in them");
    assert!(stays > 100 && missed > 100);
}

/// Two stages, of so many workers and of one: 3 ns and 2 ns; a source becomes up to two requests.
fn two_stages(deadline: u64, workers: usize) -> Line {
    let stage =
        |parent, fan_out, workers, time| oracle::pipeline::Stage { parent, fan_out, workers, batch: 1, time };
    let stream = Stream { bounds: vec![Bound::Window { count: 1, length: 10 }], constraints: vec![(0, 1)] };
    let small =
        Pipeline { stages: vec![stage(None, 1, workers, 3), stage(Some(0), 2, 1, 2)], stream, late: 0 };
    let mut line = Line::new(config(&small, deadline, 20));
    line.became = Box::new(|_, most| most);
    line
}

fn one_in(length: u8) -> StreamSpec {
    shared::spec(&Stream { bounds: vec![Bound::Window { count: 1, length }], constraints: vec![(0, 1)] })
}

#[test]
fn a_source_is_answered_when_all_that_it_became_is() {
    let mut line = two_stages(20, 1);
    let stream = line.add(&one_in(10));
    line.arrive(stream);
    line.drain();
    assert_eq!(line.sources[0].ended, Some((7, Outcome::Served)));
    // None at all is an answer too.
    line.became = Box::new(|_, _| 0);
    line.advance_to(10);
    line.arrive(stream);
    line.drain();
    assert_eq!(line.sources[1].ended, Some((13, Outcome::Served)));
}

#[test]
fn a_source_that_can_no_longer_be_answered_ends_at_once_with_all_that_waits_of_it() {
    let mut line = two_stages(9, 2);
    let other = line.add(&StreamSpec::best_effort());
    line.lenient = true;
    (0..2).for_each(|_| _ = line.arrive(other));
    line.drain();
    // Both have passed the first stage at 3. The first takes the second from 3 to 7; then one half of the other would be
    // answered by 9, and from 8 on it is plain that the other half would not.
    assert_eq!(line.sources[0].ended, Some((7, Outcome::Served)));
    assert_eq!(line.sources[1].ended, Some((8, Outcome::Missed(MissReason::Expired))));
}

#[test]
fn what_is_beyond_the_fan_out_is_dropped_and_suspends_the_promise_to_its_stream_alone() {
    let mut line = two_stages(30, 1);
    let [busy, calm] = [0; 2].map(|_| line.add(&one_in(20)));
    line.became = Box::new(|_, most| most + 3);
    line.arrive(busy);
    line.advance_to(3);
    assert_eq!(line.causes, [(3, Cause::FanOutExcess)]);
    assert_eq!(line.scheduler.waiting(1), 1, "two of five, of which one runs");
    let first = line.scheduler.first();
    let alarm = first.suspension(busy).expect("suspended");
    assert_eq!((alarm.evidence.limit, alarm.evidence.seen, alarm.evidence.window), (2, 5, 1));
    assert_eq!(first.suspension(calm), None);
    assert!(!first.safe_mode().state().is_suspended());
    line.became = Box::new(|_, most| most);
    line.arrive(calm);
    line.drain();
    assert!(line.sources.iter().all(|s| s.ended.is_some_and(|(_, o)| o == Outcome::Served)));
    line.advance_to(60);
    assert_eq!(line.scheduler.first().suspension(busy), None, "and it ends");
}

#[test]
fn a_batch_that_runs_over_at_any_stage_is_told_with_its_stage() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    line.time = Box::new(|stage, bound| if stage == 1 { bound + 4 } else { bound });
    line.arrive(stream);
    line.advance_to(9);
    assert_eq!(line.causes, [(6, Cause::ServiceOverrun)], "one after it was due, before it ends");
    let alarm = line.scheduler.first().safe_mode().state().alarm.expect("safe mode");
    assert_eq!((alarm.evidence.limit, alarm.evidence.window), (2, 1));
    line.drain();
    assert_eq!(line.sources[0].ended, Some((15, Outcome::Served)));
}

/// How long a batch spends outside its engine is known of all stages, as it is of a scheduler by itself.
#[test]
fn the_worst_delays_are_those_of_all_stages() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    line.arrive(stream);
    line.advance_to(4);
    line.running[1][0] = None;
    line.scheduler.handle_completion(at(5), (1, 0), Ran::Done(ns(1)), |_, _| 0);
    assert_eq!(line.scheduler.first().worst_delays(), (ns(0), ns(1)));
}

#[test]
fn a_worker_that_fails_or_is_lost_costs_the_sources_that_it_ran() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    line.arrive(stream);
    line.advance_to(4);
    line.end(1, 0, true);
    line.settle();
    assert_eq!(line.sources[0].ended, Some((4, Outcome::Missed(MissReason::EngineFailed))));
    assert_eq!(line.causes, [(4, Cause::WorkerLost), (4, Cause::ConstraintViolated)]);
    line.advance_to(10);
    line.arrive(stream);
    line.advance_to(14);
    line.lenient = true;
    assert!(
        line.scheduler.is_served() && line.scheduler.is_alive(1, 0) && line.scheduler.workers_alive() == 2
    );
    line.lose(1, 0);
    assert!(
        !line.scheduler.is_served() && !line.scheduler.is_alive(1, 0) && line.scheduler.workers_alive() == 1
    );
    assert_eq!(line.sources[1].ended, Some((14, Outcome::Missed(MissReason::WorkerLost))));
    // While a stage has no worker nothing can be answered.
    line.advance_to(20);
    line.arrive(stream);
    assert_eq!(line.sources[2].ended, Some((20, Outcome::Missed(MissReason::WorkerLost))));
    line.ready(1, 0);
    line.lenient = false;
    line.advance_to(60);
    line.arrive(stream);
    line.drain();
    assert_eq!(line.sources[3].ended, Some((67, Outcome::Served)));
    assert!(!line.scheduler.first().safe_mode().state().is_suspended() || line.now < 80);
}

/// What waits at any stage and has begun is cancelled, what runs ends unheard; the counts begin anew, and the promise goes on.
#[test]
fn a_stream_that_begins_anew_leaves_nothing_behind() {
    let mut line = two_stages(30, 1);
    let stream = line.add(&one_in(10));
    let other = line.add(&StreamSpec::best_effort());
    line.arrive(stream);
    line.arrive(other);
    line.advance_to(4);
    // One half runs at the second stage, one waits there, and the other stream's source runs at the first.
    assert_eq!((line.scheduler.waiting(0), line.scheduler.waiting(1)), (0, 1));
    assert_eq!((line.scheduler.waiting_in_all(), line.scheduler.open()), (1, 2));
    let fresh = line.restart(stream);
    assert_eq!(line.sources[0].ended, Some((4, Outcome::Missed(MissReason::Cancelled))));
    assert_eq!((line.scheduler.waiting_in_all(), line.scheduler.open()), (0, 1));
    assert!(line.scheduler.is_at_work(1, 0), "what runs goes on");
    assert_eq!(line.scheduler.first().stream_counts(stream), None);
    let (counts, left) = line.scheduler.first().stream_counts(fresh).expect("the fresh one");
    assert_eq!((counts.arrived, counts.missed_total(), left), (0, 0, Some(0)));
    line.advance_to(10);
    line.arrive(fresh);
    line.drain();
    assert_eq!(line.sources[2].ended, Some((17, Outcome::Served)));
    // The curve goes on: what the client before has sent counts.
    line.advance_to(21);
    line.arrive(fresh);
    let again = line.restart(fresh);
    line.arrive(again);
    assert_eq!(line.causes, [(21, Cause::ArrivalExcess)]);
}

/// While it is quiet, batches are started for mandatory requests alone, at every stage.
#[test]
fn a_quiet_pipeline_begins_nothing_that_is_not_promised() {
    let mut line = two_stages(30, 1);
    let (stream, other) = (line.add(&one_in(20)), line.add(&StreamSpec::best_effort()));
    line.lenient = true;
    line.arrive(other);
    line.advance_to(2);
    line.scheduler.set_quiet(true);
    line.arrive(other);
    line.advance_to(10);
    assert!(line.busy().is_empty(), "the first stage has ended at 3, and what it became waits");
    assert_eq!((line.scheduler.waiting(0), line.scheduler.waiting(1)), (1, 2));
    line.arrive(stream);
    line.advance_to(14);
    assert_eq!(line.busy(), [(1, 0)]);
    line.advance_to(17);
    assert_eq!(line.sources[2].ended, Some((17, Outcome::Served)));
    line.scheduler.set_quiet(false);
    line.settle();
    line.drain();
    assert!(line.sources.iter().all(|s| s.ended.is_some_and(|(_, o)| o == Outcome::Served)));
}

/// A source is ruled out as soon as it could not pass the first stage in what the least time behind leaves of the deadline.
#[test]
fn a_source_is_ruled_out_by_the_deadline_of_the_whole() {
    let mut line = two_stages(30, 1);
    let (stream, other) = (line.add(&one_in(20)), line.add(&StreamSpec::best_effort()));
    line.advance_to(100);
    let ruled_out = |line: &Line, id, sent| line.scheduler.is_ruled_out(at(line.now), id, at(sent));
    // Behind the first stage lie 2 at least.
    assert_eq!([71, 72, 73].map(|sent| ruled_out(&line, other, sent)), [true, true, false]);
    assert!(!ruled_out(&line, stream, 71), "what is promised is always taken in");
    // Eight before it take 24 of the 28.
    (0..9).for_each(|_| _ = line.arrive(other));
    let last = line.add(&StreamSpec::best_effort());
    assert!(ruled_out(&line, other, 100));
    assert!(!ruled_out(&line, last, 100), "another one gives way to who had none");
    line.restart(other);
    assert!(!ruled_out(&line, last, 98));
    assert!(ruled_out(&line, other, 100), "nobody has it");
}

#[test]
fn more_sources_than_are_warned_of_are_told() {
    let mut line = two_stages(30, 2);
    let stream = line.add(&one_in(4));
    let monitor = LoadMonitor::new(ns(64)).expect("a window");
    line.scheduler.set_rate_warning(Some((monitor, 3)));
    for tick in 0..5 {
        line.advance_to(4 * tick);
        line.arrive(stream);
        let alarm = line.scheduler.first().safe_mode().state().alarm.map(|alarm| alarm.cause);
        assert_eq!(alarm, (tick >= 3).then_some(Cause::RateHigh));
    }
    assert!(line.scheduler.rate_seen_per_s(at(line.now)).is_some_and(|rate| rate > 0.0));
}

#[test]
fn a_stream_that_leaves_takes_its_sources_with_it() {
    let mut line = two_stages(30, 1);
    let [gone, stays] = [0; 2].map(|_| line.add(&one_in(20)));
    line.arrive(gone);
    line.arrive(stays);
    line.advance_to(4);
    line.remove(gone);
    line.drain();
    assert_eq!(line.sources[0].ended, Some((4, Outcome::Missed(MissReason::Cancelled))));
    assert_eq!(line.sources[1].ended.map(|(_, o)| o), Some(Outcome::Served));
}
