"""A client that deals a stream to several daemons, so that one promise holds of all of them together."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import queue
import select
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from os import PathLike
from types import TracebackType
from typing import Iterator, Sequence, Union

import numpy.typing as npt

from ._client import KEPT_LIMIT, Client
from ._dealing import Word
from ._types import (
    SAFE_MODE, SUSPENDED, SUSPENSION, Answer, Arrivals, ClosedError, Constraint, EventsLost, Miss, NotTaken, Outcome, ProtocolError,
    Result, SafeMode, Stream, Suspension, WeirError, row_miss,
)  # fmt: skip

#: The most daemons that a stream is dealt to.
MOST = 64
#: Seconds from the loss of a front until it is tried again; twice as long each further time, up to the second.
SOONEST, LATEST = 0.1, 5.0
#: Seconds between looks at what is not read from a socket.
LOOK = 0.05


Cause = Union[SafeMode, Suspension, Exception]


@dataclass(frozen=True)
class FrontChange:
    """Whether a front's share of a stream is promised has changed."""

    #: The front, by its place among the paths.
    front: int
    stream: str
    promised: bool
    #: What was told of it: its safe mode, the suspension of its share, or why it was lost; ``None`` where it is back.
    cause: Union[Cause, None]


@dataclass(frozen=True)
class _Share:
    """A stream at one front: what that must answer, and what it need not."""

    must: Stream
    rest: Stream


@dataclass
class Dealt:
    """A stream that is dealt, and what is promised of the whole."""

    service: str
    name: str
    constraints: tuple[Constraint, ...]
    arrivals: tuple[Arrivals, ...]
    class_: Union[str, None]
    word: Word
    #: At each front; ``None`` while it is lost.
    shares: list[Union[_Share, None]]
    #: What keeps each front from promising, by its kind.
    broken: list[dict[type, Cause]]
    #: Requests so far.
    sent: int = 0
    _turn: int = field(default=0, repr=False)

    @property
    def promising(self) -> list[int]:
        """The fronts whose shares are promised now."""
        return [front for front, share in enumerate(self.shares) if share and not self.broken[front]]

    def misses(self, window: int) -> int:
        """At most so many of any ``window`` consecutive requests are missed, of those sent since a front last came back, or promised
        anew."""
        return self.word.misses(window, self.promising)

    @property
    def stream(self) -> Stream:
        """The share of a front, for its tensors and its deadline."""
        for share in self.shares:
            if share:
                return share.must
        raise ClosedError("no front is there")

    def _anywhere(self) -> Iterator[int]:
        """The fronts that are there, from the one on whose turn it is to get what need not be answered."""
        count = len(self.shares)
        places = ((self._turn + place) % count for place in range(count))
        return (front for front in places if self.shares[front])


@dataclass
class _Front:
    path: Union[str, PathLike[str]]
    #: Absent while it is lost.
    client: Union[Client, None]
    #: Of each request in flight by its number there: its number here, whose it is, and by when an answer must have come.
    in_flight: dict[int, tuple[int, Dealt, int, float]] = field(default_factory=dict)


class Fronts:
    """Connections to several daemons, for one thread at a time; see ``Client`` for what is raised.

    Each stream is dealt to all of them: of the requests that its constraints ask for each front gets its turn and must answer all
    of these; the others go to any front, which may miss them. So the constraints hold of the whole, and each front is
    promised to answer its share: ``register`` is refused if one of them cannot.

    A front whose connection ends, or that leaves a request without an answer for ``timeout`` seconds beyond its deadline, is lost: what was
    in flight there is missed (``reason`` is ``"front-lost"``), what it would have to answer goes to others which need not, and it is
    tried again. That, and safe mode of a front or a suspension of its share, is told by ``recv`` as ``FrontChange``; meanwhile
    ``Dealt.misses`` says what holds nevertheless. A front that is stuck, but whose socket still takes bytes, holds the others up for
    ``timeout`` at most.
    """

    def __init__(
        self, paths: Sequence[Union[str, PathLike[str]]], *, name: str = "weir-python", timeout: float = 5.0
    ) -> None:
        if not 1 <= len(paths) <= MOST:
            raise ValueError(f"{len(paths)} fronts, must be 1 to {MOST}")
        self._name, self._timeout = name, timeout
        self._dealt: dict[str, Dealt] = {}
        self._fronts: list[_Front] = []
        self._last = 0
        self._answers: deque[Outcome] = deque()
        self._changes: deque[Union[FrontChange, EventsLost]] = deque(maxlen=KEPT_LIMIT)
        self._found: queue.Queue[tuple[int, Client, dict[str, _Share]]] = queue.Queue()
        self._closed = threading.Event()
        try:
            for path in paths:
                self._fronts.append(_Front(path, self._connect(path)))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Fronts:
        return self

    def __exit__(
        self,
        kind: Union[type[BaseException], None],
        error: Union[BaseException, None],
        trace: Union[TracebackType, None],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections and gives up all streams."""
        self._closed.set()
        for front in self._fronts:
            if front.client:
                front.client.close()
        while not self._found.empty():
            self._found.get()[1].close()

    def register(
        self,
        service: str,
        name: str,
        constraints: Sequence[Constraint],
        arrivals: Sequence[Arrivals],
        class_: Union[str, None] = None,
    ) -> Dealt:
        """Asks every front for its share of a stream with these constraints, whose requests come so in all. The streams there are
        ``name`` and ``name/rest``. A service whose model has state cannot be dealt: what it remembers is one front's."""
        if name in self._dealt:
            raise ValueError(f"stream {name!r} is registered")
        count = len(self._fronts)
        dealt = Dealt(
            service, name, tuple(constraints), tuple(arrivals), class_, Word(constraints, count), [None] * count,
            [{} for _ in range(count)],
        )  # fmt: skip
        self._adopt()
        granted: list[tuple[Client, _Share]] = []
        try:
            for number, front in enumerate(self._fronts):
                if not front.client:
                    raise ClosedError(f"front {number} is lost")
                share = self._enter(front.client, dealt, number)
                granted.append((front.client, share))
                dealt.shares[number] = share
        except BaseException:
            for client, share in granted:
                with contextlib.suppress(WeirError, OSError):
                    client.unregister(share.must)
                    client.unregister(share.rest)
            raise
        self._dealt[name] = dealt
        for number, causes in enumerate(dealt.broken):
            self._changes.extend(FrontChange(number, name, False, cause) for cause in causes.values())
        return dealt

    def submit(
        self, dealt: Dealt, *inputs: npt.ArrayLike, deadline: Union[float, None] = None, class_: Union[str, None] = None
    ) -> int:
        """Sends one request without waiting; the number returned is the ``id`` of its answer, whose ``sequence`` is its place
        in the whole stream."""
        # What is wrong with it is told before it counts.
        if any(dealt.shares):
            dealt.stream.pack(inputs)
            if class_ is not None:
                dealt.stream.class_number(class_)
        self._adopt()
        sequence, own_id = dealt.sent, self._last + 1
        whose = dealt.word.front(sequence)
        own = [] if whose is None else [whose]
        for number in [*own, *(front for front in dealt._anywhere() if front not in own)]:
            front, share = self._fronts[number], dealt.shares[number]
            if not front.client or not share:
                continue
            stream = share.must if number == whose else share.rest
            try:
                ident = front.client.submit(stream, *inputs, deadline=deadline, class_=class_)
            except (WeirError, OSError) as error:
                self._lose(number, error)
                continue
            due = time.monotonic() + stream.deadline + self._timeout
            front.in_flight[ident] = (own_id, dealt, sequence, due)
            if number != whose:
                dealt._turn = number + 1
            break
        else:
            self._missed(own_id, sequence, "front-lost")
        # What a client has found wrong with it, its deadline say, has not counted.
        dealt.sent, self._last = sequence + 1, own_id
        return own_id

    def infer(
        self, dealt: Dealt, *inputs: npt.ArrayLike, deadline: Union[float, None] = None, class_: Union[str, None] = None
    ) -> Outcome:
        """Sends one request and waits for what it comes to; answers to others, and changes, are kept for ``recv``."""
        ident = self.submit(dealt, *inputs, deadline=deadline, class_=class_)
        while True:
            self._collect()
            for answer in self._answers:
                if answer.id == ident:
                    self._answers.remove(answer)
                    return answer
            self._wait(LOOK)

    def recv(self, timeout: Union[float, None] = None) -> Union[Outcome, FrontChange, EventsLost, None]:
        """The next answer or change, waiting for it so many seconds, or for ever; ``None`` if there is none. Changes come first;
        of more than 4096 that are not received the oldest are dropped."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._adopt()
            self._collect()
            if self._changes:
                return self._changes.popleft()
            if self._answers:
                return self._answers.popleft()
            left = LOOK if until is None else until - time.monotonic()
            if left <= 0:
                return None
            self._wait(min(left, LOOK))

    def _connect(self, path: Union[str, PathLike[str]]) -> Client:
        client = Client(path, name=self._name, timeout=self._timeout)
        try:
            client.subscribe(SAFE_MODE | SUSPENSION)
        except BaseException:
            client.close()
            raise
        return client

    def _enter(self, client: Client, dealt: Dealt, number: int) -> _Share:
        """Registers both parts of a stream at a front, and looks whether it promises anything at the moment."""
        dealt.broken[number].clear()
        # Of what it must answer none may be missed.
        share = dealt.word.share(dealt.arrivals)
        must = client.register(dealt.service, dealt.name, [row_miss(0)], share, dealt.class_)
        try:
            rest = client.register(dealt.service, f"{dealt.name}/rest", class_=dealt.class_)
            served = next(one for one in client.status()["services"] if one["name"] == dealt.service)
            if served["state_bytes"]:
                raise ValueError(f"service {dealt.service!r} remembers each stream from request to request: it cannot be dealt")
        except BaseException:
            with contextlib.suppress(WeirError, OSError):
                client.unregister(must)
            raise
        if served["safe_mode"]["state_number"] >= SUSPENDED:
            dealt.broken[number][SafeMode] = WeirError(f"safe mode, as it is entered: {served['safe_mode']['state']}")
        return _Share(must, rest)

    def _lose(self, number: int, error: Exception) -> None:
        """A front is gone, and what it had in flight is missed."""
        front = self._fronts[number]
        if not front.client:
            return
        front.client.close()
        front.client = None
        for ident, _, sequence, _ in front.in_flight.values():
            self._missed(ident, sequence, "front-lost")
        front.in_flight.clear()
        for dealt in self._dealt.values():
            dealt.shares[number] = None
            dealt.broken[number].clear()
            self._changes.append(FrontChange(number, dealt.name, False, error))
        streams = list(self._dealt.values())
        threading.Thread(target=self._seek, args=(number, front.path, streams), daemon=True).start()

    def _seek(self, number: int, path: Union[str, PathLike[str]], streams: list[Dealt]) -> None:
        """Connects to a front again, by a thread of its own, so that the others are not held up."""
        pause = SOONEST
        while not self._closed.wait(pause):
            pause = min(2 * pause, LATEST)
            client = None
            try:
                client = self._connect(path)
                self._found.put((number, client, {dealt.name: self._enter(client, dealt, number) for dealt in streams}))
                return
            except (WeirError, OSError, ValueError):
                if client:
                    client.close()

    def _adopt(self) -> None:
        """Fronts that were found again have their shares from now on."""
        while not self._found.empty():
            number, client, shares = self._found.get()
            self._fronts[number].client = client
            for dealt in self._dealt.values():
                try:
                    # One that was registered meanwhile is not among them.
                    dealt.shares[number] = shares.get(dealt.name) or self._enter(client, dealt, number)
                except (WeirError, OSError, ValueError) as error:
                    self._lose(number, error)
                    break
                cause = next(iter(dealt.broken[number].values()), None)
                self._changes.append(FrontChange(number, dealt.name, not cause, cause))

    def _collect(self) -> None:
        """Takes all that has come."""
        now = time.monotonic()
        for number, front in enumerate(self._fronts):
            try:
                while front.client and (answer := front.client.recv(0)) is not None:
                    self._take(number, answer)
            except (ClosedError, ProtocolError, OSError) as error:
                self._lose(number, error)
            oldest = next(iter(front.in_flight.values()), None)
            if oldest and now > oldest[3]:
                self._lose(number, TimeoutError(f"no answer {self._timeout} s after its deadline"))

    def _take(self, number: int, answer: Answer) -> None:
        front = self._fronts[number]
        if isinstance(answer, (Result, Miss, NotTaken)):
            ident, _, sequence, _ = front.in_flight.pop(answer.id)
            if isinstance(answer, NotTaken):
                # It counts all the same: those behind it were dealt as if it did.
                self._missed(ident, sequence, answer.error.word)
            else:
                self._answers.append(dataclasses.replace(answer, id=ident, sequence=sequence, misses_left=None))
        elif isinstance(answer, (SafeMode, Suspension)):
            for dealt in self._dealt.values():
                if answer.service != dealt.service or isinstance(answer, Suspension) and answer.stream != dealt.name:
                    continue
                held, broken = number in dealt.promising, dealt.broken[number]
                # A weaker promise is none to the share.
                if answer.active or isinstance(answer, Suspension) and answer.level != 0:
                    broken[type(answer)] = answer
                else:
                    broken.pop(type(answer), None)
                if held != (number in dealt.promising):
                    self._changes.append(FrontChange(number, dealt.name, not held, answer if held else None))
        elif isinstance(answer, EventsLost):
            self._changes.append(answer)

    def _missed(self, ident: int, sequence: int, reason: str) -> None:
        self._answers.append(Miss(ident, 0, sequence, None, 0, reason))

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        for front in self._fronts:
            if front.client:
                poll.register(front.client, select.POLLIN)
        poll.poll(math.ceil(1000 * seconds))
