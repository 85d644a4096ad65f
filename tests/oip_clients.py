#!/usr/bin/env python3
"""Triton's own clients, over HTTP and gRPC, against the daemon's Open Inference Protocol; and the daemon against a server of gRPC's C core.

    python3 tests/oip_clients.py --weir target/debug/weir

Needs `tritonclient[grpc,http]`, `grpcio-reflection` and `trustme` from PyPI: tests/deps.sh oip FOLDER.
"""
import argparse
import asyncio
import datetime
import os
import queue
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import grpc
import numpy
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
import trustme
from concurrent import futures
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException
from oip_daemon import CONFIG, PATIENCE, free_ports

OUTWARD = """
[daemon]
socket = "s"
profile = "profile.json"
models = "models.toml"
realtime = false
bus = "off"
oip.http = "127.0.0.1:{http}"
[[service]]
name = "doubles"
engine = "oip"
model = "doubles"
remote = {{ url = "grpc://127.0.0.1:{port}", stream = "front", timeout = "5s" }}
max-batch = 2
deadline = "20s"
guard = "1s"
"""


class Clients(unittest.TestCase):
    """Each test is made with both ways unless it says otherwise."""

    weir = ""
    more = ""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.prepare()
        http, grpc_port = free_ports(2)
        config = os.path.join(cls.folder.name, "weir.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(http=http, grpc=grpc_port, more=cls.more))
        subprocess.run([cls.weir, "profile", config, "--quick"], stdout=subprocess.DEVNULL, check=True, timeout=60)
        cls.daemon = subprocess.Popen([cls.weir, "serve", config, "--quiet"])
        cls.addresses = {"http": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{grpc_port}"}
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with cls.client(tritonclient.http) as client:
                    if client.is_server_ready():
                        return
            except OSError:
                pass
            if time.monotonic() > until or cls.daemon.poll() is not None:
                cls.daemon.kill()
                raise RuntimeError("the daemon is not ready")
            time.sleep(0.05)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.send_signal(signal.SIGTERM)
        code = cls.daemon.wait(PATIENCE)
        cls.folder.cleanup()
        if code != 0:
            raise RuntimeError(f"the daemon ended with {code}")

    @classmethod
    def prepare(cls):
        """What is in the folder before the daemon starts."""

    @classmethod
    def how(cls, module):
        """What a client is told beside the address."""
        return {}

    @classmethod
    def client(cls, module, **more):
        name = "grpc" if module.__name__.startswith("tritonclient.grpc") else "http"
        return module.InferenceServerClient(cls.addresses[name], **cls.how(module), **more)

    def both(self):
        for name, module in (("http", tritonclient.http), ("grpc", tritonclient.grpc)):
            with self.subTest(name), self.client(module) as client:
                yield name, module, client

    @staticmethod
    def input(module, values=(1.0, 2.0, 3.0), shape=None, name="input", datatype="FP32", **how):
        tensor = numpy.array(values, numpy.float32).reshape(shape or [len(values)])
        of = module.InferInput(name, list(tensor.shape), datatype)
        of.set_data_from_numpy(tensor, **how)
        return [of]

    def refused(self, status, words, call):
        with self.assertRaises(InferenceServerException) as caught:
            call()
        self.assertIn(caught.exception.status(), status)
        for word in words:
            self.assertIn(word, caught.exception.message())

    def test_health_and_descriptions(self):
        for name, _, client in self.both():
            self.assertTrue(client.is_server_live() and client.is_server_ready())
            self.assertTrue(client.is_model_ready("null") and client.is_model_ready("null", "1"))
            server, model = client.get_server_metadata(), client.get_model_metadata("null")
            config, index = client.get_model_config("null"), client.get_model_repository_index()
            if name == "grpc":
                self.assertEqual(server.name, "weir")
                self.assertEqual((model.inputs[0].name, list(model.inputs[0].shape)), ("input", [3]))
                self.assertEqual((config.config.max_batch_size, list(config.config.output[0].dims)), (0, [2]))
                self.assertEqual([(one.name, one.state) for one in index.models], [("null", "READY")])
            else:
                self.assertEqual(server["name"], "weir")
                self.assertEqual((model["inputs"][0]["name"], model["inputs"][0]["shape"]), ("input", [3]))
                self.assertEqual((config["max_batch_size"], config["output"][0]["dims"]), (0, [2]))
                self.assertEqual([(one["name"], one["state"]) for one in index], [("null", "READY")])
            self.refused(("404", "StatusCode.NOT_FOUND"), ["no model none", "null"], lambda: client.get_model_config("none"))

    def test_answers_are_the_same_each_way(self):
        answers = []
        for name, module, client in self.both():
            result = client.infer("null", self.input(module), request_id="7")
            answers.append(result.as_numpy("output").tolist())
            response = result.get_response()
            self.assertEqual(response.id if name == "grpc" else response["id"], "7")
            wanted = [module.InferRequestedOutput("output")]
            batch = client.infer("null", self.input(module, shape=[1, 3]), outputs=wanted, model_version="1")
            answers.append(batch.as_numpy("output").tolist())
        with self.client(tritonclient.http) as client:
            plain = [tritonclient.http.InferRequestedOutput("output", binary_data=False)]
            inputs = self.input(tritonclient.http, binary_data=False)
            answers.append(client.infer("null", inputs, outputs=plain).as_numpy("output").tolist())
        self.assertEqual(len(answers), 5)
        self.assertTrue(all(answer == answers[0] and len(answer) == 2 for answer in answers), answers)

    def test_streams_are_named_and_misses_left_told(self):
        for name, module, client in self.both():
            told = client.infer("null", self.input(module), parameters={"weir_stream": "front"}).get_response()
            left = told.parameters["weir_misses_left"].int64_param if name == "grpc" else told["parameters"]["weir_misses_left"]
            self.assertEqual(left, 1)
            client.infer("null", self.input(module), headers={"weir-stream": "front"})
            declared = {"weir_stream": name, "weir_constraints": "row_miss(2)", "weir_period": "1s", "weir_jitter": "9s"}
            unavailable = ("503", "StatusCode.UNAVAILABLE")
            self.refused(unavailable, ["request 0"], lambda: client.infer("null", self.input(module), parameters=declared, timeout=1))
            declared["weir_period"] = "2s"
            conflict = ("409", "StatusCode.FAILED_PRECONDITION")
            self.refused(conflict, [name], lambda: client.infer("null", self.input(module), parameters=declared))

    def test_what_is_wrong_is_told(self):
        invalid = ("400", "StatusCode.INVALID_ARGUMENT")
        unknown = ("501", "StatusCode.UNIMPLEMENTED")
        missing = ("404", "StatusCode.NOT_FOUND")
        for _, module, client in self.both():
            good = self.input(module)
            self.refused(missing, ["no model none"], lambda: client.infer("none", good))
            self.refused(missing, ["version 1", "not 3"], lambda: client.infer("null", good, model_version="3"))
            short = self.input(module, values=(1.0, 2.0))
            self.refused(invalid, ["[2]", "[3]"], lambda: client.infer("null", short))
            other = self.input(module, name="image")
            self.refused(invalid, ["image", "input"], lambda: client.infer("null", other))
            many = self.input(module, values=[0.0] * 20_000)
            large = ("413", "StatusCode.RESOURCE_EXHAUSTED", "StatusCode.OUT_OF_RANGE")
            self.refused(large, ["65536"], lambda: client.infer("null", many))
            self.refused(unknown, ["weir_stream"], lambda: client.infer("null", good, sequence_id=4))
            classes = [module.InferRequestedOutput("output", class_count=2)]
            self.refused(unknown, ["classification"], lambda: client.infer("null", good, outputs=classes))
            self.refused(unknown, ["not supported here"], lambda: client.load_model("null"))
            self.assertEqual(client.infer("null", good).as_numpy("output").shape, (2,))

    def test_many_at_once(self):
        async def through(module, **more):
            async with self.client(module, **more) as client:
                calls = [client.infer("null", self.input(module), request_id=str(i)) for i in range(100)]
                return [answer.get_response() for answer in await asyncio.gather(*calls)]

        answers = asyncio.run(through(tritonclient.grpc.aio))
        self.assertEqual([answer.id for answer in answers], [str(i) for i in range(100)])
        answers = asyncio.run(through(tritonclient.http.aio, conn_limit=8))
        self.assertEqual([answer["id"] for answer in answers], [str(i) for i in range(100)])

    def test_a_stream_of_calls_over_grpc(self):
        answers = queue.Queue()
        with self.client(tritonclient.grpc) as client:
            client.start_stream(callback=lambda result, error: answers.put((result, error)))
            for i in range(50):
                client.async_stream_infer("null", self.input(tritonclient.grpc), request_id=str(i))
            client.async_stream_infer("none", self.input(tritonclient.grpc))
            told = [answers.get(timeout=PATIENCE) for _ in range(51)]
            client.stop_stream()
        self.assertEqual(sorted(int(result.get_response().id) for result, _ in told if result), list(range(50)))
        self.assertEqual(["no model none" in str(error) for result, error in told if result is None], [True])

    def test_statistics_count(self):
        def count(name, client):
            told = client.get_inference_statistics("null")
            if name == "grpc":
                return told.model_stats[0].inference_stats.success.count
            return told["model_stats"][0]["inference_stats"]["success"]["count"]

        for name, module, client in self.both():
            before = count(name, client)
            client.infer("null", self.input(module))
            self.assertEqual(count(name, client), before + 1)

    def test_a_message_of_too_many_fields_is_refused_before_it_is_read(self):
        with self.channel() as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            for empty, told in [(b"\x2a\x00" * 5000, "5000 fields, 4096 are allowed"), (b"\x2a\x05", "")]:
                with self.assertRaises(grpc.RpcError) as raised:
                    infer(empty, timeout=10)
                self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn(told, raised.exception.details())

    def test_a_message_of_a_wrong_type_is_told_by_its_field(self):
        # The inputs are a number, as another protocol might have them; and a parameter that has no value.
        empty = service_pb2.ModelInferRequest(model_name="null")
        empty.parameters["weir_last"].SetInParent()
        with self.channel() as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            for message, word in ((b"\x28\x07", "ModelInferRequest.inputs"), (empty.SerializeToString(), "weir_last: must have a value")):
                with self.assertRaises(grpc.RpcError) as caught:
                    infer(message, timeout=PATIENCE)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn(word, caught.exception.details())

    def channel(self):
        return grpc.insecure_channel(self.addresses["grpc"])

    def test_reflection(self):
        with self.channel() as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            asked = reflection_pb2.ServerReflectionRequest(list_services="")
            told = next(iter(stub.ServerReflectionInfo(iter([asked]))))
        names = [service.name for service in told.list_services_response.service]
        self.assertIn("inference.GRPCInferenceService", names)


class Secured(Clients):
    """The same over TLS, by a client that shows who it is; and whoever else is kept out."""

    more = """tls = { certificate = "box.pem", key = "box.key", client-ca = "ca.pem", allow-clients = ["front.example"] }"""

    @classmethod
    def at(cls, name):
        return os.path.join(cls.folder.name, name)

    @classmethod
    def prepare(cls):
        day = datetime.timedelta(days=1)
        now = datetime.datetime.now(datetime.timezone.utc)
        ours, others = trustme.CA(), trustme.CA()
        ours.cert_pem.write_to_path(cls.at("ca.pem"))
        others.cert_pem.write_to_path(cls.at("others.pem"))
        for name, ca, host, until in (
            ("box", ours, "127.0.0.1", now + day),
            ("front", ours, "front.example", now + day),
            ("other", ours, "other.example", now + day),
            ("past", ours, "front.example", now - day),
            ("stranger", others, "front.example", now + day),
        ):
            own = ca.issue_cert(host, not_before=now - 2 * day, not_after=until)
            own.private_key_pem.write_to_path(cls.at(f"{name}.key"))
            with open(cls.at(f"{name}.pem"), "wb") as file:
                file.writelines(pem.bytes() for pem in own.cert_chain_pems)

    @classmethod
    def read(cls, name):
        with open(cls.at(name), "rb") as file:
            return file.read()

    @classmethod
    def how(cls, module, own="front", ca="ca"):
        certificate, key = (cls.at(f"{own}.pem"), cls.at(f"{own}.key")) if own else (None, None)
        if module is tritonclient.http:
            options = {"ca_certs": cls.at(f"{ca}.pem"), "certfile": certificate, "keyfile": key}
            return {"ssl": True, "ssl_options": {name: value for name, value in options.items() if value}}
        if module is tritonclient.http.aio:
            return {"ssl": True, "ssl_context": cls.context(own, ca)}
        return {"ssl": True, "root_certificates": cls.at(f"{ca}.pem"), "private_key": key, "certificate_chain": certificate}

    @classmethod
    def context(cls, own, ca):
        context = ssl.create_default_context(cafile=cls.at(f"{ca}.pem"))
        if own:
            context.load_cert_chain(cls.at(f"{own}.pem"), cls.at(f"{own}.key"))
        return context

    def channel(self):
        credentials = grpc.ssl_channel_credentials(*map(self.read, ("ca.pem", "front.key", "front.pem")))
        return grpc.secure_channel(self.addresses["grpc"], credentials)

    def test_whoever_else_is_kept_out(self):
        for own, ca in (("other", "ca"), ("past", "ca"), ("stranger", "ca"), (None, "ca"), ("front", "others")):
            with self.subTest(f"{own} {ca}"):
                with self.assertRaises((OSError, urllib.error.URLError)):
                    urllib.request.urlopen(
                        f"https://{self.addresses['http']}/v2/health/live", context=self.context(own, ca), timeout=PATIENCE
                    ).read()
                how = self.how(tritonclient.grpc, own, ca)
                with tritonclient.grpc.InferenceServerClient(self.addresses["grpc"], **how) as client:
                    self.refused(("StatusCode.UNAVAILABLE",), [], client.is_server_live)
        with urllib.request.urlopen(
            f"https://{self.addresses['http']}/v2/health/live", context=self.context("front", "ca"), timeout=PATIENCE
        ) as answer:
            self.assertEqual(answer.status, 200)


class Doubles(service_pb2_grpc.GRPCInferenceServiceServicer):
    """A server of gRPC's C core, which doubles numbers; in the list of their type, as MLServer does, if they came so."""

    def __init__(self):
        self.left, self.stream, self.gone = None, None, threading.Event()
        self.silent = False

    def ServerMetadata(self, request, context):
        return service_pb2.ServerMetadataResponse(name="core", version="1")

    def ModelReady(self, request, context):
        return service_pb2.ModelReadyResponse(ready=request.name == "doubles")

    def ModelMetadata(self, request, context):
        if request.name != "doubles":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        of = service_pb2.ModelMetadataResponse.TensorMetadata
        tensor = {"datatype": "FP32", "shape": [-1, 3]}
        return service_pb2.ModelMetadataResponse(
            name="doubles", versions=["1"], platform="python", inputs=[of(name="in", **tensor)], outputs=[of(name="out", **tensor)]
        )

    def ModelInfer(self, request, context):
        self.left, self.stream = context.time_remaining(), dict(context.invocation_metadata()).get("weir-stream")
        if self.silent:
            context.add_callback(self.gone.set)
            self.gone.wait(PATIENCE)
            context.abort(grpc.StatusCode.CANCELLED, "nobody waits")
        values = 2 * numpy.frombuffer(request.raw_input_contents[0], numpy.float32)
        answer = service_pb2.ModelInferResponse(model_name="doubles", model_version="1")
        output = answer.outputs.add(name="out", datatype="FP32", shape=request.inputs[0].shape)
        if values[0] < 0:
            output.contents.fp32_contents.extend(values.tolist())
        else:
            answer.raw_output_contents.append(values.tobytes())
        return answer


class Outward(unittest.TestCase):
    """The daemon's worker is such a server."""

    weir = ""

    def setUp(self):
        self.doubles, self.pool = Doubles(), futures.ThreadPoolExecutor(8)
        self.server = grpc.server(self.pool)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self.doubles, self.server)
        port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(self.server.stop, None)
        self.config = os.path.join(folder.name, "weir.toml")
        self.http, _ = free_ports(2)
        with open(os.path.join(folder.name, "models.toml"), "w", encoding="utf-8") as file:
            tensor = 'type = "f32", shape = [3] }'
            file.write(f'[[model]]\nname = "doubles"\ninput = {{ name = "in", {tensor}\noutput = {{ name = "out", {tensor}\n')
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(OUTWARD.format(http=self.http, port=port))

    def test_it_is_called_as_the_c_core_has_it(self):
        subprocess.run([self.weir, "profile", self.config, "--quick", "--samples", "10"], stdout=subprocess.DEVNULL, check=True, timeout=60)
        daemon = subprocess.Popen([self.weir, "serve", self.config, "--quiet"])
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{self.http}", network_timeout=PATIENCE)
        self.addCleanup(client.close)

        def infer(values):
            image = tritonclient.http.InferInput("in", [3], "FP32")
            image.set_data_from_numpy(numpy.array(values, numpy.float32))
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    return client.infer("doubles", [image]).as_numpy("out").tolist()
                except (OSError, InferenceServerException) as error:
                    # Not there yet, or lost before.
                    if time.monotonic() > until or "worker-lost" in str(error) and self.doubles.silent:
                        raise
                time.sleep(0.05)

        self.assertEqual(infer([1, 2, 3]), [2, 4, 6])
        self.assertEqual(infer([-1, 2, 3]), [-2, 4, 6])
        self.assertEqual(self.doubles.stream, "front")
        self.assertLessEqual(self.doubles.left, 5)
        self.doubles.silent = True
        with self.assertRaises(InferenceServerException):
            infer([1, 2, 3])
        self.assertTrue(self.doubles.gone.wait(PATIENCE), "the call was not cancelled")
        self.doubles.silent = False
        self.assertEqual(infer([4, 5, 6]), [8, 10, 12])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", default="target/debug/weir", help="the binary under test")
    Clients.weir = Outward.weir = os.path.abspath(parser.parse_args().weir)
    sys.exit(not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful())
