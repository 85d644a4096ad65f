//! A batch that does not end: what it holds is missed at its deadline, and keeps nobody else from being served.

mod harness;
mod oracle;
mod shared;
mod stages;

use oracle::Stream;
use oracle::sharing::{Service, Shared};
use rt_core::{
    Action, Arrival, ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, Event,
    HandOverError, Instant, LatencyProfile, MissReason, Outcome, Ran, SafeModeConfig, Scheduler,
    SchedulerConfig, Span, StreamId, StreamSpec, Workers,
};
use stages::draw::{one_in, two_stages};

const P: u64 = 1_000;
const DEADLINE: u64 = 10 * P;
const GUARD: u64 = 100;
const QUEUE: usize = 4;

fn at(n: u64) -> Instant {
    Instant::from_nanos(n)
}

fn ns(n: u64) -> Span {
    Span::from_nanos(n)
}

/// Two workers, one request a batch, of which the first runs its first batch for ever.
struct Hung {
    scheduler: Scheduler,
    now: u64,
    wake: Option<u64>,
    /// When the second one is done.
    done: Option<u64>,
    ends: Vec<(u64, u64, Outcome)>,
    causes: Vec<(u64, Cause)>,
    tokens: u64,
}

impl Hung {
    fn new() -> Self {
        let profile = LatencyProfile::new(&[ns(P)]).expect("a profile");
        let safe_mode = SafeModeConfig { hold: ns(50 * P), clean: ns(50 * P), latch: false };
        let config = SchedulerConfig {
            deadline: ns(DEADLINE),
            guard: ns(GUARD),
            tolerance: Span::ZERO,
            stalls: None,
            workers: vec![Workers { count: 2, batch: 1, profile }],
            dispatch: Dispatch::Eager,
            background: true,
            spread: false,
            queue: QUEUE,
            streams: 4,
            safe_mode,
        };
        let scheduler = Scheduler::new(config).expect("valid");
        let (ends, causes) = (Vec::new(), Vec::new());
        Self { scheduler, now: 0, wake: None, done: None, ends, causes, tokens: 0 }
    }

    fn add(&mut self, spec: StreamSpec) -> StreamId {
        self.scheduler.add_stream(at(self.now), spec).expect("room")
    }

    fn arrive(&mut self, stream: StreamId) {
        let arrival = Arrival::new(stream, self.tokens, at(self.now));
        self.tokens += 1;
        if let Some(refused) = self.scheduler.handle_arrival(at(self.now), arrival) {
            self.ends.push((self.now, refused.request.token, refused.outcome));
        }
        self.poll();
    }

    fn poll(&mut self) {
        loop {
            match self.scheduler.poll(at(self.now)) {
                Action::Start { worker: 0 } => {}
                Action::Start { .. } => self.done = Some(self.now + P),
                Action::Resolve(resolution) => {
                    self.ends.push((self.now, resolution.request.token, resolution.outcome));
                }
                Action::Event(Event::SafeMode(transition)) => {
                    self.causes.extend(transition.state.alarm.map(|alarm| (self.now, alarm.cause)));
                }
                Action::Event(_) => {}
                Action::WakeAt(wake) => {
                    assert!(wake.is_none_or(|wake| wake.as_nanos() > self.now), "due already");
                    self.wake = wake.map(Instant::as_nanos);
                    return;
                }
            }
        }
    }

    /// On to `until`, by way of all that happens before.
    fn advance(&mut self, until: u64) {
        while let Some(next) = self.wake.into_iter().chain(self.done).min().filter(|&next| next <= until) {
            self.now = next;
            if self.done == Some(next) {
                self.done = None;
                self.scheduler.handle_completion(at(next), 1, Ran::Done(ns(P)));
            }
            self.poll();
        }
        self.now = until;
        self.poll();
    }

    fn missed(&self, stream: StreamId, reason: MissReason) -> u64 {
        self.scheduler.stream_counts(stream).expect("it is there").0.missed(reason)
    }
}

fn one_in_four(every: u64) -> StreamSpec {
    let curve = ArrivalCurve::new(&[ArrivalBound::window(1, ns(every)).expect("valid")]).expect("one");
    let constraints = ConstraintSet::new(&[Constraint::any_miss(1, 4).expect("valid")]).expect("one");
    StreamSpec::promised(constraints, curve)
}

#[test]
fn what_runs_in_a_batch_that_does_not_end_is_missed_at_its_deadline() {
    let mut hung = Hung::new();
    let stream = hung.add(one_in_four(P));
    hung.arrive(stream);
    hung.advance(DEADLINE);
    assert_eq!((&*hung.ends, &*hung.causes), (&[][..], &[(P + GUARD + 1, Cause::ServiceOverrun)][..]));
    hung.advance(5 * DEADLINE);
    let late = Outcome::Missed(MissReason::Late);
    assert_eq!(hung.ends, [(DEADLINE + 1, 0, late)]);
    // Its worker is as busy as before, for whoever is to take over too.
    assert_eq!((hung.scheduler.running(), hung.scheduler.batch(0).len()), (1, 1));
    let mut next = Hung::new().scheduler;
    let busy = Err(HandOverError::Busy { running: 1, waiting: 0 });
    assert_eq!(hung.scheduler.hand_over(at(hung.now), &mut next, &[]), busy);
    // What is heard of it in the end changes nothing, whatever it is.
    for end in 0..3 {
        let mut scheduler = hung.scheduler.clone();
        let now = at(hung.now);
        match end {
            0 => scheduler.handle_completion(now, 0, Ran::Done(ns(hung.now))),
            1 => scheduler.handle_completion(now, 0, Ran::Failed(ns(hung.now))),
            _ => scheduler.handle_worker_lost(now, 0),
        }
        while let action = scheduler.poll(now)
            && !matches!(action, Action::WakeAt(_))
        {
            assert!(!matches!(action, Action::Resolve(_)), "{action:?}");
        }
        let (counts, left) = scheduler.stream_counts(stream).expect("it is there");
        assert_eq!((counts.arrived, counts.served, counts.missed_total(), left), (1, 0, 1, Some(0)));
        assert_eq!((scheduler.running(), counts.missed(MissReason::Late)), (0, 1));
    }
}

#[test]
fn a_promised_stream_is_served_beside_a_batch_that_does_not_end() {
    let mut hung = Hung::new();
    let stream = hung.add(one_in_four(2 * P));
    // Far more than its log has places for.
    for n in 0..500 {
        hung.advance(2 * P * n);
        hung.arrive(stream);
    }
    hung.advance(hung.now + DEADLINE);
    let (counts, left) = hung.scheduler.stream_counts(stream).expect("it is there");
    assert_eq!((counts.served, counts.missed(MissReason::Late), counts.missed_total()), (499, 1, 1));
    assert_eq!(left, Some(1), "the miss is long past");
}

#[test]
fn of_a_best_effort_stream_none_is_refused_for_the_sake_of_a_batch_that_does_not_end() {
    let mut hung = Hung::new();
    let (stream, other) = (hung.add(StreamSpec::best_effort()), hung.add(StreamSpec::best_effort()));
    // Before the deadline more come than its log has places for.
    for n in 0..9 {
        hung.advance(P * n);
        hung.arrive(stream);
    }
    hung.advance(hung.now + P);
    let counts = hung.scheduler.stream_counts(stream).expect("it is there").0;
    assert_eq!(
        (counts.served, counts.missed_total(), hung.scheduler.running()),
        (8, 0, 1),
        "{:?}",
        hung.ends
    );
    hung.advance(2 * DEADLINE);
    let counts = hung.scheduler.stream_counts(stream).expect("it is there").0;
    assert_eq!((counts.arrived, counts.served, hung.missed(stream, MissReason::Late)), (9, 8, 1));
    assert_eq!(hung.missed(other, MissReason::Late), 0);
    // The queue is as long as ever.
    (0..=QUEUE + 1).for_each(|_| hung.arrive(stream));
    assert_eq!(hung.missed(stream, MissReason::QueueFull), 1);
}

#[test]
fn what_waits_of_a_stream_that_ends_is_cancelled_wherever_it_stands() {
    let mut hung = Hung::new();
    let (stream, other) = (hung.add(StreamSpec::best_effort()), hung.add(StreamSpec::best_effort()));
    hung.arrive(other);
    hung.arrive(other);
    // What is wanted by the deadline waits, while all that is wanted sooner goes before it.
    let came = |token| Arrival::new(stream, token, at(hung.now));
    let waits = hung.scheduler.handle_wanted(at(0), came(100), (at(0), ns(DEADLINE)), true);
    assert_eq!(waits, None);
    hung.poll();
    for n in 0..8 {
        let (now, token) = (hung.now, 101 + n);
        let arrival = Arrival::new(stream, token, at(now));
        assert_eq!(hung.scheduler.handle_wanted(at(now), arrival, (at(now), ns(2 * P)), true), None);
        hung.poll();
        hung.advance(now + P);
    }
    assert_eq!((hung.scheduler.waiting(), hung.missed(stream, MissReason::QueueFull)), (1, 0));
    drop(hung.scheduler.remove_stream(stream));
    hung.ends.clear();
    hung.poll();
    assert_eq!(
        (hung.scheduler.waiting(), &*hung.ends),
        (0, &[(hung.now, 100, Outcome::Missed(MissReason::Cancelled))][..])
    );
}

#[test]
fn on_shared_workers_what_runs_in_a_batch_that_does_not_end_is_missed_at_its_deadline() {
    let stream = || Stream::hard(1, 50);
    let services = vec![Service::of(vec![stream()], 1, 8), Service::of(vec![stream()], 1, 8)];
    for turns in [false, true] {
        let shared = Shared::of(services.clone(), 2, 1, turns);
        let mut run = shared::Run::new(&shared, 0, |service, bound| if service == 0 { 90 } else { bound });
        let own = [0, 1].map(|s| run.add(s, shared::spec(&stream())));
        run.arrive(0, own[0]);
        run.settle();
        run.arrive(1, own[1]);
        run.settle();
        run.advance(40, true);
        assert_eq!((&*run.missed, &*run.served), (&[(9, 0, true)][..], &[0, 1][..]));
        run.drain();
        assert_eq!((run.missed.len(), &*run.served), (1, &[0, 1][..]));
    }
}

#[test]
fn a_source_of_which_something_runs_in_a_batch_that_does_not_end_is_missed_at_its_deadline() {
    for hung in 0..2 {
        let mut line = two_stages(20, 1);
        line.time = Box::new(move |stage, bound| if stage == hung { 90 } else { bound });
        // Where it became two, the one that waits for the other would tell.
        line.became = Box::new(|_, _| 1);
        line.lenient = true;
        let stream = line.add(&one_in(10));
        line.arrive(stream);
        line.advance_to(60);
        assert_eq!(line.sources[0].ended, Some((21, Outcome::Missed(MissReason::Late))), "stage {hung}");
        assert!(line.scheduler.running() > 0 && line.scheduler.open_sources() == 0);
        line.advance_to(200);
        assert_eq!(line.scheduler.running(), 0);
    }
}
