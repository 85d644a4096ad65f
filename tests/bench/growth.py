#!/usr/bin/env python3
"""How admission grows, with the streams and with the load: prints the tables and draws docs/admission.svg.

    tests/bench/growth.py           measures, then prints and draws
    tests/bench/growth.py --last    prints and draws what was measured last
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PICTURE = ROOT / "docs" / "admission.svg"
COLOURS = {"one kind": "#1f6fb2", "two kinds": "#c05a1c", "refined": "#3b8a4f"}
# Of the picture, in microseconds, and of one panel, in pixels.
LEAST, MOST, AIM = 0.01, 100_000, 10_000
WIDTH, HEIGHT, LEFT, TOP = 330, 260, 70, 40


def medians(over):
    """By variant, (x, microseconds) in order of x."""
    found = {}
    for path in (TARGET / "criterion" / "admit").glob(f"{over}_*/*/new/benchmark.json"):
        what = json.loads(path.read_text())
        estimates = json.loads(path.with_name("estimates.json").read_text())
        name = what["function_id"].split("/")[1]
        found.setdefault(name, []).append((int(what["value_str"]), estimates["median"]["point_estimate"] / 1e3))
    return {name: sorted(found[name]) for name in COLOURS}


def shown(us):
    return f"{us:.2f} µs" if us < 10 else f"{us:.0f} µs" if us < 1000 else f"{us / 1000:.1f} ms"


def table(head, label, lines):
    print(f"| {head} | " + " | ".join(COLOURS) + " |")
    print("|---:|" + "---:|" * len(COLOURS))
    for i, (x, _) in enumerate(lines["one kind"]):
        print(f"| {label(x)} | " + " | ".join(shown(lines[name][i][1]) for name in COLOURS) + " |")
    print()


def panel(left, title, position, label, lines):
    def at(x):
        first, last = (position(lines["one kind"][i][0]) for i in (0, -1))
        return left + WIDTH * (position(x) - first) / (last - first)

    def up(us):
        return TOP + HEIGHT * (1 - math.log(us / LEAST) / math.log(MOST / LEAST))

    yield f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 40}" text-anchor="middle">{title}</text>'
    for power in range(round(math.log10(LEAST)), round(math.log10(MOST)) + 1):
        us, colour = 10.0**power, "#d33" if 10**power == AIM else "#ddd"
        name = f"{us * 1000:g} ns" if us < 1 else f"{us:g} µs" if us < 1000 else f"{us / 1000:g} ms"
        yield f'<path d="M{left} {up(us):.1f}h{WIDTH}" stroke="{colour}"/>'
        yield f'<text x="{left - 6}" y="{up(us) + 4:.1f}" text-anchor="end">{name}</text>'
    for x, _ in lines["one kind"]:
        yield f'<text x="{at(x):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{label(x)}</text>'
    for name, points in lines.items():
        path = " ".join(f"{at(x):.1f},{up(us):.1f}" for x, us in points)
        yield f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>'
        yield from (f'<circle cx="{at(x):.1f}" cy="{up(us):.1f}" r="3" fill="{COLOURS[name]}"/>' for x, us in points)


def draw(streams, load):
    width, height = 2 * (WIDTH + LEFT) + 30, TOP + HEIGHT + 55
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for i, (name, colour) in enumerate(COLOURS.items()):
        lines.append(f'<text x="{LEFT + 110 * i}" y="20" fill="{colour}" font-weight="bold">{name}</text>')
    lines += panel(LEFT, "streams, at 70 % of capacity", math.log, str, streams)
    percent = lambda x: f"{x / 10:g} %"
    spare = lambda x: -math.log(1 - x / 1000)
    lines += panel(2 * LEFT + WIDTH + 10, "load of 64 streams, by what is spare", spare, percent, load)
    PICTURE.write_text("\n".join([*lines, "</svg>", ""]))


def main():
    if "--last" not in sys.argv[1:]:
        command = [os.environ.get("CARGO", "cargo"), "bench", "-p", "rt-core", "--bench", "scheduler", "--", "admit/"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    streams, load = medians("streams"), medians("load")
    table("streams, 70 % of capacity", str, streams)
    table("load of 64 streams", lambda x: f"{x / 10:g} %", load)
    draw(streams, load)


main()
