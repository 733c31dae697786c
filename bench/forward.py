"""What does a proxy's forwarding cost: a `Connection` that passes frames on to an `Upstream`?

An echo broker and the proxy in a process each, a raw client here. The proxy's CPU time is what
counts, since wall time on a shared machine says little. Run as
`python bench/forward.py [seconds per case]`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import NamedTuple

import uvloop

from rookery.net.connection import Connection
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.outbox import Answer
from rookery.net.upstream import Upstream, connect
from rookery.wire.buffer import Buffer
from rookery.wire.frame import Frame, renumber

CASES = [("1 KB, one at a time", 1024, 1), ("1 KB, 32 deep", 1024, 32), ("1 MB", 1024 * 1024, 1)]
TIMEOUT_MS = 30_000
Start = Callable[[Upstream, Frame], "Answer | Awaitable[Answer]"]


class Result(NamedTuple):
    """What a case came to."""

    per_second: float
    cpu_us: float


def by_task(upstream: Upstream, frame: Frame) -> Awaitable[Answer]:
    """Forward in a coroutine, for which the connection makes a task."""

    async def forward() -> Answer:
        number = int.from_bytes(frame[4:8], "big")
        return renumber(await upstream.forward([frame], TIMEOUT_MS), number)

    return forward()


def by_future(upstream: Upstream, frame: Frame) -> Awaitable[Answer]:
    """Forward with `submit`, which returns a future."""
    number = int.from_bytes(frame[4:8], "big")

    def read(response: Frame) -> list[Buffer]:
        return renumber(response, number)

    return upstream.submit([frame], read, OPTIONS)


WAYS: dict[str, Start] = {"forward (task)": by_task}
try:
    from rookery.net.callqueue import CallOptions
except ImportError:  # an older source tree, for a comparison
    pass
else:
    OPTIONS = CallOptions(timeout_ms=TIMEOUT_MS)
    WAYS["submit (future)"] = by_future


def echo(connection: Connection, frame: Frame) -> Answer:  # noqa: ARG001 (a handler's form)
    """Answer with the number and the body of the request."""
    return [struct.pack(">i", len(frame) - 4), frame[4:]]


async def serve_broker() -> int:
    """Listen as a broker."""
    listener = Listener(echo, ListenerSettings(port=0))
    await listener.start()
    return listener.port


async def serve_proxy(way: str, broker_port: int) -> int:
    """Listen as a proxy."""
    upstream = await connect("127.0.0.1", broker_port)
    start = WAYS[way]
    listener = Listener(lambda _, frame: start(upstream, frame), ListenerSettings(port=0))
    await listener.start()
    return listener.port


def server_process(way: str, broker_port: int, pipe: Pipe) -> None:
    """Serve, and tell the CPU time spent so far whenever asked."""

    async def main() -> None:
        pipe.send(await (serve_proxy(way, broker_port) if way else serve_broker()))
        loop = asyncio.get_running_loop()
        stopped = loop.create_future()

        def asked() -> None:
            if pipe.recv() == "cpu":
                usage = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send(usage.ru_utime + usage.ru_stime)
            else:
                stopped.set_result(None)

        loop.add_reader(pipe.fileno(), asked)
        await stopped

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def start_server(way: str, broker_port: int = 0) -> tuple[BaseProcess, Pipe, int]:
    """Start a broker, or a proxy before it; return its process, pipe and port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=server_process, args=(way, broker_port, theirs)
    )
    process.start()
    return process, ours, ours.recv()


def receive_exactly(sock: socket.socket, room: memoryview) -> None:
    """Fill a buffer."""
    while room:
        count = sock.recv_into(room)
        if not count:
            raise ConnectionError("the server has closed the connection")
        room = room[count:]


def drive(port: int, size: int, depth: int, seconds: float) -> int:
    """Send and receive for some seconds; return how many requests that were."""
    request = struct.pack(">ihhi", size, 99, 1, 7) + bytes(size - 8)
    burst, room = request * depth, memoryview(bytearray(size * depth))
    done, end = 0, time.perf_counter() + seconds
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.perf_counter() < end:
            sock.sendall(burst)
            receive_exactly(sock, room)
            done += depth
    return done


def cpu(pipe: Pipe) -> float:
    """Ask a server for its CPU time."""
    pipe.send("cpu")
    return float(pipe.recv())


def measure(way: str, broker_port: int, seconds: float) -> list[Result]:
    """Run every case through one proxy."""
    process, pipe, port = start_server(way, broker_port)
    results = []
    for _, size, depth in CASES:
        drive(port, size, depth, seconds / 5)
        before = cpu(pipe)
        done = drive(port, size, depth, seconds)
        results.append(Result(done / seconds, (cpu(pipe) - before) / done * 1e6))
    pipe.send("stop")
    process.join()
    return results


def main() -> None:
    """Print a table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    process, pipe, broker_port = start_server("")
    print(f"{'case':20} {'way':16} {'frames/s':>10} {'CPU us':>9}")
    results = {way: measure(way, broker_port, seconds) for way in WAYS}
    for number, (case, _, _) in enumerate(CASES):
        for way, rows in results.items():
            print(f"{case:20} {way:16} {rows[number].per_second:10,.0f} {rows[number].cpu_us:9.2f}")
    pipe.send("stop")
    process.join()


if __name__ == "__main__":
    main()
