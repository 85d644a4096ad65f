//! A device runs the rules that its services were admitted under, and keeps what it promised, whoever else sends, comes,
//! goes or takes too long. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems of each.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use rt_core::{Cause, StreamId, StreamSpec};

use crate::harness::choices::{Choices, exhaust};
use crate::harness::{Dice, earliest, instances};
use crate::oracle::sharing::Shared;
use crate::shared::{Run, admitted, spec, streams};

/// One run: `choices` decides who sends in each tick, in what order, and how long batches take. Everybody may also send
/// what nothing is promised for.
fn run(shared: &Shared, margin: u64, ticks: u64, choices: &Rc<RefCell<Choices>>) {
    let times = Rc::clone(choices);
    let mut run = Run::new(shared, margin, move |_, bound| match times.borrow_mut().choose(2) {
        0 => bound,
        _ => 1,
    });
    let streams = streams(shared);
    let ids: Vec<_> = streams.iter().map(|(s, spec)| run.add(*s, spec.clone())).collect();
    let stranger = run.add(0, StreamSpec::best_effort());
    let mut history = vec![Vec::new(); ids.len()];
    let [first, strange] = [(); 2].map(|()| choices.borrow_mut().choose(2) == 0);
    for now in 0..ticks {
        run.advance(now, first);
        if strange {
            run.arrive(0, stranger);
            run.settle();
        }
        loop {
            let bounds = |k: usize| streams[k].1.arrivals().expect("declared").bounds();
            let open: Vec<_> =
                (0..ids.len()).filter(|&k| earliest(&history[k], bounds(k), now) == now).collect();
            let choice = if open.is_empty() { 0 } else { choices.borrow_mut().choose(open.len() as u64 + 1) };
            let Some(&k) = (choice as usize).checked_sub(1).and_then(|index| open.get(index)) else { break };
            history[k].push(now);
            run.arrive(streams[k].0, ids[k]);
            run.settle();
        }
        run.advance(now, true);
    }
    run.drain();
    assert_eq!((&run.missed[..], &run.causes[..]), (&[][..], &[][..]), "{shared:?}: {history:?}");
}

#[test]
fn over_every_short_arrival_sequence_nothing_mandatory_is_missed() {
    for turns in [false, true] {
        let mut dice = Dice(11);
        let mut depths = 0;
        let count = instances(4);
        for _ in 0..count {
            let (shared, margin) = admitted(&mut dice, turns, 0);
            depths += exhaust(2, 10_000, |ticks, choices| run(&shared, margin, ticks, choices));
        }
        println!("turns {turns}: {} ticks exhausted on average", depths as f64 / count as f64);
    }
}

/// What goes wrong in a long random run.
#[derive(Clone, Copy, Default)]
struct Trouble {
    /// One batch in so many takes so much longer than it may; never if 0.
    overruns: (u64, u64),
    /// Streams leave, and come back as soon as they may.
    churn: bool,
    /// Workers are lost, and come back.
    losses: bool,
    /// Other devices take over.
    takeovers: bool,
}

/// A stream: its service, what it declares, its number while it is there, when it sent.
type Sender = (usize, StreamSpec, Option<StreamId>, Vec<u64>);

/// Another device takes over if it may: of the same services in another order, one of which may be a new one.
fn take_over(
    run: &mut Run,
    shared: &mut Shared,
    margin: u64,
    (streams, strangers): (&mut [Sender], &mut Vec<StreamId>),
    dice: &mut Dice,
) {
    let count = strangers.len();
    let new = Some(dice.within(0, 2 * count as u64) as usize).filter(|&s| s < count);
    let of = |new: usize| streams.iter().filter(move |s| s.0 == new).filter_map(|s| s.2);
    let ended: Vec<_> = new.map_or(vec![], |new| of(new).chain([strangers[new]]).collect());
    let mut turned = shared.clone();
    turned.services.rotate_right(1);
    if run.hand_over(&turned, margin, new.map(|new| (new, &ended[..]))).is_err() {
        return;
    }
    *shared = turned;
    strangers.rotate_right(1);
    let to = |s: usize| (s + 1) % count;
    for (s, spec, id, history) in streams {
        if Some(*s) == new {
            *history = Vec::new();
            *id = Some(run.add(to(*s), spec.clone()));
        }
        *s = to(*s);
    }
    if let Some(new) = new {
        strangers[to(new)] = run.add(to(new), StreamSpec::best_effort());
    }
    run.taken_over += 1;
}

/// A long random run, in which streams mostly send as soon as they may.
fn play(shared: &Shared, margin: u64, dice: &mut Dice, trouble: Trouble) -> Run {
    let mut shared = shared.clone();
    let (mut times, (every, more)) = (Dice(dice.next()), trouble.overruns);
    let greedy = dice.within(0, 3);
    let mut run = Run::new(&shared, margin, move |_, bound| {
        let over = every > 0 && times.within(1, every) == 1;
        let kept = if times.within(0, 2) == 0 { times.within(1, bound) } else { bound };
        if over { bound + more } else { kept }
    });
    let mut streams: Vec<Sender> =
        streams(&shared).into_iter().map(|(s, spec)| (s, spec, None, Vec::new())).collect();
    let mut strangers: Vec<_> =
        (0..shared.services.len()).map(|s| run.add(s, StreamSpec::best_effort())).collect();
    for (s, spec, id, _) in &mut streams {
        *id = Some(run.add(*s, spec.clone()));
    }
    for now in 0..300 {
        run.advance(now, dice.within(0, 1) == 0);
        if trouble.losses && dice.within(0, 20) == 0 {
            let worker = dice.within(0, shared.workers as u64 - 1) as usize;
            match run.device.service(0).is_alive(worker) {
                true => run.lose(worker),
                false => run.ready(worker),
            }
        }
        if trouble.takeovers && (run.is_quiet() || dice.within(0, 30) == 0) {
            run.set_quiet(true);
            take_over(&mut run, &mut shared, margin, (&mut streams, &mut strangers), dice);
        }
        for _ in 0..dice.within(0, 3) {
            let s = dice.within(0, strangers.len() as u64 - 1) as usize;
            run.arrive(s, strangers[s]);
            run.settle();
        }
        for _ in 0..4 * streams.len() {
            let k = dice.within(0, streams.len() as u64 - 1) as usize;
            let (s, spec, id, history) = &mut streams[k];
            let bounds = spec.arrivals().expect("declared").bounds();
            let Some(stream) = *id else {
                // Nobody else asks, so what it was admitted beside is what is there, unless its former self still counts.
                let load = run.device.service(*s).load();
                let same = |other: &&StreamSpec| other.demand() == spec.demand();
                let alike =
                    shared.services[*s].streams.iter().filter(|k| self::spec(k).demand() == spec.demand());
                if load.specs().filter(same).count() < alike.count() {
                    history.clear();
                    *id = run.try_add(*s, spec.clone());
                }
                continue;
            };
            if trouble.churn && dice.within(0, 60) == 0 {
                run.remove(*s, stream);
                *id = None;
            } else if dice.within(0, 3) >= greedy.min(2) && earliest(history, bounds, now) == now {
                history.push(now);
                run.arrive(*s, stream);
                run.settle();
            }
        }
        run.advance(now, true);
    }
    (0..shared.workers).for_each(|worker| run.ready(worker));
    run.drain();
    run
}

#[test]
fn long_runs_with_strangers_and_streams_that_come_and_go_miss_nothing_mandatory() {
    for turns in [false, true] {
        let (mut dice, mut served) = (Dice(12), 0);
        for _ in 0..instances(600) {
            let (shared, margin) = admitted(&mut dice, turns, 0);
            let run = play(&shared, margin, &mut dice, Trouble { churn: true, ..Trouble::default() });
            assert_eq!((&run.missed[..], &run.causes[..]), (&[][..], &[][..]), "{shared:?}");
            served += run.served.iter().sum::<usize>();
        }
        assert!(served > 5_000, "{served} were served");
    }
}

#[test]
fn another_device_takes_over_and_nothing_mandatory_is_missed() {
    for turns in [false, true] {
        let (mut dice, mut served, mut taken_over) = (Dice(14), 0, 0);
        let count = instances(600);
        for _ in 0..count {
            let (shared, margin) = admitted(&mut dice, turns, 0);
            let churn = dice.within(0, 1) == 0;
            let run =
                play(&shared, margin, &mut dice, Trouble { churn, takeovers: true, ..Trouble::default() });
            assert_eq!((&run.missed[..], &run.causes[..]), (&[][..], &[][..]), "{shared:?}");
            served += run.served.iter().sum::<usize>();
            taken_over += run.taken_over;
        }
        println!("turns {turns}: {taken_over} takeovers, {served} served");
        assert!(served > 5_000 && taken_over > 2 * count, "{taken_over} takeovers, {served} served");
    }
}

#[test]
fn overruns_are_announced_to_all_before_anything_mandatory_is_missed() {
    for turns in [false, true] {
        let (mut dice, mut missed, mut told) = (Dice(13), 0, 0);
        for _ in 0..instances(600) {
            let (shared, margin) = admitted(&mut dice, turns, 0);
            // Within the margin too: together they may be beyond it.
            let more = dice.within(1, margin + 12);
            let trouble =
                Trouble { overruns: (25, more), churn: dice.within(0, 1) == 0, ..Trouble::default() };
            let run = play(&shared, margin, &mut dice, trouble);
            for &(at, service, suspended) in &run.missed {
                assert!(suspended, "service {service} misses at {at} without a word: {shared:?}");
            }
            let only = |&(_, _, cause): &(u64, usize, Cause)| {
                matches!(cause, Cause::ServiceOverrun | Cause::ConstraintViolated)
            };
            assert!(run.causes.iter().all(only), "{:?}", run.causes);
            missed += run.missed.len();
            told += run.causes.len();
        }
        println!("turns {turns}: {missed} missed, {told} announcements");
        assert!(missed > 50, "overruns hardly ever do harm: {missed}");
    }
}

#[test]
fn a_worker_that_is_lost_is_announced_to_all_before_anything_mandatory_is_missed() {
    let (mut dice, mut missed) = (Dice(17), 0);
    for case in 0..instances(400) {
        let (shared, margin) = admitted(&mut dice, case % 2 == 0, 0);
        let run =
            play(&shared, margin, &mut dice, Trouble { churn: true, losses: true, ..Trouble::default() });
        for &(at, service, suspended) in &run.missed {
            assert!(suspended, "service {service} misses at {at} without a word: {shared:?}");
        }
        let lost = |&(_, _, cause): &(u64, usize, Cause)| cause == Cause::WorkerLost;
        let told: HashSet<_> = run.causes.iter().filter(|told| lost(told)).map(|&(_, s, _)| s).collect();
        assert!(told.is_empty() || told.len() == shared.services.len(), "only {told:?} were told");
        missed += run.missed.len();
    }
    assert!(missed > 50, "lost workers hardly ever do harm: {missed}");
}
