//! What every engine computes of recurrent layers: a request gets what it would get if no other had come before.

use std::cell::RefCell;

use super::*;
use onnx::code;

/// Of a request: steps of so many numbers.
const STEPS: usize = 4;
const WIDTH: usize = 3;
/// Of what is remembered from step to step.
const HIDDEN: usize = 5;

fn floats(count: usize, seed: u64) -> Vec<u8> {
    let centred = random_f32(seed, count).into_iter().map(|one| one - 0.5).flat_map(f32::to_ne_bytes);
    centred.collect()
}

/// A layer with so many gates, between the shapes that it wants and those of requests.
fn layer(operator: &str, gates: usize, attributes: &[(&str, i64)]) -> Vec<u8> {
    let rows = (gates * HIDDEN) as i64;
    let weights = |columns: usize, seed| floats(gates * HIDDEN * columns, seed);
    let hidden: Vec<_> = attributes.iter().copied().chain([("hidden_size", HIDDEN as i64)]).collect();
    steps()
        .output("out", code(DataType::F32), &["1", "20"])
        .weight("w", code(DataType::F32), &[1, rows, WIDTH as i64], &weights(WIDTH, 1))
        .weight("r", code(DataType::F32), &[1, rows, HIDDEN as i64], &weights(HIDDEN, 2))
        .weight("b", code(DataType::F32), &[1, 2 * rows], &weights(2, 3))
        .weight("flat", code(DataType::I64), &[2], bytemuck::cast_slice(&[1_i64, 20]))
        .node_with(operator, &["steps", "w", "r", "b"], &["all"], &hidden)
        .node("Reshape", &["all", "flat"], &["out"])
        .bytes()
}

/// The steps of a request, one after the other.
fn steps() -> Onnx {
    Onnx::default()
        .input("in", code(DataType::F32), &["1", "4", "3"])
        .weight("form", code(DataType::I64), &[3], bytemuck::cast_slice(&[4_i64, 1, 3]))
        .node("Reshape", &["in", "form"], &["steps"])
}

/// Sums of the steps so far, by a loop that the file writes out.
fn sums() -> Vec<u8> {
    let body = Onnx::default()
        .input("so_far", code(DataType::F32), &["1", "3"])
        .input("step", code(DataType::F32), &["1", "3"])
        .output("next", code(DataType::F32), &["1", "3"])
        .output("told", code(DataType::F32), &["1", "3"])
        .node("Add", &["so_far", "step"], &["next"])
        .node("Identity", &["next"], &["told"]);
    steps()
        .output("out", code(DataType::F32), &["1", "12"])
        .weight("none", code(DataType::F32), &[1, 3], &[0; 12])
        .weight("flat", code(DataType::I64), &[2], bytemuck::cast_slice(&[1_i64, 12]))
        .node_with("Scan", &["none", "steps"], &["last", "all"], &[("num_scan_inputs", 1)])
        .around("body", body)
        .node("Reshape", &["all", "flat"], &["out"])
        .bytes()
}

#[test]
fn what_a_recurrent_layer_answers_does_not_depend_on_who_came_before() {
    let dir = tempfile::tempdir().unwrap();
    for (name, file, width) in [
        ("RNN", layer("RNN", 1, &[]), 20),
        ("GRU", layer("GRU", 3, &[]), 20),
        ("GRU, reset after", layer("GRU", 3, &[("linear_before_reset", 1)]), 20),
        ("LSTM", layer("LSTM", 4, &[]), 20),
        ("Scan", sums(), 12),
    ] {
        let mut spec = toy_file(&dir, &file);
        spec.inputs[0] = tensor("in", DataType::F32, &[STEPS, WIDTH]);
        spec.outputs[0] = tensor("out", DataType::F32, &[width]);
        let known: RefCell<Option<Vec<f32>>> = RefCell::default();
        each_engine(|subject| {
            let mut runner = subject.load(&spec, 1).unwrap();
            let mut run = |size: f32| run_f32(&mut *runner, 1, &[size; STEPS * WIDTH]).unwrap();
            let first = run(1.0);
            assert_eq!(run(1.0), first, "{name}: the same again");
            run(9.0);
            assert_eq!(run(1.0), first, "{name}: after another one");
            if name == "Scan" {
                assert_eq!(first[9..], [4.0; 3]);
            }
            let mut known = known.borrow_mut();
            let known = known.get_or_insert_with(|| first.clone());
            let near = first.iter().zip(&*known).all(|(one, other)| (one - other).abs() < 1e-5);
            assert!(near, "{name}: {first:?}, and {known:?} by another engine");
        });
    }
}
