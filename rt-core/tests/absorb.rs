//! Stalls that constraints absorb: around one requests that must be served are missed, and every constraint is kept all the same.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rt_core::{BalancedWord, Constraint, ConstraintSet, Dispatch, SchedulerConfig, Stalls, StreamSpec};

use crate::harness::choices::{Choices, exhaust};
use crate::harness::load::{Bench, Setup, absorbing, ns, setup};
use crate::harness::{Dice, Harness, config, earliest, instances, violates_any};
use crate::standstill::{Driven, stand_still, stream, window};

/// A small system: what its batches take, how many requests and until when they are answered, and its streams.
#[derive(Clone, Debug)]
struct Small {
    times: Vec<u64>,
    workers: usize,
    deadline: u64,
    dispatch: Dispatch,
    stall: u64,
    streams: Vec<StreamSpec>,
}

impl Small {
    fn config(&self) -> SchedulerConfig {
        let config = config(&self.times, self.times.len(), self.workers, self.deadline, self.dispatch);
        SchedulerConfig { queue: 64, streams: 3, ..config }
    }
}

/// What was seen of a system.
#[derive(Debug, Default)]
struct Seen {
    /// By stream: the most requests that had to be served and that one stall made miss.
    misses: Vec<u64>,
    /// The last of them that came, counted from the begin of the stall.
    latest: u64,
    violated: bool,
    ticks: u64,
}

/// One run: some requests long before, so that words begin anywhere, then whatever the streams may send, tick by tick, and a
/// stall of a tick or of all that is declared, which begins within a deadline. In it no worker gets on, and perhaps what comes is
/// only taken in behind it; a stranger may come just before it. What need not be served is missed. Whether `kept` is violated is seen.
fn run(
    (small, kept): (&Small, &[StreamSpec]),
    stalls: Stalls,
    ticks: u64,
    choices: &Rc<RefCell<Choices>>,
    seen: &mut Seen,
) {
    let choose = |options| choices.borrow_mut().choose(options);
    let stall = Rc::new(RefCell::new(Vec::new()));
    let config = SchedulerConfig { stalls: Some(stalls), ..small.config() };
    let mut harness = Harness::new(config, |_, bound| bound);
    stand_still(&mut harness, Rc::clone(&stall), |bound| bound);
    let drive = |spec: &StreamSpec| {
        let (_, density) = stalls.absorb(spec, ns(small.deadline)).expect("there is room");
        let (id, word) = (harness.add(spec.clone()), BalancedWord::new(density));
        Driven { id, word, history: Vec::new() }
    };
    let mut streams: Vec<_> = small.streams.iter().map(drive).collect();
    for (stream, spec) in streams.iter_mut().zip(&small.streams) {
        for _ in 0..choose(u64::from(spec.constraints().as_slice()[0].window())) {
            harness.advance_to(harness.now + 200);
            stream.history.push(harness.now);
            let now = harness.now;
            stream.send(&mut harness, now);
        }
    }
    let start = harness.now + 200;
    let from = start + choose(ticks.min(small.deadline + 1));
    let to = from + if choose(2) == 1 { 1 } else { stalls.length().as_nanos() };
    let (deaf, stranger) = (choose(2) == 1, choose(2) == 1);
    let nothing = harness.add(StreamSpec::best_effort());
    stall.borrow_mut().push((from, to));
    let mut unread = Vec::new();
    for now in start..(start + ticks).max(to + 1) {
        harness.advance(now, now != to);
        if now == to {
            unread.drain(..).for_each(|(s, at): (usize, u64)| streams[s].send(&mut harness, at));
            harness.advance(now, true);
        }
        if now == from && stranger {
            harness.arrive(nothing);
        }
        for (s, spec) in small.streams.iter().enumerate() {
            let bounds = spec.arrivals().expect("declared").bounds();
            while earliest(&streams[s].history, bounds, now) == now && choose(2) == 0 {
                streams[s].history.push(now);
                if deaf && (from..to).contains(&now) {
                    unread.push((s, now));
                } else {
                    streams[s].send(&mut harness, now);
                }
            }
        }
    }
    harness.settle();
    harness.drain();
    let missed = harness.mandatory_misses();
    seen.misses.resize(streams.len(), 0);
    let violated = |(stream, spec): (&Driven, &StreamSpec)| {
        violates_any(&harness.outcomes(stream.id), spec.constraints())
    };
    seen.violated |= streams.iter().zip(kept).any(violated);
    assert_eq!(harness.causes(), [], "{small:?} {stalls:?} {from}..{to}");
    assert_eq!(harness.scheduler.absorbed(), missed.len() as u64);
    for (s, stream) in streams.iter().enumerate() {
        let missed = || missed.iter().filter(|r| r.request.stream == stream.id);
        seen.misses[s] = seen.misses[s].max(missed().count() as u64);
        for resolution in missed() {
            let at = resolution.request.arrival.as_nanos();
            assert!(at + small.deadline > from, "{small:?}: {at} is no matter of {from}..{to}");
            seen.latest = seen.latest.max(at.saturating_sub(from));
        }
    }
}

/// As many ticks as can be gone through, all in which a stall may do harm where one stream sends.
fn exhausted(small: &Small, kept: &[StreamSpec], stalls: Stalls) -> Seen {
    let mut seen = Seen::default();
    let harm = small.deadline + stalls.recovery().expect("absorbed").as_nanos();
    let first = if small.streams.len() == 1 { harm } else { 4 };
    seen.ticks =
        exhaust(first, 20_000, |ticks, choices| run((small, kept), stalls, ticks, choices, &mut seen));
    seen
}

/// A small system that constraints keep, with the shortest recovery and window of stalls, if dice make one.
fn drawn(dice: &mut Dice) -> Option<(Small, Stalls)> {
    let mut times = vec![dice.within(1, 3)];
    while dice.within(0, 1) == 1 && times.len() < 3 {
        times.push(times[times.len() - 1] + dice.within(0, 2));
    }
    let full = times[times.len() - 1];
    let mut bound = || {
        let count = dice.within(1, 2);
        let bound = window(count, count * dice.within(2, 5));
        let k = dice.within(3, 6) as u32;
        stream((k - 2 - dice.within(0, 1) as u32, k), bound)
    };
    let mut streams = vec![bound()];
    if dice.within(0, 3) == 0 {
        streams.push({
            let count = dice.within(1, 2);
            stream((3, 4), window(count, 6))
        });
    }
    let dispatch = if dice.within(0, 1) == 1 { Dispatch::FullOrLatest } else { Dispatch::Eager };
    let (workers, deadline) = (dice.within(1, 2) as usize, 2 * full + dice.within(0, 3));
    let small = Small { times, workers, deadline, dispatch, stall: dice.within(1, 5), streams };
    let stalls = absorbing(&small.config(), &small.streams, (1, small.stall))?;
    Some((small, stalls))
}

/// Whatever comes and whenever a small system stands still: no stream loses more requests that must be served than `μ`, none of
/// them comes later than the recovery, no constraint is violated and nothing is raised. In some `μ` are lost; and with a word that
/// leaves room for one less constraints are violated. `WEIR_EXHAUSTIVE=n` looks at `n` times as many systems.
#[test]
fn small_systems_keep_their_constraints_through_any_stall() {
    let mut dice = Dice(15);
    let (mut all, mut attained, mut latest, mut weaker, mut broken, mut ticks) = (0, 0, 0, 0, 0, 0);
    while all < instances(40) {
        let Some((small, stalls)) = drawn(&mut dice) else { continue };
        all += 1;
        let seen = exhausted(&small, &small.streams, stalls);
        ticks += seen.ticks;
        let shown = || format!("{small:?} {stalls:?}: {seen:?}");
        assert!(!seen.violated, "{}", shown());
        let absorb =
            |spec: &StreamSpec| stalls.absorb(spec, ns(small.deadline)).map_or(0, |(misses, _)| misses);
        let recovery = stalls.recovery().expect("absorbed").as_nanos();
        assert!(seen.latest < recovery, "{}", shown());
        latest = latest.max(100 * (seen.latest + 1) / recovery);
        for (s, &misses) in seen.misses.iter().enumerate() {
            let most = absorb(&small.streams[s]);
            assert!(misses <= most, "{}", shown());
            if misses < most {
                continue;
            }
            attained += 1;
            // The word of a constraint that allows one more leaves room for one less.
            let (spec, constraint) = (&small.streams[s], small.streams[s].constraints().as_slice()[0]);
            let (m, k) = (constraint.misses() + 1, constraint.window());
            if m < k {
                let mut less = small.clone();
                less.streams[s] = stream((m, k), spec.arrivals().expect("declared").bounds()[0].clone());
                if absorb(&less.streams[s]) == most {
                    weaker += 1;
                    broken += usize::from(exhausted(&less, &small.streams, stalls).violated);
                }
            }
        }
    }
    println!(
        "{all} systems, {ticks} ticks; μ attained {attained} times, R to {latest} %; {broken} of {weaker} broken with μ - 1"
    );
    assert!(attained * 5 > all && broken * 2 > weaker && broken > 4);
}

/// Random systems under attack, beside strangers, on a machine that stands still as often and as long as it may: of any `K`
/// requests in a row that come within `T - Λ` no more than `m` are missed, of others no more than each stall adds, and nothing is
/// raised.
#[test]
fn constraints_hold_through_all_stalls_that_are_declared() {
    let mut runner = TestRunner::deterministic();
    let (mut loads, mut absorbed, mut wide) = (0, 0, 0);
    for seed in 0..instances(400) as u64 {
        let mut dice = Dice(seed);
        let made = setup().new_tree(&mut runner).expect("a setup").current();
        let relaxed = |spec: &StreamSpec| {
            let k = dice.within(8, 60) as u32;
            let m = k - 1 - dice.within(0, u64::from(k) / 2) as u32;
            let set = ConstraintSet::new(&[Constraint::any_miss(m, k).expect("m < k")]).expect("one");
            StreamSpec::promised(set, spec.arrivals().expect("declared").clone())
        };
        let streams: Vec<_> = made.streams.iter().map(relaxed).collect();
        let declared = (dice.within(1, 2) as u32, dice.within(1, 40));
        let Some(stalls) = absorbing(&made.config, &streams, declared) else { continue };
        let config = SchedulerConfig { stalls: Some(stalls), ..made.config };
        let setup = Setup { config, streams, ..made };
        loads += 1;
        absorbed += under_attack(&setup, stalls, &mut wide);
    }
    println!("{loads} loads, {absorbed} requests missed for stalls, {wide} windows beyond what one allows");
    assert!(loads > 60 && 2 * absorbed > loads);
}

fn under_attack(setup: &Setup, stalls: Stalls, wide: &mut usize) -> u64 {
    let mut bench = Bench::new(setup);
    let (deadline, many) = (setup.config.deadline, stalls.count() as usize);
    // The monitor knows a stall by when a batch ends that it delayed.
    let length = stalls.length().as_nanos();
    let apart = stalls.window().as_nanos() + length + deadline.as_nanos();
    let until = 40 * deadline.as_nanos() + 4 * apart;
    let mut dice = Dice(setup.seed ^ 5);
    let mut all: Vec<(u64, u64)> = Vec::new();
    while all.last().is_none_or(|last| last.1 < 2 * until) {
        let taken = dice.within(1, length);
        let soonest = all.len().checked_sub(many).map_or(0, |i| (all[i].1 + apart).saturating_sub(taken));
        let last = all.last().map_or(0, |last| last.1 + length + deadline.as_nanos());
        let from = soonest.max(last) + dice.within(0, 2) * dice.within(0, 60);
        all.push((from, from + taken));
    }
    let slow = setup.slow;
    let mut work = Dice(setup.seed ^ 6);
    let stood = Rc::new(RefCell::new(all.clone()));
    stand_still(&mut bench.harness, stood, move |bound| if slow { bound } else { work.within(1, bound) });
    bench.attack(setup, until);
    let harness = &bench.harness;
    assert_eq!(harness.causes(), [], "{setup:?} {stalls:?}");
    let (span, damage) =
        (stalls.spans(deadline).expect("absorbed"), stalls.damage(deadline).expect("absorbed"));
    for (s, id) in bench.ids.iter().enumerate() {
        let (misses, _) = stalls.absorb(&setup.streams[s], deadline).expect("room");
        let constraint = setup.streams[s].constraints().as_slice()[0];
        let (m, k) = (constraint.misses() as usize, constraint.window() as usize);
        let (outcomes, came) = (harness.outcomes(*id), &bench.history[s]);
        assert_eq!(outcomes.len(), came.len());
        for first in 0..=outcomes.len().saturating_sub(k) {
            let Some(window) = outcomes.get(first..first + k) else { break };
            let missed = window.iter().filter(|&&hit| !hit).count();
            let (begin, end) = (came[first], came[first + k - 1]);
            // Stalls that may have cost one of them.
            let met = |stall: &&(u64, u64)| {
                begin < stall.0 + damage.as_nanos() && stall.0 < end + deadline.as_nanos()
            };
            let most = m - many * misses as usize + misses as usize * all.iter().filter(met).count();
            assert!(missed <= most, "{setup:?} {stalls:?}: {missed} of {k} from {begin} to {end}");
            let narrow = end - begin <= span.as_nanos();
            assert!(missed <= m || !narrow, "{setup:?} {stalls:?}: {missed} of {k} from {begin} to {end}");
            *wide += usize::from(missed > m);
        }
    }
    harness.scheduler.absorbed()
}
