#!/bin/sh
# The engines that need an NVIDIA GPU: the conformance cases, and the times of three models up to batch 64. The third is
# tract's own CUDA runtime, which a build has with the feature tract-cuda only.
# ORT_DYLIB_PATH names a build of ONNX Runtime with CUDA and TensorRT; see docs/engines.md.
set -eu
cd "$(dirname "$0")/.."
if ! nvidia-smi --list-gpus 2>/dev/null | grep -q "^GPU"; then
    echo "no NVIDIA GPU is here (nvidia-smi lists none): nothing was tested" >&2
    exit 1
fi
if [ -z "${ORT_DYLIB_PATH:-}" ]; then
    echo "ORT_DYLIB_PATH names no ONNX Runtime with CUDA and TensorRT: docs/engines.md says how to get one" >&2
    exit 1
fi
cargo=${CARGO:-cargo}
engines=ort-cuda,ort-tensorrt,tract-cuda
WEIR_TEST_ENGINES="$engines,ort-cuda apart,tract-cuda apart" $cargo test -p weir-engine --features tract-cuda conformance
$cargo build --release -p weir -p weir-lab --features weir/tract-cuda,weir-lab/tract-cuda
./tests/bench/engines.py --weir "${CARGO_TARGET_DIR:-target}/release/weir" --engines $engines \
    --models digits-xxl,squeezenet,resnet50 --batches 1,2,4,8,16,32,64
