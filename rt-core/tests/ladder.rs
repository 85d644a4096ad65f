//! Small systems searched exhaustively in which a stream sends what it likes and has weaker promises behind its first: nobody misses
//! what must be served, and each promise holds over all that came while it was in force.

use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, ConstraintSet, Dispatch, Event, LatencyProfile, SchedulerConfig,
    Shield, Span, StreamId, StreamSpec, StreamState, Workers,
};

use crate::harness::choices::exhaust;
use crate::harness::load::{QUICK, ladder, ns, set, stretch, window};
use crate::harness::{Dice, Harness, config, earliest, instances, system, violates_any};

fn curve(bound: &ArrivalBound) -> ArrivalCurve {
    ArrivalCurve::new(std::slice::from_ref(bound)).expect("one")
}

/// A stream with a ladder, which sends what it likes, and others that keep to what they declare.
#[derive(Clone, Debug)]
struct Small {
    config: SchedulerConfig,
    climber: StreamSpec,
    others: Vec<StreamSpec>,
    /// How long a change to a weaker promise may take.
    most: Option<u64>,
}

/// What all runs came to.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    /// Changes downwards at the request that exceeded a declaration, and those that waited.
    at_once: u64,
    waited: u64,
    climbed: u64,
    /// Windows of a weaker promise, and those of them that began under the first.
    windows: u64,
    across: u64,
    /// Requests missed under a weaker promise.
    missed: u64,
    longest_wait: u64,
}

/// How the stream stood once a request of it had come, and after how many changes.
type Stood = (StreamState, u64);

impl Small {
    fn spec_of(&self, state: StreamState) -> Option<&ConstraintSet> {
        match state {
            StreamState::Normal => Some(self.climber.constraints()),
            StreamState::Degraded(level) => Some(self.climber.constraints_at(level.into())),
            StreamState::Suspended => None,
        }
    }

    /// A run of so many ticks: while it is a `flood` the stream sends what it likes, else what its first promise allows.
    fn play(
        &self,
        ticks: u64,
        flood: impl Fn(u64) -> bool,
        mut choose: impl FnMut(u64) -> u64,
        tally: &mut Tally,
    ) {
        let first = self.climber.arrivals().expect("declared").bounds();
        let mut harness = Harness::new(self.config.clone(), |_, bound| bound);
        let id = harness.add(self.climber.clone());
        let others: Vec<_> = self.others.iter().map(|spec| harness.add(spec.clone())).collect();
        let load = std::iter::once(&self.climber).chain(&self.others).filter_map(StreamSpec::demand);
        // Of workers of several kinds there is none.
        if let [alike] = &self.config.workers[..] {
            let shield = Shield::new(alike, self.config.deadline, load).expect("admitted");
            harness.scheduler.set_shield(Some(shield)).expect("made for it");
            stretch(&mut harness);
        }
        let stranger = harness.add(StreamSpec::best_effort());
        let mut sent = vec![Vec::new(); others.len()];
        let (mut came, mut stood): (Vec<u64>, Vec<Stood>) = (Vec::new(), Vec::new());
        for now in 0..ticks {
            harness.advance_to(now);
            let requests = match flood(now) {
                true => choose(3),
                false => choose(2).min(u64::from(earliest(&came, first, now) <= now)),
            };
            for _ in 0..requests {
                harness.arrive_unpolled(id);
                // Before anything else can happen.
                stood.push(stands(&harness, id));
                came.push(now);
                harness.settle();
            }
            for (&other, (spec, sent)) in others.iter().zip(self.others.iter().zip(&mut sent)) {
                let bounds = spec.arrivals().expect("declared").bounds();
                if earliest(sent, bounds, now) <= now && choose(2) == 1 {
                    sent.push(now);
                    harness.arrive(other);
                }
            }
            if (0..self.config.worker_count()).any(|worker| !harness.is_busy(worker)) {
                harness.arrive(stranger);
            }
        }
        harness.drain();
        tally.runs += 1;
        let missed = harness.mandatory_misses();
        assert!(missed.is_empty(), "{self:?}, {:?}: {missed:?}", harness.events);
        let own = |(_, event): &(u64, Event)| match event {
            // Over what came before a change the new promise may be violated: that is the stream's own.
            Event::Suspension(told) => told.stream == id,
            Event::SafeMode(told) => !told.state.is_suspended(),
            Event::MissesLeft { .. } => true,
        };
        let wrong = harness.events.iter().find(|event| !own(event));
        assert!(
            wrong.is_none(),
            "{self:?}: {wrong:?} among {:?}, {came:?} {stood:?} {:?}",
            harness.events,
            harness.resolutions
        );
        self.judge(&harness.outcomes(id), &stood, tally);
        let last = self.climber.levels().last().expect("a ladder").arrivals.bounds();
        let keeps = |nth: usize| earliest(&came[..nth], last, came[nth]) <= came[nth];
        let most = self.most.filter(|_| (0..came.len()).all(keeps));
        self.look_at_changes(&harness, most, tally);
    }

    /// Each promise holds in every window of requests that came while it was in force, and where a stream fell at the very request that
    /// exceeded its first declaration, in those that began before it as well.
    fn judge(&self, outcomes: &[bool], stood: &[Stood], tally: &mut Tally) {
        assert_eq!(outcomes.len(), stood.len());
        let mut from = 0;
        let mut before = None;
        while from < stood.len() {
            let stay = stood[from];
            let to = from + stood[from..].iter().take_while(|&&other| other == stay).count();
            if let Some(set) = self.spec_of(stay.0) {
                assert!(
                    !violates_any(&outcomes[from..to], set),
                    "{self:?}: {stay:?}, {outcomes:?} {stood:?}"
                );
                if let StreamState::Degraded(_) = stay.0 {
                    tally.windows += (to - from) as u64;
                    tally.missed += outcomes[from..to].iter().filter(|&&hit| !hit).count() as u64;
                    // One change only lies between: it was at this request.
                    if let Some((first, (StreamState::Normal, changes))) = before
                        && changes + 1 == stay.1
                    {
                        let first: usize = first;
                        tally.across += 1;
                        assert!(
                            !violates_any(&outcomes[first..to], set),
                            "{self:?}: across {from}, {outcomes:?} {stood:?}"
                        );
                    }
                }
            }
            (before, from) = (Some((from, stay)), to);
        }
    }

    /// A suspension that ends in a weaker promise, the last of which was never exceeded, lasts no longer than `most`.
    fn look_at_changes(&self, harness: &Harness, most: Option<u64>, tally: &mut Tally) {
        let mut suspended = None;
        let mut level = 0;
        for (at, event) in &harness.events {
            let Event::Suspension(told) = event else { continue };
            let entered = told.alarm.map(|alarm| alarm.entered.as_nanos());
            assert!(entered.is_none_or(|entered| entered == *at), "{told:?} at {at}");
            match told.state {
                StreamState::Suspended => {
                    let excess = told.alarm.is_some_and(|alarm| alarm.cause == Cause::ArrivalExcess);
                    suspended = excess.then_some(*at);
                }
                StreamState::Normal => {
                    tally.climbed += u64::from(level > 0);
                    (suspended, level) = (None, 0);
                }
                StreamState::Degraded(next) => {
                    match suspended.take() {
                        Some(since) if next > level => {
                            tally.waited += 1;
                            tally.longest_wait = tally.longest_wait.max(at - since);
                            assert!(
                                most.is_none_or(|most| at - since <= most),
                                "{self:?}: {most:?} {:?}",
                                harness.events
                            );
                        }
                        None if next > level => tally.at_once += 1,
                        _ => {}
                    }
                    tally.climbed += u64::from(next < level);
                    level = next;
                }
            }
        }
    }
}

/// How the stream stands, and after how many changes.
fn stands(harness: &Harness, id: StreamId) -> Stood {
    let (state, _) = harness.scheduler.stream_state(id).expect("there");
    (state, harness.scheduler.suspension_changes())
}

#[test]
fn whoever_falls_harms_nobody_and_is_promised_what_is_in_force() {
    let climbers = [
        ladder((0, 1), &window(1, 4), &[(1, 2), (2, 3)]),
        ladder((0, 1), &window(2, 7), &[(1, 3), (3, 4)]),
        ladder((1, 3), &window(2, 5), &[(1, 2)]),
        ladder((0, 1), &ArrivalBound::periodic(ns(4), ns(3)).expect("valid"), &[(1, 2), (3, 4)]),
        ladder((1, 4), &ArrivalBound::periodic(ns(3), ns(0)).expect("valid"), &[(1, 2)]),
        ladder((0, 1), &ArrivalBound::distances(&[ns(1), ns(7)]).expect("valid"), &[(1, 2)]),
    ];
    let strict = |bound: &ArrivalBound| StreamSpec::promised(set(0, 1), curve(bound));
    let besides = [vec![], vec![strict(&window(1, 6))], vec![strict(&window(2, 9))]];
    let budget = 150 * instances(10) as u64;
    let (mut tally, mut systems, mut depths) = (Tally::default(), 0, 0);
    let alike = [(&[1][..], 1, None), (&[2], 1, None), (&[2, 3], 1, None), (&[3], 2, None)];
    // And beside such a worker one of another kind.
    for (times, workers, other) in alike.into_iter().chain([(&[1][..], 1, Some(3)), (&[2, 3], 1, Some(1))]) {
        for (climber, others) in climbers.iter().flat_map(|c| besides.iter().map(move |o| (c, o))) {
            for (latency, dispatch) in [
                (4, Dispatch::Eager),
                (6, Dispatch::Eager),
                (9, Dispatch::Eager),
                (9, Dispatch::FullOrLatest),
            ] {
                let config = config(times, times.len(), workers, latency, dispatch);
                let spread = systems % 2 == 1;
                let mut config =
                    SchedulerConfig { queue: 64, streams: 4, safe_mode: QUICK, spread, ..config };
                config.workers.extend(other.map(|time| {
                    let profile = LatencyProfile::new(&[ns(time)]).expect("valid");
                    Workers { count: 1, batch: 1, profile }
                }));
                let all: Vec<_> = std::iter::once(climber).chain(others).cloned().collect();
                if system(&config).admit(&all).is_err() {
                    continue;
                }
                systems += 1;
                let most = system(&config).time_to_calm(&all, Span::ZERO).map(Span::as_nanos);
                let small = Small { config, climber: climber.clone(), others: others.clone(), most };
                depths += exhaust(4, budget, |ticks, choices| {
                    small.play(ticks, |_| true, |options| choices.borrow_mut().choose(options), &mut tally);
                });
                for seed in 0..4 {
                    let mut dice = Dice(seed);
                    small.play(
                        900,
                        |now| now % 300 < 20 + 20 * seed,
                        |options| dice.within(0, options - 1),
                        &mut tally,
                    );
                }
            }
        }
    }
    println!("{systems} systems, ticks exhausted on average {}, {tally:?}", depths / systems);
    assert!(
        systems > 50
            && tally.at_once > 0
            && tally.waited > 0
            && tally.climbed > 4 * systems / 2
            && tally.across > 0,
        "{tally:?}"
    );
}
