#!/usr/bin/env python3
"""Several services on one worker for minutes, beside floods, and the same services with a worker each on the same core.

    sharing.py [--weir target/release/weir] [--seconds 600] [--core 1]

Four dense models of `models/wide.py` run on ONNX Runtime on one thread, from some 2 ms to some 30 ms a request. Each service has
a reserved stream, never two misses in a row, at 0.95 of what `weir certify` says all of them may send together; three of them
are flooded as best effort with twice what the worker could do for one alone. Then the same streams and floods meet four
services with a worker each, all on that core: each is planned as if it were alone there, which nobody checks. Prints tables
in Markdown. Needs NumPy, onnx and onnxruntime: `tests/deps.sh bench FOLDER`.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOAD = 0.95
# Width of the model, deadline, and the share of the worker that its stream has to begin with.
SERVICES = {"stop": (1800, "150ms", 0.1), "track": (2900, "200ms", 0.1), "lanes": (4500, "300ms", 0.1), "scene": (7200, "500ms", 0.1)}
FLOODED = ["stop", "track", "scene"]
CONFIG = """
[daemon]
socket = "{folder}/s"
models = "{models}/manifest.toml"
profile = "{folder}/profile.json"
onnxruntime = "{library}"
bus = "off"
max-frame = 1048576
[safe-mode]
hold = "1s"
clean = "1s"
"""
DEVICE = """
[[device]]
name = "core"
cores = [{core}]
"""
SERVICE = """
[[service]]
name = "{name}"
{place}
model = "digits-{width}"
engine = "ort-cpu"
deadline = "{deadline}"
guard = "30ms"
queue = 4096
max-batch = 2
[[service.stream]]
name = "line"
constraints = [{{ row-miss = 1 }}]
arrivals = [{{ periodic = {{ period = "{period}us", jitter = "30ms" }} }}]
"""


def config(folder, args, models, periods, shared):
    """The configuration of all services, on one device or each by itself."""
    library = models.parent / "onnxruntime/libonnxruntime.so"
    text = CONFIG.format(folder=folder, models=models, library=library)
    text += DEVICE.format(core=args.core) if shared else ""
    place = 'device = "core"' if shared else f"cores = [{args.core}]"
    for name, (width, deadline, _) in SERVICES.items():
        text += SERVICE.format(name=name, place=place, width=width, deadline=deadline, period=int(1e6 * periods[name]))
    path = folder / ("shared.toml" if shared else "apart.toml")
    path.write_text(text)
    return path


def run(*command, check=True):
    """The standard output of a command."""
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def played(args, path, socket, rates, floods):
    """Serves `path` and loads it: the report on each reserved stream, and what the floods got."""
    daemon = subprocess.Popen([args.weir, "serve", "--quiet", path])
    try:
        while not socket.exists():
            if daemon.poll() is not None:
                return None
            time.sleep(0.1)
        load = [args.weir, "load", "--socket", socket, "--duration", f"{args.seconds}s", "--json", "--quiet"]
        commands = {(name, "line"): [*load, name, "--reserved", "--stream", "line", "--rate", f"{rates[name]}",
                                     "--constraint", "row-miss(1)"] for name in SERVICES}
        commands |= {(name, "flood"): [*load, name, "--best-effort", "--stream", "flood", "--rate", f"{floods[name]:.1f}"]
                     for name in FLOODED}
        children = {key: subprocess.Popen(command, stdout=subprocess.PIPE) for key, command in commands.items()}
        return {key: json.loads(child.communicate()[0]) for key, child in children.items()}
    finally:
        daemon.terminate()
        daemon.wait()


def table(title, reports):
    """A line for each stream."""
    print(f"\n{title}\n\n| service | stream | sent/s | missed | in a row | told |\n|---|---|---:|---:|---:|---|")
    for (name, stream), report in reports.items():
        phase = report["phases"][0]
        causes = [change["cause"] for change in report["safe_mode"] + report["suspension"] if change["entered"]]
        told = ", ".join(f"{causes.count(cause)} × {cause}" for cause in sorted(set(causes))) or "nothing"
        held = all(judged["held"] for judged in phase["constraints"])
        row = phase["longest_miss_run"] if stream == "line" else "-"
        print(f"| {name} | {stream} | {phase['sent'] / phase['seconds']:.1f} | {phase['missed']} of {phase['sent']} "
              f"| {row}{'' if held else ' VIOLATED'} | {told} |", flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--weir", type=lambda text: pathlib.Path(text).resolve(), default=ROOT / "target/release/weir")
    args.add_argument("--seconds", type=int, default=600)
    args.add_argument("--core", type=int, default=1)
    args = args.parse_args()
    models = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "dense"
    if not (models / "manifest.toml").exists():
        widths = ",".join(str(width) for width, *_ in SERVICES.values())
        run(sys.executable, ROOT / "models/wide.py", models, "--widths", widths)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        first = config(folder, args, models, dict.fromkeys(SERVICES, 10.0), shared=True)
        run(args.weir, "profile", first, "--limit", "1m")
        times = {entry["model"]: entry["batches"][0] for entry in json.loads((folder / "profile.json").read_text())["entries"]}
        print("| service | model | deadline | median | P(1) |\n|---|---|---|---:|---:|")
        bounds, medians = {}, {}
        for name, (width, deadline, _) in SERVICES.items():
            one = times[f"digits-{width}"]
            bounds[name], medians[name] = one["bound_ns"] / 1e9, one["p50_ns"] / 1e9
            print(f"| {name} | digits-{width} | {deadline} | {1e3 * medians[name]:.1f} ms | {1e3 * bounds[name]:.1f} ms |")
        periods = {name: bounds[name] / share for name, (*_, share) in SERVICES.items()}
        path = config(folder, args, models, periods, shared=True)
        run(args.weir, "certify", path, "--output", folder / "c.json", check=False)
        claim = json.loads((folder / "c.json").read_text())["devices"][0]
        scale = LOAD * float(claim["max_load_scale"])
        periods = {name: period / scale for name, period in periods.items()}
        shared = config(folder, args, models, periods, shared=True)
        print("\n```\n" + run(args.weir, "plan", shared).split("device core", 1)[1].join(["device core", "```"]))
        rates = {name: 1 / period for name, period in periods.items()}
        floods = {name: 2 / medians[name] for name in FLOODED}
        reports = played(args, shared, folder / "s", rates, floods)
        table(f"One worker for all, {args.seconds} s", reports)
        apart = config(folder, args, models, periods, shared=False)
        reports = played(args, apart, folder / "s", rates, floods)
        if reports is None:
            print("\nWith a worker each the same streams are refused.")
        else:
            table(f"A worker each on the same core, {args.seconds} s", reports)


if __name__ == "__main__":
    main()
