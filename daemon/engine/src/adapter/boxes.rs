//! Where a region of an image is: by the numbers of a tensor, or by a region of a map.

use crate::engine::{DataType, TensorSpec};

use super::config::{BoxFormat, Crop, Within};
use super::lay::Making;
use super::names::{Found, Place, View, shape};
use super::{AdapterError, Given, number, regions};

/// How the box of a request is found, by shapes that were checked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Boxes {
    /// The numbers of a row.
    Numbers { view: View, format: BoxFormat, relative: bool },
    /// The region that the way went through at this stage.
    Region(usize),
}

impl Boxes {
    /// For input `tensor`.
    ///
    /// # Errors
    /// What is no box.
    pub(super) fn new(making: &Making<'_>, crop: &Crop, tensor: &TensorSpec) -> Result<Self, AdapterError> {
        match &crop.within {
            Within::Boxes { boxes, format, relative } => {
                let refuse =
                    |reason| AdapterError::new(format!("inputs.{}.boxes", tensor.name), boxes, reason);
                let found = making.known.find(boxes).map_err(refuse)?;
                found.one().map_err(refuse)?;
                let view = box_of(found).map_err(refuse)?;
                if view.rows.is_some() {
                    making.has_rows(found).map_err(refuse)?;
                }
                Ok(Self::Numbers { view, format: *format, relative: *relative })
            }
            Within::Region(map) => {
                let refuse =
                    |reason| AdapterError::new(format!("inputs.{}.region", tensor.name), map, reason);
                let found = making.known.find(map).map_err(refuse)?;
                let of_parent = making.known.is_parent(found.place);
                match found.place {
                    Place::Stage(stage) if !of_parent || making.map == Some(found.whole()) => {
                        Ok(Self::Region(stage))
                    }
                    _ => Err(refuse("`each` makes no regions of it".to_owned())),
                }
            }
        }
    }

    /// Left, top, right and bottom in an image of so many pixels, within it; `None` if nothing of it is.
    pub(super) fn corners(&self, given: Given<'_>, [rows, columns]: [f32; 2]) -> Option<[f32; 4]> {
        let corners = match *self {
            Self::Region(stage) => {
                let [left, top, right, bottom] = regions::corners(given.path.get(stage)?.row);
                [left * columns, top * rows, right * columns, bottom * rows]
            }
            Self::Numbers { view, format, relative } => {
                let mut four = [0f32; 4];
                let numbers = view.bytes(given)?;
                for (value, element) in four.iter_mut().zip(numbers.chunks_exact(view.data_type.size())) {
                    *value = number::load(view.data_type, element) as f32;
                }
                if relative {
                    four = [four[0] * columns, four[1] * rows, four[2] * columns, four[3] * rows];
                }
                let [a, b, c, d] = four;
                match format {
                    BoxFormat::Corners => four,
                    BoxFormat::Center => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
                }
            }
        };
        let [left, top, right, bottom] = corners;
        let within = [
            left.clamp(0.0, columns),
            top.clamp(0.0, rows),
            right.clamp(0.0, columns),
            bottom.clamp(0.0, rows),
        ];
        // Of a NaN nothing is less.
        (within[0] < within[2] && within[1] < within[3]).then_some(within)
    }

    /// Makes up boxes that hold all of such an image: where they are, and the numbers of each.
    pub(super) fn whole_image(&self, [rows, columns]: [f64; 2]) -> Option<(View, [f64; 4])> {
        let Self::Numbers { view, format, relative } = *self else { return None };
        let [width, height] = if relative { [1.0, 1.0] } else { [columns, rows] };
        let numbers = match format {
            BoxFormat::Corners => [0.0, 0.0, width, height],
            BoxFormat::Center => [width / 2.0, height / 2.0, width, height],
        };
        Some((view, numbers))
    }
}

/// The box that a row of a tensor begins with, or a tensor that is one.
fn box_of(found: Found<'_>) -> Result<View, String> {
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
