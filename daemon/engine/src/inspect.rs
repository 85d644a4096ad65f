//! What an ONNX file says of itself, and what comes out of it: for people who have one and no manifest yet.

mod states;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use tract_onnx::pb::tensor_shape_proto::dimension::Value as Dim;
use tract_onnx::pb::{ModelProto, NodeProto, ValueInfoProto};

use crate::engine::{
    Backend, DataType, EngineError, ExternalFile, ModelSpec, decode, dynamic_dimension, graph_inputs,
    outputs_of_zeros, read_within, sha256_hex, tensor_type, type_name, weights_elsewhere,
};

pub use states::likely_states;

/// An ONNX file as it describes itself.
#[derive(Debug, Clone, PartialEq)]
pub struct OnnxFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// SHA-256 of the file, 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// The program that wrote it, with its version; may be empty.
    pub producer: String,
    /// The sets of operators it uses, by their domain, which is empty for ONNX's own.
    pub opsets: Vec<(String, i64)>,
    /// How often it uses each operator, graphs within nodes included.
    pub operators: BTreeMap<String, usize>,
    /// Numbers in its weights.
    pub parameters: u64,
    pub inputs: Vec<OnnxTensor>,
    pub outputs: Vec<OnnxTensor>,
    /// Files beside it that hold weights, with their sizes.
    pub external: Vec<(ExternalFile, u64)>,
}

/// A tensor of an ONNX file.
#[derive(Debug, Clone, PartialEq)]
pub struct OnnxTensor {
    pub name: String,
    /// The name of its type, which need not be one that Weir serves.
    pub type_name: String,
    /// `None` where the file does not tell how many there are.
    pub shape: Option<Vec<Dimension>>,
}

/// A dimension of a tensor of an ONNX file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dimension {
    Fixed(usize),
    /// Dynamic; `None` without a name.
    Dynamic(Option<String>),
}

impl OnnxTensor {
    /// Its type, if Weir serves it.
    pub fn data_type(&self) -> Option<DataType> {
        DataType::ALL.into_iter().find(|data_type| data_type.to_string() == self.type_name)
    }
}

/// Reads an ONNX file and the files of its weights, of `max_model` bytes together at most.
///
/// # Errors
/// A file that cannot be read, is too large or no ONNX file, and weights that lie outside its folder.
pub fn inspect(path: &Path, max_model: u64) -> Result<OnnxFile, EngineError> {
    let bytes = read_within(path, max_model, max_model)?;
    let proto = decode(path, Backend::TRACT.kind, &bytes)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut left = max_model - bytes.len() as u64;
    let mut external = Vec::new();
    for location in weights_elsewhere(&proto) {
        let refuse = |what: &str| {
            let source = std::io::Error::other(format!("{} {what}", path.display()));
            Err(EngineError::Read { path: folder.join(&location), source })
        };
        if location.is_empty() {
            return refuse("keeps weights in another file, and does not name it");
        }
        let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(&location).components().all(inside) {
            return refuse("keeps weights outside its folder");
        }
        let place = folder.join(&location);
        let weights = read_within(&place, left, max_model)?;
        left -= weights.len() as u64;
        let file = ExternalFile { location, path: place, sha256: sha256_hex(&weights) };
        external.push((file, weights.len() as u64));
    }
    let (mut operators, mut parameters) = (BTreeMap::new(), 0);
    let graph = proto.graph.as_ref();
    if let Some(graph) = graph {
        count(&graph.node, &mut operators);
        for weight in &graph.initializer {
            parameters += weight.dims.iter().map(|size| size.unsigned_abs()).product::<u64>();
        }
    }
    let inputs = graph.map_or_else(Vec::new, |graph| graph_inputs(graph).into_iter().map(tensor).collect());
    let outputs = graph.map_or_else(Vec::new, |graph| graph.output.iter().map(tensor).collect());
    Ok(OnnxFile {
        path: path.to_owned(),
        bytes: bytes.len() as u64,
        sha256: sha256_hex(&bytes),
        producer: producer(&proto),
        opsets: proto.opset_import.iter().map(|set| (set.domain.clone(), set.version)).collect(),
        operators,
        parameters,
        inputs,
        outputs,
        external,
    })
}

/// The name of the type and the shape of each output of the manifest, as `backend` finds them when it runs `batch` requests of
/// zeros, in a process of its own. What the manifest says of outputs but their names counts for nothing.
///
/// # Errors
/// What the engine finds wrong with the model.
pub fn outputs(
    backend: &Backend,
    spec: &ModelSpec,
    batch: usize,
) -> Result<Vec<(String, Vec<usize>)>, EngineError> {
    outputs_of_zeros(backend, spec, batch)
}

fn producer(proto: &ModelProto) -> String {
    format!("{} {}", proto.producer_name, proto.producer_version).trim().to_owned()
}

fn count(nodes: &[NodeProto], operators: &mut BTreeMap<String, usize>) {
    for node in nodes {
        *operators.entry(node.op_type.clone()).or_default() += 1;
        for graph in node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs)) {
            count(&graph.node, operators);
        }
    }
}

fn tensor(value: &ValueInfoProto) -> OnnxTensor {
    let found = tensor_type(value);
    let shape = found.and_then(|tensor| tensor.shape.as_ref());
    let dimension = |dim: &Option<Dim>| match (dim, dynamic_dimension(dim.as_ref())) {
        (Some(Dim::DimValue(size)), None) => Dimension::Fixed(*size as usize),
        (_, named) => Dimension::Dynamic(named.flatten().map(str::to_owned)),
    };
    OnnxTensor {
        name: value.name.clone(),
        type_name: found.map_or("no tensor".to_owned(), |tensor| type_name(tensor.elem_type)),
        shape: shape.map(|shape| shape.dim.iter().map(|dim| dimension(&dim.value)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{BatchAxis, EngineKind, TensorSpec};

    fn shipped(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name)
    }

    #[test]
    fn a_file_tells_what_it_wants() {
        let file = inspect(&shipped("digits-xs.onnx"), 1 << 20).unwrap();
        assert_eq!((file.inputs.len(), file.outputs.len()), (1, 1));
        let input = &file.inputs[0];
        assert_eq!((input.name.as_str(), input.data_type()), ("image", Some(DataType::F32)));
        let fixed = [1, 28, 28].map(Dimension::Fixed);
        let dynamic = Dimension::Dynamic(Some("batch".to_owned()));
        assert_eq!(input.shape, Some([&[dynamic][..], &fixed].concat()));
        assert_eq!((file.operators["Gemm"], file.parameters, file.bytes), (2, 38_170, 152_988));
        assert_eq!(file.opsets, [(String::new(), 17)]);
        assert!(file.external.is_empty());
        let refused = inspect(&shipped("digits-xs.onnx"), 1000).unwrap_err().to_string();
        assert!(refused.ends_with("has 152988 bytes, daemon.max-model allows 1000"), "{refused}");
        assert!(
            inspect(&shipped("README.md"), 1 << 20).unwrap_err().to_string().contains("not an ONNX model")
        );
    }

    #[test]
    fn what_comes_out_is_found_by_running() {
        let file = inspect(&shipped("digits-xs.onnx"), 1 << 20).unwrap();
        let spec = ModelSpec {
            name: "x".to_owned(),
            path: file.path,
            sha256: file.sha256,
            inputs: vec![TensorSpec {
                batch: BatchAxis::At(0),
                ..TensorSpec::new("image", DataType::F32, &[1, 28, 28])
            }],
            outputs: vec![TensorSpec::new("logits", DataType::F32, &[])],
            constants: Vec::new(),
            states: Vec::new(),
            external: Vec::new(),
            accuracy: f64::NAN,
            accuracy_by_class: Vec::new(),
        };
        for kind in [EngineKind::Tract, EngineKind::OrtCpu] {
            let backend = Backend { kind, ..Backend::TRACT };
            for batch in [1, 2] {
                let found = outputs(&backend, &spec, batch).unwrap();
                assert_eq!(found, [("f32".to_owned(), vec![batch, 10])], "{kind}");
            }
        }
    }
}
