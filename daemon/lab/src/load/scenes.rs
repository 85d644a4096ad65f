//! Scenes: pictures with several digits, and how a pipeline that finds and reads them has read one.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use weir_client::{DataType, Inference, StreamInfo};

use weir_engine::idx::Pictures;
use weir_engine::manifest::argmax;

/// The names of the held-out scenes and of what is in them, beside the manifest of the shipped models.
const FILES: [&str; 2] = ["heldout-scenes.idx3-ubyte", "heldout-places.idx3-ubyte"];

/// Scenes, and the digits of each from left to right.
#[derive(Clone, Debug)]
pub(crate) struct Scenes {
    pub(crate) pictures: Vec<Vec<f32>>,
    pub(crate) digits: Vec<Vec<u8>>,
}

impl Scenes {
    /// The held-out ones in the folder of the shipped models, those with the fewest digits first.
    ///
    /// # Errors
    /// If a file cannot be read, is not what it should be, or there are no scenes.
    pub(crate) fn heldout(folder: &Path) -> Result<Self> {
        let read = |name: &str| -> Result<(usize, Vec<Vec<f32>>)> {
            let path = folder.join(name);
            let bytes = planner::read_bytes(&path).with_context(|| path.display().to_string())?;
            let parsed = Pictures::parse(&bytes).with_context(|| path.display().to_string())?;
            Ok((parsed.columns, parsed.iter().collect::<Vec<_>>()))
        };
        let ((_, pictures), (columns, places)) = (read(FILES[0])?, read(FILES[1])?);
        let (scenes, known) = (pictures.len(), places.len());
        ensure!(
            scenes == known && scenes > 0,
            "{}: {scenes} scenes, of {known} is known what is in them",
            FILES[0]
        );
        let digits = |places: Vec<f32>| -> Vec<u8> {
            let values = places.chunks_exact(columns).map(|place| (place[0] * 255.0).round() as u8);
            values.filter(|&digit| digit < 10).collect()
        };
        let mut scenes: Vec<_> = pictures.into_iter().zip(places.into_iter().map(digits)).collect();
        // Stable, so that it is the same run each time.
        scenes.sort_by_key(|(_, digits)| digits.len());
        let (pictures, digits) = scenes.into_iter().unzip();
        Ok(Self { pictures, digits })
    }
}

/// The digits that were read in a scene, from left to right; `None` where the answer is not that of a detector's `boxes` and a
/// reader's `logits`.
pub(crate) fn digits(stream: &StreamInfo, inference: &Inference) -> Option<Vec<u8>> {
    let place = |name: &str, data_type| {
        let is_it =
            |tensor: &weir_client::TensorInfo| tensor.data_type == data_type && tensor.name.ends_with(name);
        stream.outputs.iter().position(is_it)
    };
    let floats = |name| stream.output_at::<f32>(inference, place(name, DataType::F32)?).ok();
    let numbers = |name| stream.output_at::<i32>(inference, place(name, DataType::I32)?).ok();
    let (boxes, logits, rows) = (floats(".boxes")?, floats(".logits")?, numbers(".row")?);
    let each = logits.len().checked_div(rows.len()).filter(|&each| each > 0)?;
    let mut read: Vec<(f32, u8)> = Vec::new();
    for (row, logits) in rows.iter().zip(logits.chunks_exact(each)) {
        // Behind the last there is nothing.
        let Ok(row) = usize::try_from(*row) else { break };
        let across = boxes.get(4 * row)? + boxes.get(4 * row + 2)?;
        read.push((across, argmax(logits)? as u8));
    }
    read.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(read.into_iter().map(|(_, digit)| digit).collect())
}
