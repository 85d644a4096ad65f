//! [`Bars::svg`]: grouped bars from 0 on.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::{Axis, drawable};
use super::canvas::{self, Area, At, Drawn, INK, Legend, Look, MARGIN, PX, SMALL, TICK, WIDTH};
use super::text;
use super::{Bars, interval};

const PLOT_HEIGHT: i32 = 320 * PX;
/// Of the room of a group, what its bars take.
const FILLED: f64 = 0.8;

impl Bars {
    /// The figure as the text of an SVG file. It never fails: what cannot be drawn is left out.
    #[must_use]
    pub fn svg(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        let legend = Legend::new(&names);
        let title = canvas::title_lines(&self.title);
        let all = self.series.iter().flat_map(|series| series.bars.iter().take(self.groups.len()));
        let ends = all.flat_map(|bar| {
            let (from, to) = interval(bar.y, bar.spread).unwrap_or((bar.y, bar.y));
            [bar.y, from, to]
        });
        // Bars start from 0; without any there is still an axis.
        let y = Axis::rounded(ends.chain([0.0]), 8);
        let x = Axis::bare(self.groups.len().max(1) as f64);
        let ticks = y.ticks.iter().map(|tick| text::width(&tick.label, SMALL)).max().unwrap_or(0);
        let left = MARGIN + text::line_height(SMALL) + 4 * PX + ticks + 2 * TICK;
        let right = WIDTH - MARGIN - 4 * PX;
        let group = (right - left) / self.groups.len().max(1) as i32;
        let labels: Vec<Vec<String>> =
            self.groups.iter().map(|name| text::wrap(name, SMALL, group - 6 * PX, 3)).collect();
        let lines = labels.iter().map(Vec::len).max().unwrap_or(0) as i32;
        let top = canvas::below_title(&title) + 6 * PX;
        let bottom = top + PLOT_HEIGHT;
        let below = bottom + 10 * PX + lines * text::line_height(SMALL);
        canvas::paint(below + legend.height() + MARGIN, |area| {
            canvas::write_title(area, &title)?;
            canvas::write_upright(area, &self.y, PLOT_HEIGHT, (top + bottom) / 2)?;
            let place = canvas::grid(area, (left, top, right, bottom), (&x, &y), true)?;
            self.draw_bars(area, &y, &place)?;
            let (from, to) = (place(x.from, 0.0), place(x.to, 0.0));
            area.draw(&PathElement::new([from, to], INK.stroke_width(2)))?;
            for (index, label) in labels.iter().enumerate() {
                let (middle, _) = place(index as f64 + 0.5, 0.0);
                for (line, row) in label.iter().zip(0..) {
                    let at = (middle, bottom + 6 * PX + row * text::line_height(SMALL));
                    canvas::write(area, line, &canvas::font(SMALL), (HPos::Center, VPos::Top), at)?;
                }
            }
            legend.draw(area, below, |area, look, from, to| {
                draw_bar(area, look, (from.0 + 8 * PX, from.1 - 5 * PX), (to.0, to.1 + 5 * PX))
            })
        })
    }

    fn draw_bars(&self, area: &Area, y: &Axis, place: &impl Fn(f64, f64) -> At) -> Drawn {
        let width = FILLED / self.series.len().max(1) as f64;
        for (index, series) in self.series.iter().enumerate() {
            let look = Look::of(index);
            let drawn = series.bars.iter().take(self.groups.len()).enumerate();
            for (group, bar) in drawn.filter(|(_, bar)| drawable(bar.y)) {
                let from = group as f64 + (1.0 - FILLED) / 2.0 + index as f64 * width;
                let ((left, zero), (right, end)) = (place(from, 0.0), place(from + width, bar.y));
                // A hair between neighbours, unless the bars are as thin as that.
                let right = if right - left > 4 * PX { right - PX } else { right.max(left + 1) };
                draw_bar(area, look, (left, zero.min(end)), (right, zero.max(end)))?;
                if let Some((low, high)) = interval(bar.y, bar.spread) {
                    let at = |value| place(from, y.place_inside(value)).1;
                    look.spread(area, (left + right) / 2, at(low), at(high), INK)?;
                }
            }
        }
        Ok(())
    }
}

/// A bar between two corners: filled, striped in the second round of colours, hollow in the third.
pub(super) fn draw_bar(area: &Area, look: Look, (left, top): At, (right, bottom): At) -> Drawn {
    let outline = look.colour.stroke_width(2);
    let fill = if look.round == 0 { look.colour } else { WHITE };
    area.draw(&Rectangle::new([(left, top), (right, bottom)], fill.filled()))?;
    if look.round == 1 {
        // From the bottom, so that equal bars have equal stripes.
        for y in (top..bottom).rev().step_by(4 * PX as usize).skip(1) {
            area.draw(&PathElement::new([(left, y), (right, y)], look.colour.stroke_width(4)))?;
        }
    }
    area.draw(&Rectangle::new([(left, top), (right, bottom)], outline))
}
