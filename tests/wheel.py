#!/usr/bin/env python3
"""Installs the wheel into an empty environment, tries the programs and the client there, and removes it again.

    tests/wheel.py WHEEL
"""

import contextlib
import pathlib
import subprocess
import sys
import tempfile
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLIENT = """
import sys
import time
import numpy as np
import weir

with weir.Client(sys.argv[1]) as client:
    stream = client.register("echo", "wheel", [weir.any_miss(1, 2)], [weir.periodic(0.1, 0.005)])
    request = np.arange(4, dtype=np.float32)
    for _ in range(10):  # A busy machine may miss some.
        answer = client.infer(stream, request)
        if isinstance(answer, weir.Result):
            break
        time.sleep(0.1)
    assert isinstance(answer, weir.Result), answer
    np.testing.assert_array_equal(answer.output.ravel(), request)
    print(client.daemon, answer.output)
"""


def version() -> str:
    """That of the workspace, the first in its file."""
    lines = (ROOT / "Cargo.toml").read_text().splitlines()
    return next(line for line in lines if line.startswith("version = ")).split('"')[1]


@contextlib.contextmanager
def serving(weir: pathlib.Path, folder: pathlib.Path):
    """A daemon for config/simulated.toml, whose files lie in `folder`; gives its socket."""
    (folder / "config").mkdir()
    (folder / "target").mkdir()
    config = folder / "config" / "simulated.toml"
    config.write_bytes((ROOT / "config" / "simulated.toml").read_bytes())
    subprocess.run([weir, "profile", "--quick", config], check=True, stdout=subprocess.DEVNULL)
    daemon = subprocess.Popen([weir, "serve", "--quiet", config])
    try:
        socket, until = folder / "target" / "simulated.sock", time.monotonic() + 60
        while not socket.exists():
            assert daemon.poll() is None and time.monotonic() < until, "the daemon does not come up"
            time.sleep(0.01)
        yield socket
    finally:
        daemon.terminate()
        assert daemon.wait() == 0, "the daemon ends with an error"


def main() -> None:
    wheel = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        venv.create(folder / "empty", with_pip=True)
        programs = folder / "empty" / "bin"
        pip = [programs / "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", wheel], check=True)

        for program in ("weir", "weir-lab"):
            told = subprocess.run([programs / program, "--version"], check=True, capture_output=True, text=True).stdout
            assert told == f"weir {version()}\n", f"{program} --version says {told}"
        configs = sorted((ROOT / "config").glob("*.toml"))
        subprocess.run([programs / "weir", "check", *configs], check=True, stdout=subprocess.DEVNULL)
        with serving(programs / "weir", folder) as socket:
            # Without `-I` the client of the current folder would do as well.
            subprocess.run([programs / "python", "-I", "-c", CLIENT, socket], check=True)

        subprocess.run([*pip, "uninstall", "--yes", "weir"], check=True)
        left = [path for path in (folder / "empty").rglob("weir*")]
        assert not left, f"left behind: {left}"
    print(f"{wheel.name} was installed, tried and removed")


main()
