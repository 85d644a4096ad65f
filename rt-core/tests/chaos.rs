//! Whatever goes wrong, and in whatever order: no request that must be served is missed out of safe mode.

use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rt_core::{
    Cause, Event, Instant, MissReason, Outcome, SafeModeState, SchedulerConfig, Severity, StreamId,
    StreamSpec, Transition,
};

use crate::harness::load::{
    Bench, QUICK, Setup, open_or_closed, setup_and_next, shield_of, stalls, stretch, with_stalls,
};
use crate::harness::{Dice, Harness, fallbacks, instances};

/// How often something was done in a run, or came about.
#[derive(Debug, Default)]
struct Tally {
    disturbances: usize,
    takeovers: usize,
    newcomers: usize,
    waits: usize,
    left: usize,
    fell: usize,
    missed_in_safe_mode: usize,
    longer: usize,
    stalls: usize,
}

/// A load that keeps to its declarations, save for floods, on workers that are lost, fail and overrun, with timers
/// that are late, streams that leave and come, and schedulers that take over from each other.
struct Chaos<'a> {
    setup: &'a Setup,
    other: Option<&'a SchedulerConfig>,
    bench: Bench,
    dice: Dice,
    /// Batches take up to so many times their bound.
    times: Rc<Cell<u64>>,
    lost: Vec<usize>,
    /// Streams that left.
    gone: Vec<usize>,
    nothing: Option<StreamId>,
    tally: Tally,
}

impl<'a> Chaos<'a> {
    fn new(setup: &'a Setup, other: Option<&'a SchedulerConfig>) -> Self {
        let mut bench = Bench::new(setup);
        let times = Rc::new(Cell::new(1));
        bench.harness.set_service({
            let (times, mut dice) = (Rc::clone(&times), Dice(setup.seed ^ 21));
            let slow = setup.slow;
            move |_, bound| match times.get() {
                1 if slow => bound,
                n => dice.within(1, n * bound),
            }
        });
        let nothing = setup.config.background.then(|| bench.harness.add(StreamSpec::best_effort()));
        let dice = Dice(setup.seed ^ 22);
        let mut chaos = Self {
            setup,
            other,
            bench,
            dice,
            times,
            lost: Vec::new(),
            gone: Vec::new(),
            nothing,
            tally: Tally::default(),
        };
        chaos.raise_shield();
        chaos
    }

    /// Batches take as long as the shield allows, and the promises fall back where they can. Both count every stream, those that are
    /// gone as well.
    fn raise_shield(&mut self) {
        let harness = &mut self.bench.harness;
        let config = harness.scheduler.config().clone();
        if !config.background {
            return;
        }
        let now = Instant::from_nanos(harness.now);
        harness.scheduler.set_fallbacks(now, fallbacks(&config, &self.setup.streams));
        let setup = Setup { config, ..self.setup.clone() };
        harness.scheduler.set_shield(Some(shield_of(&setup, &setup.streams))).expect("made for it");
        stretch(harness);
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.dice.within(0, 59) {
                0 => self.disturb(),
                1..=5 => self.mend(),
                6 => self.flood(),
                7 => self.leave(),
                8 => self.restart(),
                9 => self.take_over(),
                10 => self.all_at_once(),
                11..=15 => {
                    if let Some(nothing) = self.nothing {
                        self.bench.harness.arrive(nothing);
                    }
                }
                16..=19 => self.pause(),
                _ => {}
            }
            self.return_those_who_may();
            self.step();
        }
        self.times.set(1);
        self.bench.finish();
        self.tally.longer =
            self.bench.harness.longer_than(self.setup.config.workers[0].batch_time().as_nanos());
        self.tally.stalls = self.bench.harness.scheduler.stalls() as usize;
    }

    /// The next request comes, or, where all streams have left, some time passes.
    fn step(&mut self) {
        if self.bench.next.iter().any(|&next| next < u64::MAX) {
            self.bench.step(self.setup);
        } else {
            self.pause();
        }
    }

    fn pause(&mut self) {
        let harness = &mut self.bench.harness;
        let most = 2 * harness.scheduler.config().deadline.as_nanos();
        let to = harness.now + self.dice.within(0, most);
        harness.advance(to, true);
        // Who could have sent meanwhile did not.
        for next in self.bench.next.iter_mut().filter(|next| **next < u64::MAX) {
            *next = (*next).max(to);
        }
    }

    fn all_at_once(&mut self) {
        self.bench.all_at_once(self.setup);
        self.gone.iter().for_each(|&stream| self.bench.next[stream] = u64::MAX);
    }

    fn disturb(&mut self) {
        self.tally.disturbances += 1;
        let workers = self.bench.harness.scheduler.config().worker_count();
        let worker = self.dice.within(0, workers as u64 - 1) as usize;
        match self.dice.within(0, 3) {
            0 => self.times.set(self.dice.within(2, 10)),
            1 if !self.lost.contains(&worker) => {
                self.bench.harness.lose(worker);
                self.lost.push(worker);
            }
            2 => self.bench.harness.timer_delay = self.dice.within(1, 20),
            _ if self.bench.harness.is_busy(worker) => self.bench.harness.fail(worker),
            _ => {}
        }
    }

    fn mend(&mut self) {
        self.times.set(1);
        self.bench.harness.timer_delay = 0;
        if let Some(worker) = self.lost.pop() {
            self.bench.harness.ready(worker);
        }
    }

    /// One of the streams, if it is there.
    fn any_stream(&mut self) -> Option<usize> {
        let stream = self.dice.within(0, (self.bench.ids.len() as u64).max(1) - 1) as usize;
        self.bench.next.get(stream).is_some_and(|&next| next < u64::MAX).then_some(stream)
    }

    fn flood(&mut self) {
        if let Some(stream) = self.any_stream() {
            for _ in 0..self.dice.within(1, 12) {
                self.bench.harness.arrive(self.bench.ids[stream]);
                self.bench.history[stream].push(self.bench.harness.now);
            }
        }
    }

    fn leave(&mut self) {
        if let Some(stream) = self.any_stream() {
            self.bench.harness.scheduler.remove_stream(self.bench.ids[stream]);
            self.bench.harness.settle();
            self.bench.next[stream] = u64::MAX;
            self.gone.push(stream);
        }
    }

    fn restart(&mut self) {
        if let Some(stream) = self.any_stream() {
            let fresh = self.bench.harness.scheduler.restart_stream(self.bench.ids[stream]);
            self.bench.ids[stream] = fresh.expect("a known stream");
            self.bench.harness.settle();
        }
    }

    /// As the daemon does: a stream comes back as soon as it may, beside those that wait for it to be cleared.
    fn return_those_who_may(&mut self) {
        let bench = &mut self.bench;
        for stream in std::mem::take(&mut self.gone) {
            match bench.harness.try_add(&self.setup.streams[stream], None) {
                Some(id) => {
                    bench.ids[stream] = id;
                    bench.history[stream].clear();
                    bench.next[stream] = bench.harness.now;
                    self.tally.newcomers += 1;
                }
                None => {
                    self.tally.waits += 1;
                    self.gone.push(stream);
                }
            }
        }
    }

    fn take_over(&mut self) {
        let Some(other) = self.other else { return };
        let mut config =
            if self.tally.takeovers.is_multiple_of(2) { other.clone() } else { self.setup.config.clone() };
        config.safe_mode = self.setup.config.safe_mode;
        self.bench.harness.scheduler.set_quiet(true);
        for _ in 0..100 {
            self.bench.harness.settle();
            if self.bench.harness.hand_over(config.clone()).is_ok() {
                self.tally.takeovers += 1;
                self.lost.clear();
                self.raise_shield();
                break;
            }
            self.step();
        }
        self.bench.harness.scheduler.set_quiet(false);
    }
}

/// When safe mode was entered for another cause than a violated constraint, which no longer saves what was missed, and
/// when it was left; the last time may still go on.
fn stays(harness: &Harness) -> Vec<(u64, u64)> {
    let mut stays: Vec<(u64, u64)> = Vec::new();
    for (at, event) in &harness.events {
        let Event::SafeMode(transition) = event else { continue };
        let open = stays.last().is_some_and(|(_, left)| *left == u64::MAX);
        match transition.breach() {
            Some(Cause::ConstraintViolated) => {}
            Some(_) if !open => stays.push((*at, u64::MAX)),
            None if open => stays.last_mut().expect("open").1 = *at,
            _ => {}
        }
    }
    stays
}

/// Everything at once. Panics if a request is missed that neither came nor was missed in safe mode.
fn run(setup: &Setup, other: Option<&SchedulerConfig>) -> Tally {
    let config = SchedulerConfig { safe_mode: QUICK, ..setup.config.clone() };
    let setup = Setup { config, ..setup.clone() };
    let mut chaos = Chaos::new(&setup, other);
    chaos.run(600);
    let stays = stays(&chaos.bench.harness);
    let fell = |(_, event): &&(u64, Event)| match event {
        Event::SafeMode(Transition { state: SafeModeState { severity, alarm }, .. }) => {
            *severity == Severity::Warning
                && alarm
                    .is_some_and(|alarm| [Cause::WorkerLost, Cause::ServiceOverrun].contains(&alarm.cause))
        }
        _ => false,
    };
    chaos.tally.fell = chaos.bench.harness.events.iter().filter(fell).count();
    chaos.tally.left = stays.iter().filter(|(_, left)| *left < u64::MAX).count();
    for (at, resolution) in &chaos.bench.harness.resolutions {
        let (request, missed) = (&resolution.request, resolution.outcome);
        let own = [Outcome::Served, Outcome::Missed(MissReason::Cancelled)].contains(&missed);
        if !request.mandatory || own {
            continue;
        }
        let came = request.arrival.as_nanos();
        assert!(
            stays.iter().any(|&(entered, left)| entered <= *at && came <= left),
            "missed at {at} out of safe mode, which was {stays:?}: {resolution:?}"
        );
        chaos.tally.missed_in_safe_mode += 1;
    }
    chaos.tally
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: instances(170) as u32, ..ProptestConfig::default() })]

    #[test]
    fn no_request_is_missed_out_of_safe_mode(setup in open_or_closed()) {
        prop_assume!(!setup.streams.is_empty());
        run(&setup, None);
    }

    #[test]
    fn nor_where_stalls_are_declared(setup in open_or_closed(), (count, length) in stalls()) {
        prop_assume!(!setup.streams.is_empty());
        if let Some((setup, _)) = with_stalls(setup, count, length) {
            run(&setup, None);
        }
    }

    #[test]
    fn nor_across_takeovers((setup, other) in setup_and_next()) {
        prop_assume!(!setup.streams.is_empty());
        run(&setup, other.as_ref());
    }
}

/// The tests above say something only if all of that happens, and safe mode is left again and again.
#[test]
fn much_goes_wrong_and_ends() {
    let mut runner = TestRunner::deterministic();
    let mut all = Tally::default();
    for _ in 0..100 {
        let (setup, other) = setup_and_next().new_tree(&mut runner).expect("a setup").current();
        if let Some((setup, _)) = with_stalls(setup.clone(), 1, 20) {
            all.stalls += run(&setup, None).stalls;
        }
        let one = run(&setup, other.as_ref());
        all.disturbances += one.disturbances;
        all.takeovers += one.takeovers;
        all.newcomers += one.newcomers;
        all.waits += one.waits;
        all.left += one.left;
        all.fell += one.fell;
        all.missed_in_safe_mode += one.missed_in_safe_mode;
        all.longer += one.longer;
    }
    println!("{all:?}");
    let least = [
        all.disturbances,
        all.takeovers,
        all.newcomers,
        all.waits,
        all.left,
        all.fell,
        all.missed_in_safe_mode,
        all.longer,
        all.stalls,
    ];
    assert!(least.iter().all(|&count| count > 100), "{all:?}");
}
