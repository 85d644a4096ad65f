//! What requests carry: zeros, or pictures in turn, with their right answers where these are known.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::manifest::Heldout;

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
        let tensors = parse_pictures(&read(pictures)?).with_context(|| pictures.display().to_string())?;
        let labels = labels
            .map(|path| {
                let labels = parse_labels(&read(path)?).with_context(|| path.display().to_string())?;
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
        let best = (0..output.len()).reduce(|best, i| if output[i] > output[best] { i } else { best });
        Some(best == Some(usize::from(label)))
    }

    fn place(&self, number: u64) -> usize {
        (number % self.tensors.len() as u64) as usize
    }
}

fn parse_pictures(bytes: &[u8]) -> Result<Vec<Vec<f32>>> {
    let ([count, rows, columns], pixels) = idx(bytes, 0x0803)?;
    let size = rows * columns;
    ensure!(count > 0 && size > 0, "{count} pictures of {rows} by {columns}, at least one pixel is needed");
    let scale = |picture: &[u8]| picture.iter().map(|&pixel| f32::from(pixel) / 255.0).collect();
    Ok(pixels.chunks_exact(size).map(scale).collect())
}

fn parse_labels(bytes: &[u8]) -> Result<Vec<u8>> {
    let ([_], labels) = idx(bytes, 0x0801)?;
    Ok(labels.to_vec())
}

/// The `D` dimensions of an IDX file of bytes, and its data.
fn idx<const D: usize>(bytes: &[u8], magic: u32) -> Result<([usize; D], &[u8])> {
    let (words, _) = bytes.as_chunks::<4>();
    let Some((found, sizes)) = words.split_first().filter(|(_, rest)| rest.len() >= D) else {
        bail!("{} bytes are no IDX file", bytes.len());
    };
    let found = u32::from_be_bytes(*found);
    ensure!(found == magic, "the magic number is {found:#06x}, must be {magic:#06x}");
    let sizes: [usize; D] = std::array::from_fn(|i| u32::from_be_bytes(sizes[i]) as usize);
    let data = &bytes[4 * (D + 1)..];
    let wanted = sizes.iter().fold(1usize, |product, &size| product.saturating_mul(size));
    ensure!(data.len() == wanted, "the data has {} bytes, its header says {wanted}", data.len());
    Ok((sizes, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 0];
    const LABELS: &[u8] = &[0, 0, 8, 1, 0, 0, 0, 2, 1, 0];

    #[test]
    fn pictures_take_turns_and_know_their_labels() {
        let labels = Some(parse_labels(LABELS).unwrap());
        let inputs = Inputs { tensors: parse_pictures(PICTURES).unwrap(), labels };
        assert_eq!(inputs.tensor(0), &[0.0, 1.0]);
        assert_eq!(inputs.tensor(3), &[0.2, 0.0]);
        assert_eq!(inputs.is_right(0, &[0.1, 0.9]), Some(true));
        assert_eq!(inputs.is_right(1, &[0.1, 0.9]), Some(false));
        assert_eq!(inputs.is_right(1, &[]), Some(false));
        assert_eq!(Inputs::zeros(3).is_right(0, &[1.0]), None);
    }

    #[test]
    fn files_that_do_not_fit_are_refused_by_what_is_wrong() {
        let told = |bytes: &[u8]| parse_pictures(bytes).unwrap_err().to_string();
        assert!(told(&PICTURES[..7]).contains("7 bytes"));
        assert!(told(&PICTURES[..19]).contains("3 bytes, its header says 4"));
        assert!(told(&[LABELS, LABELS].concat()).contains("0x0801, must be 0x0803"));
    }
}
