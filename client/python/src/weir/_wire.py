"""Frames of docs/protocol.md to bytes and back; no socket here, so both clients share it."""

from __future__ import annotations

import json
import struct
import time
from dataclasses import dataclass
from typing import Any, Sequence, Union

import numpy as np

from ._types import (
    CAUSE_WORDS,
    MISS_WORDS,
    STATE_WORDS,
    SUSPENDED,
    Array,
    Arrivals,
    Class,
    ClosedError,
    Constraint,
    Event,
    EventsLost,
    Miss,
    MissesLeft,
    ProtocolError,
    RefusedError,
    Result,
    SafeMode,
    Stream,
    StreamState,
    Suspension,
    Tensor,
    nanos,
    word,
)

HELLO, REGISTER, UNREGISTER, SUBMIT, SUBSCRIBE, STATUS, PING, ARENA, SUBMIT_SHARED, ALARM = range(1, 11)
SUBMIT_AT, SUBMIT_SHARED_AT, SUBMIT_OF, SUBMIT_SHARED_OF = range(11, 15)
WELCOME, REGISTERED, UNREGISTERED, RESULT, MISS, SUBSCRIBED = range(128, 134)
STATUS_REPLY, PONG, REFUSED, ERROR, MAPPED, ALARMED, RESULT_LATE = range(134, 141)
EVENT_SAFE_MODE, EVENT_MISSES_LEFT, EVENTS_LOST, EVENT_SUSPENSION = range(160, 164)
#: Of the protocol: the oldest and the newest that is spoken here.
VERSIONS = (1, 5)
#: From this version on a request says when it was sent.
SENT_VERSION = 3
#: From this version on it may say how soon its answer is wanted, and a result how many requests were skipped.
WITHIN_VERSION = 4
#: From this version on requests and streams may be of a class.
CLASS_VERSION = 5

HEADER = struct.Struct("<IHHQ")
NO_CONSTRAINT = 0xFFFFFFFF
TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f2"),
    3: np.dtype("<i8"),
    4: np.dtype("u1"),
    5: np.dtype("<f8"),
    6: np.dtype("i1"),
    7: np.dtype("<i4"),
    8: np.dtype("?"),
}


@dataclass(frozen=True)
class Frame:
    """A frame from the daemon."""

    kind: int
    id: int
    body: bytes


class Decoder:
    """Cuts the stream of bytes into frames."""

    def __init__(self) -> None:
        self.max_frame = 4 << 20
        self.buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self.buffer += data

    def next(self) -> Union[Frame, None]:
        """The next whole frame; an ERROR of the daemon is raised."""
        if len(self.buffer) < HEADER.size:
            return None
        length, kind, flags, ident = HEADER.unpack_from(self.buffer)
        if length > self.max_frame or flags != 0:
            raise ProtocolError(f"the daemon sent a frame of {length} bytes, limit {self.max_frame}, flags {flags}")
        end = HEADER.size + length
        if len(self.buffer) < end:
            return None
        frame = Frame(kind, ident, bytes(self.buffer[HEADER.size : end]))
        del self.buffer[:end]
        if kind == ERROR:
            body = Body(frame)
            raise ClosedError(f"closed by the daemon, error {body.take('H')}: {body.string()}")
        return frame


class Body:
    """Reads a body in order."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.at = frame, 0

    def take(self, form: str) -> Any:
        fields = struct.Struct("<" + form)
        try:
            values = fields.unpack_from(self.frame.body, self.at)
        except struct.error:
            raise ProtocolError(f"the daemon sent a frame of kind {self.frame.kind} that ends early") from None
        self.at += fields.size
        return values if len(values) > 1 else values[0]

    def string(self) -> str:
        length = self.take("H")
        text: bytes = self.take(f"{length}s")
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise ProtocolError("the daemon sent a string that is not UTF-8") from None

    def end(self, reserved: int = 0) -> None:
        """Nothing may be left, and what is reserved must be 0."""
        if self.at != len(self.frame.body) or reserved != 0:
            raise ProtocolError(f"the daemon sent a frame of kind {self.frame.kind} with more than belongs there")

    def tensors(self, nbytes: int) -> tuple[Tensor, ...]:
        """The tensors of a side, which must lie within its bytes."""
        tensors, end = [], 0
        count = self.take("B")
        for _ in range(count):
            code, dimensions = self.take("HB")
            if count > 16 or dimensions > 8:
                raise ProtocolError(f"{count} tensors, one of {dimensions} dimensions, at most 16 and 8")
            shape = tuple(self.take("I") for _ in range(dimensions))
            name = self.string()
            if code not in TYPES:
                raise ProtocolError(f"tensor {name!r} is of type {code}, which this version does not know")
            tensor = Tensor(name, TYPES[code], shape, -(-end // 8) * 8)
            tensors.append(tensor)
            end = tensor.offset + tensor.nbytes
            if end > nbytes:
                raise ProtocolError(f"tensor {name!r} ends at {end}, {nbytes} bytes were told")
        return tuple(tensors)


    def classes(self) -> tuple[int, tuple[Class, ...]]:
        """The class of requests that name none, and all there are; none where nothing is left."""
        if self.at == len(self.frame.body):
            return 0, ()
        own, count = self.take("BB")
        if count > 16 or own >= count:
            raise ProtocolError(f"class {own} of {count} classes, at most 16")
        times = []
        for _ in range(count):
            deadline_ns, reach_ns = self.take("QQ")
            times.append(Class(self.string(), deadline_ns / 1e9, reach_ns / 1e9))
        return own, tuple(times)


def frame(kind: int, ident: int, body: bytes = b"") -> bytes:
    return HEADER.pack(len(body), kind, 0, ident) + body


def string(text: str) -> bytes:
    data = text.encode()
    if len(data) > 255:
        raise ValueError(f"a name of {len(data)} bytes, limit 255")
    return struct.pack("<H", len(data)) + data


def hello(name: str) -> bytes:
    return b"WEIR" + struct.pack("<HH", *VERSIONS) + string(name)


def register(
    service: str,
    stream: str,
    constraints: Sequence[Constraint],
    arrivals: Sequence[Arrivals],
    class_: Union[str, None] = None,
) -> bytes:
    if len(constraints) > 8 or len(arrivals) > 4:
        raise ValueError(f"{len(constraints)} constraints and {len(arrivals)} arrival bounds, at most 8 and 4")
    body = string(service) + string(stream) + bytes([len(constraints)])
    body += b"".join(packed("<BII", c, c.form, c.a, c.k) for c in constraints)
    body += bytes([len(arrivals)]) + b"".join(packed("<BQQ", a, a.form, a.a, a.b) for a in arrivals)
    return body if class_ is None else body + string(class_)


def knows_classes(version: int, class_: Union[str, None]) -> None:
    """Raises where a class is named that the daemon does not know to be one."""
    if class_ is not None and version < CLASS_VERSION:
        raise ValueError(f"the daemon speaks version {version}, there are classes from {CLASS_VERSION} on")


def packed(form: str, whole: object, *fields: int) -> bytes:
    try:
        return struct.pack(form, *fields)
    except struct.error:
        bits = 32 if "I" in form else 64
        raise ValueError(f"{whole}: its numbers must be whole, 0 to 2**{bits} - 1") from None


def give_up(registered: Frame) -> bytes:
    """The UNREGISTER of a stream that nobody waits for, under the id of its REGISTER."""
    return frame(UNREGISTER, registered.id, Body(registered).take("4s"))


def within(version: int, deadline: Union[float, None]) -> int:
    """How soon an answer is wanted, in microseconds; 0 for the service's deadline."""
    if deadline is None:
        return 0
    if version < WITHIN_VERSION:
        raise ValueError(f"the daemon speaks version {version}, a request has a deadline of its own from {WITHIN_VERSION} on")
    return min(max(nanos(deadline) // 1000, 1), 0xFFFFFFFF)


def submit(
    version: int, stream: Stream, payload: bytes, deadline: Union[float, None], class_: Union[str, None] = None
) -> tuple[int, bytes]:
    """The kind and the body of a request; a daemon that can read it is told that it is sent now, and when it is wanted."""
    knows_classes(version, class_)
    soon = within(version, deadline)
    if version < SENT_VERSION:
        return SUBMIT, struct.pack("<II", stream.id, 0) + payload
    if class_ is not None:
        number = stream.class_number(class_)
        return SUBMIT_OF, struct.pack("<IIQQ", stream.id, soon, time.monotonic_ns(), number) + payload
    return SUBMIT_AT, struct.pack("<IIQ", stream.id, soon, time.monotonic_ns()) + payload


def submit_shared(
    version: int,
    stream: Stream,
    input_at: int,
    output_at: int,
    deadline: Union[float, None],
    class_: Union[str, None] = None,
) -> tuple[int, bytes]:
    """The same for a request that lies in the arena."""
    knows_classes(version, class_)
    soon = within(version, deadline)
    if version < SENT_VERSION:
        return SUBMIT_SHARED, struct.pack("<IIQQ", stream.id, 0, input_at, output_at)
    if class_ is not None:
        number, now = stream.class_number(class_), time.monotonic_ns()
        return SUBMIT_SHARED_OF, struct.pack("<IIQQQQ", stream.id, soon, now, number, input_at, output_at)
    return SUBMIT_SHARED_AT, struct.pack("<IIQQQ", stream.id, soon, time.monotonic_ns(), input_at, output_at)


def refused(answer: Frame) -> RefusedError:
    body = Body(answer)
    error = RefusedError(body.take("H"), body.string())
    body.end()
    return error


def expect(answer: Frame, kind: int) -> Body:
    """The body of an answer of this kind; a refusal is raised."""
    if answer.kind == REFUSED:
        raise refused(answer)
    if answer.kind != kind:
        raise ProtocolError(f"the daemon answered with kind {answer.kind} where {kind} belongs")
    return Body(answer)


def done(answer: Frame, kind: int) -> None:
    """An answer that says nothing but its kind."""
    expect(answer, kind).end()


def status(answer: Frame) -> Any:
    body = expect(answer, STATUS_REPLY).frame.body
    try:
        return json.loads(body)
    except ValueError:
        raise ProtocolError("the daemon sent a status that is no JSON") from None


def welcome(answer: Frame) -> tuple[int, int, int, str]:
    """The version, ``max_frame``, ``max_arena`` and the daemon's name."""
    body = expect(answer, WELCOME)
    version, reserved, max_frame, max_arena = body.take("HHIQ")
    daemon = body.string()
    body.end(reserved)
    oldest, newest = VERSIONS
    if not oldest <= version <= newest:
        raise ProtocolError(f"the daemon chose version {version}, offered {oldest} to {newest}")
    return version, max_frame, max_arena, daemon


def registered(answer: Frame, service: str, name: str) -> Stream:
    body = expect(answer, REGISTERED)
    ident, input_bytes, deadline_ns, output_bytes, guaranteed, of, accuracy = body.take("IIQIIIf")
    variant = body.string()
    inputs, outputs = body.tensors(input_bytes), body.tensors(output_bytes)
    own, classes = body.classes()
    body.end()
    return Stream(
        ident, name, deadline_ns / 1e9, input_bytes, output_bytes, guaranteed, of, accuracy, variant, inputs, outputs,
        classes, own, service,
    )  # fmt: skip


def outcome(answer: Frame, stream: Stream, shared: Union[dict[str, Array], None]) -> Union[Result, Miss]:
    """What a request of the stream came to; ``shared`` are its outputs if they lie in an arena."""
    if answer.kind == MISS:
        body = Body(answer)
        ident, misses_left, sequence, code = body.take("IIQH")
        body.end()
        return Miss(answer.id, ident, sequence, left(misses_left), code, word(MISS_WORDS, code))
    body = Body(answer) if answer.kind == RESULT_LATE else expect(answer, RESULT)
    ident, misses_left, sequence, queued_ns, run_ns, batch, variant, skipped = body.take("IIQQQHHI")
    output, told = len(answer.body) - body.at, 0 if shared is not None else stream.output_bytes
    if output != told:
        raise ProtocolError(f"an output of {output} bytes, {told} were told")
    if shared is None:
        shared = {tensor.name: tensor.view(answer.body, body.at) for tensor in stream.outputs}
    times = (queued_ns / 1e9, run_ns / 1e9)
    late = answer.kind == RESULT_LATE
    return Result(answer.id, ident, sequence, left(misses_left), *times, batch, variant, skipped, shared, late)


def event(told: Frame) -> Event:
    """The event that a frame tells."""
    body = Body(told)
    if told.kind in (EVENT_SAFE_MODE, EVENT_SUSPENSION):
        state, cause, reserved, sequence, entered_ns, limit, seen, window_ns, breaches = body.take("HHIQQQQQQ")
        service, stream, text = body.string(), body.string(), body.string()
        body.end(reserved)
        why = word(CAUSE_WORDS, cause)
        evidence = (limit, seen, window_ns, breaches, text)
        if told.kind == EVENT_SUSPENSION:
            # A state of a later version is none in which anything is promised that is known here.
            stands = StreamState(state) if state in StreamState.__members__.values() else StreamState.SUSPENDED
            active = stands is StreamState.SUSPENDED
            return Suspension(service, stream, active, stands, why, sequence, entered_ns, *evidence)
        name = word(STATE_WORDS, state)
        return SafeMode(service, name, state >= SUSPENDED, why, sequence, entered_ns, stream, *evidence)
    if told.kind == EVENT_MISSES_LEFT:
        misses_left, form, a, k = body.take("IBII")
        service, stream = body.string(), body.string()
        body.end()
        return MissesLeft(service, stream, misses_left, Constraint(form, a, k))
    if told.kind == EVENTS_LOST:
        lost = EventsLost(body.take("Q"))
        body.end()
        return lost
    raise ProtocolError(f"the daemon sent kind {told.kind} as an event")


def left(misses: int) -> Union[int, None]:
    return None if misses == NO_CONSTRAINT else misses
