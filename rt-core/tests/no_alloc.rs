//! While requests flow nothing is allocated: every call is counted by an allocator of our own.
#![allow(unsafe_code, reason = "a global allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System as Heap};
use std::cell::Cell;

use rt_core::pipeline::{PipelineAction, PipelineConfig, PipelineScheduler, StageConfig};
use rt_core::sharing::{Device, DeviceAction, DeviceConfig, Rule, SharedService, Sharing};
use rt_core::{
    Action, Arrival, ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, Event, Instant,
    LatencyProfile, LoadMonitor, Outcome, Ran, SafeModeConfig, Scheduler, SchedulerConfig, SelectTable,
    SelectTables, Selector, Shield, Span, StreamId, StreamSpec, Variant, Workers,
};

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged; counting touches a thread-local cell and nothing else.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are handed on.
        unsafe { Heap.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are handed on.
        unsafe { Heap.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are handed on.
        unsafe { Heap.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

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
            let refused = match self.refuse && self.token.is_multiple_of(8) {
                true => self.scheduler.handle_refused(now, id),
                false => {
                    self.scheduler.handle_arrival(now, Arrival { stream: id, token: self.token, at: now })
                }
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
    let selector = Selector::new(variants, [1e6, 1e7].map(table), load).expect("valid").sparing(1e9);
    caller.scheduler.set_selector(Some(selector)).expect("made for it");
    let seen = caller.silently("selection", |c| c.load(P, 10_000));
    assert!(seen.served > 9_000, "{seen:?}");
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
    for (dispatch, queue) in BOTH.iter().flat_map(|&d| [(d, 8), (d, 64), (d, 1024)]) {
        let mut caller = Caller::new(dispatch, queue);
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
                    c.scheduler.handle_completion(Instant::from_nanos(c.now), 0, Ran::Failed);
                    c.poll();
                }
                c.load(P, 50);
            }
        });
        assert!(seen.missed > 500 && seen.served > 2_000 && seen.entered > 0, "{seen:?}");
    }
}

/// Two services on one worker, by either rule, with strangers.
#[test]
fn nothing_is_allocated_while_services_share_a_worker() {
    for rule in [Rule::Earliest, Rule::Turns] {
        let span = Span::from_nanos;
        let service = |time, deadline| {
            let profile = LatencyProfile::new(&[span(time), span(time)]).expect("a profile");
            SchedulerConfig {
                deadline: span(deadline),
                guard: Span::ZERO,
                tolerance: Span::ZERO,
                stalls: None,
                workers: vec![Workers { count: 1, batch: 2, profile }],
                dispatch: Dispatch::Eager,
                background: true,
                queue: 64,
                streams: 4,
                safe_mode: SafeModeConfig { hold: Span::ZERO, clean: Span::ZERO, latch: false },
            }
        };
        let config = DeviceConfig {
            rule,
            turns: vec![1, 1],
            longest: span(300),
            overrun_margin: Span::ZERO,
            services: vec![service(200, 1_500), service(300, 2_500)],
        };
        let mut device = Device::new(config).expect("a device");
        let every = ArrivalCurve::new(&[ArrivalBound::window(1, span(1_000)).expect("valid")]).expect("one");
        let all = ConstraintSet::new(&[Constraint::any_miss(0, 1).expect("valid")]).expect("one");
        let promised = [StreamSpec::promised(all.clone(), every.clone())];
        let of =
            |time, latency| SharedService { latency: span(latency), batch: 2, time: span(time), turn: 1 };
        let sharing = Sharing {
            workers: 1,
            guard: Span::ZERO,
            longest: span(300),
            rule,
            services: vec![of(200, 1_500), of(300, 2_500)],
        };
        let lists: [&[StreamSpec]; 2] = [&promised, &promised];
        let admission = sharing.admit(&lists).expect("admitted");
        let streams = [0, 1].map(|s| {
            let (service, promised) =
                (device.service_mut(s), StreamSpec::promised(all.clone(), every.clone()));
            let promised = service.add_stream(Instant::ZERO, promised).expect("room");
            (promised, service.add_stream(Instant::ZERO, StreamSpec::best_effort()).expect("room"))
        });
        drop(device.set_shield(sharing.shield(&lists, &admission)).expect("its shield"));
        let (before, mut token, mut done, mut served, mut mandatory) = (allocations(), 0, None, 0u64, 0u64);
        for now in 0..200_000u64 {
            let at = Instant::from_nanos(now);
            if done == Some(now) {
                let ran = device
                    .owner(0)
                    .map_or(0, |s| device.service(s).config().workers[0].batch_time().as_nanos());
                device.handle_completion(at, 0, Ran::Done(span(ran)));
                done = None;
            }
            for (s, &(promised, stranger)) in streams.iter().enumerate() {
                for (every, stream) in [(1_000, promised), (170, stranger)] {
                    if now % every == 0 {
                        token += 1;
                        let _ = device.handle_arrival(at, s, Arrival { stream, token, at });
                    }
                }
            }
            loop {
                match device.poll(at) {
                    DeviceAction::Start { service, .. } => {
                        let time = device.service(service).config().workers[0].batch_time().as_nanos();
                        done = Some(now + time);
                    }
                    DeviceAction::Resolve(_, resolution) => {
                        let in_time = resolution.outcome == Outcome::Served;
                        served += u64::from(in_time);
                        mandatory += u64::from(resolution.request.mandatory);
                        assert!(in_time || !resolution.request.mandatory, "{resolution:?}");
                    }
                    DeviceAction::Event(..) => {}
                    DeviceAction::WakeAt(_) => break,
                }
            }
        }
        assert_eq!(allocations(), before, "{rule:?}");
        assert!(device.gone_ahead() > 50, "{} went ahead", device.gone_ahead());
        assert!(mandatory > 390 && served > mandatory + 200, "{served} served, {mandatory} mandatory");
    }
}

/// A pipeline of two stages in overload: sources that nothing is promised for beside those that it is, more than there is
/// room for, a batch that runs over, a worker that is lost and comes back, streams that begin anew.
#[test]
fn nothing_is_allocated_while_sources_pass_through_stages() {
    let stage = |parent, fan_out, count, batch, time| {
        let profile = LatencyProfile::new(&[Span::from_nanos(time); 4]).expect("a profile");
        StageConfig { parent, fan_out, mean: 1.0, workers: Workers { count, batch, profile } }
    };
    let span = Span::from_nanos(20 * P);
    let config = PipelineConfig {
        deadline: Span::from_nanos(8 * P),
        guard: Span::ZERO,
        stages: vec![stage(None, 1, 1, 2, P / 2), stage(Some(0), 4, 2, 4, P)],
        queue: 8,
        streams: 2,
        safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
    };
    let mut scheduler = PipelineScheduler::new(&config).expect("a configuration");
    let bound = ArrivalBound::window(2, Span::from_nanos(4 * P)).expect("valid");
    let constraints = ConstraintSet::new(&[Constraint::any_miss(1, 2).expect("valid")]).expect("one");
    let spec = StreamSpec::promised(constraints, ArrivalCurve::new(&[bound]).expect("one"));
    let mut streams = [spec, StreamSpec::best_effort()]
        .map(|spec| scheduler.add_stream(Instant::ZERO, spec).expect("room"));
    let mut ends = [[None::<u64>; 2]; 2];
    let (mut served, mut missed, mut starts) = (0, 0, 0);
    let before = allocations();
    for step in 0..20_000_u64 {
        let now = Instant::from_nanos(step * P / 8);
        for (stage, workers) in ends.iter_mut().enumerate() {
            for (worker, end) in workers.iter_mut().enumerate() {
                if let Some(started) = end.take_if(|end| Instant::from_nanos(*end) <= now) {
                    let ran = if step % 997 == 0 {
                        Ran::Failed
                    } else {
                        Ran::Done(now.since(Instant::from_nanos(started)))
                    };
                    scheduler.handle_completion(now, (stage, worker), ran, |place, _| {
                        (step as u32 + place as u32) % 6
                    });
                }
            }
        }
        if step % 70 == 3 {
            for stream in &mut streams {
                *stream = scheduler.restart_stream(now, *stream).expect("it is there");
            }
        }
        if step % 1_500 == 700 {
            (ends[1][1], _) = (None, scheduler.handle_worker_lost(now, (1, 1)));
        } else if step % 1_500 == 900 {
            scheduler.handle_worker_ready(now, (1, 1));
        }
        for (i, &stream) in streams.iter().enumerate() {
            if step % [17, 2][i] == 0 {
                let arrival = Arrival { stream, token: step, at: now };
                missed += u64::from(scheduler.handle_arrival(now, arrival).is_some());
            }
        }
        loop {
            match scheduler.poll(now) {
                PipelineAction::Start { stage, worker } => {
                    let over = if step % 1_300 == 0 { P } else { 0 };
                    ends[stage][worker] = Some(now.as_nanos() + [P / 2, P][stage] + over);
                    starts += 1;
                }
                PipelineAction::Resolve(resolution) => match resolution.outcome {
                    Outcome::Served => served += 1,
                    Outcome::Missed(_) => missed += 1,
                },
                PipelineAction::Event(_) => {}
                PipelineAction::WakeAt(_) => break,
            }
        }
    }
    assert_eq!(allocations(), before);
    assert!(served > 1_000 && missed > 1_000 && starts > 2_000, "{served} {missed} {starts}");
}
