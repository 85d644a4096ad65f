//! The conformance cases that every engine passes alike, on tiny ONNX files written here and on well-known
//! topologies.
#![allow(clippy::print_stdout, reason = "tests that tell what they measured")]

mod batches;
mod files;
mod foreign;
mod onnx;
mod overhead;
mod recurrent;
mod remote;
mod resources;
mod tensors;
mod topologies;

use std::path::{Path, PathBuf};

use rt_core::MAX_SPAN;
use tempfile::TempDir;

use super::*;
pub(crate) use onnx::Onnx;

/// How a case has an engine load a model.
type Load = fn(&ModelSpec, usize, Option<&[RunMode]>) -> Result<Box<dyn Runner>, EngineError>;

/// Every engine that computes, by name. Those after `EVERYWHERE` need what not every machine has.
const ENGINES: [(&str, Load); 12] = [
    ("tract", |spec, max, modes| real(EngineKind::Tract, spec, max, modes)),
    ("tract apart", |spec, max, modes| apart(EngineKind::Tract, spec, max, modes)),
    ("ort-cpu", |spec, max, modes| real(EngineKind::OrtCpu, spec, max, modes)),
    ("ort-cpu apart", |spec, max, modes| apart(EngineKind::OrtCpu, spec, max, modes)),
    ("tract by oip", remote::remotely),
    ("tract by oip over gRPC", remote::by_grpc),
    ("ort-openvino", |spec, max, modes| real(EngineKind::OrtOpenvino, spec, max, modes)),
    ("ort-cuda", |spec, max, modes| real(EngineKind::OrtCuda, spec, max, modes)),
    ("ort-cuda apart", |spec, max, modes| apart(EngineKind::OrtCuda, spec, max, modes)),
    ("tract-cuda", |spec, max, modes| real(EngineKind::TractCuda, spec, max, modes)),
    ("tract-cuda apart", |spec, max, modes| apart(EngineKind::TractCuda, spec, max, modes)),
    ("ort-tensorrt", |spec, max, modes| real(EngineKind::OrtTensorrt, spec, max, modes)),
];

/// So many of them.
const EVERYWHERE: usize = 6;

/// An engine, and the mode it is to run in.
struct Subject {
    engine: &'static str,
    load: Load,
    /// `None` is what it measures to be faster.
    mode: Option<RunMode>,
}

impl Subject {
    fn load(&self, spec: &ModelSpec, max_batch: usize) -> Result<Box<dyn Runner>, EngineError> {
        let modes = self.mode.map(|mode| vec![mode; max_batch]);
        (self.load)(spec, max_batch, modes.as_deref())
    }

    fn refuses(&self, spec: &ModelSpec) -> String {
        self.load(spec, 2).err().unwrap_or_else(|| panic!("{} must refuse", self.engine)).to_string()
    }
}

/// Runs a case with every engine under test, once with measured modes and once with each mode imposed: with tract
/// and ort-cpu, in this process and in one of their own, and with servers beside it that run tract, or with those that `WEIR_TEST_ENGINES` names, separated by commas.
#[allow(clippy::print_stderr, reason = "shown beside a failure")]
fn each_engine(case: impl Fn(&Subject)) {
    for (engine, load) in under_test() {
        for mode in [None, Some(RunMode::Batched), Some(RunMode::Loop)] {
            eprintln!("{engine}, {}", mode.map_or("measured".to_owned(), |mode| mode.to_string()));
            case(&Subject { engine, load, mode });
        }
    }
}

fn under_test() -> Vec<(&'static str, Load)> {
    let Ok(names) = std::env::var("WEIR_TEST_ENGINES") else { return ENGINES[..EVERYWHERE].to_vec() };
    names.split(',').map(str::trim).map(named).collect()
}

fn named(name: &str) -> (&'static str, Load) {
    ENGINES.into_iter().find(|(engine, _)| *engine == name).unwrap_or_else(|| panic!("no engine {name}"))
}

fn on_every_machine(name: &str) -> bool {
    ENGINES[..EVERYWHERE].iter().any(|(engine, _)| *engine == name)
}

fn real(
    kind: EngineKind,
    spec: &ModelSpec,
    max_batch: usize,
    modes: Option<&[RunMode]>,
) -> Result<Box<dyn Runner>, EngineError> {
    load(Engine::Real { backend: &Backend { kind, ..Backend::TRACT }, modes }, spec, max_batch)
}

/// In a process of its own.
fn apart(
    kind: EngineKind,
    spec: &ModelSpec,
    max_batch: usize,
    modes: Option<&[RunMode]>,
) -> Result<Box<dyn Runner>, EngineError> {
    let engine = Engine::Real { backend: &Backend { kind, ..Backend::TRACT }, modes };
    let task = Task { engine, spec, max_batch, silence: vec![MAX_SPAN; max_batch.max(1)] };
    isolate_one(task, &Place::default())
}

/// What `tests/fetch.sh` fetched: a file of the target folder that this program was built in.
fn fetched(file: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let place = program.ancestors().nth(3).unwrap().join(file);
    assert!(place.exists(), "{} is not there: run tests/fetch.sh, as `make test` does", place.display());
    place
}

/// A specification without a file: `input` f32 in, `output` f32 out.
pub(crate) fn toy_spec(input: usize, output: usize) -> ModelSpec {
    ModelSpec {
        name: "toy".to_owned(),
        path: "toy.onnx".into(),
        sha256: String::new(),
        inputs: vec![tensor("in", DataType::F32, &[input])],
        outputs: vec![tensor("out", DataType::F32, &[output])],
        constants: Vec::new(),
        states: Vec::new(),
        external: Vec::new(),
        accuracy: 1.0,
        accuracy_by_class: Vec::new(),
    }
}

fn tensor(name: &str, data_type: DataType, shape: &[usize]) -> TensorSpec {
    TensorSpec::new(name, data_type, shape)
}

/// Runs a batch on a model of one `f32` input and output.
pub(crate) fn run_f32(runner: &mut dyn Runner, batch: usize, input: &[f32]) -> Result<Vec<f32>, EngineError> {
    runner.buffers().write(Side::Input, 0, 0, bytemuck::cast_slice(input));
    runner.run(batch)?;
    let mut found = vec![0.0f32; batch * runner.buffers().each(Side::Output, 0) / 4];
    runner.buffers().read(Side::Output, 0, 0, bytemuck::cast_slice_mut(&mut found));
    Ok(found)
}

/// A tensor of the request at place `index` of the batch.
pub(super) fn bytes_of(runner: &mut dyn Runner, side: Side, tensor: usize, index: usize) -> Vec<u8> {
    let mut bytes = vec![0; runner.buffers().each(side, tensor)];
    runner.buffers().read(side, tensor, index, &mut bytes);
    bytes
}

/// `count` numbers in 0.0..1.0.
pub(crate) fn random_f32(seed: u64, count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    fill_tensor(seed, DataType::F32, bytemuck::cast_slice_mut(&mut values));
    values
}

/// Writes `onnx` to a file and declares it as f32 [2] → f32 [2].
pub(crate) fn toy_file(dir: &TempDir, onnx: &[u8]) -> ModelSpec {
    let path = dir.path().join("toy.onnx");
    std::fs::write(&path, onnx).unwrap();
    ModelSpec { path, sha256: sha256_hex(onnx), ..toy_spec(2, 2) }
}

/// `out = relu(in)` as ONNX: the element type (1 is f32, 11 f64) and the dimensions of both ends.
pub(super) fn relu(data_type: u8, dims: &[&str]) -> Vec<u8> {
    let toy = Onnx::default().input("in", data_type, dims).output("out", data_type, dims);
    toy.node("Relu", &["in"], &["out"]).bytes()
}

/// The manifest of the shipped models.
fn shipped() -> crate::manifest::Manifest {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/manifest.toml");
    crate::manifest::Manifest::load(Path::new(manifest)).unwrap()
}
