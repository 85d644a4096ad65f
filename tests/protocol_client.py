#!/usr/bin/env python3
"""A client of the data protocol, written from docs/protocol.md alone, that tries the daemon with every request.

    python3 tests/protocol_client.py --weir target/debug/weir
"""
import argparse
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HELLO, REGISTER, UNREGISTER, SUBMIT, SUBSCRIBE, STATUS, PING = range(1, 8)
(WELCOME, REGISTERED, UNREGISTERED, RESULT, MISS, SUBSCRIBED, STATUS_REPLY, PONG, REFUSED, ERROR) = range(128, 138)
EVENT_SAFE_MODE, EVENT_MISSES_LEFT, EVENTS_LOST = range(160, 163)
NO_CONSTRAINT = 0xFFFFFFFF

# What the daemon sends: the types are those of `struct`, `s` a string of the protocol, `*` the rest of the body.
LAYOUTS = {
    WELCOME: "version:H reserved:H max_frame:I daemon:s",
    REGISTERED: "stream:I input_bytes:I deadline_ns:Q output_bytes:I guaranteed:I of:I accuracy:f variant:s",
    RESULT: "stream:I misses_left:I sequence:Q queued_ns:Q run_ns:Q batch:H variant:H reserved:I output:*",
    MISS: "stream:I misses_left:I sequence:Q reason:H",
    STATUS_REPLY: "json:*",
    REFUSED: "code:H text:s",
    ERROR: "code:H text:s",
    EVENT_SAFE_MODE: "state:H cause:H reserved:I sequence:Q entered_ns:Q limit:Q seen:Q window_ns:Q"
    " service:s stream:s text:s",
    EVENT_MISSES_LEFT: "misses_left:I form:B a:I k:I service:s stream:s",
    EVENTS_LOST: "count:Q",
    UNREGISTERED: "",
    SUBSCRIBED: "",
    PONG: "",
}
CONFIG = """
[daemon]
socket = "weir.sock"
profile = "p.json"
realtime = false
max-clients = 4
[safe-mode]
hold = "300ms"
clean = "300ms"
[[service]]
name = "null"
engine = "simulated"
simulated = { times = ["1ms", "1ms"], input = 4, output = 4 }
deadline = "200ms"
guard = "100ms"
max-batch = 2
constraints = [{ any-miss = { m = 1, k = 2 } }]
[[service.stream]]
name = "cam0"
arrivals = [{ window = { count = 5, length = "100ms" } }]
"""


class Answer:
    """A frame from the daemon, its fields as attributes."""

    def __init__(self, kind, ident, body):
        self.kind, self.id, at = kind, ident, 0
        for field in LAYOUTS[kind].split():  # a kind without layout breaks the protocol
            name, form = field.split(":")
            if form == "*":
                value, at = body[at:], len(body)
            elif form == "s":
                (size,) = struct.unpack_from("<H", body, at)
                value, at = body[at + 2 : at + 2 + size].decode("utf-8"), at + 2 + size
            else:
                (value,) = struct.unpack_from("<" + form, body, at)
                at += struct.calcsize("<" + form)
            assert name != "reserved" or value == 0, "a reserved field that is not 0"
            setattr(self, name, value)
        assert at == len(body), "kind %d: a body of %d bytes instead of %d" % (kind, len(body), at)

    def __repr__(self):
        return str(vars(self))


def frame(kind, ident, body=b"", flags=0):
    return struct.pack("<IHHQ", len(body), kind, flags, ident) + body


def string(text):
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    return struct.pack("<H", len(data)) + data


def hello(low=1, high=1):
    return b"WEIR" + struct.pack("<HH", low, high) + string("protocol_client")


def register(service, stream, constraints=(), arrivals=()):
    body = string(service) + string(stream) + bytes([len(constraints)])
    body += b"".join(struct.pack("<BII", *c) for c in constraints) + bytes([len(arrivals)])
    return body + b"".join(struct.pack("<BQQ", *a) for a in arrivals)


class Client:
    """A connection. Frames that came while another was waited for stay in `inbox`."""

    def __init__(self, path, welcome=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.last, self.inbox = 0, []
        if welcome:
            self.welcome = self.ask(HELLO, hello())
            assert self.welcome.kind == WELCOME, self.welcome

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def raw(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the daemon has closed: why is still to be read

    def send(self, kind, body=b""):
        self.last += 1
        self.raw(frame(kind, self.last, body))
        return self.last

    def exactly(self, size):
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                raise EOFError("closed by the daemon")
            data += more
        return data

    def receive(self, seconds=5.0):
        """The next frame as it comes; None when none begins in time."""
        self.socket.settimeout(seconds)
        try:
            header = self.exactly(16)
        except socket.timeout:
            return None
        length, kind, flags, ident = struct.unpack("<IHHQ", header)
        assert flags == 0 and length <= 4 << 20, "a broken header"
        return Answer(kind, ident, self.exactly(length))

    def ask(self, kind, body=b""):
        """Sends a frame and returns its answer, or the ERROR that came instead."""
        ident = self.send(kind, body)
        while True:
            answer = self.receive()
            assert answer is not None, "no answer to kind %d" % kind
            if answer.kind == ERROR or answer.id == ident:
                return answer
            self.inbox.append(answer)

    def ended(self):
        """Whether the daemon has closed the connection and sent nothing before it."""
        try:
            return self.receive() is None and False
        except EOFError:
            return True
