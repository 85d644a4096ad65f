"""What a client that connects again registers on each connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple, Union

from ._types import Stream


@dataclass
class Held:
    """A stream, and how it was asked for."""

    #: Of its REGISTER.
    body: bytes
    service: str
    name: str
    class_: Union[str, None]
    #: What it is on the present connection.
    stream: Union[Stream, None] = None


class Holds(Dict[Tuple[str, str], Held]):
    """Streams by their services and their names."""

    def of(self, stream: Stream) -> Held:
        held = self.get((stream.service, stream.name))
        if not held:
            raise ValueError(f"stream {stream.name!r} of service {stream.service!r} was given up")
        return held
