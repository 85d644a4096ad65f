//! What an experiment prints and draws, as it is written.

use serde::Deserialize;

use super::contender::Contender;
use super::quantity::Quantity;

/// What cells differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Dimension {
    System,
    Arrivals,
    X,
    Policy,
}

/// A table: what is in its rows and columns, of `system`, `arrivals`, `x`, `policy`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Table {
    /// Above it.
    pub(super) title: String,
    /// What its cells say.
    pub(super) measure: Quantity,
    /// A row for each.
    pub(super) rows: Dimension,
    /// A column for each.
    pub(super) columns: Dimension,
    /// A table for each.
    pub(super) each: Option<Dimension>,
    /// Instead of the measure itself: by how much this policy is better than the best of the others, and that one's
    /// name.
    pub(super) beside: Option<Contender>,
    /// Others that it does not stand beside.
    #[serde(default)]
    pub(super) without: Vec<Contender>,
    /// Beside which stands how far to trust that: the 95 % confidence interval of the differences run by run.
    #[serde(default)]
    pub(super) interval: bool,
    /// Instead of the measure itself: the largest `x` up to which it is 0.
    #[serde(default)]
    pub(super) up_to: bool,
    /// What is fixed to one of its values.
    #[serde(default)]
    pub(super) at: At,
}

/// A figure: what its series and panels are, of `system`, `arrivals`, `x`, `policy`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Figure {
    /// The file's, without ending.
    pub(super) name: String,
    /// Above it.
    pub(super) title: String,
    /// What is drawn, upwards.
    pub(super) measure: Quantity,
    /// A line, or a bar in each group, for each.
    pub(super) series: Dimension,
    /// A part of the figure for each.
    pub(super) panels: Option<Dimension>,
    /// Bars in a group for each of these, instead of lines over `x`.
    pub(super) groups: Option<Dimension>,
    /// Of clusters and pipelines: lines over the seconds of a run, instead of over `x`.
    #[serde(default)]
    pub(super) over_time: bool,
    /// What is fixed to one of its values.
    #[serde(default)]
    pub(super) at: At,
    /// Vertical lines.
    #[serde(default)]
    pub(super) lines: Vec<Theorem>,
}

/// What is fixed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct At {
    /// A system's name.
    pub(super) system: Option<String>,
    /// The name of arrivals.
    pub(super) arrivals: Option<String>,
    /// One of the values.
    pub(super) x: Option<f64>,
    /// A policy's name.
    pub(super) policy: Option<Contender>,
}

/// A rate that somebody proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Theorem {
    /// The spread-drop paper's, its Theorem 1 for misses in a row, else its Theorem 2.
    Seed,
    /// Theorem B.
    TheoremB,
    /// Theorem A, of what is declared.
    Certified,
}
