#!/usr/bin/env python3
"""Writes typed.onnx, a model of every type of tensor, with nothing but Python, and its manifest.

Per request: image u8 [2, 3], ids i64 [2], half f16 [3] come back as they are; score f32 [1] is doubled.
"""
import hashlib
import pathlib

F32, U8, I64, F16 = 1, 2, 7, 10


def varint(value):
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, *parts):
    body = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def tensor(field, name, element, shape):
    dimensions = [message(1, message(2, "N"))] + [message(1, number(1, size)) for size in shape]
    return message(field, message(1, name), message(2, message(1, number(1, element), message(2, *dimensions))))


def node(operation, inputs, output):
    return message(1, *[message(1, name) for name in inputs], message(2, output), message(4, operation))


TENSORS = [("image", U8, [2, 3]), ("ids", I64, [2]), ("half", F16, [3]), ("score", F32, [1])]
NAMES = {F32: "f32", U8: "u8", I64: "i64", F16: "f16"}
graph = [node("Identity", [name], name + "_out") for name, _, _ in TENSORS[:3]]
graph += [node("Add", ["score", "score"], "score_out"), message(2, "typed")]
graph += [tensor(11, *t) for t in TENSORS] + [tensor(12, name + "_out", *rest) for name, *rest in TENSORS]
model = number(1, 8) + message(7, *graph) + message(8, number(2, 17))
folder = pathlib.Path(__file__).parent
(folder / "typed.onnx").write_bytes(model)
table = '    {{ name = "{}", type = "{}", shape = {} }},\n'.format
side = lambda suffix: "".join(table(name + suffix, NAMES[e], shape) for name, e, shape in TENSORS)
(folder / "manifest.toml").write_text(f'''# Written by make.py: a model of every type of tensor, for tests.
[[model]]
name = "typed"
file = "typed.onnx"
sha256 = "{hashlib.sha256(model).hexdigest()}"
input = [
{side("")}]
output = [
{side("_out")}]
accuracy = 1.0
parameters = 0
macs = 0
''')
