#!/usr/bin/env python3
"""A front and two boxes in network namespaces, over TLS, and trouble on the way: is the promise kept, or its breach announced?

    network.py [--weir target/release/weir] [--seconds 12]

Each box is a Weir whose batches take 4 ms, behind a link of its own; the front has a worker at each. P(b) is measured on quiet links. Then a
reserved stream is loaded at half of what is promised, and from a quarter of the time to a half of it there is trouble. Prints a table in
Markdown; fails if a promise is broken and nobody is told. Delays are those of a relay before each box (relay.py), not of the network itself,
which needs a kernel with netem; a front that calls the boxes by their relays is profiled and loaded by itself. Needs root, `ip` and `openssl`,
and for losses `nft`: what cannot be had here is NOT CHECKED.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DAEMON = '[daemon]\nsocket = "{folder}/{name}.sock"\nprofile = "{folder}/{name}.profile.json"\nrealtime = false\nbus = "off"\n'
BOX = DAEMON + """[daemon.oip]
http = "{address}:{port}"
tls = {{ certificate = "{name}.pem", key = "{name}.key", client-ca = "ca.pem", allow-clients = ["front.example"] }}
[[service]]
name = "null"
engine = "simulated"
simulated = {{ times = ["4ms"], input = 3, output = 2 }}
deadline = "1s"
"""
FRONT = DAEMON + """models = "models.toml"
[safe-mode]
hold = "500ms"
clean = "500ms"
[[service]]
name = "far"
engine = "oip"
model = "null"
remote = {{ url = {urls}, timeout = "300ms", tls = {{ ca = "ca.pem", certificate = "front.pem", key = "front.key" }} }}
max-batch = 1
deadline = "250ms"
guard = "50ms"
constraints = [{{ any-miss = {{ m = 3, k = 10 }} }}]
"""
MANIFEST = """[[model]]
name = "null"
input = { name = "input", type = "f32", shape = [3] }
output = { name = "output", type = "f32", shape = [2] }
"""
BOXES = {"a": "10.231.1", "b": "10.231.2"}
# Where a box listens, and where a relay before it does.
BOX_PORT, RELAY_PORT = 8000, 8001


def run(*command, check=True, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done


class Net:
    """A namespace for each box, with a link to this one."""

    def __init__(self):
        self.made = []

    def space(self, box):
        return f"weir-{box}-{os.getpid()}"

    def link(self, box):
        return f"weir{box}{os.getpid() % 100000}"

    def build(self):
        for box, network in BOXES.items():
            run("ip", "netns", "add", self.space(box))
            self.made.append(box)
            run("ip", "link", "add", self.link(box), "type", "veth", "peer", "name", "eth0", "netns", self.space(box))
            run("ip", "addr", "add", f"{network}.1/24", "dev", self.link(box))
            run("ip", "link", "set", self.link(box), "up")
            self.within(box, "ip", "addr", "add", f"{network}.2/24", "dev", "eth0")
            self.within(box, "ip", "link", "set", "eth0", "up")
            # By which a relay reaches the box that it is before.
            self.within(box, "ip", "link", "set", "lo", "up")

    def within(self, box, *command):
        return run("ip", "netns", "exec", self.space(box), *command)

    def remove(self):
        for box in self.made:
            run("ip", "link", "del", self.link(box), check=False)
            run("ip", "netns", "del", self.space(box), check=False)

    # What may go wrong: how it begins, and how it ends.

    def cut(self, box):
        return (lambda: run("ip", "link", "set", self.link(box), "down"), lambda: run("ip", "link", "set", self.link(box), "up"))

    def lose(self, percent):
        rules = f"table inet weir {{ chain c {{ type filter hook input priority 0; numgen random mod 100 < {percent} drop; }}; }}"
        return lambda box: (
            lambda: self.within(box, "nft", rules),
            lambda: run("ip", "netns", "exec", self.space(box), "nft", "delete table inet weir", check=False),
        )

    def narrow(self, box):
        return (
            lambda: run("tc", "qdisc", "add", "dev", self.link(box), "root", "tbf", "rate", "256kbit", "burst", "2kb", "latency", "100ms"),
            lambda: run("tc", "qdisc", "del", "dev", self.link(box), "root", check=False),
        )


class Relays:
    """A relay before each box, in its namespace."""

    def __init__(self, net):
        self.processes = {}
        for box, network in BOXES.items():
            ends = [f"{network}.2:{port}" for port in (RELAY_PORT, BOX_PORT)]
            command = ["ip", "netns", "exec", net.space(box), sys.executable, ROOT / "tests/bench/relay.py", *ends]
            self.processes[box] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for process in self.processes.values():
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a relay does not listen")

    def hold(self, delay_ms, jitter_ms):
        def say(box, *words):
            print(*words, file=self.processes[box].stdin, flush=True)

        return lambda box: (lambda: say(box, delay_ms, jitter_ms), lambda: say(box, 0, 0))

    def end(self):
        for process in self.processes.values():
            process.stdin.close()
            process.wait()


def certificates(folder):
    def vouch(name, alternative):
        run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / f"{name}.key",
            "-subj", f"/CN={name}", "-out", folder / f"{name}.csr")
        (folder / "more").write_text(f"subjectAltName={alternative}\n")
        run("openssl", "x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", folder / "more", "-out", folder / f"{name}.pem")

    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / "ca.key",
        "-subj", "/CN=test", "-days", "2", "-out", folder / "ca.pem")
    for box, network in BOXES.items():
        vouch(box, f"IP:{network}.2")
    vouch("front", "DNS:front.example")


def serve(args, folder, name, before=()):
    child = subprocess.Popen([*before, args.weir, "serve", "--quiet", folder / f"{name}.toml"], stderr=open(folder / f"{name}.log", "w"))
    until = time.monotonic() + 60
    while not (folder / f"{name}.sock").exists():
        if child.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{name} does not serve: {(folder / f'{name}.log').read_text()}")
        time.sleep(0.05)
    return child


def loaded(args, folder, front, trouble):
    """The report on a load with trouble in the middle."""
    command = [args.weir, "load", "far", "--socket", folder / f"{front}.sock", "--rate", "0.5x", "--duration", f"{args.seconds}s", "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begun = []
    try:
        time.sleep(args.seconds / 4)
        for begin, end in trouble:
            begin()
            begun.append(end)
        time.sleep(args.seconds / 4)
    finally:
        for end in begun:
            end()
    said, errors = child.communicate()
    if not said:
        raise RuntimeError(f"no report: {errors}")
    return json.loads(said)


def settle(args, folder, front):
    """Waits until both workers are there and something is promised again."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        told = json.loads(run(args.weir, "status", "--json", "--socket", folder / f"{front}.sock").stdout)["services"][0]
        if told["workers_alive"] == len(BOXES) and told["safe_mode"]["state"] == "normal":
            return
        time.sleep(0.2)
    raise RuntimeError(f"the front does not settle: {told}")


def row(name, report):
    told = [change["cause"] for change in report["safe_mode"] + report["suspension"] if change["entered"]]
    causes = ", ".join(f"{told.count(cause)} × {cause}" for cause in sorted(set(told))) or "nothing"
    held = all(judged["held"] for judged in report["constraints"])
    verdict = "kept" if held else "broken, announced" if told else "BROKEN, NOBODY TOLD"
    print(f"| {name} | {report['missed']} of {report['scheduled']} | {report['constraints'][0]['worst']} of 10 | {causes} | {verdict} |", flush=True)
    return held or bool(told)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--weir", type=lambda text: pathlib.Path(text).resolve(), default=ROOT / "target/release/weir")
    args.add_argument("--seconds", type=float, default=12)
    args = args.parse_args()
    net, children, relays = Net(), [], None
    try:
        try:
            net.build()
        except (OSError, RuntimeError) as error:
            print(f"NOT CHECKED: a network with trouble: {error}")
            return
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            certificates(folder)
            for box, network in BOXES.items():
                (folder / f"{box}.toml").write_text(BOX.format(folder=folder, name=box, address=f"{network}.2", port=BOX_PORT))
                run(args.weir, "profile", folder / f"{box}.toml", "--quick")
                children.append(serve(args, folder, box, ["ip", "netns", "exec", net.space(box)]))
            (folder / "models.toml").write_text(MANIFEST)
            relays, good = Relays(net), True
            for front, port, troubles in (
                ("direct", BOX_PORT, (
                    ("none", None, ""),
                    ("of what one box receives, 2 % lost", net.lose(2), "a"),
                    ("of what both receive, 20 % lost", net.lose(20), "ab"),
                    ("256 kbit/s to one box", net.narrow, "a"),
                    ("the link to one box cut", net.cut, "a"),
                    ("both links cut", net.cut, "ab"),
                )),
                ("relayed", RELAY_PORT, (
                    ("none, through relays", None, ""),
                    ("5 ms more each way to one box", relays.hold(5, 0), "a"),
                    ("20 ms ± 20 ms more each way to one box", relays.hold(20, 20), "a"),
                    ("20 ms ± 20 ms more each way to both", relays.hold(20, 20), "ab"),
                    ("100 ms more each way to one box", relays.hold(100, 0), "a"),
                    ("100 ms more each way to both", relays.hold(100, 0), "ab"),
                )),
            ):
                urls = json.dumps([f"https://{network}.2:{port}" for network in BOXES.values()])
                (folder / f"{front}.toml").write_text(FRONT.format(folder=folder, name=front, urls=urls))
                run(args.weir, "profile", folder / f"{front}.toml", "--quick")
                print("```\n" + run(args.weir, "plan", folder / f"{front}.toml").stdout + "```\n")
                children.append(serve(args, folder, front))
                print("| trouble | missed | worst | told | the promise is |\n|---|---|---|---|---|")
                for name, what, where in troubles:
                    settle(args, folder, front)
                    try:
                        good &= row(name, loaded(args, folder, front, [what(box) for box in where]))
                    except (OSError, RuntimeError) as error:
                        print(f"| {name} | | | | NOT CHECKED: {str(error).splitlines()[0]} |", flush=True)
                print()
                # Only one front may have the boxes to itself.
                end(children.pop())
            if not good:
                sys.exit("a promise was broken, and nobody was told")
    finally:
        for child in reversed(children):
            end(child)
        if relays:
            relays.end()
        net.remove()


def end(child):
    child.send_signal(signal.SIGTERM)
    child.wait()


if __name__ == "__main__":
    main()
