//! Policies that look at each stream's constraints: the real-time literature on (m,k)-firm deadlines, in batches.

use std::collections::VecDeque;

use planner::Problem;
use rt_core::{Constraint, Instant};

use super::rival::{Floor, Reckoning, Rule, Waiting};

/// Distance-based priority (Hamdaoui and Ramanathan, IEEE Transactions on Computers 44(12), 1995): the closer a
/// stream is to breaking a constraint, the earlier its request; of equals the earlier deadline.
///
/// The distance is the number of misses in a row from now on that break a constraint, counting the last of them: 0
/// if one is broken, at most `m + 1`. An `(m,K)` here is their `(K-m, K)`-firm; before the first request are hits.
/// Their server serves one customer at a time, without preemption. Open, and decided here:
/// - A stream with several constraints has the least distance, one without any comes last.
/// - Batches are filled one by one, as long as all in it are in time. A request that is taken counts as a hit from
///   then on, one that is dropped as a miss, one that waits not at all; an answer that is late after all as a miss.
/// - What cannot be served alone is dropped. What can, but not in this batch, is passed over, and waits.
pub(super) struct Distance {
    /// Of the streams with constraints, in the problem's order.
    streams: Vec<Option<History>>,
}

/// What became of a stream's latest requests.
struct History {
    constraints: Vec<Constraint>,
    /// In the order in which they came, from the oldest that counts: each with its end, if that is decided.
    requests: VecDeque<(u64, Option<bool>)>,
    /// How many are decided.
    decided: usize,
    distance: u32,
}

impl Distance {
    pub(super) fn new(problem: &Problem) -> Self {
        let history = |constraints: &[Constraint]| {
            let constraints = constraints.to_vec();
            let mut history = History { constraints, requests: VecDeque::new(), decided: 0, distance: 0 };
            history.distance = history.measure()?;
            Some(history)
        };
        Self { streams: problem.specs().map(|spec| history(spec.constraints().as_slice())).collect() }
    }

    fn history(&mut self, stream: usize) -> Option<&mut History> {
        self.streams.get_mut(stream)?.as_mut()
    }
}

impl Rule for Distance {
    fn reckoning(&self) -> Reckoning {
        Reckoning::Bound
    }

    fn arrive(&mut self, request: &mut Waiting, _: usize, _: bool) -> bool {
        if let Some(history) = self.history(request.stream) {
            history.requests.push_back((request.token, None));
        }
        true
    }

    fn hear(&mut self, request: &Waiting, hit: bool) {
        if let Some(history) = self.history(request.stream) {
            history.record(request.token, hit);
        }
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        if floor.drop_hopeless(1) {
            return None;
        }
        let distance = |streams: &[Option<History>], stream: usize| {
            streams.get(stream).and_then(Option::as_ref).map_or(u32::MAX, |history| history.distance)
        };
        while let Some(next) = floor.least(|request| distance(&self.streams, request.stream)) {
            if let Some(request) = floor.take(next) {
                self.hear(&request, true);
            }
        }
        None
    }
}

impl History {
    /// Notes how a request ends, unless that is too long ago to count.
    fn record(&mut self, token: u64, hit: bool) {
        let Ok(index) = self.requests.binary_search_by_key(&token, |&(token, _)| token) else { return };
        let before = self.requests[index].1.replace(hit);
        self.decided += usize::from(before.is_none());
        let longest = self.constraints.iter().map(|c| c.window() as usize).max().unwrap_or(0);
        while self.decided > longest
            && let Some((_, Some(_))) = self.requests.front()
        {
            self.requests.pop_front();
            self.decided -= 1;
        }
        self.distance = self.measure().unwrap_or(u32::MAX);
    }

    /// The least distance of all constraints, if there are any.
    fn measure(&self) -> Option<u32> {
        let distance = |c: &Constraint| {
            // How many requests back the `h`-th latest hit lies, 1 for the last request.
            let (mut age, mut hits) = (0, 0);
            for hit in self.requests.iter().rev().filter_map(|&(_, end)| end) {
                if hits == c.hits() {
                    break;
                }
                age += 1;
                hits += u32::from(hit);
            }
            (c.window() + 1).saturating_sub(age + c.hits() - hits)
        };
        self.constraints.iter().map(distance).min()
    }
}

/// The static pattern of Ramanathan (IEEE Transactions on Parallel and Distributed Systems 10(6), 1999): of a stream
/// whose densest constraint asks for `h` hits of `K`, request `i` (from 0) is mandatory iff
/// `i = floor(ceil(i·h/K)·K/h)`. Mandatory requests go first, optional ones fill.
///
/// The paper is about control tasks of fixed priorities that run one by one. Open, and decided here:
/// - Both parts go in order of deadlines, and fill the batch one by one, as long as all in it are in time.
/// - What cannot be served alone is dropped. What can, but not in this batch, is passed over, and waits.
/// - A stream without constraints is all optional. Nobody is policed, and nothing is shed.
pub(super) struct StaticPattern {
    /// Of each stream of the problem its densest constraint, and how many requests have come.
    streams: Vec<(Option<Constraint>, u64)>,
}

impl StaticPattern {
    pub(super) fn new(problem: &Problem) -> Self {
        Self { streams: problem.specs().map(|spec| (spec.constraints().densest(), 0)).collect() }
    }
}

impl Rule for StaticPattern {
    fn reckoning(&self) -> Reckoning {
        Reckoning::Bound
    }

    fn arrive(&mut self, request: &mut Waiting, _: usize, _: bool) -> bool {
        if let Some((Some(constraint), count)) = self.streams.get_mut(request.stream) {
            request.mandatory = is_mandatory(*count, *constraint);
            *count += 1;
        }
        true
    }

    fn decide(&mut self, floor: &mut Floor<'_>) -> Option<Instant> {
        floor.drop_hopeless(1);
        while let Some(next) = floor.least(|request| !request.mandatory) {
            floor.take(next);
        }
        None
    }
}

/// Whether request `i`, from 0, is mandatory.
fn is_mandatory(i: u64, constraint: Constraint) -> bool {
    let (h, k) = (u64::from(constraint.hits()), u64::from(constraint.window()));
    i == (i * h).div_ceil(k) * k / h
}

#[cfg(test)]
mod tests {
    use super::super::PolicyKind;
    use super::super::tests::{batches, batches_of, keeps, play};
    use super::*;
    use crate::samples::{problem, stream};
    use crate::time::at;

    #[test]
    fn the_stream_closest_to_failure_goes_first() {
        let streams = [stream(2, 3, 1, 10), stream(1, 2, 1, 10)];
        let problem = problem(&[2], 1, 6, &streams);
        let arrivals = [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2)];
        let ran = |kind| batches_of(&play(kind, &problem, &arrivals));
        // Two misses in a row break the second stream's constraint, and three the first's; the third has none.
        assert_eq!(ran(PolicyKind::Distance), [(0, vec![2]), (2, vec![3]), (4, vec![0])]);
        assert_eq!(ran(PolicyKind::Edf), [(0, vec![0]), (2, vec![1]), (4, vec![2])]);
    }

    #[test]
    fn what_is_taken_counts_as_a_hit_and_what_is_dropped_as_a_miss() {
        let streams = [stream(1, 2, 1, 10), stream(1, 2, 1, 10)];
        let problem = problem(&[2, 2], 1, 3, &streams);
        // At 2 the third request is given up, so the first stream is closer to failure, until one of it is taken.
        let arrivals = [(0, 1), (0, 1), (0, 0), (2, 1), (2, 1), (2, 0), (2, 0)];
        assert_eq!(
            batches_of(&play(PolicyKind::Distance, &problem, &arrivals)),
            [(0, vec![0, 1]), (2, vec![3, 5])]
        );
        assert_eq!(
            batches_of(&play(PolicyKind::Edf, &problem, &arrivals)),
            [(0, vec![0, 1]), (2, vec![3, 4])]
        );
    }

    #[test]
    fn distances_are_those_of_the_paper_and_late_answers_are_misses() {
        let constraint = Constraint::any_hit(2, 4).expect("valid");
        let requests = (0..9).map(|token| (token, None)).collect();
        let mut history = History { constraints: vec![constraint], requests, decided: 0, distance: 3 };
        let mut after = |token, hit| {
            history.record(token, hit);
            history.distance
        };
        // Two hits of four, and three misses break it.
        assert_eq!([after(0, true), after(1, false), after(2, false), after(3, false)], [3, 2, 1, 0]);
        // The fifth request waits. Of those decided, two of the last four are hits from the seventh on.
        assert_eq!([after(5, true), after(6, true), after(7, false)], [0, 3, 2]);
        // The sixth was late: of the last four the seventh alone is a hit, until the fifth is one.
        assert_eq!((after(5, false), after(4, true)), (0, 1));
    }

    #[test]
    fn mandatory_requests_go_first_and_optional_ones_fill() {
        let problem = problem(&[2, 2], 1, 6, &[stream(3, 5, 1, 10)]);
        // Requests 0, 2, 5, 7, … are mandatory.
        let run = play(PolicyKind::StaticPattern, &problem, &[(0, 0); 6]);
        let mandatory: Vec<_> = (0..6).filter(|&i| run.requests[i].mandatory).collect();
        assert_eq!(mandatory, [0, 2, 5]);
        assert_eq!(batches_of(&run), [(0, vec![0, 2]), (2, vec![1, 5]), (4, vec![3, 4])]);
        let in_order = [(0, vec![0, 1]), (2, vec![2, 3]), (4, vec![4, 5])];
        assert_eq!(batches(PolicyKind::Distance, &problem, &[0; 6]), in_order);
    }

    #[test]
    fn the_static_pattern_keeps_its_constraint() {
        for (m, k) in (1..30).flat_map(|k| (0..k).map(move |m| (m, k))) {
            let constraint = Constraint::any_miss(m, k).expect("valid");
            let pattern: Vec<_> = (0..200).map(|i| is_mandatory(i, constraint)).collect();
            assert!(pattern[0] && keeps(&pattern, (m, k)), "{constraint}");
        }
    }

    #[test]
    fn what_does_not_fit_the_batch_is_passed_over() {
        let problem = problem(&[2, 4], 1, 6, &[stream(3, 5, 1, 10)]);
        // At 4 request 5 is mandatory. Request 1 has time until 6: it could go alone, but not with that one.
        let run =
            play(PolicyKind::StaticPattern, &problem, &[(0, 0), (0, 0), (0, 0), (3, 0), (3, 0), (3, 0)]);
        assert_eq!(batches_of(&run), [(0, vec![0, 2]), (4, vec![3, 5])]);
        assert_eq!(run.requests[1].ended, at(8), "when nothing can save it");
    }
}
