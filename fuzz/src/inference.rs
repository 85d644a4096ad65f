//! The Open Inference Protocol: calls of anybody, and answers of servers that are not trusted, over HTTP and over gRPC.

use prost::Message;
use prost::bytes::Bytes;
use weir_client::TensorInfo;
use weir_client::wire::{DataType, PACKING};
use weir_oip::grpc::inference::ModelInferRequest;
use weir_oip::remote::{self, Answered};
use weir_oip::{Answer, Model, Parameters, check_outputs, grpc, http, pack};

/// Reads `data` as a call over HTTP. One that fits the model is packed as the model has it, and what is packed survives the call that
/// a client makes of it; so do the outputs that it wants. Returns whether it fits. The first two bytes are how long its JSON is, all
/// of it if they are 0xFFFF.
pub fn http_call(data: &[u8]) -> bool {
    let Some((header, body)) = with_header(data) else { return false };
    let Ok(call) = http::call(body, header) else { return false };
    let (inputs, outputs) = tensors();
    let model = Model { name: "m", inputs: &inputs, outputs: &outputs };
    let mut packed = Vec::new();
    if pack(&model, &call, &mut packed).is_err() {
        return false;
    }
    for binary in [true, false] {
        let listed = inputs.iter().zip(elements(&inputs, &packed));
        let (again, header) = remote::call(listed, &outputs, (7, binary)).expect("no input is FP16");
        let call = http::call(&again, header).unwrap_or_else(|e| panic!("{e}: {again:?}"));
        let mut read = Vec::new();
        match pack(&model, &call, &mut read) {
            Ok(()) => assert_eq!(normal(&inputs, &read), normal(&inputs, &packed), "binary: {binary}"),
            // JSON has no infinite numbers.
            Err(e) => assert!(!binary && !is_finite(&inputs, &packed), "{e}: {packed:?}"),
        }
    }
    let Ok(wanted) = check_outputs(&model, &call.outputs, http::wishes_binary(&call)) else { return true };
    let (none, packed) = (Parameters::new(), answer_of(&outputs, body));
    let answer = Answer { model, id: &call.id, parameters: &none, packed: &packed, outputs: &wanted };
    let written = http::body(&answer);
    assert_eq!(http::check_json(&model, &wanted).is_ok(), written.is_ok());
    if let Ok((body, header)) = written {
        let read = remote::answer(&body, header).unwrap_or_else(|e| panic!("{e}: {body:?}"));
        assert_eq!(read.id, call.id);
        taken(&read, &outputs, &packed, &wanted);
    }
    true
}

/// Reads `data` as a call over gRPC; what must hold is as over HTTP.
pub fn grpc_call(data: &[u8]) -> bool {
    let Ok(message) = ModelInferRequest::decode(data) else { return false };
    let Ok(call) = grpc::call(&message) else { return false };
    let (inputs, outputs) = tensors();
    let model = Model { name: "m", inputs: &inputs, outputs: &outputs };
    let mut packed = Vec::new();
    if pack(&model, &call, &mut packed).is_err() {
        return false;
    }
    let listed = inputs.iter().zip(elements(&inputs, &packed));
    let again = remote::grpc::call(("m", None), listed, &outputs);
    let again = ModelInferRequest::decode(&again[remote::grpc::FRAME..]).expect("just made");
    let mut read = Vec::new();
    pack(&model, &grpc::call(&again).expect("just made"), &mut read).expect("just made");
    assert_eq!(read, packed);
    let Ok(wanted) = check_outputs(&model, &call.outputs, true) else { return true };
    let (none, packed) = (Parameters::new(), answer_of(&outputs, data));
    let answer = Answer { model, id: &call.id, parameters: &none, packed: &packed, outputs: &wanted };
    let answer = framed(&grpc::response(&answer).encode_to_vec());
    let answer = remote::grpc::answer(answer).expect("just made");
    taken(&remote::grpc::answered(&answer).expect("just made"), &outputs, &packed, &wanted);
    true
}

/// Reads `data` as all that a server may say over HTTP: of itself, of a model, to a call, and why it refuses one. What is taken of
/// an answer has the length that was asked for, and no text steers a terminal. Returns how many outputs were taken.
pub fn http_answer(data: &[u8]) -> usize {
    let Some((header, body)) = with_header(data) else { return 0 };
    let (of_server, of_model) = (remote::server(body), remote::metadata(body));
    let texts = [of_server.err(), of_model.err()].into_iter().flatten().map(|e| e.to_string());
    texts.chain([remote::refusal(body)]).for_each(|text| assert!(text.len() < 1 << 14, "{text}"));
    assert!(remote::refusal(body).chars().all(weir_oip::text::is_printable));
    remote::answer(body, header).map_or(0, |answered| lengths(&answered))
}

/// The same over gRPC, of messages with their five bytes before them; the first byte of `data` says whether they are put right.
pub fn grpc_answer(data: &[u8]) -> usize {
    let Some((&whole, rest)) = data.split_first() else { return 0 };
    let body = if whole == 0 { Bytes::copy_from_slice(rest) } else { framed(rest) };
    let _ = remote::grpc::server(body.clone());
    let _ = remote::grpc::ready(body.clone());
    let _ = remote::grpc::metadata(body.clone());
    let Ok(answer) = remote::grpc::answer(body) else { return 0 };
    remote::grpc::answered(&answer).map_or(0, |answered| lengths(&answered))
}

/// One of each type that JSON has, and what comes as it lies in memory alone among the outputs.
fn tensors() -> ([TensorInfo; 5], [TensorInfo; 3]) {
    let of = |name: &str, data_type, shape: &[u32]| TensorInfo {
        name: name.to_owned(),
        data_type,
        shape: shape.to_vec(),
    };
    let inputs = [
        of("x", DataType::F32, &[1, 2]),
        of("n", DataType::U8, &[3]),
        of("i", DataType::I64, &[]),
        of("b", DataType::Bool, &[2]),
        of("d", DataType::F64, &[1]),
    ];
    (inputs, [of("y", DataType::F32, &[2]), of("h", DataType::F16, &[1]), of("s", DataType::I8, &[3])])
}

fn with_header(data: &[u8]) -> Option<(Option<usize>, &[u8])> {
    let (&header, body) = data.split_first_chunk()?;
    let header = u16::from_le_bytes(header);
    Some(((header != u16::MAX).then_some(header.into()), body))
}

fn framed(message: &[u8]) -> Bytes {
    let length = (message.len() as u32).to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

/// The bytes of each tensor in what is packed, which has just as many as it must.
fn elements<'a>(tensors: &[TensorInfo], packed: &'a [u8]) -> Vec<&'a [u8]> {
    let mut end = 0_usize;
    let mut place = |tensor: &TensorInfo| {
        let start = end.next_multiple_of(PACKING);
        end = start + tensor.bytes().expect("a known type");
        &packed[start..end]
    };
    let elements = tensors.iter().map(&mut place).collect();
    assert_eq!(end, packed.len());
    elements
}

/// Elements for these tensors, from the bytes at hand.
fn answer_of(tensors: &[TensorInfo], bytes: &[u8]) -> Vec<u8> {
    let length = tensors
        .iter()
        .fold(0_usize, |end, tensor| end.next_multiple_of(PACKING) + tensor.bytes().expect("a known type"));
    bytes.iter().copied().chain(std::iter::repeat(1)).take(length).collect()
}

/// The outputs that were wanted are taken as they were sent, the others are not there.
fn taken(answered: &Answered<'_>, outputs: &[TensorInfo], packed: &[u8], wanted: &[(usize, bool)]) {
    for (place, (output, sent)) in outputs.iter().zip(elements(outputs, packed)).enumerate() {
        let mut bytes = Vec::new();
        let taken = answered.take(output, &mut bytes);
        match wanted.iter().find(|&&(of, _)| of == place) {
            None => assert!(taken.is_err(), "{output:?}"),
            Some(&(_, false)) if !is_finite(std::slice::from_ref(output), sent) => assert!(taken.is_err()),
            Some(_) => {
                taken.unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(bytes, sent, "{output:?}");
            }
        }
    }
}

fn lengths(answered: &Answered<'_>) -> usize {
    let (inputs, outputs) = tensors();
    let mut bytes = Vec::new();
    let of = |tensor: &&TensorInfo| {
        let taken = answered.take(tensor, &mut bytes).is_ok();
        assert!(!taken || Some(bytes.len()) == tensor.bytes(), "{tensor:?}: {}", bytes.len());
        taken
    };
    inputs.iter().chain(&outputs).filter(of).count()
}

/// Whether all of it can be written as JSON.
fn is_finite(tensors: &[TensorInfo], packed: &[u8]) -> bool {
    tensors.iter().zip(elements(tensors, packed)).all(|(tensor, bytes)| match tensor.data_type {
        DataType::F32 => bytes.as_chunks().0.iter().all(|&of| f32::from_le_bytes(of).is_finite()),
        DataType::F64 => bytes.as_chunks().0.iter().all(|&of| f64::from_le_bytes(of).is_finite()),
        _ => true,
    })
}

/// What is packed, and what is true as 1: in memory it may be any byte but 0.
fn normal(tensors: &[TensorInfo], packed: &[u8]) -> Vec<u8> {
    let of = |(tensor, bytes): (&TensorInfo, &[u8])| match tensor.data_type {
        DataType::Bool => bytes.iter().map(|&byte| u8::from(byte != 0)).collect(),
        _ => bytes.to_vec(),
    };
    tensors.iter().zip(elements(tensors, packed)).flat_map(of).collect()
}
