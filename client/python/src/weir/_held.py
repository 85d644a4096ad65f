"""What a client that connects again registers on each connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple, Union

from ._types import Stream


def given_up(stream: Stream) -> ValueError:
    return ValueError(f"stream {stream.name!r} of service {stream.service!r} was given up")


@dataclass
class Held:
    """A stream, and how it was asked for."""

    #: Of its REGISTER.
    body: bytes
    service: str
    name: str
    class_: Union[str, None]
    #: What it is on the present connection; ``None`` where it is not registered there.
    stream: Union[Stream, None] = None


class Holds(Dict[Tuple[str, str], Held]):
    """Streams by their services and their names."""

    def of(self, stream: Stream) -> Held:
        held = self.get((stream.service, stream.name))
        if not held:
            raise given_up(stream)
        return held

    def drop(self, stream: Stream) -> Union[Stream, None]:
        """Gives one up; what it is on the present connection."""
        now = self.of(stream).stream
        del self[stream.service, stream.name]
        return now

    def left(self) -> None:
        """The connection has ended."""
        for held in self.values():
            held.stream = None
