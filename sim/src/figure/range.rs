//! What an axis shows: a range that holds every value and that one can divide by, and its labels.

use std::ops::Range;

use plotters::data::float::pretty_print_float;

/// Beyond this a value is not drawn: differences and powers of such values leave `f64`.
const LARGEST: f64 = 1e200;
/// Below this share of the values themselves, differences between them are taken for none.
const FINEST: f64 = 1e-9;
/// By so much of itself an end may be off for all that logarithms are rounded.
const HAIR: f64 = 1e-12;

/// Whether `value` can be drawn at all.
pub(super) fn drawable(value: f64) -> bool {
    value.abs() < LARGEST
}

/// Whether `value` can be drawn on a logarithmic axis: if it is positive, and not so small that a quotient leaves `f64`.
pub(super) fn drawable_as_power(value: f64) -> bool {
    drawable(value) && value > 1e-100
}

/// The smallest to the largest value, moved apart if they are one, with `room` of their distance on either side.
pub(super) fn linear(values: impl Iterator<Item = f64>, room: f64) -> Range<f64> {
    let (from, to) = ends(values).unwrap_or((0.0, 1.0));
    let size = from.abs().max(to.abs());
    let (from, to) = if size < 1.0 / LARGEST {
        (0.0, 1.0)
    } else if to - from <= FINEST * size {
        (from - 0.1 * size, to + 0.1 * size)
    } else {
        (from, to)
    };
    let room = (to - from) * room;
    from - room..to + room
}

/// For what is measured upwards: from 0 where that costs no more than about half of the room, else as [`linear`].
pub(super) fn upward(values: impl Iterator<Item = f64>) -> Range<f64> {
    let Range { start, end } = linear(values, 0.0);
    let room = 0.04 * (end - start);
    match start {
        _ if start >= 0.0 && start < 0.6 * end => 0.0..end + room,
        _ if end <= 0.0 && end > 0.6 * start => start - room..0.0,
        _ => start - room..end + room,
    }
}

/// Whole powers of ten around those of `values` that can be drawn so.
pub(super) fn decades(values: impl Iterator<Item = f64>) -> Range<f64> {
    let logs = values.filter(|&v| drawable_as_power(v)).map(f64::log10);
    let (low, high) = ends(logs).unwrap_or((-1.0, 0.0));
    let from = (low + FINEST).floor();
    let to = (high - FINEST).ceil().max(from + 1.0);
    // A hair wider, so that the powers themselves are inside whatever their logarithms are rounded to.
    10f64.powf(from) * (1.0 - HAIR)..10f64.powf(to) * (1.0 + HAIR)
}

/// A number beside a linear axis over `range`.
pub(super) fn label(value: f64, range: &Range<f64>) -> String {
    let hair = FINEST * (range.end - range.start).abs().min(range.end.abs().max(range.start.abs()));
    pretty_print_float(if value.abs() < hair { 0.0 } else { value }, true)
}

/// A number beside a logarithmic axis, on which none is nearly 0.
pub(super) fn power(value: f64) -> String {
    pretty_print_float(value, true)
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|&v| drawable(v)).fold(None, |found: Option<(f64, f64)>, v| {
        Some(found.map_or((v, v), |(from, to)| (from.min(v), to.max(v))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_of_what_is_not_negative_begin_at_0_unless_most_of_them_would_be_empty() {
        assert_eq!(upward([0.03, 0.97].into_iter()).start, 0.0);
        assert!(upward([950.0, 1010.0].into_iter()).start > 900.0);
        assert_eq!(upward([-0.97, -0.03].into_iter()).end, 0.0);
        assert!(upward([-3.0, 4.0].into_iter()).start < -3.0);
    }

    #[test]
    fn logarithmic_axes_hold_whole_decades() {
        let hold = |values: &[f64], from: f64, to: f64| {
            let Range { start, end } = decades(values.iter().copied());
            start <= from && start > 0.999 * from && end >= to && end < 1.001 * to
        };
        assert!(hold(&[0.0007, 3.0, 0.0, f64::NAN], 0.0001, 10.0));
        assert!(hold(&[10.0], 10.0, 100.0));
        assert!(hold(&[1e-12, 1.0], 1e-12, 1.0));
        assert!(hold(&[0.0], 0.1, 1.0));
        let labels = [1e-12, 1e-4, 0.001, 0.01, 0.1, 1.0, 10.0, 1e9].map(power);
        assert_eq!(labels, ["1e-12", "1e-4", "0.001", "0.01", "0.1", "1", "10", "1e9"]);
        assert_eq!(label(1e-17, &(-1.0..1.0)), "0");
    }

    #[test]
    fn every_range_is_wide_enough_to_divide_by() {
        let odd = [0.0, -0.0, 1e-310, 1e-199, 1.0, 1.0 + 1e-15, 1e16, -1e199, 1e199, f64::MAX, f64::NAN];
        for a in odd.into_iter().chain([f64::INFINITY, f64::MIN_POSITIVE]) {
            for b in odd {
                let both = || [a, b].into_iter();
                for Range { start, end } in [linear(both(), 0.03), upward(both()), decades(both())] {
                    assert!(end > start && (end - start).is_finite(), "{a} {b}: {start} {end}");
                    assert!(!label(start, &(start..end)).is_empty());
                }
                let range = linear(both(), 0.03);
                for value in both().filter(|&value| drawable(value) && value.abs() > 1e-200) {
                    assert!(range.contains(&value), "{a} {b} {range:?}");
                }
            }
        }
    }
}
