//! What an ONNX file says of its inputs and outputs, held against the manifest before any engine compiles it.

use tract_onnx::pb::tensor_shape_proto::dimension::Value as Dim;
use tract_onnx::pb::{ModelProto, ValueInfoProto, type_proto};
use tract_onnx::prelude::Framework;

use super::{DataType, EngineError, EngineKind, ModelSpec, Side, TensorSpec};

/// Decodes an ONNX file.
///
/// # Errors
/// [`EngineError::Parse`], in the name of `engine`, for what is no ONNX file.
pub(super) fn decode(
    spec: &ModelSpec,
    engine: EngineKind,
    mut bytes: &[u8],
) -> Result<ModelProto, EngineError> {
    let failed = |reason: String| EngineError::Parse { path: spec.path.clone(), engine, reason };
    let proto = tract_onnx::onnx().proto_model_for_read(&mut bytes).map_err(|e| failed(format!("{e:#}")))?;
    match &proto.graph {
        Some(graph) if !graph.output.is_empty() => Ok(proto),
        _ => Err(failed("it has no graph with outputs".to_owned())),
    }
}

/// Checks names and types of both sides and the shapes of the inputs; tells whether the batch dimension is a
/// symbol, and not 1. What the shapes of the outputs are, only an engine can say.
///
/// # Errors
/// What differs from the manifest, by name.
pub(super) fn has_symbolic_batch(spec: &ModelSpec, proto: &ModelProto) -> Result<bool, EngineError> {
    let Some(graph) = &proto.graph else { return Ok(false) };
    // Before version 4 of the format, weights are listed among the inputs.
    let weight = |name: &str| graph.initializer.iter().any(|weight| weight.name == name);
    let inputs: Vec<_> = graph.input.iter().filter(|input| !weight(&input.name)).collect();
    let outputs: Vec<_> = graph.output.iter().collect();
    for (side, found) in [(Side::Input, &inputs), (Side::Output, &outputs)] {
        check_names(spec, side, found)?;
        for (tensor, value) in in_order(spec.tensors(side), found) {
            check_type(spec, side, tensor, value)?;
        }
    }
    let mut batch: Option<Dim> = None;
    for (tensor, value) in in_order(&spec.inputs, &inputs) {
        let own = check_shape(spec, tensor, value)?;
        let first = batch.get_or_insert_with(|| own.clone());
        if *first != own {
            let found = format!("{} and {}", shown(Some(first)), shown(Some(&own)));
            return Err(EngineError::FixedBatch { model: spec.name.clone(), found });
        }
    }
    Ok(matches!(batch, Some(Dim::DimParam(_))))
}

/// Checks the shape of an output at a batch size, as an engine found it.
///
/// # Errors
/// [`EngineError::Shape`].
pub(super) fn check_output_shape(
    spec: &ModelSpec,
    tensor: &TensorSpec,
    batch: usize,
    found: Option<&[usize]>,
) -> Result<(), EngineError> {
    if found.and_then(<[usize]>::split_first) == Some((&batch, &tensor.shape)) {
        return Ok(());
    }
    let found = found.map_or_else(
        || "unknown".to_owned(),
        |dims| dims.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
    );
    Err(shape_error(spec, Side::Output, tensor, format!("{found} at batch {batch}")))
}

/// Checks that the same names are there, each once.
fn check_names(spec: &ModelSpec, side: Side, found: &[&ValueInfoProto]) -> Result<(), EngineError> {
    let declared: Vec<&str> = spec.tensors(side).iter().map(|tensor| tensor.name.as_str()).collect();
    let found: Vec<&str> = found.iter().map(|value| value.name.as_str()).collect();
    if declared.len() == found.len() && declared.iter().all(|name| found.contains(name)) {
        return Ok(());
    }
    let list = |names: &[&str]| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    let (declared, found) = (list(&declared), list(&found));
    Err(EngineError::Names { model: spec.name.clone(), side, declared, found })
}

/// The manifest's tensors, each with the file's value of that name.
fn in_order<'a>(
    tensors: &'a [TensorSpec],
    values: &'a [&'a ValueInfoProto],
) -> impl Iterator<Item = (&'a TensorSpec, &'a ValueInfoProto)> {
    tensors.iter().filter_map(|t| values.iter().find(|value| value.name == t.name).map(|value| (t, *value)))
}

fn check_type(
    spec: &ModelSpec,
    side: Side,
    tensor: &TensorSpec,
    value: &ValueInfoProto,
) -> Result<(), EngineError> {
    let found = tensor_type(value).map_or(0, |tensor| tensor.elem_type);
    // An output's type may be left to inference; the engine checks it then.
    if found == onnx_type(tensor.data_type) || (found == 0 && side == Side::Output) {
        return Ok(());
    }
    Err(EngineError::DataType {
        model: spec.name.clone(),
        side,
        name: tensor.name.clone(),
        declared: tensor.data_type,
        found: type_name(found),
    })
}

/// Checks all dimensions of an input but the first, and returns that.
fn check_shape(spec: &ModelSpec, tensor: &TensorSpec, value: &ValueInfoProto) -> Result<Dim, EngineError> {
    let shape = tensor_type(value).and_then(|tensor| tensor.shape.as_ref());
    let dims: Vec<_> = shape.iter().flat_map(|shape| &shape.dim).map(|dim| dim.value.clone()).collect();
    let fixed = |size: &usize| Some(Dim::DimValue(*size as i64));
    let matches = dims.get(1..).is_some_and(|rest| rest.iter().cloned().eq(tensor.shape.iter().map(fixed)));
    if !matches {
        let found = match shape {
            Some(_) => dims.iter().map(|dim| shown(dim.as_ref())).collect::<Vec<_>>().join(","),
            None => "unknown".to_owned(),
        };
        return Err(shape_error(spec, Side::Input, tensor, found));
    }
    match &dims[0] {
        Some(Dim::DimParam(name)) if !name.is_empty() && name != "?" => Ok(Dim::DimParam(name.clone())),
        Some(Dim::DimValue(1)) => Ok(Dim::DimValue(1)),
        other => Err(EngineError::FixedBatch { model: spec.name.clone(), found: shown(other.as_ref()) }),
    }
}

fn shape_error(spec: &ModelSpec, side: Side, tensor: &TensorSpec, found: String) -> EngineError {
    let TensorSpec { name, shape: declared, .. } = tensor.clone();
    EngineError::Shape { model: spec.name.clone(), side, name, declared, found }
}

fn shown(dim: Option<&Dim>) -> String {
    match dim {
        Some(Dim::DimValue(value)) => value.to_string(),
        Some(Dim::DimParam(name)) if !name.is_empty() && name != "?" => name.clone(),
        _ => "unnamed".to_owned(),
    }
}

fn tensor_type(value: &ValueInfoProto) -> Option<&type_proto::Tensor> {
    let type_proto::Value::TensorType(tensor) = value.r#type.as_ref()?.value.as_ref()?;
    Some(tensor)
}

/// The number of a type in ONNX's `TensorProto.DataType`.
fn onnx_type(data_type: DataType) -> i32 {
    match data_type {
        DataType::F32 => 1,
        DataType::U8 => 2,
        DataType::I64 => 7,
        DataType::F16 => 10,
    }
}

/// The name of a type by its number in ONNX's `TensorProto.DataType`.
fn type_name(number: i32) -> String {
    const NAMES: [&str; 17] = [
        "unknown",
        "f32",
        "u8",
        "i8",
        "u16",
        "i16",
        "i32",
        "i64",
        "string",
        "bool",
        "f16",
        "f64",
        "u32",
        "u64",
        "complex64",
        "complex128",
        "bf16",
    ];
    let name = usize::try_from(number).ok().and_then(|number| NAMES.get(number));
    name.map_or_else(|| format!("number {number}"), |name| (*name).to_owned())
}
