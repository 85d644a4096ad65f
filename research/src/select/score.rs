//! A policy tried out in virtual time: what becomes of requests at one queue, every batch as long as the profile says.
//!
//! Plans try many policies out, so this is a shorter way through virtual time than that of the simulator, where
//! requests fare the same.

use std::collections::VecDeque;
use std::ops::Range;

use rt_core::{Instant, Span, Variant};
use virtual_time::earlier;

use super::decision::{Decision, State, Take};
use super::policy::Policy;
use super::profile::Profile;

/// What became of the requests that a trial counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Answered in time.
    pub answered: u64,
    /// Answered late: none, if batches are as long as the profile says.
    pub late: u64,
    /// Given up.
    pub refused: u64,
    /// The accuracies of those answered in time, summed.
    pub accuracy_sum: f64,
    /// How often the policy was asked, about requests that count or not.
    pub decisions: u64,
}

/// What a miss costs, in right answers, beside its own.
const MISS: f64 = 2.0;
/// So large a share may miss at that cost.
const ALLOWED: f64 = 0.001;
/// What a miss beyond it costs.
const BEYOND: f64 = 20.0;

impl Score {
    /// The share of right answers among all requests, in 0..=1: a miss is none.
    #[must_use]
    pub fn right(&self) -> f64 {
        self.accuracy() * (1.0 - self.violations())
    }

    /// What plans make the most of: the share of right answers, less 2 for each miss up to one request in a thousand,
    /// and 20 for each beyond.
    #[must_use]
    pub fn worth(&self) -> f64 {
        let missed = self.violations();
        self.right() - MISS * missed.min(ALLOWED) - BEYOND * (missed - ALLOWED).max(0.0)
    }

    /// The mean accuracy of the requests answered in time, in 0..=1; 0 if there are none.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        if self.answered == 0 { 0.0 } else { self.accuracy_sum / self.answered as f64 }
    }

    /// The share of requests answered late or given up.
    #[must_use]
    pub fn violations(&self) -> f64 {
        let missed = self.late + self.refused;
        if missed == 0 { 0.0 } else { missed as f64 / (self.answered + missed) as f64 }
    }
}

/// Plays `arrivals`, which are in order, on `workers` workers, at least one. Requests count that arrive in `counted`.
pub fn trial(
    profile: &Profile,
    policy: &Policy,
    workers: usize,
    arrivals: impl IntoIterator<Item = Instant>,
    counted: Range<Instant>,
) -> Score {
    let (queue, busy) = (VecDeque::new(), Vec::with_capacity(workers));
    let mut room =
        Room { profile, policy, free: workers.max(1), queue, busy, counted, score: Score::default() };
    let mut arrivals = arrivals.into_iter();
    let (mut next, mut wake) = (arrivals.next(), None);
    // An array of all three would be written and read again for each event, which takes a fifth of a plan.
    while let Some(now) = earlier(earlier(next, room.busy.last().copied()), wake) {
        while room.busy.pop_if(|finish| *finish <= now).is_some() {
            room.free += 1;
        }
        while let Some(arrival) = next.filter(|&arrival| arrival <= now) {
            room.queue.push_back(arrival);
            next = arrivals.next();
        }
        wake = room.decide(now);
    }
    // Nothing can happen any more.
    for arrival in std::mem::take(&mut room.queue) {
        room.refuse(arrival);
    }
    room.score
}

/// What waits and who is busy.
struct Room<'a> {
    profile: &'a Profile,
    policy: &'a Policy,
    free: usize,
    queue: VecDeque<Instant>,
    /// When each busy worker will be free, the first last.
    busy: Vec<Instant>,
    counted: Range<Instant>,
    score: Score,
}

impl Room<'_> {
    /// Has free workers do what the policy says; when to ask again.
    fn decide(&mut self, now: Instant) -> Option<Instant> {
        while self.free > 0 && !self.queue.is_empty() {
            let end = now + self.policy.horizon();
            let soon = self.busy.len() - self.busy.partition_point(|&finish| finish > end);
            let (waiting, longest) = (self.queue.as_slices(), Span::from_nanos(u64::MAX));
            self.score.decisions += 1;
            match self.policy.decide(&State { now, waiting, free: self.free, soon, longest }) {
                Decision::Start { model, batch, take } => self.start(now, model, batch, take),
                Decision::Refuse => {
                    let oldest = self.queue.pop_front();
                    oldest.into_iter().for_each(|arrival| self.refuse(arrival));
                }
                Decision::Wait { until } => return until.filter(|&until| until > now),
            }
        }
        None
    }

    fn start(&mut self, now: Instant, model: usize, batch: usize, take: Take) {
        let Variant { accuracy, profile } = &self.profile.models()[model];
        let finish = now + profile.bound(batch);
        let first = if take == Take::Newest { self.queue.len() - batch } else { 0 };
        for arrival in self.queue.drain(first..first + batch).filter(|at| self.counted.contains(at)) {
            if finish <= arrival + self.profile.slo() {
                self.score.answered += 1;
                self.score.accuracy_sum += accuracy;
            } else {
                self.score.late += 1;
            }
        }
        self.busy.insert(self.busy.partition_point(|&other| other > finish), finish);
        self.free -= 1;
    }

    fn refuse(&mut self, arrival: Instant) {
        self.score.refused += u64::from(self.counted.contains(&arrival));
    }
}
