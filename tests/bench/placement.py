#!/usr/bin/env python3
"""Four services on the machine's two cores whose demand swaps twice while they serve; the controller places them anew each time.

    placement.py [--weir target/release/weir] [--phase 40] [--high RATE] [--low 20] [--screens]

The shipped digit models on tract, each service one of four of them, every worker shared by all services. Arrivals are those of files that
`weir load` plays: for a phase two services are asked much and two little, for the next the other way round, and then as at first. Without
`--high` much is the least rate at which `weir place` gives the two that are asked it better models than the others, by the profile that was just taken. Of each phase
it prints the load of the machine, what is served when it ends and what the best plan for its demand would be (`weir place --demand`), and of each load what was missed,
whether its constraint held, and what the daemon announced beside it. `--screens` prints `weir top` at the end of each phase (needs pyte).
Exits with 1 if a constraint was broken without an announcement, or a request got no answer.
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
MODELS = ["digits-s", "digits-l", "digits-xl", "digits-xxl"]
NAMES = ["gate", "line", "press", "yard"]
CONFIG = """
[daemon]
socket = "{folder}/s"
models = "{models}/manifest.toml"
profile = "{folder}/profile.json"
bus = "off"

[safe-mode]
hold = "1s"

[placement]
mode = "follow"
period = "5s"
window = "1s"
budget = 4
limit = "2s"
headroom = 1.2
hysteresis = 0.3

[[placement.class]]
name = "core"
cores = [0, 1]
shared = true
"""
SERVICE = """
[[service]]
name = "{name}"
models = {models}
deadline = "400ms"
guard = "100ms"
handover = "10ms"
max-batch = 2

[[service.stream]]
name = "camera"
constraints = [{{ any-miss = {{ m = 4, k = 10 }} }}]
arrivals = [{{ periodic = {{ period = "250ms", jitter = "50ms" }} }}]
"""


def run(*command, check=True):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def demand_of(rates):
    """All that is asked of each service: what is played, and what its camera sends."""
    return json.dumps({name: rate + 4.0 for name, rate in zip(NAMES, rates)})


def placed(weir, config, rates):
    """The best plan for that demand."""
    demand = config.parent / "demand.json"
    demand.write_text(demand_of(rates))
    return json.loads(run(weir, "place", config, "--demand", demand, "--json", check=False))


def enough(weir, config, low):
    """The least rate, in steps of 2, at which who is asked little has to do with a worse model than who is asked much."""
    for high in range(2 * low, 1000, 2):
        plan = placed(weir, config, [high, high, low, low])
        if not plan["feasible"]:
            break
        models = {service["name"]: MODELS.index(service["model"]) for service in plan["services"]}
        if min(models["gate"], models["line"]) > max(models["press"], models["yard"]):
            return high
    sys.exit("by this profile there is no such rate: give one with --high")


def screen(weir, socket):
    """What `weir top` shows, as text."""
    import fcntl, pty, struct, termios

    import pyte

    columns, lines = 110, 30
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execvp(weir, [weir, "top", "--socket", socket])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    shown = pyte.Screen(columns, lines)
    stream, end = pyte.ByteStream(shown), time.monotonic() + 3
    while time.monotonic() < end:
        stream.feed(os.read(terminal, 65536))
    os.write(terminal, b"q")
    os.waitpid(pid, 0)
    return "\n".join(line.rstrip() for line in shown.display).rstrip()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--weir", default="target/release/weir")
    arguments.add_argument("--phase", type=int, default=40)
    arguments.add_argument("--high", type=int)
    arguments.add_argument("--low", type=int, default=20)
    arguments.add_argument("--screens", action="store_true")
    given = arguments.parse_args()
    weir = str(pathlib.Path(given.weir).resolve())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-"))
    config, socket = folder / "box.toml", str(folder / "s")
    text = CONFIG.format(folder=folder, models=ROOT / "models")
    config.write_text(text + "".join(SERVICE.format(name=name, models=json.dumps(MODELS)) for name in NAMES))
    run(weir, "profile", config, "--quick")
    high, low = given.high or enough(weir, config, given.low), given.low
    phases = [[high, high, low, low], [low, low, high, high], [high, high, low, low]]
    (folder / "first.json").write_text(demand_of(phases[0]))
    run(weir, "place", config, "--demand", folder / "first.json", "-o", config)
    daemon = subprocess.Popen([weir, "serve", config], stderr=open(folder / "log", "w"))
    try:
        while not os.path.exists(socket):
            time.sleep(0.1)
            if daemon.poll() is not None:
                sys.exit((folder / "log").read_text())
        loads = []
        for i, name in enumerate(NAMES):
            trace, at = folder / f"{name}.csv", 0.0
            with open(trace, "w") as file:
                for number, rates in enumerate(phases):
                    while at < (number + 1) * given.phase:
                        file.write(f"{at:.6f}\n")
                        at += 1 / rates[i]
            common = [weir, "load", "--socket", socket, name, "--json", "--input", ROOT / "models/heldout-images.idx3-ubyte"]
            common += ["--labels", ROOT / "models/heldout-labels.idx1-ubyte"]
            much = common + ["--best-effort", "--arrivals", "trace", "--trace", trace]
            reserved = common + ["--stream", "camera", "--reserved", "--rate", "4", "--duration", f"{given.phase * len(phases)}s"]
            for kind, command in [("demand", much), ("camera", reserved)]:
                out = folder / f"{name}.{kind}"
                loads.append((name, kind, out, subprocess.Popen([str(part) for part in command], stdout=open(out, "w"), stderr=subprocess.PIPE, text=True)))
        began = time.monotonic()
        for number, rates in enumerate(phases):
            time.sleep(max(0, began + (number + 1) * given.phase - 4 - time.monotonic()))
            status = json.loads(run(weir, "status", "--socket", socket, "--json"))
            best = placed(weir, config, rates)
            placement = status["placement"]
            print(f"\nend of phase {number + 1}, {rates} a second, the machine's load {os.getloadavg()[0]:.1f}")
            models = {service["name"]: [v["model"] for v in service["variants"]] or service["model"] for service in status["services"]}
            print(f"  served by: {models}")
            print(f"  right answers since the look before: {placement['present_accuracy']}, of the plan {placement['accuracy']}; best for this demand: {best['accuracy']}")
            print(f"  {placement['looks']} looks, {placement['made']} moved, {placement['failures']} failures: {placement['state']}", flush=True)
            if given.screens:
                print(screen(weir, socket), flush=True)
        print("\n| service | load | sent | missed | worst window | without an answer | right | announced |")
        print("|---|---|---:|---:|---|---:|---:|---|")
        failed = False
        for name, kind, out, process in loads:
            process.wait()
            told = json.loads(out.read_text() or "{}")
            announced = sorted({event["cause"] for event in told.get("safe_mode", []) + told.get("suspension", []) if event.get("entered")})
            windows = told.get("constraints", [])
            worst = ", ".join(f"{c['worst']} of {c['k']}, {c['m']} allowed" for c in windows) or "-"
            lost = told["sent"] - told["answered"] - told["missed"]
            failed |= lost > 0 or (kind == "camera" and not announced and any(not c["held"] for c in windows))
            right = f"{100 * told['accuracy']:.1f} %" if told.get("accuracy") is not None else "-"
            print(f"| {name} | {kind} | {told['sent']} | {told['missed']} | {worst} | {lost} | {right} | {', '.join(announced) or 'nothing'} |")
        print("\nthe controller said:")
        for line in (folder / "log").read_text().splitlines():
            if "placement:" in line:
                print("  " + line[:200])
        sys.exit(1 if failed else 0)
    finally:
        daemon.terminate()
        daemon.wait()

if __name__ == "__main__":
    main()
