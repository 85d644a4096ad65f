//! Services without background, which the refinement alone admits, while a takeover is waited for or given up and streams come and go: no
//! promise breaks, and what is waited for comes. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems.

use rt_core::{
    ArrivalBound, ArrivalCurve, Dispatch, MissReason, Outcome, Resolution, SchedulerConfig, Shield, StreamId,
    StreamSpec,
};

use crate::harness::load::{QUICK, ns, set, stretch, window};
use crate::harness::{Dice, Harness, config, earliest, instances, system};

fn stream(constraint: (u32, u32), bound: ArrivalBound) -> StreamSpec {
    let curve = ArrivalCurve::new(&[bound]).expect("one");
    StreamSpec::promised(set(constraint.0, constraint.1), curve)
}

fn closed(times: &[u64], batch: usize, workers: usize, deadline: u64, dispatch: Dispatch) -> SchedulerConfig {
    let open = config(times, batch, workers, deadline, dispatch);
    SchedulerConfig { background: false, queue: 64, safe_mode: QUICK, ..open }
}

/// What had to be served and was missed, but for what its stream left behind.
fn missed(harness: &Harness) -> Vec<Resolution> {
    let gone = |r: &Resolution| r.outcome == Outcome::Missed(MissReason::Cancelled);
    harness.mandatory_misses().into_iter().filter(|r| !gone(r)).collect()
}

/// One request in 5 ns, each up to 4 late, takes 4 of 7 ns, and every second must be served. The first need not be; were it begun when a
/// takeover has been given up, it would be in the way of the next, which may come then.
#[test]
fn what_waits_while_a_takeover_is_waited_for_is_in_nobodys_way_then() {
    let config = closed(&[4], 1, 1, 7, Dispatch::Eager);
    let spec = stream((1, 2), ArrivalBound::periodic(ns(5), ns(4)).expect("valid"));
    system(&config).admit([&spec]).expect("admitted");
    for until in 1..8 {
        let mut harness = Harness::new(config.clone(), |_, bound| bound);
        let id = harness.add(spec.clone());
        harness.scheduler.set_quiet(true);
        harness.advance_to(1);
        harness.arrive(id);
        harness.advance_to(1 + until);
        harness.scheduler.set_quiet(false);
        harness.settle();
        harness.arrive(id);
        harness.drain();
        assert_eq!((missed(&harness), harness.causes()), (vec![], vec![]), "given up after {until}");
        let counts = harness.scheduler.stream_counts(id).expect("it is there").0;
        assert_eq!((counts.served, counts.missed(MissReason::Shed)), (1, 1));
    }
}

/// Two workers that wait for two requests, of which one is enough, and two at once each 3 ns. If one is left at first, one always is.
#[test]
fn who_comes_and_who_takes_over_does_not_wait_for_full_batches() {
    let config = closed(&[1, 1], 2, 2, 10, Dispatch::FullOrLatest);
    let [spec, other] = [(2, 3), (1, 30)].map(|(count, length)| stream((0, 1), window(count, length)));
    system(&config).admit([&spec, &other]).expect("admitted");
    let mut harness = Harness::new(config.clone(), |_, bound| bound);
    let (id, leaves) = (harness.add(spec), harness.add(other.clone()));
    harness.arrive(id);
    let step = |harness: &mut Harness| {
        harness.advance_to(harness.now + 3);
        (0..2).for_each(|_| _ = harness.arrive_unpolled(id));
        harness.settle();
        harness.advance_to(harness.now + 1);
    };
    (0..9).for_each(|_| step(&mut harness));
    assert_eq!(harness.scheduler.waiting(), 1);
    harness.scheduler.remove_stream(leaves);
    harness.settle();
    let steps = (0..1_000).take_while(|_| {
        step(&mut harness);
        harness.try_add(&other, None).is_none()
    });
    assert!(steps.count() < 4, "it comes");
    // Nobody is waited for any more.
    harness.advance_to(harness.now + 3);
    harness.arrive(id);
    (0..9).for_each(|_| step(&mut harness));
    assert_eq!(harness.scheduler.waiting(), 1);
    harness.scheduler.set_quiet(true);
    harness.settle();
    let steps = (0..1_000).take_while(|_| {
        step(&mut harness);
        harness.hand_over(config.clone()).is_err()
    });
    assert!(steps.count() < 4, "it is taken over");
    assert_eq!((missed(&harness), harness.causes()), (vec![], vec![]));
}

/// Two requests at once, within 2 ns. One alone takes one, so the other may wait for it; it would not be in time behind a batch of two, and a
/// shield lets any batch take as long as a full one.
#[test]
fn no_batch_takes_longer_than_it_was_reckoned_to() {
    let config = closed(&[1, 2], 2, 1, 2, Dispatch::Eager);
    let spec = stream((0, 1), window(2, 11));
    system(&config).admit([&spec]).expect("admitted");
    let shield = Shield::new(&config.workers[0], config.deadline, spec.demand()).expect("in range");
    let mut harness = Harness::new(config, |_, bound| bound);
    let id = harness.add(spec);
    harness.scheduler.set_shield(Some(shield)).expect("made for it");
    stretch(&mut harness);
    (0..2).for_each(|_| _ = harness.arrive(id));
    harness.drain();
    assert_eq!((missed(&harness), harness.causes()), (vec![], vec![]));
}

/// A small system with the least deadline at which it is admitted, if it would not be with background.
fn draw(dice: &mut Dice) -> Option<(SchedulerConfig, Vec<StreamSpec>)> {
    let (first, batch) = (dice.within(1, 4), dice.within(1, 2) as usize);
    let times = [first, first + dice.within(0, 2)];
    let workers = dice.within(1, 2) as usize;
    let dispatch = if dice.within(0, 1) == 0 { Dispatch::Eager } else { Dispatch::FullOrLatest };
    let mut one = || {
        let k = dice.within(1, 4);
        let m = dice.within(0, k - 1);
        let bound = match dice.within(0, 3) {
            0 => ArrivalBound::periodic(ns(dice.within(2, 12)), ns(dice.within(0, 6))).expect("valid"),
            _ => window(dice.within(1, 3), dice.within(3, 20)),
        };
        stream((m as u32, k as u32), bound)
    };
    let streams: Vec<_> = (0..3).map(|_| one()).collect();
    let streams = streams[..dice.within(1, 3) as usize].to_vec();
    let admits = |config: &SchedulerConfig| system(config).admit(&streams).is_ok();
    let of = |deadline| closed(&times[..batch], batch, workers, deadline, dispatch);
    let config = (times[batch - 1]..24).map(of).find(admits)?;
    let open = SchedulerConfig { background: true, ..config.clone() };
    (!admits(&open)).then_some((config, streams))
}

/// What there was of it in all runs.
#[derive(Debug, Default)]
struct Tally {
    systems: usize,
    given_up: usize,
    taken_over: usize,
    came: usize,
    waited: usize,
    served: u64,
}

fn play(config: &SchedulerConfig, streams: &[StreamSpec], mut dice: Dice, tally: &mut Tally) {
    let (slow, mut times) = (dice.within(0, 1) == 0, Dice(dice.next()));
    let time = move |_, bound| if slow { bound } else { times.within(1, bound) };
    let mut harness = Harness::new(config.clone(), time);
    let mut ids: Vec<Option<StreamId>> = streams.iter().map(|spec| Some(harness.add(spec.clone()))).collect();
    let (mut sent, mut quiet) = (vec![Vec::new(); ids.len()], false);
    let (greedy, restless) = (dice.within(1, 9), dice.within(0, 1) == 0);
    for now in 0..80 {
        harness.advance(now, dice.within(0, 1) == 0);
        if dice.within(0, 6) == 0 {
            tally.given_up += usize::from(quiet);
            quiet = !quiet;
            harness.scheduler.set_quiet(quiet);
            harness.settle();
        }
        if quiet && dice.within(0, 3) == 0 && harness.hand_over(config.clone()).is_ok() {
            (quiet, tally.taken_over) = (false, tally.taken_over + 1);
        }
        let sends = dice.within(0, 9) < greedy;
        for (k, spec) in streams.iter().enumerate() {
            match ids[k] {
                Some(id) if restless && dice.within(0, 20) == 0 => {
                    tally.served += harness.scheduler.stream_counts(id).expect("there").0.served;
                    harness.scheduler.remove_stream(id);
                    harness.settle();
                    ids[k] = None;
                }
                None => {
                    ids[k] = harness.try_add(spec, None);
                    harness.settle();
                    sent[k].clear();
                    let count = if ids[k].is_some() { &mut tally.came } else { &mut tally.waited };
                    *count += 1;
                }
                Some(_) => {}
            }
            let bounds = spec.arrivals().expect("declared").bounds();
            while let Some(id) = ids[k].filter(|_| sends)
                && earliest(&sent[k], bounds, now) == now
                && dice.within(0, 4) > 0
            {
                sent[k].push(now);
                harness.arrive(id);
            }
        }
        harness.advance(now, true);
    }
    harness.scheduler.set_quiet(false);
    harness.scheduler.withdraw();
    harness.settle();
    harness.drain();
    let told = || format!("{config:?} {streams:?} {sent:?}");
    assert_eq!((missed(&harness), harness.causes()), (vec![], vec![]), "{}", told());
}

#[test]
fn whatever_is_waited_for_breaks_no_promise() {
    let (mut dice, mut tally, count) = (Dice(1), Tally::default(), instances(500));
    for _ in 0..count {
        let Some((config, streams)) = draw(&mut dice) else { continue };
        tally.systems += 1;
        for _ in 0..8 {
            play(&config, &streams, Dice(dice.next()), &mut tally);
        }
    }
    println!("{tally:?}");
    let Tally { systems, given_up, taken_over, came, waited, served } = tally;
    assert!(systems * 20 > count && served > systems as u64, "{systems} of {count}, {served}");
    assert!([given_up, taken_over, came, waited].iter().all(|&some| some > systems), "{tally:?}");
}
