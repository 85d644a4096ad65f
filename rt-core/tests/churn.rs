//! Small systems searched exhaustively while a stream leaves and comes back and batches take as long as the shield allows:
//! whatever it does, and whenever, no promise breaks.

use rt_core::{
    ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, MissReason, Outcome, SchedulerConfig,
    Shield, StreamId, StreamSpec,
};

use crate::harness::load::{ns, stretch};
use crate::harness::{Harness, config, earliest, system};

/// Between two instants at which the restless stream may do something.
const STEP: u64 = 4;
/// At so many instants it may.
const STEPS: u32 = 6;
/// Nothing, send all that it may, leave, or come back (if it may) and send all.
const MOVES: usize = 4;

/// At most `count` requests in any `length`, none to be missed.
fn strict(count: u64, length: u64) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
    let window = ArrivalBound::window(count, ns(length)).expect("valid");
    StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"))
}

/// A steady stream that sends as soon as it may, a restless one, and workers.
#[derive(Clone, Debug)]
struct Small {
    config: SchedulerConfig,
    steady: (u64, u64),
    restless: (u64, u64),
    /// From when the steady stream sends.
    from: u64,
    /// Whether one that nothing is promised to keeps the workers busy from the start.
    background: bool,
}

/// What a run came to.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    /// Runs in which it came back, had to wait before it could, and in which a batch took more than `P`.
    came_back: usize,
    waited: usize,
    long: usize,
}

impl Small {
    fn is_admitted(&self) -> bool {
        let (steady, restless) =
            (strict(self.steady.0, self.steady.1), strict(self.restless.0, self.restless.1));
        system(&self.config).admit([&steady, &restless]).is_ok()
    }

    /// Plays one row of moves.
    fn play(&self, moves: u32, tally: &mut Tally) {
        let mut harness = Harness::new(self.config.clone(), |_, bound| bound);
        let [steady, restless] = [self.steady, self.restless].map(|(count, length)| strict(count, length));
        let mut ids = [harness.add(steady.clone()), harness.add(restless.clone())];
        let load = [&steady, &restless].into_iter().filter_map(StreamSpec::demand);
        let workers = harness.scheduler.config().workers[0].clone();
        let shield = Shield::new(&workers, self.config.deadline, load).expect("admitted");
        harness.scheduler.set_shield(Some(shield)).expect("made for it");
        stretch(&mut harness);
        if self.background {
            let nothing = harness.add(StreamSpec::best_effort());
            (0..workers.count).for_each(|_| _ = harness.arrive(nothing));
        }
        let mut sent: [Vec<u64>; 2] = [Vec::new(), Vec::new()];
        let (mut there, mut rest, mut came_back, mut waited) = (true, moves, false, false);
        for now in 0..u64::from(STEPS + 4) * STEP {
            harness.advance_to(now);
            if now >= self.from {
                send(&mut harness, ids[0], &steady, &mut sent[0]);
            }
            if now % STEP != 1 || now / STEP >= u64::from(STEPS) {
                continue;
            }
            let step = rest as usize % MOVES;
            rest /= MOVES as u32;
            match (step, there) {
                (1, true) => send(&mut harness, ids[1], &restless, &mut sent[1]),
                (2, true) => {
                    harness.scheduler.remove_stream(ids[1]);
                    harness.settle();
                    there = false;
                }
                (3, false) => match harness.try_add(&restless, None) {
                    Some(id) => {
                        (ids[1], there, came_back) = (id, true, true);
                        sent[1].clear();
                        send(&mut harness, id, &restless, &mut sent[1]);
                    }
                    None => waited = true,
                },
                (0, _) => {}
                // What cannot be done is left out: another word says that nothing is done here.
                _ => return,
            }
        }
        harness.drain();
        let gone = |r: &rt_core::Resolution| r.outcome == Outcome::Missed(MissReason::Cancelled);
        let missed = harness.mandatory_misses();
        assert!(
            missed.iter().all(gone) && harness.causes().is_empty(),
            "{self:?} moves {moves:#o}: {missed:?}"
        );
        tally.runs += 1;
        tally.came_back += usize::from(came_back);
        tally.waited += usize::from(waited);
        tally.long += usize::from(harness.longer_than(workers.batch_time().as_nanos()) > 0);
    }
}

/// All that a stream may send now.
fn send(harness: &mut Harness, id: StreamId, spec: &StreamSpec, sent: &mut Vec<u64>) {
    let bounds = spec.arrivals().expect("declared").bounds();
    while earliest(sent, bounds, harness.now) <= harness.now {
        sent.push(harness.now);
        harness.arrive(id);
    }
}

#[test]
fn whoever_leaves_and_comes_back_beside_long_batches_breaks_no_promise() {
    let (mut tally, mut systems) = (Tally::default(), 0);
    for (workers, times) in [(1, &[4][..]), (1, &[3, 4, 6]), (2, &[4])] {
        let batch = times.len().min(2);
        let time = times[batch - 1];
        let sizes = [5, 9].into_iter().flat_map(|l| [5, 9].map(|s| (l, s)));
        for (latency, steady, burst) in sizes.flat_map(|(l, s)| [3, 4].map(|b| (l, s, b))) {
            for (from, background) in [(0, false), (0, true), (6, true)] {
                let config = config(times, batch, workers, latency * time, Dispatch::Eager);
                let config = SchedulerConfig { spread: latency == 9, ..config };
                let steady = ((workers * batch) as u64, steady);
                let small = Small { config, steady, restless: (burst, 10_000), from, background };
                if !small.is_admitted() {
                    continue;
                }
                systems += 1;
                (0..(MOVES as u32).pow(STEPS)).for_each(|moves| small.play(moves, &mut tally));
            }
        }
    }
    println!("{systems} systems, {tally:?}");
    assert!(tally.came_back * 20 > tally.runs && tally.waited > 1_000 && tally.long > 1_000, "{tally:?}");
}
