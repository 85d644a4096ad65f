//! A router of an experiment as it is written.

use research::router::{Class, Load, Model, Setting, Training};
use rt_core::Decay;
use serde::Deserialize;

use crate::experiment::value::Time;

/// As it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::experiment) struct Raw {
    /// How many workers.
    workers: usize,
    /// Of each request.
    tokens: f64,
    /// By rising cost.
    models: Vec<RawModel>,
    classes: Vec<RawClass>,
    /// What a late answer is worth.
    #[serde(default, with = "planner::DecayText")]
    decay: Decay,
    /// The share of each class; the same of all if absent.
    pub(super) mix: Option<Vec<f64>>,
    /// From which part of a run on there are other shares, and those.
    pub(super) shift: Option<(f64, Vec<f64>)>,
    /// The widths of the hidden layers of what is trained.
    #[serde(default = "hidden")]
    pub(super) hidden: Vec<usize>,
    /// Episodes that it is trained for at most.
    #[serde(default = "episodes")]
    pub(super) episodes: usize,
    /// How often, each time from another seed; the one that does best where it is tried is kept.
    #[serde(default = "once")]
    pub(super) restarts: u64,
}

fn hidden() -> Vec<usize> {
    Training::default().hidden
}

fn once() -> u64 {
    1
}

fn episodes() -> usize {
    Training::default().episodes
}

/// A model, and how long a step of it takes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawModel {
    name: String,
    /// Whatever it holds.
    step: Time,
    /// More, for each request in it.
    request: Time,
}

/// A class of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawClass {
    name: String,
    /// For a token, on average.
    deadline: Time,
    /// Of each model, as a part of the best there could be.
    accuracy: Vec<f64>,
}

/// A rate that is drawn anew now and then; one of `requests` and `seconds`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::experiment) struct Redrawn {
    /// Shares of the draws, and the least and the largest rate, uniform between.
    ranges: Vec<(f64, f64, f64)>,
    /// How many requests come at a rate on average.
    #[serde(default)]
    requests: f64,
    /// Or how long it lasts on average.
    #[serde(default)]
    seconds: f64,
}

impl Raw {
    /// As it is written, whether it is sound or not.
    pub(super) fn setting(&self) -> Setting {
        let ms = |time: Time| time.0.as_nanos() as f64 / 1e6;
        let model = |raw: &RawModel| Model {
            name: raw.name.clone(),
            step_ms: ms(raw.step),
            request_ms: ms(raw.request),
        };
        let class = |raw: &RawClass| Class {
            name: raw.name.clone(),
            deadline_ms: ms(raw.deadline),
            accuracy: raw.accuracy.clone(),
        };
        Setting {
            workers: self.workers,
            tokens: self.tokens,
            models: self.models.iter().map(model).collect(),
            classes: self.classes.iter().map(class).collect(),
            decay: self.decay.clone(),
        }
    }
}

impl Redrawn {
    /// As often as much as it says.
    pub(in crate::experiment) fn load(&self, factor: f64) -> Load {
        let range = |&(share, low, high): &(f64, f64, f64)| (share, low * factor, high * factor);
        let ranges = self.ranges.iter().map(range).collect();
        Load::Redrawn { ranges, requests: self.requests, seconds: self.seconds }
    }
}
