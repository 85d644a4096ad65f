//! What may be placed where, as written: classes of devices, and simulated models among which to choose.

use std::collections::BTreeMap;

use serde::Deserialize;
use weir_engine::EngineKind;

use super::super::Mode;
use super::super::controller::EstimatorName;
use super::{Gpu, Remote, Service, SimulatedTime, Stage};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(in super::super) struct Placement {
    pub(in super::super) mode: Mode,
    pub(in super::super) period: String,
    pub(in super::super) budget: u64,
    pub(in super::super) limit: String,
    pub(in super::super) headroom: f64,
    pub(in super::super) estimator: EstimatorName,
    pub(in super::super) smoothing: Option<f64>,
    pub(in super::super) window: String,
    pub(in super::super) hysteresis: f64,
    pub(in super::super) lost_after: String,
    pub(in super::super) class: Vec<Class>,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            period: "30s".into(),
            budget: 2,
            limit: "2s".into(),
            headroom: 1.1,
            estimator: EstimatorName::Mean,
            smoothing: None,
            window: "1s".into(),
            hysteresis: 0.5,
            lost_after: "15s".into(),
            class: Vec::new(),
        }
    }
}

/// Devices that are equal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(in super::super) struct Class {
    pub(in super::super) name: String,
    pub(in super::super) engine: EngineKind,
    pub(in super::super) gpu: Option<Gpu>,
    pub(in super::super) cores: Vec<u64>,
    pub(in super::super) count: Option<u64>,
    /// Servers elsewhere that compute.
    pub(in super::super) remote: Option<Remote>,
    pub(in super::super) memory: Option<u64>,
    pub(in super::super) shared: bool,
}

impl Default for Class {
    fn default() -> Self {
        let (name, engine) = (String::new(), EngineKind::Tract);
        Self {
            name,
            engine,
            gpu: None,
            cores: Vec::new(),
            count: None,
            remote: None,
            memory: None,
            shared: false,
        }
    }
}

/// A simulated model, and how long its batches are waited out on the classes that run it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(in super::super) struct SimulatedCandidate {
    pub(in super::super) accuracy: f64,
    pub(in super::super) times: BTreeMap<String, Vec<SimulatedTime>>,
}

impl Stage {
    /// Whether it says among which models to choose.
    pub(in super::super) fn has_candidates(&self) -> bool {
        self.models.is_some() || self.simulated.as_ref().is_some_and(|simulated| !simulated.models.is_empty())
    }

    /// Whether none of them has been chosen.
    pub(in super::super) fn is_open(&self) -> bool {
        self.has_candidates()
            && self.model.is_none()
            && self.simulated.as_ref().is_none_or(|simulated| simulated.times.is_empty())
    }
}

impl Service {
    /// Whether it says among which models to choose.
    pub(in super::super) fn has_candidates(&self) -> bool {
        self.models.is_some() || self.simulated.as_ref().is_some_and(|simulated| !simulated.models.is_empty())
    }

    /// Whether none of them has been chosen.
    pub(in super::super) fn is_open(&self) -> bool {
        self.has_candidates()
            && self.model.is_none()
            && self.simulated.as_ref().is_none_or(|simulated| simulated.times.is_empty())
    }
}
