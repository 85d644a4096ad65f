//! Tables of an experiment, in Markdown, and what rows, columns, series and panels can be.

use std::fmt::Write;

use super::beside::Beside;
use super::contender::Contender;
use super::quantity::Quantity;
use super::raw::{At, Table};
use super::results::{Cell, Results};
use super::view::Dimension;
use super::{Experiment, ExperimentError, refuse};
use crate::statistics::Estimate;

impl Dimension {
    const ALL: [Self; 4] = [Self::System, Self::Arrivals, Self::X, Self::Policy];

    const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Arrivals => "arrivals",
            Self::X => "x",
            Self::Policy => "policy",
        }
    }

    /// Where a cell lies.
    pub(super) fn of(self, cell: &Cell) -> String {
        match self {
            Self::System => cell.system.clone(),
            Self::Arrivals => cell.arrivals.clone(),
            Self::X => cell.x.to_string(),
            Self::Policy => cell.policy.to_string(),
        }
    }

    /// The values of an experiment.
    pub(super) fn values(self, experiment: &Experiment) -> Vec<String> {
        match self {
            Self::System => experiment.systems.iter().map(|system| system.name.clone()).collect(),
            Self::Arrivals => experiment.arrivals.iter().map(|arrivals| arrivals.name.clone()).collect(),
            Self::X => experiment.x.values.iter().map(ToString::to_string).collect(),
            Self::Policy => experiment.policies.iter().map(ToString::to_string).collect(),
        }
    }

    fn at(self, at: &At) -> Option<String> {
        match self {
            Self::System => at.system.clone(),
            Self::Arrivals => at.arrivals.clone(),
            Self::X => at.x.map(|x| x.to_string()),
            Self::Policy => at.policy.map(|policy| policy.to_string()),
        }
    }
}

/// Whether `cell` is where `at` says.
pub(super) fn is_at(cell: &Cell, at: &At) -> bool {
    Dimension::ALL.into_iter().all(|d| d.at(at).is_none_or(|value| d.of(cell) == value))
}

impl Experiment {
    /// Whether all tables and figures show one cell, or one line of them, in each place.
    pub(super) fn check_views(&self) -> Result<(), ExperimentError> {
        for (i, table) in self.tables.iter().enumerate() {
            let field = format!("table[{i}]");
            let mut shown = vec![table.rows, table.columns];
            shown.extend(table.each);
            shown.extend(table.up_to.then_some(Dimension::X));
            if let Some(policy) = &table.beside {
                let all = Dimension::Policy.values(self);
                if table.up_to || all.len() < 2 || !self.policies.contains(policy) {
                    let reason =
                        format!("must be one of several policies, {}, and not `up-to`", all.join(", "));
                    return Err(refuse(format!("{field}.beside"), policy, reason));
                }
                let other = |of: &Contender| of != policy && self.policies.contains(of);
                if let Some(wrong) = table.without.iter().find(|of| !other(of)) {
                    let reason = format!("must be policies other than {policy}, of {}", all.join(", "));
                    return Err(refuse(format!("{field}.without"), wrong, reason));
                }
                shown.push(Dimension::Policy);
            } else if table.interval {
                return Err(refuse(format!("{field}.interval"), true, "must be beside a policy"));
            } else if let Some(first) = table.without.first() {
                return Err(refuse(format!("{field}.without"), first, "must be beside a policy"));
            }
            self.check_shown(&field, &shown, &table.at)?;
        }
        for (i, figure) in self.figures.iter().enumerate() {
            let field = format!("figure[{i}]");
            // It is a file in the folder that the figures are written to.
            if figure.name.is_empty() || figure.name.contains('/') || figure.name.starts_with('.') {
                let reason = "must be the name of a file, without a folder and no dot before it";
                return Err(refuse(format!("{field}.name"), &figure.name, reason));
            }
            let mut shown = vec![figure.series];
            shown.extend((!figure.over_time).then(|| figure.groups.unwrap_or(Dimension::X)));
            if figure.over_time
                && (figure.groups.is_some()
                    || self.systems.iter().any(|s| s.cluster.is_none() && s.pipeline.is_none()))
            {
                return Err(refuse(
                    format!("{field}.over-time"),
                    true,
                    "must be of clusters or pipelines, and without groups",
                ));
            }
            shown.extend(figure.panels);
            self.check_shown(&field, &shown, &figure.at)?;
        }
        Ok(())
    }

    /// Each dimension must be shown once, or fixed, or have one value only.
    fn check_shown(&self, field: &str, shown: &[Dimension], at: &At) -> Result<(), ExperimentError> {
        for dimension in Dimension::ALL {
            let values = dimension.values(self);
            let times = shown.iter().filter(|&&d| d == dimension).count();
            let name = dimension.name();
            if let Some(value) = dimension.at(at)
                && !values.contains(&value)
            {
                let reason = format!("must be one of {}", values.join(", "));
                return Err(refuse(format!("{field}.at.{name}"), value, reason));
            }
            let fixed = dimension.at(at).is_some() || values.len() == 1;
            match (times, fixed) {
                (0, false) => {
                    return Err(refuse(field, name, "must be shown somewhere, or fixed by `at`"));
                }
                (0 | 1, _) => {}
                _ => return Err(refuse(field, name, "is shown twice")),
            }
        }
        Ok(())
    }

    /// All tables, in Markdown.
    #[must_use]
    pub fn tables(&self, results: &Results) -> String {
        let mut text = String::new();
        for table in &self.tables {
            let each = table.each;
            let parts =
                each.map_or_else(|| vec![None], |each| each.values(self).into_iter().map(Some).collect());
            for part in parts {
                let here = |cell: &&Cell| {
                    is_at(cell, &table.at)
                        && each.zip(part.as_ref()).is_none_or(|(each, part)| each.of(cell) == *part)
                };
                let cells: Vec<_> = results.cells.iter().filter(here).collect();
                let title =
                    part.as_ref().map_or_else(|| table.title.clone(), |p| format!("{}: {p}", table.title));
                let _ = writeln!(text, "{}{title}\n", if text.is_empty() { "" } else { "\n" });
                self.table(&mut text, table, results, &cells);
            }
        }
        text
    }

    /// By how much better, and than whom, if there are several.
    fn told_beside(&self, beside: &Beside<'_>, with_interval: bool) -> String {
        let digits = if with_interval { 100.0 } else { 10.0 };
        let rounded = |value: f64| (value * digits).round() / digits;
        let by = rounded(beside.better_by);
        let mut told = if by == 0.0 { "0".to_owned() } else { format!("{by:+}") };
        // Runs that are all alike tell nothing of it.
        if with_interval && beside.in_runs.half_width > 1e-9 {
            told += &format!(" ± {}", rounded(beside.in_runs.half_width));
        }
        if self.policies.len() > 2 { format!("{told} {}", beside.rival.policy) } else { told }
    }

    fn table(&self, text: &mut String, table: &Table, results: &Results, cells: &[&Cell]) {
        let Table { rows, columns, measure: quantity, .. } = *table;
        let names = columns.values(self);
        let _ = writeln!(text, "| {} | {} |", rows.name(), names.join(" | "));
        let _ = writeln!(text, "|---|{}", "---:|".repeat(names.len()));
        for row in rows.values(self) {
            let _ = write!(text, "| {row} |");
            for column in &names {
                let here: Vec<_> =
                    cells.iter().filter(|c| rows.of(c) == row && columns.of(c) == *column).collect();
                let told = if let Some(policy) = table.beside {
                    let own = here.iter().find(|cell| cell.policy == policy);
                    let beside = own.and_then(|cell| results.beside_best(cell, quantity, &table.without));
                    beside.map_or_else(|| "–".to_owned(), |beside| self.told_beside(&beside, table.interval))
                } else if table.up_to {
                    up_to(here.iter().map(|c| (c.x, results.estimate(c, quantity))))
                } else {
                    here.first()
                        .and_then(|c| results.estimate(c, quantity))
                        .map_or_else(String::new, |e| told(e, quantity))
                };
                let _ = write!(text, " {told} |");
            }
            text.push('\n');
        }
    }
}

/// The largest `x` up to which an estimate is 0.
fn up_to(cells: impl Iterator<Item = (f64, Option<Estimate>)>) -> String {
    let mut all: Vec<_> = cells.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let clean = all.iter().take_while(|(_, estimate)| estimate.is_some_and(|e| e.n > 0 && e.mean == 0.0));
    clean.last().map_or_else(|| "–".to_owned(), |(x, _)| x.to_string())
}

/// An estimate as people are told it.
fn told(estimate: Estimate, quantity: Quantity) -> String {
    if estimate.n == 0 {
        return "–".to_owned();
    }
    let scale = quantity.scale();
    let (mean, half) = (estimate.mean * scale, estimate.half_width * scale);
    // What sums of rounded numbers differ in is no spread.
    if half > 1e-6 * mean.abs() {
        return Estimate { mean, half_width: half, n: estimate.n }.to_string();
    }
    // Four significant digits, or all of a whole number.
    if mean.fract() == 0.0 {
        mean.to_string()
    } else {
        format!("{mean:.3e}").parse::<f64>().unwrap_or(mean).to_string()
    }
}
