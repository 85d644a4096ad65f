//! Well-known networks, with made-up weights, on which the engines must agree.

use prost::Message;
use tract_onnx::pb::tensor_shape_proto::dimension::Value::DimValue;
use tract_onnx::pb::{GraphProto, TensorProto, ValueInfoProto, type_proto};

use super::*;
use crate::engine::signature::decode;

/// How far outputs may be apart, relative to the largest.
const TOLERANCE: f32 = 1e-4;

/// Those of ONNX's own test data, every one of which each engine loads, each a test, so that no core waits for the last of them. Three
/// have too many weights to make them up here.
macro_rules! agree_on {
    ($($name:ident: $with_weights:expr,)*) => {
        $(#[test]
        fn $name() {
            engines_agree_on(stringify!($name), $with_weights);
        })*
    };
}

agree_on! {
    bvlc_alexnet: false,
    densenet121: true,
    inception_v1: true,
    inception_v2: true,
    resnet50: true,
    shufflenet: true,
    squeezenet: true,
    vgg19: false,
    zfnet512: false,
}

fn engines_agree_on(name: &str, with_weights: bool) {
    let dir = tempfile::tempdir().unwrap();
    let spec = network(name, with_weights, &dir);
    let input = random_f32(1, spec.inputs[0].elements());
    let reference = real(EngineKind::OrtCpu, &spec, 1, None).unwrap_or_else(|e| panic!("{name}: {e}"));
    let expected = run(reference, &input);
    let largest = expected.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    assert!(largest.is_finite() && largest > 0.0, "{name}: {largest}");
    let differs = expected.iter().any(|value| *value != expected[0]);
    assert!(differs || !with_weights, "{name}: a network of one answer compares nothing");
    // A server computes what its own engine does.
    for (engine, load) in under_test().into_iter().filter(|(engine, _)| !engine.ends_with("oip")) {
        let runner = load(&spec, 1, None).unwrap_or_else(|error| panic!("{name}, {engine}: {error}"));
        let found = run(runner, &input);
        let apart = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest;
        println!("{name}, {engine}: apart by {apart:.1e} of {largest:.3e}");
        assert!(apart <= TOLERANCE, "{name}, {engine}: apart by {apart}");
    }
}

fn run(mut runner: Box<dyn Runner>, input: &[f32]) -> Vec<f32> {
    run_f32(&mut *runner, 1, input).unwrap()
}

/// One of them, with one image in and one row of numbers out.
fn network(name: &str, with_weights: bool, dir: &TempDir) -> ModelSpec {
    let path = fetched(&format!("onnx-models/light_{name}.onnx"));
    let bytes = std::fs::read(&path).unwrap();
    let mut spec = ModelSpec { name: name.to_owned(), path, ..toy_spec(1, 1) };
    let mut proto = decode(&spec, EngineKind::Tract, &bytes).unwrap();
    let graph = proto.graph.as_mut().unwrap();
    if with_weights {
        make_up_weights(graph);
    }
    let weight = |name: &str| graph.initializer.iter().any(|weight| weight.name == name);
    let input = graph.input.iter().find(|input| !weight(&input.name)).unwrap();
    (spec.inputs[0], spec.outputs[0]) = (described(input), described(&graph.output[0]));
    let bytes = proto.encode_to_vec();
    ModelSpec { inputs: spec.inputs, outputs: spec.outputs, name: name.to_owned(), ..toy_file(dir, &bytes) }
}

/// Puts random weights where the file has one number for all, and leaves out the last Softmax: with the file as it
/// is, every class is as likely.
fn make_up_weights(graph: &mut GraphProto) {
    let (constants, mut nodes): (Vec<_>, Vec<_>) =
        graph.node.drain(..).partition(|node| node.op_type == "ConstantOfShape");
    for (seed, node) in constants.into_iter().enumerate() {
        let shape = graph.initializer.iter().find(|weight| weight.name == node.input[0]).unwrap();
        let dims: Vec<i64> = match shape.raw_data.is_empty() {
            true => shape.int64_data.clone(),
            false => shape.raw_data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
        };
        let count = dims.iter().product::<i64>() as usize;
        // Signals keep their size from layer to layer; what has one dimension are means, variances and the like.
        let fan_in = dims.iter().skip(1).product::<i64>() as f32;
        let scaled = |x: f32| if dims.len() > 1 { (2.0 * x - 1.0) * (6.0 / fan_in).sqrt() } else { 0.5 + x };
        let data = random_f32(seed as u64, count).into_iter().flat_map(|x| scaled(x).to_le_bytes());
        let raw_data = data.collect::<Vec<u8>>();
        let name = node.output[0].clone();
        graph.initializer.push(TensorProto { name, dims, data_type: 1, raw_data, ..TensorProto::default() });
    }
    if let Some(softmax) = nodes.pop_if(|node| node.op_type == "Softmax") {
        graph.output[0].name = softmax.input[0].clone();
    }
    graph.node = nodes;
}

fn described(value: &ValueInfoProto) -> TensorSpec {
    let Some(type_proto::Value::TensorType(found)) = value.r#type.as_ref().and_then(|t| t.value.as_ref())
    else {
        panic!("{} is no tensor", value.name)
    };
    let dims = found.shape.iter().flat_map(|shape| &shape.dim).skip(1);
    let shape = dims.map(|dim| match dim.value {
        Some(DimValue(size)) => size as usize,
        _ => panic!("{} has an open shape", value.name),
    });
    TensorSpec::new(&value.name, DataType::F32, &shape.collect::<Vec<_>>())
}
