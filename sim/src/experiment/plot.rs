//! Figures of an experiment.

use super::quantity::Quantity;
use super::raw::{self, Theorem};
use super::results::{Cell, Results};
use super::table::is_at;
use super::view::Dimension;
use super::{Experiment, Of};
use crate::figure::{Bar, BarSeries, Bars, Figure, Line, Panel, Point, Series};
use crate::statistics::Estimate;

impl Experiment {
    /// All figures: the name of each file, without ending, and its SVG.
    #[must_use]
    pub fn figures(&self, results: &Results) -> Vec<(String, String)> {
        let draw = |figure: &raw::Figure| {
            let cells: Vec<_> = results.cells.iter().filter(|cell| is_at(cell, &figure.at)).collect();
            let view = View { experiment: self, results, figure };
            let svg = match figure.groups {
                Some(groups) => view.bars(groups, &cells).svg(),
                None => view.curves(&cells).svg(),
            };
            (figure.name.clone(), svg)
        };
        self.figures.iter().map(draw).collect()
    }
}

struct View<'a> {
    experiment: &'a Experiment,
    results: &'a Results,
    figure: &'a raw::Figure,
}

impl View<'_> {
    fn curves(&self, cells: &[&Cell]) -> Figure {
        let panels = self.figure.panels;
        let names = panels.map_or_else(|| vec![String::new()], |dimension| dimension.values(self.experiment));
        let panel = |name: String| {
            let inside = |cell: &&Cell| panels.is_none_or(|dimension| dimension.of(cell) == name);
            let cells: Vec<_> = cells.iter().copied().filter(inside).collect();
            Panel { series: self.series(&cells), lines: self.lines(&cells), title: name }
        };
        Figure {
            title: self.figure.title.clone(),
            x: if self.figure.over_time { "seconds" } else { self.experiment.x.label() }.to_owned(),
            y: self.figure.measure.label(),
            log_y: false,
            panels: names.into_iter().map(panel).filter(|panel| !panel.series.is_empty()).collect(),
        }
    }

    fn series(&self, cells: &[&Cell]) -> Vec<Series> {
        let point = |cell: &Cell| {
            let estimate = self.scaled(cell).filter(|estimate| estimate.n > 0);
            estimate.map_or(Point::new(cell.x, f64::NAN), |estimate| Point::estimated(cell.x, estimate))
        };
        let line = |(name, cells): (String, Vec<&Cell>)| {
            let points = if self.figure.over_time {
                cells.into_iter().flat_map(|cell| self.over_time(cell, self.figure.measure)).collect()
            } else {
                cells.into_iter().map(point).collect()
            };
            Series { name, points }
        };
        let mut series: Vec<Series> = self.split(cells).into_iter().map(line).collect();
        if let (true, Quantity::Goodput, Some(cell)) =
            (self.figure.over_time, self.figure.measure, cells.first())
        {
            let points = self.over_time(cell, Quantity::Offered);
            series.push(Series { name: "requests that come".to_owned(), points });
        }
        series
    }

    fn over_time(&self, cell: &Cell, quantity: Quantity) -> Vec<Point> {
        let Some(i) = self.results.quantities.iter().position(|&q| q == quantity) else { return Vec::new() };
        let scale = quantity.scale();
        let point = |(at, estimates): &(f64, Vec<Estimate>)| Point {
            spread: Some(estimates[i].half_width * scale),
            ..Point::new(*at, estimates[i].mean * scale)
        };
        cell.moments.iter().map(point).collect()
    }

    fn bars(&self, groups: Dimension, cells: &[&Cell]) -> Bars {
        let names: Vec<_> = groups.values(self.experiment);
        let names: Vec<_> = names.into_iter().filter(|n| cells.iter().any(|c| groups.of(c) == *n)).collect();
        let bar = |cells: &[&Cell], group: &String| {
            let cell = cells.iter().find(|cell| groups.of(cell) == *group);
            Bar::from(cell.and_then(|cell| self.scaled(cell)).unwrap_or_default())
        };
        let series = |(name, cells): (String, Vec<&Cell>)| BarSeries {
            name,
            bars: names.iter().map(|group| bar(&cells, group)).collect(),
        };
        let series = self.split(cells).into_iter().map(series).collect();
        Bars { title: self.figure.title.clone(), y: self.figure.measure.label(), groups: names, series }
    }

    /// The cells of each series.
    fn split<'b>(&self, cells: &[&'b Cell]) -> Vec<(String, Vec<&'b Cell>)> {
        let dimension = self.figure.series;
        let of = |name: &String| cells.iter().copied().filter(|cell| dimension.of(cell) == *name).collect();
        let all = dimension.values(self.experiment).into_iter().map(|name| (name.clone(), of(&name)));
        all.filter(|(_, cells): &(_, Vec<_>)| !cells.is_empty()).collect()
    }

    /// The rates that theorems prove for the systems of a panel; those that are the same, once.
    fn lines(&self, cells: &[&Cell]) -> Vec<Line> {
        let mut lines: Vec<(f64, Theorem, Vec<&str>)> = Vec::new();
        for system in &self.experiment.systems {
            let Some(cell) = cells.iter().find(|cell| cell.system == system.name) else { continue };
            for &theorem in &self.figure.lines {
                let Some(rate) = system.theorem(theorem, cell.certified) else { continue };
                let at = match self.experiment.x.of {
                    Of::Second | Of::Recorded => rate,
                    Of::Certified => rate / cell.certified,
                    Of::Capacity => rate / system.capacity(),
                };
                match lines.iter_mut().find(|line| (line.0, line.1) == (at, theorem)) {
                    Some((_, _, names)) => names.push(&system.name),
                    None => lines.push((at, theorem, vec![&system.name])),
                }
            }
        }
        let line = |(at, theorem, names): (f64, Theorem, Vec<&str>)| {
            let whose = match theorem {
                Theorem::Seed => "seed",
                Theorem::TheoremB => "Theorem B",
                Theorem::Certified => "certified",
            };
            let label = match names[..] {
                [first, .., last] => format!("{whose}: {first} … {last}"),
                _ => format!("{whose}: {}", names.concat()),
            };
            Line { at, label, dashed: theorem == Theorem::Seed }
        };
        lines.into_iter().map(line).collect()
    }

    fn scaled(&self, cell: &Cell) -> Option<Estimate> {
        let estimate = self.results.estimate(cell, self.figure.measure)?;
        let scale = self.figure.measure.scale();
        Some(Estimate { mean: estimate.mean * scale, half_width: estimate.half_width * scale, ..estimate })
    }
}
