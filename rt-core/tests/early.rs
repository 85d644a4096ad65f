//! Small systems searched exhaustively while requests come before their declarations allow them, by as much as admission leaves
//! room for: whoever is early, comes or goes, and whichever batches take all that they are allowed, no promise breaks.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;
use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, Joined, Newcomer,
    SchedulerConfig, Shield, Span, StreamId, StreamSpec,
};

use crate::harness;
use crate::harness::choices::{Choices, exhaust};
use crate::harness::load::{Bench, Setup, ns, setup};
use crate::harness::mixed::mixed;
use crate::harness::{Harness, config, earliest, instances, system};

/// Runs of each system.
const BUDGET: u64 = 1_000;

/// Requests within `bound`, of any `k` in a row at most `m` to be missed.
fn promised(bound: ArrivalBound, (m, k): (u32, u32)) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::any_miss(m, k).expect("valid")]).expect("one");
    StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
}

/// A steady stream, one that comes and goes, and workers.
#[derive(Clone, Debug)]
struct Small {
    config: SchedulerConfig,
    steady: StreamSpec,
    restless: StreamSpec,
    /// Whether the restless stream is there from the start.
    there: bool,
    /// Whether one that nothing is promised to keeps the workers busy, whose batches may take longer.
    background: bool,
    /// By how much more than is tolerated the scheduler is made to tolerate.
    more: u64,
}

/// What all runs came to.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    /// Requests that were early, and runs in which all streams were.
    early: u64,
    together: u64,
    /// Batches granted more than a full one takes.
    longer: usize,
    /// How often the restless stream came, and had to wait before it could.
    came: usize,
    waited: usize,
}

/// When a stream's requests conformed: one that is early, when it would.
type Conformed = Vec<u64>;

impl Small {
    fn tolerance(&self, streams: &[&StreamSpec]) -> Span {
        let most = self.config.tolerance;
        let left = system(&self.config).tolerance(streams.iter().copied(), most, self.config.queue as u64);
        left + ns(self.more)
    }

    fn shield(&self, streams: &[&StreamSpec]) -> Option<Shield> {
        let load = streams.iter().filter_map(|stream| stream.demand());
        Shield::tolerant(&self.config.workers[0], (self.config.deadline, self.tolerance(streams)), load).ok()
    }

    /// Adds a stream if it is admitted beside all that count and nothing is in its way.
    fn add(&self, harness: &mut Harness, spec: &StreamSpec) -> Option<StreamId> {
        let load = harness.scheduler.load();
        let all: Vec<_> = load.specs().chain([spec]).collect();
        system(&self.config).admit(all.iter().copied()).ok()?;
        let shield = if load.is_shielded(spec) { None } else { self.shield(&all) };
        let newcomer = Newcomer::new(harness.scheduler.config(), spec.clone()).beside(&load).shielded(shield);
        let newcomer = newcomer.tolerant(harness.scheduler.config(), self.tolerance(&all));
        match harness.scheduler.try_add_stream(Instant::from_nanos(harness.now), newcomer) {
            Ok(Joined::Added(id, _)) => Some(id),
            Ok(Joined::Wait(_)) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Lets an adversary choose which batches take all that they may, and counts those that do.
    fn lengthen(&self, harness: &mut Harness, choices: &Rc<RefCell<Choices>>) -> Rc<RefCell<usize>> {
        let longer = Rc::new(RefCell::new(0));
        let (choices, counted) = (Rc::clone(choices), Rc::clone(&longer));
        harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
            let at = Instant::from_nanos(now);
            let longest = scheduler.longest(at, worker).as_nanos();
            if longest <= bound || choices.borrow_mut().choose(2) == 1 {
                return bound;
            }
            *counted.borrow_mut() += 1;
            scheduler.prolong(at, worker, ns(longest)).expect("allowed");
            longest
        }));
        longer
    }

    /// One run of so many ticks.
    fn play(&self, ticks: u64, choices: &Rc<RefCell<Choices>>, tally: &mut Tally) {
        let workers = self.config.workers[0].count;
        let choose = |options| choices.borrow_mut().choose(options);
        // More than is tolerated is more than the configuration has, too.
        let config =
            SchedulerConfig { tolerance: self.config.tolerance + ns(self.more), ..self.config.clone() };
        let mut harness = Harness::new(config, |_, bound| bound);
        let steady = self.add(&mut harness, &self.steady).expect("nothing is in its way");
        let mut restless = self.there.then(|| self.add(&mut harness, &self.restless).expect("admitted"));
        let stranger = harness.add(StreamSpec::best_effort());
        let longer = self.lengthen(&mut harness, choices);
        let (mut conformed, mut moves, mut waited) = ([Vec::new(), Vec::new()], 2, false);
        let (mut early, from) = ([0, 0], choose(3));
        for now in 0..ticks {
            harness.advance_to(now);
            // The steady one sends as soon as it may, early or not.
            if now >= from {
                early[0] += send(&mut harness, steady, &self.steady, &mut conformed[0]);
            }
            match restless {
                // The restless one in its own time, as early as it may.
                Some(id) if conformed[1].len() < 4 && choose(2) == 1 => {
                    early[1] += send(&mut harness, id, &self.restless, &mut conformed[1]);
                }
                Some(id) if moves > 0 && choose(2) == 1 => {
                    harness.scheduler.remove_stream(id);
                    harness.settle();
                    (restless, moves) = (None, moves - 1);
                }
                // It waits until it may come, and sends at once.
                None if moves > 0 && (waited || choose(2) == 1) => {
                    restless = self.add(&mut harness, &self.restless);
                    tally.waited += usize::from(restless.is_none() && !waited);
                    waited = restless.is_none();
                    if let Some(id) = restless {
                        tally.came += 1;
                        moves -= 1;
                        conformed[1].clear();
                        early[1] += send(&mut harness, id, &self.restless, &mut conformed[1]);
                    }
                }
                _ => {}
            }
            // Last, so that the others' go first.
            let idle = |harness: &Harness| (0..workers).any(|worker| !harness.is_busy(worker));
            if self.background && idle(&harness) {
                harness.arrive(stranger);
            }
        }
        harness.end_unharmed(&(self, &conformed));
        assert_eq!(harness.scheduler.suspensions(), (0, 0), "{self:?} {conformed:?}");
        let (counts, _) = harness.scheduler.stream_counts(steady).expect("there");
        assert_eq!(counts.early, early[0]);
        tally.runs += 1;
        tally.early += early[0] + early[1];
        tally.together += u64::from(early[0] > 0 && early[1] > 0);
        tally.longer += *longer.borrow();
    }

    /// Every run of more and more ticks, until there have been enough.
    fn search(&self, tally: &mut Tally) {
        exhaust(6, BUDGET, |ticks, choices| self.play(ticks, choices, tally));
    }

    /// All workers have just begun strangers' requests, and both streams send from then on as early as they may. Whether a
    /// mandatory request is missed.
    fn storm(&self) -> bool {
        let config =
            SchedulerConfig { tolerance: self.config.tolerance + ns(self.more), ..self.config.clone() };
        let mut harness = Harness::new(config, |_, bound| bound);
        let specs = [&self.steady, &self.restless];
        let ids = specs.map(|spec| self.add(&mut harness, spec).expect("nothing is in its way"));
        let stranger = harness.add(StreamSpec::best_effort());
        let workers = &self.config.workers[0];
        (0..workers.count * workers.batch).for_each(|_| _ = harness.arrive_unpolled(stranger));
        harness.settle();
        let mut conformed = [Vec::new(), Vec::new()];
        for now in 0..100 {
            harness.advance_to(now);
            for stream in 0..2 {
                send(&mut harness, ids[stream], specs[stream], &mut conformed[stream]);
            }
        }
        harness.drain();
        !harness.mandatory_misses().is_empty()
    }
}

/// All that a stream may send now, as early as it may. How many of these were early.
fn send(harness: &mut Harness, id: StreamId, spec: &StreamSpec, conformed: &mut Conformed) -> u64 {
    let mut early = 0;
    loop {
        let bounds = spec.arrivals().expect("declared").bounds();
        let due = earliest(conformed, bounds, harness.now);
        if due > harness.now + harness.scheduler.tolerance().as_nanos() {
            return early;
        }
        early += u64::from(due > harness.now);
        conformed.push(due);
        harness.arrive(id);
    }
}

/// Systems that leave something, with streams of every kind.
fn systems() -> Vec<Small> {
    let window = |count, length| ArrivalBound::window(count, ns(length)).expect("valid");
    let steady = [
        window(1, 6),
        window(2, 9),
        ArrivalBound::periodic(ns(6), ns(4)).expect("valid"),
        ArrivalBound::distances(&[ns(2), ns(11)]).expect("valid"),
    ];
    let mut all = Vec::new();
    for (workers, times) in [(1, &[2][..]), (1, &[2, 3]), (2, &[3])] {
        for (steady, burst) in steady.iter().flat_map(|s| [1, 2].map(|b| (s, b))) {
            for (latency, dispatch) in
                [8, 11].into_iter().flat_map(|l| [Dispatch::Eager, Dispatch::FullOrLatest].map(|d| (l, d)))
            {
                let config = config(times, times.len(), workers, latency, dispatch);
                let config = SchedulerConfig { queue: 64, streams: 4, tolerance: ns(30), ..config };
                let (steady, restless) =
                    (promised(steady.clone(), (0, 1)), promised(window(burst, 14), (0, 1)));
                if system(&config).admit([&steady, &restless]).is_err() {
                    continue;
                }
                for (there, background) in [true, false].into_iter().flat_map(|c| [(c, true), (c, false)]) {
                    let (config, steady, restless) = (config.clone(), steady.clone(), restless.clone());
                    all.push(Small { config, steady, restless, there, background, more: 0 });
                }
            }
        }
    }
    all
}

#[test]
fn who_is_early_within_the_tolerance_breaks_no_promise_whoever_comes_and_goes() {
    let mut tally = Tally::default();
    let systems = systems();
    let tolerant = systems.iter().filter(|s| s.tolerance(&[&s.steady, &s.restless]) > Span::ZERO).count();
    systems.iter().for_each(|small| small.search(&mut tally));
    println!("{} systems, {tolerant} tolerant with both streams, {tally:?}", systems.len());
    assert!(tolerant * 2 > systems.len() && tally.early > tally.runs && tally.together * 5 > tally.runs);
    assert!(tally.longer as u64 * 10 > tally.runs && tally.came as u64 * 10 > tally.runs, "{tally:?}");
    assert!(tally.waited > 100, "{tally:?}");
}

/// With 1 ns more, all that comes as early as it may behind strangers that have just begun breaks most of the systems in which
/// anything limits the tolerance: it is no less than what may be.
#[test]
fn a_nanosecond_more_breaks_promises() {
    let (mut limited, mut broken) = (0, 0);
    for mut small in systems().into_iter().filter(|small| small.there && small.background) {
        if small.tolerance(&[&small.steady, &small.restless]) == small.config.tolerance {
            continue;
        }
        assert!(!small.storm(), "{small:?}");
        limited += 1;
        small.more = 1;
        broken += usize::from(small.storm());
    }
    println!("{broken} of {limited} systems");
    assert!(limited > 20 && broken * 3 > 2 * limited, "{broken} of {limited}");
}

/// A load whose streams are as early as is tolerated: all of them at once, or each in its own way.
fn attack(setup: &Setup, tolerance: Span, shielded: bool) -> Bench {
    let mut bench = Bench::new(setup);
    let promised = setup.streams.iter().any(|stream| stream.demand().is_some());
    let tolerance = if promised { tolerance } else { Span::ZERO };
    bench.harness.scheduler.set_tolerance(tolerance);
    assert_eq!(bench.harness.scheduler.tolerance(), tolerance);
    if shielded {
        let load = setup.streams.iter().filter_map(StreamSpec::demand);
        let times = (setup.config.deadline.saturating_sub(setup.config.reserve()), tolerance);
        let shield = Shield::tolerant(&setup.config.workers[0], times, load).expect("admitted");
        bench.harness.scheduler.set_shield(Some(shield)).expect("made for it");
        harness::load::stretch(&mut bench.harness);
    }
    let nothing = bench.harness.add(StreamSpec::best_effort());
    let most = tolerance.as_nanos();
    for _ in 0..12 {
        let storm = bench.harness.now + bench.dice.within(0, 2 * setup.config.deadline.as_nanos());
        let disturbed = bench.dice.within(bench.harness.now, storm);
        bench.harness.advance(disturbed, true);
        (0..bench.dice.within(0, 6)).for_each(|_| _ = bench.harness.arrive(nothing));
        bench.harness.advance(storm, true);
        for _ in 0..bench.dice.within(1, 60) {
            // When each may send next, if it is as early as it may or less.
            let may = |bench: &mut Bench, s: usize| {
                let bounds = setup.streams[s].arrivals().expect("declared").bounds();
                let due = earliest(&bench.history[s], bounds, bench.harness.now);
                let early = if setup.greedy { most } else { bench.dice.within(0, most) };
                (due.saturating_sub(early).max(bench.harness.now), s)
            };
            let next: Vec<_> = (0..bench.ids.len()).map(|s| may(&mut bench, s)).collect();
            let Some((at, s)) = next.into_iter().min() else { break };
            let first = bench.dice.within(0, 1) == 0;
            bench.harness.advance(at, first);
            let bounds = setup.streams[s].arrivals().expect("declared").bounds();
            let due = earliest(&bench.history[s], bounds, at);
            bench.history[s].push(due);
            bench.harness.arrive_unpolled(bench.ids[s]);
            if bench.dice.within(0, 2) > 0 {
                bench.harness.settle();
            }
        }
    }
    bench.finish();
    bench
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: instances(400) as u32, ..ProptestConfig::default() })]

    #[test]
    fn a_promise_holds_while_all_streams_are_early_within_the_tolerance(setup in setup(), shielded: bool) {
        let most = setup.config.deadline;
        let tolerance = system(&setup.config).tolerance(&setup.streams, most, u64::MAX);
        let config = SchedulerConfig { tolerance: most, ..setup.config.clone() };
        let setup = Setup { config, ..setup };
        let bench = attack(&setup, tolerance, shielded);
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert_eq!(bench.harness.scheduler.suspensions(), (0, 0));
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        for (id, stream) in bench.ids.iter().zip(&setup.streams) {
            prop_assert!(!harness::violates_any(&bench.harness.outcomes(*id), stream.constraints()));
        }
    }

    /// The same of workers of several kinds.
    #[test]
    fn so_it_does_on_workers_of_several_kinds(setup in mixed()) {
        let most = setup.config.deadline;
        let tolerance = system(&setup.config).tolerance(&setup.streams, most, u64::MAX);
        let config = SchedulerConfig { tolerance: most, ..setup.config.clone() };
        let setup = Setup { config, ..setup };
        let bench = attack(&setup, tolerance, false);
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
    }

    /// A queue of so many is enough for what then waits.
    #[test]
    fn the_queue_that_the_tolerance_is_worked_out_for_is_enough(setup in setup(), share in 1u64..4) {
        let needed = system(&setup.config).admit(&setup.streams).expect("admitted").waiting;
        let queue = needed.max(1) * share;
        let tolerance = system(&setup.config).tolerance(&setup.streams, setup.config.deadline, queue);
        let config = SchedulerConfig { tolerance, queue: queue as usize, ..setup.config.clone() };
        let bench = attack(&Setup { config, ..setup }, tolerance, false);
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
    }
}

/// By hand: one worker, 2 a request, at most one in 6, none to be missed, within 7. Behind what is in the way three requests are
/// answered after 8, so the third, due at 12, must not come before 1: it may be 11 early. And then it may be all of them.
#[test]
fn what_is_early_by_more_than_can_do_no_harm_suspends_its_stream() {
    let config = SchedulerConfig { tolerance: ns(20), ..config(&[2], 1, 1, 7, Dispatch::Eager) };
    let spec = promised(ArrivalBound::window(1, ns(6)).expect("valid"), (0, 1));
    let tolerance = |most, queue| system(&config).tolerance([&spec], ns(most), queue);
    assert_eq!((tolerance(20, 64), tolerance(2, 64)), (ns(11), ns(2)), "no more than is asked for");
    assert_eq!(tolerance(20, 1), Span::ZERO, "more would wait");
    let closed = SchedulerConfig { background: false, ..config.clone() };
    assert_eq!(system(&closed).tolerance([&spec], ns(20), 64), Span::ZERO);
    for (tolerated, arrivals) in [(11, [0, 0, 1, 7, 12]), (12, [0, 0, 0, 6, 11])] {
        let mut harness = Harness::new(config.clone(), |_, bound| bound);
        let (id, stranger) = (harness.add(spec.clone()), harness.add(StreamSpec::best_effort()));
        harness.scheduler.set_tolerance(ns(tolerated));
        harness.arrive(stranger);
        for (at, early, earliest) in [(0, 0, 0), (1, 1, 6), (2, 2, tolerated), (3, 3, tolerated)]
            .map(|(nth, early, earliest)| (arrivals[nth], early, earliest))
        {
            harness.advance_to(at);
            harness.arrive(id);
            let (counts, _) = harness.scheduler.stream_counts(id).expect("there");
            assert_eq!((counts.early, counts.earliest), (early, ns(earliest)), "at {at}");
        }
        assert_eq!(harness.scheduler.suspensions().1, 0);
        harness.advance_to(arrivals[4]);
        harness.arrive(id);
        assert_eq!(harness.scheduler.suspensions().1, 1, "early by 1 more");
        harness.drain();
        assert_eq!(harness.mandatory_misses().is_empty(), tolerated == 11);
    }
}

/// By hand: what is tolerated shrinks with a stream that comes, but not while somebody was early by more; and it grows when that
/// stream has left, and the shield that counted it.
#[test]
fn the_tolerance_is_what_the_present_load_leaves() {
    let config = SchedulerConfig { tolerance: ns(40), ..config(&[2], 1, 1, 20, Dispatch::FullOrLatest) };
    let window = |count, length| promised(ArrivalBound::window(count, ns(length)).expect("valid"), (0, 1));
    let (steady, restless) = (window(1, 40), window(8, 40));
    let (there, background, more) = (false, false, 0);
    let small = Small { config: config.clone(), steady, restless, there, background, more };
    let mut harness = Harness::new(config, |_, bound| bound);
    assert_eq!(harness.scheduler.tolerance(), Span::ZERO, "nothing is promised");
    let steady = small.add(&mut harness, &small.steady).expect("nothing is in its way");
    assert_eq!(harness.scheduler.tolerance(), ns(40));
    harness.arrive(steady);
    harness.advance_to(10);
    // It waits behind a stranger's request, and is early by 30: 18 requests are answered after 38, so those due at 40 must not come
    // before 18, early by 22.
    let stranger = harness.add(StreamSpec::best_effort());
    harness.arrive(stranger);
    harness.arrive(steady);
    assert_eq!(small.add(&mut harness, &small.restless), None);
    harness.advance_to(12);
    let restless = small.add(&mut harness, &small.restless).expect("nothing waits");
    assert_eq!(harness.scheduler.tolerance(), ns(22));
    harness.scheduler.remove_stream(restless);
    assert_eq!(harness.scheduler.tolerance(), ns(22), "the shield was made for that");
    harness.scheduler.set_shield(None).expect("none is for any load");
    assert_eq!(harness.scheduler.tolerance(), ns(40));
    harness.settle();
    harness.drain();
    assert_eq!((harness.scheduler.suspensions(), harness.mandatory_misses()), ((0, 0), vec![]));
}

/// Two workers of 7 in 13, and one request a nanosecond: a busy period need not end. All 184 that may come within 182 wait if
/// dispatch is late by 181, though each round of 13 leaves no more than the last.
#[test]
fn what_a_delay_leaves_waiting_is_counted_where_no_busy_period_ends() {
    let profile = rt_core::LatencyProfile::new(&[5, 8, 8, 10, 12, 13, 13, 13].map(ns)).expect("a profile");
    let base = config(&[5], 1, 1, 195, Dispatch::Eager);
    let config = SchedulerConfig { workers: vec![rt_core::Workers { count: 2, batch: 7, profile }], ..base };
    let spec = promised(ArrivalBound::periodic(ns(1), ns(2)).expect("valid"), (0, 1));
    let setup = Setup { config, streams: vec![spec], seed: 0, greedy: false, slow: false };
    let needed = system(&setup.config).admit(&setup.streams).expect("admitted").waiting;
    let tolerance = system(&setup.config).tolerance(&setup.streams, setup.config.deadline, needed);
    assert!(needed < 184 && tolerance < ns(181), "{needed} {tolerance:?}");
    let config = SchedulerConfig { tolerance, queue: needed as usize, ..setup.config.clone() };
    let bench = attack(&Setup { config, ..setup }, tolerance, false);
    assert_eq!(bench.harness.mandatory_misses(), []);
}
