//! The other end of the protocol over HTTP: what a client writes to a remote server, and reads of its answers; over gRPC below.
//!
//! A remote is not trusted: whatever it says is read within its bytes, and held against what was asked for.

pub mod grpc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use weir_client::TensorInfo;

use crate::http::{self, JsonTensor};
use crate::pack::put;
use crate::text::{MAX_TEXT, printable};
use crate::{Input, Refused};

/// The extension that a server names if it takes and gives tensors as they lie in memory.
pub const BINARY: &str = "binary_tensor_data";

/// What a server says of itself.
#[derive(Clone, Debug, Deserialize)]
pub struct Server {
    /// Its name.
    #[serde(default, deserialize_with = "http::or_null")]
    pub name: String,
    /// Its version.
    #[serde(default, deserialize_with = "http::or_null")]
    pub version: String,
    /// What it has beside the protocol.
    #[serde(default, deserialize_with = "http::or_null")]
    pub extensions: Vec<String>,
}

/// What a server says of a model.
#[derive(Clone, Debug, Deserialize)]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// The versions that there are.
    #[serde(default, deserialize_with = "http::or_null")]
    pub versions: Vec<String>,
    /// What runs it.
    #[serde(default, deserialize_with = "http::or_null")]
    pub platform: String,
    /// The tensors of a call.
    pub inputs: Vec<Described>,
    /// The tensors of an answer.
    pub outputs: Vec<Described>,
}

/// A tensor in the metadata of a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// What its elements are, in the protocol's words.
    pub datatype: String,
    /// Its dimensions; one that is not positive may be any.
    pub shape: Vec<i64>,
}

/// The answer to a call, within its bytes.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The version of the model that answered; empty where it is not told.
    pub version: String,
    /// Which call it answers; empty where it is not told, as over gRPC.
    pub id: String,
    outputs: Vec<Input<'a>>,
}

/// What a server says of itself, in `body`.
///
/// # Errors
/// If it is no such JSON.
pub fn server(body: &[u8]) -> Result<Server, Refused> {
    http::read("its metadata", body)
}

/// What a server says of a model, in `body`.
///
/// # Errors
/// If it is no such JSON.
pub fn metadata(body: &[u8]) -> Result<Metadata, Refused> {
    http::read("the model's metadata", body)
}

/// The body of a call with these tensors, each with its elements, that wants these outputs: as they lie in memory if that is
/// `binary`, or all as JSON. With how long its JSON is, where something follows that.
///
/// # Errors
/// If a tensor cannot be written as JSON: FP16.
pub fn call<'a>(
    inputs: impl Iterator<Item = (&'a TensorInfo, &'a [u8])> + Clone,
    outputs: &[TensorInfo],
    (id, binary): (u64, bool),
) -> Result<(Vec<u8>, Option<usize>), Refused> {
    let mut listed = Vec::new();
    for (tensor, bytes) in inputs.clone() {
        let mut input = http::described(tensor);
        if binary {
            input.insert("parameters".into(), json!({ "binary_data_size": bytes.len() }));
        } else {
            input.insert("data".into(), http::data(tensor, bytes)?);
        }
        listed.push(Value::Object(input));
    }
    let wanted = |output: &TensorInfo| {
        let mut wanted = Map::from_iter([("name".to_owned(), output.name.as_str().into())]);
        if binary {
            wanted.insert("parameters".into(), json!({ "binary_data": true }));
        }
        Value::Object(wanted)
    };
    let head = json!({ "id": id.to_string(), "inputs": listed, "outputs": outputs.iter().map(wanted).collect::<Value>() });
    let mut body = head.to_string().into_bytes();
    let length = binary.then_some(body.len());
    if binary {
        inputs.for_each(|(_, bytes)| body.extend_from_slice(bytes));
    }
    Ok((body, length))
}

/// The answer in `body`, of which the first `header` bytes are JSON; all of it without.
///
/// # Errors
/// If it is none, or its binary data does not fit what it says.
pub fn answer(body: &[u8], header: Option<usize>) -> Result<Answered<'_>, Refused> {
    #[derive(Deserialize)]
    struct JsonAnswer<'a> {
        #[serde(default, deserialize_with = "http::or_null")]
        model_version: Option<String>,
        #[serde(default, deserialize_with = "http::or_null")]
        id: Option<String>,
        #[serde(borrow)]
        outputs: Vec<JsonTensor<'a>>,
    }
    let (json, binary) = http::split(body, header)?;
    let answer: JsonAnswer<'_> = http::read("the answer", json)?;
    let outputs = http::tensors("output", answer.outputs, binary)?;
    let (version, id) = (answer.model_version.unwrap_or_default(), answer.id.unwrap_or_default());
    Ok(Answered { version, id, outputs })
}

impl Answered<'_> {
    /// Writes the elements of the output `of` over `bytes`.
    ///
    /// # Errors
    /// If it is not there, or is of another type, shape or length.
    pub fn take(&self, of: &TensorInfo, bytes: &mut Vec<u8>) -> Result<(), Refused> {
        bytes.clear();
        match self.outputs.iter().find(|output| output.name == of.name) {
            Some(output) => put(("output", "asked for was"), of, output, bytes),
            None => Err(Refused::Invalid(format!("output \"{}\" is missing in the answer", of.name))),
        }
    }
}

/// Why a server refused a call, by the body of its answer: its own words where it has some, without what would steer a terminal.
#[must_use]
pub fn refusal(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Error {
        error: String,
    }
    let text = match serde_json::from_slice(body) {
        Ok(Error { error }) => error,
        Err(_) => String::from_utf8_lossy(&body[..body.len().min(4 * MAX_TEXT)]).into_owned(),
    };
    printable(text.trim())
}

#[cfg(test)]
mod tests;
