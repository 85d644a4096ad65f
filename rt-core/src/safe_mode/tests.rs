//! The state machine by hand: each severity is entered, left, held back and told as it should.

use super::*;
use crate::time::Span;

const CONFIG: SafeModeConfig =
    SafeModeConfig { hold: Span::from_nanos(100), clean: Span::from_nanos(30), latch: false };

fn at(n: u64) -> Instant {
    Instant::from_nanos(n)
}

/// A breach that leaves nothing behind.
fn raise(mode: &mut SafeMode, now: u64, cause: Cause) -> Option<Transition> {
    raise_until(mode, now, cause, now)
}

fn raise_until(mode: &mut SafeMode, now: u64, cause: Cause, until: u64) -> Option<Transition> {
    let transition = mode.raise(at(now), cause, Evidence::default(), at(until));
    mode.set_aftermath(false);
    transition
}

fn told(transition: Option<Transition>) -> Option<(u64, Severity)> {
    transition.map(|t| (t.sequence, t.state.severity))
}

#[test]
fn it_is_left_after_hold_and_a_clean_window_and_not_before() {
    let mut mode = SafeMode::new(CONFIG);
    assert_eq!(told(raise(&mut mode, 10, Cause::ArrivalExcess)), Some((1, Severity::Safe)));
    assert_eq!(mode.tick(at(109)), None);
    // Breaches at 95 put the end off to 125; a further cause is announced, a known one is only counted.
    assert_eq!(raise(&mut mode, 95, Cause::ArrivalExcess), None);
    let further = raise(&mut mode, 95, Cause::LateDispatch).expect("announced");
    let alarm = further.state.alarm.expect("an alarm");
    assert_eq!((alarm.cause, alarm.entered, further.breaches), (Cause::LateDispatch, at(95), 3));
    assert_eq!(mode.tick(at(124)), None);
    assert_eq!(told(mode.tick(at(125))), Some((3, Severity::Normal)));
    assert_eq!((mode.state().alarm, mode.breaches(), mode.tick(at(126))), (None, 3, None));
}

#[test]
fn it_tells_every_stream_in_its_evidence() {
    let mut mode = SafeMode::new(CONFIG);
    let [a, b] = [0, 1].map(|slot| StreamId { slot, generation: 7 });
    for (cause, stream) in [(Cause::MissesLow, a), (Cause::ArrivalExcess, b)] {
        mode.raise(at(10), cause, Evidence { stream: Some(stream), ..Evidence::default() }, at(10));
    }
    assert!(mode.streams().eq([a, b]), "a warning below a breach is not forgotten");
    mode.set_aftermath(false);
    mode.tick(at(110));
    assert_eq!(mode.streams().next(), None);
}

#[test]
fn lasting_effects_put_the_end_off() {
    let mut mode = SafeMode::new(CONFIG);
    raise_until(&mut mode, 0, Cause::ArrivalExcess, 500);
    assert_eq!(mode.leaves_at(), Some(at(530)));
}

#[test]
fn a_latched_state_waits_for_the_operator() {
    let mut mode = SafeMode::new(SafeModeConfig { latch: true, ..CONFIG });
    raise(&mut mode, 0, Cause::ServiceOverrun);
    assert_eq!((mode.tick(at(1_000_000)), mode.leaves_at()), (None, None));
    assert!(mode.clear(at(1_000_000)).is_some() && mode.clear(at(1_000_000)).is_none());
    // A warning is not latched.
    assert_eq!(told(raise(&mut mode, 1_000_000, Cause::RateHigh)), Some((3, Severity::Warning)));
    assert_eq!(told(mode.tick(at(1_000_100))), Some((4, Severity::Normal)));
}

#[test]
fn what_was_cleared_does_not_prolong_what_comes_after() {
    let mut mode = SafeMode::new(CONFIG);
    raise_until(&mut mode, 0, Cause::Operator, u64::MAX);
    assert_eq!(mode.tick(at(1_000_000)), None);
    assert_eq!(told(mode.clear(at(1_000_000))), Some((2, Severity::Normal)));
    raise(&mut mode, 2_000_000, Cause::ArrivalExcess);
    assert_eq!(mode.leaves_at(), Some(at(2_000_100)));
}

#[test]
fn a_warning_becomes_safe_mode_and_safe_mode_a_warning() {
    let mut mode = SafeMode::new(CONFIG);
    assert_eq!(told(raise(&mut mode, 0, Cause::RateHigh)), Some((1, Severity::Warning)));
    assert_eq!(told(raise(&mut mode, 1, Cause::MissesLow)), Some((2, Severity::Warning)));
    assert_eq!(told(raise(&mut mode, 2, Cause::ConstraintViolated)), Some((3, Severity::Safe)));
    // In safe mode a warning is remembered and not told.
    assert_eq!(raise(&mut mode, 90, Cause::MissesLow), None);
    assert_eq!(told(mode.tick(at(102))), Some((4, Severity::Warning)));
    // The promises are in force from then on, and not since the warning was raised first.
    assert_eq!(
        mode.state().alarm.map(|alarm| (alarm.cause, alarm.entered)),
        Some((Cause::MissesLow, at(102)))
    );
    assert_eq!(told(mode.tick(at(120))), Some((5, Severity::Normal)));
    assert_eq!(mode.breaches(), 1, "warnings are no breaches");
}

#[test]
fn safe_mode_is_not_left_while_a_worker_is_missing() {
    let mut mode = SafeMode::new(CONFIG);
    raise(&mut mode, 0, Cause::WorkerLost);
    assert_eq!(mode.set_workers(at(0), 1, 2, true), None);
    assert_eq!((mode.tick(at(10_000)), mode.leaves_at(), mode.clear(at(10_000))), (None, None, None));
    assert_eq!(told(mode.set_workers(at(10_000), 0, 2, true)), Some((2, Severity::Lost)));
    assert_eq!(mode.set_workers(at(10_001), 0, 2, true), None);
    assert_eq!(told(mode.set_workers(at(10_002), 1, 2, true)), Some((3, Severity::Safe)));
    assert_eq!(mode.tick(at(20_000)), None);
    mode.set_workers(at(20_000), 2, 2, false);
    mode.set_aftermath(false);
    assert_eq!(mode.tick(at(20_029)), None, "what is back proves itself for a clean window");
    assert_eq!(told(mode.tick(at(20_030))), Some((4, Severity::Normal)));
}

#[test]
fn the_only_worker_that_comes_back_proves_itself_for_a_clean_window() {
    let mut mode = SafeMode::new(CONFIG);
    assert_eq!(told(mode.set_workers(at(0), 0, 1, true)), Some((1, Severity::Lost)));
    assert_eq!(told(mode.set_workers(at(1_000), 1, 1, false)), Some((2, Severity::Safe)));
    mode.set_aftermath(false);
    assert_eq!(mode.tick(at(1_029)), None);
    assert_eq!(told(mode.tick(at(1_030))), Some((3, Severity::Normal)));
}

#[test]
fn while_inhibited_nothing_is_told_and_everything_counted() {
    let mut mode = SafeMode::new(CONFIG);
    mode.inhibit(at(1_000));
    assert_eq!(raise(&mut mode, 10, Cause::ServiceOverrun), None);
    assert!(mode.state().is_suspended(), "the state is what it is");
    assert_eq!(mode.tick(at(500)), None);
    assert_eq!((mode.state().severity, mode.breaches(), mode.sequence()), (Severity::Normal, 1, 0));
    raise(&mut mode, 990, Cause::ServiceOverrun);
    assert_eq!((mode.tick(at(999)), mode.leaves_at()), (None, Some(at(1_000))));
    assert_eq!(told(mode.tick(at(1_000))), Some((1, Severity::Safe)));
    assert_eq!(told(mode.tick(at(1_090))), Some((2, Severity::Normal)));
}

#[test]
fn it_is_not_left_before_what_piled_up_is_worked_off() {
    let mut mode = SafeMode::new(CONFIG);
    mode.raise(at(0), Cause::ServiceOverrun, Evidence::default(), at(0));
    assert_eq!((mode.tick(at(1_000)), mode.leaves_at()), (None, None));
    mode.set_aftermath(false);
    assert_eq!(mode.leaves_at(), Some(at(100)));
    assert_eq!(told(mode.tick(at(1_000))), Some((2, Severity::Normal)));
    // A warning leaves nothing behind.
    raise(&mut mode, 2_000, Cause::RateHigh);
    assert_eq!(told(mode.tick(at(2_100))), Some((4, Severity::Normal)));
}

#[test]
fn a_cause_that_came_while_inhibited_is_told_at_its_end_though_the_severity_is_as_before() {
    let mut mode = SafeMode::new(CONFIG);
    assert_eq!(told(raise(&mut mode, 0, Cause::ArrivalExcess)), Some((1, Severity::Safe)));
    mode.inhibit(at(60));
    assert_eq!(raise(&mut mode, 50, Cause::ServiceOverrun), None);
    assert_eq!((mode.tick(at(59)), mode.leaves_at()), (None, Some(at(60))));
    let transition = mode.tick(at(60)).expect("announced");
    assert_eq!(transition.state.alarm.map(|alarm| alarm.cause), Some(Cause::ServiceOverrun));
    assert_eq!((transition.breaches, mode.tick(at(61))), (2, None));
}

#[test]
fn what_an_operator_clears_ends_as_soon_as_it_may() {
    let mut mode = SafeMode::new(SafeModeConfig { latch: true, ..CONFIG });
    mode.raise(at(0), Cause::Operator, Evidence::default(), at(u64::MAX));
    assert_eq!((mode.clear(at(10)), mode.leaves_at()), (None, None), "something may still wait");
    mode.set_aftermath(false);
    assert_eq!(told(mode.tick(at(11))), Some((2, Severity::Normal)));
    // A breach after it is latched again.
    mode.raise(at(20), Cause::ServiceOverrun, Evidence::default(), at(20));
    assert_eq!(mode.clear(at(30)), None);
    raise(&mut mode, 40, Cause::ServiceOverrun);
    assert_eq!((mode.tick(at(1_000)), mode.leaves_at()), (None, None));
}

#[test]
fn what_the_promises_fell_back_for_is_told_again_when_a_further_warning_is_over() {
    let mut mode = SafeMode::new(CONFIG);
    mode.raise_briefly(at(10), Cause::WorkerLost, Evidence::default());
    let alarm = Alarm { cause: Cause::WorkerLost, evidence: Evidence::default(), entered: at(10) };
    mode.fall_back(alarm);
    mode.set_aftermath(false);
    assert_eq!(told(mode.tick(at(10))), Some((2, Severity::Warning)));
    let cause = |told: Option<Transition>| told.and_then(|told| told.state.alarm).map(|alarm| alarm.cause);
    assert_eq!(cause(raise(&mut mode, 50, Cause::MissesLow)), Some(Cause::MissesLow));
    assert_eq!(mode.tick(at(79)), None);
    let again = mode.tick(at(80));
    assert_eq!((cause(again), told(again)), (Some(Cause::WorkerLost), Some((4, Severity::Warning))));
    assert_eq!((mode.tick(at(151)), mode.leaves_at()), (None, None));
    // So it is where an operator ends that, or where it ends in safe mode, of which nothing is told then.
    raise(&mut mode, 160, Cause::MissesLow);
    assert_eq!(cause(mode.clear(at(161))), Some(Cause::WorkerLost));
    raise(&mut mode, 170, Cause::MissesLow);
    raise(&mut mode, 190, Cause::LateDispatch);
    assert_eq!(mode.tick(at(289)), None);
    let again = mode.tick(at(290));
    assert_eq!(cause(again), Some(Cause::WorkerLost));
    let entered = again.and_then(|told| told.state.alarm).map(|alarm| alarm.entered);
    assert_eq!(entered, Some(at(290)), "the warning is the state from then on");
    assert_eq!(told(mode.rise(at(300))), Some((10, Severity::Normal)));
}

#[test]
fn a_warning_that_stood_before_promises_fell_back_is_told_until_it_is_over_and_what_they_fell_back_for_no_longer()
 {
    let mut mode = SafeMode::new(CONFIG);
    raise(&mut mode, 0, Cause::MissesLow);
    mode.raise_briefly(at(10), Cause::WorkerLost, Evidence::default());
    mode.fall_back(Alarm { cause: Cause::WorkerLost, evidence: Evidence::default(), entered: at(10) });
    mode.set_aftermath(false);
    let cause = |mode: &SafeMode| mode.state().alarm.map(|alarm| alarm.cause);
    assert_eq!(told(mode.tick(at(20))), Some((3, Severity::Warning)));
    assert_eq!(cause(&mode), Some(Cause::MissesLow));
    mode.rise(at(50));
    assert_eq!(cause(&mode), Some(Cause::MissesLow));
    assert_eq!(told(mode.tick(at(100))), Some((4, Severity::Normal)));
}
