//! [`Figure::svg`]: the panels and their common axes, lines of reference above which labels are staggered.

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::{Axis, drawable};
use super::canvas::{self, Area, At, BELOW, Drawn, GREY, Legend, Look, MARGIN, PX, SMALL, TICK, WIDTH};
use super::text::{self, Flag};
use super::{Figure, Line, Panel, Point, Series, interval};

/// Between panels.
const GAP: i32 = 18 * PX;
/// For half the label of a last tick.
const RIGHT: i32 = 8 * PX;
/// Below the labels of the ticks.
const BELOW_PANEL: i32 = 6 * PX;
/// Between a line of reference and its label.
const BESIDE_LINE: i32 = 3 * PX;
/// The size of the labels of lines.
const LABEL: i32 = 11 * PX;
/// Markers closer than this to the last one are left out where there are many points.
const CLOSE: i32 = 28 * PX;
/// So many points are all marked.
const FEW: usize = 30;

impl Figure {
    /// The figure as the text of an SVG file. It never fails: what cannot be drawn is left out.
    #[must_use]
    pub fn svg(&self) -> String {
        let layout = Layout::new(self);
        canvas::paint(layout.height, |area| layout.draw(area))
    }
}

/// Where everything is.
struct Layout<'a> {
    figure: &'a Figure,
    panels: Vec<&'a Panel>,
    /// In the order of the legend.
    names: Vec<&'a str>,
    legend: Legend,
    title: Vec<String>,
    x: Axis,
    y: Axis,
    columns: usize,
    /// Of the plots.
    left: i32,
    size: (i32, i32),
    /// Lines of text above each plot.
    flag_rows: i32,
    /// What a panel's title takes.
    head: i32,
    /// From the top of a panel to that of the panel below.
    step: i32,
    height: i32,
}

impl<'a> Layout<'a> {
    fn new(figure: &'a Figure) -> Self {
        const NONE: &Panel = &Panel { title: String::new(), series: Vec::new(), lines: Vec::new() };
        let panels: Vec<&Panel> =
            if figure.panels.is_empty() { vec![NONE] } else { figure.panels.iter().collect() };
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
        let plot_height = [340, 260, 220][columns - 1] * PX;
        let points = || panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
        let y = upright(
            points(),
            figure.log_y,
            (plot_height / (if figure.log_y { 34 * PX } else { 42 * PX })) as usize,
        );
        let ticks = y.ticks.iter().map(|tick| text::width(&tick.label, SMALL)).max().unwrap_or(0);
        let left = MARGIN + text::line_height(SMALL) + 4 * PX + ticks + 2 * TICK;
        let between = GAP * (columns as i32 - 1);
        let width = (WIDTH - left - MARGIN - RIGHT - between) / columns as i32;
        let lines = panels.iter().flat_map(|panel| &panel.lines);
        let across = points().map(|point| point.x).chain(lines.map(|line| line.at));
        let x = level(&across.collect::<Vec<f64>>(), width);
        let flag_rows =
            panels.iter().flat_map(|panel| flags(&panel.lines, &x, width)).map(|(_, flag)| flag.row);
        let flag_rows = flag_rows.max().map_or(0, |row| row as i32 + 1);
        let titled = panels.iter().any(|panel| !panel.title.is_empty());
        let head = if titled { text::line_height(SMALL) + 6 * PX } else { 4 * PX };
        let title = canvas::title_lines(&figure.title);
        let legend = Legend::new(&names);
        let step = head + flag_rows * text::line_height(LABEL) + plot_height + BELOW + BELOW_PANEL;
        let height = canvas::below_title(&title) + panels.len().div_ceil(columns) as i32 * step;
        let height = height + text::line_height(SMALL) + legend.height() + MARGIN;
        let size = (width, plot_height);
        Self {
            figure,
            panels,
            names,
            legend,
            title,
            x,
            y,
            columns,
            left,
            size,
            flag_rows,
            head,
            step,
            height,
        }
    }

    fn draw(&self, area: &Area) -> Drawn {
        canvas::write_title(area, &self.title)?;
        let top = canvas::below_title(&self.title);
        for (index, panel) in self.panels.iter().enumerate() {
            let left = self.left + (index % self.columns) as i32 * (self.size.0 + GAP);
            self.draw_panel(area, panel, (left, top + (index / self.columns) as i32 * self.step), index)?;
        }
        let bottom = top + self.panels.len().div_ceil(self.columns) as i32 * self.step;
        let first = top + self.head + self.flag_rows * text::line_height(LABEL);
        let last = bottom - BELOW - BELOW_PANEL;
        canvas::write_upright(area, &self.figure.y, bottom - top, (first + last) / 2)?;
        let right = WIDTH - MARGIN - RIGHT;
        let below = text::cut(&self.figure.x, SMALL, right - self.left);
        let at = ((self.left + right) / 2, bottom - 4 * PX);
        canvas::write(area, &below, &canvas::font(SMALL), (HPos::Center, VPos::Top), at)?;
        let sample = |area: &Area, look: Look, from: At, to: At| {
            look.line(area, &[from, to])?;
            look.mark(area, ((from.0 + to.0) / 2, from.1))
        };
        self.legend.draw(area, bottom + text::line_height(SMALL), sample)
    }

    fn draw_panel(&self, area: &Area, panel: &Panel, (left, top): At, index: usize) -> Drawn {
        let (width, height) = self.size;
        let plot_top = top + self.head + self.flag_rows * text::line_height(LABEL);
        let bottom = plot_top + height;
        let title = text::cut(&panel.title, SMALL, canvas::bold_room(width));
        let bold = canvas::bold(SMALL);
        canvas::write(area, &title, &bold, (HPos::Center, VPos::Top), (left + width / 2, top))?;
        let room = (left, plot_top, left + width, bottom);
        let place = canvas::grid(area, room, (&self.x, &self.y), index.is_multiple_of(self.columns))?;
        draw_lines(area, &flags(&panel.lines, &self.x, width), (left, plot_top, bottom))?;
        let mut empty = true;
        for series in &panel.series {
            let look = Look::of(self.names.iter().position(|name| *name == series.name).unwrap_or(0));
            for part in self.parts(series) {
                empty = false;
                self.draw_part(area, look, &part, &place)?;
            }
        }
        if empty {
            let style = canvas::font(SMALL).color(&GREY);
            let middle = (left + width / 2, plot_top + height / 2);
            canvas::write(area, "no data", &style, (HPos::Center, VPos::Center), middle)?;
        }
        Ok(())
    }

    /// The stretches of points that can be drawn.
    fn parts(&self, series: &Series) -> Vec<Vec<Point>> {
        let can = |point: &Point| drawable(point.x) && self.y.place(point.y).is_some();
        series
            .points
            .split(|point| !can(point))
            .filter(|part| !part.is_empty())
            .map(<[Point]>::to_vec)
            .collect()
    }

    fn draw_part(&self, area: &Area, look: Look, points: &[Point], place: &impl Fn(f64, f64) -> At) -> Drawn {
        let at = |x: f64, y: f64| place(x, self.y.place_inside(y));
        for point in points {
            if let Some((from, to)) = interval(point.y, point.spread) {
                let ((x, from), (_, to)) = (at(point.x, from), at(point.x, to));
                look.spread(area, x, from, to, look.colour)?;
            }
        }
        let path: Vec<At> = points.iter().map(|point| at(point.x, point.y)).collect();
        look.line(area, &path)?;
        let mut last: Option<At> = None;
        for &at in &path {
            let far = |last: At| (at.0 - last.0).abs() >= CLOSE || (at.1 - last.1).abs() >= CLOSE;
            if path.len() <= FEW || last.is_none_or(far) {
                look.mark(area, at)?;
                last = Some(at);
            }
        }
        Ok(())
    }
}

/// The upright axis.
fn upright<'a>(points: impl Iterator<Item = &'a Point>, logarithmic: bool, most: usize) -> Axis {
    let points = points.filter(|point| drawable(point.x) && (!logarithmic || point.y > 0.0));
    let values = points.flat_map(|point| {
        let (from, to) = interval(point.y, point.spread).unwrap_or((point.y, point.y));
        // The lower end of an interval that reaches 0 must not widen a logarithmic axis without bound.
        [point.y, if logarithmic && from < point.y / 10.0 { point.y } else { from }, to]
    });
    match logarithmic {
        true => Axis::logarithmic(values, most),
        false => Axis::rounded(values, most),
    }
}

/// The axis to the right, with as many ticks as leave room for their labels in `width`.
fn level(values: &[f64], width: i32) -> Axis {
    let axis = |most| Axis::padded(values.iter().copied(), most);
    let fits = |axis: &Axis| {
        axis.ticks.windows(2).all(|pair| {
            let labels = pair.iter().map(|tick| text::width(&tick.label, SMALL)).sum::<i32>();
            let apart = (axis.share(pair[1].at) - axis.share(pair[0].at)) * f64::from(width);
            f64::from(labels) / 2.0 + f64::from(12 * PX) <= apart
        })
    };
    (2..=10).rev().map(axis).find(fits).unwrap_or_else(|| axis(1))
}

/// The labels of lines, placed above a plot of `width`.
fn flags<'a>(lines: &'a [Line], axis: &Axis, width: i32) -> Vec<(&'a Line, Flag)> {
    let lines: Vec<&Line> = lines.iter().filter(|line| drawable(line.at)).collect();
    let label = |line: &&Line| {
        let at = (axis.share(line.at) * f64::from(width)).round() as i32;
        let wide = text::width(&text::clean(&line.label), LABEL).min(width - BESIDE_LINE);
        (at, if line.label.is_empty() { 0 } else { wide + BESIDE_LINE })
    };
    let labels: Vec<(i32, i32)> = lines.iter().map(label).collect();
    lines.into_iter().zip(text::stagger(&labels, width, 2 * BESIDE_LINE)).collect()
}

/// Draws lines of reference through the plot between `plot_top` and `bottom` and on to their labels.
fn draw_lines(area: &Area, lines: &[(&Line, Flag)], (left, plot_top, bottom): (i32, i32, i32)) -> Drawn {
    let row = text::line_height(LABEL);
    let style = GREY.stroke_width(3);
    for (line, flag) in lines {
        let beside = flag.from == flag.at || flag.to == flag.at;
        let rows = flag.row as i32 + i32::from(beside && !line.label.is_empty());
        let (x, top) = (left + flag.at, plot_top - rows * row);
        let path = [(x, bottom), (x, top)];
        match line.dashed {
            true => area.draw(&DashedPathElement::new(path, 5 * PX, 3 * PX, style))?,
            false => area.draw(&PathElement::new(path, style))?,
        }
    }
    let font = canvas::font(LABEL).color(&GREY);
    for (line, flag) in lines.iter().filter(|(line, _)| !line.label.is_empty()) {
        let before = flag.to == flag.at;
        let (from, to) = match before {
            true => (left + flag.from, left + flag.to - BESIDE_LINE),
            false => (left + flag.from + BESIDE_LINE, left + flag.to),
        };
        let bottom = plot_top - flag.row as i32 * row;
        // Over the lines that pass on to labels above.
        area.draw(&Rectangle::new([(from, bottom - row), (to, bottom - 2 * PX)], WHITE.filled()))?;
        let label = text::cut(&line.label, LABEL, to - from);
        let (side, at) = if before { (HPos::Right, to) } else { (HPos::Left, from) };
        canvas::write(area, &label, &font, (side, VPos::Center), (at, bottom - row / 2))?;
    }
    Ok(())
}
