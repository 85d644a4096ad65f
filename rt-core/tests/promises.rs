//! The promises that hold while every assumption does, one test each, over random systems and arrivals.

mod harness;

use harness::{Dice, Harness, config, earliest, violates_any};
use proptest::prelude::*;
use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, SchedulerConfig, Span, StreamId,
    StreamSpec, System, largest_count,
};

/// An admitted system, with everything that a run of it needs.
#[derive(Clone, Debug)]
struct Setup {
    config: SchedulerConfig,
    streams: Vec<StreamSpec>,
    seed: u64,
    /// Requests come as many and as early as their curves allow; else at random, within them.
    greedy: bool,
    /// Batches take all the time they may; else any time up to it.
    slow: bool,
}

fn ns(t: u64) -> Span {
    Span::from_nanos(t)
}

fn bound() -> impl Strategy<Value = ArrivalBound> {
    prop_oneof![
        (1u64..7, 1u64..60).prop_map(|(n, w)| ArrivalBound::window(n, ns(w)).expect("valid")),
        (1u64..30, 0u64..60).prop_map(|(t, j)| ArrivalBound::periodic(ns(t), ns(j)).expect("valid")),
        (1u64..6, 1u64..30).prop_map(|(b, t)| ArrivalBound::token_bucket(b, ns(t)).expect("valid")),
    ]
}

fn constraint() -> impl Strategy<Value = Constraint> {
    (1u32..9).prop_flat_map(|k| (0..k, Just(k))).prop_map(|(m, k)| Constraint::any_miss(m, k).expect("m<k"))
}

fn stream() -> impl Strategy<Value = StreamSpec> {
    let constraints = proptest::collection::vec(constraint(), 1..4);
    let bounds = proptest::collection::vec(bound(), 1..3);
    (constraints, bounds).prop_map(|(constraints, bounds)| {
        let set = ConstraintSet::new(&constraints).expect("few");
        StreamSpec::promised(set, ArrivalCurve::new(&bounds).expect("few"))
    })
}

fn system() -> impl Strategy<Value = System> {
    let steps = proptest::collection::vec(0u64..4, 7);
    (1u64..12, steps, 1usize..9, 1usize..5, 0u64..4).prop_map(|(first, steps, batch, workers, more)| {
        let mut times = vec![first];
        steps.iter().for_each(|step| times.push(times[times.len() - 1] + step));
        let latency = ns(times[batch - 1] * (2 + more));
        System { profile: config(&times, 1, 1, 1000, Dispatch::Eager).profile, batch, workers, latency }
    })
}

/// Gives up streams and relaxes the deadline until the rest is admitted.
fn admissible(mut system: System, mut streams: Vec<StreamSpec>) -> (System, Vec<StreamSpec>) {
    while system.admit(&streams).is_err() {
        system.latency = system.latency + system.batch_time();
        if system.latency > ns(system.batch_time().as_nanos() * 12) {
            streams.pop();
        }
    }
    (system, streams)
}

fn setup() -> impl Strategy<Value = Setup> {
    let streams = proptest::collection::vec(stream(), 1..5);
    let run = (any::<u64>(), any::<bool>(), any::<bool>(), any::<bool>());
    (system(), streams, run).prop_map(|(system, streams, (seed, latest, greedy, slow))| {
        let (system, streams) = admissible(system, streams);
        let dispatch = if latest { Dispatch::FullOrLatest } else { Dispatch::Eager };
        let base = config(&[1], 1, 1, system.latency.as_nanos(), dispatch);
        let System { profile, batch, workers, .. } = system;
        let config = SchedulerConfig { profile, batch, workers, ..base };
        Setup { config, streams, seed, greedy, slow }
    })
}

/// A scheduler under conforming load.
struct Bench {
    harness: Harness,
    ids: Vec<StreamId>,
    history: Vec<Vec<u64>>,
    next: Vec<u64>,
    dice: Dice,
}

impl Bench {
    fn new(setup: &Setup) -> Self {
        let (mut dice, slow) = (Dice(setup.seed), setup.slow);
        let service = move |_, bound| if slow { bound } else { dice.within(1, bound) };
        let mut harness = Harness::new(setup.config.clone(), service);
        let ids: Vec<_> = setup.streams.iter().map(|s| harness.add(s.clone())).collect();
        let (history, next) = (vec![Vec::new(); ids.len()], vec![0; ids.len()]);
        Self { harness, ids, history, next, dice: Dice(!setup.seed) }
    }

    /// The stream whose request comes next, after it has come.
    fn step(&mut self, setup: &Setup) -> Option<usize> {
        let stream = (0..self.ids.len()).min_by_key(|&s| self.next[s])?;
        let now = self.next[stream];
        // What ends at the same instant is heard of before or after the arrival.
        let first = self.dice.within(0, 1) == 0;
        self.harness.advance(now, first);
        if self.dice.within(0, 3) > 0 {
            self.harness.arrive(self.ids[stream]);
        } else {
            self.harness.arrive_unpolled(self.ids[stream]);
        }
        let history = &mut self.history[stream];
        history.push(now);
        let curve = setup.streams[stream].arrivals().expect("declared");
        let pause = if setup.greedy { 0 } else { self.dice.within(0, 40).saturating_sub(25) };
        // Only so far back does any curve here look.
        let recent = &history[history.len().saturating_sub(400)..];
        self.next[stream] = earliest(recent, curve.bounds(), now + pause);
        Some(stream)
    }

    fn load(&mut self, setup: &Setup, requests: usize) {
        (0..requests).for_each(|_| drop(self.step(setup)));
    }

    fn finish(&mut self) {
        self.harness.settle();
        self.harness.drain();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_constraint_of_an_admitted_system_is_kept(setup in setup()) {
        let mut bench = Bench::new(&setup);
        bench.load(&setup, 400);
        bench.finish();
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        for (id, spec) in bench.ids.iter().zip(&setup.streams) {
            prop_assert!(!violates_any(&bench.harness.outcomes(*id), spec.constraints()));
        }
    }

    #[test]
    fn safe_mode_is_never_raised_while_every_assumption_holds(setup in setup()) {
        let mut bench = Bench::new(&setup);
        bench.load(&setup, 300);
        bench.finish();
        prop_assert_eq!(bench.harness.causes(), []);
        prop_assert_eq!(bench.harness.scheduler.safe_mode().breaches(), 0);
    }

    #[test]
    fn every_request_is_served_missed_waiting_or_running(setup in setup(), queue in 1usize..12) {
        let config = SchedulerConfig { queue, ..setup.config.clone() };
        let setup = Setup { config, ..setup };
        let mut bench = Bench::new(&setup);
        for i in 0..300 {
            bench.step(&setup);
            // An extra request now and then, and workers that fail, are lost and come back.
            let stream = bench.dice.within(0, 40) as usize;
            if let Some(&id) = bench.ids.get(stream) {
                (0..6).for_each(|_| drop(bench.harness.arrive(id)));
            }
            let worker = bench.dice.within(0, 60) as usize;
            match (worker < setup.config.workers, i % 3) {
                (true, 0) if bench.harness.is_busy(worker) => bench.harness.fail(worker),
                (true, 1) => bench.harness.lose(worker),
                (true, _) => bench.harness.ready(worker),
                _ => {}
            }
            bench.harness.settle();
            bench.ids.iter().for_each(|&id| bench.harness.account(id));
        }
        bench.finish();
        bench.ids.iter().for_each(|&id| bench.harness.account(id));
    }

    #[test]
    fn a_flood_of_one_stream_breaks_no_promise_of_another(setup in setup(), burst in 1u64..20) {
        prop_assume!(!setup.streams.is_empty());
        let flooder = setup.seed as usize % setup.streams.len();
        let curve = setup.streams[flooder].arrivals().expect("declared").bounds();
        let mut bench = Bench::new(&setup);
        for _ in 0..300 {
            if bench.step(&setup) == Some(flooder) {
                for _ in 0..bench.dice.within(0, burst) {
                    bench.harness.arrive(bench.ids[flooder]);
                    bench.history[flooder].push(bench.harness.now);
                }
                bench.next[flooder] = bench.harness.now + bench.dice.within(0, 9);
            }
        }
        bench.finish();
        for (s, spec) in setup.streams.iter().enumerate().filter(|&(s, _)| s != flooder) {
            prop_assert!(!violates_any(&bench.harness.outcomes(bench.ids[s]), spec.constraints()));
        }
        prop_assert_eq!(bench.harness.mandatory_misses(), []);
        // Excess is raised by the first request that comes before the curve allows, and by no other.
        let history = &bench.history[flooder];
        let early = (0..history.len()).find(|&i| earliest(&history[..i], curve, 0) > history[i]);
        let raised = bench.harness.causes().first().copied();
        prop_assert_eq!(raised, early.map(|i| (history[i], Cause::ArrivalExcess)));
    }

    #[test]
    fn more_workers_longer_deadlines_and_fewer_arrivals_never_turn_yes_into_no(
        setup in setup(), extra in stream(), scale in prop_oneof![Just(1u64), Just(1_000_003)], more in 1u64..9,
    ) {
        let stretch = |t: Span, by: u64| ns(t.as_nanos() * scale + by);
        let relaxed = |spec: &StreamSpec, by: u64| {
            let slower = |b: &ArrivalBound| match *b {
                ArrivalBound::Window { count, length } => ArrivalBound::window(count, stretch(length, by)),
                ArrivalBound::Periodic { period, jitter } => ArrivalBound::periodic(stretch(period, by), stretch(jitter, 0)),
            };
            let bounds = spec.arrivals().expect("declared").bounds().iter().map(|b| slower(b).expect("valid"));
            let curve = ArrivalCurve::new(&bounds.collect::<Vec<_>>()).expect("few");
            StreamSpec::promised(spec.constraints().clone(), curve)
        };
        let times: Vec<_> = (1..=setup.config.profile.max_batch()).map(|b| setup.config.profile.bound(b).as_nanos() * scale).collect();
        let profile = config(&times, 1, 1, times[0], Dispatch::Eager).profile;
        let SchedulerConfig { batch, workers, deadline, .. } = setup.config;
        let system = System { profile, batch, workers, latency: stretch(deadline, 0) };
        let mut streams: Vec<_> = setup.streams.iter().map(|s| relaxed(s, 0)).collect();
        streams.push(relaxed(&extra, 0));
        if system.admit(&streams).is_err() {
            streams.pop();
        }
        prop_assume!(!streams.is_empty() && system.admit(&streams).is_ok());
        let yes = |system: &System, streams: &[StreamSpec], what: &str| {
            system.admit(streams).map(drop).map_err(|e| TestCaseError::fail(format!("{what}: {e}")))
        };
        yes(&System { workers: workers + more as usize, ..system.clone() }, &streams, "more workers")?;
        yes(&System { latency: system.latency + ns(more), ..system.clone() }, &streams, "longer deadline")?;
        yes(&system, &streams[1..], "one stream less")?;
        let mut slower = streams.clone();
        slower[0] = relaxed(&setup.streams.first().cloned().unwrap_or(extra), more);
        yes(&system, &slower, "slower arrivals")?;
    }
}

#[test]
fn the_largest_count_is_admitted_and_kept_and_one_more_is_neither() {
    let cases = [(0, 1), (1, 2), (2, 3), (5, 10), (8, 10), (3, 10), (1, 7)];
    for (m, k) in cases {
        for (workers, batch) in [(1, 1), (1, 4), (2, 3), (4, 8), (3, 1)] {
            let constraint = Constraint::any_miss(m, k).expect("valid");
            let set = ConstraintSet::new(&[constraint]).expect("one");
            let largest = largest_count(workers, batch, constraint.density()).expect("a promise");
            let spec = |count| {
                let window = ArrivalBound::window(count, ns(10)).expect("valid");
                StreamSpec::promised(set.clone(), ArrivalCurve::new(&[window]).expect("one"))
            };
            for dispatch in [Dispatch::Eager, Dispatch::FullOrLatest] {
                let config = config(&[10; 8], batch, workers, 20, dispatch);
                let system = System { profile: config.profile.clone(), batch, workers, latency: ns(20) };
                assert!(system.admit(&[spec(largest)]).is_ok(), "{constraint} n={workers} B={batch}");
                assert!(system.admit(&[spec(largest + 1)]).is_err(), "{constraint} n={workers} B={batch}");
                // As many as fit into every window of P, all at once or evenly spread.
                for (count, kept) in [(largest, true), (largest + 1, false)] {
                    for even in [false, true] {
                        let mut harness = Harness::new(config.clone(), |_, bound| bound);
                        let id = harness.add(spec(count));
                        for i in 0..count * 600 {
                            let within = if even { i % count * 10 / count } else { 0 };
                            harness.advance_to(i / count * 10 + within);
                            harness.arrive(id);
                        }
                        harness.drain();
                        let violated = violates_any(&harness.outcomes(id), &set);
                        assert_eq!(
                            violated, !kept,
                            "{constraint} n={workers} B={batch} {dispatch:?} count={count}"
                        );
                    }
                }
            }
        }
    }
}
