//! What goes into a model and comes out of it: types and shapes, several tensors by their names, and weights beside the file.

use super::*;
use onnx::code;

#[test]
fn every_type_goes_in_and_out_unchanged_in_shapes_of_any_rank() {
    let dir = tempfile::tempdir().unwrap();
    for data_type in DataType::ALL {
        for (dims, shape) in [(&["N"][..], &[][..]), (&["N", "3"], &[3]), (&["N", "2", "3", "4"], &[2, 3, 4])]
        {
            let toy = Onnx::default().input("in", code(data_type), dims).output("out", code(data_type), dims);
            let mut spec = toy_file(&dir, &toy.node("Identity", &["in"], &["out"]).bytes());
            spec.inputs[0] = tensor("in", data_type, shape);
            spec.outputs[0] = tensor("out", data_type, shape);
            each_engine(|subject| {
                let mut runner = subject.load(&spec, 3).unwrap();
                runner.buffers().fill(7, 0, data_type, 3);
                runner.run(3).unwrap();
                for index in 0..3 {
                    let [given, found] =
                        [Side::Input, Side::Output].map(|s| bytes_of(&mut *runner, s, 0, index));
                    assert_eq!(found, given, "{data_type}, {dims:?}");
                }
            });
        }
    }
}

/// Shapes and what is counted in a graph are often such.
#[test]
fn what_is_cast_to_whole_numbers_comes_out_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let cast = [("to", code(DataType::I64).into())];
    let file = Onnx::default().input("in", 1, &["N", "2"]).output("out", 7, &["N", "2"]);
    let file = file.node_with("Cast", &["in"], &["whole"], &cast).node("Add", &["whole", "whole"], &["out"]);
    let mut spec = toy_file(&dir, &file.bytes());
    spec.outputs[0] = tensor("out", DataType::I64, &[2]);
    each_engine(|subject| {
        let mut runner = subject.load(&spec, 3).unwrap();
        for batch in [3, 1] {
            let input: Vec<f32> = (0..2 * batch).map(|i| i as f32 + 0.5).collect();
            runner.buffers().write(Side::Input, 0, 0, bytemuck::cast_slice(&input));
            runner.run(batch).unwrap();
            for i in 0..batch {
                let (one, other) = (2 * i as i64, 2 * i as i64 + 1);
                let expected = [2 * one, 2 * other];
                assert_eq!(
                    bytes_of(&mut *runner, Side::Output, 0, i),
                    bytemuck::cast_slice::<i64, u8>(&expected)
                );
            }
        }
    });
}

#[test]
fn several_inputs_and_outputs_go_by_their_names() {
    let onnx = Onnx::default()
        .input("a", 1, &["N", "2"])
        .input("b", 7, &["N", "3"])
        .output("negative", 1, &["N", "2"])
        .output("sum", 7, &["N", "3"])
        .output("twice", 1, &["N", "4"])
        .node("Neg", &["a"], &["negative"])
        .node("Add", &["b", "b"], &["sum"])
        .node_with("Concat", &["a", "negative"], &["twice"], &[("axis", 1)])
        .bytes();
    let dir = tempfile::tempdir().unwrap();
    let mut spec = toy_file(&dir, &onnx);
    // In another order than in the file.
    spec.inputs = vec![tensor("b", DataType::I64, &[3]), tensor("a", DataType::F32, &[2])];
    spec.outputs = vec![
        tensor("twice", DataType::F32, &[4]),
        tensor("negative", DataType::F32, &[2]),
        tensor("sum", DataType::I64, &[3]),
    ];
    each_engine(|subject| {
        let mut runner = subject.load(&spec, 5).unwrap();
        for batch in [5, 2, 1] {
            for i in 0..batch {
                let (b, a) = ([i as i64, 10, -3], [i as f32 + 0.5, -1.0]);
                runner.buffers().write(Side::Input, 0, i, bytemuck::cast_slice(&b));
                runner.buffers().write(Side::Input, 1, i, bytemuck::cast_slice(&a));
            }
            runner.run(batch).unwrap();
            for i in 0..batch {
                let x = i as f32 + 0.5;
                let output = |runner: &mut dyn Runner, t| bytes_of(runner, Side::Output, t, i);
                assert_eq!(output(&mut *runner, 0), bytemuck::cast_slice::<f32, u8>(&[x, -1.0, -x, 1.0]));
                assert_eq!(output(&mut *runner, 1), bytemuck::cast_slice::<f32, u8>(&[-x, 1.0]));
                assert_eq!(output(&mut *runner, 2), bytemuck::cast_slice::<i64, u8>(&[2 * i as i64, 20, -6]));
            }
        }
    });
}

/// What a file says of its outputs is its exporter's word: there may be more dimensions than that.
#[test]
fn an_output_is_found_where_its_file_declares_other_dimensions() {
    let dir = tempfile::tempdir().unwrap();
    let file = Onnx::default().input("in", 1, &["N", "2"]).output("out", 1, &["N"]);
    // What shape comes out nobody can tell ahead.
    let file = file.node("Shape", &["in"], &["shape"]);
    let file = file.node_with("Cast", &["shape"], &["real"], &[("to", code(DataType::F32).into())]);
    let file = file.node_with("Cast", &["real"], &["target"], &[("to", code(DataType::I64).into())]);
    let spec = toy_file(&dir, &file.node("Reshape", &["in", "target"], &["out"]).bytes());
    each_engine(|subject| {
        let mut runner = subject.load(&spec, 3).unwrap();
        for batch in 1..=3 {
            let input = random_f32(batch as u64, 2 * batch);
            assert_eq!(run_f32(&mut *runner, batch, &input).unwrap(), input, "batch {batch}");
        }
    });
}

/// A time stamp, say, that goes through as it came, and a constant.
#[test]
fn an_output_that_no_node_computes_is_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = Onnx::default()
        .input("in", code(DataType::F32), &["1", "2"])
        .input("stamp", code(DataType::F32), &["1", "2"])
        .output("out", code(DataType::F32), &["1", "2"])
        .output("stamp", code(DataType::F32), &["1", "2"])
        .output("version", code(DataType::F32), &["1", "2"])
        .weight("version", code(DataType::F32), &[1, 2], bytemuck::cast_slice(&[3.0_f32, 1.0]))
        .output("twice", code(DataType::F32), &["1", "2"])
        .node("Relu", &["in"], &["out"])
        .node("Add", &["version", "version"], &["twice"]);
    let mut spec = toy_file(&dir, &file.bytes());
    spec.inputs = ["in", "stamp"].map(|name| tensor(name, DataType::F32, &[2])).to_vec();
    spec.outputs =
        ["out", "stamp", "version", "twice"].map(|name| tensor(name, DataType::F32, &[2])).to_vec();
    each_engine(|subject| {
        let mut runner = subject.load(&spec, 1).unwrap();
        for stamp in [[7.0_f32, 8.0], [9.0, 10.0]] {
            runner.buffers().write(Side::Input, 0, 0, bytemuck::cast_slice(&[1.0_f32, -1.0]));
            runner.buffers().write(Side::Input, 1, 0, bytemuck::cast_slice(&stamp));
            runner.run(1).unwrap();
            for (place, values) in [[1.0_f32, 0.0], stamp, [3.0, 1.0], [6.0, 2.0]].iter().enumerate() {
                let found = bytes_of(&mut *runner, Side::Output, place, 0);
                assert_eq!(found, bytemuck::cast_slice::<f32, u8>(values), "output {place}");
            }
        }
    });
}

#[test]
fn weights_beside_the_file_are_used_and_a_changed_byte_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let weights: Vec<u8> = [7.0f32, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let path = dir.path().join("toy.data");
    std::fs::write(&path, &weights).unwrap();
    let toy = Onnx::default().input("in", 1, &["N", "2"]).output("out", 1, &["N", "2"]);
    let toy = toy.weight_elsewhere("gain", &[2], "toy.data", 4);
    let mut spec = toy_file(&dir, &toy.node("Mul", &["in", "gain"], &["out"]).bytes());
    let file = ExternalFile { location: "toy.data".into(), path: path.clone(), sha256: sha256_hex(&weights) };
    each_engine(|subject| {
        let refused = subject.refuses(&spec);
        assert!(
            refused.contains("its weights lie in `toy.data` beside the file, in nowhere else"),
            "{refused}"
        );
    });
    spec.external = vec![file];
    each_engine(|subject| {
        let mut runner = subject.load(&spec, 2).unwrap();
        assert_eq!(run_f32(&mut *runner, 2, &[1.0, 1.0, 5.0, -1.0]).unwrap(), [2.0, 3.0, 10.0, -3.0]);
    });
    std::fs::write(&path, [&weights[..11], &[1]].concat()).unwrap();
    each_engine(|subject| {
        let refused = subject.refuses(&spec);
        assert!(refused.contains("toy.data: its SHA-256 is"), "{refused}");
    });
}

/// As ONNX has it: the length need not be said, and other weights may lie behind.
#[test]
fn weights_whose_length_is_not_said_are_as_long_as_their_shape() {
    let dir = tempfile::tempdir().unwrap();
    let weights: Vec<u8> = [7.0f32, 2.0, 3.0, 9.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let path = dir.path().join("toy.data");
    std::fs::write(&path, &weights).unwrap();
    let with = |offset: usize| {
        let toy = Onnx::default().input("in", 1, &["N", "2"]).output("out", 1, &["N", "2"]);
        let toy = toy.weight_elsewhere("gain", &[2], "toy.data", offset);
        let mut spec = toy_file(&dir, &toy.node("Mul", &["in", "gain"], &["out"]).bytes());
        let (location, sha256) = ("toy.data".into(), sha256_hex(&weights));
        spec.external = vec![ExternalFile { location, path: path.clone(), sha256 }];
        spec
    };
    let spec = with(4);
    each_engine(|subject| {
        let mut runner = subject.load(&spec, 2).unwrap();
        assert_eq!(run_f32(&mut *runner, 2, &[1.0, 1.0, 5.0, -1.0]).unwrap(), [2.0, 3.0, 10.0, -3.0]);
    });
    // Four bytes are left where eight are needed.
    let spec = with(12);
    each_engine(|subject| assert!(subject.refuses(&spec).contains("toy"), "{}", subject.engine));
}
