//! Simple rules: what the price of worker time must be worth more than, and a plan falls back on where it is not.

use rt_core::{Span, Variant};

use super::decision::{Decision, State, Take};
use super::profile::Profile;

/// The most accurate model that is in time for what waits.
#[derive(Clone, Debug)]
pub(super) struct Greedy {
    /// By falling accuracy.
    models: Vec<(usize, Variant)>,
}

impl Greedy {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut models: Vec<_> = profile.models().iter().cloned().enumerate().collect();
        models.sort_by(|a, b| b.1.accuracy.total_cmp(&a.1.accuracy));
        Self { models }
    }

    pub(super) fn decide(&self, state: &State<'_>, limit: Span) -> Decision {
        let share = state.share();
        let sizes = || self.models.iter().map(|(m, of)| (*m, of.profile.largest_within(limit, share)));
        // Of those that do not manage all, the one that manages most; of equals the most accurate.
        let most = sizes().rev().max_by_key(|&(_, batch)| batch);
        match sizes().find(|&(_, batch)| batch == share).or(most).filter(|&(_, batch)| batch > 0) {
            Some((model, batch)) => Decision::Start { model, batch, take: Take::Oldest },
            None => Decision::Refuse,
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
