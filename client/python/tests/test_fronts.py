"""A stream that is dealt to several daemons: by counting, and with three of them."""

from __future__ import annotations

import itertools
import json
import math
import os
import pathlib
import sys
import time
import unittest
from fractions import Fraction

import numpy as np
import weir
from weir._dealing import Word

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import daemon  # noqa: E402

#: How long what must come is waited for, in seconds; says nothing about how fast it should be.
PATIENCE = 60.0
#: One that takes up to 50 requests a second, which may wait for a second.
CONFIG = """
[daemon]
socket = "s"
profile = "p.json"
realtime = false
bus = "off"
[safe-mode]
hold = "100ms"
clean = "100ms"
[[service]]
name = "slow"
engine = "simulated"
simulated = { times = ["20ms"], input = 2, output = 2 }
deadline = "2s"
guard = "1s"
max-batch = 1
"""
ZEROS = np.zeros(2, np.float32)
#: A batch takes 20 ms and is profiled with three times that: what must be answered is far from what can be, on a busy machine too.
BOUND_NS = 60_000_000
#: Of 222 a second each of three daemons gets 15 that must be answered and 59 that need not, which it cannot all compute.
PERIOD, JITTER = 0.0045, 0.2
CONSTRAINTS = [weir.any_miss(4, 5)]


def bounded(one: daemon.Daemon) -> daemon.Daemon:
    """The same, served with `BOUND_NS` in its profile."""
    one.end()
    path = pathlib.Path(one.socket).parent / "p.json"
    profile = json.loads(path.read_text())
    entry = profile["entries"][0]
    entry["stalls"] = None
    for batch in entry["batches"]:
        for name in batch.keys() & {f"{part}_ns" for part in ("p50", "p90", "p95", "p99", "p999", "mean", "max", "bound")}:
            batch[name] = BOUND_NS
        batch.update(longest_ns=[0] * 8, machine=None)
    path.write_text(json.dumps(profile))
    one.start()
    return one


def worst(outcomes: list[bool], window: int) -> int:
    """The most misses among so many in a row."""
    stretches = range(max(len(outcomes) - window + 1, 0))
    return max((outcomes[begin : begin + window].count(False) for begin in stretches), default=0)


class Counted(unittest.TestCase):
    def words(self) -> list[Word]:
        each = [weir.any_miss(m, k) for k in range(1, 8) for m in range(k)]
        return [Word([constraint], fronts) for constraint in each for fronts in range(1, 5)]

    def test_a_stream_is_dealt_as_by_the_other_client(self) -> None:
        """The cases that the Rust client is held against too."""
        cases = json.loads((pathlib.Path(__file__).parents[2] / "tests" / "dealing.json").read_text())
        self.assertGreater(len(cases), 20)
        for case in cases:
            constraints = [weir.Constraint(*of) for of in case["constraints"]]
            if case["density"] is None:
                self.assertRaises(ValueError, Word, constraints, case["fronts"])
                continue
            word = Word(constraints, case["fronts"])
            self.assertEqual(word.density, Fraction(*case["density"]))
            self.assertEqual([word.front(i) for i in range(len(case["dealt"]))], case["dealt"])
            for told in case["misses"]:
                self.assertEqual(word.misses(told["window"], told["promising"]), told["most"], (case, told))
            for share in case["shares"]:
                whole = [weir.Arrivals(*of) for of in share["whole"]]
                self.assertEqual([[of.form, of.a, of.b] for of in word.share(whole)], share["share"], case)

    def test_each_front_gets_its_turn_of_what_must_be_answered(self) -> None:
        for word in self.words():
            dealt = [word.front(i) for i in range(60)]
            mandatory = [front for front in dealt if front is not None]
            self.assertEqual(mandatory, list(itertools.islice(itertools.cycle(range(word.fronts)), len(mandatory))))
            self.assertEqual(len(mandatory), math.floor(60 * word.density))

    def test_the_densest_constraint_binds(self) -> None:
        for constraints, share in (
            ([weir.any_miss(3, 10)], Fraction(7, 10)),
            ([weir.any_hit(4, 5)], Fraction(4, 5)),
            ([weir.row_miss(1), weir.any_miss(3, 10)], Fraction(7, 10)),
            ([weir.row_miss(0)], Fraction(1)),
            # As ⌊5/2⌋ - 1 misses of 5.
            ([weir.row_hit(2, 5)], Fraction(4, 5)),
        ):
            self.assertEqual(Word(constraints, 2).density, share)
        for nothing in ([], [weir.any_miss(2, 2)], [weir.row_hit(6, 5)]):
            with self.assertRaises(ValueError):
                Word(nothing, 2)

    def test_what_holds_without_a_front_is_what_the_others_answer(self) -> None:
        for constraint, fronts in ((weir.any_miss(3, 10), 3), (weir.any_miss(1, 4), 2), (weir.row_miss(0), 4)):
            word = Word([constraint], fronts)
            for promising in itertools.chain.from_iterable(itertools.combinations(range(fronts), n) for n in range(fronts + 1)):
                outcomes = [word.front(i) in promising for i in range(400)]
                for window in (1, 3, 10, 17):
                    self.assertEqual(word.misses(window, promising), worst(outcomes, window))
        self.assertEqual([Word([weir.any_miss(3, 10)], 3).misses(10, range(n)) for n in (3, 0)], [3, 10])

    def test_a_share_comes_as_its_front_is_told(self) -> None:
        period, jitter, count, length = 1000, 300, 3, 5000
        arrivals = [weir._types.Arrivals(2, period, jitter), weir._types.Arrivals(1, count, length)]
        for word in self.words():
            periodic, *windows = word.share(arrivals)
            own = [i for i in range(400) if word.front(i) == 0]
            # By the period: the nearest that a request and the k-th of the share behind it can come.
            for k in range(1, 12):
                nearest = min(later - first for first, later in zip(own, own[k:])) * period - jitter
                self.assertGreaterEqual(nearest, k * periodic.a - periodic.b, (word.density, word.fronts, k))
            # By the windows: the most of the share among those that may come in so many of them.
            for many in range(1, 30):
                most = max(sum(begin <= i < begin + count * many for i in own) for begin in range(200))
                for bound in windows:
                    self.assertLessEqual(most, bound.a * math.ceil(many * length / bound.b))
        bucket = Word([weir.row_miss(0)], 2).share([weir._types.Arrivals(3, 4, 1000)])
        self.assertEqual(bucket, [weir._types.Arrivals(2, 2000, 3000)])


class Served(unittest.TestCase):
    def setUp(self) -> None:
        self.daemons = [bounded(daemon.Daemon(CONFIG)) for _ in range(3)]
        for one in self.daemons:
            self.addCleanup(one.stop)
        self.paths = [one.socket for one in self.daemons]
        self.changes: list[weir.FrontChange] = []

    def send(self, fronts: weir.Fronts, dealt: weir.Dealt, count: int) -> list[bool]:
        """Sends so many in their rhythm; whether each was answered, by its place in the stream."""
        first = dealt.sent
        came: dict[int, bool] = {}
        due = time.monotonic()
        while len(came) < count:
            if dealt.sent < first + count and time.monotonic() >= due:
                fronts.submit(dealt, ZEROS)
                # Behind by more than was declared it is not caught up with.
                due = max(due + PERIOD, time.monotonic() - JITTER / 2)
            told = fronts.recv(max(due - time.monotonic(), 0.0) if dealt.sent < first + count else PATIENCE)
            if isinstance(told, weir.FrontChange):
                self.changes.append(told)
            elif isinstance(told, (weir.Result, weir.Miss)) and told.sequence < first:
                # Of those before, and late.
                continue
            elif isinstance(told, (weir.Result, weir.Miss)):
                self.assertNotIn(told.sequence, came)
                came[told.sequence] = isinstance(told, weir.Result)
            else:
                self.assertIsNone(told)
                self.assertLess(dealt.sent, first + count, "an answer is missing")
        self.assertEqual(sorted(came), list(range(first, first + count)))
        return [came[sequence] for sequence in sorted(came)]

    def until(self, fronts: weir.Fronts, front: int, promised: bool) -> weir.FrontChange:
        """Waits until it is lost, or back."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            told = fronts.recv(1.0)
            if isinstance(told, weir.FrontChange):
                self.changes.append(told)
                lost = isinstance(told.cause, weir.ClosedError)
                if (told.front, told.promised) == (front, promised) and (promised or lost):
                    return told
        self.fail(f"front {front} does not change")

    def kept(self, outcomes: list[bool], window: int, most: int, expected: int = 0) -> None:
        """The constraint holds of what the fronts have answered together, or they have told more than was done to them."""
        if worst(outcomes, window) > most:
            self.assertGreater(len(self.changes), expected, f"{worst(outcomes, window)} of {window} missed, nobody told")
            print("\nthe machine was disturbed, and the fronts said so:", self.changes)
            if path := os.environ.get("WEIR_NOT_CHECKED"):
                with open(path, "a", encoding="utf-8") as file:
                    file.write("a stream dealt to three fronts: the machine was disturbed, which was told\n")

    def test_a_constraint_holds_of_the_whole_that_no_front_could_promise(self) -> None:
        arrivals = [weir.periodic(PERIOD, JITTER)]
        with weir.Client(self.paths[0]) as one, self.assertRaises(weir.RefusedError) as refused:
            one.register("slow", "alone", CONSTRAINTS, arrivals)
        self.assertEqual(refused.exception.word, "not-admissible")
        with weir.Fronts(self.paths, timeout=PATIENCE) as fronts:
            dealt = fronts.register("slow", "whole", CONSTRAINTS, arrivals)
            self.assertEqual((dealt.word.density, dealt.promising, dealt.misses(15)), (Fraction(1, 5), [0, 1, 2], 12))
            self.assertEqual([share.must.density if share else None for share in dealt.shares], [1.0] * 3)
            outcomes = self.send(fronts, dealt, 900)
            # More comes than all three can compute.
            self.assertIn(False, outcomes)
            self.kept(outcomes, 5, 4)
            self.kept(outcomes, 15, 12)
            # Each front has had its share and no more.
            for number, path in enumerate(self.paths):
                with weir.Client(path) as client:
                    streams = {s["name"]: s for s in client.status()["services"][0]["streams"]}
                mandatory = sum(dealt.word.front(i) == number for i in range(900))
                self.assertEqual(streams["whole"]["served"] + sum(streams["whole"]["missed"].values()), mandatory)

    def test_a_front_that_is_lost_costs_its_share_and_is_told(self) -> None:
        with weir.Fronts(self.paths, timeout=PATIENCE) as fronts:
            dealt = fronts.register("slow", "whole", CONSTRAINTS, [weir.periodic(PERIOD, JITTER)])
            self.assertEqual(len(self.send(fronts, dealt, 100)), 100)
            for _ in range(20):
                fronts.submit(dealt, ZEROS)
                time.sleep(PERIOD)
            self.daemons[1].end()
            outcomes: list[bool] = []
            self.until(fronts, 1, False)
            self.assertNotIn(1, dealt.promising)
            while (told := fronts.recv(3.0)) is not None:
                outcomes += [isinstance(told, weir.Result)] if isinstance(told, (weir.Result, weir.Miss)) else []
            self.assertGreater(len(outcomes), 0)
            self.assertEqual(dealt.word.misses(15, [0, 2]), 13)
            self.kept(self.send(fronts, dealt, 300), 15, 13, expected=1)
            self.daemons[1].start()
            self.until(fronts, 1, True)
            self.kept(self.send(fronts, dealt, 300), 5, 4, expected=2)
            for one in self.daemons:
                one.end()
            for number in range(3):
                self.assertEqual((answer := fronts.infer(dealt, ZEROS)).sequence, dealt.sent - 1)
            assert isinstance(answer, weir.Miss)
            self.assertEqual((answer.reason, dealt.misses(10)), ("front-lost", 10))
            self.assertEqual(dealt.promising, [])

    def test_what_need_not_be_answered_goes_to_each_in_turn(self) -> None:
        with weir.Fronts(self.paths[:2], timeout=PATIENCE) as fronts:
            # Every second, and every third, need not be.
            for name, constraint in (("half", weir.any_miss(1, 2)), ("third", weir.any_miss(1, 3))):
                dealt = fronts.register("slow", name, [constraint], [weir.periodic(0.1, 0.1)])
                for _ in range(12):
                    fronts.infer(dealt, ZEROS)
                    time.sleep(0.1)
                rest = 12 - math.floor(12 * dealt.word.density)
                for path in self.paths[:2]:
                    with weir.Client(path) as client:
                        streams = {s["name"]: s for s in client.status()["services"][0]["streams"]}
                    self.assertEqual(streams[f"{name}/rest"]["arrived"], rest // 2)

    def test_a_share_that_cannot_be_promised_is_refused_and_leaves_nothing(self) -> None:
        with weir.Fronts(self.paths, timeout=PATIENCE) as fronts:
            with self.assertRaises(weir.RefusedError):
                fronts.register("slow", "much", [weir.row_miss(0)], [weir.periodic(0.001, 0.0)])
            with self.assertRaises(ValueError):
                fronts.register("slow", "nothing", [], [])
            dealt = fronts.register("slow", "much", [weir.row_miss(0)], [weir.periodic(1.0, 1.0)])
            with self.assertRaises(ValueError):
                fronts.submit(dealt, np.zeros(3, np.float32))
            with self.assertRaises(ValueError):
                fronts.submit(dealt, ZEROS, deadline=-0.001)
            self.assertEqual(dealt.sent, 0)
            self.assertIsInstance(fronts.infer(dealt, ZEROS), weir.Result)


if __name__ == "__main__":
    unittest.main()
