//! What requests carry: zeros, or pictures in turn, with their right answers where these are known.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::idx::{self, Pictures};
use crate::manifest::{Heldout, argmax};

/// The tensors of a run, taken in turn.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    tensors: Vec<Vec<f32>>,
    labels: Option<Vec<u8>>,
}

impl Inputs {
    /// One tensor of zeros.
    pub(crate) fn zeros(values: usize) -> Self {
        Self { tensors: vec![vec![0.0; values]], labels: None }
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
        let tensors: Vec<_> = parsed.iter().collect();
        ensure!(tensors.iter().any(|t| !t.is_empty()), "{}: no pictures", pictures.display());
        let labels = labels
            .map(|path| {
                let bytes = read(path)?;
                let labels = idx::labels(&bytes).with_context(|| path.display().to_string())?.to_vec();
                let (held, wanted) = (labels.len(), tensors.len());
                ensure!(held == wanted, "{}: {held} labels for {wanted} pictures", path.display());
                Ok(labels)
            })
            .transpose()?;
        Ok(Self { tensors, labels })
    }

    /// The held-out data of a manifest.
    pub(crate) fn heldout(data: &Heldout) -> Self {
        let (tensors, labels) = (0..data.count()).map(|i| data.get(i)).map(|(x, y)| (x.to_vec(), y)).unzip();
        Self { tensors, labels: Some(labels) }
    }

    /// The tensor of request `number`.
    pub(crate) fn tensor(&self, number: u64) -> &[f32] {
        &self.tensors[self.place(number)]
    }

    /// Whether the largest output of request `number` stands at its label's place; `None` without labels.
    pub(crate) fn is_right(&self, number: u64, output: &[f32]) -> Option<bool> {
        let label = self.labels.as_ref()?[self.place(number)];
        Some(argmax(output) == Some(usize::from(label)))
    }

    fn place(&self, number: u64) -> usize {
        (number % self.tensors.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 0];
    const LABELS: &[u8] = &[0, 0, 8, 1, 0, 0, 0, 2, 1, 0];

    #[test]
    fn pictures_take_turns_and_know_their_labels() {
        let labels = Some(idx::labels(LABELS).unwrap().to_vec());
        let inputs = Inputs { tensors: Pictures::parse(PICTURES).unwrap().iter().collect(), labels };
        assert_eq!(inputs.tensor(0), &[0.0, 1.0]);
        assert_eq!(inputs.tensor(3), &[0.2, 0.0]);
        assert_eq!(inputs.is_right(0, &[0.1, 0.9]), Some(true));
        assert_eq!(inputs.is_right(1, &[0.1, 0.9]), Some(false));
        assert_eq!(inputs.is_right(1, &[]), Some(false));
        assert_eq!(Inputs::zeros(3).is_right(0, &[1.0]), None);
    }
}
