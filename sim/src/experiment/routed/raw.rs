//! A router of an experiment as it is written.

use research::router::{Class, Decay, Load, Model, Setting, Training};
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
    #[serde(default)]
    decay: RawDecay,
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

/// See [`Decay`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum RawDecay {
    #[default]
    Hard,
    #[serde(rename_all = "kebab-case")]
    Linear {
        per_ms: f64,
        cutoff: f64,
    },
    #[serde(rename_all = "kebab-case")]
    Step {
        part: f64,
        cutoff: f64,
    },
    Points(Vec<(f64, f64)>),
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
        let decay = match self.decay.clone() {
            RawDecay::Hard => Decay::Hard,
            RawDecay::Linear { per_ms, cutoff } => Decay::Linear { per_ms, cutoff },
            RawDecay::Step { part, cutoff } => Decay::Step { part, cutoff },
            RawDecay::Points(points) => Decay::Points(points),
        };
        Setting {
            workers: self.workers,
            tokens: self.tokens,
            models: self.models.iter().map(model).collect(),
            classes: self.classes.iter().map(class).collect(),
            decay,
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
