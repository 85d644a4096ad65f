//! Files that no engine loads: each refused by what differs from the manifest, in the same words.

use super::*;

#[test]
fn files_that_differ_from_the_manifest_are_refused_by_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    each_engine(|subject| {
        let refused = |onnx: &[u8]| subject.refuses(&toy_file(&dir, onnx));
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

        let spec = toy_file(&dir, &relu(1, &["N", "2"]));
        let wrong = |change: fn(&mut ModelSpec)| {
            let mut spec = spec.clone();
            change(&mut spec);
            subject.refuses(&spec)
        };
        assert!(
            wrong(|s| s.outputs[0].shape = vec![10])
                .contains("output `out` has shape 1,2 at batch 1 in the file, [10] in the manifest")
        );
        assert_eq!(
            wrong(|s| s.inputs[0].name = "image".into()),
            "model toy: its inputs are `in` in the file, `image` in the manifest"
        );
        let f16 = wrong(|s| s.outputs[0].data_type = DataType::F16);
        assert!(f16.contains("output `out` is of type f32 in the file, f16 in the manifest"), "{f16}");
        assert!(wrong(|s| s.outputs[0].name = "logits".into()).contains("its outputs are `out` in the file"));
        let mask = wrong(|s| s.inputs.push(tensor("mask", DataType::F32, &[2])));
        assert!(mask.contains("`in` in the file, `in`, `mask` in"), "{mask}");
        assert!(wrong(|s| s.sha256 = "00".into()).contains("the manifest says 00"));
        let nowhere = wrong(|s| s.path = "/nowhere/toy.onnx".into());
        assert!(nowhere.starts_with("/nowhere/toy.onnx: cannot be read: "), "{nowhere}");
    });
}

#[test]
fn inputs_must_share_their_batch_dimension() {
    let two = |a: &[&str], b: &[&str]| {
        let toy = Onnx::default().input("in", 1, a).input("other", 1, b).output("out", 1, &["N", "2"]);
        toy.node("Add", &["in", "other"], &["out"]).bytes()
    };
    let dir = tempfile::tempdir().unwrap();
    let mut spec = toy_file(&dir, &two(&["N", "2"], &["M", "2"]));
    spec.inputs.push(tensor("other", DataType::F32, &[2]));
    each_engine(|subject| {
        assert!(subject.refuses(&spec).contains("the batch dimension is N and M in the file"));
    });
}

#[test]
fn an_output_that_does_not_grow_with_the_batch_is_refused() {
    let toy = Onnx::default().input("in", 1, &["N", "2"]).output("out", 1, &["1", "2"]);
    let onnx = toy.weight("first", 7, &[1], &0i64.to_le_bytes());
    let onnx = onnx.node_with("Gather", &["in", "first"], &["out"], &[("axis", 0)]).bytes();
    let dir = tempfile::tempdir().unwrap();
    let spec = toy_file(&dir, &onnx);
    for (_, load) in under_test() {
        let refused = load(&spec, 2, None).err().expect("must be refused").to_string();
        assert!(refused.contains("output `out` has shape 1,2 at batch 2 in the file"), "{refused}");
    }
}

#[test]
fn garbage_is_refused() {
    let whole = relu(1, &["N", "2"]);
    let unknown = Onnx::default().input("in", 1, &["N", "2"]).output("out", 1, &["N", "2"]);
    let unknown = unknown.node("Divine", &["in"], &["out"]).bytes();
    let dir = tempfile::tempdir().unwrap();
    each_engine(|subject| {
        for garbage in [&b""[..], b"not an ONNX file", &[0xff; 64], &whole[..whole.len() / 2], &unknown] {
            let message = subject.refuses(&toy_file(&dir, garbage));
            let engine = subject.engine.split(' ').next().unwrap();
            let wanted = format!("not an ONNX model that {engine} can read");
            assert!(message.contains(&wanted), "{message}");
        }
    });
}
