//! The way back from what promises have fallen back on, by hand.

use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Dispatch, Instant, Level, StreamSpec};

use crate::harness::load::ns;
use crate::harness::{Harness, config, fallbacks};

/// Two workers of 10 ns and two streams of four in 1000 ns, of which every second must be served, or with one worker every fourth, within
/// 30 ns. When the first promises may stand again both workers are busy, and of each stream a request waits that must be served: with those
/// that the first promises have served of what comes then, there would be one too many of each. So they stand only when nothing waits.
#[test]
fn the_first_promises_stand_again_at_a_calm_instant_and_not_before() {
    let config = config(&[10], 1, 2, 30, Dispatch::Eager);
    let set = |m, k| ConstraintSet::new(&[Constraint::any_miss(m, k).expect("m < k")]).expect("one");
    let four = || {
        let bound = ArrivalBound::window(4, ns(1_000)).expect("valid");
        ArrivalCurve::new(&[bound]).expect("one")
    };
    let level = Level { constraints: set(3, 4), arrivals: four() };
    let spec = StreamSpec::promised(set(1, 2), four()).with_levels(vec![level]).expect("a ladder");
    let mut harness = Harness::new(config.clone(), |_, bound| bound);
    let ids = [(); 2].map(|()| harness.add(spec.clone()));
    let stranger = harness.add(StreamSpec::best_effort());
    let fallbacks = fallbacks(&config, [&spec, &spec]);
    assert_eq!(fallbacks.worker_lost.map(|fallback| fallback.level), Some(1));
    harness.scheduler.set_fallbacks(Instant::ZERO, fallbacks);
    harness.lose(0);
    harness.ready(0);
    let back = config.safe_mode.hold.max(config.safe_mode.clean).as_nanos();
    harness.advance_to(back - 1);
    assert_eq!(harness.scheduler.fallen(), Some(1));
    (0..2).for_each(|_| _ = harness.arrive(stranger));
    ids.iter().for_each(|id| _ = harness.arrive(*id));
    harness.advance_to(back);
    for id in ids {
        (0..3).for_each(|_| _ = harness.arrive(id));
    }
    harness.drain();
    assert_eq!(harness.mandatory_misses(), []);
    harness.advance_to(back + 100);
    assert_eq!(harness.scheduler.fallen(), None);
}
