"""The client for plain programs."""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections import deque
from os import PathLike
from types import TracebackType
from typing import Any, Callable, Sequence, TypeVar, Union, cast

import numpy.typing as npt

from . import _wire as wire
from ._alarm import Alarm, Inlet
from ._arena import Arena, Place
from ._held import Held, Holds
from ._types import (
    PAUSES, Answer, Array, Arrivals, ClosedError, Constraint, NotTaken, Outcome, ProtocolError, RefusedError, Stream, is_in_use,
)  # fmt: skip

#: Where the daemon listens unless its configuration says otherwise.
DEFAULT_SOCKET = "/run/weir/weir.sock"
#: The most answers and events kept while another answer is waited for.
KEPT_LIMIT = 4096

T = TypeVar("T")


def unreachable(path: Union[str, PathLike[str]], error: OSError) -> OSError:
    """The same error, with what to look at."""
    return OSError(error.errno, f"{error.strerror} (is the daemon running, and may this user connect?)", str(path))


class Client:
    """A connection to the daemon, for one thread at a time of the process that opened it; closing it gives up its streams.

    Raises ``RefusedError`` with the daemon's reason, after which the connection stays usable, ``TimeoutError``
    where an answer takes longer than ``timeout`` seconds, ``ClosedError`` and ``ProtocolError`` where the connection has
    ended, ``ValueError`` for what cannot be sent, and ``OSError`` where there is nobody to connect to. An answer that comes
    after its wait has ended is dropped; a stream that is granted late is given up again, and its name may be in use
    until then.

    With ``reconnect`` the next call after ``ClosedError`` connects anew, registers all streams again and subscribes to what
    was subscribed to: the same ``Stream`` objects go on. Names that are in use are asked for again for up to 0.6 s. A stream that
    is refused then keeps no other from going on: each call for it asks once more, and is told why if that is refused. What was
    in flight is lost, and so are arena and alarm.
    """

    def __init__(
        self,
        path: Union[str, PathLike[str]] = DEFAULT_SOCKET,
        *,
        name: str = "weir-python",
        timeout: float = 5.0,
        reconnect: bool = False,
    ) -> None:
        self._path, self._name, self._timeout, self._reconnect = path, name, timeout, reconnect
        # What is to be registered and subscribed to again.
        self._streams = Holds()
        self._mask = 0
        self._connect()

    def _connect(self) -> None:
        self._ended = False
        self._decoder = wire.Decoder()
        self._inlet = Inlet()
        self._last = 0
        self._kept: deque[wire.Frame] = deque()
        # What each request in flight belongs to: its stream, and its outputs if they lie in the arena.
        self._in_flight: dict[int, tuple[Stream, Union[dict[str, Array], None]]] = {}
        self._abandoned: set[int] = set()
        # Which connection it is, for the arena shared on it.
        self._mark = object()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(self._timeout)
            try:
                self._socket.connect(str(self._path))
            except OSError as error:
                raise (unreachable(self._path, error) if error.errno else error) from None
            told = self._ask(wire.HELLO, wire.hello(self._name), wire.welcome)
            self._version, self._decoder.max_frame, self.max_arena, self.daemon = told
        except BaseException:
            self._close()
            raise

    def _connect_again(self) -> None:
        """Opens another connection with all that this one had."""
        self._close()
        self._streams.left()
        self._connect()
        pauses = iter(PAUSES)
        try:
            for held in self._streams.values():
                # What is refused is told by the calls of this stream; the others go on.
                with contextlib.suppress(RefusedError, ValueError):
                    while True:
                        try:
                            self._enter(held)
                            break
                        except RefusedError as error:
                            pause = next(pauses, None) if is_in_use(error) else None
                            if pause is None:
                                raise
                        time.sleep(pause)
            if self._mask:
                self.subscribe(self._mask)
        except BaseException:
            self._ended = True
            raise

    def _now(self, stream: Stream) -> Stream:
        """The stream as it is on the present connection."""
        self._alive()
        if not self._reconnect:
            return stream
        held = self._streams.of(stream)
        return held.stream or self._enter(held)

    def _enter(self, held: Held) -> Stream:
        """Registers a stream on the present connection."""
        wire.knows_classes(self._version, held.class_)
        held.stream = self._ask(wire.REGISTER, held.body, lambda told: wire.registered(told, held.service, held.name))
        return held.stream

    def _alive(self) -> None:
        """Connects anew where the connection has ended, if that is wanted."""
        if self._ended and self._reconnect:
            self._connect_again()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Union[type[BaseException], None],
        error: Union[BaseException, None],
        trace: Union[TracebackType, None],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection for good and gives up its streams."""
        self._reconnect = False
        self._close()

    def _close(self) -> None:
        self._ended = True
        self._socket.close()
        self._inlet.close()

    def fileno(self) -> int:
        """The socket, for ``select``: first call ``recv`` with a timeout of 0 until it returns ``None``."""
        return self._socket.fileno()

    def register(
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
        self._alive()
        stream = self._enter(held)
        if self._reconnect:
            self._streams[service, name] = held
        return stream

    def unregister(self, stream: Stream) -> None:
        """Gives a stream up; what it still has waiting is cancelled. With ``reconnect`` for good, also where the daemon could not
        be told."""
        now = self._streams.drop(stream) if self._reconnect else stream
        # A connection that has ended has given it up.
        if now and not (self._reconnect and self._ended):
            self._ask_for(wire.UNREGISTER, now.id.to_bytes(4, "little"), wire.UNREGISTERED)

    def subscribe(self, mask: int) -> None:
        """Chooses the events to be told: ``SAFE_MODE | SUSPENSION | MISSES_LEFT``, some of them, or 0; ``recv`` returns them."""
        self._alive()
        self._ask_for(wire.SUBSCRIBE, mask.to_bytes(4, "little"), wire.SUBSCRIBED)
        self._mask = mask

    def alarm(self) -> Alarm:
        """An eventfd that counts the changes of safe mode and the suspensions subscribed to before; once on a connection."""
        self._alive()
        self._ask_for(wire.ALARM, b"", wire.ALARMED)
        return self._taken(self._inlet.alarm)

    def status(self) -> dict[str, Any]:
        """The daemon's state."""
        self._alive()
        return cast("dict[str, Any]", self._ask(wire.STATUS, b"", wire.status))

    def ping(self) -> None:
        """Returns once the daemon has answered."""
        self._alive()
        self._ask_for(wire.PING, b"", wire.PONG)

    def share(self, nbytes: int) -> Arena:
        """Shares memory with the daemon, once on a connection, at most ``max_arena`` bytes."""
        self._alive()
        arena = Arena(nbytes)
        try:
            self._ask_for(wire.ARENA, nbytes.to_bytes(8, "little"), wire.MAPPED, arena.file)
        finally:
            arena.forget_file()
        arena.connection = self._mark
        return arena

    def submit(
        self, stream: Stream, *inputs: npt.ArrayLike, deadline: Union[float, None] = None, class_: Union[str, None] = None
    ) -> int:
        """Sends one request without waiting; the number returned is the ``id`` of its answer.

        With a ``deadline`` of its own, in seconds and below the stream's, it is missed if not answered within that. It is of the
        class of that name, or else of the stream's own."""
        stream = self._now(stream)
        ident = self._send(*wire.submit(self._version, stream, stream.pack(inputs), deadline, class_))
        self._in_flight[ident] = (stream, None)
        return ident

    def submit_shared(
        self, place: Place, *, deadline: Union[float, None] = None, class_: Union[str, None] = None
    ) -> int:
        """Sends one request that lies in the arena; its place is the daemon's until the answer has come."""
        now = self._now(place.stream)
        stream = place.on(self._mark, now)
        ends = (place.input_at, place.output_at)
        ident = self._send(*wire.submit_shared(self._version, stream, *ends, deadline, class_))
        self._in_flight[ident] = (stream, place.outputs)
        return ident

    def infer(
        self, stream: Stream, *inputs: npt.ArrayLike, deadline: Union[float, None] = None, class_: Union[str, None] = None
    ) -> Outcome:
        """Sends one request and waits for what it comes to, at most the stream's deadline and ``timeout``; see ``submit``."""
        return self._outcome(self.submit(stream, *inputs, deadline=deadline, class_=class_), stream)

    def infer_shared(
        self, place: Place, *, deadline: Union[float, None] = None, class_: Union[str, None] = None
    ) -> Outcome:
        """The same for a request that lies in the arena; the outputs of its result are those of the place."""
        return self._outcome(self.submit_shared(place, deadline=deadline, class_=class_), place.stream)

    def recv(self, timeout: Union[float, None] = None) -> Union[Answer, None]:
        """The next answer or event, waiting for it so many seconds, or for ever; ``None`` if there is none."""
        frame: Union[wire.Frame, None]
        until = None if timeout is None or timeout == math.inf else time.monotonic() + timeout
        if not self._kept:
            self._alive()
        while True:
            frame = self._kept.popleft() if self._kept else self._read(until)
            if frame is None:
                return None
            if not self._drop(frame):
                told = frame
                return self._taken(lambda: self._answer(told))

    def _answer(self, frame: wire.Frame) -> Answer:
        if frame.id == 0:
            return wire.event(frame)
        if frame.id not in self._in_flight:
            raise ProtocolError(f"the daemon answered request {frame.id}, which nothing here waits for")
        stream, shared = self._in_flight.pop(frame.id)
        if frame.kind == wire.REFUSED:
            return NotTaken(frame.id, wire.refused(frame))
        return wire.outcome(frame, stream, shared)

    def _outcome(self, ident: int, stream: Stream) -> Outcome:
        stream, shared = self._in_flight.pop(ident)
        answer = self._reply(ident, stream.deadline + self._timeout)
        return self._taken(lambda: wire.outcome(answer, stream, shared))

    def _taken(self, read: Callable[[], T]) -> T:
        """What a frame says; one that breaks the protocol ends the connection."""
        try:
            return read()
        except ProtocolError:
            self._close()
            raise
        except ClosedError:
            self._ended = True
            raise

    def _ask_for(self, kind: int, body: bytes, answer: int, descriptor: int = -1) -> None:
        self._ask(kind, body, lambda told: wire.done(told, answer), descriptor)

    def _ask(self, kind: int, body: bytes, read: Callable[[wire.Frame], T], descriptor: int = -1) -> T:
        try:
            ident = self._send(kind, body, descriptor)
        except ClosedError:
            ident = 0  # What the daemon said before it closed is still to be read.
        answer = self._reply(ident, self._timeout)
        return self._taken(lambda: read(answer))

    def _send(self, kind: int, body: bytes, descriptor: int = -1) -> int:
        if len(body) > self._decoder.max_frame:
            raise ValueError(f"a frame of {len(body)} bytes, limit {self._decoder.max_frame}: share an arena")
        self._last += 1
        self._write(wire.frame(kind, self._last, body), descriptor)
        return self._last

    def _write(self, frame: bytes, descriptor: int = -1) -> None:
        data = memoryview(frame)
        self._open()
        self._socket.settimeout(self._timeout)
        try:
            if descriptor >= 0:
                data = data[socket.send_fds(self._socket, [data], [descriptor]) :]
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self._ended = True
            raise ClosedError("the connection was closed by the daemon") from None
        except BaseException as error:
            # Part of the frame may be out, even where a signal's handler raised: nothing can follow it.
            self._ended = True
            self._socket.shutdown(socket.SHUT_RDWR)
            if isinstance(error, TimeoutError):
                raise ClosedError("the socket took nothing in time: receive answers while sending") from None
            raise

    def _open(self) -> None:
        if self._socket.fileno() < 0:
            raise ClosedError("the connection was closed here")

    def _drop(self, frame: wire.Frame) -> bool:
        """Whether nobody waits for this answer any more; a stream that it grants is given up."""
        if frame.id not in self._abandoned:
            return False
        if frame.kind == wire.REGISTERED:
            # The id of REGISTER is free again and stays abandoned. If it cannot be sent, reading tells.
            with contextlib.suppress(ClosedError):
                self._write(self._taken(lambda: wire.give_up(frame)))
        else:
            self._abandoned.discard(frame.id)
        return True

    def _reply(self, ident: int, timeout: float) -> wire.Frame:
        """The answer to a frame; all else that comes is kept."""
        try:
            return self._await(ident, timeout)
        except BaseException:
            # Whoever stops waiting, by a signal's handler as well, waits for this no more.
            self._abandoned.add(ident)
            raise

    def _await(self, ident: int, timeout: float) -> wire.Frame:
        until = time.monotonic() + timeout
        while True:
            frame = self._read(until)
            if frame is None:
                raise TimeoutError(f"nothing from the daemon after {timeout} s")
            if frame.id == ident and ident != 0:
                return frame
            if self._drop(frame):
                continue
            if len(self._kept) >= KEPT_LIMIT:
                self._close()
                raise ProtocolError(f"more than {KEPT_LIMIT} answers and events wait: receive them")
            self._kept.append(frame)

    def _read(self, until: Union[float, None]) -> Union[wire.Frame, None]:
        while True:
            frame = self._taken(self._decoder.next)
            if frame is not None:
                return frame
            left = None if until is None else max(until - time.monotonic(), 0.0)
            self._open()
            self._socket.settimeout(left)
            try:
                data = self._inlet.receive(self._socket)
            except (TimeoutError, BlockingIOError):
                return None
            except ConnectionResetError:
                data = b""
            if not data:
                self._ended = True
                raise ClosedError("the connection was closed by the daemon")
            self._decoder.feed(data)
