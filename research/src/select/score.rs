//! A policy tried out in virtual time: what becomes of requests at one queue, every batch as long as the profile says.

use std::ops::Range;

use rt_core::{Alarm, Instant, MissReason, Outcome, StreamState, Transition};
use virtual_time::{Batch, Observer, Order, Request, drive};

use super::policy::Policy;
use super::profile::Profile;
use crate::serving::Serving;

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
}

impl Score {
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
    let mut serving = Serving::new(policy, profile.models().to_vec(), workers, profile.slo());
    let mut count = Count { profile, counted, score: Score::default() };
    let arrivals = arrivals.into_iter().map(|at| (at, 0));
    // They do not go back.
    let _ = drive(&mut serving, arrivals, Order::Together, |_, _, bound| bound, &mut count);
    count.score
}

struct Count<'a> {
    profile: &'a Profile,
    counted: Range<Instant>,
    score: Score,
}

impl Observer for Count<'_> {
    fn request(&mut self, request: &Request) {
        if !self.counted.contains(&request.arrival) {
            return;
        }
        match request.outcome {
            Outcome::Served => {
                self.score.answered += 1;
                self.score.accuracy_sum += self.profile.models()[request.variant].accuracy;
            }
            Outcome::Missed(MissReason::Late) => self.score.late += 1,
            Outcome::Missed(_) => self.score.refused += 1,
        }
    }

    fn batch(&mut self, _: &Batch) {}

    fn safe_mode(&mut self, _: Instant, _: Transition) {}

    fn suspension(&mut self, _: Instant, _: usize, _: StreamState, _: Option<Alarm>) {}
}
