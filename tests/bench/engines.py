#!/usr/bin/env python3
"""The median time of each batch size on each engine, by `weir profile`: the shipped models and two real networks.

Prints one table a model in Markdown. The networks (ONNX's test data, which tests/fetch.sh fetches) have one image a
batch in their files; here they get a symbol for it. Needs nothing but Python.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORKS = {"resnet50": [1000], "squeezenet": [1000, 1, 1]}


def fields(data):
    """The fields of a protobuf message: number, kind, value."""
    at, out = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            value = varint()
        else:
            length = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            value = data[at : at + length]
            at += length
        out.append((number, kind, value))
    return out


def encoded(parts):
    def varint(value):
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes(out) + bytes([value])

    length = lambda kind, value: varint(len(value)) if kind == 2 else b""
    body = lambda kind, value: varint(value) if kind == 0 else length(kind, value) + value
    return b"".join(varint(number << 3 | kind) + body(kind, value) for number, kind, value in parts)


def changed(data, path, change):
    """The message with the first field at each step of `path` changed."""
    if not path:
        return change(data)
    parts = fields(data)
    place = next((i for i, part in enumerate(parts) if part[0] == path[0]), None)
    if place is not None:
        number, kind, value = parts[place]
        parts[place] = (number, kind, changed(value, path[1:], change))
    return encoded(parts)


def member(data, number):
    return next(value for found, _, value in fields(data) if found == number)


def batched(model):
    """The model with a batch dimension N, and the names of its input and output."""
    parts = fields(model)
    place = next(i for i, part in enumerate(parts) if part[0] == 7)
    graph = fields(parts[place][2])
    weights = {member(value, 8) for number, _, value in graph if number == 5}
    nodes = [fields(value) for number, _, value in graph if number == 1]
    operator = lambda node: next(value for number, _, value in node if number == 4)
    inputs = lambda node: [value for number, _, value in node if number == 1]
    shapes = {inputs(node)[1] for node in nodes if operator(node) == b"Reshape"}
    names, out = {}, []
    for number, kind, value in graph:
        if number in (11, 12) and member(value, 1) not in weights:
            names[number] = member(value, 1).decode()
            value = changed(value, [2, 1, 2, 1], lambda _: encoded([(2, 2, b"N")]))
        if number == 5 and member(value, 8) in shapes:
            # A 1 for the batch becomes a 0: as many as come in.
            for field, one in ((7, b"\x01"), (9, b"\x01" + bytes(7))):
                zero = lambda data, one=one: bytes(len(one)) + data[len(one) :] if data.startswith(one) else data
                value = changed(value, [field], zero)
        if number != 13:
            out.append((number, kind, value))
    parts[place] = (7, 2, encoded(out))
    return encoded(parts), names[11], names[12]


def manifest(folder, target, names):
    """A manifest of the shipped models and the networks among `names`."""
    for file in (ROOT / "models").iterdir():
        if file.name != "manifest.toml":
            (folder / file.name).symlink_to(file)
    text = (ROOT / "models/manifest.toml").read_text()
    for name, shape in NETWORKS.items():
        if name not in names:
            continue
        source = target / "onnx-models" / f"light_{name}.onnx"
        model, input_name, output_name = batched(source.read_bytes())
        (folder / f"{name}.onnx").write_bytes(model)
        text += f"""
[[model]]
name = "{name}"
file = "{name}.onnx"
sha256 = "{hashlib.sha256(model).hexdigest()}"
input = {{ name = "{input_name}", type = "f32", shape = [3, 224, 224] }}
output = {{ name = "{output_name}", type = "f32", shape = {shape} }}
accuracy = 0.5
parameters = 0
macs = 0
"""
    (folder / "manifest.toml").write_text(text)


def profile(weir, folder, engine, model, batch, samples):
    """How each batch size is run, and its median, in nanoseconds."""
    (folder / "weir.toml").write_text(
        f'[daemon]\nsocket = "s"\nmodels = "manifest.toml"\nprofile = "{engine}-{model}.json"\n'
        f'realtime = false\nbus = "off"\n'
        f'[[service]]\nname = "x"\nmodel = "{model}"\nengine = "{engine}"\ndeadline = "60s"\nmax-batch = {batch}\n'
    )
    # A tenth of the runs that are asked for, and no wait for the tails: here only the medians count.
    command = [weir, "profile", str(folder / "weir.toml"), "--quick", "--samples", str(10 * samples)]
    ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(f"{engine}, {model}: {ran.stderr}")
    entry = json.loads((folder / f"{engine}-{model}.json").read_text())["entries"][0]
    return {b["batch"]: (b["mode"], b["p50_ns"]) for b in entry["batches"]}


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--weir", default="target/release/weir")
    args.add_argument("--engines", default="tract,ort-cpu")
    args.add_argument("--models", default="digits-xs,digits-s,digits-m,digits-l,digits-xl,digits-xxl,squeezenet,resnet50")
    args.add_argument("--batches", default="1,2,4,8,16")
    args.add_argument("--samples", type=int, default=300, help="runs of each size; a fiftieth for the networks")
    args = args.parse_args()
    weir = str(pathlib.Path(args.weir).resolve())
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    engines, models = args.engines.split(","), args.models.split(",")
    batches = [int(batch) for batch in args.batches.split(",")]
    print("| model | engine | " + " | ".join(f"b = {b}" for b in batches) + " |")
    print("|---|---|" + "---|" * len(batches), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        manifest(folder, target, models)
        for model in models:
            samples = max(args.samples // (50 if model in NETWORKS else 1), 2)
            for engine in engines:
                times = profile(weir, folder, engine, model, batches[-1], samples)
                cell = lambda b: f"{times[b][1] / 1e3:.0f} µs" + (" loop" if times[b][0] == "loop" else "")
                print(f"| {model} | {engine} | " + " | ".join(map(cell, batches)) + " |", flush=True)


if __name__ == "__main__":
    main()
