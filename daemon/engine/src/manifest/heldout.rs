//! Held-out data measures a model's accuracy before it serves: IDX files of images and labels, named by the
//! manifest.

use std::path::Path;

use super::{HeldoutToml, ManifestError, Named};
use crate::engine::{DataType, ModelSpec, Runner, Side, TensorSpec, read_verified};
use crate::idx::{self, Pictures};

/// Images with their right answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Heldout {
    /// All images one after the other, every pixel in 0.0..=1.0.
    images: Vec<f32>,
    labels: Vec<u8>,
    image_len: usize,
}

impl Heldout {
    /// The number of images.
    pub fn count(&self) -> usize {
        self.labels.len()
    }

    /// Image `index % count`, row by row, and its label.
    pub fn get(&self, index: usize) -> (&[f32], u8) {
        let index = index % self.labels.len();
        (&self.images[index * self.image_len..][..self.image_len], self.labels[index])
    }

    /// Whether the model takes one such image and has a place for each label.
    ///
    /// # Errors
    /// [`ManifestError::Fit`].
    pub fn check(&self, spec: &ModelSpec) -> Result<(), ManifestError> {
        let refuse = |side, expected, found| {
            Err(ManifestError::Fit { model: spec.name.clone(), side, expected, found })
        };
        let (found, expected) = (f32_elements(&spec.inputs), self.image_len);
        if found != expected {
            return refuse(Side::Input, expected, found);
        }
        let (found, classes) = (f32_elements(&spec.outputs), self.labels.iter().max());
        let expected = classes.map_or(0, |&largest| usize::from(largest) + 1);
        if found < expected { refuse(Side::Output, expected, found) } else { Ok(()) }
    }

    pub(super) fn load(folder: &Path, images: &Named, toml: &HeldoutToml) -> Result<Self, ManifestError> {
        let path = folder.join(&images.file);
        let bytes = read_verified(&path, &images.sha256)?;
        let images = Pictures::parse(&bytes).map_err(|e| misfit(&path, e.what, e.expected, e.found))?;
        let image_len = images.rows * images.columns;
        equal(&path, "the number of images", toml.count, images.count)?;

        let path = folder.join(&toml.labels.file);
        let label_bytes = read_verified(&path, &toml.labels.sha256)?;
        let labels = idx::labels(&label_bytes).map_err(|e| misfit(&path, e.what, e.expected, e.found))?;
        equal(&path, "the number of labels", toml.count, labels.len())?;
        Ok(Self { images: images.iter().flatten().collect(), labels: labels.to_vec(), image_len })
    }
}

/// The share of images, 0..=1, for which the largest output stands at the label's place. Runs them one by
/// one.
///
/// # Errors
/// A model whose input is not one image or whose output has no place for a label, and what the runner
/// reports.
pub fn measure_accuracy(
    runner: &mut dyn Runner,
    spec: &ModelSpec,
    heldout: &Heldout,
) -> Result<f64, ManifestError> {
    heldout.check(spec)?;
    let (mut right, mut output) = (0usize, vec![0f32; f32_elements(&spec.outputs)]);
    for index in 0..heldout.count() {
        let (image, label) = heldout.get(index);
        runner.buffers().write(Side::Input, 0, 0, bytemuck::cast_slice(image));
        runner.run(1)?;
        runner.buffers().read(Side::Output, 0, 0, bytemuck::cast_slice_mut(&mut output));
        right += usize::from(argmax(&output) == Some(usize::from(label)));
    }
    Ok(right as f64 / heldout.count() as f64)
}

/// The elements of the only tensor; none where there are several or others than `f32`.
fn f32_elements(tensors: &[TensorSpec]) -> usize {
    match tensors {
        [tensor] if tensor.data_type == DataType::F32 => tensor.elements(),
        _ => 0,
    }
}

/// The place of the largest value, the first of equals; `None` of no values.
pub fn argmax(values: &[f32]) -> Option<usize> {
    (0..values.len()).reduce(|best, i| if values[i] > values[best] { i } else { best })
}

fn equal(path: &Path, what: &'static str, expected: usize, found: usize) -> Result<(), ManifestError> {
    if expected == found { Ok(()) } else { Err(misfit(path, what, expected, found)) }
}

fn misfit(path: &Path, what: &'static str, expected: usize, found: usize) -> ManifestError {
    ManifestError::Idx { path: path.to_owned(), what, expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, SimulatedTime, load, sha256_hex};

    const IMAGES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 0];
    const LABELS: &[u8] = &[0, 0, 8, 1, 0, 0, 0, 2, 1, 0];

    fn load_from(images: &[u8], labels: &[u8], count: usize) -> Result<Heldout, ManifestError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("images"), images).unwrap();
        std::fs::write(dir.path().join("labels"), labels).unwrap();
        let toml = HeldoutToml {
            images: Named { file: "images".into(), sha256: sha256_hex(images) },
            labels: Named { file: "labels".into(), sha256: sha256_hex(labels) },
            count,
            classes: Vec::new(),
        };
        Heldout::load(dir.path(), &toml.images, &toml)
    }

    #[test]
    fn reads_images_and_labels() {
        let heldout = load_from(IMAGES, LABELS, 2).unwrap();
        assert_eq!(heldout.count(), 2);
        assert_eq!(heldout.get(0), (&[0.0, 1.0][..], 1));
        assert_eq!(heldout.get(3), (&[0.2, 0.0][..], 0));
    }

    #[test]
    fn files_that_do_not_fit_are_refused_by_what_is_wrong() {
        let refused = |images, labels, count| load_from(images, labels, count).unwrap_err().to_string();
        assert!(refused(&IMAGES[..7], LABELS, 2).ends_with("the file's length is 7, 16 is needed"));
        assert!(refused(IMAGES, IMAGES, 2).contains("the magic number is 2051, 2049 is needed"));
        assert!(refused(IMAGES, LABELS, 3).contains("the number of images is 2, 3 is needed"));
    }

    #[test]
    fn accuracy_is_the_share_of_right_answers() {
        use crate::engine::toy_spec;
        let accuracy = |labels: &[u8], input, output| {
            let labels = [&LABELS[..8], labels].concat();
            let heldout = load_from(IMAGES, &labels, 2).unwrap();
            // The simulated engine answers with its input.
            let (spec, echo) =
                (toy_spec(input, output), Engine::Simulated { times: &[SimulatedTime::always(0)] });
            measure_accuracy(&mut *load(echo, &spec, 1).unwrap(), &spec, &heldout)
        };
        assert_eq!(accuracy(&[1, 0], 2, 2).unwrap(), 1.0);
        assert_eq!(accuracy(&[1, 1], 2, 2).unwrap(), 0.5);
        assert!(accuracy(&[1, 0], 3, 2).unwrap_err().to_string().contains("input holds 3 f32"));
        assert!(accuracy(&[1, 2], 2, 2).unwrap_err().to_string().contains("needs 3"));
    }
}
