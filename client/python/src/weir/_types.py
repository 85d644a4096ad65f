"""What a client asks for, holds and is told. All times are seconds unless a name says otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Sequence, Union

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Bits of ``subscribe``.
SAFE_MODE, MISSES_LEFT, SUSPENSION = 1, 2, 4

#: The stable words of the protocol, by code; 0 is a code of a later version.
MISS_WORDS = (
    "unknown", "unmeetable", "expired", "shed", "queue-full", "late", "engine-failed", "worker-lost", "cancelled",
)  # fmt: skip
REFUSAL_WORDS = (
    "unknown", "unknown-service", "invalid-constraint", "invalid-arrivals", "not-admissible", "too-many-streams",
    "name-in-use", "unknown-stream", "draining", "not-permitted", "input-length", "arena", "arena-place",
    "output-length", "alarm", "too-many-questions", "sent-in-future", "unknown-class",
)  # fmt: skip
CAUSE_WORDS = (
    "unknown", "arrival-excess", "service-overrun", "late-dispatch", "worker-lost", "constraint-violated",
    "profile-stale", "operator", "misses-low", "rate-high", "fan-out-excess",
)  # fmt: skip
STATE_WORDS = ("unknown", "normal", "warning", "safe-mode", "lost")
#: From this state on the promises do not hold.
SUSPENDED = 3


class StreamState(IntEnum):
    """How the promise to one stream stands, as far as the stream itself is concerned."""

    #: Its own holds while those of its service do.
    NORMAL = 1
    #: Nothing is promised.
    SUSPENDED = 2
    #: One of the weaker promises behind its own is in force: the first, the second, …
    DEGRADED_1 = 3
    DEGRADED_2 = 4
    DEGRADED_3 = 5
    DEGRADED_4 = 6

    @property
    def level(self) -> int | None:
        """Which promise is in force: 0 for the stream's own, from 1 on the weaker ones; ``None`` while nothing is promised."""
        return {StreamState.NORMAL: 0, StreamState.SUSPENDED: None}.get(self, int(self) - 2)


#: Seconds between attempts of a client that connects again to register a stream whose name is in use: mostly by its connection
#: before, whose end the daemon has not seen yet.
PAUSES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)


class WeirError(Exception):
    """Anything that can go wrong with a client, but for a wait that took too long (``TimeoutError``)."""


class ClosedError(WeirError):
    """The connection has ended: open another one."""


class ProtocolError(WeirError):
    """The daemon sent what is no frame of the protocol; the connection is closed."""


class RefusedError(WeirError):
    """The daemon did not grant something; the connection stays usable."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.word = word(REFUSAL_WORDS, code)
        self.text = text
        super().__init__(f"refused, {self.word}: {text}")


def is_in_use(error: RefusedError) -> bool:
    """Whether the name of a stream was, which may pass."""
    return error.word == "name-in-use"


def word(words: Sequence[str], code: int) -> str:
    return words[code] if code < len(words) else words[0]


@dataclass(frozen=True)
class Constraint:
    """What must hold of every stretch of consecutive requests; see ``any_miss`` and its like."""

    form: int
    a: int
    k: int


def any_miss(misses: int, window: int) -> Constraint:
    """At most ``misses`` of any ``window`` consecutive requests are missed."""
    return Constraint(1, misses, window)


def any_hit(hits: int, window: int) -> Constraint:
    """At least ``hits`` of any ``window`` consecutive requests are answered in time."""
    return Constraint(2, hits, window)


def row_miss(misses: int) -> Constraint:
    """At most ``misses`` requests in a row are missed."""
    return Constraint(3, misses, 0)


def row_hit(hits: int, window: int) -> Constraint:
    """At least ``hits`` requests in a row are answered in time in any ``window``."""
    return Constraint(4, hits, window)


@dataclass(frozen=True)
class Arrivals:
    """A bound on how many requests a stream sends; see ``periodic`` and its like."""

    form: int
    a: int
    b: int


def nanos(seconds: float) -> int:
    if not 0 <= seconds < math.inf:
        raise ValueError(f"a time of {seconds} s, must be finite and not negative")
    return round(seconds * 1e9)


def window(count: int, length: float) -> Arrivals:
    """At most ``count`` requests in any stretch of ``length`` seconds."""
    return Arrivals(1, count, nanos(length))


def periodic(period: float, jitter: float) -> Arrivals:
    """One request every ``period`` seconds, each up to ``jitter`` seconds late."""
    return Arrivals(2, nanos(period), nanos(jitter))


def token_bucket(burst: int, period: float) -> Arrivals:
    """At most ``burst`` requests at once, and one more for each ``period`` seconds that pass."""
    return Arrivals(3, burst, nanos(period))


@dataclass(frozen=True)
class Tensor:
    """One tensor of a request or an answer."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    #: Where it begins within a payload or output.
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def check(self, given: npt.ArrayLike) -> Array:
        """The values as an array of this tensor; arrays must have its type, all else is converted."""
        if isinstance(given, np.ndarray) and given.dtype != self.dtype:
            raise ValueError(f"tensor {self.name!r} consists of {self.dtype}, not {given.dtype}")
        array = np.ascontiguousarray(given, dtype=self.dtype)
        if array.size != math.prod(self.shape) or not self.fits(array.shape):
            raise ValueError(f"tensor {self.name!r} has shape {self.shape}, {array.shape} was given")
        return array

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether so many values of this shape lie as those of the tensor do: theirs is the same but for axes of length 1, or
        they have none."""
        long = [n for n in shape if n != 1]
        return len(long) <= 1 or long == [n for n in self.shape if n != 1]

    def view(self, buffer: Union[bytes, memoryview], at: int = 0) -> Array:
        """The tensor within the bytes of its side, which begin at ``at``; nothing is copied."""
        return np.ndarray(self.shape, self.dtype, buffer, at + self.offset)


@dataclass(frozen=True)
class Class:
    """A class of requests of a service."""

    name: str
    #: From arrival to answer: a later one is late.
    deadline: float
    #: For how long an answer is delivered: the same, unless late ones are worth something.
    reach: float


@dataclass(frozen=True)
class Stream:
    """A registered stream, the promise given for it, and what its requests and answers consist of."""

    id: int
    name: str
    deadline: float
    input_bytes: int
    output_bytes: int
    #: Requests guaranteed out of ``of``; 0 for best effort.
    guaranteed: int
    of: int
    #: Of the variant the promise is computed with, 0 to 1; NaN where unknown.
    accuracy: float
    variant: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    #: The classes of requests that the service has; none if they are all alike.
    classes: tuple[Class, ...] = ()
    #: That of requests which name none, by its place among these.
    own_class: int = 0
    #: Its name is unique there.
    service: str = ""

    def class_number(self, name: str) -> int:
        """The place of a class among ``classes``."""
        names = [known.name for known in self.classes]
        if name not in names:
            raise ValueError(f"the service has no class {name!r}, it has {names}")
        return names.index(name)

    @property
    def density(self) -> float:
        """The share of requests guaranteed, 0 (best effort) to 1."""
        return self.guaranteed / max(self.of, 1)

    def pack(self, arrays: Sequence[npt.ArrayLike]) -> bytes:
        """The payload of a request of these arrays, in the order of ``inputs``."""
        if len(arrays) != len(self.inputs):
            raise ValueError(f"the stream has {len(self.inputs)} inputs, {len(arrays)} were given")
        if len(arrays) == 1:
            return self.inputs[0].check(arrays[0]).tobytes()
        payload = bytearray(self.input_bytes)
        for tensor, array in zip(self.inputs, arrays):
            payload[tensor.offset : tensor.offset + tensor.nbytes] = tensor.check(array).tobytes()
        return bytes(payload)


@dataclass(frozen=True)
class Result:
    """An output that came in time, or late where that is worth something."""

    id: int
    stream: int
    sequence: int
    #: Misses the tightest constraint still allows; ``None`` without one.
    misses_left: Union[int, None]
    #: From arrival to the start of its batch, and how long that ran.
    queued: float
    run: float
    batch: int
    variant: int
    #: Requests just before this one that were missed without being executed, where the model remembers something from each
    #: request to the next: it does not remember these.
    skipped: int
    #: By name; read-only, or views of the arena.
    outputs: dict[str, Array] = field(repr=False)
    #: Whether it came later than its class wants it, and is worth less.
    late: bool = False

    @property
    def output(self) -> Array:
        """The only output."""
        if len(self.outputs) != 1:
            raise ValueError(f"the stream has {len(self.outputs)} outputs: {', '.join(self.outputs)}")
        return next(iter(self.outputs.values()))


@dataclass(frozen=True)
class Miss:
    """A request without an output in time."""

    id: int
    stream: int
    sequence: int
    misses_left: Union[int, None]
    code: int
    #: The stable word for ``code``, such as ``"shed"``.
    reason: str


@dataclass(frozen=True)
class NotTaken:
    """A request that the daemon refused; it has no number in its stream."""

    id: int
    error: RefusedError


@dataclass(frozen=True)
class SafeMode:
    """How a service's promises stand has changed: while ``active`` they do not hold."""

    service: str
    #: ``"normal"``, ``"warning"``, ``"safe-mode"`` or ``"lost"``.
    state: str
    active: bool
    #: Which assumption broke, such as ``"service-overrun"``; ``"unknown"`` back to normal.
    cause: str
    sequence: int
    entered_ns: int
    stream: str
    limit: int
    seen: int
    window_ns: int
    #: Of the service since its start, those that were not announced included.
    breaches: int
    text: str


@dataclass(frozen=True)
class Suspension:
    """The promise to one stream is suspended, for it broke what it declared, or a weaker one is in force, or it holds again; those to
    others stand."""

    service: str
    stream: str
    #: Whether nothing is promised now.
    active: bool
    state: StreamState
    #: What it broke, such as ``"arrival-excess"``; ``"unknown"`` where its promise holds again.
    cause: str
    #: Among the streams of the service; safe mode counts for itself.
    sequence: int
    entered_ns: int
    limit: int
    seen: int
    window_ns: int
    #: Of the stream since it was registered, those that were not announced included.
    breaches: int
    text: str

    @property
    def level(self) -> int | None:
        """As of ``state``."""
        return self.state.level


@dataclass(frozen=True)
class MissesLeft:
    """A stream has few misses left."""

    service: str
    stream: str
    misses_left: int
    constraint: Constraint


@dataclass(frozen=True)
class EventsLost:
    """So many events did not arrive: ask for the status."""

    count: int


Outcome = Union[Result, Miss]
Event = Union[SafeMode, Suspension, MissesLeft, EventsLost]
Answer = Union[Result, Miss, NotTaken, SafeMode, Suspension, MissesLeft, EventsLost]
