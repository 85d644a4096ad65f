//! Regions of an image, resized to what a model takes: between the middles of pixels linearly, four of them for each.

use crate::engine::{DataType, TensorSpec};

use super::boxes::Boxes;
use super::config::{Crop, Fit};
use super::lay::Making;
use super::names::{View, needed, shape};
use super::target::Target;
use super::{AdapterError, Given, number};

/// Columns of the region that are worked out at a time.
const COLUMNS: usize = 64;

/// How a region becomes an input, by shapes that were checked.
#[derive(Clone, Debug)]
pub(super) struct Region {
    image: View,
    /// Channels, rows, columns: of the image, and of the input.
    from: [usize; 3],
    into: [usize; 3],
    data_type: DataType,
    boxes: Boxes,
    fit: Fit,
    turn: Option<View>,
    scale: f32,
    offset: f32,
}

/// A pixel of the region on one axis: the two of the image between whose middles it is, and how far from the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tap {
    first: usize,
    second: usize,
    part: f32,
}

impl Region {
    /// For input `tensor`.
    ///
    /// # Errors
    /// What is no image.
    pub(super) fn new(
        (crop, boxes): (&Crop, Boxes),
        making: &Making<'_>,
        tensor: &TensorSpec,
    ) -> Result<Self, AdapterError> {
        let (known, model) = (&making.known, making.model);
        let field = format!("inputs.{}.crop", tensor.name);
        let refuse = |reason| AdapterError::new(&field, &crop.image, reason);
        let image = known.find(&crop.image).map_err(refuse)?;
        image.one().map_err(refuse)?;
        let is_pixels = |tensor: &TensorSpec| matches!(tensor.data_type, DataType::F32 | DataType::U8);
        let from = sides(image.tensor).filter(|_| is_pixels(image.tensor));
        let from = from.ok_or_else(|| refuse(format!("it is {}, {IMAGE}", shape(image.tensor))))?;
        let into = sides(tensor).filter(|_| is_pixels(tensor));
        let into = into.ok_or_else(|| refuse(format!("{}, {IMAGE}", needed(tensor, model))))?;
        if from[0] != into[0] {
            let of = shape(image.tensor);
            return Err(refuse(format!(
                "it is {of}, {}: as many channels are needed",
                needed(tensor, model)
            )));
        }
        let turn = crop.turn.as_ref().map(|name| {
            let refuse = |reason| AdapterError::new(format!("inputs.{}.turn", tensor.name), name, reason);
            let found = known.find(name).map_err(refuse)?;
            found.one().map_err(refuse)?;
            let two = found.tensor.elements() == 2;
            two.then(|| found.whole())
                .ok_or_else(|| refuse(format!("it is {}, two numbers are needed", shape(found.tensor))))
        });
        let &Crop { fit, scale, offset, .. } = crop;
        let (image, data_type, turn) = (image.whole(), tensor.data_type, turn.transpose()?);
        Ok(Self { image, from, into, data_type, boxes, fit, turn, scale, offset })
    }

    /// Writes the region of the request that `path` leads to; zeros if the box is empty or no box.
    pub(super) fn lay(&self, given: Given<'_>, target: &mut Target<'_>) {
        let [channels, rows, columns] = self.into;
        let [_, from_rows, from_columns] = self.from;
        let corners = self.boxes.corners(given, [from_rows as f32, from_columns as f32]);
        let (Some([left, top, right, bottom]), Some(image)) = (corners, self.image.bytes(given)) else {
            return target.zeros(channels * rows * columns);
        };
        let [high, wide] = match self.fit {
            Fit::Stretch => [rows, columns],
            Fit::Pad => fitted([rows, columns], [bottom - top, right - left]),
        };
        // Turned upside down is what is read from the other corner.
        let turned = self.turn.and_then(|view| view.bytes(given).map(|numbers| is_second(view, numbers)));
        let (left, right, top, bottom) = match turned {
            Some(true) => (right, left, bottom, top),
            _ => (left, right, top, bottom),
        };
        let size = self.data_type.size();
        for begin in (0..columns).step_by(COLUMNS) {
            let width = COLUMNS.min(columns - begin);
            let mut across = [Tap::default(); COLUMNS];
            let there = wide.saturating_sub(begin).min(width);
            for (tap, column) in across[..there].iter_mut().zip(begin..) {
                *tap = Tap::new(left, right, column, wide, from_columns);
            }
            for row in 0..rows {
                let down = Tap::new(top, bottom, row, high, from_rows);
                let there = if row < high { there } else { 0 };
                for channel in 0..channels {
                    target.go_to(((channel * rows + row) * columns + begin) * size);
                    let plane = channel * from_rows;
                    let lines = [plane + down.first, plane + down.second].map(|line| line * from_columns);
                    self.write_row(image, lines, down.part, &across[..there], target);
                    target.zeros(width - there);
                }
            }
        }
    }

    /// Writes a piece of a row, between two lines of the image, which begin at these elements.
    fn write_row(&self, image: &[u8], lines: [usize; 2], part: f32, across: &[Tap], target: &mut Target<'_>) {
        let mut values = [0f32; COLUMNS];
        let values = &mut values[..across.len()];
        let [_, _, columns] = self.from;
        match self.image.data_type {
            DataType::F32 => {
                let (pixels, _) = image.as_chunks::<4>();
                let line = |at: usize| pixels.get(at..at + columns).unwrap_or_default();
                let pixel =
                    |line: &[[u8; 4]], at: usize| line.get(at).map_or(0.0, |b| f32::from_le_bytes(*b));
                between(line(lines[0]), line(lines[1]), pixel, part, across, values);
            }
            _ => {
                let line = |at: usize| image.get(at..at + columns).unwrap_or_default();
                let pixel = |line: &[u8], at: usize| line.get(at).map_or(0.0, |b| f32::from(*b));
                between(line(lines[0]), line(lines[1]), pixel, part, across, values);
            }
        }
        for value in values.iter_mut() {
            *value = *value * self.scale + self.offset;
        }
        if self.data_type == DataType::F32 {
            let mut bytes = [[0; 4]; COLUMNS];
            for (bytes, value) in bytes.iter_mut().zip(values.iter()) {
                *bytes = value.to_le_bytes();
            }
            target.write(bytes[..across.len()].as_flattened());
        } else {
            let mut bytes = [0; COLUMNS];
            for (byte, value) in bytes.iter_mut().zip(values.iter()) {
                // The nearest that there is; NaN becomes 0.
                *byte = value.round() as u8;
            }
            target.write(&bytes[..across.len()]);
        }
    }

    pub(super) fn boxes(&self) -> Boxes {
        self.boxes
    }

    /// Rows and columns of the image.
    pub(super) fn image_sides(&self) -> [f64; 2] {
        [self.from[1] as f64, self.from[2] as f64]
    }
}

const IMAGE: &str = "but f32 or u8 of channels, rows and columns is needed, or of rows and columns";

/// As many rows and columns as a region takes that is enlarged alike on both sides, at least one.
fn fitted([rows, columns]: [usize; 2], [height, width]: [f32; 2]) -> [usize; 2] {
    let scale = (rows as f32 / height).min(columns as f32 / width);
    let side = |length: f32, most: usize| ((length * scale).round() as usize).clamp(1, most);
    [side(height, rows), side(width, columns)]
}

/// Whether the second of two numbers is the larger.
fn is_second(view: View, numbers: &[u8]) -> bool {
    let (first, second) = numbers.split_at(numbers.len() / 2);
    number::load(view.data_type, second) > number::load(view.data_type, first)
}

/// Channels, rows, columns.
fn sides(tensor: &TensorSpec) -> Option<[usize; 3]> {
    match tensor.shape[..] {
        [channels, rows, columns] => Some([channels, rows, columns]),
        [rows, columns] => Some([1, rows, columns]),
        _ => None,
    }
}

impl Tap {
    /// Of pixel `number` of `count` between two edges of a side that has `pixels`.
    fn new(from: f32, to: f32, number: usize, count: usize, pixels: usize) -> Self {
        let at = from + (number as f32 + 0.5) * (to - from) / count as f32 - 0.5;
        let at = at.clamp(0.0, (pixels - 1) as f32);
        let first = at as usize;
        Self { first, second: (first + 1).min(pixels - 1), part: at - first as f32 }
    }
}

/// The values of a row between two lines of an image.
fn between<T: Copy>(
    above: &[T],
    below: &[T],
    pixel: impl Fn(&[T], usize) -> f32,
    part: f32,
    across: &[Tap],
    values: &mut [f32],
) {
    for (value, tap) in values.iter_mut().zip(across) {
        let on = |line| {
            let first = pixel(line, tap.first);
            first + (pixel(line, tap.second) - first) * tap.part
        };
        let upper = on(above);
        *value = upper + (on(below) - upper) * part;
    }
}
