//! Makes a refutation shorter while it shows the same.

use rt_core::Instant;

/// Leaves out what is not needed, the end first and then ever smaller parts, as long as `shows` holds; each test
/// of `n` arrivals costs `n` of `budget`. Fewer requests of a stream always keep to its curve.
pub(super) fn shorten(
    mut arrivals: Vec<(Instant, usize)>,
    mut budget: u64,
    shows: impl Fn(&[(Instant, usize)]) -> bool,
) -> Vec<(Instant, usize)> {
    let mut part = arrivals.len() / 2;
    while part > 0 {
        let mut end = arrivals.len();
        while end > 0 {
            let from = end.saturating_sub(part);
            let fewer = [&arrivals[..from], &arrivals[end..]].concat();
            let Some(left) = budget.checked_sub(fewer.len() as u64) else { return arrivals };
            budget = left;
            if shows(&fewer) {
                arrivals = fewer;
            }
            end = from;
        }
        part /= 2;
    }
    arrivals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::at;

    #[test]
    fn only_what_is_needed_is_left() {
        let all: Vec<_> = (0..100).map(|i| (at(i), 0)).collect();
        let needed = [at(17), at(18), at(60)];
        let shows = |list: &[(Instant, usize)]| needed.iter().all(|n| list.iter().any(|(i, _)| i == n));
        let left = shorten(all.clone(), 100_000, shows);
        assert_eq!(left.iter().map(|&(i, _)| i).collect::<Vec<_>>(), needed);
        assert_eq!(shorten(all.clone(), 10, shows), all, "no budget, no change");
    }
}
