#!/usr/bin/env python3
"""Rows of misses on real sockets: one stream that sends at random, up to four times what the worker can do.

    rows.py [--weir target/release/weir] [--seconds 10] [--rounds 3] [--loads 0.9,1.2,1.5,2,4] [--fifo] [--max-batch 8]

One worker, a network of three convolutions whose batches of one take some 4.5 ms where this was written, a deadline of 50 ms. A stream
has one of any two promised at the rate that is planned, and sends at random (Poisson); a request counts if its answer comes within
the deadline of when it was due. Weir refuses early, or spreads (`best-effort`); each has the same arrivals. Capacity is that of
the batches that are promised by, at their median. Prints the load of the machine, and a table in Markdown with how late the client itself was at most: rounds in which
that is much of the deadline say nothing of Weir. Needs NumPy and onnx: `tests/deps.sh bench FOLDER`.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy as np
from batches import DEADLINE, ROOT, measured, running

import weir  # batches.py has put it on the path

CONFIG = """
[daemon]
socket = "{name}.sock"
models = "{models}/manifest.toml"
profile = "profile.json"
bus = "off"
[[service]]
name = "image"
model = "image-{side}"
deadline = "50ms"
max-batch = {most}
best-effort = "{name}"
constraints = [{{ any-miss = {{ m = 1, k = 2 }} }}]
"""
CHOICES = ("refuse-early", "spread")


def arrivals(rate, seconds, seed):
    """When requests are due, at random."""
    chance = random.Random(seed)
    gaps = iter(lambda: chance.expovariate(rate), None)
    return list(itertools.takewhile(lambda at: at < seconds, itertools.accumulate(gaps)))


def drive(client, stream, due, image):
    """For each request, in order, whether its answer came within the deadline of when it was due; how late one was sent at most."""
    start, numbers, served, at, lag = time.monotonic() + 0.05, {}, [False] * len(due), 0, 0.0
    while at < len(due) or numbers:
        left = start + due[at] - time.monotonic() if at < len(due) else 1.0
        if left <= 0:
            lag = max(lag, -left)
            numbers[client.submit(stream, image)] = at
            at += 1
        # What has come is looked at before more is sent.
        while (answer := client.recv(max(left, 0.0))) is not None:
            left = 0.0
            # One of an earlier round may come that nobody waited for.
            if (index := numbers.pop(answer.id, None)) is not None:
                late = time.monotonic() - start - due[index]
                served[index] = isinstance(answer, weir.Result) and late <= DEADLINE
        if at == len(due) and left > 0:
            break
    return served, lag


def longest(served):
    """The longest row of misses."""
    return max((sum(1 for _ in row) for hit, row in itertools.groupby(served) if not hit), default=0)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--weir", default="target/release/weir")
    args.add_argument("--loads", default="0.9,1.2,1.5,2,4", help="parts of the capacity")
    args.add_argument("--seconds", type=float, default=10, help="of each choice at each load in each round")
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--fifo", action="store_true", help="the client in SCHED_FIFO, before the workers")
    args.add_argument("--max-batch", type=int, default=8, help="the largest batch")
    args.add_argument("--side", type=int, default=100, help="of the images")
    args = args.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    models, binary = target / f"image-{args.side}", pathlib.Path(args.weir).resolve()
    if not (models / "manifest.toml").exists():
        command = [sys.executable, ROOT / "models/convolution.py", models, "--sides", str(args.side)]
        subprocess.run(command, check=True)
    print(f"Load of the machine before, over 1 and 5 minutes: {os.getloadavg()[0]:.1f}, {os.getloadavg()[1]:.1f}\n")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        folder = pathlib.Path(folder)
        for name in CHOICES:
            (folder / f"{name}.toml").write_text(CONFIG.format(name=name, models=models, side=args.side, most=args.max_batch))
        times = measured(binary, folder, f"{CHOICES[0]}.toml")
        command = [binary, "plan", "--json", folder / f"{CHOICES[0]}.toml"]
        plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        batch, clients = plan["services"][0]["batch"], {}
        capacity = batch * 1e9 / times[batch - 1]["p50_ns"]
        for name in CHOICES:
            path = folder / f"{name}.sock"
            servers.enter_context(running([binary, "serve", "--quiet", folder / f"{name}.toml"], path))
            client = servers.enter_context(contextlib.closing(weir.Client(path)))
            period = client.status()["services"][0]["promised_period_ns"] / 1e9
            declared = weir.periodic(period, 0.005)
            clients[name] = client, client.register("image", "one", [weir.any_miss(1, 2)], [declared])
        print(
            f"P(1) = {times[0]['bound_ns'] / 1e6:.1f} ms, half of them {times[0]['p50_ns'] / 1e6:.1f} ms; batches of {batch}, half in "
            f"{times[batch - 1]['p50_ns'] / 1e6:.1f} ms: {capacity:.0f} requests/s; promised {1 / period:.0f} requests/s.\n"
        )
        if args.fifo:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
        print("| load | best-effort | longest row | by round | goodput, of capacity | missed | client late by |")
        print("|---:|---|---:|---|---:|---:|---:|", flush=True)
        image = np.random.default_rng(1).random((1, args.side, args.side), np.float32)
        for load in map(float, args.loads.split(",")):
            rounds = {name: [] for name in CHOICES}
            for seed in range(args.rounds):
                due = arrivals(load * capacity, args.seconds, seed)
                for name, (client, stream) in clients.items():
                    rounds[name].append(drive(client, stream, due, image))
            for name, each in rounds.items():
                served, lag = [served for served, _ in each], max(lag for _, lag in each)
                rows, hits = [longest(one) for one in served], sum(map(sum, served))
                goodput = hits / (args.rounds * args.seconds * capacity)
                missed = 1 - hits / sum(map(len, served))
                told = ", ".join(map(str, rows))
                print(f"| {load:g} | {name} | {max(rows)} | {told} | {goodput:.2f} | {missed:.1%} | {1e3 * lag:.1f} ms |", flush=True)
    print(f"\nLoad of the machine after: {os.getloadavg()[0]:.1f}, {os.getloadavg()[1]:.1f}")


if __name__ == "__main__":
    main()
