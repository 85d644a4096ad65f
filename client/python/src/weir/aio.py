"""The client for asyncio: any number of tasks may wait for answers at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from os import PathLike
from typing import Any, AsyncIterator, Callable, Sequence, TypeVar, Union, cast

import numpy.typing as npt

from . import _wire as wire
from ._alarm import Alarm, Inlet
from ._arena import Arena, Place
from ._client import DEFAULT_SOCKET, KEPT_LIMIT, unreachable
from ._held import Held, Holds, given_up
from ._types import (
    PAUSES, Array, Arrivals, ClosedError, Constraint, Event, EventsLost, Outcome, ProtocolError, RefusedError, Stream, is_in_use,
)  # fmt: skip

__all__ = ["Client", "connect"]

#: The most frames that wait for the socket.
OUTBOX = 64

T = TypeVar("T")


async def connect(
    path: Union[str, PathLike[str]] = DEFAULT_SOCKET,
    *,
    name: str = "weir-python",
    timeout: float = 5.0,
    reconnect: bool = False,
) -> Client:
    """Connects to the daemon; with ``reconnect`` again and again, see ``Client``."""
    client = Client(path, name, timeout, reconnect)
    await client._open()
    return client


async def _connect(connection: socket.socket, path: str) -> None:
    while True:
        try:
            return connection.connect(path)
        except BlockingIOError:
            # Too many wait to be accepted. Unlike a network's, such a socket is not connecting: nothing will tell.
            await asyncio.sleep(0.01)


def again(error: Exception) -> Exception:
    """The same for one more caller: one that is raised twice keeps the frames of both."""
    return type(error)(*error.args)


class Client:
    """A connection to the daemon; ``connect`` opens it, leaving ``async with`` closes it.

    Whatever waits may be cancelled: the request still counts in its stream, its answer is dropped when it comes. A stream
    that is granted when nobody waits for it any more is given up again; its name may be in use until then.
    Raises as ``weir.Client`` does.

    With ``reconnect`` the first call after the connection has ended connects anew, registers all streams again and subscribes
    to what was subscribed to: the same ``Stream`` objects go on, and one that is refused keeps no other from it. What was in
    flight is lost, and so are arena and alarm.
    """

    max_arena: int
    daemon: str
    _version: int

    def __init__(self, path: Union[str, PathLike[str]], name: str, timeout: float, reconnect: bool) -> None:
        self._path, self._name, self._timeout, self._reconnect = path, name, timeout, reconnect
        # What is to be registered and subscribed to again.
        self._streams = Holds()
        self._mask = 0
        self._opening = asyncio.Lock()

    async def _open(self) -> None:
        """Opens a connection; after an error there is none."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.wait_for(_connect(connection, str(self._path)), self._timeout)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError) and error.errno:
                raise unreachable(self._path, error) from None
            raise
        self._begin(connection)
        try:
            told = await self._ask(wire.HELLO, wire.hello(self._name), wire.welcome)
            self._version, self._decoder.max_frame, self.max_arena, self.daemon = told
        except BaseException:
            await self._close()
            raise

    def _begin(self, connection: socket.socket) -> None:
        self._socket = connection
        self._decoder = wire.Decoder()
        self._inlet = Inlet()
        self._last = 0
        self._end: Union[Exception, None] = None
        self._waiting: dict[int, asyncio.Future[wire.Frame]] = {}
        # Which connection it is, for the arena shared on it.
        self._mark = object()
        # Frames that give up streams which nobody waits for any more.
        self._giving_up = b""
        self._events: asyncio.Queue[Union[Event, None]] = asyncio.Queue()
        self._lost = 0
        # A task of its own writes, so that whoever is cancelled never leaves half a frame in the socket. An empty frame
        # only wakes it.
        self._outbox: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue()
        self._room = asyncio.Semaphore(OUTBOX)
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._write())]

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _alive(self) -> None:
        """Connects anew where the connection has ended, if that is wanted."""
        if not self._reconnect:
            return
        # Another task may be doing it: what is registered so far is not all.
        async with self._opening:
            if self._end is None:
                return
            await self._close()
            self._streams.left()
            await self._open()
            pauses = iter(PAUSES)
            try:
                for held in list(self._streams.values()):
                    # What is refused is told by the calls of this stream; the others go on.
                    with contextlib.suppress(RefusedError, ValueError):
                        while True:
                            try:
                                await self._enter_again(held)
                                break
                            except RefusedError as error:
                                pause = next(pauses, None) if is_in_use(error) else None
                                if pause is None:
                                    raise
                            await asyncio.sleep(pause)
                if self._mask:
                    await self._ask_for(wire.SUBSCRIBE, self._mask.to_bytes(4, "little"), wire.SUBSCRIBED)
            except BaseException as error:
                # Not half a connection: the next call begins anew.
                self._finish(ClosedError(f"what was registered could not be registered again: {error}"))
                raise

    async def _now(self, stream: Stream) -> Stream:
        """The stream as it is on the present connection."""
        await self._alive()
        if not self._reconnect:
            return stream
        held = self._streams.of(stream)
        if not held.stream:
            # Another task may be doing it.
            async with self._opening:
                return held.stream or await self._enter_again(held)
        return held.stream

    async def _enter_again(self, held: Held) -> Stream:
        """Registers a stream that was registered before; another task may give it up meanwhile."""
        stream = await self._enter(held)
        if self._streams.get((held.service, held.name)) is not held:
            await self._ask_for(wire.UNREGISTER, stream.id.to_bytes(4, "little"), wire.UNREGISTERED)
            raise given_up(stream)
        return stream

    async def close(self) -> None:
        """Ends the connection for good and gives up its streams."""
        self._reconnect = False
        await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._outbox.empty():
            _, descriptor = self._outbox.get_nowait()
            if descriptor >= 0:
                os.close(descriptor)
        self._finish(ClosedError("the connection was closed here"))
        self._socket.close()
        self._inlet.close()

    async def register(
        self,
        service: str,
        name: str,
        constraints: Sequence[Constraint] = (),
        arrivals: Sequence[Arrivals] = (),
        class_: Union[str, None] = None,
    ) -> Stream:
        """Asks for a stream and the promise that goes with it; best effort, or reserved, without constraints. Its requests are
        of the class of that name unless they name another."""
        held = Held(wire.register(service, name, constraints, arrivals, class_), service, name, class_)
        await self._alive()
        stream = await self._enter(held)
        if self._reconnect:
            self._streams[service, name] = held
        return stream

    async def _enter(self, held: Held) -> Stream:
        """Registers a stream on the present connection."""
        wire.knows_classes(self._version, held.class_)
        told = await self._ask(wire.REGISTER, held.body, lambda answer: wire.registered(answer, held.service, held.name))
        held.stream = told
        return told

    async def unregister(self, stream: Stream) -> None:
        """Gives a stream up; what it still has waiting is cancelled. With ``reconnect`` for good, also where the daemon could not
        be told."""
        now = self._streams.drop(stream) if self._reconnect else stream
        # A connection that has ended has given it up.
        if now and not (self._reconnect and self._end is not None):
            await self._ask_for(wire.UNREGISTER, now.id.to_bytes(4, "little"), wire.UNREGISTERED)

    async def subscribe(self, mask: int) -> None:
        """Chooses the events to be told: ``SAFE_MODE | SUSPENSION | MISSES_LEFT``, some of them, or 0; ``events`` yields them."""
        await self._alive()
        await self._ask_for(wire.SUBSCRIBE, mask.to_bytes(4, "little"), wire.SUBSCRIBED)
        self._mask = mask

    async def alarm(self) -> Alarm:
        """An eventfd that counts the changes of safe mode and the suspensions subscribed to before; once on a connection."""
        await self._alive()
        await self._ask_for(wire.ALARM, b"", wire.ALARMED)
        return self._taken(self._inlet.alarm)

    async def status(self) -> dict[str, Any]:
        """The daemon's state."""
        await self._alive()
        return cast("dict[str, Any]", await self._ask(wire.STATUS, b"", wire.status))

    async def ping(self) -> None:
        """Returns once the daemon has answered."""
        await self._alive()
        await self._ask_for(wire.PING, b"", wire.PONG)

    async def share(self, nbytes: int) -> Arena:
        """Shares memory with the daemon, once on a connection, at most ``max_arena`` bytes."""
        await self._alive()
        arena = Arena(nbytes)
        try:
            await self._ask_for(wire.ARENA, nbytes.to_bytes(8, "little"), wire.MAPPED, arena.file)
        finally:
            arena.forget_file()
        arena.connection = self._mark
        return arena

    async def infer(
        self, stream: Stream, *inputs: npt.ArrayLike, deadline: Union[float, None] = None, class_: Union[str, None] = None
    ) -> Outcome:
        """Sends one request and waits for what it comes to, at most the stream's deadline and the timeout.

        With a ``deadline`` of its own, in seconds and below the stream's, it is missed if not answered within that. It is of the
        class of that name, or else of the stream's own."""
        stream = await self._now(stream)
        request = wire.submit(self._version, stream, stream.pack(inputs), deadline, class_)
        return await self._infer(request, stream, None)

    async def infer_shared(
        self, place: Place, *, deadline: Union[float, None] = None, class_: Union[str, None] = None
    ) -> Outcome:
        """The same for a request that lies in the arena; the outputs of its result are those of the place."""
        now = await self._now(place.stream)
        stream = place.on(self._mark, now)
        ends = (place.input_at, place.output_at)
        request = wire.submit_shared(self._version, stream, *ends, deadline, class_)
        return await self._infer(request, stream, place.outputs)

    async def events(self) -> AsyncIterator[Event]:
        """The events of the subscription as they come, until the connection ends; then ask for those of the next one."""
        await self._alive()
        events = self._events
        while True:
            event = await events.get()
            if self._lost:
                lost, self._lost = self._lost, 0
                yield EventsLost(lost)
            if event is None:
                events.put_nowait(None)  # For whoever asks next.
                return
            yield event

    async def _infer(
        self, request: tuple[int, bytes], stream: Stream, shared: Union[dict[str, Array], None]
    ) -> Outcome:
        return await self._ask(
            *request, lambda answer: wire.outcome(answer, stream, shared), wait=stream.deadline
        )

    def _taken(self, read: Callable[[], T]) -> T:
        """What a frame says; one that breaks the protocol ends the connection."""
        try:
            return read()
        except ProtocolError as error:
            self._finish(error)
            raise

    async def _ask_for(self, kind: int, body: bytes, answer: int, descriptor: int = -1) -> None:
        await self._ask(kind, body, lambda told: wire.done(told, answer), descriptor)

    async def _ask(
        self, kind: int, body: bytes, read: Callable[[wire.Frame], T], descriptor: int = -1, wait: float = 0.0
    ) -> T:
        if self._end is not None:
            raise again(self._end)
        if len(body) > self._decoder.max_frame:
            raise ValueError(f"a frame of {len(body)} bytes, limit {self._decoder.max_frame}: share an arena")
        self._last += 1
        ident = self._last
        future: asyncio.Future[wire.Frame] = asyncio.get_running_loop().create_future()
        self._waiting[ident] = future

        async def answered() -> wire.Frame:
            await self._room.acquire()
            if self._end is None:
                # A copy of its own, for the caller may be gone when it is sent.
                copy = os.dup(descriptor) if descriptor >= 0 else -1
                self._outbox.put_nowait((wire.frame(kind, ident, body), copy))
            try:
                return await future
            except asyncio.CancelledError:
                # It may have come without having been looked at.
                if future.done() and not future.cancelled() and future.exception() is None:
                    self._drop(future.result())
                raise

        try:
            answer = await asyncio.wait_for(answered(), self._timeout + wait)
        except asyncio.TimeoutError:
            raise TimeoutError(f"nothing from the daemon after {self._timeout + wait} s") from None
        finally:
            self._waiting.pop(ident, None)
        return self._taken(lambda: read(answer))

    def _drop(self, frame: wire.Frame) -> None:
        """Takes an answer that nobody waits for: a stream that it grants is given up."""
        if frame.kind == wire.REGISTERED:
            self._giving_up += self._taken(lambda: wire.give_up(frame))
            self._outbox.put_nowait((b"", -1))

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data, descriptor = await self._outbox.get()
            if data:
                self._room.release()
            first, self._giving_up = self._giving_up, b""
            try:
                await loop.sock_sendall(self._socket, first)
                sent = await self._send_descriptor(data, descriptor) if descriptor >= 0 else 0
                await loop.sock_sendall(self._socket, data[sent:])
            except OSError:
                return  # The reading task finds out why.
            finally:
                if descriptor >= 0:
                    os.close(descriptor)

    async def _send_descriptor(self, data: bytes, descriptor: int) -> int:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return socket.send_fds(self._socket, [data], [descriptor])
            except BlockingIOError:
                writable = asyncio.Event()
                loop.add_writer(self._socket, writable.set)
                try:
                    await writable.wait()
                finally:
                    loop.remove_writer(self._socket)

    async def _read(self) -> None:
        try:
            await self._deliver()
        except (ProtocolError, ClosedError) as error:
            self._finish(error)
        except OSError as error:
            self._finish(ClosedError(f"the connection was closed by the daemon: {error}"))

    async def _receive(self) -> bytes:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return self._inlet.receive(self._socket)
            except BlockingIOError:
                readable = asyncio.Event()
                loop.add_reader(self._socket, readable.set)
                try:
                    await readable.wait()
                finally:
                    loop.remove_reader(self._socket)

    async def _deliver(self) -> None:
        while True:
            frame = self._decoder.next()
            if frame is None:
                data = await self._receive()
                if not data:
                    raise ClosedError("the connection was closed by the daemon")
                self._decoder.feed(data)
                continue
            if frame.id == 0:
                event = wire.event(frame)
                if self._events.qsize() >= KEPT_LIMIT:
                    self._events.get_nowait()
                    self._lost += 1
                self._events.put_nowait(event)
                continue
            future = self._waiting.get(frame.id)
            if future is not None and not future.done():
                future.set_result(frame)
            else:
                self._drop(frame)

    def _finish(self, error: Exception) -> None:
        """Tells everyone that waits why the connection ended."""
        if self._end is not None:
            return
        self._end = error
        self._events.put_nowait(None)
        # Who writes to a daemon that does not read learns of it as well.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(again(error))
            # If it waits for room, it shall look.
            self._room.release()
