//! A scheduler in a steady state: a queue of constant length, one request in and one out at each step.

use rt_core::{
    Action, Arrival, ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant,
    LatencyProfile, LoadMonitor, Ran, SafeModeConfig, Scheduler, SchedulerConfig, SelectTable, Selector,
    Shield, Span, StreamId, StreamSpec, Variant, Workers,
};

/// Time between two requests, and of a batch with one worker; with more, of so many times that.
const P: u64 = 1_000;
const STREAMS: u64 = 8;

/// Workers that end one after the other, eight streams of mandatory requests, and a queue that always holds as many of them.
pub(crate) struct Steady {
    pub(crate) scheduler: Scheduler,
    ids: Vec<StreamId>,
    /// Workers, and which of them ends next.
    workers: usize,
    next: usize,
    now: u64,
    token: u64,
    /// Calls of `poll` so far.
    pub(crate) polls: u64,
}

impl Steady {
    /// Filled up to `length` waiting requests.
    pub(crate) fn new(length: usize, workers: usize) -> Self {
        let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
        let window = ArrivalBound::window(2 * length as u64 + 64, Span::from_nanos(P)).expect("valid");
        let curve = ArrivalCurve::new(&[window]).expect("one");
        Self::of(length, workers, &StreamSpec::promised(set, curve), |_| {})
    }

    /// The same of requests that are promised nothing, behind a shield; `select`: and each batch is given one of eight
    /// variants by a table for one of ten rates, 32 queue lengths and 101 slacks.
    pub(crate) fn shielded(length: usize, workers: usize, select: bool) -> Self {
        Self::of(length, workers, &StreamSpec::best_effort(), |scheduler| {
            let workers = scheduler.config().workers[0].clone();
            let shield = Shield::new(&workers, scheduler.config().deadline, []).expect("in range");
            scheduler.set_shield(Some(shield)).expect("made for it");
            if !select {
                return;
            }
            // What is wished for takes no longer than the base, so that all else stays the same.
            let variant = |i| Variant { profile: workers.profile.clone(), accuracy: 0.1 * f64::from(i) };
            let table = |i: u32| {
                let wishes: Vec<u8> = (0..32 * 101).map(|wish| 1 + (wish % 7) as u8).collect();
                SelectTable::new(f64::from(i) * 2e5, Span::from_nanos(P), 101, wishes).expect("valid")
            };
            let (variants, tables) = ((0..8).map(variant), (1..=10).map(table));
            let (variants, tables): (Vec<_>, Vec<_>) = (variants.collect(), tables.collect());
            // As much has come for a window.
            let (mut load, window) = (LoadMonitor::default(), LoadMonitor::DEFAULT_WINDOW.as_nanos());
            (0..window).step_by(P as usize).for_each(|at| _ = load.observe(Instant::from_nanos(at)));
            let selector = Selector::new(variants, tables, load).expect("valid");
            scheduler.set_selector(Some(selector)).expect("made for it");
        })
    }

    fn of(length: usize, workers: usize, spec: &StreamSpec, prepare: impl FnOnce(&mut Scheduler)) -> Self {
        let time = workers as u64 * P;
        let profile = LatencyProfile::new(&[Span::from_nanos(time)]).expect("a profile");
        let span = Span::from_millis(1);
        let mut scheduler = Scheduler::new(SchedulerConfig {
            deadline: Span::from_nanos((length as u64 + 64) * P + time),
            guard: Span::ZERO,
            tolerance: Span::ZERO,
            stalls: None,
            workers: vec![Workers { count: workers, batch: 1, profile }],
            dispatch: Dispatch::Eager,
            background: true,
            spread: false,
            queue: 2 * length + 64,
            streams: STREAMS as usize,
            safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        })
        .expect("a configuration");
        prepare(&mut scheduler);
        let ids =
            (0..STREAMS).map(|_| scheduler.add_stream(Instant::ZERO, spec.clone()).expect("room")).collect();
        let now = LoadMonitor::DEFAULT_WINDOW.as_nanos();
        let mut steady = Self { scheduler, ids, workers, next: 0, now, token: 0, polls: 0 };
        for start in 0..length + workers {
            // Workers begin one after the other, as they will end.
            steady.now += if start < workers { P } else { 0 };
            steady.arrive();
            steady.poll();
        }
        assert_eq!(steady.scheduler.waiting(), length);
        // Past the start, where the queue is as it will stay.
        (0..4 * (length + workers) + 64).for_each(|_| steady.step());
        assert_eq!((steady.scheduler.waiting(), steady.scheduler.safe_mode().breaches()), (length, 0));
        steady
    }

    /// A completion, a request, and the polls that each calls for.
    pub(crate) fn step(&mut self) {
        self.complete();
        self.poll();
        self.arrive();
        self.poll();
    }

    pub(crate) fn arrive(&mut self) {
        let id = self.ids[(self.token % STREAMS) as usize];
        let now = Instant::from_nanos(self.now);
        let refused = self.scheduler.handle_arrival(now, Arrival::new(id, self.token, now));
        assert!(refused.is_none());
        self.token += 1;
    }

    pub(crate) fn complete(&mut self) {
        self.now += P;
        let time = Span::from_nanos(self.workers as u64 * P);
        self.scheduler.handle_completion(Instant::from_nanos(self.now), self.next, Ran::Done(time));
        self.next = (self.next + 1) % self.workers;
    }

    /// Polls until there is nothing more to do.
    pub(crate) fn poll(&mut self) {
        loop {
            self.polls += 1;
            if let Action::WakeAt(_) = self.poll_once() {
                return;
            }
        }
    }

    pub(crate) fn poll_once(&mut self) -> Action {
        self.scheduler.poll(Instant::from_nanos(self.now))
    }
}
