//! The dynamic dimensions of an ONNX file: what the user says they are, or else what they may well be.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use weir_engine::inspect::{Dimension, OnnxFile, OnnxTensor};
use weir_oip::text::printable;

/// What a dynamic dimension is made to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// As many as there are requests.
    Batch,
    Fixed(usize),
}

/// One dynamic dimension, wherever the inputs have it.
#[derive(Debug)]
pub(super) struct Open {
    /// Its name in the file or, without one, the input and the place, such as `image_2`.
    pub(super) name: String,
    /// Whether the user has said what it is.
    pub(super) given: bool,
    /// What it may be, the likeliest first.
    pub(super) options: Vec<Size>,
    /// Whether it is the height or the width of a picture: all these are tried alike.
    picture: bool,
}

/// A dimension of an input: fixed in the file, or one of the open ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Fixed(usize),
    Open(usize),
}

/// What `--fix` says: sizes of dynamic dimensions, and values of inputs.
pub(super) type Fixes = BTreeMap<String, String>;

/// The most combinations that are tried.
const MOST_TRIES: usize = 48;

/// The open dimensions of a file's inputs, and the shapes they make up; inputs that `fixes` gives a value keep theirs.
///
/// # Errors
/// An input whose file does not tell how many dimensions it has, and a size that is none.
pub(super) fn open(file: &OnnxFile, fixes: &Fixes) -> Result<(Vec<Open>, Vec<Vec<Part>>)> {
    let (mut all, mut shapes) = (Vec::<Open>::new(), Vec::new());
    for input in &file.inputs {
        let shape = input.shape.as_ref().with_context(|| {
            format!(
                "{}: input `{}` may have any number of dimensions",
                file.path.display(),
                printable(&input.name)
            )
        })?;
        let mut parts = Vec::new();
        for (place, dimension) in shape.iter().enumerate() {
            let name = match dimension {
                Dimension::Fixed(size) => {
                    parts.push(Part::Fixed(*size));
                    continue;
                }
                Dimension::Dynamic(Some(name)) => name.clone(),
                Dimension::Dynamic(None) => format!("{}_{place}", input.name),
            };
            let known = all.iter().position(|open| open.name == name);
            if known.is_none() {
                let given = fixes.get(&name).map(|text| size(&name, text)).transpose()?;
                let options = given.map_or_else(|| options(input, shape, place), |size| vec![size]);
                let picture = given.is_none() && is_picture(shape, place);
                all.push(Open { name, given: given.is_some(), options, picture });
            }
            parts.push(Part::Open(known.unwrap_or(all.len() - 1)));
        }
        shapes.push(parts);
    }
    Ok((all, shapes))
}

/// Combinations of what the open dimensions may be, the likeliest first.
pub(super) fn combinations(open: &[Open]) -> Vec<Vec<Size>> {
    // Heights and widths count as one.
    let picture = open.iter().position(|open| open.picture);
    let free: Vec<usize> = (0..open.len()).filter(|&at| !open[at].picture || Some(at) == picture).collect();
    let mut choices = vec![vec![0; open.len()]];
    for &at in &free {
        let longer = choices.iter().flat_map(|choice| {
            (0..open[at].options.len()).map(move |option| {
                let mut choice = choice.clone();
                choice[at] = option;
                choice
            })
        });
        choices = longer.collect();
    }
    choices.sort_by_key(|choice| free.iter().map(|&at| choice[at]).sum::<usize>());
    choices.truncate(MOST_TRIES);
    let sizes = |choice: Vec<usize>| {
        let option = |at: usize| match (open[at].picture, picture) {
            (true, Some(first)) => choice[first].min(open[at].options.len() - 1),
            _ => choice[at],
        };
        (0..open.len()).map(|at| open[at].options[option(at)]).collect()
    };
    choices.into_iter().map(sizes).collect()
}

fn size(name: &str, text: &str) -> Result<Size> {
    match text {
        "N" | "batch" => Ok(Size::Batch),
        number => number.parse().ok().filter(|size| *size > 0).map(Size::Fixed).with_context(|| {
            format!("--fix {name}={text}: a number of 1 or more is needed, or N for the batch")
        }),
    }
}

/// What an open dimension may be, by its name and its place.
fn options(input: &OnnxTensor, shape: &[Dimension], place: usize) -> Vec<Size> {
    let name = match &shape[place] {
        Dimension::Dynamic(Some(name)) => name.to_lowercase(),
        _ => String::new(),
    };
    let fixed = |sizes: &[usize]| sizes.iter().copied().map(Size::Fixed).collect::<Vec<_>>();
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let is_made_up = name.is_empty() || says(&["unk_", "dynamicdimension", "dim_"]);
    if says(&["batch"]) || ["n", "b", "bs"].contains(&name.as_str()) {
        return vec![Size::Batch];
    }
    if says(&["seq", "len", "time", "frame", "token"]) {
        return fixed(&[128, 512, 576, 16, 1]);
    }
    if place == 0 && shape.len() > 1 {
        return vec![Size::Batch, Size::Fixed(1)];
    }
    if is_picture(shape, place) {
        return fixed(&[640, 320, 224, 48, 32]);
    }
    // Such as the state of a recurrent network.
    if is_made_up && shape.len() == 3 && matches!(shape[0], Dimension::Fixed(_)) {
        return vec![Size::Batch, Size::Fixed(1), Size::Fixed(128)];
    }
    if input.data_type().is_some_and(|data_type| data_type.to_string().starts_with('i')) {
        return fixed(&[128, 512, 16, 1]);
    }
    fixed(&[512, 576, 128, 16, 1])
}

/// Whether a dimension is the height or the width of a picture with one, three or four channels.
fn is_picture(shape: &[Dimension], place: usize) -> bool {
    let channels = |at: usize| matches!(shape[at], Dimension::Fixed(1 | 3 | 4));
    shape.len() == 4 && ((place >= 2 && channels(1)) || ((1..=2).contains(&place) && channels(3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[&str]) -> OnnxTensor {
        let dimension = |text: &&str| match (text.parse(), *text) {
            (Ok(size), _) => Dimension::Fixed(size),
            (_, "?") => Dimension::Dynamic(None),
            (_, name) => Dimension::Dynamic(Some(name.to_owned())),
        };
        let shape = Some(shape.iter().map(dimension).collect());
        OnnxTensor { name: name.to_owned(), type_name: "f32".to_owned(), shape }
    }

    fn file(inputs: Vec<OnnxTensor>) -> OnnxFile {
        OnnxFile {
            path: "m.onnx".into(),
            bytes: 1,
            sha256: String::new(),
            producer: String::new(),
            opsets: Vec::new(),
            operators: BTreeMap::new(),
            parameters: 0,
            inputs,
            outputs: Vec::new(),
            external: Vec::new(),
        }
    }

    #[test]
    fn names_and_places_tell_what_a_dimension_may_be() {
        let voice = file(vec![tensor("x", &["?", "sequence"]), tensor("state", &["2", "?", "128"])]);
        let (open, shapes) = open(&voice, &Fixes::new()).unwrap();
        let names: Vec<_> = open.iter().map(|open| open.name.as_str()).collect();
        assert_eq!(names, ["x_0", "sequence", "state_1"]);
        assert_eq!(shapes[1], [Part::Fixed(2), Part::Open(2), Part::Fixed(128)]);
        assert_eq!(combinations(&open)[0], [Size::Batch, Size::Fixed(128), Size::Batch]);
    }

    #[test]
    fn heights_and_widths_are_tried_alike_unless_the_user_says_them() {
        let picture = file(vec![tensor("x", &["batch", "3", "height", "width"])]);
        let (all, _) = open(&picture, &Fixes::new()).unwrap();
        let tried = combinations(&all);
        assert_eq!(tried.len(), 5);
        assert!(tried.iter().all(|sizes| sizes[0] == Size::Batch && sizes[1] == sizes[2]), "{tried:?}");
        let fixes = [("height", "48"), ("batch", "N")].map(|(name, size)| (name.to_owned(), size.to_owned()));
        let (all, _) = open(&picture, &fixes.into()).unwrap();
        assert_eq!(combinations(&all)[0], [Size::Batch, Size::Fixed(48), Size::Fixed(640)]);
        let wrong = open(&picture, &[("width".to_owned(), "0".to_owned())].into()).unwrap_err().to_string();
        assert!(wrong.contains("--fix width=0: a number of 1 or more is needed"), "{wrong}");
    }
}
