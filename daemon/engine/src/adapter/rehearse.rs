//! Made-up answers with which it can be measured what making a request costs.

use crate::engine::{TensorSpec, fill_tensor, packed_len};

use super::boxes::Boxes;
use super::lay::How;
use super::names::{Place, View};
use super::select::Select;
use super::{Adapter, Given, Results, Step, number, regions};

/// A request of the pipeline, and an answer of each stage on the way, of which every row becomes a request and every box holds
/// all of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rehearsal {
    /// The pipeline's request.
    pub source: Vec<u8>,
    /// The stages' answers, the parent's last.
    pub answers: Vec<Vec<u8>>,
    /// As many results as may be of each stage of which all are there, and which of them is first, second, …
    all: Vec<(Vec<u8>, Vec<u16>)>,
    /// The row of each answer that the way goes on with.
    rows: Vec<u32>,
}

impl Rehearsal {
    /// The way to the request that is of this row of the parent's answer.
    pub fn path(&self, row: u32) -> Vec<Step<'_>> {
        let last = self.answers.len().saturating_sub(1);
        let row_of = |number| if number == last { row } else { self.rows[number] };
        let step = |(number, answer)| Step { answer, row: row_of(number) };
        self.answers.iter().map(Vec::as_slice).enumerate().map(step).collect()
    }

    /// Of each stage of which all results are there, these.
    pub fn all(&self) -> Vec<Results<'_>> {
        self.all.iter().map(|(packed, order)| Results { packed, order }).collect()
    }

    /// What the request of that way is made of.
    pub fn given<'a>(&'a self, all: &'a [Results<'a>], path: &'a [Step<'a>]) -> Given<'a> {
        Given { source: &self.source, all, path }
    }
}

impl Adapter {
    /// Answers with which [`Adapter::select`] and [`Adapter::lay`] have all that they can have to do.
    pub fn rehearse(&self, seed: u64) -> Rehearsal {
        let mut rehearsal = Rehearsal {
            source: filled(seed, &self.tensors[0]),
            answers: self.tensors[1..].iter().map(|tensors| filled(seed, tensors)).collect(),
            all: self.above.iter().map(|(tensors, most)| many(seed, tensors, *most)).collect(),
            rows: vec![0; self.tensors.len() - 1],
        };
        let parent = rehearsal.answers.last_mut();
        match (&self.select, parent) {
            // Each higher than all before it, as far as the type goes.
            (Select::Scores { scores, column, threshold }, Some(answer)) => {
                let (size, columns) = (scores.data_type.size(), scores.elements());
                for row in 0..scores.rows.unwrap_or(0) {
                    let at = scores.at + (row * columns + column) * size;
                    let score = (threshold.max(0.0) + 1.0).ceil() + row as f64;
                    number::store(scores.data_type, score, &mut answer[at..at + size]);
                }
            }
            (Select::Rows { rows, count: Some(count) }, Some(answer)) => {
                let most = (*rows as u64).min(number::counts_to(count.data_type));
                number::store(count.data_type, most as f64, &mut answer[count.at..][..count.bytes]);
            }
            (Select::Regions(regions), Some(answer)) => regions.fill(answer),
            _ => {}
        }
        for laid in &self.inputs {
            let How::Region(region) = &laid.how else { continue };
            if let Boxes::Region(stage) = region.boxes() {
                rehearsal.rows[stage] = regions::WHOLE;
            }
            if let Some((boxes, numbers)) = region.boxes().whole_image(region.image_sides()) {
                let packed = match boxes.place {
                    Place::Source => &mut rehearsal.source,
                    Place::Stage(number) => &mut rehearsal.answers[number],
                    Place::All { number, .. } => &mut rehearsal.all[number].0,
                };
                fill_boxes(boxes, numbers, packed);
            }
        }
        rehearsal
    }
}

fn fill_boxes(boxes: View, whole: [f64; 4], packed: &mut [u8]) {
    let size = boxes.data_type.size();
    for row in 0..boxes.rows.unwrap_or(1) {
        let at = boxes.at + row * boxes.bytes;
        for (value, element) in whole.into_iter().zip(packed[at..].chunks_exact_mut(size)) {
            number::store(boxes.data_type, value, element);
        }
    }
}

/// As many results as may be, the last one first.
fn many(seed: u64, tensors: &[TensorSpec], most: usize) -> (Vec<u8>, Vec<u16>) {
    let packed = (0..most as u64).flat_map(|number| filled(seed.wrapping_add(number), tensors)).collect();
    (packed, (0..most as u16).rev().collect())
}

fn filled(seed: u64, tensors: &[TensorSpec]) -> Vec<u8> {
    let mut packed = vec![0; packed_len(tensors)];
    for (number, tensor) in tensors.iter().enumerate() {
        let end = packed_len(&tensors[..=number]);
        let at = end - tensor.bytes();
        fill_tensor(seed.wrapping_add(number as u64), tensor.data_type, &mut packed[at..end]);
    }
    packed
}
