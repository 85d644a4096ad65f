//! Outcomes against constraints: the window that fared worst, and the first that breaks a promise.

use std::ops::Range;

use rt_core::{Constraint, Outcome};

use crate::record::Run;

/// The first window that holds the most misses of all, and how many. Before the first request hits are imagined:
/// until `K` requests have come, a window holds all of them. Empty only if there are no requests.
pub(crate) fn worst(hits: &[bool], constraint: Constraint) -> (Range<usize>, u32) {
    let mut worst = (0..hits.len().min(constraint.window() as usize), 0);
    for (window, misses) in windows(hits, constraint) {
        if misses > worst.1 {
            worst = (window, misses);
        }
    }
    worst
}

/// The first window with more misses than allowed.
pub(crate) fn broken(hits: &[bool], constraint: Constraint) -> Option<Range<usize>> {
    windows(hits, constraint).find(|&(_, misses)| misses > constraint.misses()).map(|(window, _)| window)
}

/// The most misses in a row.
pub(crate) fn longest_miss_run(hits: &[bool]) -> u64 {
    hits.split(|&hit| hit).map(<[bool]>::len).max().unwrap_or(0) as u64
}

/// Of each of `streams` streams, the requests in order, as indices into those of the run.
pub(crate) fn by_stream(run: &Run) -> Vec<Vec<usize>> {
    let mut streams = vec![Vec::new(); run.streams];
    for (index, request) in run.requests.iter().enumerate() {
        streams[request.stream].push(index);
    }
    streams
}

/// Whether each of `requests` was served.
pub(crate) fn hits(run: &Run, requests: &[usize]) -> Vec<bool> {
    requests.iter().map(|&index| run.requests[index].outcome == Outcome::Served).collect()
}

/// Every window by its last request, with its misses.
fn windows(hits: &[bool], constraint: Constraint) -> impl Iterator<Item = (Range<usize>, u32)> {
    let k = constraint.window() as usize;
    let mut misses = 0;
    (0..hits.len()).map(move |last| {
        misses += u32::from(!hits[last]);
        if last >= k {
            misses -= u32::from(!hits[last - k]);
        }
        ((last + 1).saturating_sub(k)..last + 1, misses)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_worst_window_is_that_of_a_naive_recount(
            hits in proptest::collection::vec(any::<bool>(), 0..40),
            (k, m) in (1u32..9).prop_flat_map(|k| (Just(k), 0..k)),
        ) {
            let constraint = Constraint::any_miss(m, k).expect("m < k");
            let count = |from: usize, to: usize| hits[from..to].iter().filter(|&&hit| !hit).count() as u32;
            // Every stretch of at most K requests, whether or not it is a whole window.
            let all = || (0..=hits.len()).flat_map(|from| (from..=hits.len().min(from + k as usize)).map(move |to| (from, to)));
            let most = all().map(|(from, to)| count(from, to)).max().expect("the empty one");
            let (window, misses) = worst(&hits, constraint);
            prop_assert_eq!(misses, most);
            prop_assert_eq!(count(window.start, window.end), most);
            prop_assert_eq!(window.len(), window.end.min(k as usize));
            prop_assert_eq!(broken(&hits, constraint).is_some(), most > m);
        }
    }

    #[test]
    fn the_first_of_equals_is_named() {
        let constraint = Constraint::any_miss(1, 2).expect("valid");
        assert_eq!(worst(&[true, false, false, true, false, false], constraint), (1..3, 2));
        assert_eq!(worst(&[false], constraint), (0..1, 1));
        assert_eq!(worst(&[true, true, true], constraint), (0..2, 0));
        assert_eq!(longest_miss_run(&[true, false, false, true, false]), 2);
    }
}
