"""What does our connection cost, compared with asyncio's streams and with a bare protocol?

An echo server in a process of its own, a raw client here; the server's CPU time is what counts,
since wall time on a shared machine says little. What the system does (most of 1 MB) is charged to
whichever process it runs in, so the time in the server's own code is shown next to the whole.
Run as `python bench/net.py [seconds per case]`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

import uvloop

from rookery.net.connection import Connection
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.outbox import Answer
from rookery.wire.frame import Frame

CASES = [("1 KB, one at a time", 1024, 1), ("1 KB, 32 deep", 1024, 32), ("1 MB", 1024 * 1024, 1)]


class Result(NamedTuple):
    """What a case came to."""

    per_second: float
    cpu_us: float
    user_us: float


def echo(connection: Connection, frame: Frame) -> Answer:  # noqa: ARG001 (a handler's form)
    """Answer with the request itself."""
    return [struct.pack(">i", len(frame)), frame]


async def serve_ours() -> int:
    """Listen with the product's own connection."""
    listener = Listener(echo, ListenerSettings(port=0))
    await listener.start()
    return listener.port


async def serve_streams() -> int:
    """Listen with asyncio's streams."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                prefix = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(prefix, "big"))
                writer.writelines([prefix, frame])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0, limit=2**21)
    return int(server.sockets[0].getsockname()[1])


class Bare(asyncio.Protocol):
    """The least that echoes: no frames, no bounds, no order. A floor, not a server."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self.transport.write(data)  # type: ignore[attr-defined] # a transport that writes


async def serve_bare() -> int:
    """Listen with the floor."""
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


SERVERS = {"ours": serve_ours, "streams": serve_streams, "bare": serve_bare}
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}


def server_process(loop_name: str, server_name: str, pipe: Pipe) -> None:
    """Serve, and tell the CPU time spent so far whenever asked."""

    async def main() -> None:
        pipe.send(await SERVERS[server_name]())
        loop = asyncio.get_running_loop()
        stopped = loop.create_future()

        def asked() -> None:
            if pipe.recv() == "cpu":
                usage = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send((usage.ru_utime, usage.ru_stime))
            else:
                stopped.set_result(None)

        loop.add_reader(pipe.fileno(), asked)
        await stopped

    with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
        runner.run(main())


def receive_exactly(sock: socket.socket, room: memoryview) -> None:
    """Fill a buffer."""
    while room:
        count = sock.recv_into(room)
        if not count:
            raise ConnectionError("the server has closed the connection")
        room = room[count:]


def drive(port: int, size: int, depth: int, seconds: float) -> int:
    """Send and receive for some seconds; return how many requests that were."""
    request = struct.pack(">i", size) + bytes(size)
    burst, room = request * depth, memoryview(bytearray(len(request) * depth))
    done, end = 0, time.perf_counter() + seconds
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.perf_counter() < end:
            sock.sendall(burst)
            receive_exactly(sock, room)
            done += depth
    return done


def measure(loop_name: str, server_name: str, seconds: float) -> list[Result]:
    """Run every case against one server."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=server_process, args=(loop_name, server_name, theirs)
    )
    process.start()
    port, results = ours.recv(), []
    for _, size, depth in CASES:
        drive(port, size, depth, seconds / 5)
        user, system = cpu(ours)
        done = drive(port, size, depth, seconds)
        user, system = (now - then for now, then in zip(cpu(ours), (user, system), strict=True))
        results.append(Result(done / seconds, (user + system) / done * 1e6, user / done * 1e6))
    ours.send("stop")
    process.join()
    return results


def cpu(pipe: Pipe) -> tuple[float, float]:
    """Ask the server for its CPU time, in its own code and in the system's."""
    pipe.send("cpu")
    user, system = pipe.recv()
    return user, system


def main() -> None:
    """Print a table, with each server's cost as a ratio of ours."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    head = ("loop", "case", "server", "requests/s", "CPU us", "of ours", "user us", "of ours")
    print("{:8} {:20} {:8} {:>11} {:>9} {:>8} {:>9} {:>8}".format(*head))
    for loop_name in LOOPS:
        results = {server: measure(loop_name, server, seconds) for server in SERVERS}
        for number, (case, _, _) in enumerate(CASES):
            own = results["ours"][number]
            for server, rows in results.items():
                row = rows[number]
                print(
                    f"{loop_name:8} {case:20} {server:8} {row.per_second:11,.0f} "
                    f"{row.cpu_us:9.2f} {row.cpu_us / own.cpu_us:7.2f}x "
                    f"{row.user_us:9.2f} {row.user_us / own.user_us:7.2f}x"
                )


if __name__ == "__main__":
    main()
