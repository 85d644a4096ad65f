//! Parts of the theory that are not tied to code, put before the judge: slow actions under a shield, and mixed
//! workers. `WEIR_EXHAUSTIVE=n` looks at `n` times as many instances.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::harness::{Dice, instances};
use crate::oracle::sample::Scale;
use crate::oracle::theory::{inequality_holds, mixed_inequality_holds, slow_action_is_safe};
use crate::oracle::{Instance, Judge, Mode, Slow, Verdict, View};

/// Every curve here has long been at its long-run rate by then, and repeated often.
const HORIZON: u64 = 400;

fn modes() -> impl Iterator<Item = Mode> {
    let mode = |n| Mode { full_or_latest: n & 1 > 0, background: n & 2 > 0, ..Mode::default() };
    (0..4).map(mode)
}

/// `longest` is as long as an action can be and still serve a request that has just come.
fn with_slow_actions(instance: &Instance, mode: Mode, allowed: &dyn Fn(&View) -> bool) -> Verdict {
    let slow = Some(Slow { longest: instance.latency, allowed });
    Judge { slow, ..Judge::new(mode, 60_000) }.run(instance)
}

#[test]
fn no_slow_action_that_the_shield_allows_makes_a_mandatory_request_miss() {
    let mut dice = Dice(5);
    let (mut admitted, mut used, mut misses, mut too_large) = (0, 0, 0, 0);
    while admitted < instances(50) {
        let instance = Scale { streams: 3, groups: 1, crowd: 6 }.draw(&mut dice);
        if !inequality_holds(&instance, 4_000) {
            continue;
        }
        admitted += 1;
        let mut said_yes = false;
        for mode in modes() {
            let known = RefCell::new(HashMap::new());
            let shield = |view: &View| {
                let key = (view.others.to_vec(), view.left.to_vec(), view.length);
                *known
                    .borrow_mut()
                    .entry(key)
                    .or_insert_with(|| slow_action_is_safe(&instance, view, HORIZON))
            };
            match with_slow_actions(&instance, mode, &shield) {
                Verdict::Safe(_) => {}
                Verdict::TooLarge => too_large += 1,
                Verdict::Miss(trace) => panic!("{instance:?} {mode:?}: {trace:?}"),
            }
            said_yes |= known.borrow().values().any(|&yes| yes);
            misses += usize::from(matches!(with_slow_actions(&instance, mode, &|_| true), Verdict::Miss(_)));
        }
        used += usize::from(said_yes);
    }
    println!(
        "{admitted} admitted, in {used} a slow action is allowed somewhere; {too_large} searches too large"
    );
    println!("{misses} of {} miss without the shield", 4 * admitted);
    assert!(used * 4 > admitted, "the shield hardly ever says yes");
    assert!(misses * 2 > 4 * admitted, "slow actions are harmless here");
    assert!(too_large < admitted, "too many searches were cut short");
}

#[test]
fn mixed_workers_that_the_inequality_admits_miss_nothing() {
    let mut dice = Dice(6);
    let (mut yes, mut pessimistic, mut too_large) = (0, 0, 0);
    let count = instances(50);
    for _ in 0..count {
        let instance = Scale { streams: 2, groups: 2, crowd: 7 }.draw(&mut dice);
        let promised = mixed_inequality_holds(&instance, 4_000);
        yes += usize::from(promised);
        let mut safe = true;
        for mode in modes() {
            match Judge::new(mode, 60_000).run(&instance) {
                Verdict::Safe(_) => {}
                Verdict::TooLarge => too_large += 1,
                Verdict::Miss(trace) => {
                    assert!(!promised, "admitted, yet one misses: {instance:?}, {mode:?}: {trace:?}");
                    safe = false;
                    break;
                }
            }
        }
        pessimistic += usize::from(safe && !promised);
    }
    println!(
        "mixed: {yes} of {count} admitted; {pessimistic} pessimistic or too large; {too_large} too large"
    );
    assert!(yes * 5 > count, "too few promises to say anything");
}
