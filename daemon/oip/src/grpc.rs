//! Calls and answers as gRPC has them: messages and the service, which are generated from `proto/` by `make oip-proto`.

use std::borrow::Cow;
use std::collections::HashMap;

use tonic::{Code, Status};
use weir_client::TensorInfo;
use weir_client::wire::DataType as Type;

use crate::http::VERSION;
use crate::pack::ranges;
use crate::{
    Answer, Call, Data, Input, Model, Parameter, Parameters, Refused, Wanted, data_type, invalid, name_of,
};
use inference::infer_parameter::ParameterChoice;
use inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use inference::model_infer_response::InferOutputTensor;
use inference::model_metadata_response::TensorMetadata;
use inference::{
    DataType, InferParameter, InferTensorContents, ModelConfig, ModelConfigResponse, ModelInferRequest,
    ModelInferResponse, ModelInput, ModelMetadataResponse, ModelOutput,
};

pub mod bounded;
/// Messages, and the service for both ends.
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub mod inference;

/// What the service is made of, for reflection: a `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("grpc/inference.bin");

/// Misses that the promise of the stream still allows, where a request was missed.
pub const MISSES_LEFT: &str = "weir-misses-left";

/// The call in a message.
///
/// # Errors
/// If its tensors are neither all in `raw_input_contents` nor each in its `contents`.
pub fn call(message: &ModelInferRequest) -> Result<Call<'_>, Refused> {
    let raw = &message.raw_input_contents;
    let (count, given) = (message.inputs.len(), raw.len());
    if given > 0 && given != count {
        return invalid(format!("raw_input_contents has {given} entries for {count} inputs"));
    }
    let mut inputs = Vec::with_capacity(count);
    for (index, input) in message.inputs.iter().enumerate() {
        let InferInputTensor { name, datatype, shape, contents, parameters } = input;
        if let Some(region) = parameters.keys().find(|key| key.starts_with("shared_memory")) {
            return Err(Refused::Unimplemented(format!("input \"{name}\": {region} is not supported here")));
        }
        let raw = raw.get(index).map(AsRef::as_ref);
        let data = elements("input", (name, datatype), raw, contents.as_ref())?;
        let (name, datatype) = (Cow::Borrowed(name.as_str()), Cow::Borrowed(datatype.as_str()));
        inputs.push(Input { name, datatype, shape: shape.clone(), data });
    }
    let wanted = |output: &InferRequestedOutputTensor| {
        let name = output.name.clone();
        let parameters = parameters_of(&output.parameters)
            .map_err(|refused| Refused::Invalid(format!("output \"{name}\": {refused}")))?;
        Ok(Wanted { name, binary: true, parameters })
    };
    let outputs = message.outputs.iter().map(wanted).collect::<Result<_, Refused>>()?;
    Ok(Call { id: message.id.clone(), parameters: parameters_of(&message.parameters)?, inputs, outputs })
}

/// The message of an answer; its tensors as they lie in memory.
#[must_use]
pub fn response(answer: &Answer<'_>) -> ModelInferResponse {
    let places = ranges(answer.model.outputs);
    let (mut outputs, mut raw_output_contents) = (Vec::new(), Vec::new());
    for &(place, _) in answer.outputs {
        let tensor = &answer.model.outputs[place];
        let bytes = answer.packed.get(places[place].clone()).unwrap_or_default();
        raw_output_contents.push(bytes.to_vec().into());
        outputs.push(InferOutputTensor {
            name: tensor.name.clone(),
            datatype: name_of(tensor.data_type).to_owned(),
            shape: shape(tensor),
            ..InferOutputTensor::default()
        });
    }
    let parameters = answer.parameters.iter().map(|(key, value)| (key.clone(), parameter(value))).collect();
    ModelInferResponse {
        model_name: answer.model.name.to_owned(),
        model_version: VERSION.to_owned(),
        id: answer.id.to_owned(),
        parameters,
        outputs,
        raw_output_contents,
    }
}

/// Why a call is not served, as gRPC has it.
#[must_use]
pub fn status(refused: &Refused) -> Status {
    let code = match refused {
        Refused::Invalid(_) => Code::InvalidArgument,
        Refused::NotFound(_) => Code::NotFound,
        Refused::Conflict(_) => Code::FailedPrecondition,
        Refused::TooLarge(_) => Code::ResourceExhausted,
        Refused::Unimplemented(_) => Code::Unimplemented,
        Refused::Unavailable { .. } => Code::Unavailable,
    };
    let mut status = Status::new(code, refused.to_string());
    if let Refused::Unavailable { misses_left: Some(left), .. } = refused {
        status.metadata_mut().insert(MISSES_LEFT, (*left).into());
    }
    status
}

/// What a model takes and gives.
#[must_use]
pub fn metadata(model: &Model<'_>) -> ModelMetadataResponse {
    let list = |tensors: &[TensorInfo]| {
        let one = |tensor: &TensorInfo| TensorMetadata {
            name: tensor.name.clone(),
            datatype: name_of(tensor.data_type).to_owned(),
            shape: shape(tensor),
        };
        tensors.iter().map(one).collect()
    };
    ModelMetadataResponse {
        name: model.name.to_owned(),
        versions: vec![VERSION.to_owned()],
        platform: "weir".to_owned(),
        inputs: list(model.inputs),
        outputs: list(model.outputs),
    }
}

/// The same as Triton's configuration of a model has it.
#[must_use]
pub fn config(model: &Model<'_>) -> ModelConfigResponse {
    let input = |tensor: &TensorInfo| ModelInput {
        name: tensor.name.clone(),
        data_type: number(tensor.data_type).into(),
        dims: shape(tensor),
    };
    let output = |tensor: &TensorInfo| {
        let ModelInput { name, data_type, dims } = input(tensor);
        ModelOutput { name, data_type, dims }
    };
    let config = ModelConfig {
        name: model.name.to_owned(),
        platform: "weir".to_owned(),
        max_batch_size: 0,
        input: model.inputs.iter().map(input).collect(),
        output: model.outputs.iter().map(output).collect(),
        backend: "weir".to_owned(),
    };
    ModelConfigResponse { config: Some(config) }
}

/// The elements of a tensor, which stand in one of both; `what` it is is told where it is wrong.
pub(crate) fn elements<'a>(
    what: &str,
    (name, datatype): (&str, &str),
    raw: Option<&'a [u8]>,
    contents: Option<&'a InferTensorContents>,
) -> Result<Data<'a>, Refused> {
    // MLServer has an empty one beside what is raw.
    let contents = contents.filter(|contents| raw.is_none() || **contents != InferTensorContents::default());
    match (raw, contents) {
        (Some(raw), None) => Ok(Data::Raw(raw)),
        (Some(_), Some(_)) => invalid(format!("{what} \"{name}\" has contents beside raw_{what}_contents")),
        (None, Some(contents)) => typed(what, (name, datatype), contents),
        (None, None) => invalid(format!("{what} \"{name}\" has neither contents nor raw_{what}_contents")),
    }
}

/// The elements that stand in the one list for their type.
fn typed<'a>(
    what: &str,
    (name, datatype): (&str, &str),
    contents: &'a InferTensorContents,
) -> Result<Data<'a>, Refused> {
    let InferTensorContents {
        bool_contents,
        int_contents,
        int64_contents,
        uint_contents,
        uint64_contents,
        fp32_contents,
        fp64_contents,
        bytes_contents,
    } = contents;
    let (field, data, own) = match data_type(datatype) {
        Some(Type::Bool) => ("bool_contents", Data::Bool(bool_contents), bool_contents.len()),
        Some(Type::U8) => ("uint_contents", Data::Uint(uint_contents), uint_contents.len()),
        Some(Type::I8 | Type::I32) => ("int_contents", Data::Int(int_contents), int_contents.len()),
        Some(Type::I64) => ("int64_contents", Data::Int64(int64_contents), int64_contents.len()),
        Some(Type::F32) => ("fp32_contents", Data::Fp32(fp32_contents), fp32_contents.len()),
        Some(Type::F64) => ("fp64_contents", Data::Fp64(fp64_contents), fp64_contents.len()),
        Some(Type::F16) => {
            return invalid(format!("{what} \"{name}\" is FP16, which has to come in raw_{what}_contents"));
        }
        // No model has it, as is told where the types are compared.
        _ => return Ok(Data::Raw(&[])),
    };
    let all = [
        bool_contents.len(),
        int_contents.len(),
        int64_contents.len(),
        uint_contents.len(),
        uint64_contents.len(),
        fp32_contents.len(),
        fp64_contents.len(),
        bytes_contents.len(),
    ];
    if all.iter().sum::<usize>() != own {
        return invalid(format!("{what} \"{name}\" is {datatype}: its elements belong in {field} alone"));
    }
    Ok(data)
}

fn parameters_of(message: &HashMap<String, InferParameter>) -> Result<Parameters, Refused> {
    let one = |(key, parameter): (&String, &InferParameter)| {
        let none = || Refused::Invalid(format!("parameters.{key}: must have a value"));
        let parameter = match parameter.parameter_choice.as_ref().ok_or_else(none)? {
            ParameterChoice::BoolParam(value) => Parameter::Bool(*value),
            ParameterChoice::Int64Param(value) => Parameter::Int(*value),
            ParameterChoice::StringParam(value) => Parameter::Text(value.clone()),
            ParameterChoice::DoubleParam(value) => Parameter::Double(*value),
            ParameterChoice::Uint64Param(value) => Parameter::from(*value),
        };
        Ok((key.clone(), parameter))
    };
    message.iter().map(one).collect()
}

fn parameter(parameter: &Parameter) -> InferParameter {
    let choice = match parameter {
        Parameter::Bool(value) => ParameterChoice::BoolParam(*value),
        Parameter::Int(value) => ParameterChoice::Int64Param(*value),
        Parameter::Uint(value) => ParameterChoice::Uint64Param(*value),
        Parameter::Double(value) => ParameterChoice::DoubleParam(*value),
        Parameter::Text(value) => ParameterChoice::StringParam(value.clone()),
    };
    InferParameter { parameter_choice: Some(choice) }
}

fn shape(tensor: &TensorInfo) -> Vec<i64> {
    tensor.shape.iter().copied().map(i64::from).collect()
}

fn number(data_type: Type) -> DataType {
    match data_type {
        Type::Bool => DataType::TypeBool,
        Type::U8 => DataType::TypeUint8,
        Type::I8 => DataType::TypeInt8,
        Type::I32 => DataType::TypeInt32,
        Type::I64 => DataType::TypeInt64,
        Type::F16 => DataType::TypeFp16,
        Type::F32 => DataType::TypeFp32,
        Type::F64 => DataType::TypeFp64,
        Type::Unknown(_) => DataType::TypeInvalid,
    }
}

#[cfg(test)]
mod tests;
