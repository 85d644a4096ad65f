//! How a stage's requests are made, as people configure it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The adapter of a stage.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AdapterConfig {
    /// Which rows of the parent's answer become a request each; absent if every answer becomes one.
    pub each: Option<Each>,
    /// What each input of the model is made of; of what is absent the tensor of that name, or the parent's only one.
    #[serde(default)]
    pub inputs: BTreeMap<String, Input>,
}

/// Rows of the parent's answer, which are what the first dimension of its tensors counts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawEach")]
pub enum Each {
    /// Those of a score that is high enough, the highest first.
    Scores {
        /// The output that has a score a row.
        scores: String,
        /// Which of a row's numbers it is, where there are several.
        column: Option<usize>,
        /// From which on a row counts.
        threshold: f64,
    },
    /// All, or the first so many.
    Rows {
        /// The output whose rows they are.
        rows: String,
        /// The output that says how many of them there are.
        count: Option<String>,
    },
    /// None, but the connected regions of a map, the largest first.
    Regions {
        /// The output that is the map.
        regions: String,
        /// From which on a pixel of it is part of a region.
        threshold: f32,
        /// Pixels that a region has at least.
        min_area: u32,
        /// By how much it is enlarged on each side: in areas, over its circumference.
        grow: f32,
    },
}

/// What an input is made of.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawInput")]
pub enum Input {
    /// A tensor, as it is.
    Tensor(Part),
    /// A region of an image.
    Crop(Crop),
    /// The place of the largest number.
    ArgMax(Part),
    /// Several tensors, side by side.
    Concatenate {
        /// At least one.
        parts: Vec<Part>,
        /// The dimension in which they follow each other.
        axis: usize,
    },
}

/// A tensor, or the row of it that the request is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole(String),
    /// The row.
    Row(String),
}

impl Part {
    /// The tensor's name, as configured.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Whole(name) | Self::Row(name) => name,
        }
    }
}

/// A region of an image, resized to what the model takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Crop {
    /// The image.
    pub image: String,
    /// Where the region is.
    pub within: Within,
    /// How it becomes as large as the input.
    pub fit: Fit,
    /// Two numbers: if the second is the larger, the region is turned upside down.
    pub turn: Option<String>,
    /// By which each pixel is multiplied.
    pub scale: f32,
    /// What is added to it then.
    pub offset: f32,
}

/// Where a region is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Within {
    /// In a box of this tensor.
    Boxes {
        /// The tensor.
        boxes: String,
        /// What the four numbers of a box are.
        format: BoxFormat,
        /// Whether they are parts of the image's sides, and not pixels.
        relative: bool,
    },
    /// Where this map has the region that the request is of.
    Region(String),
}

/// How a region becomes as large as the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// Each side by itself.
    #[default]
    Stretch,
    /// Both alike; to the right or below zeros are left.
    Pad,
}

/// What the four numbers of a box are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Corners,
    /// The middle across and down, width, height.
    Center,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawEach {
    scores: Option<String>,
    column: Option<usize>,
    threshold: Option<f64>,
    rows: Option<String>,
    count: Option<String>,
    regions: Option<String>,
    min_area: Option<u32>,
    grow: Option<f32>,
}

impl TryFrom<RawEach> for Each {
    type Error = &'static str;

    fn try_from(raw: RawEach) -> Result<Self, Self::Error> {
        let RawEach { scores, column, threshold, rows, count, regions, min_area, grow } = raw;
        if threshold.is_some_and(f64::is_nan) {
            return Err("threshold: a number is needed");
        }
        if (column.is_some() && scores.is_none()) || (count.is_some() && rows.is_none()) {
            return Err("column is that of scores, and count that of rows");
        }
        if (min_area.is_some() || grow.is_some()) && regions.is_none() {
            return Err("min-area and grow are those of regions");
        }
        match (scores, rows, regions, threshold) {
            (Some(scores), None, None, Some(threshold)) => Ok(Self::Scores { scores, column, threshold }),
            (None, Some(rows), None, None) => Ok(Self::Rows { rows, count }),
            (None, None, Some(regions), Some(threshold)) => Ok(Self::Regions {
                regions,
                threshold: threshold as f32,
                min_area: min_area.unwrap_or(1),
                grow: grow.unwrap_or(0.0),
            }),
            (Some(_), None, None, None) => Err("scores: threshold is needed with it"),
            (None, None, Some(_), None) => Err("regions: threshold is needed with it"),
            _ => Err("one of scores, rows and regions is needed; threshold goes with scores and regions"),
        }
    }
}

/// A name alone is the whole tensor.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the name of a tensor is needed, or { row = \"…\" }")]
enum RawPart {
    Name(String),
    Row(#[serde(deserialize_with = "planner::table")] RawRow),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    row: String,
}

impl From<RawPart> for Part {
    fn from(raw: RawPart) -> Self {
        match raw {
            RawPart::Name(name) => Self::Whole(name),
            RawPart::Row(RawRow { row }) => Self::Row(row),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawInput {
    pass: Option<String>,
    row: Option<String>,
    crop: Option<String>,
    boxes: Option<String>,
    format: Option<BoxFormat>,
    relative: Option<bool>,
    region: Option<String>,
    fit: Option<Fit>,
    turn: Option<String>,
    scale: Option<f32>,
    offset: Option<f32>,
    arg_max: Option<RawPart>,
    concatenate: Option<Vec<RawPart>>,
    axis: Option<usize>,
}

impl TryFrom<RawInput> for Input {
    type Error = &'static str;

    fn try_from(raw: RawInput) -> Result<Self, Self::Error> {
        let RawInput { pass, row, crop, arg_max, concatenate, axis, .. } = &raw;
        if crop.is_none() && raw.has_fields_of_crop() {
            return Err("boxes, format, relative, region, fit, turn, scale and offset are those of crop");
        }
        if axis.is_some() && concatenate.is_none() {
            return Err("axis is that of concatenate");
        }
        let given = [pass.is_some(), row.is_some(), crop.is_some(), arg_max.is_some(), concatenate.is_some()];
        if given.into_iter().filter(|given| *given).count() != 1 {
            return Err("one of pass, row, crop, arg-max and concatenate is needed");
        }
        match raw {
            RawInput { pass: Some(name), .. } => Ok(Self::Tensor(Part::Whole(name))),
            RawInput { row: Some(name), .. } => Ok(Self::Tensor(Part::Row(name))),
            RawInput { arg_max: Some(part), .. } => Ok(Self::ArgMax(part.into())),
            RawInput { concatenate: Some(parts), .. } if parts.is_empty() => {
                Err("concatenate: at least one tensor is needed")
            }
            RawInput { concatenate: Some(parts), axis, .. } => Ok(Self::Concatenate {
                parts: parts.into_iter().map(Part::from).collect(),
                axis: axis.unwrap_or(0),
            }),
            raw => raw.crop().map(Self::Crop),
        }
    }
}

impl RawInput {
    fn has_fields_of_crop(&self) -> bool {
        let Self { boxes, format, relative, region, fit, turn, scale, offset, .. } = self;
        let names = boxes.is_some() || region.is_some() || turn.is_some();
        names
            || format.is_some()
            || relative.is_some()
            || fit.is_some()
            || scale.is_some()
            || offset.is_some()
    }

    fn crop(self) -> Result<Crop, &'static str> {
        let Self { crop: Some(image), boxes, format, relative, region, fit, turn, scale, offset, .. } = self
        else {
            return Err("crop: an image is needed");
        };
        let within = match (boxes, region) {
            (Some(boxes), None) => {
                let (format, relative) = (format.unwrap_or_default(), relative.unwrap_or(false));
                Within::Boxes { boxes, format, relative }
            }
            (None, Some(_)) if format.is_some() || relative.is_some() => {
                return Err("format and relative are those of boxes");
            }
            (None, Some(map)) => Within::Region(map),
            _ => return Err("crop: boxes or region is needed with it"),
        };
        let (scale, offset) = (scale.unwrap_or(1.0), offset.unwrap_or(0.0));
        if !(scale.is_finite() && offset.is_finite()) {
            return Err("scale, offset: finite numbers are needed");
        }
        Ok(Crop { image, within, fit: fit.unwrap_or_default(), turn, scale, offset })
    }
}

#[cfg(test)]
mod tests;
