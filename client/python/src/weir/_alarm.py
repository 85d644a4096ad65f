"""Safe mode and suspensions heard of without reading a frame: an eventfd, and how it comes through the socket."""

from __future__ import annotations

import math
import os
import select
import socket
import sys
from typing import Union

from ._types import ProtocolError


class Alarm:
    """An eventfd that counts changes of safe mode and suspensions, for a ``select``, ``poll`` or event loop;
    ``Client.alarm`` asks for it. What has changed is told by the event, or by the status. It does not tell that the connection
    has ended.
    """

    def __init__(self, file: int) -> None:
        self._file = open(file, "rb", buffering=0)

    def fileno(self) -> int:
        """The eventfd, readable from a change on until the count is taken."""
        return self._file.fileno()

    def take(self, timeout: Union[float, None] = 0.0) -> int:
        """Waits so many seconds, or for ever, for a change, and takes the count: how many there were since it was last
        taken, 0 if none."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        # A poll takes a negative time, as what is left until an instant that has passed, for ever.
        if not poll.poll(None if timeout is None or timeout == math.inf else max(timeout, 0.0) * 1000):
            return 0
        # Another holder of the file may have been first.
        return int.from_bytes(self._file.read(8) or b"", sys.byteorder)

    def close(self) -> None:
        """Lets go of the eventfd; the daemon makes no other for this connection."""
        self._file.close()


class Inlet:
    """Reads from the socket, and keeps a descriptor that came along until its frame is read."""

    def __init__(self) -> None:
        self.descriptor = -1

    def receive(self, connection: socket.socket) -> bytes:
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 18, 1, socket.MSG_CMSG_CLOEXEC)
        for descriptor in descriptors:
            self.close()
            self.descriptor = descriptor
        return data

    def alarm(self) -> Alarm:
        """What came along with an ALARMED."""
        if self.descriptor < 0:
            raise ProtocolError("the daemon's ALARMED came without a descriptor")
        descriptor, self.descriptor = self.descriptor, -1
        return Alarm(descriptor)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
