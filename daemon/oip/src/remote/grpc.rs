//! The other end of the protocol over gRPC: what a client writes to a remote server, and reads of its answers, each as the one message
//! of a call with the five bytes before it.

use prost::Message;
use prost::bytes::{Buf, Bytes};
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};
use weir_client::TensorInfo;

use super::{Answered, Described, Metadata, Server};
use crate::grpc::bounded::check_fields;
use crate::grpc::elements;
use crate::grpc::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::grpc::inference::model_metadata_response::TensorMetadata;
use crate::grpc::inference::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest,
    ModelReadyResponse, ServerMetadataRequest, ServerMetadataResponse,
};
use crate::text::printable;
use crate::{Input, Refused, invalid, name_of};

/// Where a server tells what it is.
pub const SERVER: &str = "/inference.GRPCInferenceService/ServerMetadata";
/// Where it tells whether a model is ready.
pub const READY: &str = "/inference.GRPCInferenceService/ModelReady";
/// Where it tells what a model takes and gives.
pub const METADATA: &str = "/inference.GRPCInferenceService/ModelMetadata";
/// Where it is called.
pub const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// Bytes before a message: whether it is compressed, and its length.
pub const FRAME: usize = 5;

/// How a server has ended a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an answer.
    Well,
    /// By giving it up, as the time was over that it was given.
    Late,
    /// By refusing it, in these words.
    Refused(String),
}

/// How a call has ended, by what came behind the answer or, where there was none, before it; `None` if that does not tell.
#[must_use]
pub fn ended(headers: &HeaderMap) -> Option<Ended> {
    let mut headers = headers.clone();
    // Nobody needs them here, and tonic takes them for what they should be.
    headers.remove("grpc-status-details-bin");
    let status = Status::from_header_map(&headers)?;
    Some(match status.code() {
        Code::Ok => Ended::Well,
        Code::DeadlineExceeded => Ended::Late,
        code => Ended::Refused(format!("{}: {}", name(code), printable(status.message().trim()))),
    })
}

/// A question for what a server is.
#[must_use]
pub fn ask_server() -> Vec<u8> {
    frame(&ServerMetadataRequest {})
}

/// A question whether a model is ready, in this version or in one that the server chooses.
#[must_use]
pub fn ask_ready(model: &str, version: Option<&str>) -> Vec<u8> {
    let (name, version) = (model.to_owned(), version.unwrap_or_default().to_owned());
    frame(&ModelReadyRequest { name, version })
}

/// A question for what a model takes and gives, likewise.
#[must_use]
pub fn ask_metadata(model: &str, version: Option<&str>) -> Vec<u8> {
    let (name, version) = (model.to_owned(), version.unwrap_or_default().to_owned());
    frame(&ModelMetadataRequest { name, version })
}

/// A call of a model with these tensors, each with its elements, that wants these outputs.
#[must_use]
pub fn call<'a>(
    (model, version): (&str, Option<&str>),
    inputs: impl Iterator<Item = (&'a TensorInfo, &'a [u8])>,
    outputs: &[TensorInfo],
) -> Vec<u8> {
    let mut message = ModelInferRequest {
        model_name: model.to_owned(),
        model_version: version.unwrap_or_default().to_owned(),
        ..ModelInferRequest::default()
    };
    for (tensor, bytes) in inputs {
        message.inputs.push(InferInputTensor {
            name: tensor.name.clone(),
            datatype: name_of(tensor.data_type).to_owned(),
            shape: tensor.shape.iter().copied().map(i64::from).collect(),
            ..InferInputTensor::default()
        });
        message.raw_input_contents.push(Bytes::copy_from_slice(bytes));
    }
    let wanted = |output: &TensorInfo| {
        let name = output.name.clone();
        InferRequestedOutputTensor { name, ..InferRequestedOutputTensor::default() }
    };
    message.outputs = outputs.iter().map(wanted).collect();
    frame(&message)
}

/// What a server says of itself.
///
/// # Errors
/// If it is no such message.
pub fn server(body: Bytes) -> Result<Server, Refused> {
    let ServerMetadataResponse { name, version, extensions } = message("its metadata", body)?;
    Ok(Server { name, version, extensions })
}

/// Whether a model is ready.
///
/// # Errors
/// If it is no such message.
pub fn ready(body: Bytes) -> Result<bool, Refused> {
    message("whether it is ready", body).map(|ModelReadyResponse { ready }| ready)
}

/// What a server says of a model.
///
/// # Errors
/// If it is no such message.
pub fn metadata(body: Bytes) -> Result<Metadata, Refused> {
    let found: ModelMetadataResponse = message("the model's metadata", body)?;
    let ModelMetadataResponse { name, versions, platform, inputs, outputs } = found;
    let list = |tensors: Vec<TensorMetadata>| {
        let one = |TensorMetadata { name, datatype, shape }| Described { name, datatype, shape };
        tensors.into_iter().map(one).collect()
    };
    Ok(Metadata { name, versions, platform, inputs: list(inputs), outputs: list(outputs) })
}

/// The answer to a call.
///
/// # Errors
/// If it is no such message.
pub fn answer(body: Bytes) -> Result<ModelInferResponse, Refused> {
    message("the answer", body)
}

/// The tensors of an answer.
///
/// # Errors
/// If they are neither all in `raw_output_contents` nor each in its `contents`.
pub fn answered(message: &ModelInferResponse) -> Result<Answered<'_>, Refused> {
    let raw = &message.raw_output_contents;
    let (count, given) = (message.outputs.len(), raw.len());
    if given > 0 && given != count {
        return invalid(format!("raw_output_contents has {given} entries for {count} outputs"));
    }
    let mut outputs = Vec::with_capacity(count);
    for (index, output) in message.outputs.iter().enumerate() {
        let raw = raw.get(index).map(AsRef::as_ref);
        let (name, datatype) = (output.name.as_str(), output.datatype.as_str());
        let data = elements("output", (name, datatype), raw, output.contents.as_ref())?;
        outputs.push(Input {
            name: name.into(),
            datatype: datatype.into(),
            shape: output.shape.clone(),
            data,
        });
    }
    // Which call it answers its stream of HTTP/2 tells.
    Ok(Answered { version: message.model_version.clone(), id: String::new(), outputs })
}

fn frame(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut body = Vec::with_capacity(FRAME + length);
    body.push(0);
    // A request that is longer than 4 GiB is none of ours.
    body.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    body.extend_from_slice(&message.encode_to_vec());
    body
}

/// The one message of a body; `what` it is is told where it is none.
fn message<M: Message + Default>(what: &str, mut body: Bytes) -> Result<M, Refused> {
    let wrong = |reason: String| Refused::Invalid(format!("{what}: {reason}"));
    if body.len() < FRAME {
        return Err(wrong(format!("there is no message in {} bytes", body.len())));
    }
    if body.get_u8() != 0 {
        return Err(wrong("it is compressed, which nobody asked for".to_owned()));
    }
    let length = body.get_u32() as usize;
    if length != body.len() {
        return Err(wrong(format!("it should have {length} bytes and has {}", body.len())));
    }
    check_fields(&body).map_err(wrong)?;
    M::decode(body).map_err(|error| wrong(error.to_string()))
}

/// A code in the protocol's words.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests;
