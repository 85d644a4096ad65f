//! Small systems searched exhaustively while batches are granted more in a lull: whoever sends what it may, leaves or
//! comes meanwhile, and whichever batches take all that they are allowed, no promise breaks.

use std::cell::RefCell;
use std::rc::Rc;

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, SchedulerConfig, Shield, Span,
    StreamId, StreamSpec,
};

use crate::harness::choices::{Choices, exhaust};
use crate::harness::load::ns;
use crate::harness::{Harness, config, earliest, system};

/// Runs of each system.
const BUDGET: u64 = 1_000;

/// Requests within `bound`, none to be missed.
fn strict(bound: ArrivalBound) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    StreamSpec::promised(set, ArrivalCurve::new(&[bound]).expect("one"))
}

/// A steady stream, one that comes and goes, and workers.
#[derive(Clone, Debug)]
struct Small {
    config: SchedulerConfig,
    steady: StreamSpec,
    restless: StreamSpec,
    /// Whether the shield counts the restless stream from the start, or one that does comes with it.
    counted: bool,
    /// Whether one that nothing is promised to keeps the workers busy.
    background: bool,
}

/// What all runs came to.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    /// Batches granted more than the shield allows without the lull.
    in_a_lull: usize,
    /// How often the restless stream came, and had to wait before it could.
    came: usize,
    waited: usize,
}

impl Small {
    fn shield(&self, streams: &[&StreamSpec]) -> Shield {
        let load = streams.iter().filter_map(|stream| stream.demand());
        Shield::new(&self.config.workers[0], self.config.deadline, load).expect("admitted")
    }

    /// Lets an adversary choose which batches take all that they may, and counts those granted more in a lull.
    fn lengthen(&self, harness: &mut Harness, choices: &Rc<RefCell<Choices>>) -> Rc<RefCell<usize>> {
        let in_a_lull = Rc::new(RefCell::new(0));
        let (choices, counted) = (Rc::clone(choices), Rc::clone(&in_a_lull));
        let mut until = vec![0; self.config.workers[0].count];
        harness.longer = Some(Box::new(move |scheduler, now, worker, bound| {
            let at = Instant::from_nanos(now);
            let longest = scheduler.longest(at, worker).as_nanos();
            let others = until.iter().enumerate().filter(|&(other, _)| other != worker);
            let left: Vec<Span> =
                others.map(|(_, &until): (_, &u64)| ns(until.saturating_sub(now))).collect();
            let length = match longest > bound && choices.borrow_mut().choose(2) == 0 {
                true => longest,
                false => bound,
            };
            if length > bound {
                let shield = scheduler.shield().expect("it allows more");
                let always =
                    shield.longest(at, left.iter().copied(), std::iter::empty::<Instant>(), Span::ZERO);
                *counted.borrow_mut() += usize::from(length > always.as_nanos());
                scheduler.prolong(at, worker, ns(length)).expect("allowed");
            }
            until[worker] = now + length;
            length
        }));
        in_a_lull
    }

    /// One run of so many ticks.
    fn play(&self, ticks: u64, choices: &Rc<RefCell<Choices>>, tally: &mut Tally) {
        let workers = self.config.workers[0].count;
        let choose = |options| choices.borrow_mut().choose(options);
        let mut harness = Harness::new(self.config.clone(), |_, bound| bound);
        let steady = harness.add(self.steady.clone());
        let mut restless = self.counted.then(|| harness.add(self.restless.clone()));
        let counted: &[_] = if self.counted { &[&self.steady, &self.restless] } else { &[&self.steady] };
        harness.scheduler.set_shield(Some(self.shield(counted))).expect("made for it");
        let stranger = harness.add(StreamSpec::best_effort());
        let in_a_lull = self.lengthen(&mut harness, choices);
        let (mut sent, mut moves, mut waited) = ([Vec::new(), Vec::new()], 2, false);
        // The steady one sends as soon as it may; what else it may do is gone through where nobody comes or goes.
        let from = choose(3);
        for now in 0..ticks {
            harness.advance_to(now);
            if now >= from {
                send(&mut harness, steady, &self.steady, &mut sent[0]);
            }
            match restless {
                Some(id) if sent[1].is_empty() && choose(2) == 1 => {
                    send(&mut harness, id, &self.restless, &mut sent[1]);
                }
                Some(id) if moves > 0 && choose(2) == 1 => {
                    harness.scheduler.remove_stream(id);
                    harness.settle();
                    (restless, moves) = (None, moves - 1);
                }
                // It waits until it may come, and sends at once.
                None if moves > 0 && (waited || choose(2) == 1) => {
                    let load = harness.scheduler.load();
                    let all = load.specs().chain([&self.restless]).filter_map(StreamSpec::demand);
                    let shield = match load.is_shielded(&self.restless) {
                        true => None,
                        false => Shield::new(&self.config.workers[0], self.config.deadline, all).ok(),
                    };
                    restless = harness.try_add(&self.restless, shield);
                    tally.waited += usize::from(restless.is_none() && !waited);
                    waited = restless.is_none();
                    if let Some(id) = restless {
                        tally.came += 1;
                        moves -= 1;
                        sent[1].clear();
                        send(&mut harness, id, &self.restless, &mut sent[1]);
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
        harness.end_unharmed(&(self, &sent));
        tally.runs += 1;
        tally.in_a_lull += *in_a_lull.borrow();
    }

    /// Every run of more and more ticks, until there have been enough. Returns how many ticks were exhausted.
    fn search(&self, tally: &mut Tally) -> u64 {
        exhaust(6, BUDGET, |ticks, choices| self.play(ticks, choices, tally))
    }
}

fn may_send(sent: &[u64], spec: &StreamSpec, now: u64) -> bool {
    earliest(sent, spec.arrivals().expect("declared").bounds(), now) <= now
}

/// All that a stream may send now.
fn send(harness: &mut Harness, id: StreamId, spec: &StreamSpec, sent: &mut Vec<u64>) {
    while may_send(sent, spec, harness.now) {
        sent.push(harness.now);
        harness.arrive(id);
    }
}

#[test]
fn what_is_granted_in_a_lull_breaks_no_promise_whoever_comes_and_goes() {
    let window = |count, length| ArrivalBound::window(count, ns(length)).expect("valid");
    let steady = [
        window(1, 6),
        window(2, 9),
        ArrivalBound::periodic(ns(6), ns(4)).expect("valid"),
        ArrivalBound::distances(&[ns(2), ns(11)]).expect("valid"),
    ];
    let (mut tally, mut systems, mut depths) = (Tally::default(), 0, 0);
    for (workers, times) in [(1, &[2][..]), (1, &[2, 3]), (2, &[3])] {
        for (steady, burst) in steady.iter().flat_map(|s| [1, 2, 3].map(|b| (s, b))) {
            for (latency, dispatch) in
                [7, 10].into_iter().flat_map(|l| [Dispatch::Eager, Dispatch::FullOrLatest].map(|d| (l, d)))
            {
                let config = config(times, times.len(), workers, latency, dispatch);
                let config = SchedulerConfig { queue: 64, streams: 4, ..config };
                let (steady, restless) = (strict(steady.clone()), strict(window(burst, 30)));
                if system(&config).admit([&steady, &restless]).is_err() {
                    continue;
                }
                for (counted, background) in [true, false].into_iter().flat_map(|c| [(c, true), (c, false)]) {
                    let (config, steady, restless) = (config.clone(), steady.clone(), restless.clone());
                    systems += 1;
                    depths += Small { config, steady, restless, counted, background }.search(&mut tally);
                }
            }
        }
    }
    println!("{systems} systems, ticks exhausted on average {}, {tally:?}", depths / systems);
    assert!(tally.in_a_lull as u64 * 10 > tally.runs && tally.came as u64 * 10 > tally.runs, "{tally:?}");
    assert!(tally.waited as u64 * 100 > tally.runs, "{tally:?}");
}

/// One worker, batches of one in 2, and a stream of one request in 30: once it has sent, a batch may take longer until 30, by
/// whatever name the stream goes. Before it has sent anything it may at any instant.
#[test]
fn a_stream_that_begins_anew_is_no_less_silent_and_one_that_has_sent_nothing_is_no_lull() {
    for (sends, restarts) in [(false, false), (true, false), (true, true)] {
        let config = SchedulerConfig { streams: 2, ..config(&[2], 1, 1, 12, Dispatch::Eager) };
        let mut harness = Harness::new(config.clone(), |_, bound| bound);
        let steady = strict(ArrivalBound::window(1, ns(30)).expect("valid"));
        let (id, stranger) = (harness.add(steady.clone()), harness.add(StreamSpec::best_effort()));
        if sends {
            harness.arrive(id);
        }
        if restarts {
            harness.advance_to(2);
            harness.scheduler.restart_stream(id).expect("it is there");
        }
        let shield = Shield::new(&config.workers[0], config.deadline, steady.demand());
        harness.scheduler.set_shield(Some(shield.expect("admitted"))).expect("made for it");
        harness.advance_to(3);
        harness.arrive(stranger);
        let longest = harness.scheduler.longest(Instant::from_nanos(3), 0);
        let lull = if sends { ns(12) } else { ns(10) };
        assert_eq!(longest, lull, "sends: {sends}, begins anew: {restarts}");
    }
}
