//! What the daemon goes by while it looks for better placements: how demand is taken, and what a plan must gain.

use rt_core::Span;

use super::check::{Check, Refused};
use super::{Config, DaemonConfig, Mode, raw};

/// What of an observation is left in Loki's released program after each further one, as a centre of mass: 1.6.
const LOKI: f64 = 1.0 / 2.6;

/// Fields of `[placement]` that only the daemon's controller reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerConfig {
    pub estimator: Estimator,
    /// Arrivals are counted over so long.
    pub window: Span,
    /// Points of accuracy that a plan must gain, unless what is served cannot do what is expected of it.
    pub hysteresis: f64,
    /// A worker that is lost for so long is lost for good.
    pub lost_after: Span,
}

/// What is expected of a service's demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimator {
    /// The mean over the last period, as Proteus has it.
    Mean,
    /// An exponentially weighted moving average of the windows, as Loki has it: the newest counts by `weight`.
    Ewma { weight: f64 },
}

/// One of them, as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EstimatorName {
    #[default]
    Mean,
    Ewma,
}

impl Config {
    /// The same, to be served, made of a file of this SHA-256.
    #[must_use]
    pub(crate) fn made_of(self, of_file: String) -> Self {
        Self { of_file, ..self }
    }
}

impl Check<'_> {
    pub(super) fn controller(
        &self,
        raw: &raw::Placement,
        daemon: Option<&DaemonConfig>,
    ) -> Result<ControllerConfig, Refused> {
        let window = self.span("placement.window", &raw.window, Span::from_millis(50));
        let lost_after = self.span("placement.lost-after", &raw.lost_after, Span::from_millis(100));
        let hysteresis = self.real("placement.hysteresis", raw.hysteresis, (0.0, 100.0));
        let weight = self.real("placement.smoothing", raw.smoothing.unwrap_or(LOKI), (0.01, 1.0));
        if let (EstimatorName::Mean, Some(smoothing)) = (raw.estimator, raw.smoothing) {
            let reason = "only with estimator = \"ewma\"; remove it";
            return Err(self.refuse("placement.smoothing", &smoothing.to_string(), reason));
        }
        if let (Mode::Follow, Some(certificate)) =
            (raw.mode, daemon.and_then(|daemon| daemon.certificate.as_ref()))
        {
            let reason =
                "is of one placement, and placement.mode = \"follow\" serves others: remove one of them";
            return Err(self.refuse("daemon.certificate", &certificate.display().to_string(), reason));
        }
        let estimator = match (raw.estimator, weight?) {
            (EstimatorName::Mean, _) => Estimator::Mean,
            (EstimatorName::Ewma, weight) => Estimator::Ewma { weight },
        };
        Ok(ControllerConfig { estimator, window: window?, hysteresis: hysteresis?, lost_after: lost_after? })
    }
}
