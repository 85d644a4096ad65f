//! The answer of a pipeline: of each stage that answers, the results of all that one source became there.

use weir_engine::{DataType, ModelSpec, TensorSpec, packed_len};

/// Of what there is no result.
const NONE: i32 = -1;

/// How the results of the stages become one answer of fixed size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    parts: Vec<ReplyPart>,
    outputs: Vec<TensorSpec>,
}

/// A stage whose results are part of the answer.
///
/// Each output of its model is there as often as one source can become a request there, after one another, and with it two
/// tensors of as many numbers: `parent`, which of the parent's results it was made of, -1 where there is none; and `row`, which
/// row of that. The first stage has one result and neither.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReplyPart {
    stage: usize,
    most: usize,
    /// Of each output of the model: where it begins in a packed result, its bytes, and where its first one is in the answer.
    tensors: Vec<(usize, usize, usize)>,
    /// Where `parent` and `row` begin in the answer; `None` for the first stage.
    origins: Option<(usize, usize)>,
}

/// The results of one source at one stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Results<'a> {
    /// Of each: the parent's result, and the row of it.
    pub origins: &'a [(u32, u32)],
    /// As the engine packs them, side by side.
    pub packed: &'a [u8],
}

impl Reply {
    /// Of these stages, in order: the name, the model, how many requests a source becomes there at most, and whether its results
    /// are part of the answer.
    pub fn new<'a>(stages: impl IntoIterator<Item = (&'a str, &'a ModelSpec, usize, bool)>) -> Self {
        let mut reply = Self { parts: Vec::new(), outputs: Vec::new() };
        for (stage, (name, model, most, answers)) in stages.into_iter().enumerate() {
            if !answers {
                continue;
            }
            let mut put = |what: &str, data_type, shape: Vec<usize>| {
                reply.outputs.push(TensorSpec::new(&format!("{name}.{what}"), data_type, &shape));
                last_at(&reply.outputs)
            };
            let many = |shape: &[usize]| match stage {
                0 => shape.to_vec(),
                _ => [&[most], shape].concat(),
            };
            let tensors = model.answer().iter().enumerate().map(|(number, tensor)| {
                let from = last_at(&model.answer()[..=number]);
                (from, tensor.bytes(), put(&tensor.name, tensor.data_type, many(&tensor.shape)))
            });
            let tensors = tensors.collect();
            let mut numbers = |what| put(what, DataType::I32, vec![most]);
            let origins = (stage > 0).then(|| (numbers("parent"), numbers("row")));
            reply.parts.push(ReplyPart { stage, most, tensors, origins });
        }
        reply
    }

    /// The tensors of the answer.
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// Writes the answer of a source over `answer`; `results` says what there is of a stage.
    pub fn write<'a>(&self, results: impl Fn(usize) -> Results<'a>, answer: &mut Vec<u8>) {
        answer.clear();
        answer.resize(packed_len(&self.outputs), 0);
        for part in &self.parts {
            part.write(results(part.stage), answer);
        }
    }
}

/// Where the last of these tensors begins among them, as they are packed.
fn last_at(tensors: &[TensorSpec]) -> usize {
    packed_len(tensors) - tensors.last().map_or(0, TensorSpec::bytes)
}

impl ReplyPart {
    fn write(&self, Results { origins, packed }: Results<'_>, answer: &mut [u8]) {
        let each = self.tensors.last().map_or(0, |(from, bytes, _)| from + bytes);
        for &(from, bytes, at) in &self.tensors {
            for (number, result) in packed.chunks_exact(each.max(1)).take(self.most).enumerate() {
                answer[at + number * bytes..][..bytes].copy_from_slice(&result[from..][..bytes]);
            }
        }
        let Some((parents, rows)) = self.origins else { return };
        let number = |at: usize, n: usize| at + n * size_of::<i32>();
        for n in 0..self.most {
            let (parent, row) =
                origins.get(n).map_or((NONE, NONE), |&(parent, row)| (parent as i32, row as i32));
            answer[number(parents, n)..number(parents, n + 1)].copy_from_slice(&parent.to_le_bytes());
            answer[number(rows, n)..number(rows, n + 1)].copy_from_slice(&row.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn model(outputs: Vec<TensorSpec>) -> ModelSpec {
        ModelSpec {
            name: "m".to_owned(),
            path: PathBuf::new(),
            sha256: String::new(),
            inputs: Vec::new(),
            outputs,
            accuracy: f64::NAN,
            constants: Vec::new(),
            states: Vec::new(),
            external: Vec::new(),
        }
    }

    #[test]
    fn results_lie_by_tensor_with_where_they_are_from() {
        let detect = model(vec![TensorSpec::new("scores", DataType::U8, &[3])]);
        let read = model(vec![
            TensorSpec::new("digit", DataType::U8, &[1]),
            TensorSpec::new("odds", DataType::U8, &[2]),
        ]);
        let reply = Reply::new([("detect", &detect, 1, true), ("read", &read, 3, true)]);
        let shapes: Vec<_> = reply.outputs().iter().map(|t| (t.name.as_str(), t.shape.clone())).collect();
        let expected = [
            ("detect.scores", vec![3]),
            ("read.digit", vec![3, 1]),
            ("read.odds", vec![3, 2]),
            ("read.parent", vec![3]),
            ("read.row", vec![3]),
        ];
        assert_eq!(shapes, expected);
        let mut answer = vec![9; 200];
        let first = [5, 6, 7];
        // A packed result: the digit, seven bytes of nothing, two odds.
        let second = [1, 0, 0, 0, 0, 0, 0, 0, 11, 12, 2, 0, 0, 0, 0, 0, 0, 0, 21, 22];
        let results = |stage| match stage {
            0 => Results { origins: &[], packed: &first },
            _ => Results { origins: &[(0, 2), (0, 1)], packed: &second },
        };
        reply.write(results, &mut answer);
        assert_eq!(answer.len(), packed_len(reply.outputs()));
        assert_eq!(answer[..3], [5, 6, 7]);
        assert_eq!(answer[8..11], [1, 2, 0]);
        assert_eq!(answer[16..22], [11, 12, 21, 22, 0, 0]);
        let numbers = |at: usize| -> Vec<i32> {
            answer[at..at + 12].chunks(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        assert_eq!((numbers(24), numbers(40)), (vec![0, 0, -1], vec![2, 1, -1]));
    }

    #[test]
    fn stages_that_do_not_answer_take_no_room() {
        let one = model(vec![TensorSpec::new("x", DataType::F32, &[2])]);
        let reply = Reply::new([("a", &one, 1, false), ("b", &one, 2, true)]);
        assert!(reply.outputs().iter().all(|tensor| tensor.name.starts_with("b.")));
        assert_eq!(packed_len(reply.outputs()), 16 + 8 + 8);
    }
}
