//! What every engine computes: each request of a batch as if it were alone.

use super::*;
use RunMode::{Batched, Loop, Simulated};

fn simulated() -> Subject {
    let load: Load =
        |spec, max, _| load(Engine::Simulated { times: &[SimulatedTime::always(0); 256] }, spec, max);
    Subject { engine: "simulated", load, mode: None }
}

#[test]
fn every_batch_size_runs_and_equals_its_requests_run_alone() {
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    let case = |subject: &Subject| {
        let mut runner = subject.load(&spec, 20).unwrap();
        for batch in 1..=20 {
            let input = random_f32(batch as u64, 2 * batch);
            let together = run_f32(&mut *runner, batch, &input).unwrap();
            let alone = input.chunks(2).flat_map(|one| run_f32(&mut *runner, 1, one).unwrap());
            assert_eq!(together, alone.collect::<Vec<f32>>(), "batch {batch}");
        }
    };
    each_engine(case);
    case(&simulated());
}

#[test]
fn wrong_batch_sizes_are_refused_and_leave_the_runner_usable() {
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    let case = |subject: &Subject| {
        let mut runner = subject.load(&spec, 20).unwrap();
        for batch in [0, 21] {
            let message = format!("model toy: a batch of {batch} was to be run, the limits are 1..=20");
            assert_eq!(runner.run(batch).unwrap_err().to_string(), message);
        }
        run_f32(&mut *runner, 1, &[1.0, 2.0]).unwrap();
        for max_batch in [0, MAX_BATCH + 1] {
            let message = format!("model toy: max_batch is {max_batch}, the limits are 1..=256");
            assert_eq!(subject.load(&spec, max_batch).err().unwrap().to_string(), message);
        }
    };
    each_engine(case);
    case(&simulated());
}

#[test]
fn imposed_modes_are_kept_and_must_suffice() {
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    for (_, load) in under_test() {
        let runner = load(&spec, 3, Some(&[Batched, Loop, Batched, Loop])).unwrap();
        assert_eq!([1, 2, 3, 99].map(|b| runner.mode(b)), [Batched, Loop, Batched, Batched]);
        let refused = |modes| load(&spec, 3, Some(modes)).err().unwrap().to_string();
        assert!(refused(&[Batched, Loop]).contains("2 modes of a real engine are given for max_batch 3"));
        assert!(refused(&[Batched, Simulated, Loop]).contains("1 modes of a real engine"));
    }
}

#[test]
fn a_batch_fixed_to_1_runs_as_a_loop() {
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &relu(1, &["1", "2"]));
    each_engine(|subject| {
        let mut runner = subject.load(&spec, 3).unwrap();
        assert_eq!([1, 2, 3].map(|b| runner.mode(b)), [Batched, Loop, Loop]);
        let output = run_f32(&mut *runner, 3, &[1.0, -2.0, 3.0, -4.0, 5.0, 6.0]).unwrap();
        assert_eq!(output, [1.0, 0.0, 3.0, 0.0, 5.0, 6.0]);
    });
    assert!(!has_batches(&Backend::TRACT, &spec).unwrap());
    let spec = toy_file(&dir, &relu(1, &["N", "2"]));
    assert!(has_batches(&Backend::TRACT, &spec).unwrap());
}

/// `out = in + in`.
fn double() -> Vec<u8> {
    let toy = Onnx::default().input("in", 1, &["N", "2"]).output("out", 1, &["N", "2"]);
    toy.node("Add", &["in", "in"], &["out"]).bytes()
}

#[test]
fn what_is_no_number_is_passed_on_and_stays_with_its_request() {
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &double());
    each_engine(|subject| {
        // Of 18, a size that tract pads to 20: nothing of the batch before may show.
        let mut runner = subject.load(&spec, 20).unwrap();
        let output = run_f32(&mut *runner, 20, &[f32::NAN; 40]).unwrap();
        assert!(output.iter().all(|value| value.is_nan()));
        let mut input = random_f32(3, 36);
        (input[4], input[7]) = (f32::NAN, f32::INFINITY);
        let output = run_f32(&mut *runner, 18, &input).unwrap();
        for (i, (x, y)) in input.iter().zip(output).enumerate() {
            assert!(if i == 4 { y.is_nan() } else { y == 2.0 * x }, "value {i}: {x} gives {y}");
        }
    });
}

/// Engines whose Gather gives any value for an index outside its table.
const UNCHECKED: [&str; 4] = ["ort-openvino", "ort-cuda", "ort-cuda apart", "ort-tensorrt"];
/// These read beyond the table for such an index, which costs the process all that it has on the GPU: in this one that of every other test.
const OVERREACHING: [&str; 2] = ["tract-cuda", "tract-cuda apart"];

/// As is a dropout that is told that it is being trained, which ONNX Runtime runs.
#[test]
fn what_cannot_run_is_refused_when_it_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let file = Onnx::default().input("in", 1, &["N", "2"]).output("out", 1, &["N", "2"]);
    let file = file.weight("ratio", 1, &[], &0.5_f32.to_ne_bytes()).weight("training", 9, &[], &[1]);
    let spec = toy_file(&dir, &file.node("Dropout", &["in", "ratio", "training"], &["out"]).bytes());
    each_engine(|subject| {
        let mode = subject.mode.map(|mode| vec![mode; 2]);
        match (subject.load)(&spec, 2, mode.as_deref()) {
            Ok(mut runner) => assert!(run_f32(&mut *runner, 1, &[1.0, 2.0]).is_ok()),
            Err(error) => assert!(error.to_string().contains("Dropout"), "{error}"),
        }
    });
}

#[test]
fn a_run_that_fails_leaves_the_runner_usable() {
    let table: Vec<u8> = [0.5f32, 1.5, 2.5].iter().flat_map(|value| value.to_le_bytes()).collect();
    let onnx = Onnx::default()
        .input("in", 7, &["N", "2"])
        .output("out", 1, &["N", "2"])
        .weight("table", 1, &[3], &table)
        .node("Gather", &["table", "in"], &["out"])
        .bytes();
    let dir = tempfile::tempdir().unwrap();
    let mut spec = toy_file(&dir, &onnx);
    spec.inputs[0] = tensor("in", DataType::I64, &[2]);
    each_engine(|subject| {
        if subject.engine == OVERREACHING[0] {
            return;
        }
        let mut runner = subject.load(&spec, 3).unwrap();
        for _ in 0..2 {
            let bad = [0i64, 1, 2, 1_000_000_000, 0, 0];
            runner.buffers().write(Side::Input, 0, 0, bytemuck::cast_slice(&bad));
            // An error of the run, and no loss of the runner: also where an engine panics.
            match runner.run(3) {
                Ok(()) => {
                    assert!(UNCHECKED.contains(&subject.engine), "an index outside the table must fail");
                }
                Err(EngineError::Lost { .. }) if OVERREACHING.contains(&subject.engine) => {
                    runner = subject.load(&spec, 3).unwrap();
                }
                Err(error) => {
                    let told = error.to_string();
                    assert!(told.starts_with("model toy: running a batch of "), "{told}");
                }
            }
            runner.buffers().write(Side::Input, 0, 0, bytemuck::cast_slice(&[2i64, 1]));
            runner.run(1).unwrap();
            let found = bytes_of(&mut *runner, Side::Output, 0, 0);
            assert_eq!(found, bytemuck::cast_slice::<f32, u8>(&[2.5, 1.5]));
        }
    });
}

#[test]
fn in_shipped_models_batch_mates_do_not_influence_each_other() {
    for spec in shipped().models() {
        let (input_len, output_len) = (spec.inputs[0].elements(), spec.outputs[0].elements());
        let input = random_f32(1, 4 * input_len);
        for (engine, load) in under_test() {
            let with = |mode| load(spec, 4, Some(&[mode; 4])).unwrap();
            let alone = run_f32(&mut *with(Loop), 4, &input).unwrap();
            let mut runner = with(Batched);
            for batch in 2..=4 {
                let together = run_f32(&mut *runner, batch, &input[..batch * input_len]).unwrap();
                assert_eq!(together.len(), batch * output_len);
                for (i, (a, b)) in together.iter().zip(&alone).enumerate() {
                    let near = (a - b).abs() <= 1e-5 * b.abs().max(1.0);
                    assert!(
                        near,
                        "{}, {engine}: output {i} is {a} in a batch of {batch}, {b} alone",
                        spec.name
                    );
                }
            }
        }
    }
}

/// `out = relu(in) * gain`, with these shapes.
fn gained(dims: &[&str], gain: &[&str]) -> Vec<u8> {
    let toy = Onnx::default().input("in", 1, dims).input("gain", 1, gain).output("out", 1, dims);
    toy.node("Relu", &["in"], &["positive"]).node("Mul", &["positive", "gain"], &["out"]).bytes()
}

#[test]
fn the_batch_may_stand_anywhere_and_dynamic_dimensions_have_the_sizes_of_the_manifest() {
    let dir = tempfile::tempdir().unwrap();
    // Named or not, in front, between others or behind them.
    for (dims, place, shape) in
        [(["2", "N", "w"], 1, [2, 3]), (["?", "h", "3"], 0, [2, 3]), (["h", "?", "N"], 2, [2, 3])]
    {
        let mut spec = toy_file(&dir, &gained(&dims, &["1"]));
        let batch = BatchAxis::At(place);
        spec.inputs[0] = TensorSpec { batch, ..tensor("in", DataType::F32, &shape) };
        spec.outputs[0] = TensorSpec { batch, ..tensor("out", DataType::F32, &shape) };
        let gain = TensorSpec { batch: BatchAxis::Nowhere, ..tensor("gain", DataType::F32, &[1]) };
        spec.constants = vec![Constant { tensor: gain, bytes: 2f32.to_le_bytes().to_vec() }];
        each_engine(|subject| {
            assert!(has_batches(&Backend::TRACT, &spec).unwrap());
            let mut runner = subject.load(&spec, 20).unwrap();
            for count in [1, 3, 18] {
                let input: Vec<f32> = random_f32(count as u64, 6 * count).iter().map(|x| x - 0.5).collect();
                let found = run_f32(&mut *runner, count, &input).unwrap();
                let expected: Vec<f32> = input.iter().map(|x| 2.0 * x.max(0.0)).collect();
                assert_eq!(found, expected, "{dims:?}, batch {count}");
            }
        });
    }
}

#[test]
fn a_tensor_without_batch_that_requests_bring_has_them_run_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = toy_file(&dir, &gained(&["N", "w"], &["1"]));
    let at = |name: &str| TensorSpec { batch: BatchAxis::At(0), ..tensor(name, DataType::F32, &[2]) };
    let gain = TensorSpec { batch: BatchAxis::Nowhere, ..tensor("gain", DataType::F32, &[1]) };
    (spec.inputs, spec.outputs) = (vec![at("in"), gain], vec![at("out")]);
    assert!(!has_batches(&Backend::TRACT, &spec).unwrap());
    each_engine(|subject| {
        let mut runner = subject.load(&spec, 3).unwrap();
        assert_eq!([1, 2, 3].map(|b| runner.mode(b)), [Batched, Loop, Loop]);
        for (at, gain) in [1.0f32, 10.0, 100.0].into_iter().enumerate() {
            let request: Vec<u8> = [1.5f32, -1.0, gain].iter().flat_map(|x| x.to_le_bytes()).collect();
            runner.buffers().put(at, &request);
        }
        runner.run(3).unwrap();
        for (at, expected) in [1.5f32, 15.0, 150.0].into_iter().enumerate() {
            let found = bytes_of(&mut *runner, Side::Output, 0, at);
            assert_eq!(found, bytemuck::cast_slice::<f32, u8>(&[expected, 0.0]));
        }
    });
}
