//! What a run of a router comes to.

use super::{Ended, Setting};

/// What became of requests, each by its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// What each answer was worth, in 0..=1.
    pub worth: Vec<f64>,
    /// How many were late.
    pub late: u64,
    /// How many of each class went to each model.
    pub routed: Vec<Vec<u64>>,
}

impl Tally {
    /// Before `requests` requests.
    #[must_use]
    pub fn new(setting: &Setting, requests: usize) -> Self {
        let routed = vec![vec![0; setting.models.len()]; setting.classes.len()];
        Self { worth: vec![0.0; requests], late: 0, routed }
    }

    /// One of them ended.
    pub fn ended(&mut self, setting: &Setting, end: Ended) {
        self.worth[end.request] = setting.worth(end.class, end.model, end.token_ms);
        self.late += u64::from(end.token_ms > setting.classes[end.class].deadline_ms);
        self.routed[end.class][end.model] += 1;
    }

    /// The mean worth: 1 if all were answered in time by a model that is best for them.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.worth.iter().sum::<f64>() / self.worth.len() as f64
    }

    /// The share of requests that were late.
    #[must_use]
    pub fn misses(&self) -> f64 {
        self.late as f64 / self.worth.len() as f64
    }

    /// The share of windows of 20 requests in a row whose mean worth is at least `least`. NaN of fewer requests.
    #[must_use]
    pub fn windows(&self, least: f64) -> f64 {
        const WINDOW: usize = 20;
        let windows = self.worth.windows(WINDOW);
        let count = windows.len() as f64;
        // Whole windows of the best are not to be lost to rounding.
        windows.filter(|window| window.iter().sum::<f64>() / WINDOW as f64 >= least - 1e-9).count() as f64
            / count
    }

    /// Of the requests of `class` the share that went to `model`. NaN if none came, or there is none such.
    #[must_use]
    pub fn routed(&self, class: usize, model: usize) -> f64 {
        let Some(row) = self.routed.get(class) else { return f64::NAN };
        row.get(model).map_or(f64::NAN, |&count| count as f64 / row.iter().sum::<u64>() as f64)
    }
}
