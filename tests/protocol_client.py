#!/usr/bin/env python3
"""A client of the data protocol, written from docs/protocol.md alone, that tries the daemon with every request.

    python3 tests/protocol_client.py --weir target/debug/weir
"""
import argparse
import fcntl
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HELLO, REGISTER, UNREGISTER, SUBMIT, SUBSCRIBE, STATUS, PING, ARENA, SUBMIT_SHARED, ALARM = range(1, 11)
SUBMIT_AT, SUBMIT_SHARED_AT, SUBMIT_OF, SUBMIT_SHARED_OF = range(11, 15)
WELCOME, REGISTERED, UNREGISTERED, RESULT, MISS, SUBSCRIBED = range(128, 134)
STATUS_REPLY, PONG, REFUSED, ERROR, MAPPED, ALARMED, RESULT_LATE = range(134, 141)
EVENT_SAFE_MODE, EVENT_MISSES_LEFT, EVENTS_LOST, EVENT_SUSPENSION = range(160, 164)
NO_CONSTRAINT = 0xFFFFFFFF
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2  # of linux/fcntl.h

# What the daemon sends: the types are those of `struct`, `s` a string of the protocol, `t` a list of tensors,
# `c` what is told of classes, if anything is, `*` the rest of the body.
LAYOUTS = {
    WELCOME: "version:H reserved:H max_frame:I max_arena:Q daemon:s",
    REGISTERED: "stream:I input_bytes:I deadline_ns:Q output_bytes:I guaranteed:I of:I accuracy:f variant:s"
    " inputs:t outputs:t classes:c",
    RESULT: "stream:I misses_left:I sequence:Q queued_ns:Q run_ns:Q batch:H variant:H skipped:I output:*",
    RESULT_LATE: "stream:I misses_left:I sequence:Q queued_ns:Q run_ns:Q batch:H variant:H skipped:I output:*",
    MISS: "stream:I misses_left:I sequence:Q reason:H",
    STATUS_REPLY: "json:*",
    REFUSED: "code:H text:s",
    ERROR: "code:H text:s",
    EVENT_SAFE_MODE: "state:H cause:H reserved:I sequence:Q entered_ns:Q limit:Q seen:Q window_ns:Q breaches:Q"
    " service:s stream:s text:s",
    EVENT_SUSPENSION: "state:H cause:H reserved:I sequence:Q entered_ns:Q limit:Q seen:Q window_ns:Q breaches:Q"
    " service:s stream:s text:s",
    EVENT_MISSES_LEFT: "misses_left:I form:B a:I k:I service:s stream:s",
    EVENTS_LOST: "count:Q",
    UNREGISTERED: "",
    SUBSCRIBED: "",
    PONG: "",
    MAPPED: "",
    ALARMED: "",
}
CONFIG = """
[daemon]
socket = "weir.sock"
profile = "p.json"
realtime = false
bus = "off"
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
[[service]]
name = "classed"
engine = "simulated"
simulated = { times = ["20ms"], input = 4, output = 4 }
deadline = "5s"
guard = "1s"
[[service.class]]
name = "plain"
[[service.class]]
name = "soft"
deadline = "10ms"
decay = { step = { part = 0.5, cutoff = 100.0 } }
[[service.class]]
name = "hard"
deadline = "10ms"
[[service.stream]]
name = "soft0"
class = "soft"
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
                value, at = string_at(body, at)
            elif form == "c":
                value, at = classes_at(body, at)
            elif form == "t":
                value, at = tensors_at(body, at)
            else:
                (value,) = struct.unpack_from("<" + form, body, at)
                at += struct.calcsize("<" + form)
            assert name != "reserved" or value == 0, "a reserved field that is not 0"
            setattr(self, name, value)
        assert at == len(body), "kind %d: a body of %d bytes instead of %d" % (kind, len(body), at)

    def __repr__(self):
        return str(vars(self))


def string_at(body, at):
    (size,) = struct.unpack_from("<H", body, at)
    return body[at + 2 : at + 2 + size].decode("utf-8"), at + 2 + size


def tensors_at(body, at):
    """A list of (type, shape, name), and where it ends."""
    tensors, count, at = [], body[at], at + 1
    for _ in range(count):
        code, dimensions = struct.unpack_from("<HB", body, at)
        shape = struct.unpack_from("<%dI" % dimensions, body, at + 3)
        name, at = string_at(body, at + 3 + 4 * dimensions)
        tensors.append((code, shape, name))
    return tensors, at


def classes_at(body, at):
    """The stream's own class and a list of (name, deadline, reach), and where it ends; None where nothing is left."""
    if at == len(body):
        return None, at
    classes, (own, count), at = [], body[at : at + 2], at + 2
    for _ in range(count):
        times = struct.unpack_from("<QQ", body, at)
        name, at = string_at(body, at + 16)
        classes.append((name, *times))
    return (own, classes), at


def frame(kind, ident, body=b"", flags=0):
    return struct.pack("<IHHQ", len(body), kind, flags, ident) + body


def string(text):
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    return struct.pack("<H", len(data)) + data


def hello(low=1, high=5):
    return b"WEIR" + struct.pack("<HH", low, high) + string("protocol_client")


def register(service, stream, constraints=(), arrivals=(), of=None):
    body = string(service) + string(stream) + bytes([len(constraints)])
    body += b"".join(struct.pack("<BII", *c) for c in constraints) + bytes([len(arrivals)])
    body += b"".join(struct.pack("<BQQ", *a) for a in arrivals)
    return body if of is None else body + string(of)


class Client:
    """A connection. Frames that came while another was waited for stay in `inbox`."""

    def __init__(self, path, welcome=True, version=3):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.last, self.inbox, self.descriptors = 0, [], []
        if welcome:
            self.welcome = self.ask(HELLO, hello(high=version))
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

    def hand_over(self, descriptor, length):
        """The answer to an ARENA with this descriptor."""
        self.last += 1
        data = frame(ARENA, self.last, struct.pack("<Q", length))
        socket.send_fds(self.socket, [data], [descriptor])
        return self.answer(self.last)

    def exactly(self, size):
        data = b""
        while len(data) < size:
            try:
                more, descriptors, _, _ = socket.recv_fds(self.socket, size - len(data), 4)
                self.descriptors += descriptors
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
        return self.answer(self.send(kind, body))

    def answer(self, ident):
        while True:
            answer = self.receive()
            assert answer is not None, "no answer to frame %d" % ident
            if answer.kind == ERROR or answer.id == ident:
                return answer
            self.inbox.append(answer)

    def answers(self, idents, seconds=5.0):
        """Waits for the answers to `idents`, and a little for what must not come: {id: [answers]}."""
        got, until = {ident: [] for ident in idents}, time.monotonic() + seconds
        while time.monotonic() < until:
            answer = self.receive(0.1 if all(got.values()) else until - time.monotonic())
            if answer is None:
                break
            got.setdefault(answer.id, []).append(answer) if answer.id else self.inbox.append(answer)
        return got

    def farewell(self):
        """What the daemon still sends before it closes."""
        frames = []
        try:
            while True:
                frames.append(self.receive())
                assert frames[-1] is not None, "not closed by the daemon"
        except EOFError:
            return frames


def once(got):
    """The answers in the order of their ids, and whether each request has exactly one, and nothing else came."""
    right = all(len(a) == 1 and a[0].kind in (RESULT, MISS) for a in got.values())
    return [got[ident][0] for ident in sorted(got) if got[ident]], right


def submit(stream, *values):
    return struct.pack("<II%df" % len(values), stream, 0, *values)


def submit_at(stream, *values, ago_ns=0):
    return struct.pack("<IIQ%df" % len(values), stream, 0, time.monotonic_ns() - ago_ns, *values)


def submit_of(stream, number, *values):
    return struct.pack("<IIQQ%df" % len(values), stream, 0, time.monotonic_ns(), number, *values)


class Checks:
    def __init__(self, path):
        self.path, self.passed, self.failed, self.taken = path, 0, 0, []

    def check(self, name, ok, seen=None):
        self.passed, self.failed = self.passed + bool(ok), self.failed + (not ok)
        print("%s %s" % ("ok  " if ok else "FAIL", name) + ("" if ok or seen is None else ": %s" % (seen,)))

    def state(self):
        return json.loads(self.main.ask(STATUS).json.decode("utf-8"))

    def opening(self):
        self.main = Client(self.path)
        welcome = self.main.welcome
        self.check("HELLO: welcome", welcome.version == 3 and welcome.max_frame == 4 << 20 and welcome.daemon, welcome)
        self.check("PING: pong", self.main.ask(PING).kind == PONG)
        answer = self.main.ask(ALARM)
        self.check("ALARM: refused: nothing to count", answer.kind == REFUSED and answer.code == 14, answer)
        body = struct.pack("<I", 7)
        self.check("SUBSCRIBE: subscribed", self.main.ask(SUBSCRIBE, body).kind == SUBSCRIBED)
        answer = self.main.ask(ALARM)
        right = answer.kind == ALARMED and len(self.main.descriptors) == 1
        self.check("ALARM: alarmed, with a descriptor", right, answer)
        answer = self.main.ask(ALARM)
        self.check("ALARM: refused: one already", answer.kind == REFUSED and answer.code == 14, answer)
        self.check("ALARM: nothing counted yet", self.counted() == 0)

    def counted(self):
        try:
            return struct.unpack("=Q", os.read(self.main.descriptors[0], 8))[0]
        except BlockingIOError:
            return 0

    def registering(self):
        half, calm = [(1, 1, 2)], [(1, 1, 10**9)]
        for name, code, body in (
            ("unknown service", 1, register("nobody", "a", half, calm)),
            ("m not below K", 2, register("null", "a", [(1, 2, 2)], calm)),
            ("unknown form of constraint", 2, register("null", "a", [(99, 1, 2)], calm)),
            ("empty stream name", 2, register("null", "", half, calm)),
            ("constraint without arrivals", 3, register("null", "a", half)),
            ("unknown form of arrivals", 3, register("null", "a", half, [(99, 1, 2)])),
            ("a rate too high", 4, register("null", "a", half, [(2, 1000, 0)])),
        ):
            answer = self.main.ask(REGISTER, body)
            self.check("REGISTER: refused: " + name, answer.kind == REFUSED and answer.code == code, answer)
        self.cam0 = cam0 = self.main.ask(REGISTER, register("null", "cam0"))
        right = (cam0.input_bytes, cam0.output_bytes, cam0.deadline_ns, cam0.guaranteed, cam0.of)
        self.check("REGISTER: a reserved stream", right == (16, 16, 200 * 10**6, 1, 2), cam0)
        again = self.main.ask(REGISTER, register("null", "cam0"))
        self.check("REGISTER: refused: name in use", again.kind == REFUSED and again.code == 6, again)
        own = self.main.ask(REGISTER, register("null", "own", half, calm))
        self.check("REGISTER: own constraint and arrivals", own.kind == REGISTERED and own.guaranteed == 1, own)
        self.free = free = self.main.ask(REGISTER, register("null", "free"))
        self.check("REGISTER: best effort", free.kind == REGISTERED and (free.guaranteed, free.of) == (0, 1), free)
        for name, code, body in (
            ("wrong length", 10, submit(cam0.stream, 1.0)),
            ("unknown stream", 7, submit(99, 1.0, 2.0, 3.0, 4.0)),
        ):
            answer = self.main.ask(SUBMIT, body)
            self.check("SUBMIT: refused: " + name, answer.kind == REFUSED and answer.code == code, answer)

    def sharing(self):
        memory = os.memfd_create("arena", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, 4096)
        unsealed = self.main.hand_over(memory, 4096)
        self.check("ARENA: refused: unsealed", unsealed.kind == REFUSED and unsealed.code == 11, unsealed)
        fcntl.fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK)
        mapped = self.main.hand_over(memory, 4096)
        self.check("ARENA: mapped", mapped.kind == MAPPED, mapped)
        values = struct.pack("<4f", 1.5, -2.5, 0.0, 1e9)
        with mmap.mmap(memory, 4096) as arena:
            arena[64:80] = values
            answer = self.main.ask(SUBMIT_SHARED, struct.pack("<IIQQ", self.free.stream, 0, 64, 4080))
            right = answer.kind == RESULT and answer.output == b"" and arena[4080:4096] == values
            self.check("SUBMIT_SHARED: the output is in the arena", right, answer)
            at = struct.pack("<IIQQQ", self.free.stream, 0, time.monotonic_ns(), 64, 2048)
            answer = self.main.ask(SUBMIT_SHARED_AT, at)
            right = answer.kind == RESULT and arena[2048:2064] == values
            self.check("SUBMIT_SHARED_AT: the output is in the arena", right, answer)
        for what, places in (("beyond the arena", (0, 4088)), ("not aligned", (4, 0))):
            answer = self.main.ask(SUBMIT_SHARED, struct.pack("<IIQQ", self.free.stream, 0, *places))
            self.check("SUBMIT_SHARED: refused: " + what, answer.kind == REFUSED and answer.code == 12, answer)
        os.close(memory)

    def submitting(self):
        idents = []
        for i in range(10):
            idents.append(self.main.send(SUBMIT_AT, submit_at(self.cam0.stream, i, -2.5, 0.0, 1e9)))
            time.sleep(0.03)
        answers, right = once(self.main.answers(idents))
        self.taken = list(answers)
        hits = [a.kind == RESULT for a in answers]
        self.check("SUBMIT: one answer each", right, answers)
        self.check("SUBMIT: sequence 0, 1, 2, ...", [a.sequence for a in answers] == list(range(10)), answers)
        kept = all(a or b for a, b in zip(hits, hits[1:])) or any(e.kind == EVENT_SAFE_MODE and e.state >= 3 for e in self.main.inbox)
        self.check("SUBMIT: the promise is kept", any(hits) and kept, hits)
        for i, a in enumerate(answers):
            if a.kind == RESULT:
                right &= a.output == struct.pack("<4f", i, -2.5, 0.0, 1e9) and a.batch in (1, 2) and a.variant == 0
                right &= a.queued_ns + a.run_ns <= self.cam0.deadline_ns and a.run_ns > 0 and a.misses_left <= 1
            right &= a.stream == self.cam0.stream
        self.check("SUBMIT: fields and output", right, answers)
        idents = [self.main.send(SUBMIT, submit(self.free.stream, i, 0, 0, 0)) for i in range(500)]
        answers, right = once(self.main.answers(idents))
        right &= [a.sequence for a in answers] == list(range(500))
        right &= all(a.misses_left == NO_CONSTRAINT for a in answers)
        echo = all(a.output == struct.pack("<4f", i, 0, 0, 0) for i, a in enumerate(answers) if a.kind == RESULT)
        self.check("SUBMIT: 500 at once, best effort: one answer each", right and echo)

    def sending(self):
        """The instant of sending: arrival and deadline count from it."""
        ahead = self.main.ask(SUBMIT_AT, submit_at(self.free.stream, 0, 0, 0, 0, ago_ns=-60 * 10**9))
        self.check("SUBMIT_AT: refused: in the future", ahead.kind == REFUSED and ahead.code == 16, ahead)
        past = self.main.ask(SUBMIT_AT, submit_at(self.free.stream, 0, 0, 0, 0, ago_ns=self.free.deadline_ns + 1))
        self.check("SUBMIT_AT: longer ago than the deadline: expired", past.kind == MISS and past.reason == 2, past)
        half = self.free.deadline_ns // 2
        answer = self.main.ask(SUBMIT_AT, submit_at(self.free.stream, 1, 2, 3, 4, ago_ns=half))
        right = answer.kind == MISS or answer.kind == RESULT and answer.queued_ns >= half
        self.check("SUBMIT_AT: waiting counts from then", right and answer.sequence == past.sequence + 1, answer)
        with Client(self.path, version=2) as older:
            older.raw(frame(SUBMIT_AT, 2, submit_at(1, 0, 0, 0, 0)))
            frames = older.farewell()
        right = older.welcome.version == 2 and [f.kind for f in frames] == [ERROR] and frames[0].code == 2
        self.check("version 2: SUBMIT_AT is not known", right, frames)

    def classes(self):
        """Requests of several classes: one batch takes 20 ms, which is too late for two of them."""
        told = [("plain", 5 * 10**9, 5 * 10**9), ("soft", 10**7, 101 * 10**7), ("hard", 10**7, 10**7)]
        values = (1.0, 2.0, 3.0, 4.0)
        with Client(self.path, version=5) as newest:
            own = newest.ask(REGISTER, register("classed", "own", of="hard"))
            self.check("REGISTERED: classes, and the stream's own", own.classes == (2, told), own)
            other = newest.ask(REGISTER, register("classed", "other", of="none"))
            self.check("REGISTER: refused: unknown class", other.kind == REFUSED and other.code == 17, other)
            plain = newest.ask(SUBMIT_OF, submit_of(own.stream, 0, *values))
            self.check("SUBMIT_OF: in time", plain.kind == RESULT and plain.output == struct.pack("<4f", *values), plain)
            late = newest.ask(SUBMIT_OF, submit_of(own.stream, 1, *values))
            right = late.kind == RESULT_LATE and late.queued_ns + late.run_ns > 10**7
            self.check("SUBMIT_OF: late, and delivered", right and late.output == plain.output, late)
            for kind, body in ((SUBMIT, submit(own.stream, *values)), (SUBMIT_OF, submit_of(own.stream, 2, *values))):
                missed = newest.ask(kind, body)
                self.check("a hard class: missed", missed.kind == MISS, missed)
            gone = newest.ask(SUBMIT_OF, submit_of(own.stream, 3, *values))
            self.check("SUBMIT_OF: refused: unknown class", gone.kind == REFUSED and gone.code == 17, gone)
            free = newest.ask(REGISTER, register("null", "classless"))
            none = newest.ask(SUBMIT_OF, submit_of(free.stream, 0, *values))
            self.check("SUBMIT_OF: refused: no classes", none.kind == REFUSED and none.code == 17, none)
            self.check("REGISTERED: no classes", free.classes is None, free)
            status = json.loads(newest.ask(STATUS).json.decode("utf-8"))["services"][1]["classes"]
            seen = [(c["name"], c["requests"], c["answered"], c["late"], c["missed"]) for c in status]
            right = seen == [("plain", 1, 1, 0, 0), ("soft", 1, 1, 1, 0), ("hard", 2, 0, 0, 2)]
            self.check("STATUS: classes", right and [c["worth"] for c in status] == [1.0, 0.5, 0.0], status)
        with Client(self.path, version=4) as older:
            soft0 = older.ask(REGISTER, register("classed", "soft0"))
            self.check("version 4: REGISTERED without classes", soft0.kind == REGISTERED and soft0.classes is None, soft0)
            answer = older.ask(SUBMIT, submit(soft0.stream, *values))
            self.check("version 4: a late answer is a RESULT as any", answer.kind == RESULT, answer)
            older.raw(frame(SUBMIT_OF, 9, submit_of(soft0.stream, 0, *values)))
            frames = older.farewell()
        self.check("version 4: SUBMIT_OF is not known", [f.code for f in frames if f.kind == ERROR] == [2], frames)
        with Client(self.path, version=4) as older:
            older.raw(frame(REGISTER, 9, register("classed", "x", of="soft")))
            frames = older.farewell()
        self.check("version 4: no class in REGISTER", [f.code for f in frames if f.kind == ERROR] == [2], frames)

    def calm(self, seconds=5.0):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            service = self.state()["services"][0]
            if service["safe_mode"]["state"] == "normal" and service["suspensions"]["streams"] == 0:
                break
            time.sleep(0.05)

    def flooding(self):
        self.calm()
        while self.main.receive(0.2) is not None:
            pass
        self.main.inbox.clear()
        self.counted()
        older = Client(self.path, version=1)  # neither told of suspensions nor given an eventfd for them
        self.check("version 1: welcome", older.welcome.version == 1, older.welcome)
        older.ask(SUBSCRIBE, struct.pack("<I", 4))
        self.check("version 1: no eventfd for suspensions", older.ask(ALARM).kind == REFUSED)
        older.ask(SUBSCRIBE, struct.pack("<I", 0xFFFFFFFF))
        idents = [self.main.send(SUBMIT, submit(self.cam0.stream, i, 0, 0, 0)) for i in range(60)]
        answers, right = once(self.main.answers(idents))
        self.taken += answers
        self.check("flood: one answer each", right and len(answers) == 60)
        self.calm()
        while (event := self.main.receive(0.2)) is not None:
            self.main.inbox.append(event)
        changes = [e for e in self.main.inbox if e.kind in (EVENT_SAFE_MODE, EVENT_SUSPENSION)]
        events = [e for e in changes if e.kind == EVENT_SUSPENSION]
        right = events and (events[0].state, events[0].cause) == (2, 1)
        right = right and events[0].limit == 5 < events[0].seen and events[0].window_ns == 10**8
        self.check("flood: EVENT_SUSPENSION, arrival-excess", right and events[0].text, self.main.inbox)
        right = all((e.service, e.stream) == ("null", "cam0") for e in events)
        self.check("flood: of this stream alone", right, events)
        right = all(e.cause != 1 for e in changes if e.kind == EVENT_SAFE_MODE)
        self.check("flood: no safe mode for it", right, changes)
        self.check("flood: the promise holds again", events and (events[-1].state, events[-1].cause) == (1, 0), events)
        self.check("flood: the eventfd counts every change", self.counted() == len(changes) >= 2, changes)
        steps = [e.sequence for e in events]
        self.check("flood: changes are numbered", all(b == a + 1 for a, b in zip(steps, steps[1:])), steps)
        told = []
        while (event := older.receive(0.2)) is not None:
            told.append(event.kind)
        self.check("version 1: is sent no frame that it does not know", EVENT_SUSPENSION not in told, told)
        older.socket.close()

    def counting(self):
        state = self.state()
        streams = {s["name"]: s for s in state["services"][0]["streams"]}
        cam0, hits = streams["cam0"], sum(a.kind == RESULT for a in self.taken)
        seen = (cam0["arrived"], cam0["served"], sum(cam0["missed"].values()))
        self.check("STATUS: counts agree", seen == (len(self.taken), hits, len(self.taken) - hits), seen)
        self.check("STATUS: streams", sorted(streams) == ["cam0", "free", "own"] and not state["draining"], streams)

    def breaking(self):
        for name, code, first, data in (
            ("no common version", 1, True, frame(HELLO, 1, hello(6, 9))),
            ("first frame not HELLO", 7, True, frame(PING, 1)),
            ("other magic", 2, True, frame(HELLO, 1, b"RIEW" + hello()[4:])),
            ("garbage instead of HELLO", 3, True, b"GET / HTTP/1.1\r\n\r\n" * 9),
            ("garbage", 3, False, b"\xff" * 64),
            ("too large", 3, False, struct.pack("<IHHQ", (4 << 20) + 1, SUBMIT, 0, 2)),
            ("HELLO twice", 7, False, frame(HELLO, 2, hello())),
            ("unknown kind", 2, False, frame(99, 2)),
            ("a kind of the daemon", 2, False, frame(RESULT, 2)),
            ("flags", 2, False, frame(PING, 2, flags=1)),
            ("reserved not 0, in the arena", 2, False, frame(SUBMIT_SHARED, 2, b"\1\0\0\0" * 6)),
            ("id 0", 2, False, frame(PING, 0)),
            ("reserved not 0", 2, False, frame(SUBMIT, 2, b"\1\0\0\0" * 6)),
            ("body too short", 2, False, frame(UNREGISTER, 2, b"\1\0\0")),
            ("body too long", 2, False, frame(PING, 2, b"x")),
            ("list too long", 2, False, frame(REGISTER, 2, register("null", "a", [(1, 1, 2)] * 9))),
            ("not UTF-8", 2, False, frame(REGISTER, 2, register("null", b"\xff\xfe"))),
        ):
            with Client(self.path, welcome=not first) as bad:
                bad.raw(data)
                frames = bad.farewell()
            right = len(frames) == 1 and frames[0].kind == ERROR and frames[0].code == code
            self.check("ERROR %d and closed: %s" % (code, name), right, frames)
        with Client(self.path) as bad:
            bad.ask(REGISTER, register("null", "gone"))
            bad.raw(frame(SUBMIT, 3, bytes(24))[:21])
        until = time.monotonic() + 5
        while (gone := self.main.ask(REGISTER, register("null", "gone"))).kind == REFUSED and time.monotonic() < until:
            time.sleep(0.01)
        self.check("half a frame, then gone: its stream is free again", gone.kind == REGISTERED, gone)
        self.check("all these cost nobody else anything", self.main.ask(PING).kind == PONG)

    def crowding(self):
        time.sleep(0.2)
        others = [Client(self.path) for _ in range(3)]
        with Client(self.path, welcome=False) as fifth:
            fifth.raw(frame(HELLO, 1, hello()))
            frames = fifth.farewell()
        self.check("the fifth client: ERROR 5", [(f.kind, f.code) for f in frames] == [(ERROR, 5)], frames)
        self.check("STATUS: four clients", self.state()["clients"] == 4)
        for other in others:
            other.socket.close()
        time.sleep(0.2)
        Client(self.path).socket.close()
        self.check("a place given up is free again", True)

    def leaving(self):
        body = struct.pack("<I", self.cam0.stream)
        self.check("UNREGISTER: unregistered", self.main.ask(UNREGISTER, body).kind == UNREGISTERED)
        again = self.main.ask(UNREGISTER, body)
        self.check("UNREGISTER: refused: unknown stream", again.kind == REFUSED and again.code == 7, again)
        again = self.main.ask(REGISTER, register("null", "cam0"))
        self.check("REGISTER: again, another number", again.kind == REGISTERED and again.stream != self.cam0.stream)

    def stopping(self):
        idents = [self.main.send(SUBMIT, submit(self.free.stream, i, 0, 0, 0)) for i in range(20)]
        self.main.ask(PING)  # the requests have been read
        self.daemon.send_signal(signal.SIGTERM)
        frames = [f for f in self.main.inbox + self.main.farewell() if f.id in idents]
        self.check("SIGTERM: what waits is answered, once", sorted(f.id for f in frames) == idents, frames)
        self.check("SIGTERM: ends with status 0", self.daemon.wait(timeout=5) == 0, self.daemon.returncode)
        self.check("SIGTERM: the socket is removed", not os.path.exists(self.path))


def listening(daemon, path):
    """Waits up to 10 s for the daemon to take connections."""
    until = time.monotonic() + 10
    while time.monotonic() < until and daemon.poll() is None:
        try:
            Client(path, welcome=False).socket.close()
            return True
        except OSError:
            time.sleep(0.02)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", default="target/debug/weir", help="the binary under test")
    weir = os.path.abspath(parser.parse_args().weir)
    with tempfile.TemporaryDirectory() as folder:
        config, path = os.path.join(folder, "weir.toml"), os.path.join(folder, "weir.sock")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG)
        checks, daemon = Checks(path), None
        try:
            profile = subprocess.run([weir, "profile", config, "--quick"], stdout=subprocess.DEVNULL, timeout=60)
            checks.check("weir profile", profile.returncode == 0)
            daemon = checks.daemon = subprocess.Popen([weir, "serve", config, "--quiet"])
            checks.check("weir serve: a socket that takes connections", listening(daemon, path))
            steps = (checks.opening, checks.registering, checks.submitting, checks.flooding, checks.counting)
            steps += (checks.sending, checks.classes, checks.sharing, checks.breaking, checks.crowding, checks.leaving, checks.stopping)
            for step in steps:
                try:
                    step()
                except Exception as error:  # whatever it was: the next step may still tell something
                    checks.check(step.__name__, False, repr(error))
        finally:
            if daemon is not None:
                daemon.kill()
                daemon.wait()
    print("%d passed, %d failed" % (checks.passed, checks.failed))
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
