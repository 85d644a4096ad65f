//! A scheduler in a steady state: a queue of constant length, one request in and one out at each step.

use rt_core::{
    Action, ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, LatencyProfile, Ran,
    SafeModeConfig, Scheduler, SchedulerConfig, Span, StreamId, StreamSpec, Workers,
};

/// Time of a batch, and between two requests.
const P: u64 = 1_000;
const STREAMS: u64 = 8;

/// One worker, eight streams of mandatory requests, and a queue that always holds as many of them.
pub(crate) struct Steady {
    pub(crate) scheduler: Scheduler,
    ids: Vec<StreamId>,
    now: u64,
    token: u64,
    /// Calls of `poll` so far.
    pub(crate) polls: u64,
}

impl Steady {
    /// Filled up to `length` waiting requests.
    pub(crate) fn new(length: usize) -> Self {
        let profile = LatencyProfile::new(&[Span::from_nanos(P)]).expect("a profile");
        let span = Span::from_millis(1);
        let mut scheduler = Scheduler::new(SchedulerConfig {
            deadline: Span::from_nanos((length as u64 + 64) * P),
            guard: Span::ZERO,
            workers: vec![Workers { count: 1, batch: 1, profile }],
            dispatch: Dispatch::Eager,
            background: true,
            queue: 2 * length + 64,
            streams: STREAMS as usize,
            safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        })
        .expect("a configuration");
        let set = ConstraintSet::new(&[Constraint::row_miss(0).expect("valid")]).expect("one");
        let window = ArrivalBound::window(2 * length as u64 + 64, Span::from_nanos(P)).expect("valid");
        let spec = StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"));
        let ids = (0..STREAMS).map(|_| scheduler.add_stream(spec.clone()).expect("room")).collect();
        let mut steady = Self { scheduler, ids, now: 0, token: 0, polls: 0 };
        for _ in 0..=length {
            steady.arrive();
            steady.poll();
        }
        assert_eq!(steady.scheduler.waiting(), length);
        // Past the start, where the queue is as it will stay.
        (0..4 * length + 64).for_each(|_| steady.step());
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
        let refused = self.scheduler.handle_arrival(Instant::from_nanos(self.now), id, self.token);
        assert!(refused.is_none());
        self.token += 1;
    }

    pub(crate) fn complete(&mut self) {
        self.now += P;
        self.scheduler.handle_completion(Instant::from_nanos(self.now), 0, Ran::Done(Span::from_nanos(P)));
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
