//! The rows of a table, by what waits for all workers, from a policy of one worker.

use rt_core::Span;

use super::BINS;
use crate::ramsis::{Action, Policy};

/// The wishes of `policy` for 1, 2, … requests in the batch and waiting: the worker has its batch, of `batch` at most,
/// and its even part, rounded up, of what waits behind it. In the last row, and beyond, the base hurries.
pub(super) fn wishes(policy: &Policy, bin: Span, batch: usize, workers: usize) -> Vec<Vec<u8>> {
    let row = |n: usize| {
        let own = n.min(batch);
        let queue = own + (n - own).div_ceil(workers);
        let wish = |j: usize| {
            let slack = Span::from_nanos(bin.as_nanos() * j as u64);
            let wished = policy.action(queue, slack).model;
            // What is given up is run by nobody.
            if wished == Action::DROP { 0 } else { wished as u8 }
        };
        (0..BINS).map(wish).collect::<Vec<u8>>()
    };
    let last = batch + policy.queue().saturating_sub(batch) * workers + 1;
    shortened((1..=last).map(row).collect())
}

/// Without rows at the end that say the same: the last one is also for more.
pub(super) fn shortened(mut rows: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    while let [.., before, last] = &rows[..]
        && before == last
    {
        rows.pop();
    }
    rows
}
