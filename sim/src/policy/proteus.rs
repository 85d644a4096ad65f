//! Proteus, and what its authors' program makes of Nexus and of Clipper.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use planner::Problem;
use rt_core::{Instant, Span, WorkerId};

use super::rival::{Finish, Floor, Reckoning, Rule, Waiting};

/// The adaptive batching of Proteus (Ahmad et al., ASPLOS 2024, section 5): wait for one request more as long as
/// the first is still in time in a batch with it.
///
/// With `q` waiting, a batch of `q` starts at `d - P(q+1)` for the earliest deadline `d`, or as soon as that is
/// past for the number that then waits. Open, and decided here:
/// - The times: means, as the authors' profile has them.
/// - The largest batch: `B`, and `B` requests start at once.
/// - A worker becomes free when the first request is too late for a batch of all that wait. As in the authors'
///   released program (`pop_while_first_expires`), first requests are dropped while a batch of all that wait, at
///   most `B`, would be too late for the first. The program does so when a request comes to a free worker; when a
///   batch ends it may run what waits although it is late, which the paper rules out.
/// - Several requests come to a free worker at once: as if one after the other, so the oldest run while the first
///   is in time.
/// - Several workers: the paper gives each a queue, here they share one.
#[derive(Default)]
pub(super) struct Proteus {
    /// Workers that ended a batch and were not asked since.
    freed: BTreeSet<WorkerId>,
}

impl Rule for Proteus {
    fn reckoning(&self) -> Reckoning {
        Reckoning::Mean
    }

    fn finish(&mut self, batch: &Finish<'_>) {
        self.freed.insert(batch.id);
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        if self.freed.remove(&floor.id) {
            floor.drop_for_window();
        }
        floor.drop_hopeless(1);
        let (waiting, size) = (floor.queue.len(), floor.window_in_time());
        let next = floor.queue.front()?.deadline - floor.time(size + 1);
        if size == waiting && size < floor.worker.batch && next > floor.now {
            return Some(next);
        }
        floor.take_first(size);
        None
    }
}

/// "Nexus" as the authors of Proteus have it in their released program (`core/predictor.py`). It is not the early
/// drop of Nexus ([`super::first::Nexus`]): it does not scan the queue, and it is not work-conserving.
///
/// - A free worker to which a request comes runs `B` if so many wait, and else does nothing, not even set a timer.
/// - A request that comes to a busy worker sets a timer to its latest start in a full batch, `now + D - P(B)`,
///   unless one is said to be set.
/// - When a batch ends and something waits: `B` run, if so many wait, and no timer is said to be set; else a timer
///   is set to `now + D - P(B)`, from now and not from the first request's arrival, and said to be.
/// - A timer rings even if another was set since, and while the worker is busy in vain. Else first requests are
///   dropped while a batch of all that wait would be too late for the first, and what is left runs.
/// - Before anything runs, what came more than `2D` ago is dropped; what is late is run, and is a miss.
///
/// So a request that comes to a free worker may wait for ever. Open, and decided here: several workers, which have
/// queues of their own in the program, share one, and a worker is busy if all are; of several kinds, timers are set
/// for the longest full batch. Times are bounds.
pub(super) struct ProteusNexus {
    deadline: Span,
    /// `D - P(B)`.
    slack: Span,
    timers: BinaryHeap<Reverse<Instant>>,
    /// Whether a timer is said to be set.
    set: bool,
}

impl ProteusNexus {
    pub(super) fn new(problem: &Problem) -> Self {
        let slack = problem.deadline.saturating_sub(problem.system().longest_batch());
        Self { deadline: problem.deadline, slack, timers: BinaryHeap::new(), set: false }
    }

    fn set(&mut self, now: Instant) {
        self.timers.push(Reverse(now + self.slack));
        self.set = true;
    }
}

impl Rule for ProteusNexus {
    fn reckoning(&self) -> Reckoning {
        Reckoning::Bound
    }

    fn arrive(&mut self, request: &mut Waiting, _: usize, busy: bool) -> bool {
        if busy && !self.set {
            self.set(request.arrival);
        }
        true
    }

    fn finish(&mut self, batch: &Finish<'_>) {
        if batch.waiting > 0 {
            self.set = false;
        }
        if (1..batch.worker.batch).contains(&batch.waiting) {
            self.set(batch.now);
        }
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        let mut rings = false;
        while let Some(&Reverse(timer)) = self.timers.peek()
            && timer <= floor.now
        {
            rings |= timer == floor.now;
            self.timers.pop();
        }
        let full = floor.queue.len() >= floor.worker.batch;
        if full || rings {
            if !full {
                floor.drop_for_window();
            }
            floor.drop_older(self.deadline + self.deadline);
            floor.take_first(floor.window());
        }
        self.timers.peek().map(|&Reverse(timer)| timer)
    }
}

/// "AIMD", Clipper's batching as the authors of Proteus have it in their released program (`core/predictor.py`). It
/// is not that of Clipper ([`super::first::Clipper`]): it waits for full batches, and decreases by steps too.
///
/// A free worker runs a batch of the current size when at least as many wait, and never else, so that a request may
/// wait for ever. Before, what came more than `2D` ago is dropped; what is late is run, and is a miss. As the batch
/// starts, the size goes a step down if one of its requests will be late, and else a step up. Open, and decided
/// here: the program steps through a list of sizes that it is given; here 1, 2, 4, 8, … and `B`. Several workers
/// have sizes of their own, as in the program, but share one queue. Times are bounds.
#[derive(Default)]
pub(super) struct ProteusAimd {
    deadline: Span,
    /// The sizes that are not 1.
    sizes: BTreeMap<WorkerId, usize>,
}

impl ProteusAimd {
    pub(super) fn new(problem: &Problem) -> Self {
        Self { deadline: problem.deadline, ..Self::default() }
    }
}

impl Rule for ProteusAimd {
    fn reckoning(&self) -> Reckoning {
        Reckoning::Bound
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        let size = self.sizes.entry(floor.id).or_insert(1);
        if floor.queue.len() >= *size {
            floor.drop_older(self.deadline + self.deadline);
            if floor.take_first(*size) {
                let down = (size.next_power_of_two() / 2).max(1);
                *size = if floor.is_late() { down } else { (*size * 2).min(floor.worker.batch) };
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::PolicyKind;
    use super::super::tests::{batches, hits};
    use super::Problem;
    use crate::samples::problem;

    /// P = 2, 3, 4, 5.
    fn within(deadline: u64) -> Problem {
        problem(&[2, 3, 4, 5], 1, deadline, &[])
    }

    #[test]
    fn proteus_waits_for_one_more_while_the_first_allows() {
        let ran = |times: &[u64]| batches(PolicyKind::Proteus, &within(10), times);
        // The first must be answered by 10: with a second request it starts by 7, with a third by 6.
        assert_eq!(ran(&[0]), [(7, vec![0])]);
        assert_eq!(ran(&[0, 3]), [(6, vec![0, 1])]);
        assert_eq!(ran(&[0, 7]), [(7, vec![0, 1])], "just in time");
        assert_eq!(ran(&[0, 8]), [(7, vec![0]), (15, vec![1])]);
        assert_eq!(ran(&[0, 7, 7]), [(7, vec![0, 1]), (14, vec![2])], "one after the other");
        assert_eq!(ran(&[0; 4]), [(0, vec![0, 1, 2, 3])], "a full batch");
        let again = [(0, vec![0, 1, 2, 3]), (27, vec![4, 5]), (34, vec![6])];
        assert_eq!(ran(&[0, 0, 0, 0, 20, 27, 27]), again, "as before it ever ran");
        assert_eq!(batches(PolicyKind::EarlyDrop, &within(10), &[0]), [(5, vec![0])]);
    }

    #[test]
    fn proteus_drops_first_requests_when_it_becomes_free_too_late() {
        let ran = |times: &[u64]| batches(PolicyKind::Proteus, &within(8), times);
        let first = (0, vec![0, 1, 2, 3]);
        // At 5, those that came at 1 must be answered by 9: not in a batch of four, but in one of three.
        assert_eq!(ran(&[0, 0, 0, 0, 1, 1, 4, 4, 4, 4]), [first.clone(), (5, vec![6, 7, 8, 9])]);
        assert_eq!(ran(&[0, 0, 0, 0, 1, 1, 4]), [first, (5, vec![4, 5, 6])]);
    }

    #[test]
    fn the_programs_nexus_waits_by_timers_from_the_wrong_start() {
        let ran = |times: &[u64]| batches(PolicyKind::ProteusNexus, &within(8), times);
        let first = (0, vec![0, 1, 2, 3]);
        // The timer of 1 rings at 4 in vain, that of the batch's end at 8: too late for request 4.
        assert_eq!(ran(&[0, 0, 0, 0, 1, 2]), [first, (8, vec![5])]);
        assert_eq!(batches(PolicyKind::Nexus, &within(8), &[0, 0, 0, 0, 1, 2])[1], (5, vec![4, 5]));
        // Nothing starts what comes to a free worker but a full batch.
        assert_eq!(ran(&[0]), []);
        assert_eq!(ran(&[0, 1, 1, 1]), [(1, vec![0, 1, 2, 3])]);
        assert_eq!(hits(PolicyKind::ProteusNexus, &within(6), &[0, 2, 2, 2]), [false, true, true, true]);
        // What came more than 2L ago does not run.
        assert_eq!(ran(&[0, 16, 16, 16]), [(16, vec![0, 1, 2, 3])]);
        assert_eq!(ran(&[0, 17, 17, 17]), [(17, vec![1, 2, 3])]);
    }

    #[test]
    fn the_programs_nexus_forgets_a_timer_only_if_something_waits() {
        // The end at 5 sets a timer, and the end at 18, with nothing waiting, leaves it said to be set. So the
        // request of 31 sets none for 46, and that of the end at 35, for 50, is too late.
        let times = [0, 0, 0, 0, 1, 30, 30, 30, 30, 31];
        let expected = [(0, vec![0, 1, 2, 3]), (16, vec![4]), (30, vec![5, 6, 7, 8])];
        assert_eq!(batches(PolicyKind::ProteusNexus, &within(20), &times), expected);
    }

    #[test]
    fn the_programs_aimd_waits_for_full_batches_and_goes_by_steps() {
        let ran = |times: &[u64]| batches(PolicyKind::ProteusAimd, &within(8), times);
        // Sizes 1, 2, 4; then three are late, and the next size is 2, for which the last request waits in vain.
        let times = [0, 1, 3, 7, 8, 9, 14, 30];
        let expected = [(0, vec![0]), (3, vec![1, 2]), (14, vec![3, 4, 5, 6])];
        assert_eq!(ran(&times), expected);
        // After 2L it is dropped before the next batch, which is then smaller.
        let times = [0, 1, 3, 7, 8, 9, 14, 30, 47];
        assert_eq!(ran(&times)[3..], [(47, vec![8])]);
        assert_eq!(
            batches(PolicyKind::Clipper, &within(8), &times)[..3],
            [(0, vec![0]), (2, vec![1]), (4, vec![2])]
        );
    }

    #[test]
    fn the_programs_aimd_steps_through_powers_of_two_and_the_full_batch() {
        let problem = problem(&[1; 6], 1, 5, &[]);
        let times: Vec<_> = (0..30).map(|i| i / 6).collect();
        let ran = batches(PolicyKind::ProteusAimd, &problem, &times);
        assert_eq!(ran.iter().map(|(_, batch)| batch.len()).collect::<Vec<_>>(), [1, 2, 4, 6, 6, 6]);
    }
}
