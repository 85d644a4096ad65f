"""Memory shared with the daemon: arrays that lie there travel without being copied through the socket."""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Mapping

from ._types import Array, Stream

# Python names them from 3.11 on only.
F_ADD_SEALS, SEAL_SEAL, SEAL_SHRINK, SEAL_GROW = 1033, 1, 2, 4
LINE = 64


class Arena:
    """Shared memory, given out place by place; ``Client.share`` makes it."""

    def __init__(self, nbytes: int) -> None:
        if nbytes < 1:
            raise ValueError(f"an arena of {nbytes} bytes, at least 1 is needed")
        self.nbytes = nbytes
        self.used = 0
        #: The one that shares it.
        self.connection: object = None
        self.file = os.memfd_create("weir-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.file, nbytes)
            fcntl.fcntl(self.file, F_ADD_SEALS, SEAL_SHRINK | SEAL_GROW | SEAL_SEAL)
            self.memory = mmap.mmap(self.file, nbytes)
        except BaseException:
            self.forget_file()
            raise

    def forget_file(self) -> None:
        """Closes the descriptor once the daemon has its own; the mapping stays."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def place(self, stream: Stream) -> Place:
        """Sets room aside for one request and its answer. A place serves any number of requests one after the
        other: a client needs one for each that is in flight."""
        input_at = self.used
        output_at = lined_up(input_at + stream.input_bytes)
        end = output_at + stream.output_bytes
        if end > self.nbytes:
            raise ValueError(f"a place of {end - input_at} bytes, {max(self.nbytes - input_at, 0)} are left")
        self.used = lined_up(end)
        return Place(self, stream, input_at, output_at)


class Place:
    """Arrays in shared memory: ``inputs`` to write a request to, ``outputs`` that its result appears in.

    From the submission to the answer both are the daemon's; where nobody waits for that any more, until the stream's
    deadline has passed: up to then an output may still be written there.
    """

    def __init__(self, arena: Arena, stream: Stream, input_at: int, output_at: int) -> None:
        self.arena, self.stream, self.input_at, self.output_at = arena, stream, input_at, output_at
        whole = memoryview(arena.memory)
        self.inputs: Mapping[str, Array] = {t.name: t.view(whole, input_at) for t in stream.inputs}
        self.outputs: dict[str, Array] = {t.name: t.view(whole, output_at) for t in stream.outputs}

    def on(self, connection: object, stream: Stream) -> Stream:
        """The stream as it is on a connection, where a request that lies here can be sent there."""
        if self.arena.connection is not connection:
            raise ValueError("the arena of this place is not that of the present connection: share another")
        if (stream.inputs, stream.outputs) != (self.stream.inputs, self.stream.outputs):
            raise ValueError(f"stream {stream.name!r} takes or gives other tensors than when this place was made")
        return stream

    @property
    def input(self) -> Array:
        """The first input."""
        return next(iter(self.inputs.values()))


def lined_up(at: int) -> int:
    return -(-at // LINE) * LINE
