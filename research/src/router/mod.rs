//! Requests of several classes that a router sends to one of several models, after "Learned Best-Effort LLM Serving" (Jha et
//! al., 2024): the system, who routes, and a router that is trained.
//!
//! Each worker holds all models and runs a step of each that has requests in turn; a step gives each request of its batch one
//! token, so that a request that joins makes all others there slower. A request is in time if its tokens took no longer than
//! its class allows *on average*. Only experiments use it.

mod arrivals;
mod auto;
mod features;
mod planned;
mod play;
mod rivals;
mod tally;
mod train;

use rt_core::{Decay, DecayError};

pub use arrivals::{Arrivals, Coming, Load, MAX_LOAD_PER_S, Mix};
pub use auto::Auto;
pub use planned::Planned;
pub use play::{Ended, Fleet, play};
pub use rivals::{Greedy, Static};
pub use tally::Tally;
pub use train::{Learned, Trained, Training, train};

/// The most models, classes, workers and tokens.
pub const MAX_MODELS: usize = 8;
/// The most classes.
pub const MAX_CLASSES: usize = 16;
/// The most workers.
pub const MAX_WORKERS: usize = 64;
/// The most tokens of a request.
pub const MAX_TOKENS: f64 = 1e5;

/// A model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// What people call it.
    pub name: String,
    /// Milliseconds that a step takes, whatever it holds: above 0, at most 10 000.
    pub step_ms: f64,
    /// Milliseconds more of each request in it: in 0..=10 000.
    pub request_ms: f64,
}

/// A class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// What people call it.
    pub name: String,
    /// Milliseconds for a token, on average: above 0, at most 10 000.
    pub deadline_ms: f64,
    /// How good the answers of each model are, as parts of the best there could be: in 0..=1.
    pub accuracy: Vec<f64>,
}

/// Workers, models, classes, and what a late answer is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// How many workers.
    pub workers: usize,
    /// Tokens of each request: in 1..=[`MAX_TOKENS`].
    pub tokens: f64,
    /// By rising cost.
    pub models: Vec<Model>,
    /// One at least.
    pub classes: Vec<Class>,
    /// What an answer is worth that is late.
    pub decay: Decay,
}

/// Why something is no setting.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} = {value}: must be in {min}..={max}")]
pub struct SettingError {
    /// Which field, such as `classes[1].deadline-ms`.
    pub field: String,
    /// Its value.
    pub value: f64,
    /// The least that it may be.
    pub min: f64,
    /// The most that it may be.
    pub max: f64,
}

impl From<DecayError> for SettingError {
    fn from(error: DecayError) -> Self {
        let DecayError { field, value, min, max } = error;
        Self { field: format!("decay.{field}"), value, min, max }
    }
}

impl Setting {
    /// Whether every value is in its range.
    ///
    /// # Errors
    /// With the first that is not.
    pub fn check(&self) -> Result<(), SettingError> {
        const MS: f64 = 10_000.0;
        within("workers", self.workers as f64, 1.0, MAX_WORKERS as f64)?;
        within("tokens", self.tokens, 1.0, MAX_TOKENS)?;
        within("number of models", self.models.len() as f64, 1.0, MAX_MODELS as f64)?;
        within("number of classes", self.classes.len() as f64, 1.0, MAX_CLASSES as f64)?;
        for (i, model) in self.models.iter().enumerate() {
            within(&format!("models[{i}].step-ms"), model.step_ms, f64::MIN_POSITIVE, MS)?;
            within(&format!("models[{i}].request-ms"), model.request_ms, 0.0, MS)?;
        }
        for (i, class) in self.classes.iter().enumerate() {
            within(&format!("classes[{i}].deadline-ms"), class.deadline_ms, f64::MIN_POSITIVE, MS)?;
            let (count, models) = (class.accuracy.len() as f64, self.models.len() as f64);
            within(&format!("number of classes[{i}].accuracy"), count, models, models)?;
            for &accuracy in &class.accuracy {
                within(&format!("classes[{i}].accuracy"), accuracy, 0.0, 1.0)?;
            }
        }
        Ok(self.decay.check()?)
    }

    /// Milliseconds of a step of `model` with a batch of so many; 0 if none.
    #[must_use]
    pub fn step_ms(&self, model: usize, batch: u32) -> f64 {
        let Model { step_ms, request_ms, .. } = self.models[model];
        if batch == 0 { 0.0 } else { step_ms + request_ms * f64::from(batch) }
    }

    /// Milliseconds of a step of each model that has requests: what every request there waits for a token.
    #[must_use]
    pub fn round_ms(&self, batches: &[u32]) -> f64 {
        batches.iter().enumerate().map(|(model, &batch)| self.step_ms(model, batch)).sum()
    }

    /// The largest batch of `model` that alone on a worker keeps the most lenient deadline: at least 1, at most 4096.
    #[must_use]
    pub fn largest(&self, model: usize) -> u32 {
        let most = self.classes.iter().map(|class| class.deadline_ms).fold(0.0, f64::max);
        (1..=4096).take_while(|&batch| self.step_ms(model, batch) <= most).last().unwrap_or(1)
    }

    /// What an answer of `model` to `class` is worth that took so long for a token, as a part of the best there could be.
    #[must_use]
    pub fn worth(&self, class: usize, model: usize, token_ms: f64) -> f64 {
        let Class { deadline_ms, accuracy, .. } = &self.classes[class];
        accuracy[model] * self.decay.part(token_ms, *deadline_ms)
    }
}

fn within(field: &str, value: f64, min: f64, max: f64) -> Result<(), SettingError> {
    // No number is in no range.
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(SettingError { field: field.to_owned(), value, min, max })
    }
}

/// What a router sees of a request that has come.
#[derive(Debug)]
pub struct View<'a> {
    /// Its class.
    pub class: usize,
    /// Requests a second: as they are, or as the last five tell.
    pub rate: f64,
    /// The workers at this instant.
    pub fleet: &'a Fleet<'a>,
}

/// Says which model answers a request; the worker is the one with the smallest batch of that model.
pub trait Router: Send {
    /// Its place in the list of models.
    fn route(&mut self, view: &View<'_>) -> usize;
}

#[cfg(test)]
mod tests;
