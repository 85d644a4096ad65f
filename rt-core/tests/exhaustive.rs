//! Small instances, exhausted: the admission test against an independent judge, and the real scheduler
//! over every arrival sequence of a short horizon. `WEIR_EXHAUSTIVE=n` looks at `n` instances.

mod harness;
mod oracle;

use std::cell::RefCell;
use std::rc::Rc;

use harness::{Dice, Harness, config, earliest, violates_any};
use oracle::{Bound, Instance, Mode, Step, Stream, Verdict, inequality_holds, judge};
use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Span, StreamSpec, System};

const MODES: [Mode; 4] = [
    Mode { full_or_latest: false, exact: true },
    Mode { full_or_latest: true, exact: true },
    Mode { full_or_latest: false, exact: false },
    Mode { full_or_latest: true, exact: false },
];

fn instances(default: usize) -> usize {
    std::env::var("WEIR_EXHAUSTIVE").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn small(dice: &mut Dice, low: u64, high: u64) -> u8 {
    dice.within(low, high) as u8
}

fn random_bound(dice: &mut Dice) -> Bound {
    match dice.within(0, 5) {
        0 | 1 => Bound::Periodic { period: small(dice, 1, 6), jitter: small(dice, 0, 8) },
        2 => {
            let mut list: Vec<u8> = (0..dice.within(1, 4)).map(|_| small(dice, 0, 9)).collect();
            list.push(small(dice, 4, 9));
            list.sort_unstable();
            Bound::Distances(list)
        }
        _ => Bound::Window { count: small(dice, 1, 4), length: small(dice, 1, 9) },
    }
}

fn random_stream(dice: &mut Dice) -> Stream {
    let bounds = (0..1 + dice.within(0, 4) / 4).map(|_| random_bound(dice)).collect();
    let constraint = |dice: &mut Dice| {
        let k = small(dice, 1, 5);
        (small(dice, 0, u64::from(k) - 1), k)
    };
    let constraints = (0..1 + dice.within(0, 3) / 3).map(|_| constraint(dice)).collect();
    Stream { bounds, constraints }
}

/// An instance whose load is near what its workers can do, so that neither answer is a foregone conclusion,
/// and of which at most `crowd` requests come within a deadline, so that it can be exhausted.
fn random_instance(dice: &mut Dice, crowd: u64) -> Instance {
    loop {
        let batch = dice.within(1, 3) as usize;
        let mut times = vec![small(dice, 1, 3)];
        (1..batch).for_each(|b| times.push(times[b - 1] + small(dice, 0, 1)));
        let workers = dice.within(1, 3) as usize;
        let full = u64::from(times[batch - 1]);
        let streams: Vec<_> = (0..dice.within(1, 2)).map(|_| random_stream(dice)).collect();
        let latency = small(dice, 2 * full - 1, 4 * full + 2);
        let instance = Instance { streams, times, batch, workers, latency };
        let load = |s: &Stream| {
            let (served, of) = oracle::density(&s.constraints);
            oracle::arrivals_within(s, 120) * u64::from(served) / u64::from(of)
        };
        let share =
            instance.streams.iter().map(load).sum::<u64>() * full * 100 / (120 * (workers * batch) as u64);
        let within = |s: &Stream| oracle::arrivals_within(s, u64::from(latency));
        if (40..=110).contains(&share) && instance.streams.iter().map(within).sum::<u64>() <= crowd {
            return instance;
        }
    }
}

/// One stream of "`count` per `P`", deadline `2P`: around the largest count of Theorem B.
fn systematic() -> Vec<Instance> {
    let mut all = Vec::new();
    for (workers, batch, time) in [(1, 1, 2), (1, 2, 2), (2, 1, 3), (2, 2, 2), (3, 1, 2)] {
        for constraint in [(0, 1), (1, 2), (2, 3), (1, 3), (2, 5)] {
            let (served, of) = oracle::density(&[constraint]);
            let largest = (workers * batch) as u8 * of / served;
            for count in (largest.max(2) - 1..=largest + 1).filter(|&count| count <= 5) {
                let bounds = vec![Bound::Window { count, length: time }];
                let streams = vec![Stream { bounds, constraints: vec![constraint] }];
                all.push(Instance { streams, times: vec![time; batch], batch, workers, latency: 2 * time });
            }
        }
    }
    all
}

fn spec(stream: &Stream) -> StreamSpec {
    let ns = |t: &u8| Span::from_nanos(u64::from(*t));
    let bound = |bound: &Bound| match bound {
        Bound::Window { count, length } => {
            ArrivalBound::window(u64::from(*count), ns(length)).expect("valid")
        }
        Bound::Periodic { period, jitter } => ArrivalBound::periodic(ns(period), ns(jitter)).expect("valid"),
        Bound::Distances(list) => {
            ArrivalBound::distances(&list.iter().map(ns).collect::<Vec<_>>()).expect("valid")
        }
    };
    let bounds: Vec<_> = stream.bounds.iter().map(bound).collect();
    let constraint = |&(m, k): &(u8, u8)| Constraint::any_miss(m.into(), k.into()).expect("valid");
    let constraints: Vec<_> = stream.constraints.iter().map(constraint).collect();
    let constraints = ConstraintSet::new(&constraints).expect("few");
    StreamSpec::promised(constraints, ArrivalCurve::new(&bounds).expect("few"))
}

fn admitted(instance: &Instance) -> bool {
    let config = scheduler_config(instance, Dispatch::Eager);
    let (profile, batch, workers) = (config.profile, config.batch, config.workers);
    let system = System { profile, batch, workers, latency: config.deadline };
    let specs: Vec<_> = instance.streams.iter().map(spec).collect();
    system.admit(&specs).is_ok()
}

fn scheduler_config(instance: &Instance, dispatch: Dispatch) -> rt_core::SchedulerConfig {
    let times: Vec<u64> = instance.times.iter().map(|&t| u64::from(t)).collect();
    let config = config(&times, instance.batch, instance.workers, u64::from(instance.latency), dispatch);
    rt_core::SchedulerConfig { queue: 64, streams: 2, ..config }
}

#[test]
fn admission_never_says_yes_where_a_mandatory_request_can_miss() {
    let mut dice = Dice(1);
    let mut cases = systematic();
    let random = instances(300);
    cases.extend((0..random).map(|_| random_instance(&mut dice, 8)));
    let (mut yes, mut no, mut pessimistic, mut too_large, mut states) = (0, 0, 0, 0, 0);
    for instance in &cases {
        let promised = admitted(instance);
        let mut safe = true;
        for dispatch in [false, true] {
            // Batches that take any time include those that take all of it; look at these alone if the
            // whole is too large.
            let full = Mode { full_or_latest: dispatch, exact: true };
            let any = Mode { exact: false, ..full };
            let verdict = match judge(instance, any, 120_000) {
                Verdict::TooLarge => judge(instance, full, 120_000),
                verdict => verdict,
            };
            match verdict {
                Verdict::Safe(seen) => states += seen,
                Verdict::TooLarge => {
                    too_large += 1;
                    safe = false;
                }
                Verdict::Miss(trace) => {
                    assert!(!promised, "admitted, yet one misses: {instance:?}, {full:?}: {trace:?}");
                    safe = false;
                    break;
                }
            }
        }
        yes += usize::from(promised);
        no += usize::from(!promised);
        if safe && !promised {
            pessimistic += 1;
            println!("pessimistic: {instance:?}");
        }
    }
    println!("{yes} admitted, {no} refused; pessimistic: {pessimistic} of {}", cases.len());
    println!("{states} states seen in safe instances; {too_large} searches above the limit");
    assert!(yes * 5 > cases.len() && no * 5 > cases.len(), "one answer is too rare to say anything");
    assert!(too_large * 10 < cases.len(), "too many searches were cut short");
}

#[test]
fn admission_is_the_inequality_of_the_theory() {
    let mut dice = Dice(2);
    let mut yes = 0;
    let count = instances(300) * 20;
    for _ in 0..count {
        let instance = random_instance(&mut dice, u64::MAX);
        // Every curve here repeats within lcm(1..=9) = 2520 ticks times the denominators of two words.
        let holds = inequality_holds(&instance, 4_000);
        assert_eq!(admitted(&instance), holds, "{instance:?}");
        yes += usize::from(holds);
    }
    assert!(yes * 5 > count && yes * 5 < 4 * count, "{yes} of {count}");
}

/// Goes through every sequence of choices: run by run, the last choice that can still rise does.
#[derive(Default)]
struct Choices {
    made: Vec<(u64, u64)>,
    at: usize,
}

impl Choices {
    /// One of `0..options`.
    fn choose(&mut self, options: u64) -> u64 {
        if self.at == self.made.len() {
            self.made.push((0, options));
        }
        let (choice, of) = self.made[self.at];
        assert_eq!(of, options, "a run must only depend on its choices");
        self.at += 1;
        choice
    }

    /// Sets up the next run; false after the last one.
    fn next_run(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, options)) = self.made.pop() {
            if choice + 1 < options {
                self.made.push((choice + 1, options));
                return true;
            }
        }
        false
    }
}

/// One run of the real scheduler: `choices` decides the arrivals of `ticks` ticks, the order within each,
/// and (unless `exact`) how long batches take.
fn run(instance: &Instance, mode: Mode, ticks: u64, choices: &Rc<RefCell<Choices>>, promised: bool) {
    let dispatch = if mode.full_or_latest { Dispatch::FullOrLatest } else { Dispatch::Eager };
    let times = Rc::clone(choices);
    let service = move |_, bound| if mode.exact { bound } else { 1 + times.borrow_mut().choose(bound) };
    let mut harness = Harness::new(scheduler_config(instance, dispatch), service);
    let specs: Vec<_> = instance.streams.iter().map(spec).collect();
    let ids: Vec<_> = specs.iter().map(|s| harness.add(s.clone())).collect();
    let mut history = vec![Vec::new(); ids.len()];
    let poll_each = choices.borrow_mut().choose(2) == 0;
    for now in 0..ticks {
        let tie = harness.next_event() == Some(now) && choices.borrow_mut().choose(2) == 1;
        harness.advance(now, !tie);
        let bounds = |s: usize| specs[s].arrivals().expect("declared").bounds();
        // Streams in any order: 0 ends the arrivals of this tick.
        loop {
            let open: Vec<_> =
                (0..ids.len()).filter(|&s| earliest(&history[s], bounds(s), now) == now).collect();
            let choice = if open.is_empty() { 0 } else { choices.borrow_mut().choose(open.len() as u64 + 1) };
            let Some(index) = (choice as usize).checked_sub(1) else { break };
            history[open[index]].push(now);
            match poll_each {
                true => harness.arrive(ids[open[index]]),
                false => harness.arrive_unpolled(ids[open[index]]),
            };
        }
        harness.settle();
        harness.advance_to(now);
    }
    harness.drain();
    for (&id, stream) in ids.iter().zip(&specs) {
        harness.account(id);
        let kept = !violates_any(&harness.outcomes(id), stream.constraints());
        assert!(kept || !promised, "violated: {instance:?} {mode:?} arrivals {history:?}");
    }
    if promised {
        let missed = harness.mandatory_misses();
        assert!(missed.is_empty(), "{missed:?}: {instance:?} {mode:?} arrivals {history:?}");
        assert_eq!(harness.causes(), [], "{instance:?} {mode:?} arrivals {history:?}");
    }
}

#[test]
fn the_scheduler_keeps_its_promise_over_every_short_arrival_sequence() {
    let mut dice = Dice(3);
    let (mut runs, mut depths, mut searches, mut promises) = (0u64, 0, 0, 0);
    let count = instances(300) / 5;
    for _ in 0..count {
        let instance = random_instance(&mut dice, 6);
        let promised = admitted(&instance);
        promises += u64::from(promised);
        for mode in MODES {
            let mut budget: u64 = if promised { 30_000 } else { 1_000 };
            // Deeper and deeper, until the budget of runs is used up.
            for ticks in 2.. {
                let choices = Rc::new(RefCell::new(Choices::default()));
                let mut more = true;
                while more && budget > 0 {
                    run(&instance, mode, ticks, &choices, promised);
                    (runs, budget) = (runs + 1, budget - 1);
                    more = choices.borrow_mut().next_run();
                }
                if more {
                    depths += ticks - 1;
                    break;
                }
            }
            searches += 1;
        }
    }
    println!(
        "{runs} runs, {promises} promises, ticks exhausted on average {:.1}",
        depths as f64 / searches as f64
    );
    assert!(promises * 5 > count as u64, "too few promises to say anything");
}

#[test]
fn the_judge_finds_the_known_misses() {
    let stream =
        |count, length| Stream { bounds: vec![Bound::Window { count, length }], constraints: vec![(0, 1)] };
    let instance = |count, length, latency| Instance {
        streams: vec![stream(count, length)],
        times: vec![3],
        batch: 1,
        workers: 1,
        latency,
    };
    // The example of the theory page: refused, and yet always in time.
    let page = instance(2, 6, 7);
    assert!(!admitted(&page));
    for mode in MODES {
        assert!(matches!(judge(&page, mode, 100_000), Verdict::Safe(_)));
    }
    // Two at once, where only one fits into the deadline; and two of six, where a third is needed.
    let Verdict::Miss(trace) = judge(&instance(2, 6, 5), MODES[0], 100_000) else { panic!("must miss") };
    assert!(trace.starts_with(&[Step::Arrive(0)]));
    assert!(matches!(judge(&instance(3, 6, 9), MODES[0], 100_000), Verdict::Miss(_)));
}
