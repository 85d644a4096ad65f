//! The conformance cases every engine must pass, and tiny ONNX files, written by hand, that tract must
//! refuse.

use std::path::Path;

use rt_core::MAX_SPAN;
use tempfile::TempDir;

use super::*;
use crate::manifest::Manifest;

/// A specification without a file: `input` f32 in, `output` f32 out.
pub(crate) fn toy_spec(input: usize, output: usize) -> ModelSpec {
    ModelSpec {
        name: "toy".to_owned(),
        path: "toy.onnx".into(),
        sha256: String::new(),
        inputs: vec![f32_tensor("in", input)],
        outputs: vec![f32_tensor("out", output)],
        accuracy: 1.0,
        parameters: 0,
        macs: 0,
    }
}

fn f32_tensor(name: &str, elements: usize) -> TensorSpec {
    TensorSpec { name: name.to_owned(), data_type: DataType::F32, shape: vec![elements] }
}

/// Runs a batch on a model of one `f32` input and output.
pub(crate) fn run_f32(runner: &mut dyn Runner, batch: usize, input: &[f32]) -> Result<Vec<f32>, EngineError> {
    runner.buffers().input_mut(0, 0..batch).copy_from_slice(bytemuck::cast_slice(input));
    runner.run(batch)?;
    Ok(runner
        .buffers()
        .output_mut(0, 0..batch)
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect())
}

/// `count` numbers in 0.0..1.0.
pub(crate) fn random_f32(seed: u64, count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    fill_tensor(seed, DataType::F32, bytemuck::cast_slice_mut(&mut values));
    values
}

/// Writes `onnx` to a file and declares it as f32 [2] → f32 [2].
pub(super) fn toy_file(dir: &TempDir, onnx: &[u8]) -> ModelSpec {
    let path = dir.path().join("toy.onnx");
    std::fs::write(&path, onnx).unwrap();
    ModelSpec { path, sha256: sha256_hex(onnx), ..toy_spec(2, 2) }
}

fn load_toy(onnx: &[u8], max_batch: usize) -> Result<Box<dyn Runner>, EngineError> {
    let dir = tempfile::tempdir().unwrap();
    load(Engine::Tract { modes: None }, &toy_file(&dir, onnx), max_batch)
}

fn refused(result: Result<Box<dyn Runner>, EngineError>) -> String {
    result.err().expect("must be refused").to_string()
}

/// `out = relu(in)` as ONNX: the element type (1 is f32, 11 f64) and the dimensions of both ends.
pub(super) fn relu(elem_type: u8, dims: &[&str]) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let dim = |dim: &&str| match dim.parse::<u8>() {
        Ok(value) => field(1, &[1 << 3, value]),
        Err(_) => field(1, &field(2, dim.as_bytes())),
    };
    let shape = field(2, &dims.iter().flat_map(dim).collect::<Vec<_>>());
    let tensor = field(2, &field(1, &[&[1 << 3, elem_type], &shape[..]].concat()));
    let value = |number, name: &[u8]| field(number, &[field(1, name), tensor.clone()].concat());
    let node = field(1, &[field(1, b"in"), field(2, b"out"), field(4, b"Relu")].concat());
    let graph = [node, field(2, b"toy"), value(11, b"in"), value(12, b"out")].concat();
    [&[1 << 3, 8], &field(7, &graph)[..], &field(8, &[2 << 3, 13])].concat()
}

/// Runs `case` with every engine, in this process and in one of its own; tract once with measured modes and once with each mode imposed.
fn each_engine(case: impl Fn(&mut dyn Runner, &str)) {
    use RunMode::{Batched, Loop};
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    let tract = |modes| Engine::Tract { modes };
    let engines = [
        ("measured", tract(None)),
        ("batched", tract(Some(&[Batched; 20]))),
        ("loop", tract(Some(&[Loop; 20]))),
        ("simulated", Engine::Simulated { times_ns: &[0; 20] }),
    ];
    for (name, engine) in engines {
        case(&mut *load(engine, &spec, 20).unwrap(), name);
        let task = Task { engine, spec: &spec, max_batch: 20, silence: vec![MAX_SPAN] };
        case(&mut *isolate(&[task], &Place::default()).unwrap()[0], &format!("{name}, isolated"));
    }
}

#[test]
fn every_batch_size_runs_and_equals_its_requests_run_alone() {
    each_engine(|runner, name| {
        for batch in 1..=20 {
            let input = random_f32(batch as u64, 2 * batch);
            let together = run_f32(runner, batch, &input).unwrap();
            let alone: Vec<f32> = input.chunks(2).flat_map(|one| run_f32(runner, 1, one).unwrap()).collect();
            assert_eq!(together, alone, "{name} at batch {batch}");
        }
    });
}

#[test]
fn wrong_batch_sizes_are_refused_and_leave_the_runner_usable() {
    each_engine(|runner, name| {
        for batch in [0, 21] {
            let message = format!("model toy: a batch of {batch} was to be run, the limits are 1..=20");
            assert_eq!(runner.run(batch).expect_err(name).to_string(), message);
        }
        run_f32(runner, 1, &[1.0, 2.0]).unwrap();
    });
}

#[test]
fn max_batch_has_limits_for_every_engine() {
    for max_batch in [0, MAX_BATCH + 1] {
        let simulated = load(Engine::Simulated { times_ns: &[0; 300] }, &toy_spec(2, 2), max_batch);
        let message = format!("model toy: max_batch is {max_batch}, the limits are 1..=256");
        assert_eq!(refused(simulated), message);
        assert_eq!(refused(load_toy(&relu(1, &["N", "2"]), max_batch)), message);
    }
}

#[test]
fn imposed_modes_are_kept_and_must_suffice() {
    use RunMode::{Batched, Loop, Simulated};
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    let with = |modes| load(Engine::Tract { modes: Some(modes) }, &spec, 3);
    let runner = with(&[Batched, Loop, Batched, Loop]).unwrap();
    assert_eq!([1, 2, 3, 99].map(|b| runner.mode(b)), [Batched, Loop, Batched, Batched]);
    assert!(refused(with(&[Batched, Loop])).contains("2 modes of a real engine are given for max_batch 3"));
    assert!(refused(with(&[Batched, Simulated, Loop])).contains("1 modes of a real engine"));
}

#[test]
fn a_batch_fixed_to_1_runs_as_a_loop() {
    let mut runner = load_toy(&relu(1, &["1", "2"]), 3).unwrap();
    assert_eq!([1, 2, 3].map(|b| runner.mode(b)), [RunMode::Batched, RunMode::Loop, RunMode::Loop]);
    let output = run_f32(&mut *runner, 3, &[1.0, -2.0, 3.0, -4.0, 5.0, 6.0]).unwrap();
    assert_eq!(output, [1.0, 0.0, 3.0, 0.0, 5.0, 6.0]);
}

#[test]
fn files_that_differ_from_the_manifest_are_refused_by_what_differs() {
    let refused = |onnx: &[u8]| refused(load_toy(onnx, 2));
    assert_eq!(
        refused(&relu(11, &["N", "2"])),
        "model toy: input `in` is of type f64 in the file, f32 in the manifest"
    );
    assert_eq!(
        refused(&relu(1, &["N", "3"])),
        "model toy: input `in` has shape N,3 in the file, [2] in the manifest"
    );
    assert!(refused(&relu(1, &["N"])).contains("has shape N in the file, [2] in the manifest"));
    assert!(refused(&relu(1, &["N", "N"])).contains("has shape N,N in the file"));
    assert!(refused(&relu(1, &["4", "2"])).contains("the batch dimension is 4 in the file"));
    assert!(refused(&relu(1, &["?", "2"])).contains("the batch dimension is unnamed"));

    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    let wrong = |change: fn(&mut ModelSpec)| {
        let mut spec = spec.clone();
        change(&mut spec);
        let result = load(Engine::Tract { modes: None }, &spec, 1);
        result.err().expect("must be refused").to_string()
    };
    assert!(
        wrong(|s| s.outputs[0].shape = vec![10])
            .contains("output `out` has shape 1,2 at batch 1 in the file, [10] in the manifest")
    );
    assert_eq!(
        wrong(|s| s.inputs[0].name = "image".into()),
        "model toy: its inputs are `in` in the file, `image` in the manifest"
    );
    assert!(wrong(|s| s.outputs[0].name = "logits".into()).contains("its outputs are `out` in the file"));
    assert!(wrong(|s| s.inputs.push(f32_tensor("mask", 2))).contains("`in` in the file, `in`, `mask` in"));
    assert!(wrong(|s| s.sha256 = "00".into()).contains("the manifest says 00"));
    assert!(
        wrong(|s| s.path = "/nowhere/toy.onnx".into()).starts_with("/nowhere/toy.onnx: cannot be read: ")
    );
}

#[test]
fn garbage_is_refused() {
    let whole = relu(1, &["N", "2"]);
    for garbage in [&b""[..], b"not an ONNX file", &[0xff; 64], &whole[..whole.len() / 2]] {
        let message = refused(load_toy(garbage, 1));
        assert!(message.contains("not an ONNX model that tract can read"), "{message}");
    }
}

#[test]
fn in_shipped_models_batch_mates_do_not_influence_each_other() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/manifest.toml");
    let manifest = Manifest::load(Path::new(manifest)).unwrap();
    for spec in manifest.models() {
        let (input_len, output_len) = (spec.inputs[0].elements(), spec.outputs[0].elements());
        let input = random_f32(1, 4 * input_len);
        let with = |mode| load(Engine::Tract { modes: Some(&[mode; 4]) }, spec, 4).unwrap();
        let alone = run_f32(&mut *with(RunMode::Loop), 4, &input).unwrap();
        let mut runner = with(RunMode::Batched);
        for batch in 2..=4 {
            let together = run_f32(&mut *runner, batch, &input[..batch * input_len]).unwrap();
            assert_eq!(together.len(), batch * output_len);
            for (i, (a, b)) in together.iter().zip(&alone).enumerate() {
                let near = (a - b).abs() <= 1e-5 * b.abs().max(1.0);
                assert!(near, "{}: output {i} is {a} in a batch of {batch}, {b} alone", spec.name);
            }
        }
    }
}
