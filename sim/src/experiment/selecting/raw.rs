//! A service of variants and classes as an experiment has it written.

use planner::selection::{Class, Inputs};
use rt_core::{ClassWorth, Decay, LatencyProfile, Span, Variant};
use serde::Deserialize;

use super::{ExperimentError, refuse};
use crate::experiment::value::{Positive, Share, Time};

/// As it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::experiment) struct Raw {
    /// How many workers.
    workers: usize,
    /// From arrival to answer; no class has a longer one.
    deadline: Time,
    /// The largest batch.
    batch: usize,
    /// By rising accuracy, the first of them the base.
    models: Vec<Model>,
    classes: Vec<RawClass>,
}

/// A variant, and how long batches of 1, 2, … take.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Model {
    /// What people call it.
    #[serde(rename = "name")]
    _name: String,
    times: Vec<Time>,
}

/// A class of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawClass {
    /// What people call it.
    #[serde(rename = "name")]
    _name: String,
    /// How many of all requests are of it, in parts of the sum of all classes.
    share: Positive,
    /// How many come, if that is another share than selectors are made for.
    coming: Option<Positive>,
    /// Of each model.
    accuracy: Vec<Share>,
    /// What a right answer in time counts.
    value: Option<Positive>,
    /// From arrival to answer; that of all if absent.
    deadline: Option<Time>,
    /// What a late answer keeps.
    #[serde(default, with = "planner::DecayText")]
    decay: Decay,
}

impl Raw {
    /// What selectors are made for: a variant is as accurate as over all requests.
    pub(super) fn inputs(&self, field: &impl Fn(&str) -> String) -> Result<Inputs, ExperimentError> {
        for (i, class) in self.classes.iter().enumerate() {
            if class.accuracy.len() != self.models.len() {
                let field = field(&format!("selecting.classes[{i}].accuracy"));
                let wanted = format!("must be {} values, one for each model", self.models.len());
                return Err(refuse(field, class.accuracy.len(), wanted));
            }
        }
        let all: f64 = self.classes.iter().map(|class| class.share.0).sum();
        let variant = |(i, model): (usize, &Model)| {
            let times: Vec<Span> = model.times.iter().map(|time| time.0).collect();
            let profile = LatencyProfile::new(&times)
                .map_err(|error| refuse(field(&format!("selecting.models[{i}].times")), "", error))?;
            let right =
                self.classes.iter().map(|class| class.share.0 / all * class.accuracy[i].0).sum::<f64>();
            Ok(Variant { profile, accuracy: right.min(1.0) })
        };
        let class = |class: &RawClass| Class {
            share: class.share.0,
            worth: ClassWorth {
                worth: class
                    .accuracy
                    .iter()
                    .map(|of| of.0 * class.value.map_or(1.0, |value| value.0))
                    .collect(),
                deadline: class.deadline.unwrap_or(self.deadline).0,
                decay: class.decay.clone(),
            },
        };
        Ok(Inputs {
            variants: self.models.iter().enumerate().map(variant).collect::<Result<_, ExperimentError>>()?,
            latency: self.deadline.0,
            workers: self.workers,
            batch: self.batch,
            max_miss: planner::selection::DEFAULT_MAX_MISS,
            classes: self.classes.iter().map(class).collect(),
        })
    }

    /// The shares of the classes that come.
    pub(super) fn coming(&self) -> impl Iterator<Item = f64> {
        self.classes.iter().map(|class| class.coming.unwrap_or(class.share).0)
    }
}
