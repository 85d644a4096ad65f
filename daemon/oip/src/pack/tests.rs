//! Tensors of calls as a model takes them, and all that is none of its.

use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

fn tensor(name: &str, data_type: DataType, shape: &[u32]) -> TensorInfo {
    TensorInfo { name: name.to_owned(), data_type, shape: shape.to_vec() }
}

fn input<'a>(name: &'a str, datatype: &'a str, shape: &[i64], data: Data<'a>) -> Input<'a> {
    Input { name: Cow::Borrowed(name), datatype: Cow::Borrowed(datatype), shape: shape.to_vec(), data }
}

fn packed(inputs: &[TensorInfo], call: Vec<Input<'_>>) -> Result<Vec<u8>, String> {
    let model = Model { name: "digits", inputs, outputs: &[] };
    let mut bytes = Vec::new();
    let call = Call { inputs: call, ..Call::default() };
    pack(&model, &call, &mut bytes).map(|()| bytes).map_err(|refused| match refused {
        Refused::Invalid(text) => text,
        other => panic!("{other:?}"),
    })
}

fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

/// Three bytes, then a float at the next multiple of eight.
fn two() -> [TensorInfo; 2] {
    [tensor("a", DataType::U8, &[3]), tensor("b", DataType::F32, &[1, 1])]
}

#[test]
fn tensors_lie_where_the_model_has_them_however_they_come() {
    let expected = [&[1, 2, 3, 0, 0, 0, 0, 0][..], &0.5f32.to_le_bytes()].concat();
    let (flat, nested) = (json("[1, 2, 3]"), json("[[0.5]]"));
    let half = 0.5f32.to_le_bytes();
    for (a, b) in [
        (Data::Raw(&[1, 2, 3]), Data::Raw(&half)),
        (Data::Json(&flat), Data::Json(&nested)),
        (Data::Uint(&[1, 2, 3]), Data::Fp32(&[0.5])),
        (Data::Int(&[1, 2, 3]), Data::Fp64(&[0.5])),
    ] {
        // In any order, with a batch of one or without.
        let call = vec![input("b", "FP32", &[1], b), input("a", "UINT8", &[1, 3], a)];
        assert_eq!(packed(&two(), call), Ok(expected.clone()));
    }
}

#[test]
fn what_is_wrong_is_told_by_its_name_and_what_is_taken() {
    let raw = || Data::Raw(&[1, 2, 3]);
    let half = 0.5f32.to_le_bytes();
    let b = || input("b", "FP32", &[1, 1], Data::Raw(&half));
    let long = json("[1, 2, 3, 4]");
    let deep = json("[1, [2, \"x\"]]");
    let none = json("7");
    let cases: Vec<(Vec<Input<'_>>, &[&str])> = vec![
        (vec![input("a", "UINT8", &[3], raw())], &["\"b\" is missing", "a, b"]),
        (vec![input("c", "UINT8", &[3], raw()), b()], &["\"c\"", "digits", "a, b"]),
        (vec![input("a", "UINT8", &[3], raw()), b(), b()], &["\"b\" is there twice"]),
        (vec![input("a", "INT8", &[3], raw()), b()], &["\"a\" is of type INT8", "UINT8"]),
        (vec![input("a", "BYTES", &[3], raw()), b()], &["\"a\" is of type BYTES", "UINT8"]),
        (vec![input("a", "UINT8", &[2, 3], raw()), b()], &["[2, 3]", "[3]", "one request"]),
        (vec![input("a", "UINT8", &[-1], raw()), b()], &["[-1]", "[3]"]),
        (vec![input("a", "UINT8", &[3], Data::Raw(&[1])), b()], &["1 bytes", "3 are expected"]),
        (vec![input("a", "UINT8", &[3], Data::Uint(&[1, 256, 3])), b()], &["256 is no UINT8"]),
        (vec![input("a", "UINT8", &[3], Data::Int(&[-1, 2, 3])), b()], &["-1 is no UINT8"]),
        (vec![input("a", "UINT8", &[3], Data::Uint(&[1, 2])), b()], &["2 elements", "shape 3"]),
        (vec![input("a", "UINT8", &[3], Data::Fp32(&[0.5; 3])), b()], &["0.5 is no UINT8"]),
        (vec![input("a", "UINT8", &[3], Data::Bool(&[true; 3])), b()], &["true is no UINT8"]),
        (vec![input("a", "UINT8", &[3], Data::Json(&long)), b()], &["\"a\"", "more elements"]),
        (vec![input("a", "UINT8", &[3], Data::Json(&deep)), b()], &["\"a\"", "x"]),
        (vec![input("a", "UINT8", &[3], Data::Json(&none)), b()], &["data: must be a list"]),
    ];
    for (call, words) in cases {
        let text = packed(&two(), call).expect_err("it is wrong");
        assert!(words.iter().all(|word| text.contains(word)), "{text}: {words:?}");
    }
}

#[test]
fn outputs_are_those_that_are_wanted() {
    let outputs = two();
    let model = Model { name: "digits", inputs: &[], outputs: &outputs };
    let wanted = |name: &str, key: Option<&str>| {
        let parameters = key.map(|key| (key.to_owned(), crate::Parameter::Int(1))).into_iter().collect();
        Wanted { name: name.to_owned(), binary: true, parameters }
    };
    let check = |list: &[Wanted]| check_outputs(&model, list, false);
    assert_eq!(check(&[]), Ok(vec![(0, false), (1, false)]));
    assert_eq!(check(&[wanted("b", None)]), Ok(vec![(1, true)]));
    for (list, word) in [
        (vec![wanted("c", None)], "none of: a, b"),
        (vec![wanted("b", None), wanted("b", None)], "twice"),
        (vec![wanted("b", Some("classification"))], "classification is not supported"),
    ] {
        let text = check(&list).expect_err("it is wrong").to_string();
        assert!(text.contains(word), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What JSON tells of a tensor is what lies in it.
    #[test]
    fn numbers_go_through_json_and_back(kind in 0..7usize, bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let data_type = [
            DataType::Bool, DataType::U8, DataType::I8, DataType::I32, DataType::I64, DataType::F32, DataType::F64,
        ][kind];
        let size = data_type.size().expect("known");
        let mut bytes = bytes[..bytes.len() / size * size].to_vec();
        if data_type == DataType::Bool {
            bytes.iter_mut().for_each(|byte| *byte &= 1);
        }
        let written = elements::to_json(data_type, &bytes).expect("it has numbers").to_string();
        prop_assume!(!written.contains("null"));
        let mut back = Vec::new();
        elements::push_json(&mut back, data_type, bytes.len() / size, &written).expect("numbers");
        prop_assert_eq!(back, bytes);
    }

    /// No body makes anything but an error or a call of it.
    #[test]
    fn any_json_is_an_error_or_a_call(text in "[\\[\\]{}\",:0-9a-z_ ]{0,80}") {
        let _ = crate::http::call(text.as_bytes(), None);
        let mut bytes = Vec::new();
        let _ = elements::push_json(&mut bytes, DataType::F32, 9, &text);
        prop_assert!(bytes.len() <= 36);
    }
}
