//! What is known of the models: how accurate each one is and how long a batch takes, checked.

use rt_core::Span;

/// The most models of a profile.
pub const MAX_MODELS: usize = 64;
/// The most batch sizes of a model.
pub const MAX_BATCH: usize = 128;
/// The longest service level objective, one minute.
pub const MAX_SLO: Span = Span::from_millis(60_000);

/// One model on one kind of worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The share of its answers that are right, in 0..=1.
    pub accuracy: f64,
    /// The time of a batch of 1, 2, 3...: positive, not decreasing, 1 to [`MAX_BATCH`] of them.
    pub latencies: Vec<Span>,
}

/// Models and the deadline that they serve, with every value in its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    slo: Span,
    models: Vec<Model>,
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
    /// No batch size, or more than [`MAX_BATCH`].
    #[error("models[{model}].latencies = {count} entries: must be 1 to {MAX_BATCH}")]
    Batches {
        /// Which model, from 0.
        model: usize,
        /// How many there are.
        count: usize,
    },
    /// Zero, or below the latency of a smaller batch.
    #[error("models[{model}].latencies[{index}] = {value}: must be above 0 and at least {least}")]
    Latency {
        /// Which model, from 0.
        model: usize,
        /// Which entry: the batch size less one.
        index: usize,
        /// The latency.
        value: Span,
        /// The latency of the batch before, or zero.
        least: Span,
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
    pub fn new(slo: Span, models: Vec<Model>) -> Result<Self, ProfileError> {
        if slo == Span::ZERO || slo > MAX_SLO {
            return Err(ProfileError::Slo(slo));
        }
        if models.is_empty() || models.len() > MAX_MODELS {
            return Err(ProfileError::Models(models.len()));
        }
        for (model, one) in models.iter().enumerate() {
            check(model, one)?;
        }
        let fastest = models.iter().map(|m| m.latencies[0]).min().unwrap_or(slo);
        if fastest > slo { Err(ProfileError::Hopeless { fastest, slo }) } else { Ok(Self { slo, models }) }
    }

    /// From arrival to answer.
    #[must_use]
    pub fn slo(&self) -> Span {
        self.slo
    }

    /// The models, at least one.
    #[must_use]
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// The time of `batch` requests on `model`; `None` if there is no such model or batch size.
    #[must_use]
    pub fn latency(&self, model: usize, batch: usize) -> Option<Span> {
        self.models.get(model)?.latencies.get(batch.checked_sub(1)?).copied()
    }

    /// The largest batch that some model answers within the objective, at least 1.
    #[must_use]
    pub fn largest_batch(&self) -> usize {
        self.models.iter().map(|m| m.latencies.partition_point(|&l| l <= self.slo)).max().unwrap_or(1)
    }

    /// Every `(model, batch, latency)` that takes at most `limit`.
    pub(super) fn within(&self, limit: Span) -> impl Iterator<Item = (usize, usize, Span)> + '_ {
        self.models.iter().enumerate().flat_map(move |(model, one)| {
            let fit = one.latencies.iter().enumerate().take_while(move |&(_, &latency)| latency <= limit);
            fit.map(move |(index, &latency)| (model, index + 1, latency))
        })
    }
}

fn check(model: usize, one: &Model) -> Result<(), ProfileError> {
    if !(0.0..=1.0).contains(&one.accuracy) {
        return Err(ProfileError::Accuracy { model, value: one.accuracy });
    }
    let count = one.latencies.len();
    if count == 0 || count > MAX_BATCH {
        return Err(ProfileError::Batches { model, count });
    }
    let mut least = Span::ZERO;
    for (index, &value) in one.latencies.iter().enumerate() {
        if value == Span::ZERO || value < least {
            return Err(ProfileError::Latency { model, index, value, least });
        }
        least = value;
    }
    Ok(())
}
