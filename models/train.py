#!/usr/bin/env python3
"""Train the digits-* model family; write the ONNX files, held-out images, manifest and table.

Six variants of one classifier, from a small dense network to a residual convolutional one,
trained on the same corrupted handwritten digits and scored on the same held-out images:

    python3.11 -m venv .venv && .venv/bin/pip install -r requirements.txt
    .venv/bin/python train.py                   # train all, write all files here
    .venv/bin/python train.py --out DIR         # the same, into DIR
    .venv/bin/python train.py --variants s,m    # train only these, take the others as they are
    .venv/bin/python train.py --variants ""     # train none: write all else anew
    .venv/bin/python train.py --validate        # for tuning: train on three quarters of the
                                                # training originals, score on the rest, leave
                                                # the held-out split alone and write nothing

Training sees fresh corruptions of its originals every epoch; the held-out originals (split off
before anything is done to them, see data.py) are corrupted once, and once for each class of input,
as u8, and committed.
"""

import argparse
import hashlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime as ort
import optax
from onnx import TensorProto, helper, numpy_helper

from data import INPUT_CLASSES, SEED, SIDE, corrupt, split_originals, write_idx

HERE = Path(__file__).resolve().parent
CLASSES = 10
COPIES = 8  # corrupted images of each training original in an epoch
BATCH = 128
PEAK_RATE = 4e-3
BN_MOMENTUM, BN_EPSILON = 0.95, 1e-5

# Layers in order. Each conv (3x3, padded) and dense is followed by batch norm and ReLU; resN is
# relu(x + conv(conv(x))) with N channels; a last dense layer to the 10 logits is implied.
VARIANTS: dict[str, str] = {
    "xs": "flatten dense48",
    "s": "flatten dense256 dense96",
    "m": "conv8 pool conv16 pool conv24 flatten",
    "l": "conv8 conv16 pool conv24 pool conv24 flatten",
    "xl": "conv24 conv24 pool conv48 conv48 pool conv48 gap",
    "xxl": "conv48 res48 res48 pool conv64 res64 pool conv64 gap",
}
EPOCHS: dict[str, int] = {"xs": 20, "s": 20, "m": 12, "l": 12, "xl": 8, "xxl": 6}

MANIFEST_HEAD = """\
# A family of six digit classifiers, cheapest first, and the held-out images they are scored on.
# Written by train.py. The data is the test set of "Optical Recognition of Handwritten Digits"
# (E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, CC BY 4.0) as bundled in
# scikit-learn (BSD-3-Clause), enlarged and corrupted. No original is in both splits.
# Models see pixel / 255 as f32; accuracy is correct / count on the held-out images, which `weir models`
# measures alike through the engine that serves them. The detector at the end has held-out scenes of its own.

[heldout]
images = "heldout-images.idx3-ubyte"
labels = "heldout-labels.idx1-ubyte"
images_sha256 = "{images}"
labels_sha256 = "{labels}"
count = {count}
origin = "UCI ML Optical Recognition of Handwritten Digits, test set, via scikit-learn load_digits"
licence = "CC BY 4.0"

# The same originals in the same order, so with the same labels, as requests of a class bring them.
"""
CLASS_ENTRY = """\
[[heldout.class]]
name = "{name}"
images = "heldout-{name}.idx3-ubyte"
images_sha256 = "{images}"
"""
MODEL_ENTRY = """
[[model]]
name = "digits-{name}"
file = "digits-{name}.onnx"
sha256 = "{sha256}"
input = {{ name = "image", type = "f32", shape = [1, {side}, {side}] }}
output = {{ name = "logits", type = "f32", shape = [{classes}] }}
accuracy = {accuracy:.6f}
accuracy_by_class = {{ {classes_of_input} }}
parameters = {parameters}
macs = {macs}
"""
# What begins here in the manifest, and lasts to its end, is written by train_scenes.py.
SCENES = "# Finds digits in larger pictures. Written by train_scenes.py"
TABLE_START, TABLE_END = "<!-- table: written by train.py -->", "<!-- end of table -->"
TABLE_HEAD = [
    "| Variant | Layers | Held-out accuracy | " + " | ".join(INPUT_CLASSES)
    + " | Parameters | MACs | File, bytes |",
    "|---|---|---:|" + "---:|" * len(INPUT_CLASSES) + "---:|---:|---:|",
]


@dataclass(frozen=True)
class Op:
    kind: str  # conv, dense, pool, gap, flatten, save, add
    fan_in: int = 0  # channels or features
    fan_out: int = 0
    side: int = 0  # of the feature map
    relu: bool = True
    norm: bool = True

    @property
    def macs(self) -> int:
        taps = {"conv": 9 * self.side**2, "dense": 1}.get(self.kind, 0)
        return taps * self.fan_in * self.fan_out


def plan(spec: str) -> list[Op]:
    """The operators of a variant, from its line in VARIANTS."""
    ops: list[Op] = []
    width, side = 1, SIDE
    for kind, number in re.findall(r"([a-z]+)(\d*)", spec):
        out = int(number or 0)
        if kind in ("conv", "dense"):
            ops.append(Op(kind, width, out, side))
            width = out
        elif kind == "res":
            ops.append(Op("save"))
            ops += [Op("conv", out, out, side), Op("conv", out, out, side, relu=False)]
            ops.append(Op("add"))
        else:
            ops.append(Op(kind))
            side = side // 2 if kind == "pool" else side
            width = width * side**2 if kind == "flatten" else width
    return ops + [Op("dense", width, CLASSES, relu=False, norm=False)]


def initial(ops: list[Op], key: jax.Array) -> tuple[list[dict], list[dict]]:
    """Fresh parameters and batch-norm statistics, an entry per conv and dense."""
    params, stats = [], []
    for op in ops:
        if op.kind not in ("conv", "dense"):
            continue
        key, sub = jax.random.split(key)
        shape = (3, 3, op.fan_in, op.fan_out) if op.kind == "conv" else (op.fan_in, op.fan_out)
        spread = np.sqrt(2 / np.prod(shape[:-1]))
        entry = {"w": spread * jax.random.normal(sub, shape), "b": jnp.zeros(op.fan_out)}
        if op.norm:
            entry["g"] = jnp.ones(op.fan_out)
        params.append(entry)
        stats.append({"mean": jnp.zeros(op.fan_out), "var": jnp.ones(op.fan_out)})
    return params, stats


def forward(ops: list[Op], params: list[dict], x: jax.Array) -> tuple[jax.Array, list[dict]]:
    """Training-mode logits (batch statistics) and those statistics. x is N x 28 x 28 x 1."""
    saved, seen, layers = x, [], iter(params)
    for op in ops:
        if op.kind in ("conv", "dense"):
            p = next(layers)
            if op.kind == "conv":
                dims = ("NHWC", "HWIO", "NHWC")
                x = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=dims)
            else:
                x = x @ p["w"]
            axes = tuple(range(x.ndim - 1))
            mean, var = x.mean(axes), x.var(axes)
            seen.append({"mean": mean, "var": var})
            if op.norm:
                x = (x - mean) * (p["g"] * jax.lax.rsqrt(var + BN_EPSILON))
            x = x + p["b"]
            x = jax.nn.relu(x) if op.relu else x
        elif op.kind == "pool":
            n, h, w, c = x.shape
            x = x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
        elif op.kind == "gap":
            x = x.mean((1, 2))
        elif op.kind == "flatten":
            x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # ONNX's order
        elif op.kind == "save":
            saved = x
        elif op.kind == "add":
            x = jax.nn.relu(x + saved)
    return x, seen


def train(name: str, images: np.ndarray, labels: np.ndarray) -> tuple[list[dict], list[dict]]:
    """Parameters and batch-norm statistics of one variant after its epochs."""
    ops, epochs = plan(VARIANTS[name]), EPOCHS[name]
    params, stats = initial(ops, jax.random.key(SEED))
    per_epoch = len(images) * COPIES // BATCH
    rate = optax.cosine_onecycle_schedule(epochs * per_epoch, PEAK_RATE, pct_start=0.2)
    optimizer = optax.adamw(rate, weight_decay=0.02)
    state = optimizer.init(params)

    def loss_of(params: list[dict], x: jax.Array, y: jax.Array) -> tuple[jax.Array, Any]:
        logits, seen = forward(ops, params, x)
        target = optax.smooth_labels(jax.nn.one_hot(y, CLASSES), 0.05)
        return optax.softmax_cross_entropy(logits, target).mean(), seen

    @jax.jit
    def step(params: Any, stats: Any, state: Any, x: jax.Array, y: jax.Array) -> tuple:
        x = x[..., None].astype(jnp.float32) / 255
        (loss, seen), grads = jax.value_and_grad(loss_of, has_aux=True)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        stats = jax.tree.map(lambda a, b: BN_MOMENTUM * a + (1 - BN_MOMENTUM) * b, stats, seen)
        return optax.apply_updates(params, updates), stats, state, loss

    start = time.monotonic()
    for epoch in range(epochs):
        order = np.random.default_rng([SEED, 1, epoch]).permutation(len(images) * COPIES)
        x = corrupt(np.tile(images, (COPIES, 1, 1)), [SEED, 2, epoch])
        y, total = np.tile(labels, COPIES), 0.0
        for at in range(per_epoch):
            pick = order[at * BATCH : (at + 1) * BATCH]
            params, stats, state, loss = step(params, stats, state, x[pick], y[pick])
            total += float(loss)
        spent = time.monotonic() - start
        print(f"{name:>3} epoch {epoch + 1:2}/{epochs} loss {total / per_epoch:.4f} {spent:.0f} s",
              flush=True)
    return jax.tree.map(np.asarray, (params, stats))


class Graph:
    """An ONNX graph that is written layer by layer, batch norm folded into the layer before it."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.current = "image"

    def emit(self, kind: str, *extra: str, **attributes: Any) -> str:
        output = f"{kind.lower()}{len(self.nodes)}"
        node = helper.make_node(kind, [self.current, *extra], [output], output, **attributes)
        self.nodes.append(node)
        self.current = output
        return output

    def constant(self, label: str, value: np.ndarray) -> str:
        self.weights.append(
            numpy_helper.from_array(np.ascontiguousarray(value, np.float32), label))
        return label

    def conv(self, w: np.ndarray, b: np.ndarray) -> str:
        """A padded 3x3 convolution, w in JAX's order."""
        number = len(self.weights) // 2
        b = self.constant(f"b{number}", b)
        w = self.constant(f"w{number}", w.transpose(3, 2, 0, 1))
        return self.emit("Conv", w, b, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def layers(self, ops: list[Op], params: list[dict], stats: list[dict]) -> None:
        saved, layers = self.current, iter(zip(params, stats))
        for op in ops:
            if op.kind in ("conv", "dense"):
                p, s = next(layers)
                gain = p["g"] / np.sqrt(s["var"] + BN_EPSILON) if op.norm else np.float32(1)
                w, b = p["w"] * gain, p["b"] - (s["mean"] * gain if op.norm else 0)
                if op.kind == "conv":
                    self.conv(w, b)
                else:
                    number = len(self.weights) // 2
                    b = self.constant(f"b{number}", b)
                    self.emit("Gemm", self.constant(f"w{number}", w), b)
                if op.relu:
                    self.emit("Relu")
            elif op.kind == "pool":
                self.emit("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
            elif op.kind == "gap":
                self.emit("GlobalAveragePool")
                self.emit("Flatten")
            elif op.kind == "flatten":
                self.emit("Flatten")
            elif op.kind == "save":
                saved = self.current
            elif op.kind == "add":
                self.emit("Add", saved)
                self.emit("Relu")

    def model(self, name: str, image: list[int], outputs: dict[str, list[int]],
              producer: str) -> onnx.ModelProto:
        """The whole, of which the outputs' nodes have been named; sizes are without the batch."""

        def value(label: str, shape: list) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(label, TensorProto.FLOAT, ["batch", *shape])

        told = [value(label, shape) for label, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, name, [value("image", image)], told, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
                                  producer_name=producer)
        onnx.checker.check_model(model, full_check=True)
        return model


def export(name: str, params: list[dict], stats: list[dict]) -> onnx.ModelProto:
    """The variant as ONNX."""
    graph = Graph()
    graph.layers(plan(VARIANTS[name]), params, stats)
    graph.nodes[-1].output[0] = "logits"
    return graph.model(f"digits-{name}", [1, SIDE, SIDE], {"logits": [CLASSES]}, "train.py")


def score(model: onnx.ModelProto, images: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Accuracy on u8 images, and the median single-request time in microseconds (one thread)."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    x = images[:, None].astype(np.float32) / np.float32(255)

    def logits(rows: np.ndarray) -> np.ndarray:
        return session.run(["logits"], {"image": rows})[0]

    one_by_one = np.concatenate([logits(x[i : i + 1]) for i in range(len(x))])
    by_eight = np.concatenate([logits(x[i : i + 8]) for i in range(0, len(x), 8)])
    np.testing.assert_allclose(one_by_one, by_eight, rtol=1e-4, atol=1e-4)
    assert (one_by_one.argmax(1) == by_eight.argmax(1)).all(), "answers depend on the batch"
    times = []
    for i in range(200):
        start = time.perf_counter()
        logits(x[i % len(x)][None])
        times.append(time.perf_counter() - start)
    return float((one_by_one.argmax(1) == labels).mean()), float(np.median(times) * 1e6)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def describe(name: str, out: Path, accuracy: float, of: dict[str, float]) -> tuple[str, str]:
    """A variant's entry in manifest.toml and its row in README.md; `of` is its accuracy by class."""
    path = out / f"digits-{name}.onnx"
    sizes = [int(np.prod(w.dims)) for w in onnx.load(path).graph.initializer]
    macs = sum(op.macs for op in plan(VARIANTS[name]))
    entry = MODEL_ENTRY.format(name=name, sha256=sha256(path), side=SIDE, classes=CLASSES,
                               accuracy=accuracy, parameters=sum(sizes), macs=macs,
                               classes_of_input=", ".join(f"{k} = {a:.6f}" for k, a in of.items()))
    by_class = " | ".join(f"{a:.4f}" for a in of.values())
    row = (f"| digits-{name} | {VARIANTS[name]} | {accuracy:.4f} | {by_class} | {sum(sizes):,} "
           f"| {macs:,} | {path.stat().st_size:,} |")
    return entry, row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", default=",".join(VARIANTS), help="train only these")
    parser.add_argument("--validate", action="store_true", help="tune; write nothing")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the files")
    args = parser.parse_args()
    chosen = args.variants.split(",") if args.variants else []

    train_x, train_y, score_x, score_y = split_originals(args.validate)
    if args.validate:
        images, labels = corrupt(np.tile(score_x, (6, 1, 1)), [SEED, 3]), np.tile(score_y, 6)
        for name in chosen:
            accuracy, spent = score(export(name, *train(name, train_x, train_y)), images, labels)
            print(f"{name:>3} validation accuracy {accuracy:.4f}, {spent:.0f} us", flush=True)
        return

    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    images, labels = corrupt(score_x, [SEED, 0]), score_y
    write_idx(out / "heldout-images.idx3-ubyte", images)
    write_idx(out / "heldout-labels.idx1-ubyte", labels)
    of_class = {k: corrupt(score_x, [SEED, 4, i], how)
                for i, (k, how) in enumerate(INPUT_CLASSES.items())}
    for kind, pictures in of_class.items():
        write_idx(out / f"heldout-{kind}.idx3-ubyte", pictures)
    entries, rows = [], []
    for name in VARIANTS:
        path = out / f"digits-{name}.onnx"
        if name in chosen:
            path.write_bytes(export(name, *train(name, train_x, train_y)).SerializeToString())
        model = onnx.load(path)
        accuracy, spent = score(model, images, labels)
        by_class = {kind: score(model, pictures, labels)[0] for kind, pictures in of_class.items()}
        told = ", ".join(f"{kind} {part:.4f}" for kind, part in by_class.items())
        print(f"{name:>3} held-out accuracy {accuracy:.4f} ({told}), {spent:.0f} us", flush=True)
        entry, row = describe(name, out, accuracy, by_class)
        entries.append(entry)
        rows.append(row)

    head = MANIFEST_HEAD.format(count=len(images),
                                images=sha256(out / "heldout-images.idx3-ubyte"),
                                labels=sha256(out / "heldout-labels.idx1-ubyte"))
    head += "\n".join(CLASS_ENTRY.format(name=kind, images=sha256(out / f"heldout-{kind}.idx3-ubyte"))
                      for kind in INPUT_CLASSES)
    _, mark, scenes = (HERE / "manifest.toml").read_text().partition(SCENES)
    tail = "\n" + mark + scenes if mark else ""
    (out / "manifest.toml").write_text(head + "".join(entries) + tail)
    before, _, rest = (HERE / "README.md").read_text().partition(TABLE_START)
    table = "\n".join([TABLE_START, *TABLE_HEAD, *rows, TABLE_END])
    (out / "README.md").write_text(before + table + rest.partition(TABLE_END)[2])


if __name__ == "__main__":
    main()
