"""A daemon for the tests of a class: the binary named by the environment variable WEIR, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest
from typing import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIG = f"""
[daemon]
socket = "s"
profile = "p.json"
models = "{ROOT}/tests/typed/manifest.toml"
max-arena = 1048576
realtime = false
bus = "off"
[safe-mode]
hold = "100ms"
clean = "100ms"
[[service]]
name = "typed"
model = "typed"
deadline = "20s"
guard = "1s"
max-batch = 1
queue = 1024
[[service]]
name = "numbers"
model = "numbers"
deadline = "20s"
guard = "1s"
max-batch = 1
[[service]]
name = "slow"
engine = "simulated"
simulated = {{ times = ["40ms"], input = 2, output = 2 }}
deadline = "2s"
guard = "500ms"
[[service]]
name = "classed"
engine = "simulated"
simulated = {{ times = ["40ms"], input = 2, output = 2 }}
deadline = "20s"
guard = "1s"
[[service.class]]
name = "plain"
[[service.class]]
name = "soft"
deadline = "10ms"
decay = {{ step = {{ part = 0.5, cutoff = 100.0 }} }}
"""


class Daemon:
    def __init__(self, text: str = CONFIG) -> None:
        weir = os.environ.get("WEIR", str(ROOT / "target/debug/weir"))
        self.folder = tempfile.TemporaryDirectory()
        config = pathlib.Path(self.folder.name, "weir.toml")
        config.write_text(text)
        self.socket = str(config.parent / "s")
        profile = [weir, "profile", "--quick", "--samples", "10", str(config)]
        subprocess.run(profile, check=True, stdout=subprocess.DEVNULL)
        self._serve = [weir, "serve", "--quiet", str(config)]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._serve, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not os.path.exists(self.socket):
            assert self.process.poll() is None and time.monotonic() < until, "the daemon does not come up"
            time.sleep(0.01)

    def end(self) -> None:
        """Until it is started again."""
        self.process.kill()
        self.process.wait()
        os.unlink(self.socket)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """While it is stopped it answers nothing; all at once afterwards."""
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "the daemon has ended"
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


class Case(unittest.TestCase):
    """Tests that share a daemon."""

    daemon: Daemon

    @property
    def name(self) -> str:
        """A stream's: the one before may be held until the daemon has noticed the end of its connection."""
        return self._testMethodName

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = Daemon()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.daemon.stop()
