//! What the proof assumes of a scheduler (`proof/Model.v`), held against the one that there is, step by step.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{
    Action, Arrival, BalancedWord, ConstraintSet, Dispatch, Instant, LatencyProfile, Outcome, Ran, Scheduler,
    SchedulerConfig, StreamId, StreamSpec, Workers,
};

use crate::harness;
use crate::harness::load::{Setup, guarded, ns, setup};
use crate::harness::{Dice, earliest};

/// A scheduler, beside the state of the model: the mandatory requests that wait, what runs, how late dispatch is.
struct Machine {
    scheduler: Scheduler,
    now: u64,
    /// How late the timer rings.
    delay: u64,
    wake: Option<u64>,
    words: Vec<(StreamId, BalancedWord)>,
    /// Whether anything is promised.
    promised: bool,
    /// Stream and arrival of each mandatory request that waits, in order.
    waiting: VecDeque<(StreamId, u64)>,
    /// When each batch ends, and when it must have ended.
    running: Vec<Option<(u64, u64)>>,
    late: u64,
    /// How late dispatch has been at most.
    latest: u64,
    /// Batches that began when another ended, and those of a worker that others were free beside.
    at_once: usize,
    chosen: usize,
}

/// The step that the model does not make.
type Step = Result<(), String>;

impl Machine {
    fn new(config: SchedulerConfig, delay: u64) -> Self {
        let running = vec![None; config.worker_count()];
        let scheduler = Scheduler::new(config).expect("a configuration");
        let (words, waiting) = (Vec::new(), VecDeque::new());
        let (now, wake, late, latest, at_once, chosen) = (0, None, 0, 0, 0, 0);
        let promised = false;
        Self { scheduler, now, delay, wake, words, promised, waiting, running, late, latest, at_once, chosen }
    }

    fn add(&mut self, spec: &StreamSpec) -> usize {
        let id = self.scheduler.add_stream(Instant::from_nanos(self.now), spec.clone()).expect("room");
        self.words.push((id, BalancedWord::new(spec.constraints().density())));
        self.promised |= spec.demand().is_some();
        self.words.len() - 1
    }

    /// A request comes, and the scheduler is polled before the next one.
    fn arrive(&mut self, stream: usize) -> Step {
        let (id, ref mut word) = self.words[stream];
        if word.next_is_mandatory() {
            self.waiting.push_back((id, self.now));
        }
        let now = Instant::from_nanos(self.now);
        let refused = self.scheduler.handle_arrival(now, Arrival::new(id, 0, now));
        match refused {
            Some(resolution) if resolution.request.mandatory => Err(format!("refused: {resolution:?}")),
            _ => self.poll(),
        }
    }

    fn poll(&mut self) -> Step {
        loop {
            match self.scheduler.poll(Instant::from_nanos(self.now)) {
                Action::Start { worker } => self.start(worker)?,
                Action::Resolve(r) if r.request.mandatory && r.outcome != Outcome::Served => {
                    return Err(format!("missed: {r:?}"));
                }
                Action::Resolve(_) | Action::Event(_) => {}
                Action::WakeAt(wake) => {
                    self.wake = wake.map(Instant::as_nanos);
                    return Ok(());
                }
            }
        }
    }

    fn full(&self, worker: usize) -> (usize, u64) {
        let kind = self.scheduler.config().worker(worker).expect("a worker");
        (kind.batch, kind.batch_time().as_nanos())
    }

    fn free(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.running.len()).filter(|&w| self.running[w].is_none())
    }

    /// The batch is that of a free worker, none that is free is quicker, and it holds the mandatory requests that came
    /// first, as many as it can.
    fn start(&mut self, worker: usize) -> Step {
        let (most, time) = self.full(worker);
        if self.running[worker].is_some() || self.free().any(|other| self.full(other).1 < time) {
            return Err(format!("worker {worker} is not the one to go"));
        }
        let chosen = self.free().any(|other| self.full(other).1 > time);
        self.chosen += usize::from(chosen);
        let batch = self.scheduler.batch(worker);
        let mandatory = batch.iter().take_while(|r| r.mandatory);
        let taken: Vec<_> = mandatory.map(|r| (r.stream, r.arrival.as_nanos())).collect();
        let first: Vec<_> = self.waiting.drain(..most.min(self.waiting.len())).collect();
        // Without a shield more than a full batch is taken only where nothing is promised.
        if taken != first
            || self.promised && batch.len() > most
            || batch.iter().skip(taken.len()).any(|r| r.mandatory)
        {
            return Err(format!("{batch:?} is not {first:?}"));
        }
        let bound = self.scheduler.config().worker(worker).expect("a worker").profile.bound(batch.len());
        let bound = bound.as_nanos();
        self.running[worker] = Some((self.now + bound, self.now + time.max(bound)));
        Ok(())
    }

    /// For how long nothing is due: fewer wait than fill the worker to go, and each still has time for the guard and a batch.
    fn rest(&self) -> u64 {
        let config = self.scheduler.config();
        let Some(&(_, first)) = self.waiting.front() else { return u64::MAX };
        let quickest = self.free().map(|w| self.full(w).1).min();
        let free = self.free().filter(|&w| Some(self.full(w).1) == quickest);
        let largest =
            free.max_by_key(|&w| self.full(w).0).filter(|_| config.dispatch == Dispatch::FullOrLatest);
        let Some((most, time)) = largest.map(|w| self.full(w)) else { return 0 };
        let due = first + config.deadline.as_nanos() - config.guard.as_nanos();
        if self.waiting.len() < most { due.saturating_sub(self.now + time) } else { 0 }
    }

    /// Time passes: no batch runs past its end, and where something is due beside a free worker, dispatch is late, by no more
    /// than the guard in all from one instant at which nothing was due to the next.
    fn pass(&mut self, to: u64) -> Step {
        if self.running.iter().flatten().any(|&(_, due)| due < to) {
            return Err(format!("a batch runs on at {to}"));
        }
        let (length, rest) = (to - self.now, self.rest());
        if length > 0 && rest > 0 {
            self.late = 0;
        }
        if length > rest && self.free().next().is_some() {
            self.late += length - rest;
        }
        self.latest = self.latest.max(self.late);
        self.now = to;
        let guard = self.scheduler.config().guard.as_nanos();
        if self.late > guard { Err(format!("late by {} of {guard}", self.late)) } else { Ok(()) }
    }

    /// Lets time pass up to and with `to`; of one instant batches end first, and the scheduler is polled after each.
    fn advance(&mut self, to: u64) -> Step {
        loop {
            let end = (0..self.running.len()).filter_map(|w| Some((self.running[w]?.0, w))).min();
            let wake = self.wake.map(|wake| (wake + self.delay, usize::MAX));
            match [end, wake].into_iter().flatten().min().filter(|&(at, _)| at <= to) {
                None => return self.pass(to),
                Some((at, usize::MAX)) => {
                    self.pass(at.max(self.now))?;
                    self.wake = None;
                }
                Some((at, worker)) => {
                    self.pass(at)?;
                    self.running[worker] = None;
                    let waited = !self.waiting.is_empty();
                    self.scheduler.handle_completion(Instant::from_nanos(at), worker, Ran::Done(ns(1)));
                    self.poll()?;
                    self.at_once += usize::from(waited && self.running[worker].is_some());
                    continue;
                }
            }
            self.poll()?;
        }
    }
}

/// Bursts as large as the curves allow after lulls, and a stranger's requests among them.
fn attack(setup: &Setup, delay: u64) -> (Machine, Step) {
    let (mut machine, mut dice) = (Machine::new(setup.config.clone(), delay), Dice(setup.seed));
    let streams: Vec<_> = setup.streams.iter().map(|spec| machine.add(spec)).collect();
    let stranger = machine.add(&StreamSpec::best_effort());
    let (mut history, mut next) = (vec![Vec::new(); streams.len()], vec![0; streams.len()]);
    let mut play = || -> Step {
        for request in 0..300 {
            if request % 30 == 0 {
                let lull = machine.now + dice.within(0, 2 * setup.config.deadline.as_nanos());
                next.iter_mut().for_each(|next| *next = lull.max(*next));
            }
            let at = next.iter().copied().min().unwrap_or(machine.now + 5);
            if dice.within(0, 4) == 0 {
                let before = dice.within(machine.now, at);
                machine.advance(before)?;
                machine.arrive(stranger)?;
            }
            machine.advance(at)?;
            let Some(s) = (0..next.len()).find(|&s| next[s] == at) else { continue };
            machine.arrive(streams[s])?;
            history[s].push(at);
            let bounds = setup.streams[s].arrivals().expect("declared").bounds();
            next[s] = earliest(&history[s], bounds, at + dice.within(0, 5).saturating_sub(4));
        }
        machine.advance(machine.now + 2 * setup.config.deadline.as_nanos())
    };
    let step = play();
    (machine, step)
}

/// Beside the workers of the setup slower ones, as many, with more time for all.
fn mixed(setup: Setup, factor: u64) -> Setup {
    let kind = setup.config.workers[0].clone();
    let slower = |b| ns(kind.profile.bound(b).as_nanos() * factor);
    let profile = LatencyProfile::new(&(1..=kind.batch).map(slower).collect::<Vec<_>>()).expect("valid");
    let more = ns(kind.batch_time().as_nanos() * (factor - 1));
    let slow = Workers { profile, ..kind.clone() };
    let (workers, deadline) = (vec![slow, kind], setup.config.deadline + more);
    Setup { config: SchedulerConfig { workers, deadline, ..setup.config }, ..setup }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    /// Lateness in all, ends and starts at one instant, mandatory requests first and in order.
    #[test]
    fn every_step_is_one_of_the_model(setup in setup(), guard in 0u64..5) {
        let (machine, step) = attack(&guarded(setup, guard), guard);
        prop_assert_eq!(step, Ok(()));
        prop_assert!(machine.latest <= guard);
    }

    #[test]
    fn the_quickest_free_worker_goes_first(setup in setup(), guard in 0u64..5, factor in 1u64..4) {
        let (_, step) = attack(&mixed(guarded(setup, guard), factor), guard);
        prop_assert_eq!(step, Ok(()));
    }
}

/// The tests above say something: dispatch is late, batches begin as others end, workers are chosen among; and a timer that
/// is late by more than the guard is found out.
#[test]
fn what_is_assumed_happens_and_a_breach_is_found() {
    let mut runner = TestRunner::deterministic();
    let (mut late, mut at_once, mut chosen, mut found) = (0, 0, 0, 0);
    for _ in 0..200 {
        let setup = guarded(setup().new_tree(&mut runner).expect("a setup").current(), 3);
        let (machine, _) = attack(&setup, 3);
        late += usize::from(machine.latest == 3);
        at_once += machine.at_once;
        found += usize::from(attack(&setup, 4).1.is_err());
        chosen += attack(&mixed(setup, 2), 3).0.chosen;
    }
    println!("late in {late} of 200, found in {found}, {at_once} at once, {chosen} chosen");
    assert!(late > 20 && found > 20 && at_once > 1_000 && chosen > 1_000);
}

/// Two requests of one instant, for a worker that takes two: the first is begun before the second comes.
#[test]
fn a_batch_may_begin_between_two_requests_of_one_instant() {
    let strict = ConstraintSet::new(&[rt_core::Constraint::row_miss(0).expect("valid")]).expect("one");
    let window = rt_core::ArrivalBound::window(2, ns(9)).expect("valid");
    let spec = StreamSpec::promised(strict, rt_core::ArrivalCurve::new(&[window]).expect("one"));
    let mut machine = Machine::new(harness::config(&[2, 3], 2, 1, 9, Dispatch::Eager), 0);
    let stream = machine.add(&spec);
    machine.arrive(stream).expect("a step");
    assert_eq!(machine.scheduler.batch(0).len(), 1);
    machine.arrive(stream).expect("a step");
    assert_eq!((machine.scheduler.batch(0).len(), machine.waiting.len()), (1, 1));
    machine.advance(2).expect("steps");
    assert_eq!((machine.scheduler.batch(0).len(), machine.waiting.len()), (1, 0));
}
