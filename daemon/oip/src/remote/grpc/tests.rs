//! What a client writes is what the server's end reads, and back; and nothing that a remote says leads out of bounds.

use proptest::prelude::*;
use weir_client::wire::DataType;

use super::*;
use crate::grpc::inference::InferTensorContents;
use crate::grpc::inference::model_infer_response::InferOutputTensor;
use crate::{Answer, Model, Parameters, check_outputs, pack};

fn tensor(name: &str, data_type: DataType, shape: &[u32]) -> TensorInfo {
    TensorInfo { name: name.to_owned(), data_type, shape: shape.to_vec() }
}

/// Two tensors a side, the first of which ends off the packing, and one that JSON does not have.
fn tensors() -> [TensorInfo; 3] {
    [tensor("a", DataType::U8, &[3]), tensor("b", DataType::F32, &[1, 2]), tensor("h", DataType::F16, &[1])]
}

/// The message in what a client writes.
fn read<M: Message + Default>(body: Vec<u8>) -> M {
    message("the call", body.into()).expect("a message")
}

#[test]
fn a_call_and_its_answer_come_through_both_ends() {
    let sides = tensors();
    let model = Model { name: "toy", inputs: &sides, outputs: &sides };
    let elements: [&[u8]; 3] = [&[1, 2, 255], &[0, 0, 128, 63, 0, 0, 96, 192], &[0, 60]];
    let sent: ModelInferRequest = read(call(("toy", Some("7")), sides.iter().zip(elements), &sides));
    assert_eq!((sent.model_name.as_str(), sent.model_version.as_str()), ("toy", "7"));
    let read = crate::grpc::call(&sent).expect("read by the server");
    let mut packed = Vec::new();
    pack(&model, &read, &mut packed).expect("as the model takes it");
    let outputs = check_outputs(&model, &read.outputs, true).expect("wanted");
    let parameters = Parameters::default();
    let given = Answer { model, id: "", parameters: &parameters, packed: &packed, outputs: &outputs };
    let response = answer(frame(&crate::grpc::response(&given)).into()).expect("an answer");
    let answered = answered(&response).expect("read by the client");
    assert_eq!(answered.version, crate::http::VERSION);
    let mut bytes = vec![9];
    for (of, expected) in sides.iter().zip(elements) {
        answered.take(of, &mut bytes).expect("it is there");
        assert_eq!(bytes, expected);
    }
}

#[test]
fn what_a_server_and_a_model_are_is_read_as_they_say_it() {
    let sides = tensors();
    let model = Model { name: "toy", inputs: &sides, outputs: &sides[..1] };
    let found = metadata(frame(&crate::grpc::metadata(&model)).into()).expect("metadata");
    assert_eq!((found.name.as_str(), found.platform.as_str(), found.outputs.len()), ("toy", "weir", 1));
    let b = Described { name: "b".to_owned(), datatype: "FP32".to_owned(), shape: vec![1, 2] };
    assert_eq!(found.inputs[1], b);
    let name = "triton".to_owned();
    let told = ServerMetadataResponse { name, ..ServerMetadataResponse::default() };
    assert_eq!(server(frame(&told).into()).expect("metadata").name, "triton");
    assert!(ready(frame(&ModelReadyResponse { ready: true }).into()).expect("an answer"));
    // A message without fields is empty: what is not ready.
    assert!(!ready(vec![0; FRAME].into()).expect("an answer"));
    let asked: ModelMetadataRequest = read(ask_metadata("m", None));
    assert_eq!((asked.name.as_str(), asked.version.as_str()), ("m", ""));
    let asked: ModelReadyRequest = read(ask_ready("m", Some("2")));
    assert_eq!((asked.name.as_str(), asked.version.as_str()), ("m", "2"));
}

#[test]
fn elements_may_come_in_the_list_of_their_type() {
    let contents = InferTensorContents { fp32_contents: vec![0.5, -1.0], ..InferTensorContents::default() };
    let output = InferOutputTensor {
        name: "y".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![2],
        contents: Some(contents),
        ..InferOutputTensor::default()
    };
    let message = ModelInferResponse { outputs: vec![output], ..ModelInferResponse::default() };
    let mut bytes = Vec::new();
    let of = tensor("y", DataType::F32, &[2]);
    answered(&message).expect("an answer").take(&of, &mut bytes).expect("it is there");
    assert_eq!(bytes, [0.5f32.to_le_bytes(), (-1.0f32).to_le_bytes()].concat());
}

#[test]
fn what_is_no_answer_to_the_call_is_told() {
    let of = tensor("y", DataType::F32, &[4, 2]);
    let one = |datatype: &str, shape: &[i64], raw: &[usize]| {
        let output = InferOutputTensor {
            name: "y".to_owned(),
            datatype: datatype.to_owned(),
            shape: shape.to_vec(),
            ..InferOutputTensor::default()
        };
        let raw_output_contents = raw.iter().map(|&bytes| vec![0; bytes].into()).collect();
        frame(&ModelInferResponse {
            outputs: vec![output],
            raw_output_contents,
            ..ModelInferResponse::default()
        })
    };
    let many = ModelInferResponse { outputs: vec![InferOutputTensor::default(); 5000], ..Default::default() };
    let longer = |mut body: Vec<u8>| {
        body.push(0);
        body
    };
    for (body, word) in [
        (vec![], "no message in 0 bytes"),
        (vec![1, 0, 0, 0, 0], "compressed"),
        (longer(frame(&ModelInferResponse::default())), "should have 0 bytes and has 1"),
        (vec![0, 0, 0, 0, 1, 7], "the answer: "),
        (frame(&many), "5000 fields, 4096 are allowed"),
        (frame(&ModelInferResponse::default()), "\"y\" is missing"),
        (one("FP64", &[4, 2], &[32]), "of type FP64, asked for was FP32"),
        (one("FP32", &[3, 2], &[32]), "of shape [3, 2], asked for was [4, 2]"),
        (one("FP32", &[4, 2], &[31]), "has 31 bytes, 32 are expected"),
        (one("FP32", &[4, 2], &[32, 0]), "raw_output_contents has 2 entries for 1 outputs"),
        (one("FP32", &[4, 2], &[]), "neither contents nor raw_output_contents"),
    ] {
        let told = answer(body.into()).and_then(|message| answered(&message)?.take(&of, &mut Vec::new()));
        let told = told.expect_err(word).to_string();
        assert!(told.contains(word), "{told}: {word}");
    }
}

#[test]
fn how_a_call_has_ended_is_told_in_the_servers_words() {
    let of = |pairs: &[(&'static str, &'static str)]| {
        let pair = |&(name, value): &(&'static str, &'static str)| {
            (name.parse().expect("a name"), value.parse().expect("a value"))
        };
        ended(&pairs.iter().map(pair).collect())
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[("grpc-status", "0")]), Some(Ended::Well));
    assert_eq!(of(&[("grpc-status", "4")]), Some(Ended::Late));
    let refused = |text: &str| Some(Ended::Refused(text.to_owned()));
    assert_eq!(of(&[("grpc-status", "14"), ("grpc-message", "not%0Anow")]), refused("UNAVAILABLE: not now"));
    assert_eq!(of(&[("grpc-status", "x")]), refused("UNKNOWN: "));
    // What is of no use is not looked at.
    assert_eq!(of(&[("grpc-status", "5"), ("grpc-status-details-bin", "?")]), refused("NOT_FOUND: "));
}

proptest! {
    #[test]
    fn whatever_comes_is_read_within_bounds(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(vec![0x2a, 0x32, 0x0a, 0x12, 0, 1, 4, 8])], 0..80),
    ) {
        let mut body = vec![0];
        body.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        body.extend_from_slice(&bytes);
        let of = tensor("y", DataType::F32, &[2]);
        let mut taken = Vec::new();
        if let Ok(message) = answer(body.clone().into())
            && answered(&message).and_then(|answered| answered.take(&of, &mut taken)).is_ok()
        {
            prop_assert_eq!(taken.len(), 8);
        }
        let (body, bytes) = (Bytes::from(body), Bytes::from(bytes));
        let _ = (metadata(body.clone()), server(body.clone()), ready(body), answer(bytes));
    }
}
