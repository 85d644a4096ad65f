//! Small systems searched exhaustively in which a stream sends what it likes and misses are spread: nobody misses what must be served,
//! what came while its promise stood keeps it, and what is spread takes no longer than that.

use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, Event, SchedulerConfig, Shield,
    StreamId, StreamSpec, StreamState,
};

use crate::harness::choices::exhaust;
use crate::harness::load::{QUICK, ns, stretch};
use crate::harness::{Dice, Harness, config, earliest, instances, system, violates_any};

fn promised((m, k): (u32, u32), bound: &ArrivalBound) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::any_miss(m, k).expect("m < k")]).expect("one");
    StreamSpec::promised(set, ArrivalCurve::new(std::slice::from_ref(bound)).expect("one"))
}

fn window(count: u64, length: u64) -> ArrivalBound {
    ArrivalBound::window(count, ns(length)).expect("valid")
}

/// How a stream stood once a request of it had come, and after how many changes.
type Stood = (StreamState, u64);

/// What the stream does for a while.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It sends what it likes.
    Flood,
    Silence,
    /// It sends what it declared, perhaps.
    Within,
    /// All send as soon as they may.
    Greed,
}

/// A stream that sends what it likes, and others that keep to what they declare.
#[derive(Clone, Debug)]
struct Small {
    config: SchedulerConfig,
    sender: StreamSpec,
    others: Vec<StreamSpec>,
}

/// What all runs came to.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    /// Requests that came while the promise was suspended for an excess, and of those after it began again what had to be served.
    free: u64,
    resumed: u64,
    marked: u64,
    /// Streams that left in the midst of it and came back.
    came_back: u64,
    longer: usize,
}

/// What the stream did.
#[derive(Default)]
struct Sent {
    id: Option<StreamId>,
    /// Of each request since it came when it came, and how the promise stood then.
    came: Vec<u64>,
    stood: Vec<Stood>,
}

impl Small {
    /// A run of so many ticks, in the phase that each is in.
    fn play(
        &self,
        ticks: u64,
        phase: impl Fn(u64) -> Phase,
        restless: bool,
        mut choose: impl FnMut(u64) -> u64,
        tally: &mut Tally,
    ) {
        let mut harness = Harness::new(self.config.clone(), |_, bound| bound);
        let mut sent = Sent { id: Some(harness.add(self.sender.clone())), ..Sent::default() };
        let others: Vec<_> = self.others.iter().map(|spec| harness.add(spec.clone())).collect();
        let load = std::iter::once(&self.sender).chain(&self.others).filter_map(StreamSpec::demand);
        let shield = Shield::new(&self.config.workers[0], self.config.deadline, load).expect("admitted");
        harness.scheduler.set_shield(Some(shield)).expect("made for it");
        stretch(&mut harness);
        let stranger = harness.add(StreamSpec::best_effort());
        let declared = self.sender.arrivals().expect("declared").bounds();
        let mut histories = vec![Vec::new(); others.len()];
        // What it sent before its last flood was over has no part in what it may send.
        let mut before = 0;
        for now in 0..ticks {
            harness.advance_to(now);
            let phase = phase(now);
            if restless {
                self.come_and_go(&mut harness, &mut sent, &mut choose, tally);
            }
            before = if phase == Phase::Flood { sent.came.len() } else { before.min(sent.came.len()) };
            let may = u64::from(earliest(&sent.came[before..], declared, now) <= now);
            let requests = match phase {
                Phase::Flood => choose(3),
                Phase::Silence => 0,
                Phase::Within => choose(2).min(may),
                Phase::Greed => may,
            };
            for _ in 0..if sent.id.is_some() { requests } else { 0 } {
                self.send(&mut harness, &mut sent);
            }
            for (&other, (spec, history)) in others.iter().zip(self.others.iter().zip(&mut histories)) {
                let bounds = spec.arrivals().expect("declared").bounds();
                let sends = |choose: &mut dyn FnMut(u64) -> u64| match phase {
                    Phase::Silence => false,
                    Phase::Greed => true,
                    Phase::Flood | Phase::Within => choose(2) == 1,
                };
                while earliest(history, bounds, now) <= now && sends(&mut choose) {
                    history.push(now);
                    harness.arrive(other);
                }
            }
            if (0..self.config.worker_count()).any(|worker| !harness.is_busy(worker)) {
                harness.arrive(stranger);
            }
        }
        harness.drain();
        tally.runs += 1;
        tally.longer += harness.longer_than(self.config.workers[0].batch_time().as_nanos());
        self.judge(&harness, &sent, &others, tally);
    }

    fn send(&self, harness: &mut Harness, sent: &mut Sent) {
        let Some(id) = sent.id else { return };
        harness.arrive_unpolled(id);
        // Before anything else can happen.
        let (state, _) = harness.scheduler.stream_state(id).expect("there");
        sent.stood.push((state, harness.scheduler.suspension_changes()));
        sent.came.push(harness.now);
        harness.settle();
    }

    /// The stream leaves or comes back, now and then, and whatever it does it is judged by what it sent since it came last.
    fn come_and_go(
        &self,
        harness: &mut Harness,
        sent: &mut Sent,
        choose: &mut impl FnMut(u64) -> u64,
        tally: &mut Tally,
    ) {
        if choose(40) > 0 {
            return;
        }
        match sent.id {
            Some(id) => {
                harness.scheduler.remove_stream(id);
                harness.settle();
                *sent = Sent::default();
            }
            None => {
                sent.id = harness.try_add(&self.sender, None);
                tally.came_back += u64::from(sent.id.is_some());
            }
        }
    }

    fn judge(&self, harness: &Harness, sent: &Sent, others: &[StreamId], tally: &mut Tally) {
        let cancelled = rt_core::Outcome::Missed(rt_core::MissReason::Cancelled);
        let mut missed = harness.mandatory_misses();
        missed.retain(|resolution| resolution.outcome != cancelled);
        assert!(missed.is_empty(), "{self:?}, {:?}: {missed:?}", harness.events);
        let own = |(_, event): &(u64, Event)| match event {
            // Over what came before the promise began again it may be violated: that is the stream's own.
            Event::Suspension(told) => !others.contains(&told.stream),
            Event::SafeMode(told) => !told.state.is_suspended(),
            Event::MissesLeft { .. } => true,
        };
        assert!(harness.events.iter().all(own), "{self:?}: {:?}", harness.events);
        for (&other, spec) in others.iter().zip(&self.others) {
            assert!(
                !violates_any(&harness.outcomes(other), spec.constraints()),
                "{self:?}: {:?}",
                harness.events
            );
        }
        let Some(id) = sent.id else { return };
        let mut marked = vec![false; sent.came.len()];
        let ended = harness.resolutions.iter().map(|(_, resolution)| resolution.request);
        ended.filter(|r| r.stream == id && r.mandatory).for_each(|r| marked[r.seq as usize] = true);
        self.judge_load(&sent.came, &marked);
        let outcomes = harness.outcomes(id);
        let causes: Vec<_> = harness.events.iter().filter_map(told(id)).collect();
        let mut from = 0;
        while from < sent.stood.len() {
            let stay = sent.stood[from];
            let to = from + sent.stood[from..].iter().take_while(|&&other| other == stay).count();
            match stay.0 {
                StreamState::Suspended => {
                    // Of what came before and waited then it may have had to serve some.
                    let at = sent.came[from];
                    let excess = causes.iter().rfind(|(told, _)| *told <= at);
                    if excess.is_some_and(|(_, cause)| *cause == Cause::ArrivalExcess) {
                        assert!(!marked[from..to].contains(&true), "{self:?}: {marked:?} {:?}", sent.stood);
                        tally.free += (to - from) as u64;
                    }
                }
                _ => {
                    let kept = !violates_any(&outcomes[from..to], self.sender.constraints());
                    assert!(kept, "{self:?}: {from}..{to} of {outcomes:?} {:?} {:?}", sent.stood, sent.came);
                    if from > 0 {
                        tally.resumed += 1;
                        tally.marked += marked[from..to].iter().filter(|&&marked| marked).count() as u64;
                    }
                }
            }
            from = to;
        }
    }

    /// Of no interval has more to be served than admission has counted: `⌈ρ·α(Δ)⌉`, with `α` found by what may come at the most.
    fn judge_load(&self, came: &[u64], marked: &[bool]) {
        let bounds = self.sender.arrivals().expect("declared").bounds();
        let (density, _) = self.sender.demand().expect("it demands something");
        let instants: Vec<_> =
            came.iter().zip(marked).filter(|(_, marked)| **marked).map(|(at, _)| *at).collect();
        let mut most = Vec::new();
        while most.last().is_none_or(|&at| at <= *came.last().unwrap_or(&0)) {
            most.push(earliest(&most, bounds, most.last().copied().unwrap_or(0)));
        }
        for (first, &begin) in instants.iter().enumerate() {
            for (count, &end) in (1..).zip(&instants[first..]) {
                let may = most.iter().filter(|&&at| at <= end - begin).count() as u64;
                assert!(
                    count <= density.ceil_of(may),
                    "{self:?}: {count} in {begin}..={end}, {may} may come"
                );
            }
        }
    }
}

/// When the promise to `id` was suspended, and why.
fn told(id: StreamId) -> impl Fn(&(u64, Event)) -> Option<(u64, Cause)> {
    move |(at, event)| match event {
        Event::Suspension(told) if told.stream == id => told.alarm.map(|alarm| (*at, alarm.cause)),
        _ => None,
    }
}

#[test]
fn whoever_sends_too_much_where_misses_are_spread_harms_nobody_and_is_promised_again() {
    let senders = [
        promised((0, 1), &window(1, 3)),
        promised((1, 3), &window(2, 5)),
        promised((2, 3), &window(3, 4)),
        promised((1, 2), &ArrivalBound::periodic(ns(3), ns(2)).expect("valid")),
        promised((0, 1), &ArrivalBound::distances(&[ns(1), ns(6)]).expect("valid")),
    ];
    let besides = [vec![], vec![promised((0, 1), &window(1, 6))], vec![promised((1, 2), &window(2, 7))]];
    let budget = 80 * instances(10) as u64;
    let (mut tally, mut systems, mut depths) = (Tally::default(), 0, 0);
    for (times, workers) in [(&[1][..], 1), (&[2], 1), (&[2, 3], 1), (&[3], 2)] {
        for (sender, others) in senders.iter().flat_map(|s| besides.iter().map(move |o| (s, o))) {
            for (latency, dispatch) in [
                (4, Dispatch::Eager),
                (6, Dispatch::Eager),
                (9, Dispatch::Eager),
                (9, Dispatch::FullOrLatest),
            ] {
                let config = config(times, times.len(), workers, latency, dispatch);
                let config =
                    SchedulerConfig { queue: 64, streams: 4, safe_mode: QUICK, spread: true, ..config };
                let all: Vec<_> = std::iter::once(sender).chain(others).cloned().collect();
                if system(&config).admit(&all).is_err() {
                    continue;
                }
                systems += 1;
                let small = Small { config, sender: sender.clone(), others: others.clone() };
                depths += exhaust(3, budget, |ticks, choices| {
                    // Then it is silent for as long as is chosen, and then all send what they may.
                    let greed = ticks + 8 * choices.borrow_mut().choose(4);
                    let phase = |now| match now {
                        _ if now < ticks => Phase::Flood,
                        _ if now < greed => Phase::Silence,
                        _ => Phase::Greed,
                    };
                    let choose = |options| choices.borrow_mut().choose(options);
                    small.play(greed + 40, phase, false, choose, &mut tally);
                });
                for seed in 0..6 {
                    let mut dice = Dice(seed);
                    let phase = |now: u64| match now % 150 {
                        at if at < 10 + 10 * seed => Phase::Flood,
                        at if at < 120 => Phase::Within,
                        _ => Phase::Greed,
                    };
                    let choose = |options| dice.within(0, options - 1);
                    small.play(900, phase, seed % 2 == 1, choose, &mut tally);
                }
            }
        }
    }
    println!("{systems} systems, ticks exhausted on average {}, {tally:?}", depths / systems);
    assert!(systems > 30 && tally.free > tally.runs && tally.resumed > tally.runs / 4, "{tally:?}");
    assert!(tally.marked > tally.resumed && tally.came_back > systems && tally.longer > 1_000, "{tally:?}");
}
