"""What a daemon grants after nobody waits for it any more."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import sys
import time
import unittest
from typing import Callable
from unittest import mock

import weir
import weir.aio
from weir import _wire as wire

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from daemon import Case  # noqa: E402

#: How long what must come is waited for, in seconds; says nothing about how fast it should be.
PATIENCE = 60.0


def until_free(register: Callable[[], weir.Stream]) -> weir.Stream:
    """Registers, at the latest once a stream of the same name that was granted too late has been given up."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return register()
        except weir.RefusedError as error:
            if error.word != "name-in-use" or time.monotonic() > until:
                raise


class Sync(Case):
    def setUp(self) -> None:
        self.client = weir.Client(self.daemon.socket)
        self.addCleanup(self.client.close)

    def test_a_stream_granted_too_late_is_given_up(self) -> None:
        for receiving in (False, True):
            self.client._timeout = 0.1
            with self.daemon.stopped():
                for call in (self.client.ping, self.client.status, lambda: self.client.register("slow", self.name)):
                    with self.assertRaises(TimeoutError):
                        call()
                with self.assertRaises(TimeoutError):
                    self.client.register("nothing", self.name)
            self.client._timeout = PATIENCE
            if receiving:
                self.assertIsNone(self.client.recv(0.1))
            self.client.unregister(until_free(lambda: self.client.register("slow", self.name)))
            self.assertIsNone(self.client.recv(0.01))
            self.assertEqual(self.client._abandoned, set())


class Asyncio(Case):
    def test_a_stream_granted_to_nobody_is_given_up(self) -> None:
        async def run() -> None:
            async with await weir.aio.connect(self.daemon.socket, timeout=PATIENCE) as client:
                with self.daemon.stopped():
                    with self.assertRaises(asyncio.TimeoutError):
                        await asyncio.wait_for(client.register("slow", self.name), 0.1)
                await self.is_free(client)
                # Granted, and cancelled before its task has looked; what wins differs between versions of Python.
                with self.daemon.stopped():
                    task = asyncio.ensure_future(client.register("slow", self.name))
                    while not client._waiting:
                        await asyncio.sleep(0)
                    ((ident, future),) = client._waiting.items()
                    hasty = client._waiting[ident] = mock.Mock(wraps=future)

                    def grant_and_cancel(frame: wire.Frame) -> None:
                        future.set_result(frame)
                        task.cancel()

                    hasty.set_result.side_effect = grant_and_cancel
                with contextlib.suppress(asyncio.CancelledError):
                    await client.unregister(await task)
                await self.is_free(client)

        asyncio.run(run())

    async def is_free(self, client: weir.aio.Client) -> None:
        """The name can be had, at the latest once a stream granted to nobody has been given up."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return await client.unregister(await client.register("slow", self.name))
            except weir.RefusedError as error:
                if error.word != "name-in-use" or time.monotonic() > until:
                    raise


if __name__ == "__main__":
    unittest.main()
