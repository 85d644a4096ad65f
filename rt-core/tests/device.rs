//! A device runs the rules that its services were admitted under, and keeps what it promised, whoever else sends, comes,
//! goes or takes too long. `WEIR_EXHAUSTIVE=n` looks at `n` systems of each.

mod harness;
mod oracle;
mod shared;

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use harness::choices::Choices;
use harness::{Dice, earliest};
use oracle::sharing::{Service, Shared};
use oracle::{Bound, Stream};
use rt_core::sharing::{Device, DeviceConfig, DeviceError, Rule};
use rt_core::{Cause, Dispatch, Instant, Span, StreamId, StreamSpec};
use shared::{Run, admission, spec};

fn instances(default: usize) -> usize {
    std::env::var("WEIR_EXHAUSTIVE").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// A system that is admitted, and by how much a batch of it may run over.
fn admitted(dice: &mut Dice, turns: bool, late: u8) -> (Shared, u64) {
    loop {
        let shared = Shared::draw(dice, turns, late);
        if let Ok(admission) = admission(&shared) {
            let margin = admission.binding.map_or(0, |binding| binding.margin());
            return (shared, u64::try_from(margin).expect("admitted"));
        }
    }
}

/// Every stream that a system declares, with its service.
fn streams(shared: &Shared) -> Vec<(usize, StreamSpec)> {
    let of =
        |(s, service): (usize, &Service)| service.streams.iter().map(|k| (s, spec(k))).collect::<Vec<_>>();
    shared.services.iter().enumerate().flat_map(of).collect()
}

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
        let count = instances(12);
        for _ in 0..count {
            let (shared, margin) = admitted(&mut dice, turns, 0);
            let mut budget = 10_000u32;
            for ticks in 2.. {
                let choices = Rc::new(RefCell::new(Choices::default()));
                let mut more = true;
                while more && budget > 0 {
                    run(&shared, margin, ticks, &choices);
                    budget -= 1;
                    more = choices.borrow_mut().next_run();
                }
                if more {
                    depths += ticks - 1;
                    break;
                }
            }
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
                    *id = Some(run.add(*s, spec.clone()));
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

/// The service that overruns within the margin is in safe mode by itself; the others are not, and miss nothing.
#[test]
fn an_overrun_within_the_margin_is_the_matter_of_its_own_service() {
    let (mut dice, mut looked) = (Dice(14), 0);
    while looked < instances(100) {
        let (shared, margin) = admitted(&mut dice, looked % 2 == 0, 0);
        if margin == 0 {
            continue;
        }
        looked += 1;
        let mut run = Run::new(
            &shared,
            margin,
            move |service, bound| if service == 0 { bound + margin } else { bound },
        );
        let stranger = run.add(0, StreamSpec::best_effort());
        run.arrive(0, stranger);
        run.settle();
        run.advance(1_000, true);
        let causes: Vec<_> = run.causes.iter().map(|&(_, service, cause)| (service, cause)).collect();
        assert_eq!(causes, [(0, Cause::ServiceOverrun)], "{shared:?}");
    }
}

/// Two overruns within the margin are one that is not, if nothing was calm between them.
#[test]
fn the_margin_is_for_all_overruns_of_a_busy_period_together() {
    let stream =
        || Stream { bounds: vec![Bound::Window { count: 1, length: 20 }], constraints: vec![(0, 1)] };
    let service = || Service { streams: vec![stream()], batch: 1, time: 1, deadline: 5, turn: 1 };
    for turns in [false, true] {
        let services = vec![service(), service(), service()];
        let shared = Shared { services, workers: 1, longest: 1, turns, late: 0, overrun: 0 };
        let binding = admission(&shared).expect("admitted").binding.expect("something is promised");
        assert_eq!(binding.margin(), 1);
        let mut first = true;
        // A stranger's batch keeps its time, then two run over by the margin.
        let mut run = Run::new(&shared, 1, move |service, bound| {
            let kept = std::mem::take(&mut first) || service == 2;
            if kept { bound } else { bound + 1 }
        });
        let ids: Vec<_> = (0..3).map(|s| run.add(s, spec(&stream()))).collect();
        let stranger = run.add(0, StreamSpec::best_effort());
        run.arrive(0, stranger);
        run.settle();
        for (s, &id) in ids.iter().enumerate() {
            run.arrive(s, id);
            run.settle();
        }
        run.drain();
        assert!(
            !run.missed.is_empty() && run.missed.iter().all(|&(_, _, warned)| warned),
            "{:?}",
            run.missed
        );
        let told: HashSet<_> =
            run.causes.iter().filter(|c| c.2 == Cause::ServiceOverrun).map(|c| c.1).collect();
        assert_eq!(told.len(), 3, "{:?}", run.causes);
    }
}

/// Who comes later may leave less of a margin: it holds from the next calm instant on, and not while more is run over.
#[test]
fn a_smaller_margin_waits_until_no_more_than_that_is_run_over() {
    let stream =
        || Stream { bounds: vec![Bound::Window { count: 1, length: 50 }], constraints: vec![(0, 1)] };
    let service = || Service { streams: vec![stream()], batch: 1, time: 2, deadline: 20, turn: 1 };
    let services = vec![service(), service()];
    let shared = Shared { services, workers: 1, longest: 2, turns: false, late: 0, overrun: 0 };
    let mut run = Run::new(&shared, 5, |service, bound| if service == 0 { bound + 3 } else { bound });
    let own = run.add(1, spec(&stream()));
    let stranger = run.add(0, StreamSpec::best_effort());
    let told = |run: &Run| run.causes.iter().map(|&(_, service, _)| service).collect::<HashSet<_>>();
    let set = |run: &mut Run, margin| {
        run.device.set_overrun_margin(Instant::from_nanos(run.now), Span::from_nanos(margin))
    };
    run.arrive(0, stranger);
    run.settle();
    run.advance(4, true);
    // Two beyond its time, and it runs on.
    assert!(!set(&mut run, 1) && set(&mut run, 2));
    assert_eq!(told(&run), HashSet::from([0]), "its own service has been told");
    run.advance(5, true);
    assert_eq!(told(&run), HashSet::from([0, 1]), "three are more than two");
    assert!(run.missed.is_empty());
    run.advance(40, true);
    assert!(set(&mut run, 0), "all is calm");
    run.arrive(1, own);
    run.settle();
    run.advance(60, true);
    assert_eq!((run.served[1], run.missed.len()), (1, 0));
}

#[test]
fn late_dispatch_is_announced_to_all_services() {
    let mut dice = Dice(15);
    let (shared, margin) = admitted(&mut dice, false, 1);
    let mut run = Run::new(&shared, margin, |_, bound| bound);
    let stranger = run.add(0, StreamSpec::best_effort());
    for late in [1, 2] {
        run.arrive(0, stranger);
        run.now += late;
        run.settle();
        run.advance(run.now + 100, true);
        let told: Vec<_> = run.causes.iter().map(|&(_, service, cause)| (service, cause)).collect();
        let all: Vec<_> = (0..shared.services.len()).map(|s| (s, Cause::LateDispatch)).collect();
        assert_eq!(told, if late > 1 { all } else { Vec::new() });
    }
}

/// Lateness meets all services: what the one with the smallest guard cannot stand, the others have not counted on either.
#[test]
fn the_smallest_guard_is_that_of_the_device() {
    let mut dice = Dice(18);
    for turns in [false, true] {
        let (shared, margin) = admitted(&mut dice, turns, 1);
        let more: Vec<u8> = (0..shared.services.len()).map(|s| if s == 0 { 0 } else { 5 }).collect();
        let guarded = || Run::guarded(&shared, &more, margin, |_, bound| bound);
        let mut run = guarded();
        let stranger = run.add(0, StreamSpec::best_effort());
        run.arrive(0, stranger);
        run.now += 2;
        run.settle();
        let told: HashSet<_> = run.causes.iter().map(|&(_, service, _)| service).collect();
        assert_eq!(
            told.len(),
            shared.services.len(),
            "late by more than the smallest guard: {:?}",
            run.causes
        );
        let (mut run, last) = (guarded(), shared.services.len() - 1);
        let always =
            Stream { bounds: vec![Bound::Window { count: 1, length: 50 }], constraints: vec![(0, 1)] };
        let id = run.add(last, spec(&always));
        run.now = 9;
        run.arrive_sent(last, id, 6);
        let device = &run.device;
        assert_eq!(device.service(last).waiting_mandatory(), 0, "read later than the smallest guard allows");
        let why = device.service(last).suspension(id).map(|alarm| alarm.cause);
        assert_eq!(why, Some(Cause::LateDispatch));
    }
}

/// Requests are read late by up to the smallest guard, in any order among services; nothing mandatory is missed.
#[test]
fn what_is_read_late_within_the_smallest_guard_is_in_time() {
    let mut dice = Dice(19);
    let mut sent = 0;
    for case in 0..instances(600) {
        let late = 1 + (case % 2) as u8;
        let (shared, margin) = admitted(&mut dice, case % 4 < 2, late);
        let more: Vec<u8> = shared.services.iter().map(|_| dice.within(0, 4) as u8).collect();
        let mut times = Dice(dice.next());
        let mut run = Run::guarded(&shared, &more, margin, move |_, bound| match times.within(0, 2) {
            0 => 1,
            _ => bound,
        });
        let streams = streams(&shared);
        let ids: Vec<_> = streams.iter().map(|(s, spec)| run.add(*s, spec.clone())).collect();
        let stranger = run.add(0, StreamSpec::best_effort());
        let mut history = vec![Vec::new(); ids.len()];
        // Of each stream: what is sent and not read, and when it is read.
        let mut unread: Vec<Vec<(u64, u64)>> = vec![Vec::new(); ids.len()];
        for now in 0..60 {
            run.advance(now, true);
            for k in 0..ids.len() {
                let bounds = streams[k].1.arrivals().expect("declared").bounds();
                while earliest(&history[k], bounds, now) == now && dice.within(0, 3) > 0 {
                    history[k].push(now);
                    let before = unread[k].last().map_or(0, |&(_, read)| read);
                    unread[k].push((now, before.max(now + dice.within(0, late.into()))));
                    sent += 1;
                }
            }
            if dice.within(0, 5) == 0 {
                run.arrive(0, stranger);
                run.settle();
            }
            let from = dice.within(0, ids.len() as u64 - 1) as usize;
            for k in (0..ids.len()).map(|k| (k + from) % ids.len()) {
                while unread[k].first().is_some_and(|&(_, read)| read <= now) {
                    let (at, _) = unread[k].remove(0);
                    run.arrive_sent(streams[k].0, ids[k], at);
                    run.settle();
                }
            }
        }
        run.drain();
        assert!(run.missed.is_empty(), "{:?} missed, more {more:?}: {shared:?}", run.missed);
        assert!(run.causes.is_empty(), "{:?}", run.causes);
    }
    assert!(sent > 10_000, "{sent}");
}

#[test]
fn a_device_is_refused_by_service_and_field() {
    let mut dice = Dice(16);
    let (shared, _) = admitted(&mut dice, false, 0);
    let base = Run::new(&shared, 0, |_, bound| bound);
    let config = |change: fn(&mut rt_core::SchedulerConfig)| {
        let mut services: Vec<_> = (0..2).map(|s| base.device.service(s).config().clone()).collect();
        change(&mut services[1]);
        let longest = Span::from_nanos(4);
        DeviceConfig {
            rule: Rule::Earliest,
            turns: vec![1; 2],
            longest,
            overrun_margin: Span::ZERO,
            services,
        }
    };
    let refused = |change| Device::new(config(change)).map(|_| ()).expect_err("refused");
    let service = |field| DeviceError::Service { service: 1, field };
    assert_eq!(refused(|c| c.dispatch = Dispatch::FullOrLatest), service("dispatch"));
    assert_eq!(refused(|c| c.background = false), service("background"));
    assert_eq!(refused(|c| c.workers[0].count += 1), service("workers"));
    assert!(matches!(refused(|c| c.queue = 0), DeviceError::Config { service: 1, .. }));
    let none = DeviceConfig { services: Vec::new(), turns: Vec::new(), ..config(|_| {}) };
    assert_eq!(Device::new(none).map(|_| ()), Err(DeviceError::Services { count: 0 }));
}
