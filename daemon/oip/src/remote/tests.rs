//! What a client writes is what the server's end reads, and back; and nothing that a remote says leads out of bounds.

use proptest::prelude::*;
use weir_client::wire::DataType;

use super::*;
use crate::{Answer, Model, Parameters, check_outputs, pack};

fn tensor(name: &str, data_type: DataType, shape: &[u32]) -> TensorInfo {
    TensorInfo { name: name.to_owned(), data_type, shape: shape.to_vec() }
}

/// Two tensors a side, the first of which ends off the packing.
fn tensors() -> [TensorInfo; 2] {
    [tensor("a", DataType::U8, &[3]), tensor("b", DataType::F32, &[1, 2])]
}

#[test]
fn a_call_and_its_answer_come_through_both_ends_as_binary_data_and_as_json() {
    let sides = tensors();
    let model = Model { name: "toy", inputs: &sides, outputs: &sides };
    let (a, b) = ([1u8, 2, 255], [0.1f32.to_le_bytes(), (-3.5f32).to_le_bytes()].concat());
    for binary in [true, false] {
        let inputs = sides.iter().zip([&a[..], &b]);
        let (body, header) = call(inputs, &sides, (7, binary)).expect("a call");
        assert_eq!(header.is_some(), binary);
        let read = http::call(&body, header).expect("read by the server");
        assert_eq!(read.id, "7");
        let mut packed = Vec::new();
        pack(&model, &read, &mut packed).expect("as the model takes it");
        let outputs = check_outputs(&model, &read.outputs, false).expect("wanted");
        assert_eq!(outputs, [(0, binary), (1, binary)]);
        let parameters = Parameters::default();
        let given =
            Answer { model, id: &read.id, parameters: &parameters, packed: &packed, outputs: &outputs };
        let (body, header) = http::body(&given).expect("an answer");
        let answered = answer(&body, header).expect("read by the client");
        assert_eq!((answered.version.as_str(), answered.id.as_str()), (http::VERSION, "7"));
        let mut bytes = vec![9];
        for (of, expected) in sides.iter().zip([&a[..], &b]) {
            answered.take(of, &mut bytes).expect("it is there");
            assert_eq!(bytes, expected, "{binary}");
        }
    }
    let half = [tensor("h", DataType::F16, &[1])];
    assert!(call(half.iter().zip([&[0u8, 0][..]]), &half, (1, false)).is_err());
}

#[test]
fn what_is_no_answer_to_the_call_is_told() {
    let of = tensor("y", DataType::F32, &[4, 2]);
    let one = |datatype: &str, shape: &str, rest: &str| {
        format!(r#"{{"outputs":[{{"name":"y","datatype":"{datatype}","shape":{shape}{rest}}}]}}"#)
    };
    let raw = r#","parameters":{"binary_data_size":32}"#;
    for (json, binary, word) in [
        ("<html>".to_owned(), 0, "the answer"),
        ("{}".to_owned(), 0, "outputs"),
        (r#"{"outputs":[]}"#.to_owned(), 0, "\"y\" is missing"),
        (one("FP64", "[4,2]", raw), 32, "of type FP64, asked for was FP32"),
        (one("FP32", "[3,2]", raw), 32, "of shape [3, 2], asked for was [4, 2]"),
        (one("FP32", "[4,2]", raw), 31, "31 bytes are left"),
        (one("FP32", "[4,2]", raw), 33, "1 bytes follow the outputs'"),
        (one("FP32", "[4,2]", r#","data":[1,2,3]"#), 0, "3 elements"),
        (one("FP32", "[4,2]", ""), 0, "neither data"),
    ] {
        let body = [json.as_bytes(), &vec![0; binary]].concat();
        let mut bytes = Vec::new();
        let told = answer(&body, Some(json.len())).and_then(|answered| answered.take(&of, &mut bytes));
        let told = told.expect_err(&json).to_string();
        assert!(told.contains(word), "{told}: {word}");
    }
    assert!(answer(b"{}", Some(3)).is_err(), "its JSON would be longer than its body");
}

#[test]
fn metadata_is_read_as_weir_and_others_write_it() {
    let sides = tensors();
    let model = Model { name: "toy", inputs: &sides, outputs: &sides[..1] };
    let read = metadata(http::metadata(&model).to_string().as_bytes()).expect("metadata");
    assert_eq!(
        (read.name.as_str(), read.platform.as_str(), read.versions),
        ("toy", "weir", vec!["1".into()])
    );
    let b = Described { name: "b".to_owned(), datatype: "FP32".to_owned(), shape: vec![1, 2] };
    assert_eq!((&read.inputs[1], read.outputs.len()), (&b, 1));
    let open = br#"{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1,3]}],"outputs":[]}"#;
    assert_eq!(metadata(open).expect("metadata").inputs[0].shape, [-1, 3]);
    assert!(metadata(b"{}").is_err() && server(b"[").is_err());
}

#[test]
fn a_refusal_is_told_in_its_own_words_and_steers_nothing() {
    assert_eq!(refusal(br#"{"error":"no such model\n\u001b[2J"}"#), "no such model  [2J");
    assert_eq!(refusal(b"<html>busy</html>\n"), "<html>busy</html>");
    assert_eq!(refusal(&vec![b'x'; 100_000]).len(), MAX_TEXT);
    assert_eq!(refusal(b""), "");
}

proptest! {
    #[test]
    fn whatever_comes_is_read_within_bounds(
        json in "(\\{|\\}|\\[|\\]|\"outputs\":|\"name\":\"y\"|\"datatype\":\"FP32\"|\"shape\":|2|,|\"data\":|\"parameters\":){0,20}",
        binary in prop::collection::vec(any::<u8>(), 0..40),
        header in prop::option::of(0usize..200),
    ) {
        let body = [json.as_bytes(), &binary].concat();
        let of = tensor("y", DataType::F32, &[2]);
        let mut bytes = Vec::new();
        if let Ok(answered) = answer(&body, header)
            && answered.take(&of, &mut bytes).is_ok()
        {
            prop_assert_eq!(bytes.len(), 8);
        }
        let _ = (metadata(&body), server(&body), refusal(&body));
    }
}
