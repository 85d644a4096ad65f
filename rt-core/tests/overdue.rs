//! A batch that does not end: what it holds is missed at its deadline, and keeps nobody else from being served.

use rt_core::{
    Action, ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, HandOverError, Instant,
    MissReason, Outcome, Ran, SafeModeConfig, SchedulerConfig, Span, StreamId, StreamSpec,
};

use crate::harness::{Harness, config};
use crate::oracle::Stream;
use crate::oracle::sharing::{Service, Shared};
use crate::shared;
use crate::stages::draw::{one_in, two_stages};

const P: u64 = 1_000;
const DEADLINE: u64 = 10 * P;
const GUARD: u64 = 100;
const QUEUE: usize = 4;
const FOR_EVER: u64 = 1 << 40;

/// Two workers, one request a batch, of which the first runs its first batch for ever.
fn one_hangs() -> Harness {
    let span = ns(50 * P);
    let config = SchedulerConfig {
        guard: ns(GUARD),
        queue: QUEUE,
        safe_mode: SafeModeConfig { hold: span, clean: span, latch: false },
        ..config(&[P], 1, 2, DEADLINE, Dispatch::Eager)
    };
    let mut first = [FOR_EVER].into_iter();
    Harness::new(config, move |_, bound| first.next().unwrap_or(bound))
}

fn ns(n: u64) -> Span {
    Span::from_nanos(n)
}

/// When each request has ended, and how.
fn ends(hung: &Harness) -> Vec<(u64, u64, Outcome)> {
    hung.resolutions.iter().map(|(now, of)| (*now, of.request.token, of.outcome)).collect()
}

fn missed(hung: &Harness, stream: StreamId, reason: MissReason) -> u64 {
    hung.scheduler.stream_counts(stream).expect("it is there").0.missed(reason)
}

fn one_in_four(every: u64) -> StreamSpec {
    let curve = ArrivalCurve::new(&[ArrivalBound::window(1, ns(every)).expect("valid")]).expect("one");
    let constraints = ConstraintSet::new(&[Constraint::any_miss(1, 4).expect("valid")]).expect("one");
    StreamSpec::promised(constraints, curve)
}

#[test]
fn what_runs_in_a_batch_that_does_not_end_is_missed_at_its_deadline() {
    let mut hung = one_hangs();
    let stream = hung.add(one_in_four(P));
    hung.arrive(stream);
    hung.advance_to(DEADLINE);
    assert_eq!((ends(&hung), hung.causes()), (vec![], vec![(P + GUARD + 1, Cause::ServiceOverrun)]));
    hung.advance_to(5 * DEADLINE);
    let late = Outcome::Missed(MissReason::Late);
    assert_eq!(ends(&hung), [(DEADLINE + 1, 0, late)]);
    // Its worker is as busy as before, for whoever is to take over too.
    assert_eq!((hung.scheduler.running(), hung.scheduler.batch(0).len()), (1, 1));
    let mut next = one_hangs().scheduler;
    let busy = Err(HandOverError::Busy { running: 1, waiting: 0 });
    assert_eq!(hung.scheduler.hand_over(Instant::from_nanos(hung.now), &mut next, &[]), busy);
    // What is heard of it in the end changes nothing, whatever it is.
    for end in 0..3 {
        let mut scheduler = hung.scheduler.clone();
        let now = Instant::from_nanos(hung.now);
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
    let mut hung = one_hangs();
    let stream = hung.add(one_in_four(2 * P));
    // Far more than its log has places for.
    for n in 0..500 {
        hung.advance_to(2 * P * n);
        hung.arrive(stream);
    }
    hung.advance_to(hung.now + DEADLINE);
    let (counts, left) = hung.scheduler.stream_counts(stream).expect("it is there");
    assert_eq!((counts.served, counts.missed(MissReason::Late), counts.missed_total()), (499, 1, 1));
    assert_eq!(left, Some(1), "the miss is long past");
}

#[test]
fn of_a_best_effort_stream_none_is_refused_for_the_sake_of_a_batch_that_does_not_end() {
    let mut hung = one_hangs();
    let (stream, other) = (hung.add(StreamSpec::best_effort()), hung.add(StreamSpec::best_effort()));
    // Before the deadline more come than its log has places for.
    for n in 0..9 {
        hung.advance_to(P * n);
        hung.arrive(stream);
    }
    hung.advance_to(hung.now + P);
    let counts = hung.scheduler.stream_counts(stream).expect("it is there").0;
    assert_eq!(
        (counts.served, counts.missed_total(), hung.scheduler.running()),
        (8, 0, 1),
        "{:?}",
        ends(&hung)
    );
    hung.advance_to(2 * DEADLINE);
    let counts = hung.scheduler.stream_counts(stream).expect("it is there").0;
    assert_eq!((counts.arrived, counts.served, missed(&hung, stream, MissReason::Late)), (9, 8, 1));
    assert_eq!(missed(&hung, other, MissReason::Late), 0);
    // The queue is as long as ever.
    (0..=QUEUE + 1).for_each(|_| _ = hung.arrive(stream));
    assert_eq!(missed(&hung, stream, MissReason::QueueFull), 1);
}

#[test]
fn what_waits_of_a_stream_that_ends_is_cancelled_wherever_it_stands() {
    let mut hung = one_hangs();
    let (stream, other) = (hung.add(StreamSpec::best_effort()), hung.add(StreamSpec::best_effort()));
    hung.arrive(other);
    hung.arrive(other);
    // What is wanted by the deadline waits, while all that is wanted sooner goes before it.
    let waits = hung.arrive_wanted(stream, DEADLINE);
    for _ in 0..8 {
        hung.arrive_wanted(stream, 2 * P);
        hung.advance_to(hung.now + P);
    }
    assert_eq!((hung.scheduler.waiting(), missed(&hung, stream, MissReason::QueueFull)), (1, 0));
    drop(hung.scheduler.remove_stream(stream));
    hung.resolutions.clear();
    hung.settle();
    assert_eq!(
        (hung.scheduler.waiting(), ends(&hung)),
        (0, vec![(hung.now, waits, Outcome::Missed(MissReason::Cancelled))])
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
