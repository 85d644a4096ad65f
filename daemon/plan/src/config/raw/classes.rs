//! Classes of a service's requests as written.

use std::collections::BTreeMap;

use rt_core::Decay;
use serde::Deserialize;

/// A class of requests. What is absent is as of the service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in crate::config) struct RequestClass {
    #[serde(default)]
    pub(in crate::config) name: String,
    #[serde(default = "one")]
    pub(in crate::config) share: f64,
    /// By the name of a model.
    #[serde(default)]
    pub(in crate::config) accuracy: BTreeMap<String, f64>,
    pub(in crate::config) deadline: Option<String>,
    #[serde(default = "one")]
    pub(in crate::config) value: f64,
    #[serde(default, with = "planner::DecayText")]
    pub(in crate::config) decay: Decay,
}

fn one() -> f64 {
    1.0
}
