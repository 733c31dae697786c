"""What does one request through `rookery proxy` cost, and how much time does it add?

A broker with canned answers, the proxy and a raw client, each a process of its own. CPU time is the
proxy's own, user and system. `--trees` compares source trees of Rookery in turns, for example the
present one and a worktree of an earlier commit; their compiled modules must be built.

Examples:
  python bench/relay.py
  python bench/relay.py --rounds 5 --trees /tmp/before,.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table

from rookery.errors import ErrorCode
from rookery.net.connection import Connection
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.outbox import Answer
from rookery.testing.java import FullJava
from rookery.testing.kroxylicious import KroxyliciousServer, kroxylicious_java
from rookery.testing.ports import HOST, free_ports
from rookery.wire.buffer import Buffer
from rookery.wire.catalog import kafka_apis
from rookery.wire.codec import peek, read_request, request_frame, response_frame
from rookery.wire.frame import Frame
from rookery.wire.message import Api, Message
from rookery.wire.messages import fetch, produce
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from rookery.wire.messages.metadata import METADATA, MetadataResponse, MetadataResponseBroker
from rookery.wire.messages.produce import PRODUCE

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_TOPIC: Final = "bench"


class Case(NamedTuple):
    """One kind of request, and how many are in flight."""

    name: str
    request: bytes
    depth: int


class Result(NamedTuple):
    """What a case came to."""

    per_second: float
    cpu_us: float
    p10_us: float
    """The round trip of requests that nothing else on the machine has delayed."""
    p50_us: float
    p99_us: float


def frame_of(parts: list[Buffer]) -> bytes:
    """Return a message as one piece."""
    return b"".join(parts)


def produce_request(size: int) -> bytes:
    """Return a Produce of one batch."""
    data = produce.PartitionProduceData(index=0, records=bytes(size))
    topic = produce.TopicProduceData(name=_TOPIC, partition_data=[data])
    body = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    return frame_of(request_frame(PRODUCE, 12, 7, "bench", body))


def fetch_request(size: int) -> bytes:
    """Return a Fetch of a session, which names nothing; the answer has a given number of bytes."""
    body = fetch.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=size, session_id=9, session_epoch=5, topics=[]
    )
    return frame_of(request_frame(FETCH, 17, 7, "bench", body))


def heartbeat_request() -> bytes:
    """Return a Heartbeat."""
    body = HeartbeatRequest(group_id="bench", generation_id=1, member_id="member")
    return frame_of(request_frame(HEARTBEAT, 4, 7, "bench", body))


CASES: Final = (
    Case("heartbeat, one at a time", heartbeat_request(), 1),
    Case("produce 170 B, one at a time", produce_request(170), 1),
    Case("fetch 170 B, one at a time", fetch_request(170), 1),
    Case("produce 170 B, 32 deep", produce_request(170), 32),
    Case("produce 64 KB, one at a time", produce_request(65_536), 1),
    Case("produce 64 KB, 5 deep", produce_request(65_536), 5),
    Case("produce 1 MB, one at a time", produce_request(1_000_000), 1),
    Case("fetch 64 KB, one at a time", fetch_request(65_536), 1),
    Case("fetch 1 MB, one at a time", fetch_request(1_000_000), 1),
    Case("fetch 4 MB, one at a time", fetch_request(4_000_000), 1),
)


def answers(port: int) -> dict[int, tuple[Api[Any, Any], Message]]:
    """Return the canned answers by the key of their API."""
    versions = [
        ApiVersion(
            api_key=api.key, min_version=api.versions.start, max_version=api.versions.stop - 1
        )
        for api in kafka_apis().values()
    ]
    put = produce.PartitionProduceResponse(
        index=0, error_code=ErrorCode.NONE, base_offset=5, log_start_offset=0
    )
    stored = produce.TopicProduceResponse(name=_TOPIC, partition_responses=[put])
    node = MetadataResponseBroker(node_id=0, host=HOST, port=port)
    messages: list[tuple[Api[Any, Any], Message]] = [
        (API_VERSIONS, ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=versions)),
        (METADATA, MetadataResponse(brokers=[node], cluster_id="bench", topics=[])),
        (PRODUCE, produce.ProduceResponse(responses=[stored])),
        (HEARTBEAT, HeartbeatResponse(error_code=ErrorCode.NONE)),
    ]
    return {api.key: (api, body) for api, body in messages}


def fetched(request: fetch.FetchRequest) -> fetch.FetchResponse:
    """Return an answer with as many bytes as a request allows."""
    data = fetch.PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        high_watermark=6,
        records=bytes(request.max_bytes),
    )
    topic = fetch.FetchableTopicResponse(topic_id=b"t" * 16, partitions=[data])
    return fetch.FetchResponse(session_id=9, responses=[topic])


def serve_broker(port: int) -> None:
    """Answer every request at once with the canned answer of its API."""
    canned = answers(port)
    encoded: dict[tuple[int, int, bytes], bytes] = {}

    def answer(_: Connection, frame: Frame) -> Answer:
        key, version, _number = peek(frame)
        # Fetches ask for different sizes.
        body_bytes = bytes(frame[8:]) if key == FETCH.key else b""
        whole = encoded.get((key, version, body_bytes))
        if whole is None:
            api, body = (
                (FETCH, fetched(read_request(FETCH, frame)[1])) if key == FETCH.key else canned[key]
            )
            whole = frame_of(response_frame(api, version, 0, body))
            encoded[key, version, body_bytes] = whole
        return [whole[:4], bytes(frame[4:8]), whole[8:]]

    async def main() -> None:
        listener = Listener(answer, ListenerSettings(host=HOST, port=port))
        await listener.start()
        await asyncio.get_running_loop().create_future()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def wait_for(port: int) -> None:
    """Return when a server listens on a port."""
    for _ in range(600):
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"no server listens on port {port}")


@contextmanager
def broker() -> Iterator[int]:
    """Run the broker in a process of its own; return its port."""
    port = free_ports(1)
    process = multiprocessing.get_context("spawn").Process(target=serve_broker, args=(port,))
    process.start()
    try:
        wait_for(port)
        yield port
    finally:
        process.kill()
        process.join()


@contextmanager
def proxy(tree: str, upstream: int) -> Iterator[tuple[int, int]]:
    """Run the proxy of a source tree; return its port and its process id."""
    port = free_ports(3)
    command = [
        *(sys.executable, "-m", "rookery.cli.main", "proxy", "--http-listen", ""),
        *("--upstream", f"{HOST}:{upstream}", "--listen", f"{HOST}:{port}"),
        *("--node-ports", f"{port + 1}-{port + 2}"),
    ]
    source = str(Path(tree).resolve() / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(port)
            yield port, process.pid
        finally:
            process.kill()


@contextmanager
def peer(upstream: int) -> Iterator[tuple[int, int]]:
    """Run Kroxylicious, with both JIT compilers; return its port and its process id."""
    machine_java = kroxylicious_java()
    java = FullJava(machine_java.program, machine_java.libs)
    with KroxyliciousServer(f"{HOST}:{upstream}", java=java) as server:
        yield server.port, server.pid


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def receive(sock: socket.socket, room: memoryview, known: int) -> int:
    """Receive one answer; return its size. `known` is the size of the one before."""
    got = sock.recv_into(room)
    size = known or 4 + int.from_bytes(room[:4], "big")
    while got < size:
        count = sock.recv_into(room[got:])
        if not count:
            raise SystemExit("the server has closed the connection")
        got += count
    return size


def drive(port: int, case: Case, seconds: float) -> tuple[int, list[float]]:
    """Send and receive for some seconds; return how many requests, and the times of the rounds."""
    burst = case.request * case.depth
    room = memoryview(bytearray(1 << 23))
    times: list[float] = []
    with socket.create_connection((HOST, port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(case.request)
        size = receive(sock, room, 0)
        clock = time.perf_counter
        now = clock()
        end = now + seconds
        while now < end:
            begin = now
            sock.sendall(burst)
            receive(sock, room, size * case.depth)
            now = clock()
            times.append(now - begin)
    return len(times) * case.depth, times


def measure(port: int, pid: int | None, case: Case, seconds: float) -> Result:
    """Measure one case."""
    drive(port, case, seconds / 5)
    before = cpu_seconds(pid) if pid else 0.0
    done, times = drive(port, case, seconds)
    spent = (cpu_seconds(pid) if pid else 0.0) - before
    times.sort()
    quantiles = (times[int(len(times) * part)] * 1e6 for part in (0.1, 0.5, 0.99))
    return Result(done / sum(times), spent / done * 1e6, *quantiles)


def median(results: list[Result]) -> Result:
    """Return the median of each figure."""
    return Result(*(statistics.median(column) for column in zip(*results, strict=True)))


def parse() -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trees", default=".", help="source trees, separated by commas")
    parser.add_argument("--peer", action="store_true", help="measure Kroxylicious, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each case")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds, for a JIT compiler")
    parser.add_argument("--only", default="", help="a part of the names of cases")
    return parser.parse_args()


def main() -> None:
    """Measure every proxy in turns, and print medians."""
    arguments = parse()
    cases = [case for case in CASES if arguments.only in case.name]
    results_of: dict[tuple[str, str], list[Result]] = {}
    with ExitStack() as stack:
        upstream = stack.enter_context(broker())
        ways: list[tuple[str, int, int | None]] = [("direct", upstream, None)]
        trees = arguments.trees.split(",")
        ways += [(tree, *stack.enter_context(proxy(tree, upstream))) for tree in trees]
        if arguments.peer:
            ways.append(("Kroxylicious", *stack.enter_context(peer(upstream))))
            for case in cases:
                drive(ways[-1][1], case, arguments.warm_up)
        for case in cases:
            for _ in range(arguments.rounds):
                for name, port, pid in ways:
                    result = measure(port, pid, case, arguments.seconds)
                    results_of.setdefault((case.name, name), []).append(result)
    show(cases, results_of, arguments.rounds)


def show(cases: list[Case], results_of: dict[tuple[str, str], list[Result]], rounds: int) -> None:
    """Print a table."""
    table = Table(title=f"medians of {rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for name in ("case", "through", "requests/s", "proxy CPU µs", "p10 µs", "p50 µs", "p99 µs"):
        table.add_column(name, justify="left" if name in {"case", "through"} else "right")
    for case in cases:
        for (name, way), results in results_of.items():
            if name == case.name:
                row = median(results)
                table.add_row(name, way, f"{row.per_second:,.0f}", *(f"{x:.1f}" for x in row[1:]))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
