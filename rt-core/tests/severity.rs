//! How bad things are: warnings before a promise is in danger, and safe mode as long as workers are missing.

use rt_core::{
    ArrivalBound, ArrivalCurve, Cause, Constraint, ConstraintSet, Dispatch, Event, LoadMonitor,
    SchedulerConfig, Severity, StreamSpec,
};

use crate::harness::load::ns;
use crate::harness::{Harness, config};

/// At most `count` requests in any `length`, at most `misses` of any 3 to be missed.
fn stream(misses: u32, count: u64, length: u64) -> StreamSpec {
    let set = ConstraintSet::new(&[Constraint::any_miss(misses, 3).expect("valid")]).expect("one");
    let window = ArrivalBound::window(count, ns(length)).expect("valid");
    StreamSpec::promised(set, ArrivalCurve::new(&[window]).expect("one"))
}

/// Batches of up to two in 10 (or 8), deadline 60.
fn workers(count: usize) -> SchedulerConfig {
    config(&[8, 10], 2, count, 60, Dispatch::Eager)
}

fn severity(harness: &Harness) -> Severity {
    harness.scheduler.safe_mode().state().severity
}

#[test]
fn a_rate_near_the_certified_one_is_warned_of_and_best_effort_is_not_counted() {
    let mut harness = Harness::new(workers(1), |_, bound| bound);
    harness.scheduler.set_rate_warning(Some((LoadMonitor::new(ns(630)).expect("valid"), 5)));
    let (id, other) = (harness.add(stream(0, 1, 100)), harness.add(StreamSpec::best_effort()));
    for now in (0..500).step_by(100) {
        harness.advance_to(now);
        harness.arrive(id);
        harness.arrive(other);
    }
    assert_eq!(severity(&harness), Severity::Normal);
    harness.advance_to(500);
    harness.arrive(id);
    let state = harness.scheduler.safe_mode().state();
    let alarm = state.alarm.expect("a warning");
    assert_eq!((state.severity, alarm.cause), (Severity::Warning, Cause::RateHigh));
    assert_eq!((alarm.evidence.limit, alarm.evidence.seen, alarm.evidence.window), (5, 6, 630));
    harness.advance_to(1_500);
    assert_eq!((severity(&harness), harness.causes()), (Severity::Normal, vec![]));
}

#[test]
fn a_stream_with_one_miss_left_is_warned_of() {
    let mut harness = Harness::new(workers(1), |_, bound| bound);
    let id = harness.add(stream(2, 1, 30));
    harness.arrive(id);
    harness.advance_to(30);
    assert_eq!(severity(&harness), Severity::Normal);
    harness.refuse(id);
    let state = harness.scheduler.safe_mode().state();
    let alarm = state.alarm.expect("a warning");
    assert_eq!((state.severity, alarm.cause, alarm.evidence.seen), (Severity::Warning, Cause::MissesLow, 1));
    // With none left it is warned of still, its client no sooner than a second after.
    harness.advance_to(60);
    harness.refuse(id);
    assert_eq!((severity(&harness), harness.causes()), (Severity::Warning, vec![]));
    let told = harness.events.iter().filter_map(|(at, event)| match event {
        Event::MissesLeft { left, .. } => Some((*at, *left)),
        Event::SafeMode(_) | Event::Suspension(_) => None,
    });
    assert!(told.eq([(30, 1)]));
    harness.advance_to(90);
    harness.refuse(id);
    assert_eq!(harness.causes(), [(90, Cause::ConstraintViolated)]);
}

/// A promise is computed for all workers.
#[test]
fn safe_mode_lasts_until_the_last_worker_is_back() {
    let mut harness = Harness::new(workers(2), |_, bound| bound);
    harness.add(stream(0, 1, 100));
    harness.lose(0);
    harness.advance_to(10_000);
    assert_eq!(severity(&harness), Severity::Safe);
    harness.lose(1);
    assert_eq!(severity(&harness), Severity::Lost);
    harness.ready(0);
    harness.advance_to(20_000);
    assert_eq!(severity(&harness), Severity::Safe);
    harness.ready(1);
    harness.advance_to(21_000);
    assert_eq!(severity(&harness), Severity::Normal);
}
