//! Stalls that constraints absorb: around one requests that must be served are missed, and every constraint is kept all the same.

mod harness;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use harness::choices::{Choices, exhaust};
use harness::load::{Bench, Setup, absorbing, ns, setup};
use harness::{Dice, Harness, config, earliest, instances, system, violates_any};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rt_core::{
    AdmissionError, ArrivalBound, ArrivalCurve, BalancedWord, Cause, Constraint, ConstraintSet, Dispatch,
    SchedulerConfig, Shield, ShieldError, Stalls, StreamId, StreamSpec,
};

fn stream(constraint: (u32, u32), bound: ArrivalBound) -> StreamSpec {
    let constraint = Constraint::any_miss(constraint.0, constraint.1).expect("m < k");
    let set = ConstraintSet::new(&[constraint]).expect("one");
    StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
}

fn window(count: u64, length: u64) -> ArrivalBound {
    ArrivalBound::window(count, ns(length)).expect("valid")
}

/// When a batch ends that begins at `start` and takes `work` on a clock that stands still from each of `stalls` on to its end.
fn end_of(start: u64, work: u64, stalls: &[(u64, u64)]) -> u64 {
    let (mut now, mut left) = (start, work);
    for &(from, to) in stalls.iter().filter(|stall| stall.1 > start) {
        let before = from.saturating_sub(now);
        if left <= before {
            break;
        }
        left -= before;
        now = to;
    }
    now + left
}

/// Batches of `harness` stand still in the stalls, and take `work` of their bound otherwise.
fn stand_still(
    harness: &mut Harness,
    stalls: Rc<RefCell<Vec<(u64, u64)>>>,
    mut work: impl FnMut(u64) -> u64 + 'static,
) {
    let started = Rc::new(Cell::new(0));
    let now = Rc::clone(&started);
    harness.longer = Some(Box::new(move |_, now, _, bound| {
        started.set(now);
        bound
    }));
    harness.set_service(move |_, bound| end_of(now.get(), work(bound), &stalls.borrow()) - now.get());
}

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

/// A stream that is driven, with the word that says which of its requests must be served.
struct Driven {
    id: StreamId,
    word: BalancedWord,
    history: Vec<u64>,
}

impl Driven {
    /// Its next request comes, and was sent at `at`. There is no room for one that need not be served.
    fn send(&mut self, harness: &mut Harness, at: u64) {
        if !self.word.next_is_mandatory() {
            harness.refuse_late(self.id, at);
        } else if at < harness.now {
            harness.arrive_late(self.id, at);
        } else {
            harness.arrive(self.id);
        }
    }
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
/// leaves room for one less constraints are violated. `WEIR_EXHAUSTIVE=n` looks at `n` systems.
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

/// One request in 4 at most, each takes 2, by 4; a stall of 3. Of any 6 at most 4 are missed, one for the stall.
fn lone() -> (Harness, StreamId, Stalls) {
    let spec = stream((4, 6), window(1, 4));
    let config = config(&[2], 1, 1, 4, Dispatch::Eager);
    let stalls = absorbing(&config, std::slice::from_ref(&spec), (1, 3)).expect("admitted");
    assert_eq!(stalls.absorb(&spec, ns(4)).map(|(misses, density)| (misses, density.as_f64())), Ok((1, 0.5)));
    let mut harness = Harness::new(SchedulerConfig { stalls: Some(stalls), ..config }, |_, bound| bound);
    let id = harness.add(spec);
    (harness, id, stalls)
}

/// A request comes, or is missed if it need not be served; its batch takes so long.
fn send(harness: &mut Harness, stream: &mut Driven, at: u64, time: u64) {
    harness.advance_to(at);
    harness.set_service(move |_, _| time);
    stream.send(harness, at);
    harness.advance_to(at + time + 4);
}

/// Who sends only when the machine stands still loses all: more than the constraint allows, of requests that many stalls lie
/// between. Nothing is raised for it, and what lies in one window of stalls is as it should be.
#[test]
fn over_many_stalls_each_costs_what_one_may_and_nothing_is_raised() {
    let (mut harness, id, stalls) = lone();
    let word = BalancedWord::new(stalls.absorb(&stream((4, 6), window(1, 4)), ns(4)).expect("room").1);
    let mut slow = Driven { id, word, history: Vec::new() };
    let window = stalls.window().as_nanos();
    for n in 0..12 {
        send(&mut harness, &mut slow, (n + 1) * window, 5);
    }
    assert_eq!(harness.outcomes(id), [false; 12]);
    assert_eq!((harness.scheduler.absorbed(), harness.scheduler.stalls()), (6, 6));
    assert_eq!((harness.causes(), harness.suspensions(id)), (vec![], vec![]));
    // In time again.
    for n in 0..12 {
        send(&mut harness, &mut slow, 14 * window + 10 * n, 2);
    }
    assert_eq!(harness.outcomes(id)[12..].iter().filter(|&&hit| hit).count(), 6);
    assert_eq!(harness.causes(), []);
}

#[test]
fn a_second_stall_in_the_window_and_a_longer_one_are_announced() {
    for (again, time, cause) in [(30, 5, true), (36, 5, false), (100, 6, true)] {
        let (mut harness, id, stalls) = lone();
        assert_eq!(stalls.window(), ns(33));
        harness.set_service(move |_, _| 5);
        harness.advance_to(100);
        harness.refuse(id);
        harness.advance_to(104);
        harness.arrive(id);
        harness.advance_to(104 + again - 8);
        harness.refuse(id);
        harness.advance_to(104 + again);
        assert_eq!((harness.causes(), harness.scheduler.stalls()), (vec![], 1));
        harness.set_service(move |_, _| time);
        harness.arrive(id);
        harness.advance_to(104 + again + 10);
        let raised: Vec<_> = harness.causes().into_iter().map(|(_, raised)| raised).collect();
        assert_eq!(raised, if cause { vec![Cause::ServiceOverrun] } else { vec![] }, "after {again}");
    }
}

/// What a client says it sent, and what is read only behind a stall, need not be served: it is as if it had been missed, and the
/// promise to it stands. What is read later than any stall explains suspends it as ever.
#[test]
fn what_a_stall_kept_from_being_read_suspends_nothing() {
    let (mut harness, id, _) = lone();
    harness.advance_to(100);
    harness.arrive_sent(id, 98);
    harness.advance_to(102);
    harness.arrive_sent(id, 102);
    assert_eq!((harness.causes(), harness.suspensions(id)), (vec![], vec![]));
    harness.advance_to(200);
    harness.arrive_sent(id, 190);
    assert_eq!(harness.causes(), [(200, Cause::LateDispatch)]);
    assert_eq!(harness.suspensions(id).len(), 1);
}

/// What had to be served, was read only behind a stall and by then too late is on the account of stalls, and nothing else is.
#[test]
fn what_a_stall_kept_from_being_read_in_time_is_counted_as_absorbed() {
    // Every second request must be served.
    for (skipped, sent, absorbed) in [(true, 97, 1), (true, 98, 0), (false, 97, 0)] {
        let (mut harness, id, _) = lone();
        harness.advance_to(90);
        if skipped {
            harness.refuse(id);
        }
        harness.advance_to(100);
        harness.arrive_sent(id, sent);
        harness.advance_to(104);
        assert_eq!(harness.outcomes(id).last(), Some(&(sent == 98)), "{sent}");
        assert_eq!(harness.scheduler.absorbed(), absorbed, "{skipped} {sent}");
        assert_eq!((harness.causes(), harness.suspensions(id)), (vec![], vec![]));
    }
}

/// What is not to be absorbed is refused: no room, too often, a recovery that is too short, workers of several kinds.
#[test]
fn what_constraints_cannot_absorb_is_refused() {
    let spec = stream((4, 6), window(1, 4));
    let config = config(&[2], 1, 1, 4, Dispatch::Eager);
    let admit = |spec: &StreamSpec, window, recovery| {
        let stalls = Some(Stalls::new(1, ns(window), ns(3)).expect("valid").absorbed(ns(recovery)));
        system(&SchedulerConfig { stalls, ..config.clone() }).admit([spec])
    };
    assert!(admit(&spec, 33, 5).is_ok());
    assert_eq!(admit(&spec, 32, 5), Err(AdmissionError::Stalls { needed: ns(33), window: ns(32) }));
    assert_eq!(admit(&spec, 33, 4), Err(AdmissionError::Recovery { needed: ns(5), recovery: ns(4) }));
    let strict = stream((0, 6), window(1, 12));
    assert!(matches!(admit(&strict, 1_000, 5), Err(AdmissionError::Absorbed { misses: 1, .. })));
    let mut two = system(&config);
    two.workers.push(two.workers[0].clone());
    two.stalls = Some(Stalls::new(1, ns(1_000), ns(3)).expect("valid").absorbed(ns(5)));
    assert_eq!(two.admit([&spec]), Err(AdmissionError::Kinds));
}

/// One request each tick, of which every second or so must be served; eight of them take 10 together, and one takes 8. Behind a
/// stall of 20 the first that waits has always just enough time for a batch by itself: if that were made so small, it would be so for
/// ever.
#[test]
fn behind_a_stall_batches_are_full_and_what_piled_up_is_worked_off() {
    let spec = stream((500, 1_000), window(1, 1));
    let config = config(&[8, 10, 10, 10, 10, 10, 10, 10], 8, 1, 24, Dispatch::Eager);
    let stalls = absorbing(&config, std::slice::from_ref(&spec), (1, 20)).expect("admitted");
    let mut harness = Harness::new(SchedulerConfig { stalls: Some(stalls), ..config }, |_, bound| bound);
    stand_still(&mut harness, Rc::new(RefCell::new(vec![(500, 520)])), |bound| bound);
    let id = harness.add(spec);
    for at in 0..2_000 {
        harness.advance_to(at);
        harness.arrive(id);
    }
    harness.drain();
    let missed = harness.mandatory_misses();
    let last = missed.iter().map(|r| r.request.arrival.as_nanos()).max().expect("some are");
    assert!(last < 500 + stalls.recovery().expect("absorbed").as_nanos(), "{last} {stalls:?}");
    assert_eq!(harness.causes(), []);
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

/// A scheduler that takes over serves as much as its own stalls ask for, and the other way round: then all is counted anew, and a
/// shield for its streams is one again.
#[test]
fn who_takes_over_serves_by_its_own_stalls() {
    let specs = [stream((4, 6), window(1, 20)), stream((2, 3), window(1, 20))];
    let plain = config(&[2], 1, 1, 12, Dispatch::Eager);
    let stalls = absorbing(&plain, &specs, (1, 3)).expect("admitted");
    let absorbing = SchedulerConfig { stalls: Some(stalls), ..plain.clone() };
    let mut harness = Harness::new(plain.clone(), |_, bound| bound);
    let ids = specs.each_ref().map(|spec| harness.add(spec.clone()));
    let mandatory = |harness: &mut Harness| {
        let before = harness.resolutions.len();
        for _ in 0..12 {
            harness.advance_to(harness.now + 20);
            for id in ids {
                harness.arrive(id);
            }
        }
        harness.advance_to(harness.now + 20);
        let came = &harness.resolutions[before..];
        ids.map(|id| came.iter().filter(|(_, r)| r.request.stream == id && r.request.mandatory).count())
    };
    assert_eq!(mandatory(&mut harness), [4, 4]);
    harness.hand_over(absorbing).expect("nothing is in the way");
    assert_eq!(mandatory(&mut harness), [6, 8], "three of six, and two of three");
    let shield = || Shield::new(&plain.workers[0], ns(12), specs.iter().filter_map(StreamSpec::demand));
    let refused = harness.scheduler.set_shield(Some(shield().expect("admitted")));
    assert_eq!(refused.map(drop), Err(ShieldError::Absorbed));
    harness.hand_over(plain.clone()).expect("nothing is in the way");
    assert_eq!(mandatory(&mut harness), [4, 4]);
    harness.scheduler.set_shield(Some(shield().expect("admitted"))).expect("it counts both");
    let _ = harness.scheduler.remove_stream(ids[0]);
    assert_eq!(harness.scheduler.load().specs().count(), 1);
    assert_eq!((harness.causes(), harness.mandatory_misses()), (vec![], vec![]));
}
