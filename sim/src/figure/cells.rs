//! [`Cells::svg`]: a map whose cells have the colours of names.

use plotters::style::text_anchor::{HPos, VPos};

use super::Cells;
use super::axis::{Axis, Tick, drawable};
use super::bars::draw_bar;
use super::canvas::{self, Area, At, Drawn, Legend, Look, MARGIN, PX, SMALL, TICK, WIDTH};
use super::text;

const PLOT_HEIGHT: i32 = 360 * PX;
/// Ticks on the upright axis, about.
const TICKS: usize = 12;

impl Cells {
    /// The figure as the text of an SVG file. It never fails: what cannot be drawn is left out.
    #[must_use]
    pub fn svg(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let legend = Legend::new(&names);
        let title = canvas::title_lines(&self.title);
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let (x, y) = (self.across(columns), self.upright());
        let ticks = y.ticks.iter().map(|tick| text::width(&tick.label, SMALL)).max().unwrap_or(0);
        let left = MARGIN + text::line_height(SMALL) + 4 * PX + ticks + 2 * TICK;
        let right = WIDTH - MARGIN - 4 * PX;
        let top = canvas::below_title(&title) + 6 * PX;
        let bottom = top + PLOT_HEIGHT;
        let name = bottom + canvas::BELOW;
        let below = name + text::line_height(SMALL) + 2 * PX;
        canvas::paint(below + legend.height() + MARGIN, |area| {
            canvas::write_title(area, &title)?;
            canvas::write_upright(area, &self.y, PLOT_HEIGHT, (top + bottom) / 2)?;
            let place = canvas::grid(area, (left, top, right, bottom), (&x, &y), true)?;
            self.draw_cells(area, x.to / columns as f64, &place)?;
            let (style, at) = (canvas::font(SMALL), ((left + right) / 2, name));
            let middle = (HPos::Center, VPos::Top);
            canvas::write(area, &text::cut(&self.x, SMALL, right - left), &style, middle, at)?;
            legend.draw(area, below, |area, look, from, to| {
                draw_bar(area, look, (from.0 + 8 * PX, from.1 - 5 * PX), (to.0, to.1 + 5 * PX))
            })
        })
    }

    fn across(&self, columns: usize) -> Axis {
        let to = columns as f64 * self.width;
        // A width that is none counts as 1.
        let to = if drawable(to) && to > f64::MIN_POSITIVE { to } else { columns as f64 };
        let mut axis = Axis::rounded([0.0, to].into_iter(), TICKS);
        axis.ticks.retain(|tick| tick.at <= to);
        (axis.from, axis.to) = (0.0, to);
        axis
    }

    fn upright(&self) -> Axis {
        let rows = self.rows.len().max(1);
        let mut axis = Axis::bare(rows as f64 + 0.5);
        axis.from = 0.5;
        let ticks = (1..=rows).step_by(rows.div_ceil(TICKS));
        axis.ticks = ticks.map(|row| Tick { at: row as f64, label: row.to_string() }).collect();
        axis
    }

    fn draw_cells(&self, area: &Area, width: f64, place: &impl Fn(f64, f64) -> At) -> Drawn {
        for (row, middle) in self.rows.iter().zip(1..) {
            let mut column = 0;
            for run in row.chunk_by(|a, b| a == b) {
                let from = place(column as f64 * width, f64::from(middle) + 0.5);
                column += run.len();
                let to = place(column as f64 * width, f64::from(middle) - 0.5);
                if run[0] < self.names.len() {
                    draw_bar(area, Look::of(run[0]), from, to)?;
                }
            }
        }
        Ok(())
    }
}
