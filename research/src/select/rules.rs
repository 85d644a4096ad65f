//! Simple rules: what the price of worker time must be worth more than, and a plan falls back on where it is not.

use rt_core::{Span, Variant};

use super::decision::{Decision, State, Take};
use super::profile::Profile;

/// The most accurate model that is in time for what waits.
#[derive(Clone, Debug)]
pub(super) struct Greedy {
    /// By falling accuracy.
    models: Vec<(usize, Variant)>,
    /// No batch takes longer while a worker is free for each request, and each request more makes that shorter by so much of itself,
    /// but not shorter than one of the fastest model.
    longest: Span,
    falls: f64,
    least: Span,
}

impl Greedy {
    pub(super) fn new(profile: &Profile, longest: Span, falls: f64) -> Self {
        let mut models: Vec<_> = profile.models().iter().cloned().enumerate().collect();
        models.sort_by(|a, b| b.1.accuracy.total_cmp(&a.1.accuracy));
        Self { models, longest, falls, least: profile.fastest() }
    }

    pub(super) fn decide(&self, state: &State<'_>, limit: Span) -> Decision {
        let share = state.share();
        let excess = state.count().saturating_sub(state.free) as f64;
        let longest = self.longest.as_nanos() as f64 * libm::exp(-self.falls * excess);
        let limit = limit.min(Span::from_nanos(longest as u64).max(self.least));
        // Of those that do not manage all, the one that manages most; of equals the most accurate.
        let mut most = (0, 0);
        for (model, of) in &self.models {
            let batch = of.profile.largest_within(limit, share);
            if batch > most.1 {
                most = (*model, batch);
            }
            if batch == share {
                break;
            }
        }
        match most {
            (_, 0) => Decision::Refuse,
            (model, batch) => Decision::Start { model, batch, take: Take::Oldest },
        }
    }
}

/// Up to three models, each for more requests than the one before.
#[derive(Clone, Debug)]
pub(super) struct Thresholds {
    models: [(usize, Variant); 3],
    /// Up to so many more requests than free workers, the first and the second.
    at: [i64; 2],
}

impl Thresholds {
    pub(super) fn new(profile: &Profile, models: [usize; 3], at: [i64; 2]) -> Self {
        let last = profile.models().len() - 1;
        Self { models: models.map(|m| (m.min(last), profile.models()[m.min(last)].clone())), at }
    }

    pub(super) fn decide(&self, state: &State<'_>, limit: Span) -> Decision {
        let excess = state.count() as i64 - state.free as i64;
        let first = self.at.iter().take_while(|&&at| excess > at).count();
        let sizes = self.models[first..].iter();
        let mut sizes = sizes.map(|(m, of)| (*m, of.profile.largest_within(limit, state.share())));
        match sizes.find(|&(_, batch)| batch > 0) {
            Some((model, batch)) => Decision::Start { model, batch, take: Take::Oldest },
            None => Decision::Refuse,
        }
    }
}
