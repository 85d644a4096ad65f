//! Models that nobody here made, from packages on PyPI, with the manifest that `weir import` writes for them: each
//! computes what ONNX Runtime alone computes with it.

use std::borrow::Cow;

use ::ort::session::{Session, SessionInputValue};
use ::ort::value::Tensor;

use super::*;
use crate::engine::layout::Layout;
use crate::manifest::Manifest;

/// Requests of one stream, where there is state.
const STEPS: usize = 5;

const MANIFEST: &str = include_str!("foreign.toml");

/// Those that tract refuses, and a part of what it says: for it, both branches of a condition must give the same shape, and
/// names within them must differ.
const NOT_ON_TRACT: &[(&str, &str)] = &[
    ("silero_vad", "Failed analyse for node"),
    ("silero_vad_16k_op15", "IfThenElse"),
    ("silero_vad_half", "IfThenElse"),
    // Looked at in development builds only; in others it runs.
    #[cfg(debug_assertions)]
    ("silero_vad_openvino_16k", "duplicate name for node"),
];

/// How far outputs of another engine than ort-cpu may be apart, relative to the largest or to 1.
const TOLERANCE: f32 = 1e-4;

#[test]
fn foreign_models_compute_what_onnxruntime_computes_with_them() {
    let path = fetched("onnx-models").join("manifest.toml");
    let manifest = Manifest::parse(&path, MANIFEST).unwrap();
    assert!(manifest.models().len() >= 15, "{} models", manifest.models().len());
    let mut apart_elsewhere = Vec::new();
    for spec in manifest.models() {
        let name = &spec.name;
        let ort = Backend { kind: EngineKind::OrtCpu, ..Backend::TRACT };
        let batched = has_batches(&ort, spec).unwrap_or_else(|e| panic!("{name}: {e}")) && !spec.has_state();
        let batch = if batched { 3 } else { 1 };
        let count = if spec.has_state() { STEPS } else { batch };
        let requests: Vec<Vec<u8>> = (0..count as u64).map(|seed| request(spec, seed)).collect();
        let expected =
            if spec.has_state() { one_after_the_other(spec, &requests) } else { reference(spec, &requests) };
        let modes = vec![RunMode::Batched; batch];
        let run = |load: Load| {
            let mut runner = load(spec, batch, Some(&modes))?;
            if spec.has_state() {
                return remembering(&mut *runner, spec, &requests);
            }
            requests.iter().enumerate().for_each(|(at, bytes)| runner.buffers().put(at, bytes));
            runner.run(batch)?;
            let answer = |at| {
                let mut answer = Vec::new();
                runner.buffers().get(at, &mut answer);
                answer
            };
            Ok::<Vec<Vec<u8>>, EngineError>((0..batch).map(answer).collect())
        };
        let found = run(named("ort-cpu").1).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found, expected, "{name}: ort-cpu differs from ONNX Runtime");
        match (run(named("tract").1), NOT_ON_TRACT.iter().find(|(refused, _)| refused == name)) {
            (Ok(found), None) => {
                let apart = apart(spec, &expected, &found);
                println!("{name}, batch {batch}: bit for bit on ort-cpu, apart by {apart:.1e} on tract");
                assert!(apart <= TOLERANCE, "{name}: tract is apart by {apart}");
            }
            (Err(error), Some((_, reason))) => {
                println!("{name}, batch {batch}: bit for bit on ort-cpu; not on tract: {error}");
                assert!(error.to_string().contains(reason), "{name}: {error}");
            }
            (Err(error), None) => panic!("{name}, tract: {error}"),
            (Ok(_), Some(_)) => panic!("{name} runs on tract: take it off the list"),
        }
        // On what not every machine has. What an engine refuses is told.
        let elsewhere = under_test().into_iter().filter(|(engine, _)| !on_every_machine(engine));
        for (engine, load) in elsewhere {
            match run(load) {
                Ok(found) => {
                    let apart = apart(spec, &expected, &found);
                    println!("{name}, batch {batch}: apart by {apart:.1e} on {engine}");
                    if apart > TOLERANCE {
                        apart_elsewhere.push(format!("{name} by {apart:.1e} on {engine}"));
                    }
                }
                Err(error) => println!("{name}, batch {batch}: not on {engine}: {error}"),
            }
        }
    }
    assert!(apart_elsewhere.is_empty(), "apart by more than {TOLERANCE}: {}", apart_elsewhere.join(", "));
}

/// The answers to requests of one stream: each finds the state that the one before has left.
fn remembering(
    runner: &mut dyn Runner,
    spec: &ModelSpec,
    requests: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, EngineError> {
    let (mut state, mut answers) = (spec.initial_state(), Vec::new());
    for request in requests {
        runner.buffers().put(0, request);
        runner.buffers().put_state(0, &state);
        runner.run(1)?;
        runner.buffers().get_state(0, &mut state);
        let mut answer = Vec::new();
        runner.buffers().get(0, &mut answer);
        answers.push(answer);
    }
    Ok(answers)
}

/// The same by ONNX Runtime alone, for which state is an input and an output as any other.
fn one_after_the_other(spec: &ModelSpec, requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let plain = ModelSpec { states: Vec::new(), ..spec.clone() };
    let (mut state, mut answers) = (spec.initial_state(), Vec::new());
    for request in requests {
        let whole = [padded(request.clone()), state].concat();
        let mut answer = reference(&plain, &[whole]).remove(0);
        state = answer.split_off(padded(vec![0; packed_len(spec.answer())]).len());
        answer.truncate(packed_len(spec.answer()));
        answers.push(answer);
    }
    let last = [padded(requests[requests.len() - 1].clone()), spec.initial_state()].concat();
    let fresh = reference(&plain, &[last]).remove(0);
    let same = fresh.starts_with(&answers[answers.len() - 1]);
    assert!(!same, "{}: the last answer does not depend on what was before", spec.name);
    answers
}

/// Up to where the next tensor begins.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// A request that looks random. Whole numbers are the bytes of a file (`magika`): were they noughts and ones alone, as
/// `fill_tensor` has them, that model would take a variance of nearly nothing as the difference of two means, and what is
/// left of it is rounding, on each engine another.
fn request(spec: &ModelSpec, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for input in spec.request() {
        let at = bytes.len().next_multiple_of(8);
        bytes.resize(at + input.bytes(), 0);
        let tensor = &mut bytes[at..];
        if input.data_type == DataType::I32 {
            fill_tensor(seed, DataType::U8, tensor);
            tensor.chunks_exact_mut(4).for_each(|element| element[1..].fill(0));
        } else {
            fill_tensor(seed, input.data_type, tensor);
        }
    }
    bytes
}

/// What ONNX Runtime makes of the requests as one batch, without anything of Weir's.
fn reference(spec: &ModelSpec, requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let environment = ort::environment().unwrap();
    let mut session = Session::builder(environment)
        .and_then(|builder| Ok(builder.with_intra_threads(1)?))
        .and_then(|mut builder| builder.commit_from_file(&spec.path))
        .unwrap();
    let (batch, mut at, mut inputs) = (requests.len(), 0usize, Vec::new());
    for input in &spec.inputs {
        at = at.next_multiple_of(8);
        let each = requests.iter().flat_map(|request| request[at..at + input.bytes()].to_vec());
        let mut bytes = vec![0; batch * input.bytes()];
        Layout::of(input).spread(batch, &each.collect::<Vec<_>>(), &mut bytes);
        inputs.push((Cow::from(input.name.clone()), value(input, batch, &bytes)));
        at += input.bytes();
    }
    for constant in &spec.constants {
        let tensor = &constant.tensor;
        inputs.push((Cow::from(tensor.name.clone()), value(tensor, 1, &constant.bytes)));
    }
    let outputs = session.run(inputs).unwrap();
    let mut answers = vec![Vec::new(); batch];
    for output in &spec.outputs {
        assert_eq!(output.data_type, DataType::F32, "{}: {}", spec.name, output.name);
        let (shape, values) = outputs[output.name.as_str()].try_extract_tensor::<f32>().unwrap();
        let wanted: Vec<i64> = output.file_shape(batch).iter().map(|size| *size as i64).collect();
        assert_eq!(shape[..], wanted, "{}: {}", spec.name, output.name);
        let mut each = vec![0; batch * output.bytes()];
        Layout::of(output).gather(batch, bytemuck::cast_slice(values), &mut each);
        for (answer, bytes) in answers.iter_mut().zip(each.chunks_exact(output.bytes())) {
            answer.resize(answer.len().next_multiple_of(8), 0);
            answer.extend_from_slice(bytes);
        }
    }
    answers
}

fn value(tensor: &TensorSpec, batch: usize, bytes: &[u8]) -> SessionInputValue<'static> {
    fn of<T: bytemuck::Pod + ::ort::value::PrimitiveTensorElementType + std::fmt::Debug + 'static>(
        shape: Vec<usize>,
        bytes: &[u8],
    ) -> SessionInputValue<'static> {
        Tensor::from_array((shape, elements::<T>(bytes))).unwrap().into()
    }
    let shape = tensor.file_shape(batch);
    match tensor.data_type {
        DataType::F32 => of::<f32>(shape, bytes),
        DataType::I32 => of::<i32>(shape, bytes),
        DataType::I64 => of::<i64>(shape, bytes),
        other => panic!("{}: no foreign model here takes {other}", tensor.name),
    }
}

/// Wherever they lie in memory.
fn elements<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// The largest difference, relative to the largest value of its output or to 1.
fn apart(spec: &ModelSpec, expected: &[Vec<u8>], found: &[Vec<u8>]) -> f32 {
    let (mut most, mut at) = (0.0f32, 0usize);
    for output in spec.answer() {
        at = at.next_multiple_of(8);
        let values = |answers: &[Vec<u8>]| -> Vec<f32> {
            let each = answers.iter().map(|answer| &answer[at..at + output.bytes()]);
            each.flat_map(elements::<f32>).collect()
        };
        let (expected, found) = (values(expected), values(found));
        let largest = expected.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
        for (a, b) in expected.iter().zip(&found) {
            // What is no number is apart.
            let difference = (a - b).abs() / largest;
            most = if difference.is_nan() { f32::INFINITY } else { most.max(difference) };
        }
        at += output.bytes();
    }
    most
}
