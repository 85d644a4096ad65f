//! What a late answer keeps of its worth, as files write it.

use rt_core::Decay;
use serde::Deserialize;

/// For `#[serde(with = "planner::DecayText")]`: `"hard"`, or a table of one of the others. Whether its values are in their ranges
/// [`Decay::check`] tells.
#[derive(Deserialize)]
#[serde(remote = "Decay", deny_unknown_fields, rename_all = "kebab-case")]
pub enum DecayText {
    /// See [`Decay::Hard`].
    Hard,
    /// See [`Decay::Linear`].
    #[serde(rename_all = "kebab-case")]
    Linear {
        /// In 0..=1.
        per_ms: f64,
        /// In 0..=100.
        cutoff: f64,
    },
    /// See [`Decay::Step`].
    #[serde(rename_all = "kebab-case")]
    Step {
        /// In 0..=1.
        part: f64,
        /// In 0..=100.
        cutoff: f64,
    },
    /// See [`Decay::Points`].
    Points(Vec<(f64, f64)>),
}
