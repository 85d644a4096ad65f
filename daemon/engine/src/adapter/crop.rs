//! Regions of an image, resized to what a model takes: between the middles of pixels linearly, four of them for each.

use crate::{DataType, ModelSpec, TensorSpec};

use super::config::{BoxFormat, Crop};
use super::names::{Found, Known, View, needed, shape};
use super::target::Target;
use super::{AdapterError, Step, number};

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
    boxes: View,
    format: BoxFormat,
    relative: bool,
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
    /// For input `tensor` of `model`.
    ///
    /// # Errors
    /// What is no image, or no box.
    pub(super) fn new(
        (crop, boxes): (&Crop, View),
        known: &Known<'_>,
        (tensor, model): (&TensorSpec, &ModelSpec),
    ) -> Result<Self, AdapterError> {
        let field = format!("inputs.{}.crop", tensor.name);
        let refuse = |reason| AdapterError::new(&field, &crop.image, reason);
        let image = known.find(&crop.image).map_err(refuse)?;
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
        let &Crop { format, relative, scale, offset, .. } = crop;
        let (image, data_type) = (image.whole(), tensor.data_type);
        Ok(Self { image, from, into, data_type, boxes, format, relative, scale, offset })
    }

    /// Writes the region of the request that `path` leads to; zeros if the box is empty or no box.
    pub(super) fn lay(&self, source: &[u8], path: &[Step<'_>], target: &mut Target<'_>) {
        let [channels, rows, columns] = self.into;
        let corners = self.boxes.bytes(source, path).and_then(|numbers| self.corners(numbers));
        let (Some([left, top, right, bottom]), Some(image)) = (corners, self.image.bytes(source, path))
        else {
            return target.zeros(channels * rows * columns);
        };
        let size = self.data_type.size();
        let [_, from_rows, from_columns] = self.from;
        for begin in (0..columns).step_by(COLUMNS) {
            let width = COLUMNS.min(columns - begin);
            let mut across = [Tap::default(); COLUMNS];
            for (tap, column) in across[..width].iter_mut().zip(begin..) {
                *tap = Tap::new(left, right, column, columns, from_columns);
            }
            let across = &across[..width];
            for row in 0..rows {
                let down = Tap::new(top, bottom, row, rows, from_rows);
                for channel in 0..channels {
                    target.go_to(((channel * rows + row) * columns + begin) * size);
                    let plane = channel * from_rows;
                    let lines = [plane + down.first, plane + down.second].map(|line| line * from_columns);
                    self.write_row(image, lines, down.part, across, target);
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

    /// Left, top, right and bottom of a box in pixels, within the image; `None` if nothing of it is.
    fn corners(&self, numbers: &[u8]) -> Option<[f32; 4]> {
        let size = self.boxes.data_type.size();
        let mut four = [0f32; 4];
        for (value, element) in four.iter_mut().zip(numbers.chunks_exact(size)) {
            *value = number::load(self.boxes.data_type, element) as f32;
        }
        let [_, rows, columns] = self.from.map(|side| side as f32);
        if self.relative {
            four = [four[0] * columns, four[1] * rows, four[2] * columns, four[3] * rows];
        }
        let [a, b, c, d] = four;
        let [left, top, right, bottom] = match self.format {
            BoxFormat::Corners => four,
            BoxFormat::Center => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
        };
        let within = [
            left.clamp(0.0, columns),
            top.clamp(0.0, rows),
            right.clamp(0.0, columns),
            bottom.clamp(0.0, rows),
        ];
        // Of a NaN nothing is less.
        (within[0] < within[2] && within[1] < within[3]).then_some(within)
    }

    /// The numbers of a box that holds all of the image.
    pub(super) fn whole_image(&self) -> [f64; 4] {
        let [_, rows, columns] = self.from.map(|side| side as f64);
        let [width, height] = if self.relative { [1.0, 1.0] } else { [columns, rows] };
        match self.format {
            BoxFormat::Corners => [0.0, 0.0, width, height],
            BoxFormat::Center => [width / 2.0, height / 2.0, width, height],
        }
    }

    pub(super) fn boxes(&self) -> View {
        self.boxes
    }
}

const IMAGE: &str = "but f32 or u8 of channels, rows and columns is needed, or of rows and columns";

/// The box that a row of a tensor begins with, or a tensor that is one.
///
/// # Errors
/// Why there is none.
pub(super) fn box_of(found: Found<'_>) -> Result<View, String> {
    let tensor = found.tensor;
    let view = match tensor.shape[..] {
        [4] => Some(found.whole()),
        [_, .., numbers] if numbers >= 4 && tensor.elements() == tensor.shape[0] * numbers => {
            found.row().ok()
        }
        _ => None,
    };
    view.filter(|_| tensor.data_type != DataType::Bool).ok_or_else(|| {
        format!("it is {}, rows that begin with the four numbers of a box are needed", shape(tensor))
    })
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
