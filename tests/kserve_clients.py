#!/usr/bin/env python3
"""KServe's own inference clients, REST and gRPC, against the daemon's Open Inference Protocol.

    python3 tests/kserve_clients.py --weir target/debug/weir

Needs `kserve` from PyPI: tests/deps.sh kserve FOLDER.
"""
import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import grpc
import httpx
import numpy
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from oip_daemon import CONFIG, PATIENCE, free_ports


def request(binary, values=(1.0, 2.0, 3.0), **more):
    tensor = InferInput("input", [len(values)], "FP32")
    tensor.set_data_from_numpy(numpy.array(values, numpy.float32), binary_data=binary)
    return InferRequest("null", [tensor], request_id="7", **more)


class Clients(unittest.IsolatedAsyncioTestCase):
    weir = ""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        config = os.path.join(cls.folder.name, "weir.toml")
        http, cls.grpc = free_ports(2)
        cls.url = f"http://127.0.0.1:{http}"
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(http=http, grpc=cls.grpc, more=""))
        subprocess.run([cls.weir, "profile", config, "--quick"], stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE)
        cls.daemon = subprocess.Popen([cls.weir, "serve", config, "--quiet"])

    @classmethod
    def tearDownClass(cls):
        cls.daemon.send_signal(signal.SIGTERM)
        code = cls.daemon.wait(PATIENCE)
        cls.folder.cleanup()
        if code != 0:
            raise RuntimeError(f"the daemon ended with {code}")

    async def asyncSetUp(self):
        self.rest = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
        self.remote = InferenceGRPCClient(f"127.0.0.1:{self.grpc}", retries=0)
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    if await self.rest.is_server_ready(self.url):
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)

    async def asyncTearDown(self):
        await self.rest.close()
        await self.remote.close()

    async def test_is_told_what_is_ready(self):
        for ready in (
            self.rest.is_server_live(self.url),
            self.rest.is_model_ready(self.url, "null"),
            self.remote.is_server_live(),
            self.remote.is_server_ready(),
            self.remote.is_model_ready("null"),
        ):
            self.assertTrue(await ready)

    async def test_infers_with_json_and_with_bytes(self):
        stream = {"weir_stream": "front"}
        for answer in (
            self.rest.infer(self.url, request(False), model_name="null"),
            self.rest.infer(self.url, request(True), model_name="null"),
            self.rest.infer(self.url, request(True, parameters=stream), model_name="null"),
            self.remote.infer(request(True)),
            self.remote.infer(request(True, parameters=stream)),
        ):
            answer = await answer
            self.assertEqual((answer.model_name, answer.id), ("null", "7"))
            [output] = answer.outputs
            self.assertEqual(output.as_numpy().shape[-1], 2)

    async def test_is_told_what_is_wrong(self):
        with self.assertRaises(httpx.HTTPStatusError) as caught:
            await self.rest.infer(self.url, request(True, [1.0, 2.0]), model_name="null")
        self.assertEqual(caught.exception.response.status_code, 400)
        with self.assertRaises(grpc.aio.AioRpcError) as caught:
            await self.remote.infer(request(True, [1.0, 2.0]))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="target/debug/weir", help="the program")
    arguments, rest = parser.parse_known_args()
    Clients.weir = os.path.abspath(arguments.weir)
    unittest.main(argv=[sys.argv[0], *rest])
