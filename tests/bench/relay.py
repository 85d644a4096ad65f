#!/usr/bin/env python3
"""A relay between two ports of TCP that holds what passes back for a while, each way, and keeps it in order.

    relay.py FROM TO        each as ADDRESS:PORT

How long is said on standard input, whenever it changes, as `DELAY JITTER` in milliseconds: each piece is held for DELAY and a random time
of up to JITTER more or less, no shorter than one before it. Says `ready` once it listens. It delays no connecting, and is no network: a
piece is what was there to be read at once.
"""

import asyncio
import random
import sys


class Relay:
    def __init__(self, to):
        self.to = to
        self.delay = self.jitter = 0.0

    async def one_way(self, reader, writer):
        """Passes on what comes, each piece when it is due; its end too."""
        clock, held = asyncio.get_running_loop(), asyncio.Queue(maxsize=1024)

        async def put():
            while True:
                due, piece = await held.get()
                await asyncio.sleep(max(0.0, due - clock.time()))
                if not piece:
                    writer.write_eof() if writer.can_write_eof() else writer.close()
                    return
                writer.write(piece)
                await writer.drain()

        putting = asyncio.create_task(put())
        due, piece = 0.0, b"-"
        try:
            while piece:
                piece = await reader.read(1 << 16)
                due = max(due, clock.time() + self.delay + random.uniform(-self.jitter, self.jitter))
                await held.put((due, piece))
            await putting
        finally:
            putting.cancel()

    async def serve(self, reader, writer):
        ends = [writer]
        try:
            there = await asyncio.open_connection(*self.to)
            ends.append(there[1])
            await asyncio.gather(self.one_way(reader, there[1]), self.one_way(there[0], writer))
        except OSError:
            pass  # Whoever is on the other side finds its connection closed.
        finally:
            for end in ends:
                end.close()

    async def obey(self):
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            self.delay, self.jitter = (float(part) / 1000 for part in line.split())


async def main(here, there):
    place = lambda text: text.rsplit(":", 1)
    relay = Relay(place(there))
    server = await asyncio.start_server(relay.serve, *place(here))
    print("ready", flush=True)
    async with server:
        await relay.obey()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
