#!/usr/bin/env python3
"""A plain server to compare with: one process, ONNX Runtime, a queue, batches of what waits, what waited too long dropped.

    plain_server.py MODEL SOCKET [--batch 8] [--drop 0.030]

A request on its Unix socket is a number (u32) and the model's input (f32); its answer the number, a byte that is 0 if it
was dropped, and the output. It promises nothing and knows no deadline but the time after which it drops.
"""

import argparse
import queue
import socket
import threading
import time

import numpy as np
import onnxruntime as ort


def take(connection: socket.socket, size: int, waiting: queue.Queue) -> None:
    """Queues the requests of a connection as they come."""
    requests = connection.makefile("rb")
    while len(frame := requests.read(4 + size)) == 4 + size:
        waiting.put((time.monotonic(), connection, frame))


def accept(listener: socket.socket, size: int, waiting: queue.Queue) -> None:
    while True:
        threading.Thread(target=take, args=(listener.accept()[0], size, waiting), daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("socket")
    parser.add_argument("--batch", type=int, default=8, help="requests in a batch at most")
    parser.add_argument("--drop", type=float, default=0.030, help="seconds that a request may wait")
    args = parser.parse_args()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(args.model, options, providers=["CPUExecutionProvider"])
    name, shape = session.get_inputs()[0].name, session.get_inputs()[0].shape[1:]
    run = lambda inputs: session.run(None, {name: inputs})[0]
    for size in list(range(1, args.batch + 1)) * 2:
        nothing = run(np.zeros([size, *shape], np.float32))[0].tobytes()
    waiting: queue.Queue = queue.Queue(maxsize=4096)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(args.socket)
    listener.listen()
    threading.Thread(target=accept, args=(listener, 4 * int(np.prod(shape)), waiting), daemon=True).start()
    while True:
        batch = []
        while not batch or (len(batch) < args.batch and not waiting.empty()):
            arrived, connection, frame = waiting.get()
            if time.monotonic() - arrived <= args.drop:
                batch.append((connection, frame))
            else:
                connection.sendall(frame[:4] + b"\0" + nothing)
        images = np.frombuffer(b"".join(frame[4:] for _, frame in batch), np.float32)
        for (connection, frame), output in zip(batch, run(images.reshape([len(batch), *shape]))):
            connection.sendall(frame[:4] + b"\1" + output.tobytes())


if __name__ == "__main__":
    main()
