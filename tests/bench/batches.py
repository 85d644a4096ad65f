#!/usr/bin/env python3
"""Batches that pay: weir beside a plain server, on a dense model that takes little longer for a batch than for one request.

    batches.py [--weir target/release/weir] [--seconds 10] [--rounds 3] [--fifo]

Both compute with ONNX Runtime on one thread, get the same arrivals in turns, over a Unix socket each, and a request counts if
its answer comes within 50 ms of when it was due. Most requests come at random (Poisson), ten a second periodically. Weir
serves them all as best effort, and again with the periodic ones under a promise, one of any two. Capacity is that of full
batches, by weir's profile. Prints tables in Markdown. Needs NumPy, onnx and onnxruntime: `tests/deps.sh bench FOLDER`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import select
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client/python/src"))
import weir  # noqa: E402

DEADLINE, PERIOD, BATCH = 0.050, 0.100, 8
CONFIG = """
[daemon]
socket = "{name}.sock"
models = "{models}/manifest.toml"
profile = "profile.json"
onnxruntime = "{library}"
realtime = {realtime}
bus = "off"
[[service]]
name = "wide"
model = "digits-wide"
engine = "ort-cpu"
deadline = "50ms"
max-batch = 8
"""
PROMISE = """
[[service.stream]]
name = "control"
constraints = [{ any-miss = { m = 1, k = 2 } }]
arrivals = [{ periodic = { period = "100ms", jitter = "60ms" } }]
"""


class Plain:
    """A client of the plain server."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.last, self.read = 0, b""

    def close(self):
        self.socket.close()

    def submit(self, _stream, image):
        self.last += 1
        self.socket.sendall(self.last.to_bytes(4, "little") + image.tobytes())
        return self.last

    def recv(self, timeout):
        """The number of the next answer, and whether it has an output."""
        size = 5 + 40
        while len(self.read) < size:
            if not select.select([self.socket], [], [], timeout)[0]:
                return None
            self.read += self.socket.recv(1 << 16)
        frame, self.read = self.read[:size], self.read[size:]
        return int.from_bytes(frame[:4], "little"), frame[4] == 1


class Weir:
    """A client of weir with two streams: what comes at random, and what comes periodically."""

    def __init__(self, path):
        self.client = weir.Client(path)
        self.streams = [self.client.register("wide", name) for name in ("random", "control")]

    def close(self):
        self.client.close()

    def submit(self, stream, image):
        return self.client.submit(self.streams[stream], image)

    def recv(self, timeout):
        answer = self.client.recv(timeout)
        return None if answer is None else (answer.id, isinstance(answer, weir.Result))


def arrivals(rate, seconds, seed):
    """When requests are due, and of which stream: at random, and one each period."""
    chance, at, due = random.Random(seed), 0.0, [(k * PERIOD, 1) for k in range(int(seconds / PERIOD))]
    while (at := at + chance.expovariate(rate - 1 / PERIOD)) < seconds:
        due.append((at, 0))
    return sorted(due)


def drive(server, due, image):
    """For each request its stream and, if it was answered, seconds from when it was due."""
    start, waiting, out, at = time.monotonic() + 0.05, {}, [], 0
    while at < len(due) or waiting:
        left = start + due[at][0] - time.monotonic() if at < len(due) else 1.0
        if left <= 0:
            waiting[server.submit(due[at][1], image)] = due[at]
            at += 1
        elif answer := server.recv(left):
            when, stream = waiting.pop(answer[0])
            out.append((stream, time.monotonic() - start - when if answer[1] else None))
        elif at == len(due):
            break
    return out + [(stream, None) for _, stream in waiting.values()]


def measured(weir_binary, folder, config):
    """The profile's batch times."""
    command = [weir_binary, "profile", folder / config, "--limit", "1m"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "profile.json").read_text())["entries"][0]["batches"]


@contextlib.contextmanager
def running(command, path):
    """A server, once it listens at `path`."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not path.exists():
            if child.poll() is not None:
                sys.exit(f"{command[0]} ended with {child.returncode}")
            time.sleep(0.1)
        yield
    finally:
        child.terminate()
        child.wait()


def row(load, name, outcomes, seconds, plain):
    """A line of the table; the goodput."""
    hits = sorted(late for _, late in outcomes if late is not None and late <= DEADLINE)
    answers = sorted(late for _, late in outcomes if late is not None)
    control = [late is not None and late <= DEADLINE for stream, late in outcomes if stream == 1]
    goodput, missed = len(hits) / seconds, 1 - len(hits) / len(outcomes)
    at = lambda share: f"{1e3 * answers[min(int(share * len(answers)), len(answers) - 1)]:.1f} ms" if answers else "none"
    ratio = f"{goodput / plain:.2f}" if plain else "1"
    print(
        f"| {load:g} | {name} | {goodput:.0f} | {ratio} | {missed:.1%} | {at(0.5)} | {at(0.99)} "
        f"| {control.count(False)} of {len(control)} |",
        flush=True,
    )
    return goodput


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--weir", default="target/release/weir")
    args.add_argument("--loads", default="0.25,0.5,0.9,1.2", help="parts of the capacity")
    args.add_argument("--seconds", type=float, default=10, help="of each server at each load in each round")
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--fifo", action="store_true", help="servers and client in SCHED_FIFO")
    args = args.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    models, weir_binary = target / "wide", pathlib.Path(args.weir).resolve()
    if not (models / "manifest.toml").exists():
        subprocess.run([sys.executable, ROOT / "models/wide.py", models], check=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        folder = pathlib.Path(folder)
        library = target / "onnxruntime/libonnxruntime.so"
        for name, more in (("weir", ""), ("weir, promise", PROMISE)):
            realtime = "true" if args.fifo else "false"
            config = CONFIG.format(name=name, models=models, library=library, realtime=realtime) + more
            (folder / f"{name}.toml").write_text(config)
        times = measured(weir_binary, folder, "weir.toml")
        capacity = BATCH * 1e9 / times[BATCH - 1]["p50_ns"]
        print("| batch | median | 90 % | mean | longest | P(b) |\n|---:|---:|---:|---:|---:|---:|")
        for b in times:
            cells = (f"{b[f'{what}_ns'] / 1e6:.1f} ms" for what in ("p50", "p90", "mean", "max", "bound"))
            print(f"| {b['batch']} | " + " | ".join(cells) + " |")
        print(f"\nCapacity: {capacity:.0f} requests/s in batches of {BATCH}.\n")
        names, fifo = {"plain": Plain}, ["chrt", "-f", "10"] if args.fifo else []
        command = [sys.executable, ROOT / "tests/bench/plain_server.py", models / "digits-wide.onnx", folder / "plain.sock"]
        servers.enter_context(running(fifo + command, folder / "plain.sock"))
        for name in ("weir", "weir, promise"):
            plan = subprocess.run([weir_binary, "plan", folder / f"{name}.toml"], capture_output=True, text=True)
            if plan.returncode != 0:
                print(f"{name}: {plan.stderr.strip()}\n")
                continue
            names[name] = Weir
            command = [weir_binary, "serve", "--quiet", folder / f"{name}.toml"]
            servers.enter_context(running(command, folder / f"{name}.sock"))
        if args.fifo:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
        print("| load | server | answered in time /s | to plain | missed | p50 | p99 | control missed |")
        print("|---:|---|---:|---:|---:|---:|---:|---:|", flush=True)
        image = np.random.default_rng(1).random((1, 28, 28), np.float32)
        for load in map(float, args.loads.split(",")):
            outcomes = {name: [] for name in names}
            for seed in range(args.rounds):
                due = arrivals(load * capacity, args.seconds, seed)
                for name, client in names.items():
                    with contextlib.closing(client(folder / f"{name}.sock")) as server:
                        outcomes[name] += drive(server, due, image)
            plain = None
            for name in names:
                goodput = row(load, name, outcomes[name], args.rounds * args.seconds, plain)
                plain = plain or goodput


if __name__ == "__main__":
    main()
