//! While requests flow nothing is allocated: every call of a scheduler is counted by an allocator of our own.

mod counting;

use counting::allocations;
use rt_core::{
    Action, Arrival, ArrivalBound, ArrivalCurve, Cause, ClassWorth, Constraint, ConstraintSet, Decay,
    Dispatch, Event, Instant, LEARNED_INPUTS, LatencyProfile, LearnedScale, LoadMonitor, Manner, Net,
    Outcome, Ran, SafeModeConfig, Scheduler, SchedulerConfig, SelectTable, SelectTables, Selector, Shield,
    Span, StreamId, StreamSpec, Variant, Workers,
};

/// What was seen, in fixed space.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    served: u64,
    missed: u64,
    starts: u64,
    entered: u64,
    left: u64,
    /// By the number of its cause.
    causes: [u64; 8],
}

const WORKERS: usize = 3;
const STREAMS: usize = 8;
const P: u64 = 1_000;

/// A scheduler and a caller that needs no memory: when each worker will be done, and when to wake up.
struct Caller {
    scheduler: Scheduler,
    ids: [Option<StreamId>; STREAMS],
    specs: Vec<StreamSpec>,
    done: [Option<(u64, u64)>; WORKERS],
    wake: Option<u64>,
    now: u64,
    seen: Seen,
    token: u64,
    /// Batches take so many hundredths of their bound.
    pace: u64,
    /// The caller has no room for some of the requests.
    refuse: bool,
    /// How often a batch was allowed all that it asked for, or less.
    prolonged: u64,
    cut_short: u64,
}

impl Caller {
    fn new(dispatch: Dispatch, queue: usize) -> Self {
        Self::spreading(dispatch, queue, false)
    }

    fn spreading(dispatch: Dispatch, queue: usize, spread: bool) -> Self {
        let times: Vec<_> = (1..=4).map(|b| Span::from_nanos(P / 2 + b * P / 8)).collect();
        let profile = LatencyProfile::new(&times).expect("a profile");
        let span = Span::from_nanos(20 * P);
        let mut scheduler = Scheduler::new(SchedulerConfig {
            deadline: Span::from_nanos(4 * P),
            guard: Span::from_nanos(P / 10),
            tolerance: Span::ZERO,
            stalls: None,
            workers: vec![Workers { count: WORKERS, batch: 4, profile }],
            dispatch,
            background: true,
            spread,
            queue,
            streams: STREAMS,
            safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        })
        .expect("a configuration");
        let mut specs = Vec::new();
        let ids = std::array::from_fn(|i| {
            let set = [Constraint::any_miss(1 + i as u32 % 3, 5), Constraint::row_miss(2)];
            let set = set.map(|c| c.expect("valid"));
            let bounds = [
                ArrivalBound::window(4, Span::from_nanos(2 * P)),
                ArrivalBound::token_bucket(3, Span::from_nanos(P / 2)),
                ArrivalBound::distances(&[0, 0, P / 2, 2 * P].map(Span::from_nanos)),
            ];
            let curve = ArrivalCurve::new(&bounds.map(|b| b.expect("valid"))).expect("three");
            let spec = match i {
                0 => StreamSpec::best_effort(),
                _ => StreamSpec::promised(ConstraintSet::new(&set).expect("two"), curve),
            };
            specs.push(spec.clone());
            Some(scheduler.add_stream(Instant::ZERO, spec).expect("room"))
        });
        let (done, seen) = ([None; WORKERS], Seen::default());
        Self {
            scheduler,
            ids,
            specs,
            done,
            wake: None,
            now: 0,
            seen,
            token: 0,
            pace: 100,
            refuse: false,
            prolonged: 0,
            cut_short: 0,
        }
    }

    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Served => self.seen.served += 1,
            Outcome::Missed(_) => self.seen.missed += 1,
        }
    }

    fn poll(&mut self) {
        loop {
            match self.scheduler.poll(Instant::from_nanos(self.now)) {
                Action::Start { worker } => {
                    let bound = self.prolong(worker);
                    let time = bound.as_nanos() * self.pace / 100;
                    self.done[worker] = Some((self.now + time, time));
                    self.seen.starts += 1;
                }
                Action::Resolve(resolution) => self.count(resolution.outcome),
                Action::Event(Event::SafeMode(t)) => match t.breach() {
                    None => self.seen.left += 1,
                    Some(cause) => {
                        self.seen.entered += 1;
                        self.seen.causes[cause as usize] += 1;
                    }
                },
                Action::Event(Event::Suspension(_) | Event::MissesLeft { .. }) => {}
                Action::WakeAt(at) => {
                    self.wake = at.map(Instant::as_nanos);
                    return;
                }
            }
        }
    }

    /// Asks for two to four times that of a full batch, and if that is too much, for what is allowed.
    fn prolong(&mut self, worker: usize) -> Span {
        let (now, wish) = (Instant::from_nanos(self.now), Span::from_nanos((2 + self.token % 3) * P));
        let profile = &self.scheduler.config().workers[0].profile;
        let bound = profile.bound(self.scheduler.batch(worker).len());
        if self.scheduler.prolong(now, worker, wish).is_ok() {
            self.prolonged += 1;
            return wish;
        }
        let longest = self.scheduler.longest(now, worker);
        self.cut_short += u64::from(self.scheduler.prolong(now, worker, longest).is_ok());
        longest.max(bound)
    }

    fn advance_to(&mut self, to: u64) {
        loop {
            let ends = |w: usize| self.done[w].map(|(at, _)| at);
            let worker = (0..WORKERS).filter(|&w| ends(w).is_some()).min_by_key(|&w| ends(w));
            let end = worker.and_then(ends).filter(|&at| at <= to);
            match (end, self.wake.filter(|&at| at <= to)) {
                (Some(at), wake) if wake.is_none_or(|wake| at <= wake) => {
                    self.now = at;
                    let worker = worker.expect("its end is known");
                    let time = self.done[worker].take().map_or(0, |(_, time)| time);
                    let ran = Ran::Done(Span::from_nanos(time));
                    self.scheduler.handle_completion(Instant::from_nanos(at), worker, ran);
                }
                (_, Some(wake)) => self.now = wake,
                _ => break,
            }
            self.poll();
        }
        self.now = to;
    }

    /// Requests of all streams in turn, `gap` apart, for so many of them.
    fn load(&mut self, gap: u64, count: u64) {
        for i in 0..count {
            self.advance_to(self.now + gap);
            let Some(id) = self.ids[(i % STREAMS as u64) as usize] else { continue };
            self.token += 1;
            let now = Instant::from_nanos(self.now);
            let arrival = Arrival::new(id, self.token, now).of_class((self.token % 3) as u8);
            let refused = match self.refuse && self.token.is_multiple_of(8) {
                true => self.scheduler.handle_refused(now, id),
                false => self.scheduler.handle_arrival(now, arrival),
            };
            if let Some(refused) = refused {
                self.count(refused.outcome);
            }
            self.poll();
        }
    }

    /// Asserts that `part` allocates nothing; returns what was seen meanwhile.
    fn silently(&mut self, what: &str, part: impl FnOnce(&mut Self)) -> Seen {
        self.seen = Seen::default();
        let before = allocations();
        part(self);
        let count = allocations() - before;
        assert_eq!(count, 0, "{what} allocates");
        self.seen
    }
}

const BOTH: [Dispatch; 2] = [Dispatch::Eager, Dispatch::FullOrLatest];

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert!(allocations() > before);
}

#[test]
fn a_takeover_that_was_expected_allocates_nothing() {
    let mut caller = Caller::new(Dispatch::Eager, 64);
    caller.load(2 * P / 8, 2_000);
    caller.advance_to(caller.now + 20 * P);
    let now = Instant::from_nanos(caller.now);
    // More places for streams, and a longer queue, so that each stream has more requests to keep account of.
    let before = caller.scheduler.config().clone();
    let config = SchedulerConfig { streams: 3 * before.streams, queue: 8 * before.queue, ..before };
    for streams in [config.streams, STREAMS] {
        let mut next =
            Scheduler::new(SchedulerConfig { streams, ..config.clone() }).expect("a configuration");
        next.expect_streams(caller.scheduler.config().streams, &caller.specs);
        let count = allocations();
        assert_eq!(caller.scheduler.hand_over(now, &mut next, &[]), Ok(()));
        assert_eq!(allocations(), count, "to {streams} places");
        drop(next.leftovers());
        // Who has handed over has all its places.
        assert!((0..STREAMS).all(|_| caller.scheduler.add_stream(now, StreamSpec::best_effort()).is_ok()));
        caller.scheduler = next;
        assert!(caller.ids.iter().flatten().all(|id| caller.scheduler.stream_counts(*id).is_some()));
    }
    let seen = caller.silently("what comes after it", |c| c.load(2 * P / 8, 2_000));
    assert!(seen.served > 1_900, "{seen:?}");
}

#[test]
fn normal_load_allocates_nothing() {
    for dispatch in BOTH {
        let mut caller = Caller::new(dispatch, 64);
        let seen = caller.silently("normal load", |c| c.load(2 * P / 8, 20_000));
        assert!(seen.served == 20_000 || seen.served > 19_900 && seen.missed == 0, "{seen:?}");
        assert_eq!(seen.entered, 0, "{seen:?}");
    }
}

#[test]
fn longer_batches_allocate_nothing() {
    for dispatch in BOTH {
        let mut caller = Caller::new(dispatch, 64);
        let config = caller.scheduler.config();
        let latency = config.deadline.saturating_sub(config.guard);
        let load = caller.specs.iter().filter_map(StreamSpec::demand);
        let shield = Shield::new(&config.workers[0], latency, load).expect("an admissible load");
        caller.scheduler.set_shield(Some(shield)).expect("made for it");
        let seen = caller.silently("longer batches", |c| {
            c.load(2 * P / 8, 10_000);
            c.load(P / 10, 10_000);
        });
        let (prolonged, cut_short) = (caller.prolonged, caller.cut_short);
        assert!(prolonged > 500 && cut_short > 500, "{prolonged} {cut_short} {seen:?}");
        assert!(seen.served > 10_000, "{seen:?}");
    }
}

#[test]
fn selecting_a_variant_allocates_nothing() {
    let mut caller = Caller::new(Dispatch::Eager, 64);
    let workers = caller.scheduler.config().workers[0].clone();
    let load = caller.specs.iter().filter_map(StreamSpec::demand);
    let shield = Shield::new(&workers, Span::from_nanos(39 * P / 10), load).expect("an admissible load");
    caller.scheduler.set_shield(Some(shield)).expect("made for it");
    let slower = LatencyProfile::new(&[Span::from_nanos(2 * P)]).expect("a profile");
    let variants = [(workers.profile, 0.5), (slower, 0.9)].map(|(p, a)| Variant { profile: p, accuracy: a });
    let table = |rate| SelectTable::new(rate, Span::from_nanos(P), 2, [0, 1, 1, 1]).expect("a table");
    let load = LoadMonitor::new(Span::from_nanos(10 * P)).expect("a window");
    let selector = Selector::new(variants.clone(), [1e6, 1e7].map(table), load).expect("valid").sparing(1e9);
    caller.scheduler.set_selector(Some(selector)).expect("made for it");
    let seen = caller.silently("selection", |c| c.load(P, 10_000));
    assert!(seen.served > 9_000, "{seen:?}");
    let forming = SelectTable::constant(1).in_manner(Manner::Forming);
    let forming = Selector::new(variants.clone(), [forming], LoadMonitor::default()).expect("valid");
    let tables = caller.scheduler.selector().cloned();
    caller.scheduler.set_selector(Some(forming)).expect("made for it");
    let seen = caller.silently("batches that are formed for a variant", |c| c.load(P, 10_000));
    assert!(seen.served > 3_000, "{seen:?}");
    let class =
        |worth: [f64; 2], decay| ClassWorth { worth: worth.into(), deadline: Span::from_nanos(9 * P), decay };
    let points = Decay::Points(vec![(0.5, 0.5), (1.0, 0.0)]);
    let classes = [class([0.9, 0.1], Decay::Hard), class([0.1, 0.9], points)];
    let classed = Selector::greedy(variants.clone()).expect("valid").for_classes(classes).expect("valid");
    caller.scheduler.set_selector(Some(classed)).expect("made for it");
    let seen = caller.silently("selection by class", |c| c.load(P, 10_000));
    assert!(seen.served > 9_000, "{seen:?}");
    let prices = SelectTable::of_prices(1e9, 2, [0.0, 0.1, 1.0, 1e6]).expect("a table");
    let prices = prices.in_batches([1, 2]).expect("at least 1 each");
    let priced = Selector::new(variants.clone(), [prices], LoadMonitor::default()).expect("valid");
    caller.scheduler.set_selector(Some(priced)).expect("made for it");
    let seen = caller.silently("selection by price", |c| c.load(P, 10_000));
    assert!(seen.served > 9_000, "{seen:?}");
    let widths = [LEARNED_INPUTS, 256, 256, 2];
    let weights: Vec<f32> =
        (0..Net::weights_of(&widths).expect("few")).map(|i| (i % 7) as f32 - 3.0).collect();
    let net = Net::new(widths, weights).expect("valid");
    let scale = LearnedScale {
        requests: 8,
        slack: Span::from_nanos(40 * P),
        rate_per_s: 1e6,
        workers: 1,
        classes: 0,
    };
    let learned = Selector::learned(variants, net, scale, LoadMonitor::default()).expect("valid");
    caller.scheduler.set_selector(Some(learned)).expect("made for it");
    let seen = caller.silently("a network's selection", |c| c.load(P, 10_000));
    assert!(seen.served > 9_000, "{seen:?}");
    caller.scheduler.set_selector(tables).expect("made for it");
    let mut fresh = SelectTables::new([1e5, 1e6, 1e7].map(table), 2).expect("for two variants");
    let seen = caller.silently("an exchange of tables", |c| {
        for _ in 0..100 {
            c.scheduler.swap_tables(&mut fresh).expect("for its variants");
            c.load(P, 100);
        }
    });
    assert!(seen.served > 9_000, "{seen:?}");
}

#[test]
fn overload_and_floods_allocate_nothing() {
    let queues = BOTH.iter().flat_map(|&d| [(d, 8), (d, 64), (d, 1024)]);
    for ((dispatch, queue), spread) in queues.flat_map(|each| [(each, false), (each, true)]) {
        let mut caller = Caller::spreading(dispatch, queue, spread);
        let seen = caller.silently("overload", |c| c.load(P / 30, 20_000));
        assert!(seen.missed > 5_000 && seen.served > 5_000, "{seen:?}");
        caller.refuse = true;
        let seen = caller.silently("a flood", |c| (0..50).for_each(|_| c.load(0, 400)));
        assert!(seen.missed > 15_000, "{seen:?}");
    }
}

#[test]
fn safe_mode_comes_and_goes_without_allocation() {
    for dispatch in BOTH {
        let mut caller = Caller::new(dispatch, 64);
        let seen = caller.silently("safe mode", |c| {
            for _ in 0..50 {
                c.load(P / 2, 100);
                c.pace = 150;
                c.load(P / 2, 20);
                c.pace = 100;
                c.load(P / 2, 200);
            }
        });
        assert!(seen.entered >= 50 && seen.left >= 49, "{seen:?}");
        assert!(seen.causes[Cause::ServiceOverrun as usize] >= 50, "{seen:?}");
    }
}

#[test]
fn lost_workers_and_failed_engines_allocate_nothing() {
    for dispatch in BOTH {
        let mut caller = Caller::new(dispatch, 64);
        let seen = caller.silently("worker loss", |c| {
            for round in 0..50usize {
                c.load(P / 8, 50);
                for worker in 0..=round % WORKERS {
                    c.done[worker] = None;
                    c.scheduler.handle_worker_lost(Instant::from_nanos(c.now), worker);
                    c.poll();
                }
                c.load(P / 8, 50);
                for worker in 0..WORKERS {
                    c.scheduler.handle_worker_ready(Instant::from_nanos(c.now), worker);
                    c.poll();
                }
                if c.done[0].take().is_some() {
                    c.scheduler.handle_completion(Instant::from_nanos(c.now), 0, Ran::Failed(Span::ZERO));
                    c.poll();
                }
                c.load(P, 50);
            }
        });
        assert!(seen.missed > 500 && seen.served > 2_000 && seen.entered > 0, "{seen:?}");
    }
}
