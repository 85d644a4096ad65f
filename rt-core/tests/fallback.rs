//! Small systems searched exhaustively that lose a worker at any instant and get it back at any other, and whose batches take half as long
//! again from any instant until any other: what the promises fall back on is kept from the instant on at which it is in force, and
//! what was promised first once it is again.

use std::cell::Cell;
use std::rc::Rc;

use rt_core::{
    Cause, Dispatch, Event, Fallbacks, Instant, Joined, LatencyProfile, MissReason, Newcomer, Outcome,
    Resolution, SchedulerConfig, Severity, Shield, Span, StreamId, StreamSpec, StreamState, Workers, longer,
};

use crate::harness::choices::exhaust;
use crate::harness::load::{QUICK, ladder, ns, stretch, window};
use crate::harness::{Dice, Harness, config, earliest, fallbacks, instances, system, violates_any};

/// What becomes of the workers and the streams at one tick.
#[derive(Clone, Copy, Debug)]
enum Move {
    Nothing,
    Lose(usize),
    Regain(usize),
    /// Batches take half as long again from now on, or no longer.
    Pace(bool),
    /// The last of the streams leaves, or comes back.
    Change,
}

#[derive(Clone, Debug)]
struct Small {
    config: SchedulerConfig,
    specs: Vec<StreamSpec>,
    /// Within what time what is fallen back on in each case is in force.
    most: [Option<Span>; 2],
}

/// What goes wrong.
const WRONG: [Cause; 2] = [Cause::WorkerLost, Cause::ServiceOverrun];

/// What all runs came to.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    losses: u64,
    in_force: u64,
    rises: u64,
    longest_wait: u64,
    /// Requests that came while a weaker promise was in force for want of a worker, and those of them that were missed.
    weaker: u64,
    missed: u64,
    /// Streams that came while the promises had fallen back, and that had to wait.
    came: u64,
    waited: u64,
    long: u64,
}

/// How the promise to a stream stood when a request of it came, and after how many changes; none if there was none.
type Stood = Option<(StreamState, u64, u64)>;

/// A stream of a run, from when it came until it left: how each of its requests found it.
#[derive(Default)]
struct Track {
    spec: usize,
    id: Option<StreamId>,
    came: Vec<u64>,
    stood: Vec<Stood>,
}

impl Small {
    fn fallbacks(&self, specs: &[&StreamSpec]) -> Fallbacks {
        fallbacks(&self.config, specs.iter().copied())
    }

    /// How long a batch takes that was granted `bound`.
    fn time(&self, slow: bool, size: usize, bound: u64) -> u64 {
        let longer = |time| longer(ns(time)).as_nanos();
        match &self.config.workers[..] {
            // What it would take by the profile, unless it was granted more than a slow one may take.
            [alike] => match (alike.profile.bound(size).as_nanos(), slow) {
                (time, true) if bound > longer(time) => longer(bound),
                (time, true) => longer(time),
                (time, false) if bound == longer(time) => time,
                (_, false) => bound,
            },
            _ if slow => longer(bound),
            _ => bound,
        }
    }

    /// A run of so many ticks. In a `flood` the first stream now and then sends what it likes.
    fn play(
        &self,
        (ticks, flood, late): (u64, bool, bool),
        mut moves: impl FnMut(u64) -> Move,
        mut choose: impl FnMut(u64) -> u64,
        tally: &mut Tally,
    ) {
        let pace = Rc::new(Cell::new(false));
        let (small, slow) = (self.clone(), Rc::clone(&pace));
        let mut harness =
            Harness::new(self.config.clone(), move |size, bound| small.time(slow.get(), size, bound));
        // In some runs the last stream is not there yet.
        let there = self.specs.len() - usize::from(late && self.specs.len() > 1);
        let id = |spec: usize| (spec < there).then(|| harness.add(self.specs[spec].clone()));
        let ids: Vec<_> = (0..self.specs.len()).map(id).collect();
        let track = |(spec, id)| Track { spec, id, ..Track::default() };
        let mut tracks: Vec<_> = ids.into_iter().enumerate().map(track).collect();
        let fallbacks = self.fallbacks(&self.specs[..there].iter().collect::<Vec<_>>());
        harness.scheduler.set_fallbacks(Instant::ZERO, fallbacks);
        if let [alike] = &self.config.workers[..] {
            let load = self.specs.iter().filter_map(StreamSpec::demand);
            let shield = Shield::new(alike, self.config.deadline, load).expect("admitted");
            harness.scheduler.set_shield(Some(shield)).expect("made for it");
            stretch(&mut harness);
        }
        let stranger = harness.add(StreamSpec::best_effort());
        let (mut losses, mut gone, mut paced, mut changed) = (Vec::new(), Vec::new(), false, false);
        for now in 0..ticks {
            harness.advance_to(now);
            match moves(now) {
                Move::Lose(worker) if harness.scheduler.is_alive(worker) => {
                    losses.push(now);
                    harness.lose(worker);
                }
                Move::Regain(worker) => harness.ready(worker),
                Move::Pace(slow) => {
                    paced |= slow;
                    pace.set(slow);
                }
                Move::Change => {
                    changed = true;
                    self.change(&mut harness, &mut tracks, &mut gone, tally);
                }
                Move::Lose(_) | Move::Nothing => {}
            }
            for track in &mut tracks {
                let Some(id) = track.id else { continue };
                let bounds = self.specs[track.spec].arrivals().expect("declared").bounds();
                let requests = match flood && track.spec == 0 && now % 40 < 12 {
                    true => choose(3),
                    false if earliest(&track.came, bounds, now) <= now => choose(2),
                    false => 0,
                };
                for _ in 0..requests {
                    harness.arrive_unpolled(id);
                    track.stood.push(stands(&harness, id));
                    track.came.push(now);
                    harness.settle();
                }
            }
            let alive = |&worker: &usize| harness.scheduler.is_alive(worker) && !harness.is_busy(worker);
            if (0..self.config.worker_count()).any(|worker| alive(&worker)) {
                harness.arrive(stranger);
            }
        }
        harness.drain();
        tally.runs += 1;
        tally.losses += losses.len() as u64;
        tally.long += u64::from(harness.longer_than(self.config.workers[0].batch_time().as_nanos()) > 0);
        gone.extend(tracks.into_iter().filter(|track| track.id.is_some()));
        let breaks: Vec<_> = harness.events.iter().filter_map(breaks).collect();
        gone.iter().for_each(|track| self.judge(&harness, track, &breaks, tally));
        self.look_at_changes(&harness, (&losses, paced, changed || late, flood), tally);
    }

    /// The last stream leaves, or comes back, admitted beside the others and with what they fall back on then.
    fn change(&self, harness: &mut Harness, tracks: &mut [Track], gone: &mut Vec<Track>, tally: &mut Tally) {
        let Some(track) = tracks.last_mut() else { return };
        if let Some(id) = track.id {
            let next = Track { spec: track.spec, ..Track::default() };
            gone.push(std::mem::replace(track, next));
            harness.scheduler.remove_stream(id);
            harness.settle();
            return;
        }
        let (spec, fallen) = (&self.specs[track.spec], harness.scheduler.fallen().is_some());
        let load = harness.scheduler.load();
        let all: Vec<_> = load.specs().chain([spec]).collect();
        if system(&self.config).admit(all.iter().copied()).is_err() {
            return;
        }
        let newcomer =
            Newcomer::new(&self.config, spec.clone()).beside(&load).falling_back(self.fallbacks(&all));
        let now = Instant::from_nanos(harness.now);
        match harness.scheduler.try_add_stream(now, newcomer).expect("room for it") {
            Joined::Added(id, _) => {
                track.id = Some(id);
                tally.came += u64::from(fallen);
            }
            Joined::Wait(_) => {
                harness.scheduler.withdraw();
                tally.waited += u64::from(fallen);
            }
            Joined::Stale(_) => panic!("nobody came meanwhile"),
        }
        harness.settle();
    }

    /// Nothing that had to be served is missed but by the loss of a worker, and each promise holds in every window of requests that
    /// came, and ended, while it was in force.
    fn judge(&self, harness: &Harness, track: &Track, breaks: &[u64], tally: &mut Tally) {
        let of = |(_, r): &&(u64, Resolution)| Some(r.request.stream) == track.id;
        let mut ended: Vec<_> = harness.resolutions.iter().filter(of).collect();
        ended.sort_by_key(|(_, r)| r.request.seq);
        assert_eq!(ended.len(), track.stood.len());
        let struck = |(at, r): &(u64, Resolution)| {
            let while_it_was_there = |at_that: &u64| (r.request.arrival.as_nanos()..=*at).contains(at_that);
            // Or its stream was removed.
            breaks.iter().any(while_it_was_there) || r.outcome == Outcome::Missed(MissReason::Cancelled)
        };
        let told = || format!("{self:?}, broken at {breaks:?}: {:?} {:?}", track.came, harness.events);
        for (one, stood) in ended.iter().zip(&track.stood) {
            let missed = one.1.request.mandatory && one.1.outcome != Outcome::Served;
            assert!(!missed || stood.is_none() || struck(one), "{one:?}, {stood:?} {}", told());
        }
        let mut from = 0;
        while from < ended.len() {
            let stood = track.stood[from];
            let to = from + track.stood[from..].iter().take_while(|&&other| other == stood).count();
            let level = match stood {
                Some((StreamState::Normal, ..)) => Some(0),
                Some((StreamState::Degraded(level), ..)) => Some(usize::from(level)),
                Some((StreamState::Suspended, ..)) | None => None,
            };
            let whole = ended[from..to].iter().take_while(|one| !struck(one));
            let outcomes: Vec<_> = whole.map(|(_, r)| r.outcome == Outcome::Served).collect();
            if let Some(level) = level {
                let set = self.specs[track.spec].constraints_at(level);
                assert!(!violates_any(&outcomes, set), "{level} of {outcomes:?} {}", told());
                if level > 0 {
                    tally.weaker += outcomes.len() as u64;
                    tally.missed += outcomes.iter().filter(|&&hit| !hit).count() as u64;
                }
            }
            from = to;
        }
    }

    /// Nothing is announced but lost workers, and streams that broke their declarations in a `flood`; what the promises fall back on
    /// is in force within the time that is told after the last loss.
    fn look_at_changes(
        &self,
        harness: &Harness,
        (losses, paced, changed, flood): (&[u64], bool, bool, bool),
        tally: &mut Tally,
    ) {
        let (mut fallen, mut broken, mut suspended, mut ended) = (None, None, false, false);
        for (at, event) in &harness.events {
            let state = match event {
                Event::SafeMode(told) => told.state,
                Event::Suspension(told) => {
                    let entered = told.alarm.map(|alarm| alarm.entered.as_nanos());
                    assert!(entered.is_none_or(|entered| entered == *at), "{told:?} at {at}");
                    let cause = told.alarm.map(|alarm| alarm.cause);
                    let own = flood && cause.is_some_and(|cause| !WRONG.contains(&cause));
                    assert!(own || cause.is_none_or(|cause| WRONG.contains(&cause)), "{self:?}: {told:?}");
                    continue;
                }
                Event::MissesLeft { .. } => continue,
            };
            let cause = state.alarm.map(|alarm| alarm.cause);
            // What nothing is fallen back on for is told as ever, also over windows that began while nothing was promised.
            let known = match cause {
                Some(Cause::ConstraintViolated) => suspended || ended,
                cause => cause.is_none_or(|cause| cause == Cause::MissesLow || WRONG.contains(&cause)),
            };
            assert!(known, "{self:?} {losses:?}: {state:?} {:?}", harness.events);
            let wrong = cause.is_some_and(|cause| WRONG.contains(&cause));
            // No batch takes longer than that is in force for.
            let slow = fallen == Some(Cause::ServiceOverrun) && state.is_suspended();
            assert!(
                !slow || cause != Some(Cause::ServiceOverrun),
                "{self:?} {losses:?}: {:?}",
                harness.events
            );
            ended |= suspended && !state.is_suspended() && !wrong;
            suspended = state.is_suspended();
            match state.severity {
                Severity::Warning if wrong && fallen.is_none() => {
                    fallen = cause;
                    tally.in_force += 1;
                    let [lost, longer] = self.most;
                    let (broken, most) = match (losses, paced) {
                        ([loss], false) => (Some(*loss), lost),
                        ([], true) => (broken, longer),
                        _ => (None, None),
                    };
                    if let Some((broken, most)) = broken.zip(most.filter(|_| !changed)) {
                        tally.longest_wait = tally.longest_wait.max(at - broken);
                        let most = most.as_nanos();
                        assert!(at - broken <= most, "{self:?} {losses:?}: {at}, {:?}", harness.events);
                    }
                }
                Severity::Normal if fallen.is_some() => {
                    fallen = None;
                    tally.rises += 1;
                }
                Severity::Safe | Severity::Lost => (fallen, broken) = (None, Some(*at)),
                _ => {}
            }
        }
    }
}

/// When nothing was promised any more.
fn breaks((at, event): &(u64, Event)) -> Option<u64> {
    matches!(event, Event::SafeMode(told) if told.state.is_suspended()).then_some(*at)
}

/// How the promise to a stream stands, if the service's does.
fn stands(harness: &Harness, id: StreamId) -> Stood {
    let scheduler = &harness.scheduler;
    let (state, _) = scheduler.stream_state(id).expect("there");
    let mode = scheduler.safe_mode();
    (!mode.severity().is_suspended()).then(|| (state, mode.breaches(), scheduler.suspension_changes()))
}

/// The systems that admit their streams, and still something with a worker less.
fn systems() -> Vec<Small> {
    let strict = |(count, length)| ladder((0, 1), &window(count, length), &[]);
    let loads = [
        vec![ladder((0, 1), &window(2, 4), &[(1, 2), (2, 3)])],
        vec![ladder((0, 1), &window(3, 6), &[(1, 3), (3, 4)]), strict((1, 6))],
        vec![ladder((1, 3), &window(4, 6), &[(1, 2), (4, 5)]), ladder((0, 1), &window(1, 5), &[(1, 2)])],
        vec![strict((2, 7)), ladder((1, 2), &window(2, 6), &[(3, 4)])],
        vec![
            ladder((0, 1), &window(4, 9), &[(1, 2), (3, 4)]),
            ladder((0, 1), &window(2, 9), &[(1, 2)]),
            strict((1, 12)),
        ],
        vec![strict((1, 5)), strict((1, 6))],
    ];
    let mut all = Vec::new();
    let alike = [
        (&[2][..], 1, None),
        (&[2, 3], 1, None),
        (&[1], 2, None),
        (&[2], 2, None),
        (&[2, 3], 2, None),
        (&[2], 3, None),
        (&[3], 3, None),
    ];
    let kinds = alike.into_iter().chain([(&[1][..], 1, Some(2)), (&[2, 3], 1, Some(2))]);
    for ((times, workers, other), specs) in kinds.flat_map(|k| loads.iter().map(move |l| (k, l))) {
        for dispatch in [Dispatch::Eager, Dispatch::FullOrLatest] {
            let tight = |latency| {
                let config = config(times, times.len(), workers, latency, dispatch);
                let mut config = SchedulerConfig { queue: 64, streams: 4, safe_mode: QUICK, ..config };
                config.workers.extend(other.map(|time| {
                    let profile = LatencyProfile::new(&[ns(time)]).expect("valid");
                    Workers { count: 1, batch: 1, profile }
                }));
                system(&config).admit(specs).ok()?;
                let fallbacks = fallbacks(&config, specs);
                let any = fallbacks.worker_lost.or(fallbacks.longer_batches).is_some();
                let most = system(&config).times_to_fall_back(specs, fallbacks);
                any.then(|| Small { config, specs: specs.clone(), most })
            };
            // The shortest deadlines at which that is so, where nothing is to spare.
            all.extend((2..14).filter_map(tight).take(3));
        }
    }
    for (nth, small) in all.iter_mut().enumerate() {
        small.config.spread = nth % 2 == 1;
    }
    all
}

#[test]
fn what_promises_fall_back_on_is_kept() {
    let systems = systems();
    let (mut tally, mut depths) = (Tally::default(), 0);
    let budget = 100 * instances(10) as u64;
    for small in &systems {
        // Lost at any instant while anything comes, and back at any other.
        depths += exhaust(4, budget, |ticks, choices| {
            let choose = |options| choices.borrow_mut().choose(options);
            let (mut there, mut slow) = (true, false);
            let moves = |_| match choose(3) {
                0 => Move::Nothing,
                1 => {
                    there = !there;
                    if there { Move::Regain(0) } else { Move::Lose(0) }
                }
                _ => {
                    slow = !slow;
                    Move::Pace(slow)
                }
            };
            small.play(
                (ticks, false, false),
                moves,
                |options| choices.borrow_mut().choose(options),
                &mut tally,
            );
        });
        for seed in 0..4 * instances(10) as u64 {
            let (mut dice, mut fate) = (Dice(seed), Dice(seed + 1_000));
            let workers = small.config.worker_count() as u64;
            let moves = |_| match fate.within(0, 39) {
                0 => Move::Lose(fate.within(0, workers - 1) as usize),
                1 | 2 => Move::Regain(fate.within(0, workers - 1) as usize),
                3 => Move::Change,
                4 | 5 if seed % 2 == 0 => Move::Pace(fate.within(0, 3) == 0),
                _ => Move::Nothing,
            };
            let greedy = seed % 2 == 0;
            let choose = |options: u64| if greedy && options == 2 { 1 } else { dice.within(0, options - 1) };
            small.play((400, seed % 4 > 1, seed % 3 == 0), moves, choose, &mut tally);
        }
    }
    println!(
        "{} systems, ticks exhausted on average {}, {tally:?}",
        systems.len(),
        depths / systems.len() as u64
    );
    assert!(
        systems.len() > 40 && tally.in_force > tally.runs / 20 && tally.rises > tally.in_force / 4,
        "{tally:?}"
    );
    assert!(tally.weaker > 1_000 && tally.missed > 100 && tally.came > 20 && tally.waited > 20, "{tally:?}");
}
