//! What is made of all results of a source at the stages above a join.

use super::*;
use crate::adapter::{Above, Given, Results};

fn stages() -> (Vec<TensorSpec>, ModelSpec, ModelSpec) {
    let source = vec![tensor("image", F32, &[2])];
    let left = model("l", Vec::new(), vec![tensor("odds", F32, &[2]), tensor("mark", U8, &[1])]);
    let right = model(
        "r",
        Vec::new(),
        vec![tensor("scores", F32, &[2]), tensor("mark", U8, &[1]), tensor("only", F32, &[1])],
    );
    (source, left, right)
}

/// `left` has one result, `right` up to three.
fn made(text: &str, inputs: Vec<TensorSpec>) -> Result<(Adapter, ModelSpec), String> {
    let (source, left, right) = stages();
    let above =
        [Above { name: "left", model: &left, most: 1 }, Above { name: "right", model: &right, most: 3 }];
    let child = model("both", inputs, vec![tensor("x", F32, &[1])]);
    let made = Adapter::behind(&config(text), &source, (&above, &[]), 1, &child);
    made.map(|adapter| (adapter, child)).map_err(|error| error.to_string())
}

/// A result of two numbers and a mark.
fn result([a, b]: [f32; 2], mark: u8) -> Vec<u8> {
    let mut packed = f32s(&[a, b]);
    packed.push(mark);
    packed
}

/// One of `right`, which has another number at its end.
fn result_of_right(numbers: [f32; 2], mark: u8, only: f32) -> Vec<u8> {
    let mut packed = result(numbers, mark);
    packed.resize(packed_len(&stages().2.outputs) - 4, 0);
    packed.extend(only.to_le_bytes());
    packed
}

fn given_to(adapter: &Adapter, child: &ModelSpec, order: &[u16]) -> Vec<f32> {
    let (left, source) = (result([1.0, 2.0], 7), f32s(&[8.0, 9.0]));
    let right = [result_of_right([3.0, 4.0], 8, 0.5), result_of_right([5.0, 6.0], 9, 0.25)].concat();
    let all = [Results { packed: &left, order: &[0] }, Results { packed: &right, order }];
    let mut buffers = Buffers::new(child, 1);
    adapter.lay(Given { source: &source, all: &all, path: &[] }, &mut buffers, 0);
    let mut bytes = vec![0; buffers.each(Side::Input, 0)];
    buffers.read(Side::Input, 0, 0, &mut bytes);
    bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn results_lie_behind_one_another_in_their_order_and_what_is_not_there_is_zeros() {
    let (adapter, child) = made("inputs.x = { pass = \"scores\" }", vec![tensor("x", F32, &[3, 2])]).unwrap();
    assert_eq!(given_to(&adapter, &child, &[1, 0]), [5.0, 6.0, 3.0, 4.0, 0.0, 0.0]);
    assert_eq!(given_to(&adapter, &child, &[]), [0.0; 6]);
    for (parts, axis, shape, expected) in [
        ("\"left.odds\", \"source.image\"", 0, vec![4], vec![1.0, 2.0, 8.0, 9.0]),
        ("\"right.only\", \"left.mark\"", 0, vec![4], vec![0.5, 0.25, 0.0, 7.0]),
        ("\"left.odds\", \"source.image\"", 0, vec![2, 2], vec![1.0, 2.0, 8.0, 9.0]),
        ("\"left.odds\", \"source.image\"", 1, vec![2, 2], vec![1.0, 8.0, 2.0, 9.0]),
        ("\"right.scores\"", 0, vec![3, 2], vec![3.0, 4.0, 5.0, 6.0, 0.0, 0.0]),
        (
            "\"right.scores\", \"scores\"",
            1,
            vec![3, 4],
            [[3.0, 4.0, 3.0, 4.0], [5.0, 6.0, 5.0, 6.0], [0.0; 4]].concat(),
        ),
    ] {
        let text = format!("inputs.x = {{ concatenate = [{parts}], axis = {axis} }}");
        let (adapter, child) = made(&text, vec![tensor("x", F32, &shape)]).unwrap();
        assert_eq!(given_to(&adapter, &child, &[0, 1]), expected, "{text}");
    }
    // Of one result anything may be made; by its name it is found as long as nobody else has that.
    let (adapter, child) = made("inputs.x = { arg-max = \"odds\" }", vec![tensor("x", F32, &[1])]).unwrap();
    assert_eq!(given_to(&adapter, &child, &[0]), [1.0]);
    let (adapter, child) = made("", vec![tensor("odds", F32, &[2])]).unwrap();
    assert_eq!(given_to(&adapter, &child, &[0]), [1.0, 2.0]);
}

#[test]
fn what_is_not_one_tensor_is_refused_where_one_is_needed() {
    let refused = |text: &str, shape: &[usize]| made(text, vec![tensor("x", F32, shape)]).unwrap_err();
    for (text, shape, wanted) in [
        (
            "inputs.x = { pass = \"mark\" }",
            &[1][..],
            "inputs.x.pass = \"mark\": several stages have such an output: say which, of left.mark, right.mark",
        ),
        (
            "inputs.x = { row = \"right.scores\" }",
            &[2],
            "inputs.x.row = \"right.scores\": a join is of no row",
        ),
        ("inputs.x = { arg-max = \"right.scores\" }", &[1], "it is f32[3, 2], the results of a source there"),
        (
            "inputs.x = { crop = \"source.image\", boxes = \"scores\" }",
            &[3, 2],
            "inputs.x.boxes = \"scores\": it is f32[3, 2], the results",
        ),
        ("inputs.x = { pass = \"right.scores\" }", &[2], "it is f32[3, 2] there"),
        (
            "inputs.x = { pass = \"right.odds\" }",
            &[2],
            "stage right has no such output; it has scores, mark, only",
        ),
        (
            "inputs.x = { pass = \"middle\" }",
            &[2],
            "there are right.scores f32[3, 2], right.mark u8[3, 1], right.only f32[3, 1], left.odds f32[2], left.mark u8[1], source.image f32[2]",
        ),
        ("", &[5], "say what it is made of"),
    ] {
        let message = if text.is_empty() {
            made(text, vec![tensor("mark", F32, shape)]).unwrap_err()
        } else {
            refused(text, shape)
        };
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
}

#[test]
fn behind_a_join_there_are_its_own_result_and_all_results_above_it() {
    let (source, left, right) = stages();
    let above =
        [Above { name: "left", model: &left, most: 1 }, Above { name: "right", model: &right, most: 3 }];
    let join = model("j", Vec::new(), vec![tensor("scores", F32, &[4])]);
    let child = model("end", vec![tensor("a", F32, &[]), tensor("b", F32, &[3, 2])], Vec::new());
    let text = "each = { scores = \"scores\", threshold = 0.5 }\ninputs.a = { row = \"scores\" }\n\
        inputs.b = { pass = \"right.scores\" }";
    let adapter = Adapter::behind(&config(text), &source, (&above, &[("all", &join)]), 2, &child).unwrap();
    let mut rows = Vec::new();
    let answer = f32s(&[0.1, 0.9, 0.2, 0.6]);
    assert_eq!((adapter.select(&answer, &mut rows), &*rows), (2, &[1, 3][..]));
    let right = result_of_right([3.0, 4.0], 8, 0.5);
    let all = [Results { packed: &[], order: &[] }, Results { packed: &right, order: &[0] }];
    let mut buffers = Buffers::new(&child, 1);
    let path = [Step { answer: &answer, row: 3 }];
    adapter.lay(Given { source: &[], all: &all, path: &path }, &mut buffers, 0);
    let mut bytes = vec![0; 24];
    buffers.read(Side::Input, 1, 0, &mut bytes);
    assert_eq!(bytes, f32s(&[3.0, 4.0, 0.0, 0.0, 0.0, 0.0]));
    buffers.read(Side::Input, 0, 0, &mut bytes[..4]);
    assert_eq!(bytes[..4], f32s(&[0.6]));
    // What it costs is measured with as many results as there may be.
    let made = adapter.rehearse(3);
    assert_eq!(made.all().iter().map(|of| of.order.len()).collect::<Vec<_>>(), [1, 3]);
}
