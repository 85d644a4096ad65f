//! [`Bars::svg`]: grouped bars from 0 on.

use plotters::prelude::*;

use super::canvas::{self, Area, BELOW, BESIDE, Drawn, INK, Look, PX, Page, SMALL, mesh};
use super::range::{self, drawable};
use super::{Bars, interval};

const HEIGHT: i32 = 320 * PX;
/// Of the room of a group, what its bars take.
const FILLED: f64 = 0.8;

impl Bars {
    /// The figure as the text of an SVG file. It never fails: what cannot be drawn is left out.
    #[must_use]
    pub fn svg(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        let (title, y) = (&self.title, &self.y);
        let page = Page { title, x: "", y, names: &names, bars: true, height: HEIGHT + BELOW };
        page.paint(|area| self.draw(area))
    }

    fn draw(&self, area: &Area) -> Drawn {
        let groups = self.groups.len().max(1);
        let bars = self.series.iter().flat_map(|series| series.bars.iter().take(groups));
        let ends = bars.flat_map(|bar| {
            let (from, to) = interval(bar.y, bar.spread).unwrap_or((bar.y, bar.y));
            [bar.y, from, to]
        });
        // Bars start from 0.
        let y = range::upward(ends.chain([0.0]));
        let room = (Page::width() - BESIDE) / groups as i32 - 6 * PX;
        let name = |place: &SegmentValue<usize>| match place {
            SegmentValue::CenterOf(group) => {
                self.groups.get(*group).map_or_else(String::new, |name| canvas::cut(name, SMALL, room))
            }
            _ => String::new(),
        };
        let mut chart = ChartBuilder::on(area)
            .set_label_area_size(LabelAreaPosition::Left, BESIDE)
            .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
            .margin_top(4 * PX)
            .build_cartesian_2d((0..groups - 1).into_segmented(), y.clone())?
            .set_secondary_coord(0.0..groups as f64, y.clone());
        mesh!(chart)
            .disable_x_mesh()
            .x_labels(groups + 1)
            .y_labels(8)
            .x_label_formatter(&name)
            .y_label_formatter(&|value| range::label(*value, &y))
            .draw()?;
        let width = FILLED / self.series.len().max(1) as f64;
        for (index, series) in self.series.iter().enumerate() {
            let look = Look::of(index);
            let bars =
                || series.bars.iter().take(self.groups.len()).enumerate().filter(|(_, bar)| drawable(bar.y));
            let from = |group: usize| group as f64 + (1.0 - FILLED) / 2.0 + index as f64 * width;
            // A hair between neighbours.
            let corners = |(group, bar): (usize, &super::Bar)| {
                [(from(group), 0.0), (from(group) + 0.97 * width, bar.y)]
            };
            chart.draw_secondary_series(bars().map(|bar| Rectangle::new(corners(bar), look.fill())))?;
            chart.draw_secondary_series(bars().map(|bar| Rectangle::new(corners(bar), look.stroke())))?;
            chart.draw_secondary_series(bars().filter_map(|(group, bar)| {
                let (low, high) = interval(bar.y, bar.spread)?;
                let x = from(group) + 0.485 * width;
                Some(ErrorBar::new_vertical(x, low, bar.y, high, INK.filled().stroke_width(2), 4 * PX as u32))
            }))?;
        }
        Ok(())
    }
}
