//! Whether what a model answers to a request depends on what else is in the batch: no file says so, and it is tried.

use crate::adapter::number::{load, store};
use crate::engine::{DataType, EngineError, ModelSpec, RunMode, Runner, Side, TensorSpec, fill_tensor};

/// Requests of a batch that is tried, where there may be as many.
const REQUESTS: usize = 3;
/// What the floats of each request, 0.0..1.0, are multiplied by, so that a scale or a sum over all of them is that of none. With
/// the second row all are as they are elsewhere: models that make indices of them take no others.
const SCALES: [[f64; REQUESTS]; 2] = [[1.0, 8.0, -8.0], [1.0; REQUESTS]];
/// Rounding is held to be smaller than this, relative to the largest number of the output.
const TOLERANCE: f64 = 1e-3;
/// Outputs that are smaller are rounding and nothing else.
const NOTHING: f64 = 1e-6;

/// Runs made-up requests together and one by one; the name of an output that then differs for a request by more than rounding explains.
/// What is not the same for a request that is run alone twice, such as noise, is not looked at. `None` also where batches of up
/// to three are run one by one anyway.
///
/// # Errors
/// What the engine reports of requests that it should be able to run.
pub fn mixed_output(runner: &mut dyn Runner, spec: &ModelSpec) -> Result<Option<String>, EngineError> {
    let most = runner.buffers().max_batch().min(REQUESTS);
    let Some(batch) = (2..=most).rev().find(|&batch| runner.mode(batch) == RunMode::Batched) else {
        return Ok(None);
    };
    // Requests of a few elements may be alike by chance.
    let bytes: usize = spec.inputs.iter().map(TensorSpec::bytes).sum();
    let rounds = if bytes < 1024 { 4 } else { 1 };
    for round in 0..rounds {
        for scales in &SCALES {
            let seed = |index: usize| 1 + (round * REQUESTS + index) as u64;
            let requests: Vec<_> =
                (0..batch).map(|index| request(spec, seed(index), scales[index])).collect();
            match compare(runner, spec, &requests) {
                Ok(None) => {}
                // Not every number need be one that the model takes.
                Err(error) if *scales == [1.0; REQUESTS] || matches!(error, EngineError::Lost { .. }) => {
                    return Err(error);
                }
                Err(_) => {}
                Ok(Some(output)) => return Ok(Some(spec.outputs[output].name.clone())),
            }
        }
    }
    Ok(None)
}

/// The tensors of a request.
type Tensors = Vec<Vec<u8>>;

fn compare(
    runner: &mut dyn Runner,
    spec: &ModelSpec,
    requests: &[Tensors],
) -> Result<Option<usize>, EngineError> {
    let together = run(runner, spec, requests)?;
    let mut alone = Vec::new();
    for request in requests {
        alone.extend(run(runner, spec, std::slice::from_ref(request))?);
    }
    for (output, tensor) in spec.outputs.iter().enumerate() {
        let largest =
            alone.iter().map(|answer| largest(tensor.data_type, &answer[output])).fold(0.0, f64::max);
        let differ = |a: &Tensors, b: &Tensors| apart(tensor.data_type, &a[output], &b[output], largest);
        for (index, request) in requests.iter().enumerate() {
            if differ(&alone[index], &together[index]) {
                let again = run(runner, spec, std::slice::from_ref(request))?;
                if !differ(&alone[index], &again[0]) {
                    return Ok(Some(output));
                }
            }
        }
    }
    Ok(None)
}

/// The answers to requests that are run as one batch.
fn run(runner: &mut dyn Runner, spec: &ModelSpec, requests: &[Tensors]) -> Result<Vec<Tensors>, EngineError> {
    for (index, request) in requests.iter().enumerate() {
        for (input, bytes) in request.iter().enumerate() {
            runner.buffers().write(Side::Input, input, index, bytes);
        }
    }
    runner.run(requests.len())?;
    let buffers = runner.buffers();
    let tensor = |output: usize, index: usize| {
        let mut bytes = vec![0; buffers.each(Side::Output, output)];
        buffers.read(Side::Output, output, index, &mut bytes);
        bytes
    };
    let answer = |index| (0..spec.outputs.len()).map(|output| tensor(output, index)).collect();
    Ok((0..requests.len()).map(answer).collect())
}

/// A made-up request whose floats are multiplied by `scale`.
fn request(spec: &ModelSpec, seed: u64, scale: f64) -> Tensors {
    let fill = |(place, input): (usize, &TensorSpec)| {
        let mut bytes = vec![0; input.bytes()];
        fill_tensor(seed.wrapping_mul(31).wrapping_add(place as u64), input.data_type, &mut bytes);
        for element in bytes.chunks_exact_mut(input.data_type.size()) {
            if let Some(value) = number(input.data_type, element) {
                store(input.data_type, value * scale, element);
            }
        }
        bytes
    };
    spec.inputs.iter().enumerate().map(fill).collect()
}

/// Whether two answers differ by more than rounding explains, integers and truth values at all.
fn apart(data_type: DataType, one: &[u8], other: &[u8], largest: f64) -> bool {
    let size = data_type.size();
    one.chunks_exact(size).zip(other.chunks_exact(size)).any(|(one, other)| {
        match (number(data_type, one), number(data_type, other)) {
            (Some(a), Some(b)) if a.is_nan() || b.is_nan() => a.is_nan() != b.is_nan(),
            (Some(a), Some(b)) if a.is_infinite() || b.is_infinite() => a != b,
            (Some(a), Some(b)) => (a - b).abs() > TOLERANCE * largest.max(NOTHING),
            _ => one != other,
        }
    })
}

/// The largest of its numbers, whatever their sign.
fn largest(data_type: DataType, bytes: &[u8]) -> f64 {
    let numbers = bytes.chunks_exact(data_type.size()).filter_map(|element| number(data_type, element));
    numbers.map(f64::abs).filter(|number| number.is_finite()).fold(0.0, f64::max)
}

/// The value of a float.
fn number(data_type: DataType, element: &[u8]) -> Option<f64> {
    let is_float = matches!(data_type, DataType::F16 | DataType::F32 | DataType::F64);
    is_float.then(|| load(data_type, element))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{self, Backend, Engine, Onnx, toy_file};

    /// What tract finds of a model of f32 [N, 2] to f32 [N, 2].
    fn found(graph: Onnx) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let graph = graph.input("in", 1, &["N", "2"]).output("out", 1, &["N", "2"]);
        let spec = toy_file(&dir, &graph.bytes());
        let engine = Engine::Real { backend: &Backend::TRACT, modes: Some(&[RunMode::Batched; 3]) };
        mixed_output(&mut *engine::load(engine, &spec, 3).unwrap(), &spec).unwrap()
    }

    #[test]
    fn a_sum_or_a_mean_over_the_batch_makes_answers_depend_on_each_other() {
        let sum = Onnx::default().weight("axis", 7, &[], &[0; 8]).node("CumSum", &["in", "axis"], &["out"]);
        assert_eq!(found(sum), Some("out".to_owned()));
        let mean = Onnx::default().node_with("ReduceMax", &["in"], &["most"], &[("keepdims", 1)]).node(
            "Sub",
            &["in", "most"],
            &["out"],
        );
        assert_eq!(found(mean), Some("out".to_owned()));
    }

    #[test]
    fn what_looks_at_each_request_alone_is_left_in_batches() {
        assert_eq!(found(Onnx::default().node("Relu", &["in"], &["out"])), None);
        // No number where the logarithm is that of a negative one.
        assert_eq!(found(Onnx::default().node("Log", &["in"], &["out"])), None);
        let softmax = Onnx::default().node_with("Softmax", &["in"], &["out"], &[("axis", 1)]);
        assert_eq!(found(softmax), None);
    }

    #[test]
    fn rounding_is_no_difference_and_no_number_equals_itself() {
        let apart = |one: f32, other: f32| {
            apart(DataType::F32, &one.to_le_bytes(), &other.to_le_bytes(), f64::from(one.abs()))
        };
        assert!(!apart(1000.0, 1000.9) && apart(1000.0, 1001.1));
        assert!(!apart(f32::NAN, f32::NAN) && apart(f32::NAN, 1.0) && apart(1.0, f32::NAN));
        assert!(!apart(f32::INFINITY, f32::INFINITY) && apart(f32::INFINITY, f32::NEG_INFINITY));
        assert!(super::apart(DataType::I32, &[1, 0, 0, 0], &[2, 0, 0, 0], 0.0));
    }
}
