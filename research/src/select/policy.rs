//! The decision: what a free worker does now, by prices or by a simple rule, without allocation.

use rt_core::Span;

use super::decision::{Decision, Demand, DemandError, State, Tuning};
use super::priced::Priced;
use super::profile::Profile;
use super::rules::{Greedy, Thresholds};

/// A policy for one profile; by prices, also for one load and number of workers.
#[derive(Clone, Debug)]
pub struct Policy {
    slo: u64,
    /// What the fastest model takes for one request.
    least: u64,
    rule: Rule,
}

/// How models and batches are chosen.
#[derive(Clone, Debug)]
enum Rule {
    Priced(Box<Priced>),
    Greedy(Greedy),
    Thresholds(Box<Thresholds>),
}

impl Policy {
    /// By the price of worker time, for `demand`, from `tuning`. A load beyond what the workers can carry is priced as
    /// the largest that they can.
    ///
    /// # Errors
    /// [`DemandError`] for the first value that is outside its range.
    pub fn new(profile: &Profile, demand: Demand, tuning: Tuning) -> Result<Self, DemandError> {
        demand.check()?;
        tuning.check(profile)?;
        Ok(Self::priced(profile, demand, tuning))
    }

    /// As [`Policy::new`], of values in their ranges.
    pub(super) fn priced(profile: &Profile, demand: Demand, tuning: Tuning) -> Self {
        Self::by(profile, Rule::Priced(Box::new(Priced::new(profile, demand, tuning))))
    }

    /// The most accurate model that is in time, whatever comes next, for the worker's share of what waits.
    #[must_use]
    pub fn greedy(profile: &Profile) -> Self {
        Self::greedy_within(profile, profile.slo(), 0.0)
    }

    /// The same of batches that take at most `longest`, and by `falls` of that less for each request that waits for a worker.
    pub(super) fn greedy_within(profile: &Profile, longest: Span, falls: f64) -> Self {
        Self::by(profile, Rule::Greedy(Greedy::new(profile, longest, falls)))
    }

    /// The first of `models` while at most `at[0]` more requests wait than workers are free, the second up to `at[1]`,
    /// else the third; of models that do not exist the last. Who cannot be in time leaves requests to those behind it.
    #[must_use]
    pub fn thresholds(profile: &Profile, models: [usize; 3], at: [i64; 2]) -> Self {
        Self::by(profile, Rule::Thresholds(Box::new(Thresholds::new(profile, models, at))))
    }

    /// One model for all, on as many as are in time; what is late is given up.
    #[must_use]
    pub fn single(profile: &Profile, model: usize) -> Self {
        Self::thresholds(profile, [model; 3], [0; 2])
    }

    fn by(profile: &Profile, rule: Rule) -> Self {
        Self { slo: profile.slo().as_nanos(), least: profile.fastest().as_nanos(), rule }
    }

    /// How far ahead the ends of batches count for [`State::soon`].
    #[must_use]
    pub fn horizon(&self) -> Span {
        match &self.rule {
            Rule::Priced(priced) => priced.tuning().horizon,
            Rule::Greedy(_) | Rule::Thresholds(_) => Span::ZERO,
        }
    }

    /// What prices were made from; nothing of a simple rule.
    #[must_use]
    pub fn tuning(&self) -> Option<&Tuning> {
        match &self.rule {
            Rule::Priced(priced) => Some(priced.tuning()),
            Rule::Greedy(_) | Rule::Thresholds(_) => None,
        }
    }

    /// What a free worker does now. A batch that is started takes at most the slack of its oldest request,
    /// and at most [`State::longest`].
    #[must_use]
    pub fn decide(&self, state: &State<'_>) -> Decision {
        let Some(oldest) = state.oldest() else { return Decision::Wait { until: None } };
        let age = state.now.since(oldest).as_nanos();
        let Some(slack) = self.slo.checked_sub(age).filter(|&slack| slack >= self.least) else {
            return Decision::Refuse;
        };
        let limit = Span::from_nanos(slack.min(state.longest.as_nanos()));
        if state.free == 0 || limit.as_nanos() < self.least {
            return Decision::Wait { until: None };
        }
        match &self.rule {
            Rule::Priced(priced) => priced.decide(state, age, limit),
            Rule::Greedy(greedy) => greedy.decide(state, limit),
            Rule::Thresholds(thresholds) => thresholds.decide(state, limit),
        }
    }
}
