//! Small systems searched exhaustively in which things go wrong at first: once safe mode is over all that comes is in time,
//! whatever was sent beyond the declarations before, and with batches that are granted more in a lull.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, Instant, SchedulerConfig,
    Severity, Shield, Span, StreamId, StreamSpec,
};

use crate::harness::choices::{Choices, exhaust};
use crate::harness::load::{QUICK, ns};
use crate::harness::{Harness, config, earliest, system};

/// Runs of each system.
const BUDGET: u64 = 2_000;
/// For how long things go wrong.
const WRONG: u64 = 3;

/// Requests within `bound`, none to be missed.
fn strict(bound: &ArrivalBound) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    StreamSpec::promised(set, ArrivalCurve::new(std::slice::from_ref(bound)).expect("one"))
}

/// Streams, and workers.
#[derive(Clone, Debug)]
struct Small {
    config: SchedulerConfig,
    streams: Vec<StreamSpec>,
}

/// What all runs came to.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    /// Of those in which something went wrong all was well again.
    well: u64,
    /// Requests that had to be answered then.
    came: usize,
    /// Batches granted more in a lull than at any time, and those of them that follow an excess.
    in_a_lull: usize,
    behind_an_excess: usize,
}

/// One run.
struct Run<'a> {
    small: &'a Small,
    harness: Harness,
    ids: Vec<StreamId>,
    /// Of each stream the instants of those that kept to the declaration.
    conforming: Vec<Vec<u64>>,
    excess: Rc<Cell<bool>>,
}

impl Run<'_> {
    fn may_send(&self, stream: usize) -> bool {
        let bounds = self.small.streams[stream].arrivals().expect("declared").bounds();
        earliest(&self.conforming[stream], bounds, self.harness.now) <= self.harness.now
    }

    fn send(&mut self, stream: usize) {
        if self.may_send(stream) {
            self.conforming[stream].push(self.harness.now);
        } else {
            self.excess.set(true);
        }
        self.harness.arrive(self.ids[stream]);
    }
}

impl Small {
    /// One run of so many ticks.
    fn play(&self, ticks: u64, choices: &Rc<RefCell<Choices>>, tally: &mut Tally) {
        let choose = |options| choices.borrow_mut().choose(options);
        let wrong = Rc::new(Cell::new(true));
        let mut harness = Harness::new(self.config.clone(), {
            let (wrong, choices) = (Rc::clone(&wrong), Rc::clone(choices));
            move |_, bound| if wrong.get() { bound + 3 * choices.borrow_mut().choose(2) } else { bound }
        });
        let ids: Vec<_> = self.streams.iter().map(|spec| harness.add(spec.clone())).collect();
        let load = self.streams.iter().filter_map(StreamSpec::demand);
        let shield = Shield::new(&self.config.workers[0], self.config.deadline, load).expect("admitted");
        harness.scheduler.set_shield(Some(shield)).expect("made for it");
        let stranger = harness.add(StreamSpec::best_effort());
        let excess = Rc::new(Cell::new(false));
        let counts = self.lengthen(&mut harness, choices, &excess);
        let conforming = vec![Vec::new(); ids.len()];
        let mut run = Run { small: self, harness, ids, conforming, excess };
        let mut well = None;
        for now in 0..ticks {
            run.harness.advance_to(now);
            wrong.set(now < WRONG);
            if !wrong.get() && well.is_none() && severity(&run.harness) < Severity::Safe {
                well = Some((now, run.harness.causes().len()));
            }
            for stream in 0..run.ids.len() {
                if wrong.get() {
                    // Two at once, whether it may or not.
                    (0..2 * choose(2)).for_each(|_| run.send(stream));
                } else if run.may_send(stream) && choose(2) == 1 {
                    run.send(stream);
                }
            }
            if (0..self.config.worker_count()).any(|worker| !run.harness.is_busy(worker)) {
                run.harness.arrive(stranger);
            }
        }
        run.harness.drain();
        tally.runs += 1;
        tally.in_a_lull += counts.0.get();
        tally.behind_an_excess += counts.1.get();
        let Some((from, causes)) = well.filter(|&(_, causes)| causes > 0) else { return };
        // A batch begun before may have run too long since, and been told of.
        if run.harness.causes()[causes..].iter().any(|(_, cause)| *cause != Cause::ConstraintViolated) {
            return;
        }
        tally.well += 1;
        tally.came += run.conforming.iter().flatten().filter(|&&at| at >= from).count();
        let late = run.harness.mandatory_misses().into_iter();
        let late: Vec<_> = late.filter(|r| r.request.arrival.as_nanos() >= from).collect();
        assert!(late.is_empty(), "{self:?}, well from {from}, sent {:?}: {late:?}", run.conforming);
    }

    /// Lets an adversary choose which batches take all that they may, and counts those granted more in a lull.
    fn lengthen(
        &self,
        harness: &mut Harness,
        choices: &Rc<RefCell<Choices>>,
        excess: &Rc<Cell<bool>>,
    ) -> (Rc<Cell<usize>>, Rc<Cell<usize>>) {
        let counts = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (told, choices, excess) = (counts.clone(), Rc::clone(choices), Rc::clone(excess));
        let mut until = vec![0; self.config.worker_count()];
        harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
            let at = Instant::from_nanos(now);
            let longest = scheduler.longest(at, worker).as_nanos();
            let length = if longest > bound && choices.borrow_mut().choose(2) == 0 { longest } else { bound };
            if length > bound {
                let others = until.iter().enumerate().filter(|&(other, _)| other != worker);
                let left = others.map(|(_, &until): (_, &u64)| ns(until.saturating_sub(now)));
                let left: Vec<Span> = left.collect();
                let shield = scheduler.shield().expect("it allows more");
                let always =
                    shield.longest(at, left.iter().copied(), std::iter::empty::<Instant>(), Span::ZERO);
                let in_a_lull = usize::from(length > always.as_nanos());
                told.0.set(told.0.get() + in_a_lull);
                told.1.set(told.1.get() + if excess.get() { in_a_lull } else { 0 });
                scheduler.prolong(at, worker, ns(length)).expect("allowed");
            }
            until[worker] = now + length;
            length
        }));
        counts
    }
}

fn severity(harness: &Harness) -> Severity {
    harness.scheduler.safe_mode().state().severity
}

#[test]
fn once_safe_mode_is_over_all_that_comes_is_in_time_in_lulls_too() {
    let window = |count, length| ArrivalBound::window(count, ns(length)).expect("valid");
    let loads = [
        vec![window(1, 4)],
        vec![window(1, 7)],
        vec![window(2, 9)],
        vec![ArrivalBound::periodic(ns(6), ns(4)).expect("valid")],
        vec![ArrivalBound::distances(&[ns(2), ns(11)]).expect("valid")],
        vec![window(1, 6), window(1, 9)],
        vec![window(1, 8), window(2, 12)],
    ];
    let (mut tally, mut systems, mut depths) = (Tally::default(), 0, 0);
    for (times, workers) in [(&[2][..], 1), (&[1], 1), (&[2, 3], 1), (&[3], 2)] {
        for (load, latency) in loads.iter().flat_map(|load| [5, 7, 10].map(|l| (load, l))) {
            for dispatch in [Dispatch::Eager, Dispatch::FullOrLatest] {
                let config = config(times, times.len(), workers, latency, dispatch);
                let config = SchedulerConfig { queue: 64, streams: 4, safe_mode: QUICK, ..config };
                let streams: Vec<_> = load.iter().map(strict).collect();
                if system(&config).admit(&streams).is_ok() {
                    systems += 1;
                    let small = Small { config, streams };
                    depths += exhaust(6, BUDGET, |ticks, choices| small.play(ticks, choices, &mut tally));
                }
            }
        }
    }
    println!("{systems} systems, ticks exhausted on average {}, {tally:?}", depths / systems);
    assert!(tally.well * 3 > tally.runs && tally.came as u64 * 2 > tally.well, "{tally:?}");
    assert!(tally.behind_an_excess as u64 * 10 > tally.runs, "{tally:?}");
}
