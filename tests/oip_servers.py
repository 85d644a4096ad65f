#!/usr/bin/env python3
"""The daemon against servers of others, each with a worker of `engine = "oip"` over HTTP and one over gRPC: called, killed and met again,
idle and while a promised stream sends, and stopped for a while.

    python3 tests/oip_servers.py --weir target/debug/weir --servers target/servers

A server is what `pip` made of a package in a folder of that name there: tests/deps.sh server PACKAGE FOLDER. What is not there is not checked.
"""
import argparse
import concurrent.futures
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

from oip_daemon import free_ports

PATIENCE = 90
MODELS = """
[[model]]
name = "doubles"
input = { name = "in", type = "f32", shape = [3] }
output = { name = "out", type = "f32", shape = [3] }
"""
CONFIG = """
[daemon]
socket = "s"
profile = "profile.json"
models = "models.toml"
realtime = false
bus = "off"
oip.http = "127.0.0.1:{own}"
[safe-mode]
hold = "100ms"
clean = "100ms"
[[service]]
name = "doubles"
engine = "oip"
model = "doubles"
remote = {{ url = "{scheme}://127.0.0.1:{port}", timeout = "5s" }}
max-batch = 2
deadline = "20s"
guard = "1s"
[[service.stream]]
name = "front"
constraints = [{{ any-miss = {{ m = 5, k = 10 }} }}]
arrivals = [{{ periodic = {{ period = "200ms", jitter = "5s" }} }}]
"""
EVERY = 0.2
TRITON = {
    "doubles/config.pbtxt": """
name: "doubles"
backend: "python"
max_batch_size: 8
input [{ name: "in" data_type: TYPE_FP32 dims: [3] }]
output [{ name: "out" data_type: TYPE_FP32 dims: [3] }]
instance_group [{ kind: KIND_CPU count: 1 }]
""",
    "doubles/1/model.py": """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        one = lambda of: pb.Tensor("out", 2 * pb.get_input_tensor_by_name(of, "in").as_numpy())
        return [pb.InferenceResponse([one(of)]) for of in requests]
""",
}
MLSERVER = {
    "runtime.py": """
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class Doubles(MLModel):
    async def predict(self, payload):
        out = NumpyCodec.encode_output("out", 2 * NumpyCodec.decode_input(payload.inputs[0]))
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[out])
""",
    "doubles/model-settings.json": json.dumps(
        {
            "name": "doubles",
            "implementation": "runtime.Doubles",
            "parameters": {"version": "1"},
            "inputs": [{"name": "in", "datatype": "FP32", "shape": [-1, 3]}],
            "outputs": [{"name": "out", "datatype": "FP32", "shape": [-1, 3]}],
        }
    ),
}
KSERVE = {
    "model.py": """
import sys
from kserve import InferOutput, InferResponse, Model, ModelServer

class Doubles(Model):
    def __init__(self):
        super().__init__("doubles")
        self.ready = True

    async def get_input_types(self):
        return [{"name": "in", "datatype": "FP32", "shape": [-1, 3]}]

    async def get_output_types(self):
        return [{"name": "out", "datatype": "FP32", "shape": [-1, 3]}]

    async def predict(self, payload, headers=None, response_headers=None):
        values = payload.inputs[0].as_numpy()
        out = InferOutput("out", list(values.shape), "FP32")
        out.set_data_from_numpy(2 * values, binary_data=False)
        return InferResponse(response_id=payload.id or "1", model_name="doubles", infer_outputs=[out])

ModelServer(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), enable_grpc=True, workers=1).start([Doubles()])
""",
}


def ask(url, body=None):
    """What is answered, or `None` where nothing is or it is refused."""
    try:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=PATIENCE) as answer:
            return answer.read()
    except (OSError, urllib.error.URLError):
        return None


def eventually(what, find):
    until = time.monotonic() + PATIENCE
    while (found := find()) is None:
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not within {PATIENCE} s")
        time.sleep(0.1)
    return found


class Servers(unittest.TestCase):
    weir = ""
    servers = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.server = None

    def home(self, name):
        """Where the server's Python is."""
        home = os.path.join(self.servers, name)
        if not os.path.exists(os.path.join(home, "bin", "python")):
            text = f"a worker that is a server of {name}: it cannot be installed"
            if path := os.environ.get("WEIR_NOT_CHECKED"):
                with open(path, "a", encoding="utf-8") as file:
                    file.write(text + "\n")
            self.skipTest(text)
        return home

    def lay(self, files):
        for name, text in files.items():
            path = os.path.join(self.folder, "server", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def start(self, command, environment, port):
        place = os.path.join(self.folder, "server")
        # With its children, which it does not end where it is killed.
        self.server = subprocess.Popen(
            command, cwd=place, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.addCleanup(self.kill)
        ready = f"http://127.0.0.1:{port}/v2/models/doubles/ready"
        eventually(f"{command[0]} with its model", lambda: ask(ready))

    def signal(self, number):
        """To the server, with its children."""
        os.killpg(self.server.pid, number)

    def kill(self):
        if self.server:
            self.signal(signal.SIGKILL)
            self.server.wait()
            self.server = None

    def tried(self, command, environment, http, grpc):
        self.start(command, environment, http)
        for scheme, port in (("http", http), ("grpc", grpc)):
            with self.subTest(scheme):
                self.worker(scheme, port, lambda: self.start(command, environment, http))

    def worker(self, scheme, port, again):
        place = os.path.join(self.folder, scheme)
        os.makedirs(place)
        config, (own,) = os.path.join(place, "weir.toml"), free_ports(1)
        for path, text in ((config, CONFIG.format(own=own, scheme=scheme, port=port)), (os.path.join(place, "models.toml"), MODELS)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        quiet = {"stdout": subprocess.DEVNULL, "check": True, "timeout": PATIENCE}
        subprocess.run([self.weir, "profile", config, "--quick", "--samples", "10"], **quiet)
        subprocess.run([self.weir, "check", config], **quiet)
        daemon = subprocess.Popen([self.weir, "serve", config, "--quiet"])
        try:
            call = {"inputs": [{"name": "in", "datatype": "FP32", "shape": [3], "data": [1, 2.5, -3]}]}
            url = f"http://127.0.0.1:{own}/v2/models/doubles/infer"
            answer = eventually("an answer", lambda: ask(url, call))
            self.assertEqual(json.loads(answer)["outputs"][0]["data"], [2, 5, -6])
            self.kill()
            eventually("a miss", lambda: None if ask(url, call) else True)
            again()
            answer = eventually("an answer of the server that came back", lambda: ask(url, call))
            self.assertEqual(json.loads(answer)["outputs"][0]["data"], [2, 5, -6])
            with self.sending(url):
                self.stands(place, 1, True)
                self.kill()
                self.stands(place, 0, False)
                again()
                self.stands(place, 1, True)
            with self.sending(url):
                self.signal(signal.SIGSTOP)
                self.stands(place, 0, False)
                self.signal(signal.SIGCONT)
                self.stands(place, 1, True)
        finally:
            daemon.terminate()
            self.assertEqual(daemon.wait(PATIENCE), 0)

    def stands(self, place, workers, promised):
        """Waits until so many workers are there, and something is promised or is not."""

        def look():
            command = [self.weir, "status", "--json", "--socket", os.path.join(place, "s")]
            told = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
            service = json.loads(told.stdout)["services"][0]
            return True if (service["workers_alive"], service["safe_mode"]["state"] == "normal") == (workers, promised) else None

        eventually(f"{workers} workers, promised: {promised}", look)

    @contextlib.contextmanager
    def sending(self, url):
        """A promised stream sends meanwhile, each request by itself: each has one answer, which is its own, or is a miss."""
        going = threading.Event()

        def one(number):
            call = {"inputs": [{"name": "in", "datatype": "FP32", "shape": [3], "data": [number, 0.5, -number]}]}
            request = urllib.request.Request(url, json.dumps(call).encode(), {"weir-stream": "front"})
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    return number, json.loads(answer.read())["outputs"][0]["data"]
            except urllib.error.HTTPError as refused:
                with refused:
                    return number, f"{refused.code}: {json.loads(refused.read())['error']}"

        def send():
            answers, number = [], 0
            with concurrent.futures.ThreadPoolExecutor(128) as pool:
                while not going.wait(EVERY):
                    number += 1
                    answers.append(pool.submit(one, number))
            return [answer.result() for answer in answers]

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            sender = pool.submit(send)
            try:
                time.sleep(5 * EVERY)
                yield
                time.sleep(5 * EVERY)
            finally:
                going.set()
            answers = sender.result()
        missed = [told for _, told in answers if isinstance(told, str)]
        for number, told in answers:
            self.assertIn(told, ([2 * number, 1, -2 * number], *(text for text in missed if text.startswith("503: no answer in time"))))
        # Nobody is missed before the trouble, and after it.
        self.assertIsInstance(answers[0][1], list)
        self.assertIsInstance(answers[-1][1], list)

    def test_triton(self):
        home = self.home("nvidia-pytriton")
        (packages,) = glob.glob(f"{home}/lib/python*/site-packages")
        version = os.path.basename(os.path.dirname(packages)).removeprefix("python")
        self.lay({f"models/{name}": text for name, text in TRITON.items()})
        # Its Python backend takes the stub beside it for the one of its own Python; libraries are found from where both lie.
        own = os.path.join(packages, "pytriton", "tritonserver")
        backends, program = os.path.join(own, "backends"), os.path.join(own, "bin", "tritonserver")
        stub = shutil.copy(os.path.join(own, "python_backend_stubs", version, "triton_python_backend_stub"), f"{backends}/python")
        for path in (stub, program):
            os.chmod(path, 0o755)
        http, grpc = free_ports(2)
        command = [program, "--model-repository=models", f"--backend-directory={backends}", f"--http-port={http}"]
        command += [f"--grpc-port={grpc}", "--allow-metrics=false", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1"]
        environment = {"PATH": f"{home}/bin:/usr/bin:/bin", "PYTHONPATH": packages, "HOME": self.folder}
        self.tried(command, environment, http, grpc)

    def test_mlserver(self):
        home = self.home("mlserver")
        http, grpc, metrics = free_ports(3)
        ports = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics, "parallel_workers": 0}
        self.lay({**MLSERVER, "settings.json": json.dumps(ports)})
        environment = {"PATH": f"{home}/bin:/usr/bin:/bin", "PYTHONPATH": ".", "HOME": self.folder}
        self.tried([f"{home}/bin/mlserver", "start", "."], environment, http, grpc)

    def test_kserve(self):
        home = self.home("kserve")
        http, grpc = free_ports(2)
        self.lay(KSERVE)
        environment = {"PATH": f"{home}/bin:/usr/bin:/bin", "HOME": self.folder}
        self.tried([f"{home}/bin/python", "model.py", str(http), str(grpc)], environment, http, grpc)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", default="target/debug/weir", help="the binary under test")
    parser.add_argument("--servers", default="target/servers", help="the folder with a virtual environment of each")
    arguments = parser.parse_args()
    Servers.weir, Servers.servers = os.path.abspath(arguments.weir), os.path.abspath(arguments.servers)
    sys.exit(not unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful())
