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
    /// The tensor with the box.
    pub boxes: String,
    /// What the four numbers of a box are.
    pub format: BoxFormat,
    /// Whether they are parts of the image's sides, and not pixels.
    pub relative: bool,
    /// By which each pixel is multiplied.
    pub scale: f32,
    /// What is added to it then.
    pub offset: f32,
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
}

impl TryFrom<RawEach> for Each {
    type Error = &'static str;

    fn try_from(raw: RawEach) -> Result<Self, Self::Error> {
        match raw {
            RawEach { scores: Some(scores), column, threshold: Some(threshold), rows: None, count: None } => {
                match threshold.is_nan() {
                    true => Err("threshold: a number is needed"),
                    false => Ok(Self::Scores { scores, column, threshold }),
                }
            }
            RawEach { scores: Some(_), threshold: None, .. } => Err("scores: threshold is needed with it"),
            RawEach { scores: None, column: None, threshold: None, rows: Some(rows), count } => {
                Ok(Self::Rows { rows, count })
            }
            _ => Err(
                "either scores and threshold are needed, perhaps with column, or rows, perhaps with count",
            ),
        }
    }
}

/// A name alone is the whole tensor.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the name of a tensor is needed, or { row = \"…\" }")]
enum RawPart {
    Name(String),
    Row(RawRow),
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
    scale: Option<f32>,
    offset: Option<f32>,
    arg_max: Option<RawPart>,
    concatenate: Option<Vec<RawPart>>,
    axis: Option<usize>,
}

impl TryFrom<RawInput> for Input {
    type Error = &'static str;

    fn try_from(raw: RawInput) -> Result<Self, Self::Error> {
        let RawInput { pass, row, crop, boxes, format, relative, scale, offset, arg_max, concatenate, axis } =
            raw;
        let of_crop =
            boxes.is_some() || format.is_some() || relative.is_some() || scale.is_some() || offset.is_some();
        if of_crop && crop.is_none() {
            return Err("boxes, format, relative, scale and offset are crop's");
        }
        if axis.is_some() && concatenate.is_none() {
            return Err("axis is concatenate's");
        }
        match (pass, row, crop, arg_max, concatenate) {
            (Some(name), None, None, None, None) => Ok(Self::Tensor(Part::Whole(name))),
            (None, Some(name), None, None, None) => Ok(Self::Tensor(Part::Row(name))),
            (None, None, Some(image), None, None) => {
                let boxes = boxes.ok_or("crop: boxes is needed with it")?;
                let (scale, offset) = (scale.unwrap_or(1.0), offset.unwrap_or(0.0));
                if !(scale.is_finite() && offset.is_finite()) {
                    return Err("scale, offset: finite numbers are needed");
                }
                let (format, relative) = (format.unwrap_or_default(), relative.unwrap_or(false));
                Ok(Self::Crop(Crop { image, boxes, format, relative, scale, offset }))
            }
            (None, None, None, Some(part), None) => Ok(Self::ArgMax(part.into())),
            (None, None, None, None, Some(parts)) if parts.is_empty() => {
                Err("concatenate: at least one tensor is needed")
            }
            (None, None, None, None, Some(parts)) => Ok(Self::Concatenate {
                parts: parts.into_iter().map(Part::from).collect(),
                axis: axis.unwrap_or(0),
            }),
            _ => Err("one of pass, row, crop, arg-max and concatenate is needed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_write_it_is_read() {
        let text = r#"
            each = { scores = "scores", threshold = 0.5 }
            inputs.a = { pass = "t" }
            inputs.b = { row = "detect.t" }
            inputs.c = { crop = "source.image", boxes = "boxes", format = "center", relative = true, scale = 0.5 }
            inputs.d = { arg-max = { row = "t" } }
            inputs.e = { concatenate = ["a", { row = "b" }], axis = 1 }
        "#;
        let config: AdapterConfig = toml::from_str(text).unwrap();
        let scores = Each::Scores { scores: "scores".to_owned(), column: None, threshold: 0.5 };
        assert_eq!(config.each, Some(scores));
        let whole = |name: &str| Part::Whole(name.to_owned());
        let row = |name: &str| Part::Row(name.to_owned());
        let crop = Crop {
            image: "source.image".to_owned(),
            boxes: "boxes".to_owned(),
            format: BoxFormat::Center,
            relative: true,
            scale: 0.5,
            offset: 0.0,
        };
        let expected = [
            Input::Tensor(whole("t")),
            Input::Tensor(row("detect.t")),
            Input::Crop(crop),
            Input::ArgMax(row("t")),
            Input::Concatenate { parts: vec![whole("a"), row("b")], axis: 1 },
        ];
        assert!(config.inputs.values().eq(&expected), "{:?}", config.inputs);
        let rows: AdapterConfig = toml::from_str("each = { rows = \"boxes\", count = \"n\" }").unwrap();
        assert_eq!(rows.each, Some(Each::Rows { rows: "boxes".to_owned(), count: Some("n".to_owned()) }));
        assert_eq!(toml::from_str::<AdapterConfig>("").unwrap(), AdapterConfig::default());
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        for (text, message) in [
            ("each = { scores = \"s\" }", "scores: threshold is needed with it"),
            ("each = { scores = \"s\", threshold = nan }", "threshold: a number is needed"),
            ("each = { rows = \"s\", threshold = 0.5 }", "either scores and threshold are needed"),
            ("each = { score = \"s\" }", "unknown field `score`"),
            ("inputs.x = {}", "one of pass, row, crop, arg-max and concatenate is needed"),
            ("inputs.x = { pass = \"a\", row = \"a\" }", "one of pass, row, crop"),
            ("inputs.x = { crop = \"a\" }", "crop: boxes is needed with it"),
            ("inputs.x = { crop = \"a\", boxes = \"b\", scale = inf }", "scale, offset: finite"),
            ("inputs.x = { crop = \"a\", boxes = \"b\", format = \"edges\" }", "unknown variant `edges`"),
            ("inputs.x = { pass = \"a\", boxes = \"b\" }", "boxes, format, relative, scale and offset are"),
            ("inputs.x = { pass = \"a\", axis = 0 }", "axis is concatenate's"),
            ("inputs.x = { concatenate = [] }", "concatenate: at least one tensor is needed"),
            ("inputs.x = { concatenate = [3] }", "the name of a tensor is needed, or { row"),
            ("inputs.x = { crops = \"a\" }", "unknown field `crops`"),
        ] {
            let error = toml::from_str::<AdapterConfig>(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
