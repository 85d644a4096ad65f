//! What an experiment prints and draws, as it is written.

use serde::Deserialize;

/// A table: what is in its rows and columns, of `system`, `arrivals`, `x`, `policy`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    /// Above it.
    pub title: String,
    /// What its cells say.
    pub measure: String,
    /// A row for each.
    pub rows: String,
    /// A column for each.
    pub columns: String,
    /// A table for each.
    pub each: Option<String>,
    /// Instead of the measure itself: by how much this policy is better than the best of the others, and that one's
    /// name.
    pub beside: Option<String>,
    /// Instead of the measure itself: the largest `x` up to which it is 0.
    #[serde(default)]
    pub up_to: bool,
    /// What is fixed to one of its values.
    #[serde(default)]
    pub at: At,
}

/// A figure: what its series and panels are, of `system`, `arrivals`, `x`, `policy`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    /// The file's, without ending.
    pub name: String,
    /// Above it.
    pub title: String,
    /// What is drawn, upwards.
    pub measure: String,
    /// A line, or a bar in each group, for each.
    pub series: String,
    /// A part of the figure for each.
    pub panels: Option<String>,
    /// Bars in a group for each of these, instead of lines over `x`.
    pub groups: Option<String>,
    /// What is fixed to one of its values.
    #[serde(default)]
    pub at: At,
    /// Vertical lines.
    #[serde(default)]
    pub lines: Vec<Theorem>,
}

/// What is fixed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct At {
    /// A system's name.
    pub system: Option<String>,
    /// The name of arrivals.
    pub arrivals: Option<String>,
    /// One of the values.
    pub x: Option<f64>,
    /// A policy's name.
    pub policy: Option<String>,
}

/// A rate that somebody proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Theorem {
    /// The spread-drop paper's, its Theorem 1 for misses in a row, else its Theorem 2.
    Seed,
    /// Theorem B.
    TheoremB,
    /// Theorem A, of what is declared.
    Certified,
}
