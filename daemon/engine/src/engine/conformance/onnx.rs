//! Writes tiny ONNX files for the conformance cases, straight as protobuf fields.

use crate::engine::DataType;

/// A graph in the making.
#[derive(Default)]
pub(in crate::engine) struct Onnx {
    graph: Vec<u8>,
}

impl Onnx {
    /// An input; a dimension that is no number is a symbol.
    pub(in crate::engine) fn input(self, name: &str, data_type: u8, dims: &[&str]) -> Self {
        self.field(11, &value(name, data_type, dims))
    }

    pub(in crate::engine) fn output(self, name: &str, data_type: u8, dims: &[&str]) -> Self {
        self.field(12, &value(name, data_type, dims))
    }

    pub(in crate::engine) fn node(self, operator: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        self.node_with(operator, inputs, outputs, &[])
    }

    /// A node with whole numbers for attributes.
    pub(in crate::engine) fn node_with(
        self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, u64)],
    ) -> Self {
        let mut node = Vec::new();
        inputs.iter().for_each(|name| put_bytes(&mut node, 1, name.as_bytes()));
        outputs.iter().for_each(|name| put_bytes(&mut node, 2, name.as_bytes()));
        put_bytes(&mut node, 4, operator.as_bytes());
        for (name, number) in attributes {
            let mut attribute = Vec::new();
            put_bytes(&mut attribute, 1, name.as_bytes());
            put_number(&mut attribute, 3, *number);
            put_number(&mut attribute, 20, 2);
            put_bytes(&mut node, 5, &attribute);
        }
        self.field(1, &node)
    }

    /// A constant.
    pub(in crate::engine) fn weight(self, name: &str, data_type: u8, dims: &[u64], data: &[u8]) -> Self {
        let mut tensor = Vec::new();
        dims.iter().for_each(|dim| put_number(&mut tensor, 1, *dim));
        put_number(&mut tensor, 2, data_type.into());
        put_bytes(&mut tensor, 8, name.as_bytes());
        put_bytes(&mut tensor, 9, data);
        self.field(5, &tensor)
    }

    /// The file.
    pub(in crate::engine) fn bytes(self) -> Vec<u8> {
        let graph = self.field(2, b"toy").graph;
        let mut model = Vec::new();
        put_number(&mut model, 1, 8);
        put_bytes(&mut model, 7, &graph);
        let mut operators = Vec::new();
        put_number(&mut operators, 2, 13);
        put_bytes(&mut model, 8, &operators);
        model
    }

    fn field(mut self, number: u64, bytes: &[u8]) -> Self {
        put_bytes(&mut self.graph, number, bytes);
        self
    }
}

/// ONNX's number of a type.
pub(in crate::engine) fn code(data_type: DataType) -> u8 {
    match data_type {
        DataType::F32 => 1,
        DataType::U8 => 2,
        DataType::I64 => 7,
        DataType::F16 => 10,
    }
}

fn value(name: &str, data_type: u8, dims: &[&str]) -> Vec<u8> {
    let mut shape = Vec::new();
    for dim in dims {
        let mut field = Vec::new();
        match dim.parse() {
            Ok(size) => put_number(&mut field, 1, size),
            Err(_) => put_bytes(&mut field, 2, dim.as_bytes()),
        }
        put_bytes(&mut shape, 1, &field);
    }
    let mut tensor = Vec::new();
    put_number(&mut tensor, 1, data_type.into());
    put_bytes(&mut tensor, 2, &shape);
    let (mut wrapped, mut value) = (Vec::new(), Vec::new());
    put_bytes(&mut wrapped, 1, &tensor);
    put_bytes(&mut value, 1, name.as_bytes());
    put_bytes(&mut value, 2, &wrapped);
    value
}

fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3);
    put_varint(out, number);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
