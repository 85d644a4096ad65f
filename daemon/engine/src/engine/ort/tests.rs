//! Sessions that each run one batch size.

use super::*;
use crate::engine::batching::doubling_sizes;
use crate::engine::conformance::{Onnx, run_f32, toy_file};

#[test]
fn what_is_smaller_than_its_session_is_filled_up_with_zeros() {
    // Each answer is the sum of its request and of all behind it in the batch.
    let onnx = Onnx::default()
        .input("in", 1, &["N", "2"])
        .output("out", 1, &["N", "2"])
        .weight("axis", 7, &[], &0i64.to_le_bytes())
        .node_with("CumSum", &["in", "axis"], &["out"], &[("reverse", 1)])
        .bytes();
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &onnx);
    let backend = Backend { kind: EngineKind::OrtCpu, ..Backend::TRACT };
    let (library, mut files) = (library::open(&backend).unwrap(), Files::default());
    let file = files.read(&backend, &spec).unwrap();
    let computed = BTreeSet::from(["out".to_owned()]);
    let call =
        |size| Call::new(session(library, &backend, &spec, file, size).unwrap(), &spec, &computed).unwrap();
    let calls = doubling_sizes(5).into_iter().map(|size| (size, call(size))).collect();
    let modes = vec![RunMode::Batched; 5];
    let mut runner = OrtRunner { kind: backend.kind, buffers: Buffers::new(&spec, 5), calls, modes };
    // What a larger batch before has left behind a smaller one is not summed up.
    for batch in [5, 3, 1, 4, 2, 3] {
        let input: Vec<f32> = (1..=2 * batch).map(|value| value as f32).collect();
        let behind = |place: usize| input[place..].iter().step_by(2).sum();
        let expected: Vec<f32> = (0..2 * batch).map(behind).collect();
        assert_eq!(run_f32(&mut runner, batch, &input).unwrap(), expected);
        runner.modes.fill(RunMode::Loop);
        assert_eq!(run_f32(&mut runner, batch, &input).unwrap(), input);
        runner.modes.fill(RunMode::Batched);
    }
}
