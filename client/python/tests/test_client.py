"""Both clients against the real daemon: python -m unittest discover -s tests"""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import select
import socket
import struct
import sys
import threading
import time
import traceback
import unittest
from typing import Callable

import numpy as np
import weir
import weir.aio
from weir import _wire as wire

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import daemon  # noqa: E402

OVERLOADED = ([weir.any_miss(1, 2), weir.row_miss(1)], [weir.periodic(1.0, 0.001)])


def request(number: int) -> list[weir._types.Array]:
    image = np.arange(number, number + 6, dtype=np.uint8).reshape(2, 3)
    half = np.array([0.5, -2.0, 65504.0], np.float16)
    return [image, np.array([-number, number]), half, np.array([1.25], np.float32)]


class Case(daemon.Case):
    def compare(self, outcome: weir.Outcome, number: int) -> weir.Result:
        assert isinstance(outcome, weir.Result), outcome
        for name, expected in zip(("image", "ids", "half"), request(number)):
            np.testing.assert_array_equal(outcome.outputs[name + "_out"], expected)
            self.assertEqual(outcome.outputs[name + "_out"].dtype, expected.dtype)
        self.assertEqual(outcome.outputs["score_out"].tolist(), [2.5])
        return outcome


class Sync(Case):
    def setUp(self) -> None:
        self.client = weir.Client(self.daemon.socket, name="test")
        self.addCleanup(self.client.close)

    def test_streams_tell_their_tensors_and_their_promise(self) -> None:
        typed = self.client.register("typed", self.name)
        told = [(t.name, str(t.dtype), t.shape, t.offset) for t in typed.inputs]
        self.assertEqual(told[:2], [("image", "uint8", (2, 3), 0), ("ids", "int64", (2,), 8)])
        self.assertEqual(told[2:], [("half", "float16", (3,), 24), ("score", "float32", (1,), 32)])
        self.assertEqual((typed.variant, typed.density, typed.deadline), ("typed", 0.0, 20.0))
        slow = self.client.register("slow", self.name, *OVERLOADED)
        self.assertEqual((slow.density, slow.guaranteed, slow.of), (0.5, 1, 2))
        self.assertTrue(self.client.daemon.startswith("weir "))
        streams = self.client.status()["services"][0]["streams"]
        self.assertIn(self.name, [s["name"] for s in streams])

    def test_requests_are_of_classes(self) -> None:
        # A batch takes 40 ms, the deadline of the soft class is 10 ms.
        zeros = np.zeros(2, np.float32)
        plain = self.client.register("classed", self.name)
        self.assertEqual([known.name for known in plain.classes], ["plain", "soft"])
        self.assertEqual((plain.own_class, plain.classes[1].deadline, plain.classes[1].reach), (0, 0.01, 1.01))
        soft = self.client.register("classed", self.name + "-soft", class_="soft")
        self.assertEqual(soft.own_class, 1)
        for stream, class_, late in ((plain, None, False), (plain, "soft", True), (soft, None, True), (soft, "plain", False)):
            outcome = self.client.infer(stream, zeros, class_=class_)
            assert isinstance(outcome, weir.Result), outcome
            self.assertEqual(outcome.late, late)
        with self.assertRaisesRegex(ValueError, "no class 'torn'.*'plain', 'soft'"):
            self.client.submit(plain, zeros, class_="torn")
        with self.assertRaises(weir.RefusedError) as refused:
            self.client.register("classed", self.name + "-torn", class_="torn")
        self.assertEqual(refused.exception.word, "unknown-class")

        async def asynchronous() -> None:
            async with await weir.aio.connect(self.daemon.socket) as client:
                stream = await client.register("classed", self.name + "-aio", class_="soft")
                outcome = await client.infer(stream, zeros)
                assert isinstance(outcome, weir.Result), outcome
                self.assertTrue(outcome.late)
                outcome = await client.infer(stream, zeros, class_="plain")
                self.assertFalse(isinstance(outcome, weir.Result) and outcome.late)

        asyncio.run(asynchronous())

    def held_for(self, name: str, seconds: float) -> threading.Thread:
        """Somebody else holds that name for so long."""
        other = weir.Client(self.daemon.socket)
        stream = other.register("slow", name)

        def give_up() -> None:
            time.sleep(seconds)
            other.unregister(stream)
            other.close()

        thread = threading.Thread(target=give_up)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_a_client_connects_again(self) -> None:
        plain, steady = self.client, weir.Client(self.daemon.socket, reconnect=True)
        self.addCleanup(steady.close)
        zeros = np.zeros(2, np.float32)
        held = [steady.register("slow", f"{self.name}-{number}") for number in range(2)]
        steady.unregister(held[0])
        other = plain.register("slow", self.name)
        for client in (plain, steady):
            client._socket.shutdown(socket.SHUT_RDWR)
        for client, stream in ((plain, other), (steady, held[1])):
            with self.assertRaises(weir.ClosedError):
                client.infer(stream, zeros)
        with self.assertRaises(weir.ClosedError):
            plain.infer(other, zeros)
        # At once: perhaps the daemon has not seen the end yet.
        self.assertIsInstance(steady.infer(held[1], zeros), weir.Result)
        streams = [s["name"] for service in steady.status()["services"] for s in service["streams"]]
        self.assertEqual((streams.count(held[1].name), streams.count(held[0].name)), (1, 0))

    def test_a_client_goes_on_after_a_restart(self) -> None:
        steady = weir.Client(self.daemon.socket, reconnect=True)
        self.addCleanup(steady.close)
        zeros = np.zeros(2, np.float32)
        held = [steady.register("slow", f"{self.name}-{number}") for number in range(2)]
        steady.unregister(held[0])
        self.daemon.end()
        with self.assertRaises(weir.ClosedError):
            steady.infer(held[1], zeros)
        for _ in range(2):
            with self.assertRaises(OSError):
                steady.infer(held[1], zeros)
        self.daemon.start()
        self.assertIsInstance(steady.infer(held[1], zeros), weir.Result)
        self.assertEqual(self.held(steady), [held[1].name])

    def test_streams_of_one_name_in_two_services_are_two(self) -> None:
        zeros = np.zeros(2, np.float32)

        async def asynchronous() -> None:
            async with await weir.aio.connect(self.daemon.socket, reconnect=True) as client:
                slow, typed = [await client.register(service, self.name + "-aio") for service in ("slow", "typed")]
                for ends in (True, False):
                    self.compare(await client.infer(typed, *request(7)), 7)
                    self.assertIsInstance(await client.infer(slow, zeros), weir.Result)
                    if ends:
                        client._socket.shutdown(socket.SHUT_RDWR)
                        await client._tasks[0]
                await client.unregister(slow)
                self.compare(await client.infer(typed, *request(8)), 8)
                with self.assertRaisesRegex(ValueError, "of service 'slow' was given up"):
                    await client.infer(slow, zeros)

        steady = weir.Client(self.daemon.socket, reconnect=True)
        self.addCleanup(steady.close)
        slow, typed = (steady.register(service, self.name) for service in ("slow", "typed"))
        for ends in (True, False):
            self.compare(steady.infer(typed, *request(7)), 7)
            self.assertIsInstance(steady.infer(slow, zeros), weir.Result)
            if ends:
                steady._socket.shutdown(socket.SHUT_RDWR)
                self.assertRaises(weir.ClosedError, steady.ping)
        steady.unregister(slow)
        self.compare(steady.infer(typed, *request(8)), 8)
        with self.assertRaisesRegex(ValueError, "of service 'slow' was given up"):
            steady.infer(slow, zeros)
        steady.close()
        asyncio.run(asynchronous())

    def test_who_connects_again_waits_for_its_names_but_not_long(self) -> None:
        steady = weir.Client(self.daemon.socket, reconnect=True)
        self.addCleanup(steady.close)
        zeros = np.zeros(2, np.float32)
        held = steady.register("slow", self.name)
        for seconds, granted in ((0.1, True), (3.0, False)):
            self.daemon.end()
            with self.assertRaises(weir.ClosedError):
                steady.infer(held, zeros)
            self.daemon.start()
            thread = self.held_for(self.name, seconds)
            if granted:
                self.assertIsInstance(steady.infer(held, zeros), weir.Result)
            else:
                with self.assertRaisesRegex(weir.RefusedError, "name-in-use"):
                    steady.infer(held, zeros)
            thread.join()
        # Each call for it asks once more.
        self.assertIsInstance(steady.infer(held, zeros), weir.Result)

    def test_a_refused_stream_holds_no_other_up(self) -> None:
        zeros = np.zeros(2, np.float32)

        async def asynchronous() -> None:
            async with await weir.aio.connect(self.daemon.socket, reconnect=True) as client:
                lost, given_up, other = [await client.register("slow", self.name + part) for part in ("-aio-lost", "-aio-up", "-aio")]
                self.daemon.end()
                with self.assertRaises((weir.ClosedError, OSError)):
                    await client.infer(other, zeros)
                # Nobody can be told, nor need be.
                await client.unregister(given_up)
                self.daemon.start()
                with weir.Client(self.daemon.socket) as thief:
                    thief.register("slow", lost.name)
                    self.assertIsInstance(await client.infer(other, zeros), weir.Result)
                    for _ in range(2):
                        with self.assertRaisesRegex(weir.RefusedError, "name-in-use"):
                            await client.infer(lost, zeros)
                    await client.ping()
                    self.assertEqual(sorted(self.held(thief)), sorted([lost.name, other.name]))
                    await client.unregister(lost)
                for stream in (lost, given_up):
                    with self.assertRaisesRegex(ValueError, "was given up"):
                        await client.infer(stream, zeros)

        steady = weir.Client(self.daemon.socket, reconnect=True)
        self.addCleanup(steady.close)
        lost, given_up, told, other = (steady.register("slow", self.name + part) for part in ("-lost", "-up", "-told", ""))
        self.daemon.end()
        # This call finds that the connection has ended.
        self.assertRaises(weir.ClosedError, steady.unregister, told)
        steady.unregister(given_up)
        self.daemon.start()
        with weir.Client(self.daemon.socket) as thief:
            thief.register("slow", lost.name)
            self.assertIsInstance(steady.infer(other, zeros), weir.Result)
            for _ in range(2):
                with self.assertRaisesRegex(weir.RefusedError, "name-in-use"):
                    steady.infer(lost, zeros)
            steady.ping()
            self.assertEqual(sorted(self.held(thief)), sorted([lost.name, other.name]))
            steady.unregister(lost)
        for stream in (lost, given_up, told):
            with self.assertRaisesRegex(ValueError, "was given up"):
                steady.infer(stream, zeros)
        steady.close()
        asyncio.run(asynchronous())

    def test_an_asyncio_client_waits_for_its_names_too(self) -> None:
        zeros = np.zeros(2, np.float32)

        async def run() -> None:
            async with await weir.aio.connect(self.daemon.socket, reconnect=True) as steady:
                stream = await steady.register("slow", self.name)
                self.daemon.end()
                with self.assertRaises((weir.ClosedError, OSError)):
                    await steady.infer(stream, zeros)
                self.daemon.start()
                self.held_for(self.name, 0.1)
                self.assertIsInstance(await steady.infer(stream, zeros), weir.Result)

        self.client.close()
        asyncio.run(run())

    @staticmethod
    def held(client: weir.Client) -> list[str]:
        return [s["name"] for service in client.status()["services"] for s in service["streams"]]

    def test_an_asyncio_client_goes_on_after_a_restart(self) -> None:
        zeros = np.zeros(2, np.float32)

        async def run() -> None:
            async with await weir.aio.connect(self.daemon.socket, reconnect=True) as steady:
                gone = await steady.register("slow", f"{self.name}-gone")
                stream = await steady.register("slow", self.name)
                await steady.unregister(gone)
                await steady.subscribe(weir.SAFE_MODE)
                self.assertIsInstance(await steady.infer(stream, zeros), weir.Result)

                async def told() -> list[weir.Event]:
                    return [event async for event in steady.events()]

                events = asyncio.ensure_future(told())
                await steady.ping()
                self.daemon.end()
                self.assertEqual(await events, [], "they end with the connection")
                for _ in range(2):
                    with self.assertRaises(OSError):
                        await steady.infer(stream, zeros)
                self.daemon.start()
                # Any number of tasks at once, and one connection for all of them.
                answers = await asyncio.gather(*(steady.infer(stream, zeros) for _ in range(8)))
                self.assertTrue(all(isinstance(answer, weir.Result) for answer in answers), answers)
                status = await steady.status()
                streams = [s["name"] for service in status["services"] for s in service["streams"]]
                self.assertEqual((streams, status["clients"]), ([self.name], 1))

        self.client.close()
        asyncio.run(run())

    def test_an_asyncio_client_does_not_connect_again_unless_asked(self) -> None:
        async def run() -> None:
            async with await weir.aio.connect(self.daemon.socket) as plain:
                plain._socket.shutdown(socket.SHUT_RDWR)
                for _ in range(2):
                    with self.assertRaises(weir.ClosedError):
                        await plain.ping()

        asyncio.run(run())

    def test_each_call_on_an_ended_connection_raises_an_error_of_its_own(self) -> None:
        async def run() -> None:
            async with await weir.aio.connect(self.daemon.socket) as plain:
                first, second = (asyncio.ensure_future(plain.ping()) for _ in range(2))
                await asyncio.sleep(0)
                plain._socket.shutdown(socket.SHUT_RDWR)
                told = list(await asyncio.gather(first, second, return_exceptions=True))
                depths = set()
                for _ in range(3):
                    with self.assertRaises(weir.ClosedError) as caught:
                        await plain.ping()
                    told.append(caught.exception)
                    depths.add(len(list(traceback.walk_tb(plain._end.__traceback__ if plain._end else None))))
                ended = [error for error in told if isinstance(error, weir.ClosedError)]
                self.assertEqual((len({id(error) for error in ended}), len(depths)), (len(ended), 1))
                self.assertEqual({str(error) for error in ended}, {str(plain._end)})

        self.client.close()
        asyncio.run(run())

    def test_a_request_may_have_a_deadline_of_its_own(self) -> None:
        slow, zeros = self.client.register("slow", self.name), np.zeros(2, np.float32)
        self.assertIsInstance(self.client.infer(slow, zeros, deadline=1e-6), weir.Miss)
        result = self.client.infer(slow, zeros, deadline=1.9)
        assert isinstance(result, weir.Result), result
        self.assertEqual(result.skipped, 0)

    def test_arrays_go_in_and_come_out(self) -> None:
        typed = self.client.register("typed", self.name)
        for number in range(20):
            result = self.compare(self.client.infer(typed, *request(number)), number)
            self.assertEqual((result.sequence, result.misses_left), (number, None))
        self.assertFalse(result.outputs["ids_out"].flags.writeable)
        with self.assertRaises(ValueError):
            _ = result.output

    def test_arrays_of_the_other_types_go_in_and_come_out(self) -> None:
        numbers = self.client.register("numbers", self.name)
        self.assertEqual([str(t.dtype) for t in numbers.inputs], ["float64", "int8", "int32", "bool"])
        self.assertTrue(np.isnan(numbers.accuracy), "the manifest tells none")
        arrays: list[weir._types.Array] = [
            np.array([0.1, -1e300]),
            np.array([-128, 0, 127], np.int8),
            np.array([-(2**31), 2**31 - 1], np.int32),
            np.array([True, False, True]),
        ]
        outcome = self.client.infer(numbers, *arrays)
        assert isinstance(outcome, weir.Result), outcome
        for (name, found), expected in zip(outcome.outputs.items(), arrays):
            np.testing.assert_array_equal(found, expected, name)
            self.assertEqual(found.dtype, expected.dtype)

    def test_what_does_not_fit_is_told_before_it_is_sent(self) -> None:
        typed = self.client.register("typed", self.name)
        image, ids, half, score = request(0)
        for inputs, text in [
            ([image], "4 inputs, 1 were given"),
            ([image.astype(np.float64), ids, half, score], "'image' consists of uint8, not float64"),
            ([image[:1], ids, half, score], "'image' has shape (2, 3), (1, 3) was given"),
            ([image.T, ids, half, score], "'image' has shape (2, 3), (3, 2) was given"),
            ([image.T.tolist(), ids, half, score], "'image' has shape (2, 3), (3, 2) was given"),
        ]:
            with self.assertRaises(ValueError) as caught:
                self.client.infer(typed, *inputs)
            self.assertIn(text, str(caught.exception))
        # What is no array yet is converted.
        self.compare(self.client.infer(typed, image.tolist(), [0, 0], half, 1.25), 0)
        # Nor does an axis of length 1, or none at all, change where a value lies.
        self.compare(self.client.infer(typed, image[None, ..., None], [0, 0], half[:, None], 1.25), 0)
        self.compare(self.client.infer(typed, image.reshape(-1), [0, 0], half, 1.25), 0)

    def test_refusals_say_why(self) -> None:
        with self.assertRaises(weir.RefusedError) as caught:
            self.client.register("nothing", "t")
        self.assertEqual((caught.exception.code, caught.exception.word), (1, "unknown-service"))
        typed = self.client.register("typed", self.name)
        self.client.unregister(typed)
        with self.assertRaises(weir.RefusedError) as caught:
            self.client.infer(typed, *request(1))
        self.assertEqual(caught.exception.word, "unknown-stream")
        number = self.client.submit(typed, *request(1))
        answer = self.client.recv(5)
        assert isinstance(answer, weir.NotTaken)
        self.assertEqual((answer.id, answer.error.code), (number, 7))
        with self.assertRaises(FileNotFoundError):
            weir.Client("/nonexistent/weir.sock")

    def test_arrays_in_the_arena_are_not_copied(self) -> None:
        typed = self.client.register("typed", self.name)
        arena = self.client.share(4 * 128)
        places = [arena.place(typed) for _ in range(4)]
        with self.assertRaises(ValueError):
            arena.place(typed)
        for number, place in enumerate(places):
            for array, values in zip(place.inputs.values(), request(number)):
                array[...] = values
        numbers = [self.client.submit_shared(place) for place in places]
        for _ in numbers:
            answer = self.client.recv(5)
            assert isinstance(answer, weir.Result)
            n = numbers.index(answer.id)
            self.compare(answer, n)
            self.assertTrue(np.shares_memory(answer.outputs["ids_out"], places[n].outputs["ids_out"]))
        self.compare(self.client.infer_shared(places[3]), 3)
        with self.assertRaises(weir.RefusedError) as caught:
            self.client.share(4096)
        self.assertIn("already", str(caught.exception))

    def test_each_call_connects_again(self) -> None:
        async def asynchronous() -> None:
            async with await weir.aio.connect(self.daemon.socket, reconnect=True) as client:
                await client.subscribe(weir.SUSPENSION)
                client._socket.shutdown(socket.SHUT_RDWR)
                await client._tasks[0]
                (await client.alarm()).close()
                client._socket.shutdown(socket.SHUT_RDWR)
                await client._tasks[0]
                await client.share(4096)

        steady = weir.Client(self.daemon.socket, reconnect=True)
        self.addCleanup(steady.close)
        steady.subscribe(weir.SUSPENSION)
        stream = steady.register("slow", self.name, [weir.any_miss(1, 2)], [weir.periodic(60.0, 0.0)])

        def shared() -> weir.Outcome:
            place = steady.share(4096).place(stream)
            place.input[:] = 1
            return steady.infer_shared(place)

        calls: list[Callable[[], object]] = [lambda: steady.alarm().close(), shared, lambda: steady.recv(0.0)]
        for again in calls:
            steady._socket.shutdown(socket.SHUT_RDWR)
            with self.assertRaises(weir.ClosedError):
                steady.recv(1.0)
            again()
        # Who only listens hears of what comes on the next connection.
        for _ in range(2):
            steady.submit(stream, np.zeros(2, np.float32))
        until = time.monotonic() + 30
        while not isinstance(told := steady.recv(1.0), weir.Suspension):
            self.assertLess(time.monotonic(), until, told)
        steady.close()
        asyncio.run(asynchronous())

    def test_a_place_of_a_lost_arena_is_told(self) -> None:
        async def asynchronous() -> None:
            async with await weir.aio.connect(self.daemon.socket, reconnect=True) as client:
                gone, stream = [await client.register("slow", self.name + part) for part in ("-aio-gone", "-aio")]
                place = (await client.share(1 << 16)).place(stream)
                place.input[:] = 1
                self.assertIsInstance(await client.infer_shared(place), weir.Result)
                await client.unregister(gone)
                client._socket.shutdown(socket.SHUT_RDWR)
                await client._tasks[0]
                with self.assertRaisesRegex(ValueError, "not that of the present connection"):
                    await client.infer_shared(place)
                arena = await client.share(1 << 16)
                with self.assertRaisesRegex(ValueError, "not that of the present connection"):
                    await client.infer_shared(place)
                place = arena.place(stream)
                place.input[:] = 1
                self.assertIsInstance(await client.infer_shared(place), weir.Result)

        steady = weir.Client(self.daemon.socket, reconnect=True)
        self.addCleanup(steady.close)
        gone, stream = (steady.register("slow", self.name + part) for part in ("-gone", ""))
        place = steady.share(1 << 16).place(stream)
        place.input[:] = 1
        self.assertIsInstance(steady.infer_shared(place), weir.Result)
        steady.unregister(gone)
        steady._socket.shutdown(socket.SHUT_RDWR)
        self.assertRaises(weir.ClosedError, steady.ping)
        with self.assertRaisesRegex(ValueError, "not that of the present connection"):
            steady.infer_shared(place)
        arena = steady.share(1 << 16)
        with self.assertRaisesRegex(ValueError, "not that of the present connection"):
            steady.submit_shared(place)
        # The stream has another number by now, which a place of the new arena is sent with.
        place = arena.place(stream)
        place.input[:] = 1
        outcome = steady.infer_shared(place)
        assert isinstance(outcome, weir.Result), outcome
        self.assertNotEqual(outcome.stream, stream.id)
        steady.close()
        asyncio.run(asynchronous())

    def test_an_arena_above_the_limit_is_refused(self) -> None:
        self.assertEqual(self.client.max_arena, 1 << 20)
        with self.assertRaises(weir.RefusedError) as caught:
            self.client.share(self.client.max_arena + 1)
        self.assertEqual(caught.exception.word, "arena")
        self.client.ping()

    def test_nothing_is_lost_while_something_else_is_waited_for(self) -> None:
        typed = self.client.register("typed", self.name)
        numbers = []
        for n in range(100):
            numbers.append(self.client.submit(typed, *request(n)))
            if n % 10 == 0:
                self.client.ping()
        found: list[int] = []
        while len(found) < len(numbers):
            answer = self.client.recv(0)
            if answer is None:
                self.assertTrue(select.select([self.client], [], [], 10)[0])
                continue
            assert isinstance(answer, weir.Result)
            found.append(answer.id)
            self.compare(answer, numbers.index(answer.id))
        self.assertEqual(sorted(found), numbers)
        self.assertIsNone(self.client.recv(0.01))

    def test_misses_and_the_suspension_are_told(self) -> None:
        slow = self.client.register("slow", self.name, *OVERLOADED)
        self.client.subscribe(weir.SUSPENSION | weir.MISSES_LEFT)
        for _ in range(8):
            self.client.submit(slow, [1.0, 2.0])
        self.client.unregister(slow)
        answers: list[weir.Answer] = []
        misses: list[weir.Answer] = []
        entered: list[weir.Answer] = []
        while not entered or len(misses) + sum(isinstance(a, weir.Result) for a in answers) < 8:
            answer = self.client.recv(10)
            assert answer is not None
            answers.append(answer)
            misses = [a for a in answers if isinstance(a, weir.Miss)]
            entered = [a for a in answers if isinstance(a, weir.Suspension) and a.active]
        self.assertTrue(misses and all(isinstance(m, weir.Miss) and m.reason == "cancelled" for m in misses))
        event = entered[0]
        assert isinstance(event, weir.Suspension)
        self.assertEqual((event.service, event.cause, event.stream), ("slow", "arrival-excess", self.name))
        self.assertGreater(event.seen, event.limit)

    def test_an_alarm_counts_what_the_events_tell(self) -> None:
        with self.assertRaises(weir.RefusedError) as caught:
            self.client.alarm()
        self.assertEqual(caught.exception.word, "alarm")
        self.client.subscribe(weir.SUSPENSION)
        alarm = self.client.alarm()
        self.addCleanup(alarm.close)
        with self.assertRaises(weir.RefusedError):
            self.client.alarm()
        self.assertEqual((alarm.take(), alarm.take(0.01)), (0, 0))
        slow = self.client.register("slow", self.name, *OVERLOADED)
        for _ in range(3):
            self.client.submit(slow, [1.0, 2.0])
        self.assertTrue(select.select([alarm], [], [], 10)[0])
        events: list[weir.Suspension] = []
        changes = 0
        while not events or events[-1].active or changes < len(events):
            changes += alarm.take(0.1)
            answer = self.client.recv(0.1)
            if isinstance(answer, weir.Suspension):
                events.append(answer)
        self.assertEqual((changes, alarm.take()), (len(events), 0))
        self.assertGreater(changes, 1)

    def test_an_answer_too_late_to_be_waited_for_is_dropped(self) -> None:
        slow = self.client.register("slow", self.name)
        impatient = dataclasses.replace(slow, deadline=-4.99)
        with self.assertRaises(TimeoutError):
            self.client.infer(impatient, [1.0, 2.0])
        outcome = self.client.infer(slow, [3.0, 4.0])
        assert isinstance(outcome, weir.Result)
        self.assertEqual((outcome.sequence, outcome.output.tolist()), (1, [3.0, 4.0]))

class Asyncio(Case):
    def test_many_tasks_infer_at_once(self) -> None:
        async def run() -> None:
            async with await weir.aio.connect(self.daemon.socket) as client:
                typed = await client.register("typed", self.name)
                outcomes = await asyncio.gather(*(client.infer(typed, *request(n)) for n in range(100)))
                for n, outcome in enumerate(outcomes):
                    self.compare(outcome, n)
                arena = await client.share(4096)
                place = arena.place(typed)
                for array, values in zip(place.inputs.values(), request(9)):
                    array[...] = values
                self.compare(await client.infer_shared(place), 9)
                with self.assertRaises(weir.RefusedError):
                    await client.share(4096)
                with self.assertRaises(weir.RefusedError):
                    await client.register("typed", self.name)
                await client.unregister(typed)
                await client.ping()
                self.assertGreaterEqual((await client.status())["clients"], 1)

        asyncio.run(run())

    def test_who_stops_waiting_leaves_the_connection_whole(self) -> None:
        async def run() -> None:
            async with await weir.aio.connect(self.daemon.socket) as client:
                slow = await client.register("slow", self.name)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.infer(slow, [1.0, 2.0]), 0.001)
                outcome = await client.infer(slow, [3.0, 4.0])
                assert isinstance(outcome, weir.Result)
                self.assertEqual(outcome.output.tolist(), [3.0, 4.0])

        asyncio.run(run())

    def test_an_alarm_wakes_the_loop(self) -> None:
        async def run() -> None:
            async with await weir.aio.connect(self.daemon.socket) as client:
                with self.assertRaises(weir.RefusedError):
                    await client.alarm()
                await client.subscribe(weir.SUSPENSION)
                alarm = await client.alarm()
                self.addCleanup(alarm.close)
                rung = asyncio.Event()
                loop = asyncio.get_running_loop()
                loop.add_reader(alarm, rung.set)
                slow = await client.register("slow", self.name, *OVERLOADED)
                asking = [asyncio.ensure_future(client.infer(slow, [0.0, 0.0])) for _ in range(3)]
                await asyncio.wait_for(rung.wait(), 10)
                self.assertGreater(alarm.take(), 0)
                loop.remove_reader(alarm)
                await asyncio.gather(*asking)
                active = []
                async for event in client.events():
                    assert isinstance(event, weir.Suspension)
                    active.append(event.active)
                    if not event.active:
                        break
                self.assertTrue(active[0])

        asyncio.run(run())

    def test_events_come_beside_answers_and_end_with_the_connection(self) -> None:
        async def run() -> list[weir.Event]:
            client = await weir.aio.connect(self.daemon.socket)
            await client.subscribe(weir.SUSPENSION)
            slow = await client.register("slow", self.name, *OVERLOADED)
            await asyncio.gather(*(client.infer(slow, [0.0, 0.0]) for _ in range(8)))
            seen = []
            async for event in client.events():
                seen.append(event)
                if isinstance(event, weir.Suspension) and not event.active:
                    await client.close()
            with self.assertRaises(weir.ClosedError):
                await client.ping()
            return seen

        seen = asyncio.run(run())
        entered = [(e.active, e.cause) for e in seen if isinstance(e, weir.Suspension)]
        self.assertIn((True, "arrival-excess"), entered)


class Bytes(unittest.TestCase):
    """What a daemon must not send."""

    def test_a_suspension_is_told_apart_from_safe_mode(self) -> None:
        numbers = struct.pack("<IQQQQQQ", 0, 7, 9, 5, 6, 100, 3)
        texts = wire.string("lanes") + wire.string("front") + wire.string("6 of 5")
        for state, cause, level, why in [
            (1, 0, 0, "unknown"),
            (2, 1, None, "arrival-excess"),
            (3, 1, 1, "arrival-excess"),
            (6, 1, 4, "arrival-excess"),
            (7, 1, None, "arrival-excess"),
            (9, 77, None, "unknown"),
        ]:
            head = struct.pack("<HH", state, cause)
            event = wire.event(wire.Frame(wire.EVENT_SUSPENSION, 0, head + numbers + texts))
            rest = (why, 7, 9, 5, 6, 100, 3, "6 of 5")
            stands = weir.StreamState(2 if level is None else (1, 3, 4, 5, 6)[level])
            suspension = weir.Suspension("lanes", "front", level is None, stands, *rest)
            self.assertEqual((event, suspension.level), (suspension, level))
        told = wire.event(wire.Frame(wire.EVENT_SAFE_MODE, 0, struct.pack("<HH", 3, 2) + numbers + texts))
        evidence = ("service-overrun", 7, 9, "front", 5, 6, 100, 3, "6 of 5")
        self.assertEqual(told, weir.SafeMode("lanes", "safe-mode", True, *evidence))

    def test_daemons_of_all_versions_are_spoken_to(self) -> None:
        for version, known in [(0, False), (1, True), (2, True), (3, True), (4, True), (5, True), (6, False)]:
            body = struct.pack("<HHIQ", version, 0, 1 << 20, 0) + wire.string("weir")
            if known:
                self.assertEqual(wire.welcome(wire.Frame(wire.WELCOME, 1, body)), (version, 1 << 20, 0, "weir"))
            else:
                with self.assertRaises(weir.ProtocolError):
                    wire.welcome(wire.Frame(wire.WELCOME, 1, body))

    def test_what_is_no_frame_is_an_error_of_the_protocol(self) -> None:
        for data in [wire.HEADER.pack(1 << 30, wire.PONG, 0, 1), wire.HEADER.pack(0, wire.PONG, 1, 1)]:
            decoder = wire.Decoder()
            decoder.feed(data)
            with self.assertRaises(weir.ProtocolError):
                decoder.next()
        for body in [b"", b"\x01", b"\x01\x00\x00\x00" * 9 + b"\xff\xff", bytes(32) + b"\x01\x00\xff"]:
            with self.assertRaises(weir.ProtocolError):
                wire.registered(wire.Frame(wire.REGISTERED, 1, body), "s", "t")
        with self.assertRaises(weir.ClosedError) as caught:
            decoder = wire.Decoder()
            decoder.feed(wire.frame(wire.ERROR, 0, b"\x06\x00" + wire.string("too slow")))
            decoder.next()
        self.assertIn("error 6: too slow", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
