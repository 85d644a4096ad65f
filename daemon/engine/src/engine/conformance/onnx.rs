//! Writes tiny ONNX files for the conformance cases.

use prost::Message;
use tract_onnx::pb::tensor_proto::DataLocation;
use tract_onnx::pb::tensor_shape_proto::Dimension;
use tract_onnx::pb::tensor_shape_proto::dimension::Value::{DimParam, DimValue};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};

use crate::engine::DataType;

/// The kind of an attribute that is a whole number.
const WHOLE: i32 = 2;

/// That of one that is a graph.
const GRAPH: i32 = 5;

/// A graph in the making.
#[derive(Default)]
pub(crate) struct Onnx {
    graph: GraphProto,
}

impl Onnx {
    /// An input; a dimension that is no number is a symbol.
    pub(crate) fn input(mut self, name: &str, data_type: u8, dims: &[&str]) -> Self {
        self.graph.input.push(value(name, data_type, dims));
        self
    }

    pub(crate) fn output(mut self, name: &str, data_type: u8, dims: &[&str]) -> Self {
        self.graph.output.push(value(name, data_type, dims));
        self
    }

    pub(crate) fn node(self, operator: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        self.node_with(operator, inputs, outputs, &[])
    }

    /// A node with whole numbers for attributes.
    pub(crate) fn node_with(
        mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, i64)],
    ) -> Self {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let attribute = |&(name, i): &(&str, i64)| AttributeProto {
            name: name.to_owned(),
            i,
            r#type: WHOLE,
            ..AttributeProto::default()
        };
        self.graph.node.push(NodeProto {
            op_type: operator.to_owned(),
            input: names(inputs),
            output: names(outputs),
            attribute: attributes.iter().map(attribute).collect(),
            ..NodeProto::default()
        });
        self
    }

    /// The same with a graph that it runs.
    pub(crate) fn around(mut self, attribute: &str, body: Self) -> Self {
        let graph = GraphProto { name: attribute.to_owned(), ..body.graph };
        let attribute = AttributeProto {
            name: attribute.to_owned(),
            g: Some(graph),
            r#type: GRAPH,
            ..AttributeProto::default()
        };
        self.graph.node.last_mut().expect("a node before").attribute.push(attribute);
        self
    }

    /// A constant.
    pub(crate) fn weight(mut self, name: &str, data_type: u8, dims: &[i64], data: &[u8]) -> Self {
        self.graph.initializer.push(TensorProto {
            name: name.to_owned(),
            data_type: data_type.into(),
            dims: dims.to_owned(),
            raw_data: data.to_owned(),
            ..TensorProto::default()
        });
        self
    }

    /// A weight of f32 that lies in another file.
    pub(crate) fn weight_elsewhere(mut self, name: &str, dims: &[i64], file: &str, offset: usize) -> Self {
        let offset = offset.to_string();
        let entry =
            |(key, value): (&str, &str)| StringStringEntryProto { key: key.into(), value: value.into() };
        self.graph.initializer.push(TensorProto {
            name: name.to_owned(),
            data_type: 1,
            dims: dims.to_owned(),
            data_location: Some(DataLocation::External as i32),
            external_data: [("location", file), ("offset", &offset)].map(entry).to_vec(),
            ..TensorProto::default()
        });
        self
    }

    /// The file.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let graph = GraphProto { name: "toy".to_owned(), ..self.graph };
        let operators = OperatorSetIdProto { version: 13, ..OperatorSetIdProto::default() };
        let opset_import = vec![operators];
        let model = ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..ModelProto::default() };
        model.encode_to_vec()
    }
}

/// ONNX's number of a type.
pub(crate) fn code(data_type: DataType) -> u8 {
    data_type.onnx() as u8
}

fn value(name: &str, data_type: u8, dims: &[&str]) -> ValueInfoProto {
    let size = |dim: &&str| dim.parse().map_or_else(|_| DimParam((*dim).to_owned()), DimValue);
    let dim = dims.iter().map(|dim| Dimension { value: Some(size(dim)), ..Dimension::default() });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor = type_proto::Tensor { elem_type: data_type.into(), shape };
    let value = Some(type_proto::Value::TensorType(tensor));
    let r#type = Some(TypeProto { value, ..TypeProto::default() });
    ValueInfoProto { name: name.to_owned(), r#type, ..ValueInfoProto::default() }
}
