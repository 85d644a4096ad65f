#!/usr/bin/env python3
"""Writes typed.onnx and numbers.onnx, models of every type of tensor, with nothing but Python, and their manifest.

Per request: image u8 [2, 3], ids i64 [2], half f16 [3] come back as they are; score f32 [1] is doubled. So do the second
model's double f64 [2], small i8 [3], count i32 [2] and flags bool [3], none of them doubled.
"""
import hashlib
import pathlib

F32, U8, I8, I32, I64, BOOL, F16, F64 = 1, 2, 3, 6, 7, 9, 10, 11


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


TYPED = [("image", U8, [2, 3]), ("ids", I64, [2]), ("half", F16, [3]), ("score", F32, [1])]
NUMBERS = [("double", F64, [2]), ("small", I8, [3]), ("count", I32, [2]), ("flags", BOOL, [3])]
NAMES = {F32: "f32", U8: "u8", I8: "i8", I32: "i32", I64: "i64", BOOL: "bool", F16: "f16", F64: "f64"}
FOLDER = pathlib.Path(__file__).parent


def entry(name, tensors, doubled=None):
    """Writes the model; its entry in the manifest."""
    graph = [node("Identity", [tensor], tensor + "_out") for tensor, _, _ in tensors if tensor != doubled]
    graph += [node("Add", [doubled, doubled], doubled + "_out")] if doubled else []
    graph += [message(2, name)]
    graph += [tensor(11, *t) for t in tensors] + [tensor(12, t + "_out", *rest) for t, *rest in tensors]
    model = number(1, 8) + message(7, *graph) + message(8, number(2, 17))
    (FOLDER / f"{name}.onnx").write_bytes(model)
    table = '    {{ name = "{}", type = "{}", shape = {} }},\n'.format
    side = lambda suffix: "".join(table(t + suffix, NAMES[e], shape) for t, e, shape in tensors)
    return f"""
[[model]]
name = "{name}"
file = "{name}.onnx"
sha256 = "{hashlib.sha256(model).hexdigest()}"
input = [
{side("")}]
output = [
{side("_out")}]
"""


text = "# Written by make.py: models of every type of tensor, for tests.\n"
text += entry("typed", TYPED, "score") + entry("numbers", NUMBERS)
(FOLDER / "manifest.toml").write_text(text)
