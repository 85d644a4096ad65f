//! Writes tiny ONNX files, of `f32` alone and with a batch of any size.

/// A model in the making.
#[derive(Default)]
pub(super) struct Onnx {
    graph: Vec<u8>,
    pub(super) inputs: Vec<(String, Vec<i64>)>,
    pub(super) outputs: Vec<(String, Vec<i64>)>,
}

const F32: u64 = 1;

impl Onnx {
    pub(super) fn node(mut self, operator: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        let mut node = Vec::new();
        inputs.iter().for_each(|name| bytes(&mut node, 1, name.as_bytes()));
        outputs.iter().for_each(|name| bytes(&mut node, 2, name.as_bytes()));
        bytes(&mut node, 4, operator.as_bytes());
        bytes(&mut self.graph, 1, &node);
        self
    }

    pub(super) fn weight(mut self, name: &str, shape: &[i64], values: &[f32]) -> Self {
        let mut tensor = Vec::new();
        shape.iter().for_each(|&size| number(&mut tensor, 1, size as u64));
        number(&mut tensor, 2, F32);
        bytes(&mut tensor, 8, name.as_bytes());
        bytes(&mut tensor, 9, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
        bytes(&mut self.graph, 5, &tensor);
        self
    }

    pub(super) fn input(mut self, name: &str, shape: &[i64]) -> Self {
        bytes(&mut self.graph, 11, &value(name, shape));
        self.inputs.push((name.to_owned(), shape.to_vec()));
        self
    }

    pub(super) fn output(mut self, name: &str, shape: &[i64]) -> Self {
        bytes(&mut self.graph, 12, &value(name, shape));
        self.outputs.push((name.to_owned(), shape.to_vec()));
        self
    }

    /// The file.
    pub(super) fn bytes(mut self) -> Vec<u8> {
        bytes(&mut self.graph, 2, b"toy");
        let (mut operators, mut model) = (Vec::new(), Vec::new());
        number(&mut operators, 2, 13);
        number(&mut model, 1, 8);
        bytes(&mut model, 7, &self.graph);
        bytes(&mut model, 8, &operators);
        model
    }
}

/// A tensor of requests of that shape, of which there are some.
fn value(name: &str, shape: &[i64]) -> Vec<u8> {
    let mut dimensions = Vec::new();
    let mut dimension = |field: &dyn Fn(&mut Vec<u8>)| {
        let mut one = Vec::new();
        field(&mut one);
        bytes(&mut dimensions, 1, &one);
    };
    dimension(&|one| bytes(one, 2, b"batch"));
    shape.iter().for_each(|&size| dimension(&|one| number(one, 1, size as u64)));
    let (mut tensor, mut kind, mut value) = (Vec::new(), Vec::new(), Vec::new());
    number(&mut tensor, 1, F32);
    bytes(&mut tensor, 2, &dimensions);
    bytes(&mut kind, 1, &tensor);
    bytes(&mut value, 1, name.as_bytes());
    bytes(&mut value, 2, &kind);
    value
}

fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn number(to: &mut Vec<u8>, field: u64, value: u64) {
    varint(to, field << 3);
    varint(to, value);
}

fn bytes(to: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(to, field << 3 | 2);
    varint(to, value.len() as u64);
    to.extend(value);
}
