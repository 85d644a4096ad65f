//! Figures as SVG text: curves with confidence intervals in small multiples, grouped bars, and maps of cells.
//!
//! A figure is 800 px wide, on white, in the viewer's sans-serif font; it is higher the more it holds. The same
//! figure is always the same text. Series are told apart by colour, marker and dash, up to 21 of them. Values that
//! are not finite, or beyond ±1e200, are left out, and a curve is interrupted there.

mod bars;
mod canvas;
mod cells;
mod line;
mod range;

use crate::statistics::Estimate;

/// Curves over a common pair of axes, in one panel or several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Above everything; may be empty, as every text here.
    pub title: String,
    /// What the axis to the right shows, with its unit.
    pub x: String,
    /// What the upright axis shows, with its unit.
    pub y: String,
    /// Whether the upright axis is logarithmic. Then values that are not positive are left out.
    pub log_y: bool,
    /// Side by side, three in a row at most. They share axes and legend: series of one name look the same.
    pub panels: Vec<Panel>,
}

/// One plot of a [`Figure`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// Above the plot.
    pub title: String,
    /// The curves, the first below the others. No two have the same name.
    pub series: Vec<Series>,
    /// Upright lines of reference.
    pub lines: Vec<Line>,
}

/// A curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Joined in this order. Of many that lie close together only some are marked.
    pub points: Vec<Point>,
}

/// A place on a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// Half the width of the confidence interval around `y`, drawn as a bar unless 0.
    pub spread: Option<f64>,
}

/// An upright line of reference: a rate that a theorem names, say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Where it crosses the axis.
    pub at: f64,
    /// What is written at its upper end, cut if it is wider than what is left of the panel beside the line.
    pub label: String,
    /// Whether it is dashed.
    pub dashed: bool,
}

/// Bars in groups, from 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Above everything.
    pub title: String,
    /// What the bars show, with its unit.
    pub y: String,
    /// What is written below each group.
    pub groups: Vec<String>,
    /// The bars of a group, from left to right.
    pub series: Vec<BarSeries>,
}

/// One bar of every group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarSeries {
    /// Its name in the legend.
    pub name: String,
    /// A bar for each group, in their order; missing ones are left out.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Where it ends.
    pub y: f64,
    /// Half the width of the confidence interval around `y`, drawn as a bar unless 0.
    pub spread: Option<f64>,
}

/// A map of cells, each in the colour of a name: a policy over what it depends on, say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cells {
    /// Above everything.
    pub title: String,
    /// What the axis to the right shows, with its unit; it starts at 0.
    pub x: String,
    /// How wide a cell is on it, above 0.
    pub width: f64,
    /// What the upright axis counts: rows from 1.
    pub y: String,
    /// The names in the legend.
    pub names: Vec<String>,
    /// From below, which of the names each cell has, from left to right; others are left white.
    pub rows: Vec<Vec<usize>>,
}

impl Point {
    /// Without an interval.
    #[must_use]
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y, spread: None }
    }

    /// The mean of `y`, with its confidence interval.
    #[must_use]
    pub const fn estimated(x: f64, y: Estimate) -> Self {
        Self { x, y: y.mean, spread: Some(y.half_width) }
    }
}

impl From<Estimate> for Bar {
    fn from(estimate: Estimate) -> Self {
        Self { y: estimate.mean, spread: Some(estimate.half_width) }
    }
}

/// The ends of the interval around `y`, if there is one to be drawn. Around what is not negative it ends at 0, for
/// shares, counts and times are never less.
fn interval(y: f64, spread: Option<f64>) -> Option<(f64, f64)> {
    let least = if y >= 0.0 { 0.0 } else { f64::NEG_INFINITY };
    let ends = |spread: f64| ((y - spread).max(least), y + spread);
    spread.filter(|&spread| spread > 0.0 && range::drawable(spread) && range::drawable(y)).map(ends)
}

#[cfg(test)]
mod tests;
