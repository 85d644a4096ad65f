//! What declarations and constraints say, read off directly.

use rt_core::{ArrivalBound, ConstraintSet};

/// The first instant, from `now` on, at which `bounds` allow one more request after `history`: for every
/// earlier request, the interval from it to the new one must hold no more than its length allows.
pub(crate) fn earliest(history: &[u64], bounds: &[ArrivalBound], now: u64) -> u64 {
    let k = history.len();
    let allows = |bound: &ArrivalBound| match bound {
        ArrivalBound::Window { count, length } => {
            k.checked_sub(*count as usize).map_or(0, |j| history[j] + length.as_nanos())
        }
        ArrivalBound::Periodic { period, jitter } => {
            let after = |(j, a): (usize, &u64)| a + (k - j) as u64 * period.as_nanos();
            history.iter().enumerate().map(after).max().unwrap_or(0).saturating_sub(jitter.as_nanos())
        }
        ArrivalBound::Distances(distances) => {
            let latest_first = history.iter().rev().zip(distances.as_slice());
            latest_first.map(|(a, least)| a + least.as_nanos()).max().unwrap_or(0)
        }
    };
    bounds.iter().map(allows).max().unwrap_or(0).max(now)
}

/// Whether some `K` outcomes in a row (`true` is a hit) hold more than `m` misses.
fn violates(outcomes: &[bool], m: u32, k: u32) -> bool {
    (0..outcomes.len()).any(|i| {
        let window = &outcomes[i..outcomes.len().min(i + k as usize)];
        window.iter().filter(|&&hit| !hit).count() as u32 > m
    })
}

/// Whether some constraint of `set` is violated.
pub(crate) fn violates_any(outcomes: &[bool], set: &ConstraintSet) -> bool {
    set.as_slice().iter().any(|c| violates(outcomes, c.misses(), c.window()))
}

/// When a batch ends that begins at `start` and takes `work` on a clock that stands still from each of `stalls` on to its end.
pub(crate) fn end_of(start: u64, work: u64, stalls: &[(u64, u64)]) -> u64 {
    let (mut now, mut left) = (start, work);
    for &(from, to) in stalls.iter().filter(|stall| stall.1 > start) {
        let before = from.saturating_sub(now);
        if left <= before {
            break;
        }
        left -= before;
        now = to;
    }
    now + left
}
