//! Well-known networks, with made-up weights, on which the engines must agree.

use tract_onnx::pb::tensor_shape_proto::dimension::Value::DimValue;
use tract_onnx::pb::{ValueInfoProto, type_proto};

use super::*;
use crate::engine::signature::decode;

/// Those of ONNX's own test data.
const NETWORKS: [&str; 9] = [
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
];

/// What tract is known not to load.
const NOT_WITH_TRACT: [&str; 0] = [];

/// Relative to the largest output.
const TOLERANCE: f32 = 1e-4;

#[test]
fn engines_agree_on_well_known_networks() {
    for name in NETWORKS {
        let spec = network(name);
        let input = random_f32(1, spec.inputs[0].elements());
        let reference = real(EngineKind::OrtCpu, &spec, 1, None).unwrap_or_else(|e| panic!("{name}: {e}"));
        let expected = run(reference, &input);
        let largest = expected.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
        assert!(largest.is_finite() && largest > 0.0, "{name}: {largest}");
        for (engine, load) in under_test() {
            let runner = match load(&spec, 1, None) {
                Err(_) if engine == "tract" && NOT_WITH_TRACT.contains(&name) => continue,
                runner => runner.unwrap_or_else(|error| panic!("{name}, {engine}: {error}")),
            };
            let found = run(runner, &input);
            let apart = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest;
            println!("{name}, {engine}: apart by {apart:.1e} of {largest:.3e}");
            assert!(apart <= TOLERANCE, "{name}, {engine}: apart by {apart}");
        }
    }
}

fn run(mut runner: Box<dyn Runner>, input: &[f32]) -> Vec<f32> {
    run_f32(&mut *runner, 1, input).unwrap()
}

/// One of them, with one image in and one row of numbers out.
fn network(name: &str) -> ModelSpec {
    let path = fetched(&format!("onnx-models/light_{name}.onnx"));
    let bytes = std::fs::read(&path).unwrap();
    let mut spec = ModelSpec { name: name.to_owned(), path, sha256: sha256_hex(&bytes), ..toy_spec(1, 1) };
    let graph = decode(&spec, EngineKind::Tract, &bytes).unwrap().graph.unwrap();
    let weight = |name: &str| graph.initializer.iter().any(|weight| weight.name == name);
    let input = graph.input.iter().find(|input| !weight(&input.name)).unwrap();
    (spec.inputs[0], spec.outputs[0]) = (described(input), described(&graph.output[0]));
    spec
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
    TensorSpec { name: value.name.clone(), data_type: DataType::F32, shape: shape.collect() }
}
