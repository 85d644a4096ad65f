#!/usr/bin/env python3
"""Write networks of three convolutions on square images, and a manifest for them: small files whose batches take long, for timing.

    pip install numpy onnx
    convolution.py DIR                  # DIR/image-64.onnx, image-100, image-160, image-256, DIR/manifest.toml
    convolution.py DIR --sides 64,512   # images of other sizes

Each reads an image of one channel, applies three convolutions of 32 channels, averages over the image and tells ten numbers. Weights
are random and the same each time: nothing has been learned, and no accuracy is stated. A file has some 80 kB whatever the
side; the time grows with its square.
"""

import argparse
import hashlib
import random
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED, CHANNELS, LABELS = 20, 32, 10
SIDES = "64,100,160,256"
HEAD = "# Written by convolution.py: random weights, for timing.\n"
ENTRY = """\
[[model]]
name = "image-{side}"
file = "image-{side}.onnx"
sha256 = "{sha256}"
input = {{ name = "image", type = "f32", shape = [1, {side}, {side}] }}
output = {{ name = "logits", type = "f32", shape = [10] }}
"""


def weights(chance: random.Random, shape: tuple) -> np.ndarray:
    """Uniform, of the spread that keeps activations of one size from layer to layer."""
    levels = np.frombuffer(chance.randbytes(int(np.prod(shape))), np.uint8).astype(np.float32)
    spread = np.sqrt(2 / np.prod(shape[1:]))
    return ((levels - np.float32(127.5)) / np.float32(73.9) * np.float32(spread)).reshape(shape)


def model(side: int) -> onnx.ModelProto:
    chance = random.Random(SEED)
    shapes = [(CHANNELS, 1, 3, 3), *2 * [(CHANNELS, CHANNELS, 3, 3)], (LABELS, CHANNELS)]
    constants = [numpy_helper.from_array(weights(chance, shape), f"w{i}") for i, shape in enumerate(shapes)]
    nodes, current = [], "image"
    for layer in range(len(shapes) - 1):
        nodes.append(helper.make_node("Conv", [current, f"w{layer}"], [f"conv{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"conv{layer}"], [f"relu{layer}"]))
        current = f"relu{layer}"
    nodes.append(helper.make_node("GlobalAveragePool", [current], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", f"w{len(shapes) - 1}"], ["logits"], transB=1))

    def value(label: str, shape: list) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(label, TensorProto.FLOAT, ["batch", *shape])

    inputs, outputs = [value("image", [1, side, side])], [value("logits", [LABELS])]
    graph = helper.make_graph(nodes, f"image-{side}", inputs, outputs, constants)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="convolution.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the files")
    parser.add_argument("--sides", default=SIDES, help="of the images, with commas between")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    entries = []
    for side in args.sides.split(","):
        data = model(int(side)).SerializeToString()
        (args.out / f"image-{side}.onnx").write_bytes(data)
        entries.append(ENTRY.format(side=side, sha256=hashlib.sha256(data).hexdigest()))
    (args.out / "manifest.toml").write_text(HEAD + "\n".join(entries))


if __name__ == "__main__":
    main()
