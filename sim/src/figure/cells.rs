//! [`Cells::svg`]: a map whose cells have the colours of names.

use plotters::prelude::*;

use super::Cells;
use super::canvas::{Area, BELOW, BESIDE, Drawn, Look, PX, Page, mesh};
use super::range::{self, drawable};

const HEIGHT: i32 = 360 * PX;
/// Labels beside an axis at most.
const LABELS: usize = 12;

impl Cells {
    /// The figure as the text of an SVG file. It never fails: what cannot be drawn is left out.
    #[must_use]
    pub fn svg(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let (title, x, y) = (&self.title, &self.x, &self.y);
        let page = Page { title, x, y, names: &names, bars: true, height: HEIGHT + BELOW };
        page.paint(|area| self.draw(area))
    }

    fn draw(&self, area: &Area) -> Drawn {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0).max(1) as f64;
        let rows = self.rows.len().max(1);
        // A width that is none counts as 1.
        let whole = columns * self.width;
        let width = if drawable(whole) && whole > f64::MIN_POSITIVE { self.width } else { 1.0 };
        let x = 0.0..columns * width;
        let mut chart = ChartBuilder::on(area)
            .set_label_area_size(LabelAreaPosition::Left, BESIDE)
            .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
            .margin_top(4 * PX)
            .build_cartesian_2d(x.clone(), 0.5..rows as f64 + 0.5)?;
        mesh!(chart)
            .x_labels(LABELS)
            .y_labels(rows.min(LABELS))
            .x_label_formatter(&|value| range::label(*value, &x))
            .y_label_formatter(&|row| if row.fract() == 0.0 { row.to_string() } else { String::new() })
            .draw()?;
        for (row, middle) in self.rows.iter().zip(1..) {
            let mut column = 0.0;
            for run in row.chunk_by(|a, b| a == b) {
                let from = (column * width, f64::from(middle) - 0.5);
                column += run.len() as f64;
                let corners = [from, (column * width, f64::from(middle) + 0.5)];
                if run[0] < self.names.len() {
                    let look = Look::of(run[0]);
                    let both = [look.fill(), look.stroke()];
                    chart.draw_series(both.map(|style| Rectangle::new(corners, style)))?;
                }
            }
        }
        Ok(())
    }
}
