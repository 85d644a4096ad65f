//! From a call's tensors to a model's: each one there once, of its type and shape, at its place.

use std::ops::Range;

use weir_client::TensorInfo;
use weir_client::wire::{DataType, PACKING};

use crate::elements::{self, Number};
use crate::{Call, Data, Input, Model, Refused, Wanted, data_type, invalid, name_of};

/// Adds the tensors of a call to `packed`, as a request of `model` has them.
///
/// # Errors
/// If one is missing, unknown or there twice, or has another type, shape or length; `packed` is then of no use.
pub fn pack(model: &Model<'_>, call: &Call<'_>, packed: &mut Vec<u8>) -> Result<(), Refused> {
    for (index, input) in call.inputs.iter().enumerate() {
        if model.inputs.iter().all(|of| of.name != input.name) {
            let names = names(model.inputs);
            return invalid(format!("input \"{}\" of model {} is none of: {names}", input.name, model.name));
        }
        if call.inputs[..index].iter().any(|other| other.name == input.name) {
            return invalid(format!("input \"{}\" is there twice", input.name));
        }
    }
    let start = packed.len();
    for (of, range) in model.inputs.iter().zip(ranges(model.inputs)) {
        let Some(input) = call.inputs.iter().find(|input| input.name == of.name) else {
            let names = names(model.inputs);
            return invalid(format!("input \"{}\" is missing; model {} takes: {names}", of.name, model.name));
        };
        packed.resize(start + range.start, 0);
        put(("input", "the model takes"), of, input, packed)?;
        debug_assert_eq!(packed.len(), start + range.end);
    }
    Ok(())
}

/// Which tensors of an answer go out, by their place in the model, and whether as they lie in memory: those that a call wants,
/// or all, as binary as it `wishes`.
///
/// # Errors
/// If one is unknown or wanted twice, or something else is wanted of it than its elements.
pub fn check_outputs(
    model: &Model<'_>,
    wanted: &[Wanted],
    wishes: bool,
) -> Result<Vec<(usize, bool)>, Refused> {
    if wanted.is_empty() {
        return Ok((0..model.outputs.len()).map(|place| (place, wishes)).collect());
    }
    let mut places: Vec<(usize, bool)> = Vec::new();
    for Wanted { name, binary, parameters } in wanted {
        let Some(place) = model.outputs.iter().position(|of| of.name == *name) else {
            let names = names(model.outputs);
            return invalid(format!("output \"{name}\" of model {} is none of: {names}", model.name));
        };
        if places.iter().any(|&(other, _)| other == place) {
            return invalid(format!("output \"{name}\" is wanted twice"));
        }
        if let Some(other) = parameters.keys().find(|key| *key != "binary_data" && !is_own(key)) {
            return Err(Refused::Unimplemented(format!("output \"{name}\": {other} is not supported here")));
        }
        places.push((place, *binary));
    }
    Ok(places)
}

/// Where each of these tensors lies among them.
pub(crate) fn ranges(tensors: &[TensorInfo]) -> Vec<Range<usize>> {
    let place = |end: &mut usize, tensor: &TensorInfo| {
        let start = end.next_multiple_of(PACKING);
        *end = start + tensor.bytes().unwrap_or(0);
        Some(start..*end)
    };
    tensors.iter().scan(0, place).collect()
}

/// Parameters that are between Weir and its clients.
fn is_own(key: &str) -> bool {
    key.starts_with("weir_")
}

/// Adds the elements of a tensor to `packed`, if it is of this type and shape; `what` it is and who is wrong are told otherwise.
pub(crate) fn put(
    (what, wants): (&str, &str),
    of: &TensorInfo,
    input: &Input<'_>,
    packed: &mut Vec<u8>,
) -> Result<(), Refused> {
    let Input { name, datatype, shape, data } = input;
    let wanted = of.data_type;
    if data_type(datatype) != Some(wanted) {
        let takes = name_of(wanted);
        return invalid(format!("{what} \"{name}\" is of type {datatype}, {wants} {takes}"));
    }
    if !is_shape(shape, &of.shape) {
        let takes = &of.shape;
        let hint = if what == "input" { ": a call is for one request, Weir forms the batches" } else { "" };
        return invalid(format!("{what} \"{name}\" is of shape {shape:?}, {wants} {takes:?}{hint}"));
    }
    let before = packed.len();
    let bytes = of.bytes().unwrap_or(0);
    let push = |packed: &mut Vec<u8>, number| {
        elements::push(packed, wanted, number)
            .map_err(|none| Refused::Invalid(format!("{what} \"{name}\": {none}")))
    };
    match *data {
        Data::Raw(raw) if raw.len() == bytes => packed.extend_from_slice(raw),
        Data::Raw(raw) => {
            let given = raw.len();
            return invalid(format!("{what} \"{name}\" has {given} bytes, {bytes} are expected"));
        }
        Data::Json(_) if wanted == DataType::F16 => {
            return invalid(format!("{what} \"{name}\" is FP16, which has to come as binary data"));
        }
        Data::Json(json) => {
            let wrong = |error| Refused::Invalid(format!("{what} \"{name}\": {error}"));
            elements::push_json(packed, wanted, of.elements(), json.get()).map_err(wrong)?;
        }
        Data::Bool(list) => list.iter().try_for_each(|&value| push(packed, Number::Bool(value)))?,
        Data::Int(list) => list.iter().try_for_each(|&value| push(packed, Number::Int(value.into())))?,
        Data::Int64(list) => list.iter().try_for_each(|&value| push(packed, Number::Int(value)))?,
        Data::Uint(list) => list.iter().try_for_each(|&value| push(packed, Number::Uint(value.into())))?,
        Data::Uint64(list) => list.iter().try_for_each(|&value| push(packed, Number::Uint(value)))?,
        Data::Fp32(list) => list.iter().try_for_each(|&value| push(packed, Number::Float(value.into())))?,
        Data::Fp64(list) => list.iter().try_for_each(|&value| push(packed, Number::Float(value)))?,
    }
    match packed.len() - before {
        given if given == bytes => Ok(()),
        given => {
            let (given, elements) = (given / wanted.size().unwrap_or(1), of.elements());
            invalid(format!("{what} \"{name}\" has {given} elements, its shape {elements}"))
        }
    }
}

/// Whether a shape is the model's, but for a batch of one.
fn is_shape(given: &[i64], model: &[u32]) -> bool {
    let same = |given: &[i64], model: &[u32]| {
        given.len() == model.len() && given.iter().zip(model).all(|(&a, &b)| a == i64::from(b))
    };
    same(given, model)
        || matches!(given, [1, rest @ ..] if same(rest, model))
        || matches!(model, [1, rest @ ..] if same(given, rest))
}

fn names(tensors: &[TensorInfo]) -> String {
    tensors.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
