//! Several services on the same workers, small ones exhausted: what Theorems E and T admit is kept whatever an adversary
//! does. `WEIR_EXHAUSTIVE=n` looks at `n` times as many instances of each.

use crate::harness::{Dice, instances};
use crate::oracle::ahead::Ahead;
use crate::oracle::sharing::Shared;
use crate::shared::admission;

/// States that the judge looks at.
const LIMIT: usize = 150_000;

/// Never a yes that some behaviour breaks. Returns how many of a hundred that are true are admitted.
fn never_a_wrong_yes(turns: bool, late: u8, seed: u64) -> usize {
    let mut dice = Dice(seed);
    let (mut yes, mut truly, mut broken, mut too_large, mut relieved) = (0, 0, 0, 0, 0);
    let count = instances(if late == 0 { 120 } else { 50 });
    for _ in 0..count {
        let shared = Shared::draw(&mut dice, turns, late);
        let admission = admission(&shared);
        let admitted = admission.is_ok();
        match shared.judge(LIMIT) {
            Ok(_) => {
                truly += 1;
                yes += usize::from(admitted);
                relieved += usize::from(admission.is_ok_and(|admission| admission.relieved > 0));
            }
            Err(None) => too_large += 1,
            Err(Some(moves)) => {
                assert!(!admitted, "admitted, yet one misses: {shared:?}: {moves:?}");
                broken += 1;
            }
        }
    }
    println!(
        "turns {turns}, late {late}: {yes} admitted of {truly} that hold, {relieved} of them by reliefs, {broken} break, {too_large} of {count} \
         too large"
    );
    assert!(truly * 5 > count && broken * 5 > count, "one answer is too rare to say anything");
    assert!(too_large * 4 < count, "too many searches were cut short");
    yes * 100 / truly
}

#[test]
fn by_earliest_deadline_no_yes_is_wrong() {
    let share = never_a_wrong_yes(false, 0, 1);
    assert!(share >= 70, "{share} % of what holds is admitted");
}

#[test]
fn by_turns_no_yes_is_wrong() {
    let share = never_a_wrong_yes(true, 0, 2);
    assert!(share >= 60, "{share} % of what holds is admitted");
}

#[test]
fn late_dispatch_within_the_guard_breaks_nothing() {
    never_a_wrong_yes(false, 1, 3);
    never_a_wrong_yes(true, 2, 4);
}

/// Stalls are lateness to the tests: with as much more of a guard, and as much less of each deadline, no yes is wrong, whatever stands
/// still. In how many that hold it is a yes, and how many that are admitted without it break.
#[test]
fn through_stalls_no_yes_is_wrong() {
    let mut all = [0; 5];
    for (turns, late, seed) in [(false, 0, 6), (true, 0, 7), (false, 1, 8), (true, 1, 9)] {
        let mut dice = Dice(seed);
        let (mut yes, mut truly, mut broken, mut too_large, mut needed) = (0, 0, 0, 0, 0);
        let count = instances(20);
        for _ in 0..count {
            let stall = dice.within(1, 2) as u8;
            let shared = Shared::draw_stalling(&mut dice, turns, (late, stall));
            let admitted = admission(&shared).is_ok();
            match shared.judge(LIMIT) {
                Ok(_) => {
                    truly += 1;
                    yes += usize::from(admitted);
                }
                Err(None) => too_large += 1,
                Err(Some(moves)) => {
                    assert!(!admitted, "admitted, yet one misses: {shared:?}: {moves:?}");
                    broken += 1;
                    needed += usize::from(admission(&Shared { stall: 0, ..shared }).is_ok());
                }
            }
        }
        println!(
            "turns {turns}, late {late}: {yes} admitted of {truly} that hold, {broken} break, {needed} of which would be admitted without \
             the reserve, {too_large} of {count} too large"
        );
        let these = [yes, broken, needed, too_large, count];
        all.iter_mut().zip(these).for_each(|(all, these)| *all += these);
    }
    let [yes, broken, needed, too_large, all] = all;
    assert!(yes * 10 > all && broken * 10 > all && needed > 0, "one answer is too rare to say anything");
    assert!(too_large * 2 < all, "too many searches were cut short");
}

/// What the tightest line leaves is what one batch may take longer.
#[test]
fn an_overrun_within_the_margin_harms_nobody() {
    for turns in [false, true] {
        let mut dice = Dice(5);
        let (mut looked, mut too_large) = (0, 0);
        while looked < instances(25) {
            let shared = Shared::draw(&mut dice, turns, 0);
            let margin = admission(&shared).ok().and_then(|a| a.binding).map_or(0, |b| b.margin());
            if margin < 1 {
                continue;
            }
            looked += 1;
            let shared = Shared { overrun: margin.min(4) as u8, ..shared };
            match shared.judge(LIMIT) {
                Ok(_) => {}
                Err(None) => too_large += 1,
                Err(Some(moves)) => panic!("an overrun of {margin} breaks {shared:?}: {moves:?}"),
            }
        }
        assert!(too_large * 2 < looked, "{too_large} of {looked} searches were cut short");
    }
}

/// Batches that go before those that wait, whatever is in them, as far as the shield's lines allow; of an overrun within the margin
/// as well. Nothing mandatory is missed; a tick more is too much. Where something stands for lines, if `relieved`.
fn nothing_that_goes_ahead_harms(turns: bool, late: u8, seed: u64, is_relieved: bool) {
    let mut dice = Dice(seed);
    let (mut looked, mut too_large, mut asked, mut granted, mut too_much) = (0, 0, 0, 0, 0);
    let mut by_full_batches = 0;
    let count = instances(if is_relieved { 12 } else { 24 });
    while looked < count {
        // One worker and two in turn: of two more is too large.
        let shared = Shared { workers: 1 + looked % 2, ..Shared::draw(&mut dice, turns, late) };
        let Ok(admission) = admission(&shared) else { continue };
        if is_relieved && admission.relieved == 0 {
            continue;
        }
        looked += 1;
        let margin = admission.binding.map_or(0, |b| b.margin());
        let shared = Shared { overrun: if looked / 2 % 2 == 0 { margin.min(4) as u8 } else { 0 }, ..shared };
        let latest = |s: usize| u64::from(shared.services[s].deadline - shared.services[s].time);
        let early =
            (0..shared.services.len()).map(|s| latest(s) - admission.start_within[s].as_nanos()).max();
        let early = early.unwrap_or(0) as u8;
        let (relieved, singly) = (admission.relieved, admission.singly);
        let judge =
            |relieved, generous| Ahead { shared: &shared, early, relieved, singly, generous }.judge(LIMIT);
        let (found, states, yes) = judge(relieved, 0);
        (asked, granted) = (asked + states, granted + yes);
        match found {
            Ok(_) => {}
            Err(None) => too_large += 1,
            Err(Some(moves)) => panic!("what goes ahead breaks {shared:?}: {moves:?}"),
        }
        too_much += usize::from(matches!(judge(relieved, 1).0, Err(Some(_))));
        by_full_batches += usize::from(relieved != 0 && matches!(judge(0, 0).0, Err(Some(_))));
    }
    println!(
        "turns {turns}, late {late}, relieved {is_relieved}: {granted} yes of {asked} asked, {too_large} of {count} too large; a tick more \
         breaks {too_much}, full batches alone {by_full_batches}"
    );
    assert!(granted * 20 > asked, "it hardly ever says yes");
    assert!(too_large * 2 < count, "too many searches were cut short");
    assert!(too_much > 0, "it could grant more");
}

#[test]
fn nothing_that_goes_ahead_of_deadlines_harms() {
    nothing_that_goes_ahead_harms(false, 0, 21, false);
    nothing_that_goes_ahead_harms(false, 1, 22, false);
}

#[test]
fn nothing_that_goes_ahead_where_something_stands_for_lines_harms() {
    nothing_that_goes_ahead_harms(false, 0, 25, true);
    nothing_that_goes_ahead_harms(false, 1, 26, true);
}

#[test]
fn nothing_that_goes_ahead_in_turns_harms() {
    nothing_that_goes_ahead_harms(true, 0, 23, false);
    nothing_that_goes_ahead_harms(true, 1, 24, false);
}
