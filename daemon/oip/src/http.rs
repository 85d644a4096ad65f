//! Calls and answers as HTTP has them: JSON, and behind it tensors as they lie in memory where either side wants that.

use std::borrow::Cow;
use std::fmt::Display;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use weir_client::TensorInfo;

use crate::elements::to_json;
use crate::pack::ranges;
use crate::{Answer, Call, Data, Input, Model, Parameter, Parameters, Refused, Wanted, invalid, name_of};

/// The header that tells how long the JSON is, where something follows it.
pub const LENGTH_HEADER: &str = "inference-header-content-length";

/// The version that every model has here.
pub const VERSION: &str = "1";

/// The call in `body`, of which the first `header` bytes are JSON; all of it without.
///
/// # Errors
/// If it is no JSON of a call, or the binary data does not fit what it says.
pub fn call(body: &[u8], header: Option<usize>) -> Result<Call<'_>, Refused> {
    let (json, binary) = split(body, header)?;
    let call: JsonCall<'_> = read("the call", json)?;
    let inputs = tensors("input", call.inputs, binary)?;
    let wishes = is_set(&call.parameters, "binary_data_output");
    let mut outputs = Vec::with_capacity(call.outputs.len());
    for JsonOutput { name, parameters } in call.outputs {
        let binary = match parameters.get("binary_data") {
            Some(&Parameter::Bool(binary)) => binary,
            Some(_) => return invalid(format!("output \"{name}\": binary_data must be true or false")),
            None => wishes,
        };
        outputs.push(Wanted { name, binary, parameters });
    }
    Ok(Call { id: call.id, parameters: call.parameters, inputs, outputs })
}

/// What stands in this JSON; `what` it is is told where it is wrong.
pub(crate) fn read<'a, T: Deserialize<'a>>(what: &str, json: &'a [u8]) -> Result<T, Refused> {
    let wrong = |error: &dyn Display| Refused::Invalid(format!("{what}: {error}"));
    let text = str::from_utf8(json).map_err(|error| wrong(&error))?;
    planner::from_json(text).map_err(|error| wrong(&error))
}

/// What may be left out, and may be `null` as well: some clients and servers write all fields that there are.
pub(crate) fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// The JSON of a body, of which it is the first `header` bytes or all, and what follows it.
pub(crate) fn split(body: &[u8], header: Option<usize>) -> Result<(&[u8], &[u8]), Refused> {
    let header = header.unwrap_or(body.len());
    let length = body.len();
    body.split_at_checked(header)
        .ok_or_else(|| Refused::Invalid(format!("{LENGTH_HEADER} is {header}, the body has {length} bytes")))
}

/// The tensors of a call, or of an answer, as they stand in its JSON and in the `binary` data behind that; `what` they are is told
/// where one is wrong.
pub(crate) fn tensors<'a>(
    what: &str,
    listed: Vec<JsonTensor<'a>>,
    mut binary: &'a [u8],
) -> Result<Vec<Input<'a>>, Refused> {
    let mut tensors = Vec::with_capacity(listed.len());
    for tensor in listed {
        let JsonTensor { name, datatype, shape, parameters, data } = tensor;
        let size = parameters.get("binary_data_size");
        let data = match (data, size) {
            (Some(data), None) => Data::Json(data),
            (None, Some(&Parameter::Int(size @ 0..))) => {
                let Some((own, rest)) = binary.split_at_checked(size as usize) else {
                    let left = binary.len();
                    return invalid(format!(
                        "{what} \"{name}\" has binary_data_size {size}, {left} bytes are left"
                    ));
                };
                binary = rest;
                Data::Raw(own)
            }
            (None, Some(_)) => {
                return invalid(format!("{what} \"{name}\": binary_data_size must be a number of bytes"));
            }
            (Some(_), Some(_)) => {
                return invalid(format!("{what} \"{name}\" has both data and binary_data_size"));
            }
            (None, None) => {
                if let Some(region) = parameters.keys().find(|key| key.starts_with("shared_memory")) {
                    return Err(Refused::Unimplemented(format!(
                        "{what} \"{name}\": {region} is not supported here"
                    )));
                }
                return invalid(format!("{what} \"{name}\" has neither data nor binary_data_size"));
            }
        };
        tensors.push(Input { name, datatype, shape, data });
    }
    if !binary.is_empty() {
        let left = binary.len();
        return invalid(format!("{left} bytes follow the {what}s' binary data"));
    }
    Ok(tensors)
}

/// Whether a call wishes all its outputs as they lie in memory.
#[must_use]
pub fn wishes_binary(call: &Call<'_>) -> bool {
    is_set(&call.parameters, "binary_data_output")
}

/// The body of an answer, and how long its JSON is where something follows that.
///
/// # Errors
/// If a tensor cannot be written as JSON.
pub fn body(answer: &Answer<'_>) -> Result<(Vec<u8>, Option<usize>), Refused> {
    let places = ranges(answer.model.outputs);
    let (mut outputs, mut binary) = (Vec::new(), Vec::new());
    for &(place, is_binary) in answer.outputs {
        let tensor = &answer.model.outputs[place];
        let bytes = answer.packed.get(places[place].clone()).unwrap_or_default();
        let mut output = described(tensor);
        if is_binary {
            output.insert("parameters".into(), json!({ "binary_data_size": bytes.len() }));
            binary.push(bytes);
        } else {
            output.insert("data".into(), data(tensor, bytes)?);
        }
        outputs.push(Value::Object(output));
    }
    let mut head = Map::new();
    head.insert("model_name".into(), answer.model.name.into());
    head.insert("model_version".into(), VERSION.into());
    if !answer.id.is_empty() {
        head.insert("id".into(), answer.id.into());
    }
    if !answer.parameters.is_empty() {
        head.insert("parameters".into(), json!(answer.parameters));
    }
    head.insert("outputs".into(), outputs.into());
    let mut body = Value::Object(head).to_string().into_bytes();
    let length = (!binary.is_empty()).then_some(body.len());
    binary.iter().for_each(|bytes| body.extend_from_slice(bytes));
    Ok((body, length))
}

/// That every output that is to come as JSON can.
///
/// # Errors
/// If one cannot: FP16.
pub fn check_json(model: &Model<'_>, outputs: &[(usize, bool)]) -> Result<(), Refused> {
    let mut as_json = outputs.iter().filter(|(_, binary)| !binary);
    as_json.try_for_each(|&(place, _)| data(&model.outputs[place], &[]).map(drop))
}

/// What a model takes and gives.
#[must_use]
pub fn metadata(model: &Model<'_>) -> Value {
    let list =
        |tensors: &[TensorInfo]| tensors.iter().map(|of| Value::Object(described(of))).collect::<Value>();
    json!({
        "name": model.name,
        "versions": [VERSION],
        "platform": "weir",
        "inputs": list(model.inputs),
        "outputs": list(model.outputs),
    })
}

/// The same as Triton's configuration of a model has it.
#[must_use]
pub fn config(model: &Model<'_>) -> Value {
    let list = |tensors: &[TensorInfo]| {
        let one = |of: &TensorInfo| {
            let data_type = match name_of(of.data_type) {
                "BYTES" => "STRING",
                other => other,
            };
            json!({ "name": of.name, "data_type": format!("TYPE_{data_type}"), "dims": of.shape })
        };
        tensors.iter().map(one).collect::<Value>()
    };
    json!({
        "name": model.name,
        "platform": "weir",
        "backend": "weir",
        "max_batch_size": 0,
        "input": list(model.inputs),
        "output": list(model.outputs),
    })
}

pub(crate) fn described(tensor: &TensorInfo) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("name".into(), tensor.name.as_str().into());
    object.insert("datatype".into(), name_of(tensor.data_type).into());
    object.insert("shape".into(), json!(tensor.shape));
    object
}

pub(crate) fn data(tensor: &TensorInfo, bytes: &[u8]) -> Result<Value, Refused> {
    let (name, datatype) = (&tensor.name, name_of(tensor.data_type));
    let none = || Refused::Invalid(format!("output \"{name}\" is {datatype}: ask for it as binary data"));
    to_json(tensor.data_type, bytes).ok_or_else(none)
}

fn is_set(parameters: &Parameters, key: &str) -> bool {
    parameters.get(key) == Some(&Parameter::Bool(true))
}

#[derive(Deserialize)]
struct JsonCall<'a> {
    #[serde(default, deserialize_with = "or_null")]
    id: String,
    #[serde(default, deserialize_with = "or_null")]
    parameters: Parameters,
    #[serde(borrow)]
    inputs: Vec<JsonTensor<'a>>,
    #[serde(default, deserialize_with = "or_null")]
    outputs: Vec<JsonOutput>,
}

/// A tensor in a call or an answer.
#[derive(Deserialize)]
pub(crate) struct JsonTensor<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<i64>,
    #[serde(default, deserialize_with = "or_null")]
    parameters: Parameters,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct JsonOutput {
    name: String,
    #[serde(default, deserialize_with = "or_null")]
    parameters: Parameters,
}

#[cfg(test)]
mod tests;
