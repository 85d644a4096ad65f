//! What promises fall back on, case by case: when a warning and safe mode end, and what is told of what was missed meanwhile.

use rt_core::{
    Cause, Dispatch, Event, Instant, Resolution, SafeModeConfig, SchedulerConfig, Severity, StreamId,
    StreamState,
};

use crate::harness::load::{ladder, ns, window};
use crate::harness::{Harness, config, fallbacks};

/// Two workers of 2 ns, of which one is enough for a stream of one request in 8 ns, none to be missed; all well for 1000 ns ends it.
fn two() -> (Harness, StreamId) {
    let config = config(&[2], 1, 2, 8, Dispatch::Eager);
    let mut harness = Harness::new(config.clone(), |_, bound| bound);
    let spec = ladder((0, 1), &window(1, 8), &[]);
    let id = harness.add(spec.clone());
    harness.scheduler.set_fallbacks(Instant::ZERO, fallbacks(&config, [&spec]));
    (harness, id)
}

#[test]
fn a_warning_stays_until_all_has_been_well_for_long_enough_or_an_operator_clears_it() {
    for clears in [false, true] {
        let (mut harness, _) = two();
        let severity = |harness: &Harness| harness.scheduler.safe_mode().severity();
        harness.advance_to(10);
        harness.lose(0);
        assert_eq!(severity(&harness), Severity::Warning, "nothing ran or waited: in force at once");
        harness.advance_to(5_000);
        // What is missing is not over because somebody says so.
        harness.scheduler.clear_safe_mode(Instant::from_nanos(5_000));
        harness.settle();
        assert_eq!(severity(&harness), Severity::Warning);
        harness.ready(0);
        harness.advance_to(5_500);
        if clears {
            harness.scheduler.clear_safe_mode(Instant::from_nanos(5_500));
            harness.settle();
        }
        let over = [Severity::Warning, Severity::Normal][usize::from(clears)];
        assert_eq!(severity(&harness), over);
        harness.advance_to(6_000);
        assert_eq!(severity(&harness), Severity::Normal);
    }
}

/// A worker is lost while nobody is there, perhaps one that has just come back, and stays away: who comes then is promised what holds without.
#[test]
fn who_comes_while_a_worker_is_missing_is_promised_what_holds_without_it() {
    for again in [false, true] {
        let (mut harness, id) = two();
        if again {
            harness.lose(0);
            harness.ready(0);
        }
        harness.advance_to(20);
        harness.scheduler.remove_stream(id);
        harness.lose(0);
        assert_eq!(harness.scheduler.safe_mode().severity(), Severity::Safe, "{again}");
        harness.advance_to(30);
        harness.try_add(&ladder((0, 1), &window(1, 8), &[]), None).expect("nothing is in its way");
        harness.settle();
        harness.advance_to(9_000);
        let stands = (harness.scheduler.safe_mode().severity(), harness.scheduler.fallen());
        assert_eq!(stands, (Severity::Warning, Some(0)), "{again}");
    }
}

#[test]
fn safe_mode_is_left_at_once_after_half_as_long_again_and_not_after_more() {
    for (time, severity) in [(3, Severity::Warning), (4, Severity::Safe)] {
        let (mut harness, id) = two();
        harness.set_service(move |_, _| time);
        harness.arrive(id);
        harness.advance_to(4);
        assert_eq!(harness.causes(), [(3, Cause::ServiceOverrun)]);
        assert_eq!(harness.scheduler.safe_mode().severity(), severity, "{time}");
        // Nothing else goes wrong, and then all is as it was.
        harness.set_service(|_, bound| bound);
        harness.advance_to(2_100);
        assert_eq!(harness.scheduler.safe_mode().severity(), Severity::Normal);
        assert_eq!(harness.scheduler.fallen(), None);
    }
}

/// Also where nothing else happens at that instant, and beside it the promise to a stream is suspended for longer.
#[test]
fn the_way_back_is_told_at_once_and_a_suspension_beside_it_ends_in_time() {
    let (mut harness, id) = two();
    harness.advance_to(10);
    harness.lose(0);
    harness.ready(0);
    harness.advance_to(500);
    // It was read later than it may be.
    harness.arrive_sent(id, 499);
    harness.advance_to(3_000);
    let told: Vec<_> =
        harness.events.iter().map(|(at, event)| (*at, matches!(event, Event::SafeMode(_)))).collect();
    assert_eq!(told, [(10, true), (10, true), (500, false), (1_010, true), (1_500, false)]);
    assert_eq!(harness.scheduler.safe_mode().severity(), Severity::Normal);
    assert_eq!(harness.scheduler.suspensions().1, 0);
}

/// A stream at a weaker level for its own excess, to which nothing is promised for a moment for something else, is promised nothing until
/// what it sent too much of is over.
#[test]
fn who_sent_too_much_waits_for_that_though_something_else_was_over_before() {
    let span = ns(10);
    let config = config(&[2], 1, 2, 7, Dispatch::Eager);
    let safe_mode = SafeModeConfig { hold: span, clean: span, latch: false };
    let config = SchedulerConfig { guard: ns(1), safe_mode, ..config };
    let spec = ladder((0, 1), &window(3, 100), &[(1, 2)]);
    let mut harness = Harness::new(config.clone(), |_, bound| bound);
    let id = harness.add(spec.clone());
    harness.scheduler.set_fallbacks(Instant::ZERO, fallbacks(&config, [&spec]));
    let state = |harness: &Harness| harness.scheduler.stream_state(id).expect("there").0;
    (0..4).for_each(|_| _ = harness.arrive(id));
    harness.advance_to(50);
    assert_eq!(state(&harness), StreamState::Degraded(1));
    harness.arrive_sent(id, 48);
    assert_eq!(state(&harness), StreamState::Suspended);
    harness.lose(0);
    assert_eq!(harness.scheduler.fallen(), Some(1));
    harness.advance_to(150);
    let promised = state(&harness) != StreamState::Suspended;
    let tokens = [(); 3].map(|()| harness.arrive(id));
    harness.advance_to(2_000);
    let mandatory = |r: &&(u64, Resolution)| tokens.contains(&r.1.request.token) && r.1.request.mandatory;
    assert!(!promised || harness.resolutions.iter().filter(mandatory).count() == 2, "{:?}", harness.events);
    // And then it is again.
    assert_eq!(state(&harness), StreamState::Degraded(1));
}

/// Nothing is promised over what came before that what the promises fell back on is in force. So it is where another scheduler takes over
/// before it ever is.
#[test]
fn what_was_missed_before_a_fallback_is_in_force_is_told_of_nowhere_behind_a_takeover_either() {
    for takes_over in [false, true] {
        let config = config(&[2], 1, 2, 8, Dispatch::Eager);
        let mut harness = Harness::new(config.clone(), |_, bound| bound);
        let spec = ladder((1, 2), &window(1, 8), &[]);
        let id = harness.add(spec.clone());
        harness.scheduler.set_fallbacks(Instant::ZERO, fallbacks(&config, [&spec]));
        harness.lose(0);
        harness.lose(1);
        harness.arrive(id);
        harness.advance_to(8);
        harness.arrive(id);
        if takes_over {
            harness.hand_over(config.clone()).expect("nothing is open");
        } else {
            [0, 1].iter().for_each(|&worker| harness.ready(worker));
        }
        harness.advance_to(16);
        harness.refuse(id);
        assert_eq!(harness.outcomes(id), [false; 3]);
        let violated = |&(_, cause): &(u64, Cause)| cause == Cause::ConstraintViolated;
        assert!(!harness.causes().iter().any(violated), "{takes_over}: {:?}", harness.events);
        // From now on it is promised something again.
        for at in [3_000, 3_008] {
            harness.advance_to(at);
            harness.refuse(id);
        }
        assert!(harness.causes().iter().any(violated), "{takes_over}: {:?}", harness.events);
    }
}

/// A stream beside which one worker would not do comes and goes: then promises fall back on what they did before.
#[test]
fn who_has_gone_takes_nothing_of_what_promises_fall_back_on() {
    let (mut harness, _) = two();
    let before = harness.scheduler.fallbacks();
    let many = harness.try_add(&ladder((0, 1), &window(5, 8), &[]), None).expect("nothing is in its way");
    assert_eq!(harness.scheduler.fallbacks().worker_lost, None);
    harness.settle();
    harness.advance_to(10);
    (0..5).for_each(|_| _ = harness.arrive(many));
    harness.scheduler.remove_stream(many);
    harness.settle();
    harness.advance_to(20);
    assert_eq!(harness.scheduler.fallbacks(), before);
    harness.lose(0);
    assert_eq!(harness.scheduler.safe_mode().severity(), Severity::Warning, "in force at once");
}
