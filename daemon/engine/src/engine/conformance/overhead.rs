//! What calling an engine costs beside the bare library on the same model and batch, turn by turn in one thread.
//!
//! Prints figures and checks none: `cargo test -p weir --bin weir overhead -- --ignored --nocapture`.

use ::ort::session::Session;
use ::ort::value::TensorRef;
use tract_onnx::prelude::*;

use super::*;
use weir_os::clock;

const ROUNDS: usize = 3000;

#[test]
#[ignore = "measures"]
fn overhead_of_a_call() {
    let shipped = shipped();
    println!("| model | batch | engine | bare, median | weir, median | apart |\n|---|---|---|---|---|---|");
    for name in ["digits-xs", "digits-s", "digits-m"] {
        let spec = shipped.model(name).unwrap();
        for batch in [1, 4] {
            let input = random_f32(1, batch * spec.inputs[0].elements());
            compare(spec, batch, "tract", &input, bare_tract(spec, batch, &input));
            compare(spec, batch, "ort-cpu", &input, bare_ort(spec, batch, &input));
        }
    }
}

/// Prints the medians of a bare run and of a runner's.
fn compare(spec: &ModelSpec, batch: usize, engine: &str, input: &[f32], mut bare: impl FnMut() -> Vec<f32>) {
    let kind = engine.parse().unwrap();
    let mut runner = real(kind, spec, batch, Some(&vec![RunMode::Batched; batch])).unwrap();
    let expected = bare();
    assert_eq!(run_f32(&mut *runner, batch, input).unwrap(), expected, "the same is computed");
    let (mut bare_ns, mut weir_ns) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare_ns.push(timed(|| assert_eq!(bare().len(), expected.len())));
        weir_ns.push(timed(|| runner.run(batch).unwrap()));
    }
    let median = |times: &mut Vec<u64>| *times.select_nth_unstable(ROUNDS / 2).1 as f64 / 1e3;
    let (bare, weir) = (median(&mut bare_ns), median(&mut weir_ns));
    println!("| {} | {batch} | {engine} | {bare:.1} µs | {weir:.1} µs | {:+.1} µs |", spec.name, weir - bare);
}

fn timed(step: impl FnOnce()) -> u64 {
    let started = clock::now().as_nanos();
    step();
    clock::now().as_nanos() - started
}

/// As the crate's own examples run a model.
fn bare_ort(spec: &ModelSpec, batch: usize, input: &[f32]) -> impl FnMut() -> Vec<f32> {
    let environment = ort::environment().unwrap();
    let mut session = Session::builder(environment)
        .and_then(|builder| Ok(builder.with_intra_threads(1)?))
        .and_then(|mut builder| builder.commit_from_file(&spec.path))
        .unwrap();
    let shape = shape(spec, batch);
    move || {
        let input = TensorRef::from_array_view((shape.clone(), input)).unwrap();
        let outputs = session.run(::ort::inputs![input]).unwrap();
        outputs[0].try_extract_tensor::<f32>().unwrap().1.to_vec()
    }
}

fn bare_tract(spec: &ModelSpec, batch: usize, input: &[f32]) -> impl FnMut() -> Vec<f32> {
    let shape = shape(spec, batch);
    let fact = InferenceFact::dt_shape(f32::datum_type(), &shape);
    let mut model = onnx().model_for_path(&spec.path).unwrap();
    model.set_input_fact(0, fact).unwrap();
    let mut state = model.into_optimized().unwrap().into_runnable().unwrap().spawn().unwrap();
    move || {
        let tensor = Tensor::from_shape(&shape, input).unwrap();
        let outputs = state.run(tvec!(tensor.into_tvalue())).unwrap();
        outputs[0].try_as_plain_ram().unwrap().as_slice::<f32>().unwrap().to_vec()
    }
}

fn shape(spec: &ModelSpec, batch: usize) -> Vec<usize> {
    [&[batch], &spec.inputs[0].shape[..]].concat()
}
