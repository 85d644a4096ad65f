//! Which of ONNX Runtime's execution providers runs a model, asked for and then checked: none falls back to the
//! CPU unseen.

use ::ort::ep::{CUDA, ExecutionProviderDispatch, OpenVINO, TensorRT};
use ::ort::session::Session;

use super::call::{assigned_nodes, available_providers};
use super::library::Library;
use crate::engine::{Backend, EngineError, EngineKind, ModelSpec, placement};

const CUDA_PROVIDER: &str = "CUDAExecutionProvider";

/// The providers to register, the most wanted first; each fails if it cannot be had. The CPU's is always there.
pub(super) fn wanted(backend: &Backend, spec: &ModelSpec, largest: usize) -> Vec<ExecutionProviderDispatch> {
    let device = backend.device as i32;
    // Without TensorFloat-32, so that the accuracy measured on a CPU holds; for speed there are f16 models.
    let cuda = || CUDA::default().with_device_id(device).with_tf32(false).build();
    let providers = match backend.kind {
        EngineKind::OrtCuda => vec![cuda()],
        EngineKind::OrtTensorrt => {
            // Without these it would compile anew, for seconds, at each batch size that it has not met.
            let tensorrt = TensorRT::default()
                .with_device_id(device)
                .with_profile_min_shapes(shapes(spec, 1))
                .with_profile_opt_shapes(shapes(spec, largest))
                .with_profile_max_shapes(shapes(spec, largest));
            vec![tensorrt.build(), cuda()]
        }
        EngineKind::OrtOpenvino => {
            let place =
                if backend.device == 0 { "CPU".to_owned() } else { format!("GPU.{}", backend.device - 1) };
            vec![OpenVINO::default().with_device_type(place).with_num_threads(1).build()]
        }
        _ => vec![],
    };
    providers.into_iter().map(ExecutionProviderDispatch::error_on_failure).collect()
}

/// The inputs at a batch size, such as `image:8x3x224x224,mask:8x1`.
fn shapes(spec: &ModelSpec, batch: usize) -> String {
    let one = |input: &crate::engine::TensorSpec| {
        let dims: Vec<_> = input.file_shape(batch).iter().map(usize::to_string).collect();
        format!("{}:{}", input.name, dims.join("x"))
    };
    spec.inputs.iter().map(one).collect::<Vec<_>>().join(",")
}

/// That a provider could not be registered.
pub(super) fn missing(backend: &Backend, library: &Library, reason: &str) -> EngineError {
    let has = available_providers().unwrap_or_else(|error| vec![error.to_string()]).join(", ");
    let package = match backend.kind {
        EngineKind::OrtCuda | EngineKind::OrtTensorrt => "onnxruntime-gpu",
        EngineKind::OrtOpenvino => "onnxruntime-openvino",
        _ => "onnxruntime",
    };
    EngineError::Provider {
        engine: backend.kind,
        library: library.path.clone(),
        device: backend.device,
        reason: reason.to_owned(),
        remedy: format!("it has {has}; a build with this one is PyPI's {package} (see docs/engines.md)"),
    }
}

/// Checks that the engine's own provider runs the model, and says which nodes another one runs. Whether the session makes plans for the
/// shape that it met last, and anew for another one.
///
/// # Errors
/// [`EngineError::Elsewhere`] if it runs none.
pub(super) fn check(backend: &Backend, spec: &ModelSpec, session: &Session) -> Result<bool, EngineError> {
    let own: &[&str] = match backend.kind {
        EngineKind::OrtCuda => &[CUDA_PROVIDER],
        EngineKind::OrtTensorrt => &["TensorrtExecutionProvider", CUDA_PROVIDER],
        EngineKind::OrtOpenvino => &["OpenVINOExecutionProvider"],
        _ => &["CPUExecutionProvider"],
    };
    let nodes = assigned_nodes(session).map_err(|error| EngineError::Compile {
        model: spec.name.clone(),
        batch: 1,
        reason: format!("ONNX Runtime does not say what runs where: {error}"),
    })?;
    let total = nodes.len();
    let plans =
        |(provider, operator): &(String, String)| provider == CUDA_PROVIDER && operator.contains("Conv");
    let plans_for_one_shape = nodes.iter().any(plans);
    let elsewhere: Vec<_> =
        nodes.into_iter().filter(|(provider, _)| !own.contains(&provider.as_str())).collect();
    let provider = elsewhere.first().map(|(provider, _)| provider.clone()).unwrap_or_default();
    let operators = elsewhere.into_iter().map(|(_, operator)| operator).collect();
    placement::told(spec, backend.kind, total, &provider, operators)?;
    Ok(plans_for_one_shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::toy_spec;

    #[test]
    fn shapes_are_told_to_tensorrt_in_its_own_way() {
        let mut spec = toy_spec(2, 2);
        spec.inputs.push(crate::engine::TensorSpec {
            name: "image".into(),
            shape: vec![3, 4],
            ..spec.inputs[0].clone()
        });
        assert_eq!(shapes(&spec, 8), "in:8x2,image:8x3x4");
    }
}
