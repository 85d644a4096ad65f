//! The search for the batches of services that share a device: what is looked at, in which order, and for how long.

use std::cmp::Reverse;
use std::collections::HashSet;

use rt_core::{Span, Workers};

use super::choice::{Choice, Chosen};

/// How often each service's batch is looked at again, after those of the others.
const PASSES: usize = 3;
/// Admission tests that are made before the search ends with the best that was found until then. A number and no time, so that
/// whoever plans the same finds the same; with many streams at capacity each may take some milliseconds.
const TESTS: u64 = 4096;

/// How far the search for the batches of a device is.
#[derive(Clone, Copy, Debug)]
pub struct Searching<'a> {
    pub device: &'a str,
    /// Admission tests until now, and at most.
    pub tests: u64,
    pub most: u64,
}

/// Combinations of batches, as places among the sizes of each service.
struct Search<'a> {
    choice: &'a Choice<'a>,
    /// Tests at most.
    most: u64,
    seen: HashSet<Vec<usize>>,
    best: Option<Chosen>,
    /// Why the one that was refused first was.
    reason: Option<String>,
    untried: usize,
}

/// The best combination that holds, and how many that might have been better were not looked at. Looked at are those whose batches
/// take no longer than each of the times that there are, and from the best of them on those with another batch of one service,
/// time and again; first those that seem to leave most to promise.
///
/// # Errors
/// Why none holds: what is wrong with the one that seemed to leave most.
pub(super) fn search(
    choice: &Choice<'_>,
    observe: &mut dyn FnMut(Searching<'_>),
) -> Result<(Chosen, usize), String> {
    bounded(choice, TESTS, observe)
}

fn bounded(
    choice: &Choice<'_>,
    most: u64,
    observe: &mut dyn FnMut(Searching<'_>),
) -> Result<(Chosen, usize), String> {
    let mut search = Search { choice, most, seen: HashSet::new(), best: None, reason: None, untried: 0 };
    search.look_at_all(within_each_time(&choice.sizes), observe);
    for _ in 0..PASSES {
        let mut changed = false;
        for service in 0..choice.sizes.len() {
            let Some(best) = &search.best else { break };
            let with = |pick| {
                let mut picks = best.picks.clone();
                picks[service] = pick;
                picks
            };
            let others = (0..choice.sizes[service].len()).map(with).collect();
            changed |= search.look_at_all(others, observe);
        }
        if !changed {
            break;
        }
    }
    let Search { best, reason, untried, .. } = search;
    best.map(|best| (choice.settled(best), untried)).ok_or_else(|| reason.unwrap_or_default())
}

/// For each time that a batch of any service can take: the largest batches of all that take no longer, or else the smallest.
pub(super) fn within_each_time(sizes: &[Vec<Workers>]) -> Vec<Vec<usize>> {
    let mut caps: Vec<Span> = sizes.iter().flatten().map(Workers::batch_time).collect();
    caps.sort();
    caps.dedup();
    let largest = |sizes: &Vec<Workers>, cap| {
        sizes.iter().rposition(|workers| workers.batch_time() <= cap).unwrap_or(0)
    };
    caps.into_iter().map(|cap| sizes.iter().map(|sizes| largest(sizes, cap)).collect()).collect()
}

impl Search<'_> {
    /// Looks at those that are new; true if one is better than the best until now.
    fn look_at_all(&mut self, mut all: Vec<Vec<usize>>, observe: &mut dyn FnMut(Searching<'_>)) -> bool {
        all.retain(|picks| self.seen.insert(picks.clone()));
        // It is never negative, so its bits are in its order.
        all.sort_by_cached_key(|picks| Reverse(self.choice.promising(picks).to_bits()));
        let mut changed = false;
        for picks in all {
            let least = self.best.as_ref().map_or(0.0, |best| best.merit + 1e-9);
            if self.best.is_some() && self.choice.merit_at_most(&picks) <= least {
                continue;
            }
            if self.choice.tests() >= self.most && self.best.is_some() {
                self.untried += 1;
                continue;
            }
            observe(Searching {
                device: &self.choice.device().name,
                tests: self.choice.tests(),
                most: self.most,
            });
            match self.choice.look_at(&picks, self.best.as_ref()) {
                Ok(chosen) if chosen.merit > least || self.best.is_none() => {
                    changed = true;
                    self.best = Some(chosen);
                }
                Ok(_) => {}
                Err(no) => drop(self.reason.get_or_insert(no)),
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests;
