//! The answer of a pipeline: of each stage that answers, the results of all that one source became there.

use rt_core::pipeline::Parents;
use weir_engine::{DataType, ModelSpec, TensorSpec, packed_len};

/// Of what there is no result.
const NONE: i32 = -1;

/// How the results of the stages become one answer of fixed size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    parts: Vec<ReplyPart>,
    outputs: Vec<TensorSpec>,
}

/// A stage as far as the answer is concerned.
#[derive(Clone, Copy, Debug)]
pub struct ReplyStage<'a> {
    pub name: &'a str,
    pub model: &'a ModelSpec,
    /// Of which stages results become its requests, if not of a source at once.
    pub parents: Parents,
    /// How many requests a source becomes there at most.
    pub most: usize,
    /// Whether its results are part of the answer.
    pub answers: bool,
}

/// A stage whose results are part of the answer.
///
/// Each output of its model is there as often as one source can become a request there, after one another, and with it two
/// tensors of as many numbers: `parent`, which of the parent's results it was made of, -1 where there is none; and `row`, which
/// row of that. With several parents there is a third, `from`: the number of the stage whose result it was made of. The first stage
/// and a join have one result and none of these.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReplyPart {
    stage: usize,
    most: usize,
    /// Of each output of the model: where it begins in a packed result, its bytes, and where its first one is in the answer.
    tensors: Vec<(usize, usize, usize)>,
    /// Where these begin in the answer, and which number of a [`Descent`] each has.
    origins: Vec<(usize, Number)>,
}

/// One of the numbers of a [`Descent`].
type Number = fn(&Descent) -> u32;

/// What a request of a stage was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descent {
    /// The stage, the number of its result among those of the source, and the row of that.
    pub stage: u32,
    pub parent: u32,
    pub row: u32,
}

/// The results of one source at one stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Results<'a> {
    /// Of each, what it was made of.
    pub origins: &'a [Descent],
    /// As the engine packs them, side by side.
    pub packed: &'a [u8],
}

impl Reply {
    /// Of these stages, in order.
    pub fn new<'a>(stages: impl IntoIterator<Item = ReplyStage<'a>>) -> Self {
        let mut reply = Self { parts: Vec::new(), outputs: Vec::new() };
        for (stage, ReplyStage { name, model, parents, most, answers }) in stages.into_iter().enumerate() {
            if !answers {
                continue;
            }
            let mut put = |what: &str, data_type, shape: Vec<usize>| {
                reply.outputs.push(TensorSpec::new(&format!("{name}.{what}"), data_type, &shape));
                last_at(&reply.outputs)
            };
            let once = is_once(parents);
            let many = |shape: &[usize]| if once { shape.to_vec() } else { [&[most], shape].concat() };
            let tensors = model.answer().iter().enumerate().map(|(number, tensor)| {
                let from = last_at(&model.answer()[..=number]);
                (from, tensor.bytes(), put(&tensor.name, tensor.data_type, many(&tensor.shape)))
            });
            let tensors = tensors.collect();
            let origins =
                origins(parents).iter().map(|&(what, of)| (put(what, DataType::I32, vec![most]), of));
            let origins = origins.collect();
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
        for (at, of) in &self.origins {
            let (numbers, _) = answer[*at..].as_chunks_mut();
            for (n, bytes) in numbers.iter_mut().take(self.most).enumerate() {
                *bytes = origins.get(n).map_or(NONE, |descent| of(descent) as i32).to_le_bytes();
            }
        }
    }
}

/// Whether a source is one request of a stage with these parents, as it came or when they are done with it.
fn is_once(parents: Parents) -> bool {
    parents.is_join() || parents.first().is_none()
}

/// What says where the results of a stage with these parents are from.
pub(super) fn origins(parents: Parents) -> &'static [(&'static str, Number)] {
    const ALL: [(&str, Number); 3] =
        [("parent", |of| of.parent), ("row", |of| of.row), ("from", |of| of.stage)];
    match parents {
        parents if is_once(parents) => &[],
        parents if parents.iter().count() == 1 => &ALL[..2],
        _ => &ALL,
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
            accuracy_by_class: Vec::new(),
            constants: Vec::new(),
            states: Vec::new(),
            external: Vec::new(),
        }
    }

    fn stage<'a>(name: &'a str, model: &'a ModelSpec, parents: &[usize], most: usize) -> ReplyStage<'a> {
        let parents = Parents::each(parents.iter().copied());
        ReplyStage { name, model, parents, most, answers: true }
    }

    fn of(stage: u32, parent: u32, row: u32) -> Descent {
        Descent { stage, parent, row }
    }

    #[test]
    fn results_of_several_stages_say_of_which_they_are_and_a_join_has_one() {
        let one = model(vec![TensorSpec::new("x", DataType::U8, &[2])]);
        let joined = ReplyStage { parents: Parents::join([1, 2]), ..stage("all", &one, &[], 1) };
        let silent = ReplyStage { answers: false, ..stage("a", &one, &[], 1) };
        let stages = [silent, ReplyStage { name: "b", ..silent }, stage("both", &one, &[0, 1], 3), joined];
        let reply = Reply::new(stages);
        let shapes: Vec<_> = reply.outputs().iter().map(|t| (t.name.as_str(), &*t.shape)).collect();
        let expected: [(_, &[usize]); 5] = [
            ("both.x", &[3, 2]),
            ("both.parent", &[3]),
            ("both.row", &[3]),
            ("both.from", &[3]),
            ("all.x", &[2]),
        ];
        assert_eq!(shapes, expected);
        let (mut answer, merged) = (Vec::new(), [7, 8, 9, 10]);
        let origins = [of(1, 0, 4), of(0, 2, 0)];
        let results = |stage| match stage {
            2 => Results { origins: &origins, packed: &merged },
            _ => Results { origins: &origins[..1], packed: &[5, 6] },
        };
        reply.write(results, &mut answer);
        let numbers = |at: usize| -> Vec<i32> {
            answer[at..at + 12].chunks(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        assert_eq!(answer[..6], [7, 8, 9, 10, 0, 0]);
        assert_eq!([numbers(8), numbers(24), numbers(40)], [[0, 2, -1], [4, 0, -1], [1, 0, -1]]);
        assert_eq!(answer[56..58], [5, 6]);
    }

    #[test]
    fn results_lie_by_tensor_with_where_they_are_from() {
        let detect = model(vec![TensorSpec::new("scores", DataType::U8, &[3])]);
        let read = model(vec![
            TensorSpec::new("digit", DataType::U8, &[1]),
            TensorSpec::new("odds", DataType::U8, &[2]),
        ]);
        let reply = Reply::new([stage("detect", &detect, &[], 1), stage("read", &read, &[0], 3)]);
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
        let origins = [of(0, 0, 2), of(0, 0, 1)];
        let results = |stage| match stage {
            0 => Results { origins: &[], packed: &first },
            _ => Results { origins: &origins, packed: &second },
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
        let silent = ReplyStage { answers: false, ..stage("a", &one, &[], 1) };
        let reply = Reply::new([silent, stage("b", &one, &[0], 2)]);
        assert!(reply.outputs().iter().all(|tensor| tensor.name.starts_with("b.")));
        assert_eq!(packed_len(reply.outputs()), 16 + 8 + 8);
    }
}
