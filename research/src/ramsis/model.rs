//! Models to choose from: how accurate each is and how long a batch takes, and which of them are worth having.

use std::collections::HashSet;

use rt_core::{LatencyProfile, MAX_SPAN, Span};
use serde::{Deserialize, Serialize};

use super::RamsisError;
use super::error::{refuse, within};

/// The most models.
pub const MAX_MODELS: usize = 256;
/// The most batch sizes of a model.
pub const MAX_LATENCIES: usize = 65;
/// The longest name, in bytes.
const MAX_NAME: usize = 256;

/// A model with its profiles (section 3.1.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its name, 1 to 256 bytes, unlike that of the others.
    pub name: String,
    /// The share of its answers that are right, 0 to 1.
    pub accuracy: f64,
    /// Nanoseconds that a batch of 1, 2, … takes: above 0, at most an hour, never less for a larger batch, at most
    /// [`MAX_LATENCIES`] of them. Fractions count: a measured percentile need not be whole.
    pub latencies: Vec<f64>,
}

impl Model {
    /// A model that takes as long as `profile` says.
    ///
    /// # Errors
    /// As [`Model::check`].
    pub fn of_profile(name: &str, accuracy: f64, profile: &LatencyProfile) -> Result<Self, RamsisError> {
        let latency = |batch| profile.bound(batch).as_nanos() as f64;
        let made = Self {
            name: name.to_owned(),
            accuracy,
            latencies: (1..=profile.max_batch()).map(latency).collect(),
        };
        made.check("model").map(|()| made)
    }

    /// A model from what was measured, in nanoseconds for a batch of 1, 2, ….
    ///
    /// # Errors
    /// As [`Model::check`], or if a batch size was not measured.
    pub fn of_measured(name: &str, accuracy: f64, measured: &[Option<f64>]) -> Result<Self, RamsisError> {
        let one = |(i, value): (usize, &Option<f64>)| {
            value.ok_or_else(|| {
                refuse(format!("latencies[{i}]"), "(none)", "every batch size must be measured")
            })
        };
        let latencies = measured.iter().enumerate().map(one).collect::<Result<_, _>>()?;
        let made = Self { name: name.to_owned(), accuracy, latencies };
        made.check("model").map(|()| made)
    }

    /// Checks every value; `field` is what errors call it.
    ///
    /// # Errors
    /// [`RamsisError::Value`] for the first that is outside its range.
    pub fn check(&self, field: &str) -> Result<(), RamsisError> {
        let length = self.name.len();
        within(format!("length of {field}.name"), length as f64, 1.0, MAX_NAME as f64)?;
        within(format!("{field}.accuracy"), self.accuracy, 0.0, 1.0)?;
        let count = self.latencies.len();
        within(format!("length of {field}.latencies"), count as f64, 1.0, MAX_LATENCIES as f64)?;
        let mut before = 0.0;
        for (i, &latency) in self.latencies.iter().enumerate() {
            let field = format!("{field}.latencies[{i}]");
            within(&field, latency, f64::MIN_POSITIVE, MAX_SPAN.as_nanos() as f64)?;
            if latency < before {
                return Err(refuse(
                    field,
                    latency,
                    format!("must be at least {before}, that of a smaller batch"),
                ));
            }
            before = latency;
        }
        Ok(())
    }

    /// The time of a batch in nanoseconds; a batch outside the profile is read as the nearest inside.
    pub(super) fn latency(&self, batch: usize) -> f64 {
        self.latencies[batch.clamp(1, self.latencies.len()) - 1]
    }
}

/// Checks each of `models`, that their names differ, and that there are 1 to [`MAX_MODELS`] with at least
/// `batches` batch sizes each.
pub(super) fn check(models: &[Model], batches: usize) -> Result<(), RamsisError> {
    within("length of models", models.len() as f64, 1.0, MAX_MODELS as f64)?;
    let mut names = HashSet::new();
    for (i, model) in models.iter().enumerate() {
        let field = format!("models[{i}]");
        model.check(&field)?;
        if !names.insert(&model.name) {
            return Err(refuse(format!("{field}.name"), &model.name, "is taken already"));
        }
        let count = model.latencies.len();
        within(format!("length of {field}.latencies"), count as f64, batches as f64, MAX_LATENCIES as f64)?;
    }
    Ok(())
}

/// The models that no other makes useless, fastest first (section 4.3.3): no other is at least as accurate and
/// takes no longer for any batch of up to `batches` ≥ 1. Of equals the first stays.
///
/// The paper looks at one time per model (its figure 3), which is `batches` = 1.
#[must_use]
pub fn pareto(models: &[Model], batches: usize) -> Vec<Model> {
    let no_better = |a: &Model, b: &Model| {
        a.accuracy <= b.accuracy && (1..=batches.max(1)).all(|batch| a.latency(batch) >= b.latency(batch))
    };
    let kept = |&(i, model): &(usize, &Model)| {
        !models
            .iter()
            .enumerate()
            .any(|(j, other)| i != j && no_better(model, other) && (j < i || !no_better(other, model)))
    };
    let mut left: Vec<_> = models.iter().enumerate().filter(kept).map(|(_, model)| model.clone()).collect();
    left.sort_by(|a, b| a.latency(1).total_cmp(&b.latency(1)).then(a.accuracy.total_cmp(&b.accuracy)));
    left
}

/// The time of `model` for one request, for errors.
pub(super) fn span(latency: f64) -> Span {
    Span::from_nanos(latency as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, accuracy: f64, latencies: &[f64]) -> Model {
        Model { name: name.to_owned(), accuracy, latencies: latencies.to_vec() }
    }

    #[test]
    fn dominated_models_go_and_the_first_of_equals_stays() {
        let all = [
            model("slow", 0.9, &[9.0, 9.0]),
            model("useless", 0.4, &[5.0, 9.0]),
            model("fast", 0.5, &[5.0, 6.0]),
            model("again", 0.9, &[9.0, 9.0]),
            model("wide", 0.45, &[6.0, 6.0]),
            model("steep", 0.7, &[5.0, 7.0]),
        ];
        let names = |batches| pareto(&all, batches).into_iter().map(|m| m.name).collect::<Vec<_>>();
        assert_eq!(names(1), ["steep", "slow"]);
        assert_eq!(names(2), ["fast", "steep", "slow"]);
    }

    #[test]
    fn refusals_name_field_value_and_limit() {
        let refusal = |model: Model| check(&[model], 2).expect_err("refused").to_string();
        assert_eq!(refusal(model("a", 1.5, &[1.0])), "models[0].accuracy = 1.5: must be 0 to 1");
        assert_eq!(refusal(model("a", f64::NAN, &[1.0])), "models[0].accuracy = NaN: must be 0 to 1");
        assert_eq!(
            refusal(model("a", 1.0, &[2.0, 1.0])),
            "models[0].latencies[1] = 1: must be at least 2, that of a smaller batch"
        );
        assert_eq!(
            refusal(model("a", 1.0, &[0.0])),
            "models[0].latencies[0] = 0: must be above 0 and at most 3600000000000"
        );
        assert_eq!(refusal(model("a", 1.0, &[2.0])), "length of models[0].latencies = 1: must be 2 to 65");
        assert_eq!(refusal(model("", 1.0, &[2.0])), "length of models[0].name = 0: must be 1 to 256");
        let twice = [model("a", 1.0, &[2.0]), model("a", 0.5, &[1.0])];
        assert_eq!(check(&twice, 1).expect_err("twice").to_string(), "models[1].name = a: is taken already");
        let hole = Model::of_measured("a", 0.5, &[Some(1.0), None]).expect_err("a hole").to_string();
        assert_eq!(hole, "latencies[1] = (none): every batch size must be measured");
    }
}
