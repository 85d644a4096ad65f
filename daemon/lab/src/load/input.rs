//! What requests carry: zeros, a file's bytes, or pictures in turn, with their right answers where these are known.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use weir_client::{DataType, StreamInfo, TensorInfo};

use weir_engine::idx::{self, Pictures};
use weir_engine::manifest::{Heldout, argmax};

/// The payloads of a run, taken in turn.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    payloads: Vec<Vec<u8>>,
    /// They are values of one `f32` tensor, not just bytes.
    pictures: bool,
    labels: Option<Vec<u8>>,
}

impl Inputs {
    /// One payload of zeros, for any tensors.
    pub(crate) fn zeros(bytes: usize) -> Self {
        Self { payloads: vec![vec![0; bytes]], pictures: false, labels: None }
    }

    /// The bytes of a file: the input tensors as they travel.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn raw(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        Ok(Self { payloads: vec![bytes], pictures: false, labels: None })
    }

    /// The pictures of an IDX file (the format of MNIST), pixels scaled to 0.0..=1.0, and the labels of
    /// another.
    ///
    /// # Errors
    /// If a file cannot be read or is not what it should be, or the two hold different numbers.
    pub(crate) fn read(pictures: &Path, labels: Option<&Path>) -> Result<Self> {
        let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
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
        Ok(Self { payloads, pictures: true, labels })
    }

    /// The held-out data of a manifest.
    pub(crate) fn heldout(data: &Heldout) -> Self {
        let picture =
            |i| (data.get(i).0.iter().flat_map(|pixel| pixel.to_le_bytes()).collect(), data.get(i).1);
        let (payloads, labels) = (0..data.count()).map(picture).unzip();
        Self { payloads, pictures: true, labels: Some(labels) }
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

    /// What request `number` carries.
    pub(crate) fn payload(&self, number: u64) -> &[u8] {
        &self.payloads[self.place(number)]
    }

    /// Whether the largest output of request `number` stands at its label's place; `None` without labels.
    pub(crate) fn is_right(&self, number: u64, output: &[f32]) -> Option<bool> {
        let label = self.labels.as_ref()?[self.place(number)];
        Some(argmax(output) == Some(usize::from(label)))
    }

    fn place(&self, number: u64) -> usize {
        (number % self.payloads.len() as u64) as usize
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
    fn pictures_take_turns_and_know_their_labels() {
        let labels = Some(idx::labels(LABELS).unwrap().to_vec());
        let pictures = Pictures::parse(PICTURES).unwrap();
        let payloads = pictures.iter().map(|picture| bytemuck::cast_slice(&picture).to_vec()).collect();
        let inputs = Inputs { payloads, pictures: true, labels };
        assert_eq!(inputs.payload(0), bytemuck::bytes_of(&[0.0f32, 1.0]));
        assert_eq!(inputs.payload(3), bytemuck::bytes_of(&[0.2f32, 0.0]));
        assert_eq!(inputs.is_right(0, &[0.1, 0.9]), Some(true));
        assert_eq!(inputs.is_right(1, &[0.1, 0.9]), Some(false));
        assert_eq!(inputs.is_right(1, &[]), Some(false));
        assert_eq!(Inputs::zeros(3).is_right(0, &[1.0]), None);
    }
}
