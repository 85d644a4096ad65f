//! What all figures share: the page with its title, the names of its axes and a legend; colours and markers.

use std::io;

use plotters::coord::Shift;
use plotters::element::{DashedPathElement, Drawable, PointCollection};
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters_backend::DrawingErrorKind;

/// Units of the drawing in a pixel: coordinates are whole numbers, and curves should be smooth.
pub(super) const PX: i32 = 2;
/// The size of ordinary text.
pub(super) const SMALL: i32 = 12 * PX;
/// What a line of it takes.
pub(super) const LINE: i32 = 15 * PX;
/// Beside a plot, for the labels of its ticks.
pub(super) const BESIDE: i32 = 42 * PX;
/// Below it.
pub(super) const BELOW: i32 = 28 * PX;

pub(super) const INK: RGBColor = RGBColor(0x20, 0x20, 0x20);
pub(super) const GREY: RGBColor = RGBColor(0x60, 0x60, 0x60);
pub(super) const GRID: RGBColor = RGBColor(0xD8, 0xD8, 0xD8);

const WIDTH: i32 = 800 * PX;
const LARGE: i32 = 15 * PX;
const MARGIN: i32 = 10 * PX;
/// What stands before a name in the legend.
const SAMPLE: i32 = 30 * PX;
/// Of a round marker.
const RADIUS: u32 = 4 * PX as u32;

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

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;
pub(super) type At = (i32, i32);

/// Everything around the plots.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    /// The name of the upright axis, and of the other one; both may be empty.
    pub(super) y: &'a str,
    pub(super) x: &'a str,
    /// The names in the legend, and whether they stand for bars; else for curves.
    pub(super) names: &'a [&'a str],
    pub(super) bars: bool,
    /// What the plots take, with the labels of their ticks.
    pub(super) height: i32,
}

impl Page<'_> {
    /// How wide the plots are together, with the labels of their ticks.
    pub(super) const fn width() -> i32 {
        WIDTH - 2 * MARGIN - LINE
    }

    /// The page as SVG, 800 px wide on white, with what `draw` draws in the room of the plots.
    pub(super) fn paint(&self, draw: impl FnOnce(&Area) -> Drawn) -> String {
        let rows = self.names.len().div_ceil(self.columns().0) as i32;
        let below = if self.x.is_empty() { 0 } else { LINE };
        let head = if self.title.is_empty() { 0 } else { LARGE + 14 * PX };
        let height = MARGIN + head + self.height + below + rows * LINE + 2 * MARGIN;
        let mut svg = String::new();
        {
            let size = (WIDTH.unsigned_abs(), height.unsigned_abs());
            let whole = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            let drawn = whole.fill(&WHITE).and_then(|()| {
                let page = whole.margin(MARGIN, MARGIN, MARGIN, MARGIN);
                let title = cut(self.title, LARGE, WIDTH - 2 * MARGIN);
                write(&page, &title, &bold(LARGE), (HPos::Center, VPos::Top), (WIDTH / 2 - MARGIN, 0))?;
                let (_, page) = page.split_vertically(head);
                let (plots, rest) = page.split_vertically(self.height);
                let upright = font(SMALL).transform(FontTransform::Rotate270);
                let name = cut(self.y, SMALL, self.height);
                write(&plots, &name, &upright, (HPos::Center, VPos::Top), (0, self.height / 2))?;
                draw(&plots.margin(0, 0, LINE, 0))?;
                let (name, legend) = rest.split_vertically(below);
                let middle = LINE + BESIDE + (Self::width() - BESIDE) / 2;
                let across = cut(self.x, SMALL, Self::width() - BESIDE);
                write(&name, &across, &font(SMALL), (HPos::Center, VPos::Top), (middle, 0))?;
                self.legend(&legend.margin(MARGIN, 0, 0, 0))
            });
            drawn.and_then(|()| whole.present()).expect("only files fail to be written");
        }
        let units = format!("<svg width=\"{WIDTH}\" height=\"{height}\"");
        svg.replacen(&units, &format!("<svg width=\"{}\" height=\"{}\"", WIDTH / PX, height / PX), 1)
    }

    /// As many columns of the legend as have room, as few as do with so many rows, and how wide each is.
    fn columns(&self) -> (usize, i32) {
        let widest = self.names.iter().map(|name| width(name, SMALL)).max().unwrap_or(0);
        let room = WIDTH - 2 * MARGIN;
        let column = (SAMPLE + widest + 20 * PX).min(room);
        let rows = self.names.len().div_ceil((room / column) as usize).max(1);
        (self.names.len().div_ceil(rows).max(1), column)
    }

    fn legend(&self, area: &Area) -> Drawn {
        let (columns, wide) = self.columns();
        let side = (area.dim_in_pixel().0 as i32 - columns as i32 * wide) / 2;
        let area = area.margin(0, 0, side, side);
        let rows = self.names.len().div_ceil(columns).max(1);
        let all: Vec<_> = self.names.iter().enumerate().collect();
        for (part, column) in all.chunks(rows).zip(area.split_evenly((1, columns))) {
            let room = column.dim_in_pixel().0 as i32 - SAMPLE;
            let mut chart = ChartBuilder::on(&column).build_cartesian_2d(0..1, 0..1)?;
            for &(index, name) in part {
                let (look, what) = (Look::of(index), if self.bars { Kind::Bar } else { Kind::Curve });
                let series = chart.draw_series(std::iter::empty::<EmptyElement<_, SVGBackend>>())?;
                series.label(cut(name, SMALL, room)).legend(move |at| Mark { at: [at], look, what });
            }
            let mut labels = chart.configure_series_labels();
            labels.position(SeriesLabelPosition::Coordinate(0, 0)).margin(0);
            labels.legend_area_size(SAMPLE + 6 * PX).label_font(font(SMALL)).draw()?;
        }
        Ok(())
    }
}

/// The font of `size`. The backend divides the size by 1.24.
pub(super) fn font<'a>(size: i32) -> TextStyle<'a> {
    TextStyle::from(("sans-serif", f64::from(size) * 1.24).into_font()).color(&INK)
}

/// The same, bold.
pub(super) fn bold<'a>(size: i32) -> TextStyle<'a> {
    TextStyle::from(("sans-serif", f64::from(size) * 1.24, FontStyle::Bold).into_font()).color(&INK)
}

/// Writes `what` at `at`.
pub(super) fn write(area: &Area, what: &str, style: &TextStyle, (h, v): (HPos, VPos), at: At) -> Drawn {
    if what.is_empty() { Ok(()) } else { area.draw_text(what, &style.pos(Pos::new(h, v)), at) }
}

/// About how wide `text` is: who views the figure chooses the font.
pub(super) fn width(text: &str, size: i32) -> i32 {
    text.chars().count() as i32 * size * 3 / 5
}

/// `text` on one line, without what XML cannot hold, cut to `room` with an ellipsis if it is wider.
pub(super) fn cut(text: &str, size: i32, room: i32) -> String {
    let bad = |c: char| c.is_control() || ('\u{FFFE}'..='\u{FFFF}').contains(&c);
    let mut text: String = text.chars().map(|c| if bad(c) { ' ' } else { c }).collect();
    if width(&text, size) > room {
        while !text.is_empty() && width(&text, size) + size > room {
            text.pop();
        }
        text.push('…');
    }
    text
}

/// Draws the grid of a chart, and the labels of its ticks.
macro_rules! mesh {
    ($chart:expr) => {{
        let mut mesh = $chart.configure_mesh();
        mesh.bold_line_style($crate::figure::canvas::GRID.stroke_width(2))
            .light_line_style(plotters::style::TRANSPARENT)
            .axis_style($crate::figure::canvas::GREY.stroke_width(2))
            .label_style($crate::figure::canvas::font($crate::figure::canvas::SMALL))
            .set_all_tick_mark_size(4 * $crate::figure::canvas::PX);
        mesh
    }};
}
pub(super) use mesh;

/// How a series looks; it differs from every other of the first 21.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    marker: usize,
    /// How often all colours were used before.
    round: usize,
}

impl Look {
    pub(super) fn of(index: usize) -> Self {
        let (colour, round) = (index % COLOURS.len(), index / COLOURS.len());
        Self { colour: COLOURS[colour], marker: (colour + 2 * round) % MARKERS.len(), round }
    }

    pub(super) fn stroke(self) -> ShapeStyle {
        self.colour.stroke_width(3)
    }

    /// What its bars are filled with: its colour, white in the second round, a tint in the third.
    pub(super) fn fill(self) -> ShapeStyle {
        match self.round {
            0 => self.colour.filled(),
            1 => WHITE.filled(),
            _ => self.colour.mix(0.4).filled(),
        }
    }

    /// A line through `points`, dashed in the second round, dotted in the third.
    pub(super) fn line<DB: DrawingBackend, C: Clone + 'static>(
        self,
        points: Vec<C>,
    ) -> DynElement<'static, DB, C> {
        let (dash, gap) = match self.round {
            0 => return PathElement::new(points, self.stroke()).into_dyn(),
            1 => (7 * PX, 4 * PX),
            _ => (2 * PX, 3 * PX),
        };
        DashedPathElement::new(points, dash, gap, self.stroke()).into_dyn()
    }

    /// The marker at `at`, hollow in the second round.
    pub(super) fn mark<C>(self, at: C) -> Mark<C> {
        Mark { at: [at], look: self, what: Kind::Marker }
    }
}

/// Corners of markers around their middles; the first is a circle.
const MARKERS: &[&[At]] = &[
    &[],
    &[(-7, -7), (7, -7), (7, 7), (-7, 7)],
    &[(0, -9), (8, 6), (-8, 6)],
    &[(0, -10), (10, 0), (0, 10), (-10, 0)],
    &[(0, 9), (8, -6), (-8, -6)],
    &[
        (-3, -9),
        (3, -9),
        (3, -3),
        (9, -3),
        (9, 3),
        (3, 3),
        (3, 9),
        (-3, 9),
        (-3, 3),
        (-9, 3),
        (-9, -3),
        (-3, -3),
    ],
];

/// A marker, or what stands before a name in the legend: plotters draws it at a place of any chart.
pub(super) struct Mark<C> {
    at: [C; 1],
    look: Look,
    what: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Marker,
    /// From the left end of what stands before a name.
    Curve,
    Bar,
}

impl<'a, C> PointCollection<'a, C> for &'a Mark<C> {
    type Point = &'a C;
    type IntoIter = &'a [C; 1];

    fn point_iter(self) -> &'a [C; 1] {
        &self.at
    }
}

impl<C, DB: DrawingBackend> Drawable<DB> for Mark<C> {
    fn draw<I: Iterator<Item = At>>(
        &self,
        mut at: I,
        backend: &mut DB,
        size: (u32, u32),
    ) -> Result<(), DrawingErrorKind<DB::ErrorType>> {
        let (look, Some((x, y))) = (self.look, at.next()) else { return Ok(()) };
        let fill = if look.round == 1 { WHITE.filled() } else { look.colour.filled() };
        match self.what {
            Kind::Marker => {
                let corners = MARKERS[look.marker].iter().map(|corner| (x + corner.0, y + corner.1));
                if corners.len() == 0 {
                    backend.draw_circle((x, y), RADIUS, &fill, true)?;
                    return backend.draw_circle((x, y), RADIUS, &look.stroke(), false);
                }
                backend.fill_polygon(corners.clone(), &fill)?;
                backend.draw_path(corners.clone().chain(corners.take(1)), &look.stroke())
            }
            Kind::Curve => {
                let ends = [(x, y), (x + SAMPLE, y)];
                look.line(ends.to_vec()).draw(ends.into_iter(), backend, size)?;
                look.mark(()).draw([(x + SAMPLE / 2, y)].into_iter(), backend, size)
            }
            Kind::Bar => {
                let (from, to) = ((x + 8 * PX, y - 5 * PX), (x + SAMPLE, y + 5 * PX));
                backend.draw_rect(from, to, &look.fill(), true)?;
                backend.draw_rect(from, to, &look.stroke(), false)
            }
        }
    }
}
