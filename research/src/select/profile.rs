//! What is known of the models: how accurate each one is and how long a batch takes, checked.

use rt_core::{Span, Variant};

/// The most models of a profile.
pub const MAX_MODELS: usize = 64;
/// The longest service level objective, one minute.
pub const MAX_SLO: Span = Span::from_millis(60_000);

/// Models and the deadline that they serve, with every value in its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    slo: Span,
    models: Vec<Variant>,
}

/// Why something is no profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// Outside `(0, MAX_SLO]`.
    #[error("slo = {0}: must be above 0 and at most {MAX_SLO}")]
    Slo(Span),
    /// No model, or more than [`MAX_MODELS`].
    #[error("models = {0} entries: must be 1 to {MAX_MODELS}")]
    Models(usize),
    /// No share.
    #[error("models[{model}].accuracy = {value}: must be in 0..=1")]
    Accuracy {
        /// Which model, from 0.
        model: usize,
        /// Its accuracy.
        value: f64,
    },
    /// No model answers a single request within the objective.
    #[error("models[..].latencies[0] = {fastest} at least: one must be at most slo = {slo}")]
    Hopeless {
        /// The least latency of all.
        fastest: Span,
        /// The objective.
        slo: Span,
    },
}

impl Profile {
    /// Models that serve requests within `slo` of their arrival.
    ///
    /// # Errors
    /// [`ProfileError`] for the first value that is outside its range.
    pub fn new(slo: Span, models: Vec<Variant>) -> Result<Self, ProfileError> {
        if slo == Span::ZERO || slo > MAX_SLO {
            return Err(ProfileError::Slo(slo));
        }
        if models.is_empty() || models.len() > MAX_MODELS {
            return Err(ProfileError::Models(models.len()));
        }
        for (model, &Variant { accuracy: value, .. }) in models.iter().enumerate() {
            if !(0.0..=1.0).contains(&value) {
                return Err(ProfileError::Accuracy { model, value });
            }
        }
        let profile = Self { slo, models };
        let fastest = profile.fastest();
        if fastest > slo { Err(ProfileError::Hopeless { fastest, slo }) } else { Ok(profile) }
    }

    /// From arrival to answer.
    #[must_use]
    pub fn slo(&self) -> Span {
        self.slo
    }

    /// The models, at least one.
    #[must_use]
    pub fn models(&self) -> &[Variant] {
        &self.models
    }

    /// The most requests a second that a worker can serve, in batches that take no longer than the objective.
    #[must_use]
    pub fn quickest(&self) -> f64 {
        self.within(self.slo).map(|(_, batch, time)| batch as f64 / time.as_secs_f64()).fold(0.0, f64::max)
    }

    /// The least time of all, at most the objective.
    pub(super) fn fastest(&self) -> Span {
        self.models.iter().map(|m| m.profile.bound(1)).min().unwrap_or(self.slo)
    }

    /// The largest batch that some model answers within the objective, at least 1.
    #[must_use]
    pub fn largest_batch(&self) -> usize {
        let largest = |m: &Variant| m.profile.largest_within(self.slo, m.profile.max_batch());
        self.models.iter().map(largest).max().unwrap_or(1)
    }

    /// Every `(model, batch, latency)` that takes at most `limit`.
    pub(super) fn within(&self, limit: Span) -> impl Iterator<Item = (usize, usize, Span)> + '_ {
        self.models.iter().enumerate().flat_map(move |(model, one)| {
            let all =
                (1..=one.profile.max_batch()).map(move |batch| (model, batch, one.profile.bound(batch)));
            all.take_while(move |&(_, _, latency)| latency <= limit)
        })
    }
}
