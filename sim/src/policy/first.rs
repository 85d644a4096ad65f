//! Policies that serve in order of arrival, as soon as a worker is free.

use std::collections::BTreeMap;

use rt_core::{Instant, Span, WorkerId};

use super::rival::{Finish, Floor, Rule, Waiting};

/// Plain FIFO with tail drop: full batches or what there is, at once, whether or not it is still in time.
///
/// It keeps no deadlines, as a server that knows none. How long its queue is, is open: as many requests as are
/// served within the deadline, so that a request that is let in is late only behind partial batches.
pub(super) struct Fifo {
    /// Requests that may wait.
    pub(super) room: usize,
}

impl Rule for Fifo {
    fn arrive(&mut self, _: &mut Waiting, waiting: usize, _: bool) -> bool {
        waiting < self.room
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        floor.take_first(floor.window());
        None
    }
}

/// A plain server: at once, as many as wait; what has waited for a fixed time is dropped.
///
/// Who sets it up knows the deadline and how long batches mostly take, and sets it up well: batches of up to what
/// half of the deadline allows, and a request is dropped once the largest of them would most likely be too late.
pub(super) struct Plain {
    /// From arrival to answer.
    pub(super) deadline: Span,
}

impl Rule for Plain {
    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        let half = Span::from_nanos(self.deadline.as_nanos() / 2);
        let largest = floor.worker.profile.largest_within(half, floor.worker.batch).max(1);
        floor.drop_older(self.deadline.saturating_sub(floor.time(largest)));
        floor.take_first(largest);
        None
    }
}

/// The early drop of Nexus (Shen et al., SOSP 2019, section 6.3): the dispatcher scans the queue with a sliding window
/// as long as the batch, stops at the first request with enough budget for the batch of the whole window, and drops
/// all before it.
///
/// Batches are reckoned with what they most likely take; the authors' released program (`GetForwardLatency`) takes the
/// mean and one standard deviation. Open: what the window is where fewer wait than the batch has places. Here it is what
/// waits from there on.
/// Several workers, each of which has queues of its own in the paper, scan one queue as if it was their own.
pub(super) struct Nexus;

impl Rule for Nexus {
    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        floor.drop_for_window();
        floor.take_first(floor.window());
        None
    }
}

/// Earliest deadline first, firm: a request that cannot be answered in time even alone is dropped, never run. With
/// one deadline for all, the order of deadlines is that of arrivals.
///
/// Open: batches, which take the longer the larger they are. Here the earliest deadline comes first in this too: the
/// batch is as large as it allows. To drop what is too late for a larger batch instead is what [`Nexus`] does.
pub(super) struct Edf;

impl Rule for Edf {
    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        floor.drop_hopeless(1);
        floor.take_first(floor.window_in_time());
        None
    }
}

/// After Clockwork (Gujarati et al., OSDI 2020), as its controller's released program forms batches
/// (`try_dequeue`): one at a time on each worker, the largest in which every request will meet its deadline. What
/// cannot meet it even alone is never run.
///
/// There is a candidate for each request and batch size, by its latest start. One counts if it is in time and so
/// many wait from its request on that no larger batch could be had, which is the window of [`Nexus`]. But what came
/// before is dropped only if the batch is too late for it, and else goes first. So a batch of fewer than `B` may
/// leave the latest requests to the next, where Nexus drops the oldest. From [`Lazy`] it differs in that the oldest
/// request does not decide how large the batch is, and in that no batch runs in vain. Open here are its models and
/// memory: there is one model, always loaded. Any size up to `B` is allowed.
pub(super) struct Clockwork;

impl Rule for Clockwork {
    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        let (_, size) = Self::candidate(floor)?;
        floor.drop_hopeless(size);
        floor.take_first(size);
        None
    }
}

impl Clockwork {
    /// The size of the batch that it takes, and when that would have to start; drops what no batch could answer.
    pub(super) fn candidate(floor: &mut Floor<'_>) -> Option<(Instant, usize)> {
        floor.drop_hopeless(1);
        let (waiting, most) = (floor.queue.len(), floor.worker.batch);
        let sizes = (0..waiting).map(|skipped| most.min(waiting - skipped));
        let in_time = |(request, size): &(&Waiting, usize)| request.deadline >= floor.now + floor.time(*size);
        let (first, size) = floor.queue.iter().zip(sizes).find(in_time)?;
        Some((first.deadline - floor.time(size), size))
    }
}

/// Lazy drop, as Nexus (section 6.3) describes it of Clipper and others: a request is dropped only when it has
/// missed its deadline, and the batch is as large as the time left to the earliest allows.
///
/// Open: what happens to an earliest request that has not missed its deadline yet, but will even in a batch of its
/// own. Here it runs alone, and its answer is late: the source drops only what has "already" missed, and the
/// worker is not to be idle.
pub(super) struct Lazy;

impl Rule for Lazy {
    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        drop_missed(floor);
        floor.take_first(floor.window_in_time().max(1));
        None
    }
}

/// The adaptive batches of Clipper (Crankshaw et al., NSDI 2017, section 4.3) with lazy drop: additive increase,
/// multiplicative decrease.
///
/// The largest batch grows by a fixed amount until the time of a batch exceeds the objective, and then shrinks by
/// 10 %. Batches start at once, with what waits up to that size. Open, and decided here:
/// - The fixed amount and the first size: 1 and 1. The size never exceeds that of the problem. 10 % less is rounded
///   down, to no less than 1.
/// - What time is held against the objective: all from the arrival of a batch's oldest request. The time of the
///   batch alone never exceeds the deadline of a problem that can be served, and nothing would ever shrink.
/// - Whether a batch below the limit says anything of it: every batch in time lets it grow.
/// - Several workers: each has a limit of its own, as each of Clipper's containers has.
#[derive(Default)]
pub(super) struct Clipper {
    /// The limits that are not 1.
    limits: BTreeMap<WorkerId, usize>,
}

impl Rule for Clipper {
    fn finish(&mut self, batch: &Finish<'_>) {
        let limit = self.limits.entry(batch.id).or_insert(1);
        *limit = if batch.late { (*limit * 9 / 10).max(1) } else { (*limit + 1).min(batch.worker.batch) };
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        drop_missed(floor);
        floor.take_first(self.limits.get(&floor.id).copied().unwrap_or(1));
        None
    }
}

/// Gives up what has missed its deadline; an answer at the deadline is in time.
fn drop_missed(floor: &mut Floor<'_>) {
    let now = floor.now;
    floor.drop_while(|_, first| first.deadline < now);
}

#[cfg(test)]
mod tests {
    use super::super::PolicyKind;
    use super::super::tests::{batches, hits};
    use crate::samples::problem;

    #[test]
    fn one_backlog_tells_the_policies_apart() {
        // P = 2, 3, 4, 5 and L = 8. At 5, when the first four are done, two wait until 9 and four until 12.
        let problem = problem(&[2, 3, 4, 5], 1, 8, &[]);
        let times = [0, 0, 0, 0, 1, 1, 4, 4, 4, 4];
        let ran = |kind| batches(kind, &problem, &times);
        let missed = |kind| {
            let hits = hits(kind, &problem, &times);
            (0..hits.len()).filter(|&i| !hits[i]).collect::<Vec<_>>()
        };
        let first = (0, vec![0, 1, 2, 3]);

        // Four wait at most, and the full batch is late for two.
        assert_eq!(ran(PolicyKind::Fifo), [first.clone(), (5, vec![4, 5, 6, 7])]);
        assert_eq!(missed(PolicyKind::Fifo), [4, 5, 8, 9]);

        // The window passes by those two, for a full batch.
        for kind in [PolicyKind::Nexus, PolicyKind::Clockwork] {
            assert_eq!(ran(kind), [first.clone(), (5, vec![6, 7, 8, 9])]);
            assert_eq!(missed(kind), [4, 5]);
        }

        // The oldest allow batches of three and of two, and the last one is dropped.
        let small = [first, (5, vec![4, 5, 6]), (9, vec![7, 8])];
        assert_eq!(ran(PolicyKind::Edf), small);
        assert_eq!(missed(PolicyKind::Edf), [9]);

        // Batches of three at most, which half of the deadline allows, and nothing older than 4.
        assert_eq!(ran(PolicyKind::Plain), [(0, vec![0, 1, 2]), (4, vec![3, 4, 5]), (8, vec![6, 7, 8])]);
        assert_eq!(missed(PolicyKind::Plain), [9]);

        // It has not missed its deadline at 12, and runs in vain.
        assert_eq!(ran(PolicyKind::LazyDrop)[..3], small);
        assert_eq!(ran(PolicyKind::LazyDrop)[3..], [(12, vec![9])]);
        assert_eq!(missed(PolicyKind::LazyDrop), [9]);

        // The limit goes from 1 to 2 and 3, to 2 as request 3 is late, and to 3.
        let grown = [(0, vec![0]), (2, vec![1, 2]), (5, vec![3, 4, 5]), (9, vec![6, 7]), (12, vec![8, 9])];
        assert_eq!(ran(PolicyKind::Clipper), grown);
        assert_eq!(missed(PolicyKind::Clipper), [3, 8, 9]);
    }

    #[test]
    fn clockwork_drops_only_what_its_batch_is_too_late_for() {
        let problem = problem(&[2, 3, 4, 5], 1, 8, &[]);
        let ran = |kind| batches(kind, &problem, &[1, 1, 1, 1, 1, 4, 4])[1..].to_vec();
        // At 6, the first of three is too late for a batch of three, but not for one of two.
        assert_eq!(ran(PolicyKind::Nexus), [(6, vec![5, 6])]);
        assert_eq!(ran(PolicyKind::Clockwork), [(6, vec![4, 5]), (9, vec![6])]);
    }

    #[test]
    fn what_is_dropped_lazily_has_missed_its_deadline() {
        let problem = problem(&[4], 1, 4, &[]);
        // The second could have been answered until 5, which is past at 8 and not at 4.
        assert_eq!(batches(PolicyKind::LazyDrop, &problem, &[0, 1]), [(0, vec![0]), (4, vec![1])]);
        assert_eq!(batches(PolicyKind::LazyDrop, &problem, &[0, 1, 1]), [(0, vec![0]), (4, vec![1])]);
        for kind in [PolicyKind::Edf, PolicyKind::Nexus, PolicyKind::Clockwork] {
            assert_eq!(batches(kind, &problem, &[0, 1]), [(0, vec![0])]);
        }
    }

    #[test]
    fn the_limit_of_clipper_shrinks_by_a_tenth_and_stays_within_the_batch() {
        let problem = problem(&[1; 20], 1, 1, &[]);
        // 19 requests one by one, each in time, and then bursts of 40: a batch in time, one late, and the rest is
        // dropped. 20 shrink to 18; one more is in time, and 19 shrink to 17.
        let bursts = (20..23).flat_map(|i| [10 * i; 40]);
        let times: Vec<_> = (0..19).map(|i| 10 * i).chain(bursts).collect();
        let sizes: Vec<_> =
            batches(PolicyKind::Clipper, &problem, &times).iter().map(|b| b.1.len()).collect();
        assert_eq!(sizes[..19], [1; 19]);
        assert_eq!(sizes[19..], [20, 20, 18, 19, 17, 18]);
    }
}
