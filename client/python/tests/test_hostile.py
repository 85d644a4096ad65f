"""Both clients against daemons that break the protocol, die or do not read; and programs that are interrupted."""

from __future__ import annotations

import asyncio
import collections
import math
import os
import pathlib
import signal
import socket
import struct
import tempfile
import threading
import unittest
from typing import Callable, Union

import numpy as np
import weir
import weir.aio
from weir import _wire as wire

#: Bytes of a request of a stream that fills the socket.
LARGE = 400_000


class Peer:
    """The daemon's end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def next(self) -> Union[int, None]:
        """The id of the client's next frame, ``None`` at the end."""
        head = self.connection.recv(wire.HEADER.size, socket.MSG_WAITALL)
        if len(head) < wire.HEADER.size:
            return None
        length, _, _, ident = wire.HEADER.unpack(head)
        if length:
            self.connection.recv(length, socket.MSG_WAITALL)
        return int(ident)

    def answer(self, kind: int, body: bytes = b"") -> None:
        self.connection.sendall(wire.frame(kind, self.next() or 0, body))

    def welcome(self) -> None:
        self.answer(wire.WELCOME, struct.pack("<HHIQ", 1, 0, 4 << 20, 1 << 20) + wire.string("hostile"))

    def grant(self, nbytes: int = 2, told: int = 2) -> None:
        """A stream whose input and output are so many bytes."""
        tensor = struct.pack("<BHBI", 1, 4, 1, nbytes) + wire.string("t")
        self.answer(wire.REGISTERED, struct.pack("<IIQIIIf", 7, told, 0, told, 0, 1, 0.5) + wire.string("v") + 2 * tensor)

    def result(self, output: bytes) -> None:
        self.answer(wire.RESULT, struct.pack("<IIQQQHHI", 7, 1, 0, 0, 0, 1, 0, 0) + output)


class Case(unittest.TestCase):
    def serve(self, script: Callable[[Peer], None]) -> str:
        """A path whose first connection follows a script after WELCOME."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = str(pathlib.Path(folder.name, "s"))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()

        def run() -> None:
            with listener, listener.accept()[0] as connection:
                peer = Peer(connection)
                peer.welcome()
                script(peer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 5.0)
        return path


class Sync(Case):
    def against(self, script: Callable[[Peer], None]) -> weir.Client:
        client = weir.Client(self.serve(script))
        self.addCleanup(client.close)
        return client

    def test_what_breaks_the_protocol_ends_the_connection(self) -> None:
        ends: list[Union[int, None]] = []

        def body_where_none_belongs(peer: Peer) -> None:
            peer.answer(wire.PONG, b"x")
            ends.append(peer.next())

        def tensors_beyond_the_payload(peer: Peer) -> None:
            peer.grant(nbytes=3)
            ends.append(peer.next())

        def short_output(peer: Peer) -> None:
            peer.grant()
            peer.result(b"x")
            ends.append(peer.next())

        for script in (body_where_none_belongs, tensors_beyond_the_payload, short_output):
            client = self.against(script)
            with self.assertRaises(weir.ProtocolError):
                client.infer(client.register("s", "t"), [1, 2]) if script is not body_where_none_belongs else client.ping()
            with self.assertRaises(weir.ClosedError):
                client.ping()
        self.doCleanups()
        self.assertEqual(ends, [None] * 3)

    def test_who_is_interrupted_waits_no_more(self) -> None:
        release = threading.Event()

        def script(peer: Peer) -> None:
            peer.grant()
            release.wait()
            peer.result(b"no")
            peer.result(b"ok")
            peer.next()

        def interrupt(*_: object) -> None:
            raise InterruptedError

        client = self.against(script)
        stream = client.register("s", "t")
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with self.assertRaises(InterruptedError):
            client.infer(stream, [1, 2])
        release.set()
        outcome = client.infer(stream, [1, 2])
        assert isinstance(outcome, weir.Result)
        self.assertEqual(outcome.output.tobytes(), b"ok")
        self.assertIsNone(client.recv(0))

    def test_a_closed_client_says_so(self) -> None:
        client = self.against(lambda peer: peer.grant())
        stream = client.register("s", "t")
        client.close()
        for call in (client.ping, client.recv, lambda: client.submit(stream, [1, 2])):
            with self.assertRaises(weir.ClosedError):
                call()

    def test_times_and_numbers_of_every_kind(self) -> None:
        client = self.against(lambda peer: peer.answer(wire.PONG))
        client.ping()
        with self.assertRaises(weir.ClosedError):
            client.recv(math.inf)
        file = os.eventfd(0, os.EFD_NONBLOCK)
        alarm = weir.Alarm(file)
        self.addCleanup(alarm.close)
        timer = threading.Timer(0.5, os.eventfd_write, (file, 1))
        timer.start()
        self.addCleanup(timer.join)
        # What is left until an instant that has passed; not for ever.
        self.assertEqual((alarm.take(-0.001), alarm.take(math.inf)), (0, 1))
        for senseless in (weir.any_miss(-1, 5), weir.any_miss(1, 1 << 32)):
            with self.assertRaisesRegex(ValueError, f"k={senseless.k}.*must be whole, 0 to"):
                client.register("s", "t", [senseless])
        with self.assertRaisesRegex(ValueError, "-0.1 s, must be"):
            weir.periodic(0.02, -0.1)
        with self.assertRaisesRegex(FileNotFoundError, "is the daemon running.*nonexistent/s"):
            weir.Client("/nonexistent/s")


class Asyncio(Case):
    def deaf(self, over: threading.Event) -> str:
        def script(peer: Peer) -> None:
            peer.grant(LARGE, LARGE)
            over.wait()

        return self.serve(script)

    def test_whoever_waits_for_room_learns_of_the_end(self) -> None:
        async def run(over: threading.Event, by_daemon: bool) -> None:
            async with await weir.aio.connect(self.deaf(over), timeout=2.0) as client:
                stream = await client.register("s", "t")
                waiting = [asyncio.ensure_future(client.infer(stream, np.zeros(LARGE, np.uint8))) for _ in range(200)]
                await asyncio.sleep(0.05)
                over.set() if by_daemon else await client.close()
                ends = await asyncio.gather(*waiting, return_exceptions=True)
                self.assertEqual(collections.Counter(map(type, ends)), {weir.ClosedError: 200})

        for by_daemon in (False, True):
            over = threading.Event()
            try:
                asyncio.run(run(over, by_daemon))
            finally:
                over.set()

    def test_who_stops_sharing_leaves_no_file(self) -> None:
        def memories() -> int:
            files = (f"/proc/self/fd/{file}" for file in os.listdir("/proc/self/fd"))
            return sum("memfd:weir" in os.readlink(file) for file in files if os.path.islink(file))

        async def run(over: threading.Event) -> None:
            async with await weir.aio.connect(self.deaf(over)) as client:
                stream = await client.register("s", "t")
                waiting = [asyncio.ensure_future(client.infer(stream, np.zeros(LARGE, np.uint8))) for _ in range(100)]
                await asyncio.sleep(0.05)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.share(4096), 0.05)
                await client.close()
                await asyncio.gather(*waiting, return_exceptions=True)

        over = threading.Event()
        try:
            asyncio.run(run(over))
        finally:
            over.set()
        self.assertEqual(memories(), 0)

    def test_what_breaks_the_protocol_ends_the_connection(self) -> None:
        def body_where_none_belongs(peer: Peer) -> None:
            peer.answer(wire.PONG, b"x")

        def event_that_is_none(peer: Peer) -> None:
            peer.next()
            peer.connection.sendall(wire.frame(wire.PONG, 0))

        for breaks in (body_where_none_belongs, event_that_is_none):
            self.breaks(breaks)

    def breaks(self, script: Callable[[Peer], None]) -> None:
        async def run() -> None:
            client = await weir.aio.connect(self.serve(watched))
            with self.assertRaises(weir.ProtocolError):
                await client.ping()
            await asyncio.get_running_loop().run_in_executor(None, ended.wait, 10)
            self.assertEqual(seen, [None])
            await client.close()

        def watched(peer: Peer) -> None:
            script(peer)
            seen.append(peer.next())
            ended.set()

        seen: list[Union[int, None]] = []
        ended = threading.Event()
        asyncio.run(run())

    def test_a_daemon_that_accepts_nobody_yet_is_waited_for(self) -> None:
        async def run() -> None:
            with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
                path = str(pathlib.Path(folder, "s"))
                listener.bind(path)
                listener.listen(0)
                with socket.socket(socket.AF_UNIX) as first:
                    first.connect(path)
                    with self.assertRaises(asyncio.TimeoutError):
                        await weir.aio.connect(path, timeout=0.1)

        asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
