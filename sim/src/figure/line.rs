//! [`Figure::svg`]: the panels, which share their axes, and lines of reference with a label above each.

use std::ops::Range;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::canvas::{self, Area, BELOW, BESIDE, Drawn, GREY, GRID, LINE, Look, PX, Page, SMALL, mesh};
use super::range::{self, drawable, drawable_as_power};
use super::{Figure, Line, Panel, Point, interval};

/// Between panels, and for half of the label of a last tick.
const GAP: i32 = 18 * PX;
/// So many points of a curve are marked, about; fewer are all marked.
const MARKED: usize = 20;
/// The size of the labels of lines.
const LABEL: i32 = 11 * PX;

impl Figure {
    /// The figure as the text of an SVG file. It never fails: what cannot be drawn is left out.
    #[must_use]
    pub fn svg(&self) -> String {
        let empty = [Panel::default()];
        let panels = if self.panels.is_empty() { &empty[..] } else { &self.panels };
        let mut names: Vec<&str> = Vec::new();
        for series in panels.iter().flat_map(|panel| &panel.series) {
            if !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        let columns = match panels.len() {
            4 => 2,
            count => count.min(3),
        };
        let rows = panels.len().div_ceil(columns) as i32;
        let titled = panels.iter().any(|panel| !panel.title.is_empty());
        let lines = panels.iter().map(|panel| panel.lines.len()).max().unwrap_or(0);
        let sheet = Sheet {
            figure: self,
            names: &names,
            title: if titled { LINE + 4 * PX } else { 4 * PX },
            flags: lines as i32 * LINE,
            height: [340, 260, 220][columns - 1] * PX,
        };
        let each = sheet.title + sheet.flags + sheet.height + BELOW;
        let (title, x, y) = (&self.title, &self.x, &self.y);
        let page = Page { title, x, y, names: &names, bars: false, height: rows * each };
        page.paint(|area| {
            let wide = (Page::width() - BESIDE) / columns as i32;
            let across: Vec<_> = (1..columns as i32).map(|i| BESIDE + i * wide).collect();
            let down: Vec<_> = (1..rows).map(|i| i * each).collect();
            for (i, (panel, area)) in panels.iter().zip(area.split_by_breakpoints(across, down)).enumerate() {
                sheet.panel(&area, panel, i.is_multiple_of(columns))?;
            }
            Ok(())
        })
    }
}

/// What the panels share.
struct Sheet<'a> {
    figure: &'a Figure,
    names: &'a [&'a str],
    /// What a panel's title takes, the labels of its lines, and the plot.
    title: i32,
    flags: i32,
    height: i32,
}

impl Sheet<'_> {
    fn panel(&self, area: &Area, panel: &Panel, first: bool) -> Drawn {
        let panels = || self.figure.panels.iter();
        let points = || panels().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
        let lines = panels().flat_map(|panel| &panel.lines).map(|line| line.at);
        let x = range::linear(points().map(|point| point.x).chain(lines), 0.03);
        let upright = points().filter(|point| drawable(point.x)).flat_map(|point| {
            let (from, to) = interval(point.y, point.spread).unwrap_or((point.y, point.y));
            // The lower end of an interval that reaches 0 must not widen a logarithmic axis without bound.
            [point.y, if self.figure.log_y && from < point.y / 10.0 { point.y } else { from }, to]
        });
        let beside = if first { BESIDE } else { 0 };
        let wide = area.dim_in_pixel().0 as i32 - beside - GAP;
        let title = canvas::cut(&panel.title, SMALL, wide);
        let middle = (beside + wide / 2, 0);
        canvas::write(area, &title, &canvas::bold(SMALL), (HPos::Center, VPos::Top), middle)?;
        let mut chart = ChartBuilder::on(area);
        chart.margin_top(self.title + self.flags).margin_right(GAP);
        chart.set_label_area_size(LabelAreaPosition::Left, beside);
        chart.set_label_area_size(LabelAreaPosition::Bottom, BELOW);
        if self.figure.log_y {
            let y = range::decades(upright);
            self.plot(area, panel, chart, x, y.clone(), y.log_scale())
        } else {
            let y = range::upward(upright);
            self.plot(area, panel, chart, x, y.clone(), y)
        }
    }

    fn plot<Y: AsRangedCoord<Value = f64>>(
        &self,
        area: &Area,
        panel: &Panel,
        mut chart: ChartBuilder<'_, '_, SVGBackend<'_>>,
        x: Range<f64>,
        y: Range<f64>,
        upright: Y,
    ) -> Drawn
    where
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = chart.build_cartesian_2d(x.clone(), upright)?;
        let (wide, high) = chart.plotting_area().dim_in_pixel();
        mesh!(chart)
            .light_line_style(if self.figure.log_y { GRID.mix(0.5) } else { TRANSPARENT })
            .x_max_light_lines(1)
            .x_labels((wide as i32 / (40 * PX)).clamp(2, 10) as usize)
            .y_labels((high as i32 / (34 * PX)) as usize)
            .x_label_formatter(&|value| range::label(*value, &x))
            .y_label_formatter(&|value| {
                if self.figure.log_y { range::power(*value) } else { range::label(*value, &y) }
            })
            .draw()?;
        let (origin, top) = (area.get_base_pixel(), chart.backend_coord(&(x.start, y.end)).1);
        let plot = (top - origin.1, top - origin.1 + high as i32);
        let at = |line: &&Line| chart.backend_coord(&(line.at, y.start)).0 - origin.0;
        let mut lines: Vec<_> = panel.lines.iter().filter(|line| drawable(line.at)).collect();
        lines.sort_by(|a, b| a.at.total_cmp(&b.at));
        // All labels on one side, that of a line towards them the lowest: then no line crosses a label.
        let middle = area.dim_in_pixel().0 as i32 / 2;
        let before = lines.iter().map(|line| at(line) - middle).sum::<i32>() > 0;
        if !before {
            lines.reverse();
        }
        for (row, line) in lines.iter().enumerate() {
            draw_line(area, line, (at(line), before), plot, row as i32)?;
        }
        let mut empty = true;
        for series in &panel.series {
            let look = Look::of(self.names.iter().position(|name| *name == series.name).unwrap_or(0));
            let upright = if self.figure.log_y { drawable_as_power } else { drawable };
            let can = |point: &Point| drawable(point.x) && upright(point.y);
            let each = series.points.len().div_ceil(MARKED + MARKED / 2).max(1);
            for part in series.points.split(|point| !can(point)).filter(|part| !part.is_empty()) {
                empty = false;
                let at = |point: &Point| (point.x, point.y);
                let spread = |point: &Point| {
                    let (from, to) = interval(point.y, point.spread)?;
                    let bar = (point.x, from.max(y.start), point.y, to.min(y.end));
                    Some(ErrorBar::new_vertical(bar.0, bar.1, bar.2, bar.3, look.stroke(), 6 * PX as u32))
                };
                chart.draw_series(part.iter().filter_map(spread))?;
                chart.draw_series([look.line(part.iter().map(at).collect())])?;
                chart.draw_series(part.iter().step_by(each).map(|point| look.mark(at(point))))?;
            }
        }
        if empty {
            let (plot, style) = (chart.plotting_area().strip_coord_spec(), canvas::font(SMALL).color(&GREY));
            let middle = (wide as i32 / 2, high as i32 / 2);
            canvas::write(&plot, "no data", &style, (HPos::Center, VPos::Center), middle)?;
        }
        Ok(())
    }
}

/// Draws a line of reference at `x` through the plot between `top` and `bottom`, and up to its label in the `row`th
/// line of text above, which is `before` it or behind it.
fn draw_line(
    area: &Area,
    line: &Line,
    (x, before): (i32, bool),
    (top, bottom): (i32, i32),
    row: i32,
) -> Drawn {
    let label = top - row * LINE - LINE / 2;
    let (path, style) = ([(x, bottom), (x, label - LINE / 2)], GREY.stroke_width(3));
    match line.dashed {
        true => area.draw(&DashedPathElement::new(path, 5 * PX, 3 * PX, style))?,
        false => area.draw(&PathElement::new(path, style))?,
    }
    let (side, room, at) = match before {
        true => (HPos::Right, x, x - 3 * PX),
        false => (HPos::Left, area.dim_in_pixel().0 as i32 - x, x + 3 * PX),
    };
    let text = canvas::cut(&line.label, LABEL, room - 3 * PX);
    canvas::write(area, &text, &canvas::font(LABEL).color(&GREY), (side, VPos::Center), (at, label))
}
