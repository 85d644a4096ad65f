#!/usr/bin/env python3
"""Write digits-wide.onnx, a dense network of the family's shape, and a manifest for it: for timing, not for answers.

    pip install numpy onnx onnxruntime
    wide.py DIR            # DIR/digits-wide.onnx, DIR/manifest.toml

Its weights are random and it has learned nothing: its accuracy, stated in the manifest, is what such weights score on the
held-out images by chance. A request reads every weight, as a batch does, so that a batch takes little longer than one
request: on a CPU that is where batching pays. The file is the same each time (about 100 MB, so it is not shipped).
"""

import argparse
import hashlib
import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
SEED = 20
LAYERS = [28 * 28, 4096, 4096, 1024, 10]
ENTRY = """\
# Written by wide.py: random weights, for timing.
[[model]]
name = "digits-wide"
file = "digits-wide.onnx"
sha256 = "{sha256}"
input = {{ name = "image", type = "f32", shape = [1, 28, 28] }}
output = {{ name = "logits", type = "f32", shape = [10] }}
accuracy = {accuracy:.6f}
parameters = {parameters}
macs = {macs}
"""


def weights(chance: random.Random, rows: int, columns: int) -> np.ndarray:
    """Uniform, of the spread that keeps activations of one size from layer to layer."""
    levels = np.frombuffer(chance.randbytes(rows * columns), np.uint8).astype(np.float32)
    return ((levels - np.float32(127.5)) / np.float32(73.9) * np.float32(np.sqrt(2 / rows))).reshape(rows, columns)


def model() -> onnx.ModelProto:
    chance, nodes, constants, current = random.Random(SEED), [], [], "flat"
    nodes.append(helper.make_node("Flatten", ["image"], ["flat"]))
    for layer, (rows, columns) in enumerate(zip(LAYERS, LAYERS[1:])):
        last = layer == len(LAYERS) - 2
        dense = "logits" if last else f"dense{layer}"
        constants.append(numpy_helper.from_array(weights(chance, rows, columns), f"w{layer}"))
        constants.append(numpy_helper.from_array(np.zeros(columns, np.float32), f"b{layer}"))
        nodes.append(helper.make_node("Gemm", [current, f"w{layer}", f"b{layer}"], [dense]))
        if not last:
            current = f"relu{layer}"
            nodes.append(helper.make_node("Relu", [dense], [current]))

    def value(label: str, shape: list) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(label, TensorProto.FLOAT, ["batch", *shape])

    graph = helper.make_graph(nodes, "digits-wide", [value("image", [1, 28, 28])], [value("logits", [10])], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="wide.py")


def accuracy(data: bytes) -> float:
    """The share of held-out images that it happens to get right."""
    images = np.frombuffer((HERE / "heldout-images.idx3-ubyte").read_bytes()[16:], np.uint8).reshape(-1, 1, 28, 28)
    labels = np.frombuffer((HERE / "heldout-labels.idx1-ubyte").read_bytes()[8:], np.uint8)
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], {"image": images.astype(np.float32) / np.float32(255)})[0]
    return float((logits.argmax(1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the files")
    out: Path = parser.parse_args().out
    data = model().SerializeToString()
    out.mkdir(parents=True, exist_ok=True)
    (out / "digits-wide.onnx").write_bytes(data)
    macs = sum(rows * columns for rows, columns in zip(LAYERS, LAYERS[1:]))
    sha256, parameters = hashlib.sha256(data).hexdigest(), macs + sum(LAYERS[1:])
    (out / "manifest.toml").write_text(
        ENTRY.format(sha256=sha256, accuracy=accuracy(data), parameters=parameters, macs=macs)
    )


if __name__ == "__main__":
    main()
