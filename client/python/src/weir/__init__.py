"""Client of the Weir inference daemon: NumPy arrays in and out, under weakly-hard deadlines.

``Client`` is for plain programs, ``weir.aio.Client`` for asyncio, ``Fronts`` for a stream that several daemons share. A client registers a stream with a service, says
what it can live with and how often it will ask, and is told the promise, or why there is none. From then on every
request gets exactly one answer: a ``Result`` in time, or a ``Miss`` with its reason.
"""

from ._alarm import Alarm
from ._arena import Arena, Place
from ._client import DEFAULT_SOCKET, Client
from ._fronts import Dealt, FrontChange, Fronts
from ._types import (
    MISSES_LEFT,
    SAFE_MODE,
    SUSPENSION,
    Answer,
    Arrivals,
    Class,
    ClosedError,
    Constraint,
    Event,
    EventsLost,
    Miss,
    MissesLeft,
    NotTaken,
    Outcome,
    ProtocolError,
    RefusedError,
    Result,
    SafeMode,
    Stream,
    StreamState,
    Suspension,
    Tensor,
    WeirError,
    any_hit,
    any_miss,
    periodic,
    row_hit,
    row_miss,
    token_bucket,
    window,
)

__all__ = [
    "DEFAULT_SOCKET",
    "MISSES_LEFT",
    "SAFE_MODE",
    "SUSPENSION",
    "Alarm",
    "Answer",
    "Arena",
    "Arrivals",
    "Class",
    "Client",
    "ClosedError",
    "Constraint",
    "Dealt",
    "Event",
    "EventsLost",
    "FrontChange",
    "Fronts",
    "Miss",
    "MissesLeft",
    "NotTaken",
    "Outcome",
    "Place",
    "ProtocolError",
    "RefusedError",
    "Result",
    "SafeMode",
    "Stream",
    "StreamState",
    "Suspension",
    "Tensor",
    "WeirError",
    "any_hit",
    "any_miss",
    "periodic",
    "row_hit",
    "row_miss",
    "token_bucket",
    "window",
]
