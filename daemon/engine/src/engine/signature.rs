//! What an ONNX file says of its inputs and outputs, held against the manifest before any engine compiles it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tract_onnx::pb::tensor_shape_proto::dimension::Value as Dim;
use tract_onnx::pb::{GraphProto, ModelProto, ValueInfoProto, type_proto};
use tract_onnx::prelude::Framework;

use super::{BatchAxis, EngineError, EngineKind, ModelSpec, Side, TensorSpec, external};

/// Decodes an ONNX file.
///
/// # Errors
/// [`EngineError::Parse`], in the name of `engine`, for what is no ONNX file.
pub(super) fn decode(spec: &ModelSpec, engine: EngineKind, bytes: &[u8]) -> Result<ModelProto, EngineError> {
    decode_file(&spec.path, engine, bytes)
}

/// The same for a file that no manifest describes.
pub(crate) fn decode_file(
    path: &Path,
    engine: EngineKind,
    mut bytes: &[u8],
) -> Result<ModelProto, EngineError> {
    let failed = |reason: String| EngineError::Parse { path: path.to_owned(), engine, reason };
    let proto = tract_onnx::onnx().proto_model_for_read(&mut bytes).map_err(|e| failed(format!("{e:#}")))?;
    match &proto.graph {
        Some(graph) if !graph.output.is_empty() => Ok(proto),
        _ => Err(failed("it has no graph with outputs".to_owned())),
    }
}

/// Checks names and types of both sides and the shapes of the inputs; tells whether the file runs batches of any size,
/// and not one request at a time. What the shapes of the outputs are, only an engine can say.
///
/// # Errors
/// What differs from the manifest, by name.
pub(super) fn has_symbolic_batch(spec: &ModelSpec, proto: &ModelProto) -> Result<bool, EngineError> {
    let Some(graph) = &proto.graph else { return Ok(false) };
    check_external(spec, proto)?;
    let inputs = inputs(graph);
    let outputs: Vec<_> = graph.output.iter().collect();
    for (side, found) in [(Side::Input, &inputs), (Side::Output, &outputs)] {
        check_names(spec, side, found)?;
    }
    let wanted: Vec<&TensorSpec> =
        spec.inputs.iter().chain(spec.constants.iter().map(|constant| &constant.tensor)).collect();
    for (tensor, value) in in_order(&wanted, &inputs) {
        check_type(spec, Side::Input, tensor, value)?;
    }
    let answers: Vec<&TensorSpec> = spec.outputs.iter().collect();
    for (tensor, value) in in_order(&answers, &outputs) {
        check_type(spec, Side::Output, tensor, value)?;
    }
    let mut shapes = Shapes { spec, sizes: BTreeMap::new(), front: None, all_dynamic: true };
    in_order(&wanted, &inputs).try_for_each(|(tensor, value)| shapes.check(tensor, value))?;
    let everywhere = spec.inputs.iter().chain(&spec.outputs).all(|tensor| tensor.batch.place().is_some());
    Ok(shapes.all_dynamic && everywhere)
}

/// The names of what nodes of a graph compute; an output that is none of these is an input or a constant.
pub(super) fn computed(graph: &GraphProto) -> BTreeSet<String> {
    graph.node.iter().flat_map(|node| node.output.iter().cloned()).collect()
}

/// The inputs of a graph that are no weights, which files before version 4 of the format list among them.
pub(crate) fn inputs(graph: &GraphProto) -> Vec<&ValueInfoProto> {
    let weight = |name: &str| graph.initializer.iter().any(|weight| weight.name == name);
    graph.input.iter().filter(|input| !weight(&input.name)).collect()
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
    if found == Some(&tensor.file_shape(batch)) {
        return Ok(());
    }
    let found = found.map_or_else(
        || "unknown".to_owned(),
        |dims| dims.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
    );
    Err(shape_error(spec, Side::Output, tensor, format!("{found} at batch {batch}"), String::new()))
}

/// Checks that the same names are there, each once.
fn check_names(spec: &ModelSpec, side: Side, found: &[&ValueInfoProto]) -> Result<(), EngineError> {
    let constants = spec.constants.iter().filter(|_| side == Side::Input).map(|constant| &constant.tensor);
    let declared: Vec<&str> =
        spec.tensors(side).iter().chain(constants).map(|tensor| tensor.name.as_str()).collect();
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
    tensors: &'a [&'a TensorSpec],
    values: &'a [&'a ValueInfoProto],
) -> impl Iterator<Item = (&'a TensorSpec, &'a ValueInfoProto)> {
    tensors.iter().filter_map(|t| values.iter().find(|value| value.name == t.name).map(|value| (*t, *value)))
}

fn check_type(
    spec: &ModelSpec,
    side: Side,
    tensor: &TensorSpec,
    value: &ValueInfoProto,
) -> Result<(), EngineError> {
    let found = tensor_type(value).map_or(0, |tensor| tensor.elem_type);
    // An output's type may be left to inference; the engine checks it then.
    if found == tensor.data_type.onnx() || (found == 0 && side == Side::Output) {
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

/// The shapes of a file's inputs, held against the manifest one after the other.
struct Shapes<'a> {
    spec: &'a ModelSpec,
    /// What each named dimension was found to be, `None` for the batch, and in which input.
    sizes: BTreeMap<String, (Option<usize>, String)>,
    /// The batch dimension of inputs that have it in front, which must be one and the same.
    front: Option<Dim>,
    /// Whether the file leaves the batch open wherever an input has it.
    all_dynamic: bool,
}

impl Shapes<'_> {
    fn check(&mut self, tensor: &TensorSpec, value: &ValueInfoProto) -> Result<(), EngineError> {
        let shape = tensor_type(value).and_then(|tensor| tensor.shape.as_ref());
        let Some(shape) = shape else {
            // The file leaves all of it open, and the manifest may say it.
            return match tensor.batch {
                BatchAxis::Front => Err(self.differs(tensor, None, String::new())),
                BatchAxis::At(_) | BatchAxis::Nowhere => Ok(()),
            };
        };
        let dims: Vec<_> = shape.dim.iter().map(|dim| dim.value.as_ref()).collect();
        let place = tensor.batch.place();
        let mut sizes = tensor.shape.iter();
        let wanted = (0..tensor.shape.len() + usize::from(place.is_some()))
            .map(|at| if Some(at) == place { None } else { sizes.next().copied() });
        let wanted: Vec<Option<usize>> = wanted.collect();
        if dims.len() != wanted.len() {
            let hint = match (tensor.batch, dims.len()) {
                (BatchAxis::Front | BatchAxis::At(0), found) if found == tensor.shape.len() => {
                    "; the batch stands in front of the manifest's, unless shape names it or batch = false"
                }
                _ => "",
            };
            return Err(self.differs(tensor, Some(&dims), hint.to_owned()));
        }
        for (dim, size) in dims.iter().zip(&wanted) {
            self.dimension(tensor, &dims, *dim, *size)?;
        }
        place.map_or(Ok(()), |place| self.batch(tensor, dims[place]))
    }

    /// One dimension: `None` is the batch.
    fn dimension(
        &mut self,
        tensor: &TensorSpec,
        dims: &[Option<&Dim>],
        dim: Option<&Dim>,
        size: Option<usize>,
    ) -> Result<(), EngineError> {
        match (dynamic(dim), size) {
            (None, Some(size)) if dim != Some(&Dim::DimValue(size as i64)) => {
                Err(self.differs(tensor, Some(dims), String::new()))
            }
            (Some(Some(name)), size) => {
                let known = self.sizes.entry(name.to_owned());
                let (before, input) = known.or_insert_with(|| (size, tensor.name.clone())).clone();
                if before != size {
                    let shown = |size: Option<usize>| size.map_or("the batch".to_owned(), |n| n.to_string());
                    let (before, size) = (shown(before), shown(size));
                    let hint = format!("; dynamic dimension `{name}` is {before} in `{input}`, {size} here");
                    return Err(self.differs(tensor, Some(dims), hint));
                }
                self.open(tensor, dims, name, size)
            }
            (Some(None), size) => self.open(tensor, dims, "without a name", size),
            _ => Ok(()),
        }
    }

    /// A dynamic dimension has its size from the manifest, which must say so by naming the batch.
    fn open(
        &self,
        tensor: &TensorSpec,
        dims: &[Option<&Dim>],
        name: &str,
        size: Option<usize>,
    ) -> Result<(), EngineError> {
        if size.is_none() || tensor.batch != BatchAxis::Front {
            return Ok(());
        }
        let hint = format!(
            "; dynamic dimension `{name}` has no size: name all dimensions in shape, the batch too, and give \
             their sizes in dimensions"
        );
        Err(self.differs(tensor, Some(dims), hint))
    }

    fn batch(&mut self, tensor: &TensorSpec, dim: Option<&Dim>) -> Result<(), EngineError> {
        let refused = |found| Err(EngineError::FixedBatch { model: self.spec.name.clone(), found });
        let is_open = dynamic(dim);
        self.all_dynamic &= is_open.is_some();
        match (tensor.batch, is_open) {
            (_, None) if dim != Some(&Dim::DimValue(1)) => refused(shown(dim)),
            (BatchAxis::Front, Some(None)) => refused(shown(dim)),
            (BatchAxis::Front, _) => {
                let first = self.front.get_or_insert_with(|| dim.cloned().unwrap_or(Dim::DimValue(1)));
                match Some(&*first) == dim {
                    true => Ok(()),
                    false => refused(format!("{} and {}", shown(Some(first)), shown(dim))),
                }
            }
            _ => Ok(()),
        }
    }

    fn differs(&self, tensor: &TensorSpec, dims: Option<&[Option<&Dim>]>, hint: String) -> EngineError {
        let found = dims.map_or("unknown".to_owned(), |dims| {
            dims.iter().map(|dim| shown(*dim)).collect::<Vec<_>>().join(",")
        });
        shape_error(self.spec, Side::Input, tensor, found, hint)
    }
}

/// Whether a dimension is open in the file, and under which name.
pub(crate) fn dynamic(dim: Option<&Dim>) -> Option<Option<&str>> {
    match dim {
        Some(Dim::DimValue(size)) if *size > 0 => None,
        Some(Dim::DimParam(name)) if !name.is_empty() && name != "?" => Some(Some(name)),
        _ => Some(None),
    }
}

fn shape_error(
    spec: &ModelSpec,
    side: Side,
    tensor: &TensorSpec,
    found: String,
    hint: String,
) -> EngineError {
    let name = tensor.name.clone();
    let declared = match tensor.batch {
        BatchAxis::At(place) => {
            let mut shape: Vec<_> = tensor.shape.iter().map(usize::to_string).collect();
            shape.insert(place.min(shape.len()), "batch".to_owned());
            format!("[{}]", shape.join(", "))
        }
        BatchAxis::Front | BatchAxis::Nowhere => format!("{:?}", tensor.shape),
    };
    let declared = format!("{declared} in the manifest{hint}");
    EngineError::Shape { model: spec.name.clone(), side, name, declared, found }
}

fn shown(dim: Option<&Dim>) -> String {
    match (dim, dynamic(dim)) {
        (Some(Dim::DimValue(value)), None) => value.to_string(),
        (_, Some(Some(name))) => name.to_owned(),
        _ => "unnamed".to_owned(),
    }
}

/// Checks that the manifest names the files beside it that hold weights, and that every place in them is one.
fn check_external(spec: &ModelSpec, proto: &ModelProto) -> Result<(), EngineError> {
    let found = external::locations(proto);
    let known: BTreeSet<_> = spec.external.iter().map(|file| file.location.clone()).collect();
    if found == known {
        return Ok(());
    }
    let list = |names: &BTreeSet<String>| match names.is_empty() {
        true => "nowhere else".to_owned(),
        false => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let (found, declared) = (list(&found), list(&known));
    Err(EngineError::External { model: spec.name.clone(), found, declared })
}

pub(crate) fn tensor_type(value: &ValueInfoProto) -> Option<&type_proto::Tensor> {
    let type_proto::Value::TensorType(tensor) = value.r#type.as_ref()?.value.as_ref()?;
    Some(tensor)
}

/// The name of a type by its number in ONNX's `TensorProto.DataType`.
pub(crate) fn type_name(number: i32) -> String {
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
