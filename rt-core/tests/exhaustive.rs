//! Small instances, exhausted: the admission test against an independent judge, and the real scheduler
//! over every arrival sequence of a short horizon. `WEIR_EXHAUSTIVE=n` looks at `n` times as many instances.

use std::cell::RefCell;
use std::rc::Rc;

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, LatencyProfile, LoadMonitor,
    SelectTable, Selector, Shield, Span, StreamSpec, System, Variant,
};

use crate::harness::choices::{Choices, exhaust};
use crate::harness::classes::classed;
use crate::harness::{Dice, Harness, config, earliest, instances, system, violates_any};
use crate::oracle::sample::{Scale, systematic};
use crate::oracle::theory::{
    inequality_holds, inequality_holds_for_what_is_possible, mixed_inequality_holds,
};
use crate::oracle::{Bound, Group, Instance, Judge, Mode, Step, Stream, Verdict};

const EAGER: Mode = Mode { full_or_latest: false, exact: false, background: false, shrink: false };
const LATEST: Mode = Mode { full_or_latest: true, ..EAGER };
const MODES: [Mode; 4] = [Mode { exact: true, ..EAGER }, Mode { exact: true, ..LATEST }, EAGER, LATEST];
const PAIR: Scale = Scale { streams: 2, groups: 1, crowd: 8 };

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

/// Whether admission says yes, for a rule of dispatch, to a load with or without background.
fn admitted(instance: &Instance, dispatch: Dispatch, background: bool) -> bool {
    let system = system(&scheduler_config(instance, dispatch, background));
    let specs: Vec<_> = instance.streams.iter().map(spec).collect();
    system.admit(&specs).is_ok()
}

fn dispatch(mode: Mode) -> Dispatch {
    if mode.full_or_latest { Dispatch::FullOrLatest } else { Dispatch::Eager }
}

fn scheduler_config(instance: &Instance, dispatch: Dispatch, background: bool) -> rt_core::SchedulerConfig {
    let [group] = &instance.groups[..] else { panic!("identical workers") };
    let times: Vec<u64> = group.times.iter().map(|&t| u64::from(t)).collect();
    let config = config(&times, group.batch, group.count, u64::from(instance.latency), dispatch);
    // Whether misses are spread is no matter of any promise.
    let spread = instance.latency % 2 == 1;
    rt_core::SchedulerConfig { queue: 64, streams: 3, background, spread, ..config }
}

/// What the judge says; `None` if it gives up. Batches that take any time include those that take all of it;
/// these alone are looked at if the whole is too large.
fn judged(instance: &Instance, mode: Mode) -> Option<Result<usize, Vec<Step>>> {
    let verdict = match Judge::new(mode, 120_000).run(instance) {
        Verdict::TooLarge => Judge::new(Mode { exact: true, ..mode }, 120_000).run(instance),
        verdict => verdict,
    };
    match verdict {
        Verdict::Safe(seen) => Some(Ok(seen)),
        Verdict::TooLarge => None,
        Verdict::Miss(trace) => Some(Err(trace)),
    }
}

/// Never a yes where the judge finds a miss. Returns how many of the noes are pessimistic.
fn never_a_wrong_yes(cases: &[Instance], background: bool) -> usize {
    let (mut yes, mut refined, mut pessimistic, mut too_large, mut states) = (0, 0, 0, 0, 0);
    let all = 2 * cases.len();
    for instance in cases {
        for mode in [EAGER, LATEST] {
            let mode = Mode { background, ..mode };
            let promised = admitted(instance, dispatch(mode), background);
            yes += usize::from(promised);
            refined += usize::from(promised && !admitted(instance, dispatch(mode), true));
            match judged(instance, mode) {
                None => too_large += 1,
                Some(Ok(seen)) => {
                    states += seen;
                    if !promised {
                        pessimistic += 1;
                        println!("pessimistic, {:?}: {instance:?}", dispatch(mode));
                    }
                }
                Some(Err(trace)) => {
                    assert!(!promised, "admitted, yet one misses: {instance:?}, {mode:?}: {trace:?}");
                }
            }
        }
    }
    println!("background {background}: {yes} of {all} admitted, {refined} only by the refinement");
    println!(
        "pessimistic noes: {pessimistic}; {states} states seen in safe instances; {too_large} too large"
    );
    assert!(yes * 5 > all && (all - yes) * 5 > all, "one answer is too rare to say anything");
    assert!(too_large * 10 < all, "too many searches were cut short");
    pessimistic
}

#[test]
fn admission_never_says_yes_where_a_mandatory_request_can_miss() {
    let mut dice = Dice(1);
    let mut cases = systematic();
    cases.extend((0..instances(100)).map(|_| PAIR.draw(&mut dice)));
    let pessimistic = never_a_wrong_yes(&cases, false);
    assert!(pessimistic * 30 <= cases.len() * 2, "{pessimistic} pessimistic noes");
}

/// Requests that no curve bounds take nothing from a promise; and under them its noes are hardly ever
/// pessimistic, for whatever a burst finds blocked, it need not have blocked itself.
#[test]
fn admission_never_says_yes_where_background_can_make_one_miss() {
    let mut dice = Dice(4);
    let mut cases = systematic();
    cases.extend((0..instances(100)).map(|_| Scale { streams: 3, ..PAIR }.draw(&mut dice)));
    let pessimistic = never_a_wrong_yes(&cases, true);
    assert!(pessimistic * 100 <= 2 * cases.len(), "{pessimistic} pessimistic noes");
}

#[test]
fn admission_is_the_inequality_of_the_theory() {
    let mut dice = Dice(2);
    let mut yes = 0;
    let count = instances(2_000);
    for _ in 0..count {
        let instance = Scale { crowd: u64::MAX, ..PAIR }.draw(&mut dice);
        // Every curve here repeats within lcm(1..=9) = 2520 ticks times the denominators of two words.
        let holds = inequality_holds(&instance, 4_000);
        let promised = admitted(&instance, Dispatch::Eager, true);
        // Where bounds contradict each other, an instant may fail that cannot come.
        let explained = || promised && inequality_holds_for_what_is_possible(&instance, 500);
        assert!(promised == holds || explained(), "{promised}: {instance:?}");
        yes += usize::from(holds);
    }
    assert!(yes * 5 > count && yes * 5 < 4 * count, "{yes} of {count}");
}

#[test]
fn admission_of_mixed_workers_is_the_inequality_of_the_theory() {
    let mut dice = Dice(5);
    let (mut yes, count) = (0, instances(200));
    for _ in 0..count {
        let instance = Scale { groups: 2, crowd: u64::MAX, ..PAIR }.draw(&mut dice);
        let workers = instance.groups.iter().map(|group| {
            let times: Vec<u64> = group.times.iter().map(|&t| u64::from(t)).collect();
            config(&times, group.batch, group.count, 100, Dispatch::Eager).workers.remove(0)
        });
        let latency = Span::from_nanos(u64::from(instance.latency));
        let identical = System::identical(config(&[1], 1, 1, 1, Dispatch::Eager).workers.remove(0), latency);
        let system = System { workers: workers.collect(), ..identical };
        let specs: Vec<_> = instance.streams.iter().map(spec).collect();
        let (promised, holds) = (system.admit(&specs).is_ok(), mixed_inequality_holds(&instance, 4_000));
        // Where bounds contradict each other, an instant may fail that cannot come.
        let explained = || promised && !matches!(judged(&instance, EAGER), Some(Err(_)));
        assert!(promised == holds || explained(), "{promised}: {instance:?}");
        yes += usize::from(holds);
    }
    assert!(yes * 10 > count && yes * 10 < 9 * count, "{yes} of {count}");
}

/// One run of the real scheduler: `choices` decides the arrivals of `ticks` ticks, the order within each,
/// and (unless `exact`) how long batches take. Returns how many were allowed more than a full one.
fn run(
    instance: &Instance,
    mode: Mode,
    ticks: u64,
    choices: &Rc<RefCell<Choices>>,
    promised: bool,
    shield: Option<(&Shield, Option<&Selector>)>,
) -> usize {
    let times = Rc::clone(choices);
    let service = move |_, bound| if mode.exact { bound } else { 1 + times.borrow_mut().choose(bound) };
    let mut harness = Harness::new(scheduler_config(instance, dispatch(mode), shield.is_some()), service);
    let specs: Vec<_> = instance.streams.iter().map(spec).collect();
    let ids: Vec<_> = specs.iter().map(|s| harness.add(s.clone())).collect();
    if let Some((shield, selector)) = shield {
        harness.scheduler.set_shield(Some(shield.clone())).expect("made for it");
        harness.scheduler.set_selector(selector.cloned()).expect("made for it");
        let lengths = Rc::clone(choices);
        harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
            let now = Instant::from_nanos(now);
            if scheduler.selector().is_some() {
                return scheduler.granted(worker).as_nanos();
            }
            let more = scheduler.longest(now, worker).as_nanos() - bound;
            let length = bound + lengths.borrow_mut().choose(more + 1);
            assert_eq!(scheduler.prolong(now, worker, Span::from_nanos(length)), Ok(()));
            length
        }));
    }
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
    harness.longer_than(u64::from(instance.groups[0].full()))
}

/// Runs deeper and deeper until `budget` is used up. Returns how often more than a full batch was allowed, and
/// how many ticks were exhausted.
fn search(
    instance: &Instance,
    mode: Mode,
    budget: u64,
    promised: bool,
    shield: Option<(&Shield, Option<&Selector>)>,
) -> (usize, u64) {
    let mut longer = 0;
    let run = |ticks, choices: &_| longer += run(instance, mode, ticks, choices, promised, shield);
    let ticks = exhaust(2, budget, run);
    (longer, ticks)
}

#[test]
fn the_scheduler_keeps_its_promise_over_every_short_arrival_sequence() {
    let mut dice = Dice(3);
    let (mut runs, mut depths, mut searches, mut promises) = (0u64, 0, 0, 0);
    let count = instances(20);
    for _ in 0..count {
        let instance = Scale { crowd: 6, ..PAIR }.draw(&mut dice);
        for mode in MODES {
            let promised = admitted(&instance, dispatch(mode), false);
            promises += u64::from(promised);
            let budget: u64 = if promised { 30_000 } else { 1_000 };
            depths += search(&instance, mode, budget, promised, None).1;
            (runs, searches) = (runs + budget, searches + 1);
        }
    }
    println!(
        "{runs} runs, {promises} promises, ticks exhausted on average {:.1}",
        depths as f64 / searches as f64
    );
    assert!(promises * 5 > 4 * count as u64, "too few promises to say anything");
}

#[test]
fn no_batch_that_the_shield_allows_breaks_the_promise_over_every_short_arrival_sequence() {
    let mut dice = Dice(4);
    let (mut longer, mut depths, mut searches) = (0, 0, 0);
    while searches < instances(20) as u64 {
        let instance = Scale { crowd: 6, ..PAIR }.draw(&mut dice);
        if !admitted(&instance, Dispatch::Eager, true) {
            continue;
        }
        let config = scheduler_config(&instance, Dispatch::Eager, true);
        let specs: Vec<_> = instance.streams.iter().map(spec).collect();
        let load = specs.iter().filter_map(StreamSpec::demand);
        let shield = Shield::new(&config.workers[0], config.deadline, load).expect("an admitted load");
        // An adversary chooses how long batches take; then a table does, which says anything.
        let wishes: Vec<u8> = (0..12).map(|_| dice.within(0, 2) as u8).collect();
        let variant = |factor: u64| {
            let profile = &config.workers[0].profile;
            let time = |b| Span::from_nanos(profile.bound(b).as_nanos() * factor);
            let times: Vec<_> = (1..=profile.max_batch()).map(time).collect();
            Variant { profile: LatencyProfile::new(&times).expect("valid"), accuracy: factor as f64 / 10.0 }
        };
        let table = SelectTable::new(f64::INFINITY, Span::from_nanos(2), 4, wishes).expect("valid");
        let selector = Selector::new([1, 2, 3].map(variant), [table], LoadMonitor::default()).expect("valid");
        let selector = match dice.within(0, 1) {
            0 => selector,
            _ => classed(selector, instance.latency.into(), &mut dice),
        };
        let modes = MODES.into_iter().filter(|mode| mode.exact);
        for (mode, selector) in modes.flat_map(|mode| [(mode, None), (mode, Some(&selector))]) {
            let (some, depth) = search(&instance, mode, 30_000, true, Some((&shield, selector)));
            longer += usize::from(some > 0);
            (depths, searches) = (depths + depth, searches + 1);
        }
    }
    println!("{longer} of {searches}, ticks exhausted on average {:.1}", depths as f64 / searches as f64);
    assert!(longer as u64 * 5 > searches, "too few long batches to say anything");
}

#[test]
fn the_judge_finds_the_known_misses() {
    let stream = |count, length| Stream::hard(count, length);
    let instance = |count, length, latency| Instance {
        streams: vec![stream(count, length)],
        groups: vec![Group { count: 1, batch: 1, times: vec![3] }],
        latency,
    };
    // The example of the theory page: refused, and yet always in time.
    let page = instance(2, 6, 7);
    assert!(!admitted(&page, Dispatch::Eager, true) && admitted(&page, Dispatch::Eager, false));
    for mode in MODES {
        assert!(matches!(Judge::new(mode, 100_000).run(&page), Verdict::Safe(_)));
        // Only because its own requests are what blocks: others in their place make one late.
        let background = Judge::new(Mode { background: true, ..mode }, 100_000).run(&page);
        assert!(matches!(background, Verdict::Miss(_)));
    }
    // Two at once, where only one fits into the deadline; and two of six, where a third is needed.
    let judge = Judge::new(MODES[0], 100_000);
    let Verdict::Miss(trace) = judge.run(&instance(2, 6, 5)) else { panic!("must miss") };
    assert!(trace.starts_with(&[Step::Arrive(0)]));
    assert!(matches!(judge.run(&instance(3, 6, 9)), Verdict::Miss(_)));
}
