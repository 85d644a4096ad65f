//! When waiting for a fuller batch pays: Clockwork's batches, begun later.

use rt_core::{Instant, LoadMonitor};

use super::first::Clockwork;
use super::rival::{Floor, Rule, Waiting};

/// [`Clockwork`] that waits for one more request while that pays; ours, to learn when it does.
///
/// With `q` waiting, all of which go into one batch, the next one comes after `1/λ` on average, for the rate `λ` of the
/// last half second. A worker that waits for it serves `q + 1` in `1/λ + P(q+1)` instead of `q` in `P(q)`. So it waits
/// while
///
/// ```text
/// (q + 1) / (P(q+1) + 1/λ)  >  q / P(q)
/// ```
///
/// and the first is in time in a batch of `q + 1`.
#[derive(Default)]
pub(super) struct Patient {
    load: LoadMonitor,
}

impl Patient {
    /// The latest start of a batch of one more, if that is worth waiting for.
    fn awaits(&mut self, floor: &Floor<'_>) -> Option<Instant> {
        let (waiting, full) = (floor.queue.len(), floor.worker.batch);
        if waiting >= full || floor.window_in_time() < waiting {
            return None;
        }
        let latest = floor.queue.front()?.deadline - floor.time(waiting + 1);
        if latest <= floor.now {
            return None;
        }
        let gap = 1.0 / self.load.rate_per_s(floor.now);
        let time = |size| floor.time(size).as_secs_f64();
        let (q, more) = (waiting as f64, (waiting + 1) as f64);
        (more * time(waiting) > q * (time(waiting + 1) + gap)).then_some(latest)
    }
}

impl Rule for Patient {
    fn arrive(&mut self, request: &mut Waiting, _: usize, _: bool) -> bool {
        self.load.observe(request.arrival);
        true
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        floor.drop_hopeless(1);
        let until = self.awaits(floor);
        until.or_else(|| Clockwork.decide(floor))
    }
}

#[cfg(test)]
mod tests {
    use super::super::PolicyKind;
    use super::super::tests::batches;
    use crate::samples::problem;

    const MS: u64 = 1_000_000;

    /// Ten at once make the rate 20 a second, and one more after each gap.
    fn ran(times: &[u64], deadline: u64, arrivals: &[u64]) -> Vec<(u64, Vec<usize>)> {
        let times: Vec<_> = times.iter().map(|time| time * MS).collect();
        let arrivals: Vec<_> = arrivals.iter().map(|time| time * MS).collect();
        let ran = batches(PolicyKind::Patient, &problem(&times, 1, deadline * MS, &[]), &arrivals);
        ran.into_iter().map(|(start, batch)| (start / MS, batch)).collect()
    }

    #[test]
    fn it_waits_while_one_more_pays_and_the_first_allows() {
        // Two in half a second, so the next is expected after 250 ms at least: 2/(110 + 250) < 1/100.
        assert_eq!(ran(&[100, 110, 120], 130, &[0])[0], (0, vec![0]));
        // With 12 in half a second it is after 42 ms: 2/(110 + 42) > 1/100. It waits to 130 - 110 at the latest.
        let burst = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 300];
        assert_eq!(ran(&[100, 110, 120], 130, &burst).last(), Some(&(320, vec![11])));
        // A second one comes in time, and as the third could not be waited for, they start.
        let second = [&burst[..], &[305]].concat();
        assert_eq!(ran(&[100, 110, 120], 130, &second).last(), Some(&(310, vec![11, 12])));
        // One more takes as long by itself: at once.
        assert_eq!(ran(&[50, 100, 150], 160, &burst).last(), Some(&(300, vec![11])));
    }
}
