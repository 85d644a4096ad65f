//! tract's own CUDA runtime: whether it can be had here, and what of a model it leaves to the CPU.

use tract_cuda::utils::{REQUIRED_CUDA_API, ensure_cuda_runtime_dependencies};
use tract_gpu::fact::DeviceTypedFactExt;
use tract_gpu::sync::DeviceSync;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::source::TypedSource;

use super::guarded;
use crate::engine::{Backend, DataType, EngineError, ModelSpec, placement};

/// The runtime. It computes on the first device that this process sees.
///
/// # Errors
/// [`EngineError::Device`] with the driver, library or device that is missing.
pub(super) fn runtime(backend: &Backend) -> Result<&'static dyn Runtime, EngineError> {
    let found = guarded(|| {
        ensure_cuda_runtime_dependencies("it cannot be used")?;
        runtime_for_name("cuda")
    });
    let (engine, device) = (backend.kind, backend.device);
    let reason = match found {
        Ok(Some(runtime)) => return Ok(runtime),
        Ok(None) => "this program has no such runtime".to_owned(),
        Err(reason) => reason.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    let (major, minor) = (REQUIRED_CUDA_API / 1000, REQUIRED_CUDA_API % 1000 / 10);
    let remedy = format!(
        "it needs an NVIDIA GPU, a driver of CUDA {major}.{minor} or later, and of CUDA {major} the libraries cudart, \
         nvrtc, cublas and cudnn on the loader's path (see docs/engines.md)"
    );
    Err(EngineError::Device { engine, device, reason, remedy })
}

/// Checks that the GPU computes the model, in its own precision, and says which operators the CPU computes.
///
/// # Errors
/// [`EngineError::Elsewhere`] if it computes none; [`EngineError::Compile`] for attention in `f32`, which the runtime
/// would compute in `f16`.
pub(super) fn check(backend: &Backend, spec: &ModelSpec, model: &TypedModel) -> Result<(), EngineError> {
    let computes = |node: &&TypedNode| {
        !node.op_is::<TypedSource>() && !node.op_is::<Const>() && !node.op_is::<DeviceSync>()
    };
    let nodes: Vec<&TypedNode> = model.nodes().iter().filter(computes).collect();
    let halves = spec.inputs.iter().all(|input| input.data_type == DataType::F16);
    if !halves && nodes.iter().any(|node| node.op().name() == "CudaFlashAttention") {
        let reason = "tract's CUDA runtime would compute its attention in f16".to_owned();
        return Err(EngineError::Compile { model: spec.name.clone(), batch: 1, reason });
    }
    let on_device =
        |node: &TypedNode| node.outputs.iter().any(|output| output.fact.as_device_fact().is_some());
    let elsewhere = nodes.iter().filter(|node| !on_device(node)).map(|node| node.op().name().into_owned());
    placement::told(spec, backend.kind, nodes.len(), "the CPU", elsewhere.collect())
}
