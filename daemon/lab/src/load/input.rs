//! What requests carry: zeros, a file's bytes, or pictures in turn, with their right answers where these are known.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use weir_client::{DataType, Inference, StreamInfo, TensorInfo};

use super::scenes::{self, Scenes};
use weir_engine::idx::{self, Pictures};
use weir_engine::manifest::{Heldout, argmax};

/// The payloads of a run, taken in turn.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    payloads: Vec<Vec<u8>>,
    /// They are values of one `f32` tensor, not just bytes.
    pictures: bool,
    right: Option<Right>,
}

/// What is right, of each payload.
#[derive(Clone, Debug)]
enum Right {
    /// Where the largest output stands.
    Labels(Vec<u8>),
    /// The digits that are to be read.
    Scenes(Vec<Vec<u8>>),
}

impl Inputs {
    /// One payload of zeros, for any tensors.
    pub(crate) fn zeros(bytes: usize) -> Self {
        Self { payloads: vec![vec![0; bytes]], pictures: false, right: None }
    }

    /// The bytes of a file: the input tensors as they travel.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn raw(path: &Path) -> Result<Self> {
        let bytes = planner::read_bytes(path).with_context(|| path.display().to_string())?;
        Ok(Self { payloads: vec![bytes], pictures: false, right: None })
    }

    /// The pictures of an IDX file (the format of MNIST), pixels scaled to 0.0..=1.0, and the labels of
    /// another.
    ///
    /// # Errors
    /// If a file cannot be read or is not what it should be, or the two hold different numbers.
    pub(crate) fn read(pictures: &Path, labels: Option<&Path>) -> Result<Self> {
        let read = |path: &Path| planner::read_bytes(path).with_context(|| path.display().to_string());
        let bytes = read(pictures)?;
        let parsed = Pictures::parse(&bytes).with_context(|| pictures.display().to_string())?;
        let payloads: Vec<_> = parsed.iter().map(|picture| bytemuck::cast_slice(&picture).to_vec()).collect();
        ensure!(payloads.iter().any(|p| !p.is_empty()), "{}: no pictures", pictures.display());
        let labels = labels
            .map(|path| {
                let bytes = read(path)?;
                let labels = idx::labels(&bytes).with_context(|| path.display().to_string())?.to_vec();
                let (held, wanted) = (labels.len(), payloads.len());
                ensure!(held == wanted, "{}: {held} labels for {wanted} pictures", path.display());
                Ok(labels)
            })
            .transpose()?;
        Ok(Self { payloads, pictures: true, right: labels.map(Right::Labels) })
    }

    /// The held-out data of a manifest.
    pub(crate) fn heldout(data: &Heldout) -> Self {
        let picture =
            |i| (data.get(i).0.iter().flat_map(|pixel| pixel.to_le_bytes()).collect(), data.get(i).1);
        let (payloads, labels) = (0..data.count()).map(picture).unzip();
        Self { payloads, pictures: true, right: Some(Right::Labels(labels)) }
    }

    /// Scenes in their order.
    pub(crate) fn scenes(Scenes { pictures, digits }: Scenes) -> Self {
        let payloads = pictures.iter().map(|picture| bytemuck::cast_slice(picture).to_vec()).collect();
        Self { payloads, pictures: true, right: Some(Right::Scenes(digits)) }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.payloads.len()
    }

    /// That these are requests of the stream.
    ///
    /// # Errors
    /// Tensors of another length or, for pictures, of another type than `f32`.
    pub(crate) fn check(&self, stream: &StreamInfo) -> Result<()> {
        let (given, wanted) = (self.payloads[0].len(), stream.input_bytes as usize);
        let one_f32 = matches!(stream.inputs.as_slice(), [input] if input.data_type == DataType::F32);
        ensure!(
            !self.pictures || one_f32,
            "pictures are one f32 tensor, the inputs of {} are not",
            stream.variant
        );
        let takes = describe(&stream.inputs);
        ensure!(given == wanted, "the inputs have {given} bytes, {} takes {wanted}: {takes}", stream.variant);
        Ok(())
    }

    /// What is in one place.
    pub(crate) fn payload(&self, place: usize) -> &[u8] {
        &self.payloads[place]
    }

    /// Whether the answer to what is in one place is right; `None` where that is not known.
    pub(crate) fn is_right(&self, place: usize, stream: &StreamInfo, inference: &Inference) -> Option<bool> {
        match self.right.as_ref()? {
            Right::Labels(labels) => {
                let output = stream.output::<f32>(inference).ok()?;
                Some(argmax(&output) == Some(usize::from(labels[place])))
            }
            Right::Scenes(digits) => Some(scenes::digits(stream, inference)? == digits[place]),
        }
    }
}

/// Tensors in a line, as `image f32 [1, 28, 28], mask u8 [784]`.
pub(crate) fn describe(tensors: &[TensorInfo]) -> String {
    let tensors = tensors.iter().map(|t| format!("{} {} {:?}", t.name, t.data_type, t.shape));
    tensors.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 0];
    const LABELS: &[u8] = &[0, 0, 8, 1, 0, 0, 0, 2, 1, 0];

    #[test]
    fn pictures_are_values_of_a_tensor() {
        let labels = Some(Right::Labels(idx::labels(LABELS).unwrap().to_vec()));
        let pictures = Pictures::parse(PICTURES).unwrap();
        let payloads = pictures.iter().map(|picture| bytemuck::cast_slice(&picture).to_vec()).collect();
        let inputs = Inputs { payloads, pictures: true, right: labels };
        assert_eq!(inputs.count(), 2);
        assert_eq!(inputs.payload(0), bytemuck::bytes_of(&[0.0f32, 1.0]));
        assert_eq!(inputs.payload(1), bytemuck::bytes_of(&[0.2f32, 0.0]));
    }
}
