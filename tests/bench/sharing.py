#!/usr/bin/env python3
"""Several services on one worker for minutes, beside floods, and the same services with a worker each on the same core or GPU.

    sharing.py [--weir target/release/weir] [--seconds 600] [--core 1 | --gpu 0] [--engine ort-cpu|tract|ort-cuda] [--models FOLDER]
               [--deadlines 150,200,300,500] [--guard 30] [--max-batch 2] [--sides 64,100,160,256]

Four networks of `models/convolution.py` run on one thread, from some 2 ms to some 30 ms a request, or on a GPU. Each service has a reserved
stream, never two misses in a row, at 0.95 of what `weir certify` says all of them may send together; three of them are flooded
as best effort with twice what the worker could do for one alone. Then the same streams and floods meet four services with a
worker each, all on that core or GPU: each is planned as if it were alone there, which nobody checks. Requests come from the other
cores. Real-time throttling must be off (sysctl kernel.sched_rt_runtime_us=-1): a core that is always busy is held up by it.
Prints tables in Markdown. Needs the files of models/convolution.py in FOLDER, by default images in the target folder, or what
makes them there: NumPy and onnx (`tests/deps.sh bench FOLDER`).
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
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
LOAD, SHARE = 0.95, 0.1
SERVICES = ["stop", "track", "lanes", "scene"]
FLOODED = ["stop", "track", "scene"]
CONFIG = """
[daemon]
socket = "{folder}/s"
models = "{models}/manifest.toml"
profile = "{folder}/profile.json"
{library}
bus = "off"
max-frame = 1048576
[safe-mode]
hold = "1s"
clean = "1s"
"""
DEVICE = """
[[device]]
name = "core"
{place}
"""
SERVICE = """
[[service]]
name = "{name}"
{place}
model = "image-{side}"
engine = "{engine}"
deadline = "{deadline}ms"
guard = "{guard}ms"
queue = 4096
max-batch = {batch}
[[service.stream]]
name = "line"
constraints = [{{ row-miss = 1 }}]
arrivals = [{{ periodic = {{ period = "{period}us", jitter = "{jitter}us" }} }}]
"""


def config(folder, args, periods, shared, scale=1.0):
    """The configuration of all services, on one device or each by itself."""
    library = TARGET / "onnxruntime/libonnxruntime.so" if args.library is None else args.library.resolve()
    library = f'onnxruntime = "{library}"' if args.engine.startswith("ort") else ""
    text = CONFIG.format(folder=folder, models=args.models, library=library)
    place = f"cores = [{args.core}]" if args.gpu is None else f"gpu = {args.gpu}"
    text += DEVICE.format(place=place) if shared else ""
    place = 'device = "core"' if shared else place
    for name, side, deadline in zip(SERVICES, args.sides, args.deadlines):
        # Who sends faster is late by less: that is what the certificate's scale means.
        arrivals = {"period": int(1e6 * periods[name] / scale), "jitter": int(1e3 * args.guard / scale)}
        fields = {"engine": args.engine, "deadline": deadline, "guard": args.guard, "batch": args.max_batch, **arrivals}
        text += SERVICE.format(name=name, place=place, side=side, **fields)
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
    others = os.sched_getaffinity(0) - {args.core if args.gpu is None else None} or {args.core}
    daemon = subprocess.Popen([args.weir, "serve", "--quiet", path])
    try:
        while not socket.exists():
            if daemon.poll() is not None:
                return None
            time.sleep(0.1)
        load = [args.weir, "load", "--socket", socket, "--duration", f"{args.seconds}s", "--json"]
        commands = {(name, "line"): [*load, name, "--reserved", "--stream", "line", "--rate", f"{rates[name]}"]
                    for name in SERVICES}
        commands |= {(name, "flood"): [*load, name, "--best-effort", "--stream", "flood", "--rate", f"{floods[name]:.1f}"]
                     for name in FLOODED}
        aside = lambda: os.sched_setaffinity(0, others)  # noqa: E731
        children = {key: subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=aside)
                    for key, command in commands.items()}
        said = {key: child.communicate()[0] for key, child in children.items()}
        for key, text in said.items():
            if not text:
                sys.exit(f"{' '.join(map(str, commands[key]))}: no report, exit code {children[key].returncode}")
        return {key: json.loads(text) for key, text in said.items()}
    finally:
        daemon.terminate()
        daemon.wait()


def table(title, reports):
    """A line for each stream."""
    print(f"\n{title}\n\n| service | stream | sent/s | served/s | missed | in a row | told |")
    print("|---|---|---:|---:|---:|---:|---|")
    for (name, stream), report in reports.items():
        causes = [change["cause"] for change in report["safe_mode"] + report["suspension"] if change["entered"]]
        told = ", ".join(f"{causes.count(cause)} × {cause}" for cause in sorted(set(causes))) or "nothing"
        held = all(judged["held"] for judged in report["constraints"])
        row = f"{report['longest_miss_run']}{'' if held else ' VIOLATED'}" if stream == "line" else "-"
        sent, seconds = report["sent"], report["seconds"]
        print(f"| {name} | {stream} | {sent / seconds:.1f} | {report['answered'] / seconds:.1f} "
              f"| {report['missed']} of {sent} | {row} | {told} |", flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--weir", type=lambda text: pathlib.Path(text).resolve(), default=ROOT / "target/release/weir")
    args.add_argument("--seconds", type=int, default=600)
    args.add_argument("--core", type=int, default=1)
    args.add_argument("--gpu", type=int, help="instead of a core")
    args.add_argument("--engine", default="ort-cpu")
    args.add_argument("--max-batch", type=int, default=2)
    args.add_argument("--library", type=pathlib.Path, help="of ONNX Runtime, if not what tests/fetch.sh has fetched")
    args.add_argument("--models", type=lambda text: pathlib.Path(text).resolve(), default=TARGET / "images")
    args.add_argument("--limit", default="1m", help="for which the models are profiled at most")
    args.add_argument("--sides", type=lambda text: text.split(","), default=[64, 100, 160, 256], help="of the images that each reads")
    args.add_argument("--deadlines", type=lambda text: text.split(","), default=[150, 200, 300, 500], help="in ms")
    args.add_argument("--guard", type=float, default=30, help="in ms, of all, and how late the reserved streams may be")
    args = args.parse_args()
    if not (args.models / "manifest.toml").exists():
        run(sys.executable, ROOT / "models/convolution.py", args.models, "--sides", ",".join(map(str, args.sides)))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        first = config(folder, args, dict.fromkeys(SERVICES, 10.0), shared=True)
        run(args.weir, "profile", first, "--limit", args.limit)
        times = {entry["model"]: entry["batches"][0] for entry in json.loads((folder / "profile.json").read_text())["entries"]}
        print("| service | model | deadline | median | P(1) |\n|---|---|---:|---:|---:|")
        bounds, medians = {}, {}
        for name, side, deadline in zip(SERVICES, args.sides, args.deadlines):
            one = times[f"image-{side}"]
            bounds[name], medians[name] = one["bound_ns"] / 1e9, one["p50_ns"] / 1e9
            print(f"| {name} | image-{side} | {deadline} ms | {1e3 * medians[name]:.1f} ms | {1e3 * bounds[name]:.1f} ms |")
        # So large a share of the worker each, to begin with.
        periods = {name: bounds[name] / SHARE for name in SERVICES}
        path = config(folder, args, periods, shared=True)
        run(args.weir, "certify", path, "--output", folder / "c.json", check=False)
        claim = json.loads((folder / "c.json").read_text())["devices"][0]
        scale = LOAD * float(claim["max_load_scale"])
        if scale == 0.0:
            sys.exit(f"nothing can be promised at any rate: {claim['reason']}")
        shared = config(folder, args, periods, shared=True, scale=scale)
        print("\n```\ndevice core:" + run(args.weir, "plan", shared).rsplit("device core:", 1)[1] + "```", flush=True)
        rates = {name: scale / period for name, period in periods.items()}
        floods = {name: 2 / medians[name] for name in FLOODED}
        reports = played(args, shared, folder / "s", rates, floods)
        if reports is None:
            sys.exit("the daemon does not serve the device")
        table(f"One worker for all, {args.seconds} s", reports)
        apart = config(folder, args, periods, shared=False, scale=scale)
        reports = played(args, apart, folder / "s", rates, floods)
        if reports is None:
            print("\nWith a worker each the same streams are refused.")
        else:
            place = "core" if args.gpu is None else "GPU"
            table(f"A worker each on the same {place}, {args.seconds} s", reports)


if __name__ == "__main__":
    main()
