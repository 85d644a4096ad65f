//! Policies that wait for the latest start and then choose among those that would be lost: the spread-drop paper.

use planner::Problem;
use rt_core::{Constraint, Instant};

use super::rival::{Floor, Reckoning, Rule};

/// Algorithm 1 of the spread-drop paper (Agelii, Zhang and Chang, section 3.1) with a way to choose.
///
/// What can no longer be answered in time by a full batch is dropped, whatever the size of the batch that would
/// run. Then the worker waits for the latest start of a full batch for the earliest deadline, `d - P(B)`, even if
/// `B` requests wait. Then it chooses among the candidates, those that are too late for the next batch: with a
/// deadline before `now + 2P`. The others of these are dropped. Open, and decided here:
/// - The paper's candidates are those with a deadline up to `now + 2P`. One at just that instant can still be
///   served by the next batch, so it is none, but for the policies "as printed".
/// - Algorithms 3 and 4 choose among the candidates only, while section 3.3 says that as many run as in Algorithm
///   2, which takes what waits. So fewer candidates than places run all, and what else waits fills the batch, the
///   oldest first; but for the policies "as printed".
/// - Where more than `B` are chosen, the first `B` of them run.
/// - The paper has one worker. Here all share the queue; those that are free at the same time choose as one with
///   all their places, and candidates are those too late for whichever worker is free next.
/// - The paper has one sequence of homogeneous requests, so all streams are one sequence.
pub(super) struct Spread {
    choose: Choose,
    /// Candidates end after `now + 2P`, and the batch has no others.
    printed: bool,
}

/// Which candidates run, if there are more than places; or, as printed, always.
#[derive(Clone, Copy)]
enum Choose {
    Balanced,
    First,
    Rows,
    /// `m` and `K`.
    Weakly(usize, usize),
}

impl Spread {
    /// Ours, section 3 of the theory of this project: the balanced word of density `B/|C|`, drops first and the
    /// last one chosen. On one worker it keeps every constraint up to the largest rate for which any policy can.
    pub(super) fn balanced() -> Self {
        Self { choose: Choose::Balanced, printed: false }
    }

    /// Algorithm 2, early drop: the oldest run. Nexus is quoted as the source, but does not wait: see
    /// [`super::first::Nexus`].
    pub(super) fn first() -> Self {
        Self { choose: Choose::First, printed: false }
    }

    /// Algorithm 3, fewest misses in a row: of `|C|` candidates every `floor(|C|/B)`-th, and then every
    /// `ceil(|C|/B)`-th, so that `B` run.
    ///
    /// As printed, line 6 takes the floor for the second part too, which chooses more than `B` and so drops the
    /// last ones in a row. It also counts with `j` where line 5 counts with `j - i`: read as that. With fewer
    /// candidates than `B`, its modulus is 0: all are chosen.
    pub(super) fn rows(printed: bool) -> Self {
        Self { choose: Choose::Rows, printed }
    }

    /// Algorithm 4, for the densest `(m,K)` of all streams: drop `m`, choose `K-m`, and so on, until `|C| - B` are
    /// dropped. Beyond the rate of the paper's Theorem 2 more than `B` are chosen, and the last candidates are
    /// dropped in a row.
    ///
    /// As printed, line 1 counts from 1 where the text and Figure 1d need 0: drop `m-1`, choose `K-m`, drop one.
    /// That keeps the constraint too. With `m = 0`, for which it divides by zero, and with no constraint at all,
    /// the first `B` run.
    pub(super) fn weakly(problem: &Problem, printed: bool) -> Self {
        let densest = problem.specs().filter_map(|spec| spec.constraints().densest());
        Self::for_densest(densest.max_by_key(|c| c.density()), printed)
    }

    /// The same for one constraint.
    pub(super) fn for_densest(densest: Option<Constraint>, printed: bool) -> Self {
        let weakly = |c: Constraint| Choose::Weakly(c.misses() as usize, c.window() as usize);
        let choose = densest.filter(|c| c.misses() > 0).map_or(Choose::First, weakly);
        Self { choose, printed }
    }

    /// Takes those of the candidates that are chosen, now.
    pub(super) fn pick(&self, floor: &mut Floor<'_>) {
        let (places, later) = (floor.places, floor.later);
        let lost = |deadline| deadline < later || self.printed && deadline == later;
        let candidates = floor.queue.iter().take_while(|request| lost(request.deadline)).count();
        if candidates <= places && !self.printed {
            floor.take_first(floor.worker.batch);
        } else {
            let (choose, printed) = (self.choose, self.printed);
            floor.take_among(candidates, |place| choose.takes(place, (candidates, places), printed));
        }
    }
}

impl Rule for Spread {
    fn reckoning(&self) -> Reckoning {
        Reckoning::Bound
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        let (size, time) = (floor.worker.batch, floor.worker.batch_time());
        floor.drop_hopeless(size);
        let start = floor.queue.front()?.deadline - time;
        if start > floor.now {
            return Some(start);
        }
        self.pick(floor);
        None
    }
}

impl Choose {
    /// Whether the candidate at `place`, from 1, is chosen of `count` for a batch of `size`.
    fn takes(self, place: usize, (count, size): (usize, usize), printed: bool) -> bool {
        match self {
            Self::Balanced => place * size / count > (place - 1) * size / count,
            Self::First => place <= size,
            Self::Rows => {
                let (floor, ceil) = (count / size, count.div_ceil(size));
                // With a whole quotient there are `size` short rows, and no more.
                let short = if floor == ceil { size } else { size * ceil - count };
                let row = if printed && floor > 0 { floor } else { ceil };
                match place.checked_sub(short * floor + 1) {
                    None => place.is_multiple_of(floor),
                    Some(beyond) => (beyond + 1).is_multiple_of(row),
                }
            }
            Self::Weakly(m, k) => {
                let Some(drops) = count.checked_sub(size) else { return true };
                let (rounds, rest) = (k * (drops / m), drops % m);
                let in_round = if printed { place } else { place - 1 };
                place <= rounds && in_round % k >= m || place > rounds + rest
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PolicyKind;
    use super::super::tests::{batches, batches_of, hits, keeps, play};
    use super::*;
    use crate::dice::Dice;
    use crate::measure::Misses;
    use crate::record::record;
    use crate::samples::{problem, stream};
    use crate::time::{at, ns};
    use rt_core::{BalancedWord, Density, MissReason, Outcome, largest_count, seed_theorem_2};
    use virtual_time::Order;

    /// One worker with batches of 8 in 10, `L = 25`, one stream of `(m,k)`: a request at 0 starts at 15, together
    /// with those before 10, which are lost after that.
    fn figure(m: u32, k: u32) -> Problem {
        problem(&[10; 8], 1, 25, &[stream(m, k, 1, 10)])
    }

    /// Two requests in each of the first ten instants, and four that still have time at 15.
    fn requests() -> Vec<u64> {
        (0..20).map(|i| i / 2).chain([12; 4]).collect()
    }

    #[test]
    fn the_figure_of_the_paper_is_chosen_as_drawn() {
        let first = |kind| batches(kind, &figure(3, 5), &requests()).remove(0);
        assert_eq!(first(PolicyKind::EarlyDrop), (15, (0..8).collect()), "Figure 1b");
        assert_eq!(first(PolicyKind::SpreadDropMcd), (15, vec![1, 3, 5, 7, 10, 13, 16, 19]), "Figure 1c");
        assert_eq!(first(PolicyKind::SpreadDropWh), (15, vec![3, 4, 8, 9, 13, 14, 18, 19]), "Figure 1d");
        assert_eq!(first(PolicyKind::PerBatchSpread), (15, vec![2, 4, 7, 9, 12, 14, 17, 19]));
        // As printed: line 6 goes on with every second one, and ten are chosen; line 1 starts one early.
        let printed = (15, vec![1, 3, 5, 7, 9, 11, 13, 15]);
        assert_eq!(first(PolicyKind::SpreadDropMcdPrinted), printed);
        let printed = (15, vec![2, 3, 7, 8, 12, 13, 17, 18]);
        assert_eq!(first(PolicyKind::SpreadDropWhPrinted), printed);
        for kind in [PolicyKind::EarlyDrop, PolicyKind::SpreadDropMcd, PolicyKind::SpreadDropWh] {
            let batches = batches(kind, &figure(3, 5), &requests());
            assert_eq!(batches[1..], [(27, (20..24).collect())], "the others have time until 37");
        }
    }

    #[test]
    fn algorithm_3_as_printed_chooses_too_many_and_drops_the_last() {
        let times: Vec<_> = (0..12).map(|i| i / 2).collect();
        let hits = |kind| hits(kind, &figure(1, 2), &times);
        let (corrected, printed) = (hits(PolicyKind::SpreadDropMcd), hits(PolicyKind::SpreadDropMcdPrinted));
        let places = |hits: &[bool]| (0..12).filter(|&i| hits[i]).collect::<Vec<_>>();
        assert_eq!(places(&corrected), [0, 1, 2, 3, 5, 7, 9, 11]);
        assert_eq!(places(&printed), [0, 1, 2, 3, 4, 5, 6, 7]);
        let row = |hits: &[bool]| Misses::of(1, &[], hits.iter().copied()).longest_row();
        assert_eq!((row(&corrected), row(&printed)), (1, 4));
        let run = play(
            PolicyKind::SpreadDropMcdPrinted,
            &figure(1, 2),
            &times.iter().map(|&time| (time, 0)).collect::<Vec<_>>(),
        );
        assert!(run.requests[8..].iter().all(|request| request.ended == at(15)), "dropped at once");
    }

    #[test]
    fn algorithm_4_keeps_the_constraint_as_printed_too() {
        let mut dice = Dice(4);
        for (m, k) in (2..8).flat_map(|k| (1..k).map(move |m| (m, k))) {
            for size in 1..10 {
                let largest = seed_theorem_2(size, m, k);
                let counts: Vec<_> = (0..200).map(|_| dice.within(1, largest) as usize).collect();
                for printed in [false, true] {
                    let choose = Choose::Weakly(m as usize, k as usize);
                    let word = |count| (1..=count).map(move |i| choose.takes(i, (count, size), printed));
                    let all: Vec<_> = counts.iter().flat_map(|&count| word(count)).collect();
                    assert!(keeps(&all, (m, k)), "({m},{k}), B = {size}, printed: {printed}");
                    let most = counts.iter().map(|&count| word(count).filter(|&taken| taken).count()).max();
                    assert!(most <= Some(size));
                }
            }
        }
    }

    #[test]
    fn candidates_as_printed_include_one_that_can_still_be_served() {
        let base = problem(&[10], 1, 20, &[stream(1, 2, 1, 10)]);
        assert_eq!(batches(PolicyKind::SpreadDropMcd, &base, &[0, 10]), [(10, vec![0]), (20, vec![1])]);
        assert_eq!(batches(PolicyKind::SpreadDropMcdPrinted, &base, &[0, 10]), [(10, vec![1])]);
    }

    #[test]
    fn a_batch_is_filled_up_but_not_as_printed() {
        for kind in [PolicyKind::PerBatchSpread, PolicyKind::EarlyDrop, PolicyKind::SpreadDropMcd] {
            assert_eq!(batches(kind, &figure(3, 5), &[0, 1, 12]), [(15, vec![0, 1, 2])]);
        }
        for kind in [PolicyKind::SpreadDropMcdPrinted, PolicyKind::SpreadDropWhPrinted] {
            let batches = batches(kind, &figure(3, 5), &[0, 1, 12]);
            assert_eq!(batches, [(15, vec![0, 1]), (27, vec![2])]);
        }
    }

    #[test]
    fn a_full_queue_waits_and_few_wait_as_long_as_many() {
        assert_eq!(batches(PolicyKind::EarlyDrop, &figure(3, 5), &[0; 8]), [(15, (0..8).collect())]);
        let quick = problem(&[2, 10], 1, 25, &[]);
        assert_eq!(batches(PolicyKind::EarlyDrop, &quick, &[0]), [(15, vec![0])], "in a batch of two");
    }

    #[test]
    fn without_a_constraint_that_allows_misses_algorithm_4_is_early_drop() {
        for problem in [figure(0, 1), Problem { streams: Vec::new(), ..figure(0, 1) }] {
            let expected = batches(PolicyKind::EarlyDrop, &problem, &requests());
            assert_eq!(batches(PolicyKind::SpreadDropWh, &problem, &requests()), expected);
        }
    }

    #[test]
    fn free_workers_choose_as_one() {
        let two = |batch| problem(&vec![10; batch], 2, 20, &[stream(3, 5, 1, 10)]);
        let ran = |kind, batch| batches(kind, &two(batch), &[0; 6]);
        assert_eq!(ran(PolicyKind::PerBatchSpread, 1), [(10, vec![2]), (10, vec![5])], "1 in 3");
        assert_eq!(ran(PolicyKind::PerBatchSpread, 2), [(10, vec![1, 2]), (10, vec![4, 5])], "2 in 3");
        assert_eq!(ran(PolicyKind::EarlyDrop, 2), [(10, vec![0, 1]), (10, vec![2, 3])]);
        assert_eq!(ran(PolicyKind::SpreadDropMcdPrinted, 1), [(10, vec![2]), (10, vec![5])]);
    }

    #[test]
    fn candidates_are_what_is_too_late_for_the_next_free_worker() {
        let two = problem(&[10], 2, 20, &[]);
        // At 15 the other worker is known to be free at 20, in time for a deadline of 30.
        let expected = [(10, vec![0]), (15, vec![1]), (20, vec![2])];
        assert_eq!(batches(PolicyKind::PerBatchSpread, &two, &[0, 5, 10]), expected);
        // Of three that are too late for 20, two can be served, and they are chosen at once.
        let expected = [(10, vec![1]), (19, vec![2])];
        assert_eq!(batches(PolicyKind::PerBatchSpread, &two, &[0, 5, 9]), expected);
    }

    #[test]
    fn a_worker_that_is_overdue_may_be_free_at_once() {
        let two = problem(&[10], 2, 20, &[]);
        let time = |worker, _, bound| if worker == 0 { ns(100) } else { bound };
        // At 22 the first worker should have been free since 20.
        let arrivals = [(at(0), 0), (at(12), 0), (at(13), 0)];
        for kind in [PolicyKind::EarlyDrop, PolicyKind::SpreadDropMcdPrinted] {
            let run = record(kind, &two, &arrivals, Order::Together, time).expect("a run");
            assert_eq!(batches_of(&run), [(10, vec![0]), (22, vec![1])]);
            assert_eq!(
                run.requests[2].outcome,
                Outcome::Missed(MissReason::Expired),
                "the next batch is too late"
            );
        }
    }

    #[test]
    fn per_batch_spread_reaches_the_largest_rate_and_algorithm_4_does_not() {
        let (largest, theirs) = (8, seed_theorem_2(4, 5, 10));
        assert_eq!((largest_count(1, 4, Density::new(5, 10).expect("a half")), theirs), (Some(largest), 4));
        // `P = 8`, so that `largest` in each `P` are one an instant.
        let base = problem(&[8; 4], 1, 16, &[stream(5, 10, largest, 8)]);
        let keeps = |kind, count| {
            keeps(&hits(kind, &base, &(0..400).map(|i| i * 8 / count).collect::<Vec<_>>()), (5, 10))
        };
        assert!(
            keeps(PolicyKind::PerBatchSpread, largest) && !keeps(PolicyKind::PerBatchSpread, largest + 1)
        );
        assert!(keeps(PolicyKind::SpreadDropWh, theirs) && !keeps(PolicyKind::SpreadDropWh, largest));
    }

    #[test]
    fn per_batch_spread_reaches_the_largest_rate_for_every_constraint_also_in_bursts() {
        let mut dice = Dice(7);
        for (m, k) in (1..9).flat_map(|k| (0..k).map(move |m| (m, k))) {
            for size in 1..6 {
                let density = Density::new(k - m, k).expect("a share");
                let largest = largest_count(1, size, density).expect("a promise");
                let base = problem(&vec![largest; size], 1, 2 * largest, &[stream(m, k, largest, largest)]);
                let constant: Vec<_> = (0..20 * largest).collect();
                let mut burst = 0;
                let pause = |_| {
                    burst += largest + dice.within(0, 1) * dice.within(0, largest);
                    vec![burst; dice.within(1, largest) as usize]
                };
                let bursts: Vec<_> = (0..20).flat_map(pause).collect();
                for times in [constant, bursts] {
                    assert!(
                        keeps(&hits(PolicyKind::PerBatchSpread, &base, &times), (m, k)),
                        "({m},{k}), B = {size}"
                    );
                }
            }
        }
    }

    #[test]
    fn on_several_workers_per_batch_spread_falls_short_of_the_largest_rate() {
        // Four in each `P = 4`: the first two batches start three instants apart, and the next batches have three
        // candidates and one.
        let two = problem(&[4], 2, 8, &[stream(1, 2, 4, 4)]);
        let hits = hits(PolicyKind::PerBatchSpread, &two, &(0..80).collect::<Vec<_>>());
        assert_eq!(hits[..8], [false, true, false, true, false, false, true, true]);
    }

    #[test]
    fn balanced_choices_are_the_balanced_word() {
        for (size, count) in (1..20).flat_map(|count| (1..=count).map(move |size| (size, count))) {
            let mut word = BalancedWord::new(Density::new(size as u32, count as u32).expect("a share"));
            for place in 1..=count {
                assert_eq!(Choose::Balanced.takes(place, (count, size), false), word.next_is_mandatory());
            }
        }
    }
}
