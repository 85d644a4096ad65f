//! Calls and answers in messages, and what is wrong with some.

use prost::Message;

use super::*;

fn tensor(name: &str, data_type: Type, shape: &[u32]) -> TensorInfo {
    TensorInfo { name: name.to_owned(), data_type, shape: shape.to_vec() }
}

fn input(datatype: &str, contents: Option<InferTensorContents>) -> InferInputTensor {
    InferInputTensor {
        name: "a".to_owned(),
        datatype: datatype.to_owned(),
        shape: vec![2],
        contents,
        ..InferInputTensor::default()
    }
}

fn message(inputs: Vec<InferInputTensor>, raw: &[&'static [u8]]) -> ModelInferRequest {
    let raw_input_contents = raw.iter().map(|&bytes| bytes.into()).collect();
    ModelInferRequest { id: "7".to_owned(), inputs, raw_input_contents, ..ModelInferRequest::default() }
}

/// The tensor that a model with one input of this type gets.
fn packed(data_type: Type, message: &ModelInferRequest) -> Result<Vec<u8>, String> {
    let inputs = [tensor("a", data_type, &[2])];
    let model = Model { name: "m", inputs: &inputs, outputs: &[] };
    let mut bytes = Vec::new();
    let call = call(message).map_err(|refused| refused.to_string())?;
    crate::pack(&model, &call, &mut bytes).map(|()| bytes).map_err(|refused| refused.to_string())
}

#[test]
fn elements_come_raw_or_in_the_list_of_their_type() {
    let contents = InferTensorContents::default;
    let typed = [
        (Type::Bool, InferTensorContents { bool_contents: vec![true, false], ..contents() }, vec![1, 0]),
        (Type::U8, InferTensorContents { uint_contents: vec![1, 255], ..contents() }, vec![1, 255]),
        (Type::I8, InferTensorContents { int_contents: vec![1, -1], ..contents() }, vec![1, 255]),
        (
            Type::I32,
            InferTensorContents { int_contents: vec![1, -1], ..contents() },
            vec![1, 0, 0, 0, 255, 255, 255, 255],
        ),
        (
            Type::F32,
            InferTensorContents { fp32_contents: vec![0.0, 1.0], ..contents() },
            vec![0, 0, 0, 0, 0, 0, 128, 63],
        ),
    ];
    for (data_type, contents, expected) in typed {
        let message = message(vec![input(name_of(data_type), Some(contents))], &[]);
        assert_eq!(packed(data_type, &message), Ok(expected), "{data_type:?}");
    }
    let wide = InferTensorContents { int64_contents: vec![1, -1], ..contents() };
    let expected = [1i64.to_le_bytes(), (-1i64).to_le_bytes()].concat();
    assert_eq!(packed(Type::I64, &message(vec![input("INT64", Some(wide))], &[])), Ok(expected));
    let double = InferTensorContents { fp64_contents: vec![0.5, -2.0], ..contents() };
    let expected = [0.5f64.to_le_bytes(), (-2.0f64).to_le_bytes()].concat();
    assert_eq!(packed(Type::F64, &message(vec![input("FP64", Some(double))], &[])), Ok(expected));
    assert_eq!(packed(Type::F16, &message(vec![input("FP16", None)], &[b"abcd"])), Ok(b"abcd".to_vec()));
    assert_eq!(
        packed(Type::F16, &message(vec![input("FP16", Some(contents()))], &[b"abcd"])),
        Ok(b"abcd".to_vec())
    );
}

#[test]
fn what_is_wrong_is_told() {
    let floats = || InferTensorContents { fp32_contents: vec![1.0, 2.0], ..InferTensorContents::default() };
    let both = InferTensorContents { int_contents: vec![1], ..floats() };
    let mut shared = input("FP32", None);
    shared.parameters.insert("shared_memory_region".to_owned(), InferParameter::default());
    for (inputs, raw, words) in [
        (vec![input("FP32", None)], &[][..], &["neither contents nor"][..]),
        (vec![input("FP32", Some(floats()))], &[&b"12345678"[..]], &["contents beside"]),
        (vec![input("FP32", None)], &[&b"1234"[..], b"5"], &["2 entries for 1 inputs"]),
        (vec![input("FP32", None)], &[&b"1234"[..]], &["4 bytes", "8 are expected"]),
        (vec![input("FP32", Some(both))], &[], &["fp32_contents alone"]),
        (vec![input("INT32", Some(floats()))], &[], &["int_contents alone"]),
        (vec![input("FP16", Some(floats()))], &[], &["raw_input_contents"]),
        (vec![input("BYTES", Some(floats()))], &[], &["type BYTES", "FP32"]),
        (vec![shared], &[&b"12345678"[..]], &["shared_memory_region is not supported"]),
    ] {
        let text = packed(Type::F32, &message(inputs, raw)).expect_err("it is wrong");
        assert!(words.iter().all(|word| text.contains(word)), "{text}: {words:?}");
    }
    let mut empty = message(vec![], &[]);
    empty.parameters.insert("weir_last".to_owned(), InferParameter::default());
    let text = call(&empty).expect_err("it says nothing").to_string();
    assert_eq!(text, "parameters.weir_last: must have a value");
    empty.outputs = vec![InferRequestedOutputTensor { name: "y".to_owned(), parameters: empty.parameters }];
    empty.parameters = HashMap::new();
    let text = call(&empty).expect_err("it says nothing").to_string();
    assert_eq!(text, "output \"y\": parameters.weir_last: must have a value");
}

#[test]
fn parameters_and_outputs_go_both_ways() {
    let parameters = Parameters::from([
        ("a".to_owned(), Parameter::Bool(true)),
        ("b".to_owned(), Parameter::Int(-3)),
        ("c".to_owned(), Parameter::Uint(u64::MAX)),
        ("d".to_owned(), Parameter::Double(0.5)),
        ("e".to_owned(), Parameter::Text("front".to_owned())),
    ]);
    let outputs = [tensor("y", Type::U8, &[3]), tensor("z", Type::F32, &[1])];
    let model = Model { name: "m", inputs: &[], outputs: &outputs };
    let packed = [&[1, 2, 3, 0, 0, 0, 0, 0][..], &0.5f32.to_le_bytes()].concat();
    let answer =
        Answer { model, id: "7", parameters: &parameters, packed: &packed, outputs: &[(1, true), (0, true)] };
    let response = response(&answer);
    assert_eq!(
        (response.model_name.as_str(), response.model_version.as_str(), response.id.as_str()),
        ("m", "1", "7")
    );
    assert_eq!(parameters_of(&response.parameters), Ok(parameters));
    let described: Vec<_> = response
        .outputs
        .iter()
        .map(|of| (of.name.as_str(), of.datatype.as_str(), of.shape.clone()))
        .collect();
    assert_eq!(described, [("z", "FP32", vec![1]), ("y", "UINT8", vec![3])]);
    assert_eq!(response.raw_output_contents, [&0.5f32.to_le_bytes()[..], &[1, 2, 3]]);
    assert_eq!(metadata(&model).outputs[1].shape, [1]);
    let config = config(&model).config.expect("a configuration");
    assert_eq!((config.max_batch_size, config.output[0].data_type()), (0, DataType::TypeUint8));
}

#[test]
fn each_refusal_has_its_code_and_misses_left() {
    let text = || "no".to_owned();
    for (refused, code) in [
        (Refused::Invalid(text()), Code::InvalidArgument),
        (Refused::NotFound(text()), Code::NotFound),
        (Refused::Conflict(text()), Code::FailedPrecondition),
        (Refused::TooLarge(text()), Code::ResourceExhausted),
        (Refused::Unimplemented(text()), Code::Unimplemented),
        (Refused::Unavailable { text: text(), misses_left: None }, Code::Unavailable),
    ] {
        let status = status(&refused);
        assert_eq!((status.code(), status.message()), (code, "no"));
        assert!(status.metadata().is_empty());
    }
    let status = status(&Refused::Unavailable { text: text(), misses_left: Some(2) });
    assert_eq!(status.metadata().get(MISSES_LEFT).and_then(|left| left.to_str().ok()), Some("2"));
}

/// What is generated is of the file beside it: each message and call that it names is in the description.
#[test]
fn the_description_is_of_the_protocol() {
    let proto = include_str!("../../proto/open_inference.proto");
    let names = proto.lines().filter_map(|line| {
        let mut words = line.trim().split([' ', '(']);
        matches!(words.next()?, "rpc" | "message" | "service" | "enum").then(|| words.next()).flatten()
    });
    let mut count = 0;
    for name in names {
        let found = DESCRIPTORS.windows(name.len()).any(|bytes| bytes == name.as_bytes());
        assert!(found, "{name} is not in it: make oip-proto");
        count += 1;
    }
    assert!(count > 40, "{count}");
    // An unknown field is passed over.
    let bytes = [message(vec![], &[]).encode_to_vec(), vec![0xfa, 0x3f, 1, 9]].concat();
    assert_eq!(ModelInferRequest::decode(&bytes[..]).expect("decoded").id, "7");
}
