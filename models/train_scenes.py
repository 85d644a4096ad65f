#!/usr/bin/env python3
"""Train the detector of digits in scenes; write its ONNX file, held-out scenes, manifest entry and table.

    python3.11 -m venv .venv && .venv/bin/pip install -r requirements.txt
    .venv/bin/python train_scenes.py                # train, write all files here
    .venv/bin/python train_scenes.py --keep         # score the detector that is there, write the rest
    .venv/bin/python train_scenes.py --validate     # for tuning: scenes of the training originals only,
                                                    # some of them kept for scoring; write nothing

Scenes are composed of the originals of data.py with their split: no held-out original is in a scene that is
trained on. What the detector finds is cut out as the daemon's adapter does it, and read by the digits-* family.
"""

import argparse
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

from data import SEED, split_originals, write_idx
from scenes import BOX, COLUMNS, MOST, ROWS, Composition, Scenes, compose, corners, crop
from train import BN_MOMENTUM, SCENES, VARIANTS, Graph, Op, forward, initial, plan, sha256

HERE = Path(__file__).resolve().parent
NAME = "scenes-detect"
LAYERS = "conv12 pool conv20 pool conv32 conv32 conv32 conv32"
STRIDE = 4  # pixels of the picture to a cell of the grid
GRID = (ROWS // STRIDE, COLUMNS // STRIDE)
CELLS = GRID[0] * GRID[1]
USUAL = BOX * sum(Composition().cell) / 2  # side of a box, from which the detector tells how it differs
EPOCHS, PER_EPOCH, BATCH = 6, 4000, 32
PEAK_RATE = 4e-3
SPREAD = 0.8  # of the peak around a digit's middle, in cells of the grid
APART = 5  # a cell that is not the largest of so many by so many tells nothing
THRESHOLD = 0.5
HELDOUT = 160
READERS = [f"digits-{name}" for name in VARIANTS]

ENTRY = """\
{mark}, with the scenes heldout-scenes.idx3-ubyte
# ({count} of them, by the held-out originals of the same data; SHA-256 {images})
# and what is in them, heldout-places.idx3-ubyte (SHA-256 {places}).
# accuracy is the share of these scenes in which it finds every digit and nothing else.
[[model]]
name = "{name}"
file = "{name}.onnx"
sha256 = "{sha256}"
input = {{ name = "image", type = "f32", shape = [1, {rows}, {columns}] }}
output = [
    {{ name = "boxes", type = "f32", shape = [{cells}, 4] }},
    {{ name = "scores", type = "f32", shape = [{cells}] }},
]
accuracy = {accuracy:.6f}
parameters = {parameters}
macs = {macs}
"""
TABLE_START, TABLE_END = "<!-- scenes: written by train_scenes.py -->", "<!-- end of scenes -->"


def layers() -> list[Op]:
    """All of the detector: its last layer gives a score, and how middle and size differ from the grid's."""
    body = plan(LAYERS)[:-1]
    return [*body, Op("conv", body[-1].fan_out, 4, body[-1].side, relu=False, norm=False)]


def macs() -> int:
    """Multiplications of one picture."""
    total, pixels = 0, ROWS * COLUMNS
    for op in layers():
        pixels = pixels // 4 if op.kind == "pool" else pixels
        total += 9 * op.fan_in * op.fan_out * pixels if op.kind == "conv" else 0
    return total


def targets(scenes: Scenes) -> tuple[np.ndarray, np.ndarray]:
    """Of each cell of the grid how near a middle it is (0..1), and what is to be told there (dx, dy, size)."""
    rows, columns = np.mgrid[: GRID[0], : GRID[1]].astype(np.float32) + 0.5
    count = len(scenes.digits)
    near = np.zeros((count, *GRID), np.float32)
    told = np.zeros((count, *GRID, 3), np.float32)
    for at in range(MOST):
        x, y, side = (scenes.places[:, at, i, None, None].astype(np.float32) for i in range(3))
        dx, dy = x / STRIDE - columns, y / STRIDE - rows
        peak = np.exp(-(dx**2 + dy**2) / (2 * SPREAD**2))
        # The cell that has the middle is the peak, wherever in it that is.
        inside = (np.abs(dx) <= 0.5) & (np.abs(dy) <= 0.5)
        peak = np.where(inside, 1, peak) * (scenes.digits[:, at, None, None] >= 0)
        nearer = peak > near
        near = np.where(nearer, peak, near)
        size = np.broadcast_to((side - USUAL) / (2 * STRIDE), dx.shape)
        told = np.where(nearer[..., None], np.stack([dx, dy, size], -1), told)
    return near, told


def loss(out: jax.Array, near: jax.Array, told: jax.Array) -> jax.Array:
    """Focal loss of the peaks (CenterNet's), and how far what is told is off around them."""
    logit = out[..., 0]
    p, log_p, log_not = jax.nn.sigmoid(logit), jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)
    hit = near == 1
    focal = jnp.where(hit, (1 - p) ** 2 * log_p, (1 - near) ** 4 * p**2 * log_not)
    count = jnp.maximum(hit.sum(), 1)
    off = jnp.abs(out[..., 1:] - told).sum(-1) * (near > 0.3) * near
    return (-focal.sum() + off.sum()) / count


def train(originals: np.ndarray, labels: np.ndarray, epochs: int) -> tuple[list[dict], list[dict]]:
    ops = layers()
    params, stats = initial(ops, jax.random.key(SEED))
    params[-1]["w"] = params[-1]["w"] * 0.1
    params[-1]["b"] = params[-1]["b"].at[0].set(-3.0)
    per_epoch = PER_EPOCH // BATCH
    rate = optax.cosine_onecycle_schedule(epochs * per_epoch, PEAK_RATE, pct_start=0.2)
    optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(rate, weight_decay=0.02))
    state = optimizer.init(params)

    def loss_of(params: list[dict], x: jax.Array, near: jax.Array, told: jax.Array) -> tuple[jax.Array, Any]:
        out, seen = forward(ops, params, x)
        return loss(out, near, told), seen

    @jax.jit
    def step(params: Any, stats: Any, state: Any, x: jax.Array, near: jax.Array, told: jax.Array) -> tuple:
        x = x[..., None].astype(jnp.float32) / 255
        (value, seen), grads = jax.value_and_grad(loss_of, has_aux=True)(params, x, near, told)
        updates, state = optimizer.update(grads, state, params)
        stats = jax.tree.map(lambda a, b: BN_MOMENTUM * a + (1 - BN_MOMENTUM) * b, stats, seen)
        return optax.apply_updates(params, updates), stats, state, value

    start = time.monotonic()
    for epoch in range(epochs):
        scenes = compose(originals, labels, PER_EPOCH, [SEED, 5, epoch])
        near, told = targets(scenes)
        total = 0.0
        for at in range(0, per_epoch * BATCH, BATCH):
            part = slice(at, at + BATCH)
            params, stats, state, value = step(params, stats, state, scenes.images[part], near[part], told[part])
            total += float(value)
        print(f"epoch {epoch + 1:2}/{epochs} loss {total / per_epoch:.4f} "
              f"{time.monotonic() - start:.0f} s", flush=True)
    return jax.tree.map(np.asarray, (params, stats))


def export(params: list[dict], stats: list[dict]) -> onnx.ModelProto:
    """The detector as ONNX: boxes in pixels, and scores that are 0 but at the peaks."""
    graph, last = Graph(), params[-1]
    graph.layers(layers()[:-1], params[:-1], stats[:-1])
    trunk = graph.current
    # Corners are sums of what the last layer tells, so they are told by it; the grid is added.
    w, b = last["w"], last["b"]
    corner = {"left": (1, -1), "top": (2, -1), "right": (1, 1), "bottom": (2, 1)}
    boxes = [STRIDE * (w[..., along] + sign * w[..., 3]) for along, sign in corner.values()]
    biases = [STRIDE * (b[along] + sign * b[3]) + sign * USUAL / 2 for along, sign in corner.values()]
    graph.conv(np.stack(boxes, -1), np.array(biases))
    rows, columns = STRIDE * (np.mgrid[: GRID[0], : GRID[1]] + 0.5)
    graph.emit("Add", graph.constant("grid", np.stack([columns, rows, columns, rows])[None]))
    graph.emit("Transpose", perm=[0, 2, 3, 1])
    shape = onnx.numpy_helper.from_array(np.array([-1, CELLS, 4], np.int64), "shape")
    graph.weights.append(shape)
    graph.emit("Reshape", "shape")
    graph.nodes[-1].output[0] = "boxes"
    graph.current = trunk
    graph.conv(w[..., :1], b[:1])
    peaks = graph.emit("Sigmoid")
    around = APART // 2
    graph.emit("MaxPool", kernel_shape=[APART, APART], pads=[around] * 4, strides=[1, 1])
    graph.emit("Equal", peaks)
    graph.emit("Cast", to=onnx.TensorProto.FLOAT)
    graph.emit("Mul", peaks)
    graph.emit("Flatten")
    graph.nodes[-1].output[0] = "scores"
    outputs = {"boxes": [CELLS, 4], "scores": [CELLS]}
    return graph.model(NAME, [1, ROWS, COLUMNS], outputs, "train_scenes.py")


def session(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, ["CPUExecutionProvider"])


def detect(model: onnx.ModelProto, images: np.ndarray, threshold: float) -> list[np.ndarray]:
    """The boxes that are found in each picture, at most MOST, the best first."""
    run = session(model.SerializeToString())
    x = images[:, None].astype(np.float32) / np.float32(255)

    def answers(size: int) -> list[np.ndarray]:
        parts = [run.run(["boxes", "scores"], {"image": x[at : at + size]}) for at in range(0, len(x), size)]
        return [np.concatenate(part) for part in zip(*parts)]

    boxes, scores = answers(1)
    for one, several in zip((boxes, scores), answers(7)):
        np.testing.assert_allclose(one, several, rtol=1e-4, atol=1e-3)
    found = []
    for box, score in zip(boxes, scores):
        order = np.argsort(-score, kind="stable")
        found.append(box[[row for row in order if score[row] >= threshold][:MOST]])
    return found


@dataclass
class Score:
    """What was found and read."""

    precision: float
    recall: float
    exact: float  # share of scenes in which all digits are found and nothing else
    read: dict[str, tuple[float, float]]  # by reader: of digits, and of whole scenes


def overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.clip(high - low, 0, None).prod(-1)
    return shared / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(-1) - shared)


def score(found: list[np.ndarray], scenes: Scenes, readers: dict[str, onnx.ModelProto]) -> Score:
    """A digit is found by the box that overlaps its own most, by half or more; a scene is read right if the digits
    from left to right are those that are there."""
    hits = boxes = digits = exact = 0
    right, whole = dict.fromkeys(readers, 0), dict.fromkeys(readers, 0)
    runs = {name: session(model.SerializeToString()) for name, model in readers.items()}
    truth = np.round(corners(scenes.places))
    for image, its_digits, its_places, its_found in zip(scenes.images, scenes.digits, truth, found):
        there = its_digits >= 0
        labels, places = its_digits[there], its_places[there]
        matched: dict[int, int] = {}
        for at, place in enumerate(places):
            overlaps = overlap(place, its_found) if len(its_found) else np.zeros(1)
            if overlaps.max() >= 0.5 and int(overlaps.argmax()) not in matched.values():
                matched[at] = int(overlaps.argmax())
        hits, boxes, digits = hits + len(matched), boxes + len(its_found), digits + len(labels)
        exact += len(matched) == len(its_found) == len(labels)
        crops = [crop(image.astype(np.float32) / np.float32(255), box) for box in its_found]
        order = np.argsort([box[0] + box[2] for box in its_found], kind="stable")
        for name, run in runs.items():
            read = []
            if crops:
                read = run.run(["logits"], {"image": np.stack(crops)[:, None]})[0].argmax(1)
            right[name] += sum(read[box] == labels[at] for at, box in matched.items())
            whole[name] += [read[at] for at in order] == list(labels)
    count = len(scenes.digits)
    read = {name: (right[name] / digits, whole[name] / count) for name in readers}
    return Score(hits / max(boxes, 1), hits / digits, exact / count, read)


def report(result: Score) -> list[str]:
    """The table of README.md."""
    rows = [
        "| What | Share |",
        "|---|---:|",
        f"| boxes that are digits (precision) | {result.precision:.4f} |",
        f"| digits that are found (recall) | {result.recall:.4f} |",
        f"| scenes of which every digit is found and nothing else | {result.exact:.4f} |",
    ]
    for name, (digits, whole) in result.read.items():
        rows.append(f"| digits that {name} reads right, of all that are there | {digits:.4f} |")
        rows.append(f"| scenes that are read whole with {name} | {whole:.4f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--validate", action="store_true", help="tune; write nothing")
    parser.add_argument("--keep", action="store_true", help="score the detector that is there")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    args = parser.parse_args()

    train_x, train_y, score_x, score_y = split_originals(args.validate)
    path = HERE / f"{NAME}.onnx"
    model = onnx.load(path) if args.keep else export(*train(train_x, train_y, args.epochs))
    readers = {name: onnx.load(HERE / f"{name}.onnx") for name in READERS}
    if args.validate:
        scenes = compose(score_x, score_y, 600, [SEED, 6])
        for threshold in (0.2, 0.3, 0.4, 0.5, 0.6):
            print(threshold, score(detect(model, scenes.images, threshold), scenes, readers), flush=True)
        return

    scenes = compose(score_x, score_y, HELDOUT, [SEED, 7])
    images, places = HERE / "heldout-scenes.idx3-ubyte", HERE / "heldout-places.idx3-ubyte"
    write_idx(images, scenes.images)
    # Of each digit which one it is and its box in whole pixels; 255 where there is none.
    boxes = np.where(scenes.digits[..., None] >= 0, np.round(corners(scenes.places)), 255)
    write_idx(places, np.concatenate([np.where(scenes.digits >= 0, scenes.digits, 255)[..., None], boxes], -1))
    path.write_bytes(model.SerializeToString())
    result = score(detect(model, scenes.images, THRESHOLD), scenes, readers)
    print(*report(result), sep="\n", flush=True)
    sizes = [int(np.prod(w.dims)) for w in model.graph.initializer if w.name not in ("grid", "shape")]
    entry = ENTRY.format(mark=SCENES, name=NAME, rows=ROWS, columns=COLUMNS, cells=CELLS, count=HELDOUT, macs=macs(),
                         sha256=sha256(path), images=sha256(images), places=sha256(places),
                         accuracy=result.exact, parameters=sum(sizes))
    manifest = HERE / "manifest.toml"
    manifest.write_text(manifest.read_text().partition(SCENES)[0].rstrip() + "\n\n" + entry)
    readme = HERE / "README.md"
    before, _, rest = readme.read_text().partition(TABLE_START)
    readme.write_text("\n".join([before + TABLE_START, *report(result), TABLE_END]) + rest.partition(TABLE_END)[2])


if __name__ == "__main__":
    main()
