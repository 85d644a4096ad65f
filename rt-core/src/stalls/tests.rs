//! The account of stalls: what it explains, and what no stalls as declared could.

extern crate std;

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn ns(t: u64) -> Span {
    Span::from_nanos(t)
}

fn at(t: u64) -> Instant {
    Instant::from_nanos(t)
}

#[test]
fn a_declaration_is_within_its_limits() {
    assert_eq!(Stalls::new(2, ns(10), ns(4)).expect("valid").reserve(), ns(8));
    assert_eq!(Stalls::new(0, ns(10), ns(4)), Err(StallsError::Count { count: 0 }));
    assert_eq!(Stalls::new(9, ns(100), ns(1)), Err(StallsError::Count { count: 9 }));
    let none = StallsError::Span { length: ns(0), window: ns(10) };
    assert_eq!(Stalls::new(1, ns(10), ns(0)), Err(none));
    let full = StallsError::Full { count: 2, length: ns(5), window: ns(10) };
    assert_eq!(Stalls::new(2, ns(10), ns(5)), Err(full));
}

/// The machine stands still from 100 to 130; three batches of 20 ran then, and a request came at 110.
#[test]
fn one_stall_explains_all_that_ran_meanwhile() {
    let mut monitor = StallMonitor::new(Stalls::new(1, ns(1_000), ns(30)).expect("valid"));
    assert!(monitor.explains(at(83), at(103), at(133)));
    assert!(monitor.explains(at(110), at(110), at(133)), "taken in at once afterwards");
    assert!(monitor.explains(at(90), at(110), at(140)));
    assert!(monitor.explains(at(100), at(120), at(150)));
    assert_eq!(monitor.count, 1);
    assert!(!monitor.explains(at(133), at(153), at(154)), "it began when the stall was over");
    assert!(!monitor.explains(at(1_100), at(1_100), at(1_130)), "too soon");
    assert!(monitor.explains(at(1_103), at(1_103), at(1_133)), "half-open");
    assert!(!monitor.explains(at(3_000), at(3_020), at(3_052)), "too long");
    assert_eq!(monitor.count, 2);
}

#[test]
fn of_two_in_a_window_the_third_is_too_many() {
    let mut monitor = StallMonitor::new(Stalls::new(2, ns(1_000), ns(30)).expect("valid"));
    let mut late = |due| monitor.explains(at(due - 20), at(due), at(due + 30));
    assert!(late(100) && late(300));
    // The first may have ended at 110, and a third may end when its batch does.
    assert!(!late(500) && !late(1_079));
    assert!(late(1_080));
    assert!(!late(1_279));
}

/// Two in a window, and then two or one as declared by whoever goes on.
#[test]
fn who_goes_on_with_an_account_keeps_the_latest_of_it() {
    for (count, free) in [(2, 1_080), (1, 1_280), (3, 500)] {
        let mut monitor = StallMonitor::new(Stalls::new(2, ns(1_000), ns(30)).expect("valid"));
        assert!(monitor.explains(at(80), at(100), at(130)) && monitor.explains(at(280), at(300), at(330)));
        let mut next = StallMonitor::new(Stalls::new(count, ns(1_000), ns(30)).expect("valid"));
        next.continue_from(&monitor);
        let late = |due| next.clone().explains(at(due - 20), at(due), at(due + 30));
        assert!(late(free), "{count}");
        assert!(count == 3 || !late(free - 1), "{count}");
        assert_eq!(next.count, 2, "what was counted is");
    }
}

/// Whether some stalls as declared explain all of `batches`, which began, were due and ended at these instants: one each, perhaps one
/// for several in a row. All intervals are tried.
fn some_explain(declared: Stalls, batches: &[(u64, u64, u64)], ends: &mut Vec<u64>) -> bool {
    let Some(&(started, _, ended)) = batches.first() else { return true };
    let (window, length) = (declared.window().as_nanos(), declared.length().as_nanos());
    let soonest = ends.len().checked_sub(declared.count() as usize).map_or(0, |place| ends[place] + window);
    // By the end of the last of them it is over.
    let now = batches.last().map_or(0, |&(.., ended)| ended);
    for to in soonest.max(started + 1)..=(ended + length).min(now) {
        for from in to.saturating_sub(length)..to {
            let explained = batches.iter().take_while(|(started, due, ended)| {
                to.min(*ended).saturating_sub(from.max(*started)) >= ended - due
            });
            for many in 1..=explained.count() {
                ends.push(to);
                let all = ends.is_sorted() && some_explain(declared, &batches[many..], ends);
                ends.pop();
                if all {
                    return true;
                }
            }
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 4_000, ..ProptestConfig::default() })]

    /// Late batches of one worker, one after the other: what the monitor explains can be explained, and where they are so far apart
    /// that no stall concerns two of them it explains all that can be.
    #[test]
    fn what_is_explained_is_what_some_stalls_explain(
        count in 1..=2_u32,
        window in 6..=14_u64,
        length in 1..=3_u64,
        apart: bool,
        batches in proptest::collection::vec((0..=8_u64, 1..=4_u64, 1..=4_u64), 1..=5),
    ) {
        let Ok(declared) = Stalls::new(count, ns(window), ns(length)) else { return Ok(()) };
        let mut monitor = StallMonitor::new(declared);
        let (mut now, mut seen) = (0, Vec::new());
        for (pause, time, lost) in batches {
            let started = now + pause + if apart { length } else { 0 };
            now = started + time + lost;
            seen.push((started, started + time, now));
            let explained = monitor.explains(at(started), at(started + time), at(now));
            let can_be = some_explain(declared, &seen, &mut Vec::new());
            prop_assert!(can_be || !explained, "{:?}", seen);
            prop_assert!(explained || !apart || !can_be, "{:?}", seen);
            if !explained {
                break;
            }
        }
    }
}
