//! Axes: a range that shows every value, and ticks at round numbers.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter};

/// Beyond this a value is not drawn: differences and powers of such values leave `f64`.
const LARGEST: f64 = 1e200;
/// Below this share of the values themselves, differences between them are taken for none.
const FINEST: f64 = 1e-9;

/// Whether `value` can be drawn at all.
pub(super) fn drawable(value: f64) -> bool {
    value.abs() < LARGEST
}

/// A place on an axis, and what is written there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// An axis in the coordinate that is drawn linearly: the value itself, or its decimal logarithm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) ticks: Vec<Tick>,
    /// Lines between the ticks, without a label.
    pub(super) light: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    /// From 0 to `to`, with nothing written.
    pub(super) const fn bare(to: f64) -> Self {
        Self { from: 0.0, to, ticks: Vec::new(), light: Vec::new(), logarithmic: false }
    }

    /// For `values`, with a little room on either side and about `most` ticks.
    pub(super) fn padded(values: impl Iterator<Item = f64>, most: usize) -> Self {
        let (from, to) = extent(values);
        let pad = (to - from) * 0.03;
        let (from, to) = (from - pad, to + pad);
        let step = Step::of(to - from, most);
        Self { from, to, ticks: step.ticks(from, to), light: Vec::new(), logarithmic: false }
    }

    /// For `values`, from tick to tick, about `most` of them; from 0 if that costs no more than about half of
    /// the room.
    pub(super) fn rounded(values: impl Iterator<Item = f64>, most: usize) -> Self {
        let (mut from, mut to) = extent(values);
        if from > 0.0 && from < 0.6 * to {
            from = 0.0;
        } else if to < 0.0 && to > 0.6 * from {
            to = 0.0;
        }
        let step = Step::of(to - from, most);
        let (from, to) =
            ((from / step.size()).floor() * step.size(), (to / step.size()).ceil() * step.size());
        Self { from, to, ticks: step.ticks(from, to), light: Vec::new(), logarithmic: false }
    }

    /// For the positive ones of `values`, by their logarithm, with at most `most` ticks.
    pub(super) fn logarithmic(values: impl Iterator<Item = f64>, most: usize) -> Self {
        let logs = values.filter(|&v| v > 0.0 && drawable(v)).map(f64::log10);
        let found = logs.fold(None, |found: Option<(f64, f64)>, v| {
            Some(found.map_or((v, v), |(from, to)| (from.min(v), to.max(v))))
        });
        let (low, high) = found.unwrap_or((-1.0, 0.0));
        let decades =
            |from: f64, to: f64| from.floor() as i32..=(to.ceil() as i32).max(from.floor() as i32 + 1);
        let whole = high - low > 1.5;
        let mut marks: Vec<(f64, u32, i32)> = decades(low, high)
            .flat_map(|e| [1u32, 2, 5].map(|m| (f64::from(e) + f64::from(m).log10(), m, e)))
            .filter(|&(_, m, _)| !whole || m == 1)
            .collect();
        let from =
            marks.iter().map(|&(at, ..)| at).filter(|&at| at <= low + FINEST).fold(marks[0].0, f64::max);
        let last = marks[marks.len() - 1].0;
        let to = marks.iter().map(|&(at, ..)| at).filter(|&at| at >= high - FINEST && at > from);
        let to = to.fold(last, f64::min);
        marks.retain(|&(at, ..)| at >= from && at <= to);
        let every = marks.len().div_ceil(most.max(1));
        let ticks = marks.iter().step_by(if whole { every } else { 1 });
        let ticks = ticks.map(|&(at, m, e)| Tick { at, label: power(m, e) }).collect();
        // Between decades that are all ticks, their multiples; between others, the decades.
        let multiples = if whole && every > 1 { 1..2 } else { 1..10 };
        let light = decades(from, to)
            .flat_map(|e| multiples.clone().map(move |m| f64::from(e) + f64::from(m).log10()))
            .filter(|&at| at > from && at < to)
            .collect();
        Self { from, to, ticks, light, logarithmic: true }
    }

    /// Where `value` lies; `None` if it cannot be drawn.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        match self.logarithmic {
            true => (value > 0.0 && drawable(value)).then(|| value.log10()),
            false => drawable(value).then_some(value),
        }
    }

    /// Where `value` lies, at the nearer end of the axis if outside.
    pub(super) fn place_inside(&self, value: f64) -> f64 {
        self.place(value).unwrap_or(self.from).clamp(self.from, self.to)
    }

    /// The share of the axis below the coordinate `at`, 0..=1 inside.
    pub(super) fn share(&self, at: f64) -> f64 {
        (at - self.from) / (self.to - self.from)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, &at: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share(at).clamp(0.0, 1.0) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight() {
            KeyPointWeight::Bold => self.ticks.iter().map(|tick| tick.at).collect(),
            KeyPointWeight::Any => self.light.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

/// The labels of the ticks.
impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, &at: &f64) -> String {
        self.ticks.iter().find(|tick| tick.at == at).map(|tick| tick.label.clone()).unwrap_or_default()
    }
}

/// The smallest and the largest value, moved apart if they are one.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values = values.filter(|&v| drawable(v));
    let found = values.fold(None, |found: Option<(f64, f64)>, v| {
        Some(found.map_or((v, v), |(from, to)| (from.min(v), to.max(v))))
    });
    let (from, to) = found.unwrap_or((0.0, 1.0));
    let size = from.abs().max(to.abs());
    if size < 1.0 / LARGEST {
        (0.0, 1.0)
    } else if to - from <= FINEST * size {
        (from - 0.1 * size, to + 0.1 * size)
    } else {
        (from, to)
    }
}

/// `digit` (1, 2 or 5) times ten to the `exponent`.
#[derive(Clone, Copy)]
struct Step {
    digit: f64,
    exponent: i32,
}

impl Step {
    /// The smallest that divides `span` into at most `most` parts.
    fn of(span: f64, most: usize) -> Self {
        let least = span / most.max(1) as f64;
        let exponent = least.log10().floor() as i32;
        let steps = [1.0, 2.0, 5.0].map(|digit| Self { digit, exponent });
        let fits = |step: &Self| step.size() >= least * (1.0 - FINEST);
        steps.into_iter().find(fits).unwrap_or(Self { digit: 1.0, exponent: exponent + 1 })
    }

    fn size(self) -> f64 {
        self.digit * 10f64.powi(self.exponent)
    }

    /// The multiples in `from..=to`.
    fn ticks(self, from: f64, to: f64) -> Vec<Tick> {
        let first = (from / self.size() - 1e-6).ceil() as i64;
        let last = (to / self.size() + 1e-6).floor() as i64;
        let places = self.exponent.min(0).unsigned_abs() as usize;
        let largest = from.abs().max(to.abs());
        let text = |at: f64| {
            let plain = format!("{at:.places$}");
            match plain.parse::<f64>() {
                Ok(value) if value != 0.0 && (largest >= 1e6 || places > 5) => format!("{value:e}"),
                Ok(0.0) => "0".to_owned(),
                _ => plain,
            }
        };
        let at = |index: i64| index as f64 * self.size();
        (first..=last).map(|index| Tick { at: at(index), label: text(at(index)) }).collect()
    }
}

/// `digit · 10^exponent`, written out where that is short.
fn power(digit: u32, exponent: i32) -> String {
    match exponent {
        0..=4 => format!("{}", digit * 10u32.pow(exponent.unsigned_abs())),
        -4..0 => format!("0.{}{digit}", "0".repeat(exponent.unsigned_abs() as usize - 1)),
        _ => format!("{digit}e{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let axis = Axis::rounded([0.03, 0.97].into_iter(), 5);
        assert_eq!(labels(&axis), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(
            labels(&Axis::rounded([950.0, 1010.0].into_iter(), 4)),
            ["940", "960", "980", "1000", "1020"]
        );
        assert_eq!(
            labels(&Axis::rounded([2e6, 9e6].into_iter(), 5)),
            ["0", "2e6", "4e6", "6e6", "8e6", "1e7"]
        );
        assert_eq!(labels(&Axis::rounded([-3.0, 4.0].into_iter(), 4)), ["-4", "-2", "0", "2", "4"]);
        assert_eq!(labels(&Axis::padded([100.0, 500.0].into_iter(), 5)), ["100", "200", "300", "400", "500"]);
        assert_eq!(labels(&Axis::rounded([7.0].into_iter(), 4)), ["6.0", "6.5", "7.0", "7.5", "8.0"]);
        assert_eq!(labels(&Axis::rounded([].into_iter(), 2)), ["0", "0.5", "1.0"]);
        assert_eq!(labels(&Axis::rounded([0.0, 3e-9].into_iter(), 3)), ["0", "1e-9", "2e-9", "3e-9"]);
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten_or_halves_and_fifths_of_them() {
        let axis = Axis::logarithmic([0.0007, 3.0, 0.0, f64::NAN].into_iter(), 9);
        assert_eq!(labels(&axis), ["0.0001", "0.001", "0.01", "0.1", "1", "10"]);
        assert_eq!(labels(&Axis::logarithmic([3.0, 30.0].into_iter(), 9)), ["2", "5", "10", "20", "50"]);
        assert_eq!(labels(&Axis::logarithmic([10.0].into_iter(), 9)), ["10", "20"]);
        assert_eq!(
            labels(&Axis::logarithmic([1e-12, 1.0].into_iter(), 5)),
            ["1e-12", "1e-9", "1e-6", "0.001", "1"]
        );
        assert_eq!(
            labels(&Axis::logarithmic([1e6, 2e9].into_iter(), 9)),
            ["1e6", "1e7", "1e8", "1e9", "1e10"]
        );
        assert_eq!(labels(&Axis::logarithmic([0.0].into_iter(), 9)), ["0.1", "0.2", "0.5", "1"]);
    }

    #[test]
    fn every_range_is_wide_enough_to_divide_by() {
        let odd = [0.0, -0.0, 1e-310, 1e-199, 1.0, 1.0 + 1e-15, 1e16, -1e199, 1e199, f64::MAX, f64::NAN];
        for a in odd.into_iter().chain([f64::INFINITY, f64::MIN_POSITIVE]) {
            for b in odd {
                let both = || [a, b].into_iter();
                for axis in [Axis::padded(both(), 5), Axis::rounded(both(), 5), Axis::logarithmic(both(), 5)]
                {
                    assert!(axis.to > axis.from && (axis.to - axis.from).is_finite(), "{a} {b} {axis:?}");
                    assert!((1..=12).contains(&axis.ticks.len()), "{a} {b} {axis:?}");
                    for value in both().filter_map(|value| axis.place(value)) {
                        assert!((-1e-6..=1.0 + 1e-6).contains(&axis.share(value)), "{a} {b} {axis:?}");
                    }
                }
            }
        }
    }
}
