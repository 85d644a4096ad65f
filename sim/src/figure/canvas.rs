//! What all figures share: canvas, fonts, colours, markers and legend.

use std::io;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::text;

/// Units of the drawing in a pixel: coordinates are whole numbers, and curves should be smooth.
pub(super) const PX: i32 = 2;
/// The width of every figure.
pub(super) const WIDTH: i32 = 800 * PX;
/// The size of ordinary text.
pub(super) const SMALL: i32 = 12 * PX;
/// The size of a title.
pub(super) const LARGE: i32 = 15 * PX;
/// Around everything.
pub(super) const MARGIN: i32 = 10 * PX;
/// Of the ticks' labels.
pub(super) const TICK: i32 = 4 * PX;

/// Below a plot, with the labels of its ticks.
pub(super) const BELOW: i32 = 2 * TICK + 16 * PX;

pub(super) const INK: RGBColor = RGBColor(0x20, 0x20, 0x20);
pub(super) const GREY: RGBColor = RGBColor(0x60, 0x60, 0x60);
pub(super) const GRID: RGBColor = RGBColor(0xD8, 0xD8, 0xD8);
pub(super) const FAINT: RGBColor = RGBColor(0xEE, 0xEE, 0xEE);

/// Okabe and Ito's colours (2008), told apart by colour-blind people too, without yellow, which is too light for
/// a line on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x00, 0x00, 0x00),
];
/// Sample and the space after it, in the legend.
const SAMPLE: i32 = 30 * PX;
const AFTER_SAMPLE: i32 = 6 * PX;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Failed = DrawingAreaErrorKind<io::Error>;
pub(super) type Drawn = Result<(), Failed>;
pub(super) type At = (i32, i32);

/// A white canvas of [`WIDTH`] by `height` with what `draw` draws on it, as SVG.
pub(super) fn paint(height: i32, draw: impl FnOnce(&Area) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let size = (WIDTH.unsigned_abs(), height.unsigned_abs());
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present());
        drawn.expect("only files fail to be written");
    }
    let units = format!("<svg width=\"{WIDTH}\" height=\"{height}\"");
    let pixels = format!("<svg width=\"{}\" height=\"{}\"", WIDTH / PX, height / PX);
    svg.replacen(&units, &pixels, 1)
}

/// The font of `size`. The backend divides the size by 1.24.
pub(super) fn font<'a>(size: i32) -> TextStyle<'a> {
    TextStyle::from(("sans-serif", f64::from(size) * 1.24).into_font()).color(&INK)
}

/// The same, bold.
pub(super) fn bold<'a>(size: i32) -> TextStyle<'a> {
    TextStyle::from(("sans-serif", f64::from(size) * 1.24, FontStyle::Bold).into_font()).color(&INK)
}

/// Of `room`, what text as wide in the ordinary font may take to fit when it is bold.
pub(super) const fn bold_room(room: i32) -> i32 {
    room * 7 / 8
}

/// Writes `what` at `at`.
pub(super) fn write(area: &Area, what: &str, style: &TextStyle, (h, v): (HPos, VPos), at: At) -> Drawn {
    area.draw_text(&text::clean(what), &style.pos(Pos::new(h, v)), at)
}

/// The lines of a title.
pub(super) fn title_lines(title: &str) -> Vec<String> {
    text::wrap(title, LARGE, bold_room(WIDTH - 2 * MARGIN), 3)
}

/// Writes them at the top.
pub(super) fn write_title(area: &Area, lines: &[String]) -> Drawn {
    let font = bold(LARGE);
    for (line, y) in lines.iter().zip((MARGIN..).step_by(text::line_height(LARGE) as usize)) {
        write(area, line, &font, (HPos::Center, VPos::Top), (WIDTH / 2, y))?;
    }
    Ok(())
}

/// Where what is below a title of so many lines starts.
pub(super) fn below_title(lines: &[String]) -> i32 {
    MARGIN + lines.len() as i32 * text::line_height(LARGE) + if lines.is_empty() { 0 } else { 4 * PX }
}

/// Writes the name of an upright axis beside its middle.
pub(super) fn write_upright(area: &Area, what: &str, length: i32, middle: i32) -> Drawn {
    let font = font(SMALL).transform(FontTransform::Rotate270);
    write(area, &text::cut(what, SMALL, length), &font, (HPos::Center, VPos::Top), (MARGIN, middle))
}

/// Draws the grid of the axes in `room` (left, top, right, bottom, without what is written beside), their lines and
/// the ticks' labels: those of `y` only if `labelled`. Returns where a pair of coordinates lies on the canvas.
pub(super) fn grid<'a>(
    area: &Area<'a>,
    (left, top, right, bottom): (i32, i32, i32, i32),
    (x, y): (&Axis, &Axis),
    labelled: bool,
) -> Result<impl Fn(f64, f64) -> At + use<'a>, Failed> {
    let beside = if labelled { left } else { 0 };
    let below = if x.ticks.is_empty() { 0 } else { BELOW };
    let part = area.clone().shrink((left - beside, top), (right - left + beside, bottom - top + below));
    let mut chart = ChartBuilder::on(&part)
        .set_label_area_size(LabelAreaPosition::Left, beside)
        .set_label_area_size(LabelAreaPosition::Bottom, below)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .bold_line_style(GRID.stroke_width(2))
        .light_line_style(FAINT.stroke_width(2))
        .axis_style(GREY.stroke_width(2))
        .label_style(font(SMALL))
        .set_all_tick_mark_size(TICK)
        .draw()?;
    Ok(move |x, y| chart.backend_coord(&(x, y)))
}

/// How a series looks; it differs from every other of the first 21.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    marker: usize,
    /// How often all colours were used before.
    pub(super) round: usize,
}

impl Look {
    pub(super) fn of(index: usize) -> Self {
        let (colour, round) = (index % COLOURS.len(), index / COLOURS.len());
        // In later rounds a colour comes with another marker.
        Self { colour: COLOURS[colour], marker: (colour + 2 * round) % COLOURS.len(), round }
    }

    fn stroke(self) -> ShapeStyle {
        ShapeStyle { color: self.colour.to_rgba(), filled: false, stroke_width: 3 }
    }

    /// A line through `points`, dashed in the second round, dotted in the third.
    pub(super) fn line(self, area: &Area, points: &[At]) -> Drawn {
        if points.len() < 2 {
            return Ok(());
        }
        let (dash, gap) = match self.round {
            0 => return area.draw(&PathElement::new(points, self.stroke())),
            1 => (7 * PX, 4 * PX),
            _ => (2 * PX, 3 * PX),
        };
        area.draw(&DashedPathElement::new(points.iter().copied(), dash, gap, self.stroke()))
    }

    /// The marker at `at`, hollow in the second round.
    pub(super) fn mark(self, area: &Area, at: At) -> Drawn {
        let fill = if self.round == 1 { WHITE } else { self.colour };
        let stroke = self.stroke().stroke_width(3);
        if self.marker == 0 {
            area.draw(&Circle::new(at, 4 * PX, fill.filled()))?;
            return area.draw(&Circle::new(at, 4 * PX, stroke));
        }
        let mut corners: Vec<At> = outline(self.marker).iter().map(|&(x, y)| (at.0 + x, at.1 + y)).collect();
        area.draw(&Polygon::new(corners.clone(), fill.filled()))?;
        corners.push(corners[0]);
        area.draw(&PathElement::new(corners, stroke))
    }

    /// A confidence interval from `from` to `to`: a line with caps.
    pub(super) fn spread(self, area: &Area, x: i32, from: i32, to: i32, colour: RGBColor) -> Drawn {
        let stroke = ShapeStyle { color: colour.to_rgba(), filled: false, stroke_width: 2 };
        let cap = 3 * PX;
        let path = [(x - cap, from), (x + cap, from), (x, from), (x, to), (x - cap, to), (x + cap, to)];
        area.draw(&PathElement::new(path, stroke))
    }
}

/// The corners of a marker around its middle.
fn outline(marker: usize) -> &'static [At] {
    match marker {
        1 => &[(-7, -7), (7, -7), (7, 7), (-7, 7)],
        2 => &[(0, -9), (8, 6), (-8, 6)],
        3 => &[(0, -10), (10, 0), (0, 10), (-10, 0)],
        4 => &[(0, 9), (8, -6), (-8, -6)],
        5 => &[
            (-8, -5),
            (-5, -8),
            (0, -3),
            (5, -8),
            (8, -5),
            (3, 0),
            (8, 5),
            (5, 8),
            (0, 3),
            (-5, 8),
            (-8, 5),
            (-3, 0),
        ],
        _ => &[
            (-2, -9),
            (2, -9),
            (2, -2),
            (9, -2),
            (9, 2),
            (2, 2),
            (2, 9),
            (-2, 9),
            (-2, 2),
            (-9, 2),
            (-9, -2),
            (-2, -2),
        ],
    }
}

/// A legend in columns, as wide as the figure.
pub(super) struct Legend {
    names: Vec<String>,
    columns: usize,
    column: i32,
}

impl Legend {
    pub(super) fn new(names: &[&str]) -> Self {
        let room = WIDTH - 2 * MARGIN;
        let names: Vec<String> =
            names.iter().map(|name| text::cut(name, SMALL, room - SAMPLE - AFTER_SAMPLE)).collect();
        let widest = names.iter().map(|name| text::width(name, SMALL)).max().unwrap_or(0);
        let column = SAMPLE + AFTER_SAMPLE + widest + 8 * PX;
        let columns = (room / column).max(1) as usize;
        // As few columns as do with so many rows, to fill them evenly.
        let rows = names.len().div_ceil(columns).max(1);
        Self { columns: names.len().div_ceil(rows).max(1), column, names }
    }

    pub(super) fn height(&self) -> i32 {
        match self.names.len().div_ceil(self.columns) as i32 {
            0 => 0,
            rows => rows * Self::row() + 4 * PX,
        }
    }

    /// Draws it from `top` on; `sample` draws what stands before a name between two places on one line.
    pub(super) fn draw(&self, area: &Area, top: i32, sample: impl Fn(&Area, Look, At, At) -> Drawn) -> Drawn {
        let rows = self.names.len().div_ceil(self.columns);
        let left = ((WIDTH - self.columns as i32 * self.column) / 2).max(MARGIN);
        for (index, name) in self.names.iter().enumerate() {
            // Down each column, then the next.
            let x = left + (index / rows) as i32 * self.column;
            let y = top + 4 * PX + (index % rows) as i32 * Self::row() + Self::row() / 2;
            sample(area, Look::of(index), (x, y), (x + SAMPLE, y))?;
            let at = (x + SAMPLE + AFTER_SAMPLE, y);
            write(area, name, &font(SMALL), (HPos::Left, VPos::Center), at)?;
        }
        Ok(())
    }

    fn row() -> i32 {
        text::line_height(SMALL) + 3 * PX
    }
}
